//! Places the booked time of one thread: each moment once. Writes it to the buckets and to the log
//! of spans.
//!
//! The parts between two readings of a thread's counters are known by length: it ran for 4 ms, then
//! it waited. A sample or a wait says about where such a part was. Two of them may want the same
//! moment. The later one to be booked then gets the nearest moments that are free. So a thread's
//! time in any range is the time for which it was observed there, as far as it is booked.

use crate::model::facts::buckets::{Buckets, Split};
use crate::model::facts::fact::FactKey;
use crate::model::facts::span_log::{Span, SpanLog};
use crate::model::facts::tables::BlockerId;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::{RawState, State};

/// Maximum time for which a span grows, ns. So the log can drop what is old.
const MAX_SPAN: Ns = 10 * SECOND;

/// Maximum spans of a thread that may still grow: in a tick it runs, waits for a core, waits, and
/// goes on with what it did before.
const MAX_GROWING: usize = 4;

/// Maximum distance of moments whose counts are merged before their time is booked, ns: two ticks
/// of the default interval.
const NEAR: Ns = SECOND / 50;

/// Maximum holes in a thread's booked time. Beyond it the oldest are filled first. They are of 16
/// bytes, and only a thread that runs for long without a sample has that many.
const MAX_HOLES: usize = 64;

/// The moments of a thread that have no booked time yet: disjoint, oldest first. The last one has
/// no end.
struct Free(Vec<(Ns, Ns)>);

impl Free {
    fn new(from: Ns) -> Free {
        Free(vec![(from, Ns::MAX)])
    }

    /// Takes `amount` of free time, in `from..till` where possible, else as near as possible,
    /// before rather than after it. Calls `f` with each part.
    fn take(&mut self, from: Ns, till: Ns, amount: Ns, mut f: impl FnMut(Ns, Ns)) {
        if amount == 0 {
            return;
        }
        if let [(start, _)] = &mut self.0[..]
            && *start == from
            && till - from == amount
        {
            *start = till;
            return f(from, till);
        }
        let mut left = amount;
        while left > 0 && self.0.len() > MAX_HOLES {
            let (start, end) = self.0[0];
            let end = end.min(start.saturating_add(left));
            left -= end - start;
            f(start, end);
            self.carve(0, start, end);
        }
        let mut at = self.0.partition_point(|(_, end)| *end <= from);
        while left > 0 && self.0[at].0.max(from) < till {
            let (start, end) = self.0[at];
            let start = start.max(from);
            let end = end.min(till).min(start.saturating_add(left));
            left -= end - start;
            f(start, end);
            at = self.carve(at, start, end);
        }
        let mut at = self.0.partition_point(|(start, _)| *start < from);
        while left > 0 && at > 0 {
            at -= 1;
            let (start, end) = self.0[at];
            let end = end.min(from);
            let start = start.max(end.saturating_sub(left));
            left -= end - start;
            f(start, end);
            self.carve(at, start, end);
        }
        let mut at = self.0.partition_point(|(start, _)| *start < till);
        while left > 0 {
            let (start, end) = self.0[at];
            let end = end.min(start.saturating_add(left));
            left -= end - start;
            f(start, end);
            at = self.carve(at, start, end);
        }
    }

    /// Removes `start..end` from the interval `at`. Returns the index of what follows it.
    fn carve(&mut self, at: usize, start: Ns, end: Ns) -> usize {
        let (before, after) = ((self.0[at].0, start), (end, self.0[at].1));
        match (before.0 < before.1, after.0 < after.1) {
            (true, true) => {
                self.0[at] = before;
                self.0.insert(at + 1, after);
                at + 1
            }
            (true, false) => {
                self.0[at] = before;
                at + 1
            }
            (false, true) => {
                self.0[at] = after;
                at
            }
            (false, false) => {
                self.0.remove(at);
                at
            }
        }
    }
}

/// The newest spans of a thread, which may still grow: what is known of a moment arrives in parts.
#[derive(Default)]
struct Growing {
    spans: Vec<Span>,
    /// The index of the oldest one, once there are [`MAX_GROWING`].
    oldest: usize,
}

impl Growing {
    /// Returns the index of a span of `new`'s key for which `takes` holds. If there is none, adds
    /// `new`; the oldest one goes to the log if there are too many.
    fn find_or_add(
        &mut self,
        new: Span,
        log: &mut SpanLog,
        takes: impl Fn(&Span) -> bool,
    ) -> usize {
        let found = self.spans.iter().position(|span| span.key == new.key && takes(span));
        if let Some(at) = found {
            return at;
        }
        if self.spans.len() < MAX_GROWING {
            self.spans.push(new);
            return self.spans.len() - 1;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % MAX_GROWING;
        log.push(std::mem::replace(&mut self.spans[at], new));
        at
    }
}

pub struct Ledger {
    free: Free,
    growing: Growing,
}

impl Ledger {
    /// Creates the ledger of a thread that is observed from `from` on.
    pub fn new(from: Ns) -> Ledger {
        Ledger { free: Free::new(from), growing: Growing::default() }
    }

    /// Returns the spans that may still grow.
    pub fn growing(&self) -> &[Span] {
        &self.growing.spans
    }

    /// Forgets the spans that may still grow: ids have changed.
    pub fn forget(&mut self) {
        self.growing = Growing::default();
    }

    /// Writes the last spans to the log: the thread has ended.
    pub fn finish(&mut self, buckets: &mut Buckets) {
        let Growing { spans, .. } = std::mem::take(&mut self.growing);
        spans.into_iter().for_each(|span| buckets.log().push(span));
    }

    /// Books the span `from..till` to `key`. `ready` of it, spread evenly over the buckets, is
    /// waiting for a core, at the end of each part. `wait`: the start of the unbroken wait that
    /// includes this span.
    pub fn wall(
        &mut self,
        key: &FactKey,
        from: Ns,
        till: Ns,
        ready: Ns,
        wait: Option<Ns>,
        buckets: &mut Buckets,
    ) {
        if from >= till {
            return;
        }
        if ready == 0 {
            return self.place(key, (from, till), till - from, wait, buckets);
        }
        let ready_key = ready_key(key);
        let mut split = Split::new(ready.min(till - from), till - from);
        let mut at = from;
        while at < till {
            let next = buckets.end_of(at, till);
            let ready = split.next(next - at);
            let woken = next - ready;
            self.place(key, (at, woken), woken - at, wait, buckets);
            self.place(&ready_key, (woken, next), ready, None, buckets);
            at = next;
        }
    }

    /// Books wall and CPU time that was spent within `from..till`, spread evenly over the buckets.
    pub fn spread(
        &mut self,
        key: &FactKey,
        from: Ns,
        till: Ns,
        wall: Ns,
        cpu: Ns,
        buckets: &mut Buckets,
    ) {
        if from >= till {
            self.place(key, (till, till), wall, None, buckets);
            self.count(key, till, cpu, 0, 0, buckets);
            return;
        }
        let (mut wall, mut cpu) = (Split::new(wall, till - from), Split::new(cpu, till - from));
        let mut at = from;
        while at < till && wall.is_left() | cpu.is_left() {
            let next = buckets.end_of(at, till);
            self.place(key, (at, next), wall.next(next - at), None, buckets);
            self.count(key, at, cpu.next(next - at), 0, 0, buckets);
            at = next;
        }
    }

    /// Books CPU time and hits of one moment.
    pub fn count(
        &mut self,
        key: &FactKey,
        at: Ns,
        cpu_ns: Ns,
        hits: u32,
        cpu_hits: u32,
        buckets: &mut Buckets,
    ) {
        let counted = Span::at(*key, at, cpu_ns, hits, cpu_hits);
        if counted.is_plain() {
            return;
        }
        let weights = buckets.entry(at, key);
        weights.cpu_ns += cpu_ns;
        weights.hits += hits;
        weights.cpu_hits += cpu_hits;
        let log = buckets.log();
        let started = log.started();
        let takes = |span: &Span| {
            let is_within = match span.is_instant() {
                true => at.abs_diff(span.from) <= NEAR,
                // At the end of a wait the next one begins.
                false => span.from <= at && at < span.till + u64::from(!span.is_wait()),
            };
            is_within && is_one_second(span.from, at, started)
        };
        let found = self.growing.find_or_add(Span::new(*key, at, at), log, takes);
        let span = &mut self.growing.spans[found];
        span.cpu_ns += cpu_ns;
        span.hits += hits;
        span.cpu_hits += cpu_hits;
    }

    /// Returns the free moments for the time `from..till`, which another account books.
    pub fn reserve(&mut self, from: Ns, till: Ns) -> Vec<(Ns, Ns)> {
        let mut parts = Vec::new();
        self.free
            .take(from, till, till.saturating_sub(from), |from, till| parts.push((from, till)));
        parts
    }

    fn place(
        &mut self,
        key: &FactKey,
        (from, till): (Ns, Ns),
        amount: Ns,
        wait: Option<Ns>,
        buckets: &mut Buckets,
    ) {
        let Ledger { free, growing } = self;
        let wanted = (from, till);
        // The last part, and the last one in which the wait was noted.
        let (mut placed, mut noted) = (None, None);
        free.take(from, till, amount, |from, till| {
            buckets.wall(key, from, till, wait.filter(|_| wanted == (from, till)));
            // A part that found room only before the wait is none of it.
            let wait = wait.filter(|began| *began < till);
            let log = buckets.log();
            let started = log.started();
            let takes = |span: &Span| {
                if span.is_instant() {
                    // At the end of a wait the next one begins.
                    let is_within =
                        from <= span.from && span.from < till + u64::from(wait.is_none());
                    return is_within && is_one_second(span.from, from, started);
                }
                let is_one = !span.is_wait() || wait.is_none_or(|began| began == span.longest_from);
                span.till == from && till - span.from <= MAX_SPAN && is_one
            };
            let at = growing.find_or_add(Span::new(*key, from, from), log, takes);
            let span = &mut growing.spans[at];
            span.from = span.from.min(from);
            span.till = till;
            if let Some(began) = wait {
                span.note_wait(began, wanted.1);
                noted = Some(at);
            }
            placed = Some((from, till, at));
        });
        // What a wait lasted does not depend on where its time found room.
        let Some(began) = wait else { return };
        if placed.is_none_or(|(from, till, _)| (from, till) != wanted) {
            buckets.note_wait(key, from, till, began);
        }
        if let (Some((_, _, at)), None) = (placed, noted) {
            growing.spans[at].note_wait(began, till);
        }
    }
}

/// Returns whether two moments are in the same second of a session that started at `started`.
fn is_one_second(a: Ns, b: Ns, started: Ns) -> bool {
    let second = |at: Ns| at.saturating_sub(started) / SECOND;
    second(a) == second(b)
}

/// Returns the key of the same thread and stack that waits for a core.
pub fn ready_key(key: &FactKey) -> FactKey {
    FactKey { state: RawState::Known(State::Rdy), blocker: BlockerId::NONE, ..*key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::buckets::Limits;
    use crate::model::facts::tables::{NameId, StackId};
    use crate::model::vocabulary::frame::ThreadKey;
    use proptest::prelude::*;

    proptest! {
        /// What is taken is disjoint, of the wanted length, and as wanted where nothing was taken.
        #[test]
        fn each_moment_is_taken_once(
            wanted in prop::collection::vec((0u64..3_000, 0u64..60, 0u64..150), 1..300),
        ) {
            let mut free = Free::new(100);
            let mut taken: Vec<(Ns, Ns)> = Vec::new();
            for (from, length, percent) in wanted {
                let (till, amount) = (from + length, length * percent.min(100) / 100);
                let before = taken.clone();
                let had_room = free.0.len() <= MAX_HOLES;
                let is_free = |from, till| before.iter().all(|(a, b)| till <= *a || *b <= from);
                let mut got = 0;
                free.take(from, till, amount, |from, till| {
                    got += till - from;
                    taken.push((from, till));
                });
                prop_assert_eq!(got, amount);
                prop_assert!(free.0.len() <= MAX_HOLES + 2);
                if amount == length && from >= 100 && is_free(from, till) && had_room {
                    prop_assert!(amount == 0 || taken.last() == Some(&(from, till)));
                }
            }
            taken.retain(|(from, till)| from < till);
            taken.sort_unstable();
            prop_assert!(taken.iter().all(|(from, _)| *from >= 100));
            prop_assert!(taken.windows(2).all(|two| two[0].1 <= two[1].0), "{:?}", taken);
        }
    }

    #[test]
    fn what_has_no_room_goes_before_it_and_then_after_it() {
        let mut free = Free::new(0);
        let mut take = |from, till| {
            let mut parts = Vec::new();
            free.take(from, till, till - from, |a, b| parts.push((a, b)));
            parts
        };
        assert_eq!(take(40, 60), [(40, 60)]);
        assert_eq!(take(50, 70), [(60, 70), (30, 40)]);
        assert_eq!(take(30, 70), [(0, 30), (70, 80)]);
        assert_eq!(take(10, 20), [(80, 90)]);
    }

    #[test]
    fn a_thread_with_many_holes_is_booked_where_it_was() {
        let mut free = Free::new(0);
        for tick in 0..200 {
            // It ran for a little of each tick, which is not booked yet.
            let (from, till) = (tick * 1_000 + 50, (tick + 1) * 1_000);
            let mut elsewhere = 0;
            free.take(from, till, till - from, |a, b| {
                elsewhere += b.min(from).saturating_sub(a) + b.saturating_sub(a.max(till));
            });
            // Only what fills the oldest hole is elsewhere. The holes get larger, not more.
            assert!(elsewhere <= 200, "{elsewhere}");
        }
        assert!(free.0.len() <= MAX_HOLES + 2);
    }

    fn key(stack: u32, state: State) -> FactKey {
        let thread = ThreadKey { pid: 1, tid: 1, start: 1 };
        FactKey::new(thread, NameId(0), StackId(stack), RawState::Known(state))
    }

    #[test]
    fn a_wait_has_its_length_wherever_its_time_finds_room() {
        let mut buckets = Buckets::new(0, Limits::default(), StackId(9));
        let mut ledger = Ledger::new(0);
        ledger.wall(&key(1, State::Run), 60, 100, 0, None, &mut buckets);
        ledger.wall(&key(2, State::Io), 50, 100, 0, Some(50), &mut buckets);
        ledger.wall(&key(3, State::Io), 50, 60, 0, Some(50), &mut buckets);
        let history = buckets.history(SECOND, ledger.growing().iter().copied());
        let mut of_spans = Vec::new();
        history.spans().read(0, SECOND, &mut |span, weights| {
            of_spans.push((span.key.stack.0, span.from, span.till, weights.longest_ns));
        });
        of_spans.sort_unstable();
        assert_eq!(of_spans, [(1, 60, 100, 0), (2, 10, 50, 0), (2, 50, 60, 50), (3, 0, 10, 10)]);
    }

    #[test]
    fn a_tick_of_running_and_waiting_takes_two_spans() {
        let mut buckets = Buckets::new(0, Limits::default(), StackId(9));
        let mut ledger = Ledger::new(0);
        let (run, wait) = (key(1, State::Run), key(2, State::Io));
        const MS: Ns = SECOND / 1_000;
        for tick in 0..50 {
            // It ran for 4 ms, is sampled at the end of that, and waits.
            let (from, at, till) = (tick * 10 * MS, tick * 10 * MS + 4 * MS, (tick + 1) * 10 * MS);
            ledger.count(&run, at, 0, 1, 1, &mut buckets);
            ledger.count(&wait, at, 0, 1, 0, &mut buckets);
            ledger.wall(&run, from, at, 0, None, &mut buckets);
            ledger.count(&run, at, 4 * MS, 0, 0, &mut buckets);
            ledger.wall(&wait, at, till, 0, Some(at), &mut buckets);
        }
        ledger.finish(&mut buckets);
        let history = buckets.history(SECOND, std::iter::empty());
        let mut spans = Vec::new();
        history.spans().read(0, SECOND, &mut |span, weights| {
            spans.push((span.from / MS, span.key.stack.0, weights.cpu_ns / MS, weights.hits));
        });
        spans.sort_unstable();
        let expected = (0..50).flat_map(|tick| [(tick * 10, 1, 4, 1), (tick * 10 + 4, 2, 0, 1)]);
        assert_eq!(spans, expected.collect::<Vec<_>>());
    }
}
