//! Splits a thread's frames into evaluations: the frames that one call of the native function
//! executes.

use crate::model::vocabulary::frame::{Marker, RawFrame};
use crate::runtimes::cpython::layout::Layout;
use crate::unwinder::interpreted::{Evaluations, InterpreterFrame};

/// A thread's frames as they were read, innermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chain<'a> {
    pub frames: &'a [InterpreterFrame],
    /// How many of them are the innermost ones: behind them some are missing.
    pub gap: Option<usize>,
    /// Why there are no more, if the list did not end by itself.
    pub end: Option<Marker>,
}

/// Appends the evaluations of a chain to `out`; `name` returns the frame to be shown for a
/// function.
pub fn split(
    layout: &Layout,
    chain: Chain<'_>,
    mut name: impl FnMut(&InterpreterFrame) -> RawFrame,
    out: &mut Evaluations,
) {
    let mut frames = chain.frames;
    if chain.end.is_none()
        && layout.minor >= 15
        && let Some((last, rest)) = frames.split_last()
        && layout.is_shim(last.owner)
        && rest.last().is_none_or(|before| layout.is_shim(before.owner))
    {
        // The frame of the thread itself, which no native function executes. The list of a greenlet
        // ends without it, with that of its outermost evaluation.
        frames = rest;
    }
    for (nth, frame) in frames.iter().enumerate() {
        if chain.gap == Some(nth) {
            out.frames.push(RawFrame::marker(Marker::Folded));
        }
        let shim = layout.is_shim(frame.owner);
        if !shim {
            out.frames.push(name(frame));
        }
        let is_last = match layout.minor {
            0..=10 => true,
            11 => frame.is_entry,
            _ => shim,
        };
        if is_last {
            out.ends.push(out.frames.len());
        }
    }
    let behind = out.ends.last().copied().unwrap_or(0);
    out.end = chain.end;
    if out.end.is_none() && (out.frames.len() > behind) {
        // Each evaluation has a last frame; this list ended before it.
        out.end = Some(Marker::Torn);
    }
}
