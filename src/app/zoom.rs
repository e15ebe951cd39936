//! Goes to the timeline, and from a range to a shorter one in it and back.

use super::AppState;
use super::pane::Pane;
use super::row_path::GroupKey;
use super::thread_list;
use super::view::View;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::Group;
use crate::model::projection::settings::Range;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// Minimum range, ns.
const LEAST: Ns = SECOND / 1_000;

impl View {
    /// Returns the group of the row under the cursor, or of the wait's thread.
    pub(super) fn group_of_row(&self) -> Option<GroupKey> {
        let group = match self.selected_wait() {
            Some(row) if row.thread(&self.projection).is_some() => {
                let thread = row.thread(&self.projection)?;
                let is_of = |group: &Group| group.threads.iter().any(|of| of.thread == thread);
                self.projection.groups.iter().position(is_of)? as u32
            }
            _ => self.selected_group()?,
        };
        Some(thread_list::key(group, &self.projection, &self.shown))
    }
}

impl AppState {
    /// Shows when the threads of the row under the cursor did what; from a wait, at that moment.
    pub(super) fn show_timeline(&mut self) {
        let rows = usize::from(self.layout().rows);
        if self.view.pane != Pane::Timeline {
            let row = self.view.selected_wait();
            if let Some(thread) = row.and_then(|row| row.thread(&self.view.projection)) {
                self.view.timeline.list.choose(thread);
                let began = row.and_then(|row| row.began(&self.view.projection));
                self.view.timeline.at = began.or(self.view.timeline.at);
            }
            if let Some(group) = self.view.group_of_row() {
                self.view.timeline.group = Some(group);
            }
        }
        self.view.show_pane(Pane::Timeline, rows);
        self.project();
    }

    pub(super) fn step_column(&mut self, by: isize) {
        self.view.carried.moved = true;
        self.view.timeline.step_column(by);
    }

    pub(super) fn step_run(&mut self, by: isize) {
        self.view.carried.moved = true;
        if !self.view.timeline.step_run(by) {
            let side = if by < 0 { "before" } else { "after" };
            self.say(format!("this thread has no run {side} this one in the range"));
        }
    }

    /// Makes the run under the cursor the shown range.
    pub(super) fn zoom_to_run(&mut self) {
        let Some((from, till)) = self.view.timeline.target() else {
            return self.say("nothing is known of this thread at that time");
        };
        if (from, till) == self.view.timeline.timeline.span() {
            return self.say("this is the whole range already; Esc goes back");
        }
        self.zoom(from, till);
    }

    /// Halves the range around the cursor, or doubles it.
    pub(super) fn zoom_by(&mut self, larger: bool) {
        let (from, till) = self.view.timeline.timeline.span();
        let length = till.saturating_sub(from);
        if !larger && length <= LEAST {
            return self.say("a millisecond is the shortest range");
        }
        let wanted = if larger { length.saturating_mul(2) } else { length / 2 };
        let from = self.view.timeline.at().saturating_sub(wanted / 2);
        self.zoom(from, from.saturating_add(wanted));
    }

    /// Shows this time, at least a millisecond of it and no more than there is.
    fn zoom(&mut self, from: Ns, till: Ns) {
        let Some(snapshot) = self.view.whole.clone() else { return };
        let (oldest, newest) = (snapshot.history.oldest(), snapshot.at);
        let length = (till - from).max(LEAST).min(newest.saturating_sub(oldest));
        let from = from.clamp(oldest, newest.saturating_sub(length).max(oldest));
        let mut range = Range::Between { from, till: from + length };
        if snapshot.history.is_widened(range) {
            let buckets = snapshot.history.buckets(range, snapshot.at);
            let whole = buckets.first().zip(buckets.last());
            let Some(mut whole) = whole.map(|(first, last)| (first.0, last.1)) else { return };
            let (shown_from, shown_till) = self.view.timeline.timeline.span();
            let shown = shown_till.saturating_sub(shown_from);
            let at = self.view.timeline.at();
            if length < shown
                && whole.1 - whole.0 >= shown
                && let Some(bucket) =
                    buckets.iter().find(|bucket| (bucket.0..bucket.1).contains(&at))
            {
                whole = *bucket;
            }
            if length < shown && whole.1 - whole.0 >= shown {
                return self.say("of that time no shorter parts are kept");
            }
            range = Range::Between { from: whole.0, till: whole.1 };
        }
        let before = self.view.settings.range;
        if length == 0 || range == before {
            return self.say("there is no other time to show");
        }
        if !matches!(before, Range::Between { .. }) {
            self.before_cursor = Some(before);
        }
        if self.view.timeline.group.is_none() {
            // From here on it stays, whichever group is the heaviest there.
            let name = &self.view.timeline.timeline.group;
            let groups = &self.view.projection.groups;
            let group = groups.iter().position(|group| group.name == *name);
            self.view.timeline.group = group.map(|group| {
                thread_list::key(group as u32, &self.view.projection, &self.view.shown)
            });
        }
        self.view.timeline.before.push(before);
        self.time_cursor = None;
        let first = !self.frozen;
        if first {
            self.frozen = true;
            self.held = Some(snapshot);
            self.view.timeline.has_frozen = true;
        }
        self.view.settings.range = range;
        self.project();
        if first {
            self.say(match self.config.saved {
                true => "Esc shows the time from before, L is as before",
                false => "Esc shows the time from before, L is live again; the screen is frozen",
            });
        }
    }

    /// Shows the range from before the last zoom. Returns false if there was none.
    pub(super) fn zoom_back(&mut self) -> bool {
        let Some(before) = self.view.timeline.before.pop() else { return false };
        self.view.settings.range = before;
        // A part of history that was shown before is kept, too.
        if self.view.timeline.before.is_empty() && !matches!(before, Range::Between { .. }) {
            self.forget_zoom();
        }
        self.project();
        true
    }

    /// Freezes the screen before the order of events in the shown range is dropped: it shall not
    /// change while it is read. `next`: what would be shown next.
    pub(super) fn keep_detail(&mut self, next: &Snapshot) {
        let (None, Some(newest)) = (&self.held, &self.newest) else { return };
        let range @ Range::Between { from, .. } = self.view.settings.range else { return };
        let needs_order = self.view.pane == Pane::Timeline || next.history.is_widened(range);
        let is_kept = |snapshot: &Snapshot| snapshot.history.spans().from() <= from;
        if needs_order && is_kept(newest) && !is_kept(next) {
            self.frozen = true;
            self.held = Some(newest.clone());
            self.view.timeline.has_frozen = true;
            self.say("frozen: the order of events at that time is dropped now (L is live again)");
        }
    }

    /// Forgets the ranges from before zooms; facts go on if a zoom has frozen them.
    pub(super) fn forget_zoom(&mut self) {
        self.view.timeline.before.clear();
        if std::mem::take(&mut self.view.timeline.has_frozen) {
            self.frozen = false;
            self.held = None;
        }
    }
}
