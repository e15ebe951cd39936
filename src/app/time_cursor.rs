//! The cursor on the history line: goes to a bucket of history and makes it the shown range.

use super::AppState;
use super::history_line::HistoryLine;
use crate::model::projection::settings::Range;
use crate::model::vocabulary::frame::{Ns, SECOND};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeCursor {
    /// The bucket's span, on CLOCK_MONOTONIC.
    pub from: Ns,
    pub till: Ns,
    /// Its bucket is the shown range, and goes with it.
    pub is_range: bool,
}

/// Where the cursor goes: to any bucket of the kept history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// By this number of buckets: of a second where history is not older than ten minutes, of ten
    /// seconds or a minute where it is.
    Buckets(isize),
    /// By this number of windows.
    Windows(isize),
    NextPeak,
    PreviousPeak,
}

impl AppState {
    pub(super) fn move_time_cursor(&mut self, go: Go) {
        let Some(snapshot) = &self.view.snapshot else {
            return self.say("there is no history yet");
        };
        let buckets = snapshot.history.buckets(Range::Rolling(Ns::MAX), snapshot.at);
        let Some(last) = buckets.len().checked_sub(1) else {
            return self.say("there is no history yet");
        };
        let bucket_of = |at: Ns| buckets.partition_point(|(_, end)| *end <= at).min(last);
        // Without a cursor: from the shown part of history, or from now.
        let from = match (self.time_cursor, self.view.shown.range) {
            (Some(cursor), _) => Some(cursor.from),
            (None, Range::Between { from, .. }) => Some(from),
            _ => None,
        };
        let at = from.map_or(last, bucket_of);
        let busy = &self.view.busy_threads;
        // Its bucket may have been dropped from history within this second.
        let bucket_of_peak = |from: Ns| (from >= buckets[0].0).then(|| bucket_of(from));
        let to = match go {
            Go::Buckets(by) => Some(at.saturating_add_signed(by).min(last)),
            Go::Windows(by) => {
                let by = i128::from(self.window) * by as i128;
                let to = i128::from(buckets[at].0) + by;
                let to = bucket_of(Ns::try_from(to.max(0)).unwrap_or(Ns::MAX));
                // Old buckets are wider than some windows.
                Some(if by > 0 { to.max((at + 1).min(last)) } else { to.min(at.saturating_sub(1)) })
            }
            Go::PreviousPeak => {
                // From now, the newest whole second is one of those before.
                let before = from.map(|_| buckets[at].0);
                busy.previous_peak(before).and_then(bucket_of_peak)
            }
            Go::NextPeak => busy.next_peak(buckets[at].0).and_then(bucket_of_peak),
        };
        let Some(to) = to else {
            let side = if go == Go::NextPeak { "later" } else { "earlier" };
            return self.say(format!("nothing {side} stands out by busy threads or a long wait"));
        };
        let is_back = matches!(go, Go::Buckets(by) | Go::Windows(by) if by < 0);
        let is_oldest = from.is_some() && is_back && at == 0;
        let (from, till) = buckets[to];
        let is_range = self.time_cursor.is_some_and(|cursor| cursor.is_range);
        if is_oldest {
            self.say("nothing older is kept");
        } else if self.time_cursor.is_none() {
            let back = if self.config.saved { "L is as before" } else { "L is live again" };
            let what = if till - from > SECOND { "time" } else { "second" };
            self.say(format!("Enter shows this {what}; , . ( ) go on, {{ }} to peaks, {back}"));
        }
        self.time_cursor = Some(TimeCursor { from, till, is_range });
        if is_range {
            self.show_bucket();
        }
    }

    /// Makes the bucket under the cursor the shown range. Returns false if there is no cursor, or
    /// its bucket is shown already.
    pub(super) fn take_bucket(&mut self) -> bool {
        match &mut self.time_cursor {
            Some(cursor) if !cursor.is_range => {
                cursor.is_range = true;
                self.show_bucket();
                true
            }
            _ => false,
        }
    }

    fn show_bucket(&mut self) {
        let Some(TimeCursor { from, till, .. }) = self.time_cursor else { return };
        self.before_mark = None;
        if !matches!(self.view.settings.range, Range::Between { .. }) {
            self.before_cursor = Some(self.view.settings.range);
        }
        self.view.settings.range = Range::Between { from, till };
        self.project();
    }

    /// Handles a mouse press on the history line.
    pub(super) fn press_history(&mut self, column: u16) {
        let Some((line, snapshot)) = HistoryLine::new(self).zip(self.view.snapshot.as_ref()) else {
            return;
        };
        let busy = &self.view.busy_threads;
        let range = line.cells_of(busy, self.view.projection.from, self.view.projection.till);
        let seconds =
            line.cell_at_column(column, range).and_then(|cell| line.seconds_of_cell(cell));
        let Some((first, end)) = seconds else { return };
        // Of several buckets the busiest, which the bar shows.
        let start = busy.at(first);
        let at = busy.busiest(first, end).map_or(start, |bucket| bucket.from);
        let buckets = snapshot.history.buckets(Range::Rolling(Ns::MAX), snapshot.at);
        let Some((from, till)) =
            buckets.into_iter().find(|(start, end)| (*start..*end).contains(&at))
        else {
            return self.say("this second is not kept any more");
        };
        self.time_cursor = Some(TimeCursor { from, till, is_range: true });
        self.show_bucket();
    }

    /// Shows the newest facts again, in the range that was shown before.
    pub(super) fn show_live(&mut self) {
        self.time_cursor = None;
        self.before_mark = None;
        self.forget_zoom();
        let shown = Some(self.view.settings.range);
        let before = shown.filter(|range| !matches!(range, Range::Between { .. }));
        let before = before.or(self.before_cursor.take());
        self.view.settings.range = before.unwrap_or(Range::Rolling(self.window));
        if self.frozen {
            self.freeze();
        } else {
            self.project();
        }
    }
}
