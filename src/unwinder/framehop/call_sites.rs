//! Decodes machine code to decide whether an address can be a return address, and which function
//! the call before it called.

use crate::process::memory::ReadMemory;

/// The call instruction that ends right before a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallSite {
    /// `call rel32`.
    Direct(u64),
    /// `call [rip + rel32]`: through the word at this address.
    Slot(u64),
    /// Through a register or a computed memory operand.
    Indirect,
}

/// Longest call instruction, bytes: `call [base + index * scale + disp32]`; prefixes come before.
const LONGEST: u64 = 7;

/// Decodes the call that ends at `return_address`. The caller has checked that this is code.
pub fn call_before(memory: &impl ReadMemory, return_address: u64) -> Option<CallSite> {
    let mut bytes = [0; LONGEST as usize];
    let from = return_address.checked_sub(LONGEST)?;
    memory.read_exact(from, &mut bytes)?;
    classify(&bytes, return_address)
}

fn classify(before: &[u8; LONGEST as usize], return_address: u64) -> Option<CallSite> {
    let displacement = |at: usize| {
        i64::from(i32::from_le_bytes([before[at], before[at + 1], before[at + 2], before[at + 3]]))
    };
    if before[2] == 0xe8 {
        return Some(CallSite::Direct(return_address.wrapping_add_signed(displacement(3))));
    }
    if before[1] == 0xff && before[2] == 0x15 {
        return Some(CallSite::Slot(return_address.wrapping_add_signed(displacement(3))));
    }
    // FF /2 with all its addressing forms: the ModRM byte gives the instruction's length.
    (2..=LONGEST as usize).find_map(|length| {
        let code = &before[LONGEST as usize - length..];
        let (modrm, sib) = (code[1], code.get(2).copied());
        let is_call = code[0] == 0xff && modrm >> 3 & 7 == 2;
        (is_call && modrm_length(modrm, sib) + 1 == length).then_some(CallSite::Indirect)
    })
}

/// Returns the length of ModRM, SIB and displacement, bytes.
pub fn modrm_length(modrm: u8, sib: Option<u8>) -> usize {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && rm == 4;
    let displacement = match mode {
        0 if rm == 5 => 4,
        0 if has_sib && sib.is_some_and(|sib| sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    1 + usize::from(has_sib) + displacement
}

/// Whether a call of `target` reaches `start`: directly, or through jumps (a PLT entry, a thunk).
pub fn leads_to(memory: &impl ReadMemory, target: u64, start: u64) -> bool {
    /// Maximum jumps. A PLT entry with branch protection jumps to a second one, which jumps through
    /// the GOT.
    const HOPS: usize = 3;
    let mut at = target;
    for _ in 0..HOPS {
        if at == start {
            return true;
        }
        let mut code = [0; 12];
        if memory.read_exact(at, &mut code).is_none() {
            return false;
        }
        let mut skipped = 0;
        if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            skipped = 4; // endbr64
        }
        if code[skipped] == 0xf2 {
            skipped += 1; // bnd
        }
        let code_at = |i: usize| code.get(skipped + i).copied();
        let displacement = |i: usize| -> Option<i64> {
            let bytes = code.get(skipped + i..skipped + i + 4)?;
            Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)))
        };
        let next = match (code_at(0), code_at(1)) {
            (Some(0xff), Some(0x25)) => displacement(2).and_then(|d| {
                let slot = at.wrapping_add(skipped as u64 + 6).wrapping_add_signed(d);
                memory.read_u64(slot)
            }),
            (Some(0xe9), _) => {
                displacement(1).map(|d| at.wrapping_add(skipped as u64 + 5).wrapping_add_signed(d))
            }
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    at == start
}

/// The frame that a function's first instructions set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prologue {
    /// Bytes from the function's start until rbp is set: `push rbp; ... mov rbp, rsp`.
    pub frame_after: u64,
    /// Bytes subtracted from rsp after that.
    pub room: u64,
}

/// Maximum bytes of code decoded.
const PROLOGUE: usize = 128;

/// Decodes the prologue of a function; `None` if it does not set up a frame pointer. Reads no
/// further than `end`.
pub fn prologue(memory: &impl ReadMemory, start: u64, end: u64) -> Option<Prologue> {
    let mut code = [0; PROLOGUE];
    let length = usize::try_from(end.checked_sub(start)?).ok()?.min(PROLOGUE);
    let n = memory.read(start, &mut code[..length]);
    decode_prologue(&code[..n])
}

/// Decodes the instructions of a prologue. Other instructions between them are skipped byte by
/// byte. What that may misread is caught when the result is verified against the stack.
fn decode_prologue(code: &[u8]) -> Option<Prologue> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let mut at = if code.starts_with(&ENDBR64) { 4 } else { 0 };
    if *code.get(at)? != 0x55 {
        return None;
    }
    let set =
        code[at..].windows(3).position(|w| matches!(w, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec]))?;
    at += set + 3;
    let mut found = Prologue { frame_after: at as u64, room: 0 };
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        match rest {
            // lea r11, [rsp - N]: a large frame is touched page by page, in a loop down to this
            // address.
            [0x4c, 0x8d, 0x9c, 0x24, a, b, c, d, ..] => {
                found.room += u64::from(i32::from_le_bytes([*a, *b, *c, *d]).unsigned_abs());
                at += 8;
                // sub rsp, 0x1000; or qword [rsp], 0; cmp rsp, r11; jne
                if let Some(end) =
                    code[at..].windows(4).position(|w| matches!(w, [0x4c, 0x39, 0xdc, 0x75]))
                {
                    at += end + 5;
                }
            }
            [0x48, 0x83, 0xec, n, rest @ ..] => {
                found.room += u64::from(*n);
                if !touches_stack(rest) {
                    break;
                }
                at += 4;
            }
            [0x48, 0x81, 0xec, a, b, c, d, rest @ ..] => {
                found.room += u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
                if !touches_stack(rest) {
                    break;
                }
                at += 7;
            }
            _ => at += 1,
        }
    }
    Some(found)
}

/// Whether this is `or qword [rsp], 0`: a large frame is touched page by page, and more is
/// subtracted after it.
fn touches_stack(code: &[u8]) -> bool {
    code.starts_with(&[0x48, 0x83, 0x0c, 0x24, 0x00])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::framehop::tests::Code;

    fn before(code: &[u8]) -> Option<CallSite> {
        let mut bytes = vec![0x90; 16 - code.len()];
        bytes.extend_from_slice(code);
        call_before(&Code(bytes), 0x1010)
    }

    #[test]
    fn calls_are_recognised() {
        assert_eq!(before(&[0xe8, 0x10, 0, 0, 0]), Some(CallSite::Direct(0x1020)));
        assert_eq!(before(&[0xe8, 0xf0, 0xff, 0xff, 0xff]), Some(CallSite::Direct(0x1000)));
        assert_eq!(before(&[0xff, 0x15, 0x08, 0, 0, 0]), Some(CallSite::Slot(0x1018)));
        for indirect in [
            &[0xff, 0xd0][..],               // call rax
            &[0x41, 0xff, 0xd4],             // call r12
            &[0xff, 0x10],                   // call [rax]
            &[0xff, 0x50, 0x18],             // call [rax + 0x18]
            &[0xff, 0x54, 0x24, 0x08],       // call [rsp + 8]
            &[0xff, 0x14, 0xc3],             // call [rbx + rax * 8]
            &[0xff, 0x90, 0, 1, 0, 0],       // call [rax + 0x100]
            &[0xff, 0x94, 0xc3, 0, 1, 0, 0], // call [rbx + rax * 8 + 0x100]
            &[0xff, 0x14, 0xc5, 0, 1, 0, 0], // call [rax * 8 + 0x100]
        ] {
            assert_eq!(before(indirect), Some(CallSite::Indirect), "{indirect:x?}");
        }
        for other in [
            &[0x90][..],
            &[0xff, 0xe0],
            &[0xff, 0xc0],
            &[0xff, 0x50],
            &[0xc3],
            &[0xff, 0x94, 0xc3, 0, 1],
        ] {
            assert_eq!(before(other), None, "{other:x?}");
        }
        assert_eq!(call_before(&Code(vec![]), 0x1010), None);
        assert_eq!(call_before(&Code(vec![]), 3), None);
    }

    #[test]
    fn jumps_are_followed_to_the_function() {
        let mut code = vec![0x90; 0x100];
        code[..5].copy_from_slice(&[0xe9, 0x3b, 0, 0, 0]); // 0x1000: jmp 0x1040
        code[0x20..0x2a].copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x56, 0, 0, 0]); // jmp [0x1080]
        code[0x80..0x88].copy_from_slice(&0x1040u64.to_le_bytes());
        code[0x30..0x35].copy_from_slice(&[0xe9, 0xfb, 0xff, 0xff, 0xff]); // 0x1030: jmp 0x1030
        let memory = Code(code);
        assert!(leads_to(&memory, 0x1040, 0x1040));
        assert!(leads_to(&memory, 0x1000, 0x1040));
        assert!(leads_to(&memory, 0x1020, 0x1040));
        assert!(!leads_to(&memory, 0x1000, 0x1041));
        assert!(!leads_to(&memory, 0x1030, 0x1040), "a jump to itself ends");
        assert!(!leads_to(&memory, 0x9000, 0x1040));
    }

    #[test]
    fn prologues() {
        // push rbp; mov rbp,rsp; push r15; push rbx; sub rsp,0x18
        let small = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x18, 0x53];
        assert_eq!(decode_prologue(&small), Some(Prologue { frame_after: 4, room: 0x18 }));
        // With endbr64 before, mov [rbp-4],edi between, and a large frame.
        let large = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x89, 0x7d, 0xfc, 0x48, 0x81, 0xec,
            0x10, 0x20, 0, 0,
        ];
        assert_eq!(decode_prologue(&large), Some(Prologue { frame_after: 8, room: 0x2010 }));
        // sub rsp,0x1000; or [rsp],0; sub rsp,0x20
        let touched = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0x83, 0x0c, 0x24, 0,
            0x48, 0x83, 0xec, 0x20,
        ];
        assert_eq!(decode_prologue(&touched), Some(Prologue { frame_after: 4, room: 0x1020 }));
        // push rbp; xor eax,eax; mov rbp,rsp; nothing subtracted.
        assert_eq!(
            decode_prologue(&[0x55, 0x31, 0xc0, 0x48, 0x89, 0xe5]),
            Some(Prologue { frame_after: 6, room: 0 })
        );
        assert_eq!(decode_prologue(&[0x53, 0x48, 0x83, 0xec, 0x10]), None);
        assert_eq!(decode_prologue(&[0x55, 0x53]), None);
        assert_eq!(decode_prologue(&[]), None);
    }
}
