use proptest::prelude::*;

use super::*;

const MS: Ns = 1_000_000;
const MINUTE: Ns = 60 * SECOND;
const LONGEST: Ns = 10 * SECOND;
const ANY: May = May { stretch: true, shorten: true, part: 1.0 };

/// Cost of sampling at an interval, CPU ns per ns.
type Cost<'a> = &'a dyn Fn(Ns) -> f64;

/// A sampled program with simulated time.
struct Run {
    governor: Governor,
    at: Ns,
    cpu: f64,
    /// Time and interval of every change.
    changes: Vec<(Ns, Ns)>,
}

impl Run {
    fn new(percent: f64, asked: Ns) -> Run {
        Run {
            governor: Governor::new(percent, asked, LONGEST),
            at: 77 * SECOND,
            cpu: 5e9,
            changes: Vec::new(),
        }
    }

    /// `noise` multiplies the use of a quarter of a second, or of one tick.
    fn go(&mut self, time: Ns, cost: Cost<'_>, noise: &mut dyn FnMut() -> f64) {
        let end = self.at + time;
        while self.at < end {
            let interval = self.governor.interval();
            // Ticks within a quarter of a second are taken together: the governor records no more.
            let passed = interval * (SECOND / 4).div_ceil(interval);
            self.at += passed;
            self.cpu += cost(interval) * noise() * passed as f64;
            if let Some(interval) = self.governor.observe(self.at, self.cpu as u64, ANY) {
                assert_eq!(interval, self.governor.interval());
                self.changes.push((self.at, interval));
            }
        }
    }

    fn steady(&mut self, time: Ns, cost: Cost<'_>) {
        self.go(time, cost, &mut || 1.0);
    }

    /// Returns how often a change of the other direction follows a change.
    fn turns(&self, asked: Ns) -> usize {
        let mut intervals = vec![asked];
        intervals.extend(self.changes.iter().map(|change| change.1));
        let backends: Vec<bool> = intervals.windows(2).map(|pair| pair[1] > pair[0]).collect();
        backends.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }
}

/// Uniform in 1 +- `spread`.
fn noise(seed: u64, spread: f64) -> impl FnMut() -> f64 {
    let mut random = crate::capture::schedule::Random::from_seed(seed);
    move || 1.0 + spread * (random.below(2_000_001) as f64 / 1e6 - 1.0)
}

/// Costs that do not rise with the interval, CPU ns per ns.
#[derive(Clone, Debug)]
enum Model {
    /// A fixed part, and a part at 10 ms.
    Split(f64, f64),
    /// The cost at 1 ms, which falls with this power.
    Power(f64, f64),
    /// The cost below this interval, and above it.
    Threshold(Ns, f64, f64),
}

impl Model {
    fn cost(&self, interval: Ns) -> f64 {
        match self {
            Model::Split(fixed, scan) => fixed + scan * 10e6 / interval as f64,
            Model::Power(all, power) => all * (1e6 / interval as f64).powf(*power),
            Model::Threshold(at, above, below) => {
                if interval < *at {
                    *above
                } else {
                    *below
                }
            }
        }
    }
}

fn model() -> impl Strategy<Value = Model> {
    prop_oneof![
        (0.0..0.02, 0.0..1.0).prop_map(|(fixed, scan)| Model::Split(fixed, scan)),
        (0.0..1.0, 0.2..1.0).prop_map(|(all, power)| Model::Power(all, power)),
        (1..10_000u64, 0.03..1.0, 0.0..0.02).prop_map(|(ms, above, below)| Model::Threshold(
            ms * MS,
            above,
            below
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The interval is on the ladder, stays below the bound on average, and is no longer than
    /// needed. One step shorter costs too much, or leaves no room.
    #[test]
    fn it_settles_under_any_cost_that_falls_with_the_interval(
        model in model(), asked in 1..5_000u64, percent in 1.0..10.0f64,
    ) {
        let (asked, cost) = (asked * MS, |i: Ns| model.cost(i));
        let mut run = Run::new(percent, asked);
        run.steady(5 * MINUTE, &cost);
        let (before, from) = (run.cpu, run.at);
        run.steady(60 * MINUTE, &cost);
        for (_, interval) in &run.changes {
            prop_assert!((asked..=LONGEST).contains(interval), "{:?}", run.changes);
        }
        let bound = percent / 100.0;
        if cost(LONGEST) < bound {
            let used = (run.cpu - before) / (run.at - from) as f64;
            // A shorter interval that proves too expensive is known by its first tick, which has
            // been paid for by then. The longer the interval, the later. With a cost that jumps by
            // half a core between two steps that takes seconds.
            let late = run.changes.windows(2).filter(|pair| pair[1].0 > from && pair[1].1 < pair[0].1);
            let tried: f64 = late.map(|pair| cost(pair[1].1) * pair[1].1 as f64).sum();
            let allowed = 1.05 * bound + tried / (run.at - from) as f64;
            prop_assert!(used <= allowed, "{used} of {allowed} for {bound}: {:?}", run.changes);
        } else {
            prop_assert_eq!(run.governor.interval(), LONGEST);
        }
        let step = run.governor.step;
        // At a threshold it takes longer to find the step behind it.
        if step > 0 && !matches!(model, Model::Threshold(..)) {
            let (now, shorter) = (cost(run.governor.rung(step)), cost(run.governor.rung(step - 1)));
            prop_assert!(now > ROOM * bound * 0.99 || shorter > bound * 0.99, "{now}, {shorter}: {:?}", run.changes);
        }
        prop_assert!(run.turns(asked) <= 24, "{:?}", run.changes);
    }

    /// The figure on the screen rarely changes, even if the cost of each tick varies.
    #[test]
    fn noise_does_not_move_it(
        model in model(), seed in any::<u64>(), spread in 0.0..0.9f64, percent in 1.0..10.0f64,
    ) {
        let mut run = Run::new(percent, 10 * MS);
        run.go(30 * MINUTE, &|i| model.cost(i), &mut noise(seed, spread));
        // At worst each shorter interval is taken back, 10, 20, 40, ... 640 s after the last one.
        // Or it lasts for ten minutes.
        prop_assert!(run.turns(10 * MS) <= 20, "{:?}", run.changes);
    }

    /// Holds for any figures.
    #[test]
    fn it_stays_between_what_was_asked_and_ten_seconds(
        asked in 1..10_000_000_000u64,
        percent in 0.1..100.0f64,
        figures in proptest::collection::vec((0..30 * SECOND, 0..20 * SECOND, any::<bool>()), 1..200),
    ) {
        let mut governor = Governor::new(percent, asked, LONGEST);
        let (mut at, mut cpu) = (0, 0u64);
        for (later, used, back) in figures {
            at += later;
            cpu = if back { cpu.saturating_sub(used) } else { cpu + used };
            let told = governor.observe(at, cpu, ANY);
            prop_assert!(told.is_none_or(|told| told == governor.interval()));
            prop_assert!((asked..=LONGEST).contains(&governor.interval()));
        }
    }
}

#[test]
fn a_heavy_load_is_held_within_seconds_and_let_go_slowly() {
    let asked = 10 * MS;
    let mut run = Run::new(3.0, asked);
    // A fifth of a core at the interval asked for.
    let begin = run.at;
    run.steady(MINUTE, &|i| 0.2 * 10e6 / i as f64);
    // 150 ms of CPU are used up 0.75 s after the first second.
    let first = run.changes[0];
    assert!(first.0 - begin < 2_500 * MS && first.1 == 50 * MS, "{first:?}");
    assert_eq!(run.governor.interval(), 100 * MS, "{:?}", run.changes);
    // The load ends: the interval returns in one change, but not at once.
    let lighter = run.at;
    run.steady(MINUTE, &|i| 0.005 * 10e6 / i as f64);
    let last = run.changes[run.changes.len() - 1];
    assert_eq!(last.1, asked, "{:?}", run.changes);
    assert!((PATIENCE.0 / 2..2 * PATIENCE.0).contains(&(last.0 - lighter)), "{:?}", run.changes);
    assert!(run.changes.len() <= 4 && run.turns(asked) == 1, "{:?}", run.changes);
}

#[test]
fn a_load_that_comes_and_goes_is_not_followed_for_ever() {
    let asked = 10 * MS;
    let mut run = Run::new(3.0, asked);
    for _ in 0..60 {
        run.steady(15 * SECOND, &|i| 0.3 * 10e6 / i as f64);
        run.steady(15 * SECOND, &|_| 0.0);
    }
    // The load changes 120 times.
    assert!(run.turns(asked) <= 24, "{}: {:?}", run.turns(asked), run.changes);
}

#[test]
fn a_single_burst_is_soon_forgotten() {
    let asked = 10 * MS;
    let mut run = Run::new(3.0, asked);
    // Attaching is not counted, whatever it costs.
    run.cpu += 3e9;
    run.steady(3 * SECOND / 4, &|_| 1.0);
    run.steady(10 * SECOND, &|_| 0.004);
    assert_eq!(run.changes, []);
    // A library with large tables is loaded.
    run.cpu += 300e6;
    run.steady(30 * SECOND, &|_| 0.004);
    let intervals: Vec<Ns> = run.changes.iter().map(|change| change.1 / MS).collect();
    assert_eq!(intervals.last(), Some(&10), "{intervals:?}");
    assert!(intervals.len() == 2 && intervals[0] <= 50, "{intervals:?}");
}

#[test]
fn a_pause_does_not_count_as_low_use() {
    let mut run = Run::new(3.0, 10 * MS);
    let cost = |i: Ns| 0.2 * 10e6 / i as f64;
    run.steady(30 * SECOND, &cost);
    let changes = run.changes.len();
    run.at += MINUTE;
    run.steady(30 * SECOND, &cost);
    assert_eq!(run.changes.len(), changes, "{:?}", run.changes);
}

#[test]
fn a_new_interval_is_in_force_at_once() {
    let mut run = Run::new(3.0, 10 * MS);
    let cost = |i: Ns| 0.2 * 10e6 / i as f64;
    run.steady(30 * SECOND, &cost);
    assert!(run.governor.interval() > 60 * MS);
    run.governor.ask(20 * MS);
    assert_eq!(run.governor.interval(), 20 * MS);
    run.steady(30 * SECOND, &cost);
    assert_eq!(
        run.governor.interval(),
        100 * MS,
        "on the ladder of what is asked now: {:?}",
        run.changes
    );
    run.governor.ask(200 * MS);
    run.changes.clear();
    run.steady(MINUTE, &cost);
    assert_eq!(run.changes, [], "affordable");
}

#[test]
fn the_ladder_begins_with_what_was_asked_and_ends_at_ten_seconds() {
    let steps = |asked| {
        let governor = Governor::new(1.0, asked * MS, LONGEST);
        (0..9).map(|step| governor.rung(step) / MS).collect::<Vec<_>>()
    };
    assert_eq!(steps(10), [10, 15, 20, 30, 50, 70, 100, 150, 200]);
    assert_eq!(steps(4_000), [4_000, 6_000, 8_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000]);
    assert_eq!(Governor::new(1.0, Ns::MAX, LONGEST).rung(u32::MAX), Ns::MAX);
}
