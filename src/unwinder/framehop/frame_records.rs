//! Frame records (saved rbp, return address): validates records, and finds the frame pointer of a
//! blocked thread, whose registers the kernel does not show.
//!
//! Every result is checked against the code: a return address must follow a call, and a direct call
//! names the called function. An ambiguous result is not used: a shorter correct stack is better
//! than a longer guess.

use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::call_sites::{self, CallSite};
use crate::unwinder::framehop::code::{Code, Step};
use crate::unwinder::framehop::stack::Stack;
use crate::unwinder::framehop::unwind_rows::{Frame, lowest_saved};
use crate::unwinder::framehop::unwind_tables::{READ, Rule};

/// Bytes of the stack searched for a record when the code does not give the frame's size: 128 KiB.
const SEARCH: u64 = 128 << 10;
/// Maximum bytes of arguments and alignment that may lie below a function's frame.
const BELOW: u64 = 64;
/// Maximum distance from a function's start at which code without unwind information counts as that
/// function's.
const FUNCTION_MAX: u64 = 1 << 20;

/// How well a frame record fits its function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// Its return address follows a direct call of this very function.
    Certain,
    /// It follows a call through a pointer.
    Possible,
    /// It follows a call of another function, which may have jumped here.
    Unproven,
}

/// A frame record on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub at: u64,
    pub saved: u64,
    pub return_address: u64,
    pub fit: Fit,
}

/// A search for frame records on one stack.
pub struct Search<'w, 's, M> {
    pub code: &'w mut Code,
    pub memory: &'w M,
    pub stack: &'w mut Stack<'s, M>,
}

impl<M: ReadMemory> Search<'_, '_, M> {
    /// Finds rbp of `frame`, whose function keeps a frame pointer, from the stack alone.
    pub fn frame_pointer(&mut self, frame: Frame) -> Option<u64> {
        let (start, _) = self.code.function(self.memory, frame.address)?;
        self.predicted(frame, start).or_else(|| self.searched(frame, start))
    }

    /// Predicts it from the function's first instructions: registers saved, and bytes subtracted.
    fn predicted(&mut self, frame: Frame, start: u64) -> Option<u64> {
        let prologue = call_sites::prologue(self.memory, start, frame.address)?;
        // The record is at CFA - 16. Below it lie the registers that were pushed, where unwind
        // information says so, unless they were stored into the subtracted bytes.
        let saved = lowest_saved(self.code, frame.address)
            .map_or(0, |lowest| (-16i64).saturating_sub(lowest).max(0));
        for below in (0..=BELOW).step_by(8) {
            for size in [prologue.room + saved as u64, prologue.room] {
                let Some(at) = frame.sp.checked_add(size + below) else { continue };
                let Some(record) = self.record(at, frame.sp, Some(start)) else { continue };
                let fits = match record.fit {
                    Fit::Certain => true,
                    // The exact place is evidence too; one word of alignment is common.
                    Fit::Possible => below == 0 || below == 8 && self.linked(record),
                    // Another function was called, and may have jumped here.
                    Fit::Unproven => below == 0 && self.linked(record),
                };
                if fits {
                    return Some(at);
                }
            }
        }
        None
    }

    /// Tries every possible place of the record: exactly one may follow a direct call of this very
    /// function. Two may be a recursion, or the remains of an earlier call. A record below it that
    /// follows a call through a pointer may be the real one.
    fn searched(&mut self, frame: Frame, start: u64) -> Option<u64> {
        let least = call_sites::prologue(self.memory, start, frame.address)
            .map_or(0, |prologue| prologue.room);
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

    /// Returns the possible records of `frame`, whose row is not plain. For each of them the
    /// evaluation of the row must find the record's return address.
    pub fn candidates(&mut self, frame: Frame) -> Vec<Record> {
        /// With more candidates a unique result is unlikely.
        const ENOUGH: usize = 64;
        let Some((start, _)) = self.code.function(self.memory, frame.address) else {
            return Vec::new();
        };
        let Some(places) = self.places(frame.sp) else { return Vec::new() };
        let mut found = Vec::new();
        for at in places {
            let record = self.record(at, frame.sp, Some(start)).filter(|r| r.fit != Fit::Unproven);
            found.extend(record);
            if found.len() == ENOUGH {
                break;
            }
        }
        found
    }

    /// Iterates over 16-byte aligned addresses from `from` up, within the search limit.
    fn places(&self, from: u64) -> Option<std::iter::StepBy<std::ops::Range<u64>>> {
        let first = from.checked_add(15)? & !15;
        Some((first..self.stack.end().min(from.saturating_add(SEARCH))).step_by(16))
    }

    /// Validates the frame record at `rbp` of code without unwind information at `pc`: it must link
    /// to a second record. With `proven`, the code is known to have a record there. Then a caller
    /// with unwind information, which needs no record, is accepted too (a thread's first function,
    /// whose caller is the C library).
    pub fn fallback(&mut self, pc: u64, sp: u64, rbp: u64, proven: bool) -> Option<Record> {
        let record = self.record(rbp, sp, None)?;
        let verified = self.linked(record) || proven && self.described(record);
        (self.may_be_of(record, pc) && verified).then_some(record)
    }

    /// Whether the caller's frame is left by unwind information.
    fn described(&mut self, record: Record) -> bool {
        let caller = self.code.resolve(self.memory, record.return_address, false);
        caller.is_some_and(|resolved| matches!(resolved.step, Step::Table(_)))
    }

    /// Validates the frame record at `rbp` of code that is known to have built one, whoever jumped
    /// to it. It must link to a second record, or its caller must have unwind information.
    pub fn made(&mut self, sp: u64, rbp: u64) -> Option<Record> {
        let record = self.record(rbp, sp, None)?;
        (self.linked(record) || self.described(record)).then_some(record)
    }

    /// As [`Search::fallback`] without knowing rbp: finds the first record whose call leads here.
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
    /// function proves the opposite: the record is a caller's, and using it would skip a frame.
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

    /// Reads the record at `at`, if it can be one: on this stack above `sp`, aligned, with a return
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
            // The target of the call is decoded again for each record.
            self.code.context.spend(READ)?;
        }
        let fit = match (site, function) {
            (_, None) | (CallSite::Indirect, _) => Fit::Possible,
            (CallSite::Direct(target), Some(start))
                if call_sites::leads_to(self.memory, target, start) =>
            {
                Fit::Certain
            }
            (CallSite::Direct(_), _) => Fit::Unproven,
            (CallSite::Slot(slot), Some(start)) => match self.memory.read_u64(slot) {
                Some(target) if call_sites::leads_to(self.memory, target, start) => Fit::Certain,
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
        let caller = self.code.resolve(self.memory, record.return_address, false);
        caller.is_some_and(|resolved| resolved.step == Step::Table(Rule::Root))
    }
}
