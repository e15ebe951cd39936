//! The locks that threads waited for, and deadlocks.

use std::io;

use super::{Page, Report, WIDTH, seconds};
use crate::formats::ascii::{ascii, fit, wrap};
use crate::model::facts::tables::Holder;
use crate::model::projection::{HeldBy, Place, Stuck};
use crate::model::vocabulary::blocker::BlockerKind;

/// Maximum locks, and maximum holders of each.
const LOCKS: usize = 10;
const HOLDERS: usize = 3;
/// Maximum lines of a place.
const PLACE_LINES: usize = 4;
/// Columns before what is waited for.
const INDENT: usize = 43;

/// Writes each deadlock as the circle of its threads.
pub fn deadlocks(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    for deadlock in &report.projection.deadlocks {
        page.title("DEADLOCK: each of these threads waits for the next, the last for the first")?;
        for stuck in deadlock {
            page.line(&stuck_line(report, stuck))?;
        }
    }
    Ok(())
}

fn stuck_line(report: &Report<'_>, stuck: &Stuck) -> String {
    let mut line =
        format!("  {:<15}  {}", fit(&stuck.name, 15), innermost(&stuck.place, WIDTH / 2));
    if let Some(blocker) = report.snapshot.tables.blocker(stuck.blocker) {
        let what = blocker.kind.name_of(blocker.class.as_deref(), blocker.object);
        line.push_str(&format!(", waits for {}", ascii(&what)));
    }
    line
}

/// Writes what threads waited for, with those who held it meanwhile.
pub fn locks(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let locks = &report.projection.locks;
    if locks.is_empty() {
        return Ok(());
    }
    page.title("LOCKS    SECONDS WAITED  THREADS  LONGEST  WHAT, and who held it meanwhile")?;
    for lock in locks.iter().take(LOCKS) {
        let mut line = format!(
            "{:>23.3}  {:>7}  {:>7.3}  ",
            seconds(lock.waited_ns),
            lock.threads,
            seconds(lock.longest_ns)
        );
        let what = lock.kind.name_of(lock.class.as_deref(), lock.object);
        line.push_str(&fit(&what, WIDTH - line.len()));
        page.line(&line)?;
        if let Some((place, _)) = lock.waiting_in.first() {
            place_lines(page, INDENT, "waits in", place)?;
        }
        for held in lock.holders.iter().take(HOLDERS) {
            let line = format!("{:>23.3}", seconds(held.waited_ns));
            page.line(&format!("{line:INDENT$}{}", held_by(lock.kind, held)))?;
            place_lines(page, INDENT, "in", &held.place)?;
        }
    }
    match locks.len().saturating_sub(LOCKS) {
        0 => Ok(()),
        more => page.line(&format!("  and {more} more")),
    }
}

/// Writes the functions of a place, outermost first, after a word.
pub fn place_lines(
    page: &mut Page<'_>,
    indent: usize,
    word: &str,
    place: &Place,
) -> io::Result<()> {
    if place.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = place.iter().map(|location| &*location.function).collect();
    for line in wrap(&format!("{word} {}", names.join(" -> ")), WIDTH - indent, PLACE_LINES) {
        page.line(&format!("{:indent$}{line}", ""))?;
    }
    Ok(())
}

fn held_by(kind: BlockerKind, held: &HeldBy) -> String {
    match held.holder {
        Holder::Unknown => "holder unknown".into(),
        Holder::Free => kind.free_word().into(),
        Holder::Thread { .. } => fit(&format!("held by {}", ascii(&held.name)), WIDTH - INDENT),
        Holder::Foreign { pid, tid } => format!("held by thread {tid} of process {pid}"),
        Holder::Readers(1) => "held by one reader".into(),
        Holder::Readers(count) => format!("held by {count} readers"),
        Holder::Unmounted => "held by a virtual thread that does not run".into(),
    }
}

/// Returns the functions, outermost first: as many of the innermost as fit, one at least.
fn innermost(place: &Place, width: usize) -> String {
    let mut text = String::new();
    for location in place.iter().rev() {
        let name = ascii(&location.function);
        if text.is_empty() {
            text = fit(&name, width);
        } else if text.len() + name.len() + 4 <= width {
            text = format!("{name} -> {text}");
        } else {
            break;
        }
    }
    text
}
