//! One stack of every thread, or of those that are in a deadlock; the tasks of event loops, and
//! goroutines.

pub mod goroutines;
pub mod tasks;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::ascii::{ascii, fit};
use super::text::wakers::{summary, woken_by};
use super::text::{Page, WIDTH, head, place};
use super::{dates, json};
use crate::model::facts::snapshot::{Deadlock, Session, Target};
use crate::model::facts::tables::{Blocker, BlockerId, Holder, Location, Tables};
use crate::model::projection::WokenThread;
use crate::model::projection::held_by;
use crate::model::projection::waits::WaitsFor;
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::wakeup::Wakeups;
use goroutines::{DumpGoroutines, GoroutinesLine};
use tasks::{DumpTasks, TasksLine};

/// Columns of threads' names: what the kernel keeps of one, and as much of a runtime's as leaves
/// room for what is waited for.
const NAME_MIN: usize = 15;
const NAME_MAX: usize = 36;
/// Maximum wakers of a thread.
const WAKERS: usize = 5;

/// Returns what a thread waits for, in `room` columns. `None` if the process at the other end does
/// not fit, without its address.
fn beside(waits_for: &WaitsFor, room: usize) -> Option<String> {
    let whole = waits_for.to_string();
    if waits_for.peer.is_none() || ascii(&whole).len() <= room {
        return Some(fit(&whole, room));
    }
    let short = waits_for.without_address();
    let short = ascii(&short);
    (short.len() <= room).then(|| short.into_owned())
}

/// One process and its threads.
#[derive(Clone, Debug)]
pub struct Dump {
    pub session: Arc<Session>,
    pub targets: Arc<[Target]>,
    /// When the last stack was taken, CLOCK_MONOTONIC.
    pub at: Ns,
    /// Duration within which the stacks were taken.
    pub took_ns: Ns,
    /// The backend, as the header names it.
    pub capture: Arc<str>,
    /// What was unavailable, or what changed.
    pub notice: Option<Arc<str>>,
    /// In written order; text groups equal stacks.
    pub threads: Vec<DumpThread>,
    pub deadlocks: Arc<[Deadlock]>,
    /// By process, of those that have event loops with tasks.
    pub tasks: Vec<DumpTasks>,
    /// By process, of Go programs.
    pub goroutines: Vec<DumpGoroutines>,
    /// Who woke threads, if that was counted.
    pub wakeups: Option<Arc<Wakeups>>,
    pub wakers: Vec<WokenThread>,
    /// Says what blockers are.
    pub tables: Tables,
}

/// One thread.
#[derive(Clone, Debug)]
pub struct DumpThread {
    pub thread: ThreadKey,
    pub name: Arc<str>,
    pub kind: ThreadKind,
    pub state: State,
    /// What it waits for, if known; cleaned.
    pub waits_for: Option<WaitsFor>,
    /// The lock or the like that it waits for, and who holds it, if known.
    pub blocker: BlockerId,
    /// Its wait ends by itself at some time.
    pub timed: bool,
    /// CPU time since the thread's birth, ns.
    pub cpu_ns: u64,
    /// The stack is proven complete.
    pub complete: bool,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
    /// Innermost first, including inlined frames, with whose code each is; an incomplete stack ends
    /// in a marker.
    pub frames: Vec<(Location, Role)>,
}

/// Writes text: threads with equal stacks together, in the order of their first, or with `each` one
/// by one. The innermost frame is on top; `>` marks the innermost of the user's code.
pub fn write_text(dump: &Dump, each: bool, out: &mut dyn Write) -> io::Result<()> {
    let page = &mut Page { out };
    write_head(dump, &format!("threads={}", dump.threads.len()), page)?;
    let width = name_width(dump);
    let held = held(dump);
    let lists = match each {
        true => dump.threads.iter().map(|thread| vec![thread]).collect(),
        false => alike(&dump.threads),
    };
    for alike in lists {
        page.blank()?;
        for thread in &alike {
            write_thread(dump, thread, width, page)?;
            for (lock, waiting) in held.get(&thread.thread).into_iter().flatten() {
                let wait = if *waiting == 1 { "thread waits" } else { "threads wait" };
                let wanted = format!(", for which {waiting} {wait}");
                let lock = fit(lock, WIDTH - "         holding ".len() - wanted.len());
                page.line(&format!("{:>9}holding {lock}{wanted}", ""))?;
            }
        }
        write_frames(alike.first().map_or(&[][..], |thread| &thread.frames), page)?;
    }
    write_cycles(dump, page)?;
    let several = dump.targets.len() > 1;
    tasks::write_text(&dump.tasks, several, each, page)?;
    goroutines::write_text(&dump.goroutines, several, each, page)
}

/// Writes each deadlock as the circle of its threads, with their stacks; one sentence if there is
/// none among the `watched` threads.
pub fn write_deadlocks(dump: &Dump, watched: usize, out: &mut dyn Write) -> io::Result<()> {
    let page = &mut Page { out };
    if dump.deadlocks.is_empty() {
        let of = match &dump.targets[..] {
            [one] => format!("process {}", one.pid),
            several => format!("{} processes", several.len()),
        };
        page.line(&format!("no deadlock among the {watched} threads of {of}"))?;
        return dump.notice.as_ref().map_or(Ok(()), |notice| page.field("Notice", notice));
    }
    write_head(dump, &format!("deadlocks={}", dump.deadlocks.len()), page)?;
    let width = name_width(dump);
    for Deadlock { threads, .. } in dump.deadlocks.iter() {
        page.title(CYCLE)?;
        for key in threads.iter() {
            page.blank()?;
            let Some(thread) = dump.threads.iter().find(|thread| thread.thread == *key) else {
                continue;
            };
            write_thread(dump, thread, width, page)?;
            write_frames(&thread.frames, page)?;
        }
    }
    Ok(())
}

/// Heads the threads of a deadlock.
const CYCLE: &str = "DEADLOCK: each of these threads waits for the next, the last for the first";

/// Writes what was observed, when and how. `count`: a word for the summary line.
fn write_head(dump: &Dump, count: &str, page: &mut Page<'_>) -> io::Result<()> {
    let pid = dump.targets.first().map_or(0, |target| target.pid);
    let at = dates::unix_ns(&dump.session, dump.at);
    let host = head::quoted(&dump.session.host, 20);
    page.line(&format!("sampletop dump pid={pid} host={host} {count} at={}", dates::rfc3339(at)))?;
    head::identity(&dump.session, &dump.targets, page)?;
    page.blank()?;
    let took = dump.took_ns as f64 / 1e6;
    page.field("At", &format!("{} UTC, stacks taken within {took:.0} ms", dates::utc(at)))?;
    page.field("Capture", &dump.capture)?;
    if let Some(wakeups) = &dump.wakeups {
        page.field("Wakeups", &summary(wakeups))?;
    }
    dump.notice.as_ref().map_or(Ok(()), |notice| page.field("Notice", notice))
}

/// Returns which locks each thread holds for which others wait, by name, and their number.
fn held(dump: &Dump) -> FxHashMap<ThreadKey, BTreeMap<String, usize>> {
    let mut held: FxHashMap<ThreadKey, BTreeMap<String, usize>> = FxHashMap::default();
    let blockers = dump.threads.iter().filter_map(|thread| dump.tables.blocker(thread.blocker));
    for Blocker { kind, object, class, holder, .. } in blockers {
        if let (Holder::Thread { thread, .. }, true) = (holder, kind.is_held()) {
            let lock = kind.name_of(class.as_deref(), *object);
            *held.entry(*thread).or_default().entry(lock).or_default() += 1;
        }
    }
    held
}

/// Returns the columns of threads' names.
fn name_width(dump: &Dump) -> usize {
    let longest = dump.threads.iter().map(|thread| fit(&thread.name, NAME_MAX).len()).max();
    longest.unwrap_or(0).max(NAME_MIN)
}

/// Writes a thread's state and what it waits for. `width`: columns of its name.
fn write_thread(
    dump: &Dump,
    thread: &DumpThread,
    width: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let key = thread.thread;
    let (tid, name, state) = (key.tid, fit(&thread.name, NAME_MAX), thread.state.word());
    let cpu = thread.cpu_ns as f64 / 1e6;
    // With several processes each thread names its own.
    let several = dump.targets.len() > 1;
    let pid = if several { format!("{:>7}/", key.pid) } else { String::new() };
    let mut line = format!("{pid}{tid:>7} {name:<width$}  {state:<7}  cpu {cpu:.3} ms");
    if let Some(waits_for) = &thread.waits_for {
        let room = WIDTH.saturating_sub(line.len() + 2);
        match beside(waits_for, room) {
            Some(text) => line += &format!("  {text}"),
            None => {
                page.line(&line)?;
                line = format!("{:>9}", "");
                line += &fit(&waits_for.to_string(), WIDTH - line.len());
            }
        }
    }
    let note = "  frame pointer found by search";
    if thread.recovered && line.len() + note.len() <= WIDTH {
        line += note;
    } else if thread.recovered {
        page.line(&line)?;
        line = format!("       {note}");
    }
    page.line(&line)?;
    if let Some(blocker) = dump.tables.blocker(thread.blocker) {
        for waits in waiting_for(blocker, thread.timed, &dump.tables, WIDTH - 9) {
            page.line(&format!("{:>9}{waits}", ""))?;
        }
    }
    let of_thread = |woken: &&WokenThread| (woken.woken.pid, woken.woken.tid) == (key.pid, key.tid);
    let woken = dump.wakers.iter().find(of_thread).map(|woken| woken.lines(WAKERS));
    for by in woken.iter().flatten().take(WAKERS) {
        page.line(&format!("{:>9}{}", "", woken_by(by, WIDTH - 9)))?;
    }
    Ok(())
}

fn write_frames(frames: &[(Location, Role)], page: &mut Page<'_>) -> io::Result<()> {
    let mine = frames.iter().position(|(_, role)| *role == Role::App);
    for (depth, (frame, _)) in frames.iter().enumerate() {
        let mark = if mine == Some(depth) { '>' } else { ' ' };
        let mut line = format!("      {mark} #{depth:<3} ");
        line.push_str(&place(frame, WIDTH.saturating_sub(line.len())));
        page.line(&line)?;
    }
    Ok(())
}

/// `waiting for monitor of com.acme.TaxTable 0x7f5a01c8, held by scheduling-1 (4711)`; where that
/// is too long, the holder has a line of its own.
fn waiting_for(blocker: &Blocker, timed: bool, tables: &Tables, width: usize) -> Vec<String> {
    let name = blocker.kind.name_of(blocker.class.as_deref(), blocker.object);
    let thread = match blocker.holder {
        Holder::Thread { thread, name, .. } => format!("{} ({})", tables.name(name), thread.tid),
        _ => String::new(),
    };
    let held = held_by(blocker.kind, blocker.holder, &thread, blocker.pid).unwrap_or_default();
    let limit = if timed { " (with a time limit)" } else { "" };
    let what = format!("waiting for {name}{limit}");
    match (held.is_empty(), ascii(&format!("{what}, {held}"))) {
        (true, _) => vec![fit(&what, width)],
        (false, whole) if whole.len() <= width => vec![whole.into_owned()],
        (false, _) => vec![fit(&what, width), fit(&held, width)],
    }
}

/// Writes each deadlock as the circle of its threads.
fn write_cycles(dump: &Dump, page: &mut Page<'_>) -> io::Result<()> {
    for Deadlock { threads, .. } in dump.deadlocks.iter() {
        page.title(CYCLE)?;
        for key in threads.iter() {
            let thread = dump.threads.iter().find(|thread| thread.thread == *key);
            let name = thread.map_or("", |thread| &*thread.name);
            let blocker = thread.and_then(|thread| dump.tables.blocker(thread.blocker));
            let mut line = format!("{:>7} {:<NAME_MIN$}  ", key.tid, fit(name, NAME_MAX));
            let indent = line.len();
            // None of a circle's waits ends by itself.
            let lines =
                blocker.map(|blocker| waiting_for(blocker, false, &dump.tables, WIDTH - indent));
            for waits in lines.unwrap_or_default() {
                page.line(&format!("{line}{waits}"))?;
                line = " ".repeat(indent);
            }
        }
    }
    Ok(())
}

/// Groups the threads by stack: each list has the same frames.
fn alike(threads: &[DumpThread]) -> Vec<Vec<&DumpThread>> {
    let mut lists: Vec<Vec<&DumpThread>> = Vec::new();
    let mut by_stack: FxHashMap<&[(Location, Role)], usize> = FxHashMap::default();
    for thread in threads {
        let list = *by_stack.entry(&thread.frames).or_insert(lists.len());
        match lists.get_mut(list) {
            Some(list) => list.push(thread),
            None => lists.push(vec![thread]),
        }
    }
    lists
}

/// Writes JSON: schema `sampletop-dump/1`, one entry per thread, innermost frame first.
pub fn write_json(dump: &Dump, out: &mut dyn Write) -> io::Result<()> {
    let document = Document {
        schema: "sampletop-dump/1",
        at: dates::rfc3339(dates::unix_ns(&dump.session, dump.at)),
        took_ms: json::Rounded::ms(dump.took_ns),
        notice: dump.notice.as_deref(),
        targets: json::targets(&dump.targets),
        threads: dump.threads.iter().map(|t| ThreadLine::new(t, &dump.tables)).collect(),
        deadlocks: (dump.deadlocks.iter())
            .map(|deadlock| deadlock.threads.iter().map(|t| (t.pid, t.tid)).collect())
            .collect(),
        tasks: dump.tasks.iter().map(TasksLine::new).collect(),
        goroutines: dump.goroutines.iter().map(GoroutinesLine::new).collect(),
        wakers: (dump.wakeups.as_ref()).map(|wakeups| json::WakersLine::new(wakeups, &dump.wakers)),
    };
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    at: String,
    /// Duration before that moment within which the stacks were taken.
    took_ms: json::Rounded,
    notice: Option<&'a str>,
    targets: Vec<json::TargetLine<'a>>,
    threads: Vec<ThreadLine<'a>>,
    /// Process and thread ids: each thread waits for the next, the last for the first.
    deadlocks: Vec<Vec<(u32, u32)>>,
    /// By process, of those that have event loops with tasks.
    tasks: Vec<TasksLine<'a>>,
    /// By process, of Go programs.
    goroutines: Vec<GoroutinesLine<'a>>,
    /// Who woke threads; `null` without `--wakers`.
    wakers: Option<json::WakersLine<'a>>,
}

#[derive(Serialize)]
struct ThreadLine<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    /// `plain`, `daemon` or, for a runtime's own thread, `internal`.
    kind: &'static str,
    state: &'static str,
    waits_for: Option<String>,
    blocker: Option<json::BlockerLine<'a>>,
    cpu_ms: json::Rounded,
    complete: bool,
    recovered: bool,
    frames: Vec<json::FrameLine<'a>>,
}

impl<'a> ThreadLine<'a> {
    fn new(thread: &'a DumpThread, tables: &'a Tables) -> ThreadLine<'a> {
        ThreadLine {
            pid: thread.thread.pid,
            tid: thread.thread.tid,
            name: &thread.name,
            kind: thread.kind.word(),
            state: thread.state.word(),
            waits_for: thread.waits_for.as_ref().map(WaitsFor::to_string),
            blocker: (tables.blocker(thread.blocker))
                .map(|blocker| json::BlockerLine::new(blocker, thread.timed, tables)),
            cpu_ms: json::Rounded::ms(thread.cpu_ns),
            complete: thread.complete,
            recovered: thread.recovered,
            frames: thread
                .frames
                .iter()
                .map(|(location, role)| json::FrameLine::of_role(location, *role))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
