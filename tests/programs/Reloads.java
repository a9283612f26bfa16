import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.lang.ref.WeakReference;
import java.lang.reflect.Field;
import java.util.function.LongConsumer;
import sun.misc.Unsafe;

/**
 * Loads classes of the same shape, whose names and lines differ, each by a loader of its own, has each allocate native memory
 * of a size of its own, and drops it, so that the next ones are where it was. Prints how many are gone.
 */
public class Reloads {
    static Unsafe unsafe;

    public static void allocate(long size) { unsafe.freeMemory(unsafe.allocateMemory(size)); }

    static class Loader extends ClassLoader {
        Loader() { super(Reloads.class.getClassLoader()); }
        Class<?> define(String name, byte[] code) { return defineClass(name, code, 0, code.length); }
    }

    /**
     * `accept`, in line 10000 + number, calls a static method that is called as its class is, in line 30000 + number, which
     * calls `allocate` of a class. Of odd numbers both begin with a bytecode more.
     */
    static byte[] made(String name, int number, String allocator) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(0xCAFEBABE);
        out.writeInt(52);
        out.writeShort(24);
        Object[] pool = {
            name, 1, "java/lang/Object", 3, "java/util/function/LongConsumer", 5, "<init>", "()V", new int[] { 7, 8 },
            new int[] { 4, 9 }, "accept", "(J)V", name.toLowerCase(), new int[] { 13, 12 }, new int[] { 2, 14 }, allocator, 16,
            "allocate", new int[] { 18, 12 }, new int[] { 17, 19 }, "Code", "LineNumberTable", "SourceFile",
        };
        for (int index = 0; index < pool.length; index++) {
            Object entry = pool[index];
            if (entry instanceof String text) { out.writeByte(1); out.writeUTF(text); }
            else if (entry instanceof Integer at) { out.writeByte(7); out.writeShort(at); }
            else if (entry instanceof int[] pair) {
                boolean isMember = index == 9 || index == 14 || index == 19;
                out.writeByte(isMember ? 10 : 12); out.writeShort(pair[0]); out.writeShort(pair[1]);
            }
        }
        out.writeShort(0x21); out.writeShort(2); out.writeShort(4);
        out.writeShort(1); out.writeShort(6);
        out.writeShort(0);
        out.writeShort(3);
        method(out, 1, 7, 8, new int[] { 0x2a, 0xb7, 0, 10, 0xb1 }, 1, 1);
        boolean isOdd = number % 2 == 1;
        method(out, 1, 11, 12, isOdd ? new int[] { 0, 0x1f, 0xb8, 0, 15, 0xb1 } : new int[] { 0x1f, 0xb8, 0, 15, 0xb1 }, 3, 10000 + number);
        method(out, 9, 13, 12, isOdd ? new int[] { 0, 0x1e, 0xb8, 0, 20, 0xb1 } : new int[] { 0x1e, 0xb8, 0, 20, 0xb1 }, 2, 30000 + number);
        out.writeShort(1); out.writeShort(23); out.writeInt(2); out.writeShort(1);
        return bytes.toByteArray();
    }

    static void method(DataOutputStream out, int flags, int name, int type, int[] code, int locals, int line) throws Exception {
        out.writeShort(flags); out.writeShort(name); out.writeShort(type); out.writeShort(1);
        out.writeShort(21); out.writeInt(24 + code.length); out.writeShort(2); out.writeShort(locals);
        out.writeInt(code.length);
        for (int part : code) out.writeByte(part);
        out.writeShort(0); out.writeShort(1);
        out.writeShort(22); out.writeInt(6); out.writeShort(1); out.writeShort(0); out.writeShort(line);
    }

    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        int classes = Integer.parseInt(arguments[0]), gone = 0;
        for (int number = 0; number < classes; number++) {
            String name = "Made" + (10000 + number);
            Loader loader = new Loader();
            LongConsumer consumer =
                (LongConsumer) loader.define(name, made(name, number, "Reloads")).getDeclaredConstructor().newInstance();
            consumer.accept(1_000_000 + 16 * number);
            consumer.accept(1_000_000 + 16 * number + 8);
            WeakReference<Loader> dropped = new WeakReference<>(loader);
            loader = null;
            consumer = null;
            System.gc();
            if (dropped.get() == null) gone++;
        }
        System.out.println(gone);
    }
}
