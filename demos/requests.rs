//! A small Rust server: a pool that serves requests, and renames its threads to the request they
//! serve.
//!
//!     rustc --edition 2021 -O -g -o /tmp/requests demos/requests.rs && /tmp/requests
//!     sudo "$(command -v sampletop)" -p "$(pidof requests)"
//!
//! What to see: a thread counts for the name it had at that moment, so the groups `GET /search`,
//! `GET /cart` and `POST /order` appear beside `worker-`, which is what the threads are called
//! while they wait. In them `search`, `cart` and `order`: 60, 30 and 10 % of the requests' CPU
//! time; `order` also waits for a disk that is not there (asleep).
//!
//!     requests [SECONDS]    how long (default 0: until killed)

use std::hint::black_box;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

enum Request {
    Search,
    Cart,
    Order,
}

// Linux' limit for a thread's name is 15 bytes.
unsafe extern "C" {
    fn pthread_self() -> usize;
    fn pthread_setname_np(thread: usize, name: *const std::ffi::c_char) -> i32;
}

fn rename(name: &std::ffi::CStr) {
    // SAFETY: names the calling thread; the string ends in a zero.
    unsafe { pthread_setname_np(pthread_self(), name.as_ptr()) };
}

fn burn(turns: u64) {
    let mut x = turns;
    for i in 0..turns * 1_000 {
        x = black_box(x.rotate_left(5) ^ i);
    }
}

#[inline(never)]
fn search() {
    burn(600);
}

#[inline(never)]
fn cart() {
    burn(300);
}

#[inline(never)]
fn order() {
    burn(100);
    std::thread::sleep(Duration::from_millis(2));
}

fn serve(requests: Arc<Mutex<Receiver<Request>>>, own_name: std::ffi::CString) {
    loop {
        rename(&own_name);
        let Ok(request) = requests.lock().expect("no worker panics").recv() else { return };
        match request {
            Request::Search => {
                rename(c"GET /search");
                search();
            }
            Request::Cart => {
                rename(c"GET /cart");
                cart();
            }
            Request::Order => {
                rename(c"POST /order");
                order();
            }
        }
    }
}

fn main() {
    let seconds: u64 = std::env::args().nth(1).map_or(0, |word| word.parse().expect("SECONDS is a number"));
    let (requests, pending) = sync_channel(1);
    let pending = Arc::new(Mutex::new(pending));
    for n in 1..=4 {
        let pending = Arc::clone(&pending);
        let name = std::ffi::CString::new(format!("worker-{n}")).expect("no zero in it");
        std::thread::spawn(move || serve(pending, name));
    }
    println!("ready");
    let since = std::time::Instant::now();
    while seconds == 0 || since.elapsed() < Duration::from_secs(seconds) {
        for request in [Request::Search, Request::Cart, Request::Order] {
            requests.send(request).expect("the workers live");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
