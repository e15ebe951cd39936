import java.io.IOException;
import java.io.InputStream;
import java.lang.instrument.ClassDefinition;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;

/**
 * Threads that never rest, each with something that makes its stacks hard to read: code that is loaded and dropped, deoptimised,
 * redefined, left by exceptions, or interrupted by signals. Who calls whom is known, and every generation of a class has names of
 * its own. Says `ready` when all run; ends when its standard input does. As an agent it keeps what redefines classes.
 */
public class Hard {
    static volatile double sink;
    static volatile Instrumentation instrumentation;

    public static void premain(String arguments, Instrumentation given) {
        instrumentation = given;
    }

    public interface Step {
        double step(int n);
    }

    public abstract static class Shape {
        public abstract double area(int n);
    }

    /** Defines one class under another number than it was compiled with. */
    static class Loader extends ClassLoader {
        Object make(String template, int number) throws Exception {
            byte[] bytes = replaced(bytesOf(template), "000000", String.format("%06d", number));
            Constructor<?> constructor = defineClass(null, bytes, 0, bytes.length).getDeclaredConstructor();
            constructor.setAccessible(true);
            return constructor.newInstance();
        }
    }

    static byte[] bytesOf(String name) throws IOException {
        try (InputStream in = Hard.class.getResourceAsStream(name + ".class")) {
            return in.readAllBytes();
        }
    }

    /** Every text in it that is as long as the other. */
    static byte[] replaced(byte[] bytes, String from, String to) {
        String text = new String(bytes, StandardCharsets.ISO_8859_1);
        return text.replace(from, to).getBytes(StandardCharsets.ISO_8859_1);
    }

    static void classes() throws Exception {
        for (int number = 1;; number++) {
            Step step = (Step) new Loader().make("Gen000000", number);
            for (int n = 0; n < 300; n++) {
                sink += step.step(n);
            }
        }
    }

    static double total(Shape[] shapes, int n) {
        double sum = 0;
        for (int i = 0; i < 200; i++) {
            sum += one(shapes[(i & n) % shapes.length], i);
        }
        return sum;
    }

    static double one(Shape shape, int n) {
        return n > 190 ? rare(shape, n) : shape.area(n);
    }

    static double rare(Shape shape, int n) {
        return shape.area(n) + 1;
    }

    static void deopts() throws Exception {
        for (int number = 1;; number++) {
            Shape[] shapes = {(Shape) new Loader().make("Shape000000", number), null};
            shapes[1] = shapes[0];
            for (int n = 0; n < 2000; n++) {
                sink += total(shapes, 0);
            }
            // What was compiled believing that there is one class is left in the middle.
            shapes[1] = (Shape) new Loader().make("Shape000000", ++number);
            for (int n = 0; n < 500; n++) {
                sink += total(shapes, n);
            }
        }
    }

    static int even(int depth) {
        try {
            return odd(depth - 1);
        } finally {
            sink += depth;
        }
    }

    static int odd(int depth) {
        if (depth < 2) {
            throw new IllegalStateException("deep");
        }
        return even(depth - 1) + 1;
    }

    static void exceptions() {
        for (int n = 0;; n++) {
            try {
                sink += even(20);
            } catch (IllegalStateException e) {
                sink += e.getMessage().length();
            }
        }
    }

    static int reads(int[] numbers, int n) {
        return numbers[n] + numbers.length;
    }

    static int divides(int a, int b) {
        return a / b;
    }

    static void signals() {
        int[] numbers = {1, 2, 3};
        for (int n = 0;; n++) {
            try {
                sink += reads(n % 3 == 0 ? null : numbers, n % 3);
            } catch (NullPointerException e) {
                sink += 1;
            }
            try {
                sink += divides(n, n % 3);
            } catch (ArithmeticException e) {
                sink += 1;
            }
        }
    }

    static void redefined() {
        for (int n = 0;; n++) {
            sink += Redefined.work(n);
        }
    }

    static void redefiner() throws Exception {
        byte[] one = bytesOf("Redefined");
        byte[] other = replaced(one, "stepA", "stepB");
        for (int n = 0;; n++) {
            Thread.sleep(10);
            instrumentation.redefineClasses(new ClassDefinition(Redefined.class, n % 2 == 0 ? other : one));
        }
    }

    static void collector() throws Exception {
        for (;;) {
            Thread.sleep(40);
            System.gc();
        }
    }

    interface Body {
        void run() throws Exception;
    }

    static void start(String name, Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable e) {
                e.printStackTrace();
                System.exit(1);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        start("hard classes", Hard::classes);
        start("hard deopts", Hard::deopts);
        start("hard exceptions", Hard::exceptions);
        start("hard signals", Hard::signals);
        start("hard redefined", Hard::redefined);
        start("redefiner", Hard::redefiner);
        start("collector", Hard::collector);
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}

class Gen000000 implements Hard.Step {
    public double step(int n) {
        return run000000(n);
    }

    static double run000000(int n) {
        double sum = 0;
        for (int i = 0; i < 20; i++) {
            sum += mid000000(n + i);
        }
        return sum;
    }

    static double mid000000(int n) {
        return n % 7 == 0 ? leaf000000(n) * 2 : leaf000000(n + 1) + n;
    }

    static double leaf000000(int n) {
        double sum = 0;
        for (int i = 0; i < 40; i++) {
            sum += Math.sqrt(i + n);
        }
        return sum;
    }
}

class Shape000000 extends Hard.Shape {
    public double area(int n) {
        return inner000000(n);
    }

    static double inner000000(int n) {
        return Math.sqrt(n) * n;
    }
}

class Redefined {
    static double work(int n) {
        double sum = 0;
        for (int i = 0; i < 100; i++) {
            sum += Steps.stepA(n + i);
        }
        return sum;
    }
}

class Steps {
    static double stepA(int n) {
        return burnA(n);
    }

    static double stepB(int n) {
        return burnB(n);
    }

    static double burnA(int n) {
        double sum = 0;
        for (int i = 0; i < 30; i++) {
            sum += Math.sqrt(i + n);
        }
        return sum;
    }

    static double burnB(int n) {
        double sum = 1;
        for (int i = 0; i < 30; i++) {
            sum += Math.cbrt(i + n);
        }
        return sum;
    }
}
