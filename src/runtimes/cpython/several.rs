//! A thread that executes code of several interpreters (PEP 554): each keeps a state of it, with a
//! list of frames of its own.
//!
//! Up to 3.12 the state of an interpreter says which thread created it, not which one runs it. The
//! native stack tells: structures of the evaluation lie on it.

use std::ops::Range;

use crate::model::vocabulary::frame::Marker;
use crate::runtimes::cpython::layout::{Layout, Top};
use crate::runtimes::cpython::threads::Threads;
use crate::unwinder::interpreted::InterpreterFrame;

/// The frames of one thread state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Index of the state.
    pub state: usize,
    /// Number of its interpreter in the list.
    pub nth: usize,
    /// Where its innermost evaluation is on the native stack; the lower, the later it began. `None`
    /// where the version does not say.
    pub place: Option<u64>,
    /// Its frames in a list of all.
    pub frames: Range<usize>,
    /// Why there are no more.
    pub end: Option<Marker>,
}

/// Returns where an innermost evaluation is on the native stack. `cframe`: address of the structure
/// that 3.11 and 3.12 keep there.
pub fn place(layout: &Layout, frames: &[InterpreterFrame], cframe: Option<u64>) -> Option<u64> {
    match layout.thread.top {
        Top::CFrame { .. } => cframe,
        Top::Thread { .. } => {
            frames.iter().find(|frame| layout.is_shim(frame.owner)).map(|frame| frame.address)
        }
    }
}

/// Returns the indices of the states whose frames may be on the stack of the thread that owns
/// `states`.
pub fn candidates(layout: &Layout, threads: &Threads, states: Vec<usize>) -> Vec<usize> {
    if threads.interpreters.len() < 2 || !names_creator(layout) || states.is_empty() {
        return states;
    }
    let main = threads.interpreters.len() - 1;
    let others = threads.states.iter().enumerate().filter(|(_, state)| state.nth != main);
    let mut all: Vec<usize> = others.map(|(at, _)| at).chain(states).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether the state of an interpreter may name another thread than the one that runs it, and the
/// native stack tells.
fn names_creator(layout: &Layout) -> bool {
    matches!(layout.thread.top, Top::CFrame { .. })
}

/// Keeps the parts that belong to the thread with this pthread_t, those of the interpreter that was
/// entered last first. `main`: the pthread_t of the main thread.
pub fn order(
    layout: &Layout,
    threads: &Threads,
    mut parts: Vec<Part>,
    pthread: u64,
    main: Option<u64>,
) -> Vec<Part> {
    if threads.interpreters.len() > 1 && names_creator(layout) {
        let owner = |place: u64| threads.above(place).or(main);
        parts.retain(|part| part.place.is_none_or(|place| owner(place) == Some(pthread)));
    }
    parts.sort_unstable_by_key(|part| (part.place, part.nth));
    if layout.minor <= 10 {
        // Nothing says which thread runs the others.
        parts.drain(..parts.len().saturating_sub(1));
    }
    parts
}
