package net.late;

public class Late implements Runnable {
    private long count;

    public void run() {
        while (count >= 0) {
            count++;
        }
    }
}
