//! Leaves a frame of generated code, in the way that its kind needs.

use rustc_hash::FxHashSet;

use crate::clock::monotonic;
use crate::model::vocabulary::blocker::RawBlocker;
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName};
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::code_cache::{Blob, Kind};
use crate::unwinder::interpreted::StackOwner;
use crate::unwinder::{Generated, Leave, Place};

/// The stack of the thread that is walked, and the current place on it.
pub struct StackCursor<'w> {
    pub place: Place,
    pub word: &'w mut dyn FnMut(u64) -> Option<u64>,
}

impl StackCursor<'_> {
    /// Reads the word at a distance from the stack pointer, in bytes.
    pub fn at_sp(&mut self, distance: u64) -> Option<u64> {
        (self.word)(self.place.sp.checked_add(distance)?)
    }

    /// Reads the word at a distance from an address, in words.
    pub fn slot(&mut self, base: u64, words: i64) -> Option<u64> {
        (self.word)(base.checked_add_signed(8 * words)?)
    }
}

/// A caller: its pc, stack pointer, and rbp where it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    pub pc: u64,
    pub sp: u64,
    pub rbp: Option<u64>,
}

impl<M: ReadMemory + Send> Generated for Jvm<M> {
    fn begin(&mut self, copied: Ns, running: bool) {
        Jvm::begin(self, monotonic(), copied, running);
    }

    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.java_threads(moved)
    }

    fn thread_name(&mut self, at: Ns) -> Option<RawName> {
        self.virtual_name(at)
    }

    fn covers(&self, pc: u64) -> bool {
        self.code.contains(pc)
    }

    fn leave(
        &mut self,
        place: Place,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        self.leave_frame(place, word, out)
    }

    fn resume(
        &mut self,
        sp: u64,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Option<(u64, Leave)> {
        self.resume_at_anchor(sp, word, out)
    }

    fn waits_for(&mut self, sp: u64, callee: u64) -> Option<RawFrame> {
        self.waits_for_monitor(sp, callee)
    }

    fn blocker(&mut self, owner: StackOwner) -> Option<RawBlocker> {
        self.blocker_on_stack(owner.sp)
    }

    fn can_resume(&self) -> bool {
        true
    }
}

/// Maximum distance from a callee's stack pointer to its caller's (arguments), bytes.
pub const SENDER_MAX: u64 = 512 << 10;

/// Whether a register's value may be the end of the caller's stack, above `sp`.
pub fn is_sender(sender: u64, sp: u64) -> bool {
    sender > sp && sender - sp < SENDER_MAX && sender.is_multiple_of(8)
}

impl<M: ReadMemory> Jvm<M> {
    /// See [`Generated::leave`].
    pub fn leave_frame(
        &mut self,
        place: Place,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        let looked_up = if place.exact { place.pc } else { place.pc.wrapping_sub(1) };
        let blob = self.blob(looked_up);
        if self.may_be_younger(looked_up) {
            return Leave::End(Marker::CodeReplaced);
        }
        let Some(blob) = blob else {
            out.push(self.stub_frame("generated code"));
            return Leave::End(Marker::BadUnwind);
        };
        // A frame is shown only where there is evidence that it has called.
        self.handler = self.handler.filter(|(pc, _)| *pc == place.pc && !place.exact);
        if !place.exact && self.handler.is_none() && !self.returns_to(place.pc) {
            return Leave::End(Marker::BadUnwind);
        }
        let before = out.len();
        self.methods.take_untrusted();
        let left = self.leave_blob(&blob, StackCursor { place, word }, out);
        // Only interpreted frames are checked: compiled code keeps its methods alive.
        if blob.kind == Kind::Interpreter && self.methods.take_untrusted() {
            out.truncate(before);
            return Leave::End(Marker::CodeReplaced);
        }
        left
    }

    /// Finds the caller of a frame of this blob.
    pub fn leave_blob(
        &mut self,
        blob: &Blob,
        mut cursor: StackCursor<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        if !cursor.place.exact {
            self.find_continuation(&blob.kind, &mut cursor);
        }
        let (frame, caller) = match &blob.kind {
            Kind::Interpreter => self.leave_interpreter(&mut cursor),
            Kind::Compiled(nmethod) | Kind::NativeWrapper(nmethod) => {
                self.leave_compiled(blob, nmethod, &mut cursor)
            }
            Kind::Frameless => (self.stub_frame("adapter"), self.leave_adapter(&mut cursor)),
            Kind::Stub(name) => self.leave_stub(blob, name, &mut cursor),
        };
        out.push(frame);
        match caller {
            Some(Caller { pc, sp, rbp }) => Leave::To { pc, sp, rbp },
            None => Leave::End(Marker::BadUnwind),
        }
    }

    /// Returns the caller of code whose return address is on top of the stack.
    pub fn leaf(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let pc = cursor.at_sp(0)?;
        self.returns_to(pc).then_some(Caller { pc, sp: cursor.place.sp + 8, rbp: cursor.place.rbp })
    }

    /// Returns the caller of an adapter between callers and callees that pass arguments
    /// differently. An adapter pushes nothing for itself, but moves the return address to make room
    /// for arguments. Meanwhile rax holds the return address, and r13 the end of the caller's
    /// stack.
    fn leave_adapter(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let Place { sp, rbp, general, .. } = cursor.place;
        let Some(general) = general.filter(|_| cursor.place.exact) else {
            return self.leaf(cursor);
        };
        let sender = Some(general.r13).filter(|r13| is_sender(*r13, sp));
        let top = cursor.at_sp(0)?;
        let moved = top == general.rax && sender.is_some();
        if self.returns_to(top) {
            let sp = sender.filter(|_| moved).unwrap_or(sp + 8);
            return Some(Caller { pc: top, sp, rbp });
        }
        self.returns_to(general.rax).then_some(Caller {
            pc: general.rax,
            sp: sender.unwrap_or(sp),
            rbp,
        })
    }

    /// Reads a complete frame of `size` bytes: the return address is its highest word, the caller's
    /// rbp the one below.
    pub fn whole(&mut self, cursor: &mut StackCursor<'_>, size: u64) -> Option<Caller> {
        if size < 16 {
            return None;
        }
        let (pc, rbp) = (cursor.at_sp(size - 8)?, cursor.at_sp(size - 16)?);
        Some(Caller { pc, sp: cursor.place.sp + size, rbp: Some(rbp) })
    }

    /// Reads a frame that rbp points at.
    pub fn by_rbp(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let rbp =
            cursor.place.rbp.filter(|rbp| rbp.is_multiple_of(8) && *rbp >= cursor.place.sp)?;
        Some(Caller {
            pc: cursor.slot(rbp, 1)?,
            sp: rbp.checked_add(16)?,
            rbp: Some(cursor.slot(rbp, 0)?),
        })
    }
}
