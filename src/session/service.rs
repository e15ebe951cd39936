//! Reports the status to systemd where it runs a `report` (Type=notify); otherwise does nothing.

use sd_notify::NotifyState;

/// Reports readiness and the current activity.
pub fn notify(status: &str) {
    // Without systemd the call fails, which does no harm.
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}
