//! A row's name on the screen: `serve › Convoy.lookup :3 › monitor enter`.

use std::borrow::Cow;

use regex::Regex;

use super::text::{Pen, cut_end, cut_start, width};
use super::theme::Theme;
use crate::app::AppState;
use crate::app::short_names;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::RollUp;
use crate::model::projection::{Label, WaitedFor};
use crate::model::vocabulary::frame::WAITS_FOR_GIL;
use crate::model::vocabulary::go_functions;

/// Suffix of kernel functions' names.
const OF_KERNEL: &str = " [k]";
/// Minimum cells of what is called inside, and of who holds a lock; less is no use.
const INNER_LEAST: usize = 8;

/// Shortens the name of a group to at most `cells`. A function of Go loses the path of its package,
/// then its own beginning; any other name loses its end.
pub fn group_name<'a>(name: &'a str, cells: usize, theme: &Theme) -> Cow<'a, str> {
    let cut = theme.glyphs.cut;
    match width(name) > cells && go_functions::package(name).contains('/') {
        true => cut_start(go_functions::short(name), cells, cut),
        false => cut_end(name, cells, cut),
    }
}

/// Writes a label in `cells`. What does not fit goes in this order: callers, the outermost first;
/// who holds a lock, which the line below the rows says too; Java's packages, that of what is
/// called inside first; the end of what is called inside, then all of it; the line; the beginning
/// of the function's own name.
pub fn put(
    pen: &mut Pen<'_>,
    label: &Label<'_>,
    cells: usize,
    unresolved: bool,
    app: &AppState,
    theme: &Theme,
) {
    let mut room = cells;
    let to = theme.glyphs.calls;
    let style = |location: &Location| {
        let style = theme.kind(location.kind);
        if unresolved { style.patch(theme.dim()) } else { style }
    };
    if label.is_entry {
        let mark = cut_end(to, room, "").into_owned();
        pen.put(&mark, theme.dim());
        room -= width(&mark);
    }
    let lock = label.lock.as_ref();
    // A row that stands for the call in which it is waited for the lock is named after the lock.
    let (instead, inside) = if label.is_entry { (lock, None) } else { (None, lock) };
    let instead = instead.map(|lock| lock_in(lock, room));
    let line = match (label.name.line, app.view.shown.roll_up.joins()) {
        (Some(line), false) if instead.is_none() => format!(" :{line}"),
        _ => String::new(),
    };
    let is_lock = *label.name.function == *WAITS_FOR_GIL;
    let inner_as = |name: Name, cells: usize| match (inside, label.inner) {
        // The row's name says what is waited for.
        (Some(lock), _) if is_lock => {
            let held = lock.held_by().filter(|held| width(held) + width(to) < cells);
            held.map_or_else(String::new, |held| format!(" {to}{held}"))
        }
        (Some(lock), _) => {
            format!(" {to}{}", lock_in(lock, cells.saturating_sub(width(to) + 1)))
        }
        (None, Some(inner)) if instead.is_none() => format!(" {to}{}", text(inner, name, app)),
        _ => String::new(),
    };
    let name_as = |as_: Name| match &instead {
        Some(lock) => lock.clone(),
        None => text(label.name, as_, app),
    };
    let left = |name: &str| room.saturating_sub(width(name) + width(&line));
    let fits = |name: &str| width(name) + width(&line) <= room;
    let mut name = name_as(Name::Short);
    let mut inner = inner_as(Name::Short, left(&name));
    if width(&inner) > left(&name) {
        inner = inner_as(Name::Shortest, left(&name));
    }
    if width(&inner) > left(&name) || !fits(&name) {
        let shortest = name_as(Name::Shortest);
        if left(&shortest) >= INNER_LEAST.min(width(&inner)) || !fits(&name) {
            name = shortest;
        }
    }
    let beside = left(&name);
    let inner = match width(&inner) <= beside || beside >= INNER_LEAST {
        true => cut_end(&inner, beside, theme.glyphs.cut).into_owned(),
        false => String::new(),
    };
    let line = if fits(&name) { line } else { String::new() };
    let name_room = room - width(&line) - width(&inner);
    // The end of a long path is more informative than its beginning; of a marker it is the
    // beginning.
    let name = match label.name.kind {
        _ if instead.is_some() => cut_end(&name, name_room, theme.glyphs.cut),
        FrameKind::Marker => cut_end(&name, name_room, theme.glyphs.cut),
        _ => cut_start(&name, name_room, theme.glyphs.cut),
    };

    let mut callers = String::new();
    let mut left = name_room - width(&name);
    for caller in label.outer.iter().rev() {
        let caller = format!("{} {to}", text(caller, Name::Short, app));
        if width(&caller) > left {
            break;
        }
        left -= width(&caller);
        callers.insert_str(0, &caller);
    }
    pen.put(&callers, theme.dim());
    put_found(pen, &name, width(&name), style(label.name), app, theme);
    pen.put(&line, theme.dim());
    let inner_style = label.inner.map(style).unwrap_or_default();
    pen.put(&inner, inner_style.patch(theme.dim())).space(left);
}

/// Returns what is waited for, and who held it as far as that has cells.
fn lock_in(lock: &WaitedFor<'_>, cells: usize) -> String {
    let (text, what) = (lock.text(), lock.what());
    let holder = cells.saturating_sub(width(&what) + width(", held by "));
    if width(&text) <= cells || holder >= INNER_LEAST { text } else { what }
}

/// How much of a name is kept while names are short.
#[derive(Clone, Copy)]
enum Name {
    Short,
    /// Without the package.
    Shortest,
}

/// Returns the function's name as the view shows it. Kernel functions are distinguishable without
/// colour too.
fn text(location: &Location, name: Name, app: &AppState) -> String {
    let by: RollUp = app.view.shown.roll_up;
    let name = match (app.view.short_names, name) {
        (true, Name::Short) => short_names::short(location, by),
        (true, Name::Shortest) => short_names::shortest(location, by),
        (false, _) => location.function.as_ref().into(),
    };
    let of_kernel = location.kind == FrameKind::Kernel && !name.starts_with('[');
    if of_kernel { format!("{name}{OF_KERNEL}") } else { name.into_owned() }
}

/// Returns a function's name in at most `cells`.
pub fn name(location: &Location, cells: usize, app: &AppState, theme: &Theme) -> String {
    let short = text(location, Name::Short, app);
    let name = if width(&short) <= cells { short } else { text(location, Name::Shortest, app) };
    cut_end(&name, cells, theme.glyphs.cut).into_owned()
}

/// Writes `text` and pads it to `cells`; marks the search's matches.
pub fn put_found(
    pen: &mut Pen<'_>,
    text: &str,
    cells: usize,
    style: ratatui::style::Style,
    app: &AppState,
    theme: &Theme,
) {
    let end = pen.room().saturating_sub(cells);
    let found = app
        .view
        .search
        .as_ref()
        .and_then(|search: &Regex| search.find(text))
        .filter(|m| !m.is_empty());
    match found {
        Some(found) => {
            pen.put(&text[..found.start()], style);
            pen.put(&text[found.range()], style.patch(theme.found()));
            pen.put(&text[found.end()..], style);
        }
        None => {
            pen.put(text, style);
        }
    }
    pen.space(pen.room().saturating_sub(end));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::AppConfig;
    use crate::config::Screen;
    use crate::model::projection::{Lock, MainHolder, WaitedFor};
    use crate::model::vocabulary::blocker::BlockerKind;
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;

    fn drawn(name: (&str, u32), inner: &str, cells: u16) -> String {
        drawn_with(name, inner, None, false, cells)
    }

    fn drawn_with(
        name: (&str, u32),
        inner: &str,
        lock: Option<WaitedFor<'_>>,
        is_entry: bool,
        cells: u16,
    ) -> String {
        let name = Location { line: Some(name.1), ..Location::named(name.0, FrameKind::Java) };
        let inner = Location::named(inner, FrameKind::Java);
        let label = Label { outer: Vec::new(), name: &name, inner: Some(&inner), lock, is_entry };
        drawn_label(&label, cells)
    }

    fn drawn_label(label: &Label<'_>, cells: u16) -> String {
        let app = AppState::new(AppConfig::default());
        let theme = Theme::new(&Screen::default());
        let area = Rect::new(0, 0, cells, 1);
        let mut buffer = Buffer::empty(area);
        let mut pen = Pen::new(&mut buffer, area, 0);
        put(&mut pen, label, usize::from(cells), false, &app, &theme);
        let symbols = buffer.content().iter().map(|cell| cell.symbol());
        symbols.collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn what_is_called_inside_gives_way_to_the_functions_own_name() {
        let (name, inner) = (("org.shop.OrderController.report", 14), "org.db.JdbcTemplate.query");
        for (cells, expected) in [
            (55, "o.s.OrderController.report :14 › o.d.JdbcTemplate.query"),
            (54, "o.s.OrderController.report :14 › JdbcTemplate.query"),
            (50, "OrderController.report :14 › JdbcTemplate.query"),
            (40, "OrderController.report :14 › JdbcTempla…"),
            (34, "OrderController.report :14 › Jdbc…"),
            (33, "o.s.OrderController.report :14"),
            (29, "OrderController.report :14"),
            (25, "OrderController.report"),
            (21, "…derController.report"),
        ] {
            assert_eq!(drawn(name, inner, cells), expected, "{cells}");
        }
    }
    #[test]
    fn groups_of_goroutines_lose_the_path_of_their_package_first() {
        let long = "github.com/acme/shop/orders.(*Pool).run";
        for (name, cells, expected) in [
            (long, 39, long),
            (long, 38, "orders.(*Pool).run"),
            (long, 18, "orders.(*Pool).run"),
            (long, 17, "…ders.(*Pool).run"),
            ("main.(*Pool).run", 12, "main.(*Pool…"),
            ("kworker/0:1H-events", 12, "kworker/0:1…"),
        ] {
            let theme = Theme::new(&Screen::default());
            assert_eq!(group_name(name, cells, &theme), expected, "{cells}");
        }
    }

    #[test]
    fn what_is_waited_for_stands_in_place_of_the_call_that_waits() {
        let lock = Lock::monitor_of_orders();
        let name = ("Cart.total", 14);
        let held = MainHolder::Thread("timer".into());
        let lock = WaitedFor { lock: &lock, held };
        let shown = |is_entry, cells| {
            drawn_with(name, "monitor enter", Some(lock.clone()), is_entry, cells)
        };
        assert_eq!(shown(false, 54), "Cart.total :14 › monitor of OrderBook, held by timer");
        assert_eq!(shown(false, 51), "Cart.total :14 › monitor of OrderBook");
        assert_eq!(shown(false, 32), "Cart.total :14 › monitor of Ord…");
        assert_eq!(shown(true, 54), "› monitor of OrderBook, held by timer");
        assert_eq!(shown(true, 36), "› monitor of OrderBook");
        assert_eq!(shown(true, 20), "› monitor of OrderB…");
        let lock = WaitedFor { held: MainHolder::Thread("http-nio-8080".into()), ..lock.clone() };
        let shown = |cells| drawn_with(name, "monitor enter", Some(lock.clone()), true, cells);
        assert_eq!(shown(40), "› monitor of OrderBook, held by http-ni…");
        let held = MainHolder::InTurn(3);
        let gil = Lock { kind: BlockerKind::Gil, ..Lock::monitor_of_orders() };
        let gil = WaitedFor { lock: &gil, held };
        let of_gil = |cells| {
            let name = Location::named(WAITS_FOR_GIL, FrameKind::Marker);
            let label = Label { lock: Some(gil.clone()), ..Label::of_function(&name) };
            drawn_label(&label, cells)
        };
        let whole = "[waiting for the GIL] › held by 3 threads in turn";
        assert_eq!(of_gil(49), whole);
        assert_eq!(of_gil(48), "[waiting for the GIL]");
        assert_eq!(shown(39), "› monitor of OrderBook");
    }
}
