//! The time of a function by line and by place, against the rows of methods and of lines.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::properties::{fact, settings, world};
use super::*;
use crate::model::projection::function_time::MAX_PLACES;
use crate::model::projection::settings::{Level, RollUp};

impl World {
    /// Returns the time of a function of the module `app`, of these facts.
    fn time_in(&mut self, function: &FunctionKey, settings: &Settings) -> FunctionTime {
        let snapshot = self.snapshot();
        Projector::default().function_time_of(&snapshot, settings, function, &mut |f| {
            self.facts.iter().for_each(|(key, weights)| f(0, key, weights));
            (0, self.till)
        })
    }

    fn time_of(&mut self, function: &str) -> FunctionTime {
        self.time_in(&FunctionKey::of(&location(function, false)), &Settings::default())
    }

    /// Returns the place of a frame that was made from this text.
    fn place_of(&self, frame: &str) -> CodePlace {
        match self.frames[frame].decode() {
            FrameCode::Code { file, offset, exact: false } => {
                CodePlace { file, offset: offset - 1 }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Formats lines as `line total self`, by wall time.
fn lines(time: &FunctionTime) -> Vec<String> {
    let line = |at: &TimeAt<SourceLine>| {
        let line = at.at.1.map_or("?".to_owned(), |line| line.to_string());
        format!("{line} {} {}", at.total.wall_ns, at.own.wall_ns)
    };
    time.lines.iter().map(line).collect()
}

/// A world whose first frame has an offset of 0, which no return address has.
fn begun() -> World {
    let mut world = World::new();
    world.frame("before");
    world
}

#[test]
fn a_line_has_the_time_of_the_stacks_that_are_there() {
    let mut world = begun();
    for (thread, stack, wall) in [
        ("one", "main:1;f:10", 1),
        ("two", "main:1;f:10", 2),
        ("one", "main:2;f:11;g:20", 4),
        ("one", "f:11;f:10", 8),
        ("one", "main:1;f:11;f:11", 16),
        ("one", "main:1", 32),
        ("one", "f", 64),
    ] {
        world.fact(thread, stack, State::Run, wall);
    }
    let time = world.time_of("f");
    assert_eq!((time.total.wall_ns, time.own.wall_ns), (95, 91));
    assert_eq!(lines(&time), ["? 64 64", "10 11 11", "11 28 16"]);
    let [ten, eleven, unknown] = ["f:10", "f:11", "f"].map(|frame| Some(world.place_of(frame)));
    let found: BTreeMap<_, _> =
        time.places.iter().map(|at| (at.at, (at.total.wall_ns, at.own.wall_ns))).collect();
    assert!(time.places.is_sorted_by_key(|at| at.at), "{:?}", time.places);
    assert_eq!(found, [(ten, (11, 11)), (eleven, (28, 16)), (unknown, (64, 64))].into());
    assert_eq!(lines(&world.time_of("main")), ["1 51 32", "2 4 0"]);
    assert_eq!(world.time_of("none"), FunctionTime::default());
}

#[test]
fn time_off_the_cpu_is_that_of_the_function_and_of_its_lines() {
    let mut world = begun();
    world.fact("one", "main:1;f:10", State::Sleep, 40).cpu_ns = 10;
    world.fact("one", "main:1;f:11;g:20", State::Run, 5).cpu_ns = 5;
    world.fact("two", "main:1;f:11;g:20", State::Sleep, 7).cpu_ns = 0;
    let time = world.time_of("f");
    assert_eq!((time.total.off_ns, time.own.off_ns), (37, 30));
    let lines: Vec<_> =
        time.lines.iter().map(|at| (at.at.1, at.total.off_ns, at.own.off_ns)).collect();
    assert_eq!(lines, [(Some(10), 30, 30), (Some(11), 7, 0)]);
    let places: u64 = time.places.iter().map(|at| at.total.off_ns).sum();
    assert_eq!(places, 37);
}

#[test]
fn places_are_in_the_order_of_their_files() {
    let mut world = begun();
    let frames = ["f:1", "f:2", "f:3"];
    frames.iter().for_each(|frame| _ = world.frame(frame));
    for (stack, wall) in [("f:3", 1), ("f:1", 2), ("f:2", 4)] {
        world.fact("one", stack, State::Run, wall);
    }
    let time = world.time_of("f");
    let places: Vec<_> = time.places.iter().map(|at| at.at).collect();
    assert_eq!(places, frames.map(|frame| Some(world.place_of(frame))));
    assert_eq!(lines(&time), ["1 2 2", "2 4 4", "3 1 1"]);
}

#[test]
fn functions_of_one_name_are_told_apart_by_their_files() {
    let mut world = begun();
    world.fact("one", "main:1;init:10", State::Run, 1);
    world.fact("one", "main:1;libssl.so.3!init:10", State::Run, 2);
    assert_eq!(lines(&world.time_of("init")), ["10 1 1"]);
    let other = FunctionKey::of(&location("libssl.so.3!init", false));
    assert_eq!(lines(&world.time_in(&other, &Settings::default())), ["10 2 2"]);
}

#[test]
fn an_inlined_function_is_at_the_place_of_its_caller() {
    let mut world = begun();
    world.fact("one", "main:1;outer:5+inner:9", State::Run, 3);
    world.fact("one", "main:1;outer:6+inner:9", State::Run, 4);
    let time = world.time_of("inner");
    assert_eq!(lines(&time), ["9 7 7"]);
    assert_eq!(time.places.len(), 2);
    let time = world.time_of("outer");
    assert_eq!(lines(&time), ["5 3 0", "6 4 0"]);
    assert_eq!(time.places[0].at, Some(world.place_of("outer:5+inner:9")));
}

#[test]
fn what_the_users_function_calls_elsewhere_is_time_of_its_line() {
    let mut world = begun();
    world.fact("one", "main:1;cart:5", State::Run, 1);
    world.fact("one", "main:1;cart:6;libc.so.6!malloc;libc.so.6!grow", State::Run, 2);
    let settings = Settings { level: Level::Mine, ..Settings::default() };
    let cart = FunctionKey::of(&location("cart", false));
    let time = world.time_in(&cart, &settings);
    assert_eq!(lines(&time), ["5 1 1", "6 2 2"]);
    assert_eq!(lines(&world.time_in(&cart, &Settings::default())), ["5 1 1", "6 2 0"]);
}

/// Roots of inverted trees are what the user's code calls.
#[test]
fn what_the_users_code_calls_has_its_time_if_that_is_asked_for() {
    let mut world = begun();
    world.fact("one", "main:1;cart:6;libc.so.6!malloc;libc.so.6!grow", State::Run, 2);
    world.fact("one", "main:1;cart:7;libc.so.6!malloc", State::Run, 4);
    let settings = Settings { level: Level::Mine, ..Settings::default() };
    let malloc = FunctionKey::of(&location("libc.so.6!malloc", false));
    assert_eq!(world.time_in(&malloc, &settings), FunctionTime::default());
    let malloc = FunctionKey { has_calls: true, ..malloc };
    let time = world.time_in(&malloc, &settings);
    assert_eq!((time.total.wall_ns, time.own.wall_ns), (6, 6));
    let place = Some(world.place_of("libc.so.6!malloc"));
    assert_eq!(time.places.iter().map(|at| at.at).collect::<Vec<_>>(), [place]);
}

/// The same build may be mapped from several files, as in containers.
#[test]
fn files_of_one_build_are_one_file() {
    let mut world = begun();
    let frames = [(2, "a"), (3, "a"), (4, "b"), (5, "b")].map(|(file, build)| {
        let code = FrameCode::Code { file: FileId(file), offset: 100, exact: true };
        let frame = RawFrame::new(code);
        let stack = world.interner.stack(&[frame]);
        let mut named = Named::known([location("f:7", false)]);
        named.build_id = (build == "a").then(|| build.into());
        world.interner.set_named(frame, named);
        stack
    });
    for (stack, tid) in frames.into_iter().zip(1..) {
        let thread = ThreadKey { pid: 1, tid, start: 1 };
        world.fact_of(thread, "one", "main", State::Run, 1);
        world.facts.last_mut().unwrap().0.stack = stack;
    }
    let time = world.time_of("f");
    let places: Vec<_> = time.places.iter().map(|at| (at.at.unwrap(), at.own.wall_ns)).collect();
    let place = |file| CodePlace { file: FileId(file), offset: 100 };
    assert_eq!(places, [(place(2), 2), (place(4), 1), (place(5), 1)]);
    assert_eq!(time.build(FileId(2)).map(|build| &**build), Some("a"));
    assert_eq!(time.build(FileId(4)), None);
}

#[test]
fn lines_and_places_are_bounded_and_none_of_the_time_is_lost() {
    let mut world = begun();
    let count = 3 * MAX_PLACES as u64;
    for line in 0..count {
        world.fact("one", &format!("main:1;f:{line};f:{}", line / 2), State::Run, 1);
    }
    let time = world.time_of("f");
    assert_eq!((time.lines.len(), time.places.len()), (MAX_PLACES + 1, MAX_PLACES + 1));
    let own = |totals: Vec<Totals>| totals.iter().map(|own| own.wall_ns).sum::<u64>();
    assert_eq!(own(time.lines.iter().map(|at| at.own).collect()), count);
    assert_eq!(own(time.places.iter().map(|at| at.own).collect()), count);
    assert!(time.lines.iter().all(|at| at.total.wall_ns <= count), "{:?}", lines(&time));
}

/// Returns the sums that rows have too, whatever the order of facts.
fn plain(totals: Totals) -> Totals {
    Totals { longest_ns: 0, longest_from: 0, off_ns: 0, ..totals }
}

fn added<'a>(totals: impl Iterator<Item = &'a Totals>) -> Totals {
    let mut sum = Totals::default();
    totals.for_each(|totals| sum.add(totals));
    Totals { longest_ns: 0, longest_from: 0, ..sum }
}

fn is_part(part: &Totals, whole: &Totals) -> bool {
    Metric::ALL.iter().all(|metric| part.value(*metric) <= whole.value(*metric))
        && part.hits <= whole.hits
}

/// Total and self time by key, of those with any. (An observation may have a duration only.)
fn by_key<Key: Ord + Clone>(list: &[TimeAt<Key>]) -> BTreeMap<Key, (Totals, Totals)> {
    let times = list.iter().map(|at| (at.at.clone(), (plain(at.total), plain(at.own))));
    times.filter(|(_, (total, _))| *total != Totals::default()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn lines_and_places_add_up_to_the_rows_of_the_function(
        facts in prop::collection::vec(fact(), 0..40),
        settings in settings(),
        level in prop::sample::select(&[Level::Mine, Level::Chains, Level::All][..]),
    ) {
        let mut world = world(&facts);
        let by = |roll_up| Settings { level, roll_up, ..settings.clone() };
        let functions = world.project(&by(RollUp::Function));
        let by_line = world.project(&by(RollUp::Line));
        for method in functions.methods() {
            let location = method.location(Metric::Wall);
            // It is on no stack.
            if &*location.function == "(wants a core)" {
                continue;
            }
            let key = FunctionKey::of(location);
            let time = world.time_in(&key, &by(RollUp::Function));
            prop_assert_eq!(plain(time.total), plain(method.total));
            prop_assert_eq!(plain(time.own), plain(method.own));
            let own = Totals { longest_ns: 0, longest_from: 0, ..time.own };
            prop_assert_eq!(added(time.lines.iter().map(|at| &at.own)), own);
            prop_assert_eq!(added(time.places.iter().map(|at| &at.own)), own);
            for (total, own) in time.lines.iter().map(|at| (at.total, at.own)).chain(time.places.iter().map(|at| (at.total, at.own))) {
                prop_assert!(is_part(&own, &total) && is_part(&total, &time.total));
            }
            // A line is a row of its own under the roll-up by line.
            let lines = by_line.methods().iter().filter(|m| key.is(m.location(Metric::Wall)));
            let expected: BTreeMap<SourceLine, (Totals, Totals)> = lines
                .map(|m| {
                    let Location { file, line, .. } = &**m.location(Metric::Wall);
                    ((file.clone(), *line), (plain(m.total), plain(m.own)))
                })
                .filter(|(_, (total, _))| *total != Totals::default())
                .collect();
            prop_assert_eq!(by_key(&time.lines), expected);
            // Other units have the same lines: the function is the same.
            prop_assert_eq!(&world.time_in(&key, &by(RollUp::Module)), &time);
        }
    }

    /// With idle time, which is hidden by what else is in the range.
    #[test]
    fn ranges_add_up(
        (before, after) in (prop::collection::vec(fact(), 0..20), prop::collection::vec(fact(), 0..20)),
        settings in settings(),
    ) {
        let settings = Settings { idle: true, ..settings };
        let all: Vec<_> = before.iter().chain(&after).cloned().collect();
        let key = FunctionKey::of(&location("main:1", false));
        let [before, after, all] =
            [before, after, all].map(|facts| world(&facts).time_in(&key, &settings));
        let mut lines = by_key(&before.lines);
        for (line, (total, own)) in by_key(&after.lines) {
            let sums = lines.entry(line).or_default();
            sums.0.add(&total);
            sums.1.add(&own);
        }
        prop_assert_eq!(lines, by_key(&all.lines));
    }
}
