import java.lang.invoke.MethodHandles;
import java.util.Arrays;

/** Methods of classes that live for a moment, each compiled into the place of one before it. Callers spell its number in binary. */
public class Generations {
    static final int BITS = 10;
    static long turns, sink;

    static class Template implements Runnable {
        public void run() {
            sink = burn000000();
        }

        static long burn000000() {
            long x = 1;
            for (long left = turns; left > 0; left--) x = x * 6364136223846793005L + 1442695040888963407L;
            return x;
        }
    }

    public static void main(String[] args) throws Throwable {
        byte[] template;
        try (var in = Generations.class.getResourceAsStream("Generations$Template.class")) {
            template = in.readAllBytes();
        }
        run(template, 0, 1);
        System.out.println("ready");
        for (int n = 1; ; n++) {
            run(template, n, Long.parseLong(args[0]));
            // The class goes, and its code.
            System.gc();
        }
    }

    static void run(byte[] template, int n, long turnsOfBurn) throws Throwable {
        byte[] name = "burn000000".getBytes(), bytes = template.clone();
        for (int at = 0; at + name.length <= bytes.length; at++) {
            if (!Arrays.equals(bytes, at, at + name.length, name, 0, name.length)) continue;
            for (int digit = name.length - 1, rest = n; rest > 0; digit--, rest /= 10) bytes[at + digit] += rest % 10;
        }
        Class<?> made = MethodHandles.lookup().defineHiddenClass(bytes, true).lookupClass();
        var constructor = made.getDeclaredConstructor();
        constructor.setAccessible(true);
        Runnable burns = (Runnable) constructor.newInstance();
        turns = turnsOfBurn;
        next(n, BITS, burns);
    }

    static void next(int n, int left, Runnable burns) {
        if (left == 0) burns.run();
        else if ((n >> (left - 1) & 1) == 0) zero(n, left - 1, burns);
        else one(n, left - 1, burns);
    }

    static void zero(int n, int left, Runnable burns) {
        next(n, left, burns);
    }

    static void one(int n, int left, Runnable burns) {
        next(n, left, burns);
    }
}
