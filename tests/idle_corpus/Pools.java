import java.util.ArrayDeque;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Pools and loops of Java. Names of threads say the truth: `rest-` waits for work, `job-` waits
 * inside a job.
 */
public class Pools {
    static volatile int done;
    static final AtomicInteger begun = new AtomicInteger();
    static final CountDownLatch never = new CountDownLatch(1);
    static final BlockingQueue<String> connections = new ArrayBlockingQueue<>(4);
    static final SynchronousQueue<String> handoff = new SynchronousQueue<>();
    static final Semaphore permits = new Semaphore(0);

    interface Job { void work() throws Exception; }

    // What jobs wait for.
    static void await() throws Exception { never.await(); done++; }
    static void query() throws Exception { done = connections.poll(1, TimeUnit.HOURS).length(); }
    static void borrow() throws Exception { done = handoff.poll(1, TimeUnit.HOURS).length(); }
    static void confirm() throws Exception { done = new LinkedBlockingQueue<String>().take().length(); }
    static void join() { done = new CompletableFuture<Integer>().join(); }
    static void future() throws Exception { done = new FutureTask<>(() -> 1).get(); }
    static void limit() throws Exception { permits.acquire(); done++; }
    static void retry() throws Exception { Thread.sleep(3600_000); done++; }
    static void monitor() throws Exception { synchronized (new int[1]) { waitFor(new Object()); } }
    static void waitFor(Object reply) throws Exception { synchronized (reply) { reply.wait(); } done++; }
    static void convert() throws Exception { done = new ProcessBuilder("sleep", "600").start().waitFor(); }
    static void rendezvous() { LockSupport.park(); done++; }

    static final Job[] JOBS = {Pools::await, Pools::query, Pools::borrow, Pools::confirm, Pools::join, Pools::future,
        Pools::limit, Pools::retry, Pools::monitor, Pools::convert, Pools::rendezvous};

    static Runnable named(String name, Job job) {
        return () -> {
            Thread.currentThread().setName(name);
            begun.incrementAndGet();
            try { job.work(); } catch (Exception e) { throw new RuntimeException(e); }
            done++;
        };
    }

    /** Gives every kind of job to the pool. Its other threads rest. */
    static void fill(String name, Consumer<Runnable> pool) {
        for (Job job : JOBS) pool.accept(named("job-" + name, job));
    }

    static ThreadFactory rest(String name) {
        return task -> { Thread thread = new Thread(task, "rest-" + name); thread.setDaemon(true); return thread; };
    }

    static void start(String name, Runnable body) { new Thread(body, "rest-" + name).start(); }

    static class Inbox {
        final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
        synchronized Runnable next() {
            while (tasks.isEmpty()) try { wait(); } catch (InterruptedException e) { throw new RuntimeException(e); }
            return tasks.poll();
        }
        synchronized void add(Runnable task) { tasks.add(task); notify(); }
    }

    static class Worker extends Thread {
        final Inbox inbox;
        Worker(Inbox inbox) { super("rest-ownwait"); this.inbox = inbox; }
        @Override public void run() { for (;;) inbox.next().run(); }
    }

    static class Consumer1 implements Runnable {
        final BlockingQueue<Runnable> queue;
        Consumer1(BlockingQueue<Runnable> queue) { this.queue = queue; }
        public void run() {
            try { for (;;) consume(queue.take()); } catch (InterruptedException e) { done++; }
        }
        void consume(Runnable task) { task.run(); done++; }
    }

    static class Dispatcher implements Runnable {
        final ReentrantLock lock = new ReentrantLock();
        final Condition filled = lock.newCondition();
        final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
        Runnable takeTask() throws InterruptedException {
            lock.lock();
            try { while (tasks.isEmpty()) filled.await(); return tasks.poll(); } finally { lock.unlock(); }
        }
        public void run() {
            try { for (;;) takeTask().run(); } catch (InterruptedException e) { done++; }
        }
    }

    // Workers by hand, that wait in their own `run`.
    static class Notified extends Thread {
        Notified() { super("rest-notified"); }
        @Override public void run() {
            try { for (;;) synchronized (this) { wait(); done++; } } catch (InterruptedException e) { done++; }
        }
    }

    static class TimedFlusher extends Thread {
        TimedFlusher() { super("rest-flusher"); }
        @Override public void run() {
            try { for (;;) synchronized (this) { wait(400); done++; } } catch (InterruptedException e) { done++; }
        }
    }

    static class CondWorker extends Dispatcher {
        @Override public void run() {
            lock.lock();
            try { for (;;) { filled.await(); done++; } } catch (InterruptedException e) { done++; } finally { lock.unlock(); }
        }
    }

    static class Parker implements Runnable {
        public void run() { for (;;) { LockSupport.park(); done++; } }
    }

    static class Gate implements Runnable {
        final Semaphore opened = new Semaphore(0);
        public void run() {
            try { for (;;) { opened.acquire(); done++; } } catch (InterruptedException e) { done++; }
        }
    }

    static class Tick implements Runnable {
        public void run() {
            try { while (!never.await(300, TimeUnit.MILLISECONDS)) done++; } catch (InterruptedException e) { done++; }
        }
    }

    static class OwnBlockingQueue {
        final ArrayDeque<String> lines = new ArrayDeque<>();
        synchronized String next(long ms) throws InterruptedException {
            if (lines.isEmpty()) wait(ms);
            return lines.poll();
        }
    }

    static class Pump extends Thread {
        final OwnBlockingQueue lines = new OwnBlockingQueue();
        Pump() { super("rest-pump"); }
        @Override public void run() {
            try { for (;;) if (lines.next(500) != null) done++; } catch (InterruptedException e) { done++; }
        }
    }

    // Jobs in threads of their own that look like those.
    static class PayRequest implements Runnable {
        public void run() {
            try { synchronized (this) { wait(); } } catch (InterruptedException e) { done++; }
            done++;
        }
    }

    static class Reply {
        synchronized String await() throws InterruptedException { wait(); return "paid"; }
    }

    static class Client implements Runnable {
        final Reply reply = new Reply();
        void pay() throws InterruptedException { done = reply.await().length(); }
        public void run() { try { pay(); } catch (InterruptedException e) { done++; } }
    }

    static class Asker implements Runnable {
        final Reply reply = new Reply();
        public void run() { try { done = reply.await().length(); } catch (InterruptedException e) { done++; } }
    }

    static class Summer implements Runnable {
        final Thread part;
        Summer(Thread part) { this.part = part; }
        public void run() { try { part.join(); } catch (InterruptedException e) { done++; } done++; }
    }

    static void job(String name, Runnable body) { new Thread(body, "job-" + name).start(); }

    public static void main(String[] args) throws Exception {
        int n = JOBS.length + 2;
        ThreadPoolExecutor fixed = new ThreadPoolExecutor(n, n, 1, TimeUnit.HOURS, new LinkedBlockingQueue<>(), rest("fixed"));
        fixed.prestartAllCoreThreads();
        fill("fixed", fixed::execute);
        ExecutorService cached = Executors.newCachedThreadPool(rest("cached"));
        for (int i = 0; i < n; i++) cached.execute(() -> LockSupport.parkNanos(300_000_000));
        Thread.sleep(600);
        fill("cached", cached::execute);
        ScheduledThreadPoolExecutor scheduled = new ScheduledThreadPoolExecutor(n, rest("scheduled"));
        scheduled.prestartAllCoreThreads();
        scheduled.scheduleAtFixedRate(() -> done++, 1, 1, TimeUnit.HOURS);
        fill("scheduled", scheduled::execute);
        ForkJoinPool forkJoin = new ForkJoinPool(n, pool -> {
            ForkJoinWorkerThread thread = ForkJoinPool.defaultForkJoinWorkerThreadFactory.newThread(pool);
            thread.setName("rest-forkjoin");
            return thread;
        }, null, true);
        for (int i = 0; i < n; i++) forkJoin.execute(() -> LockSupport.parkNanos(300_000_000));
        Thread.sleep(600);
        fill("forkjoin", forkJoin::execute);
        new Timer("rest-timer").schedule(new TimerTask() { public void run() { done++; } }, 3600_000);
        for (Job job : JOBS)
            new Timer().schedule(new TimerTask() { public void run() { named("job-timer", job).run(); } }, 0);

        Inbox inbox = new Inbox();
        for (int i = 0; i < n; i++) new Worker(inbox).start();
        fill("ownwait", inbox::add);
        BlockingQueue<Runnable> queue = new LinkedBlockingDeque<>();
        for (int i = 0; i < n; i++) start("consumer", new Consumer1(queue));
        fill("consumer", queue::add);
        BlockingQueue<Runnable> transfer = new LinkedTransferQueue<>();
        for (int i = 0; i < n; i++)
            start("lambda", () -> { try { for (;;) transfer.take().run(); } catch (InterruptedException e) { done++; } });
        fill("lambda", transfer::add);
        Dispatcher dispatcher = new Dispatcher();
        for (int i = 0; i < n; i++) start("condition", dispatcher);
        fill("condition", task -> {
            dispatcher.lock.lock();
            try { dispatcher.tasks.add(task); dispatcher.filled.signal(); } finally { dispatcher.lock.unlock(); }
        });
        DelayQueue<Delayed> delays = new DelayQueue<>();
        start("delay", () -> { try { for (;;) delays.take(); } catch (InterruptedException e) { done++; } });
        start("sleeper", () -> { try { for (;;) { Thread.sleep(200); done++; } } catch (InterruptedException e) { done++; } });
        start("parker", () -> { for (;;) { LockSupport.park(); done++; } });
        start("poller", () -> {
            try { for (;;) if (transferNothing.poll(100, TimeUnit.MILLISECONDS) != null) done++; } catch (InterruptedException e) { done++; }
        });
        CompletableFuture.delayedExecutor(1, TimeUnit.HOURS).execute(() -> done++);
        CompletableFuture.runAsync(named("job-async", Pools::await), cached);
        Thread notified = new Notified();
        notified.start();
        new TimedFlusher().start();
        start("condworker", new CondWorker());
        start("ownparker", new Parker());
        start("gate", new Gate());
        start("tick", new Tick());
        new Pump().start();
        // Jobs in threads of their own.
        job("request", new PayRequest());
        job("client", new Client());
        job("asker", new Asker());
        job("summer", new Summer(notified));
        job("joiner", () -> { try { notified.join(); } catch (InterruptedException e) { done++; } done++; });
        job("future", () -> { try { done = new FutureTask<>(() -> 1).get(); } catch (Exception e) { done++; } done++; });
        for (Job job : JOBS) new Thread(named("job-thread", job)).start();
        while (begun.get() < JOBS.length * 10 + 1) Thread.sleep(10);
        System.out.println("ready");
        System.out.flush();
        Thread.currentThread().setName("rest-main");
        Thread.currentThread().join();
    }

    static final BlockingQueue<String> transferNothing = new LinkedBlockingQueue<>();
}
