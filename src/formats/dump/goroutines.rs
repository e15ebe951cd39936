//! Goroutines, at the end of a dump.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::write_frames;
use crate::formats::ascii::fit;
use crate::formats::json;
use crate::formats::text::{Page, WIDTH, place};
use crate::model::facts::tables::Location;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::labels;
use crate::model::vocabulary::role::Role;

/// Maximum groups of goroutines in text, and goroutines of a group whose numbers are written.
const GROUPS_MAX: usize = 1000;
const NUMBERS_MAX: usize = 10;

const SECOND: Ns = 1_000_000_000;
const MINUTE: Ns = 60 * SECOND;
const HOUR: Ns = 60 * MINUTE;

/// The goroutines of one process.
#[derive(Clone, Debug)]
pub struct DumpGoroutines {
    pub pid: u32,
    /// Those that no thread executes.
    pub list: Vec<DumpGoroutine>,
    /// Goroutines that have not ended.
    pub found: usize,
    /// Goroutines that threads execute.
    pub on_threads: usize,
    /// Goroutines that changed while they were read, or whose stack is not whole.
    pub unreadable: usize,
}

/// A goroutine.
#[derive(Clone, Debug)]
pub struct DumpGoroutine {
    /// Its number in the program.
    pub id: u64,
    /// What it does, in the words of Go's runtime; cleaned.
    pub state: Arc<str>,
    /// How long it has waited at least.
    pub waited: Option<Ns>,
    /// Address of the lock for which it waits, where that is known.
    pub lock: Option<u64>,
    /// Text of a frame: the labels that the program gave it.
    pub labels: Option<Arc<str>>,
    /// Innermost first, with whose code each is.
    pub frames: Vec<(Location, Role)>,
    /// The function that started it.
    pub created_by: Option<(Location, Role)>,
}

/// Writes all goroutines: those with equal frames, state and origin together, the largest group
/// first, or with `each` one by one.
pub(super) fn write_text(
    all: &[DumpGoroutines],
    several: bool,
    each: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    for of_process in all {
        write_title(of_process, several, page)?;
        let lists = match each {
            true => of_process.list.iter().map(|goroutine| vec![goroutine]).collect(),
            false => alike(&of_process.list),
        };
        let of_locks = of_locks(&lists);
        for alike in lists.iter().take(GROUPS_MAX) {
            page.blank()?;
            write_group(alike, &of_locks, page)?;
        }
        let rest: usize = lists.iter().skip(GROUPS_MAX).map(Vec::len).sum();
        if rest > 0 {
            let goroutines = if rest == 1 { "goroutine" } else { "goroutines" };
            page.blank()?;
            page.line(&format!("{:>9}{rest} more {goroutines}; json has them", ""))?;
        }
    }
    Ok(())
}

/// `GOROUTINES of process 42: 124 that no thread executes, 3 on threads; 2 could not be read`;
/// where that is too long, what is missing has a line of its own.
fn write_title(of_process: &DumpGoroutines, several: bool, page: &mut Page<'_>) -> io::Result<()> {
    let DumpGoroutines { pid, list, found, on_threads, unreadable } = of_process;
    let of = if several { format!(" of process {pid}") } else { String::new() };
    let off_threads = found.saturating_sub(*on_threads);
    let title =
        format!("GOROUTINES{of}: {off_threads} that no thread executes, {on_threads} on threads");
    let mut missing = Vec::new();
    if *unreadable > 0 {
        missing.push(format!("{unreadable} could not be read"));
    }
    match off_threads.saturating_sub(unreadable + list.len()) {
        0 => {}
        1 => missing.push("1 was not read".to_owned()),
        more => missing.push(format!("{more} were not read")),
    }
    let missing = missing.join("; ");
    match (missing.is_empty(), format!("{title}; {missing}")) {
        (true, _) => page.title(&title),
        (false, whole) if whole.len() <= WIDTH => page.title(&whole),
        (false, _) => {
            page.title(&title)?;
            page.line(&format!("{:>9}{missing}", ""))
        }
    }
}

/// How many goroutines wait for a lock, and in how many groups.
type OfLocks = FxHashMap<u64, (usize, usize)>;

fn of_locks(lists: &[Vec<&DumpGoroutine>]) -> OfLocks {
    let mut of_locks = OfLocks::default();
    for list in lists {
        let Some(lock) = list.first().and_then(|one| one.lock) else { continue };
        let (goroutines, groups) = of_locks.entry(lock).or_default();
        *goroutines += list.len();
        *groups += 1;
    }
    of_locks
}

fn write_group(
    alike: &[&DumpGoroutine],
    of_locks: &OfLocks,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let Some(first) = alike.first() else { return Ok(()) };
    let who = match alike.len() {
        1 => format!("{:>8}goroutine {}", "", first.id),
        count => format!("{count:>7} goroutines"),
    };
    let waited = waited(alike).map_or(String::new(), |waited| format!(", {waited}"));
    let lock = first.lock.map_or(String::new(), |lock| format!(" {lock:#x}"));
    let room = WIDTH.saturating_sub(who.len() + 2 + lock.len() + waited.len());
    page.line(&format!("{who}  {}{lock}{waited}", fit(&first.state, room)))?;
    if alike.len() > 1 {
        page.line(&format!("{:>9}{}", "", fit(&numbers(alike), WIDTH - 9)))?;
    }
    let of_lock = first.lock.and_then(|lock| of_locks.get(&lock));
    if let Some((goroutines, groups)) = of_lock.filter(|(_, groups)| *groups > 1) {
        let text = format!("{goroutines} goroutines wait for this lock, in {groups} groups");
        page.line(&format!("{:>9}{text}", ""))?;
    }
    write_frames(&first.frames, page)?;
    if let Some((by, _)) = &first.created_by {
        let mut line = format!("{:>8}created by ", "");
        line.push_str(&place(by, WIDTH.saturating_sub(line.len())));
        page.line(&line)?;
    }
    if let Some(labels) = first.labels.as_deref().and_then(labels::shown) {
        let mut line = format!("{:>8}labels ", "");
        line.push_str(&fit(labels, WIDTH.saturating_sub(line.len())));
        page.line(&line)?;
    }
    Ok(())
}

/// `1, 5, 6 and 94 more`: as many of their numbers as fit into a line.
fn numbers(alike: &[&DumpGoroutine]) -> String {
    let mut shown = alike.len().min(NUMBERS_MAX);
    loop {
        let numbers: Vec<String> = alike.iter().take(shown).map(|one| one.id.to_string()).collect();
        let text = match alike.len() - shown {
            0 => numbers.join(", "),
            more => format!("{} and {more} more", numbers.join(", ")),
        };
        if text.len() <= WIDTH - 9 || shown <= 1 {
            return text;
        }
        shown -= 1;
    }
}

/// `at least 3 to 12 min`: how long goroutines have waited. Go's runtime measures only from a
/// garbage collection on. `None`: not known, or less than a second.
fn waited(alike: &[&DumpGoroutine]) -> Option<String> {
    let known = alike.iter().filter_map(|one| one.waited).filter(|waited| *waited >= SECOND);
    let longest = rounded(known.clone().max()?);
    // The time of the others may be any.
    if known.clone().count() < alike.len() {
        return Some(format!("the longest at least {} {}", longest.0, longest.1));
    }
    let shortest = rounded(known.min()?);
    Some(match (shortest == longest, shortest.1 == longest.1) {
        (true, _) => format!("at least {} {}", longest.0, longest.1),
        (false, true) => format!("at least {} to {} {}", shortest.0, longest.0, longest.1),
        (false, false) => {
            format!("at least {} {} to {} {}", shortest.0, shortest.1, longest.0, longest.1)
        }
    })
}

/// Returns a duration and its unit, rounded down: the true one is longer.
fn rounded(waited: Ns) -> (Ns, &'static str) {
    match waited {
        short if short < 2 * MINUTE => (short / SECOND, "s"),
        middle if middle < 2 * HOUR => (middle / MINUTE, "min"),
        long => (long / HOUR, "h"),
    }
}

/// Groups goroutines by state, lock, labels, frames and what started them: the largest group first,
/// equal ones in the order of their first. Groups that wait for one lock are as one, the largest of
/// them first.
fn alike(list: &[DumpGoroutine]) -> Vec<Vec<&DumpGoroutine>> {
    type What<'a> = (&'a str, Option<u64>, Option<&'a str>);
    type Key<'a> = (What<'a>, &'a [(Location, Role)], Option<&'a (Location, Role)>);
    let mut lists: Vec<Vec<&DumpGoroutine>> = Vec::new();
    let mut by_key: FxHashMap<Key<'_>, usize> = FxHashMap::default();
    for one in list {
        let what = (&*one.state, one.lock, one.labels.as_deref());
        let key = (what, &one.frames[..], one.created_by.as_ref());
        let list = *by_key.entry(key).or_insert(lists.len());
        match lists.get_mut(list) {
            Some(list) => list.push(one),
            None => lists.push(vec![one]),
        }
    }
    lists.sort_by_key(|list| Reverse(list.len()));
    let of_locks = of_locks(&lists);
    // The first group of each lock stands for all of them.
    let mut first: FxHashMap<u64, usize> = FxHashMap::default();
    let place = |(at, list): (usize, &Vec<&DumpGoroutine>)| match list[0].lock {
        Some(lock) => (Reverse(of_locks[&lock].0), *first.entry(lock).or_insert(at), at),
        None => (Reverse(list.len()), at, at),
    };
    let mut places: Vec<_> = lists.iter().enumerate().map(place).collect();
    places.sort_unstable();
    places.into_iter().map(|(.., at)| std::mem::take(&mut lists[at])).collect()
}

/// The goroutines of a process in JSON.
#[derive(Serialize)]
pub struct GoroutinesLine<'a> {
    pid: u32,
    /// Goroutines that have not ended.
    found: usize,
    /// Goroutines that threads execute; these are not in the list.
    on_threads: usize,
    /// Goroutines that changed while they were read, or whose stack is not whole.
    unreadable: usize,
    list: Vec<GoroutineLine<'a>>,
}

#[derive(Serialize)]
struct GoroutineLine<'a> {
    /// Its number in the program.
    id: u64,
    state: &'a str,
    /// How long it has waited at least; `null`: unknown.
    waited_ns: Option<Ns>,
    /// Address of the lock for which it waits: `0xc000012345`; `null`: of none, or not known.
    lock: Option<String>,
    /// The labels that the program gave it; `null`: they are not told apart.
    labels: Option<BTreeMap<String, String>>,
    /// The innermost first.
    frames: Vec<json::FrameLine<'a>>,
    created_by: Option<json::FrameLine<'a>>,
}

impl<'a> GoroutinesLine<'a> {
    pub fn new(of_process: &'a DumpGoroutines) -> GoroutinesLine<'a> {
        let DumpGoroutines { pid, list, found, on_threads, unreadable } = of_process;
        GoroutinesLine {
            pid: *pid,
            found: *found,
            on_threads: *on_threads,
            unreadable: *unreadable,
            list: list.iter().map(GoroutineLine::new).collect(),
        }
    }
}

impl<'a> GoroutineLine<'a> {
    fn new(goroutine: &'a DumpGoroutine) -> GoroutineLine<'a> {
        let frame = |(at, role): &'a (Location, Role)| json::FrameLine::of_role(at, *role);
        GoroutineLine {
            id: goroutine.id,
            state: &goroutine.state,
            waited_ns: goroutine.waited,
            lock: goroutine.lock.map(|lock| format!("{lock:#x}")),
            labels: labels_of(goroutine.labels.as_deref()),
            frames: goroutine.frames.iter().map(frame).collect(),
            created_by: goroutine.created_by.as_ref().map(frame),
        }
    }
}

/// Returns the labels in the text of a frame.
fn labels_of(text: Option<&str>) -> Option<BTreeMap<String, String>> {
    let is_other = text.and_then(labels::shown) == Some(labels::OTHER);
    (!is_other).then(|| labels::labels(text.unwrap_or("")).into_iter().collect())
}

#[cfg(test)]
mod tests;
