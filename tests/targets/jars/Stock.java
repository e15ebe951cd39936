package com.shop.stock;

public class Stock {
    public void count() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException end) {
            return;
        }
    }
}
