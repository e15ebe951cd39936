//! Frames of compiled methods. At a call site they have a fixed size. The innermost one may be
//! found partly built or partly removed.

use crate::model::vocabulary::frame::RawFrame;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::code_cache::{Blob, Nmethod};
use crate::runtimes::jvm::walk::{Caller, StackCursor};

/// Maximum length of a prologue, bytes.
const PROLOGUE_MAX: u64 = 96;
/// Words searched for the return address above its expected place: compiled code that calls pushes
/// arguments for a moment.
const SEARCHED: u64 = 10;

/// What a prologue has executed up to some instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prologue {
    pub pushed: bool,
    pub subtracted: bool,
    saved: bool,
}

impl<M: ReadMemory> Jvm<M> {
    pub fn leave_compiled(
        &mut self,
        blob: &Blob,
        nmethod: &Nmethod,
        cursor: &mut StackCursor<'_>,
    ) -> (RawFrame, Option<Caller>) {
        let pc = cursor.place.pc;
        if let Some((_, frame)) = self.handler.take() {
            return (frame, self.whole(cursor, blob.frame_size));
        }
        if !cursor.place.exact {
            // A frame to be deoptimised returns to a handler; its original pc is kept in the frame.
            let original = if nmethod.deopt.contains(&pc) && nmethod.orig_pc > 0 {
                cursor
                    .at_sp(nmethod.orig_pc as u64)
                    .filter(|pc| (blob.code..=blob.code_end).contains(pc))
            } else {
                None
            };
            // If it was called from its own entry barrier, nothing of the method has run.
            let entered =
                original.is_none() && !self.is_debug_point(blob, pc) && self.at_barrier(cursor);
            return (
                self.frame(blob, original.unwrap_or(pc), entered),
                self.whole(cursor, blob.frame_size),
            );
        }
        let (caller, entered) = self.top(blob, nmethod, cursor);
        (self.frame(blob, pc, entered), caller)
    }

    /// The barrier pushes this word below the return address that the call pushed (see `stub`).
    fn at_barrier(&self, cursor: &mut StackCursor<'_>) -> bool {
        cursor.slot(cursor.place.sp, -2) == Some(u64::MAX)
    }

    fn frame(&mut self, blob: &Blob, pc: u64, entered: bool) -> RawFrame {
        match self.compiled_frame(blob, pc, entered) {
            Some(frame) => frame,
            None => self.stub_frame("compiled method, its name cannot be read"),
        }
    }

    /// Returns the caller of the innermost frame, and whether the method has only just been
    /// entered.
    fn top(
        &mut self,
        blob: &Blob,
        nmethod: &Nmethod,
        cursor: &mut StackCursor<'_>,
    ) -> (Option<Caller>, bool) {
        let pc = cursor.place.pc;
        if pc <= nmethod.verified_entry {
            return (self.leaf(cursor), true);
        }
        if let Some(prologue) = self.prologue(nmethod.verified_entry, pc) {
            let caller = match prologue {
                Prologue { subtracted: false, pushed: false, .. } => self.leaf(cursor),
                Prologue { subtracted: false, pushed: true, .. } => self.pushed_rbp(cursor),
                Prologue { pushed, saved, .. } => {
                    self.whole(cursor, blob.frame_size).map(|caller| Caller {
                        rbp: if pushed || saved { caller.rbp } else { cursor.place.rbp },
                        ..caller
                    })
                }
            };
            let caller = caller.filter(|caller| self.returns_to(caller.pc));
            if caller.is_some() {
                return (caller, !prologue.subtracted);
            }
        }
        let caller = match self.epilogue_at(blob, pc) {
            Some(Epilogue::Return) => self.leaf(cursor),
            Some(Epilogue::Pop) => self.pushed_rbp(cursor),
            None => None,
        };
        let caller = caller.filter(|caller| self.returns_to(caller.pc));
        (caller.or_else(|| self.searched(blob, cursor)), false)
    }

    /// Decodes what is executed next at `pc`. What was decoded once holds as long as the blob is
    /// the same: of installed code HotSpot patches targets, operands and loads that C1 left
    /// unresolved, but not how a method is left.
    fn epilogue_at(&mut self, blob: &Blob, pc: u64) -> Option<Epilogue> {
        if let Some(known) = self.known.get(&blob.start).and_then(|known| known.epilogues.get(&pc))
        {
            return *known;
        }
        let mut code = [0; 16];
        let read = self.memory.read(pc, &mut code);
        let found = epilogue(&code[..read]);
        if read == code.len()
            && let Some(known) = self.remember(blob.start)
        {
            known.epilogues.insert(pc, found);
        }
        found
    }

    /// Reads a caller's rbp at the top of the stack and the return address above it.
    pub fn pushed_rbp(&mut self, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let (rbp, pc) = (cursor.at_sp(0)?, cursor.at_sp(8)?);
        self.returns_to(pc).then_some(Caller { pc, sp: cursor.place.sp + 16, rbp: Some(rbp) })
    }

    /// Searches the return address of a complete frame, of one that is mostly removed, or of one
    /// with arguments pushed on top.
    fn searched(&mut self, blob: &Blob, cursor: &mut StackCursor<'_>) -> Option<Caller> {
        let size = blob.frame_size;
        if let Some(caller) = self.whole(cursor, size).filter(|caller| self.returns_to(caller.pc)) {
            return Some(caller);
        }
        if let Some(caller) = self.leaf(cursor) {
            return Some(caller);
        }
        if let Some(caller) = self.pushed_rbp(cursor) {
            return Some(caller);
        }
        (1..=SEARCHED).find_map(|words| {
            self.whole(cursor, size + 8 * words).filter(|caller| self.returns_to(caller.pc))
        })
    }

    /// Returns what the instructions from the entry up to `pc` did, if they are all a prologue's.
    pub fn prologue(&mut self, entry: u64, pc: u64) -> Option<Prologue> {
        let length = pc.checked_sub(entry).filter(|length| *length <= PROLOGUE_MAX)?;
        let mut code = [0; PROLOGUE_MAX as usize + 16];
        let read = self.memory.read(entry, &mut code);
        prologue(&code[..read], length as usize)
    }
}

/// See [`Jvm::prologue`].
fn prologue(code: &[u8], upto: usize) -> Option<Prologue> {
    let (mut at, mut done) = (0, Prologue::default());
    while at < upto {
        at += match code.get(at..)? {
            // mov [rsp - pages], eax: the stack banging, which touches the pages that the method
            // may need.
            [0x89, 0x84, 0x24, ..] => 7,
            [0x55, ..] => {
                done.pushed = true;
                1
            }
            [0x48, 0x8b, 0xec, ..] => 3,
            [0x48, 0x83, 0xec, ..] => {
                done.subtracted = true;
                4
            }
            [0x48, 0x81, 0xec, ..] => {
                done.subtracted = true;
                7
            }
            // mov [rsp + distance], rbp
            [0x48, 0x89, 0x6c, 0x24, ..] => {
                done.saved = true;
                5
            }
            [0x48, 0x89, 0xac, 0x24, ..] => {
                done.saved = true;
                8
            }
            _ => return None,
        };
    }
    (at == upto).then_some(done)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Epilogue {
    /// The return address is on top.
    Return,
    /// rbp is on top, then the return address.
    Pop,
}

/// Whether the code that is about to run ends a method. `pop rbp` is followed by a safepoint poll,
/// then `ret`.
pub fn epilogue(code: &[u8]) -> Option<Epilogue> {
    match code {
        [0xc3 | 0xc2, ..] => Some(Epilogue::Return),
        [0x5d, ..] => Some(Epilogue::Pop),
        // cmp rsp, [r15 + distance]; ja; ret
        [0x49, 0x3b, 0x67 | 0xa7, ..] => Some(Epilogue::Return),
        [0x0f, 0x87, _, _, _, _, 0xc3, ..] => Some(Epilogue::Return),
        // mov r10, [r15 + distance]; test [r10], eax; ret
        [0x4d, 0x8b, 0x97, ..] => Some(Epilogue::Return),
        [0x41, 0x85, 0x02, 0xc3, ..] => Some(Epilogue::Return),
        // test [rip + distance], eax; ret
        [0x85, 0x05, _, _, _, _, 0xc3, ..] => Some(Epilogue::Return),
        // vzeroupper
        [0xc5, 0xf8, 0x77, 0xc3 | 0x49 | 0x4d | 0x41 | 0x85, ..] => Some(Epilogue::Return),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prologues_are_followed_instruction_by_instruction() {
        // mov [rsp-0x14000], eax; push rbp; sub rsp, 0x30; ...
        let code = [0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x83, 0xec, 0x30, 0x90];
        let nothing = Prologue::default();
        assert_eq!((prologue(&code, 0), prologue(&code, 7)), (Some(nothing), Some(nothing)));
        assert_eq!(prologue(&code, 8), Some(Prologue { pushed: true, ..nothing }));
        assert_eq!(
            prologue(&code, 12),
            Some(Prologue { pushed: true, subtracted: true, saved: false })
        );
        assert_eq!(
            (prologue(&code, 13), prologue(&code, 3), prologue(&code[..8], 12)),
            (None, None, None)
        );
        // sub rsp, 0x18; mov [rsp+0x10], rbp
        let code = [0x48, 0x81, 0xec, 0x18, 0, 0, 0, 0x48, 0x89, 0x6c, 0x24, 0x10];
        assert_eq!(
            prologue(&code, 12),
            Some(Prologue { pushed: false, subtracted: true, saved: true })
        );
    }
}
