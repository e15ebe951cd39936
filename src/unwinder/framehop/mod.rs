//! The default unwinder: walks copied stack bytes with the target's own unwind tables.

use crate::model::frame::{Marker, RawFrame};
use crate::process::files::Files;
use crate::process::memory::ReadMemory;
use crate::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// Walks the stacks of one process.
pub struct FramehopUnwinder<M> {
    memory: M,
    files: Files,
    pid: u32,
}

impl<M: ReadMemory> FramehopUnwinder<M> {
    pub fn new(memory: M, files: Files, pid: u32) -> FramehopUnwinder<M> {
        FramehopUnwinder { memory, files, pid }
    }

    /// Forgets everything known about the process's code: after an exec, or when mappings are known to have changed.
    pub fn invalidate(&mut self) {}
}

impl<M: ReadMemory> Unwinder for FramehopUnwinder<M> {
    fn walk(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        let _ = (&self.memory, &self.files, self.pid, registers, stack);
        out.push(RawFrame::marker(Marker::NoUnwindInfo));
        Walk { end: Some(Marker::NoUnwindInfo), recovered: false }
    }
}
