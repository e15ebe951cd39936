//! Where HotSpot keeps what a thread waits for.

use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::vm_structs::Structs;

/// Offsets in a thread, unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The monitor that the thread is about to enter.
    pub pending: u64,
    /// The monitor of `Object.wait`.
    pub waiting: u64,
    /// The thread's `java.lang.Thread`.
    pub object: u64,
    /// The virtual thread that is mounted, or the same as `object`.
    pub vthread: Option<u64>,
    /// Both are handles: the reference is behind one more pointer.
    pub handles: bool,
    /// In a monitor: its object, and whether that is behind one more pointer.
    pub monitor_object: u64,
    pub monitor_object_is_handle: bool,
    /// In a monitor: who owns it.
    pub owner: u64,
    /// The owner is a thread's number (JDK 24 and later), which threads have here.
    pub owner_id: Option<u64>,
    pub owner_is_id: bool,
    /// In a monitor: an address in the stack of the anonymous owner (JDK 24 and later, with
    /// `LockingMode=1`).
    pub stack_locker: Option<u64>,
    pub lock_stack: Option<LockStack>,
}

/// The stack of objects that a thread has locked without a monitor (JDK 21 and later).
#[derive(Clone, Copy, Debug)]
pub struct LockStack {
    /// Offset of the end of the entries' part in use; it counts from the thread.
    pub top: u64,
    /// Offset of the first entry.
    pub base: u64,
}

impl Places {
    /// Returns `None` where the tables lack a field that all versions have.
    pub fn of(s: &Structs, layout: &Layout) -> Option<Places> {
        // Up to JDK 11 the fields belonged to threads of any kind.
        let of_thread = |name: &str| s.offset_of_any(&[("JavaThread", name), ("Thread", name)]);
        let lock_stack = || {
            let at = s.offset("JavaThread", "_lock_stack").ok()?;
            Some(LockStack {
                top: at.checked_add(s.offset("LockStack", "_top").ok()?)?,
                base: at.checked_add(s.offset("LockStack", "_base[0]").ok()?)?,
            })
        };
        Some(Places {
            pending: of_thread("_current_pending_monitor").ok()?,
            waiting: of_thread("_current_waiting_monitor").ok()?,
            object: layout.threads.object,
            vthread: s.offset("JavaThread", "_vthread").ok(),
            handles: layout.threads.object_is_handle,
            monitor_object: s.offset("ObjectMonitor", "_object").ok()?,
            // The type is not exported (src/hotspot/share/runtime/objectMonitor.hpp).
            monitor_object_is_handle: layout.major >= 16,
            owner: s.offset("ObjectMonitor", "_owner").ok()?,
            owner_id: s.offset("JavaThread", "_monitor_owner_id").ok(),
            owner_is_id: s
                .field("ObjectMonitor", "_owner")
                .is_some_and(|field| field.kind == "int64_t"),
            stack_locker: s.offset("ObjectMonitor", "_stack_locker").ok(),
            lock_stack: lock_stack(),
        })
    }
}
