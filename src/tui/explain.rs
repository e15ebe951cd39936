//! The line under the rows: what is known of the selected one.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text::{Pen, cut_end, percent, span, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::explain::explain;
use crate::model::state::State;

pub fn draw(buffer: &mut Buffer, area: Rect, app: &AppState, theme: &Theme) {
    let (Some(about), Some(snapshot)) = (explain(&app.view), &app.view.snapshot) else { return };
    let mut pen = Pen::new(buffer, area, 0);
    pen.space(1).put("> ", theme.bold());

    let mut facts = Vec::new();
    if let Some((ns, from)) = about.longest {
        facts.push(format!("longest {} at {}", span(ns), theme.clock(&snapshot.session, from)));
    }
    let c = about.confidence;
    if c.unresolved {
        facts.push(match about.more_seconds {
            Some(seconds) => format!("too few hits: {seconds:.0} s more for a 1 % row"),
            None => "too few hits yet".into(),
        });
    } else {
        facts.push(format!("{}-{} %", percent(c.low), percent(c.high)));
    }
    let right = facts.join("   ");

    let now = match &about.now {
        Some(now) if matches!(now.state, State::Run | State::Rdy) => {
            Some(format!("now {} {}", now.state.word(), now.thread))
        }
        Some(now) => {
            let call = now.call.as_deref().map(|call| format!(" {call}")).unwrap_or_default();
            Some(format!("now {}{call} {} {}", now.state.word(), span(now.since_ns), now.thread))
        }
        None if !about.threads.is_empty() => {
            let names: Vec<&str> = about.threads.iter().take(100).map(AsRef::as_ref).collect();
            Some(names.join(" "))
        }
        None => None,
    };
    let more = match &about.now {
        Some(now) if now.count > 1 => format!(" and {} more", now.count - 1),
        _ => String::new(),
    };
    // What happens now comes first; where there is no room for both the figures go.
    if let Some(now) = now {
        let now = now + &more;
        let room = pen.room().saturating_sub(1);
        let left = if width(&now) + width(&right) + 3 <= room {
            room - width(&right) - 3
        } else if about.threads.is_empty() {
            room
        } else {
            room.saturating_sub(width(&right) + 3).max(room / 3)
        };
        pen.put(&cut_end(&now, left, theme.glyphs.cut), theme.plain()).space(3);
    }
    if pen.room() > width(&right) {
        pen.put(&right, theme.dim());
    }
}
