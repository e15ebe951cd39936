//! The line under the rows: what is known of the selected one.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end, cut_start, percent, span, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::explain::{Now, explain};
use crate::app::names;
use crate::model::state::State;

/// What happens now, then what is known of the range. What there is no room for is left out, the least useful first.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let (Some(about), Some(snapshot)) = (explain(&app.view), &app.view.snapshot) else { return };
    let mut pen = Pen::new(buffer, area, 0);
    pen.space(1).put("> ", theme.bold());

    let c = about.confidence;
    let sure = match c.unresolved {
        true => "~ too few hits to be sure".into(),
        false => format!("{}-{} % (95 % sure)", percent(c.low), percent(c.high)),
    };
    let longest =
        about.longest.map(|(ns, from)| format!("longest {} at {}", span(ns), theme.clock(&snapshot.session, from)));
    let now = about.now.as_ref().map(now_text);
    let mut room = pen.room().saturating_sub(1);
    let mut fits = |text: &Option<String>| {
        let cells = text.as_ref().map_or(0, |text| width(text) + 3);
        let fits = cells <= room;
        room -= if fits { cells } else { 0 };
        fits
    };
    let has_now = fits(&now);
    let longest = longest.filter(|text| fits(&Some(text.clone())));
    let sure = Some(sure).filter(|text| fits(&Some(text.clone())));

    // A list takes what is left.
    let list = match about.threads.is_empty() {
        false => about.threads.iter().take(100).map(AsRef::as_ref).collect::<Vec<&str>>().join(" "),
        true => {
            let links: Vec<_> = app.view.selected_links().into_iter().map(|l| names::short(l)).collect();
            if links.is_empty() { String::new() } else { format!("in {}", links.join(" > ")) }
        }
    };
    if let Some(now) = now {
        let all = pen.room().saturating_sub(1);
        pen.put(&cut_end(&now, if has_now { width(&now) } else { all }, theme.glyphs.cut), theme.plain()).space(3);
    }
    if room > 20 && !list.is_empty() {
        // The calls nearest to the row say most.
        let list = match about.threads.is_empty() {
            false => cut_end(&list, room - 3, theme.glyphs.cut),
            true => cut_start(&list, room - 3, theme.glyphs.cut),
        };
        pen.put(&list, theme.plain()).space(3);
    }
    for text in [longest, sure].into_iter().flatten() {
        pen.put(&text, theme.dim()).space(3);
    }
}

fn now_text(now: &Now) -> String {
    let mut text = format!("now {}", now.state.word());
    if !matches!(now.state, State::Run | State::Rdy) {
        if let Some(call) = &now.call {
            text += &format!(" {call}");
        }
        text += &format!(" for {}", span(now.since_ns));
    }
    text += &format!(": {}", now.thread);
    if now.count > 1 {
        text += &format!(" and {} more", now.count - 1);
    }
    text
}
