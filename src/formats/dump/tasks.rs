//! The tasks of event loops, at the end of a dump.

use std::io;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{NAME_MAX, NAME_MIN, write_frames};
use crate::formats::ascii::fit;
use crate::formats::json;
use crate::formats::text::{Page, WIDTH};
use crate::model::facts::tables::Location;
use crate::model::facts::tasks::{Awaited, Task, TaskName};
use crate::model::vocabulary::role::Role;

/// Maximum groups of tasks in text, and tasks of a group that are named.
const GROUPS_MAX: usize = 1000;
const NAMED_MAX: usize = 10;
/// Maximum tasks that are named as those which await one.
const WAITERS_MAX: usize = 5;

/// The type of usual futures of asyncio.
const FUTURE: &str = "_asyncio.Future";

/// The tasks of one process that have not ended.
#[derive(Clone, Debug)]
pub struct DumpTasks {
    pub pid: u32,
    pub tasks: Vec<DumpTask>,
    /// Tasks that were found, at least.
    pub found: usize,
    /// Tasks that changed each time they were read.
    pub unreadable: usize,
    /// There may be more.
    pub is_incomplete: bool,
}

/// A task.
#[derive(Clone, Debug)]
pub struct DumpTask {
    pub task: Task,
    /// Whose code each of its frames is.
    pub roles: Vec<Role>,
}

/// Writes all tasks: those of one thread with equal coroutines together, in the order of their
/// first, or with `each` one by one.
pub(super) fn write_text(
    all: &[DumpTasks],
    several: bool,
    each: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    for of_process in all {
        page.title(&title(of_process, several))?;
        let lists = match each {
            true => of_process.tasks.iter().map(|task| vec![task]).collect(),
            false => alike(&of_process.tasks),
        };
        for alike in lists.iter().take(GROUPS_MAX) {
            page.blank()?;
            write_group(alike, page)?;
        }
        let rest: usize = lists.iter().skip(GROUPS_MAX).map(Vec::len).sum();
        if rest > 0 {
            page.blank()?;
            page.line(&format!("{:>9}{rest} more tasks; json has them", ""))?;
        }
    }
    Ok(())
}

/// `TASKS of process 42: 12 have not ended; 1 changed each time it was read`
fn title(of_process: &DumpTasks, several: bool) -> String {
    let DumpTasks { pid, found, unreadable, is_incomplete, tasks } = of_process;
    let mut title = match several {
        true => format!("TASKS of process {pid}"),
        false => "TASKS".to_owned(),
    };
    let at_least = if *is_incomplete { "at least " } else { "" };
    title += &match found {
        1 => format!(": {at_least}1 has not ended"),
        found => format!(": {at_least}{found} have not ended"),
    };
    title += &match unreadable {
        0 => String::new(),
        1 => "; 1 changed each time it was read".to_owned(),
        more => format!("; {more} changed each time they were read"),
    };
    match found.saturating_sub(unreadable + tasks.len()) {
        0 => title,
        more => format!("{title}; {more} were not read"),
    }
}

fn write_group(alike: &[&DumpTask], page: &mut Page<'_>) -> io::Result<()> {
    let shown = &alike[..alike.len().min(NAMED_MAX)];
    let longest = shown.iter().map(|one| fit(&one.task.name, NAME_MAX).len()).max();
    let width = longest.unwrap_or(0).max(NAME_MIN);
    for DumpTask { task, .. } in shown {
        let tid = task.tid.map_or("-".to_owned(), |tid| tid.to_string());
        let name = fit(&task.name, NAME_MAX);
        let line = format!("{tid:>7} {name:<width$}  {}", does(task));
        page.line(line.trim_end())?;
        if let Some(by) = awaited_by(task) {
            page.line(&format!("{:>9}{}", "", fit(&by, WIDTH - 9)))?;
        }
    }
    match alike.len() - shown.len() {
        0 => {}
        more => page.line(&format!("{:>9}and {more} more with the same coroutines", ""))?,
    }
    let first = alike.first().into_iter();
    let frames: Vec<(Location, Role)> = first
        .flat_map(|one| one.task.frames.iter().cloned().zip(one.roles.iter().copied()))
        .collect();
    write_frames(&frames, page)
}

/// Says what a task does: `runs`, `awaits task fetch-2`.
fn does(task: &Task) -> String {
    match &task.awaits {
        _ if task.runs => "runs".to_owned(),
        None => "waits for its turn".to_owned(),
        Some(Awaited::Task(of)) => format!("awaits task {}", of.name),
        Some(Awaited::Object(class)) if &**class == FUTURE => "awaits a future".to_owned(),
        Some(Awaited::Object(class)) => format!("awaits {class}"),
    }
}

/// `awaited by Task-1, fetch and 3 more`
fn awaited_by(task: &Task) -> Option<String> {
    let names: Vec<&str> = task.awaited_by.iter().map(|by| &*by.name).collect();
    let (shown, rest) = names.split_at(names.len().min(WAITERS_MAX));
    let more = match (rest.len(), task.has_more_waiters) {
        (0, false) => String::new(),
        (0, true) => " and more".to_owned(),
        (rest, false) => format!(" and {rest} more"),
        (rest, true) => format!(" and at least {rest} more"),
    };
    match (shown.is_empty(), task.has_more_waiters) {
        (true, false) => None,
        (true, true) => Some("awaited by tasks that were not read".to_owned()),
        (false, _) => Some(format!("awaited by {}{more}", shown.join(", "))),
    }
}

/// Groups tasks by thread, coroutines, and whether they run.
fn alike(tasks: &[DumpTask]) -> Vec<Vec<&DumpTask>> {
    let mut lists: Vec<Vec<&DumpTask>> = Vec::new();
    let mut by_frames: FxHashMap<(Option<u32>, bool, &[Location]), usize> = FxHashMap::default();
    for one in tasks {
        let key = (one.task.tid, one.task.runs, &one.task.frames[..]);
        let list = *by_frames.entry(key).or_insert(lists.len());
        match lists.get_mut(list) {
            Some(list) => list.push(one),
            None => lists.push(vec![one]),
        }
    }
    lists
}

/// The tasks of a process in JSON.
#[derive(Serialize)]
pub struct TasksLine<'a> {
    pid: u32,
    /// Tasks that have not ended, at least.
    found: usize,
    /// Tasks that changed each time they were read.
    unreadable: usize,
    /// There may be more.
    incomplete: bool,
    list: Vec<TaskLine<'a>>,
}

#[derive(Serialize)]
struct TaskLine<'a> {
    /// Tells it from others with the same name.
    id: String,
    /// The thread of its event loop; `null`: it has ended.
    tid: Option<u32>,
    name: &'a str,
    /// Its thread executes it. Its innermost calls are on the thread's stack.
    runs: bool,
    awaits: Option<AwaitedLine<'a>>,
    awaited_by: Vec<NameLine<'a>>,
    /// More tasks may await it.
    more_waiters: bool,
    /// Its coroutines, the innermost first.
    frames: Vec<json::FrameLine<'a>>,
}

/// What it awaits at last: a task, or an object of a type.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum AwaitedLine<'a> {
    Task(NameLine<'a>),
    Object(&'a str),
}

#[derive(Serialize)]
struct NameLine<'a> {
    id: String,
    name: &'a str,
}

/// Returns an object's id.
fn id(id: u64) -> String {
    format!("0x{id:x}")
}

impl<'a> TasksLine<'a> {
    pub fn new(of_process: &'a DumpTasks) -> TasksLine<'a> {
        let DumpTasks { pid, tasks, found, unreadable, is_incomplete } = of_process;
        TasksLine {
            pid: *pid,
            found: *found,
            unreadable: *unreadable,
            incomplete: *is_incomplete,
            list: tasks.iter().map(TaskLine::new).collect(),
        }
    }
}

impl<'a> TaskLine<'a> {
    fn new(DumpTask { task, roles }: &'a DumpTask) -> TaskLine<'a> {
        let name = |of: &'a TaskName| NameLine { id: id(of.id), name: &of.name };
        TaskLine {
            id: id(task.id),
            tid: task.tid,
            name: &task.name,
            runs: task.runs,
            awaits: task.awaits.as_ref().map(|awaits| match awaits {
                Awaited::Task(of) => AwaitedLine::Task(name(of)),
                Awaited::Object(class) => AwaitedLine::Object(class),
            }),
            awaited_by: task.awaited_by.iter().map(name).collect(),
            more_waiters: task.has_more_waiters,
            frames: task
                .frames
                .iter()
                .zip(roles)
                .map(|(location, role)| json::FrameLine::of_role(location, *role))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
