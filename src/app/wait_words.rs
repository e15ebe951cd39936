//! What is said of the lines of the view of waits, beyond their figures.

use std::iter;
use std::sync::Arc;

use regex::Regex;

use super::view::View;
use super::wait_list::WaitRow;
use crate::model::facts::tables::Location;
use crate::model::projection::{Lock, LongWait, held_by, noun};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::qualified::simple_class;
use crate::model::vocabulary::role::Role;

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
            WaitRow::Waiter(at, nth) => {
                let waiter = &view.projection.locks[at as usize].waiters[nth as usize];
                Words::at("waits", waiter.place.clone())
            }
            WaitRow::Holder(at, nth) => {
                let lock = &view.projection.locks[at as usize];
                let held = &lock.holders[nth as usize];
                let is_other = |by: &&Arc<Location>| {
                    held.place.last().is_none_or(|last| last.function != by.function)
                };
                let place = held.place.iter().chain(held.by.as_ref().filter(is_other));
                let is_end = lock.kind == BlockerKind::ThreadEnd;
                let who = if is_end { "was" } else { "held it" };
                Words::at(who, place.cloned().collect())
            }
            WaitRow::Wait(at) => long_wait_words(&view.projection.long_waits[at as usize], view),
        }
    }

    /// Returns words of a thread below its lock.
    fn at(who: &str, place: Vec<Arc<Location>>) -> Words {
        Words { what: String::new(), kind: String::new(), who: who.to_owned(), place }
    }
}

/// Returns whether the line's thread, lock or a function matches.
pub fn is_match(row: WaitRow, view: &View, search: &Regex) -> bool {
    let words = Words::of(row, view);
    let name = row.name(&view.projection);
    let who = match row {
        WaitRow::Waiter(..) | WaitRow::Holder(..) => "",
        WaitRow::Lock(_) | WaitRow::Wait(_) => &*words.who,
    };
    [&*name, &words.what, who].into_iter().any(|text| search.is_match(text))
        || words.place.iter().any(|location| search.is_match(&location.function))
}

fn long_wait_words(wait: &LongWait, view: &View) -> Words {
    let snapshot = view.snapshot.as_ref();
    let what = snapshot.and_then(|snapshot| wait.what(snapshot)).unwrap_or_default();
    let who = snapshot.and_then(|snapshot| wait.held_by(snapshot)).unwrap_or_default();
    let place = match (&wait.held_in, wait.node) {
        (Some(held_in), _) => vec![held_in.clone()],
        (None, Some(node)) => waiting_in(node, view),
        (None, None) => Vec::new(),
    };
    Words { kind: what.clone(), what, who, place }
}

/// Maximum functions of the user's own code that are named before the call that waits.
const OWN_FUNCTIONS: usize = 5;

/// Returns the function that waits, after the innermost ones of the user's code that led to it: all
/// programs wait in `epoll_wait`, so that says little.
fn waiting_in(node: u32, view: &View) -> Vec<Arc<Location>> {
    let trees = &view.projection;
    let callers = iter::successors(trees.parent(node), |caller| trees.parent(*caller));
    let own = callers.filter(|caller| trees.role(*caller) == Role::App).take(OWN_FUNCTIONS);
    let mut path: Vec<_> =
        iter::once(node).chain(own).map(|node| view.node_location(node).clone()).collect();
    path.reverse();
    path
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
