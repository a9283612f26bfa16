import java.lang.reflect.Field;
import sun.misc.Unsafe;

/** Allocates native memory of a size of its own at each call, and prints by what methods it was called, in which lines. */
public class Stacks {
    interface Step { int go(int depth, int way); }
    static class Left implements Step { public int go(int depth, int way) { return narrow(depth, way); } }
    static class Right implements Step { public int go(int depth, int way) { return wide(depth, way, depth * 1.5, way * 3L); } }

    static Unsafe unsafe;
    static long size = 40_000;
    static Step step = new Left();
    static final StringBuilder said = new StringBuilder();
    static double kept;

    static int leaf(int number) {
        size += 8;
        unsafe.freeMemory(unsafe.allocateMemory(size)); StackTraceElement[] frames = new Throwable().getStackTrace();
        said.append(size);
        for (StackTraceElement frame : frames) {
            said.append(' ').append(frame.getClassName()).append('.').append(frame.getMethodName());
            said.append(':').append(frame.getLineNumber());
        }
        said.append('\n');
        return number;
    }
    static int on(int depth, int way) {
        if (depth == 0) return leaf(way);
        switch (way & 3) {
            case 0: return narrow(depth - 1, way >> 2) + 1;
            case 1: return wide(depth - 1, way >> 2, depth * 0.5, way * 7L) + 1;
            case 2: return step.go(depth - 1, way >> 2) + 1;
            default: return many(depth - 1, way >> 2, 1, 2, 3, 4, 5, 6, 7, 8) + 1;
        }
    }
    static int narrow(int depth, int way) { return on(depth, way); }
    static int wide(int depth, int way, double first, long second) {
        double[] values = { first, second, depth, way };
        long a = second * 3, b = second ^ way, c = second + depth, d = a * b, e = b * c, f = c * d, g = d + e, h = e ^ f;
        double x = first * 2, y = first + depth, z = x * y;
        int found = on(depth, way);
        kept += a + b + c + d + e + f + g + h + x + y + z + values[found & 3];
        return found;
    }
    static int many(int depth, int way, int a, int b, long c, long d, int e, int f, int g, int h) {
        int found = on(depth, way);
        return found + (int) (a + b + c + d + e + f + g + h) - 36;
    }
    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        int rounds = Integer.parseInt(arguments[0]), sum = 0, seed = 12345;
        for (int round = 0; round < rounds; round++) {
            if (round == rounds / 2) step = new Right();
            seed = seed * 1103515245 + 12345;
            sum += on((seed >>> 8) % 14 & 15, seed >>> 12);
        }
        System.out.print(said);
        System.err.println(sum != 0 && kept != 0);
    }
}
