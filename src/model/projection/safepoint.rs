//! Threads that a Java virtual machine has stopped at a safepoint, for instance for a garbage
//! collection.
//!
//! They wait in internal functions of the virtual machine, which differ by where each thread was.
//! One marker replaces these frames. (Names as in JDK 8 to 26; not detected without the virtual
//! machine's symbols.)

use crate::model::facts::tables::{FrameKind, Location};

/// The marker that ends a stopped thread's stack.
const NAME: &str = "[JVM safepoint]";

/// The function in which all stopped threads wait.
const STOP: &str = "SafepointSynchronize::block";

/// Its callers: the poll in compiled and interpreted code, and the returns from native code.
const CALLERS_OF_STOP: &[&str] = &[
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

/// Returns whether a thread with this frame is stopped at a safepoint.
pub(super) fn is_stop(location: &Location) -> bool {
    location.kind == FrameKind::Native && *location.function == *STOP
}

/// Returns the marker that replaces the frames.
pub(super) fn marker() -> Location {
    Location::named(NAME, FrameKind::Marker)
}

pub(super) fn is_marker(location: &Location) -> bool {
    location.kind == FrameKind::Marker && *location.function == *NAME
}

/// Returns whether the frame is on the stack only because the thread stops.
pub(super) fn leads_to_stop(location: &Location) -> bool {
    matches!(location.kind, FrameKind::Native | FrameKind::Jit)
        && CALLERS_OF_STOP.contains(&&*location.function)
}
