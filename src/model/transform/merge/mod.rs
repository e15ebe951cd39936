//! Merges several profiles into one: of many hosts, or of one program at several times. Pure: facts
//! add up, and no sum changes.
//!
//! Functions and threads' names are matched by text. Threads keep their identity, and threads of
//! different hosts stay apart. If two hosts have a process with the same pid, the second one gets a
//! new number that no process can have (above [`PID_MAX`]). The notice lists these. Histories are
//! aligned by wall clock.
//!
//! ```text
//! mod      tables, threads, conditions
//! history  buckets of several profiles as those of one
//! pids     numbers of processes that several hosts have
//! wakeups  who woke whom in several profiles
//! words    what profiles say of themselves: hosts, kernels, versions
//! ```

mod history;
mod pids;
#[cfg(test)]
mod tests;
mod wakeups;
mod words;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::fact::{FactKey, Weights};
use crate::model::facts::history::{History, Parts};
use crate::model::facts::interner::Interner;
use crate::model::facts::observed_waits::{self, ObservedWait};
use crate::model::facts::packed::Packed;
use crate::model::facts::recorder::Limits;
use crate::model::facts::snapshot::{
    Deadlock, Health, Session, Snapshot, Target, ThreadNow, Wanted,
};
use crate::model::facts::tables::{BlockerId, FrameId, Holder, NameId, Named, StackId, Tables};
use crate::model::vocabulary::frame::{FileId, FrameCode, Marker, Ns, RawFrame, SECOND, ThreadKey};
use crate::model::vocabulary::text::clean;
use history::Joined;
pub use pids::PID_MAX;
use pids::Pids;
use wakeups::JoinedWakeups;
use words::{TEXT_MAX, Words};

/// Start of the first profile on the common clock, ns; leaves room for equally much older ones.
const BEGIN: Ns = 1 << 60;

/// Maximum difference between two clocks, ns: some 18 years. Sums and differences of times then
/// fit.
const APART_MAX: i128 = 1 << 59;

/// Maximum thread time of all profiles together, ns; it must fit in 64 bits.
const SUM_MAX: u64 = u64::MAX / 2;

/// Maximum processes kept; the rest are only counted.
const TARGETS_MAX: usize = 10_000;

/// Why a profile cannot be added. In this case nothing of it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its clock differs too much from the first profile's.
    Clock,
    /// Its times exceed the maximum.
    Times,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unfit::Clock => {
                "it is of a time more than 18 years from the first profile's; leave it out"
            }
            Unfit::Times => "its times are longer than any program ran; leave it out",
        })
    }
}

/// Merges profiles one after the other, until [`Merger::finish`]. Uses no more memory than one
/// session.
pub struct Merger {
    interner: Interner,
    /// By frame's name and build, and whether it is a marker.
    frames: HashMap<(Named, bool), RawFrame>,
    history: Joined,
    /// As of the newest profile that has the thread.
    threads: BTreeMap<ThreadKey, ThreadNow>,
    deadlocks: Vec<Deadlock>,
    observed_waits: Vec<ObservedWait>,
    wakeups: JoinedWakeups,
    targets: Vec<(Target, usize)>,
    /// By pid, start and command.
    target_at: HashMap<(u32, u64, Arc<str>), usize>,
    dropped: usize,
    hosts: Words,
    pids: Pids,
    /// Offset of the common clock from the wall clock, ns.
    clock: Option<i128>,
    /// The time span of each profile.
    spans: Vec<(Ns, Ns)>,
    health: Health,
    session: Option<Session>,
    /// Cores of each host, thousandths.
    cores: BTreeMap<usize, u64>,
    intervals: (Ns, Ns),
    kernels: Words,
    versions: Words,
    captures: Words,
    titles: Words,
    sums: (u64, u64),
    profiles: usize,
}

impl Merger {
    pub fn new(limits: Limits) -> Merger {
        let interner = Interner::new(limits.stacks);
        Merger {
            history: Joined::new(limits, interner.other()),
            interner,
            frames: HashMap::new(),
            threads: BTreeMap::new(),
            deadlocks: Vec::new(),
            observed_waits: Vec::new(),
            wakeups: JoinedWakeups::default(),
            targets: Vec::new(),
            target_at: HashMap::new(),
            dropped: 0,
            hosts: Words::default(),
            pids: Pids::default(),
            clock: None,
            spans: Vec::new(),
            health: Health::default(),
            session: None,
            cores: BTreeMap::new(),
            intervals: (Ns::MAX, 0),
            kernels: Words::default(),
            versions: Words::default(),
            captures: Words::default(),
            titles: Words::default(),
            sums: (0, 0),
            profiles: 0,
        }
    }

    pub fn add(&mut self, snapshot: &Snapshot) -> Result<(), Unfit> {
        let sums = sums(&snapshot.history);
        let with = |sum: u64, more: Option<u64>| {
            more.and_then(|more| sum.checked_add(more)).filter(|sum| *sum <= SUM_MAX)
        };
        let (Some(wall), Some(cpu)) = (with(self.sums.0, sums.0), with(self.sums.1, sums.1)) else {
            return Err(Unfit::Times);
        };
        let later = self.later(snapshot)?;
        self.sums = (wall, cpu);
        self.profiles += 1;

        let session = &snapshot.session;
        let host = self.hosts.add(&session.host);
        let cores = self.cores.entry(host).or_insert(0);
        *cores = session.cores_milli.max(*cores);
        self.kernels.add(&session.kernel);
        self.versions.add(&session.version);
        self.captures.add(&snapshot.capture);
        self.titles.add(&session.wanted.title);
        let interval = session.interval_ns;
        self.intervals = (self.intervals.0.min(interval), self.intervals.1.max(interval));
        self.session.get_or_insert_with(|| Session::clone(session));
        self.add_health(&snapshot.health);

        let mut carry = Carry {
            snapshot,
            merger: self,
            host,
            later,
            stacks: FxHashMap::default(),
            names: FxHashMap::default(),
            blockers: FxHashMap::default(),
        };
        carry.targets();
        carry.threads();
        carry.deadlocks();
        carry.observed_waits();
        carry.wakeups();
        carry.history();
        let (started, at) = snapshot.history.span();
        self.spans.push((moved(started, later), moved(at.max(started), later)));
        Ok(())
    }

    /// Returns the offset of this profile's times to the common clock. The first profile's seconds
    /// are kept; others are shifted by up to half a second, so that bucket edges coincide.
    fn later(&mut self, snapshot: &Snapshot) -> Result<i128, Unfit> {
        let session = &snapshot.session;
        let (started, at) = snapshot.history.span();
        if session.is_foreign() && session.started_unix_ns == 0 {
            // The time is unknown.
            return match at.max(snapshot.at) <= BEGIN {
                true => Ok(i128::from(BEGIN) - i128::from(started)),
                false => Err(Unfit::Clock),
            };
        }
        let ahead = session.started_unix_ns - i128::from(session.started);
        let first = i128::from(BEGIN) - (i128::from(started) + ahead);
        let clock = *self.clock.get_or_insert(first);
        let exact = ahead + clock;
        let begin = i128::from(started) + exact;
        let whole = i128::from(SECOND);
        let later = exact + (whole / 2 - (begin - i128::from(BEGIN) + whole / 2).rem_euclid(whole));
        let far = |moment: Ns| (i128::from(moment) + later - i128::from(BEGIN)).abs() > APART_MAX;
        // Buckets are ordered by time, so the last ends are the latest.
        let history = &snapshot.history;
        let ends = [
            history.sealed().last().map(|bucket| bucket.end),
            history.open().next_back().map(|bucket| bucket.end),
        ];
        let moments = [started, at, snapshot.at, session.started, history.oldest()].into_iter();
        if moments.chain(ends.into_iter().flatten()).any(far) {
            if self.profiles == 0 {
                self.clock = None;
            }
            return Err(Unfit::Clock);
        }
        Ok(later)
    }

    fn add_health(&mut self, more: &Health) {
        let health = &mut self.health;
        health.ticks = health.ticks.saturating_add(more.ticks);
        health.losses.add(&more.losses);
        health.interval_achieved_ns = health.interval_achieved_ns.max(more.interval_achieved_ns);
        health.visit_interval_ns = health.visit_interval_ns.max(more.visit_interval_ns);
        health.late_p99_ns = health.late_p99_ns.max(more.late_p99_ns);
        health.startup_ns = health.startup_ns.saturating_add(more.startup_ns);
        health.self_cpu_percent = health.self_cpu_percent.max(more.self_cpu_percent);
        health.total_cpu_percent = health.total_cpu_percent.max(more.total_cpu_percent);
        health.naming |= more.naming;
        health.folded_facts = health.folded_facts.saturating_add(more.folded_facts);
        health.dropped_buckets = health.dropped_buckets.saturating_add(more.dropped_buckets);
    }

    /// Returns the merged profile, and a sentence for each mismatch between the profiles. `None` if
    /// none was added.
    pub fn finish(mut self) -> Option<(Snapshot, Vec<String>)> {
        let session = self.session.take()?;
        let tables = self.interner.tables();
        let notes = self.notes(&tables);
        let notice =
            (!notes.is_empty()).then(|| clean(&notes.join("; "), 4 * TEXT_MAX).into_owned().into());
        let hosts = self.hosts;
        let on_host = |(target, host): (Target, usize)| match hosts.0.len() {
            0 | 1 => target,
            _ if hosts.0[host].is_empty() => target,
            _ => Target {
                command: format!("{} on {}", target.command, hosts.0[host]).into(),
                ..target
            },
        };
        let started = self.spans.iter().map(|span| span.0).min().unwrap_or(0);
        let at = self.spans.iter().map(|span| span.1).max().unwrap_or(0);
        let title = if self.titles.0.len() == 1 { self.titles.text() } else { String::new() };
        let session = Session {
            version: self.versions.text(),
            host: hosts.text(),
            kernel: self.kernels.text(),
            cores_milli: self.cores.values().fold(0, |sum: u64, cores| sum.saturating_add(*cores)),
            started,
            started_unix_ns: self.clock.map_or(0, |clock| i128::from(started) - clock),
            interval_ns: self.intervals.1,
            wanted: Wanted { title: title.into(), waits: false },
            ..session
        };
        let mut health = self.health;
        health.folded_facts =
            health.folded_facts.saturating_add(self.history.folded + self.interner.refused());
        health.dropped_buckets = health.dropped_buckets.saturating_add(self.history.dropped);
        let (sealed, cumulative) = self.history.take();
        let snapshot = Snapshot {
            session: Arc::new(session),
            targets: self.targets.into_iter().map(on_host).collect(),
            at,
            capture: self.captures.text().into(),
            health,
            tables,
            history: History::from_parts(Parts {
                started,
                at,
                sealed,
                cumulative,
                // Nothing is open, and each profile has only the order of its own last two minutes.
                ..Parts::default()
            })?,
            threads: self.threads.into_values().collect(),
            deadlocks: self.deadlocks.into(),
            observed_waits: self.observed_waits.into(),
            wakeups: self.wakeups.finish().map(Arc::new),
            notice,
            stopped: false,
        };
        Some((snapshot, notes))
    }

    /// Returns the time between the first and the last profile that no profile covers, and all of
    /// that time, ns.
    fn gaps(&self) -> (Ns, Ns) {
        let mut spans = self.spans.clone();
        spans.sort_unstable();
        let Some((begin, mut till)) = spans.first().copied() else { return (0, 0) };
        let mut gaps = 0;
        for (from, end) in spans {
            gaps += from.saturating_sub(till);
            till = till.max(end);
        }
        (gaps, till - begin)
    }

    fn notes(&self, tables: &Tables) -> Vec<String> {
        let mut notes = Vec::new();
        if self.profiles > 1 {
            notes.push(format!("merged of {} profiles", self.profiles));
        }
        let (gaps, all) = self.gaps();
        if gaps > all / 20 {
            let [gaps, all] = [gaps, all].map(|ns| ns as f64 / 1e9);
            notes.push(format!(
                "no profile is of {gaps:.1} of these {all:.1} s, which figures per elapsed time count, too"
            ));
        }
        let (least, most) = self.intervals;
        if least != most {
            notes.push(format!("intervals of {} to {} ms", least as f64 / 1e6, most as f64 / 1e6));
        }
        for (what, words) in [
            ("hosts", &self.hosts),
            ("ways of capture", &self.captures),
            ("kernels", &self.kernels),
            ("versions", &self.versions),
        ] {
            let known = words.known().len();
            if known > 1 {
                notes.push(format!("{known} {what}: {}", words.text()));
            }
        }
        let builds = tables.builds();
        let several = builds.iter().filter(|(_, builds)| builds.len() > 1);
        let several: Vec<String> =
            several.map(|(module, builds)| format!("{} of {module}", builds.len())).collect();
        if !several.is_empty() {
            notes.push(format!(
                "several builds of one file: {}",
                clean(&several.join(", "), TEXT_MAX)
            ));
        }
        let renamed = self.pids.renamed();
        let host = |host: usize| match &*self.hosts.0[host] {
            "" => "an unknown host",
            host => host,
        };
        let names =
            renamed.iter().map(|((of, pid), now)| format!("{pid} of {} is {now}", host(*of)));
        let names: Vec<String> = names.take(5).collect();
        if !names.is_empty() {
            let more = if renamed.len() > names.len() { ", ..." } else { "" };
            notes.push(format!(
                "processes with one number on several hosts: {}{more}",
                names.join(", ")
            ));
        }
        if self.dropped > 0 {
            notes.push(format!("{} more processes are not listed", self.dropped));
        }
        if self.history.folded + self.interner.refused() > 0 || self.history.dropped > 0 {
            let (folded, dropped) =
                (self.history.folded + self.interner.refused(), self.history.dropped);
            notes.push(format!("{folded} facts were folded into (other), and {dropped} spans of history dropped, to stay within the memory of one session"));
        }
        notes
    }
}

/// Returns wall and CPU time of all history: the larger of sealed buckets and cumulative table,
/// plus the open buckets. `None` beyond 64 bits.
fn sums(history: &History) -> (Option<u64>, Option<u64>) {
    let add = |sums: (Option<u64>, Option<u64>), weights: &Weights| {
        (
            sums.0.and_then(|sum| sum.checked_add(weights.wall_ns)),
            sums.1.and_then(|sum| sum.checked_add(weights.cpu_ns)),
        )
    };
    let none = (Some(0), Some(0));
    let sealed = history
        .sealed()
        .iter()
        .flat_map(|bucket| bucket.iter())
        .fold(none, |sums, (_, w)| add(sums, &w));
    let cumulative = history.cumulative().iter().fold(none, |sums, (_, w)| add(sums, w));
    let greater = |a: Option<u64>, b: Option<u64>| Some(a?.max(b?));
    let all = (greater(sealed.0, cumulative.0), greater(sealed.1, cumulative.1));
    let open: Vec<Packed> = history.open().collect();
    open.iter().flat_map(Packed::iter).fold(all, |sums, (_, w)| add(sums, &w))
}

/// Shifts a time. [`Merger::later`] ensures that it fits, except for times outside of all buckets.
fn moved(moment: Ns, later: i128) -> Ns {
    (i128::from(moment) + later).clamp(0, i128::from(2 * BEGIN)) as Ns
}

/// Copies one profile into the merger.
struct Carry<'a> {
    snapshot: &'a Snapshot,
    merger: &'a mut Merger,
    host: usize,
    later: i128,
    stacks: FxHashMap<StackId, StackId>,
    names: FxHashMap<NameId, NameId>,
    blockers: FxHashMap<BlockerId, BlockerId>,
}

impl Carry<'_> {
    fn targets(&mut self) {
        for target in self.snapshot.targets.iter() {
            let pid = self.merger.pids.merged(self.host, target.pid);
            let ended = target.ended.map(|at| moved(at, self.later));
            let target = Target { pid, ended, ..target.clone() };
            let Merger { targets, target_at, dropped, .. } = &mut *self.merger;
            let same = (pid, target.start, target.command.clone());
            match target_at.get(&same) {
                Some(at) => targets[*at].0.ended = targets[*at].0.ended.max(target.ended),
                None if targets.len() < TARGETS_MAX => {
                    target_at.insert(same, targets.len());
                    targets.push((target, self.host));
                }
                None => *dropped += 1,
            }
        }
    }

    fn threads(&mut self) {
        for now in self.snapshot.threads.iter() {
            let thread = self.thread(now.thread);
            let (name, stack) = (self.name(now.name), self.stack(now.stack));
            let (since, blocker) = (moved(now.since, self.later), self.blocker(now.blocker));
            let now = ThreadNow { thread, name, stack, since, blocker, ..*now };
            let newest = self.merger.threads.entry(thread).or_insert(now);
            if newest.since <= now.since {
                *newest = now;
            }
        }
    }

    fn deadlocks(&mut self) {
        for Deadlock { since, threads } in self.snapshot.deadlocks.iter() {
            let since = moved(*since, self.later);
            let threads = threads.iter().map(|thread| self.thread(*thread)).collect();
            self.merger.deadlocks.push(Deadlock { since, threads });
        }
    }

    fn observed_waits(&mut self) {
        for wait in self.snapshot.observed_waits.iter() {
            let (thread, stack) = (self.thread(wait.thread), self.stack(wait.stack));
            let at = moved(wait.at, self.later);
            let mut wait = ObservedWait { thread, stack, at, ..wait.clone() };
            let peers = wait.waits_for.peer.iter_mut().flat_map(|peer| &mut peer.processes);
            peers.for_each(|peer| peer.pid = self.merger.pids.merged(self.host, peer.pid));
            observed_waits::add(&mut self.merger.observed_waits, wait);
        }
    }

    fn wakeups(&mut self) {
        let Some(wakeups) = &self.snapshot.wakeups else { return };
        let Merger { wakeups: joined, pids, .. } = &mut *self.merger;
        let pid = |pid| pids.merged(self.host, pid);
        joined.add(wakeups, moved(wakeups.from, self.later), pid);
    }

    fn history(&mut self) {
        let history = &self.snapshot.history;
        let (started, _) = history.span();
        for (key, weights) in history.cumulative().iter() {
            let (key, weights) = (self.key(key), self.weights(weights));
            self.merger.history.add_to_all(&key, &weights);
        }
        let open: Vec<Packed> = history.open().collect();
        let mut buckets = Vec::new();
        let sealed = history.sealed().iter().map(|bucket| (&**bucket, false));
        for (bucket, is_open) in sealed.chain(open.iter().map(|bucket| (bucket, true))) {
            let mut facts = Vec::with_capacity(bucket.len());
            for (key, weights) in bucket.iter() {
                let (key, mut weights) = (self.key(&key), self.weights(&weights));
                if bucket.start == started {
                    // Waits that were open at the start of the history are not counted before.
                    weights.hits = weights.hits.saturating_add(std::mem::take(&mut weights.open));
                }
                if is_open {
                    self.merger.history.add_to_all(&key, &Weights { open: 0, ..weights });
                }
                facts.push((key, weights));
            }
            let (start, end) = (moved(bucket.start, self.later), moved(bucket.end, self.later));
            buckets.push(Arc::new(Packed::new(
                start,
                end,
                crate::model::facts::fact_table::rename(facts, |key| key),
            )));
        }
        self.merger.history.join(buckets);
    }

    fn key(&mut self, key: &FactKey) -> FactKey {
        FactKey {
            thread: self.thread(key.thread),
            name: self.name(key.name),
            stack: self.stack(key.stack),
            state: key.state,
            blocker: self.blocker(key.blocker),
        }
    }

    fn blocker(&mut self, blocker: BlockerId) -> BlockerId {
        if let Some(known) = self.blockers.get(&blocker) {
            return *known;
        }
        let Some(mut found) = self.snapshot.tables.blocker(blocker).cloned() else {
            return BlockerId::NONE;
        };
        found.pid = self.merger.pids.merged(self.host, found.pid);
        match &mut found.holder {
            Holder::Thread { thread, name, stack } => {
                (*thread, *name, *stack) =
                    (self.thread(*thread), self.name(*name), self.stack(*stack));
            }
            Holder::Foreign { pid, .. } => *pid = self.merger.pids.merged(self.host, *pid),
            _ => {}
        }
        let carried = self.merger.interner.blocker(found);
        self.blockers.insert(blocker, carried);
        carried
    }

    fn weights(&self, weights: &Weights) -> Weights {
        let longest_from =
            if weights.longest_ns > 0 { moved(weights.longest_from, self.later) } else { 0 };
        Weights { longest_from, ..*weights }
    }

    fn thread(&mut self, thread: ThreadKey) -> ThreadKey {
        ThreadKey { pid: self.merger.pids.merged(self.host, thread.pid), ..thread }
    }

    fn name(&mut self, name: NameId) -> NameId {
        let tables = &self.snapshot.tables;
        let interner = &mut self.merger.interner;
        let carried = *self
            .names
            .entry(name)
            .or_insert_with(|| interner.text(tables.name(name), tables.kind(name)));
        self.merger.history.set_groups(interner.groups());
        carried
    }

    fn stack(&mut self, stack: StackId) -> StackId {
        if let Some(known) = self.stacks.get(&stack) {
            return *known;
        }
        let tables = &self.snapshot.tables;
        let frames: Vec<FrameId> = tables.frames_innermost_first(stack).collect();
        let raw: Vec<RawFrame> = frames.iter().map(|frame| self.frame(tables, *frame)).collect();
        let interner = &mut self.merger.interner;
        let carried = interner.stack(&raw);
        for (frame, raw) in frames.iter().zip(raw) {
            interner.set_named(raw, tables.named(*frame).clone());
        }
        self.stacks.insert(stack, carried);
        carried
    }

    /// Returns the raw frame for this name and build.
    fn frame(&mut self, tables: &Tables, frame: FrameId) -> RawFrame {
        let named = tables.named(frame);
        let is_marker = matches!(tables.frame(frame).decode(), FrameCode::Marker { .. });
        let called = (named.clone(), is_marker);
        let frames = &mut self.merger.frames;
        if let Some(known) = frames.get(&called) {
            return *known;
        }
        let raw = match frames.len() as u32 {
            _ if *named == Named::unnamed(RawFrame::marker(Marker::Other)) => {
                RawFrame::marker(Marker::Other)
            }
            nth if is_marker && nth <= FileId::MAX => {
                RawFrame::marker_in(Marker::Other, FileId(nth))
            }
            nth => RawFrame::new(FrameCode::Runtime { id: nth.into() }),
        };
        frames.insert(called, raw);
        raw
    }
}
