//! Frames of interpreted methods. They are reached by rbp. The innermost one may be found partly
//! built.

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::walk::{Caller, StackCursor, is_sender};

/// Smallest and largest distance from the stack pointer to rbp (65,535 stack slots), bytes.
const SMALLEST: u64 = 64;
const LARGEST: u64 = 1 << 20;
/// Words above the stack pointer that are searched for a frame if rbp is unknown.
const SEARCHED: u64 = 512;

impl<M: ReadMemory> Jvm<M> {
    pub fn leave_interpreter(
        &mut self,
        cursor: &mut StackCursor<'_>,
    ) -> (RawFrame, Option<Caller>) {
        if cursor.place.exact
            && let Some(found) = self.entering(cursor)
        {
            return (found.0, Some(found.1));
        }
        let rbp = match cursor.place.rbp {
            Some(rbp) => Some(rbp).filter(|rbp| self.is_frame(cursor, *rbp)),
            // The stack is known without registers. What fits in all of a frame's slots is taken as
            // one.
            None => {
                let first = cursor.place.sp + SMALLEST;
                (0..SEARCHED).map(|n| first + 8 * n).find(|rbp| self.is_frame(cursor, *rbp))
            }
        };
        let Some((rbp, method)) = rbp.and_then(|rbp| Some((rbp, self.method_of(cursor, rbp)?)))
        else {
            let caller =
                if cursor.place.exact { self.returned(cursor) } else { self.unfilled(cursor) };
            return (self.stub_frame("interpreter"), caller);
        };
        let bci = self.bytecode_index(cursor, rbp, method);
        let frame =
            self.interpreted_frame(method, bci).unwrap_or_else(|| self.stub_frame("interpreter"));
        (frame, self.sender(cursor, rbp))
    }

    fn sender(&mut self, cursor: &mut StackCursor<'_>, rbp: u64) -> Option<Caller> {
        let slots = self.layout.interpreter;
        Some(Caller {
            pc: cursor.slot(rbp, 1)?,
            sp: cursor.slot(rbp, slots.sender_sp)?,
            rbp: Some(cursor.slot(rbp, 0)?),
        })
    }

    /// Whether rbp points at an interpreter frame: all fixed properties of a frame hold.
    fn is_frame(&mut self, cursor: &mut StackCursor<'_>, rbp: u64) -> bool {
        self.fits(cursor, rbp)
            && self.method_of(cursor, rbp).is_some()
            && cursor.slot(rbp, 1).is_some_and(|pc| self.returns_to(pc))
    }

    fn fits(&self, cursor: &mut StackCursor<'_>, rbp: u64) -> bool {
        let size = rbp.wrapping_sub(cursor.place.sp);
        let sender = cursor.slot(rbp, self.layout.interpreter.sender_sp);
        rbp.is_multiple_of(8)
            && (SMALLEST..LARGEST).contains(&size)
            && sender.is_some_and(|sender| is_sender(sender, rbp))
    }

    /// Returns the caller of a frame that replaces a compiled one and is not yet filled in. Its
    /// links are there, and a zero where the end of its expression stack will be.
    fn unfilled(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let rbp = cursor.place.rbp.filter(|rbp| self.fits(cursor, *rbp))?;
        let last_sp = cursor.slot(rbp, self.layout.interpreter.sender_sp - 1)?;
        self.sender(cursor, rbp).filter(|caller| last_sp == 0 && self.returns_to(caller.pc))
    }

    /// Returns the method of this frame.
    fn method_of(&mut self, cursor: &mut StackCursor<'_>, rbp: u64) -> Option<u64> {
        let at = cursor.slot(rbp, self.layout.interpreter.method)?;
        self.methods.get(&self.memory, &self.layout, at).map(|_| at)
    }

    /// Returns the current bytecode index. For the innermost frame r13 holds it, for a calling one
    /// the frame. `None` where neither does.
    fn bytecode_index(
        &mut self,
        cursor: &mut StackCursor<'_>,
        rbp: u64,
        method: u64,
    ) -> Option<i32> {
        let known = self.methods.get(&self.memory, &self.layout, method)?;
        let index = |pointer: u64| {
            let index =
                pointer.checked_sub(known.bytecode).filter(|index| *index < known.code_size)?;
            i32::try_from(index).ok()
        };
        let register = cursor
            .place
            .general
            .filter(|_| cursor.place.exact)
            .and_then(|general| index(general.r13));
        let saved = cursor.slot(rbp, self.layout.interpreter.bytecode);
        register.or_else(|| index(saved?))
    }

    /// Returns a method that is being entered. rbx holds its `Method`; its frame is missing or
    /// incomplete.
    fn entering(&mut self, cursor: &mut StackCursor<'_>) -> Option<(RawFrame, Caller)> {
        let general = cursor.place.general?;
        let (sp, rbp) = (cursor.place.sp, cursor.place.rbp?);
        self.methods.get(&self.memory, &self.layout, general.rbx)?;
        let another = cursor.slot(rbp, self.layout.interpreter.method) != Some(general.rbx);
        // While a method runs r13 points at bytecode, never at the stack.
        let sender_fits = another && is_sender(general.r13, sp);
        let building = rbp.is_multiple_of(8)
            && rbp.wrapping_sub(sp) < SMALLEST + 16
            && cursor.slot(rbp, 1).is_some_and(|pc| self.returns_to(pc));
        let caller = if building && !(sender_fits && general.r13 <= rbp) {
            // The frame is begun. r13 becomes the bytecode pointer once the sender's stack pointer
            // is stored.
            let sender = if rbp == sp {
                general.r13
            } else {
                cursor.slot(rbp, self.layout.interpreter.sender_sp)?
            };
            if !is_sender(sender, rbp) {
                return None;
            }
            Caller { pc: cursor.slot(rbp, 1)?, sp: sender, rbp: Some(cursor.slot(rbp, 0)?) }
        } else if sender_fits && cursor.at_sp(0).is_some_and(|pc| self.returns_to(pc)) {
            // Nothing is pushed yet. (A compiled caller uses rbp for anything.)
            Caller { pc: cursor.at_sp(0)?, sp: general.r13, rbp: Some(rbp) }
        } else if sender_fits && self.returns_to(general.rax) {
            // The return address was popped into rax while room for locals is made.
            Caller { pc: general.rax, sp: general.r13, rbp: Some(rbp) }
        } else {
            return None;
        };
        Some((self.interpreted_frame(general.rbx, Some(0))?, caller))
    }

    /// Returns the caller of a method that has removed its frame; the method itself is unknown. rbx
    /// holds the caller's stack pointer. The return address is on top of the stack, and then in
    /// r13.
    fn returned(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let general = cursor.place.general?;
        let (sp, rbp) = (cursor.place.sp, cursor.place.rbp);
        let sender =
            |least: u64| Some(general.rbx).filter(|rbx| *rbx == least || is_sender(*rbx, least));
        if let Some(pc) = cursor.at_sp(0).filter(|pc| self.returns_to(*pc)) {
            return Some(Caller { pc, sp: sender(sp + 8)?, rbp });
        }
        self.returns_to(general.r13).then_some(Caller { pc: general.r13, sp: sender(sp)?, rbp })
    }
}
