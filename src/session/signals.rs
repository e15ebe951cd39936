//! Signals as messages; nothing happens inside a handler.

use std::sync::mpsc::Sender;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Catches SIGINT, SIGTERM and SIGHUP until dropped.
pub struct Caught {
    handle: Handle,
}

impl Caught {
    /// Each signal is sent as `wrap(number)`.
    pub fn send_to<T: Send + 'static>(sender: Sender<T>, wrap: fn(i32) -> T) -> std::io::Result<Caught> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        std::thread::Builder::new().name("st-signals".into()).spawn(move || {
            for signal in signals.forever() {
                if sender.send(wrap(signal)).is_err() {
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
