//! Signals as messages; nothing happens inside a handler.

pub use signal_hook::consts::SIGCONT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// What asks for an end.
pub const END: &[i32] = &[SIGINT, SIGTERM, SIGHUP];

/// Catches signals until dropped.
pub struct Caught {
    handle: Handle,
}

impl Caught {
    /// Calls `each` with the number of every one of `signals`, on a thread of its own, until it answers false.
    pub fn each(signals: &[i32], mut each: impl FnMut(i32) -> bool + Send + 'static) -> std::io::Result<Caught> {
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
