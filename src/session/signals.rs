//! Signals as messages; nothing happens inside a handler.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Catches SIGINT, SIGTERM and SIGHUP until dropped.
pub struct Caught {
    handle: Handle,
}

impl Caught {
    /// Calls `each` with the number of every signal, on a thread of its own, until it answers false.
    pub fn each(mut each: impl FnMut(i32) -> bool + Send + 'static) -> std::io::Result<Caught> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
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
