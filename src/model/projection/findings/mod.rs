//! The sentences above the rows: what costs the program most time, and what is wrong with the
//! measurement. Each states figures of the projection. The one with most lost thread time is first.

mod cpu;
mod measurement;
mod stops;
mod waits;

use super::Projection;
use super::waits::{Asked, WaitsFor};
use crate::model::facts::snapshot::{Session, Snapshot};
use crate::model::facts::tables::Location;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// Maximum sentences.
const MAX: usize = 3;

/// What a sentence is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// The program.
    Target,
    /// All threads that pass the filters wait for work.
    Idle,
    /// The measurement: figures may be wrong, or less precise than was asked for.
    Harm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Deadlock,
    /// Threads wait for a lock.
    Lock,
    /// Threads wait in one function, by one call.
    Wait,
    /// Threads waited together in some moments only.
    Hiccup,
    /// One thread waits long.
    LongWait,
    /// Threads wait for the allocator's locks.
    Allocator,
    /// Threads want more cores than there are, or than the CPU quota allows.
    Cores,
    /// One function uses most of the CPU time.
    Function,
    /// One thread uses a whole core.
    Thread,
    Collector,
    PageFaults,
    /// Exceptions take much of the CPU time.
    Exceptions,
    /// Threads that begin and end all the time use much of the CPU time.
    ShortLived,
    /// The threads are stopped, or frozen.
    Stopped,
    /// Nothing stands out, or there is nothing to see.
    Nothing,
    /// The measurement itself.
    Measurement,
}

impl Kind {
    /// Returns the word in json.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Deadlock => "deadlock",
            Kind::Lock => "lock",
            Kind::Wait => "wait",
            Kind::Hiccup => "hiccup",
            Kind::LongWait => "long wait",
            Kind::Allocator => "allocator",
            Kind::Cores => "cores",
            Kind::Function => "function",
            Kind::Thread => "thread",
            Kind::Collector => "collector",
            Kind::PageFaults => "page faults",
            Kind::Exceptions => "exceptions",
            Kind::ShortLived => "short-lived threads",
            Kind::Stopped => "stopped",
            Kind::Nothing => "nothing",
            Kind::Measurement => "measurement",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub kind: Kind,
    pub about: About,
    pub text: String,
    /// How the sentence goes on.
    pub more: Option<More>,
    /// Thread time that was lost to it in the range, ns.
    pub lost_ns: u64,
    /// The node that it is about.
    pub node: Option<u32>,
}

/// The second part of a sentence: a place, of which outer functions are left out where there is no
/// room.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct More {
    /// `held by timer-1 in`.
    pub before: String,
    /// Functions, outermost first.
    pub functions: Vec<String>,
    /// What the innermost one calls, or what its thread does.
    pub after: String,
}

impl More {
    /// Returns it without its `left_out` outermost functions.
    fn without(&self, left_out: usize) -> String {
        let functions = self.functions.iter().skip(left_out).cloned().collect::<Vec<_>>();
        let parts = [self.before.clone(), functions.join(" > "), self.after.clone()];
        parts.into_iter().filter(|part| !part.is_empty()).fold(String::new(), |text, part| {
            // A clause of its own needs no blank before its comma.
            let blank = if text.is_empty() || part.starts_with(',') { "" } else { " " };
            text + blank + &part
        })
    }

    /// Returns it as text of at most `cells` characters, if leaving out functions suffices.
    pub fn text(&self, cells: usize) -> String {
        let fits = |text: &String| text.chars().count() <= cells;
        let last = self.functions.len().saturating_sub(1);
        (0..last).map(|n| self.without(n)).find(fits).unwrap_or_else(|| self.without(last))
    }
}

impl Finding {
    pub fn new(kind: Kind, text: String) -> Finding {
        Finding { kind, about: About::Target, text, more: None, lost_ns: 0, node: None }
    }

    /// Returns one about the measurement.
    pub fn harm(text: String) -> Finding {
        Finding { about: About::Harm, ..Finding::new(Kind::Measurement, text) }
    }

    /// Returns the whole sentence.
    pub fn sentence(&self) -> String {
        match &self.more {
            None => self.text.clone(),
            Some(more) => format!("{}, {}", self.text, more.without(0)),
        }
    }
}

/// How functions and classes are written in a sentence.
#[derive(Clone, Copy)]
pub struct Wording<'a> {
    pub function: &'a dyn Fn(&Location) -> String,
    pub class: fn(&str) -> &str,
    /// A moment of the session by the wall clock.
    pub clock: &'a dyn Fn(&Session, Ns) -> String,
}

impl Wording<'_> {
    /// Writes whole names.
    pub const WHOLE: Wording<'static> = Wording {
        function: &|location| location.function.to_string(),
        class: |class| class,
        clock: &utc,
    };
}

/// What the sentences are made of.
struct Evidence<'a> {
    snapshot: &'a Snapshot,
    projection: &'a Projection,
    /// What a wait is for, where it was looked up.
    answer: &'a dyn Fn(&Asked) -> Option<WaitsFor>,
    wording: Wording<'a>,
}

impl Evidence<'_> {
    fn function(&self, location: &Location) -> String {
        (self.wording.function)(location)
    }

    fn functions<'b>(&self, place: impl IntoIterator<Item = &'b Location>) -> Vec<String> {
        place.into_iter().map(|location| self.function(location)).collect()
    }

    /// Returns the share of the busy time, 0..=1.
    fn share(&self, ns: u64) -> f64 {
        (ns as f64 / self.projection.busy.total.wall_ns.max(1) as f64).min(1.0)
    }

    /// Returns how many threads that is on average over the range.
    fn threads(&self, ns: u64) -> f64 {
        ns as f64 / self.projection.elapsed().max(1) as f64
    }

    /// Returns whether it is half of the busy time, and half a thread on average: what a program
    /// mostly does that has one busy thread.
    fn is_most(&self, ns: u64) -> bool {
        self.share(ns) >= 0.5 && self.threads(ns) >= 0.5
    }

    /// Returns whether the target used its cores in the range: a tenth of one.
    fn ran(&self) -> bool {
        self.all().cores(self.projection.elapsed()) >= 0.1
    }

    /// Formats the share: `84 % of busy time`.
    fn of_busy(&self, ns: u64) -> String {
        format!("{:.0} % of busy time", self.share(ns) * 100.0)
    }
}

/// Returns at most three sentences, the most important first. `interval`: that was asked for.
/// `answer`: what a wait is for, where it was looked up.
pub fn findings(
    snapshot: &Snapshot,
    projection: &Projection,
    interval: Ns,
    answer: &dyn Fn(&Asked) -> Option<WaitsFor>,
    wording: Wording<'_>,
) -> Vec<Finding> {
    if snapshot.session.is_foreign() {
        let text = "samples of another tool".into();
        return vec![Finding::new(Kind::Measurement, text)];
    }
    let evidence = Evidence { snapshot, projection, answer, wording };
    let mut found: Vec<Finding> = evidence.deadlock().into_iter().collect();
    let harm = measurement::harm(&snapshot.health, projection);
    if let Some((text, true)) = &harm {
        found.push(Finding::harm(text.clone()));
    }
    if let Some(stopped) = evidence.does_not_run() {
        found.push(stopped);
        if !evidence.ran() {
            found.extend(harm.filter(|(_, grave)| !grave).map(|(text, _)| Finding::harm(text)));
            found.truncate(MAX);
            return found;
        }
    }
    if let Some(idle) = measurement::idle(projection) {
        found.extend(harm.filter(|(_, grave)| !grave).map(|(text, _)| Finding::harm(text)));
        found.push(idle);
        found.truncate(MAX);
        return found;
    }
    let naming = evidence.is_naming();
    let mut causes: Vec<Finding> = evidence.cpu(!naming);
    causes.extend(evidence.waiting(!(naming && evidence.is_young())));
    let is_told = found.iter().any(|finding| finding.kind == Kind::Stopped);
    causes.extend(evidence.were_stopped().filter(|_| !is_told));
    causes.sort_by_key(|finding| std::cmp::Reverse(finding.lost_ns));
    found.extend(causes);
    found.extend(harm.filter(|(_, grave)| !grave).map(|(text, _)| Finding::harm(text)));
    if found.is_empty() {
        let last = (evidence.longest_wait())
            .or_else(|| measurement::coarse(&snapshot.health, interval).map(Finding::harm))
            .or_else(|| naming.then(|| Finding::new(Kind::Measurement, "naming ...".into())))
            .or_else(|| measurement::quiet(snapshot, projection));
        found.extend(last);
    }
    found.truncate(MAX);
    found
}

/// Returns the sentences as files have them: with whole names, and nothing looked up meanwhile.
pub fn written_findings(snapshot: &Snapshot, projection: &Projection) -> Vec<Finding> {
    findings(snapshot, projection, snapshot.session.interval_ns, &|_| None, Wording::WHOLE)
}

/// Formats a moment of the session: `14:03:20 UTC`.
fn utc(session: &Session, at: Ns) -> String {
    let of_day = session.unix_ns(at).div_euclid(i128::from(SECOND)).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Formats a duration: `0.3 ms`, `12 ms`, `2.4 s`, `31 s`, `5 min`, `3 h`.
fn short_span(ns: Ns) -> String {
    match ns / SECOND {
        0 if (1..1_000_000).contains(&ns) => format!("{:.1} ms", (ns as f64 / 1e6).max(0.1)),
        0 => format!("{} ms", ns / 1_000_000),
        1..10 => format!("{:.1} s", ns as f64 / 1e9),
        10..60 => format!("{} s", ns / SECOND),
        60..3600 => format!("{} min", ns / SECOND / 60),
        _ => format!("{} h", ns / SECOND / 3600),
    }
}

/// Returns the waits that the sentences are about, to be asked for.
pub fn asked(snapshot: &Snapshot, projection: &Projection) -> Vec<Asked> {
    let waits = projection.busy.waits.iter().flat_map(|wait| &wait.now).copied();
    let others = [projection.now.convoy.map(|convoy| convoy.longest), projection.now.longest_wait];
    let mut asked: Vec<Asked> = Vec::new();
    for key in waits.chain(others.into_iter().flatten()) {
        let thread = snapshot.threads.iter().find(|thread| thread.thread == key);
        let wait = thread.and_then(|thread| Asked::of(snapshot, thread));
        asked.extend(wait.filter(|wait| !asked.contains(wait)));
    }
    asked
}
