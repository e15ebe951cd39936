//! Time that no sample of its own hit, and the stacks that it is shared among.
//!
//! A thread with less CPU time than a period has no sample more often than not. Its time is still
//! known, and what it did is what threads like it were sampled doing: of the same process, with
//! names of one group and the same outermost calls. A stack is drawn with a probability that makes
//! the expected share of each stack its true one:
//!
//! * The thread's own samples come first, all alike: its time per sample is then the same before
//!   and after the last one.
//! * Otherwise samples of threads like it, each by what its own thread's counter left it short of a
//!   period. A sample stands for a period. One that hit a thread with 1 ms of CPU time got 1 ms,
//!   and stands for nine such threads that were not hit. One of a thread that computes all the time
//!   got a whole period, and stands for none of them.
//!
//! Stacks are drawn, not mixed: a part of at most a period goes to one stack, so that a thousand
//! threads make a thousand facts and not one for each stack of each. The sequence of draws is an
//! even one, and the same for the same events.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::model::facts::buckets::{Buckets, HORIZON, Split};
use crate::model::facts::fact::FactKey;
use crate::model::facts::interner::Carrier;
use crate::model::facts::tables::{NameId, StackId};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::state::{RawState, State};

/// Maximum time that CPU time without a sample waits for the next sample of its thread.
pub const CARRY: Ns = 10 * SECOND;

/// What threads have in common that do the same work: process, group of names, outermost calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    pub pid: u32,
    work: u64,
}

impl Kind {
    /// `work`: a hash of what the thread has in common with others; 0 where that is not known: then
    /// it is like itself alone.
    pub fn of(thread: ThreadKey, work: u64) -> Kind {
        let work = if work == 0 { u64::from(thread.tid) << 32 ^ thread.start } else { work };
        Kind { pid: thread.pid, work }
    }
}

/// Maximum age of a sample that others' time is given to: older ones say little about what threads
/// do now.
const OLDEST: Ns = 60 * SECOND;
/// Maximum samples kept of each kind of thread; the newest stay.
const SAMPLES: usize = 1_024;
/// Maximum kinds of threads; the one that was sampled longest ago goes.
const KINDS: usize = 256;
/// Maximum parts that one span of time is cut into.
const PARTS: u64 = 64;
/// Periods in a part of wall time: a thread that wants a core stays in a stack for many.
const WALL_PARTS: u64 = 10;
/// Maximum samples that wait for the clock of their process, and maximum bookings that can be taken
/// back.
const WAITING: usize = 4_096;

/// An on-CPU sample that a counter of its thread gave time to.
#[derive(Clone, Copy, Debug)]
pub struct Weighed {
    pub at: Ns,
    /// The thread's name then.
    pub name: NameId,
    pub stack: StackId,
    /// CPU time that it got.
    pub cpu: Ns,
    /// The thread has another name by now: its stack says nothing about threads that are named like
    /// it now.
    pub renamed: bool,
}

/// Time of a thread that no sample of its own hit.
#[derive(Clone, Copy, Debug)]
pub enum Unsampled {
    Cpu {
        at: Ns,
        name: NameId,
        cpu: Ns,
    },
    /// It was runnable; `ready` of it waiting for a core.
    Wall {
        from: Ns,
        till: Ns,
        name: NameId,
        ready: Ns,
    },
}

struct Donor {
    at: Ns,
    thread: ThreadKey,
    name: NameId,
    stack: StackId,
    /// How much less than a period it got.
    short: Ns,
    renamed: bool,
}

/// Samples that time without a sample is given to.
#[derive(Default)]
pub struct Donors {
    by_kind: FxHashMap<Kind, VecDeque<Donor>>,
    /// Position of the next draw, in 2^-64 of the weight of all.
    draw: u64,
}

impl Donors {
    pub fn add(&mut self, kind: Kind, thread: ThreadKey, sample: &Weighed, period: Ns) {
        if !self.by_kind.contains_key(&kind) && self.by_kind.len() >= KINDS {
            let newest = |donors: &VecDeque<Donor>| donors.back().map_or(0, |donor| donor.at);
            let oldest = self
                .by_kind
                .iter()
                .min_by_key(|(kind, donors)| (newest(donors), kind.pid, kind.work));
            if let Some(oldest) = oldest.map(|(kind, _)| *kind) {
                self.by_kind.remove(&oldest);
            }
        }
        let donors = self.by_kind.entry(kind).or_default();
        if donors.len() >= SAMPLES {
            donors.pop_front();
        }
        let short = period.saturating_sub(sample.cpu);
        let Weighed { at, name, stack, renamed, .. } = *sample;
        donors.push_back(Donor { at, thread, name, stack, short, renamed });
    }

    /// The stacks for `parts` equal parts of time that `thread` spent around `at`, each with the
    /// name that it goes by; none where no sample says anything. A thread's own stacks go by its
    /// names of then: a Java thread has that of the virtual thread that it carries.
    fn stacks(
        &mut self,
        kind: Kind,
        thread: ThreadKey,
        name: NameId,
        at: Ns,
        parts: u64,
    ) -> Vec<(StackId, NameId)> {
        let Some(donors) = self.by_kind.get(&kind) else { return Vec::new() };
        let fresh = || donors.iter().filter(|donor| donor.at + OLDEST >= at);
        let own = fresh().any(|donor| donor.thread == thread);
        let short = fresh().any(|donor| donor.short > 0 && !donor.renamed);
        let weight = |donor: &Donor| match (own, short) {
            (true, _) => u64::from(donor.thread == thread),
            (false, _) if donor.renamed => 0,
            (false, true) => donor.short,
            (false, false) => 1,
        };
        let total: u128 = fresh().map(|donor| u128::from(weight(donor))).sum();
        if total == 0 {
            return Vec::new();
        }
        let mut drawn = Vec::with_capacity(parts as usize);
        for _ in 0..parts {
            // The golden ratio's multiples fill the range more evenly than any other number's.
            self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut left = (u128::from(self.draw) * total) >> 64;
            let found = fresh().find(|donor| {
                let weight = u128::from(weight(donor));
                let found = left < weight;
                left = left.saturating_sub(weight);
                found
            });
            drawn.extend(found.map(|donor| (donor.stack, if own { donor.name } else { name })));
        }
        drawn
    }

    /// `length`, spent around `at`, as parts of about `part` and their stacks: drawn ones, else the
    /// marker.
    fn shares(
        &mut self,
        to: &Receiver,
        name: NameId,
        at: Ns,
        length: Ns,
        part: Ns,
    ) -> impl Iterator<Item = (StackId, NameId, Ns)> + use<> {
        let parts = (length / part.max(1)).clamp(1, PARTS);
        let mut stacks = self.stacks(to.kind, to.thread, name, at, parts);
        if stacks.is_empty() {
            stacks.push((to.marker, name));
        }
        let mut split = Split::new(length, stacks.len() as u64);
        stacks.into_iter().map(move |(stack, name)| (stack, name, split.next(1)))
    }

    /// Books time of a thread to stacks that were drawn, else to the marker.
    pub fn book(&mut self, left: &Unsampled, to: &Receiver, buckets: &mut Buckets) {
        let (thread, state) = (to.thread, RawState::Known(State::Run));
        match *left {
            Unsampled::Cpu { at, name, cpu } => {
                for (stack, name, part) in self.shares(to, name, at, cpu, to.period) {
                    buckets.entry(at, &FactKey { thread, name, stack, state }).cpu_ns += part;
                }
            }
            Unsampled::Wall { from, till, name, ready } => {
                let mut readies = Split::new(ready.min(till - from), till - from);
                let mut at = from;
                let part = WALL_PARTS.saturating_mul(to.period);
                for (stack, name, length) in self.shares(to, name, till, till - from, part) {
                    let key = FactKey { thread, name, stack, state };
                    buckets.wall(&key, at, at + length, readies.next(length), None);
                    at += length;
                }
            }
        }
    }

    pub fn keep_house(&mut self, now: Ns) {
        self.by_kind
            .retain(|_, donors| donors.back().is_some_and(|donor| donor.at + OLDEST >= now));
    }

    pub fn process_ended(&mut self, pid: u32) {
        self.by_kind.retain(|kind, _| kind.pid != pid);
    }

    /// Stacks have other ids from now on.
    pub fn renumber(&mut self, now: Ns, carrier: &mut Carrier<'_>) {
        self.keep_house(now);
        for donors in self.by_kind.values_mut() {
            donors.retain(|donor| donor.at + OLDEST >= now);
            for donor in donors {
                (donor.name, donor.stack) = (carrier.name(donor.name), carrier.stack(donor.stack));
            }
        }
    }
}

/// Whose time it is, and what is known of it.
#[derive(Clone, Copy)]
pub struct Receiver {
    pub thread: ThreadKey,
    pub kind: Kind,
    /// CPU time that a sample stands for.
    pub period: Ns,
    /// Where it goes without samples.
    pub marker: StackId,
}

/// Samples of threads whose counters could not be read any more: born and gone between two
/// observations, or their last moments. Only the clock of the process has their CPU time.
#[derive(Default)]
pub struct Orphans {
    samples: VecDeque<(Ns, FactKey)>,
    /// (when, to whom, how much) was booked, the oldest first.
    booked: VecDeque<(Ns, FactKey, Ns)>,
}

impl Orphans {
    pub fn add(&mut self, at: Ns, key: FactKey) {
        if self.samples.len() >= WAITING {
            self.samples.pop_front();
        }
        self.samples.push_back((at, key));
    }

    /// Shares `cpu` equally among the samples that wait: each stands for the same time. What came
    /// without a sample goes to `key`, or by a sample of before.
    pub fn share(
        &mut self,
        cpu: Ns,
        at: Ns,
        key: FactKey,
        donors: &mut Donors,
        period: Ns,
        buckets: &mut Buckets,
    ) {
        let kind = Kind::of(key.thread, 0);
        if self.samples.is_empty() {
            let to = Receiver { thread: key.thread, kind, period, marker: key.stack };
            for (stack, _, part) in donors.shares(&to, key.name, at, cpu, period) {
                self.book(at, FactKey { stack, ..key }, part, buckets);
            }
            return;
        }
        let mut split = Split::new(cpu, self.samples.len() as u64);
        for (at, sampled) in std::mem::take(&mut self.samples) {
            self.book(at, sampled, split.next(1), buckets);
            // All of them say as much of the next thread.
            donors.add(
                kind,
                key.thread,
                &Weighed { at, name: key.name, stack: sampled.stack, cpu: 0, renamed: false },
                period,
            );
        }
    }

    fn book(&mut self, at: Ns, key: FactKey, cpu: Ns, buckets: &mut Buckets) {
        buckets.entry(at, &key).cpu_ns += cpu;
        if self.booked.len() >= WAITING {
            self.booked.pop_front();
        }
        self.booked.push_back((at, key, cpu));
    }

    /// Takes up to `cpu` back from what was shared, the newest first. Returns how much it was.
    pub fn take_back(&mut self, cpu: Ns, buckets: &mut Buckets) -> Ns {
        let mut left = cpu;
        while left > 0
            && let Some((at, key, booked)) = self.booked.pop_back()
        {
            let part = buckets.take_back(&key, booked.min(left));
            left -= part;
            if part < booked && part > 0 {
                self.booked.push_back((at, key, booked - part));
            }
        }
        cpu - left
    }

    /// Drops samples that have waited for too long, as their CPU time was counted otherwise, and
    /// bookings that are too old to be taken back.
    pub fn keep_house(&mut self, now: Ns) {
        self.samples.retain(|(at, _)| *at + CARRY > now);
        self.booked.retain(|(at, ..)| *at + 2 * HORIZON > now);
    }

    /// Stacks and names have other ids from now on; what was booked before stays booked.
    pub fn renumber(&mut self, carrier: &mut Carrier<'_>) {
        self.booked.clear();
        for (_, key) in &mut self.samples {
            (key.name, key.stack) = (carrier.name(key.name), carrier.stack(key.stack));
        }
    }
}

#[cfg(test)]
mod tests;
