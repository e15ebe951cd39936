//! Shortens deep stacks: only the innermost and outermost frames are kept.
//!
//! The number of frames between them is not part of the stack. So a recursion whose depth changes
//! stays one stack.

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::{FrameCode, Marker, RawFrame};

/// Frames kept at the inner end of a deep stack.
const INNER: usize = 128;
/// Frames kept at its outer end. The largest application servers have 300 above a request's own
/// code.
pub const OUTER: usize = 512;

/// A frame belongs to a recursion if it occurs once per this number of inner frames.
const RECURS: usize = 32;

/// Replaces the middle of `frames[first..]`, innermost frame first, by a marker if the stack is
/// deeper than what is kept.
pub fn fold(frames: &mut Vec<RawFrame>, first: usize) {
    if frames.len() - first > INNER + OUTER {
        let outer = frames.split_off(frames.len() - OUTER);
        join(frames, first, Marker::Folded, &outer);
    }
}

/// Appends the outermost frames, innermost first, to the innermost ones in `frames[first..]`. A
/// marker stands for those between them.
pub fn join(frames: &mut Vec<RawFrame>, first: usize, between: Marker, outer: &[RawFrame]) {
    let count = frames.len() - first;
    // Keeps the same number of frames even where one more or one less was copied.
    let kept: usize = if count >= INNER { INNER } else { 1 << count.max(1).ilog2() };
    frames.truncate(first + kept);
    let mut often: FxHashMap<RawFrame, usize> = FxHashMap::default();
    for frame in &frames[first..] {
        *often.entry(*frame).or_default() += 1;
    }
    let enough = (kept / RECURS).max(2);
    let recurs = |frame: &RawFrame| often.get(frame).is_some_and(|times| *times >= enough);
    let inner = inner_end(&frames[first..], recurs);
    frames.truncate(first + inner);
    // Keeps what lies outside of the recursion, and nothing of the recursion, however deep it was
    // entered.
    let outside = outer.iter().rev().take_while(|frame| !recurs(frame)).count().max(1);
    let outer = &outer[outer.len().saturating_sub(outside)..];
    let is_marker = |frame: &RawFrame| matches!(frame.decode(), FrameCode::Marker { .. });
    // A marker alone already says that frames are missing.
    if outer.len() != 1 || !outer.iter().all(is_marker) {
        frames.push(RawFrame::marker(between));
    }
    frames.extend_from_slice(outer);
}

/// Returns how many of `frames`, the innermost ones, are kept. Of a recursion that continues behind
/// them it keeps the same number at any depth, so what its innermost call has called is one row.
/// The outermost frame kept is the same one, whichever function of the recursion is innermost.
fn inner_end(frames: &[RawFrame], recurs: impl Fn(&RawFrame) -> bool) -> usize {
    let kept = frames.len();
    let (Some(begin), Some(true)) = (frames.iter().position(&recurs), frames.last().map(&recurs))
    else {
        return kept;
    };
    let end = begin + (kept / 2).max(1);
    let Some(lowest) =
        frames.get(begin..end).and_then(|calls| calls.iter().filter(|frame| recurs(frame)).min())
    else {
        return kept;
    };
    frames[..end].iter().rposition(|frame| frame == lowest).map_or(kept, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDED: Marker = Marker::Folded;

    fn frame(id: u64) -> RawFrame {
        RawFrame::new(FrameCode::Runtime { id })
    }

    /// Innermost first: `leaf`, then the recursion, then main and the start.
    fn stack(depth: usize) -> Vec<RawFrame> {
        let mut frames = vec![frame(9)];
        frames.extend((0..depth).map(|_| frame(3)));
        frames.extend([2, 1, 0].map(frame));
        frames
    }

    fn folded(mut frames: Vec<RawFrame>) -> Vec<RawFrame> {
        fold(&mut frames, 0);
        frames
    }

    #[test]
    fn a_stack_that_fits_stays_whole() {
        let fits = stack(INNER + OUTER - 4);
        assert_eq!(folded(fits.clone()), fits);
    }

    #[test]
    fn the_depth_of_a_recursion_is_no_part_of_the_stack() {
        let deep = folded(stack(6_000));
        assert_eq!(deep, folded(stack(16_000)));
        assert_eq!(deep, folded(stack(INNER + OUTER - 3)), "one frame too many");
        assert_eq!(deep[..2], [frame(9), frame(3)]);
        let end = 1 + INNER / 2;
        assert_eq!(deep[end..], [RawFrame::marker(FOLDED), frame(2), frame(1), frame(0)]);
        // What the innermost call has called does not change what lies outside of it.
        let mut further = stack(6_000);
        further.splice(..1, [8, 7, 9].map(frame));
        assert_eq!(folded(further)[3..], deep[1..]);
        // Two functions that call each other; one more call of both.
        let mutual = |depth: u64| {
            let mut frames: Vec<_> = (0..depth).map(|n| frame(3 + n % 2)).collect();
            frames.extend([2, 1, 0].map(frame));
            folded(frames)
        };
        assert_eq!(mutual(2_000), mutual(2_002));
        let (even, odd) = (mutual(2_000), mutual(2_001));
        let outermost =
            |frames: &[RawFrame]| frames.iter().rev().take(6).copied().collect::<Vec<_>>();
        assert_eq!(outermost(&even), outermost(&odd));
    }

    #[test]
    fn what_is_called_once_in_a_while_is_no_recursion() {
        // A function that was called once by the handler, and is also called by the recursion's
        // innermost frame.
        let mut frames = vec![frame(7)];
        frames.extend((0..3_000).map(|_| frame(3)));
        frames.extend([2, 7, 1, 0].map(frame));
        let folded = folded(frames);
        assert_eq!(
            folded[1 + INNER / 2..],
            [RawFrame::marker(FOLDED), frame(2), frame(7), frame(1), frame(0)]
        );
    }

    #[test]
    fn frames_that_do_not_recur_are_kept_by_number() {
        let frames: Vec<_> = (0..2_000).map(frame).collect();
        let folded = folded(frames.clone());
        assert_eq!(folded[..INNER], frames[..INNER]);
        assert_eq!(folded[INNER], RawFrame::marker(FOLDED));
        assert_eq!(folded[INNER + 1..], frames[2_000 - OUTER..]);
    }

    #[test]
    fn what_was_there_before_stays_and_a_marker_at_the_end_is_one_marker() {
        let mut frames = vec![frame(99); 5];
        frames.extend((0..3_000).map(|_| frame(3)));
        frames.push(RawFrame::marker(Marker::TooDeep));
        fold(&mut frames, 5);
        assert_eq!(frames.len(), 5 + INNER / 2 + 1);
        assert_eq!(
            (frames[4], frames[5 + INNER / 2]),
            (frame(99), RawFrame::marker(Marker::TooDeep))
        );
    }

    #[test]
    fn whichever_function_of_a_recursion_is_the_innermost_the_outermost_one_kept_is_the_same() {
        for first in [0, 1] {
            let mut frames: Vec<_> = (first..2_000).map(|n| frame(3 + n % 2)).collect();
            frames.extend([2, 1, 0].map(frame));
            let folded = folded(frames);
            let marker = folded
                .iter()
                .position(|frame| *frame == RawFrame::marker(FOLDED))
                .expect("it is deep");
            assert_eq!(folded[marker - 1], frame(3), "{first}");
        }
    }

    #[test]
    fn what_a_recursion_calls_once_does_not_end_it() {
        let mut frames = stack(3_000);
        frames[31] = frame(1);
        let end = 1 + INNER / 2;
        assert_eq!(folded(frames)[end], RawFrame::marker(FOLDED));
    }

    #[test]
    fn a_recursion_that_is_over_within_the_inner_end_is_kept() {
        let frames: Vec<_> = (0..100).map(|_| frame(3)).chain((10..2_000).map(frame)).collect();
        assert_eq!(folded(frames.clone())[..INNER], frames[..INNER]);
    }

    #[test]
    fn frequent_frames_are_a_recursion() {
        for (times, kept) in [(INNER / RECURS - 1, 3), (INNER / RECURS, 2)] {
            let mut frames: Vec<_> = (100..100 + INNER as u64).map(frame).collect();
            (0..times).for_each(|n| frames[9 * n] = frame(7));
            join(&mut frames, 0, FOLDED, &[7, 1, 0].map(frame));
            assert_eq!(frames.len(), INNER + 1 + kept, "{times}");
        }
        // Few frames were copied: each of them occurs once.
        let mut frames = [11, 12, 13, 14].map(frame).to_vec();
        join(&mut frames, 0, FOLDED, &[9, 12, 0].map(frame));
        assert_eq!(frames.len(), 4 + 1 + 3);
    }

    #[test]
    fn few_inner_frames_are_a_number_that_seldom_changes() {
        for (copied, kept) in
            [(0, 0), (1, 1), (31, 8), (32, 16), (33, 16), (63, 16), (100, 32), (127, 32), (500, 64)]
        {
            let mut frames = vec![frame(3); copied];
            join(&mut frames, 0, FOLDED, &[frame(3), frame(3), frame(2), frame(1)]);
            assert_eq!(frames[kept], RawFrame::marker(FOLDED), "{copied}");
        }
        // The outermost frame stays, whatever it is.
        let mut frames = vec![frame(3); 64];
        join(&mut frames, 0, FOLDED, &[frame(3)]);
        assert_eq!(frames[32..], [RawFrame::marker(FOLDED), frame(3)]);
    }
}
