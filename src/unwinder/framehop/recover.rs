//! Frame records (saved rbp, return address): telling real ones from what merely looks like one, and finding the
//! frame pointer of a blocked thread, whose registers the kernel does not show.
//!
//! Everything found here is checked against the code: before a return address stands a call, and a direct call says
//! whom it called. What stays ambiguous is not taken: a shorter truth beats a longer guess.

use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::calls::{self, CallSite};
use crate::unwinder::framehop::code::{Code, Step};
use crate::unwinder::framehop::rows::{Frame, lowest_saved};
use crate::unwinder::framehop::stack::Stack;
use crate::unwinder::framehop::tables::Rule;

/// Stack words searched for a record when the frame's size cannot be told from its code: 128 KiB.
const SEARCH: u64 = 128 << 10;
/// A function's arguments and alignment may lie below its frame: so many bytes are tried.
const BELOW: u64 = 64;
/// How far behind its start code without unwind information is still taken for the called function's.
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
        let (start, end) = self.code.function(self.memory, frame.address)?;
        self.predicted(frame, start).or_else(|| self.searched(frame, start, end))
    }

    /// From the function's own first instructions: how much it pushed, and how much room it made.
    fn predicted(&mut self, frame: Frame, start: u64) -> Option<u64> {
        let prologue = calls::prologue(self.memory, start)?;
        if frame.address < start + prologue.frame_after {
            return None;
        }
        // The record is at CFA - 16; what was saved below it is known exactly.
        let saved = lowest_saved(self.code, frame.address).map_or(0, |lowest| (-16i64).saturating_sub(lowest).max(0));
        let mut sizes = [prologue.room + saved as u64, prologue.room + prologue.pushed, prologue.room];
        sizes.sort_unstable();
        let mut best: Option<Record> = None;
        for below in (0..=BELOW).step_by(8) {
            for size in sizes {
                let Some(at) = frame.sp.checked_add(size + below) else { continue };
                let Some(record) = self.record(at, frame.sp, Some(start)) else { continue };
                match record.fit {
                    Fit::Certain => return Some(at),
                    // Code that jumped here is believed only at the very place the code predicts.
                    Fit::Doubtful if below > 8 || !self.linked(record) => {}
                    _ if best.is_none_or(|best| best.fit == Fit::Doubtful && record.fit == Fit::Possible) => {
                        best = Some(record);
                    }
                    // Two different records fit: neither is taken, unless they are the same.
                    _ => {}
                }
            }
        }
        best.map(|record| record.at)
    }

    /// By trying every place above the stack pointer: exactly one record may fit.
    fn searched(&mut self, frame: Frame, start: u64, end: u64) -> Option<u64> {
        let mut found: Option<Record> = None;
        let first = frame.sp.checked_add(15)? & !15;
        let last = self.stack.end().min(frame.sp.saturating_add(SEARCH));
        for at in (first..last).step_by(16) {
            let Some(record) = self.record(at, frame.sp, Some(start)) else { continue };
            if record.fit == Fit::Doubtful || !self.linked(record) {
                continue;
            }
            // Left over from a callee that is gone, or a recursion: nothing tells these apart.
            if record.fit == Fit::Possible && (start..end).contains(&record.return_address.wrapping_sub(1)) {
                return None;
            }
            match found {
                None => found = Some(record),
                Some(before) if before.fit == record.fit => return None,
                Some(before) if before.fit == Fit::Possible => found = Some(record),
                Some(_) => {}
            }
        }
        found.map(|record| record.at)
    }

    /// The frame record of the code at `pc`, which has no unwind information, at `rbp`: verified by a second record
    /// that it links to.
    pub fn fallback(&mut self, pc: u64, sp: u64, rbp: u64) -> Option<Record> {
        let record = self.record(rbp, sp, None)?;
        (self.may_be_of(record, pc) && self.linked(record)).then_some(record)
    }

    /// The same without knowing rbp: the first record whose call leads here.
    pub fn search_fallback(&mut self, pc: u64, sp: u64) -> Option<Record> {
        let first = sp.checked_add(15)? & !15;
        let last = self.stack.end().min(sp.saturating_add(SEARCH));
        for at in (first..last).step_by(16) {
            let Some(record) = self.record(at, sp, None) else { continue };
            let direct = matches!(self.code.call_before(self.memory, record.return_address), Some(CallSite::Direct(_)));
            if direct && self.may_be_of(record, pc) && self.linked(record) {
                return Some(record);
            }
        }
        None
    }

    /// Whether the call behind `record` can have entered the code at `pc`. A direct call of another function says
    /// no: the record then is that of a caller, and taking it would leave a frame out.
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

    /// The record at `at`, if it can be one: on this stack above `sp`, aligned, with a return address behind a call.
    fn record(&mut self, at: u64, sp: u64, function: Option<u64>) -> Option<Record> {
        if at % 8 != 0 || at < sp || (function.is_some() && at % 16 != 0) || at.checked_add(16)? > self.stack.end() {
            return None;
        }
        let return_address = self.stack.word(at + 8)?;
        let site = self.code.call_before(self.memory, return_address)?;
        let saved = self.stack.word(at)?;
        let fit = match (site, function) {
            (_, None) | (CallSite::Indirect, _) => Fit::Possible,
            (CallSite::Direct(target), Some(start)) if calls::leads_to(self.memory, target, start) => Fit::Certain,
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
