//! Turns signals into messages; does nothing inside a handler.

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
