/**
 * Waits in native code that cannot be walked, called from Java that such code has called: main, outer, inner, block. Ends with its input.
 */
public class Anchors {
    static native void outer();

    static native void block();

    /** Called by {@code outer}. */
    static void inner() {
        block();
    }

    public static void main(String[] arguments) {
        System.load(arguments[0]);
        System.out.println("ready");
        outer();
    }
}
