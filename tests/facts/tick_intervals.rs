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

/// Returns the wall time of running, waiting for a core, and the waits in 20 and 21, as parts of
/// the truth.
fn observed(acts: &[(Act, Ns)], random: &mut Random, tick_interval: Ns) -> [f64; 4] {
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
    while tick < SPAN {
        while sample < tick {
            if let (_, Act::Run { stack }) = life.at(sample) {
                recorder.apply(&observe(sample, Seen::OnCpu, Some(stack), None));
            }
            sample += INTERVAL * 997 / 1000;
        }
        let (counters, act) = life.at(tick);
        match act {
            Act::Run { .. } | Act::Ready => {
                recorder.apply(&observe(tick, Seen::Running, None, Some(counters)));
                last = None;
            }
            Act::Block { stack, call } if last != Some(counters) => {
                let seen = Seen::Blocked(Syscall { number: call, args: [0; 6] });
                recorder.apply(&observe(tick, seen, Some(stack), Some(counters)));
                last = Some(counters);
            }
            Act::Block { .. } => {}
        }
        let end = Tick {
            interval_ns: INTERVAL,
            tick_interval_ns: tick_interval,
            ..Tick::new(START + tick, PID)
        };
        recorder.apply(&Event::Tick(end));
        tick += (tick_interval as f64 * (0.9 + 0.2 * random.next())) as Ns;
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
fn every_stack_has_its_wall_time_at_every_tick_interval() {
    let mut random = Random(1);
    let mut figures = Vec::new();
    for tick_interval in [INTERVAL, 3 * INTERVAL, 5 * INTERVAL, 10 * INTERVAL] {
        for (run, short, long) in [(4, 2, 30), (1, 1, 200), (20, 3, 5), (100, 4, 10)] {
            let shares: Vec<[f64; 4]> = (0..LIVES)
                .map(|_| {
                    let life = life(&mut random, run * MS, short * MS, long * MS);
                    observed(&life, &mut random, tick_interval)
                })
                .collect();
            for place in 0..4 {
                let mean = shares.iter().map(|share| share[place]).sum::<f64>() / LIVES as f64;
                let square = |share: &[f64; 4]| (share[place] - mean) * (share[place] - mean);
                let variance = shares.iter().map(square).sum::<f64>() / (LIVES - 1) as f64;
                figures.push((
                    tick_interval / MS,
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
