import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that take two locks each. The argument says how: `monitors` and `locks` end in a deadlock of `left` and `right`, `nested` takes
 * monitors always in the same order. Says `ready` when they are there. Ends when its standard input does.
 */
public class Deadlock {
    static class Account {
        final ReentrantLock lock = new ReentrantLock();
    }

    static final Account[] ACCOUNTS = {new Account(), new Account(), new Account()};
    static final CountDownLatch BOTH = new CountDownLatch(2);

    static void meet() {
        BOTH.countDown();
        try {
            BOTH.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void transfer(Account from, Account to, boolean monitors) {
        if (monitors) {
            synchronized (from) {
                meet();
                synchronized (to) {
                    throw new IllegalStateException("both");
                }
            }
        }
        from.lock.lock();
        meet();
        to.lock.lock();
    }

    static void nest(int seed) throws InterruptedException {
        java.util.Random random = new java.util.Random(seed);
        while (true) {
            int outer = random.nextInt(2), inner = outer + 1 + random.nextInt(2 - outer);
            synchronized (ACCOUNTS[outer]) {
                Thread.sleep(random.nextInt(3));
                synchronized (ACCOUNTS[inner]) {
                    Thread.sleep(random.nextInt(3));
                }
            }
        }
    }

    static Thread start(String name, Runnable task) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("nested")) {
            for (int n = 0; n < 8; n++) {
                int seed = n;
                start("nest-" + n, () -> {
                    try {
                        nest(seed);
                    } catch (InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                });
            }
        } else {
            boolean monitors = arguments[0].equals("monitors");
            Thread.State until = monitors ? Thread.State.BLOCKED : Thread.State.WAITING;
            Thread left = start("left", () -> transfer(ACCOUNTS[0], ACCOUNTS[1], monitors));
            Thread right = start("right", () -> transfer(ACCOUNTS[1], ACCOUNTS[0], monitors));
            while (BOTH.getCount() > 0 || left.getState() != until || right.getState() != until) {
                Thread.sleep(1);
            }
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            Thread.onSpinWait();
        }
    }
}
