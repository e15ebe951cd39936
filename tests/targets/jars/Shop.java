package com.shop.web;

import com.shop.stock.Stock;
import net.trees.Tree;
import org.apache.patched.Patched;

/** A thread in each place that a class can come from. */
public class Shop {
    public static void main(String[] arguments) throws Exception {
        start("web", new Shop()::serve);
        start("stock", new Stock()::count);
        start("tree", new Tree()::grow);
        start("patched", new Patched()::work);
        System.out.println("ready");
        System.in.read();
        // Its jar is opened only now.
        Class<?> late = Class.forName("net.late.Late");
        start("late", (Runnable) late.getDeclaredConstructor().newInstance());
        System.out.println("later");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    private void serve() {
        rest();
    }

    private static void rest() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException end) {
            return;
        }
    }
}
