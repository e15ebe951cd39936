//! Books the time between two readings of a thread's counters to its observed stacks.
//!
//! The counters say how long the thread ran, waited for a core, and waited. Each part waits for
//! what stands for it: run time is carried to the next on-CPU samples, waiting is owed to the next
//! wait that is observed. So no part depends on the tick interval.

use super::*;

/// Maximum waiting that stays owed where a wait was observed, in spans from tick to tick.
///
/// An observed wait stands for one such span, as a sample stands for a period: so each has its time
/// on average, however short it is. But no wait can get more than there is. So what others leave is
/// kept for those that would get too little, because the thread ran before and after them. The more
/// is kept, the later it is shown.
const MAX_OWED: u64 = 2;

impl Thread {
    /// Processes a reading of the counters at `at`. `seen_off_core`: the thread was observed then
    /// off its core, in the stack of `doing`.
    pub(super) fn settle(
        &mut self,
        counters: Counters,
        at: Ns,
        seen_off_core: bool,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        let Some(before) = self.counters.replace(counters) else {
            // The first reading: the process's clock counts the CPU time before it.
            self.outcome.unweighed.append(&mut self.samples);
            return self.book_span(at, buckets);
        };
        // Smaller counters are another thread's (after an exec by a thread that is not the leader):
        // starts anew.
        let back = counters.run_ns < before.run_ns || counters.delay_ns < before.delay_ns;
        if back {
            return self.book_span(at, buckets);
        }
        let cpu = counters.run_ns - before.run_ns;
        self.delay += counters.delay_ns - before.delay_ns;
        self.outcome.ran += cpu;
        let span = at.saturating_sub(self.settled);
        self.settled = self.settled.max(at);
        if self.owed.wall == 0 {
            self.owed.from = self.settled;
        }
        let mut left = span + self.owed.wall;
        if let Some((from, till)) = self.unseen_cpu.take() {
            // It ran before this span.
            let key = self.fact(rules.markers.not_observed, RUN);
            self.ledger.spread(&key, from, till, 0, cpu, buckets);
        } else if cpu > 0 {
            let wall = cpu.min(left);
            left -= wall;
            self.carried.push_back(Carried { at, cpu, wall });
        }
        self.delay = self.delay.min(left);
        left -= self.delay;
        if !self.samples.is_empty() && self.carried() > 0 {
            let ready = std::mem::take(&mut self.delay);
            self.share(ready, rules, buckets);
        } else if self.delay > 0 && self.doing != Doing::Unknown {
            let ready = std::mem::take(&mut self.delay);
            self.book_ready(at, ready, buckets);
        }
        // Delay of which no stack is known yet is part of what is owed.
        self.owed.wall = left + self.delay;
        if seen_off_core {
            let most = span.max(self.owed.wall.saturating_sub(MAX_OWED * span));
            self.book_owed(most, rules, buckets);
        }
    }

    /// Books the run delay of a span without samples: the thread was woken in the stack in which it
    /// waited, or goes on in the one in which it ran.
    fn book_ready(&mut self, at: Ns, ready: Ns, buckets: &mut Buckets) {
        let stack = match self.doing {
            Doing::Waits(wait) => wait.stack,
            Doing::Ran { stack, .. } => stack,
            Doing::Unknown => return,
        };
        let key = self.fact(stack, READY);
        self.ledger.wall(&key, at.saturating_sub(ready), at, 0, None, buckets);
    }

    /// Books the span up to `at`, of which there are no counters, to the stack in which the thread
    /// was observed then.
    pub(super) fn book_span(&mut self, at: Ns, buckets: &mut Buckets) {
        let (key, wait) = match self.doing {
            Doing::Waits(wait) => (self.wait_fact(&wait), wait.unbroken()),
            Doing::Ran { stack, .. } => (self.fact(stack, RUN), None),
            Doing::Unknown => return,
        };
        self.ledger.wall(&key, self.settled, at, 0, wait, buckets);
        self.settled = self.settled.max(at);
    }

    /// Books at most `most` of the waiting that is owed. It goes to the last stack, which may be
    /// one in which the thread ran.
    pub(super) fn book_owed(&mut self, most: Ns, rules: &Rules, buckets: &mut Buckets) {
        let wall = self.owed.wall.min(most);
        if wall > 0 {
            self.owed.wall -= wall;
            self.owed.from = self.settled;
            let ready = self.take_delay(wall);
            let from = self.settled.saturating_sub(wall);
            self.book_as_last(from, self.settled, ready, rules, buckets);
        }
    }

    /// Takes the run delay that is not booked, at most `most`.
    fn take_delay(&mut self, most: Ns) -> Ns {
        let ready = self.delay.min(most);
        self.delay -= ready;
        ready
    }

    /// Books the time from the last reading or observation to `till`, for which no observation will
    /// come.
    pub(super) fn rest(&mut self, till: Ns, rules: &Rules, buckets: &mut Buckets) {
        if till > self.settled {
            let ready = self.take_delay(till - self.settled);
            self.book_as_last(self.settled, till, ready, rules, buckets);
            self.settled = till;
        }
    }

    /// Books a span to what the thread did last; `ready` of it was run delay. A wait, or the stack
    /// of a sample, continues. A thread that was woken and has not run since is ready in its
    /// waiting stack, and a new one in the marker for that. One observed running without a sample
    /// becomes [`Unsampled`].
    fn book_as_last(
        &mut self,
        from: Ns,
        till: Ns,
        ready: Ns,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        let (key, wait) = match self.doing {
            Doing::Waits(wait) if !self.running => (self.wait_fact(&wait), wait.unbroken()),
            Doing::Waits(wait) if !self.moved => (self.fact(wait.stack, READY), None),
            Doing::Ran { stack, .. } if !self.running => (self.fact(stack, RUN), None),
            _ if self.not_run_yet() => (self.fact(rules.markers.not_run_yet, READY), None),
            _ if rules.kernel_visible => {
                let mut ready = Split::new(ready, till.saturating_sub(from));
                for (from, till) in self.ledger.reserve(from, till) {
                    let (name, ready) = (self.name, ready.next(till - from));
                    self.outcome.unsampled.push(Unsampled::Wall { from, till, name, ready });
                }
                return;
            }
            _ => (self.fact(rules.markers.kernel_not_visible, RUN), None),
        };
        self.ledger.wall(&key, from, till, ready, wait, buckets);
    }

    /// Handles kernel time that is not visible. CPU time without samples was spent in the kernel,
    /// as far as chance and lagging counters do not explain it.
    pub(super) fn in_kernel(&mut self, rules: &Rules, buckets: &mut Buckets) {
        if self.carried() > rules.interval.saturating_mul(3) + 2 * COUNTER_LAG {
            self.expire(Ns::MAX, rules, buckets);
        }
    }

    pub(super) fn carried(&self) -> Ns {
        self.carried.iter().map(|carried| carried.cpu).sum()
    }

    /// Takes up to `cpu` of the carried time, oldest first. Returns the wall time in it.
    fn take_carried(&mut self, mut cpu: Ns) -> Ns {
        let mut walls = 0;
        while cpu > 0
            && let Some(first) = self.carried.front_mut()
        {
            let part = cpu.min(first.cpu);
            let wall = Split::new(first.wall, first.cpu).next(part);
            (first.cpu, first.wall) = (first.cpu - part, first.wall - wall);
            if first.cpu == 0 {
                self.carried.pop_front();
            }
            (cpu, walls) = (cpu - part, walls + wall);
        }
        walls
    }

    /// Shares the carried CPU time equally among the samples since the last reading, as wall time,
    /// too, and `ready` as their run delay. Where kernel time is not visible, a sample gets at most
    /// one interval; the rest was in the kernel.
    pub(super) fn share(&mut self, ready: Ns, rules: &Rules, buckets: &mut Buckets) {
        let all = self.carried();
        // If there are samples but the counter did not move, it lags: the next reading includes
        // their time.
        if self.samples.is_empty() || all == 0 {
            return;
        }
        let number = self.samples.len() as u64;
        let most = if rules.kernel_visible { all } else { rules.interval.saturating_mul(number) };
        let shared = all.min(most);
        let wall = self.take_carried(shared);
        let (mut cpu, mut wall) = (Split::new(shared, number), Split::new(wall, number));
        let mut ready = Split::new(ready, number);
        for Sample { at, name, stack } in std::mem::take(&mut self.samples) {
            let key = FactKey { name, ..self.fact(stack, RUN) };
            let (cpu, wall, ready) = (cpu.next(1), wall.next(1), ready.next(1));
            self.ledger.wall(&key, at.saturating_sub(wall), at, 0, None, buckets);
            self.ledger.count(&key, at, cpu, 0, 0, buckets);
            let ready_key = FactKey { name, ..self.fact(stack, READY) };
            let woken = at.saturating_sub(wall);
            self.ledger.wall(&ready_key, woken.saturating_sub(ready), woken, 0, None, buckets);
            let renamed = name != self.name;
            self.outcome.weighed.push(Weighed { at, name, stack, cpu, renamed });
        }
    }

    /// Assigns CPU time that was counted at or before `before`. Queued samples get it first. The
    /// rest becomes [`Outcome::unsampled`], its wall time being the last stack's, or kernel time
    /// where that is not visible.
    pub(super) fn expire(&mut self, before: Ns, rules: &Rules, buckets: &mut Buckets) {
        if self.carried.front().is_none_or(|first| first.at > before) {
            return;
        }
        self.share(0, rules, buckets);
        while let Some(Carried { at, cpu, wall }) = self.carried.front().copied()
            && at <= before
        {
            self.carried.pop_front();
            if rules.kernel_visible {
                self.outcome.unsampled.push(Unsampled::Cpu { at, name: self.name, cpu });
                if wall > 0 {
                    self.book_as_last(at.saturating_sub(wall), at, 0, rules, buckets);
                }
            } else {
                let key = self.fact(rules.markers.kernel_not_visible, RUN);
                self.ledger.wall(&key, at.saturating_sub(wall), at, 0, None, buckets);
                self.ledger.count(&key, at, cpu, 0, 0, buckets);
            }
        }
    }
}
