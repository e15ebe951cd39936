//! Plain, validated settings: what `cli` makes of the command line and everything else reads.

use std::path::PathBuf;
use std::time::Duration;

use crate::model::settings::Settings;

/// What is watched.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    Pid(u32),
    /// Started by sampletop; program and arguments.
    Command(Vec<std::ffi::OsString>),
    /// The built-in workload.
    Demo {
        workload: Workload,
    },
}

/// The built-in workload with known answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workload {
    #[default]
    All,
    Mixed,
    Mass,
    Pool,
    Locks,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CaptureChoice {
    #[default]
    Auto,
    Perf,
    CpuOnly,
    States,
    Ptrace,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnwinderChoice {
    #[default]
    Framehop,
    #[cfg(feature = "libunwind")]
    Libunwind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    #[default]
    Text,
    Json,
    Folded,
}

/// How the sampler runs.
#[derive(Clone, Debug)]
pub struct Sampling {
    pub interval: Duration,
    pub capture: CaptureChoice,
    pub unwinder: UnwinderChoice,
}

/// How the live view draws.
#[derive(Clone, Debug)]
pub struct Screen {
    pub color: bool,
    pub ascii: bool,
    pub mouse: bool,
}

/// Where results go.
#[derive(Clone, Debug)]
pub struct Output {
    pub format: Format,
    /// `None`: stdout.
    pub path: Option<PathBuf>,
    /// Write nothing to disk (`--secure`).
    pub secure: bool,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The live view; no target: pick one from a list.
    Live,
    /// One profile of so long, or until the target ends.
    Record { duration: Option<Duration> },
    /// Every thread's stack once.
    Dump,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub mode: Mode,
    /// `None`: the live view asks.
    pub target: Option<TargetSpec>,
    pub sampling: Sampling,
    /// What is shown at first (live) or written (record).
    pub settings: Settings,
    pub screen: Screen,
    pub output: Output,
}
