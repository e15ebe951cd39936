//! Functions at which a thread enters the kernel. The code above them on the stack does not call
//! them: an interrupt comes from outside, and the entry of system calls is the same for all.
//! (x86-64, names as in Linux 5.8 to 6.18.)

use crate::model::facts::tables::{FrameKind, Location};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KernelEntry {
    /// Before the function of the system call.
    SystemCall,
    /// An interrupt or an exception.
    Interrupt,
    /// The exception for memory without a page.
    PageFault,
}

impl KernelEntry {
    /// Returns whether it comes from outside of the code above it.
    pub(super) fn is_interrupt(self) -> bool {
        self != KernelEntry::SystemCall
    }
}

impl KernelEntry {
    pub(super) fn of(location: &Location) -> Option<KernelEntry> {
        if location.kind != FrameKind::Kernel {
            return None;
        }
        let name = &*location.function;
        if name == "asm_exc_page_fault" {
            return Some(KernelEntry::PageFault);
        }
        let is_interrupt = name.strip_prefix("asm_").is_some_and(|rest| {
            rest.starts_with("sysvec_") || rest.starts_with("exc_") || rest.ends_with("interrupt")
        });
        let is_call = name.starts_with("entry_SYSCALL_")
            || name.starts_with("entry_SYSENTER_")
            || ["do_syscall_64", "x64_sys_call"].contains(&name);
        match (is_interrupt, is_call) {
            (true, _) => Some(KernelEntry::Interrupt),
            (false, true) => Some(KernelEntry::SystemCall),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_and_system_calls_enter_the_kernel() {
        let of = |name, kind| KernelEntry::of(&Location::named(name, kind));
        for name in [
            "asm_common_interrupt",
            "asm_sysvec_apic_timer_interrupt",
            "asm_sysvec_call_function",
            "asm_exc_invalid_op",
        ] {
            assert_eq!(of(name, FrameKind::Kernel), Some(KernelEntry::Interrupt), "{name}");
            assert_eq!(of(name, FrameKind::Native), None, "{name}");
        }
        let fault = of("asm_exc_page_fault", FrameKind::Kernel);
        assert_eq!(fault, Some(KernelEntry::PageFault));
        for name in ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "x64_sys_call"] {
            assert_eq!(of(name, FrameKind::Kernel), Some(KernelEntry::SystemCall), "{name}");
        }
        for name in ["asm_load_gs_index", "handle_irq_event", "__x64_sys_read", "vfs_read"] {
            assert_eq!(of(name, FrameKind::Kernel), None, "{name}");
        }
    }
}
