//! How often there are samples, and how often threads are visited, within the bound of CPU use.
//!
//! Most of the cost is either that of samples, which grows with the threads that run, or that of
//! thread scans, which grows with those that wake up. So each has a governor, and only the dearer
//! part is made rarer: of thousands of threads that wake up now and then each is visited rarely,
//! and the code that runs is still sampled as often as was asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::governor::{Governor, May};
use crate::model::vocabulary::frame::{Ns, SECOND};

/// The bound of CPU use, and the CPU time that counts beside the sampler's.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Percent of one core.
    pub percent: f64,
    /// CPU time of the reducer since it began, ns. Its thread writes it.
    pub reducer_ns: Arc<AtomicU64>,
}

/// Maximum interval of samples, ns.
const LONGEST: Ns = 10 * SECOND;
/// Visit interval that is rationed first, and the longest one, ns.
const VISITS: (Ns, Ns) = (SECOND / 20, 30 * SECOND);
/// Time of the thread scans of a tick above which rationed visits make them shorter, ns. Below it
/// most of that time does not depend on the number of visits.
const LONG_SCANS: Ns = SECOND / 2_000;
/// Number of ticks over which the time of thread scans is averaged.
const AVERAGED_TICKS: u64 = 20;

/// What the bound permits.
pub struct Pace {
    asked: Ns,
    governed: Option<Governed>,
}

struct Governed {
    overhead: Overhead,
    samples: Governor,
    visits: Governor,
    /// Time that thread scans took, and whole ticks, ns, and their number. Older ones count less.
    scans: Ns,
    ticks: Ns,
    number: u64,
    /// The last reading of CPU time.
    observed: Ns,
}

impl Pace {
    /// `asked`: interval of samples, ns.
    pub fn new(asked: Ns, overhead: Option<Overhead>) -> Pace {
        let governed = overhead.map(|overhead| Governed {
            samples: Governor::new(overhead.percent, asked, LONGEST),
            visits: Governor::new(overhead.percent, VISITS.0, VISITS.1),
            overhead,
            scans: 0,
            ticks: 0,
            number: 0,
            observed: 0,
        });
        Pace { asked, governed }
    }

    pub fn asked(&self) -> Ns {
        self.asked
    }

    /// Sets the interval of samples that the user asks for.
    pub fn ask(&mut self, asked: Ns) {
        self.asked = asked;
        if let Some(governed) = &mut self.governed {
            governed.samples.ask(asked);
            governed.visits.ask(VISITS.0);
        }
    }

    /// Returns the interval of samples in force, ns.
    pub fn interval(&self) -> Ns {
        self.governed.as_ref().map_or(self.asked, |governed| governed.samples.interval())
    }

    /// Returns the visit interval, ns, if visits are rationed: the time within which each thread is
    /// visited that may have run.
    pub fn visit_interval(&self) -> Option<Ns> {
        let visits = &self.governed.as_ref()?.visits;
        visits.is_stretched().then(|| visits.interval())
    }

    /// Records how long a tick took, and its thread scans, ns. Others may have had the core
    /// meanwhile, but in equal shares.
    pub fn took(&mut self, scans: Ns, tick: Ns) {
        let Some(governed) = &mut self.governed else { return };
        if governed.number >= AVERAGED_TICKS {
            (governed.scans, governed.ticks) = (governed.scans / 2, governed.ticks / 2);
            governed.number /= 2;
        }
        governed.scans += scans;
        governed.ticks += tick;
        governed.number += 1;
    }

    /// Takes the sampler's CPU time. `attaching`: threads are visited for the first time, which
    /// cannot be rationed. Returns whether an interval changed.
    pub fn observe(&mut self, at: Ns, sampler_ns: u64, attaching: bool) -> bool {
        let Some(governed) = &mut self.governed else { return false };
        let cpu = sampler_ns + governed.overhead.reducer_ns.load(Ordering::Relaxed);
        let Governed { samples, visits, scans, ticks, number, observed, .. } = governed;
        // Nothing was sampled in between.
        if at.saturating_sub(*observed) > SECOND.max(3 * samples.interval()) {
            visits.begin(at, cpu);
        }
        *observed = at;
        let part = *scans as f64 / (*ticks).max(1) as f64;
        let are_long = *scans > LONG_SCANS * *number;
        let rations = part > 0.5 && are_long && !visits.is_longest() && !attaching;
        // Where visits are not rationed, scans are made rarer with the ticks.
        let of_samples = if visits.is_stretched() { 1.0 - part } else { 1.0 };
        let may = May { stretch: !rations, shorten: true, part: of_samples };
        if samples.observe(at, cpu, may).is_some() {
            visits.begin(at, cpu);
            return true;
        }
        let may = May { stretch: rations, shorten: !samples.is_stretched(), part };
        if visits.observe(at, cpu, may).is_some() {
            samples.begin(at, cpu);
            return true;
        }
        false
    }

    /// Returns the notice for the user while an interval is stretched.
    pub fn notice(&self) -> Option<String> {
        let governed = self.governed.as_ref()?;
        let time = |ns: Ns| match ns < SECOND {
            true => format!("{}ms", ns as f64 / 1e6),
            false => format!("{}s", ns as f64 / 1e9),
        };
        let mut rarer = Vec::new();
        if self.interval() > self.asked {
            let (now, asked) = (time(self.interval()), time(self.asked));
            rarer.push(format!("samples every {now}, not {asked}"));
        }
        if let Some(visits) = self.visit_interval() {
            rarer.push(format!("waits seen every {}", time(visits)));
        }
        let bound = format!("(--max-overhead {}%)", governed.overhead.percent);
        (!rarer.is_empty()).then(|| format!("{} {bound}", rarer.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    fn pace(percent: f64, reducer_ns: &Arc<AtomicU64>) -> Pace {
        Pace::new(10 * MS, Some(Overhead { percent, reducer_ns: reducer_ns.clone() }))
    }

    /// A program whose samples and full thread scans cost this much, ns of CPU time a second, at
    /// the intervals asked for.
    struct Load {
        samples: f64,
        scans: f64,
    }

    /// Runs for this long with ticks 50 ms apart. Returns what was used in the last 60 s, percent.
    fn run(pace: &mut Pace, from: Ns, seconds: u64, load: &Load) -> f64 {
        let (mut cpu, mut last) = (0.0, 0.0);
        for tick in 0..20 * seconds {
            let samples = load.samples * 10e6 / pace.interval() as f64 / 20.0;
            let visit = pace.visit_interval().unwrap_or(VISITS.0);
            let scans = load.scans * VISITS.0 as f64 / visit as f64 / 20.0;
            cpu += samples + scans;
            last += if tick + 1200 > 20 * seconds { samples + scans } else { 0.0 };
            pace.took(scans as Ns, (samples + scans) as Ns);
            pace.observe(from + tick * 50 * MS, cpu as Ns, false);
        }
        last / 60e9 * 100.0
    }

    #[test]
    fn the_dearer_part_is_made_rarer() {
        let mut of_scans = pace(3.0, &Arc::default());
        let used = run(&mut of_scans, 0, 300, &Load { samples: 10e6, scans: 600e6 });
        let visit = of_scans.visit_interval().expect("visits are rationed");
        assert_eq!(of_scans.interval(), 10 * MS);
        assert!((1.5..=3.0).contains(&used) && visit > SECOND, "{used} % at {visit}");
        assert_eq!(
            of_scans.notice(),
            Some(format!("waits seen every {}s (--max-overhead 3%)", visit as f64 / 1e9))
        );
        // They sleep again.
        run(&mut of_scans, 300 * SECOND, 600, &Load { samples: 10e6, scans: 5e6 });
        assert_eq!((of_scans.visit_interval(), of_scans.notice()), (None, None));

        let mut of_samples = pace(3.0, &Arc::default());
        let used = run(&mut of_samples, 0, 300, &Load { samples: 300e6, scans: 10e6 });
        assert_eq!(of_samples.visit_interval(), None);
        assert!((1.5..=3.0).contains(&used), "{used} % at {}", of_samples.interval());
    }

    #[test]
    fn where_rare_visits_are_not_enough_samples_are_made_rarer_too() {
        // What does not fall with the visit interval counts as part of the scans.
        for (scan, visit) in [(5e6, Some(VISITS.1)), (0.4e6, None)] {
            let mut pace = pace(0.5, &Arc::default());
            let (mut cpu, mut at) = (0.0, 0);
            for _ in 0..20 * 600 {
                let scans = scan * (0.1 + 10e6 / pace.interval() as f64);
                cpu += scans;
                at += 50 * MS;
                pace.took(scans as Ns, scans as Ns);
                pace.observe(at, cpu as Ns, false);
            }
            assert_eq!(pace.visit_interval(), visit);
            assert!(pace.interval() >= 20 * MS, "{}", pace.interval());
            let notice = pace.notice().expect("a sentence");
            assert_eq!(notice.contains("; waits seen every 30s ("), visit.is_some(), "{notice}");
        }
    }

    #[test]
    fn the_reducers_time_counts_and_the_status_has_a_notice() {
        let reducer_ns = Arc::new(AtomicU64::new(0));
        let mut pace = pace(2.5, &reducer_ns);
        let mut intervals = Vec::new();
        for tick in 0..300u64 {
            reducer_ns.store(tick * MS, Ordering::Relaxed);
            if pace.observe(tick * 10 * MS, 0, false) {
                intervals.push(pace.interval());
            }
        }
        assert_eq!(intervals, [50 * MS]);
        let notice = pace.notice().expect("a sentence");
        assert_eq!(notice, "samples every 50ms, not 10ms (--max-overhead 2.5%)");
        pace.ask(30 * MS);
        assert_eq!((pace.asked(), pace.interval(), pace.notice()), (30 * MS, 30 * MS, None));

        let mut kept = Pace::new(10 * MS, None);
        assert!((0..300).all(|tick| !kept.observe(tick * 10 * MS, tick * 10 * MS, false)));
        assert_eq!((kept.interval(), kept.notice()), (10 * MS, None));
    }
}
