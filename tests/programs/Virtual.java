import java.lang.reflect.Field;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;
import sun.misc.Unsafe;

/**
 * Virtual threads that leave their carrier at some depths, and allocate before and after that and on their way out, a size of
 * its own each time. Prints by which methods of this class, in which lines; nothing where there are no virtual threads.
 */
public class Virtual {
    static Unsafe unsafe;
    static final StringBuilder said = new StringBuilder();
    static long size = 2_000_000;

    static void leaf() {
        long mine;
        synchronized (said) { mine = size += 8; }
        unsafe.freeMemory(unsafe.allocateMemory(mine)); StackTraceElement[] frames = new Throwable().getStackTrace();
        StringBuilder text = new StringBuilder().append(mine);
        for (StackTraceElement frame : frames) {
            if (!frame.getClassName().startsWith("Virtual")) break;
            text.append(' ').append(frame.getClassName()).append('.').append(frame.getMethodName());
            text.append(':').append(frame.getLineNumber());
        }
        synchronized (said) { said.append(text).append('\n'); }
    }
    static int down(int depth, int way) {
        if (depth == 0) { leave(way); leaf(); return 1; }
        int found = (way & 1) == 0 ? narrow(depth - 1, way >> 1) : wide(depth - 1, way >> 1, depth * 0.5, way * 3L);
        if (depth % 3 == 0) leaf();
        return found;
    }
    static int narrow(int depth, int way) {
        int found = down(depth, way);
        if (depth % 4 == 1) { leave(depth); leaf(); }
        return found;
    }
    static int wide(int depth, int way, double first, long second) {
        long a = second * 3, b = a ^ way;
        double c = first * 2;
        int found = down(depth, way);
        if (depth % 5 == 0) leaf();
        return found + (a + b + c == 0.25 ? 1 : 0);
    }
    static void leave(int way) { if (way % 2 == 0) Thread.yield(); else LockSupport.parkNanos(20_000); }

    static void work(int number) {
        for (int round = 0; round < 10; round++) {
            leaf();
            down((number * 7 + round) % 30, number * 1103515245 + round * 77);
        }
    }
    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        ExecutorService executor;
        try {
            executor = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (NoSuchMethodException e) {
            return;
        }
        int threads = Integer.parseInt(arguments[0]);
        unsafe.freeMemory(unsafe.allocateMemory(8));
        CountDownLatch working = new CountDownLatch(threads);
        for (int thread = 0; thread < threads; thread++) {
            int number = thread;
            executor.submit(() -> { try { work(number); } finally { working.countDown(); } });
        }
        working.await();
        System.out.print(said);
    }
}
