//! Rights that sampletop has and its caller has not: capabilities of its file (`setcap`). They are
//! for taking stacks, on the thread that takes them. Everything else is done with the caller's
//! rights: files, commands, and above all the question who may be looked at.
//!
//! Capabilities belong to threads. [`lower`] is called before there is a second one, so that all
//! begin without; the sampler calls [`raise`]. For the real user 0 nothing is changed: root's
//! rights are the caller's own.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// This program could do more than its caller: it holds capabilities, and the real user is not
/// root.
pub fn borrowed() -> bool {
    // Unreadable, which no kernel does: expect the worse.
    !is_root() && capabilities(None).map_or(true, |sets| !sets.permitted.is_empty())
}

/// This thread, and those it starts, act with the caller's rights from now on.
pub fn lower() -> io::Result<()> {
    if is_root() { Ok(()) } else { effective(|_| CapabilitySet::empty()) }
}

/// This thread, and those it starts, use what the program was given.
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

/// Runs `open` with what the program was given, on a thread that has the caller's rights otherwise.
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

/// Started by another user than it runs as. All checks are made for the real user, but the files
/// of /proc are opened as the effective one: every user would see everything.
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
