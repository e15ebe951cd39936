//! Two threads that wake a third through a channel of the standard library, and that know how
//! often. It prints as wakers.c does.

use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

extern "C" {
    fn gettid() -> i32;
}

fn thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::Builder::new().name(name.into()).spawn(run).expect("a thread")
}

/// Returns the voluntary switches of this thread.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

fn main() {
    let (sender, receiver) = channel::<u64>();
    let mut starts = Vec::new();
    let mut producers = Vec::new();
    for (name, items, every) in [("channel-2000", 300, 2000), ("channel-5000", 120, 5000)] {
        let (start, started) = channel::<()>();
        let sender = sender.clone();
        starts.push(start);
        producers.push(thread(name, move || {
            started.recv().expect("it is started");
            for item in 0..items {
                std::thread::sleep(Duration::from_micros(every));
                sender.send(item).expect("the channel is open");
            }
            // SAFETY: it has no conditions.
            (unsafe { gettid() }, items)
        }));
    }
    drop(sender);
    let consumer = thread("channel-in", move || {
        let before = sleeps();
        for _ in 0..420 {
            receiver.recv().expect("an item");
        }
        // SAFETY: it has no conditions.
        (unsafe { gettid() }, sleeps() - before)
    });
    std::thread::sleep(Duration::from_millis(200));
    println!("ready");
    let mut line = [0];
    std::io::stdin().read_exact(&mut line).expect("a line");
    starts.iter().for_each(|start| start.send(()).expect("it waits"));
    let (tid, slept) = consumer.join().expect("it ends");
    let mut text = format!("channel {tid} {slept}");
    for producer in producers {
        let (tid, items) = producer.join().expect("it ends");
        text += &format!(" {} {tid} {items}", std::process::id());
    }
    println!("{text}\nend");
    std::io::stdout().flush().expect("it is written");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
