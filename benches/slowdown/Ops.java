import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntToLongFunction;

/**
 * What ops.c is, in Java: threads that count what they do. Arguments: how many there are in all, and how many of them are
 * busy; the others wait. Says `ready` once everything is compiled; to each line of its input it answers with operations so
 * far, CPU time and time of the clock, in ns.
 */
public class Ops {
    static volatile long sink;

    static long deep(int depth, int n, IntToLongFunction work) {
        return depth == 0 ? work.applyAsLong(n) : deep(depth - 1, n, work) + 1;
    }

    static long operation(int n) {
        Map<Integer, Integer> map = new HashMap<>();
        for (int i = 0; i < 50; i++) {
            map.merge(i * n % 17, i, Integer::sum);
        }
        Integer[] numbers = map.values().toArray(new Integer[0]);
        Arrays.sort(numbers, (a, b) -> Integer.compare(b, a));
        return numbers[0];
    }

    static void waits(int n) throws InterruptedException {
        switch (n % 3) {
            case 0:
                LockSupport.park();
                break;
            case 1:
                new LinkedBlockingQueue<String>().take();
                break;
            default:
                Thread.sleep(Long.MAX_VALUE);
        }
    }

    static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]);
        int busy = Integer.parseInt(arguments[1]);
        // Eight words apart: no two of them on one cache line.
        AtomicLongArray done = new AtomicLongArray(8 * busy);
        for (int n = 0; n < threads; n++) {
            int number = n;
            if (n < busy) {
                start("busy-" + n, () -> {
                    for (int i = 1;; i++) {
                        sink += deep(12, i, Ops::operation);
                        done.lazySet(8 * number, i);
                    }
                });
            } else {
                start("pool-" + n % 5 + "-thread-" + n, () -> {
                    try {
                        deep(8, number, unused -> {
                            try {
                                waits(number);
                            } catch (InterruptedException e) {
                                throw new IllegalStateException(e);
                            }
                            return 0;
                        });
                    } catch (IllegalStateException e) {
                        // Nobody interrupts it.
                    }
                });
            }
        }
        Thread.sleep(4_000);
        System.out.println("ready");
        while (System.in.read() >= 0) {
            long operations = 0;
            for (int n = 0; n < busy; n++) {
                operations += done.get(8 * n);
            }
            long cpu = ProcessHandle.current().info().totalCpuDuration().orElseThrow().toNanos();
            System.out.println(operations + " " + cpu + " " + System.nanoTime());
        }
        System.exit(0);
    }
}
