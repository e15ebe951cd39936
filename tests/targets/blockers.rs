//! Rust threads in waits of the standard library, each named after its wait. Prints `ready` when
//! all of them wait, then a line `NAME TID KIND HOLDER` for each, and `end`. Only the end of a
//! thread has a known holder: `thread:TID`.

use std::sync::mpsc::channel;
use std::sync::{Barrier, Condvar, Mutex, Once, OnceLock, RwLock};
use std::thread;
use std::time::Duration;

static MUTEX: Mutex<[u32; 8]> = Mutex::new([0; 8]);
static POISONED: Mutex<[u32; 8]> = Mutex::new([1; 8]);
static WRITTEN: RwLock<u32> = RwLock::new(0);
static READ: RwLock<u32> = RwLock::new(0);
static CONDITION: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
static ONCE: Once = Once::new();
static LAZY: OnceLock<u32> = OnceLock::new();

fn tid() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").expect("a link");
    link.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("an id")
}

/// Whether the thread stays in futex(2), which has the number 202.
fn is_waiting(tid: u32) -> bool {
    let call = || std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).expect("text");
    let before = call();
    thread::sleep(Duration::from_millis(5));
    before.starts_with("202 ") && before == call()
}

fn sleep_forever() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Starts a thread and returns its id.
fn start(run: impl FnOnce() + Send + 'static) -> u32 {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        sender.send(tid()).expect("it is received");
        run();
        sleep_forever();
    });
    receiver.recv().expect("an id")
}

fn wait_there(lines: &mut Vec<String>, name: &str, text: &str, run: impl FnOnce() + Send + 'static) {
    let tid = start(run);
    while !is_waiting(tid) {}
    lines.push(format!("{name} {tid} {text}"));
}

fn main() {
    let mut lines = Vec::new();
    let _ = thread::spawn(|| {
        let _guard = POISONED.lock();
        panic!("poisons it");
    })
    .join();
    // The threads that hold the locks.
    let (sender, held) = channel();
    start(move || {
        let id = tid();
        let mut mutex = MUTEX.lock().expect("no panic");
        let mut poisoned = POISONED.lock().unwrap_or_else(|error| error.into_inner());
        let _written = WRITTEN.write().expect("no panic");
        let _read = READ.read().expect("no panic");
        // Its own id where a mutex of C has its owner.
        (mutex.fill(id), poisoned.fill(id));
        sender.send(()).expect("it is received");
        sleep_forever();
    });
    held.recv().expect("a word");
    for n in 0..3 {
        wait_there(&mut lines, &format!("mutex-{n}"), "none", || drop(MUTEX.lock()));
        wait_there(&mut lines, &format!("poisoned-{n}"), "none", || drop(POISONED.lock()));
        wait_there(&mut lines, &format!("read-{n}"), "none", || drop(WRITTEN.read()));
        wait_there(&mut lines, &format!("write-{n}"), "none", || drop(WRITTEN.write()));
        wait_there(&mut lines, &format!("write-read-{n}"), "none", || drop(READ.write()));
        wait_there(&mut lines, &format!("condition-{n}"), "none", || {
            drop(CONDITION.1.wait(CONDITION.0.lock().expect("no panic")));
        });
        wait_there(&mut lines, &format!("condition-timed-{n}"), "none", || {
            let guard = CONDITION.0.lock().expect("no panic");
            drop(CONDITION.1.wait_timeout(guard, Duration::from_secs(3600)));
        });
    }
    wait_there(&mut lines, "park", "none", thread::park);
    wait_there(&mut lines, "park-timed", "none", || {
        thread::park_timeout(Duration::from_secs(3600));
    });
    wait_there(&mut lines, "receive", "none", || {
        let (sender, receiver) = channel::<u32>();
        let _ = receiver.recv();
        drop(sender);
    });
    wait_there(&mut lines, "barrier", "none", || {
        Barrier::new(2).wait();
    });
    start(|| ONCE.call_once(|| sleep_forever()));
    start(|| {
        LAZY.get_or_init(|| sleep_forever());
    });
    thread::sleep(Duration::from_millis(20));
    wait_there(&mut lines, "once", "none", || ONCE.call_once(|| ()));
    wait_there(&mut lines, "once-lock", "none", || {
        LAZY.get_or_init(|| 1);
    });
    let (sender, receiver) = channel();
    let joined = thread::spawn(move || {
        sender.send(tid()).expect("it is received");
        sleep_forever();
    });
    let id = receiver.recv().expect("an id");
    wait_there(&mut lines, "join", &format!("thread-end thread:{id}"), || drop(joined.join()));
    println!("ready");
    for line in lines {
        println!("{line}");
    }
    println!("end");
    let _ = std::io::stdin().read_line(&mut String::new());
}
