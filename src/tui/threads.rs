//! The view of threads: what each thread or group does now, how its time is split by state, and in
//! which function it mostly is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::columns::{Column, Figures};
use super::label;
use super::text::{Pen, cut_start};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::columns::Columns;
use crate::model::projection::settings::Metric;
use crate::model::projection::{GroupNow, Label, Totals};
use crate::model::vocabulary::state::State;

/// Cells of the states of a row's time, and of what most threads do now.
const CELLS: usize = 10;

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let view = &app.view;
    let columns = view.columns(area.width);
    for y in 0..area.height {
        let at = view.threads.list.top + usize::from(y);
        let Some(group) = view.threads.rows.get(at) else { break };
        let mut pen = Pen::new(buffer, area, y);
        draw_row(&mut pen, (at, *group), &columns, app, theme);
        if at == view.threads.list.cursor {
            pen.restyle_line(area, theme.selected());
        }
    }
}

fn draw_row(
    pen: &mut Pen<'_>,
    (at, index): (usize, u32),
    columns: &Columns,
    app: &AppState,
    theme: &Theme,
) {
    let view = &app.view;
    let group = &view.projection.groups[index as usize];
    let figures = Figures { total: group.total, own: Totals::default(), trend: view.trend(at) };
    let unresolved = figures.is_unresolved(app);
    for column in &columns.shown {
        match column {
            Column::Now => write_now(pen, view.projection.now_of_groups.get(index as usize), theme),
            Column::States => {
                pen.space(1);
                let states = split(&group.total, view.shown.metric);
                for state in &states {
                    pen.put(letter(*state), theme.state(*state));
                }
                pen.space(CELLS - states.len());
            }
            Column::Name => {
                let name = match group.threads.len() {
                    0 | 1 => group.name.to_string(),
                    n => format!("{} ({n})", group.name),
                };
                // The number at the end tells threads apart.
                let name = cut_start(&name, columns.name, theme.glyphs.cut);
                let style = if unresolved { theme.dim() } else { theme.group() };
                pen.space(1).put_left(&name, columns.name, style);
            }
            Column::MostlyIn => {
                let Some(node) = view.main_function(index) else { continue };
                let room = pen.room().saturating_sub(2);
                let label = Label::of_function(view.node_location(node));
                label::put(pen.space(1), &label, room, unresolved, app, theme);
            }
            column => figures.write(*column, pen, app, theme, unresolved),
        }
    }
}

/// Writes what most of the threads do now: `29 lock`, `idle`.
fn write_now(pen: &mut Pen<'_>, now: Option<&GroupNow>, theme: &Theme) {
    let most = now.and_then(|now| {
        let busy = State::ALL.into_iter().map(|state| (now.busy[state as usize], state));
        let (count, state) = busy.reduce(|most, next| if next.0 > most.0 { next } else { most })?;
        (count > 0).then_some((count, state))
    });
    pen.space(1);
    match (most, now) {
        (Some((1, state)), Some(now)) if now.threads() == 1 => {
            pen.put_left(state.word(), CELLS, theme.state(state));
        }
        (Some((count, state)), _) => {
            pen.put_left(&format!("{count} {}", state.word()), CELLS, theme.state(state));
        }
        (None, Some(now)) if now.idle > 0 => {
            pen.put_left("idle", CELLS, theme.dim());
        }
        _ => {
            pen.put_left("", CELLS, theme.dim());
        }
    }
}

/// Returns the states of a row's time, each as often as it has tenths; none if there is no time.
fn split(total: &Totals, metric: Metric) -> Vec<State> {
    let of = |state: State| match (metric, state) {
        (Metric::Wall, _) => total.states_ns[state as usize],
        (Metric::Cpu, State::Run) => total.cpu_ns,
        (Metric::Cpu, _) => 0,
        (Metric::Off, State::Run) => total.states_ns[state as usize].saturating_sub(total.cpu_ns),
        (Metric::Off, _) => total.states_ns[state as usize],
    };
    let whole: u128 = State::ALL.into_iter().map(|state| u128::from(of(state))).sum();
    if whole == 0 {
        return Vec::new();
    }
    let mut states = Vec::with_capacity(CELLS);
    let mut before = 0u128;
    for state in State::ALL {
        before += u128::from(of(state));
        // Up to here as many cells as the sum so far has tenths: all of them at the end.
        let cells = ((before * 2 * CELLS as u128 + whole) / (2 * whole)) as usize;
        states.resize(cells.max(states.len()), state);
    }
    states
}

/// Returns the letter of a state: the first one of its word that no other state has.
pub(super) fn letter(state: State) -> &'static str {
    match state {
        State::Run => "r",
        State::Rdy => "y",
        State::Lock => "l",
        State::Wait => "w",
        State::Io => "i",
        State::Poll => "p",
        State::Sleep => "s",
        State::Disk => "d",
        State::Stopped => "t",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn totals(parts: &[(State, u64)]) -> Totals {
        let mut totals = Totals::default();
        for (state, ns) in parts {
            totals.states_ns[*state as usize] += ns;
            totals.wall_ns += ns;
        }
        totals
    }

    fn letters(parts: &[(State, u64)]) -> String {
        split(&totals(parts), Metric::Wall).into_iter().map(letter).collect()
    }

    #[test]
    fn a_split_has_ten_cells() {
        assert_eq!(letters(&[(State::Run, 40), (State::Lock, 60)]), "rrrrllllll");
        assert_eq!(letters(&[(State::Io, 7)]), "iiiiiiiiii");
        assert_eq!(letters(&[(State::Run, 1), (State::Io, 1), (State::Lock, 1)]).len(), CELLS);
        assert_eq!(letters(&[(State::Run, 1), (State::Sleep, u64::MAX / 2)]), "ssssssssss");
        assert_eq!(letters(&[]), "");
    }

    #[test]
    fn no_two_states_have_one_letter() {
        let letters: HashSet<_> = State::ALL.map(letter).into();
        assert_eq!(letters.len(), State::COUNT);
    }
}
