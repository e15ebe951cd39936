//! Which processes of a full host use its cores.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::process_list::{pids, stat};
use crate::clock;
use crate::model::vocabulary::frame::RawName;
use crate::model::vocabulary::host_load::BusiestProcesses;

/// Time from the first reading of all processes to the second one, and between all others.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(5);
/// Minimum pause, in multiples of the last reading's time: at most 0.2 % of a core.
const REST: u32 = 500;

/// Reads the processes of the host while it is full.
#[derive(Default)]
pub struct BusyProcesses {
    last: Option<Reading>,
    /// When the next reading is due.
    due: Option<Instant>,
    busiest: Option<BusiestProcesses>,
}

/// The processes at one moment, but for the targets.
#[derive(Default, Debug)]
struct Reading {
    /// Since boot, clock ticks.
    at: u64,
    /// By process id and start.
    processes: HashMap<(u32, u64), Used>,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
struct Used {
    name: RawName,
    cpu_ticks: u64,
}

impl BusyProcesses {
    /// Returns those that used most between the last two readings. Nothing is read of `targets`,
    /// nor of any process unless the host is full.
    pub fn busiest(
        &mut self,
        is_full: bool,
        targets: &[u32],
        now: Instant,
    ) -> Option<BusiestProcesses> {
        if !is_full {
            *self = BusyProcesses::default();
        } else if self.due.is_none_or(|due| now >= due) {
            let reading = Reading::now(targets);
            let pause = if self.last.is_some() { EVERY } else { FIRST };
            self.due = Some(now + pause.max(now.elapsed() * REST));
            if let Some(last) = &self.last {
                self.busiest = busiest(last, &reading);
            }
            self.last = Some(reading);
        }
        self.busiest
    }
}

impl Reading {
    fn now(targets: &[u32]) -> Reading {
        let nth = |pid: u32| {
            let stat = stat(pid)?;
            let name = RawName::new(stat.name.as_bytes());
            Some(((pid, stat.start), Used { name, cpu_ticks: stat.cpu_ticks }))
        };
        let others = pids().filter(|pid| !targets.contains(pid));
        Reading { processes: others.filter_map(nth).collect(), at: boot_ticks() }
    }
}

/// Returns the processes of one name that used most. What began since `before` may have had
/// predecessors that ended, as in a build: it counts as if it had run all the time.
fn busiest(before: &Reading, now: &Reading) -> Option<BusiestProcesses> {
    let mut by_name: HashMap<RawName, (BusiestProcesses, f64)> = HashMap::new();
    for ((pid, start), used) in &now.processes {
        let (ticks, from) = match before.processes.get(&(*pid, *start)) {
            Some(former) => (used.cpu_ticks.saturating_sub(former.cpu_ticks), before.at),
            None => (used.cpu_ticks, *start),
        };
        let cores = ticks as f64 / now.at.saturating_sub(from).max(1) as f64;
        if ticks == 0 {
            continue;
        }
        let none = BusiestProcesses { name: used.name, count: 0, pid: *pid, cores: 0.0 };
        let (sum, most) = by_name.entry(used.name).or_insert((none, 0.0));
        sum.count += 1;
        sum.cores += cores;
        if cores > *most {
            (sum.pid, *most) = (*pid, cores);
        }
    }
    by_name.into_values().map(|(sum, _)| sum).max_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// Returns the time since boot in the unit of /proc/PID/stat's start times.
fn boot_ticks() -> u64 {
    let per_second = rustix::param::clock_ticks_per_second();
    (u128::from(clock::boottime()) * u128::from(per_second) / 1_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, processes: &[(u32, u64, &str, u64)]) -> Reading {
        let process = |&(pid, start, name, cpu_ticks): &(u32, u64, &str, u64)| {
            ((pid, start), Used { name: RawName::new(name.as_bytes()), cpu_ticks })
        };
        Reading { at, processes: processes.iter().map(process).collect() }
    }

    #[test]
    fn those_of_one_name_count_together() {
        let before = reading(
            1_000,
            &[(1, 5, "db", 900), (2, 9, "make", 7), (8, 800, "cc1", 190), (9, 5, "rest", 1)],
        );
        // A process that ended; one that has its id now; two that began.
        let now = reading(
            1_500,
            &[
                (1, 5, "db", 1_350),
                (2, 9, "make", 7),
                (8, 1_400, "cc1", 80),
                (11, 1_450, "cc1", 30),
                (9, 5, "rest", 2),
            ],
        );
        let found = busiest(&before, &now).expect("some ran");
        assert_eq!((found.to_string(), found.pid), ("cc1 (2 processes)".into(), 8));
        assert!((found.cores - 1.4).abs() < 1e-9, "{found:?}");
        let db = busiest(&before, &reading(1_500, &[(1, 5, "db", 1_350), (9, 5, "rest", 2)]));
        let db = db.expect("it ran");
        assert_eq!((db.to_string(), db.cores), ("db[1]".into(), 0.9));
        assert!(busiest(&before, &reading(1_500, &[(2, 9, "make", 7)])).is_none(), "none ran");
    }

    #[test]
    fn nothing_is_read_unless_the_host_is_full_and_never_of_the_targets() {
        let me = std::process::id();
        let mut processes = BusyProcesses::default();
        let now = Instant::now();
        assert!(processes.busiest(false, &[], now).is_none() && processes.last.is_none());
        processes.busiest(true, &[me], now);
        let read = &processes.last.as_ref().expect("a reading").processes;
        assert!(!read.is_empty() && read.keys().all(|(pid, _)| *pid != me));
        let first = processes.due.expect("another one");
        assert!(first >= now + FIRST);
        processes.busiest(true, &[], first - Duration::from_nanos(1));
        assert_eq!(processes.due, Some(first));
        processes.busiest(true, &[], first);
        let read = &processes.last.as_ref().expect("a reading").processes;
        assert!(read.keys().any(|(pid, _)| *pid == me));
        assert!(processes.due.is_some_and(|due| due >= first + EVERY));
        processes.busiest(false, &[], first);
        assert!(processes.last.is_none() && processes.due.is_none());
    }
}
