//! The locks that threads waited for, and deadlocks.

use std::io;

use super::tables::at_least;
use super::{Page, Report, WIDTH, seconds};
use crate::formats::ascii::{ascii, fit, wrap};
use crate::model::projection::{CommonWait, HeldBy, Lock, Place, Stuck, held_by};
use crate::model::vocabulary::blocker::BlockerKind;

/// Maximum locks, and maximum holders of each.
const LOCKS: usize = 10;
const HOLDERS: usize = 3;
/// Maximum lines of a place.
const PLACE_LINES: usize = 4;
/// Columns before what is waited for.
const INDENT: usize = 48;

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
    // Another thread's end or result is no lock.
    let is_lock = |lock: &&Lock| !matches!(lock.kind, BlockerKind::ThreadEnd | BlockerKind::Future);
    let locks: Vec<&Lock> = report.projection.locks.iter().filter(is_lock).collect();
    let without_owner: Vec<&CommonWait> = report.projection.waits_for_locks_without_owner();
    if locks.is_empty() && without_owner.is_empty() {
        return Ok(());
    }
    page.title("LOCKS    SECONDS WAITED  THREADS  NOW  LONGEST  WHAT, and who held it meanwhile")?;
    for lock in locks.iter().take(LOCKS) {
        let longest = at_least(report, lock.longest_ns, lock.longest_from);
        let mut line = format!(
            "{:>23.3}  {:>7}  {:>3}  {longest:>7}  ",
            seconds(lock.waited_ns),
            lock.threads,
            lock.waiting_now
        );
        let what = lock.kind.name_of(lock.class.as_deref(), lock.object);
        line.push_str(&fit(&what, WIDTH - line.len()));
        page.line(&line)?;
        if let Some((place, _)) = lock.waiting_in.first() {
            place_lines(page, INDENT, "waits in", place)?;
        }
        let here = report.projection.waits_for_only(lock).iter().map(|wait| wait.waited_ns).sum();
        if lock.waited_ns * 10 < here * 9 {
            let line = format!("{:>23.3}", seconds(here));
            let words = "waited there in all: not each wait's lock is read";
            page.line(&format!("{line:INDENT$}{words}"))?;
        }
        for held in lock.holders.iter().take(HOLDERS) {
            let line = format!("{:>23.3}", seconds(held.waited_ns));
            page.line(&format!("{line:INDENT$}{}", holder_line(lock, held)))?;
            place_lines(page, INDENT, "in", &held.place)?;
        }
    }
    match locks.len().saturating_sub(LOCKS) {
        0 => {}
        more => page.line(&format!("  and {more} more"))?,
    }
    without_owner.into_iter().try_for_each(|wait| lock_without_owner(report, wait, page))
}

/// Writes waits for a lock that does not say who has it.
fn lock_without_owner(
    report: &Report<'_>,
    wait: &CommonWait,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let longest = at_least(report, wait.longest_ns, wait.longest_from);
    let mut line = format!(
        "{:>23.3}  {:>7}  {:>3}  {longest:>7}  ",
        seconds(wait.waited_ns),
        wait.threads,
        ""
    );
    let object = wait.observed_object();
    let holder = match &object {
        Some(object) if object.waits_for.what == "lock" => {
            "holder not known: the lock does not keep it"
        }
        _ => "holder not known",
    };
    let what = object.map_or_else(|| "a lock".to_owned(), |lock| lock.text());
    line.push_str(&fit(&what, WIDTH - line.len()));
    page.line(&line)?;
    place_lines(page, INDENT, "waits in", &wait.place)?;
    let line = format!("{:>23.3}", seconds(wait.waited_ns));
    page.line(&format!("{line:INDENT$}{holder}"))
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

fn holder_line(lock: &Lock, held: &HeldBy) -> String {
    let words = held_by(lock.kind, held.holder, &held.name, lock.pid);
    fit(&words.unwrap_or_else(|| "holder unknown".into()), WIDTH - INDENT)
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
