/**
 * Two workloads that are told apart by looking now and then: long methods, and very many short calls.
 *
 *     demos/java/run sampling
 *
 * What to see: `mixed-` runs [100, 1, 100, 500, 1, 100, 1, 50, 50] ms methods, each half on the CPU and half asleep: 55 % of
 * its time in method500ms, 33 % in method100ms, 11 % in method50ms, 0.3 % in method1ms. `mass-` calls a tiny method 100
 * million times, again and again: nearly all CPU, and, once it is compiled, `inlined` into its caller. Nothing slows it down:
 * it prints how long 100 million calls took.
 *
 *     java Sampling [SECONDS]    how long (default 0: until killed)
 */
public class Sampling {
    static volatile long sink;

    static void spend(int milliseconds) throws InterruptedException {
        long until = System.nanoTime() + milliseconds * 500_000L;
        while (System.nanoTime() < until) {
            sink++;
        }
        Thread.sleep(milliseconds / 2, milliseconds % 2 * 500_000);
    }

    static void method1ms() throws InterruptedException {
        spend(1);
    }

    static void method50ms() throws InterruptedException {
        spend(50);
    }

    static void method100ms() throws InterruptedException {
        spend(100);
    }

    static void method500ms() throws InterruptedException {
        spend(500);
    }

    static void mixed() throws InterruptedException {
        while (true) {
            method100ms();
            method1ms();
            method100ms();
            method500ms();
            method1ms();
            method100ms();
            method1ms();
            method50ms();
            method50ms();
        }
    }

    static long tiny(long n) {
        return n * 0x9e3779b97f4a7c15L ^ n >>> 29;
    }

    static void mass() {
        while (true) {
            long begin = System.nanoTime();
            long sum = 0;
            for (int n = 0; n < 100_000_000; n++) {
                sum += tiny(sum + n);
            }
            sink += sum;
            System.out.println("100 million calls: " + (System.nanoTime() - begin) / 1_000_000 + " ms");
        }
    }

    interface Work {
        void run() throws InterruptedException;
    }

    static void start(String name, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws InterruptedException {
        long seconds = arguments.length > 0 ? Long.parseLong(arguments[0]) : 0;
        System.out.println("ready");
        for (int n = 1; n <= 3; n++) {
            start("mixed-" + n, Sampling::mixed);
        }
        start("mass-1", Sampling::mass);
        Thread.sleep(seconds > 0 ? seconds * 1_000 : Long.MAX_VALUE);
        System.exit(0);
    }
}
