/** Two threads that do nothing but throw, through ten methods that catch and ten that do not. Says `ready`; ends when its standard input does. */
public class Thrown {
    static volatile double sink;
    static final RuntimeException DEEP = new RuntimeException("deep", null, false, false) {};

    static int even(int depth) {
        try {
            return odd(depth - 1);
        } finally {
            sink += depth;
        }
    }

    static int odd(int depth) {
        if (depth < 2) {
            throw DEEP;
        }
        return even(depth - 1) + 1;
    }

    static void storm() {
        for (;;) {
            try {
                sink += even(20);
            } catch (RuntimeException e) {
                sink += 1;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int n = 0; n < 2; n++) {
            Thread thread = new Thread(Thrown::storm, "storm");
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            sink += 1;
        }
        System.exit(0);
    }
}
