//! Converts stacks and their time to a snapshot. Enforces all limits on the memory for a file.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::formats::saved::Opened;
use crate::model::facts::history::{Fact, FactKey, History, Parts, Weights};
use crate::model::facts::interner::{Interner, MAX_STACKS};
use crate::model::facts::packed::Packed;
use crate::model::facts::snapshot::{Health, Session, Snapshot, Wanted};
use crate::model::facts::tables::{Location, NameId, Named, StackId};
use crate::model::projection::ALL;
use crate::model::projection::settings::{Metric, Range, Settings};
use crate::model::vocabulary::frame::{
    FrameCode, Marker, Ns, RawFrame, RawName, ThreadKey, ThreadKind, is_harmless,
};
use crate::model::vocabulary::role::Origins;
use crate::model::vocabulary::state::{RawState, State};
use crate::model::vocabulary::text::clean;

/// Maximum facts kept; the time of the rest is booked to `(other)`.
const FACTS_MAX: usize = 200_000;
/// Maximum threads kept apart.
const THREADS_MAX: usize = 20_000;
/// Maximum frames of a stack; the outermost beyond it are cut. A saved profile holds 8,192.
const DEPTH_MAX: usize = 8_000;
/// Maximum functions in one frame.
const INLINED_MAX: usize = 128;
/// Maximum thread time of all facts, ns: sums have 64 bits.
const SUM_MAX: u64 = u64::MAX / 4;
/// Maximum duration of a profile, ns: 36 years.
const SPAN_MAX: Ns = 1 << 60;
/// Maximum length of a thread's name, bytes.
const THREAD_NAME_CAP: usize = 256;

/// The thread that spent the time, as far as the file says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner<'a> {
    pub pid: u32,
    pub tid: Option<u32>,
    /// Unclean; cleaned before it is stored. `None`: the time of all threads.
    pub name: Option<&'a str>,
    pub kind: ThreadKind,
}

/// The file's metadata.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The profiled program, if the file names it.
    pub title: Arc<str>,
    /// Shown in place of the backend.
    pub capture: String,
    /// ns since 1970; 0 if unknown.
    pub started_unix_ns: i64,
    /// ns; 0 if unknown.
    pub duration: Ns,
    /// ns; 0 if unknown.
    pub interval_ns: u64,
    pub metric: Metric,
    /// An assumption made for the import, as one sentence.
    pub notice: Option<String>,
    /// What of the file is not shown, without the counts of this module.
    pub lost: Vec<String>,
}

type Thread = (ThreadKey, NameId);

pub struct Builder {
    interner: Interner,
    frames: HashMap<Named, RawFrame>,
    /// By process, thread number, name and kind.
    threads: HashMap<(u32, Option<u32>, Arc<str>, ThreadKind), Thread>,
    facts: FxHashMap<FactKey, Weights>,
    sum: u64,
    /// Stacks whose time was booked to `(other)`, and stacks that were cut.
    other: u64,
    cut: u64,
}

impl Builder {
    pub fn new() -> Builder {
        Builder {
            interner: Interner::new(MAX_STACKS),
            frames: HashMap::new(),
            threads: HashMap::new(),
            facts: FxHashMap::default(),
            sum: 0,
            other: 0,
            cut: 0,
        }
    }

    /// Adds a machine frame: its function, then the functions inlined into it. `locations` is not
    /// empty, and its texts are clean.
    pub fn frame(&mut self, mut locations: Vec<Location>, build_id: Option<Arc<str>>) -> RawFrame {
        locations.truncate(INLINED_MAX);
        let named = Named {
            locations: locations.into(),
            pending: false,
            build_id,
            origins: Origins::default(),
        };
        if let Some(frame) = self.frames.get(&named) {
            return *frame;
        }
        if self.frames.len() >= MAX_STACKS {
            return RawFrame::marker(Marker::Other);
        }
        let frame = RawFrame::new(FrameCode::Runtime { id: self.frames.len() as u64 });
        self.frames.insert(named, frame);
        frame
    }

    /// Books time to a stack, innermost frame first. `None` if the sum of all time would overflow.
    pub fn add(
        &mut self,
        owner: Owner<'_>,
        stack: &mut Vec<RawFrame>,
        state: State,
        weights: Weights,
    ) -> Option<()> {
        self.sum = self
            .sum
            .checked_add(weights.wall_ns.max(weights.cpu_ns))
            .filter(|sum| *sum <= SUM_MAX)?;
        if stack.len() > DEPTH_MAX {
            stack.truncate(DEPTH_MAX);
            stack.push(RawFrame::marker(Marker::TooDeep));
            self.cut += 1;
        }
        let (thread, name) = self.thread(owner);
        let state = RawState::Known(state);
        let mut key = FactKey::new(thread, name, self.stack(stack), state);
        if self.facts.len() >= FACTS_MAX && !self.facts.contains_key(&key) {
            key.stack = self.interner.other();
            self.other += 1;
        }
        self.facts.entry(key).or_default().add(&weights);
        Some(())
    }

    fn stack(&mut self, frames: &[RawFrame]) -> StackId {
        self.interner.stack(frames)
    }

    fn thread(&mut self, owner: Owner<'_>) -> Thread {
        let name = clean(owner.name.unwrap_or(ALL), THREAD_NAME_CAP);
        let known = (owner.pid, owner.tid, Arc::from(&*name), owner.kind);
        if let Some(found) = self.threads.get(&known) {
            return *found;
        }
        let nth = self.threads.len() as u32 + 1;
        // The start distinguishes threads without a number from those with one.
        let key = |tid, start| ThreadKey { pid: owner.pid, tid, start };
        if self.threads.len() >= THREADS_MAX {
            return (key(0, 0), NameId::OTHER);
        }
        let raw = RawName::of_runtime(nth.into()).of_kind(owner.kind);
        self.interner.call(raw, &name);
        let found = (owner.tid.map_or(key(nth, 1), |tid| key(tid, 0)), self.interner.name(raw));
        self.threads.insert(known, found);
        found
    }

    pub fn opened(mut self, about: About) -> Opened {
        for (named, frame) in self.frames {
            self.interner.set_named(frame, named);
        }
        let mut facts: Vec<Fact> = self.facts.into_iter().collect();
        facts.sort_unstable_by_key(|(key, _)| *key);
        let mut spent: FxHashMap<ThreadKey, Ns> = FxHashMap::default();
        facts
            .iter()
            .for_each(|(key, weights)| *spent.entry(key.thread).or_default() += weights.wall_ns);
        // Without a stated duration the profile lasted as long as its busiest thread's time.
        let span = if about.duration > 0 {
            about.duration
        } else {
            spent.values().copied().max().unwrap_or(0)
        };
        let at = span.clamp(1, SPAN_MAX);
        let history = Parts {
            started: 0,
            at,
            sealed: vec![Packed::new(0, at, facts.clone())],
            cumulative: facts,
            ..Parts::default()
        };
        let mut lost = about.lost;
        if self.cut > 0 {
            lost.push(format!("{} stacks of more than {DEPTH_MAX} frames are cut", self.cut));
        }
        let other = self.other + self.interner.refused();
        if other > 0 {
            lost.push(format!(
                "the time of {other} samples is in (other), because there are too many stacks"
            ));
        }
        let snapshot = Snapshot {
            session: Arc::new(Session {
                version: String::new(),
                host: String::new(),
                kernel: String::new(),
                cores_milli: 0,
                started: 0,
                started_unix_ns: about.started_unix_ns.into(),
                interval_ns: about.interval_ns.min(SPAN_MAX >> 8),
                max_overhead_percent: None,
                wanted: Wanted { title: about.title, waits: false },
            }),
            targets: Arc::new([]),
            at,
            capture: about.capture.into(),
            health: Health { folded_facts: other, ..Health::default() },
            tables: self.interner.tables(),
            history: History::from_parts(history).unwrap_or_default(),
            threads: Arc::new([]),
            deadlocks: Arc::new([]),
            observed_waits: Arc::default(),
            wakeups: None,
            notice: about.notice.map(Arc::from),
            stopped: false,
        };
        let range = Range::Cumulative { since: None };
        Opened {
            snapshot,
            settings: Settings { metric: about.metric, range, ..Settings::default() },
            lost: (!lost.is_empty()).then(|| lost.join("; ")),
        }
    }
}

/// Returns whether sampletop itself gives this name to time without a function.
pub fn is_marker(name: &str) -> bool {
    let bracketed = |marker: Marker| marker.text(Some("")).trim_end_matches(']').to_owned();
    let is_text = |marker: Marker| {
        let text = marker.text(None);
        name == text
            || (text.starts_with('[')
                && name.ends_with(']')
                && name.starts_with(&bracketed(marker)))
    };
    is_harmless(name) || Marker::ALL.into_iter().any(is_text)
}
