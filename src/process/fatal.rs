//! Signals that end this program: each does so the first time it is sent.
//!
//! The standard library catches SIGSEGV and SIGBUS, to report overflows of the stack. Its handler puts the default action
//! back and returns: a fault happens again then, but a signal that was sent does not. This handler comes first. It ends the
//! program by a signal that was sent, and passes faults on. What must happen before the end is [`before_end`]'s; faults
//! that can be mended are [`mend_bus_faults`]'s.

#![expect(unsafe_code, reason = "handles fatal signals")]

use std::io;
use std::sync::OnceLock;

const FATAL: [libc::c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGQUIT];
/// What handled them before.
static BEFORE: [OnceLock<libc::sigaction>; FATAL.len()] = [const { OnceLock::new() }; FATAL.len()];
static END: OnceLock<fn()> = OnceLock::new();
static MEND: OnceLock<fn(usize) -> bool> = OnceLock::new();

/// Catches the signals, once. One that is ignored stays ignored, but for SIGBUS, which mending needs.
pub fn catch() -> io::Result<()> {
    static CAUGHT: OnceLock<bool> = OnceLock::new();
    let catch_one = |(signal, before): (libc::c_int, &OnceLock<libc::sigaction>)| {
        // SAFETY: all-zero is a valid `sigaction`; the handler does only what a signal handler may.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) != 0 {
                return false;
            }
            if old.sa_sigaction == libc::SIG_IGN && signal != libc::SIGBUS {
                return true;
            }
            let _ = before.set(old);
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_signal as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(signal, &ours, std::ptr::null_mut()) == 0
        }
    };
    let caught = *CAUGHT.get_or_init(|| FATAL.into_iter().zip(&BEFORE).all(catch_one));
    if caught { Ok(()) } else { Err(io::Error::other("no handler for fatal signals could be installed")) }
}

/// `end` runs in the handler before the program ends; it may only do what a signal handler may. The first one stays.
pub fn before_end(end: fn()) {
    let _ = END.set(end);
}

/// `mend` gets the address of each SIGBUS fault, in the handler, and returns whether the access can be tried again. The
/// first one stays.
pub fn mend_bus_faults(mend: fn(usize) -> bool) -> io::Result<()> {
    let _ = MEND.set(mend);
    catch()
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo (SA_SIGINFO); si_addr is set for faults. sigaction and raise may be called
    // in a handler.
    unsafe {
        // These two are never faults, also where the kernel sends them (Ctrl-\ has the si_code SI_KERNEL).
        let sent = (*info).si_code <= 0 || matches!(signal, libc::SIGABRT | libc::SIGQUIT);
        // si_addr of a signal that was sent is its sender.
        if signal == libc::SIGBUS && !sent && MEND.get().is_some_and(|mend| mend((*info).si_addr() as usize)) {
            return;
        }
        if let Some(end) = END.get() {
            end();
        }
        let default: libc::sigaction = std::mem::zeroed();
        let before = FATAL.iter().position(|fatal| *fatal == signal).and_then(|at| BEFORE[at].get());
        // The access that failed is tried again at the return, under the action that was there before.
        let action = before.filter(|_| !sent).unwrap_or(&default);
        libc::sigaction(signal, action, std::ptr::null_mut());
        if sent {
            // It is blocked here, and delivered at the return.
            libc::raise(signal);
        }
    }
}
