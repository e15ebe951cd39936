//! Who woke the threads of watched processes, as the kernel counted it.

use std::sync::Arc;

use super::frame::Ns;

/// Maximum pairs kept: those of several countings of the kernel, which has 8,192 each.
pub const PAIRS_MAX: usize = 65_536;

/// Maximum sum of counts or times, so that sums of a few fit in 64 bits.
pub const SUM_MAX: u64 = 1 << 61;

/// The wakeups of some seconds. A thread that had not slept yet needs no wakeup and has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wakeups {
    /// When counting began, CLOCK_MONOTONIC.
    pub from: Ns,
    pub duration_ns: Ns,
    /// The most frequent first.
    pub pairs: Vec<Pair>,
    /// Wakeups of watched threads without a pair: there were too many pairs, or the kernel skipped
    /// them.
    pub lost: u64,
    /// Wakeups of all threads of the host.
    pub seen: u64,
    pub cost: Cost,
}

/// CPU time that the host spent on counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// By the kernel's clock.
    Measured(Ns),
    /// By the number of wakeups.
    Estimated(Ns),
}

/// How often one woke another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    pub waker: Waker,
    pub woken: Woken,
    pub count: u64,
}

/// A thread that was woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Woken {
    pub pid: u32,
    pub tid: u32,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Waker {
    Thread {
        pid: u32,
        tid: u32,
        /// As the kernel has it.
        name: Arc<str>,
        /// Name of its process.
        process: Arc<str>,
        /// Number of the system call that it was in.
        call: u32,
    },
    /// A thread of a process that cannot be seen from here.
    Hidden {
        call: u32,
    },
    KernelThread {
        tid: u32,
        name: Arc<str>,
    },
    /// A timer or a device, or a fault of a page.
    Interrupt,
}

impl Wakeups {
    /// Returns how many wakeups of watched threads have a pair.
    pub fn counted(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.count).sum()
    }
}
