//! Takes stacks: one sampler thread per target, one file per way, the schedule, the ring.

pub mod kernel_ring;
pub mod perf;
pub mod ring;
pub mod schedule;

use std::time::Duration;

use crate::config::{CaptureChoice, UnwinderChoice};

/// How to sample.
#[derive(Clone, Debug)]
pub struct Plan {
    pub choice: CaptureChoice,
    pub unwinder: UnwinderChoice,
    pub interval: Duration,
    /// The target is a program that sampletop started: [`CaptureChoice::Auto`] may take `ptrace`.
    pub own_child: bool,
}

/// What the sampler can be told while it runs. Takes effect at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    Interval(Duration),
    /// No looks until [`Control::Resume`]; the time between is reported as a gap.
    Pause,
    Resume,
    Use(CaptureChoice),
    Stop,
}

/// How the sampler fares.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The way of capture as the header names it: `perf`, `cpu-only`, `states`, `ptrace (stops threads)`.
    pub way: String,
    /// One sentence for the user: a shortfall, or why the way changed.
    pub notice: Option<String>,
    /// No on-CPU stacks now, and `ptrace` would give them.
    pub ptrace_would_help: bool,
    /// False where the kernel forbids sampling in kernel mode: system time has no on-CPU samples then.
    pub kernel_visible: bool,
}
