//! The view of time: a line per thread with what it did in each column of time, and the runs of the
//! thread under the cursor in order, below or beside it.
//!
//! ```text
//! THREAD              14:03:20.250         each column 1.0 ms         +57 ms
//! > http-nio-exec-1   rrrrrrrrrrrllllllllllllllllllllllllllliiiiiiiiiii
//!   http-nio-exec-2   iiiiiiiiiiiiiiiiiirrrrrrrrrrr....................
//! BEGAN         LASTED  STATE  WHAT http-nio-exec-1 DID
//! 14:03:20.250   11 ms  run    ShopController.render
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::text::{Pen, cut_end, cut_start, short_span, span, width};
use super::theme::Theme;
use super::threads::letter;
use crate::app::AppState;
use crate::app::short_names;
use crate::app::timeline::TimelineView;
use crate::model::facts::tables::Location;
use crate::model::projection::timeline::{Cell, Doing, Function, Run, ThreadLine, Timeline};
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::State;

/// Cells of the columns of the sequence, each with the space behind it.
const BEGAN: usize = 13;
const LASTED: usize = 8;
const STATE: usize = 6;

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let view = &app.view.timeline;
    let parts = view.parts();
    let (name, columns) = (usize::from(parts.name), usize::from(parts.columns));
    let all = view.timeline.threads.len() + view.timeline.threads_dropped;
    let title = if all > 1 { format!("{all} THREADS") } else { "THREAD".to_owned() };
    pen.space(1).put_left(&title, name, theme.title()).space(1);
    pen.put_left(&ruler(app, columns, theme), columns, theme.title());
    if parts.is_beside {
        pen.space(1);
        sequence_title(pen, view, theme);
    }
}

/// Returns the words above the columns: where they begin, how wide they are, and where they end.
fn ruler(app: &AppState, cells: usize, theme: &Theme) -> String {
    let timeline = &app.view.timeline.timeline;
    let (Some(snapshot), true) = (&app.view.snapshot, timeline.columns() > 0) else {
        return String::new();
    };
    let (from, till) = timeline.span();
    let widths = timeline.widths();
    let clock = |column: usize| match widths[0].1 < SECOND {
        true => theme.clock_ms(&snapshot.session, timeline.edges[column]),
        false => theme.clock(&snapshot.session, timeline.edges[column]),
    };
    let columns = timeline.columns().min(cells);
    let end = format!("+{}", span(till - from));
    match &widths[..] {
        [(_, each)] => even_ruler(
            (columns, cells),
            &clock(0),
            &format!("a column is {}", fine_span(*each)),
            &end,
        ),
        _ => {
            let parts = widths.iter().map(|(at, each)| {
                let clock = clock(*at);
                (*at, clock.clone(), format!("{clock}, each {}", fine_span(*each)))
            });
            uneven_ruler(columns, &parts.collect::<Vec<_>>(), &end)
        }
    }
}

/// Returns the words above columns of one width. The end stands over the last column, and the width
/// behind it where it has no room before it.
fn even_ruler((columns, cells): (usize, usize), clock: &str, each: &str, end: &str) -> String {
    let free = columns.saturating_sub(width(clock) + width(end));
    if free >= width(each) + 2 {
        return format!("{clock}{each:^free$}{end}");
    }
    let ruler = format!("{clock}{:free$}{end}", "");
    match width(&ruler) + width(each) + 2 <= cells {
        true => format!("{ruler}  {each}"),
        false => ruler,
    }
}

/// Returns the words above columns of several widths. `parts`: the column at which each width
/// begins, its time, and the same with the width. Parts without room for their time have none.
fn uneven_ruler(columns: usize, parts: &[(usize, String, String)], end: &str) -> String {
    let end_at = columns.saturating_sub(width(end));
    let mut ruler = String::new();
    for (nth, (at, clock, with_width)) in parts.iter().enumerate() {
        let till = parts.get(nth + 1).map_or(end_at, |(next, ..)| *next).min(end_at);
        let room = till.saturating_sub(*at);
        let text = [with_width, clock].into_iter().find(|text| width(text) < room);
        if let Some(text) = text {
            ruler = format!("{ruler:at$}{text}");
        }
    }
    format!("{ruler:end_at$}{end}")
}

/// Formats a duration in seven cells, below a millisecond in microseconds.
fn fine_span(ns: Ns) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1_000),
        ns if ns < 60 * SECOND => span(ns),
        ns => short_span(ns),
    }
}

/// Formats how long a run lasted: `~46 ms` if it may have been several waits.
fn lasted(run: &Run, timeline: &Timeline) -> String {
    let about = if timeline.is_exact && !run.is_one { "~" } else { "" };
    format!("{about}{}", fine_span(run.ns))
}

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view.timeline;
    if view.timeline.threads.is_empty() {
        return;
    }
    let parts = view.parts();
    let (threads, runs) = view.lines(usize::from(area.height));
    let (threads, runs) = (threads as u16, runs as u16);
    let of_threads = Rect { width: parts.threads.min(area.width), height: threads, ..area };
    draw_threads(buffer, of_threads.intersection(area), app, theme);
    let of_runs = match parts.is_beside {
        true => Rect {
            x: area.x + of_threads.width,
            width: area.width.saturating_sub(of_threads.width),
            ..area
        },
        false => {
            let mut pen = Pen::new(buffer, area, threads);
            sequence_title(pen.space(1), view, theme);
            Rect { y: area.y + threads + 1, height: runs, ..area }
        }
    };
    draw_runs(buffer, of_runs.intersection(area), app, theme);
}

fn draw_threads(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view.timeline;
    let name_cells = usize::from(view.parts().name);
    let cursor = view.column();
    for y in 0..area.height {
        let at = view.list.list.top + usize::from(y);
        let Some(line) = view.timeline.threads.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        let is_selected = at == view.list.list.cursor;
        let (mark, style) = match is_selected {
            true => (">", theme.bold()),
            false => (" ", theme.plain()),
        };
        // The number at the end tells threads apart.
        let name = cut_start(&line.name, name_cells, theme.glyphs.cut);
        pen.put(mark, style).put_left(&name, name_cells, style).space(1);
        for (column, cell) in line.cells.iter().enumerate() {
            let style = match cell {
                Some(cell) => block(*cell, theme),
                None => theme.plain(),
            };
            // A gap in the colours; without them a block.
            let style = match column == cursor {
                true if theme.palette.has_colors() => style.remove_modifier(Modifier::REVERSED),
                true => style.add_modifier(Modifier::REVERSED),
                false => style,
            };
            let style = match column == cursor && is_selected {
                true => style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
                false => style,
            };
            pen.put(cell.map_or(" ", |cell| glyph(cell.doing, theme)), style);
        }
    }
}

/// Returns the style of a cell: a block in the state's colour; the letter alone without colours,
/// and where the thread did that for less than half of the time.
fn block(Cell { doing, ns, all_ns }: Cell, theme: &Theme) -> Style {
    match doing.is_idle {
        true => theme.dim(),
        false if theme.palette.has_colors() && ns >= all_ns / 2 => {
            theme.state(doing.state).add_modifier(Modifier::REVERSED)
        }
        false => theme.state(doing.state),
    }
}

fn glyph(doing: Doing, theme: &Theme) -> &'static str {
    match (doing.is_idle, theme.is_ascii()) {
        (true, true) => ".",
        (true, false) => "·",
        (false, _) => letter(doing.state),
    }
}

fn sequence_title(pen: &mut Pen<'_>, view: &TimelineView, theme: &Theme) {
    let Some(thread) = view.thread() else { return };
    pen.put_left("BEGAN", BEGAN, theme.title())
        .put_right("LASTED", LASTED - 1, theme.title())
        .space(1)
        .put_left("STATE", STATE, theme.title());
    let end = if view.timeline.is_exact { " DID" } else { " DID, BY SECONDS" };
    pen.put("WHAT ", theme.title());
    let name = cut_start(&thread.name, pen.room().saturating_sub(width(end)), theme.glyphs.cut);
    pen.put(&name, theme.bold()).put(end, theme.title());
}

/// Draws the runs around that under the cursor.
fn draw_runs(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view.timeline;
    let (Some(thread), Some(snapshot)) = (view.thread(), &app.view.snapshot) else { return };
    let is_beside = view.parts().is_beside;
    let height = usize::from(area.height);
    let current = view.run();
    // The first line says how many earlier runs there are.
    let first = usize::from(thread.dropped > 0);
    let lines = first + thread.runs.len();
    let at_cursor = current.map_or(0, |run| first + run);
    let top = at_cursor.saturating_sub(height / 2).min(lines.saturating_sub(height));
    for y in 0..area.height {
        let mut pen = Pen::new(buffer, area, y);
        if !is_beside {
            pen.space(1);
        }
        let Some(at) = (top + usize::from(y)).checked_sub(first) else {
            pen.put(&dropped(thread, theme), theme.dim());
            continue;
        };
        let Some(run) = thread.runs.get(at) else { break };
        let began = match view.timeline.is_exact {
            true => theme.clock_ms(&snapshot.session, run.from),
            false => theme.clock(&snapshot.session, run.from),
        };
        pen.put_left(&began, BEGAN, theme.plain())
            .put_right(&lasted(run, &view.timeline), LASTED - 1, theme.plain())
            .space(1);
        let room = pen.room().saturating_sub(STATE + 1);
        if run.doing.is_idle {
            pen.put_left("idle", STATE, theme.dim())
                .put(&cut_end("waits for work", room, ""), theme.dim());
        } else {
            let name = function(&view.timeline, run.doing, app, theme);
            pen.put_left(run.doing.state.word(), STATE, theme.state(run.doing.state))
                .put(&cut_end(&name, room, theme.glyphs.cut), theme.plain());
        }
        if current == Some(at) {
            pen.restyle_line(area, theme.selected());
        }
    }
}

fn dropped(thread: &ThreadLine, theme: &Theme) -> String {
    let (count, time) = (thread.dropped, span(thread.dropped_ns));
    format!("{} {count} earlier runs, {time} in all: + shows less time", theme.glyphs.cut)
}

/// Returns the name of the function, or words where none is shown.
fn function(timeline: &Timeline, doing: Doing, app: &AppState, theme: &Theme) -> String {
    let Some(Function { location, calls }) = timeline.function(doing) else {
        return "(no function is shown)".to_owned();
    };
    let name = |location: &Location| match app.view.short_names {
        true => short_names::short(location, app.view.shown.roll_up).into_owned(),
        false => location.function.to_string(),
    };
    match calls {
        Some(calls) => format!("{} {}{}", name(location), theme.glyphs.calls, name(calls)),
        None => name(location),
    }
}

/// Cells between two items on the line.
const GAP: usize = 3;

/// The line below the rows: what the thread under the cursor does at that moment, and what the
/// letters mean.
pub fn explain(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let view = &app.view.timeline;
    let (Some(snapshot), Some(thread)) = (&app.view.snapshot, view.thread()) else { return };
    pen.space(1).put("> ", theme.bold());
    let moment = match view.timeline.is_exact {
        true => theme.clock_ms(&snapshot.session, view.at()),
        false => theme.clock(&snapshot.session, view.at()),
    };
    let what = |doing: Doing| match doing.is_idle {
        true => "waits for work".to_owned(),
        false => {
            format!("{} in {}", doing.state.word(), function(&view.timeline, doing, app, theme))
        }
    };
    let run = view.run().and_then(|at| thread.runs.get(at));
    let text = match (run, view.cell()) {
        // Its order is not known: what it did for most of the time.
        (_, Some(cell)) if !view.timeline.is_exact => {
            format!("{moment} mostly {}, {}", what(cell.doing), fine_span(cell.ns))
        }
        (Some(run), _) if view.at() < run.from + run.ns => {
            let seen = if run.is_one { "" } else { ", seen at moments" };
            format!("{moment} {} for {}{seen}", what(run.doing), lasted(run, &view.timeline))
        }
        _ => format!("{moment} nothing is known of it"),
    };
    let legend = legend(&view.timeline, theme);
    let room = pen.room().saturating_sub(width(&legend) + GAP + 1);
    pen.put(&cut_end(&text, room, theme.glyphs.cut), theme.plain());
    pen.space(pen.room().saturating_sub(width(&legend) + 1));
    pen.put(&legend, theme.dim());
}

/// Returns the letters that are on the screen and what they mean: `r run, l lock, · idle`.
fn legend(timeline: &Timeline, theme: &Theme) -> String {
    let cells = || timeline.threads.iter().flat_map(|line| line.cells.iter().flatten());
    let of_states = State::ALL.into_iter().filter_map(|state| {
        let has = cells().any(|cell| !cell.doing.is_idle && cell.doing.state == state);
        has.then(|| format!("{} {}", letter(state), state.word()))
    });
    let idle = cells().find(|cell| cell.doing.is_idle);
    let idle = idle.map(|cell| format!("{} idle", glyph(cell.doing, theme)));
    of_states.chain(idle).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_over_the_last_column() {
        let ruler =
            |columns, cells| even_ruler((columns, cells), "14:03:20", "a column is 1.0 s", "+30 s");
        assert_eq!(ruler(40, 40), "14:03:20     a column is 1.0 s     +30 s");
        assert_eq!(ruler(30, 57), "14:03:20                 +30 s  a column is 1.0 s");
        assert_eq!(ruler(30, 40), "14:03:20                 +30 s");
    }

    #[test]
    fn times_are_over_their_columns() {
        let part = |at: usize, clock: &str, each: &str| {
            (at, clock.to_owned(), format!("{clock}, each {each}"))
        };
        let parts = [
            part(0, "14:00:00", "10 s"),
            part(12, "14:02:00", "4.0 s"),
            part(13, "14:02:04", "1.0 s"),
        ];
        let ruler = uneven_ruler(60, &parts, "+2m50s");
        assert_eq!(ruler, "14:00:00     14:02:04, each 1.0 s                     +2m50s");
        // Where the newest part has no room, it has no time.
        let ruler = uneven_ruler(24, &parts, "+2m15s");
        assert_eq!(ruler, "14:00:00          +2m15s");
    }
}
