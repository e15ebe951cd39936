//! Frames of code that belongs to no method: entries from native code, calls into the virtual machine, copying of arrays.

use crate::model::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::heap::Blob;
use crate::runtimes::jvm::walk::{Caller, Here};

/// From the stack pointer to rbp in a frame that rbp points at, bytes.
const FRAME_MOST: u64 = 0x2000;
/// Words searched for a return address where nothing else is known.
const SCANNED: u64 = 64;

impl<M: ReadMemory> Jvm<M> {
    pub fn leave_stub(&mut self, blob: &Blob, name: &str, here: &mut Here<'_>) -> (RawFrame, Option<Caller>) {
        let place = here.place;
        if !place.exact && place.pc == self.call_stub_return {
            // From here on it is native code again.
            return (self.stub_frame("call_stub"), self.by_rbp(here));
        }
        let frame = self.stub_frame(readable(name));
        if !place.exact {
            let caller = match blob.frame_size {
                // A call made by a stub of unknown frame, as those of virtual threads: rbp points at it.
                0 => self.by_rbp(here),
                size => self.whole(here, size),
            };
            return (frame, caller);
        }
        let complete = blob.frame_complete >= 0 && place.pc >= blob.code.wrapping_add_signed(blob.frame_complete);
        if blob.frame_size > 0 && complete {
            let caller = self.whole(here, blob.frame_size).filter(|caller| self.comes_from(caller.pc));
            if caller.is_some() {
                return (frame, caller);
            }
        }
        if let Some(caller) = self.leaf(here) {
            return (frame, Some(caller));
        }
        if place.rbp.is_some_and(|rbp| rbp.wrapping_sub(place.sp) < FRAME_MOST)
            && let Some(caller) = self.by_rbp(here).filter(|caller| self.comes_from(caller.pc))
        {
            return (frame, Some(caller));
        }
        let searched = (1..SCANNED).find_map(|words| {
            let pc = here.at_sp(8 * words)?;
            self.returns_to(pc).then_some(Caller { pc, sp: place.sp + 8 * words + 8, rbp: place.rbp })
        });
        (frame, searched)
    }

    /// A return address in generated code, or outside it: a stub may have been called by native code.
    fn comes_from(&mut self, pc: u64) -> bool {
        !self.code.contains(pc) || self.returns_to(pc)
    }
}

/// `StubRoutines (initial stubs)` as `StubRoutines`: where they are kept says nothing, and differs by version.
fn readable(name: &str) -> &str {
    name.split_once(" (").map_or(name, |(name, _)| name)
}
