//! `mixed-1..3`: functions named for their duration, half CPU, half sleep. One cycle takes 903 ms
//! where cores are free. The shares: 55 % in `method_500ms`, 33 % in `method_100ms`, 11 % in
//! `method_50ms`, 0.3 % in `method_1ms`.

use std::time::Duration;

use super::burn;
use super::truth::{Meter, Truth};

macro_rules! method {
    ($name:ident, $milliseconds:literal) => {
        #[inline(never)]
        fn $name(meter: &Meter) {
            meter.enter(stringify!($name));
            burn!($milliseconds * 500);
            std::thread::sleep(Duration::from_micros($milliseconds * 500));
            meter.leave();
        }
    };
}
method!(method_1ms, 1);
method!(method_50ms, 50);
method!(method_100ms, 100);
method!(method_500ms, 500);

pub fn start(truth: &Truth) -> std::io::Result<()> {
    (1..=3).try_for_each(|n| super::thread(truth, &format!("mixed-{n}"), run))
}

fn run(meter: &Meter) {
    loop {
        method_100ms(meter);
        method_1ms(meter);
        method_100ms(meter);
        method_500ms(meter);
        method_1ms(meter);
        method_100ms(meter);
        method_1ms(meter);
        method_50ms(meter);
        method_50ms(meter);
    }
}
