//! Samples sum to what is shown under all settings, and keep apart what a projection sums.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::properties::{fact, row_name, settings, world};
use super::*;
use crate::model::projection::samples::samples_of;
use crate::model::projection::settings::{Level, RollUp};

fn of(world: &mut World, settings: &Settings) -> Samples {
    let snapshot = world.snapshot();
    samples_of(&snapshot, settings, &mut |f| {
        world.facts.iter().for_each(|(key, weights)| f(0, key, weights));
        (0, 100)
    })
}

/// Returns the frames outermost first.
fn path(samples: &Samples, sample: &Sample) -> Vec<Frame> {
    let mut path = Vec::new();
    let mut next = sample.innermost;
    while let Some(at) = next {
        let frame = &samples.frames[at as usize];
        assert!(frame.caller.is_none_or(|caller| caller < at));
        path.push(frame.clone());
        next = frame.caller;
    }
    path.reverse();
    path
}

/// wall, cpu, hits
type Sums = (u64, u64, u64);

fn add(sums: &mut Sums, sample: &Sample) {
    *sums = (sums.0 + sample.wall_ns, sums.1 + sample.cpu_ns, sums.2 + sample.hits);
}

fn sums(totals: &Totals) -> Sums {
    (totals.wall_ns, totals.cpu_ns, totals.hits)
}

proptest! {
    #[test]
    fn samples_add_up_to_the_projection(facts in prop::collection::vec(fact(), 0..12), settings in settings()) {
        let mut world = world(&facts);
        // A sample's frames are those of its stack.
        let settings = Settings { level: Level::All, ..settings };
        let samples = of(&mut world, &settings);
        let projection = world.project(&Settings { idle: true, ..settings.clone() });
        prop_assert_eq!((samples.from, samples.till), (projection.from, projection.till));

        let mut groups: BTreeMap<(Arc<str>, State), u64> = BTreeMap::new();
        let mut methods: BTreeMap<String, (Sums, Sums)> = BTreeMap::new();
        let mut on_stacks = BTreeSet::new();
        for sample in &samples.samples {
            *groups.entry((sample.group.clone(), sample.state)).or_default() += sample.wall_ns;
            let path = path(&samples, sample);
            let mut met = BTreeSet::new();
            for (nth, frame) in path.iter().enumerate() {
                let name = row_name(&frame.location, settings.roll_up);
                let (total, own) = methods.entry(name.clone()).or_default();
                if met.insert(name) {
                    add(total, sample);
                }
                if nth + 1 == path.len() {
                    add(own, sample);
                }
            }
            let mut next = sample.innermost;
            while let Some(at) = next {
                on_stacks.insert(at);
                next = samples.frames[at as usize].caller;
            }
        }
        prop_assert_eq!(on_stacks.len(), samples.frames.len());
        groups.retain(|_, wall_ns| *wall_ns > 0);
        let mut expected: BTreeMap<(Arc<str>, State), u64> = BTreeMap::new();
        for group in &projection.groups {
            for state in State::ALL.into_iter().filter(|state| group.total.states_ns[*state as usize] > 0) {
                *expected.entry((group.name.clone(), state)).or_default() += group.total.states_ns[state as usize];
            }
        }
        prop_assert_eq!(groups, expected);
        // The line of a method is its heaviest one.
        let line = |location: &Location| match settings.roll_up {
            RollUp::Line => location.clone(),
            _ => Location { line: None, ..location.clone() },
        };
        let expected: BTreeMap<String, (Sums, Sums)> = projection
            .methods()
            .iter()
            .map(|method| {
                let location = line(method.location(settings.metric));
                (row_name(&location, settings.roll_up), (sums(&method.total), sums(&method.own)))
            })
            .collect();
        prop_assert_eq!(methods, expected);
    }
}

#[test]
fn threads_names_states_and_inlined_frames_stay_apart() {
    let mut world = World::new();
    world.fact("work-1", "main;run:7+get:3", State::Run, 5);
    world.fact("work-2", "main;run:7+get:3", State::Run, 6);
    world.fact("work-2", "main;run:7+get:3", State::Io, 7);
    world.fact("work-2", "main;rayon_core::sleep::Sleep::sleep", State::Wait, 8);
    let samples = of(&mut world, &Settings::default());
    let shown: Vec<String> = (samples.samples.iter())
        .map(|sample| {
            let frames = path(&samples, sample);
            let frame = |frame: &Frame| {
                format!("{}{}", if frame.inlined { "+" } else { ";" }, frame.location.function)
            };
            let path: String = frames.iter().map(frame).collect();
            let idle = if sample.idle { " idle" } else { "" };
            let Sample { name, group, state, wall_ns, .. } = sample;
            format!("{name} {group} {}{idle} {path} {wall_ns}", state.word())
        })
        .collect();
    let mut sorted = shown.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "work-1 work- run ;main;run+get 5",
            "work-2 work- io ;main;run+get 7",
            "work-2 work- run ;main;run+get 6",
            "work-2 work- wait idle ;main;rayon_core::sleep::Sleep::sleep 8",
        ]
    );
    // The caller is one frame, whatever is inlined into it. Its lines are kept under roll-up
    // function.
    assert_eq!(samples.frames.len(), 4);
    assert_eq!(
        samples.frames.iter().filter_map(|frame| frame.location.line).collect::<Vec<_>>(),
        [7, 3]
    );
    // Frames may be inlined into a hidden one.
    let filters =
        Filters { hide: Filter::set(regex::Regex::new("^run$").unwrap()), ..Filters::default() };
    let samples = of(&mut world, &Settings { filters, ..Settings::default() });
    assert!(samples.frames.iter().all(|frame| !frame.inlined), "{:?}", samples.frames);
}
