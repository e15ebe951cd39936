//! `locks-1..4` share one mutex. `locks-1` holds it for 40 ms of every 50; the others need it
//! briefly and wait nearly all the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::burn;
use super::truth::{Meter, Truth};

pub fn start(truth: &Truth) -> std::io::Result<()> {
    let mutex = Arc::new(Mutex::new(()));
    for n in 1..=4 {
        let mutex = Arc::clone(&mutex);
        super::thread(truth, &format!("locks-{n}"), move |meter| {
            loop {
                let guard = wait_for_the_lock(meter, &mutex);
                if n == 1 {
                    hold_too_long(meter, guard);
                    stay_outside(meter, 10);
                } else {
                    hold_briefly(meter, guard);
                    stay_outside(meter, 2);
                }
            }
        })?;
    }
    Ok(())
}

#[inline(never)]
fn wait_for_the_lock<'a>(meter: &Meter, mutex: &'a Mutex<()>) -> MutexGuard<'a, ()> {
    meter.enter("wait_for_the_lock");
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    meter.leave();
    guard
}

#[inline(never)]
fn hold_too_long(meter: &Meter, guard: MutexGuard<'_, ()>) {
    meter.enter("hold_too_long");
    burn!(10_000);
    std::thread::sleep(Duration::from_millis(30));
    drop(guard);
    meter.leave();
}

#[inline(never)]
fn hold_briefly(meter: &Meter, guard: MutexGuard<'_, ()>) {
    meter.enter("hold_briefly");
    burn!(300);
    drop(guard);
    meter.leave();
}

#[inline(never)]
fn stay_outside(meter: &Meter, milliseconds: u64) {
    meter.enter("stay_outside");
    std::thread::sleep(Duration::from_millis(milliseconds));
    meter.leave();
}
