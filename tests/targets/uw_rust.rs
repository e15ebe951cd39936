//! Rust threads, blocked in several ways below generic functions, closures and trait objects.
//! Prints `ready`.

use std::hint::black_box;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex};

static ANNOUNCED: AtomicUsize = AtomicUsize::new(0);

#[inline(never)]
fn announce() {
    ANNOUNCED.fetch_add(1, Ordering::SeqCst);
}

#[inline(never)]
fn wait_mutex(mutex: &Mutex<u32>) {
    announce();
    black_box(*mutex.lock().unwrap());
}

#[inline(never)]
fn wait_channel() {
    let (sender, receiver) = channel::<u32>();
    announce();
    black_box(receiver.recv().ok());
    drop(black_box(sender));
}

#[inline(never)]
fn wait_condvar() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let mut guard = mutex.lock().unwrap();
    announce();
    loop {
        guard = condvar.wait(guard).unwrap();
        black_box(&guard);
    }
}

#[inline(never)]
fn wait_sleep() {
    announce();
    std::thread::sleep(std::time::Duration::from_secs(1000));
    black_box(());
}

#[inline(never)]
fn wait_park() {
    announce();
    loop {
        std::thread::park();
        black_box(());
    }
}

trait Work {
    fn work(&self);
}

struct Generic<T>(T);

impl<T: Copy + Into<u64>> Work for Generic<T> {
    #[inline(never)]
    fn work(&self) {
        let call = black_box(|depth: u64| recurse(depth));
        call(self.0.into());
        black_box(());
    }
}

#[inline(never)]
fn recurse(depth: u64) {
    if depth > 0 {
        recurse(black_box(depth - 1));
    } else {
        wait_sleep();
    }
    black_box(());
}

#[inline(never)]
fn wait_dyn() {
    let work: Box<dyn Work> = black_box(Box::new(Generic(20u32)));
    work.work();
    black_box(());
}

fn main() {
    static HELD: Mutex<u32> = Mutex::new(0);
    let guard = HELD.lock().unwrap();
    let kinds: [(&str, fn()); 6] = [
        ("mutex", || wait_mutex(&HELD)),
        ("channel", wait_channel),
        ("condvar", wait_condvar),
        ("sleep", wait_sleep),
        ("park", wait_park),
        ("dyn", wait_dyn),
    ];
    for (name, run) in kinds {
        std::thread::Builder::new().name(name.into()).spawn(run).unwrap();
    }
    while ANNOUNCED.load(Ordering::SeqCst) < kinds.len() {
        std::thread::yield_now();
    }
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    drop(guard);
    std::process::exit(0);
}
