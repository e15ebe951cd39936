//! The flame graph: bars as wide as their share of the time, callees below their callers.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::bars::{NAME_LEAST, line_of, name, width_is, zoom_is};
use super::text::{Pen, percent, width};
use super::theme::Theme;
use super::{explain, flame_changes, label};
use crate::app::AppState;
use crate::app::flame::{Bar, BarOf};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// Cells of a share behind a name.
const SHARE: usize = 6;

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let (of, zoom) = (width_is(app), zoom_is(app));
    let below = if view.shown.inverted { "callers" } else { "callees" };
    let title = format!("FLAME: width is {of}, {below} below{zoom}");
    pen.space(1).put(&title, theme.title());
    let words: Vec<(&str, Style)> = match view.flame.by_state {
        true => {
            let states = [State::Run, State::Rdy, State::Lock, State::Io, State::Wait, State::Disk];
            states.map(|state| (state.word(), theme.bar_of_state(state))).to_vec()
        }
        false => {
            let roles = [Role::App, Role::Library, Role::Runtime, Role::Kernel];
            roles.map(|role| (word(role), theme.bar_of_role(role))).to_vec()
        }
    };
    let cells: usize = words.iter().map(|(word, _)| word.len() + 1).sum();
    if theme.palette.has_colors() && pen.room() > cells + 1 {
        let gap = pen.room() - cells - 1;
        pen.space(gap);
        for (word, style) in words {
            pen.space(1).put(word, style);
        }
    }
}

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let flame = &app.view.flame;
    let selected = flame.selected();
    let lines = flame.lines.iter().skip(flame.list.top);
    for (y, line) in (0..area.height).zip(lines) {
        for bar in line {
            let mut style = style(*bar, app, theme);
            if selected == Some(*bar) {
                style = style.patch(theme.selected_bar());
            }
            let cells = usize::from(bar.cells);
            let mut pen = Pen::new(buffer, area, y);
            pen.space(usize::from(bar.from)).put(theme.glyphs.edge, style);
            let text = text(*bar, cells - 1, app, theme);
            label::put_found(
                &mut pen,
                &format!("{text:0$}", cells - 1),
                cells - 1,
                style,
                app,
                theme,
            );
        }
    }
}

fn style(bar: Bar, app: &AppState, theme: &Theme) -> Style {
    let view = &app.view;
    let style = match (view.bar_change(bar.of), bar.of) {
        (Some(change), _) => theme.bar_of_change(change.verdict, change.is_strong()),
        (None, of) if view.flame.by_state => {
            let state = view.bar_totals(of).0.main_state(view.shown.metric);
            state.map_or_else(|| theme.plain(), |(state, _)| theme.bar_of_state(state))
        }
        (None, BarOf::Node(node)) => theme.bar_of_role(view.trees().role(node)),
        (None, BarOf::All | BarOf::Group(_)) => theme.group(),
    };
    let found = view.search.as_ref().is_some_and(|search| view.is_bar_match(bar, search));
    match (found, bar.is_above) {
        (true, _) => style.patch(theme.bold()),
        (_, true) => style.patch(theme.dim()),
        _ => style,
    }
}

/// Returns what stands in a bar: its name and, where there is room, its share.
fn text(bar: Bar, cells: usize, app: &AppState, theme: &Theme) -> String {
    if let Some(change) = app.view.bar_change(bar.of) {
        return flame_changes::text(bar, &change, cells, app, theme);
    }
    if cells < NAME_LEAST {
        return String::new();
    }
    let name = name(bar, cells, app, theme);
    let share = share(bar, app);
    match width(&name) + SHARE < cells {
        true => format!("{name} {share}"),
        false => name,
    }
}

fn share(bar: Bar, app: &AppState) -> String {
    let view = &app.view;
    let share = view.bar_totals(bar.of).0.share(view.shown.metric, &view.projection.total);
    format!("{}%", percent(share))
}

/// Says what the selected bar is, then what its threads do: most bars are too narrow for a name.
pub fn explain(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let Some(bar) = view.flame.selected() else { return };
    let mut pen = Pen::new(buffer, area, 0);
    let (total, own) = view.bar_totals(bar.of);
    let own = own.share(view.shown.metric, &view.projection.total);
    let own = if own >= 0.0005 { format!(", {}% its own", percent(own)) } else { String::new() };
    let (line, whose) = match bar.of {
        BarOf::Node(node) => (line_of(node, app), word(view.trees().role(node))),
        BarOf::All | BarOf::Group(_) => (String::new(), ""),
    };
    let whose = if whose.is_empty() { String::new() } else { format!("  {whose}") };
    let figures = format!("  {}{own}{whose}", share(bar, app));
    let room = pen.room().saturating_sub(1 + width(&figures) + width(&line));
    let name = name(bar, room, app, theme);
    pen.space(1).put(&name, theme.bold()).put(&line, theme.dim()).put(&figures, theme.plain());
    if let Some((state, part)) = total.main_state(view.shown.metric) {
        let state_text = format!("  {} {:.0}%", state.word(), part * 100.0);
        if pen.room() > width(&state_text) {
            pen.put(&state_text, theme.state(state));
        }
    }
    let rest = pen.room() as u16;
    if rest > 20 {
        let area = Rect { x: area.x + area.width - rest + 1, width: rest - 1, ..area };
        explain::draw(buffer, area, app, theme);
    }
}

/// Returns the word for whose code a bar is.
fn word(role: Role) -> &'static str {
    match role {
        Role::App => "yours",
        Role::Library => "library",
        Role::Runtime => "runtime",
        Role::Kernel => "kernel",
        Role::Wait => "waits",
        Role::Marker => "",
    }
}
