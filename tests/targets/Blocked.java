import java.lang.reflect.Method;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that go through random chains of calls and then block, each in one of eight ways, and stay there. Arguments: seed, number
 * of threads. Says `ready` when all of them are where they stay; ends when its standard input does.
 */
public class Blocked {
    interface Leaf {
        long run() throws Exception;
    }

    interface Shape {
        long pass(int[] chain, int at, Leaf leaf) throws Exception;

        default long ordinary(int[] chain, int at, Leaf leaf) throws Exception {
            return pass(chain, at, leaf) + 1;
        }
    }

    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static volatile long sink;
    static final Shape SHAPE = Blocked::next;

    static long next(int[] chain, int at, Leaf leaf) throws Exception {
        if (at == chain.length) {
            return leaf.run();
        }
        switch (chain[at]) {
            case 0:
                return recursion(chain, at, leaf, 3);
            case 1:
                return lambda(chain, at, leaf);
            case 2:
                return new Blocked().synchronizedOne(chain, at, leaf);
            case 3:
                return manyArguments(1, 2L, 3f, 4d, "5", 6, 7, 8L, 9d, 10f, chain, at, leaf);
            case 4:
                return sorting(chain, at, leaf);
            case 5:
                return SHAPE.ordinary(chain, at + 1, leaf);
            case 6:
                return reflected(chain, at, leaf);
            default:
                return small(chain, at, leaf);
        }
    }

    static long recursion(int[] chain, int at, Leaf leaf, int depth) throws Exception {
        if (depth > 0) {
            return recursion(chain, at, leaf, depth - 1) + 1;
        }
        return next(chain, at + 1, leaf);
    }

    static long lambda(int[] chain, int at, Leaf leaf) throws Exception {
        Leaf inner = () -> next(chain, at + 1, leaf);
        return inner.run();
    }

    synchronized long synchronizedOne(int[] chain, int at, Leaf leaf) throws Exception {
        return next(chain, at + 1, leaf);
    }

    static long manyArguments(int a, long b, float c, double d, String e, int f, int g, long h, double i, float j, int[] chain,
            int at, Leaf leaf) throws Exception {
        long sum = next(chain, at + 1, leaf);
        return sum + (long) (a + b + c + d + f + g + h + i + j) + e.length();
    }

    static long sorting(int[] chain, int at, Leaf leaf) {
        Integer[] numbers = {3, 1, 2};
        long[] sum = {0};
        Arrays.sort(numbers, (x, y) -> {
            try {
                sum[0] += next(chain, at + 1, leaf);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
            return x - y;
        });
        return sum[0];
    }

    public static long called(int[] chain, int at, Leaf leaf) throws Exception {
        return next(chain, at, leaf);
    }

    static long reflected(int[] chain, int at, Leaf leaf) throws Exception {
        Method method = Blocked.class.getMethod("called", int[].class, int.class, Leaf.class);
        return (Long) method.invoke(null, chain, at + 1, leaf);
    }

    static long small(int[] chain, int at, Leaf leaf) throws Exception {
        return smaller(chain, at, leaf);
    }

    static long smaller(int[] chain, int at, Leaf leaf) throws Exception {
        return next(chain, at + 1, leaf);
    }

    static long block(int kind) throws Exception {
        switch (kind) {
            case 0:
                Thread.sleep(100_000_000);
                return 0;
            case 1:
                LockSupport.park();
                return 1;
            case 2:
                Object own = new Object();
                synchronized (own) {
                    own.wait();
                }
                return 2;
            case 3:
                synchronized (MONITOR) {
                    return 3;
                }
            case 4:
                new CountDownLatch(1).await();
                return 4;
            case 5:
                LOCK.lock();
                return 5;
            case 6:
                new LinkedBlockingQueue<String>().take();
                return 6;
            case 7:
                new SynchronousQueue<String>().put("nobody takes it");
                return 7;
            default:
                new ServerSocket(0).accept();
                return 8;
        }
    }

    static boolean stays(Thread thread) {
        StackTraceElement[] stack = thread.getStackTrace();
        if (stack.length == 0) {
            return false;
        }
        switch (thread.getState()) {
            case WAITING:
            case TIMED_WAITING:
            case BLOCKED:
                // Not on the way: a class that is being loaded, a lock of the virtual machine.
                return Arrays.stream(stack).anyMatch(frame -> frame.getMethodName().equals("block"));
            default:
                return stack[0].isNativeMethod() && stack[0].getMethodName().contains("ccept");
        }
    }

    static void start(List<Thread> threads, String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        threads.add(thread);
    }

    public static void main(String[] arguments) throws Exception {
        Random random = new Random(Long.parseLong(arguments[0]));
        int count = Integer.parseInt(arguments[1]);
        LOCK.lock();
        int[][] chains = new int[count][];
        for (int n = 0; n < count; n++) {
            chains[n] = random.ints(3 + random.nextInt(12), 0, 8).toArray();
        }
        // What is called often is compiled; the first threads go before that.
        List<Thread> threads = new ArrayList<>();
        synchronized (MONITOR) {
            for (int n = 0; n < count; n++) {
                if (n == count / 2) {
                    for (int round = 0; round < 3_000; round++) {
                        int[] chain = chains[round % count];
                        sink += next(Arrays.copyOf(chain, Math.min(chain.length, 6)), 0, () -> sink);
                    }
                }
                int[] chain = chains[n];
                int kind = n % 9;
                // Longer than what the kernel keeps, and beyond ASCII.
                start(threads, "a thread with a long name " + n + (n % 5 == 0 ? " grüßt 线程 \uD83D\uDE00" : ""), () -> {
                    try {
                        sink += next(chain, 0, () -> block(kind));
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                });
            }
            for (Thread thread : threads) {
                while (!stays(thread)) {
                    Thread.sleep(5);
                }
            }
            System.out.println("ready");
            while (System.in.read() >= 0) {
            }
        }
        System.exit(0);
    }
}
