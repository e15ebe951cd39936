//! Threads that enter a Java monitor (`synchronized`).
//!
//! Their frames differ by how the method is executed: the interpreter, code of C1 or C2, a wrapper
//! of a native method. So one monitor would have a row for each of them. One frame replaces all
//! frames between the Java method and the futex. The reader of the virtual machine uses the same
//! frame where there are no symbols. (Names as in JDK 8 to 26.)

use crate::model::facts::tables::{FrameKind, Location};

/// The name of that frame.
const NAME: &str = "monitor enter";
const MODULE: &str = "[jvm]";

/// Functions that only enter a monitor, and whose callers do other things too. The outermost of
/// them is the start of entering.
const ENTER: &[&str] = &[
    "InterpreterRuntime::monitorenter",
    "InterpreterRuntime::monitorenter_obj",
    "Runtime1::monitorenter",
    "SharedRuntime::complete_monitor_locking_C",
    "SharedRuntime::monitor_enter_helper",
    "ObjectSynchronizer::enter",
    "ObjectSynchronizer::enter_for",
    "ObjectSynchronizer::enter_legacy",
    "ObjectSynchronizer::fast_enter",
    "ObjectSynchronizer::slow_enter",
    "ObjectSynchronizer::quick_enter",
    "ObjectSynchronizer::jni_enter",
    "ObjectSynchronizer::reenter",
    "LightweightSynchronizer::enter",
    "LightweightSynchronizer::enter_for",
    "ObjectMonitor::enter",
    "ObjectMonitor::enter_for",
];

/// Returns whether entering a monitor begins at this frame, unless it began further out.
pub(in crate::model) fn is_enter(location: &Location) -> bool {
    let name = &*location.function;
    match location.kind {
        FrameKind::Native => ENTER.contains(&name),
        FrameKind::Jit => &*location.module == MODULE && (name == NAME || is_stub(name)),
        _ => false,
    }
}

/// Returns whether it is a stub that compiled methods call to enter a monitor:
/// `_complete_monitor_locking_Java`, `C2 Runtime complete_monitor_locking`, `monitorenter_nofpu
/// Runtime1 stub`, `C1 Runtime monitorenter_nofpu_blob`.
fn is_stub(name: &str) -> bool {
    let runtime = name.starts_with("C1 Runtime ")
        || name.starts_with("C2 Runtime ")
        || name.ends_with(" Runtime1 stub");
    name == "_complete_monitor_locking_Java"
        || (runtime && (name.contains("complete_monitor_locking") || name.contains("monitorenter")))
}

/// Returns the frame that replaces the others.
pub(super) fn frame() -> Location {
    Location { module: MODULE.into(), ..Location::named(NAME, FrameKind::Jit) }
}

pub(super) fn is_frame(location: &Location) -> bool {
    location.kind == FrameKind::Jit && &*location.module == MODULE && &*location.function == NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(name: &str, kind: FrameKind) -> Location {
        let module = if kind == FrameKind::Jit { MODULE } else { "libjvm.so" };
        Location { module: module.into(), ..Location::named(name, kind) }
    }

    #[test]
    fn only_functions_that_enter_begin_it() {
        for name in
            ["InterpreterRuntime::monitorenter", "Runtime1::monitorenter", "ObjectMonitor::enter"]
        {
            assert!(is_enter(&location(name, FrameKind::Native)), "{name}");
            assert!(!is_enter(&location(name, FrameKind::Java)), "{name}");
        }
        // Names on JDK 8, 11, 17, 21 and 25.
        for name in [
            "_complete_monitor_locking_Java",
            "C2 Runtime complete_monitor_locking",
            "monitorenter_nofpu Runtime1 stub",
            "monitorenter Runtime1 stub",
            "C1 Runtime monitorenter_nofpu_blob",
            "monitor enter",
        ] {
            assert!(is_enter(&location(name, FrameKind::Jit)), "{name}");
        }
        for name in [
            "monitorexit Runtime1 stub",
            "C1 Runtime new_instance_blob",
            "call_stub",
            "monitorenter",
        ] {
            assert!(!is_enter(&location(name, FrameKind::Jit)), "{name}");
        }
        for name in [
            "ObjectMonitor::wait",
            "ObjectMonitor::exit",
            "InterpreterRuntime::monitorexit",
            "ObjectSynchronizer::wait",
        ] {
            assert!(!is_enter(&location(name, FrameKind::Native)), "{name}");
        }
        let elsewhere = Location { module: "perf map".into(), ..frame() };
        assert!(
            is_enter(&frame())
                && is_frame(&frame())
                && !is_enter(&elsewhere)
                && !is_frame(&elsewhere)
        );
    }
}
