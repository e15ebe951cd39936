//! What systemd is told of a `report` that it runs (Type=notify); nobody is told anything where it
//! does not.

use sd_notify::NotifyState;

/// It is ready, and does this.
pub fn tell(status: &str) {
    // Who does not listen does not mind.
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}
