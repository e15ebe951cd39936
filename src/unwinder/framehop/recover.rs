//! Frame records (saved rbp, return address): telling real ones from what merely looks like one,
//! and finding the frame pointer of a blocked thread, whose registers the kernel does not show.
//!
//! Everything found here is checked against the code: before a return address stands a call, and a
//! direct call says whom it called. What stays ambiguous is not taken: a shorter truth beats a
//! longer guess.

use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::calls::{self, CallSite};
use crate::unwinder::framehop::code::{Code, Step};
use crate::unwinder::framehop::rows::{Frame, lowest_saved};
use crate::unwinder::framehop::stack::Stack;
use crate::unwinder::framehop::tables::{READ, Rule};

/// Stack words searched for a record when the frame's size cannot be told from its code: 128 KiB.
const SEARCH: u64 = 128 << 10;
/// A function's arguments and alignment may lie below its frame: maximum bytes that are tried.
const BELOW: u64 = 64;
/// How far behind its start code without unwind information is still taken for the called
/// function's.
const FUNCTION_MAX: u64 = 1 << 20;

/// How well a frame record fits the function whose frame it would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// Its return address follows a direct call of this very function.
    Certain,
    /// It follows a call through a pointer.
    Possible,
    /// It follows a call of another function, which may have jumped here.
    Doubtful,
}

/// A frame record on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub at: u64,
    pub saved: u64,
    pub return_address: u64,
    pub fit: Fit,
}

/// Looks at one stack.
pub struct Search<'w, 's, M> {
    pub code: &'w mut Code,
    pub memory: &'w M,
    pub stack: &'w mut Stack<'s, M>,
}

impl<M: ReadMemory> Search<'_, '_, M> {
    /// rbp of `frame`, whose function keeps a frame pointer, from the stack alone.
    pub fn frame_pointer(&mut self, frame: Frame) -> Option<u64> {
        let (start, _) = self.code.function(self.memory, frame.address)?;
        self.predicted(frame, start).or_else(|| self.searched(frame, start))
    }

    /// From the function's own first instructions: what it saved, and how much room it made.
    fn predicted(&mut self, frame: Frame, start: u64) -> Option<u64> {
        let prologue = calls::prologue(self.memory, start, frame.address)?;
        // The record is at CFA - 16; below it lie the registers that were pushed, where unwind
        // information says so, unless they were stored into the room made.
        let saved = lowest_saved(self.code, frame.address)
            .map_or(0, |lowest| (-16i64).saturating_sub(lowest).max(0));
        for below in (0..=BELOW).step_by(8) {
            for size in [prologue.room + saved as u64, prologue.room] {
                let Some(at) = frame.sp.checked_add(size + below) else { continue };
                let Some(record) = self.record(at, frame.sp, Some(start)) else { continue };
                let fits = match record.fit {
                    Fit::Certain => true,
                    // The very place is evidence, too; one word of alignment is common.
                    Fit::Possible => below == 0 || below == 8 && self.linked(record),
                    // Another function was called, and may have jumped here.
                    Fit::Doubtful => below == 0 && self.linked(record),
                };
                if fits {
                    return Some(at);
                }
            }
        }
        None
    }

    /// By trying every place that the record can be at: exactly one may follow a direct call of
    /// this very function. Two may be a recursion, or what an earlier call left behind; one reached
    /// through a pointer below it may be the real one.
    fn searched(&mut self, frame: Frame, start: u64) -> Option<u64> {
        let least =
            calls::prologue(self.memory, start, frame.address).map_or(0, |prologue| prologue.room);
        let mut found = None;
        for at in self.places(frame.sp.checked_add(least)?)? {
            let Some(record) = self.record(at, frame.sp, Some(start)) else { continue };
            match (record.fit, found) {
                (Fit::Certain, None) => found = Some(at),
                (Fit::Certain, Some(_)) => return None,
                (Fit::Possible, None) if self.linked(record) => return None,
                _ => {}
            }
        }
        found
    }

    /// Places where the row of `frame`, which is no plain one, can find a record of this function:
    /// for each, whoever evaluates the row must come to the record's return address.
    pub fn candidates(&mut self, frame: Frame) -> Vec<Record> {
        /// More say that it is hopeless.
        const ENOUGH: usize = 64;
        let Some((start, _)) = self.code.function(self.memory, frame.address) else {
            return Vec::new();
        };
        let Some(places) = self.places(frame.sp) else { return Vec::new() };
        let mut found = Vec::new();
        for at in places {
            let record = self.record(at, frame.sp, Some(start)).filter(|r| r.fit != Fit::Doubtful);
            found.extend(record);
            if found.len() == ENOUGH {
                break;
            }
        }
        found
    }

    /// 16-byte aligned addresses from `from` up, as far as is searched.
    fn places(&self, from: u64) -> Option<std::iter::StepBy<std::ops::Range<u64>>> {
        let first = from.checked_add(15)? & !15;
        Some((first..self.stack.end().min(from.saturating_add(SEARCH))).step_by(16))
    }

    /// The frame record of the code at `pc`, which has no unwind information, at `rbp`: verified by
    /// a second record that it links to. `proven`: the code has a record there; then a caller that
    /// has unwind information, and so keeps none, is as good (a thread's first function, whose
    /// caller is the C library).
    pub fn fallback(&mut self, pc: u64, sp: u64, rbp: u64, proven: bool) -> Option<Record> {
        let record = self.record(rbp, sp, None)?;
        let verified = self.linked(record) || proven && self.described(record);
        (self.may_be_of(record, pc) && verified).then_some(record)
    }

    /// Whether the caller's frame is left by unwind information.
    fn described(&mut self, record: Record) -> bool {
        let caller = self.code.known(self.memory, record.return_address, false);
        caller.is_some_and(|known| matches!(known.step, Step::Table(_)))
    }

    /// The frame record at `rbp` of code that is known to have made one, whoever jumped to it:
    /// verified by a second record that it links to, or by a caller whose frame is left by unwind
    /// information.
    pub fn made(&mut self, sp: u64, rbp: u64) -> Option<Record> {
        let record = self.record(rbp, sp, None)?;
        (self.linked(record) || self.described(record)).then_some(record)
    }

    /// As [`Search::fallback`] without knowing rbp: the first record whose call leads here.
    pub fn search_fallback(&mut self, pc: u64, sp: u64) -> Option<Record> {
        for at in self.places(sp)? {
            let Some(record) = self.record(at, sp, None) else { continue };
            let direct = matches!(
                self.code.call_before(self.memory, record.return_address),
                Some(CallSite::Direct(_))
            );
            if direct && self.may_be_of(record, pc) && self.linked(record) {
                return Some(record);
            }
        }
        None
    }

    /// Whether the call behind `record` can have entered the code at `pc`. A direct call of another
    /// function says no: the record then is that of a caller, and taking it would leave a frame
    /// out.
    fn may_be_of(&mut self, record: Record, pc: u64) -> bool {
        match self.code.call_before(self.memory, record.return_address) {
            Some(CallSite::Direct(target)) => {
                let near = target <= pc && pc - target < FUNCTION_MAX;
                near && self.code.function(self.memory, target).is_none()
            }
            Some(_) => true,
            None => false,
        }
    }

    /// The record at `at`, if it can be one: on this stack above `sp`, aligned, with a return
    /// address behind a call.
    fn record(&mut self, at: u64, sp: u64, function: Option<u64>) -> Option<Record> {
        if !at.is_multiple_of(8)
            || at < sp
            || (function.is_some() && !at.is_multiple_of(16))
            || at.checked_add(16)? > self.stack.end()
        {
            return None;
        }
        self.code.context.spend(1)?;
        let return_address = self.stack.word(at + 8)?;
        let site = self.code.call_before(self.memory, return_address)?;
        let saved = self.stack.word(at)?;
        if function.is_some() {
            // Where a call leads to is read anew for each record.
            self.code.context.spend(READ)?;
        }
        let fit = match (site, function) {
            (_, None) | (CallSite::Indirect, _) => Fit::Possible,
            (CallSite::Direct(target), Some(start))
                if calls::leads_to(self.memory, target, start) =>
            {
                Fit::Certain
            }
            (CallSite::Direct(_), _) => Fit::Doubtful,
            (CallSite::Slot(slot), Some(start)) => match self.memory.read_u64(slot) {
                Some(target) if calls::leads_to(self.memory, target, start) => Fit::Certain,
                _ => Fit::Possible,
            },
        };
        Some(Record { at, saved, return_address, fit })
    }

    /// Whether the record links to a second one above it, or its caller is the outermost frame.
    fn linked(&mut self, record: Record) -> bool {
        if record.saved > record.at && self.record(record.saved, record.at + 16, None).is_some() {
            return true;
        }
        let caller = self.code.known(self.memory, record.return_address, false);
        caller.is_some_and(|known| known.step == Step::Table(Rule::Root))
    }
}
