//! Turns signals into messages; does nothing inside a handler.

use std::time::{Duration, Instant};

use super::source::Request;
pub use signal_hook::consts::SIGCONT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

/// The signals that end the program.
pub const END: &[i32] = &[SIGINT, SIGTERM, SIGHUP];

/// The signals that reports handle.
pub const REPORTS: &[i32] = &[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT];

/// Returns what one of [`REPORTS`] requests; `None`: the end.
pub fn request(signal: i32) -> Option<Request> {
    match signal {
        SIGHUP => Some(Request::Reopen),
        SIGUSR1 => Some(Request::Report),
        SIGUSR2 => Some(Request::Pause),
        SIGCONT => Some(Request::Resume),
        _ => None,
    }
}

/// Minimum time from a signal to another that means it. `timeout` sends every signal twice, to the
/// program and to its process group; a terminal and a supervisor may both send one.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Tells a repeated signal from one that was sent twice.
#[derive(Default)]
pub struct EndRequests {
    first: Option<Instant>,
}

/// What a signal of [`END`] means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndRequest {
    First,
    /// Sent together with the first one.
    Duplicate,
    /// Sent later, because the end takes too long.
    Repeated,
}

impl EndRequests {
    /// Returns what a signal at this time means.
    pub fn next(&mut self, now: Instant) -> EndRequest {
        match self.first {
            None => {
                self.first = Some(now);
                EndRequest::First
            }
            Some(first) if now.saturating_duration_since(first) < AGAIN_AFTER => {
                EndRequest::Duplicate
            }
            Some(_) => EndRequest::Repeated,
        }
    }
}

/// Catches signals until dropped.
pub struct Caught {
    handle: Handle,
}

impl Caught {
    /// Calls `each` with the number of every one of `signals`, on its own thread, until it returns
    /// false.
    pub fn each(
        signals: &[i32],
        mut each: impl FnMut(i32) -> bool + Send + 'static,
    ) -> std::io::Result<Caught> {
        let mut signals = Signals::new(signals)?;
        let handle = signals.handle();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                if !each(signal) {
                    return;
                }
            }
        })?;
        Ok(Caught { handle })
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        self.handle.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_signal_is_a_second_one() {
        let (mut requests, start) = (EndRequests::default(), Instant::now());
        let mut next = |ms| requests.next(start + Duration::from_millis(ms));
        assert_eq!(
            [0, 0, 499, 500].map(&mut next),
            [EndRequest::First, EndRequest::Duplicate, EndRequest::Duplicate, EndRequest::Repeated]
        );
    }
}
