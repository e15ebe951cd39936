/**
 * Threads `enter-interpreted` and `enter-compiled` want one monitor, in the same method. `request` joins a thread in a method of its own. Says
 * `ready` when they are there; then `main` joins, too, or returns if there is an argument. Ends when its standard input does.
 */
public class Monitors {
    static final Object WANTED = new Object();
    static long sink;

    static void enter(Object monitor) {
        synchronized (monitor) {
            sink++;
        }
    }

    static Thread start(String name, Runnable task, Thread.State until) throws Exception {
        Thread thread = new Thread(task, name);
        thread.start();
        while (thread.getState() != until) {
            Thread.sleep(1);
        }
        return thread;
    }

    static void handle(Thread other) {
        try {
            other.join();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void sleep() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread holder = start("holder", () -> {
            synchronized (WANTED) {
                sleep();
            }
        }, Thread.State.TIMED_WAITING);
        start("enter-interpreted", () -> enter(WANTED), Thread.State.BLOCKED);
        Object other = new Object();
        for (int i = 0; i < 300_000; i++) {
            enter(other);
        }
        // Compilers take a while.
        Thread.sleep(500);
        start("enter-compiled", () -> enter(WANTED), Thread.State.BLOCKED);
        start("request", () -> handle(holder), Thread.State.WAITING);
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    Thread.onSpinWait();
                }
            } catch (java.io.IOException e) {
                throw new IllegalStateException(e);
            }
            System.exit(0);
        }, "end");
        end.setDaemon(true);
        end.start();
        System.out.println("ready");
        if (arguments.length == 0) {
            holder.join();
        }
    }
}
