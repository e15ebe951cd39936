//! Rounds that are longer than the interval of samples: what a thread does between two looks is not
//! seen, and still every stack has its time.

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
            match act {
                Act::Run { .. } => {
                    counters.run_ns += done;
                    counters.runs += 1;
                }
                Act::Ready => counters.delay_ns += done,
                Act::Block { .. } => {}
            }
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

/// Returns the wall time of running, waiting for a core, and the waits in 20 and 21, as parts of
/// the truth.
fn observed(acts: &[(Act, Ns)], random: &mut Random, round: Ns) -> [f64; 4] {
    let mut recorder = Recorder::new(START, Limits::default());
    let observe = |at: Ns, seen, stack: Option<u64>, counters| {
        Event::Observation(Observation {
            counters,
            stack: stack.map_or(vec![], |stack| vec![code(stack), code(1)]),
            ..Observation::new(START + at, thread(1), RawName::new(b"w"), seen)
        })
    };
    let mut life = Walk { acts, began: 0, counters: Counters::default() };
    let (mut sample, mut look, mut last) = (INTERVAL / 2, 0, None);
    while look < SPAN {
        while sample < look {
            if let (_, Act::Run { stack }) = life.at(sample) {
                recorder.apply(&observe(sample, Seen::OnCpu, Some(stack), None));
            }
            sample += INTERVAL * 997 / 1000;
        }
        let (counters, act) = life.at(look);
        match act {
            Act::Run { .. } | Act::Ready => {
                recorder.apply(&observe(look, Seen::Running, None, Some(counters)));
                last = None;
            }
            Act::Block { stack, call } if last != Some(counters) => {
                let seen = Seen::Blocked(Syscall { number: call, args: [0; 6] });
                recorder.apply(&observe(look, seen, Some(stack), Some(counters)));
                last = Some(counters);
            }
            Act::Block { .. } => {}
        }
        let tick = Tick { interval_ns: INTERVAL, round_ns: round, ..Tick::new(START + look, PID) };
        recorder.apply(&Event::Tick(tick));
        look += (round as f64 * (0.9 + 0.2 * random.next())) as Ns;
    }
    recorder.close(START + look);
    let (mut truth, mut began) = ([0.0; 4], 0);
    for (act, length) in acts {
        let length = (*length).min(look.saturating_sub(began));
        began += length;
        let place = match act {
            Act::Run { .. } => 0,
            Act::Ready => 1,
            Act::Block { stack: 20, .. } => 2,
            Act::Block { .. } => 3,
        };
        truth[place] += length as f64;
    }
    let mut walls = [0.0; 4];
    for ((_, _, stack, state), weights) in all(&recorder.view()) {
        let place = match (state.as_str(), stack.as_str()) {
            ("run", _) => 0,
            ("rdy", _) => 1,
            (_, "20") => 2,
            (_, "21") => 3,
            other => panic!("{other:?}"),
        };
        walls[place] += weights.wall_ns as f64;
    }
    std::array::from_fn(|place| walls[place] / truth[place])
}

#[test]
fn every_stack_has_its_wall_time_however_long_a_round_is() {
    let mut random = Random(1);
    let mut figures = Vec::new();
    for round in [INTERVAL, 3 * INTERVAL, 5 * INTERVAL, 10 * INTERVAL] {
        for (run, short, long) in [(4, 2, 30), (1, 1, 200), (20, 3, 5), (100, 4, 10)] {
            let shares: Vec<[f64; 4]> = (0..LIVES)
                .map(|_| {
                    let life = life(&mut random, run * MS, short * MS, long * MS);
                    observed(&life, &mut random, round)
                })
                .collect();
            for place in 0..4 {
                let mean = shares.iter().map(|share| share[place]).sum::<f64>() / LIVES as f64;
                let square = |share: &[f64; 4]| (share[place] - mean) * (share[place] - mean);
                let variance = shares.iter().map(square).sum::<f64>() / (LIVES - 1) as f64;
                figures.push((
                    round / MS,
                    run,
                    short,
                    long,
                    place,
                    mean,
                    (variance / LIVES as f64).sqrt(),
                ));
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
