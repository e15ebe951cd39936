//! The view of waits: a line per lock, then one per long wait.

use std::borrow::Cow;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::text::{Pen, cut_end, cut_start, short_span, span, width};
use super::theme::Theme;
use crate::app::short_names;
use crate::app::wait_list::WaitRow;
use crate::app::wait_words::Words;
use crate::app::{AppState, Severity};
use crate::model::facts::tables::Location;
use crate::model::projection::{Lock, LongWait};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::State;

/// Cells of the columns, each with the space before it.
const WAITED: usize = 10;
const WHEN: usize = 11;
const STATE: usize = 6;
/// Cells of the threads' column on a screen of 80 cells, and at most.
const THREADS: (usize, usize) = (16, 31);

fn threads_cells(screen: usize) -> usize {
    THREADS.0.max(screen / 6).min(THREADS.1)
}

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let latest = app.view.wait_list.latest_first;
    let mark = |sorted: bool, title: &str| match sorted {
        true => format!("{}{title}", theme.glyphs.descending),
        false => title.to_owned(),
    };
    let style = |sorted: bool| if sorted { theme.bold() } else { theme.title() };
    let threads = threads_cells(pen.room());
    pen.put_right(&mark(!latest, "WAITED"), WAITED, style(!latest))
        .space(1)
        .put_left(&mark(latest, "BEGAN"), WHEN - 1, style(latest))
        .space(1)
        .put_left("STATE", STATE - 1, theme.title())
        .space(1)
        .put_left("THREAD", threads - 1, theme.title())
        .space(1);
    let dropped = app.view.projection.long_waits_dropped;
    if dropped == 0 {
        pen.put("FOR WHAT, AND WHERE", theme.title());
        return;
    }
    // As much as fits: that the list is not complete is said before what a column is.
    let longest = app.view.projection.long_waits.len();
    let words = [
        (
            "FOR WHAT, AND WHERE  ",
            format!("the {longest} longest waits; {dropped} shorter dropped"),
        ),
        ("FOR WHAT, AND WHERE  ", format!("{dropped} shorter dropped")),
        ("FOR WHAT  ", format!("{dropped} shorter dropped")),
        ("", format!("{dropped} shorter dropped")),
    ];
    let fits = |(title, text): &&(&str, String)| width(title) + width(text) < pen.room();
    if let Some((title, text)) = words.iter().find(fits) {
        pen.put(title, theme.title()).put(text, theme.severity(Severity::Warning));
    }
}

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    for y in 0..area.height {
        let at = view.wait_list.list.list.top + usize::from(y);
        let Some(row) = view.wait_list.list.rows.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        let threads = threads_cells(pen.room());
        match row {
            WaitRow::Lock(lock) => {
                let lock = &view.projection.locks[*lock as usize];
                let is_open = view.wait_list.is_open(lock);
                lock_figures(&mut pen, lock, is_open, threads, theme);
            }
            WaitRow::Waiter(lock, nth) => {
                let waiter = &view.projection.locks[*lock as usize].waiters[*nth as usize];
                let max = format!("max {}", duration(waiter.longest_ns));
                let state = (State::Lock.word(), theme.state(State::Lock));
                let name = view.wait_list.thread_name(*row, &view.projection);
                let figures = (waiter.waited_ns, max, state, name);
                thread_figures(&mut pen, figures, threads, theme);
            }
            WaitRow::Holder(lock, nth) => {
                let lock = &view.projection.locks[*lock as usize];
                let held = &lock.holders[*nth as usize];
                // A thread that others wait for holds nothing.
                let word = if lock.kind == BlockerKind::ThreadEnd { "end" } else { "held" };
                let name = view.wait_list.thread_name(*row, &view.projection);
                let figures = (held.waited_ns, String::new(), (word, theme.bold()), name);
                thread_figures(&mut pen, figures, threads, theme);
            }
            WaitRow::Wait(wait) => {
                let wait = &view.projection.long_waits[*wait as usize];
                let name = view.wait_list.thread_name(*row, &view.projection);
                wait_figures(&mut pen, wait, (&name, threads), app, theme);
            }
        }
        let room = pen.room().saturating_sub(1);
        pen.put(&words_text(&Words::of(*row, view), room, app, theme), theme.plain());
        if at == view.wait_list.list.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

/// ns.
const HOUR: Ns = 3600 * SECOND;

/// Formats a duration in six cells, up to 99 days: `12 ms`, `2.0 s`, `3m20s`, `25h3m`.
fn duration(ns: Ns) -> String {
    match ns {
        ns if ns < 60 * SECOND => span(ns),
        ns if ns < HOUR => short_span(ns),
        ns if ns < 100 * HOUR => short_span(ns / (60 * SECOND) * (60 * SECOND)),
        ns => format!("{}d{}h", ns / (24 * HOUR), ns / HOUR % 24),
    }
}

/// Time that all threads waited for a lock together, and their longest wait.
fn lock_figures(pen: &mut Pen<'_>, lock: &Lock, is_open: bool, threads: usize, theme: &Theme) {
    let state = State::Lock;
    let count = match lock.threads {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    let fold = if is_open { theme.glyphs.open } else { theme.glyphs.closed };
    pen.space(1)
        .put(fold, theme.plain())
        .put_right(&duration(lock.waited_ns), WAITED - 2, theme.bold())
        .space(1)
        .put_left(&format!("max {}", duration(lock.longest_ns)), WHEN - 1, theme.plain())
        .space(1)
        .put_left(state.word(), STATE - 1, theme.state(state))
        .space(1)
        .put_left(&count, threads - 1, theme.bold())
        .space(1);
}

/// A thread that waited for the lock above, or for which others waited: time, the longest wait,
/// what it did, its name.
fn thread_figures(
    pen: &mut Pen<'_>,
    (ns, max, (word, style), name): (Ns, String, (&str, Style), String),
    threads: usize,
    theme: &Theme,
) {
    // The number at the end tells threads apart.
    let name = cut_start(&name, threads - 3, theme.glyphs.cut);
    pen.put_right(&duration(ns), WAITED, theme.plain())
        .space(1)
        .put_left(&max, WHEN - 1, theme.plain())
        .space(1)
        .put_left(word, STATE - 1, style)
        .space(3)
        .put_left(&name, threads - 3, theme.plain())
        .space(1);
}

fn wait_figures(
    pen: &mut Pen<'_>,
    wait: &LongWait,
    (name, threads): (&str, usize),
    app: &AppState,
    theme: &Theme,
) {
    let Some(snapshot) = &app.view.snapshot else { return };
    // Of a wait that was found by the first observations the beginning is not known.
    let least = if snapshot.may_have_begun_before(wait.from_ns) { ">" } else { "" };
    let going_on = if wait.goes_on { "+" } else { "" };
    let at = theme.clock(&snapshot.session, wait.from_ns);
    // The number at the end tells threads apart.
    let name = cut_start(name, threads - 1, theme.glyphs.cut);
    pen.put_right(
        &format!("{least}{}{going_on}", duration(wait.duration_ns)),
        WAITED,
        theme.plain(),
    )
    .space(1)
    .put_left(&at, WHEN - 1, theme.plain())
    .space(1)
    .put_left(wait.state.word(), STATE - 1, theme.state(wait.state))
    .space(1)
    .put_left(&name, threads - 1, theme.plain())
    .space(1);
}

/// Returns what was waited for, who held it and where, in at most `room` cells. Where there is no
/// room, outer functions go first, then packages, addresses, and the kind of lock.
fn words_text(words: &Words, room: usize, app: &AppState, theme: &Theme) -> String {
    let between = format!(" {}", theme.glyphs.calls);
    let text = |what: &str, place: &[Arc<Location>], name: Name| {
        let names: Vec<Cow<'_, str>> = place.iter().map(|at| name(at, app)).collect();
        let place = names.join(&between);
        let head = match (what, &*words.who) {
            ("", who) => who.to_owned(),
            (what, "") => what.to_owned(),
            (what, who) => format!("{what} {who}"),
        };
        match (&*head, &*place) {
            ("", place) => place.to_owned(),
            (head, "") => head.to_owned(),
            (head, place) => format!("{head} in {place}"),
        }
    };
    let count = words.place.len();
    let inner = words.place.get(count.saturating_sub(1)..).unwrap_or_default();
    let least = if words.who.is_empty() { &*words.kind } else { "" };
    let mut texts = (0..count).map(|from| text(&words.what, &words.place[from..], function)).chain(
        [&*words.what, &*words.kind, least].map(|what| text(what, inner, shortest_function)),
    );
    let fits = |text: &String| width(text) <= room;
    let fitting = texts.find(fits).unwrap_or_else(|| text(least, inner, shortest_function));
    cut_end(&fitting, room, theme.glyphs.cut).into_owned()
}

type Name = for<'a> fn(&'a Location, &AppState) -> Cow<'a, str>;

fn function<'a>(location: &'a Location, app: &AppState) -> Cow<'a, str> {
    match app.view.short_names {
        true => short_names::short(location, app.view.shown.roll_up),
        false => Cow::Borrowed(&location.function),
    }
}

fn shortest_function<'a>(location: &'a Location, app: &AppState) -> Cow<'a, str> {
    match app.view.short_names {
        true => short_names::shortest(location, app.view.shown.roll_up),
        false => Cow::Borrowed(&location.function),
    }
}

/// Minimum cells of a stack that is written.
const STACK_LEAST: usize = 20;

/// The line below the rows: what the row has no room for, and the stack in which the selected wait
/// was, the innermost call last.
pub fn explain(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let Some(row) = app.view.selected_wait() else { return };
    pen.space(1).put("> ", theme.bold());
    let stack = app.view.selected_stack();
    let stack: Vec<_> = stack.into_iter().rev().map(|at| function(at, app)).collect();
    // The row says it too, so the stack comes before its outer functions.
    let kept = if stack.is_empty() { 0 } else { STACK_LEAST + 12 };
    let room = pen.room().saturating_sub(1 + kept).max(STACK_LEAST);
    pen.put(&words_text(&Words::of(row, &app.view), room, app, theme), theme.plain());
    let room = pen.room().saturating_sub(1);
    if !stack.is_empty() && room >= STACK_LEAST {
        let text = stack.join(&format!(" {}", theme.glyphs.calls));
        let verb = if matches!(row, WaitRow::Holder(..)) { "was in" } else { "waits in" };
        let text = format!("   {verb} {}", cut_start(&text, room - 12, theme.glyphs.cut));
        pen.put(&text, theme.dim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_duration_is_cut() {
        for (seconds, text) in
            [(0, "0.0 ms"), (59, "59 s"), (60, "1m"), (3599, "59m59s"), (90_061, "25h1m")]
        {
            assert_eq!(duration(seconds * SECOND), text);
        }
        // `max 59m59s`, and with a mark on both sides.
        for seconds in (0..40 * 24 * 3600).step_by(59) {
            let text = duration(seconds * SECOND);
            assert!(width(&text) <= WHEN - 1 - 4 && width(&text) + 2 <= WAITED, "{text}");
        }
    }
}
