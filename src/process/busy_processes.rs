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
/// Minimum pause, in multiples of the last reading's CPU time: at most 0.2 % of a core.
const REST: u32 = 500;
/// Maximum processes that are read in one go, a few ms: the caller has other work.
const AT_A_TIME: usize = 200;
/// The result of an older reading says nothing of now.
const VALID: Duration = Duration::from_secs(15);
/// A process that began since the last reading is as busy as it was on average if it is older than
/// this. Of younger ones that figure is a matter of chance.
const OLD_ENOUGH: Duration = Duration::from_millis(500);

/// Reads the processes of the host while it is full.
#[derive(Default)]
pub struct BusyProcesses {
    last: Option<Reading>,
    reading: Option<Unfinished>,
    /// When the next reading is due.
    due: Option<Instant>,
    busiest: Option<(Instant, BusiestProcesses)>,
}

/// A reading that goes on, with the processes that it has not read yet.
#[derive(Default)]
struct Unfinished {
    left: Vec<u32>,
    read: Reading,
    /// CPU time that it took so far, ns.
    cost: u64,
}

/// The processes at one moment, but for the targets.
#[derive(Default, Debug)]
struct Reading {
    /// By process id and start.
    processes: HashMap<(u32, u64), Used>,
}

/// What a process had used at a moment.
#[derive(Clone, Copy, Debug)]
struct Used {
    name: RawName,
    cpu_ticks: u64,
    /// Since boot, clock ticks.
    at: u64,
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
            // When the next one is due stays: the host may be full again in a moment.
            *self = BusyProcesses { due: self.due, ..BusyProcesses::default() };
            return None;
        }
        if self.reading.is_none() && self.due.is_none_or(|due| now >= due) {
            let left = pids().filter(|pid| !targets.contains(pid)).collect();
            self.reading = Some(Unfinished { left, ..Unfinished::default() });
        }
        if let Some(mut reading) = self.reading.take() {
            match reading.go_on() {
                false => self.reading = Some(reading),
                true => self.finish(reading, now),
            }
        }
        let fresh = |at: Instant| now.saturating_duration_since(at) < VALID;
        self.busiest.filter(|(at, _)| fresh(*at)).map(|(_, busiest)| busiest)
    }

    fn finish(&mut self, Unfinished { read, cost, .. }: Unfinished, now: Instant) {
        let pause = if self.last.is_some() { EVERY } else { FIRST };
        self.due = Some(now + pause.max(Duration::from_nanos(cost) * REST));
        if let Some(last) = &self.last {
            self.busiest = busiest(last, &read).map(|busiest| (now, busiest));
        }
        self.last = Some(read);
    }
}

impl Unfinished {
    /// Reads the next processes; returns whether it has read all.
    fn go_on(&mut self) -> bool {
        let (began, at) = (clock::thread_cpu(), boot_ticks());
        let rest = self.left.len().saturating_sub(AT_A_TIME);
        for pid in self.left.drain(rest..) {
            let Some(stat) = stat(pid) else { continue };
            let name = RawName::new(stat.name.as_bytes());
            let used = Used { name, cpu_ticks: stat.cpu_ticks, at };
            self.read.processes.insert((pid, stat.start), used);
        }
        self.cost += clock::thread_cpu().saturating_sub(began);
        self.left.is_empty()
    }
}

/// Returns the processes of one name that used most. Those that began since `before` may have had
/// predecessors that ended, as in a build: see [`OLD_ENOUGH`].
fn busiest(before: &Reading, now: &Reading) -> Option<BusiestProcesses> {
    let old = ticks_of(OLD_ENOUGH);
    let mut by_name: HashMap<RawName, (BusiestProcesses, f64)> = HashMap::new();
    for ((pid, start), used) in &now.processes {
        let (ticks, span) = match before.processes.get(&(*pid, *start)) {
            Some(former) => (used.cpu_ticks.saturating_sub(former.cpu_ticks), used.at - former.at),
            None => (used.cpu_ticks, used.at.saturating_sub(*start).max(old)),
        };
        let cores = ticks as f64 / span.max(1) as f64;
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
    let (mut busiest, most) =
        by_name.into_values().max_by(|(a, _), (b, _)| a.cores.total_cmp(&b.cores))?;
    // The others of its name do little.
    if most * 4.0 > busiest.cores * 3.0 {
        busiest.count = 1;
    }
    Some(busiest)
}

/// Returns the time since boot in the unit of /proc/PID/stat's start times.
fn boot_ticks() -> u64 {
    ticks_of(Duration::from_nanos(clock::boottime()))
}

fn ticks_of(time: Duration) -> u64 {
    let per_second = rustix::param::clock_ticks_per_second();
    (time.as_nanos() * u128::from(per_second) / 1_000_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, processes: &[(u32, u64, &str, u64)]) -> Reading {
        let process = |&(pid, start, name, cpu_ticks): &(u32, u64, &str, u64)| {
            ((pid, start), Used { name: RawName::new(name.as_bytes()), cpu_ticks, at })
        };
        Reading { processes: processes.iter().map(process).collect() }
    }

    #[test]
    fn those_of_one_name_count_together() {
        let before = reading(
            1_000,
            &[(1, 5, "db", 900), (2, 9, "make", 7), (8, 800, "cc1", 190), (9, 5, "rest", 1)],
        );
        // A process that ended; one that has its id now; two that began, one of them just now.
        let now = reading(
            1_500,
            &[
                (1, 5, "db", 1_350),
                (2, 9, "make", 7),
                (8, 1_400, "cc1", 80),
                (11, 1_450, "cc1", 30),
                (12, 1_499, "sh", 4),
                (9, 5, "rest", 2),
            ],
        );
        let found = busiest(&before, &now).expect("some ran");
        assert_eq!((found.to_string(), found.pid), ("cc1 (2 processes)".into(), 8));
        assert!((found.cores - 1.4).abs() < 1e-9, "{found:?}");
        let few = [(11, 1_400, "cc1", 80), (8, 1_450, "cc1", 5), (13, 1_450, "cc1", 5)];
        let few = busiest(&before, &reading(1_500, &few)).expect("they ran");
        assert_eq!((few.to_string(), few.cores), ("cc1[11]".into(), 1.0));
        let db = [(1, 5, "db", 1_350), (9, 5, "rest", 2), (12, 1_499, "sh", 4)];
        let db = busiest(&before, &reading(1_500, &db)).expect("it ran");
        assert_eq!((db.to_string(), db.cores), ("db[1]".into(), 0.9));
        assert!(busiest(&before, &reading(1_500, &[(2, 9, "make", 7)])).is_none(), "none ran");
    }

    /// Asks at `now` until a reading is complete.
    fn read(processes: &mut BusyProcesses, targets: &[u32], now: Instant) {
        processes.busiest(true, targets, now);
        while processes.reading.is_some() {
            processes.busiest(true, targets, now);
        }
    }

    #[test]
    fn nothing_is_read_unless_the_host_is_full_and_never_of_the_targets() {
        let me = std::process::id();
        let mut processes = BusyProcesses::default();
        let now = Instant::now();
        assert!(processes.busiest(false, &[], now).is_none() && processes.last.is_none());
        read(&mut processes, &[me], now);
        let all = &processes.last.as_ref().expect("a reading").processes;
        assert!(!all.is_empty() && all.keys().all(|(pid, _)| *pid != me));
        let first = processes.due.expect("another one");
        assert!(first >= now + FIRST);
        processes.busiest(true, &[], first - Duration::from_nanos(1));
        assert!(processes.reading.is_none() && processes.due == Some(first));
        read(&mut processes, &[], first);
        let all = &processes.last.as_ref().expect("a reading").processes;
        assert!(all.keys().any(|(pid, _)| *pid == me));
        let second = processes.due.expect("another one");
        assert!(second >= first + EVERY);
        // A host that is full again in a moment is not read again at once.
        processes.busiest(false, &[], first);
        assert!(processes.last.is_none() && processes.due == Some(second));
    }

    #[test]
    fn an_old_result_is_none() {
        let now = Instant::now();
        let name = RawName::new(b"cc1");
        let found = BusiestProcesses { name, count: 1, pid: 7, cores: 1.0 };
        let due = Some(now + 10 * VALID);
        let busiest = Some((now, found));
        let mut processes = BusyProcesses { busiest, due, ..BusyProcesses::default() };
        let before = VALID - Duration::from_nanos(1);
        assert_eq!(processes.busiest(true, &[], now + before), Some(found));
        assert_eq!(processes.busiest(true, &[], now + VALID), None);
    }

    #[test]
    fn the_more_a_reading_cost_the_later_is_the_next_and_many_processes_take_several() {
        let now = Instant::now();
        let mut processes = BusyProcesses::default();
        let cost = 40_000_000;
        processes.finish(Unfinished { cost, ..Unfinished::default() }, now);
        assert_eq!(processes.due, Some(now + Duration::from_secs(20)));
        let left = vec![u32::MAX; 2 * AT_A_TIME + 1];
        let mut reading = Unfinished { left, ..Unfinished::default() };
        assert_eq!([reading.go_on(), reading.go_on(), reading.go_on()], [false, false, true]);
    }
}
