//! The one sentence above the rows: what matters most about this moment, or about the measurement.

use super::fact_reader::AT_REST;
use super::locks::noun;
use super::settings::Metric;
use super::waits::{Asked, Facts, WaitsFor, describe};
use super::{HITS_NEEDED, Projection, Stuck, Totals};
use crate::model::facts::snapshot::{Health, Snapshot, ThreadNow};
use crate::model::facts::tables::{Holder, Location};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// A wait of this duration is worth a sentence.
const LONG: Ns = SECOND;
/// From this many cores on, CPU time is worth a sentence.
const MUCH_CPU: f64 = 0.5;
/// A function with this share of it stands out.
const STANDS_OUT: f64 = 0.5;
/// From this share of the busy time on, waits for one lock are worth a sentence, if one of them is
/// this long.
const MUCH_WAITED: f64 = 0.1;
const LONG_FOR_LOCK: Ns = SECOND / 20;
/// Names that are still read matter while stacks with this share of the time lack some.
const UNNAMED: f64 = 0.02;

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

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Insight {
    pub text: String,
    /// How the sentence goes on, where it names who holds a lock.
    pub more: Option<String>,
    pub about: About,
}

impl Insight {
    pub fn new(text: String, about: About) -> Insight {
        Insight { text, more: None, about }
    }
}

/// How functions and classes are written in a sentence.
#[derive(Clone, Copy)]
pub struct Wording<'a> {
    pub function: &'a dyn Fn(&Location) -> String,
    pub class: fn(&str) -> &str,
}

impl Wording<'_> {
    /// Writes whole names.
    pub const WHOLE: Wording<'static> =
        Wording { function: &|location| location.function.to_string(), class: |class| class };
}

/// Returns the sentence; `None` if there is nothing to say. `interval`: that was asked for.
/// `answer`: what a wait is for, where it was looked up.
pub fn insight(
    snapshot: &Snapshot,
    projection: &Projection,
    interval: Ns,
    answer: &dyn Fn(&Asked) -> Option<WaitsFor>,
    wording: Wording<'_>,
) -> Option<Insight> {
    let says = |text: String| Insight::new(text, About::Target);
    if snapshot.session.is_foreign() {
        return Some(says("samples of another tool".into()));
    }
    if let Some(found) = deadlock(projection, wording) {
        return Some(found);
    }
    if let Some(text) = harm(&snapshot.health) {
        return Some(Insight::new(text, About::Harm));
    }
    let idle = match projection.only_idle {
        true => projection.groups.iter().map(|group| group.threads.len()).sum(),
        false if projection.total.is_empty() => projection.hidden.idle_threads as usize,
        false => 0,
    };
    if idle > 0 {
        let (s, verb) = if idle == 1 { ("", "waits") } else { ("s", "wait") };
        let text = format!("nothing to see: {idle} thread{s} {verb} for work");
        return Some(Insight::new(text, About::Idle));
    }
    let unnamed = projection.unnamed_ns as f64 >= projection.total.wall_ns as f64 * UNNAMED;
    let naming = snapshot.health.naming && projection.unnamed_ns > 0 && unnamed;
    let total = &projection.total;
    // Where waits are most of what is shown, CPU time is not what its threads lack.
    let mostly_runs = total.states_ns[State::Run as usize] * 2 >= total.wall_ns;
    if let Some(text) = saturation(total, projection.elapsed(), snapshot) {
        return Some(says(text));
    }
    if let Some(found) = lock(projection, wording) {
        return Some(found);
    }
    let sentence = None
        .or_else(|| convoy(snapshot, projection, answer))
        .or_else(|| common_wait(snapshot, projection, answer, wording))
        .or_else(|| hot(projection, wording).filter(|_| mostly_runs && !naming))
        .or_else(|| longest_wait(snapshot, projection, answer));
    if let Some(text) = sentence {
        return Some(says(text));
    }
    if let Some(text) = coarse(&snapshot.health, interval) {
        return Some(Insight::new(text, About::Harm));
    }
    if let Some(text) = quiet(snapshot, projection) {
        return Some(says(text));
    }
    naming.then(|| says("naming ...".into()))
}

/// Returns why figures may be wrong.
fn harm(health: &Health) -> Option<String> {
    let losses = &health.losses;
    let percent = |part: u64, whole: u64| match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64 * 100.0,
    };
    let all = losses.samples + losses.dropped;
    let lost = percent(losses.dropped, all);
    let failed = percent(losses.unwind_failed, losses.samples);
    let (truncated, torn) =
        (percent(losses.truncated, losses.samples), percent(losses.torn, losses.samples));
    if lost > 1.0 {
        Some(format!("{lost:.0} % of the samples are lost"))
    } else if truncated > 5.0 {
        Some(format!("{truncated:.0} % of the stacks are truncated"))
    } else if failed > 5.0 {
        Some(format!("{failed:.0} % of the stacks end early"))
    } else if torn > 5.0 {
        Some(format!("{torn:.0} % of the stacks are torn"))
    } else if losses.stops > 0 {
        Some(format!("threads are stopped for each sample: {} stops so far", losses.stops))
    } else {
        None
    }
}

/// Returns why figures are less precise than was asked for. They are right: a cause of trouble
/// matters more.
fn coarse(health: &Health, interval: Ns) -> Option<String> {
    if health.interval_achieved_ns > 2 * interval && health.ticks > 100 {
        let (got, asked) = (health.interval_achieved_ns / 1_000_000, interval / 1_000_000);
        Some(format!("sampled every {got} ms, not {asked} ms, to limit the cost"))
    } else if health.folded_facts > 0 {
        Some("history is full: rare stacks are summed up as (other)".into())
    } else {
        None
    }
}

/// Says that threads want more cores than there are.
fn saturation(total: &Totals, elapsed: Ns, snapshot: &Snapshot) -> Option<String> {
    let cores = (snapshot.session.cores_milli as f64 / 1000.0).max(0.1);
    let of = |state: State| match elapsed {
        0 => 0.0,
        _ => total.states_ns[state as usize] as f64 / elapsed as f64,
    };
    let waiting = of(State::Rdy);
    // Half of the threads that want a core, and one at least, wait for it.
    (waiting >= 1.0 && waiting > of(State::Run)).then(|| {
        format!(
            "{waiting:.0} thread{} wait{} for a core, {:.1} of {} are used",
            if waiting < 1.5 { "" } else { "s" },
            if waiting < 1.5 { "s" } else { "" },
            total.cores(elapsed),
            (cores * 10.0).round() / 10.0,
        )
    })
}

/// Says which threads wait for each other, and where.
fn deadlock(projection: &Projection, wording: Wording<'_>) -> Option<Insight> {
    let stuck = projection.deadlocks.iter().find(|stuck| !stuck.is_empty())?;
    let (last, others) = stuck.split_last()?;
    let (last, others): (_, Vec<&str>) = (&last.name, others.iter().map(|s| &*s.name).collect());
    let text = match others.len() {
        0 => format!("deadlock: {last} waits for what it holds itself"),
        1..=3 => format!("deadlock: {} and {last} wait for each other", others.join(", ")),
        n => format!("deadlock: {last} and {n} more threads wait for each other"),
    };
    let place = |stuck: &Stuck| {
        let function = stuck.place.last()?;
        Some(format!("{} in {}", stuck.name, (wording.function)(function)))
    };
    let places: Vec<String> = stuck.iter().filter_map(place).collect();
    let more = Some(places.join(", ")).filter(|more| !more.is_empty());
    Some(Insight { text, more, about: About::Target })
}

/// Returns what threads wait for: `the monitor of TaxTable`, `one mutex`.
fn lock_noun(kind: BlockerKind, class: Option<&str>, wording: Wording<'_>) -> String {
    let noun = noun(kind, class.map(wording.class));
    match (kind, class) {
        (BlockerKind::ThreadEnd, _) => "a thread's end".into(),
        (BlockerKind::OwnedLock | BlockerKind::Parked, Some(_)) => noun,
        (_, Some(_)) => format!("the {noun}"),
        (_, None) => format!("one {noun}"),
    }
}

/// Says which lock threads wait for, for much of their time, and who holds it where.
fn lock(projection: &Projection, wording: Wording<'_>) -> Option<Insight> {
    let all = projection.total.wall_ns;
    let lock = (projection.locks.iter()).find(|lock| lock.main_holder().is_some())?;
    let share = lock.waited_ns as f64 / all.max(1) as f64;
    let long = lock.longest_ns >= LONG_FOR_LOCK;
    if !(share >= MUCH_WAITED && long && lock.waited_ns >= LONG_FOR_LOCK) {
        return None;
    }
    let noun = lock_noun(lock.kind, lock.class.as_deref(), wording);
    let (s, verb) = if lock.threads == 1 { ("", "waits") } else { ("s", "wait") };
    let longest = short_span(lock.longest_ns);
    let text = format!(
        "{} thread{s} {verb} for {noun}: {:.0} % of the busy time, up to {longest}",
        lock.threads,
        (share * 100.0).min(100.0)
    );
    let held = lock.main_holder()?;
    let mut more = match &*held.name {
        "" => format!("held by {}", foreign(held.holder)),
        name => format!("held by {name}"),
    };
    if lock.holder_count > 1 {
        more.push_str(&format!(" and {} more", lock.holder_count - 1));
    }
    let place: Vec<String> =
        held.place.iter().map(|function| (wording.function)(function)).collect();
    if !place.is_empty() {
        more.push_str(&format!(" in {}", place.join(" > ")));
    }
    Some(Insight { text, more: Some(more), about: About::Target })
}

/// Returns who holds a lock, of a process that is not watched.
fn foreign(holder: Holder) -> String {
    match holder {
        Holder::Foreign { pid, .. } => format!("process {pid}"),
        _ => "another thread".into(),
    }
}

/// Formats a duration: `12 ms`, `2.4 s`, `31 s`.
fn short_span(ns: Ns) -> String {
    match ns {
        ..SECOND => format!("{} ms", ns / 1_000_000),
        _ if ns < 10 * SECOND => format!("{:.1} s", ns as f64 / 1e9),
        _ => format!("{} s", ns / SECOND),
    }
}

/// Says which function has most of the CPU time, where that is much.
fn hot(projection: &Projection, wording: Wording<'_>) -> Option<String> {
    let total = &projection.total;
    if total.cores(projection.elapsed()) < MUCH_CPU {
        return None;
    }
    let hottest = projection.hottest()?;
    let share = hottest.own.share(Metric::Cpu, total);
    let stands_out = share >= STANDS_OUT && hottest.own.cpu_hits >= HITS_NEEDED;
    if !stands_out || hottest.role == Role::Marker {
        return None;
    }
    let name = (wording.function)(hottest.location(Metric::Cpu));
    let mut text = format!("{:.0} % of the CPU time is in {name}", share * 100.0);
    if let Some(entry) = hottest.entry(Metric::Cpu) {
        text.push_str(&format!(", calling {}", (wording.function)(entry)));
    }
    Some(text)
}

/// Returns what a thread waits for, as far as that is known.
fn waits_for(
    snapshot: &Snapshot,
    thread: &ThreadNow,
    answer: &dyn Fn(&Asked) -> Option<WaitsFor>,
) -> Option<WaitsFor> {
    let asked = Asked::of(snapshot, thread)?;
    answer(&asked).or_else(|| describe(&asked, &Facts::default()))
}

/// Says how many threads wait for one lock, and who holds it.
fn convoy(
    snapshot: &Snapshot,
    projection: &Projection,
    answer: &dyn Fn(&Asked) -> Option<WaitsFor>,
) -> Option<String> {
    let convoy = projection.now.convoy?;
    let thread = snapshot.threads.iter().find(|thread| thread.thread == convoy.longest)?;
    // Of other locks the address says nothing.
    let is_lock = |waits: &WaitsFor| ["mutex", "rwlock", "lock"].contains(&waits.what);
    let lock = waits_for(snapshot, thread, answer).filter(is_lock)?;
    let (threads, busy) = (convoy.threads, projection.now.busy_count());
    Some(format!("{threads} of {busy} busy threads wait for one {lock}"))
}

/// Says how many threads wait in one function of a library, as for a connection of a pool.
fn common_wait(
    snapshot: &Snapshot,
    projection: &Projection,
    answer: &dyn Fn(&Asked) -> Option<WaitsFor>,
    wording: Wording<'_>,
) -> Option<String> {
    let common_wait = projection.now.common_wait.as_ref()?;
    let waited = snapshot.at.saturating_sub(common_wait.since);
    if waited < LONG {
        return None;
    }
    let (threads, busy) = (common_wait.threads, projection.now.busy_count());
    let function = (wording.function)(&common_wait.function);
    let mut text = format!("{threads} of {busy} busy threads wait in {function}");
    let thread = snapshot.threads.iter().find(|thread| thread.thread == common_wait.longest)?;
    // That they are parked, or at which address, says nothing.
    let is_known = |waits: &WaitsFor| !["futex", "park", "wait"].contains(&waits.what);
    if let Some(waits) = waits_for(snapshot, thread, answer).filter(is_known) {
        text.push_str(&format!(" ({waits})"));
    }
    text.push_str(&format!(", up to {}", short_span(waited)));
    Some(text)
}

/// Returns the thread that the sentence is about: in a convoy, or the one that waits longest.
fn longest(snapshot: &Snapshot, projection: &Projection) -> Option<(ThreadNow, State)> {
    let state = |t: &ThreadNow| t.state.resolve(snapshot.tables.futex_kind(t.stack));
    let key = projection.now.convoy.map(|convoy| convoy.longest).or(projection.now.longest_wait)?;
    let thread = snapshot.threads.iter().find(|thread| thread.thread == key)?;
    Some((*thread, state(thread)))
}

/// Says who waits longest, where, and for what.
fn longest_wait(
    snapshot: &Snapshot,
    projection: &Projection,
    answer: &dyn Fn(&Asked) -> Option<WaitsFor>,
) -> Option<String> {
    let (thread, state) = longest(snapshot, projection)?;
    let waited = snapshot.at.saturating_sub(thread.since);
    if waited < LONG {
        return None;
    }
    let name = snapshot.tables.name(thread.name);
    let seconds = waited / SECOND;
    let duration = match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    };
    let what = match waits_for(snapshot, &thread, answer) {
        Some(waits) if waits.what != "futex" => waits.to_string(),
        _ => state.word().to_owned(),
    };
    Some(format!("{name} waits {duration}: {what}"))
}

/// Says that the rows are of a program at rest: their shares are large, their times are not.
fn quiet(snapshot: &Snapshot, projection: &Projection) -> Option<String> {
    let (total, elapsed) = (&projection.total, projection.elapsed());
    if total.is_empty() || total.threads(Metric::Wall, elapsed) >= AT_REST {
        return None;
    }
    let cores = (snapshot.session.cores_milli as f64 / 100.0).round() / 10.0;
    let mut text = format!("nothing stands out: cpu {:.2} of {cores}", total.cores(elapsed));
    // The same number as in the header.
    match projection.now.idle {
        0 => {}
        1 => text.push_str(", 1 thread waits for work"),
        idle => text.push_str(&format!(", {idle} threads wait for work")),
    }
    Some(text)
}

/// Returns the wait that [`insight`] is about, to be asked for.
pub fn asked(snapshot: &Snapshot, projection: &Projection) -> Option<Asked> {
    let of_common_wait = || {
        let common_wait =
            projection.now.common_wait.as_ref().filter(|_| projection.now.convoy.is_none())?;
        let long = snapshot.at.saturating_sub(common_wait.since) >= LONG;
        snapshot.threads.iter().find(|thread| long && thread.thread == common_wait.longest).copied()
    };
    let thread =
        of_common_wait().or_else(|| longest(snapshot, projection).map(|(thread, _)| thread))?;
    Asked::of(snapshot, &thread)
}
