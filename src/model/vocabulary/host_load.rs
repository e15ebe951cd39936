//! How busy the host is.

/// Averages over the last 5 s.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HostLoad {
    /// Of all cores of the host, percent.
    pub cpu_percent: f64,
    /// Threads of the host that want a core and have none.
    pub waiting: f64,
    /// Share of the periods of the target's CPU quota at whose end it was stopped, percent; 0
    /// without a quota.
    pub throttled_percent: f64,
}
