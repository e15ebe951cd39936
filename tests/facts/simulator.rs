//! A small machine with known truth: threads that run, wait for a core, block and wake, and a
//! sampler that observes them.

use std::ops::Range;

use proptest::prelude::*;
use sampletop::model::vocabulary::event::{
    Counters, Event, Losses, Observation, Seen, Syscall, Tick,
};
use sampletop::model::vocabulary::frame::{Ns, RawName, ThreadKey};

use super::support::{EPOLL, FUTEX, MS, PID, READ, SECOND, START, code};

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Act {
    Run { stack: u64 },
    Ready,
    Block { stack: u64, call: i32 },
}

impl Act {
    /// Adds `done`, of the time that this takes, to the counters.
    pub fn count(&self, done: Ns, counters: &mut Counters) {
        match self {
            Act::Run { .. } => {
                counters.run_ns += done;
                counters.runs += 1;
            }
            Act::Ready => counters.delay_ns += done,
            Act::Block { .. } => {}
        }
    }
}

/// One thread from start to exit, as the kernel knows it. Times are ns since the session's start.
#[derive(Clone, Debug)]
pub struct Life {
    pub key: ThreadKey,
    pub birth: Ns,
    pub acts: Vec<(Act, Ns)>,
}

impl Life {
    pub fn death(&self) -> Ns {
        self.birth + self.acts.iter().map(|(_, length)| length).sum::<Ns>()
    }

    /// Returns the kernel's counters at `at`, and what it does then (`None`: not started, or
    /// exited).
    pub fn at(&self, at: Ns) -> (Counters, Option<Act>) {
        let (mut counters, mut began) = (Counters::default(), self.birth);
        if at < began {
            return (counters, None);
        }
        for (act, length) in &self.acts {
            let done = (*length).min(at - began);
            act.count(done, &mut counters);
            began += done;
            if done < *length {
                return (counters, Some(*act));
            }
        }
        (counters, None)
    }
}

/// What happens between one tick and the next.
#[derive(Clone, Debug)]
pub struct Round {
    /// Percent of the interval.
    jitter: u64,
    /// Time without any observation before this tick; reported by a gap event or not.
    pause: Option<(Ns, bool)>,
    exec: bool,
    /// On-CPU samples are read before the observations (else after: they arrive late).
    samples_first: bool,
    /// The observations that are lost, by thread.
    lost: u32,
    /// A reader asks for a view.
    view: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub interval: Ns,
    pub lives: Vec<Life>,
    pub rounds: Vec<Round>,
    /// The part of the sampling period that has passed at the start, per thread.
    pub phase: Ns,
    /// The ring reports lost observations: ticks count them, and each is sent again at the next
    /// tick.
    pub resend: bool,
    /// The ticks at which visits are rationed, and the visit interval in ticks: a thread that was
    /// seen waiting is visited at its turn only.
    pub rationed: (Range<usize>, usize),
}

impl Round {
    /// Returns whether a wait that goes on may be counted again after this.
    pub fn breaks(&self) -> bool {
        self.exec || self.pause.is_some() || self.lost != 0
    }
}

/// The sampler's events, and the truth about them.
pub struct Run {
    /// Events, and when a view is taken (`None`).
    pub events: Vec<Option<Event>>,
    pub end: Ns,
    /// (thread, its first observation that was not lost, its end).
    pub lives: Vec<(ThreadKey, Ns, Ns)>,
    /// CPU time of the process between the first and the last reading of its clock.
    pub cpu: Ns,
    pub samples: u64,
    /// Maximum number of waits, by the kernel's knowledge.
    pub waits: u64,
}

/// Time from an observation to the report of its tick, ns.
const ROUND_TAKES: Ns = 50_000;

impl World {
    /// Returns the visit interval in ticks, if visits are rationed at this tick.
    fn visit(&self, nth: usize) -> Option<usize> {
        let (ticks, visit) = &self.rationed;
        (ticks.contains(&nth) && nth + 1 < self.rounds.len()).then_some(*visit)
    }

    fn process_cpu(&self, at: Ns) -> Ns {
        self.lives.iter().map(|life| life.at(at).0.run_ns).sum()
    }

    /// Runs it; `losses`: whether observations are lost as the ticks define.
    pub fn run(&self, losses: bool) -> Run {
        let mut events = Vec::new();
        let mut first: Vec<Option<Ns>> = vec![None; self.lives.len()];
        let mut ended: Vec<Option<Ns>> = vec![None; self.lives.len()];
        let mut last_sent: Vec<Option<(Counters, bool)>> = vec![None; self.lives.len()];
        let (mut now, mut before, mut read): (Ns, Ns, Option<(Ns, Ns, Ns)>) = (0, 0, None);
        let mut samples = 0;
        let mut reported = Losses::default();
        // Time of the last tick.
        let mut floor = 0;
        // The next turn of each thread, by the number of the tick.
        let mut turns = vec![0; self.lives.len()];
        for (nth, round) in self.rounds.iter().enumerate() {
            let last = nth + 1 == self.rounds.len();
            let mut from = before;
            if nth > 0 {
                now += self.interval * round.jitter / 100;
                if let Some((pause, announced)) = round.pause {
                    from = now + pause;
                    if announced {
                        events
                            .push(Some(Event::Gap { from: START + now, at: START + now + pause }));
                    }
                    now += pause;
                }
            }
            let mut taken = Vec::new();
            let period = self.interval * 997 / 1000;
            for (index, life) in self.lives.iter().enumerate() {
                let first_beat = (from + self.phase) / period;
                for beat in first_beat.. {
                    let at = (beat * period + self.phase * (index as u64 + 1))
                        .saturating_sub(self.phase);
                    if at >= now {
                        break;
                    }
                    if at < from {
                        continue;
                    }
                    if let (_, Some(Act::Run { stack })) = life.at(at) {
                        taken.push((index, at, stack));
                    }
                }
            }
            taken.sort_by_key(|(_, at, _)| *at);
            let visit = self.visit(nth);
            taken.iter().for_each(|(index, ..)| turns[*index] = nth);
            let all = visit.is_none() || round.pause.is_some() || round.exec;
            let mut scan = Vec::new();
            for (index, life) in self.lives.iter().enumerate() {
                let (counters, act) = life.at(now);
                let observe = |seen, stack: Option<u64>| (index, now, seen, stack, Some(counters));
                let is_parked = last_sent[index].is_some_and(|(_, waits)| waits);
                if !all && is_parked && nth < turns[index] && act.is_some() {
                    continue;
                }
                turns[index] = nth + visit.unwrap_or(1);
                let Some(act) = act else {
                    if life.death() <= now && ended[index].is_none() && first[index].is_some() {
                        scan.push((index, now, None, None, Some(counters)));
                    }
                    continue;
                };
                match act {
                    Act::Run { .. } | Act::Ready => scan.push({
                        let (i, at, seen, stack, c) = observe(Seen::Running, None);
                        (i, at, Some(seen), stack, c)
                    }),
                    Act::Block { stack, call } => {
                        let silent = last_sent[index] == Some((counters, true));
                        if !silent {
                            let seen = Seen::Blocked(Syscall { number: call, args: [0; 6] });
                            scan.push((index, now, Some(seen), Some(stack), Some(counters)));
                        }
                    }
                }
            }
            let samples_of = taken
                .into_iter()
                .map(|(i, at, stack)| (i, at, Some(Seen::OnCpu), Some(stack), None));
            let sent: Vec<_> = match round.samples_first {
                true => samples_of.chain(scan).collect(),
                false => scan.into_iter().chain(samples_of).collect(),
            };
            for (index, at, seen, stack, counters) in sent {
                let life = &self.lives[index];
                // Capture reports no time before the last tick. A sample that it reads later gets
                // that tick's time.
                let at = at.max(floor);
                let Some(seen) = seen else {
                    ended[index] = Some(now);
                    // Sometimes the last counters could still be read.
                    let counters = counters.filter(|_| index % 2 == 0);
                    events.push(Some(Event::ThreadEnded {
                        at: START + now,
                        thread: life.key,
                        counters,
                    }));
                    continue;
                };
                let waits = matches!(seen, Seen::Blocked(_));
                let lost = losses
                    && round.lost >> (index % 8 * 4 + usize::from(seen == Seen::OnCpu)) & 1 == 1;
                if counters.is_some() && !(lost && self.resend) {
                    last_sent[index] = counters.map(|c| (c, waits));
                } else if counters.is_some() {
                    last_sent[index] = None;
                }
                if lost {
                    reported.dropped += u64::from(self.resend);
                    continue;
                }
                samples += u64::from(seen == Seen::OnCpu);
                // Its thread is no longer known.
                let unknown = seen == Seen::OnCpu && first[index].is_none() && life.death() <= now;
                if ended[index].is_none() && !unknown {
                    first[index].get_or_insert(at);
                }
                events.push(Some(Event::Observation(Observation {
                    counters,
                    stack: stack.map_or(vec![], |stack| vec![code(stack), code(1)]),
                    ..Observation::new(
                        START + at,
                        if unknown { ThreadKey::unknown(PID) } else { life.key },
                        RawName::new(format!("w{}", index % 2).as_bytes()),
                        seen,
                    )
                })));
            }
            if round.exec {
                events.push(Some(Event::Exec { at: START + now, pid: PID }));
            }
            // The process's CPU time begins at the first reading of its clock, so that reading is
            // of the observation's moment.
            let tick = if nth == 0 { now } else { now + ROUND_TAKES };
            let visit_ns = visit.map(|visit| visit as Ns * self.interval);
            let read_every = SECOND.max(3 * visit_ns.unwrap_or(0));
            let due = read.is_none_or(|(_, _, at)| at + read_every <= tick) || last;
            let process_cpu_ns = due.then(|| self.process_cpu(tick));
            if let Some(cpu) = process_cpu_ns {
                read = Some((read.map_or(cpu, |(first, _, _)| first), cpu, tick));
            }
            events.push(Some(Event::Tick(Tick {
                process_cpu_ns,
                interval_ns: self.interval,
                visit_interval_ns: visit_ns,
                losses: reported,
                ..Tick::new(START + tick, PID)
            })));
            if round.view {
                events.push(None);
            }
            (before, floor) = (now, tick);
        }
        let end = now + ROUND_TAKES + MS;
        let lives = self.lives.iter().zip(&first).zip(&ended);
        Run {
            events,
            end,
            lives: lives
                .filter_map(|((life, first), ended)| {
                    Some((life.key, (*first)?, ended.unwrap_or(end)))
                })
                .collect(),
            cpu: read.map_or(0, |(first, last, _)| last - first),
            samples,
            waits: self
                .lives
                .iter()
                .flat_map(|life| &life.acts)
                .filter(|(act, _)| matches!(act, Act::Block { .. }))
                .count() as u64,
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (10u64..14).prop_map(|stack| Act::Run { stack }),
        Just(Act::Ready),
        ((20u64..23), prop_oneof![Just(EPOLL), Just(FUTEX), Just(READ)])
            .prop_map(|(stack, call)| Act::Block { stack, call }),
    ]
}

fn life(tid: u32, interval: Ns, span: Ns) -> impl Strategy<Value = Life> {
    // From far below an interval to far above.
    let length = (0u32..12, 500u64..1000)
        .prop_map(move |(halvings, part)| (interval * 40 / 1000 * part) >> halvings);
    (0..span, prop::collection::vec((act(), length), 1..60)).prop_map(move |(birth, acts)| Life {
        key: ThreadKey { pid: PID, tid, start: 7 },
        // Half of them started before the first observation.
        birth: if tid.is_multiple_of(2) { 0 } else { birth },
        acts,
    })
}

fn round(pauses: Ns) -> impl Strategy<Value = Round> {
    let pause =
        prop_oneof![30 => Just(None), 1 => (1..=pauses.max(1), any::<bool>()).prop_map(Some)];
    let lost =
        prop_oneof![Just(0), any::<u32>(), (any::<u32>(), any::<u32>()).prop_map(|(a, b)| a & b)];
    (90u64..=110, pause, prop::bool::weighted(0.02), any::<bool>(), lost, prop::bool::weighted(0.1))
        .prop_map(|(jitter, pause, exec, samples_first, lost, view)| Round {
            jitter,
            pause,
            exec,
            samples_first,
            lost,
            view,
        })
}

/// Worlds of up to `rounds` ticks with pauses up to `pauses`.
pub fn world(
    interval: Ns,
    rounds: usize,
    pauses: Ns,
    resend: bool,
) -> impl Strategy<Value = World> {
    let span = interval * rounds as u64;
    let lives = (
        life(1, interval, span),
        life(2, interval, span),
        life(3, interval, span),
        life(4, interval, span),
    )
        .prop_map(|(a, b, c, d)| vec![a, b, c, d]);
    let rationed = prop_oneof![
        Just((0..0, 1)),
        (0..rounds, 0..rounds, 2usize..9)
            .prop_map(|(from, ticks, visit)| (from..from + ticks, visit)),
    ];
    (lives, prop::collection::vec(round(pauses), 2..rounds), 0..interval, rationed).prop_map(
        move |(lives, rounds, phase, rationed)| World {
            interval,
            lives,
            rounds,
            phase,
            resend,
            rationed,
        },
    )
}
