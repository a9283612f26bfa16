import java.lang.instrument.ClassDefinition;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.util.function.LongConsumer;
import sun.misc.Unsafe;

/**
 * An agent that replaces a class while its methods run, by one whose methods have other lines: another thread does it, before
 * anything was allocated in these frames. Then they allocate, call the new methods if their version is even, which do, and
 * allocate again. Prints how often it was replaced.
 */
public class Redefines {
    static Unsafe unsafe;
    static Instrumentation instrumentation;
    static LongConsumer consumer;
    static int version = 0;
    static volatile boolean isWanted = false;

    public static void premain(String arguments, Instrumentation given) { instrumentation = given; }

    /** Sizes are 1,000,000 + 32 * version, 8 more where the new methods are called, and 16 more behind that. */
    public static void allocate(long size) throws Exception {
        if (size % 32 == 8) {
            unsafe.freeMemory(unsafe.allocateMemory(size));
            return;
        }
        isWanted = true;
        while (isWanted) Thread.onSpinWait();
        unsafe.freeMemory(unsafe.allocateMemory(size));
        if (version % 2 == 0) consumer.accept(size + 8);
        unsafe.freeMemory(unsafe.allocateMemory(size + 16));
    }

    static void replace() {
        try {
            while (true) {
                while (!isWanted) Thread.sleep(0, 10_000);
                version++;
                byte[] code = Reloads.made("Made", version, "Redefines");
                instrumentation.redefineClasses(new ClassDefinition(consumer.getClass(), code));
                // Ends old methods that nobody runs, so that new ones are where they were.
                if (version % 8 == 0) System.gc();
                isWanted = false;
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        ClassLoader loader = new ClassLoader(Redefines.class.getClassLoader()) {
            protected Class<?> findClass(String name) {
                try {
                    byte[] code = Reloads.made("Made", 0, "Redefines");
                    return defineClass(name, code, 0, code.length);
                } catch (Exception e) {
                    throw new Error(e);
                }
            }
        };
        consumer = (LongConsumer) loader.loadClass("Made").getDeclaredConstructor().newInstance();
        Thread other = new Thread(Redefines::replace);
        other.setDaemon(true);
        other.start();
        int versions = Integer.parseInt(arguments[0]);
        while (version < versions) consumer.accept(1_000_000 + 32 * version);
        System.out.println(version);
    }
}
