import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.zip.CRC32;

/**
 * Two threads that never rest, and whose calls are known: loop -> work -> hot -> inner, rec -> rec -> leaf, catches -> thrown, maps,
 * copies. Says `ready` when they run; ends when its standard input does.
 */
public class Busy {
    static volatile double sink;

    static double inner(int i) {
        return Math.sqrt(i) * i;
    }

    static double hot(int n) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += inner(i);
        }
        return sum;
    }

    static double leaf(int n) {
        return n * 1.5;
    }

    static double rec(int depth) {
        return depth == 0 ? leaf(depth) : rec(depth - 1) + 1;
    }

    static double thrown(int n) {
        throw new IllegalStateException("number " + n);
    }

    static double catches(int n) {
        try {
            return thrown(n);
        } catch (IllegalStateException e) {
            return e.getMessage().length();
        }
    }

    static double maps(int n) {
        Map<Integer, String> map = new HashMap<>();
        for (int i = 0; i < n; i++) {
            map.merge(i % 17, "x", String::concat);
        }
        return map.size();
    }

    static double copies(int n) {
        byte[] bytes = new byte[n];
        Arrays.fill(bytes, (byte) 7);
        byte[] more = Arrays.copyOf(bytes, 2 * n);
        CRC32 crc = new CRC32();
        crc.update(more, 0, more.length);
        return crc.getValue();
    }

    static void work(int n) {
        sink += hot(2_000);
        for (int i = 0; i < 60; i++) {
            sink += rec(12);
        }
        sink += catches(n);
        sink += maps(50);
        sink += copies(20_000);
    }

    static void loop() {
        for (int n = 0;; n++) {
            work(n);
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int n = 0; n < 2; n++) {
            Thread thread = new Thread(Busy::loop, "busy thread number " + n);
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}
