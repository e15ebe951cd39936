/*
 * A thread that copies arrays of each element size, forwards and onto themselves: run with -Xint,
 * the virtual machine does that in assembly without unwind information. Ends when its standard
 * input does.
 */
public class Copies {
    static final int LENGTH = 4096;

    static void copy(Object from, Object to) {
        System.arraycopy(from, 0, to, 0, LENGTH);
        System.arraycopy(to, 0, to, 8, LENGTH);
    }

    static void loop() {
        byte[][] bytes = new byte[2][2 * LENGTH];
        short[][] shorts = new short[2][2 * LENGTH];
        int[][] ints = new int[2][2 * LENGTH];
        long[][] longs = new long[2][2 * LENGTH];
        while (true) {
            copy(bytes[0], bytes[1]);
            copy(shorts[0], shorts[1]);
            copy(ints[0], ints[1]);
            copy(longs[0], longs[1]);
        }
    }

    public static void main(String[] args) throws Exception {
        Thread busy = new Thread(Copies::loop, "busy thread");
        busy.setDaemon(true);
        busy.start();
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
    }
}
