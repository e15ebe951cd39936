//! The line under the rows: facts about the selected row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end, cut_start, percent, span, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::explain::{Now, explain};
use crate::app::short_names;
use crate::app::wait_chain::{self, Chain, Link};
use crate::model::vocabulary::state::State;

/// Cells between two items on the line.
const GAP: usize = 3;

/// Draws what happens now, then facts about the range. Drops what does not fit, the least useful
/// first.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let (Some(about), Some(snapshot)) = (explain(&app.view), &app.view.snapshot) else { return };
    let mut pen = Pen::new(buffer, area, 0);
    pen.space(1).put("> ", theme.bold());

    let c = about.confidence;
    let sure = match c.unresolved {
        true => "~ too few hits to be sure".into(),
        false => format!("{}-{} % (95 % sure)", percent(c.low), percent(c.high)),
    };
    let longest = about.longest.map(|(ns, from)| {
        format!("longest {} at {}", span(ns), theme.clock(&snapshot.session, from))
    });
    let mut room = pen.room().saturating_sub(1);
    let cells = |text: &Option<String>| text.as_ref().map_or(0, |text| width(text) + GAP);
    // The longest wait is shown, unless it leaves no room for even two current activities.
    let now = match wait_chain::chain(&app.view) {
        Some(chain) => Some(chain_text(&chain, room, theme.glyphs.cut)),
        None => (about.now.as_ref())
            .map(|now| now_text(now, room.saturating_sub(cells(&longest)), room, theme.glyphs.cut)),
    };
    let mut fits = |text: &Option<String>| {
        let fits = cells(text) <= room;
        room -= if fits { cells(text) } else { 0 };
        fits
    };
    fits(&now);
    let longest = longest.filter(|text| fits(&Some(text.clone())));
    let sure = Some(sure).filter(|text| fits(&Some(text.clone())));

    // A list takes the remaining cells.
    let list = match about.threads.is_empty() {
        // The only thread is named already.
        false if about.threads.len() == 1 && about.now.is_some() => String::new(),
        false => about.threads.iter().take(100).map(AsRef::as_ref).collect::<Vec<&str>>().join(" "),
        true => {
            let by = app.view.shown.roll_up;
            let links: Vec<_> =
                app.view.selected_links().into_iter().map(|l| short_names::short(l, by)).collect();
            if links.is_empty() { String::new() } else { format!("in {}", links.join(" > ")) }
        }
    };
    if let Some(now) = now {
        pen.put(&now, theme.plain()).space(GAP);
    }
    if room > 20 && !list.is_empty() {
        // The calls nearest to the row are the most informative.
        let list = match about.threads.is_empty() {
            false => cut_end(&list, room - GAP, theme.glyphs.cut),
            true => cut_start(&list, room - GAP, theme.glyphs.cut),
        };
        pen.put(&list, theme.plain()).space(GAP);
    }
    for text in [longest, sure].into_iter().flatten() {
        pen.put(&text, theme.dim()).space(GAP);
    }
}

/// Writes who keeps threads from going on, in at most `cells` cells. Where the first ones are is
/// left out first, then who they are.
fn chain_text(chain: &Chain, cells: usize, cut: &str) -> String {
    let Chain { count, what, since_ns, links } = chain;
    let who = if *count == 1 { "1 waits".to_owned() } else { format!("{count} wait") };
    let text = |links: &[String]| {
        format!("{who} {} for {what} -> {}", span(*since_ns), links.join(" -> "))
    };
    let whole = |link: &Link| format!("{}{}", link.who, link.place);
    let mut parts: Vec<String> = links.iter().map(whole).collect();
    let is_long = |parts: &[String]| width(&text(parts)) + GAP > cells;
    for at in 0..links.len().saturating_sub(1) {
        if is_long(&parts) {
            parts[at].clone_from(&links[at].who);
        }
    }
    if parts.len() > 2 && is_long(&parts) {
        parts.splice(..parts.len() - 1, [cut.to_owned()]);
    }
    cut_end(&text(&parts), cells.saturating_sub(GAP), cut).into_owned()
}

/// Writes what threads do now, in at most `most` cells.
fn now_text(now: &Now, cells: usize, most: usize, cut: &str) -> String {
    if now.doing.len() > 1 {
        return list_text(&now.doing, cells, most, cut);
    }
    let waits = !matches!(now.state, State::Run | State::Rdy);
    let mut text = format!("now {}", now.state.word());
    if let (true, [(_, call)]) = (now.one_call, now.doing.as_slice()) {
        // `sleep 2.0 s` already names its state.
        match call.split(' ').next() == Some(now.state.word()) {
            true => text = format!("now {call}"),
            false => text += &format!(" {call}"),
        }
    }
    if waits {
        text += &format!(" for {}", span(now.since_ns));
    }
    text += &format!(": {}", now.thread);
    if now.count > 1 {
        text += &format!(" and {} more", now.count - 1);
    }
    cut_end(&text, most.saturating_sub(GAP), cut).into_owned()
}

/// Lists how many threads do what: as many whole items as fit into `cells`, or into `most` where
/// not even two do.
fn list_text(doing: &[(usize, String)], cells: usize, most: usize, cut: &str) -> String {
    let things: Vec<String> =
        doing.iter().take(20).map(|(count, what)| format!("{count} {what}")).collect();
    let first = |n: usize| {
        let more = if n < doing.len() { format!(", {cut}") } else { String::new() };
        format!("now {}{more}", things[..n].join(", "))
    };
    let fits = |n: usize, room: usize| width(&first(n)) + GAP <= room;
    let room = if fits(things.len().min(2), cells) { cells } else { most };
    let n = (1..=things.len()).rev().find(|n| fits(*n, room)).unwrap_or(1);
    cut_end(&first(n), room.saturating_sub(GAP), cut).into_owned()
}
