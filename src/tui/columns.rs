//! Titles of columns, and the figures of one row. The same for tree and methods.

use ratatui::style::Style;

use super::text::{Pen, average, count, milliseconds, percent, width};
use super::theme::Theme;
use crate::app::AppState;
pub use crate::app::columns::Column;
use crate::app::columns::Columns;
use crate::app::pane::Pane;
use crate::model::projection::settings::{Metric, RollUp, Settings};
use crate::model::projection::{RowTrend, SLICES, Totals, confidence};

use Column::*;

/// Returns the title of a column, without that of names.
pub fn title(column: Column, settings: &Settings) -> &'static str {
    match (column, settings.metric) {
        // Idle time is no busy time.
        (Total, Metric::Wall) | (Beside, Metric::Cpu) if settings.idle => "WALL%",
        (Total, Metric::Wall) | (Beside, Metric::Cpu) => "BUSY%",
        (Total, Metric::Cpu) | (Beside, Metric::Wall | Metric::Off) => "CPU%",
        (Total, Metric::Off) => "OFF%",
        (SelfTime, _) => "SELF%",
        (Change, _) => "+/-",
        (Trend, _) => "TREND",
        (Bar, _) => "SHARE",
        (Threads, _) => "THR",
        (State, _) => "STATE",
        (Milliseconds, _) => "TOTAL ms",
        (Hits, _) => "HITS",
        (Name, _) => "",
        (Module, _) => "MODULE",
        (Now, _) => "NOW",
        (States, _) => "STATES",
        (MostlyIn, _) => "MOSTLY IN",
    }
}

/// Writes the titles of the columns; `name`: that of names. The column by which rows are sorted has
/// an arrow.
pub fn titles(pen: &mut Pen<'_>, columns: &Columns, name: &str, app: &AppState, theme: &Theme) {
    let arrow = match app.view.settings.reverse {
        true => theme.glyphs.ascending,
        false => theme.glyphs.descending,
    };
    for column in &columns.shown {
        let sorted = columns.sorted == Some(*column);
        let style = if sorted { theme.bold() } else { theme.title() };
        let title = if *column == Name { name } else { title(*column, &app.view.shown) };
        let title = if sorted { format!("{arrow}{title}") } else { title.to_string() };
        match column {
            Total => pen.put_right(&title, column.width() - 1, style).space(1),
            Trend | Bar | State | Module | Now | States => {
                pen.space(1).put_left(&title, column.width() - 1, style)
            }
            MostlyIn => pen.space(1).put(&title, style),
            Name => pen.space(1).put_left(&title, columns.name, style),
            _ => pen.put_right(&title, column.width(), style),
        };
    }
}

/// Returns the title of names in the tree and in the methods.
pub fn heading(columns: &Columns, app: &AppState, theme: &Theme) -> String {
    let title = match app.view.settings.roll_up {
        _ if app.view.pane == Pane::Tree && app.view.shown.inverted => {
            format!("WHERE, {}CALLED BY", theme.glyphs.called_by)
        }
        RollUp::Function | RollUp::Line => "WHERE".to_owned(),
        other => other.heading().to_owned(),
    };
    // The marks of open and closed rows stand left of the names.
    let margin = if columns.sorted == Some(Name) { "" } else { "  " };
    format!("{margin}{title}")
}

/// Returns whether the column that says how much rows grew has room.
fn has_change(app: &AppState) -> bool {
    app.view.columns(app.width).shown.contains(&Change)
}

/// One row's figures.
pub struct Figures<'a> {
    pub total: Totals,
    pub own: Totals,
    /// `None` where it is not known yet.
    pub trend: Option<&'a RowTrend>,
}

impl Figures<'_> {
    /// Returns true where the row is drawn dim with `~`.
    pub fn is_unresolved(&self, app: &AppState) -> bool {
        let interval = app.view.snapshot.as_ref().map_or(0, |s| s.resolution());
        confidence(&self.total, &app.view.projection.total, app.view.settings.metric, interval)
            .unresolved
    }

    /// Returns whether its share grew within the range.
    fn grows(&self) -> bool {
        self.trend.and_then(|trend| trend.change).is_some_and(|points| points > 0.0)
    }

    /// Writes one column, except the name and the module, which the caller writes.
    pub fn write(
        &self,
        column: Column,
        pen: &mut Pen<'_>,
        app: &AppState,
        theme: &Theme,
        unresolved: bool,
    ) {
        let metric = app.view.settings.metric;
        let projection = &app.view.projection;
        let (shown, elapsed) = (&projection.total, projection.elapsed());
        let number = if unresolved { theme.dim() } else { theme.plain() };
        let faint = |value: f64, least: f64| if value < least { theme.dim() } else { number };
        let (total, own) = (self.total.share(metric, shown), self.own.share(metric, shown));
        match column {
            Total => {
                let mark = match unresolved {
                    true => "~",
                    false if self.grows() && !has_change(app) => theme.glyphs.grows,
                    false => " ",
                };
                pen.put_right(&percent(total), 7, number).put(mark, number);
            }
            SelfTime => {
                pen.put_right(&percent(own), 7, faint(own, 0.0005));
            }
            Change => {
                let change = self.trend.and_then(|trend| trend.change);
                let grows = self.grows();
                let mark = if grows { theme.glyphs.grows } else { "" };
                let text = change.map_or(String::new(), |points| format!("{mark}{points:+.1}"));
                let style = if grows && !unresolved { theme.bold() } else { number };
                pen.put_right(&text, 7, style);
            }
            Trend => {
                let style = if unresolved { theme.dim() } else { theme.bar() };
                let levels = self.trend.and_then(|trend| trend.levels);
                let highest = theme.glyphs.spark.len() - 1;
                let glyph =
                    |level: f64| theme.glyphs.spark[(level * highest as f64).round() as usize];
                let text: String = levels.iter().flatten().map(|level| glyph(*level)).collect();
                pen.space(1).put_left(&text, SLICES, style);
            }
            Bar => {
                let cells = |share: f64| (share.clamp(0.0, 1.0) * 10.0).round() as usize;
                let (own, total) = (cells(own), cells(total).max(cells(own)));
                let [full, light, none] = theme.glyphs.bar;
                let bar = full.repeat(own) + &light.repeat(total - own) + &none.repeat(10 - total);
                pen.space(1).put(&bar, theme.bar());
            }
            Threads => {
                let threads = self.total.threads(metric, elapsed);
                pen.put_right(&average(threads), 5, faint(threads, 0.05));
            }
            Beside => {
                let share = self.total.share(metric.beside(), shown);
                pen.put_right(&percent(share), 7, faint(share, 0.0005));
            }
            State => self.write_state(pen, app, theme, unresolved),
            Milliseconds => {
                pen.put_right(&milliseconds(self.total.value(metric)), 9, number);
            }
            Hits => {
                pen.put_right(&count(self.total.value_hits(metric)), 7, number);
            }
            Name | Module | Now | States | MostlyIn => {}
        }
    }

    /// Writes ` rdy 84%`. Omits the figure where one state is most of the row, or where too few
    /// hits make it unreliable.
    fn write_state(&self, pen: &mut Pen<'_>, app: &AppState, theme: &Theme, unresolved: bool) {
        pen.space(1);
        let Some((state, part)) = self.total.main_state(app.view.settings.metric) else {
            pen.space(10);
            return;
        };
        let style: Style = theme.state(state);
        let part = (part * 100.0).round();
        let figure =
            if unresolved || part >= 90.0 { String::new() } else { format!(" {part:.0}%") };
        let text = format!("{}{figure}", state.word());
        // A figure that is cut says less than none.
        let text = if width(&text) > 10 { state.word() } else { &text };
        pen.put_left(text, 10, style);
    }
}
