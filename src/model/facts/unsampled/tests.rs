//! Which samples lend their stacks, in which parts, and what is taken back.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::facts::history::Range;
use crate::model::facts::history::Weights;
use crate::model::facts::interner::Interner;
use crate::model::facts::recorder::Limits;
use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame, RawName};

const MS: Ns = 1_000_000;
/// CPU time that a sample stands for, in all these tests.
const PERIOD: Ns = 10 * MS;
const START: Ns = 1_000 * SECOND;
const MARKER: StackId = StackId(99);
const NAME: NameId = NameId(0);
const RUN: RawState = RawState::Known(State::Run);

fn thread(tid: u32) -> ThreadKey {
    ThreadKey { pid: 1, tid, start: 7 }
}

fn kind() -> Kind {
    Kind::of(thread(1), 5)
}

fn weighed(at: Ns, stack: u32, cpu: Ns) -> Weighed {
    Weighed { at, name: NAME, stack: StackId(stack), cpu, renamed: false }
}

/// Adds samples of `(thread, stack, CPU time got)`, all taken at `at`.
fn add(donors: &mut Donors, at: Ns, samples: &[(u32, u32, Ns)]) {
    for (tid, stack, cpu) in samples {
        donors.add(kind(), thread(*tid), &weighed(at, *stack, *cpu), PERIOD);
    }
}

fn donors(samples: &[(u32, u32, Ns)]) -> Donors {
    let mut donors = Donors::default();
    add(&mut donors, START, samples);
    donors
}

/// Counts how often each stack is drawn for thread `tid`.
fn drawn(donors: &mut Donors, tid: u32, at: Ns, parts: u64) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for (stack, _) in donors.stacks(kind(), thread(tid), NAME, at, parts) {
        *counts.entry(stack.0).or_default() += 1;
    }
    counts
}

fn receiver(tid: u32) -> Receiver {
    Receiver { thread: thread(tid), kind: kind(), period: PERIOD, marker: MARKER }
}

fn buckets() -> Buckets {
    Buckets::new(START, Limits::default(), StackId(98))
}

fn key(tid: u32, stack: StackId) -> FactKey {
    FactKey::new(thread(tid), NAME, stack, RUN)
}

/// Returns the booked weights by stack and state.
fn booked(buckets: &mut Buckets) -> BTreeMap<(u32, RawState), Weights> {
    let mut sums: BTreeMap<_, Weights> = BTreeMap::new();
    let at = START + 100 * SECOND;
    buckets.history(at, std::iter::empty()).read(
        Range::Cumulative { since: None },
        at,
        &mut |key, weights| {
            sums.entry((key.stack.0, key.state)).or_default().add(weights);
        },
    );
    sums
}

fn cpu_of(buckets: &mut Buckets, stack: u32) -> Ns {
    booked(buckets).get(&(stack, RUN)).map_or(0, |weights| weights.cpu_ns)
}

/// Checks shares to a few draws: in 1,200 draws by multiples of the golden ratio none is off by
/// more.
#[track_caller]
fn assert_about(counts: &BTreeMap<u32, u64>, expected: &[(u32, u64)]) {
    assert_eq!(
        counts.keys().copied().collect::<Vec<_>>(),
        expected.iter().map(|(s, _)| *s).collect::<Vec<_>>()
    );
    for (stack, number) in expected {
        assert!(counts[stack].abs_diff(*number) <= 5, "{counts:?}, not {expected:?}");
    }
}

#[test]
fn other_threads_samples_count_by_what_they_lack_of_a_period() {
    // 9, 3 and 0 ms short.
    let mut donors = donors(&[(1, 20, MS), (2, 21, 7 * MS), (3, 22, PERIOD), (3, 23, 2 * PERIOD)]);
    assert_about(&drawn(&mut donors, 4, START, 1_200), &[(20, 900), (21, 300)]);
}

#[test]
fn samples_that_lack_nothing_are_all_alike() {
    let mut donors = donors(&[(1, 20, PERIOD), (2, 21, PERIOD), (3, 22, 3 * PERIOD)]);
    assert_about(&drawn(&mut donors, 4, START, 1_200), &[(20, 400), (21, 400), (22, 400)]);
}

#[test]
fn a_thread_s_own_samples_come_first_and_are_all_alike() {
    let mut donors = donors(&[(1, 20, MS), (1, 21, PERIOD), (1, 22, 5 * MS), (2, 23, MS)]);
    assert_about(&drawn(&mut donors, 1, START, 1_200), &[(20, 400), (21, 400), (22, 400)]);
    assert_about(&drawn(&mut donors, 2, START, 1_200), &[(23, 1_200)]);
}

#[test]
fn samples_of_more_than_a_minute_ago_say_nothing() {
    let mut donors = donors(&[(1, 20, MS)]);
    assert_eq!(drawn(&mut donors, 1, START + OLDEST, 1), [(20, 1)].into());
    assert_eq!(drawn(&mut donors, 1, START + OLDEST + 1, 1), [].into());
    // They do not displace younger samples of other threads either.
    add(&mut donors, START + SECOND, &[(2, 21, MS)]);
    assert_eq!(drawn(&mut donors, 1, START + OLDEST, 9), [(20, 9)].into());
    assert_eq!(drawn(&mut donors, 1, START + OLDEST + 1, 9), [(21, 9)].into());
    // An old sample's shortfall does not count, so the younger ones have equal weights.
    let mut mixed = self::donors(&[(1, 20, MS)]);
    add(&mut mixed, START + SECOND, &[(2, 21, PERIOD), (3, 22, PERIOD)]);
    assert_eq!(drawn(&mut mixed, 4, START + OLDEST, 9), [(20, 9)].into());
    assert_about(&drawn(&mut mixed, 4, START + OLDEST + 1, 1_200), &[(21, 600), (22, 600)]);
    donors.keep_house(START + OLDEST + SECOND);
    assert_eq!(donors.by_kind.len(), 1);
    donors.keep_house(START + OLDEST + SECOND + 1);
    assert_eq!(donors.by_kind.len(), 0);
}

#[test]
fn of_too_many_samples_the_newest_stay() {
    let samples: Vec<(u32, u32, Ns)> = (0..SAMPLES as u32 + 3).map(|nth| (1, nth, MS)).collect();
    let mut donors = donors(&samples);
    assert_eq!(donors.by_kind[&kind()].len(), SAMPLES);
    let drawn = drawn(&mut donors, 1, START, 5_000);
    assert_eq!(
        (drawn.keys().next(), drawn.keys().next_back()),
        (Some(&3), Some(&(SAMPLES as u32 + 2)))
    );
}

#[test]
fn of_too_many_kinds_the_one_sampled_longest_ago_goes() {
    let mut donors = Donors::default();
    let kind = |nth: u64| Kind::of(thread(1), nth + 1);
    let kinds = KINDS as u64;
    // The first kind is sampled again last, so the second one is then the oldest.
    for (at, nth) in (START..).zip((0..kinds).chain([0, kinds])) {
        donors.add(kind(nth), thread(1), &weighed(at, 1, 0), PERIOD);
    }
    let gone: Vec<u64> =
        (0..=kinds).filter(|nth| !donors.by_kind.contains_key(&kind(*nth))).collect();
    assert_eq!((donors.by_kind.len(), gone), (KINDS, vec![1]));
}

#[test]
fn a_thread_of_which_nothing_is_known_is_like_itself_alone() {
    let mut kinds = std::collections::HashSet::new();
    for (pid, tid, start) in [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)] {
        assert!(kinds.insert(Kind::of(ThreadKey { pid, tid, start }, 0)), "{pid} {tid} {start}");
    }
    assert_eq!(Kind::of(thread(1), 0), Kind::of(thread(1), 0));
    assert_eq!(Kind::of(thread(1), 8), Kind::of(thread(2), 8));
    assert_ne!(Kind::of(thread(1), 8), Kind::of(thread(1), 9));
    assert_ne!(
        Kind::of(thread(1), 8),
        Kind::of(ThreadKey { pid: 2, ..thread(1) }, 8),
        "of another process"
    );
}

#[test]
fn a_process_that_ended_takes_its_samples_with_it_and_no_others() {
    let mut donors = donors(&[(1, 20, MS)]);
    let other = ThreadKey { pid: 2, ..thread(1) };
    donors.add(Kind::of(other, 5), other, &weighed(START, 21, MS), PERIOD);
    donors.process_ended(1);
    assert_eq!(drawn(&mut donors, 1, START, 1), [].into());
    assert_eq!(donors.stacks(Kind::of(other, 5), other, NAME, START, 1), [(StackId(21), NAME)]);
}

#[test]
fn a_stack_goes_by_the_name_that_its_thread_had_then() {
    let (former, now) = (NameId(7), NameId(8));
    let mut donors = Donors::default();
    donors.add(
        kind(),
        thread(1),
        &Weighed { name: former, renamed: true, ..weighed(START, 20, MS) },
        PERIOD,
    );
    assert_eq!(donors.stacks(kind(), thread(1), now, START, 1), [(StackId(20), former)]);
    assert_eq!(
        donors.stacks(kind(), thread(2), now, START, 1),
        [],
        "of a thread that has that name now"
    );
    donors.add(kind(), thread(3), &weighed(START, 21, MS), PERIOD);
    assert_eq!(donors.stacks(kind(), thread(2), now, START, 3), [(StackId(21), now); 3]);
}

#[test]
fn time_is_cut_into_periods_and_into_no_more_than_a_bound() {
    let mut donors = donors(&[(1, 20, MS)]);
    let mut parts = |length, part| -> Vec<Ns> {
        let shares: Vec<_> = donors.shares(&receiver(1), NAME, START, length, part).collect();
        assert!(shares.iter().all(|(stack, ..)| *stack == StackId(20)));
        shares.into_iter().map(|(.., part)| part).collect()
    };
    assert_eq!(parts(9, 10), [9]);
    assert_eq!(parts(29, 10), [14, 15]);
    let many = parts(1_000, 10);
    assert_eq!((many.len() as u64, many.iter().sum::<Ns>()), (PARTS, 1_000));
    assert_eq!(parts(0, 10), [0]);
    assert_eq!(parts(5, 0), [1; 5], "an interval that is not known yet");
    let shares: Vec<_> = donors.shares(&receiver(1), NAME, START + 2 * OLDEST, 1_000, 10).collect();
    assert_eq!(shares, [(MARKER, NAME, 1_000)], "one part where no sample says anything");
}

#[test]
fn wall_time_without_a_sample_is_cut_end_to_end_and_waits_for_a_core_as_long_as_it_did() {
    for (ready, expected) in [(30 * MS, 30 * MS), (0, 0), (900 * MS, 400 * MS)] {
        let mut buckets = buckets();
        let (from, till) = (START + 900 * MS, START + 1_300 * MS);
        let left = Unsampled::Wall { from, till, name: NAME, ready };
        donors(&[(1, 20, MS), (1, 21, MS)]).book(&left, &receiver(1), &mut buckets);
        let sums = booked(&mut buckets);
        let sum = |of: State| {
            sums.iter()
                .filter(move |((_, state), _)| *state == RawState::Known(of))
                .map(|(_, w)| w.wall_ns)
        };
        assert_eq!(
            (sum(State::Rdy).sum::<Ns>(), sum(State::Run).sum::<Ns>()),
            (expected, 400 * MS - expected)
        );
        // 400 ms are four parts of ten periods: each sample gets at most three of them.
        for stack in [20, 21] {
            let wall: Ns =
                sums.iter().filter(|((of, _), _)| *of == stack).map(|(_, w)| w.wall_ns).sum();
            assert!((100 * MS..=300 * MS).contains(&wall), "{sums:?}");
        }
        // Each second contains the time spent in it.
        let (mut first, range) = (0, Range::Rolling(1));
        let at = START + 2 * SECOND;
        buckets
            .history(at, std::iter::empty())
            .read(range, START + 1, &mut |_, weights| first += weights.wall_ns);
        assert_eq!(first, 100 * MS);
    }
}

#[test]
fn wall_time_of_ten_periods_is_spent_in_one_stack() {
    for (periods, stacks) in [(1, 1), (19, 1), (40, 2)] {
        let mut buckets = buckets();
        let left =
            Unsampled::Wall { from: START, till: START + periods * PERIOD, name: NAME, ready: 0 };
        donors(&[(1, 20, MS), (1, 21, MS)]).book(&left, &receiver(1), &mut buckets);
        assert_eq!(booked(&mut buckets).len(), stacks, "{periods}");
    }
}

#[test]
fn a_sample_of_another_name_does_not_say_what_others_lack() {
    let mut donors = Donors::default();
    donors.add(kind(), thread(1), &Weighed { renamed: true, ..weighed(START, 20, MS) }, PERIOD);
    donors.add(kind(), thread(3), &weighed(START, 21, PERIOD), PERIOD);
    assert_eq!(drawn(&mut donors, 2, START, 2), [(21, 2)].into());
}

#[test]
fn wall_time_goes_to_what_was_sampled_around_its_end() {
    let mut buckets = buckets();
    let (from, till) = (START + OLDEST - SECOND, START + OLDEST + SECOND);
    let left = Unsampled::Wall { from, till, name: NAME, ready: 0 };
    donors(&[(1, 20, MS)]).book(&left, &receiver(1), &mut buckets);
    assert_eq!(
        booked(&mut buckets).into_keys().map(|(stack, _)| stack).collect::<Vec<_>>(),
        [MARKER.0]
    );
}

/// Returns CPU time by thread and stack, ms.
fn cpu_by_thread(buckets: &mut Buckets) -> Vec<(u32, u32, Ns)> {
    let mut sums: BTreeMap<_, Ns> = BTreeMap::new();
    let at = START + 100 * SECOND;
    buckets.history(at, std::iter::empty()).read(
        Range::Cumulative { since: None },
        at,
        &mut |key, weights| {
            *sums.entry((key.thread.tid, key.stack.0)).or_default() += weights.cpu_ns / MS;
        },
    );
    sums.into_iter().map(|((tid, stack), ms)| (tid, stack, ms)).collect()
}

#[test]
fn the_clock_s_time_goes_to_the_samples_that_wait_then_to_stacks_like_theirs() {
    let (mut buckets, mut orphans, mut donors) = (buckets(), Orphans::default(), Donors::default());
    orphans.add(START, key(5, StackId(20)));
    orphans.add(START, key(6, StackId(20)));
    let mut share = |ms: Ns| {
        orphans.share(ms * MS, START + MS, key(0, MARKER), &mut donors, PERIOD, &mut buckets)
    };
    share(10);
    // Then the queued samples get theirs.
    share(4);
    assert_eq!(cpu_by_thread(&mut buckets), [(0, 20, 4), (5, 20, 5), (6, 20, 5)]);
    // Without any sample the time has no stack.
    let mut buckets = self::buckets();
    Orphans::default().share(
        7 * MS,
        START,
        key(0, MARKER),
        &mut Donors::default(),
        PERIOD,
        &mut buckets,
    );
    assert_eq!(cpu_by_thread(&mut buckets), [(0, MARKER.0, 7)]);
}

/// Books 3, 4 and 5 ms, at intervals of a ms; the second and the third to one stack.
fn orphans(buckets: &mut Buckets) -> Orphans {
    let mut orphans = Orphans::default();
    for (nth, stack, ms) in [(1, 20, 3), (2, 21, 4), (3, 21, 5)] {
        orphans.book(START + nth * MS, key(0, StackId(stack)), ms * MS, buckets);
    }
    orphans
}

#[test]
fn the_newest_is_taken_back_first_and_the_rest_of_it_later() {
    let mut buckets = buckets();
    let mut orphans = orphans(&mut buckets);
    let mut take = |ms: u64| {
        let taken = orphans.take_back(ms * MS, &mut buckets) / MS;
        (taken, cpu_of(&mut buckets, 20) / MS, cpu_of(&mut buckets, 21) / MS)
    };
    assert_eq!(take(0), (0, 3, 9));
    assert_eq!(take(2), (2, 3, 7));
    assert_eq!(take(4), (4, 3, 3), "3 of the newest, 1 of the one before");
    assert_eq!(take(4), (4, 2, 0));
    assert_eq!(take(9), (2, 0, 0), "no more than was shared");
    assert_eq!(take(9), (0, 0, 0));
}

#[test]
fn what_is_sealed_or_older_than_two_horizons_is_not_taken_back() {
    let mut buckets = buckets();
    let mut orphans = orphans(&mut buckets);
    orphans.keep_house(START + 2 * MS + 2 * HORIZON);
    assert_eq!(orphans.take_back(20 * MS, &mut buckets), 5 * MS, "the newest alone is younger");
    assert_eq!((cpu_of(&mut buckets, 20), cpu_of(&mut buckets, 21)), (3 * MS, 4 * MS));
    let mut orphans = self::orphans(&mut buckets);
    let at = START + SECOND + 2 * HORIZON;
    orphans.book(at, key(0, StackId(22)), 6 * MS, &mut buckets);
    buckets.keep_house(at, HORIZON, &|_| false);
    assert_eq!(orphans.take_back(20 * MS, &mut buckets), 6 * MS, "the others' seconds are sealed");
    assert_eq!(orphans.booked.len(), 0);
}

#[test]
fn samples_wait_for_the_clock_for_10_s_and_the_newest_ones_stay() {
    let mut orphans = Orphans::default();
    for nth in 0..WAITING as u64 + 2 {
        orphans.add(START + nth, key(0, StackId(nth as u32)));
    }
    let oldest = |orphans: &Orphans| orphans.samples.front().map(|(at, _)| at - START);
    assert_eq!((orphans.samples.len(), oldest(&orphans)), (WAITING, Some(2)));
    orphans.keep_house(START + 9 + CARRY);
    assert_eq!(oldest(&orphans), Some(10));
    let mut buckets = buckets();
    for nth in 0..WAITING as u64 + 2 {
        orphans.book(START + nth, key(0, StackId(20)), 1, &mut buckets);
    }
    assert_eq!((orphans.booked.len(), orphans.booked[0].0), (WAITING, START + 2));
}

#[test]
fn after_a_restart_young_samples_and_those_that_wait_have_their_new_ids() {
    let frame = |offset| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
    let mut former = Interner::new(1 << 10);
    let [old, young] = [1, 2].map(|offset| former.stack(&[frame(offset)]));
    let [_, name] = [b"a", b"b"].map(|name| former.name(RawName::new(name)));
    let mut donors = Donors::default();
    let before = START - OLDEST - 1;
    donors.add(Kind::of(thread(9), 0), thread(9), &weighed(before, old.0, 0), PERIOD);
    add(&mut donors, before, &[(1, old.0, 0)]);
    add(&mut donors, START, &[(1, young.0, 0)]);
    let mut buckets = buckets();
    let mut orphans = Orphans::default();
    orphans.add(START, FactKey { name, ..key(0, young) });
    orphans.book(START, key(0, young), MS, &mut buckets);

    let mut fresh = former.afresh();
    let mut carrier = Carrier { from: &former, to: &mut fresh };
    donors.renumber(START, &mut carrier);
    orphans.renumber(&mut carrier);
    drop(carrier);
    let (carried, called) = (fresh.stack(&[frame(2)]), fresh.name(RawName::new(b"b")));
    assert_ne!((carried, called), (young, name), "or this shows nothing");
    assert_eq!(
        (donors.by_kind.len(), donors.by_kind[&kind()].len()),
        (1, 1),
        "no old ones are carried"
    );
    assert_eq!(donors.stacks(kind(), thread(1), NAME, START, 1)[0].0, carried);
    assert_eq!(orphans.samples, [(START, FactKey { name: called, ..key(0, carried) })]);
    assert_eq!(
        orphans.take_back(MS, &mut buckets),
        0,
        "what was booked stays in the history that is over"
    );
}

proptest! {
    /// For any samples, all time is booked, to stacks of the same kind or to the marker.
    #[test]
    fn all_time_is_booked(
        samples in prop::collection::vec((0u32..4, 20u32..24, 0..2 * PERIOD), 0..12),
        (tid, cpu, wall, ready) in (0u32..5, 0..3 * SECOND, 0..3 * SECOND, 0..3 * SECOND),
    ) {
        let mut donors = donors(&samples);
        let mut buckets = buckets();
        let (from, name) = (START + MS, NAME);
        donors.book(&Unsampled::Cpu { at: from, name, cpu }, &receiver(tid), &mut buckets);
        let till = from + wall;
        donors.book(&Unsampled::Wall { from, till, name, ready }, &receiver(tid), &mut buckets);
        let sums = booked(&mut buckets);
        prop_assert_eq!(sums.values().map(|weights| weights.cpu_ns).sum::<Ns>(), cpu);
        prop_assert_eq!(sums.values().map(|weights| weights.wall_ns).sum::<Ns>(), wall);
        let readies = sums.iter().filter(|((_, state), _)| *state == RawState::Known(State::Rdy));
        prop_assert_eq!(readies.map(|(_, weights)| weights.wall_ns).sum::<Ns>(), ready.min(wall));
        let mine = samples.iter().any(|(of, ..)| *of == tid);
        for (stack, _) in sums.keys() {
            let known = samples.iter().any(|(of, sampled, _)| sampled == stack && (!mine || *of == tid));
            prop_assert!(if samples.is_empty() { *stack == MARKER.0 } else { known }, "{} of {:?}", stack, samples);
        }
    }

    /// Only shared time is taken back, and the rest is what remains booked.
    #[test]
    fn no_more_is_taken_back_than_was_shared(
        shared in prop::collection::vec((20u32..23, 0..PERIOD), 0..8),
        takes in prop::collection::vec(0..2 * PERIOD, 0..8),
    ) {
        let mut buckets = buckets();
        let mut orphans = Orphans::default();
        let mut left: Ns = 0;
        for (at, (stack, cpu)) in (START..).zip(shared) {
            orphans.book(at, key(0, StackId(stack)), cpu, &mut buckets);
            left += cpu;
        }
        for take in takes {
            prop_assert_eq!(orphans.take_back(take, &mut buckets), take.min(left));
            left -= take.min(left);
            prop_assert_eq!(booked(&mut buckets).values().map(|weights| weights.cpu_ns).sum::<Ns>(), left);
        }
    }
}
