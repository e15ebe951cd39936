//! The views of changes: the shares of each row now and in the baseline, and their difference.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::branch;
use super::columns::{self, Column};
use super::label;
use super::text::{Pen, cut_end, percent, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::baseline::Compared;
use crate::app::change_columns::{ChangeColumn, ChangeColumns};
use crate::app::change_rows::{ChangeRow, change_of, label as label_of};
use crate::app::flame_changes::ZERO;
use crate::app::pane::Pane;
use crate::app::rows::What;
use crate::model::projection::Label;
use crate::model::transform::diff::{Change, Pair, Sums};

pub fn titles(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let changes = &app.view.changes;
    let columns = ChangeColumns::new(pen.room() as u16);
    let arrow = if changes.reverse { theme.glyphs.ascending } else { theme.glyphs.descending };
    for column in &columns.shown {
        let sorted = changes.sort == *column;
        let title = match column {
            ChangeColumn::Now => columns::title(Column::Total, &app.view.shown),
            ChangeColumn::Change => "+/-",
            ChangeColumn::Before => "BEFORE",
            ChangeColumn::SelfNow => columns::title(Column::SelfTime, &app.view.shown),
            ChangeColumn::SelfChange => "SELF+/-",
            ChangeColumn::Name if sorted => "WHERE",
            ChangeColumn::Name => "  WHERE",
            ChangeColumn::Module => "MODULE",
        };
        let style = if sorted { theme.bold() } else { theme.title() };
        let title = if sorted { format!("{arrow}{title}") } else { title.to_owned() };
        match column {
            ChangeColumn::SelfNow => pen.put_right(&title, column.width(), style),
            ChangeColumn::Name => pen.space(1).put_left(&title, columns.name, style),
            ChangeColumn::Module => pen.space(1).put_left(&title, column.width() - 1, style),
            _ => pen.put_right(&title, column.width() - 1, style).space(1),
        };
    }
}

pub fn draw_tree(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let Some(compared) = &app.view.compared else { return };
    let columns = ChangeColumns::new(area.width);
    let tree = &app.view.changes.tree;
    for y in 0..area.height {
        let at = tree.list.top + usize::from(y);
        let Some(row) = tree.rows.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        let change = change_of(&compared.diff, row);
        let own = compared.diff.change(&row.own);
        for column in &columns.shown {
            match column {
                ChangeColumn::Name => {
                    let unresolved = !change.is_resolved();
                    draw_name(&mut pen, row, columns.name, unresolved, compared, app, theme);
                }
                ChangeColumn::Module => {
                    let module = match row.what {
                        What::Node(node) => &compared.diff.nodes[node as usize].location.module,
                        What::Group(_) | What::Small(_) | What::SmallGroups => "",
                    };
                    put_module(&mut pen, module, theme);
                }
                column => write(*column, &mut pen, (&change, &own), (&row.total, &row.own), theme),
            }
        }
        if at == tree.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

pub fn draw_functions(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let Some(compared) = &app.view.compared else { return };
    let columns = ChangeColumns::new(area.width);
    let functions = &app.view.changes.functions;
    for y in 0..area.height {
        let at = functions.list.top + usize::from(y);
        let Some(function) = functions.rows.get(at) else { break };
        let function = &compared.diff.functions[*function as usize];
        let sums = (compared.diff.sums(&function.total), compared.diff.sums(&function.own));
        let (change, own) = (compared.diff.change(&sums.0), compared.diff.change(&sums.1));
        let mut pen = Pen::new(buffer, area, y);
        for column in &columns.shown {
            match column {
                ChangeColumn::Name => {
                    pen.space(3);
                    let room = columns.name.saturating_sub(2);
                    let label = Label::of_function(&function.location);
                    let unresolved = !change.is_resolved() && !own.is_resolved();
                    label::put(&mut pen, &label, room, unresolved, app, theme);
                }
                ChangeColumn::Module => put_module(&mut pen, &function.location.module, theme),
                column => write(*column, &mut pen, (&change, &own), (&sums.0, &sums.1), theme),
            }
        }
        if at == functions.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

fn put_module(pen: &mut Pen<'_>, module: &str, theme: &Theme) {
    pen.space(1).put_left(&cut_end(module, 18, theme.glyphs.cut), 18, theme.dim());
}

/// Writes a figure. A share without time is a dot; a difference that may be due to sampling is dim
/// and has a `~`.
fn write(
    column: ChangeColumn,
    pen: &mut Pen<'_>,
    (total, own): (&Change, &Change),
    (total_ns, own_ns): (&Pair<Sums>, &Pair<Sums>),
    theme: &Theme,
) {
    let share = |value: f64, ns: u64| match ns {
        0 => (".".to_owned(), theme.dim()),
        _ => (percent(value / 100.0), theme.plain()),
    };
    let difference =
        |change: &Change, ns: &Pair<Sums>| match (ns.before.value_ns, ns.after.value_ns) {
            (0, 0) => (String::new(), " ", theme.dim()),
            _ if change.change.abs() < ZERO => ("0.0".to_owned(), " ", theme.dim()),
            _ if !change.is_resolved() => (points(change.change), "~", theme.dim()),
            _ => (points(change.change), " ", theme.bold()),
        };
    let mut put = |text: &str, cells: usize, mark: &str, style: Style| {
        pen.put_right(text, cells - width(mark), style).put(mark, style);
    };
    let cells = column.width();
    match column {
        ChangeColumn::Now => {
            let (text, style) = share(total.after, total_ns.after.value_ns);
            put(&text, cells, " ", style);
        }
        ChangeColumn::Before => {
            let (text, style) = share(total.before, total_ns.before.value_ns);
            put(&text, cells, " ", style);
        }
        ChangeColumn::SelfNow => {
            let (text, style) = share(own.after, own_ns.after.value_ns);
            put(&text, cells, "", style);
        }
        ChangeColumn::Change => {
            let (text, mark, style) = difference(total, total_ns);
            put(&text, cells, mark, style);
        }
        ChangeColumn::SelfChange => {
            let (text, mark, style) = difference(own, own_ns);
            put(&text, cells, mark, style);
        }
        ChangeColumn::Name | ChangeColumn::Module => {}
    }
}

pub(super) fn points(value: f64) -> String {
    match format!("{value:+.1}").as_str() {
        "+0.0" | "-0.0" => "0.0".to_owned(),
        text => text.to_owned(),
    }
}

fn draw_name(
    pen: &mut Pen<'_>,
    row: &ChangeRow,
    cells: usize,
    unresolved: bool,
    compared: &Compared,
    app: &AppState,
    theme: &Theme,
) {
    let room = branch::put_indent(pen, (row.depth, row.chained), row.fold, cells, theme);
    match row.what {
        What::Group(group) => {
            let group = &compared.diff.groups[group as usize];
            let Pair { before, after } = group.threads;
            let threads = match (before, after) {
                (1, 1) => "1 thread".to_owned(),
                (before, after) if before == after => format!("{after} threads"),
                (before, after) => format!("{before} -> {after} threads"),
            };
            let has_room = room.saturating_sub(width(&threads)) > 12;
            let right = if has_room { threads } else { String::new() };
            let room = room - width(&right);
            let style = if unresolved { theme.dim() } else { theme.group() };
            let name = label::group_name(&group.name, room.saturating_sub(1), theme);
            label::put_found(pen, &name, room, style, app, theme);
            pen.put(&right, theme.dim());
        }
        What::Node(node) => {
            let label = label_of(&compared.diff, node, row.swallowed);
            label::put(pen, &label, room, unresolved, app, theme);
        }
        What::Small(_) | What::SmallGroups => {
            branch::put_small(pen, row.what, row.small, "0.5 % on both sides", room, theme);
        }
    }
}

/// Says of the row under the cursor: its shares, their difference, and its bounds.
pub fn explain(pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
    let Some(compared) = &app.view.compared else { return };
    let (diff, changes) = (&compared.diff, &app.view.changes);
    let of_self = changes.sort == ChangeColumn::SelfChange;
    let change = match app.view.pane == Pane::ChangedMethods {
        true => changes.functions.selected().map(|function| {
            let function = &diff.functions[function as usize];
            diff.change_of(if of_self { &function.own } else { &function.total })
        }),
        false => changes.tree.selected().map(|row| match of_self {
            true => diff.change(&row.own),
            false => change_of(diff, &row),
        }),
    };
    let Some(change) = change else { return };
    let what = if of_self { "self time " } else { "" };
    let text = format!("{what}{}", words(&change));
    pen.space(1).put("> ", theme.bold());
    let room = pen.room().saturating_sub(1);
    pen.put(&cut_end(&text, room, theme.glyphs.cut), theme.plain());
}

/// Says what a change is in numbers, with its bounds.
pub(super) fn words(change: &Change) -> String {
    let [before, after] = [change.before, change.after].map(|share| percent(share / 100.0));
    let (difference, low, high) = (points(change.change), points(change.low), points(change.high));
    let is_measured = change.is_resolved() && change.low == change.high;
    if change.before == change.after || is_measured && difference == "0.0" {
        return format!("before {before} %, now {after} %: no difference");
    }
    match change.is_resolved() {
        true if is_measured => {
            format!("before {before} %, now {after} %: {difference} points, measured")
        }
        true => format!(
            "before {before} %, now {after} %: {difference} points, {low} to {high} (95 % sure)"
        ),
        false => format!(
            "before {before} %, now {after} %: {difference} may be due to sampling ({low} to {high})"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_nothing_has_no_sign() {
        assert_eq!([0.04, -0.04, 0.06, -0.06].map(points), ["0.0", "0.0", "+0.1", "-0.1"]);
    }
}
