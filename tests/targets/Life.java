import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/** Threads of several kinds, a thread with changing names, one that starts another virtual machine, and a short life. */
public class Life {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "threads":
                threads();
                break;
            case "busy":
                threads();
                work(1_000_000);
                break;
            case "names":
                names();
                break;
            case "starts":
                starts(arguments[1]);
                break;
            default:
                work(Integer.parseInt(arguments[1]));
        }
    }

    /** Has fields of its own that are called as those of its super class are. */
    static class Shadowing extends Thread {
        final String name = "not the name of a thread";
        final boolean daemon = !getName().contains("daemon");
        final Object holder = new Object();

        Shadowing(Runnable work, String name) {
            super(work, name);
        }
    }

    /** Ends, but for the threads that it has started. */
    static void threads() throws Exception {
        CountDownLatch begun = new CountDownLatch(4);
        for (String name : new String[] {"a worker of the program", "another worker of it", "a daemon of the program", "C2 compilers' friend"}) {
            Runnable work = () -> {
                begun.countDown();
                while (true) {
                    LockSupport.park();
                }
            };
            Thread thread = name.startsWith("a ") ? new Shadowing(work, name) : new Thread(work, name);
            thread.setDaemon(name.contains("daemon"));
            thread.start();
        }
        begun.await();
        System.out.println("ready");
    }

    static void names() throws Exception {
        System.out.println("ready");
        while (true) {
            for (String name : new String[] {"first of the requests", "second of the requests"}) {
                Thread.currentThread().setName(name);
                Thread.sleep(500);
            }
        }
    }

    /** Once a line comes in, prints the pid of another process, which works for `ms`, and waits for its end. */
    static void starts(String ms) throws Exception {
        System.out.println("ready");
        System.in.read();
        String java = System.getProperty("java.home") + "/bin/java";
        Process other = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), "Life", "work", ms).start();
        System.out.println(other.pid());
        other.waitFor();
    }

    static volatile long sink;

    /** Works for `ms` of its own CPU time. */
    static void work(long ms) {
        var threads = ManagementFactory.getThreadMXBean();
        long end = threads.getCurrentThreadCpuTime() + ms * 1_000_000;
        while (threads.getCurrentThreadCpuTime() < end) {
            burn();
        }
    }

    static void burn() {
        long x = sink;
        for (int i = 0; i < 1_000_000; i++) {
            x = x * 6364136223846793005L + 1442695040888963407L;
        }
        sink = x;
    }
}
