//! Threads that a Java virtual machine has stopped, for a garbage collection say: at a safepoint.
//!
//! They wait in functions of the virtual machine that say less than one word does, and that differ
//! by where the thread was: the word stands in their place. (Names as in JDK 8 to 26; of a virtual
//! machine without symbols nothing is known.)

use crate::model::facts::tables::{FrameKind, Location};

/// The last frame of a stack that was stopped so.
const NAME: &str = "[JVM safepoint]";

/// Where all of them wait.
const STOP: &str = "SafepointSynchronize::block";

/// What calls it: the poll of compiled and interpreted code, and the ways back from native code.
const WAY: &[&str] = &[
    "SafepointBlob",
    "SafepointSynchronize::handle_polling_page_exception",
    "ThreadSafepointState::handle_polling_page_exception",
    "SafepointMechanism::process",
    "SafepointMechanism::process_if_requested",
    "SafepointMechanism::process_if_requested_slow",
    "SafepointMechanism::process_if_requested_with_exit_check",
    "SafepointMechanism::process_operation_if_requested",
    "SafepointMechanism::process_operation_if_requested_slow",
    "SafepointMechanism::block_if_requested",
    "SafepointMechanism::block_if_requested_slow",
    "SafepointMechanism::block_or_handshake",
    "SafepointMechanism::callback_if_safepoint",
    "ThreadStateTransition::transition",
    "ThreadStateTransition::transition_and_fence",
    "ThreadStateTransition::transition_from_native",
    "JavaThread::check_safepoint_and_suspend_for_native_trans",
    "JavaThread::check_special_condition_for_native_trans",
    "JavaThread::check_special_condition_for_native_trans_and_transition",
];

/// Whether a thread whose stack has this frame is stopped.
pub(super) fn is_stop(location: &Location) -> bool {
    location.kind == FrameKind::Native && *location.function == *STOP
}

/// What stands for it.
pub(super) fn marker() -> Location {
    Location::named(NAME, FrameKind::Marker)
}

pub(super) fn is_marker(location: &Location) -> bool {
    location.kind == FrameKind::Marker && *location.function == *NAME
}

/// Whether the frame is only there because the thread stops.
pub(super) fn is_way(location: &Location) -> bool {
    matches!(location.kind, FrameKind::Native | FrameKind::Jit)
        && WAY.contains(&&*location.function)
}
