import java.util.ArrayList;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.PriorityBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.concurrent.locks.StampedLock;

/**
 * A virtual machine at rest. Threads are named by what they do: `idle-` wait for work, `lock-` for a lock, `sleep-` and `wait-` do that.
 * Says `ready` when all of them are where they stay. With the argument `collect` it collects garbage instead, again and again, while
 * threads called `stopped-` want to go on. Ends when its standard input does.
 */
public class States {
    interface Task {
        void run() throws Exception;
    }

    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static final ReentrantReadWriteLock BOTH = new ReentrantReadWriteLock();
    static final StampedLock STAMPED = new StampedLock();
    static final List<Thread> THREADS = new ArrayList<>();
    static volatile long sink;
    static Object[] kept;

    static Thread start(String name, boolean daemon, Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, name);
        thread.setDaemon(daemon);
        thread.start();
        return thread;
    }

    static void stays(String name, Task task) {
        THREADS.add(start(name, true, task));
    }

    /** A thread that takes from the queue in its first method. */
    static void consumer(String name, BlockingQueue<Object> queue) {
        runs(name, () -> {
            try {
                queue.take();
            } catch (InterruptedException end) {
                return;
            }
        });
    }

    static void runs(String name, Runnable first) {
        Thread thread = new Thread(first, name);
        thread.setDaemon(true);
        thread.start();
        THREADS.add(thread);
    }

    /** Workers that had something to do once. */
    static void pool(ExecutorService pool) throws Exception {
        pool.submit(() -> THREADS.add(Thread.currentThread())).get();
    }

    static void rest() throws Exception {
        pool(Executors.newFixedThreadPool(1, task -> new Thread(task, "idle-fixed")));
        pool(Executors.newCachedThreadPool(task -> new Thread(task, "idle-cached")));
        ScheduledExecutorService scheduled = Executors.newScheduledThreadPool(1, task -> new Thread(task, "idle-scheduled"));
        pool(scheduled);
        scheduled.schedule(() -> 1, 1, TimeUnit.HOURS);
        pool(new ForkJoinPool(1, pool -> {
            var thread = ForkJoinPool.defaultForkJoinWorkerThreadFactory.newThread(pool);
            thread.setName("idle-fork");
            return thread;
        }, null, true));
        new Timer("idle-timer", true).schedule(new TimerTask() {
            @Override
            public void run() {
                THREADS.add(Thread.currentThread());
            }
        }, 0, 3_600_000);
        consumer("idle-linked", new LinkedBlockingQueue<>());
        consumer("idle-array", new ArrayBlockingQueue<>(3));
        consumer("idle-handoff", new SynchronousQueue<>());
        consumer("idle-priority", new PriorityBlockingQueue<>());
        BlockingQueue<Object> polled = new LinkedBlockingQueue<>();
        runs("idle-poll", () -> {
            try {
                polled.poll(1, TimeUnit.HOURS);
            } catch (InterruptedException end) {
                return;
            }
        });

        Thread holder = start("sleep-holder", true, () -> {
            synchronized (MONITOR) {
                LOCK.lock();
                BOTH.writeLock().lock();
                STAMPED.writeLock();
                Thread.sleep(Long.MAX_VALUE);
            }
        });
        while (holder.getState() != Thread.State.TIMED_WAITING) {
            Thread.onSpinWait();
        }
        stays("sleep-unit", () -> TimeUnit.HOURS.sleep(3));
        stays("lock-monitor", () -> {
            synchronized (MONITOR) {
                sink++;
            }
        });
        stays("lock-plain", LOCK::lock);
        stays("lock-interrupt", LOCK::lockInterruptibly);
        stays("lock-try", () -> LOCK.tryLock(1, TimeUnit.HOURS));
        stays("lock-read", () -> BOTH.readLock().lock());
        stays("lock-write", () -> BOTH.writeLock().lock());
        stays("lock-stamped", STAMPED::readLock);
        stays("wait-object", () -> {
            Object object = new Object();
            synchronized (object) {
                object.wait();
            }
        });
        stays("wait-park", LockSupport::park);
        stays("wait-future", () -> new CompletableFuture<Integer>().get());
        for (Thread thread : new ArrayList<>(THREADS)) {
            while (thread.getState() == Thread.State.NEW || thread.getState() == Thread.State.RUNNABLE) {
                Thread.sleep(1);
            }
        }
    }

    static void collect() {
        kept = new Object[1 << 19];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = new Object[] {i};
        }
        start("stopped-compiled", true, () -> {
            for (long x = 1;; x = x * 31 + 7) {
                sink = x;
            }
        });
        start("stopped-sleeping", true, () -> {
            while (true) {
                Thread.sleep(1);
            }
        });
        start("stopped-locking", true, () -> {
            ReentrantLock lock = new ReentrantLock();
            while (true) {
                lock.lock();
                sink += Integer.toString((int) sink).hashCode();
                lock.unlock();
            }
        });
        start("collector", true, () -> {
            while (true) {
                System.gc();
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            collect();
        } else {
            rest();
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            sink++;
        }
        System.exit(0);
    }
}
