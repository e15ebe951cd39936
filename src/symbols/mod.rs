//! (mapped file, offset) -> function, file, line, inlined frames; cached per file, on a worker thread.

use crate::model::frame::RawFrame;
use crate::model::tables::Named;

/// A name that was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub frame: RawFrame,
    pub named: Named,
}
