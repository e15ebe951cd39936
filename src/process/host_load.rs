//! How busy the host is, and how often the quota of the target's control group stopped it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use super::busy_processes::BusyProcesses;
use super::cgroup;
use crate::clock;
use crate::model::vocabulary::host_load::HostLoad;

/// Figures are averages over this time.
const SPAN: Duration = Duration::from_secs(5);
/// Minimum time between two readings: the kernel sums up all cores for each.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum bytes read of a file. The lines of 4,096 cores have fewer.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Default)]
pub struct HostMeter {
    /// Oldest first.
    readings: VecDeque<Reading>,
    processes: BusyProcesses,
}

/// What the kernel had counted at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    cores: Cores,
    /// Threads of the host that run or want to.
    runnable: u32,
    periods: Option<cgroup::Periods>,
    /// CPU time of the targets, ns.
    of_targets: u64,
    /// See [`HostLoad::frozen`].
    frozen: bool,
}

/// CPU time of all cores together, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cores {
    busy: u64,
    /// Part of `busy`.
    stolen: u64,
    all: u64,
    count: u32,
}

impl HostMeter {
    /// Returns the load of the last seconds, as of now or at most a second ago; `None` if /proc
    /// does not tell. `targets`: the watched processes; the quota of the first counts.
    pub fn load(&mut self, targets: &[u32]) -> Option<HostLoad> {
        let now = Instant::now();
        if self.readings.back().is_none_or(|last| now.duration_since(last.at) >= EVERY) {
            let reading = Reading {
                at: now,
                cores: cores(&read("/proc/stat")?)?,
                // This thread runs, too.
                runnable: runnable(&read("/proc/loadavg")?)?.saturating_sub(1),
                periods: targets.first().and_then(|pid| cgroup::periods_of(*pid)),
                of_targets: targets.iter().filter_map(|pid| clock::cpu_of_process(*pid)).sum(),
                frozen: !targets.is_empty() && targets.iter().all(|pid| cgroup::is_frozen(*pid)),
            };
            self.readings.push_back(reading);
            while self.readings.len() > 2 && now.duration_since(self.readings[1].at) >= SPAN {
                self.readings.pop_front();
            }
        }
        let load = load(self.readings.make_contiguous())?;
        let busiest = self.processes.busiest(load.is_full(), targets, now);
        Some(HostLoad { busiest, ..load })
    }
}

/// Returns the load between the first and the last reading; `None` if they are one.
fn load(readings: &[Reading]) -> Option<HostLoad> {
    let (first, last) = (readings.first()?, readings.last()?);
    let all = last.cores.all.saturating_sub(first.cores.all);
    if all == 0 {
        return None;
    }
    let [stolen, busy] = [|cores: Cores| cores.stolen, |cores: Cores| cores.busy]
        .map(|of| of(last.cores).saturating_sub(of(first.cores)));
    let seconds = last.at.duration_since(first.at).as_secs_f64().max(f64::MIN_POSITIVE);
    let ticks = seconds * rustix::param::clock_ticks_per_second() as f64;
    // One that ended is not counted any more.
    let of_targets = last.of_targets.saturating_sub(first.of_targets) as f64 / 1e9 / seconds;
    let percent = |part: u64, all: u64| part.min(all) as f64 / all.max(1) as f64 * 100.0;
    let waiting = |reading: &Reading| reading.runnable.saturating_sub(reading.cores.count);
    let throttled = first.periods.zip(last.periods).map(|(before, now)| {
        let part = now.throttled.saturating_sub(before.throttled);
        percent(part, now.all.saturating_sub(before.all))
    });
    Some(HostLoad {
        cpu_percent: percent(busy, all),
        others_cores: (busy.saturating_sub(stolen) as f64 / ticks.max(1.0) - of_targets).max(0.0),
        stolen_percent: percent(stolen, all),
        waiting: readings.iter().map(waiting).sum::<u32>() as f64 / readings.len() as f64,
        throttled_percent: throttled.unwrap_or(0.0),
        frozen: last.frozen,
        busiest: None,
    })
}

fn read(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the first lines of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq,
/// steal; what guests used is part of user.
fn cores(stat: &str) -> Option<Cores> {
    let of_all = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = of_all
        .split_ascii_whitespace()
        .take(8)
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let all = ticks.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
    // All cores of the host, also where this process may use fewer: the queue is the host's.
    let listed = stat.lines().skip(1).take_while(|line| line.starts_with("cpu")).count() as u32;
    let usable = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let count = if listed > 0 { listed } else { usable() };
    let stolen = *ticks.get(7)?;
    Some(Cores { busy: all.saturating_sub(idle), stolen, all, count })
}

/// Reads the fourth field of /proc/loadavg: `2/345`.
fn runnable(loadavg: &str) -> Option<u32> {
    loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 10 50 800 40 3 7 5 60 0\ncpu0 50 5 25 400 20 1 3 2 30 0\ncpu1 50 5 25 400 20 2 4 3 30 0\nintr 5\n";

    #[test]
    fn files_of_proc_are_read() {
        let cores = cores(STAT).expect("it is /proc/stat");
        assert_eq!((cores.busy, cores.stolen, cores.all), (175, 5, 1015));
        assert_eq!(cores.count, 2);
        assert_eq!(runnable("0.63 0.44 0.45 3/258 28370\n"), Some(3));
        for broken in ["", "cpu", "cpu  1 2 3", "cpu  a b c d e f g h", "intr 7"] {
            assert_eq!(super::cores(broken), None, "{broken}");
        }
        for broken in ["", "1 2 3", "1 2 3 4", "1 2 3 x/5"] {
            assert_eq!(runnable(broken), None, "{broken}");
        }
    }

    #[test]
    fn all_cores_of_a_large_host_are_counted() {
        let figures = "1844674407370 0 184467440737 1844674407370 40000 0 70000 5000 0 0";
        let stat: String = std::iter::once(format!("cpu  {figures}\n"))
            .chain((0..4096).map(|core| format!("cpu{core} {figures}\n")))
            .chain(std::iter::once("intr 5\n".to_owned()))
            .collect();
        assert!((stat.len() as u64) < BYTES_MAX);
        assert_eq!(cores(&stat).map(|cores| cores.count), Some(4096));
    }

    /// `cores`: busy, stolen and all ticks.
    fn reading(
        at: Instant,
        cores: [u64; 3],
        runnable: u32,
        periods: Option<(u64, u64)>,
    ) -> Reading {
        let [busy, stolen, all] = cores;
        let of_targets = busy * 2_000_000;
        let periods = periods.map(|(throttled, all)| cgroup::Periods { throttled, all });
        Reading {
            at,
            cores: Cores { busy, stolen, all, count: 2 },
            runnable,
            periods,
            of_targets,
            frozen: false,
        }
    }

    #[test]
    fn figures_are_those_between_two_readings() {
        let at = Instant::now();
        // Two cores for two seconds have this many ticks.
        let all = 4 * rustix::param::clock_ticks_per_second();
        let second = [100 + all / 4 * 3, 10 + all / 4, 1000 + all];
        let readings = [
            reading(at, [100, 10, 1000], 2, Some((5, 100))),
            reading(at + Duration::from_secs(2), second, 7, Some((25, 140))),
        ];
        let load = load(&readings).expect("two readings");
        // Five threads of seven want one of two cores, at one of two readings.
        let found = (load.cpu_percent, load.waiting, load.throttled_percent);
        assert_eq!(found, (75.0, 2.5, 50.0));
        assert_eq!(load.stolen_percent, 25.0);
        // Three quarters of two cores are busy and one quarter is stolen; the targets use a fifth
        // of the busy time.
        assert!((load.others_cores - 0.7).abs() < 1e-9, "{load:?}");
        assert!(super::load(&readings[..1]).is_none());
        assert_eq!(
            super::load(&[
                reading(at, [0, 0, 1], 0, None),
                reading(at, [0, 0, 2], 0, Some((9, 9)))
            ])
            .map(|load| load.throttled_percent),
            Some(0.0)
        );
    }

    #[test]
    fn this_host_tells_its_load() {
        let mut meter = HostMeter::default();
        assert!(meter.load(&[std::process::id()]).is_none(), "one reading is not enough");
        meter.readings[0].at -= EVERY;
        let all = || cores(&read("/proc/stat").expect("a file")).expect("figures").all;
        let before = meter.readings[0].cores.all;
        while all() == before {}
        let load = meter.load(&[]).expect("time has passed");
        assert!((0.0..=100.0).contains(&load.cpu_percent), "{load:?}");
    }
}
