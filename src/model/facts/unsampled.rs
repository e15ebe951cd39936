//! Assigns stacks to time that no sample hit.
//!
//! A thread with less CPU time than a period usually has no sample. Its CPU time is known, but not
//! its stack. So it gets the stack of a sample of similar threads. Those are of the same process,
//! with names of the same group and the same outermost calls. Stacks are drawn so that each one's
//! expected share is its true one:
//!
//! * The thread's own samples come first, with equal weights. So its time per sample is the same
//!   before and after the last one.
//! * Otherwise a sample of a similar thread is drawn. Its weight is a period minus the CPU time
//!   that the sample got from its own thread's counter. Reason: a sample represents one period. One
//!   of a thread with 1 ms of CPU time got 1 ms. So, with periods of 10 ms, it also represents nine
//!   such threads without a sample. One of a thread that computes all the time got a whole period,
//!   so it represents no others.
//!
//! Stacks are drawn, not mixed: a part of at most a period goes to one stack. So a thousand threads
//! make a thousand facts, not one for each stack of each thread. The sequence of draws is evenly
//! distributed, and equal for equal events.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::model::facts::buckets::{Buckets, HORIZON, Split};
use crate::model::facts::fact::FactKey;
use crate::model::facts::interner::Carrier;
use crate::model::facts::ledger::ready_key;
use crate::model::facts::tables::{NameId, StackId};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::state::{RawState, State};

/// Maximum time that CPU time without a sample waits for the next sample of its thread.
pub const CARRY: Ns = 10 * SECOND;

/// Identifies threads with the same work: process, group of names, outermost calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kind {
    pub pid: u32,
    work: u64,
}

impl Kind {
    /// Returns the kind of a thread. `work`: a hash of what threads with the same work share. 0 if
    /// unknown: then the thread is similar only to itself.
    pub fn of(thread: ThreadKey, work: u64) -> Kind {
        let work = if work == 0 { u64::from(thread.tid) << 32 ^ thread.start } else { work };
        Kind { pid: thread.pid, work }
    }
}

/// Maximum age of a sample that lends its stack, ns: older ones say little about the present.
const OLDEST: Ns = 60 * SECOND;
/// Maximum samples kept per kind of thread; the newest are kept.
const SAMPLES: usize = 1_024;
/// Maximum kinds of threads; the one with the oldest newest sample is dropped.
const KINDS: usize = 256;
/// Maximum parts into which a span of time is split.
const PARTS: u64 = 64;
/// Periods per part of wall time: a runnable thread stays in one stack for many periods.
const WALL_PARTS: u64 = 10;
/// Maximum samples that wait for their process's clock, and maximum bookings that can be taken
/// back.
const WAITING: usize = 4_096;

/// An on-CPU sample that has got time from its thread's counter.
#[derive(Clone, Copy, Debug)]
pub struct Weighed {
    pub at: Ns,
    /// The thread's name at that time.
    pub name: NameId,
    pub stack: StackId,
    /// CPU time that it got, ns.
    pub cpu: Ns,
    /// The thread was renamed since. So its stack says nothing about threads with names like its
    /// new one.
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
    /// The thread was runnable; `ready` of the time it waited for a core.
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
    /// A period minus the CPU time that it got.
    short: Ns,
    renamed: bool,
}

/// Samples that lend their stacks to time without a sample.
#[derive(Default)]
pub struct Donors {
    by_kind: FxHashMap<Kind, VecDeque<Donor>>,
    /// Position of the next draw, in 2^-64 of the total weight.
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

    /// Draws the stacks for `parts` equal parts of time that `thread` spent around `at`, each with
    /// a thread name. Returns none without a suitable sample. A thread's own stacks have its name
    /// at that time: a Java thread has that of the virtual thread that it carries.
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
            // Multiples of the golden ratio fill the range more evenly than those of any other
            // number.
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

    /// Splits `length`, spent around `at`, into parts of about `part`, with drawn stacks. Without
    /// samples all of it goes to the marker.
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

    /// Books a thread's time to drawn stacks, or else to the marker.
    pub fn book(&mut self, left: &Unsampled, to: &Receiver, buckets: &mut Buckets) {
        let (thread, state) = (to.thread, RawState::Known(State::Run));
        match *left {
            Unsampled::Cpu { at, name, cpu } => {
                for (stack, name, part) in self.shares(to, name, at, cpu, to.period) {
                    buckets.count(&FactKey::new(thread, name, stack, state), at, part, 0, 0);
                }
            }
            Unsampled::Wall { from, till, name, ready } => {
                let mut readies = Split::new(ready.min(till - from), till - from);
                let mut at = from;
                let part = WALL_PARTS.saturating_mul(to.period);
                for (stack, name, length) in self.shares(to, name, till, till - from, part) {
                    let key = FactKey::new(thread, name, stack, state);
                    let woken = at + length - readies.next(length);
                    buckets.book(&key, at, woken);
                    buckets.book(&ready_key(&key), woken, at + length);
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

    /// Replaces ids of stacks and names, which have changed.
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

/// The thread that spent the time.
#[derive(Clone, Copy)]
pub struct Receiver {
    pub thread: ThreadKey,
    pub kind: Kind,
    /// CPU time that one sample stands for.
    pub period: Ns,
    /// The stack for time without samples.
    pub marker: StackId,
}

/// Samples of threads whose counters could not be read any more: threads that started and exited
/// between two observations, or the last samples before an exit. Only the process's clock counts
/// their CPU time.
#[derive(Default)]
pub struct Orphans {
    samples: VecDeque<(Ns, FactKey)>,
    /// Bookings (time, key, ns), oldest first.
    booked: VecDeque<(Ns, FactKey, Ns)>,
}

impl Orphans {
    pub fn add(&mut self, at: Ns, key: FactKey) {
        if self.samples.len() >= WAITING {
            self.samples.pop_front();
        }
        self.samples.push_back((at, key));
    }

    /// Shares `cpu` equally among the queued samples, since each stands for the same time. Without
    /// any, draws earlier samples' stacks, or books to `key`.
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
            // Each sample is equally likely to represent the next such thread.
            donors.add(
                kind,
                key.thread,
                &Weighed { at, name: key.name, stack: sampled.stack, cpu: 0, renamed: false },
                period,
            );
        }
    }

    fn book(&mut self, at: Ns, key: FactKey, cpu: Ns, buckets: &mut Buckets) {
        buckets.count(&key, at, cpu, 0, 0);
        if self.booked.len() >= WAITING {
            self.booked.pop_front();
        }
        self.booked.push_back((at, key, cpu));
    }

    /// Takes back up to `cpu` of the shared time, newest first. Returns the time taken back.
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

    /// Drops samples that have waited too long, since their CPU time was counted otherwise. Drops
    /// bookings that are too old to be taken back.
    pub fn keep_house(&mut self, now: Ns) {
        self.samples.retain(|(at, _)| *at + CARRY > now);
        self.booked.retain(|(at, ..)| *at + 2 * HORIZON > now);
    }

    /// Replaces ids of stacks and names, which have changed. Earlier bookings become final.
    pub fn renumber(&mut self, carrier: &mut Carrier<'_>) {
        self.booked.clear();
        for (_, key) in &mut self.samples {
            (key.name, key.stack) = (carrier.name(key.name), carrier.stack(key.stack));
        }
    }
}

#[cfg(test)]
mod tests;
