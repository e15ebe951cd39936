//! Tick intervals that are longer than the sampling interval: what a thread does between two
//! observations is not known, and still every stack has its time.

use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::vocabulary::event::{Counters, Event, Observation, Seen, Syscall, Tick};
use sampletop::model::vocabulary::frame::{Ns, RawName};

use super::simulator::Act;
use super::support::*;

const INTERVAL: Ns = 10 * MS;
const SPAN: Ns = 20 * SECOND;
const LIVES: u64 = 60;

/// Numbers from 0 up to, not including, 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a time of which `mean` is the mean, ns.
    fn time(&mut self, mean: Ns) -> Ns {
        (mean as f64 * 2.0 * self.next()) as Ns + 1
    }
}

/// Goes through what a thread does, in order of time.
struct Walk<'a> {
    acts: &'a [(Act, Ns)],
    /// When the first of `acts` began, and the counters then.
    began: Ns,
    counters: Counters,
}

impl Walk<'_> {
    /// Returns the counters at `at`, not before the last call, and what the thread does.
    fn at(&mut self, at: Ns) -> (Counters, Act) {
        loop {
            let (act, length) = self.acts[0];
            let done = (at - self.began).min(length);
            let mut counters = self.counters;
            act.count(done, &mut counters);
            if done < length {
                return (counters, act);
            }
            (self.began, self.counters, self.acts) =
                (self.began + length, counters, &self.acts[1..]);
        }
    }
}

/// Returns what a thread does that runs, waits shortly, waits for a core, runs, and waits for long.
fn life(random: &mut Random, run: Ns, short: Ns, long: Ns) -> Vec<(Act, Ns)> {
    let mut acts = Vec::new();
    let mut length = 0;
    while length < SPAN + SECOND {
        let cycle = [
            (Act::Run { stack: 10 }, random.time(run)),
            (Act::Block { stack: 20, call: FUTEX }, random.time(short)),
            (Act::Ready, random.time(run / 4)),
            (Act::Run { stack: 11 }, random.time(run)),
            (Act::Block { stack: 21, call: EPOLL }, random.time(long)),
        ];
        length += cycle.iter().map(|(_, length)| length).sum::<Ns>();
        acts.extend(cycle);
    }
    acts
}

/// What a recording has of a thread.
struct Observed {
    /// Wall time of running, waiting for a core, and the waits in 20 and 21, as parts of the truth.
    shares: [f64; 4],
    /// The longest wait, ns.
    longest: Ns,
}

/// With a `visit` interval a blocked thread is observed only when its next visit is due, or after a
/// sample of it.
fn observed(
    acts: &[(Act, Ns)],
    random: &mut Random,
    tick_interval: Ns,
    visit: Option<Ns>,
    ends_with_visit: bool,
) -> Observed {
    let mut recorder = Recorder::new(START, Limits::default());
    let observe = |at: Ns, seen, stack: Option<u64>, counters| {
        Event::Observation(Observation {
            counters,
            stack: stack.map_or(vec![], |stack| vec![code(stack), code(1)]),
            ..Observation::new(START + at, thread(1), RawName::new(b"w"), seen)
        })
    };
    let mut life = Walk { acts, began: 0, counters: Counters::default() };
    let (mut sample, mut tick, mut last) = (INTERVAL / 2, 0, None);
    // Time of the next visit, and the counters at the last one.
    let (mut due, mut known) = (0, None);
    while tick < SPAN {
        while sample < tick {
            if let (_, Act::Run { stack }) = life.at(sample) {
                (last, due) = (None, 0);
                recorder.apply(&observe(sample, Seen::OnCpu, Some(stack), None));
            }
            sample += INTERVAL * 997 / 1000;
        }
        let (counters, act) = life.at(tick);
        let is_last = tick + tick_interval >= SPAN && ends_with_visit;
        known = if tick < due && !is_last { known } else { Some(counters) };
        match act {
            _ if tick < due && !is_last => {}
            Act::Run { .. } | Act::Ready => {
                recorder.apply(&observe(tick, Seen::Running, None, Some(counters)));
                last = None;
            }
            Act::Block { stack, call } if last != Some(counters) => {
                let seen = Seen::Blocked(Syscall { number: call, args: [0; 6] });
                recorder.apply(&observe(tick, seen, Some(stack), Some(counters)));
                last = Some(counters);
                due = tick + visit.unwrap_or(0);
            }
            Act::Block { .. } => due = tick + visit.unwrap_or(0),
        }
        let end = Tick {
            interval_ns: INTERVAL,
            tick_interval_ns: tick_interval,
            visit_interval_ns: visit.filter(|_| !is_last),
            ..Tick::new(START + tick, PID)
        };
        recorder.apply(&Event::Tick(end));
        tick += (tick_interval as f64 * (0.9 + 0.2 * random.next())) as Ns;
    }
    if visit.is_some() {
        // Its counters are those of the last visit.
        let (at, thread) = (START + tick, thread(1));
        recorder.apply(&Event::ThreadEnded { at, thread, counters: known });
    }
    recorder.close(START + tick);
    let (mut truth, mut began) = ([0.0; 4], 0);
    for (act, length) in acts {
        let length = (*length).min(tick.saturating_sub(began));
        began += length;
        let place = match act {
            Act::Run { .. } => 0,
            Act::Ready => 1,
            Act::Block { stack: 20, .. } => 2,
            Act::Block { .. } => 3,
        };
        truth[place] += length as f64;
    }
    let (mut walls, mut longest) = ([0.0; 4], 0);
    for ((_, _, stack, state), weights) in all(&recorder.view()) {
        let place = match (state.as_str(), stack.as_str()) {
            ("run", _) => 0,
            ("rdy", _) => 1,
            (_, "20") => 2,
            (_, "21") => 3,
            other => panic!("{other:?}"),
        };
        walls[place] += weights.wall_ns as f64;
        longest = longest.max(weights.longest_ns);
    }
    Observed { shares: std::array::from_fn(|place| walls[place] / truth[place]), longest }
}

/// Mean of some figures, and its standard error.
fn mean(figures: &[f64]) -> (f64, f64) {
    let number = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / number;
    let squares: f64 = figures.iter().map(|figure| (figure - mean) * (figure - mean)).sum();
    (mean, (squares / (number - 1.0) / number).sqrt())
}

#[test]
fn every_stack_has_its_wall_time_at_every_tick_interval() {
    let mut random = Random(1);
    let mut figures = Vec::new();
    for tick_interval in [INTERVAL, 3 * INTERVAL, 5 * INTERVAL, 10 * INTERVAL] {
        for (run, short, long) in [(4, 2, 30), (1, 1, 200), (20, 3, 5), (100, 4, 10)] {
            let shares: Vec<[f64; 4]> = (0..LIVES)
                .map(|_| {
                    let life = life(&mut random, run * MS, short * MS, long * MS);
                    observed(&life, &mut random, tick_interval, None, true).shares
                })
                .collect();
            for place in 0..4 {
                let of_place: Vec<f64> = shares.iter().map(|share| share[place]).collect();
                let (mean, error) = mean(&of_place);
                figures.push((tick_interval / MS, run, short, long, place, mean, error));
            }
        }
    }
    // Each is normal with this error: beyond five of them with probability 6e-7, 3e-5 in all.
    for (.., place, mean, error) in &figures {
        // Of what surrounds a short wait there may be too little waiting, of the others too much.
        let bias = if *place < 2 { 0.01 } else { 0.12 };
        assert!((mean - 1.0).abs() < 5.0 * error + bias && *error < 0.13, "{figures:?}");
    }
}

/// A thread that wakes up several times a second is visited once a second, or every three. It runs
/// shortly, so few samples say that it has run. Its waits end and begin between two visits: a long
/// one is never made of several.
#[test]
fn rationed_visits_sample_waits_and_make_none_longer() {
    let mut random = Random(2);
    let mut figures = Vec::new();
    // With 3 s most visits follow a sample, and nothing is known of the wait before that.
    for (visit, run, long, known) in [
        (SECOND, 1, 200, 50),
        (3 * SECOND, 1, 200, 10),
        (SECOND, 4, 60, 15),
        (12 * SECOND, 20, 60, 15),
    ] {
        let mut shares = Vec::new();
        for nth in 0..2 * LIVES {
            let life = life(&mut random, run * MS, MS, long * MS);
            // Time since the last visit is not known if no other comes.
            let is_known = nth % 2 == 0;
            let Observed { shares: of_one, longest } =
                observed(&life, &mut random, 5 * INTERVAL, Some(visit), is_known);
            shares.extend(is_known.then_some(of_one));
            // The longest is twice the mean. Where it began is not known to a tick. Every other
            // wait is a short one.
            let lengths = known * MS..=2 * long * MS + 10 * INTERVAL;
            assert!(lengths.contains(&longest), "{} ms", longest / MS);
        }
        for place in [0, 1, 3] {
            let of_place: Vec<f64> = shares.iter().map(|share| share[place]).collect();
            let (mean, error) = mean(&of_place);
            figures.push((visit / SECOND, run, place, mean, error));
        }
    }
    // As above: 5e-6 in all. A hundredth of the time is run time, which has two samples a second.
    for (.., place, mean, error) in &figures {
        let bias = if *place < 2 { 0.01 } else { 0.03 };
        assert!((mean - 1.0).abs() < 5.0 * error + bias && *error < 0.1, "{figures:?}");
    }
}
