/**
 * Threads deep in recursions, named by what they do: `spin` computes at the end of 6,000 calls, again and again, `rest` sleeps there.
 * run -> handle -> down -> ... -> down -> leaf. Says `ready` when both are there. Ends when its standard input does.
 */
public class Deep {
    static volatile long sink;
    static volatile int there;

    static void handleSpin() {
        downSpin(6_000);
    }

    static void downSpin(int depth) {
        if (depth > 0) {
            downSpin(depth - 1);
        } else {
            leafSpin();
        }
        sink++;
    }

    static void leafSpin() {
        for (int i = 0; i < 2_000_000; i++) {
            sink = sink * 31 + i;
        }
    }

    static void handleRest() {
        downRest(6_000);
    }

    static void downRest(int depth) {
        if (depth > 0) {
            downRest(depth - 1);
        } else {
            leafRest();
        }
        sink++;
    }

    static void leafRest() {
        there++;
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void start(String name, Runnable task) {
        Thread thread = new Thread(null, task, name, 64 << 20);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        start("spin", () -> {
            while (true) {
                handleSpin();
            }
        });
        start("rest", Deep::handleRest);
        while (there < 1) {
            Thread.sleep(1);
        }
        Thread.sleep(200);
        System.out.println("ready");
        while (System.in.read() >= 0) {
            sink++;
        }
        System.exit(0);
    }
}
