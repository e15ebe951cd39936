//! Pools and loops of Rust. Names of threads say the truth: `rest-` waits for work, `job-` waits
//! inside a job.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

type Task = Box<dyn FnOnce() + Send>;

static DONE: AtomicU32 = AtomicU32::new(0);

fn named(name: &str) {
    let name = std::ffi::CString::new(name).expect("no zero");
    // SAFETY: the kernel copies the name.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Keeps a wait from being the last call of a function.
fn finish() {
    DONE.fetch_add(1, Ordering::Relaxed);
}

// What jobs wait for.
static PAID: LazyLock<(Mutex<bool>, Condvar)> = LazyLock::new(Default::default);

fn checkout() {
    let mut paid = PAID.0.lock().expect("not poisoned");
    while !*paid {
        paid = PAID.1.wait(paid).expect("not poisoned");
    }
    finish();
}
fn confirm() {
    let (sender, replies) = sync_channel::<u32>(1);
    DONE.fetch_add(replies.recv().unwrap_or(0), Ordering::Relaxed);
    drop(sender);
}
fn reserve() {
    let (sender, replies) = crossbeam_channel::bounded::<u32>(1);
    DONE.fetch_add(replies.recv().unwrap_or(0), Ordering::Relaxed);
    drop(sender);
}
fn retry() {
    thread::sleep(Duration::from_secs(3600));
    finish();
}
fn convert() {
    let status = std::process::Command::new("sleep").arg("600").status();
    DONE.fetch_add(u32::from(status.is_ok()), Ordering::Relaxed);
}
fn await_answer() {
    // The thread may have been unparked for the task.
    while DONE.load(Ordering::Relaxed) != u32::MAX {
        thread::park();
    }
    finish();
}
fn fan_out() {
    let part = thread::spawn(|| {
        named("job-part");
        checkout();
        finish();
    });
    let _ = part.join();
    finish();
}

const JOBS: [fn(); 7] = [checkout, confirm, reserve, retry, convert, await_answer, fan_out];

/// Every kind of job; each gets a thread of its own.
fn jobs(name: &'static str) -> impl Iterator<Item = Task> {
    JOBS.into_iter().map(move |job| {
        Box::new(move || {
            named(name);
            job();
            finish();
        }) as Task
    })
}

const THREADS: usize = JOBS.len() + 2;

/// A closure around a shared receiver, as in the Rust book.
fn book_pool() {
    let (sender, receiver) = std::sync::mpsc::channel::<Task>();
    let receiver: Arc<Mutex<Receiver<Task>>> = Arc::new(Mutex::new(receiver));
    for _ in 0..THREADS {
        let receiver = receiver.clone();
        thread::spawn(move || {
            named("rest-book");
            loop {
                let task = receiver.lock().expect("not poisoned").recv();
                match task {
                    Ok(task) => task(),
                    Err(_) => return,
                }
            }
        });
    }
    jobs("job-book").for_each(|job| sender.send(job).expect("it receives"));
    std::mem::forget(sender);
}

fn mpsc_worker(receiver: &Receiver<Task>) {
    named("rest-mpsc");
    for task in receiver {
        task();
    }
}

/// One thread and channel for each worker.
fn mpsc_pool() {
    for job in jobs("job-mpsc").map(Some).chain([None, None]) {
        let (sender, receiver) = sync_channel::<Task>(4);
        thread::spawn(move || mpsc_worker(&receiver));
        job.into_iter().for_each(|job| sender.send(job).expect("it receives"));
        std::mem::forget(sender);
    }
}

fn crossbeam_pool() {
    let (sender, receiver) = crossbeam_channel::unbounded::<Task>();
    for _ in 0..THREADS {
        let receiver = receiver.clone();
        thread::spawn(move || {
            named("rest-crossb");
            receiver.iter().for_each(|task| task());
        });
    }
    jobs("job-crossb").for_each(|job| sender.send(job).expect("it receives"));
    std::mem::forget(sender);
}

/// Several channels at once.
fn select_loop() {
    let (tasks, receiver) = crossbeam_channel::unbounded::<Task>();
    let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
    thread::spawn(move || {
        named("rest-select");
        loop {
            crossbeam_channel::select! {
                recv(receiver) -> task => task.expect("a task")(),
                recv(stopped) -> _ => return,
            }
        }
    });
    std::mem::forget((tasks, stop));
}

struct Queue {
    tasks: Mutex<Vec<Task>>,
    filled: Condvar,
}

impl Queue {
    fn next_task(&self) -> Task {
        let mut tasks = self.tasks.lock().expect("not poisoned");
        loop {
            if let Some(task) = tasks.pop() {
                return task;
            }
            tasks = self.filled.wait(tasks).expect("not poisoned");
        }
    }
}

struct Worker {
    queue: Arc<Queue>,
}

impl Worker {
    fn run(self) {
        named("rest-condvar");
        loop {
            (self.queue.next_task())();
        }
    }
}

fn condvar_pool() {
    let queue = Arc::new(Queue { tasks: Mutex::default(), filled: Condvar::new() });
    for _ in 0..THREADS {
        let worker = Worker { queue: queue.clone() };
        thread::spawn(move || worker.run());
    }
    for job in jobs("job-condvar") {
        queue.tasks.lock().expect("not poisoned").push(job);
        queue.filled.notify_one();
    }
}

fn parking_lot_pool() {
    static QUEUE: (parking_lot::Mutex<Vec<Task>>, parking_lot::Condvar) =
        (parking_lot::Mutex::new(Vec::new()), parking_lot::Condvar::new());
    for _ in 0..THREADS {
        thread::spawn(|| {
            named("rest-parking");
            loop {
                let mut tasks = QUEUE.0.lock();
                while tasks.is_empty() {
                    QUEUE.1.wait(&mut tasks);
                }
                let task = tasks.pop();
                drop(tasks);
                task.into_iter().for_each(|task| task());
            }
        });
    }
    for job in jobs("job-parking") {
        QUEUE.0.lock().push(job);
        QUEUE.1.notify_one();
    }
}

/// Threads that are unparked for each task.
fn park_pool() {
    for job in jobs("job-park").map(Some).chain([None, None]) {
        let slot = Arc::new(Mutex::new(None::<Task>));
        let mine = slot.clone();
        let thread = thread::spawn(move || {
            named("rest-park");
            loop {
                let task = mine.lock().expect("not poisoned").take();
                match task {
                    Some(task) => task(),
                    None => thread::park(),
                }
            }
        });
        *slot.lock().expect("not poisoned") = job;
        thread.thread().unpark();
    }
}

fn rayon_pool() {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(THREADS)
        .start_handler(|_| named("rest-rayon"))
        .build()
        .expect("threads");
    jobs("job-rayon").for_each(|job| pool.spawn(job));
    std::mem::forget(pool);
}

fn tokio_pool() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .on_thread_start(|| named("rest-tokio"))
        .enable_time()
        .build()
        .expect("threads");
    jobs("job-tokblock").for_each(|job| drop(runtime.spawn_blocking(job)));
    // A task that blocks its worker.
    runtime.spawn(async {
        named("job-tokio");
        checkout();
        finish();
    });
    // A task that waits without a thread.
    runtime.spawn(async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        finish();
    });
    for _ in 0..2 {
        runtime.spawn_blocking(|| thread::sleep(Duration::from_millis(300)));
    }
    std::mem::forget(runtime);
    thread::spawn(|| {
        named("job-blockon");
        let (_sender, receiver) = tokio::sync::oneshot::channel::<u32>();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let _ = receiver.await;
        });
        finish();
    });
}

fn tickers() {
    thread::spawn(|| {
        named("rest-ticker");
        loop {
            thread::sleep(Duration::from_millis(100));
            finish();
        }
    });
    fn expire_sessions() {
        named("rest-expire");
        loop {
            finish();
            thread::sleep(Duration::from_millis(100));
        }
    }
    thread::spawn(expire_sessions);
    thread::spawn(|| {
        named("rest-timeout");
        let (_sender, receiver) = sync_channel::<u32>(1);
        loop {
            if receiver.recv_timeout(Duration::from_millis(500)).is_ok() {
                return;
            }
        }
    });
}

fn main() {
    named("rest-main");
    book_pool();
    mpsc_pool();
    crossbeam_pool();
    select_loop();
    condvar_pool();
    parking_lot_pool();
    park_pool();
    rayon_pool();
    tokio_pool();
    tickers();
    let forever = thread::spawn(|| {
        named("rest-forever");
        loop {
            thread::park();
        }
    });
    thread::sleep(Duration::from_millis(500));
    println!("ready");
    let _ = forever.join();
}
