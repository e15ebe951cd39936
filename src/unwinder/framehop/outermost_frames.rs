//! The outermost frames of running threads whose stacks are deeper than what was copied.
//!
//! A sample copies at most 63 KiB of a stack, and the thread has run on before the rest can be
//! read. But frames stay in place as long as nothing returns to their callers. So for such a stack
//! the words that prove its outermost frames are remembered. They are valid for a sample if these
//! words were the same in [`NEEDED`] observations, one after the sample and the others before it.
//! Each observation must be within [`FRESH`] of the one before. From the outermost frame inwards
//! each word proves the next frame: a caller that was not returned to has its return address
//! exactly there.
//!
//! A change at the moment of the sample goes unnoticed if all observations around it are equal. It
//! takes a thread that changes between two callers at random, faster than observations follow each
//! other; then it is one sample in 2^8. So such a stack has a marker between its ends, and counts
//! as recovered.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::deep_stacks::OUTER;
use crate::unwinder::framehop::stack::Trace;

/// Observations in which a frame must be the same, the last one included.
const NEEDED: u32 = 8;
/// Minimum time between observations: those of one tick count as one.
const APART: Duration = Duration::from_millis(4);
/// Maximum time between observations that count together. Where threads wait for cores their
/// samples are far apart.
const FRESH: Duration = Duration::from_secs(2);
/// Time after which a stack that was walked to its end is walked to its end again.
const WALK_AGAIN: Duration = Duration::from_secs(1);
/// The same for a stack of which a part has changed.
const WALK_CUT: Duration = Duration::from_millis(100);

/// Maximum stacks remembered.
const STACKS_MAX: usize = 256;
/// Maximum words of one stack, and maximum distance between them, bytes.
const WORDS_MAX: usize = 8192;
const SPAN_MAX: u64 = 256 << 10;

/// A frame, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    frame: RawFrame,
    /// Index behind its last word, among the words of all frames.
    words_end: usize,
    /// Number of observations in which it was the same.
    seen: u32,
}

/// Outermost frames of one stack.
struct RecordedStack {
    parts: Vec<Part>,
    /// Addresses and contents, of one part after the other.
    words: Vec<(u64, u64)>,
    observed_at: Instant,
    walked_at: Instant,
    /// A part of it has changed.
    cut: bool,
}

/// The stacks of one process, by the ends of their mappings.
#[derive(Default)]
pub struct OutermostFrames {
    stacks: FxHashMap<u64, RecordedStack>,
    buffer: Vec<u8>,
}

impl OutermostFrames {
    pub fn clear(&mut self) {
        self.stacks.clear();
    }

    /// Whether anything is known of the stack with this end. Does not compute `end` where nothing
    /// is known of any stack.
    pub fn follows(&self, end: impl FnOnce() -> Option<u64>) -> bool {
        !self.stacks.is_empty() && end().is_some_and(|end| self.stacks.contains_key(&end))
    }

    /// Whether the stack should be walked to its end again.
    pub fn wants_walk(&self, end: u64, now: Instant) -> bool {
        self.stacks.get(&end).is_none_or(|recorded| {
            let since = now.duration_since(recorded.walked_at);
            since >= if recorded.cut { WALK_CUT } else { WALK_AGAIN }
        })
    }

    /// Records a walk that reached the end of the stack: `frames`, innermost first, and the words
    /// that it read for each of them.
    pub fn walked(&mut self, end: u64, frames: &[RawFrame], trace: &Trace, now: Instant) {
        let (mut parts, mut words) = (Vec::new(), Vec::new());
        let mut read_end = trace.words.len();
        let mut out_end = frames.len();
        let mut top = 0;
        for (out, read) in trace.frames.iter().rev() {
            let (out, read) = (*out as usize, *read as usize);
            // A step with no frame, or with several, is not proven by its words alone.
            let [frame] = frames.get(out..out_end).unwrap_or_default() else { break };
            let of_it = trace.words.get(read..read_end).unwrap_or_default();
            // The mapping may continue beyond the outermost frame: it may be joined with that of
            // something else.
            top = of_it.iter().map(|(at, _)| *at).fold(top, u64::max);
            let outside = |(at, _): &(u64, u64)| *at >= end || top - *at > SPAN_MAX;
            if parts.len() == OUTER
                || words.len() + of_it.len() > WORDS_MAX
                || of_it.iter().any(outside)
            {
                break;
            }
            words.extend_from_slice(of_it);
            parts.push(Part { frame: *frame, words_end: words.len(), seen: 1 });
            (out_end, read_end) = (out, read);
        }
        let before = self.stacks.remove(&end);
        if let Some(before) = &before {
            let more = before.counts(now);
            let mut from = 0;
            for (part, old) in parts.iter_mut().zip(&before.parts) {
                let same = (part.frame, part.words_end) == (old.frame, old.words_end)
                    && words[from..part.words_end] == before.words[from..part.words_end];
                if !same {
                    break;
                }
                from = part.words_end;
                part.seen = more(old.seen);
            }
        }
        if self.stacks.len() >= STACKS_MAX {
            self.stacks.clear();
        }
        let observed_at = before.map_or(now, |before| before.after(now));
        self.stacks
            .insert(end, RecordedStack { parts, words, observed_at, walked_at: now, cut: false });
    }

    /// Returns the outermost frames, innermost first, that the stack had at the sample; the stack
    /// is read now. Empty where nothing is proven.
    pub fn of_sample<M: ReadMemory>(
        &mut self,
        end: u64,
        memory: &M,
        now: Instant,
    ) -> Vec<RawFrame> {
        let Some(recorded) = self.stacks.get_mut(&end) else { return Vec::new() };
        let addresses = recorded.words.iter().map(|(at, _)| *at);
        let low = addresses.clone().min().unwrap_or(end);
        let high = addresses.max().map_or(end, |at| at.saturating_add(8));
        self.buffer.resize((high - low) as usize, 0);
        let read = memory.read(low, &mut self.buffer);
        let bytes = &self.buffer[..read];
        let word = |at: u64| {
            let at = (at - low) as usize;
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let more = recorded.counts(now);
        let mut from = 0;
        let mut same = 0;
        for part in &mut recorded.parts {
            if !recorded.words[from..part.words_end]
                .iter()
                .all(|(at, value)| word(*at) == Some(*value))
            {
                break;
            }
            from = part.words_end;
            part.seen = more(part.seen);
            same += 1;
        }
        recorded.observed_at = recorded.after(now);
        recorded.cut |= same < recorded.parts.len();
        recorded.parts.truncate(same);
        recorded.words.truncate(from);
        // The innermost of them was called by words that were not compared: it may have been called
        // again.
        let proven =
            recorded.parts.iter().take_while(|part| part.seen >= NEEDED).count().saturating_sub(1);
        recorded.parts[..proven].iter().rev().map(|part| part.frame).collect()
    }
}

impl RecordedStack {
    /// Returns the new count of observations of an unchanged frame, from its previous count.
    fn counts(&self, now: Instant) -> impl Fn(u32) -> u32 + use<> {
        let since = now.saturating_duration_since(self.observed_at);
        move |seen: u32| match since {
            since if since > FRESH => 1,
            since if since < APART => seen,
            _ => seen.saturating_add(1),
        }
    }

    /// Returns the time of the last observation, if there is one now.
    fn after(&self, now: Instant) -> Instant {
        if now.saturating_duration_since(self.observed_at) < APART { self.observed_at } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::frame::FrameCode;
    use std::cell::RefCell;

    const END: u64 = 0x10_0000;

    /// The last words of a stack.
    struct Words(RefCell<Vec<u64>>);

    impl ReadMemory for Words {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            let words = self.0.borrow();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let base = END - bytes.len() as u64;
            let Some(found) = address.checked_sub(base).and_then(|at| bytes.get(at as usize..))
            else {
                return 0;
            };
            let read = found.len().min(buf.len());
            buf[..read].copy_from_slice(&found[..read]);
            read
        }
    }

    fn frame(id: u64) -> RawFrame {
        RawFrame::new(FrameCode::Runtime { id })
    }

    /// Walks frames 5 (innermost) to 0; each has one word, its number.
    fn walk(memory: &Words) -> (Vec<RawFrame>, Trace) {
        let words = memory.0.borrow();
        let base = END - 8 * words.len() as u64;
        let frames = words.iter().map(|word| frame(*word)).collect();
        let trace = Trace {
            words: words.iter().enumerate().map(|(n, word)| (base + 8 * n as u64, *word)).collect(),
            frames: (0..words.len() as u32).map(|n| (n, n)).collect(),
        };
        (frames, trace)
    }

    fn tick(n: u32) -> Duration {
        Duration::from_millis(10) * n
    }

    #[test]
    fn frames_count_once_they_were_the_same_in_observations_before_and_after() {
        let memory = Words(RefCell::new(vec![5, 4, 3, 2, 1, 0]));
        let (mut outers, begin) = (OutermostFrames::default(), Instant::now());
        assert!(!outers.follows(|| Some(END)) && outers.wants_walk(END, begin));
        assert_eq!(outers.of_sample(END, &memory, begin), []);
        let (frames, trace) = walk(&memory);
        outers.walked(END, &frames, &trace, begin);
        assert!(
            outers.follows(|| Some(END))
                && !outers.follows(|| None)
                && !outers.wants_walk(END, begin)
        );
        let mut at = |n: u32| outers.of_sample(END, &memory, begin + tick(n));
        // All but the innermost, whose own caller's word was not compared.
        let proven = [4, 3, 2, 1, 0].map(frame);
        (1..NEEDED - 1).for_each(|n| assert_eq!(at(n), [], "{n}"));
        assert_eq!(at(NEEDED - 1), proven);
        assert_eq!(at(NEEDED - 1), proven, "the same tick");
        // After a pause it begins anew.
        let pause = NEEDED + 300;
        (0..NEEDED - 1).for_each(|n| assert_eq!(at(pause + n), [], "{n}"));
        assert_eq!(at(pause + NEEDED - 1), proven);
        // Another stack.
        assert_eq!(outers.of_sample(END + 0x1000, &memory, begin + tick(pause + NEEDED)), []);
    }

    #[test]
    fn observations_of_one_tick_are_one() {
        let memory = Words(RefCell::new(vec![2, 1, 0]));
        let (mut outers, begin) = (OutermostFrames::default(), Instant::now());
        let (frames, trace) = walk(&memory);
        for _ in 0..2 * NEEDED {
            outers.walked(END, &frames, &trace, begin);
            assert_eq!(outers.of_sample(END, &memory, begin + Duration::from_millis(1)), []);
        }
    }

    #[test]
    fn a_changed_frame_and_those_inside_it_are_dropped() {
        let memory = Words(RefCell::new(vec![5, 4, 3, 2, 1, 0]));
        let (mut outers, begin) = (OutermostFrames::default(), Instant::now());
        let (frames, trace) = walk(&memory);
        outers.walked(END, &frames, &trace, begin);
        let proven = [4, 3, 2, 1, 0].map(frame);
        let at =
            |outers: &mut OutermostFrames, n: u32| outers.of_sample(END, &memory, begin + tick(n));
        (1..NEEDED - 1).for_each(|n| assert_eq!(at(&mut outers, n), []));
        assert_eq!(at(&mut outers, NEEDED - 1), proven);
        memory.0.borrow_mut()[2] = 7;
        // 2 is proven by the word of 3 only.
        assert_eq!(at(&mut outers, NEEDED), [1, 0].map(frame));
        assert!(
            !outers.wants_walk(END, begin + tick(9)) && outers.wants_walk(END, begin + tick(10))
        );
        // It is back: whether it was called in between is unknown.
        memory.0.borrow_mut()[2] = 3;
        assert_eq!(at(&mut outers, 9), [1, 0].map(frame));
        // Walked again: unchanged frames count on, new ones begin.
        outers.walked(END, &frames, &trace, begin + tick(10));
        (1..NEEDED - 1).for_each(|n| assert_eq!(at(&mut outers, 10 + n), [1, 0].map(frame), "{n}"));
        assert_eq!(at(&mut outers, 10 + NEEDED - 1), proven);
        // Walked again, the same frames by another word: they begin too.
        let mut other = trace.clone();
        other.words[2].1 = 7;
        memory.0.borrow_mut()[2] = 7;
        outers.walked(END, &frames, &other, begin + tick(11 + NEEDED));
        assert_eq!(at(&mut outers, 12 + NEEDED), [1, 0].map(frame));
    }

    #[test]
    fn no_more_stacks_are_remembered_than_a_bound() {
        let memory = Words(RefCell::new(vec![2, 1, 0]));
        let (mut outers, begin) = (OutermostFrames::default(), Instant::now());
        let (frames, trace) = walk(&memory);
        for n in 0..2 * STACKS_MAX as u64 {
            outers.walked(END + 0x1000 * n, &frames, &trace, begin);
            assert!(outers.stacks.len() <= STACKS_MAX);
        }
    }

    #[test]
    fn what_cannot_be_read_or_lies_elsewhere_proves_nothing() {
        let memory = Words(RefCell::new(vec![5, 4, 3, 2, 1, 0]));
        let begin = Instant::now();
        let (frames, trace) = walk(&memory);
        let proven = |change: &dyn Fn(&mut Trace)| {
            let mut outers = OutermostFrames::default();
            let mut trace = trace.clone();
            change(&mut trace);
            outers.walked(END, &frames, &trace, begin);
            (1..NEEDED).map(|n| outers.of_sample(END, &memory, begin + tick(n)).len()).last()
        };
        assert_eq!(proven(&|_| {}), Some(5));
        assert_eq!(proven(&|trace| trace.words[2].0 = END), Some(2));
        assert_eq!(proven(&|trace| trace.words[2].0 = END - SPAN_MAX - 16), Some(2));
        assert_eq!(proven(&|trace| trace.words[2].0 = 0), Some(2));
        assert_eq!(
            proven(&|trace| trace.frames.retain(|step| *step != (2, 2))),
            Some(2),
            "a step with two frames"
        );
        // The stack is unreadable.
        let mut outers = OutermostFrames::default();
        outers.walked(END, &frames, &trace, begin);
        let nothing = Words(RefCell::new(Vec::new()));
        assert_eq!(
            (1..2 * NEEDED).map(|n| outers.of_sample(END, &nothing, begin + tick(n)).len()).max(),
            Some(0)
        );
    }
}
