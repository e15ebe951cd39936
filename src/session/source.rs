//! A session that is being watched, as the subcommands without a screen see it. In tests a fake
//! stands in for it.

use std::sync::Arc;
use std::time::Duration;

use crate::exit_code::{ExitCode, Failure};
use crate::model::facts::goroutines::Goroutines;
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::facts::tasks::Tasks;
use crate::model::projection::waits::{Answer, Asked};
use crate::model::vocabulary::wakeup::Wakeups;

/// Maximum time that an export waits for names that are still being loaded.
pub const NAMES_WITHIN: Duration = Duration::from_secs(10);

/// A session that is being watched.
pub trait Source {
    /// Waits up to `timeout` for the target's exit or a request to stop.
    fn wait(&mut self, timeout: Duration) -> Waited;
    /// Returns the time since the first observation.
    fn elapsed(&mut self) -> Duration;
    /// Returns the samples and losses so far, for the progress line.
    fn progress(&mut self) -> Progress;
    /// Returns a snapshot of this moment; with `named`, waits for names that are still being
    /// loaded.
    fn snapshot(&mut self, named: bool) -> Option<Arc<Snapshot>>;
    /// Returns what these threads wait for, as far as it is found out within `timeout`.
    fn waits(&mut self, asked: Vec<Asked>, timeout: Duration) -> Vec<Answer>;
    /// Returns the tasks of the event loops of the watched processes, of those that are read within
    /// `timeout`.
    fn tasks(&mut self, timeout: Duration) -> Vec<Tasks>;
    /// Returns the goroutines of the watched processes, of those that are read within `timeout`.
    fn goroutines(&mut self, timeout: Duration) -> Vec<Goroutines>;
    /// Begins to count who wakes threads of the watched processes, for at most this duration. Fails
    /// with one sentence.
    fn count_wakeups(&mut self, duration: Duration) -> Result<(), String>;
    /// Ends that, if its time has not passed yet. `None` if nothing is counted.
    fn wakeups(&mut self) -> Option<Result<Wakeups, String>>;
    /// Returns a snapshot as `snapshot(true)` does and starts the next one: later observations go
    /// there, and nothing of this one does.
    fn cut(&mut self) -> Option<Arc<Snapshot>>;
    /// Pauses or resumes sampling.
    fn pause(&mut self, pause: bool);
    /// Returns the watched processes that have not exited.
    fn living(&mut self) -> Vec<Target>;
    /// Returns the wall clock, ns since 1970.
    fn unix_ns(&mut self) -> i128;
    /// Stops watching and returns everything; `None` if there is nothing to return any more.
    fn finish(&mut self) -> Option<Arc<Snapshot>>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The time has passed.
    Timeout,
    /// The target exited.
    Ended,
    /// The first SIGINT, SIGTERM or SIGHUP: write what there is. (A second one ends the process.) A
    /// report continues after SIGHUP.
    Interrupted,
    /// A request to a report.
    Asked(Request),
}

/// What signals request of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// SIGUSR1: write a report now.
    Report,
    /// SIGHUP: the output file was moved.
    Reopen,
    /// SIGUSR2, SIGCONT.
    Pause,
    Resume,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub samples: u64,
    pub dropped: u64,
}

/// Fails where the target exited before it was observed.
pub fn check_observed(snapshot: &Snapshot) -> Result<(), Failure> {
    if snapshot.health.losses.samples > 0 || snapshot.health.ticks > 0 {
        return Ok(());
    }
    let pid = snapshot.targets.first().map_or(0, |target| target.pid);
    Err(Failure::new(
        ExitCode::EndedEarly,
        format!(
            "process {pid} ended before any sample was taken; start it under sampletop with `record -- COMMAND`"
        ),
    ))
}
