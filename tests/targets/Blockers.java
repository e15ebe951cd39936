import java.lang.reflect.Method;
import java.net.ServerSocket;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Threads that wait for locks and other things, each named after what it waits for. Threads `holder` and `holds-...` have what the others wait
 * for. Says `ready` when all wait. A line on its standard input makes it collect garbage and say `collected`; it ends when its input does. With a
 * second argument it makes garbage all the time, and threads `spin-group-N` share the locks of their group.
 */
public class Blockers {
    static class TaxTable {}

    static class Worker extends Thread {
        Worker(Runnable work, String name) {
            super(work, name);
        }
    }

    /** To use it is to wait for a lock on a carrier's stack: the initialiser pins the virtual thread. */
    static class WaitsForLock {
        static {
            LOCK.lock();
        }

        static void use() {}
    }

    static class Sleeps {
        static {
            sleep();
        }

        static void use() {}
    }

    static final Object MONITOR = new TaxTable(), HEAVY = new TaxTable(), AGAIN = new TaxTable(), NOTIFIED = new TaxTable();
    static final Object MOUNTED = new TaxTable(), UNMOUNTED = new TaxTable();
    static final byte[] ARRAY = new byte[3];
    static final String[][] ARRAYS = new String[2][2];
    static final ReentrantLock LOCK = new ReentrantLock(), FAIR = new ReentrantLock(true), VIRTUAL = new ReentrantLock(), OF_CONDITION = new ReentrantLock();
    static final Condition CONDITION = OF_CONDITION.newCondition();
    static final ReentrantReadWriteLock WRITTEN = new ReentrantReadWriteLock(), READ_ONCE = new ReentrantReadWriteLock(true), READ_TWICE = new ReentrantReadWriteLock();
    static final FutureTask<Integer> FUTURE = new FutureTask<>(() -> {
        sleep();
        return 1;
    }), NOT_BEGUN = new FutureTask<>(() -> 2);

    interface Work {
        void run() throws Exception;
    }

    static void sleep() {
        try {
            Thread.sleep(100_000_000);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static Runnable runnable(Work work) {
        return () -> {
            try {
                work.run();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        };
    }

    /** Innermost methods of threads that are where they are to stay. Before that, one may wait for a class that another thread loads. */
    static final Set<String> PLACES = new HashSet<>(
            Arrays.asList("enter", "wait", "wait0", "park", "sleep", "sleep0", "sleepNanos0", "socketAccept", "accept", "accept0", "poll"));

    static Thread started(Thread thread) throws Exception {
        thread.setDaemon(true);
        thread.start();
        for (;;) {
            StackTraceElement[] stack = thread.getStackTrace();
            if (stack.length > 0 && PLACES.contains(stack[0].getMethodName()) && (stack[0].isNativeMethod() || thread.getState() == Thread.State.BLOCKED)) {
                return thread;
            }
            Thread.sleep(1);
        }
    }

    static Thread start(String name, Work work) throws Exception {
        return started(new Thread(runnable(work), name));
    }

    /** Starts a virtual thread, where there are any. */
    static void virtual(String name, Work work) throws Exception {
        Method of;
        try {
            of = Thread.class.getMethod("ofVirtual");
        } catch (NoSuchMethodException e) {
            return;
        }
        Class<?> builder = Class.forName("java.lang.Thread$Builder");
        Object named = builder.getMethod("name", String.class).invoke(of.invoke(null), name);
        Thread thread = (Thread) builder.getMethod("start", Runnable.class).invoke(named, runnable(work));
        while (thread.getState() != Thread.State.WAITING && thread.getState() != Thread.State.TIMED_WAITING) {
            Thread.sleep(1);
        }
    }

    static void enter(Object monitor) {
        synchronized (monitor) {
            monitor.hashCode();
        }
    }

    static void await(Object object, long limit) throws Exception {
        synchronized (object) {
            object.wait(limit);
        }
    }

    static Object[] garbage = new Object[1 << 16];

    static void makeGarbage() throws Exception {
        for (int n = 0;; n++) {
            garbage[n % garbage.length] = new byte[64 + n % 512];
            if (n % 2_000 == 0) {
                Thread.sleep(1);
            }
        }
    }

    static void shareLocks(Object monitor, ReentrantLock lock) throws Exception {
        for (;;) {
            synchronized (monitor) {
                Thread.sleep(1);
            }
            lock.lock();
            Thread.sleep(1);
            lock.unlock();
        }
    }

    static void run(String name, Work work) {
        Thread thread = new Thread(runnable(work), name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        int copies = Integer.parseInt(arguments[0]);
        // A monitor that exists before it is locked.
        await(HEAVY, 1);
        Thread holder = start("holder", () -> {
            LOCK.lock();
            FAIR.lock();
            WRITTEN.writeLock().lock();
            synchronized (MONITOR) {
                synchronized (MONITOR) {
                    synchronized (HEAVY) {
                        synchronized (ARRAY) {
                            synchronized (ARRAYS) {
                                synchronized (Blockers.class) {
                                    sleep();
                                }
                            }
                        }
                    }
                }
            }
        });
        Thread worker = started(new Worker(runnable(() -> sleep()), "holds-worker"));
        start("holds-read-once", () -> {
            READ_ONCE.readLock().lock();
            READ_ONCE.readLock().lock();
            sleep();
        });
        for (int n = 0; n < 2; n++) {
            start("holds-read-twice", () -> {
                READ_TWICE.readLock().lock();
                sleep();
            });
        }
        start("holds-future", FUTURE::run);
        virtual("holds-mounted", () -> {
            synchronized (MOUNTED) {
                Sleeps.use();
            }
        });
        virtual("holds-unmounted", () -> {
            synchronized (UNMOUNTED) {
                sleep();
            }
        });
        virtual("holds-lock", () -> {
            VIRTUAL.lock();
            sleep();
        });
        virtual("pinned", WaitsForLock::use);
        for (int n = 0; n < copies; n++) {
            start("monitor", () -> enter(MONITOR));
            start("heavy", () -> enter(HEAVY));
            start("array", () -> enter(ARRAY));
            start("arrays", () -> enter(ARRAYS));
            start("class", () -> enter(Blockers.class));
            start("notify", () -> await(NOTIFIED, 0));
            start("notify-timed", () -> await(NOTIFIED, 100_000_000));
            start("notify-thread", () -> await(holder, 0));
            start("again", () -> await(AGAIN, 0));
            start("join", () -> holder.join());
            start("join-timed", () -> holder.join(100_000_000));
            start("join-worker", () -> worker.join());
            start("lock", LOCK::lock);
            start("lock-timed", () -> LOCK.tryLock(1, java.util.concurrent.TimeUnit.DAYS));
            start("fair", FAIR::lock);
            start("written-read", () -> WRITTEN.readLock().lock());
            start("written-write", () -> WRITTEN.writeLock().lock());
            start("once", () -> READ_ONCE.writeLock().lock());
            start("twice", () -> READ_TWICE.writeLock().lock());
            start("semaphore", () -> new Semaphore(0).acquire());
            start("latch", () -> new CountDownLatch(1).await());
            start("future", FUTURE::get);
            start("future-not-begun", NOT_BEGUN::get);
            start("condition", () -> {
                OF_CONDITION.lock();
                CONDITION.await();
            });
            start("parked", () -> LockSupport.park(new TaxTable()));
            start("parked-queue", () -> new SynchronousQueue<String>().take());
            start("parked-completable", () -> new CompletableFuture<String>().get());
            start("none-park", LockSupport::park);
            start("none-sleep", Blockers::sleep);
            start("none-accept", () -> new ServerSocket(0).accept());
            try {
                Thread.class.getMethod("ofVirtual");
                start("mounted", () -> enter(MOUNTED));
                start("unmounted", () -> enter(UNMOUNTED));
                start("virtual-lock", VIRTUAL::lock);
            } catch (NoSuchMethodException e) {
                // There are no virtual threads.
            }
        }
        start("holds-condition", () -> {
            OF_CONDITION.lock();
            sleep();
        });
        start("holds-again", () -> {
            synchronized (AGAIN) {
                AGAIN.notifyAll();
                sleep();
            }
        });
        if (arguments.length > 1) {
            run("spin-garbage", Blockers::makeGarbage);
            for (int group = 0; group < 4; group++) {
                Object monitor = new TaxTable();
                ReentrantLock lock = new ReentrantLock();
                for (int n = 0; n < 4; n++) {
                    run("spin-group-" + group, () -> shareLocks(monitor, lock));
                }
            }
        }
        Thread.sleep(200);
        System.out.println("ready");
        for (int read; (read = System.in.read()) >= 0;) {
            if (read == '\n') {
                System.gc();
                System.out.println("collected");
            }
        }
        System.exit(0);
    }
}
