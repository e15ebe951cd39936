//! Draws the screen. The only module that uses ratatui.
//!
//! ```text
//! header     4321 java -jar shop.jar @node7        LIVE wall 14:03:20-14:03:50 (30s) perf
//!            cpu 2.0 of 4  thr 214: run 2 rdy 0 ...
//! history    10m ▁▁▁▂▁▁█▂▁▁▁[▂▂▂]now  busy threads 0-100, max 61
//! header     10ms(10)  lost 0  trunc 0.1%  own 0.4%  stops 0    idle hidden: 207 thr (i)
//! columns    TOTAL%  SELF%  THR  CPU STATE     FUNCTION, :line
//! tree         84.1    0.0  6.1  2.0 io  62%  ▾ http-nio-exec-               12 threads
//! graph      in its place: one function with its callers and callees
//! flame      in its place: bars as wide as their share of the time
//! threads    in its place: one row per thread or group
//! timeline   in its place: what threads did when
//! source     in its place: lines of source or instructions of one function
//! waits      in its place: locks, and long waits one by one
//! methods      51.7   49.9  3.8  0.1 io  98%    PgStatement.executeQuery           :154
//! changes    in their place: the shares now and before, and their difference
//! bars, flame_changes   words about bars; how they are compared
//! branch     the indentation of rows in trees
//! explain    > now io recvfrom fd 37 ...   longest 2.0 s at 14:03:31   49.1-54.3 %
//! footer     focus, ignore, ... and how much they hide
//!            keys, or a message; over it prompts (overlay)
//! help, picker, overlay    pages and boxes of their own
//! theme, palette           what is drawn how; its colours on this terminal
//! text, columns            cells and figures; which columns fit
//! terminal, input, escape, pacer    taking the terminal, the keyboard, split sequences,
//!                                   when to draw
//! ```

pub mod escape;
pub mod input;
mod label;
pub mod pacer;
pub mod terminal;
pub mod theme;

mod bars;
mod branch;
mod changes;
mod columns;
mod explain;
mod flame;
mod flame_changes;
mod footer;
mod graph;
mod header;
mod help;
mod history;
mod menu;
mod methods;
mod overlay;
mod palette;
mod picker;
mod rules;
mod source;
mod text;
mod threads;
mod timeline;
mod tree;
mod waits;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::pane::Pane;
use crate::app::{AppState, Overlay};
use crate::model::projection::settings::Metric;
use text::Pen;
use theme::Theme;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &AppState, theme: &Theme) {
    let screen = frame.area();
    draw_screen(frame.buffer_mut(), screen, app, theme);
    if theme.is_ascii() {
        only_ascii(frame.buffer_mut());
    }
}

/// Replaces all characters but ASCII: names of foreign programs may have any.
fn only_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            cell.set_symbol("?");
        }
    }
}

fn draw_screen(buffer: &mut Buffer, screen: Rect, app: &AppState, theme: &Theme) {
    if screen.is_empty() {
        return;
    }
    match (app.page_list(), &app.picker) {
        (Some(list), _) => help::draw(buffer, screen, list.top, app, theme),
        (_, Some(picker)) => picker::draw(buffer, screen, picker, app, theme),
        _ => draw_view(buffer, screen, app, theme),
    }
    let last = Rect { y: screen.y + screen.height - 1, height: 1, ..screen };
    match &app.overlay {
        Some(Overlay::Prompt(prompt)) => overlay::draw_prompt(buffer, screen, prompt, theme),
        Some(Overlay::Ask(ask)) => overlay::draw_ask(buffer, last, *ask, theme),
        Some(Overlay::Filters(dialog)) => overlay::draw_dialog(buffer, screen, dialog, app, theme),
        Some(Overlay::Rules(dialog)) => rules::draw(buffer, screen, dialog, app, theme),
        Some(Overlay::Menu(menu)) => menu::draw(buffer, screen, menu, theme),
        Some(Overlay::Help(_) | Overlay::Wakers(_)) | None => {}
    }
}

fn draw_view(buffer: &mut Buffer, screen: Rect, app: &AppState, theme: &Theme) {
    // The app may not have received the newest size yet. Its size decides which lines there are;
    // the true size clips them.
    let layout = app.layout();
    let mut y = screen.y;
    let mut area = |height: u16| {
        let area = Rect { y, height, ..screen }.intersection(screen);
        y = y.saturating_add(height);
        area
    };
    header::draw(buffer, area(layout.header), &layout, app, theme);
    let titles = area(layout.titles);
    let rows = area(layout.rows);
    let about = area(layout.explain);
    let filters = area(layout.filters);
    let last = area(layout.footer);
    let pen = &mut Pen::new(buffer, titles, 0);
    match app.view.pane {
        Pane::Tree | Pane::Methods => {
            let columns = app.view.columns(screen.width);
            columns::titles(pen, &columns, &columns::heading(&columns, app, theme), app, theme);
        }
        Pane::ChangedTree | Pane::ChangedMethods => changes::titles(pen, app, theme),
        Pane::Graph => graph::titles(pen, app, theme),
        Pane::Flame => flame::titles(pen, app, theme),
        Pane::ChangedFlame => flame_changes::titles(pen, app, theme),
        Pane::Threads => {
            columns::titles(pen, &app.view.columns(screen.width), "THREADS", app, theme);
        }
        Pane::Timeline => timeline::titles(pen, app, theme),
        Pane::Waits => waits::titles(pen, app, theme),
        Pane::Source => source::titles(pen, app, theme),
    }
    match app.view.pane {
        Pane::Tree => tree::draw(buffer, rows, app, theme),
        Pane::Methods => methods::draw(buffer, rows, app, theme),
        Pane::ChangedTree => changes::draw_tree(buffer, rows, app, theme),
        Pane::ChangedMethods => changes::draw_functions(buffer, rows, app, theme),
        Pane::Graph => graph::draw(buffer, rows, app, theme),
        Pane::Flame | Pane::ChangedFlame => flame::draw(buffer, rows, app, theme),
        Pane::Threads => threads::draw(buffer, rows, app, theme),
        Pane::Timeline => timeline::draw(buffer, rows, app, theme),
        Pane::Waits => waits::draw(buffer, rows, app, theme),
        Pane::Source => source::draw(buffer, rows, app, theme),
    }
    if let Some(text) = nothing_to_show(app) {
        Pen::new(buffer, rows, 0).space(1).put(text, theme.dim());
    }
    match app.view.pane {
        Pane::Flame => flame::explain(buffer, about, app, theme),
        Pane::ChangedFlame => {
            flame_changes::explain(&mut Pen::new(buffer, about, 0), app, theme);
        }
        Pane::Timeline => timeline::explain(&mut Pen::new(buffer, about, 0), app, theme),
        Pane::Waits => waits::explain(&mut Pen::new(buffer, about, 0), app, theme),
        Pane::Source => source::explain(&mut Pen::new(buffer, about, 0), app, theme),
        Pane::ChangedTree | Pane::ChangedMethods => {
            changes::explain(&mut Pen::new(buffer, about, 0), app, theme);
        }
        _ => explain::draw(buffer, about, app, theme),
    }
    if layout.filters > 0 {
        footer::draw_filters(buffer, filters, app, theme);
    }
    footer::draw(buffer, last, app, theme);
}

/// Says in one sentence why there are no rows.
fn nothing_to_show(app: &AppState) -> Option<&'static str> {
    let view = &app.view;
    let (_, rows) = view.rows_of_pane();
    if rows > 0 {
        return None;
    }
    let Some(snapshot) = &view.snapshot else {
        return Some(match app.config.waits_for {
            Some(_) => "it is watched as soon as it is there (q quits)",
            None => "attaching: the first stacks come within a second",
        });
    };
    if view.pane == Pane::Source {
        return Some(source::nothing(&view.source));
    }
    if view.pane == Pane::Graph && !view.projection.total.is_empty() {
        return Some("the function has no row of its own here (o: all functions; 1: the tree)");
    }
    if view.pane == Pane::Waits && !view.projection.total.is_empty() {
        return Some("no long wait of a shown thread was observed in this range");
    }
    if view.pane == Pane::Timeline && !view.projection.total.is_empty() {
        return Some("these threads have no time in this range (L: live again)");
    }
    let hidden = &view.projection.hidden;
    let by_filters = hidden.by_filters().into_iter().chain([&hidden.filtered_idle]);
    let filtered: u64 = by_filters.map(|part| part.wall_ns).sum();
    Some(if snapshot.stopped {
        "sampling is stopped (X goes on)"
    } else if view.projection.total.wall_ns > 0 && view.settings.metric != Metric::Wall {
        "none of this time in the range (m: another metric)"
    } else if view.projection.total.wall_ns > 0 {
        "every row is under the minimum percent (f changes it)"
    } else if filtered > 0 {
        "the filters hide everything (f changes them)"
    } else if hidden.idle.wall_ns > 0 {
        "all threads are idle (i shows what they wait for)"
    } else if snapshot.is_over() {
        "the process has ended, and nothing was sampled in this range (w all shows everything)"
    } else if snapshot.is_waiting() {
        "no process to watch now; the next one is watched as soon as it starts"
    } else {
        "no stacks in this range yet"
    })
}
