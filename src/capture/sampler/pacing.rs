//! How often there are samples, ticks and visits of waiting threads.

use crate::capture::sampler::Core;
use crate::capture::tick_interval::Support;
use crate::clock::monotonic;
use crate::model::vocabulary::frame::Ns;

/// Samples per interval where one stack of each thread is wanted. A thread that runs for a
/// millisecond is sampled at 100 Hz.
const SAMPLES_PER_INTERVAL_ONCE: Ns = 10;

impl Core {
    /// Adjusts how often there are samples and visits to the bound of own CPU use.
    pub(super) fn adjust_pace(&mut self, at: Ns, sampler_cpu_ns: Ns) {
        let before = self.visit_interval();
        let attaching = self.processes.iter().any(|process| process.scan.not_read_yet() > 0);
        if !self.ending && self.pace.observe(at, sampler_cpu_ns, attaching) {
            self.pace_changed(before);
        }
    }

    /// Applies a changed pace; `before`: the visit interval until now.
    pub(super) fn pace_changed(&mut self, before: Option<Ns>) {
        let now = self.visit_interval();
        if before.is_some() != now.is_some() {
            self.clocks_due = 0;
            self.processes.iter_mut().for_each(|process| process.scan.ration(now.is_some()));
        }
        if before.is_some_and(|before| now.is_none_or(|now| now < before)) {
            // From then on silence says more than now.
            self.force_full_scan();
        }
        self.set_interval(self.pace.interval());
    }

    /// Returns the visit interval if visits are rationed: see `visit_interval` of the pace.
    pub(super) fn visit_interval(&self) -> Option<Ns> {
        self.pace.visit_interval().filter(|_| !self.once && !self.ending)
    }

    /// Sets the interval of samples, and with it that of ticks.
    fn set_interval(&mut self, interval: Ns) {
        self.interval = interval.max(1);
        self.schedule.set_interval(self.next_tick_interval(monotonic()));
        if let Some(perf) = &mut self.backend.perf {
            perf.set_interval(between_samples(self.interval, self.once));
        }
        self.publish_status();
    }

    fn next_tick_interval(&self, now: Ns) -> Ns {
        let samples = self.backend.perf.is_some() && !self.once && !self.ending;
        let support = Support { samples, wakeup: self.backend.bpf.is_some() };
        self.tick_interval.next(now, self.interval, self.pace.asked(), support)
    }

    /// Plans the next tick by what this one has found.
    pub(super) fn plan_tick(&mut self, now: Ns) {
        let moved = self.processes.iter().flat_map(|process| &process.moved);
        self.tick_interval.ran(now, moved.map(|moved| moved.ran).sum());
        let next = self.next_tick_interval(now);
        if next != self.schedule.interval() {
            self.schedule.set_interval(next);
        }
        if let Some(bpf) = &mut self.backend.bpf {
            if self.wakes_on_sample {
                bpf.end_wakeup();
            }
            self.wakes_on_sample = next > self.interval && self.tick_interval.is_idle(now);
            if self.wakes_on_sample {
                bpf.request_wakeup();
            }
        }
    }
}

/// Returns the interval of the kernel's samples.
pub(super) fn between_samples(interval: Ns, once: bool) -> Ns {
    if once { interval / SAMPLES_PER_INTERVAL_ONCE } else { interval }
}
