//! Signals that end this program: each ends it the first time it is sent.
//!
//! The standard library catches SIGSEGV and SIGBUS to report stack overflows. Its handler restores
//! the default action and returns. A fault then happens again, but a signal that was sent does not.
//! So this handler comes first: it ends the program by a signal that was sent, and passes faults
//! on. [`before_end`] sets what must run before the end. [`mend_bus_faults`] sets what can repair a
//! fault.

#![expect(unsafe_code, reason = "handles fatal signals")]

use std::io;
use std::sync::OnceLock;

const FATAL: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGQUIT];
/// The actions that were set before.
static BEFORE: [OnceLock<libc::sigaction>; FATAL.len()] = [const { OnceLock::new() }; FATAL.len()];
static END: OnceLock<fn()> = OnceLock::new();
static MEND: OnceLock<fn(usize) -> bool> = OnceLock::new();

/// Installs the handlers, once. An ignored signal stays ignored, except SIGBUS, which repairs need.
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
    if caught {
        Ok(())
    } else {
        Err(io::Error::other("no handler for fatal signals could be installed"))
    }
}

/// Sets a function that runs in the handler before the program ends. It may only do what is allowed
/// in a signal handler. The first one stays.
pub fn before_end(end: fn()) {
    let _ = END.set(end);
}

/// Sets a function that gets the address of each SIGBUS fault, in the handler. It returns whether
/// the access can be tried again. The first one stays.
pub fn mend_bus_faults(mend: fn(usize) -> bool) -> io::Result<()> {
    let _ = MEND.set(mend);
    catch()
}

extern "C" fn on_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo (SA_SIGINFO); si_addr is set for faults. sigaction
    // and raise may be called in a handler.
    unsafe {
        // These two are never faults, even where the kernel sends them (Ctrl-\ has the si_code
        // SI_KERNEL).
        let sent = (*info).si_code <= 0 || matches!(signal, libc::SIGABRT | libc::SIGQUIT);
        // Of a signal that was sent, si_addr holds its sender.
        if signal == libc::SIGBUS
            && !sent
            && MEND.get().is_some_and(|mend| mend((*info).si_addr() as usize))
        {
            return;
        }
        if let Some(end) = END.get() {
            end();
        }
        let default: libc::sigaction = std::mem::zeroed();
        let before =
            FATAL.iter().position(|fatal| *fatal == signal).and_then(|at| BEFORE[at].get());
        // After the return the failed access is tried again, under the previous action.
        let action = before.filter(|_| !sent).unwrap_or(&default);
        libc::sigaction(signal, action, std::ptr::null_mut());
        if sent {
            // The signal is blocked here, and delivered at the return.
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const WHAT: &str = "SAMPLETOP_TEST_OF_A_FATAL_SIGNAL";

    /// Runs `what` in a process of its own, as handlers belong to a whole process. Returns how it
    /// ended and its output.
    fn process(what: &str) -> (Option<i32>, String) {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args([
                "--exact",
                "process::fatal_signals::tests::in_a_process_of_its_own",
                "--nocapture",
            ])
            .env(WHAT, what);
        let output = command.output().expect("it starts");
        (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn say(text: &[u8]) {
        // SAFETY: writes bytes that live as long as the program.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }

    #[expect(unconditional_recursion, reason = "the stack is to overflow")]
    fn overflow(depth: u64) -> u64 {
        std::hint::black_box([depth; 64])[0] + overflow(depth + 1)
    }

    #[test]
    fn in_a_process_of_its_own() {
        let Ok(what) = std::env::var(WHAT) else { return };
        before_end(|| say(b"the end\n"));
        let raised = match &*what {
            "a signal that is ignored" => {
                // SAFETY: the process is this test's own.
                unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
                libc::SIGQUIT
            }
            "SIGBUS that is ignored" => {
                // SAFETY: as above.
                unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
                libc::SIGBUS
            }
            "SIGBUS that was sent" => {
                mend_bus_faults(|_| true).expect("a handler");
                libc::SIGBUS
            }
            _ => 0,
        };
        catch().expect("handlers");
        match &*what {
            "a fault" => {
                // SAFETY: none: nothing is mapped at the first page, so that it faults.
                unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            }
            "an overflow" => println!("{}", overflow(1)),
            // SAFETY: ends this process, or does nothing.
            _ => drop(unsafe { libc::raise(raised) }),
        }
        say(b"alive\n");
    }

    #[test]
    fn each_ends_by_its_signal_after_what_must_happen_before() {
        for (what, signal) in [("a fault", libc::SIGSEGV), ("SIGBUS that is ignored", libc::SIGBUS)]
        {
            let (ended_by, said) = process(what);
            assert_eq!(ended_by, Some(signal), "{what}: {said}");
            assert!(said.contains("the end") && !said.contains("alive"), "{what}: {said}");
        }
    }

    #[test]
    fn what_was_ignored_stays_ignored() {
        let (ended_by, said) = process("a signal that is ignored");
        assert_eq!(
            (ended_by, said.contains("alive"), said.contains("the end")),
            (None, true, false),
            "{said}"
        );
    }

    #[test]
    fn a_signal_that_was_sent_is_no_fault_that_could_be_mended() {
        assert_eq!(process("SIGBUS that was sent").0, Some(libc::SIGBUS));
    }

    /// The standard library's own handler reports it; that one comes second.
    #[test]
    fn a_stack_overflow_is_reported() {
        let (ended_by, said) = process("an overflow");
        assert_eq!(ended_by, Some(libc::SIGABRT), "{said}");
        assert!(said.contains("has overflowed its stack") && said.contains("the end"), "{said}");
    }
}
