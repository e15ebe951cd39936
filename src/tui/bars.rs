//! Words about the bars of the flame graph, compared or not.

use super::label;
use super::text::{cut_end, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::flame::{Bar, BarOf};
use crate::model::projection::settings::Metric;

/// Minimum cells of a name in a bar.
pub const NAME_LEAST: usize = 3;

/// Returns what the width of bars is.
pub fn width_is(app: &AppState) -> &'static str {
    match app.view.shown.metric {
        Metric::Wall if app.view.shown.idle => "time",
        Metric::Wall => "busy time",
        Metric::Cpu => "CPU time",
        Metric::Off => "time off the CPU",
    }
}

/// Returns what is said of a zoom.
pub fn zoom_is(app: &AppState) -> &'static str {
    if app.view.flame.zoom.is_some() { ", zoomed (Esc: all)" } else { "" }
}

/// Returns the name of a bar, in at most `cells`.
pub fn name(bar: Bar, cells: usize, app: &AppState, theme: &Theme) -> String {
    let trees = app.view.trees();
    match bar.of {
        BarOf::All => cut_end("all threads", cells, theme.glyphs.cut).into_owned(),
        BarOf::Group(group) => {
            let group = &trees.groups[group as usize];
            let whole = format!("{} ({})", group.name, group.thread_count());
            let name = if width(&whole) <= cells { &whole } else { &*group.name };
            label::group_name(name, cells, theme).into_owned()
        }
        BarOf::Node(node) => {
            label::name(trees.location(node, app.view.shown.metric), cells, app, theme)
        }
    }
}

/// Returns the line number of a node, if one is known and has a meaning.
pub fn line_of(node: u32, app: &AppState) -> String {
    let location = app.view.trees().location(node, app.view.shown.metric);
    match (location.line, app.view.shown.roll_up.joins()) {
        (Some(line), false) => format!(" :{line}"),
        _ => String::new(),
    }
}
