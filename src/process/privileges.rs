//! Rights that sampletop has beyond its caller's: file capabilities (`setcap`). They are used only
//! to take stacks, on the thread that takes them. Everything else runs with the caller's rights:
//! files, commands, and above all the check which processes may be observed.
//!
//! Capabilities belong to threads. [`lower`] is called before there is a second thread, so all
//! threads begin without them; the sampler calls [`raise`]. For the real user 0 nothing changes:
//! root's rights are the caller's own.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Whether this program has more rights than its caller: it holds capabilities, and the real user
/// is not root.
pub fn borrowed() -> bool {
    // Unreadable, which no kernel does: assume the worse.
    !is_root() && capabilities(None).map_or(true, |sets| !sets.permitted.is_empty())
}

/// Makes this thread, and those it starts, act with the caller's rights from now on.
pub fn lower() -> io::Result<()> {
    if is_root() { Ok(()) } else { effective(|_| CapabilitySet::empty()) }
}

/// Makes this thread, and those it starts, use the program's capabilities.
pub fn raise() -> io::Result<()> {
    if is_root() { Ok(()) } else { effective(|sets| sets.permitted) }
}

/// Runs `ask` with the caller's rights.
pub fn without<T>(ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = capabilities(None)?;
    if before.effective.is_empty() {
        return ask();
    }
    set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..before })?;
    let answer = ask();
    set_capabilities(None, before)?;
    answer
}

/// Runs `open` with the program's capabilities, on a thread that otherwise has the caller's rights.
pub fn with<T>(open: impl FnOnce() -> T) -> T {
    let before = capabilities(None);
    let raised = raise().is_ok();
    let opened = open();
    if let (Ok(before), true) = (before, raised && !is_root()) {
        // What was effective may be so again: this cannot fail.
        let _ = set_capabilities(None, before);
    }
    opened
}

/// Whether the program runs as another user than its caller. All checks are made for the real user,
/// but files of /proc are opened as the effective one: every user would see everything.
pub fn is_setuid() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    geteuid() != getuid() || getegid() != getgid()
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn effective(which: impl FnOnce(&CapabilitySets) -> CapabilitySet) -> io::Result<()> {
    let before = capabilities(None)?;
    let effective = which(&before);
    if effective != before.effective {
        set_capabilities(None, CapabilitySets { effective, ..before })?;
    }
    Ok(())
}
