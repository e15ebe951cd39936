//! Progress of generated code in its prologue or epilogue. It has no unwind information; only the
//! start of its function is known.

use crate::process::memory::ReadMemory;
use crate::unwinder::FrameSetup;

/// V8 marks its frames by twice a small number; marks are below this.
pub const MARKS: u64 = 128;

/// State of the frame at the executing instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The return address is on top of the stack: the frame is not yet built, or already removed.
    Entered,
    /// rbp points at the frame record.
    Framed,
    /// `Entered` or `Framed`: on some paths the code builds no frame.
    Either,
    /// Neither of them.
    Between,
}

/// Maximum bytes of code in which a function is expected to build its frame.
const LONG: usize = 4096;
/// Bytes before an instruction in which the frame may have been given up.
const NEAR: usize = 96;
/// A frame that is built within these first bytes is built on all paths.
const FIRST: usize = 4;
/// A function whose frame is built by another one calls that within these first bytes.
const CALL_WITHIN: usize = 48;
/// V8's Maglev begins code with it that is entered in a loop of a running function, whose frame it
/// takes over (on-stack replacement).
const INT3: u8 = 0xcc;
/// Length of `call rel32`, bytes.
const CALL: u64 = 5;

/// Returns the stage of the function that begins at `start` and executes at `pc`.
pub fn stage(memory: &impl ReadMemory, start: u64, pc: u64, setup: FrameSetup) -> Stage {
    if setup == FrameSetup::Hidden {
        return Stage::Between;
    }
    let mut ahead = [0; 16];
    let length = memory.read(pc, &mut ahead);
    if let Some(stage) = leaving(&ahead[..length]) {
        return stage;
    }
    let Ok(at) = usize::try_from(pc.saturating_sub(start)) else { return Stage::Between };
    let mut code = [0; LONG];
    let length = memory.read(start, &mut code);
    let (mut near, from) = ([0; NEAR], at.saturating_sub(NEAR));
    let near = &mut near[..at - from];
    let known = memory.read(start.wrapping_add(from as u64), near) == near.len();
    by_entry(&code[..length], at, setup, if known { near } else { &[] })
}

/// Decides by the bytes of the function; the one at `at` is executing. `near`: those before it.
fn by_entry(code: &[u8], at: usize, setup: FrameSetup, near: &[u8]) -> Stage {
    if setup == FrameSetup::ByCall {
        return match builder_call(code) {
            Some(call) if at >= call + CALL as usize => Stage::Framed,
            Some(call) if at <= call => Stage::Entered,
            _ => Stage::Between,
        };
    }
    let Some((push, set)) = frame_made(code) else {
        if setup == FrameSetup::Plain && code.first() == Some(&INT3) {
            return Stage::Framed;
        }
        return if setup == FrameSetup::Plain { Stage::Entered } else { Stage::Either };
    };
    match setup {
        _ if at <= push => Stage::Entered,
        _ if at < set => Stage::Between,
        FrameSetup::Plain => Stage::Framed,
        _ => {
            let behind_set = &near[near.len().saturating_sub(at - set)..];
            let built = if push <= FIRST { Stage::Framed } else { Stage::Either };
            gave_up(behind_set).unwrap_or(built)
        }
    }
}

/// Whether `return_address` is the one of the call that builds the frame of the function that
/// begins at `start`. While it is on the stack, that frame is not built yet or complete (V8's
/// `BaselineOutOfLinePrologue` keeps it in a register meanwhile).
pub fn returns_from_builder(memory: &impl ReadMemory, start: u64, return_address: u64) -> bool {
    let mut code = [0; CALL_WITHIN];
    let length = memory.read(start, &mut code);
    let behind = builder_call(&code[..length]).map(|call| start.wrapping_add(call as u64 + CALL));
    behind == Some(return_address)
}

/// Returns where the first call begins. Operands of the moves before it may hold any bytes.
fn builder_call(code: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += match code.get(at..code.len().min(CALL_WITHIN))? {
            [0xe8, ..] => return Some(at),
            [0x48 | 0x49, 0xb8..=0xbf, ..] => 10,
            [0xb8..=0xbf, ..] => 5,
            [_, ..] => 1,
            [] => return None,
        };
    }
}

/// Returns the stage if the last instructions began to remove the frame to jump to another
/// function, without a jump or return since. Other bytes may look like a jump or return; then other
/// checks decide.
fn gave_up(near: &[u8]) -> Option<Stage> {
    let down = near
        .windows(4)
        .rposition(|w| matches!(w, [0x48, 0x8b, 0xe5, 0x5d] | [0x48, 0x89, 0xec, 0x5d]));
    let down = down.or_else(|| near.iter().rposition(|byte| *byte == 0xc9));
    // mov rbp, [rbp + 0]: the stack still holds the frame, but rbp is the caller's.
    let link = near.windows(4).rposition(|w| w == [0x48, 0x8b, 0x6d, 0x00]);
    let (from, stage) = match (down, link) {
        (down, Some(link)) if down.is_none_or(|down| down < link) => (link, Stage::Between),
        (Some(down), _) => (down, Stage::Either),
        _ => return None,
    };
    let away = |from: usize| {
        matches!(
            &near[from..],
            [0xc3, ..]
                | [0xc2, _, 0x00, ..]
                | [0xff, 0xe0..=0xe7, ..]
                | [0xe9, _, _, _, _, ..]
                | [0xeb, _, ..]
        )
    };
    (!(from..near.len()).any(away)).then_some(stage)
}

/// Returns where the code pushes rbp, and the first instruction behind the one that sets it.
fn frame_made(code: &[u8]) -> Option<(usize, usize)> {
    let mut places = code.iter().enumerate().filter(|(_, byte)| **byte == 0x55).map(|(at, _)| at);
    places.find_map(|at| Some((at, at + 1 + sets(&code[at + 1..])?)))
}

/// Returns the length of the code that sets rbp: `mov rbp, rsp`, or `sub rsp, N; lea rbp, [rsp +
/// N]`.
fn sets(code: &[u8]) -> Option<usize> {
    match code {
        [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => Some(3),
        [0x48, 0x83, 0xec, n, 0x48, 0x8d, 0x6c, 0x24, m, ..] if n == m => Some(9),
        [0x48, 0x81, 0xec, a, b, c, d, 0x48, 0x8d, 0xac, 0x24, e, f, g, h, ..]
            if [a, b, c, d] == [e, f, g, h] =>
        {
            Some(15)
        }
        _ => None,
    }
}

/// Decides by the next instructions: a return, or V8's code that removes a variable number of
/// arguments from the stack.
fn leaving(ahead: &[u8]) -> Option<Stage> {
    // jg over `ret imm16`, short or long
    let is_over = |code: &[u8]| {
        matches!(code, [0x7f, 0x03, 0xc2, ..] | [0x0f, 0x8f, 0x03, 0x00, 0x00, 0x00, 0xc2, ..])
    };
    let returns = |code: &[u8]| matches!(code, [0xc3 | 0xc2, ..] | [0xf3, 0xc3, ..]);
    match ahead {
        code if returns(code) || is_over(code) => Some(Stage::Entered),
        // cmp between two registers or with a byte, before that jump; a pop of the return address.
        [0x48..=0x4f, 0x39 | 0x3b, _, rest @ ..] | [0x48..=0x4f, 0x83, _, _, rest @ ..]
            if is_over(rest) =>
        {
            Some(Stage::Entered)
        }
        [0x58..=0x5f, rest @ ..] | [0x41, 0x58..=0x5f, rest @ ..] if put_back(rest) => {
            Some(Stage::Entered)
        }
        rest if put_back(rest) || pushed_and_returned_to(rest) => Some(Stage::Between),
        // pop rbp: the frame record is on top.
        _ => None,
    }
}

/// Matches `add rsp, REGISTER` or `lea rsp, [rsp + REGISTER * 8]`, before the return address is
/// pushed again and returned to.
fn put_back(code: &[u8]) -> bool {
    match code {
        [0x48..=0x4f, 0x03 | 0x01, _, rest @ ..] => pushed_and_returned_to(rest),
        [0x48..=0x4f, 0x8d, 0x24, _, rest @ ..] => pushed_and_returned_to(rest),
        [0x48..=0x4f, 0x8d, 0x64, 0x24 | 0xcc, _, rest @ ..] => pushed_and_returned_to(rest),
        _ => false,
    }
}

fn pushed_and_returned_to(code: &[u8]) -> bool {
    matches!(code, [0x50..=0x57, 0xc3, ..] | [0x41, 0x50..=0x57, 0xc3, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::framehop::tests::Code;

    /// Code of V8's optimising compiler.
    const FUNCTION: &[&[u8]] = &[
        &[0x48, 0x8b, 0x59, 0xf4],             // mov rbx, [rcx - 12]
        &[0x0f, 0x85, 0x32, 0x76, 0xe4, 0x1f], // jne
        &[0x55],                               // push rbp
        &[0x48, 0x8b, 0xec],                   // mov rbp, rsp
        &[0x56],                               // push rsi
        &[0x48, 0x83, 0xec, 0x20],             // sub rsp, 32
        &[0x48, 0x8b, 0xe5],                   // mov rsp, rbp
        &[0x5d],                               // pop rbp
        &[0x48, 0x83, 0xf9, 0x02],             // cmp rcx, 2
        &[0x7f, 0x03],                         // jg
        &[0xc2, 0x10, 0x00],                   // ret 16
        &[0x41, 0x5a],                         // pop r10
        &[0x48, 0x8d, 0x24, 0xcc],             // lea rsp, [rsp + rcx * 8]
        &[0x41, 0x52],                         // push r10
        &[0xc3],                               // ret
        &[0x48, 0x8b, 0x5d, 0xe0],             // mov rbx, [rbp - 32]: behind it, still framed
        &[0x90],
    ];

    #[test]
    fn each_instruction_of_a_function_has_its_stage() {
        use Stage::{Between, Entered, Framed};
        let memory = Code(FUNCTION.concat());
        let expected = [
            Entered, Entered, Entered, Between, Framed, Framed, Framed, Framed, Entered, Entered,
            Entered, Entered, Between, Between, Entered, Framed, Framed,
        ];
        let mut at = 0x1000;
        for (instruction, expected) in FUNCTION.iter().zip(expected) {
            assert_eq!(stage(&memory, 0x1000, at, FrameSetup::Plain), expected, "{instruction:x?}");
            // Where a frame may never have been built, a position behind its prologue proves
            // nothing.
            let marked = if expected == Framed { Stage::Either } else { expected };
            assert_eq!(stage(&memory, 0x1000, at, FrameSetup::Marked), marked, "{instruction:x?}");
            assert_eq!(stage(&memory, 0x1000, at, FrameSetup::Hidden), Between);
            at += instruction.len() as u64;
        }
    }

    #[test]
    fn interpreters_and_baseline_code_leave_otherwise() {
        let interpreter =
            [&[0x55, 0x48, 0x8b, 0xec][..], &[0xc9, 0x59, 0x48, 0x03, 0xe3, 0x51, 0xc3]].concat();
        let at = |offset: u64| {
            stage(&Code(interpreter.clone()), 0x1000, 0x1000 + offset, FrameSetup::Plain)
        };
        assert_eq!(
            [0, 4, 5, 6, 9, 10].map(at),
            [
                Stage::Entered,
                Stage::Framed,
                Stage::Entered,
                Stage::Between,
                Stage::Between,
                Stage::Entered
            ]
        );
        let baseline =
            [&[0xbb, 0x48, 0, 0, 0][..], &[0xe8, 0x2c, 0x5a, 0xe4, 0x1f], &[0x50]].concat();
        let at = |offset: u64| {
            stage(&Code(baseline.clone()), 0x1000, 0x1000 + offset, FrameSetup::ByCall)
        };
        assert_eq!([0, 5, 10].map(at), [Stage::Entered, Stage::Entered, Stage::Framed]);
        let returns =
            |offset: u64| returns_from_builder(&Code(baseline.clone()), 0x1000, 0x1000 + offset);
        assert_eq!([5, 9, 10, 11].map(returns), [false, false, true, false]);
    }

    #[test]
    fn a_return_address_that_is_popped_and_put_back_may_be_in_any_register() {
        // pop rbp; pop r8; lea rsp, [rsp + rbx * 8]; push r8; ret
        let code = Code(vec![0x5d, 0x41, 0x58, 0x48, 0x8d, 0x24, 0xdc, 0x41, 0x50, 0xc3]);
        let at = |offset: u64| stage(&code, 0x1000, 0x1000 + offset, FrameSetup::Marked);
        assert_eq!(
            [1, 3, 7, 9].map(at),
            [Stage::Entered, Stage::Between, Stage::Between, Stage::Entered]
        );
    }

    #[test]
    fn operands_before_the_call_that_builds_a_frame_are_no_call() {
        // mov ebx, 0xe8; mov r12, 0x3f2911e8bab9; call; push rax
        let code = [
            &[0xbb, 0xe8, 0, 0, 0][..],
            &[0x49, 0xbc, 0xb9, 0xba, 0xe8, 0x11, 0x29, 0x3f, 0, 0],
            &[0xe8, 0x2c, 0x6b, 0xe4, 0x1f],
            &[0x50],
        ]
        .concat();
        let at =
            |offset: u64| stage(&Code(code.clone()), 0x1000, 0x1000 + offset, FrameSetup::ByCall);
        assert_eq!([5, 15, 20].map(at), [Stage::Entered, Stage::Entered, Stage::Framed]);
        assert!(returns_from_builder(&Code(code.clone()), 0x1000, 0x1000 + 20));
        // Code that calls nothing, and a move that is cut off.
        assert_eq!(builder_call(&[0x50, 0xc3]), None);
        assert_eq!(builder_call(&[0x49, 0xbc, 0xb9]), None);
    }

    #[test]
    fn a_frame_that_is_made_first_of_all_is_there_until_it_is_given_up() {
        // push rbp; mov rbp, rsp; mov rsp, rbp; pop rbp; pop r10; push rax; jmp; nop
        let code = [
            0x55, 0x48, 0x8b, 0xec, 0x48, 0x8b, 0xe5, 0x5d, 0x41, 0x5a, 0x50, 0xe9, 1, 0, 0, 0,
            0x90, 0x90, 0x90,
        ];
        let at = |at: u64| stage(&Code(code.to_vec()), 0x1000, 0x1000 + at, FrameSetup::Marked);
        assert_eq!(
            [4, 10, 11, 16].map(at),
            [Stage::Framed, Stage::Either, Stage::Either, Stage::Framed]
        );
        // push rbp; mov rbp, rsp; mov rbp, [rbp + 0]; nop; mov rsp, rbp; pop rbp; nop;
        // mov rbp, [rbp + 0]; nop; jmp
        let code = [
            &[0x55, 0x48, 0x8b, 0xec, 0x48, 0x8b, 0x6d, 0, 0x90, 0x48, 0x8b, 0xe5, 0x5d, 0x90][..],
            &[0x48, 0x8b, 0x6d, 0, 0x90, 0xeb, 1, 0x90, 0x90],
        ]
        .concat();
        let at = |at: u64| stage(&Code(code.clone()), 0x1000, 0x1000 + at, FrameSetup::Marked);
        assert_eq!([4, 8, 13].map(at), [Stage::Framed, Stage::Between, Stage::Either]);
        assert_eq!([18, 19, 21].map(at), [Stage::Between, Stage::Between, Stage::Framed]);
        // Far from the start.
        let far =
            [&[0x55, 0x48, 0x8b, 0xec][..], &[0x90; 8000], &[0x48, 0x8b, 0x6d, 0, 0x90]].concat();
        let at = |at: u64| stage(&Code(far.clone()), 0x1000, 0x1000 + at, FrameSetup::Marked);
        assert_eq!([8004, 8008].map(at), [Stage::Framed, Stage::Between]);
        // Right behind a return: push rbp; mov rbp, rsp; mov rsp, rbp; pop rbp; ret; jmp
        let code = [0x55, 0x48, 0x8b, 0xec, 0x48, 0x8b, 0xe5, 0x5d, 0xc3, 0xeb, 0xf9, 0x90];
        let at = |at: u64| stage(&Code(code.to_vec()), 0x1000, 0x1000 + at, FrameSetup::Marked);
        assert_eq!([8, 9, 11].map(at), [Stage::Entered, Stage::Framed, Stage::Framed]);
    }

    #[test]
    fn a_jump_over_a_return_may_be_long() {
        // push rbp; mov rbp, rsp; mov rsp, rbp; pop rbp; cmp r8, 3; jg (long); ret 24; pop r9; ...
        let code = [
            &[0x55, 0x48, 0x8b, 0xec, 0x48, 0x8b, 0xe5, 0x5d, 0x49, 0x83, 0xf8, 0x03][..],
            &[0x0f, 0x8f, 0x03, 0, 0, 0, 0xc2, 0x18, 0],
            &[0x41, 0x59, 0x4a, 0x8d, 0x24, 0xc4, 0x41, 0x51, 0xc3],
        ]
        .concat();
        let at =
            |offset: u64| stage(&Code(code.clone()), 0x1000, 0x1000 + offset, FrameSetup::Plain);
        assert_eq!([4, 7].map(at), [Stage::Framed; 2]);
        assert_eq!([8, 12, 18, 21, 29].map(at), [Stage::Entered; 5]);
        assert_eq!([23, 27].map(at), [Stage::Between; 2]);
        // cmp r8, rax
        let code = [0x49, 0x3b, 0xc0, 0x0f, 0x8f, 0x03, 0, 0, 0, 0xc2, 0x18, 0];
        assert_eq!(stage(&Code(code.to_vec()), 0x1000, 0x1000, FrameSetup::Plain), Stage::Entered);
    }

    #[test]
    fn frames_of_other_compilers() {
        // push rbp; sub rsp, 16; lea rbp, [rsp + 16]
        let code =
            Code(vec![0x55, 0x48, 0x83, 0xec, 0x10, 0x48, 0x8d, 0x6c, 0x24, 0x10, 0x90, 0x90]);
        let at = |offset: u64| stage(&code, 0x1000, 0x1000 + offset, FrameSetup::Plain);
        assert_eq!(
            [0, 1, 5, 10].map(at),
            [Stage::Entered, Stage::Between, Stage::Between, Stage::Framed]
        );
        let none = |setup| stage(&Code(vec![0x90; 64]), 0x1000, 0x1010, setup);
        assert_eq!(
            [FrameSetup::Plain, FrameSetup::Marked].map(none),
            [Stage::Entered, Stage::Either],
            "no frame to be seen"
        );
        assert_eq!(stage(&Code(vec![]), 0x1000, 0x1010, FrameSetup::Marked), Stage::Either);
        // Entered with a frame: int3; nop ...; mov rsp, rbp; pop rbp; ret
        let mut entered = vec![0x90; 32];
        (entered[0], entered[31]) = (0xcc, 0xc3);
        entered[27..31].copy_from_slice(&[0x48, 0x8b, 0xe5, 0x5d]);
        let at =
            |offset: u64| stage(&Code(entered.clone()), 0x1000, 0x1000 + offset, FrameSetup::Plain);
        assert_eq!([16, 30, 31].map(at), [Stage::Framed, Stage::Framed, Stage::Entered]);
        assert_eq!(
            stage(&Code(vec![0x90; 64]), 0x1010, 0x1000, FrameSetup::ByCall),
            Stage::Between
        );
    }
}
