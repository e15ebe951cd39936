import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads that wait for a class which another thread initialises. Says `ready` when all are about to wait, and ends when its input does. With the argument
 * `deadlock` two threads initialise two classes that need each other, and a third one needs the first of these. Else the threads are:
 *
 * `initialiser` initialises Config, until a line comes from the standard input. `class-...` wait for Config, each in another way; then they sleep, which
 * `initialised` says. `notify` waits for an `int[0]` of the program's own. `none-sleep` has used a class that is initialised, `none-own` sleeps in a class
 * that it initialises itself.
 */
public class ClassInit {
    static class Config {
        static int number;

        static {
            await(GO_ON);
        }

        static void use() {}
    }

    static class Extends extends Config {
        static void use() {}
    }

    static class Done {
        static int number = new Object().hashCode();
    }

    static class Own {
        static {
            sleep();
        }

        static void use() {}
    }

    static final String[] SLEEPS = {"sleep", "sleep0", "sleepNanos0"};
    static final CountDownLatch BOTH = new CountDownLatch(2), GO_ON = new CountDownLatch(1);

    static class Orders {
        static {
            BOTH.countDown();
            await(BOTH);
            Prices.use();
        }

        static void use() {}
    }

    static class Prices {
        static {
            BOTH.countDown();
            await(BOTH);
            Orders.use();
        }

        static void use() {}
    }

    static final List<Thread> USERS = new ArrayList<>();
    static final Semaphore STARTED = new Semaphore(0);

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

    static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void awaitNotify(Object object) throws Exception {
        synchronized (object) {
            object.wait();
        }
    }

    static Thread start(String name, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Starts a thread that needs Config, and sleeps afterwards. */
    static void startUser(String name, Work work) {
        USERS.add(start(name, () -> {
            STARTED.release();
            work.run();
            sleep();
        }));
    }

    /** Waits until one of these is the innermost method of a thread. */
    static void awaitMethod(Thread thread, String... methods) throws Exception {
        for (;;) {
            StackTraceElement[] stack = thread.getStackTrace();
            if (stack.length > 0 && Arrays.asList(methods).contains(stack[0].getMethodName())) {
                return;
            }
            Thread.sleep(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            start("orders", Orders::use);
            start("prices", Prices::use);
            await(BOTH);
            startUser("third", Orders::use);
        } else {
            awaitMethod(start("initialiser", Config::use), "park");
            awaitMethod(start("none-own", Own::use), SLEEPS);
            startUser("class-call", Config::use);
            startUser("class-field", () -> Config.number++);
            startUser("class-new", () -> new Config().hashCode());
            startUser("class-name", () -> Class.forName("ClassInit$Config"));
            startUser("class-extends", Extends::use);
            awaitMethod(start("notify", () -> awaitNotify(new int[0])), "wait", "wait0");
            awaitMethod(start("none-sleep", () -> Thread.sleep(100_000_000 + Done.number % 2)), SLEEPS);
            awaitMethod(start("none-park", LockSupport::park), "park");
        }
        STARTED.acquire(USERS.size());
        System.out.println("ready");
        while (System.in.read() >= 0) {
            GO_ON.countDown();
            for (Thread user : USERS) {
                awaitMethod(user, SLEEPS);
            }
            System.out.println("initialised");
        }
        System.exit(0);
    }
}
