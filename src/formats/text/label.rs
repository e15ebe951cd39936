//! What a line of the tree is called: `serve -> Cart::total  cart.rs:7 -> malloc`.

use super::place;
use crate::formats::ascii::{ascii, fit};
use crate::model::facts::tables::Location;
use crate::model::projection::{Label, WaitedFor};

const CALLS: &str = "-> ";
/// Minimum columns of what is called inside; less is no use.
const INNER_LEAST: usize = 8;

/// Formats a label in `width` columns. What does not fit goes in this order: callers, the outermost
/// first; the module and the line; the end of what is called inside.
pub fn fit_label(label: &Label<'_>, width: usize) -> String {
    let mark = if label.is_entry { CALLS } else { "" };
    let width = width.saturating_sub(mark.len());
    let text = |location: &Location| ascii(&location.function).into_owned();
    let name = text(label.name);
    let lock = label.lock.as_ref().map(|lock| {
        let before = if label.is_entry { 0 } else { name.len() + CALLS.len() + 1 };
        lock_in(lock, width.saturating_sub(before))
    });
    if let (true, Some(lock)) = (label.is_entry, &lock) {
        return format!("{mark}{}", fit(lock, width));
    }
    let inner = lock.or_else(|| label.inner.map(text));
    let inner = inner.map(|inner| format!(" {CALLS}{inner}")).unwrap_or_default();
    let beside = width.saturating_sub(name.len()).max(width / 2).min(inner.len());
    let inner = if beside >= INNER_LEAST { fit(&inner, beside) } else { String::new() };
    let name = place(label.name, width.saturating_sub(inner.len()));
    let mut left = width.saturating_sub(name.len() + inner.len());
    let mut callers = String::new();
    for caller in label.outer.iter().rev() {
        let caller = format!("{} {CALLS}", text(caller));
        if caller.len() > left {
            break;
        }
        left -= caller.len();
        callers.insert_str(0, &caller);
    }
    format!("{mark}{callers}{name}{inner}")
}

/// Says what a lock is, and who holds it if that fits.
fn lock_in(lock: &WaitedFor<'_>, width: usize) -> String {
    let text = ascii(&lock.text()).into_owned();
    if text.len() <= width { text } else { ascii(&lock.what()).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::FrameKind;
    use crate::model::projection::{Lock, MainHolder};

    #[test]
    fn the_holder_of_a_lock_gives_way_first() {
        let (lock, name) = (Lock::monitor_of_orders(), Location::named("total", FrameKind::Java));
        let held = MainHolder::Thread("timer".into());
        let mut label = Label {
            outer: Vec::new(),
            name: &name,
            inner: Some(&name),
            lock: Some(WaitedFor { lock: &lock, held }),
            is_entry: false,
        };
        assert_eq!(fit_label(&label, 45), "total -> monitor of OrderBook, held by timer");
        assert_eq!(fit_label(&label, 43), "total -> monitor of OrderBook");
        label.is_entry = true;
        assert_eq!(fit_label(&label, 38), "-> monitor of OrderBook, held by timer");
        assert_eq!(fit_label(&label, 37), "-> monitor of OrderBook");
    }
}
