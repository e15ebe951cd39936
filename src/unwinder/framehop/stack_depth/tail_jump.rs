//! Whether a running function is about to jump to another one in its place. Then the return address
//! is on top of the stack, however much was there before: V8's built-in functions that call another
//! one move it, with missing arguments behind it.

use super::{Code, Effect, Goes, decode};
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::unwind_tables::Context;

/// Maximum instructions followed: the address is loaded through two pointers.
const INSTRUCTIONS_MAX: usize = 8;

/// Whether the code from `pc` on leads to a jump through a pointer, by one way, and does nothing to
/// the stack pointer and rbp on it.
pub fn jumps_away(memory: &impl ReadMemory, pc: u64, context: &mut Context) -> bool {
    let mut code = Code::new(memory);
    let mut at = pc;
    for _ in 0..INSTRUCTIONS_MAX {
        let decoded = code.bytes(at, context).and_then(decode);
        let Some(instruction) = decoded.filter(|it| it.effect == Effect::Nothing) else {
            return false;
        };
        at = at.wrapping_add(instruction.length as u64);
        match instruction.goes {
            Goes::On => {}
            Goes::To(by) => at = at.wrapping_add_signed(by),
            Goes::Away => return true,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::framehop::tests::Code as Bytes;

    #[test]
    fn only_one_way_that_leaves_the_stack_alone_leads_to_a_jump() {
        let load: &[u8] = &[0x48, 0x8b, 0x49, 0x27];
        let (jump, nop): (&[u8], &[u8]) = (&[0xff, 0xe1], &[0x90]);
        for (code, expected) in [
            (&[jump][..], true),
            (&[load, load, jump], true),
            (&[load, &[0xeb, 1], nop, load, jump], true),
            // jmp [rcx + 0x27]
            (&[load, &[0xff, 0x61, 0x27]], true),
            (&[load, load, load, load, load, load, load, jump], true),
            (&[load, load, load, load, load, load, load, load, jump], false),
            // push rbx; pop rbx; xor ebp, ebp; sub rsp, r10
            (&[load, &[0x53], jump], false),
            (&[load, &[0x5b], jump], false),
            (&[load, &[0x31, 0xed], jump], false),
            (&[load, &[0x49, 0x2b, 0xe2], jump], false),
            // je; call; ret; ret 8; int3; jmp to itself
            (&[load, &[0x74, 0], jump], false),
            (&[load, &[0xe8, 0, 0, 0, 0], jump], false),
            (&[load, &[0xc3], jump], false),
            (&[load, &[0xc2, 8, 0], jump], false),
            (&[load, &[0xcc], jump], false),
            (&[&[0xeb, 0xfe]], false),
            (&[load], false),
        ] {
            let bytes = Bytes(code.concat());
            let found = jumps_away(&bytes, 0x1000, &mut Context::default());
            assert_eq!(found, expected, "{code:x?}");
        }
    }
}
