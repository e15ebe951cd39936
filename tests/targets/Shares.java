import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * A thread that spends its time in three methods, and measures itself how much in each by its own CPU clock. Says `ready` when they are
 * compiled; for each line on its standard input it says those times, ns: red, green, blue. Ends with its input.
 */
public class Shares {
    static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
    static final AtomicLongArray SPENT = new AtomicLongArray(3);
    static volatile long sink;
    static volatile boolean warm;

    static long red(int n) {
        long x = n;
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + (x >>> 17);
        return x;
    }

    static long green(int n) {
        long x = n;
        for (int i = 0; i < n; i++) x = (x << 7 | x >>> 57) + 1442695040888963407L * i;
        return x;
    }

    static long blue(int n) {
        double x = n;
        for (int i = 1; i < n; i++) x = x / i + Math.sqrt(x);
        return (long) x;
    }

    /** Lengths that follow no beat: a sampler's must not meet it. */
    static int some(long random) {
        return 10_000 << (random & 3) | (int) (random >>> 2 & 0xfff);
    }

    /** In this order, each timed by the thread's own clock. */
    static void round(int first, int second, int third) {
        long begin = CLOCK.getCurrentThreadCpuTime();
        sink += red(first);
        long redEnd = CLOCK.getCurrentThreadCpuTime();
        sink += green(second);
        long greenEnd = CLOCK.getCurrentThreadCpuTime();
        sink += blue(third / 2);
        long end = CLOCK.getCurrentThreadCpuTime();
        SPENT.addAndGet(0, redEnd - begin);
        SPENT.addAndGet(1, greenEnd - redEnd);
        SPENT.addAndGet(2, end - greenEnd);
    }

    static void loop() {
        for (int i = 0; i < 20_000; i++) {
            round(100, 100, 100);
        }
        SplittableRandom random = new SplittableRandom(7);
        for (int i = 0;; i++) {
            round(some(random.nextLong()), some(random.nextLong()), some(random.nextLong()));
            warm |= i == 500;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread thread = new Thread(Shares::loop, "shares");
        thread.setDaemon(true);
        thread.start();
        while (!warm) {
            Thread.sleep(1);
        }
        System.out.println("ready");
        for (int c; (c = System.in.read()) >= 0;) {
            if (c == '\n') {
                System.out.println(SPENT.get(0) + " " + SPENT.get(1) + " " + SPENT.get(2));
            }
        }
        System.exit(0);
    }
}
