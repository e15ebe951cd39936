//! Which columns fit the screen, their titles, and the figures of one row. The same for tree and
//! methods.

use ratatui::style::Style;

use super::text::{Pen, average, count, milliseconds, percent};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::pane::Pane;
use crate::model::projection::settings::{Metric, RollUp, Settings, SortColumn};
use crate::model::projection::{RowTrend, SLICES, Totals, confidence};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    Total,
    SelfTime,
    /// CPU time beside wall time, and the other way round.
    Beside,
    /// Change of the share from the older half of the range to the newer.
    Change,
    /// Time over the range, as a sparkline.
    Trend,
    Bar,
    Threads,
    State,
    Milliseconds,
    Hits,
    /// The name and, at its right end, the line.
    Name,
    Module,
}

use Column::*;

/// All columns, from left to right.
const ORDER: [Column; 12] =
    [Total, SelfTime, Beside, Change, Trend, Bar, Threads, State, Milliseconds, Hits, Name, Module];

/// The order in which columns are added, each with the minimum cells that the name must keep.
const PRIORITY: [(Column, usize); 11] = [
    (Total, 12),
    (SelfTime, 30),
    (State, 30),
    (Beside, 30),
    (Threads, 44),
    (Change, 44),
    (Trend, 44),
    (Milliseconds, 44),
    (Hits, 44),
    (Bar, 44),
    (Module, 44),
];

impl Column {
    /// Returns the width in cells, including the space before the column.
    fn width(self) -> usize {
        match self {
            Total => 8,
            SelfTime | Beside | Change => 7,
            Trend => 1 + SLICES,
            Bar => 11,
            Threads => 5,
            State => 11,
            Milliseconds => 9,
            Hits => 7,
            Module => 19,
            Name => 0,
        }
    }

    pub fn title(self, settings: &Settings) -> &'static str {
        match (self, settings.metric) {
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
        }
    }

    fn sorted_by(self) -> Option<SortColumn> {
        match self {
            Total => Some(SortColumn::Total),
            SelfTime => Some(SortColumn::SelfTime),
            Threads => Some(SortColumn::Threads),
            Beside => Some(SortColumn::Cpu),
            State => Some(SortColumn::State),
            Name => Some(SortColumn::Name),
            Change | Trend | Bar | Milliseconds | Hits | Module => None,
        }
    }
}

/// The columns of a screen, from left to right, and the remaining cells for the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    pub shown: Vec<Column>,
    pub name: usize,
}

impl Columns {
    /// `trends`: the shown range has trends.
    pub fn new(width: u16, trends: bool) -> Columns {
        // The space before the name, and one at the end of the line.
        let mut name = usize::from(width).saturating_sub(2);
        let mut shown = vec![Name];
        let fits = |column: &Column| trends || !matches!(column, Change | Trend);
        for (column, least) in PRIORITY.into_iter().filter(|(column, _)| fits(column)) {
            // A later column is never shown where an earlier one had no room.
            if name < column.width() + least {
                break;
            }
            name -= column.width();
            shown.push(column);
        }
        shown.sort_by_key(|c| ORDER.iter().position(|o| o == c));
        Columns { shown, name }
    }

    pub fn titles(&self, pen: &mut Pen<'_>, app: &AppState, theme: &Theme) {
        let settings = &app.view.settings;
        let arrow = if settings.reverse { theme.glyphs.ascending } else { theme.glyphs.descending };
        for column in &self.shown {
            let sorted = column.sorted_by() == Some(settings.sort);
            let style = if sorted { theme.bold() } else { theme.title() };
            let title = match column {
                Name if app.view.pane == Pane::Tree && app.view.shown.inverted => {
                    format!("WHERE, {}CALLED BY", theme.glyphs.called_by)
                }
                Name => heading(settings.roll_up).to_owned(),
                column => column.title(&app.view.shown).to_owned(),
            };
            let title = if sorted { format!("{arrow}{title}") } else { title };
            match column {
                Total => pen.put_right(&title, column.width() - 1, style).space(1),
                Trend | Bar | State => pen.space(1).put_left(&title, column.width() - 1, style),
                Module => pen.space(1).put_left(&title, column.width() - 1, style),
                Name => {
                    // The marks of open and closed rows stand left of the names.
                    let margin = if sorted { "" } else { "  " };
                    let title = format!("{margin}{title}");
                    pen.space(1).put_left(&title, self.name, style)
                }
                _ => pen.put_right(&title, column.width(), style),
            };
        }
    }
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
                pen.put_right(&percent(total), 7, number)
                    .put(if unresolved { "~" } else { " " }, number);
            }
            SelfTime => {
                pen.put_right(&percent(own), 7, faint(own, 0.0005));
            }
            Change => {
                let change = self.trend.and_then(|trend| trend.change);
                let text = change.map_or(String::new(), |points| format!("{points:+.1}"));
                pen.put_right(&text, 7, number);
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
                let share = self.total.share(beside(metric), shown);
                pen.put_right(&percent(share), 7, faint(share, 0.0005));
            }
            State => self.write_state(pen, app, theme, unresolved),
            Milliseconds => {
                pen.put_right(&milliseconds(self.total.value(metric)), 9, number);
            }
            Hits => {
                pen.put_right(&count(self.total.value_hits(metric)), 7, number);
            }
            Name | Module => {}
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
        pen.put_left(&format!("{}{figure}", state.word()), 10, style);
    }
}

fn heading(roll_up: RollUp) -> &'static str {
    match roll_up {
        RollUp::Function | RollUp::Line => "WHERE",
        other => other.heading(),
    }
}

/// Returns the metric of the column beside that of `metric`.
fn beside(metric: Metric) -> Metric {
    match metric {
        Metric::Wall | Metric::Off => Metric::Cpu,
        Metric::Cpu => Metric::Wall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::layout::TRENDS_FROM;

    #[test]
    fn the_name_comes_first() {
        for (width, trends) in (0..=300).flat_map(|width| [(width, false), (width, true)]) {
            let columns = Columns::new(width, trends);
            let used: usize = columns.shown.iter().map(|c| c.width()).sum();
            assert_eq!(used + columns.name, usize::from(width).saturating_sub(2));
            if width >= 44 {
                assert!(columns.name >= 30, "{width}: {columns:?}");
            }
            if columns.shown.contains(&Threads) {
                assert!(columns.name >= 44, "{width}: {columns:?}");
            }
        }
        let of = |width| Columns::new(width, true).shown;
        assert_eq!(of(40), [Total, Name]);
        assert_eq!(of(80), [Total, SelfTime, Beside, State, Name]);
        assert_eq!(of(100), [Total, SelfTime, Beside, Change, Trend, Threads, State, Name]);
        assert_eq!(
            of(120),
            [Total, SelfTime, Beside, Change, Trend, Threads, State, Milliseconds, Hits, Name]
        );
        assert_eq!(of(200), ORDER);
    }

    #[test]
    fn wider_screens_add_columns() {
        for trends in [false, true] {
            for width in 0..300 {
                let [less, more] =
                    [width, width + 1].map(|width| Columns::new(width, trends).shown);
                assert!(less.iter().all(|column| more.contains(column)), "{width}: {less:?}");
            }
        }
    }

    /// Narrower screens do not read the trends.
    #[test]
    fn trends_have_a_column_only_where_they_are_read() {
        for width in 0..300 {
            let shown = Columns::new(width, true).shown;
            let has = shown.iter().any(|column| matches!(column, Change | Trend));
            assert!(!has || width >= TRENDS_FROM, "{width}");
            let plain = Columns::new(width, false).shown;
            assert!(!plain.iter().any(|column| matches!(column, Change | Trend)), "{width}");
        }
    }
}
