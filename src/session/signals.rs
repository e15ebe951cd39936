//! Signals as messages; nothing happens inside a handler.

use crate::headless::Request;
pub use signal_hook::consts::SIGCONT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

/// What asks for an end.
pub const END: &[i32] = &[SIGINT, SIGTERM, SIGHUP];

/// What reports listen to.
pub const REPORTS: &[i32] = &[SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT];

/// What one of [`REPORTS`] asks for; `None`: an end.
pub fn request(signal: i32) -> Option<Request> {
    match signal {
        SIGHUP => Some(Request::Reopen),
        SIGUSR1 => Some(Request::Report),
        SIGUSR2 => Some(Request::Pause),
        SIGCONT => Some(Request::Resume),
        _ => None,
    }
}

/// Catches signals until dropped.
pub struct Caught {
    handle: Handle,
}

impl Caught {
    /// Calls `each` with the number of every one of `signals`, on a thread of its own, until it
    /// answers false.
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
