//! Returns freed memory to the kernel.
//!
//! The reducer, the projector and the view each free chunks that another of them allocated. So the
//! C library's arenas are full of free pages. They were half of the resident memory after 30
//! minutes of a target that starts 60 threads a second. By itself the C library returns the end of
//! an arena, never its middle.

#![expect(unsafe_code, reason = "tells the C library to give memory back")]

use std::time::{Duration, Instant};

/// Interval between calls. A call takes some milliseconds at 150 MB; ten seconds of churn free a
/// few megabytes.
const EVERY: Duration = Duration::from_secs(10);

/// When memory was returned last.
pub struct Trimmer {
    last: Instant,
}

impl Trimmer {
    pub fn new() -> Trimmer {
        Trimmer { last: Instant::now() }
    }

    /// Returns free memory to the kernel, if the interval has passed.
    pub fn keep_house(&mut self) {
        if self.is_due(Instant::now()) {
            trim();
        }
    }

    /// Returns whether the interval has passed; if so, starts the next one.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.last) >= EVERY;
        if due {
            self.last = now;
        }
        due
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: may be called at any time by any thread; it takes the arenas' locks one after the
    // other.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have no such call; musl's returns memory by itself.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Returns this process's resident anonymous memory, bytes.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("of ourselves");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .expect("the kernel says it");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    }

    #[test]
    fn memory_is_given_back_every_ten_seconds_however_often_that_is_asked() {
        let mut trimmer = Trimmer::new();
        let begin = trimmer.last;
        let times: Vec<u64> =
            (0..350).filter(|at| trimmer.is_due(begin + Duration::from_millis(at * 100))).collect();
        assert_eq!(times, [100, 200, 300]);
    }

    #[test]
    fn what_another_thread_freed_goes_back_to_the_kernel() {
        const CHUNK: usize = 16 << 10;
        let chunks = || (0..(128 << 20) / CHUNK).map(|_| vec![1u8; CHUNK]).collect::<Vec<_>>();
        let mut chunks = std::thread::spawn(chunks).join().expect("it ends");
        let full = resident();
        // The chunk that is kept lies at the end, so the C library returns nothing by itself.
        chunks.drain(..chunks.len() - 1);
        // Other tests allocate meanwhile, so the test requires half of it only.
        assert!(
            resident() + (64 << 20) > full,
            "the C library gave it back by itself: nothing is proven"
        );
        trim();
        assert!(resident() + (64 << 20) < full, "{} of {full}", resident());
        drop(chunks);
    }
}
