//! Leaves frames of Go code, also where a goroutine has switched from its stack to that of the
//! thread.
//!
//! Where a function sets the stack pointer itself, its caller is found by its frame record, or by
//! what it stored on the thread's stack. The caller is valid only if the call there is a call of
//! this very function.

use crate::model::vocabulary::frame::{Marker, RawFrame};
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::call_sites::CallSite;
use crate::unwinder::framehop::code::Step;
use crate::unwinder::framehop::go::{GoFrame, Role};
use crate::unwinder::framehop::stack::Missing;
use crate::unwinder::framehop::unwind_rows::Left;
use crate::unwinder::framehop::walk::{Cursor, Next, SIGNALS_MAX, Walker};

/// Maximum bytes of a frame that calls `systemstack` or `asmcgocall` where these have no frame
/// record (before Go 1.21).
const CALLER_MAX: u64 = 4096;

impl<M: ReadMemory> Walker<'_, '_, M> {
    /// Returns the caller of a frame of Go code.
    pub(super) fn go_code(&mut self, cursor: Cursor, frame: GoFrame) -> Next {
        self.left.push(Left::Blind);
        match frame.role {
            Role::Outermost => Next::Whole,
            Role::Plain | Role::Injected => self.go_caller(cursor, frame),
            Role::Callback => {
                let next = self.go_caller(cursor, frame);
                if let Next::Frame(_) = next {
                    self.out.push(RawFrame::marker(Marker::NotCopied));
                    self.gap = Some(Marker::NotCopied);
                }
                next
            }
            // Before it sets the stack pointer, and after it has restored it.
            _ if cursor.exact
                && self.is_called_from(cursor.sp.wrapping_add(frame.size), frame.start) =>
            {
                self.go_caller(cursor, frame)
            }
            // The goroutine waits for the called function. It is on another stack, which may not be
            // copied.
            Role::Switches | Role::SystemStack => self.by_go_record(cursor, frame),
            _ if cursor.exact => self.by_go_record(cursor, frame),
            Role::Bottom => Next::Whole,
            Role::Cgo => match self.by_go_record(cursor, frame) {
                Next::End(_) if self.blocked => self.before_cgo(cursor, frame),
                next => next,
            },
        }
    }

    /// Finds the caller by the size of the frame.
    fn go_caller(&mut self, cursor: Cursor, frame: GoFrame) -> Next {
        let at = cursor.sp.wrapping_add(frame.size);
        let Some(pc) = self.stack.word(at) else { return self.failed() };
        let exact = matches!(frame.role, Role::Injected | Role::Callback);
        let resolved = self.code.resolve(self.memory, pc, exact);
        let go =
            resolved.and_then(
                |resolved| if let Step::Go(frame) = resolved.step { Some(frame) } else { None },
            );
        // `goexit` is on each goroutine's stack as if it had called.
        let called = exact
            || go.is_some_and(|caller| caller.role == Role::Outermost)
            || resolved.is_some_and(|resolved| resolved.step == Step::Signal)
            || self.code.call_before(self.memory, pc).is_some();
        if !called {
            return Next::End(Marker::BadUnwind);
        }
        // Every function that calls saves rbp right below its return address. The executing one may
        // not have done so yet, or may have restored it: then rbp is its caller's. Code of other
        // languages does not get an rbp that assembly may have changed.
        let record = at.wrapping_sub(8);
        let saved = frame.size > 0 && (!cursor.exact || cursor.rbp.is_none_or(|rbp| rbp == record));
        let rbp = match go {
            None => None,
            Some(_) if saved => self.stack.word(record),
            Some(_) => cursor.rbp,
        };
        Next::Frame(Cursor { exact, ..Cursor::caller(pc, at.wrapping_add(8), rbp) })
    }

    /// Whether the word at `at` is a return address behind a call of the function at `start`.
    fn is_called_from(&mut self, at: u64, start: u64) -> bool {
        let pc = self.stack.word(at);
        pc.is_some_and(|pc| self.code.call_before(self.memory, pc) == Some(CallSite::Direct(start)))
    }

    /// Finds the caller by the frame record that rbp points at, on any stack: the function's own
    /// or, before Go 1.21, its caller's.
    fn by_go_record(&mut self, cursor: Cursor, frame: GoFrame) -> Next {
        self.stack.take_missing();
        let Some(rbp) = cursor.rbp.filter(|rbp| self.go_enter(*rbp)) else {
            return Next::End(Marker::NoUnwindInfo);
        };
        if self.is_called_from(rbp.wrapping_add(8), frame.start)
            && let (Some(pc), saved) = (self.stack.word(rbp + 8), self.stack.word(rbp))
        {
            return Next::Across(Cursor::caller(pc, rbp + 16, saved));
        }
        for below in (8..CALLER_MAX).step_by(8) {
            let Some(at) = rbp.checked_sub(below) else { break };
            if !self.is_called_from(at, frame.start) {
                continue;
            }
            let Some(pc) = self.stack.word(at) else { break };
            // Its frame must end where the record is.
            if let Some(Step::Go(caller)) =
                self.code.resolve(self.memory, pc, false).map(|resolved| resolved.step)
                && caller.size == below
            {
                self.stack.take_missing();
                return Next::Across(Cursor::caller(pc, at + 8, Some(rbp)));
            }
        }
        match self.stack.take_missing() {
            Some(Missing::NotCopied) => Next::End(Marker::Truncated),
            _ => Next::End(Marker::NoUnwindInfo),
        }
    }

    /// Finds the caller by what `asmcgocall` keeps on the thread's stack during the call: the
    /// goroutine, and how deep its stack was. There are two layouts (16 bytes since Go 1.25, 64
    /// before).
    fn before_cgo(&mut self, cursor: Cursor, frame: GoFrame) -> Next {
        /// In the goroutine (`runtime.g`): the end of its stack.
        const STACK_HI: u64 = 8;
        if !self.go_enter(cursor.sp) {
            return Next::End(Marker::NoUnwindInfo);
        }
        for (depth, goroutine) in [(0, 8), (40, 48)] {
            let mut word = |offset: u64| self.stack.word(cursor.sp.wrapping_add(offset));
            let (Some(depth), Some(goroutine)) = (word(depth), word(goroutine)) else { continue };
            let end = goroutine.checked_add(STACK_HI).and_then(|at| self.memory.read_u64(at));
            let Some(sp) = end.and_then(|end| end.checked_sub(depth)) else { continue };
            let at = sp.wrapping_add(frame.size);
            if !self.enter(at) || !self.is_called_from(at, frame.start) {
                if !self.enter(cursor.sp) {
                    break;
                }
                continue;
            }
            let Some(pc) = self.stack.word(at) else { break };
            let saved = if frame.size > 0 { self.stack.word(at - 8) } else { None };
            self.stack.take_missing();
            return Next::Across(Cursor::caller(pc, at + 8, saved));
        }
        Next::End(Marker::NoUnwindInfo)
    }

    /// Switches to the stack around `sp`. The number of switches is limited: more mean that the
    /// stacks are garbage.
    fn go_enter(&mut self, sp: u64) -> bool {
        self.signals += 1;
        self.signals <= SIGNALS_MAX && sp.is_multiple_of(8) && self.enter(sp)
    }
}
