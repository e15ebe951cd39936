import java.lang.reflect.Method;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;

/**
 * Virtual threads that come and go, burn CPU time in a method that is their name's first letter, and yield; some are deep in calls
 * then, some have no name. One holds its carrier while it waits. Rubbish is made, so that the collector moves them all. Needs
 * `--add-exports java.base/jdk.internal.vm=ALL-UNNAMED` to hold a carrier.
 *
 * Says `ready` when all is compiled; for each line on its standard input it says how much work each method has done (the last one:
 * those without a name). Ends with its input.
 */
public class Virtual {
    static final int KINDS = 8;
    static final AtomicLongArray DONE = new AtomicLongArray(KINDS + 1);
    static final AtomicLong NUMBER = new AtomicLong();
    static volatile long sink;
    static volatile Object rubbish;

    static long burn(int n) {
        long x = n;
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + (x >>> 17);
        return x;
    }

    static void a(int n) { sink += burn(n); }
    static void b(int n) { sink += burn(n); }
    static void c(int n) { sink += burn(n); }
    static void d(int n) { sink += burn(n); }
    static void e(int n) { sink += burn(n); }
    static void f(int n) { sink += burn(n); }
    static void g(int n) { sink += burn(n); }
    static void h(int n) { sink += burn(n); }
    static void nameless(int n) { sink += burn(n); }

    static void work(int kind, int n) {
        switch (kind) {
            case 0 -> a(n);
            case 1 -> b(n);
            case 2 -> c(n);
            case 3 -> d(n);
            case 4 -> e(n);
            case 5 -> f(n);
            case 6 -> g(n);
            case 7 -> h(n);
            default -> nameless(n);
        }
        DONE.addAndGet(kind, n);
    }

    static int descend(int depth, int kind, SplittableRandom random) {
        if (depth > 0) {
            return descend(depth - 1, kind, random) + 1;
        }
        for (int turns = random.nextInt(1, 8); turns > 0; turns--) {
            work(kind, random.nextInt(100_000, 2_000_000));
            rubbish = new byte[random.nextInt(1000, 200_000)];
            Thread.yield();
        }
        return 0;
    }

    /** Each starts its successor. */
    static void start(SplittableRandom random) {
        // The first kinds have more to do.
        int kind = Math.min(random.nextInt(KINDS + 1), random.nextInt(KINDS + 1));
        int depth = random.nextInt(4) == 0 ? 200 : 2;
        var builder = Thread.ofVirtual();
        if (kind < KINDS) {
            builder = builder.name((char) ('a' + kind) + "-" + NUMBER.incrementAndGet());
        }
        builder.start(() -> {
            descend(depth, kind, random);
            start(random.split());
        });
    }

    static void held(Method pin, Method unpin) throws Exception {
        while (true) {
            pin.invoke(null);
            LockSupport.parkNanos(30_000_000);
            unpin.invoke(null);
            Thread.yield();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Class<?> continuation = Class.forName("jdk.internal.vm.Continuation");
        Method pin = continuation.getMethod("pin"), unpin = continuation.getMethod("unpin");
        Thread.ofVirtual().name("holds its carrier").start(() -> {
            try {
                held(pin, unpin);
            } catch (Exception failed) {
                failed.printStackTrace();
                System.exit(1);
            }
        });
        for (int i = 0; i < 12; i++) {
            start(new SplittableRandom(i));
        }
        while (NUMBER.get() < 300) {
            Thread.sleep(1);
        }
        System.out.println("ready");
        for (int c; (c = System.in.read()) >= 0;) {
            if (c == '\n') {
                StringBuilder line = new StringBuilder();
                for (int kind = 0; kind <= KINDS; kind++) {
                    line.append(kind == 0 ? "" : " ").append(DONE.get(kind));
                }
                System.out.println(line);
            }
        }
        System.exit(0);
    }
}
