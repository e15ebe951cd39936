//! Frames of generated code that is no method's: entries from native code, calls into the virtual
//! machine, array copies, exception handling.

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::code_cache::{Blob, Kind};
use crate::runtimes::jvm::compiled::{Epilogue, epilogue};
use crate::runtimes::jvm::walk::{Caller, StackCursor};

/// Maximum distance from the stack pointer to rbp in a frame that rbp points at, bytes.
const FRAME_MAX: u64 = 0x2000;
/// Words searched for a return address where nothing else is known.
const SCANNED: u64 = 64;
/// The word that a method's entry barrier pushes before it saves rbp. So there is one more word
/// below the return address.
const COOKIE: u64 = u64::MAX;
/// Stands for those frames of a virtual thread that are still on the heap. They are copied back to
/// the stack when they are returned to.
const FROZEN: &str = "frames on the heap";
/// The frame of `Continuation.enterSpecial`: the virtual machine's `ContinuationEntry`, rbp and a
/// return address, bytes.
const ENTRY_FRAME: u64 = 80;
/// Maximum bytes of arguments on the stack.
const ARGUMENTS_MAX: u64 = 256;
/// Part of the name of every stub that continues where an exception is caught, in a method compiled
/// by C1.
const HANDLES: &str = "handle_exception";
/// `mov [rbp + 8], rax`: here such a stub replaces its return address by that of the handler in the
/// same method.
const REPLACES: [u8; 4] = [0x48, 0x89, 0x45, 0x08];
/// Maximum bytes of such a stub; real ones have some 600.
const HANDLES_MAX: u64 = 4096;
/// The blob of hand-written code with many entries.
const ROUTINES: &str = "StubRoutines";

impl<M: ReadMemory> Jvm<M> {
    pub fn leave_stub(
        &mut self,
        blob: &Blob,
        name: &str,
        cursor: &mut StackCursor<'_>,
    ) -> (RawFrame, Option<Caller>) {
        if !cursor.place.exact && cursor.place.pc == self.call_stub_return {
            // The frames beyond are native code again.
            self.note_entry(cursor);
            return (self.stub_frame("call_stub"), self.by_rbp(cursor));
        }
        if !cursor.place.exact && self.is_barrier(name, cursor.place.pc) {
            return (self.stub_frame(FROZEN), self.leave_entry(cursor));
        }
        let frame = self.stub_frame(readable(name));
        let caller = match cursor.place.exact {
            true => self.top_stub(blob, name, cursor),
            false => self.calling_stub(blob, name, cursor),
        };
        (frame, caller)
    }

    /// Returns the caller of a continuation's outermost frame: the frame that entered the
    /// continuation. Between them lie the arguments.
    fn leave_entry(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        (0..ARGUMENTS_MAX).step_by(16).find_map(|arguments| {
            let caller = self.whole(cursor, arguments + ENTRY_FRAME)?;
            self.returns_to(caller.pc).then_some(caller)
        })
    }

    /// Returns the caller of a stub that is not innermost: it has called.
    fn calling_stub(
        &mut self,
        blob: &Blob,
        name: &str,
        cursor: &mut StackCursor<'_>,
    ) -> Option<Caller> {
        let whole = if blob.frame_size > 0 { self.whole(cursor, blob.frame_size) } else { None };
        if let Some(caller) = whole.filter(|caller| self.returns_to(caller.pc)) {
            return Some(caller);
        }
        // A stub without a frame that calls may push one word to align the stack.
        let bare = blob.frame_size == 0 && !name.starts_with(ROUTINES);
        if bare
            && let Some(caller) = [0, 8].into_iter().find_map(|pushed| self.below(cursor, pushed))
        {
            return Some(caller);
        }
        let by_rbp = self.by_rbp(cursor);
        if let Some(caller) = by_rbp.filter(|caller| self.returns_to(caller.pc)) {
            return Some(caller);
        }
        if let Some(caller) = self.at_entry(cursor) {
            return Some(caller);
        }
        // The caller may be native code.
        whole.or(by_rbp).filter(|caller| self.is_native(caller.pc))
    }

    /// Returns the caller of the innermost stub.
    fn top_stub(
        &mut self,
        blob: &Blob,
        name: &str,
        cursor: &mut StackCursor<'_>,
    ) -> Option<Caller> {
        let place = cursor.place;
        // The byte before the pc is read too.
        let mut code = [0; 17];
        let read = self.memory.read(place.pc.wrapping_sub(1), &mut code).max(1);
        let caller = match &code[..read] {
            code if name.contains(HANDLES) && self.has_replaced(blob, place.pc) => {
                self.handler(code.get(1).copied(), cursor)
            }
            // push rbp; mov rbp, rsp
            [_, 0x55, 0x48, 0x8b, 0xec, ..] => self.leaf(cursor),
            [0x55, 0x48, 0x8b, 0xec, ..] => self.pushed_rbp(cursor),
            // leave
            [_, 0xc9, ..] => self.by_rbp(cursor).filter(|caller| self.returns_to(caller.pc)),
            [_, code @ ..] => match epilogue(code) {
                Some(Epilogue::Return) => self.leaf(cursor),
                Some(Epilogue::Pop) => self.pushed_rbp(cursor),
                None => None,
            },
            [] => None,
        };
        if caller.is_some() {
            return caller;
        }
        if blob.frame_size > 0 {
            if let Some(caller) = self.framed_stub(blob, cursor) {
                return Some(caller);
            }
        } else if let Some(caller) = self
            .leaf(cursor)
            .or_else(|| self.below(cursor, 8).filter(|_| cursor.at_sp(0) == Some(COOKIE)))
        {
            return Some(caller);
        }
        if place.rbp.is_some_and(|rbp| rbp.wrapping_sub(place.sp) < FRAME_MAX) {
            let caller = self.by_rbp(cursor);
            let caller = caller
                .filter(|caller| self.returns_to(caller.pc))
                .or_else(|| self.at_entry(cursor));
            let caller =
                caller.or_else(|| self.by_rbp(cursor).filter(|caller| self.is_native(caller.pc)));
            if caller.is_some() {
                return caller;
            }
        }
        // Other stubs jump with words on the stack that look like return addresses.
        let scanned = if name.starts_with(ROUTINES) { SCANNED } else { 0 };
        (1..scanned).find_map(|words| self.below(cursor, 8 * words))
    }

    /// Whether an exception stub is about to return to the handler that it has found. Nothing else
    /// writes its return address this way. Before that it is the address of the call that threw, as
    /// in any other stub.
    fn has_replaced(&self, blob: &Blob, pc: u64) -> bool {
        let mut code = vec![0; blob.code_end.saturating_sub(blob.code).min(HANDLES_MAX) as usize];
        if self.memory.read_exact(blob.code, &mut code).is_none() {
            return false;
        }
        let mut places =
            code.windows(REPLACES.len()).enumerate().filter(|(_, window)| **window == REPLACES);
        match (places.next(), places.next()) {
            (Some((at, _)), None) => pc >= blob.code + (at + REPLACES.len()) as u64,
            _ => false,
        }
    }

    /// Returns the method whose handler this stub is about to jump to. No call returns there, so
    /// only the stub shows that it is a caller.
    fn handler(&mut self, next: Option<u8>, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let caller = match next? {
            // ret; pop rcx, to jump there. rbp belongs to the method again.
            0xc3 | 0xc2 | 0x59 => Caller {
                pc: cursor.at_sp(0)?,
                sp: cursor.place.sp.checked_add(8)?,
                rbp: cursor.place.rbp,
            },
            // jmp rcx: the address is no longer on the stack.
            0xff => return None,
            _ => self.by_rbp(cursor)?,
        };
        let blob = self.blob(caller.pc.wrapping_sub(1))?;
        let compiled = matches!(blob.kind, Kind::Compiled(_))
            && (blob.code..blob.code_end).contains(&caller.pc);
        let frame = if compiled { self.handler_frame(&blob, caller.pc)? } else { return None };
        self.handler = Some((caller.pc, frame));
        Some(caller)
    }

    /// Returns the caller of a stub whose frame has a known size and may be complete or partly
    /// built.
    fn framed_stub(&mut self, blob: &Blob, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let place = cursor.place;
        let done = self.prologue(blob.code, place.pc);
        let caller = match done {
            Some(done) if !done.subtracted && !done.pushed => self.leaf(cursor),
            Some(done) if !done.subtracted => self.pushed_rbp(cursor),
            _ => self.whole(cursor, blob.frame_size).filter(|caller| self.returns_to(caller.pc)),
        };
        caller.or_else(|| self.leaf(cursor))
    }

    /// Reads a return address at this distance in bytes from the stack pointer; nothing else of the
    /// frame is known.
    fn below(&mut self, cursor: &mut StackCursor<'_>, distance: u64) -> Option<Caller> {
        let pc = cursor.at_sp(distance)?;
        self.returns_to(pc).then_some(Caller {
            pc,
            sp: cursor.place.sp + distance + 8,
            rbp: cursor.place.rbp,
        })
    }

    /// Returns the caller of a method's entry barrier, which has saved rbp.
    fn at_entry(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let rbp =
            cursor.place.rbp.filter(|rbp| rbp.is_multiple_of(8) && *rbp >= cursor.place.sp)?;
        let pc = cursor.slot(rbp, 2)?;
        // The cookie becomes a stack pointer if the method is to be left at once.
        let cookie = cursor.slot(rbp, 1)?;
        let fits = cookie == COOKIE || cookie > rbp && cookie - rbp < 1 << 20;
        (fits && self.returns_to(pc)).then_some(Caller {
            pc,
            sp: rbp.checked_add(24)?,
            rbp: Some(cursor.slot(rbp, 0)?),
        })
    }

    /// Whether this address may be native code.
    fn is_native(&self, pc: u64) -> bool {
        (0x1000..1 << 56).contains(&pc) && !self.code.contains(pc)
    }
}

/// Shortens `StubRoutines (initial stubs)` to `StubRoutines`: the group says little and differs by
/// version.
fn readable(name: &str) -> &str {
    name.split_once(" (").map_or(name, |(name, _)| name)
}
