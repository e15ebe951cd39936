//! The list of processes, with their CPU use since the list before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::app::ProcessRow;
use crate::process::process_list;

/// Interval at which the list is reread while it is shown.
const EVERY: Duration = Duration::from_secs(2);
/// Time until the second list, which is the first that knows CPU use: 25 steps of its clock.
const AGAIN: Duration = Duration::from_millis(250);

/// What is kept from one list to the next.
#[derive(Default)]
pub struct Listing {
    /// CPU time of each process (pid, start), ns.
    cpu_ns: HashMap<(u32, u64), u64>,
    /// When the list was read, and the time from then to the next one.
    read: Option<(Instant, Duration)>,
}

impl Listing {
    /// Returns the time until the next list.
    pub fn due_in(&self, now: Instant) -> Duration {
        self.read.map_or(Duration::ZERO, |(at, wait)| {
            wait.saturating_sub(now.saturating_duration_since(at))
        })
    }

    /// Returns the rows of a list that was read at `at`.
    pub fn rows(&mut self, found: Vec<process_list::ProcessRow>, at: Instant) -> Vec<ProcessRow> {
        let since = self.read.map(|(before, _)| at.saturating_duration_since(before));
        self.read = Some((at, if since.is_some() { EVERY } else { AGAIN }));
        let mut cpu_ns = HashMap::new();
        let row = |process: process_list::ProcessRow| {
            let id = (process.pid, process.start);
            cpu_ns.insert(id, process.cpu_ns);
            let percent = |(since, before): (Duration, &u64)| {
                let ran = process.cpu_ns.saturating_sub(*before);
                ran as f64 / since.as_nanos().max(1) as f64 * 100.0
            };
            ProcessRow {
                pid: process.pid,
                start: process.start,
                parent: process.parent,
                user: process.user.unwrap_or_else(|| process.uid.to_string()),
                command: process.command,
                threads: process.threads,
                cpu_percent: since.zip(self.cpu_ns.get(&id)).map(percent),
                memory: process.memory,
                runtime: process.runtime,
                place: process.place,
            }
        };
        let rows = found.into_iter().map(row).collect();
        self.cpu_ns = cpu_ns;
        rows
    }
}
