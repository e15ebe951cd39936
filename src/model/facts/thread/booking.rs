//! Books the time between two readings of a thread's counters to its observed stacks.

use super::*;

impl Thread {
    /// Adds the span since the last observation, with this one's stack.
    pub(super) fn piece(&mut self, till: Ns, key: &FactKey, wait: Option<Ns>) {
        if self.booked < till {
            self.pieces.push(Piece {
                from: self.booked,
                till,
                name: self.name,
                stack: key.stack,
                state: key.state,
                blocker: key.blocker,
                wait,
            });
            self.booked = till;
        }
    }

    /// Processes a reading of the counters: the time since the last one gets its run delay and CPU
    /// time.
    pub(super) fn settle(
        &mut self,
        counters: Counters,
        at: Ns,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        let Some(before) = self.counters.replace(counters) else {
            // The first reading: the process's clock counts the CPU time before it.
            self.outcome.unweighed.append(&mut self.samples);
            return self.book_pieces(0, buckets);
        };
        // Smaller counters are another thread's (after an exec by a thread that is not the leader):
        // starts anew.
        let back = counters.run_ns < before.run_ns || counters.delay_ns < before.delay_ns;
        let ran = if back { 0 } else { counters.run_ns - before.run_ns };
        self.delay += if back { 0 } else { counters.delay_ns - before.delay_ns };
        self.outcome.ran += ran;
        self.book_pieces(self.delay, buckets);
        self.delay = self.delay.min(at.saturating_sub(self.booked));
        if let Some((from, till)) = self.unseen_cpu.take() {
            buckets.spread(&self.fact(rules.markers.not_observed, RUN), from, till, 0, ran);
        } else if ran > 0 {
            self.carried.push_back((at, ran));
        }
        self.share(rules, buckets);
    }

    /// Books the pieces. `delay` of their time is run delay, assigned to on-CPU pieces first. The
    /// rest of the delay is kept for the next span.
    pub(super) fn book_pieces(&mut self, delay: Ns, buckets: &mut Buckets) {
        let length = |run: bool| -> Ns {
            self.pieces.iter().filter(|p| (p.state == RUN) == run).map(|p| p.till - p.from).sum()
        };
        let (running, waiting) = (length(true), length(false));
        let of_running = delay.min(running);
        let of_waiting = (delay - of_running).min(waiting);
        let mut running = Split::new(of_running, running);
        let mut waiting = Split::new(of_waiting, waiting);
        for piece in std::mem::take(&mut self.pieces) {
            let split = if piece.state == RUN { &mut running } else { &mut waiting };
            let ready = split.next(piece.till - piece.from);
            let key = FactKey {
                thread: self.key,
                name: piece.name,
                stack: piece.stack,
                state: piece.state,
                blocker: piece.blocker,
            };
            buckets.wall(&key, piece.from, piece.till, ready, piece.wait);
        }
        if delay > 0 {
            self.delay = delay - of_running - of_waiting;
        }
    }

    /// Handles kernel time that is not visible. CPU time without samples was spent in the kernel,
    /// as far as chance and lagging counters do not explain it. So was the wall time since the last
    /// observation, if the thread was only observed running.
    pub(super) fn in_kernel(
        &mut self,
        at: Ns,
        running: bool,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        if self.carried() <= rules.interval.saturating_mul(3) + 2 * COUNTER_LAG {
            return;
        }
        self.expire(Ns::MAX, rules, buckets);
        if running {
            self.running = true;
            self.rest(at, rules, buckets);
        }
    }

    pub(super) fn carried(&self) -> Ns {
        self.carried.iter().map(|(_, cpu)| cpu).sum()
    }

    /// Shares the counted CPU time equally among the samples since the last reading. Where kernel
    /// time is not visible, a sample gets at most one interval; the rest was in the kernel.
    pub(super) fn share(&mut self, rules: &Rules, buckets: &mut Buckets) {
        let all = self.carried();
        // If there are samples but the counter did not move, it lags: the next reading includes
        // their time.
        if self.samples.is_empty() || all == 0 {
            return;
        }
        let number = self.samples.len() as u64;
        let most = if rules.kernel_visible { all } else { rules.interval.saturating_mul(number) };
        let shared = all.min(most);
        let mut split = Split::new(shared, number);
        for sample in self.samples.drain(..) {
            let part = split.next(1);
            if part > 0 {
                let key = FactKey::new(self.key, sample.name, sample.stack, RUN);
                buckets.entry(sample.at, &key).cpu_ns += part;
            }
            let Sample { at, name, stack } = sample;
            self.outcome.weighed.push(Weighed {
                at,
                name,
                stack,
                cpu: part,
                renamed: name != self.name,
            });
        }
        let mut left = shared;
        while left > 0
            && let Some((_, cpu)) = self.carried.front_mut()
        {
            let part = left.min(*cpu);
            left -= part;
            *cpu -= part;
            if *cpu == 0 {
                self.carried.pop_front();
            }
        }
    }

    /// Assigns CPU time that was counted at or before `before`. Queued samples get it first. The
    /// rest becomes [`Outcome::unsampled`], or kernel time where that is not visible.
    pub(super) fn expire(&mut self, before: Ns, rules: &Rules, buckets: &mut Buckets) {
        if self.carried.front().is_none_or(|(at, _)| *at > before) {
            return;
        }
        self.share(rules, buckets);
        while let Some((at, cpu)) = self.carried.front().copied()
            && at <= before
        {
            self.carried.pop_front();
            if rules.kernel_visible {
                self.outcome.unsampled.push(Unsampled::Cpu { at, name: self.name, cpu });
            } else {
                buckets.entry(at, &self.fact(rules.markers.kernel_not_visible, RUN)).cpu_ns += cpu;
            }
        }
    }
}
