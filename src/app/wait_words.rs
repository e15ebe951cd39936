//! What is said of the lines of the view of waits, beyond their figures.

use std::sync::Arc;

use regex::Regex;

use super::view::View;
use super::wait_list::WaitRow;
use crate::model::facts::tables::Location;
use crate::model::projection::{Lock, LongWait, held_by, noun};
use crate::model::vocabulary::qualified::simple_class;

pub struct Words {
    /// `mutex 0x5581`, `fsync fd 3 /srv/log`; empty if it is not known.
    pub what: String,
    /// The same without an address.
    pub kind: String,
    /// `held by audit`; empty if it is not known.
    pub who: String,
    /// Where it was held, or else where it was waited for: functions, outermost first.
    pub place: Vec<Arc<Location>>,
}

impl Words {
    /// Returns what is said of a line.
    pub fn of(row: WaitRow, view: &View) -> Words {
        match row {
            WaitRow::Lock(at) => lock_words(&view.projection.locks[at as usize]),
            WaitRow::Wait(at) => long_wait_words(&view.projection.long_waits[at as usize], view),
        }
    }
}

/// Returns whether the line's thread, lock or a function matches.
pub fn is_match(row: WaitRow, view: &View, search: &Regex) -> bool {
    let words = Words::of(row, view);
    let name = match row {
        WaitRow::Wait(at) => &*view.projection.long_waits[at as usize].name,
        WaitRow::Lock(_) => "",
    };
    [name, &words.what, &words.who].into_iter().any(|text| search.is_match(text))
        || words.place.iter().any(|location| search.is_match(&location.function))
}

fn long_wait_words(wait: &LongWait, view: &View) -> Words {
    let snapshot = view.snapshot.as_ref();
    let what = snapshot.and_then(|snapshot| wait.what(snapshot)).unwrap_or_default();
    let who = snapshot.and_then(|snapshot| wait.held_by(snapshot)).unwrap_or_default();
    let waits_in = wait.node.map(|node| view.node_location(node));
    let place = wait.held_in.as_ref().or(waits_in).cloned().into_iter().collect();
    Words { kind: what.clone(), what, who, place }
}

fn lock_words(lock: &Lock) -> Words {
    let class = lock.class.as_deref().map(simple_class);
    let holder = lock.holders.first();
    let by = holder.and_then(|held| held_by(lock.kind, held.holder, &held.name, lock.pid));
    let held_in = holder.map(|held| &held.place).filter(|place| !place.is_empty());
    let place = held_in.or_else(|| lock.waiting_in.first().map(|(place, _)| place));
    Words {
        what: lock.kind.name_of(class, lock.object),
        kind: noun(lock.kind, class),
        who: by.unwrap_or_default(),
        place: place.map(|place| place.to_vec()).unwrap_or_default(),
    }
}
