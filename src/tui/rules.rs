//! The dialog of thread-name rules, with what they make of the names that there are.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::overlay::{frame, put_edit};
use super::text::{Pen, cut_end, width};
use super::theme::Theme;
use crate::app::rules::{NameChange, RulesDialog, matches_nothing, preview};
use crate::app::{AppState, Severity};

/// Minimum lines of the preview.
const PREVIEW_LEAST: u16 = 4;
/// Cells of a group's name and of its number of threads.
const NAME: usize = 22;
const THREADS: usize = 5;

/// Draws the dialog over the whole screen: rules above, groups below.
pub fn draw(
    buffer: &mut Buffer,
    screen: Rect,
    dialog: &RulesDialog,
    app: &AppState,
    theme: &Theme,
) {
    let inner = frame(buffer, screen, " Thread-name rules ", theme);
    let rules = &app.view.settings.rename;
    let lines = (rules.len() as u16 + 1).min(inner.height.saturating_sub(PREVIEW_LEAST + 3)).max(1);
    let top = (dialog.at as u16 + 1).saturating_sub(lines);
    for (y, at) in (usize::from(top)..=rules.len()).take(usize::from(lines)).enumerate() {
        let mut pen = Pen::new(buffer, inner, y as u16);
        let room = pen.room();
        match (&dialog.edit, rules.get(at)) {
            (Some(edit), _) if at == dialog.at => put_edit(&mut pen, edit, room, theme),
            (_, Some(rule)) => {
                pen.put(&cut_end(&rule.typed(), room, theme.glyphs.cut), theme.plain());
            }
            (_, None) => {
                pen.put("a new rule: s/REGEX/TEXT/, after the others", theme.dim());
            }
        }
        if at == dialog.at && dialog.edit.is_none() {
            pen.restyle_line(inner, theme.selected());
        }
    }
    let last = inner.height.saturating_sub(1);
    let mut pen = Pen::new(buffer, inner, last);
    match &dialog.error {
        Some(error) => {
            let room = pen.room();
            pen.put(&cut_end(error, room, theme.glyphs.cut), theme.severity(Severity::Error));
        }
        None => {
            pen.put(dialog.help(rules.len()), theme.dim());
            let names = app.thread_names();
            let names = names.iter().map(AsRef::as_ref);
            if matches_nothing(names, &dialog.proposed(rules), dialog.at) {
                let text = "   matches no name (numbers are dropped before)";
                let room = pen.room();
                let text = cut_end(text, room, theme.glyphs.cut);
                pen.put(&text, theme.severity(Severity::Warning));
            }
        }
    }
    let from = lines + 1;
    if from + 1 < last {
        let area = Rect { y: inner.y + from, height: last - from, ..inner };
        draw_preview(buffer, area, dialog, app, theme);
    }
}

fn draw_preview(
    buffer: &mut Buffer,
    area: Rect,
    dialog: &RulesDialog,
    app: &AppState,
    theme: &Theme,
) {
    let rules = dialog.proposed(&app.view.settings.rename);
    let names = app.thread_names();
    let groups = preview(names.iter().map(AsRef::as_ref), &rules);
    Pen::new(buffer, area, 0)
        .put_right("THR", THREADS, theme.title())
        .space(1)
        .put_left("GROUP", NAME, theme.title())
        .space(1)
        .put("NAMES OF ITS THREADS", theme.title());
    for (y, group) in (1..area.height).zip(&groups) {
        let mut pen = Pen::new(buffer, area, y);
        let style = match group.what {
            NameChange::Unnamed | NameChange::Collides => theme.severity(Severity::Warning),
            NameChange::Unchanged => theme.plain(),
            NameChange::Merges(_) | NameChange::Renamed => theme.severity(Severity::Info),
        };
        pen.put_right(&group.threads.to_string(), THREADS, theme.plain())
            .space(1)
            .put_left(&cut_end(&group.name, NAME, theme.glyphs.cut), NAME, style)
            .space(1);
        let words = group.what.words();
        let note = if words.is_empty() { words } else { format!("{words}: ") };
        pen.put(&note, style);
        let room = pen.room();
        // More names than cells are never read.
        let of = group.of.iter().take(room / 2).map(String::as_str).collect::<Vec<_>>().join(", ");
        debug_assert!(width(&note) <= usize::from(area.width) || room == 0);
        pen.put(&cut_end(&of, room, theme.glyphs.cut), theme.dim());
    }
    if groups.is_empty() {
        Pen::new(buffer, area, 1).space(1).put("no thread is known yet", theme.dim());
    }
}
