//! Leaves frames of code without unwind information by following the code: musl's system calls, and
//! the code that starts its programs and threads.
//!
//! A word of the stack is the return address of a frame under two conditions. The function that is
//! called before it must lead to the frame's instruction. The stack depth there must equal the
//! distance of the word. Where the function is called through a pointer, its start is searched for
//! before the instruction. That counts only for callers which cannot be anything else. (A start
//! found inside the function gives a smaller depth, as earlier pushes are not seen. So the depth of
//! a true return address is never reached by mistake where no other return address fits.)
//!
//! Of a runtime's built-in code the start is known, so the depth says where the return address is.
//!
//! Where the function that runs calls nothing any more, its code up to its `ret` tells the place of
//! the return address, whoever called it: HotSpot's assembly that copies arrays is called through
//! pointers and jumps.

use crate::model::vocabulary::frame::Marker;
use crate::process::memory::ReadMemory;
use crate::unwinder::FrameSetup;
use crate::unwinder::framehop::call_sites::CallSite;
use crate::unwinder::framehop::stack_depth::{CallerRbp, Flow};
use crate::unwinder::framehop::unwind_rows::Left;
use crate::unwinder::framehop::unwind_tables::READ;
use crate::unwinder::framehop::walk::{Cursor, Next, Walker};

/// Maximum words of the stack that are tried: 4 KiB. Functions of this kind have small frames.
const WORDS_MAX: u64 = 512;
/// Maximum bytes before an instruction in which the start of its function is searched for, if no
/// direct call gives it.
const FUNCTION_MAX: u64 = 1024;
/// Maximum bytes of a program's entry code.
const ENTRY_MAX: u64 = 64;

impl<M: ReadMemory> Walker<'_, '_, M> {
    /// Returns the caller of a frame without unwind information, if it can be proven.
    pub(super) fn by_code(&mut self, cursor: Cursor) -> Option<Next> {
        if !cursor.exact && (self.is_thread_start(cursor.pc) || self.is_program_start(cursor.pc)) {
            return Some(Next::Whole);
        }
        for word in 0..WORDS_MAX {
            let depth = 8 * word;
            let at = cursor.sp.checked_add(depth)?;
            if !self.stack.holds(at.checked_add(8)?) {
                break;
            }
            let pc = self.stack.word(at)?;
            let Some(site) = self.code.call_before(self.memory, pc) else { continue };
            if let Some(flow) = self.function_of(site, pc, cursor.pc, depth) {
                return Some(self.caller_above(cursor, flow, at, pc));
            }
            if self.code.context.exhausted() {
                break;
            }
        }
        None
    }

    /// Leaves the running function by all of its code from `start` on. Only for code that is never
    /// replaced.
    pub(super) fn by_flow(&mut self, cursor: Cursor, start: u64, setup: FrameSetup) -> Next {
        if setup != FrameSetup::Marked {
            return Next::End(Marker::BadUnwind);
        }
        let flow = self.code.flow_of_kept(self.memory, start, cursor.pc);
        if flow.framed {
            return self.by_records(cursor, true);
        }
        let depth = flow.depth.or_else(|| {
            let is_on_top = flow.reached && self.code.jumps_away(self.memory, cursor.pc);
            is_on_top.then_some(0)
        });
        let Some(at) = depth.and_then(|depth| cursor.sp.checked_add(depth)) else {
            return Next::End(Marker::BadUnwind);
        };
        let Some(pc) = self.stack.word(at) else { return self.failed() };
        match self.code.call_before(self.memory, pc) {
            Some(_) => self.caller_above(cursor, flow, at, pc),
            None => Next::End(Marker::BadUnwind),
        }
    }

    /// Returns the caller; its address `pc` is at `at`.
    fn caller_above(&mut self, cursor: Cursor, flow: Flow, at: u64, pc: u64) -> Next {
        let rbp = match flow.saved {
            Some(below) => self.stack.word(at.wrapping_sub(below)),
            None => cursor.rbp,
        };
        self.left.push(Left::Blind);
        Next::Frame(Cursor::caller(pc, at.wrapping_add(8), rbp))
    }

    /// Returns the caller of the running function, if its code up to its `ret` tells where the
    /// return address is.
    pub(super) fn returns_soon(&mut self, cursor: Cursor) -> Option<Cursor> {
        let way = self.code.way_back(self.memory, cursor.pc)?;
        let at = cursor.sp.checked_add(way.distance)?;
        let pc = self.stack.word(at)?;
        self.code.call_before(self.memory, pc)?;
        let rbp = match way.rbp {
            CallerRbp::Kept => cursor.rbp,
            CallerRbp::Above(by) => self.stack.word(cursor.sp + by),
            CallerRbp::Unknown => None,
        };
        self.left.push(Left::Blind);
        Some(Cursor::caller(pc, at + 8, rbp))
    }

    /// Whether the call before `return_address` entered the function that executes `pc`, `depth`
    /// bytes below it.
    fn function_of(
        &mut self,
        site: CallSite,
        return_address: u64,
        pc: u64,
        depth: u64,
    ) -> Option<Flow> {
        let target = match site {
            CallSite::Direct(target) => target,
            CallSite::Slot(slot) => self.memory.read_u64(slot)?,
            CallSite::Indirect if self.is_thread_start(return_address) => {
                return self.some_start(pc, depth);
            }
            CallSite::Indirect => return None,
        };
        // Nothing is followed outside of code.
        self.code.maps.find_code(target)?;
        let flow = self.code.flow(self.memory, target, pc);
        if flow.depth == Some(depth) {
            return Some(flow);
        }
        // It jumps to a function through a pointer.
        if !flow.reached && flow.jumps_away { self.some_start(pc, depth) } else { None }
    }

    /// Searches a function start before `pc` from which the stack has this depth at `pc`.
    fn some_start(&mut self, pc: u64, depth: u64) -> Option<Flow> {
        let mut code = vec![0; FUNCTION_MAX as usize];
        let from = pc.checked_sub(FUNCTION_MAX)?;
        self.code.context.spend(READ)?;
        self.memory.read_exact(from, &mut code)?;
        for (into, bytes) in code.windows(2).enumerate().rev() {
            // push; sub rsp; endbr64
            let begins = matches!(
                bytes,
                [0x50..=0x57, _] | [0x41, 0x50..=0x57] | [0x48, 0x81 | 0x83] | [0xf3, 0x0f]
            );
            if !begins {
                continue;
            }
            let flow = self.code.flow(self.memory, from + into as u64, pc);
            if flow.depth == Some(depth) {
                return Some(flow);
            }
            if self.code.context.exhausted() {
                break;
            }
        }
        None
    }

    /// Whether the function that executes `pc` has built a frame record that rbp points at. The
    /// nearest code before it that builds one must lead there with rbp unchanged.
    pub(super) fn has_record(&mut self, pc: u64) -> bool {
        // push rbp; mov rbp, rsp
        const MAKES: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
        let mut code = vec![0; FUNCTION_MAX as usize];
        let Some(from) = pc.checked_sub(FUNCTION_MAX) else { return false };
        if self.code.context.spend(READ).is_none()
            || self.memory.read_exact(from, &mut code).is_none()
        {
            return false;
        }
        let Some(into) = code.windows(MAKES.len()).rposition(|bytes| bytes == MAKES) else {
            return false;
        };
        self.code.flow(self.memory, from + into as u64, pc).framed
    }

    /// Whether `pc` is the return address of musl's `clone` after a thread's function: the code
    /// there ends the thread.
    fn is_thread_start(&self, pc: u64) -> bool {
        // mov edi, eax; xor eax, eax; mov al, 60 (exit); syscall
        const ENDS: [u8; 8] = [0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05];
        // call r9
        const CALLS: [u8; 3] = [0x41, 0xff, 0xd1];
        let mut code = [0; 11];
        let read = pc.checked_sub(3).and_then(|at| self.memory.read_exact(at, &mut code)).is_some();
        read && code[..3] == CALLS && code[3..] == ENDS
    }

    /// Whether `pc` is in the code at which the kernel, or the loader, starts a program.
    fn is_program_start(&mut self, pc: u64) -> bool {
        let Some(entry) = self.code.image(pc.wrapping_sub(1)).map(|image| image.entry) else {
            return false;
        };
        let near = entry < pc && pc - entry <= ENTRY_MAX;
        near && self.code.flow(self.memory, entry, pc).reached
    }
}
