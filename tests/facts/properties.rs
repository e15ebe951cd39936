//! Properties of every sequence of events: nothing is lost and nothing invented.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sampletop::model::facts::history::Weights;
use sampletop::model::facts::recorder::{Limits, Recorder, View};
use sampletop::model::projection::settings::Range;
use sampletop::model::vocabulary::frame::{Ns, ThreadKey};

use super::simulator::{Run, World, world};
use super::support::*;

/// Replays the run, views included, and closes the recorder.
fn record(run: &Run, limits: Limits) -> View {
    record_by(run, limits, true)
}

fn record_by(run: &Run, limits: Limits, kernel_visible: bool) -> View {
    let mut recorder = Recorder::new(START, limits);
    recorder.set_kernel_visible(kernel_visible);
    for event in &run.events {
        match event {
            Some(event) => recorder.apply(event),
            None => drop(recorder.view()),
        }
    }
    recorder.close(START + run.end);
    recorder.view()
}

/// The name of threads that were never observed.
const UNOBSERVED: &str = "(exited)";

fn wall_by_thread(sums: &Sums) -> BTreeMap<ThreadKey, Ns> {
    let mut walls = BTreeMap::new();
    for ((thread, name, ..), weights) in sums {
        // Of threads that were never observed only CPU time is known.
        match name.as_str() {
            UNOBSERVED => assert_eq!(weights.wall_ns, weights.cpu_ns),
            _ => *walls.entry(*thread).or_default() += weights.wall_ns,
        }
    }
    walls.retain(|thread, wall| thread.tid != 0 || *wall != 0);
    walls
}

/// Returns the time of threads that were never observed.
fn unobserved(sums: &Sums) -> Ns {
    sums.iter().filter(|((_, name, ..), _)| name == UNOBSERVED).map(|(_, w)| w.wall_ns).sum()
}

fn observed_lives(run: &Run) -> BTreeMap<ThreadKey, Ns> {
    run.lives.iter().map(|(thread, first, end)| (*thread, end - first)).collect()
}

fn cpu(sums: &Sums) -> Ns {
    sums.values().map(|weights| weights.cpu_ns).sum()
}

fn totals_hold(world: &World, losses: bool, kernel_visible: bool) -> Result<(), TestCaseError> {
    let run = world.run(losses);
    let view = record_by(&run, Limits::default(), kernel_visible);
    let sums = all(&view);
    let (mut walls, mut lives) = (wall_by_thread(&sums), observed_lives(&run));
    // Threads that exited long ago are merged by name: then the sum of their lives counts.
    let merged =
        walls.iter().filter(|(thread, _)| thread.tid == 0).map(|(_, wall)| wall).sum::<Ns>();
    if merged > 0 {
        let dead: BTreeSet<ThreadKey> = run
            .lives
            .iter()
            .filter(|(_, _, end)| end + 60 * SECOND <= run.end)
            .map(|(thread, ..)| *thread)
            .collect();
        let rest = |of: &BTreeMap<ThreadKey, Ns>| {
            of.iter().filter(|(t, _)| dead.contains(t)).map(|(_, w)| w).sum::<Ns>()
        };
        prop_assert_eq!(merged + rest(&walls), rest(&lives));
        walls.retain(|thread, _| thread.tid != 0 && !dead.contains(thread));
        lives.retain(|thread, _| !dead.contains(thread));
    }
    prop_assert_eq!(walls, lives);
    prop_assert_eq!(cpu(&sums), run.cpu);
    let hits: u64 = sums.values().map(|w| u64::from(w.hits)).sum();
    let cpu_hits: u64 = sums.values().map(|w| u64::from(w.cpu_hits)).sum();
    prop_assert_eq!(cpu_hits, run.samples);
    // An exec or a gap may cut a wait in two; beyond that no wait is counted twice.
    prop_assert!(hits - cpu_hits <= run.waits + 8 * breaks(world));
    Ok(())
}

fn breaks(world: &World) -> u64 {
    world.rounds.iter().filter(|round| round.breaks()).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that per thread, wall over all its facts is its observed life, and per process, cpu
    /// is the kernel's figure.
    #[test]
    fn sums_are_exact(world in world(10 * MS, 300, 2 * SECOND, false), kernel_visible in any::<bool>()) {
        totals_hold(&world, false, kernel_visible)?;
    }

    /// Lost observations change no total, even if they are not sent again.
    #[test]
    fn lost_looks_change_no_total(world in world(10 * MS, 300, 2 * SECOND, false), kernel_visible in any::<bool>()) {
        totals_hold(&world, true, kernel_visible)?;
    }

    /// The same over minutes, when buckets were sealed, packed and merged; lost observations are
    /// sent again.
    #[test]
    fn sums_are_exact_over_minutes(world in world(400 * MS, 300, 5 * SECOND, true), losses in any::<bool>()) {
        totals_hold(&world, losses, true)?;
    }

    /// Rolling over everything that is retained is the cumulative table, and so is the sum of its
    /// seconds.
    #[test]
    fn rolling_over_everything_is_cumulative(world in world(300 * MS, 300, 5 * SECOND, true)) {
        let run = world.run(true);
        let view = record(&run, Limits::default());
        let cumulative = all(&view);
        let everything = view.at - START;
        let (rolling, from, till) = sums(&view, Range::Rolling(everything), view.at);
        prop_assert_eq!((from, till), (START, view.at));
        let by_name = |sums: &Sums| {
            let mut merged = BTreeMap::new();
            for ((thread, name, stack, state), w) in sums {
                // Threads that exited long ago are merged by name in the cumulative table.
                let key = (thread.pid, name.clone(), stack.clone(), state.clone());
                let sum: &mut (u64, u64, u32, u32, u64) = merged.entry(key).or_default();
                *sum = (sum.0 + w.wall_ns, sum.1 + w.cpu_ns, sum.2 + w.hits, sum.3 + w.cpu_hits, sum.4.max(w.longest_ns));
            }
            merged
        };
        prop_assert_eq!(by_name(&rolling), by_name(&cumulative));

        let (mut wall, mut cpu_ns, mut cpu_hits, mut at) = (0, 0, 0, START);
        while at < view.at {
            let (from, till) = view.history.read(Range::Rolling(1), at + 1, &mut |_, w| {
                wall += w.wall_ns;
                cpu_ns += w.cpu_ns;
                cpu_hits += u64::from(w.cpu_hits);
            });
            prop_assert!(from <= at && till > at, "{from} {at} {till}");
            at = till;
        }
        prop_assert_eq!(wall, cumulative.values().map(|w| w.wall_ns).sum::<u64>());
        prop_assert_eq!(cpu_ns, cpu(&cumulative));
        prop_assert_eq!(cpu_hits, cumulative.values().map(|w| u64::from(w.cpu_hits)).sum::<u64>());
    }

    /// Whether and when views are taken changes no thread's total.
    #[test]
    fn views_change_nothing(world in world(10 * MS, 200, SECOND, false)) {
        let mut run = world.run(true);
        let watched = all(&record(&run, Limits::default()));
        run.events.retain(Option::is_some);
        let alone = all(&record(&run, Limits::default()));
        prop_assert_eq!(wall_by_thread(&watched), wall_by_thread(&alone));
        prop_assert_eq!(cpu(&watched), cpu(&alone));
    }

    /// History that restarts repeatedly: its parts add up to one history, row by row, and no thread
    /// is counted twice.
    #[test]
    fn parts_of_history_are_the_whole(world in world(10 * MS, 300, 2 * SECOND, false), every in 1usize..9, kernel_visible in any::<bool>()) {
        let run = world.run(false);
        let whole = all(&record_by(&run, Limits::default(), kernel_visible));
        let mut recorder = Recorder::new(START, Limits::default());
        recorder.set_kernel_visible(kernel_visible);
        let (mut parts, mut views, mut from, mut ticks) = (Sums::new(), 0, START, 0);
        let mut add = |view: &View| {
            // Ranges of any kind return the same for a part.
            let (sums, begin, _) = sums(view, Range::Rolling(u64::MAX), view.at);
            assert_eq!(sums, all(view));
            assert_eq!(begin, from);
            from = view.at;
            ticks += view.ticks;
            for (key, weights) in sums {
                parts.entry(key).or_default().follow(&weights);
            }
        };
        for event in &run.events {
            match event {
                Some(event) => recorder.apply(event),
                None => {
                    views += 1;
                    if views % every == 0 {
                        add(&recorder.view());
                        recorder.restart();
                    }
                }
            }
        }
        recorder.close(START + run.end);
        add(&recorder.view());
        let times = |sums: &Sums| {
            let times = |w: &Weights| (w.wall_ns, w.cpu_ns, w.cpu_hits, w.longest_ns);
            let rows = sums.iter().map(|(key, w)| (key.clone(), times(w)));
            // Observed, with no time.
            rows.filter(|(_, times)| *times != (0, 0, 0, 0)).collect::<BTreeMap<_, _>>()
        };
        prop_assert_eq!(times(&parts), times(&whole));
        prop_assert_eq!(ticks, record(&run, Limits::default()).ticks);
    }

    /// Folding keeps totals, however small the limits.
    #[test]
    fn folding_keeps_totals(world in world(300 * MS, 200, 5 * SECOND, true), per_bucket in 1usize..6, kept in 64usize..80) {
        let run = world.run(false);
        let limits = Limits { facts_per_bucket: per_bucket, cumulative_facts: kept, ..Limits::default() };
        let view = record(&run, limits);
        let whole = all(&record(&run, Limits::default()));
        let lived = observed_lives(&run).values().sum::<Ns>() + unobserved(&whole);
        for range in [Range::Cumulative { since: None }, Range::Rolling(u64::MAX)] {
            let (sums, ..) = sums(&view, range, view.at);
            prop_assert_eq!(sums.values().map(|w| w.wall_ns).sum::<u64>(), lived);
            prop_assert_eq!(cpu(&sums), run.cpu);
        }
    }
}
