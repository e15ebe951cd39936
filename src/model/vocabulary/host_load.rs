//! How busy the host is.

use std::fmt;

use super::frame::RawName;
use super::text;

/// Averages over the last 5 s.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HostLoad {
    /// Of all cores of the host, percent; stolen time included.
    pub cpu_percent: f64,
    /// Cores that processes of the host use, apart from the targets.
    pub others_cores: f64,
    /// Time of all cores that the hypervisor gave to others while threads of this host wanted it,
    /// percent.
    pub stolen_percent: f64,
    /// Threads of the host that want a core and have none.
    pub waiting: f64,
    /// Share of the periods of the target's CPU quota at whose end it was stopped, percent; 0
    /// without a quota.
    pub throttled_percent: f64,
    /// The control groups of all targets are frozen, so that none of them runs.
    pub frozen: bool,
    /// The processes that use most, apart from the targets; `None` unless the host is
    /// [full](HostLoad::is_full).
    pub busiest: Option<BusiestProcesses>,
}

/// The processes with one name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BusiestProcesses {
    pub name: RawName,
    pub count: u32,
    /// The one that uses most.
    pub pid: u32,
    /// Cores that they use together.
    pub cores: f64,
}

impl HostLoad {
    /// From this share of its cores on, a host is full, percent.
    pub const FULL: f64 = 90.0;

    pub fn is_full(&self) -> bool {
        self.cpu_percent >= HostLoad::FULL
    }
}

impl fmt::Display for BusiestProcesses {
    /// `ffmpeg[812]`, `cc1plus (8 processes)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = text::clean_bytes(self.name.bytes(), 64);
        match self.count {
            ..=1 => write!(f, "{name}[{}]", self.pid),
            count => write!(f, "{name} ({count} processes)"),
        }
    }
}
