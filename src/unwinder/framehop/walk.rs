//! Walks one stack, frame by frame, and reports where and why it ends.

use framehop::x86_64::UnwindRegsX86_64;
use gimli::X86_64;

use crate::model::vocabulary::frame::{Marker, RawFrame};
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::call_sites::{self, CallSite};
use crate::unwinder::framehop::code::{Code, ResolvedAddress, Step};
use crate::unwinder::framehop::frame_records::{Record, Search};
use crate::unwinder::framehop::prologue_stage::{self, Stage};
use crate::unwinder::framehop::stack::{Missing, RED_ZONE, Stack};
use crate::unwinder::framehop::unwind_rows::{self, Frame, Left, RowError};
use crate::unwinder::framehop::unwind_tables::{Rule, SavedRbp};
use crate::unwinder::{FrameSetup, General, Generated, Leave, Place, Registers, Walk};

/// Maximum frames walked of one stack, its marker included; fewer in the tests, whose stacks are
/// small.
pub const FRAMES_MAX: usize = if cfg!(test) { 1_500 } else { 16_384 };
/// Maximum changes of stack, by signals and by Go; more mean that the stack is garbage.
pub(super) const SIGNALS_MAX: u32 = 16;

/// The current position of the walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub pc: u64,
    /// `pc` is executing (the innermost frame, or one that a signal interrupted), not a return
    /// address.
    pub exact: bool,
    pub sp: u64,
    pub rbp: Option<u64>,
    /// Known for exact frames only.
    pub general: Option<General>,
}

impl Cursor {
    /// Creates the cursor of a caller that is returned to at `pc`.
    pub fn caller(pc: u64, sp: u64, rbp: Option<u64>) -> Cursor {
        Cursor { pc, exact: false, sp, rbp, general: None }
    }

    /// Returns the address by which its code is looked up.
    fn address(self) -> u64 {
        if self.exact { self.pc } else { self.pc.wrapping_sub(1) }
    }

    fn frame(self) -> Frame {
        Frame { address: self.address(), pc: self.pc, sp: self.sp, rbp: self.rbp }
    }
}

/// What follows a frame.
#[derive(Clone, Copy)]
pub(super) enum Next {
    Frame(Cursor),
    /// On another stack, which the walk has entered.
    Across(Cursor),
    /// Proven to be the outermost.
    Whole,
    /// The walk ends here, for this reason.
    End(Marker),
}

/// The innermost place where generated code has called native code.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    /// Index of its frame among those that the walk has appended.
    pub frame: usize,
    /// Its stack pointer, and an address in the function that it has called.
    pub sp: u64,
    pub callee: u64,
}

/// A runtime's answer about its frame.
enum Made {
    Next(Next),
    AsCode { start: u64, setup: FrameSetup },
}

pub struct Walker<'w, 's, M> {
    pub code: &'w mut Code,
    pub memory: &'w M,
    pub stack: Stack<'s, M>,
    pub registers: &'w Registers,
    /// Frames left so far, innermost first.
    pub left: &'w mut Vec<Left>,
    pub out: &'w mut Vec<RawFrame>,
    pub recovered: bool,
    pub signals: u32,
    /// Frames are missing here, for this reason.
    pub gap: Option<Marker>,
    pub crossing: Option<Crossing>,
    /// Indices of frames, among those appended, that execute an interpreter's.
    pub evaluations: &'w mut Vec<usize>,
    /// The thread is blocked.
    pub blocked: bool,
    pub generated: Option<&'w mut dyn Generated>,
}

impl<'s, M: ReadMemory> Walker<'_, 's, M> {
    /// Walks to the outermost frame or to the first one that is untrusted.
    pub fn walk(mut self) -> (Walk, Stack<'s, M>, Option<Crossing>) {
        let end = self.frames();
        (Walk { end: end.or(self.gap), recovered: self.recovered }, self.stack, self.crossing)
    }

    fn frames(&mut self) -> Option<Marker> {
        let first = self.out.len();
        let Registers { rip, rsp, rbp, general, general_known } = *self.registers;
        // Of rax rbx rcx rdx rsi rdi r8..r15.
        let general = general_known.then_some(General {
            rax: general[0],
            rbx: general[1],
            r9: general[7],
            r12: general[10],
            r13: general[11],
        });
        let mut cursor = Cursor { pc: rip, exact: true, sp: rsp, rbp, general };
        let on_stack = self.enter(cursor.sp);
        // The native function whose caller comes next.
        let mut callee = None;
        loop {
            if self.out.len() - first >= FRAMES_MAX - 1 {
                return self.end(Marker::TooDeep, None);
            }
            if self.code.replaced(cursor.address()) {
                return self.end(Marker::CodeReplaced, None);
            }
            self.stack.step_begins(self.out.len() - first);
            let mut made = None;
            if on_stack {
                let frame = self.out.len() - first;
                let left = self.generated_code(cursor);
                if let (Some(_), Some(callee), None) = (&left, callee, self.crossing) {
                    self.crossing = Some(Crossing { frame, sp: cursor.sp, callee });
                }
                match left {
                    Some(Made::Next(Next::Frame(next)))
                        if next.sp > cursor.sp && self.stack.holds(next.sp) =>
                    {
                        cursor = next;
                        continue;
                    }
                    Some(Made::Next(Next::End(marker))) => return self.end(marker, None),
                    Some(Made::Next(_)) => return self.end(Marker::BadUnwind, None),
                    Some(Made::AsCode { start, setup }) => made = Some((start, setup)),
                    None => {}
                }
            }
            let Some(resolved) = self.code.resolve(self.memory, cursor.pc, cursor.exact) else {
                if self.code.context.exhausted() {
                    return self.end(Marker::BadUnwind, None);
                }
                if made.is_some() {
                    self.out.pop();
                }
                match self.called_nothing(cursor).filter(|_| on_stack) {
                    Some(caller) => {
                        self.out.push(RawFrame::marker(Marker::OutsideMaps));
                        cursor = caller;
                        continue;
                    }
                    None => return self.end(Marker::OutsideMaps, None),
                }
            };
            match made {
                // A compiled library's own names are better.
                Some(_) if resolved.step != Step::Unknown => {
                    self.out.pop();
                    self.out.push(resolved.frame);
                    made = None;
                }
                Some(_) => {}
                None => {
                    if self.generated.as_deref().is_some_and(|it| it.evaluates(cursor.address())) {
                        self.evaluations.push(self.out.len() - first);
                    }
                    self.out.push(resolved.frame);
                }
            }
            if !on_stack {
                return self.end(Marker::BadUnwind, Some(resolved));
            }
            callee = Some(cursor.address());
            self.stack.take_missing();
            let recovered = self.recovered;
            let next = match made {
                Some((start, setup)) => self.generated_as_code(cursor, start, setup),
                None => self.step(cursor, resolved),
            };
            if self.code.context.exhausted() {
                // Something may not have been read, so no result is proven.
                return self.end(Marker::BadUnwind, Some(resolved));
            }
            // A record beyond the last frame of the runtime's code belongs to that code.
            let next = match next {
                Next::Frame(found) if resolved.step == Step::Unknown => {
                    match self.resume(Marker::NoUnwindInfo, cursor, resolved, Some(found.sp)) {
                        Some(resumed) => {
                            self.recovered = recovered;
                            Next::Frame(resumed)
                        }
                        None => next,
                    }
                }
                next => next,
            };
            match next {
                Next::Whole => return None,
                Next::End(marker) => match self.resume(marker, cursor, resolved, None) {
                    Some(next) => cursor = next,
                    None => return self.end(marker, Some(resolved)),
                },
                Next::Across(next) => cursor = next,
                Next::Frame(next) if resolved.step == Step::Signal => cursor = next,
                // The stack pointer rises with every frame, inside the same mapping.
                Next::Frame(next) if next.sp > cursor.sp && self.stack.holds(next.sp) => {
                    cursor = next
                }
                Next::Frame(_) => return self.end(Marker::BadUnwind, Some(resolved)),
            }
        }
    }

    /// Leaves a frame of generated code; `None` for any other code.
    fn generated_code(&mut self, cursor: Cursor) -> Option<Made> {
        let generated =
            self.generated.as_deref_mut().filter(|generated| generated.covers(cursor.address()))?;
        let Cursor { pc, exact, sp, rbp, general } = cursor;
        self.stack.take_missing();
        let stack = &mut self.stack;
        let left = generated.leave(
            Place { pc, exact, sp, rbp, general },
            &mut |at| stack.word(at),
            self.out,
        );
        let next = match left {
            Leave::To { pc, sp, rbp } => Next::Frame(Cursor::caller(pc, sp, rbp)),
            Leave::End(Marker::CodeReplaced) => Next::End(Marker::CodeReplaced),
            Leave::End(_) => self.failed(),
            Leave::AsCode { start, setup } => return Some(Made::AsCode { start, setup }),
            Leave::Unknown => return None,
        };
        self.left.push(Left::Blind);
        Some(Made::Next(next))
    }

    /// Continues behind native code that cannot be left, at the runtime's own record of where its
    /// code called out. A marker stands for the missing frames. With `found`, only if that is
    /// closer.
    fn resume(
        &mut self,
        marker: Marker,
        cursor: Cursor,
        resolved: ResolvedAddress,
        found: Option<u64>,
    ) -> Option<Cursor> {
        if !self.blocked || !matches!(marker, Marker::NoUnwindInfo | Marker::BadUnwind) {
            return None;
        }
        let stack = &mut self.stack;
        let generated = self.generated.as_deref_mut()?;
        let mut frames = Vec::new();
        let left = generated.resume(cursor.sp, &mut |at| stack.word(at), &mut frames);
        self.stack.take_missing();
        match left {
            Some((at, Leave::To { pc, sp, rbp }))
                if sp > cursor.sp
                    && self.stack.holds(sp)
                    && found.is_none_or(|found| found > at) =>
            {
                self.end(marker, Some(resolved));
                self.out.append(&mut frames);
                self.left.push(Left::Blind);
                self.gap = Some(marker);
                Some(Cursor::caller(pc, sp, rbp))
            }
            _ => None,
        }
    }

    /// Leaves a frame of code that a runtime knows by name only.
    fn generated_as_code(&mut self, cursor: Cursor, start: u64, setup: FrameSetup) -> Next {
        if !cursor.exact {
            // Not built yet, the frame has the return address on top; complete, other words.
            let building = setup == FrameSetup::ByCall
                && prologue_stage::returns_from_builder(self.memory, start, cursor.pc);
            let caller = if building { self.leaf(cursor) } else { None };
            return caller.map_or_else(|| self.by_records(cursor, true), Next::Frame);
        }
        let top = self.stack.word(cursor.sp);
        let called = top.and_then(|top| self.code.call_before(self.memory, top));
        let entered = called == Some(CallSite::Direct(start));
        let stage = if entered {
            Stage::Entered
        } else {
            prologue_stage::stage(self.memory, start, cursor.pc, setup)
        };
        let framed = match stage {
            // It has yet to pop rbp.
            _ if Some(cursor.sp) == cursor.rbp && self.pops_rbp(cursor.pc) => true,
            Stage::Entered => false,
            Stage::Framed => true,
            // The mark may also be its caller's.
            Stage::Either if self.is_marked(cursor) && called.is_some() => {
                return self.by_flow(cursor, start, setup);
            }
            Stage::Either => self.is_marked(cursor),
            Stage::Between => return self.by_flow(cursor, start, setup),
        };
        match (framed, called) {
            (true, _) => self.by_records(cursor, true),
            (false, Some(_)) => self.leaf(cursor).map_or_else(|| self.failed(), Next::Frame),
            (false, None) => self.failed(),
        }
    }

    fn pops_rbp(&self, pc: u64) -> bool {
        let mut instruction = [0];
        self.memory.read_exact(pc, &mut instruction).is_some() && instruction[0] == 0x5d
    }

    /// Whether rbp points at a frame with V8's mark of its own functions.
    fn is_marked(&mut self, cursor: Cursor) -> bool {
        let below = cursor.rbp.and_then(|rbp| self.stack.word(rbp.wrapping_sub(8)));
        below.is_some_and(|word| word < prologue_stage::MARKS && word.is_multiple_of(2))
    }

    fn end(&mut self, marker: Marker, resolved: Option<ResolvedAddress>) -> Option<Marker> {
        let file = match marker {
            Marker::NoUnwindInfo | Marker::BadUnwind => {
                resolved.and_then(|resolved| ResolvedAddress::file(resolved.frame))
            }
            _ => None,
        };
        self.out
            .push(file.map_or(RawFrame::marker(marker), |file| RawFrame::marker_in(marker, file)));
        Some(marker)
    }

    /// Enters the mapping that contains `sp`.
    pub(super) fn enter(&mut self, sp: u64) -> bool {
        if self.code.maps.stack_of(sp).is_none() {
            self.code.refresh_for_unknown();
        }
        let Some(mapping) = self.code.maps.stack_of(sp) else { return false };
        // The main stack may have grown below its mapping since that was read.
        let start = mapping.start.min(sp).saturating_sub(RED_ZONE);
        self.stack.enter(start, mapping.end);
        true
    }

    fn step(&mut self, cursor: Cursor, resolved: ResolvedAddress) -> Next {
        match resolved.step {
            Step::Table(Rule::Root) => Next::Whole,
            Step::Table(Rule::Plain { from_rbp, rbp }) => {
                self.plain(cursor, resolved, from_rbp, rbp)
            }
            Step::Table(Rule::Described) => self.described(cursor),
            Step::Go(frame) => self.go_code(cursor, frame),
            Step::Signal => self.interrupted(cursor),
            Step::Leaf => self.leaf(cursor).map_or_else(|| self.failed(), Next::Frame),
            Step::Unknown => self.without_information(cursor),
        }
    }

    /// Returns the reason of a failed read: not copied, or not on a stack.
    pub(super) fn failed(&mut self) -> Next {
        match self.stack.take_missing() {
            Some(Missing::NotCopied) => Next::End(Marker::Truncated),
            _ => Next::End(Marker::BadUnwind),
        }
    }

    /// Takes a step by framehop.
    fn plain(
        &mut self,
        mut cursor: Cursor,
        resolved: ResolvedAddress,
        from_rbp: bool,
        saved: SavedRbp,
    ) -> Next {
        if from_rbp && cursor.rbp.is_none() {
            match self.recover(cursor) {
                Some(rbp) => cursor.rbp = Some(rbp),
                None => return self.failed(),
            }
        }
        let mut registers = UnwindRegsX86_64::new(cursor.pc, cursor.sp, cursor.rbp.unwrap_or(0));
        let stack = &mut self.stack;
        match self
            .code
            .framehop_step(cursor.pc, cursor.exact, resolved, &mut registers, |at| stack.word(at))
        {
            Ok(Some(pc)) => {
                let rbp = match saved {
                    SavedRbp::Same => cursor.rbp,
                    SavedRbp::Saved => Some(registers.bp()),
                    SavedRbp::Lost => None,
                };
                self.left.push(Left::Frame { address: cursor.address(), cfa: registers.sp() });
                Next::Frame(Cursor::caller(pc, registers.sp(), rbp))
            }
            // A return address of 0 (or rbp of 0 where a frame record should be): the row itself is
            // evaluated.
            Ok(None) => self.described(cursor),
            Err(_) => self.failed(),
        }
    }

    /// Takes a step by our own evaluation of the row.
    fn described(&mut self, mut cursor: Cursor) -> Next {
        let mut result = unwind_rows::caller(
            self.code,
            &mut self.stack,
            cursor.frame(),
            self.registers,
            self.left,
        );
        if result == Err(RowError::NeedsRbp) {
            match self.recover_for_row(cursor) {
                Some(rbp) => cursor.rbp = Some(rbp),
                None => return self.failed(),
            }
            result = unwind_rows::caller(
                self.code,
                &mut self.stack,
                cursor.frame(),
                self.registers,
                self.left,
            );
        }
        match result {
            Ok(caller) if caller.pc == 0 => {
                // By convention the outermost frame has neither a caller nor a caller's frame
                // pointer. A program's entry has no caller whatever rbp says.
                let whole = caller.cfa > cursor.sp && self.stack.holds(caller.cfa);
                if whole && (caller.rbp == Some(0) || self.is_entry(cursor)) {
                    Next::Whole
                } else {
                    self.failed()
                }
            }
            Ok(caller) => {
                self.left.push(Left::Frame { address: cursor.address(), cfa: caller.cfa });
                Next::Frame(Cursor::caller(caller.pc, caller.cfa, caller.rbp))
            }
            Err(_) => self.failed(),
        }
    }

    fn is_entry(&self, cursor: Cursor) -> bool {
        let Some(image) = self.code.image(cursor.address()) else { return false };
        let function = image.tables.as_ref().and_then(|tables| tables.function(cursor.address()));
        function.is_some_and(|(start, end)| (start..end).contains(&image.entry))
    }

    fn recover(&mut self, cursor: Cursor) -> Option<u64> {
        let mut search = Search { code: self.code, memory: self.memory, stack: &mut self.stack };
        let found = search.frame_pointer(cursor.frame())?;
        self.stack.take_missing();
        self.recovered = true;
        Some(found)
    }

    /// Finds rbp for a row that is not plain: the only place from which the row leads to the return
    /// address of the record there. (Where a function realigns its stack, the record is a copy, and
    /// the row finds the original.)
    fn recover_for_row(&mut self, cursor: Cursor) -> Option<u64> {
        let mut search = Search { code: self.code, memory: self.memory, stack: &mut self.stack };
        let candidates = search.candidates(cursor.frame());
        let mut found = None;
        for record in candidates {
            let frame = Frame { rbp: Some(record.at), ..cursor.frame() };
            let caller =
                unwind_rows::caller(self.code, &mut self.stack, frame, self.registers, self.left);
            if caller
                .is_ok_and(|caller| caller.pc == record.return_address && caller.cfa > record.at)
            {
                if found.is_some() {
                    return None;
                }
                found = Some(record.at);
            }
        }
        self.stack.take_missing();
        self.recovered |= found.is_some();
        found
    }

    /// Reads the registers that the kernel saved when it ran the signal handler, at sp: `struct
    /// ucontext` with its general registers at 40 bytes (x86-64).
    fn interrupted(&mut self, cursor: Cursor) -> Next {
        let gregs = cursor.sp.wrapping_add(40);
        self.signals += 1;
        let mut register = |register| self.stack.word(unwind_rows::in_ucontext(gregs, register)?);
        let (Some(pc), Some(sp), Some(rbp)) =
            (register(X86_64::RA), register(X86_64::RSP), register(X86_64::RBP))
        else {
            return self.failed();
        };
        // On the same stack the interrupted frame lies above; from an alternate stack the walk
        // switches back. All stacks of Go may lie in one mapping.
        let same = self.stack.holds(sp) && !(sp <= cursor.sp && self.code.has_go());
        if self.signals > SIGNALS_MAX || (same && sp <= cursor.sp) || (!same && !self.enter(sp)) {
            return Next::End(Marker::BadUnwind);
        }
        let general = |register| self.stack.word(unwind_rows::in_ucontext(gregs, register)?);
        let general = [X86_64::RAX, X86_64::RBX, X86_64::R9, X86_64::R12, X86_64::R13].map(general);
        let general = match general {
            [Some(rax), Some(rbx), Some(r9), Some(r12), Some(r13)] => {
                Some(General { rax, rbx, r9, r12, r13 })
            }
            _ => None,
        };
        self.left.push(Left::Signal { registers: gregs });
        Next::Frame(Cursor { pc, exact: true, sp, rbp: Some(rbp), general })
    }

    /// Returns the caller if the return address is on top of the stack.
    fn leaf(&mut self, cursor: Cursor) -> Option<Cursor> {
        let pc = self.stack.word(cursor.sp)?;
        self.code.call_before(self.memory, pc)?;
        self.left.push(Left::Blind);
        Some(Cursor::caller(pc, cursor.sp + 8, cursor.rbp))
    }

    /// Returns the caller of a call through a wrong pointer: nothing of the callee has run, so the
    /// return address is on top.
    fn called_nothing(&mut self, cursor: Cursor) -> Option<Cursor> {
        if cursor.exact { self.leaf(cursor) } else { None }
    }

    /// Leaves a frame of code without unwind information.
    fn without_information(&mut self, cursor: Cursor) -> Next {
        if cursor.exact
            && let Some(caller) =
                self.returns_soon(cursor).or_else(|| self.entered_just_now(cursor))
        {
            return Next::Frame(caller);
        }
        if let Some(next) = self.by_code(cursor) {
            return next;
        }
        // Words were tried that need not exist.
        self.stack.take_missing();
        self.by_records(cursor, false)
    }

    /// Returns the validated frame record of the code at `cursor`. `made`: the code is known to
    /// have a record; `proven`: its present address is known.
    fn record_of(&mut self, cursor: Cursor, made: bool, proven: bool) -> Option<Record> {
        let mut search = Search { code: self.code, memory: self.memory, stack: &mut self.stack };
        match cursor.rbp {
            Some(rbp) if made => search.made(cursor.sp, rbp),
            Some(rbp) => search.fallback(cursor.pc, cursor.sp, rbp, proven),
            None => search.search_fallback(cursor.pc, cursor.sp),
        }
    }

    /// Finds the caller by frame records, if two of them are valid; `made`: the code is known to
    /// have one.
    pub(super) fn by_records(&mut self, cursor: Cursor, made: bool) -> Next {
        let mut record = self.record_of(cursor, made, false);
        // The last record before code that keeps none links to no other.
        if record.is_none() && !made && cursor.rbp.is_some() && self.has_record(cursor.pc) {
            record = self.record_of(cursor, made, true);
        }
        let Some(record) = record else {
            return match self.stack.take_missing() {
                Some(Missing::NotCopied) => Next::End(Marker::Truncated),
                _ => Next::End(Marker::NoUnwindInfo),
            };
        };
        self.recovered |= cursor.rbp.is_none();
        self.left.push(Left::Blind);
        Next::Frame(Cursor::caller(record.return_address, record.at + 16, Some(record.saved)))
    }

    /// Returns the caller if the innermost function, without unwind information, has no frame:
    /// never, not yet, or no longer. Then rbp is still its caller's, and frame records would skip
    /// the caller.
    fn entered_just_now(&mut self, cursor: Cursor) -> Option<Cursor> {
        /// Maximum distance from the start of a function to its code, bytes.
        const NEAR: u64 = 64 << 10;
        let top = self.stack.word(cursor.sp)?;
        let Some(CallSite::Direct(start)) = self.code.call_before(self.memory, top) else {
            return None;
        };
        if start > cursor.pc
            || cursor.pc - start > NEAR
            || self.code.function(self.memory, start).is_some()
        {
            return None;
        }
        // The word may remain in the frame from an earlier call.
        if self.code.flow(self.memory, start, cursor.pc).depth.is_some_and(|depth| depth > 0) {
            return None;
        }
        let in_frame = call_sites::prologue(self.memory, start, cursor.pc).is_some();
        let mut instruction = [0];
        let returns =
            self.memory.read_exact(cursor.pc, &mut instruction).is_some() && instruction[0] == 0xc3;
        if in_frame && !returns { None } else { self.leaf(cursor) }
    }
}
