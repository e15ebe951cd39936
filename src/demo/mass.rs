//! `mass-1..2`: a tiny function, called 100 million times in a row. Sampling sees its share; only
//! counting would see the number of calls.

use std::hint::black_box;

use super::truth::{Meter, Truth};

pub fn start(truth: &Truth) -> std::io::Result<()> {
    (1..=2).try_for_each(|n| super::thread(truth, &format!("mass-{n}"), run))
}

fn run(meter: &Meter) {
    loop {
        call_tiny_100_million_times(meter);
    }
}

#[inline(never)]
fn call_tiny_100_million_times(meter: &Meter) {
    meter.enter("call_tiny_100_million_times");
    let mut x = black_box(1_u64);
    let mut calls = 100_000_000_u32;
    while calls > 0 {
        x = tiny(x);
        calls -= 1;
    }
    black_box(x); // otherwise the unused loop could be optimized away
    meter.leave();
}

#[inline(never)]
fn tiny(x: u64) -> u64 {
    x ^ (x << 13) ^ (x >> 7)
}
