import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;

/**
 * A `main` that waits in one way. The argument is the name of its thread, which says the truth:
 * `rest-` waits for the end of a server, `job-` waits for a result.
 */
public class Mains {
    static volatile int done;
    static final CountDownLatch stopped = new CountDownLatch(1);
    static final BlockingQueue<String> connections = new ArrayBlockingQueue<>(4);
    static final Thread worker = new Thread(() -> { for (;;) LockSupport.park(); });

    static void blockUntilShutdown() throws Exception { stopped.await(); done++; }
    static void load() throws Exception { done = new CompletableFuture<Integer>().get(); }
    static void sum() throws Exception { worker.join(); done++; }
    static void query() throws Exception { done = connections.take().length(); }
    static void confirm(Object reply) throws Exception { synchronized (reply) { reply.wait(); } done++; }

    public static void main(String[] args) throws Exception {
        worker.setDaemon(true);
        worker.start();
        Thread.currentThread().setName(args[0]);
        System.out.println("ready");
        System.out.flush();
        switch (args[0]) {
            case "rest-mainwait" -> { synchronized (stopped) { stopped.wait(); } }
            case "rest-mainuntil" -> blockUntilShutdown();
            case "rest-mainfuture" -> new CompletableFuture<Integer>().join();
            case "rest-mainexecutor" -> Executors.newFixedThreadPool(1).awaitTermination(1, TimeUnit.HOURS);
            case "job-mainload" -> load();
            case "job-mainsum" -> sum();
            case "job-mainquery" -> query();
            case "job-mainconfirm" -> confirm(new Object());
            default -> throw new IllegalArgumentException(args[0]);
        }
        done++;
    }
}
