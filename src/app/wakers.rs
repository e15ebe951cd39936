//! The page of key `u`: who woke the threads of a row.

use std::collections::HashSet;
use std::time::Duration;

use super::event::Counted;
use super::help::{Line, key_cells, wrap};
use super::pane::Pane;
use super::rows::What;
use super::short_names;
use super::view::View;
use crate::model::facts::tables::FrameKind;
use crate::model::projection::{WokenBy, WokenThread, is_of};
use crate::model::vocabulary::wakeup::{Cost, Wakeups};

/// For how long wakeups are counted.
pub const TIME: Duration = Duration::from_secs(10);
/// Maximum threads on the page, and maximum wakers of each.
const THREADS: usize = 100;
const WAKERS: usize = 8;

/// The row that the key was pressed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowThreads {
    title: String,
    /// Processes and threads.
    threads: HashSet<(u32, u32)>,
}

/// A request, and its result once that is there.
#[derive(Clone, PartialEq, Debug)]
pub struct Wakers {
    pub row: RowThreads,
    pub counted: Option<Counted>,
    /// The result was opened.
    pub is_shown: bool,
}

/// Returns the threads of the row under the cursor; `None` on a line of small rows.
pub fn row_threads(view: &View) -> Option<RowThreads> {
    let projection = &view.projection;
    let of_group = |group: u32| projection.groups[group as usize].threads.iter().map(|t| t.thread);
    let (title, keys): (String, Vec<_>) = match view.selected_what() {
        _ if view.pane == Pane::Waits => {
            let row = view.selected_wait()?;
            (row.name(projection), vec![row.thread(projection)?])
        }
        _ if view.pane == Pane::Threads => {
            let group = view.selected_group()?;
            (projection.groups[group as usize].name.to_string(), of_group(group).collect())
        }
        _ if matches!(view.pane, Pane::Methods | Pane::Graph) => {
            let location = view.selected_location()?;
            let by = view.shown.roll_up;
            let is_row = |node: u32| is_of(location, projection.name(node), by);
            (short_names::short(location, by).into_owned(), projection.threads_in(&is_row))
        }
        Some(What::Group(group)) => {
            (projection.groups[group as usize].name.to_string(), of_group(group).collect())
        }
        Some(What::Node(node)) => {
            let location = view.selected_location()?;
            let title = match location.kind {
                FrameKind::Thread => location.function.to_string(),
                _ => short_names::short(location, view.shown.roll_up).into_owned(),
            };
            (title, view.selected_in().threads_in(&|of| of == node))
        }
        Some(What::Small(_) | What::SmallGroups) | None => return None,
    };
    Some(RowThreads { title, threads: keys.into_iter().map(|key| (key.pid, key.tid)).collect() })
}

/// Returns the page, wrapped to the screen's width.
pub fn lines(wakers: &Wakers, view: &View, width: u16) -> Vec<Line> {
    let RowThreads { title, threads } = &wakers.row;
    let Some(counted) = &wakers.counted else { return Vec::new() };
    let cells = usize::from(width).saturating_sub(key_cells(width) + 4).max(10);
    let is_of_row = |thread: &&WokenThread| threads.contains(&(thread.woken.pid, thread.woken.tid));
    let woken: Vec<&WokenThread> = counted.threads.iter().filter(is_of_row).collect();
    let mut lines = vec![Line::Heading(format!("Who woke the threads of {title}"))];
    let whole = usize::from(width).saturating_sub(2).max(10);
    lines.extend(wrap(&cost(&counted.wakeups), whole).into_iter().map(Line::Text));
    if woken.is_empty() {
        lines.push(Line::Empty);
        lines.push(Line::Text(match threads.len() {
            1 => "its thread was not woken: it ran all the time, or waited all the time".into(),
            count => format!(
                "none of its {count} threads was woken: they ran all the time, or waited all the time"
            ),
        }));
    }
    for thread in woken.iter().take(THREADS) {
        lines.push(Line::Empty);
        let times = times(thread.count);
        lines.push(Line::Heading(format!("{}[{}]: woken {times}", thread.name, thread.woken.tid)));
        let by = thread.lines(WAKERS);
        for by in by.iter().take(WAKERS) {
            let mut count = by.count.to_string();
            for part in wrap(&text(by, view), cells) {
                lines.push(Line::Entry(std::mem::take(&mut count), part));
            }
        }
        if let more @ 1.. = by.len().saturating_sub(WAKERS) {
            lines.push(Line::Entry(String::new(), format!("and {more} more")));
        }
    }
    if let more @ 1.. = woken.len().saturating_sub(THREADS) {
        lines.push(Line::Text(format!("and {more} more threads")));
    }
    lines
}

fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

fn text(by: &WokenBy, view: &View) -> String {
    let roll_up = view.shown.roll_up;
    by.text(|location| match view.short_names {
        true => short_names::short(location, roll_up).into_owned(),
        false => location.function.to_string(),
    })
}

/// Returns what was counted, and what that cost.
pub fn cost(wakeups: &Wakeups) -> String {
    let (ns, how) = match wakeups.cost {
        Cost::Measured(ns) => (ns, ""),
        Cost::Estimated(ns) => (ns, ", estimated"),
    };
    let (counted, seconds) = (wakeups.counted(), wakeups.duration_ns as f64 / 1e9);
    let lost = match wakeups.lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    let ms = ns as f64 / 1e6;
    format!("{counted} wakeups of all threads in {seconds:.1} s{lost}; cost {ms:.1} ms CPU{how}")
}
