//! Address ranges in which code or a method was found to be replaced. What lies there now may be
//! younger than a stack that was copied before the change was found. Such a stack must not be named
//! by it.

use std::collections::VecDeque;
use std::ops::Range;

use crate::model::vocabulary::frame::{Ns, SECOND};

/// Places remembered; when one is dropped, everything counts as replaced for stacks copied before
/// it was found.
const PLACES_MAX: usize = 4096;
/// How long a place is remembered. Every stack is walked sooner after it was copied.
const KEPT: Ns = 5 * SECOND;

#[derive(Default)]
pub struct Replaced {
    /// Ranges with the times at which the change was found, oldest first.
    places: VecDeque<(Range<u64>, Ns)>,
    /// For stacks copied before this time every place counts as replaced.
    floor: Ns,
}

impl Replaced {
    /// Records that what was in this place is replaced. `at` is a time after which that was read.
    pub fn add(&mut self, place: Range<u64>, at: Ns) {
        while self.places.front().is_some_and(|(_, found)| found.saturating_add(KEPT) < at) {
            self.places.pop_front();
        }
        if self.places.len() >= PLACES_MAX
            && let Some((_, found)) = self.places.pop_front()
        {
            self.floor = found;
        }
        self.places.push_back((place, at));
    }

    /// Whether what lies at `address` may be younger than a stack that was copied at `copied`.
    pub fn since(&self, copied: Ns, address: u64) -> bool {
        copied < self.floor
            || self
                .places
                .iter()
                .rev()
                .take_while(|(_, found)| *found > copied)
                .any(|(place, _)| place.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_place_is_untrusted_for_older_stacks() {
        let mut replaced = Replaced::default();
        assert!(!replaced.since(0, 0x1000));
        replaced.add(0x1000..0x2000, 50);
        replaced.add(0x3000..0x4000, 60);
        let since = |copied| {
            [0xfff, 0x1000, 0x1fff, 0x2000, 0x3000].map(|address| replaced.since(copied, address))
        };
        assert_eq!(since(49), [false, true, true, false, true]);
        assert_eq!(since(50), [false, false, false, false, true]);
        assert_eq!(since(60), [false; 5]);
    }

    #[test]
    fn places_are_bounded_and_dropped_ones_make_older_stacks_untrusted() {
        let mut replaced = Replaced::default();
        for at in 0..=PLACES_MAX as u64 {
            replaced.add(at..at + 1, 1000 + at);
        }
        assert_eq!(replaced.places.len(), PLACES_MAX);
        assert!(replaced.since(999, 77_777), "the first place is not known any more");
        assert!(!replaced.since(1000, 77_777) && replaced.since(1000, 1));
        replaced.add(0..1, 3 * KEPT);
        assert_eq!(replaced.places.len(), 1, "no stack is that old");
    }
}
