//! Where the return address of a running function is, by following its code forward to its `ret`.
//! There the stack pointer points at the return address (Intel SDM, RET), so what is popped on the
//! way gives the distance. It needs neither the function's start nor its caller.
//!
//! The way must be known as a whole. All paths must end in a `ret`, and agree. A call may not come
//! back, and the code behind it may belong to another function: a way with a call proves nothing.

use rustc_hash::FxHashSet;

use super::{Code, DEPTH_MAX, Effect, Goes, decode};
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::unwind_tables::Context;

/// Maximum instructions followed. Loops of hand-written assembly that copies or compares have less
/// than 200.
const INSTRUCTIONS_MAX: usize = 512;

/// Where the caller's registers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WayBack {
    /// Bytes from the stack pointer up to the return address.
    pub distance: u64,
    pub rbp: CallerRbp,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallerRbp {
    /// In rbp. Functions keep rbp (System V ABI, 3.2.1), and this one sets it no more.
    Kept,
    /// This number of bytes above the stack pointer.
    Above(u64),
    /// It is loaded from elsewhere.
    Unknown,
}

/// State of the registers before an instruction, against those at the first one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    /// Bytes by which the stack pointer has risen.
    popped: i64,
    /// Where the stack pointer was after rbp was pushed.
    saved: Option<i64>,
    /// Where rbp points, if it was set to the stack pointer.
    frame: Option<i64>,
    rbp: CallerRbp,
}

/// Follows the code from `pc` to the end of its function; `None` if that does not prove where the
/// return address is.
pub fn way_back(memory: &impl ReadMemory, pc: u64, context: &mut Context) -> Option<WayBack> {
    let mut code = Code::new(memory);
    let first = State { popped: 0, saved: None, frame: None, rbp: CallerRbp::Kept };
    let mut open = vec![(pc, first)];
    let mut seen = FxHashSet::default();
    let mut found = None;
    while let Some((at, state)) = open.pop() {
        if !seen.insert((at, state)) {
            continue;
        }
        if seen.len() > INSTRUCTIONS_MAX {
            return None;
        }
        context.spend(8)?;
        let instruction = decode(code.bytes(at, context)?)?;
        let after = apply(state, instruction.effect)?;
        let next = at.wrapping_add(instruction.length as u64);
        match instruction.goes {
            Goes::On => open.push((next, after)),
            Goes::Either(by) => open.extend([(next, after), (next.wrapping_add_signed(by), after)]),
            Goes::To(by) => open.push((next.wrapping_add_signed(by), after)),
            Goes::Back => {
                let distance =
                    u64::try_from(state.popped).ok().filter(|by| by.is_multiple_of(8))?;
                let way = WayBack { distance, rbp: state.rbp };
                if *found.get_or_insert(way) != way {
                    return None;
                }
            }
            Goes::Elsewhere | Goes::Nowhere | Goes::Through(_) | Goes::Away => return None,
        }
    }
    found
}

fn apply(state: State, effect: Effect) -> Option<State> {
    let mut next = state;
    match effect {
        Effect::Nothing => {}
        Effect::Down(by) => next.popped -= by,
        Effect::PushRbp => {
            next.popped -= 8;
            if state.rbp == CallerRbp::Kept {
                next.saved = Some(next.popped);
            }
        }
        Effect::PopRbp => next = pop_rbp(state),
        Effect::Frame => (next.frame, next.rbp) = (Some(state.popped), CallerRbp::Unknown),
        Effect::Unframe => next.popped = state.frame?,
        Effect::Leave => next = pop_rbp(State { popped: state.frame?, ..state }),
        Effect::NoFrame | Effect::Link => {
            (next.frame, next.rbp) = (None, CallerRbp::Unknown);
        }
        Effect::Lost => return None,
    }
    // What was popped is no longer there.
    next.saved = next.saved.filter(|at| next.popped <= *at);
    (next.popped.abs() <= DEPTH_MAX).then_some(next)
}

fn pop_rbp(state: State) -> State {
    let rbp = match u64::try_from(state.popped) {
        _ if state.saved == Some(state.popped) => CallerRbp::Kept,
        Ok(above) => CallerRbp::Above(above),
        // Something else that was pushed on the way.
        Err(_) => CallerRbp::Unknown,
    };
    State { popped: state.popped + 8, frame: None, rbp, ..state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::framehop::tests::Code as Bytes;
    use proptest::prelude::*;

    fn from(code: &[u8], pc: u64) -> Option<WayBack> {
        way_back(&Bytes(code.to_vec()), 0x1000 + pc, &mut Context::default())
    }

    fn proven(distance: u64, rbp: CallerRbp) -> Option<WayBack> {
        Some(WayBack { distance, rbp })
    }

    #[test]
    fn what_is_popped_on_the_way_is_the_distance() {
        #[rustfmt::skip]
        let code = [
            0x53,                               // 00 push rbx
            0x55,                               // 01 push rbp
            0x48, 0x83, 0xec, 0x18,             // 02 sub rsp, 24
            0x31, 0xed,                         // 06 xor ebp, ebp
            0x48, 0xff, 0xc9,                   // 08 dec rcx
            0x75, 0xfb,                         // 0b jne 08
            0x48, 0x83, 0xc4, 0x18,             // 0d add rsp, 24
            0x5d,                               // 11 pop rbp
            0x5b,                               // 12 pop rbx
            0xc3,                               // 13 ret
        ];
        for pc in [0x06, 0x08, 0x0b, 0x0d] {
            assert_eq!(from(&code, pc), proven(40, CallerRbp::Above(24)), "{pc:#x}");
        }
        assert_eq!(from(&code, 0x11), proven(16, CallerRbp::Above(0)));
        assert_eq!(from(&code, 0x12), proven(8, CallerRbp::Kept));
        assert_eq!(from(&code, 0x13), proven(0, CallerRbp::Kept));
        // rbp is saved on the way.
        assert_eq!(from(&code, 0x01), proven(8, CallerRbp::Kept));
        assert_eq!(from(&code, 0), proven(0, CallerRbp::Kept));
    }

    #[test]
    fn frame_records_on_the_way() {
        // push rbp; mov rbp, rsp; sub rsp, 24; nop; leave; ret
        let leave = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x18, 0x90, 0xc9, 0xc3];
        assert_eq!(from(&leave, 0), proven(0, CallerRbp::Kept));
        assert_eq!(from(&leave, 1), proven(8, CallerRbp::Above(0)));
        assert_eq!(from(&leave, 10), proven(0, CallerRbp::Kept));
        assert_eq!(from(&leave, 4), None, "rbp was set before");
        // mov rbp, rsp; push rax; mov rsp, rbp; pop rbp; ret
        let unframe = [0x48, 0x89, 0xe5, 0x50, 0x48, 0x89, 0xec, 0x5d, 0xc3];
        assert_eq!(from(&unframe, 0), proven(8, CallerRbp::Above(0)));
        // push rax; pop rbp; ret, and push rbp; pop rax; ret
        assert_eq!(from(&[0x50, 0x5d, 0xc3], 0), proven(0, CallerRbp::Unknown));
        assert_eq!(from(&[0x55, 0x58, 0xc3], 0), proven(0, CallerRbp::Kept));
        // push rbp; pop rax; push rax; pop rbp; ret
        assert_eq!(from(&[0x55, 0x58, 0x50, 0x5d, 0xc3], 0), proven(0, CallerRbp::Unknown));
        // push rbp; xor ebp, ebp; push rbp; pop rbp; pop rbp; ret
        let twice = [0x55, 0x31, 0xed, 0x55, 0x5d, 0x5d, 0xc3];
        assert_eq!(from(&twice, 0), proven(0, CallerRbp::Kept));
    }

    #[test]
    fn all_paths_agree_or_nothing_is_proven() {
        // test edi, edi; je over; pop rax; ret
        assert_eq!(from(&[0x85, 0xff, 0x74, 0x01, 0x58, 0xc3], 0), None);
        // je to the second ret; pop rcx; push rcx; ret; ret
        let same = [0x74, 0x03, 0x59, 0x51, 0xc3, 0xc3];
        assert_eq!(from(&same, 0), proven(0, CallerRbp::Kept));
        // One path pops rbp, the other rbx.
        assert_eq!(from(&[0x74, 0x02, 0x5d, 0xc3, 0x5b, 0xc3], 0), None);
        // mov rbp, [rsp + 8]; ret
        let loaded = [0x48, 0x8b, 0x6c, 0x24, 0x08, 0xc3];
        assert_eq!(from(&loaded, 0), proven(0, CallerRbp::Unknown));
    }

    #[test]
    fn a_way_that_is_not_known_as_a_whole_proves_nothing() {
        let cases: [(&str, &[u8]); 14] = [
            ("call", &[0xe8, 0, 0, 0, 0, 0xc3]),
            ("call rax", &[0xff, 0xd0, 0xc3]),
            ("call [rip]", &[0xff, 0x15, 0, 0, 0, 0, 0xc3]),
            ("syscall", &[0x0f, 0x05, 0xc3]),
            ("jmp rax", &[0xff, 0xe0]),
            ("jmp [rip]", &[0xff, 0x25, 0, 0, 0, 0]),
            ("ud2 on one path", &[0x74, 0x01, 0xc3, 0x0f, 0x0b]),
            ("ret 16", &[0xc2, 0x10, 0]),
            ("leave", &[0xc9, 0xc3]),
            ("mov rsp, rbp", &[0x48, 0x89, 0xec, 0xc3]),
            ("pop rsp", &[0x5c, 0xc3]),
            ("push rax", &[0x50, 0xc3]),
            ("an endless loop", &[0xeb, 0xfe]),
            ("the code's end", &[0x90, 0x90]),
        ];
        for (name, code) in cases {
            assert_eq!(from(code, 0), None, "{name}");
        }
        let mut long = vec![0x90; INSTRUCTIONS_MAX - 1];
        long.push(0xc3);
        assert_eq!(from(&long, 0), proven(0, CallerRbp::Kept));
        long.insert(0, 0x90);
        assert_eq!(from(&long, 0), None, "too long");
    }

    proptest! {
        /// Code from a list of instructions, entered anywhere: the distance is that of a machine
        /// that executes it.
        #[test]
        fn it_is_where_a_machine_finds_it(
            pushes in 0usize..6,
            room in 0u8..4,
            steps in prop::collection::vec(0usize..4, 0..12),
        ) {
            // nop; inc rax; push rax and pop rax; lea rax, [rsp + 8]
            const STEPS: [&[u8]; 4] =
                [&[0x90], &[0x48, 0xff, 0xc0], &[0x50, 0x58], &[0x48, 0x8d, 0x44, 0x24, 8]];
            let mut code = vec![0x53; pushes];
            code.extend([0x48, 0x83, 0xec, 8 * room]);
            let body = code.len() as u64;
            steps.iter().for_each(|step| code.extend(STEPS[*step]));
            let end = code.len() as u64;
            code.extend([0x48, 0x83, 0xc4, 8 * room]);
            code.extend(vec![0x5b; pushes]);
            code.push(0xc3);
            let distance = 8 * (pushes as u64 + u64::from(room));
            prop_assert_eq!(from(&code, body), proven(distance, CallerRbp::Kept));
            prop_assert_eq!(from(&code, end), proven(distance, CallerRbp::Kept));
            prop_assert_eq!(from(&code, 0), proven(0, CallerRbp::Kept));
        }

        #[test]
        fn garbage_is_survived(code in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(way) = from(&code, 0) {
                prop_assert!(way.distance % 8 == 0 && way.distance <= DEPTH_MAX as u64);
            }
        }
    }
}
