package net.trees;

public class Tree {
    public void grow() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException end) {
            return;
        }
    }
}
