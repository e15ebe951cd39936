//! Books the time between two readings of a thread's counters onto what it was seen in.

use super::*;

impl Thread {
    /// The span since the last observation goes to this one.
    pub(super) fn piece(&mut self, till: Ns, stack: StackId, state: RawState, wait: Option<Ns>) {
        if self.booked < till {
            self.pieces.push(Piece {
                from: self.booked,
                till,
                name: self.name,
                stack,
                state,
                wait,
            });
            self.booked = till;
        }
    }

    /// A reading of the counters: the time since the last one gets its run delay and its CPU time.
    pub(super) fn settle(
        &mut self,
        counters: Counters,
        at: Ns,
        rules: &Rules,
        buckets: &mut Buckets,
    ) {
        let Some(before) = self.counters.replace(counters) else {
            // The first reading: CPU time before it goes by the process's clock.
            self.outcome.unweighed.append(&mut self.samples);
            return self.book_pieces(0, buckets);
        };
        // Counters that went back are another thread's (an exec by one that is not the leader): a
        // new start.
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

    /// Books the pieces; `delay` of them is run delay, of the on-CPU ones first. The rest of it
    /// stays for the span after them.
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
            };
            buckets.wall(&key, piece.from, piece.till, ready, piece.wait);
        }
        if delay > 0 {
            self.delay = delay - of_running - of_waiting;
        }
    }

    /// Where kernel time is not visible: more CPU time without samples than chance and lagging
    /// counters explain was spent in the kernel. So was the wall time since the last observation,
    /// if the thread was seen running only.
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

    /// Shares the CPU time that was counted equally among the samples that were taken since. Where
    /// kernel time is not visible, a sample stands for no more than one interval: what is more was
    /// in the kernel.
    pub(super) fn share(&mut self, rules: &Rules, buckets: &mut Buckets) {
        let all = self.carried();
        // Samples, and a counter that did not move: it lags, and the next reading has their time.
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
                let key = FactKey {
                    thread: self.key,
                    name: sample.name,
                    stack: sample.stack,
                    state: RUN,
                };
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

    /// Books CPU time that was carried since `before` or longer to samples whose counters came
    /// early; the rest is [`Outcome::unsampled`], or in the kernel where that is not visible.
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
