//! Who woke threads.

use std::io;

use super::{Page, Report, WIDTH};
use crate::formats::ascii::fit;
use crate::model::projection::{WokenBy, WokenThread, woken_threads};
use crate::model::vocabulary::wakeup::{Cost, Wakeups};

/// Maximum threads, and maximum wakers of each.
const THREADS: usize = 10;
const WAKERS: usize = 3;
/// Columns of a function's name.
const FUNCTION: usize = 40;

/// Writes which threads were woken, and by whom.
pub fn wakers(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Some(wakeups) = &report.snapshot.wakeups else { return Ok(()) };
    page.title("WAKERS  WAKEUPS  THREAD, and who woke it")?;
    page.line(&format!("  {}", summary(wakeups)))?;
    let threads = woken_threads(report.snapshot, report.settings);
    for thread in threads.iter().take(THREADS) {
        let line = format!("{:>15}  ", thread.count);
        page.line(&(line.clone() + &fit(&thread_name(thread), WIDTH - line.len())))?;
        let lines = thread.lines(WAKERS);
        for by in lines.iter().take(WAKERS) {
            page.line(&format!("{:>17}{}", "", woken_by(by, WIDTH - 17)))?;
        }
        more(page, lines.len(), WAKERS, 17, "waker")?;
    }
    more(page, threads.len(), THREADS, 2, "thread")
}

fn more(
    page: &mut Page<'_>,
    all: usize,
    shown: usize,
    indent: usize,
    what: &str,
) -> io::Result<()> {
    match all.saturating_sub(shown) {
        0 => Ok(()),
        1 => page.line(&format!("{:indent$}and one more {what}", "")),
        more => page.line(&format!("{:indent$}and {more} more {what}s", "")),
    }
}

fn thread_name(thread: &WokenThread) -> String {
    format!("{}[{}]", thread.name, thread.woken.tid)
}

/// Returns `woken by producer[4712] in publish (futex) 123 times`, in `room` columns.
pub(in crate::formats) fn woken_by(by: &WokenBy, room: usize) -> String {
    let times = match by.count {
        1 => " once".into(),
        count => format!(" {count} times"),
    };
    let who = by.text(|location| fit(&location.function, FUNCTION));
    format!("woken by {}{times}", fit(&who, room.saturating_sub("woken by ".len() + times.len())))
}

/// Returns for how long wakeups were counted, what was lost, and what that cost.
pub(in crate::formats) fn summary(wakeups: &Wakeups) -> String {
    let seconds = wakeups.duration_ns as f64 / 1e9;
    let (ns, how) = match wakeups.cost {
        Cost::Measured(ns) => (ns, ""),
        Cost::Estimated(ns) => (ns, ", estimated"),
    };
    let (counted, lost, seen) = (wakeups.counted(), wakeups.lost, wakeups.seen);
    let ms = ns as f64 / 1e6;
    format!(
        "{counted} wakeups counted in {seconds:.1} s, {lost} lost; {ms:.1} ms CPU{how}, for {seen} of the host"
    )
}
