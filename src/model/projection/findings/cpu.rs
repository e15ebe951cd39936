//! Sentences about CPU time: who uses it, and who lacks it.

use super::{Evidence, Finding, Kind, More};
use crate::model::projection::settings::Metric;
use crate::model::projection::{Collection, HITS_NEEDED, Hottest, Totals};
use crate::model::vocabulary::frame::SECOND;
use crate::model::vocabulary::host_load::BusiestProcesses;
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// From this number of cores on, CPU time is worth a sentence.
const MUCH_CPU: f64 = 0.5;
/// And from this one on where it is most of all busy time.
const SOME_CPU: f64 = 0.1;
/// Other processes use most of a full host where the target uses less than this share of the cores
/// that it may use.
const LITTLE_USED: f64 = 0.45;
/// A thread that runs for this part of the time uses a whole core, at least for this long, ns.
const WHOLE_CORE: f64 = 0.9;
const WHOLE_CORE_FOR: u64 = 2 * SECOND;
/// From these shares on, of the CPU time or of the busy time, and from this number of cores on,
/// collections are worth a sentence.
const MUCH_COLLECTION: f64 = 0.3;
const MUCH_STOPPED: f64 = 0.2;
const COLLECTOR_CORES: f64 = 0.1;
/// From this share of the CPU time on, goroutines that collect garbage because they allocate are
/// worth a sentence.
const MUCH_ASSISTED: f64 = 0.1;
/// From this share of the CPU time on, threads that are too short-lived to be observed are worth a
/// sentence.
const MUCH_SHORT_LIVED: f64 = 0.3;
/// The same of exceptions.
const MUCH_FOR_EXCEPTIONS: f64 = 0.2;
/// How a sentence about a function says that its time goes there.
const FOR_EXCEPTIONS: &str = ", for exceptions";
/// From this share of the busy time on, page faults are worth a sentence.
const MANY_FAULTS: f64 = 0.2;
/// The CPU quota is worth a sentence where it stops the process in this share of its periods,
/// percent.
const MUCH_THROTTLED: f64 = 10.0;
/// The same of time that the hypervisor gave to other machines, percent of all cores.
const MUCH_STOLEN: f64 = 10.0;

/// Formats time that the hypervisor gave to other machines, percent of all cores.
fn steal(stolen: f64) -> String {
    format!("the hypervisor takes {stolen:.0} % of the cores' time (steal)")
}

impl Evidence<'_> {
    /// Returns what the CPU time says. `named`: enough names are known.
    pub(super) fn cpu(&self, named: bool) -> Vec<Finding> {
        let mut thread = self.whole_core().filter(|_| named);
        let mut hot = self.hot().filter(|_| named);
        let is_told = hot.as_ref().is_some_and(|hot| hot.text.ends_with(FOR_EXCEPTIONS));
        if let Some(hot) = &mut hot {
            // One sentence, unless the thread has most of its time elsewhere.
            let is_same = |thread: &mut Finding| match thread.node {
                None => true,
                Some(node) => {
                    let of_hot = hot.node.map(|node| &self.projection.name(node).function);
                    of_hot == Some(&self.projection.name(node).function)
                }
            };
            let more = thread.take_if(is_same).map(|thread| thread.text);
            hot.more = more.map(|before| More { before, ..More::default() });
        }
        let exceptions = self.exceptions().filter(|_| named && !is_told);
        let others = [self.collector(), self.page_faults(), self.short_lived(), exceptions];
        [self.cores(), hot, thread].into_iter().chain(others).flatten().collect()
    }

    /// Says that threads want more cores than there are, or that a quota or the hypervisor keeps
    /// them from running.
    fn cores(&self) -> Option<Finding> {
        let (total, elapsed) = (&self.projection.busy.total, self.projection.elapsed());
        let cores = (self.snapshot.session.cores_milli as f64 / 1000.0).max(0.1);
        let of = |state: State| match elapsed {
            0 => 0.0,
            _ => total.states_ns[state as usize] as f64 / elapsed as f64,
        };
        let used =
            format!("{:.1} of {} are used", total.cores(elapsed), (cores * 10.0).round() / 10.0);
        let (waiting, host) = (of(State::Rdy), self.snapshot.health.host.unwrap_or_default());
        let (throttled, stolen) = (host.throttled_percent, host.stolen_percent);
        let ready = total.states_ns[State::Rdy as usize];
        let wants_ns = ready + total.states_ns[State::Run as usize];
        let text = if throttled >= MUCH_THROTTLED {
            format!("the CPU quota stops the process in {throttled:.0} % of its periods, {used}")
        } else if waiting > of(State::Run) && (waiting >= 1.0 || self.is_most(ready)) {
            // Half of the threads that want a core wait for it.
            match waiting {
                ..1.0 => format!("waiting for a core is {}, {used}", self.of_busy(ready)),
                1.0..1.5 => format!("1 thread waits for a core, {used}"),
                _ => format!("{waiting:.0} threads wait for a core, {used}"),
            }
        } else if stolen >= MUCH_STOLEN && self.is_most(wants_ns) {
            format!("{}, {used}", steal(stolen))
        } else {
            return None;
        };
        let part = |percent: f64, ns: u64| (percent / 100.0 * ns as f64) as u64;
        let lost_ns = ready.max(part(throttled, elapsed)).max(part(stolen, wants_ns));
        let own = self.all().cores(elapsed);
        let others = host.is_full() && throttled < MUCH_THROTTLED && own < cores * LITTLE_USED;
        let most = |busiest: &BusiestProcesses| busiest.cores * 2.0 >= host.others_cores;
        let full = format!("on a host that is {:.0} % busy, mostly with", host.cpu_percent);
        let before = match host.busiest.filter(most) {
            Some(busiest) if others => Some(format!("{full} {busiest}")),
            _ if stolen >= MUCH_STOLEN => Some(steal(stolen)),
            None if others => Some(format!("{full} other processes")),
            _ => None,
        };
        let before = before.filter(|before| !text.starts_with(before.as_str()));
        let more = before.map(|before| More { before, ..More::default() });
        Some(Finding { lost_ns, more, ..Finding::new(Kind::Cores, text) })
    }

    /// Says which function has most of the CPU time, where that is much.
    fn hot(&self) -> Option<Finding> {
        let (projection, total) = (self.projection, &self.projection.total);
        let cores = total.cores(projection.elapsed());
        let busy = projection.busy.total;
        let of = |state: State| busy.states_ns[state as usize];
        let runs = (of(State::Run) + of(State::Rdy)) * 2 >= busy.wall_ns;
        let much = cores >= MUCH_CPU || (cores >= SOME_CPU && runs);
        if !much {
            return None;
        }
        let Some(Hottest { method: hottest, node }) = projection.hottest() else {
            return self.mostly_within();
        };
        if hottest.own.cpu_hits < HITS_NEEDED || hottest.role == Role::Marker {
            return None;
        }
        let share = hottest.own.share(Metric::Cpu, total);
        let location = hottest.location(Metric::Cpu);
        let mut text =
            format!("{:.0} % of the CPU time is in {}", share * 100.0, self.function(location));
        if self.for_exceptions() + share >= 1.0 + share / 2.0 {
            // At least half of its time is there, wherever the rest of theirs is.
            text.push_str(FOR_EXCEPTIONS);
        } else if let Some(entry) = hottest.entry(Metric::Cpu) {
            text.push_str(&format!(", calling {}", self.function(entry)));
        }
        let node = Some(*node);
        Some(Finding { lost_ns: hottest.own.cpu_ns, node, ..Finding::new(Kind::Function, text) })
    }

    /// Says in which function most of the CPU time is, with what it calls.
    fn mostly_within(&self) -> Option<Finding> {
        let Hottest { method, node } = self.projection.mostly_within()?;
        if method.own.cpu_hits < HITS_NEEDED {
            return None;
        }
        let share = method.total.share(Metric::Cpu, &self.projection.total);
        let function = self.function(method.location(Metric::Cpu));
        let text =
            format!("{:.0} % of the CPU time is in {function} and what it calls", share * 100.0);
        let (lost_ns, node) = (method.total.cpu_ns, Some(*node));
        Some(Finding { lost_ns, node, ..Finding::new(Kind::Function, text) })
    }

    /// Says which thread runs all the time, and in what.
    fn whole_core(&self) -> Option<Finding> {
        let busiest = self.projection.busiest.as_ref()?;
        let elapsed = self.projection.elapsed();
        let whole = busiest.cpu_ns as f64 >= elapsed as f64 * WHOLE_CORE;
        if !whole || elapsed < WHOLE_CORE_FOR {
            return None;
        }
        let alone = self.projection.busiest_alone_in().filter(|(_, ns)| *ns * 2 >= busiest.cpu_ns);
        let mut functions = Vec::new();
        if let Some((node, _)) = alone {
            let mut at = Some(node);
            while let Some(node) = at {
                if self.projection.role(node) == Role::App && functions.len() < 3 {
                    functions.insert(0, self.function(self.projection.name(node)));
                }
                at = self.projection.parent(node);
            }
        }
        let text = format!("{} alone uses a whole core", busiest.name);
        let more = More { before: "in".into(), functions, ..More::default() };
        Some(Finding {
            lost_ns: busiest.cpu_ns,
            node: alone.map(|(node, _)| node),
            more: Some(more).filter(|more| !more.functions.is_empty()),
            ..Finding::new(Kind::Thread, text)
        })
    }

    /// Says that a collector takes much of the CPU time, or stops the threads for much of theirs,
    /// or that goroutines have to do much of its work.
    fn collector(&self) -> Option<Finding> {
        let projection = self.projection;
        let mut collection = projection.collection;
        // What only samples say needs enough of them.
        if collection.hits < HITS_NEEDED {
            collection = Collection { threads_ns: collection.threads_ns, ..Collection::default() };
        }
        let all_cpu_ns = self.all().cpu_ns.max(1) as f64;
        let share = |ns: u64| ns as f64 / all_cpu_ns;
        let collected = collection.cpu_ns();
        let stopped = projection.busy.memory.stopped_ns;
        let has_assists = share(collection.assists_ns) >= MUCH_ASSISTED;
        let much = share(collected) >= MUCH_COLLECTION || self.share(stopped) >= MUCH_STOPPED;
        if !(much || has_assists) || self.threads(collected) < COLLECTOR_CORES {
            return None;
        }
        let percent = |ns: u64| format!("{:.0} %", share(ns) * 100.0);
        let mut text = format!("garbage collection takes {} of the CPU time", percent(collected));
        if collection.threads_ns > 0 || stopped > 0 {
            text.push_str(&format!(", and stops threads for {}", self.of_busy(stopped)));
        }
        let assists = percent(collection.assists_ns);
        let before = format!("{assists} in goroutines that have to help because they allocate");
        let more = has_assists.then(|| More { before, ..More::default() });
        let lost_ns = collected + stopped;
        Some(Finding { lost_ns, more, ..Finding::new(Kind::Collector, text) })
    }

    /// Says that threads which begin and end all the time use much of the CPU time.
    fn short_lived(&self) -> Option<Finding> {
        let cpu_ns = self.projection.short_lived_cpu_ns;
        let share = cpu_ns as f64 / self.all().cpu_ns.max(1) as f64;
        let much = share >= MUCH_SHORT_LIVED && self.threads(cpu_ns) >= SOME_CPU;
        let text = format!("short-lived threads have {:.0} % of all CPU time", share * 100.0);
        much.then(|| Finding { lost_ns: cpu_ns, ..Finding::new(Kind::ShortLived, text) })
    }

    /// Returns the share of the CPU time that exceptions take, 0..=1.
    fn for_exceptions(&self) -> f64 {
        let projection = self.projection;
        projection.busy.exceptions_cpu_ns as f64 / projection.total.cpu_ns.max(1) as f64
    }

    fn exceptions(&self) -> Option<Finding> {
        let (share, cpu_ns) = (self.for_exceptions(), self.projection.busy.exceptions_cpu_ns);
        let much = share >= MUCH_FOR_EXCEPTIONS && self.threads(cpu_ns) >= SOME_CPU;
        let text = format!("exceptions take {:.0} % of the CPU time", share * 100.0);
        much.then(|| Finding { lost_ns: cpu_ns, ..Finding::new(Kind::Exceptions, text) })
    }

    /// Returns the totals of all time, shown or hidden.
    pub(super) fn all(&self) -> Totals {
        let mut all = self.projection.total;
        self.projection.hidden.parts().into_iter().for_each(|part| all.add(part));
        all
    }

    fn page_faults(&self) -> Option<Finding> {
        let ns = self.projection.busy.memory.page_faults_ns;
        let threads = ns as f64 / self.projection.elapsed().max(1) as f64;
        let much = self.share(ns) >= MANY_FAULTS && threads >= SOME_CPU;
        let text = format!("page faults take {}", self.of_busy(ns));
        much.then(|| Finding { lost_ns: ns, ..Finding::new(Kind::PageFaults, text) })
    }
}
