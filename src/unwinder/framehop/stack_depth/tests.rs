use super::*;
use crate::unwinder::framehop::tests::Code as Bytes;
use proptest::prelude::*;
use std::cell::Cell;

fn at(code: &[u8], pc: u64) -> Flow {
    follow(&Bytes(code.to_vec()), 0x1000, 0x1000 + pc, &mut Context::default())
}

fn depth(code: &[u8], pc: u64) -> Option<u64> {
    at(code, pc).depth
}

#[test]
fn every_path_is_followed() {
    #[rustfmt::skip]
        let code = [
            0x41, 0x54,                         // 00 push r12
            0x55,                               // 02 push rbp
            0x48, 0x83, 0xec, 0x18,             // 03 sub rsp, 24
            0x85, 0xff,                         // 07 test edi, edi
            0x74, 0x0a,                         // 09 je 15
            0xe8, 0, 0, 0, 0,                   // 0b call
            0x48, 0x83, 0xc4, 0x18,             // 10 add rsp, 24
            0x5d,                               // 14 pop rbp
            0x6a, 0x07,                         // 15 push 7 (on two ways)
            0xc3,                               // 17 ret
        ];
    assert_eq!(
        [0, 2, 3, 7, 0x10, 0x14].map(|pc| depth(&code, pc)),
        [0, 8, 16, 40, 40, 16].map(Some)
    );
    assert_eq!((at(&code, 0x10).saved, at(&code, 2).saved), (Some(16), None));
    assert_eq!(at(&code, 0x15), Flow { reached: true, ..Flow::default() }, "two depths are none");
    assert!(!at(&code, 0x11).reached, "no instruction begins there");
}

#[test]
fn a_frame_is_followed_through_calls_that_take_their_arguments() {
    #[rustfmt::skip]
    let code = [
        0x55,                               // 00 push rbp
        0x48, 0x89, 0xe5,                   // 01 mov rbp, rsp
        0x53,                               // 04 push rbx (each turn)
        0xff, 0xd1,                         // 05 call rcx, which takes it
        0x75, 0xfb,                         // 07 jne 04
        0x90,                               // 09 nop
        0x48, 0x89, 0xec,                   // 0a mov rsp, rbp
        0x5d,                               // 0d pop rbp
        0xc3,                               // 0e ret
    ];
    assert!([4, 5, 7, 9, 10].into_iter().all(|pc| at(&code, pc).framed));
    assert_eq!([4, 5, 9].map(|pc| depth(&code, pc)), [None; 3], "it differs");
    assert_eq!([1, 0xd, 0xe].map(|pc| depth(&code, pc)), [8, 8, 0].map(Some));
    assert!(!at(&code, 0xe).framed);
}

#[test]
fn frames_alignment_and_jumps() {
    #[rustfmt::skip]
        let code = [
            0x55,                               // 00 push rbp
            0x48, 0x89, 0xe5,                   // 01 mov rbp, rsp
            0x48, 0x83, 0xe4, 0xf0,             // 04 and rsp, -16
            0x48, 0x89, 0xfb,                   // 08 mov rbx, rdi
            0xc9,                               // 0b leave
            0xff, 0xe0,                         // 0c jmp rax
        ];
    assert_eq!(
        at(&code, 8),
        Flow { reached: true, depth: None, saved: Some(8), framed: true, jumps_away: true }
    );
    assert_eq!(
        at(&code, 0x0c),
        Flow { reached: true, depth: Some(0), jumps_away: true, ..Flow::default() }
    );
    // jmp [rip + 2], followed by the word; at its target: push rax; nop.
    let mut slot = vec![0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc];
    slot.extend(0x1010u64.to_le_bytes());
    slot.extend([0x50, 0x90, 0x90]);
    assert_eq!(depth(&slot, 0x11), Some(8));
}

#[test]
fn code_behind_a_noreturn_call_is_another_function() {
    #[rustfmt::skip]
        let code = [
            0x50,                               // 00 push rax
            0x90,                               // 01 nop
            0xe8, 0, 0, 0, 0,                   // 02 call abort
            0x31, 0xf6,                         // 07 the next one: xor esi, esi
            0xeb, 0xf5,                         // 09 jmp 00
        ];
    assert_eq!(depth(&code, 1), Some(8));
    assert_eq!(
        follow(&Bytes(code.to_vec()), 0x1007, 0x1001, &mut Context::default()).depth,
        Some(8)
    );
}

/// Instructions as gcc and clang write them, each followed by `push rax`. The length is right if
/// the push is found.
#[test]
fn lengths_of_instructions() {
    for instruction in [
        &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0][..],      // mov rax, 15
        &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],       // movabs rax
        &[0x66, 0xc7, 0x47, 0x02, 1, 0],             // mov word [rdi + 2], 1
        &[0xf6, 0x05, 1, 0, 0, 0, 1],                // test byte [rip + 1], 1
        &[0xf7, 0xd8],                               // neg eax
        &[0x0f, 0xb6, 0x04, 0x25, 0, 0, 0, 0],       // movzx eax, byte [0]
        &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], // mov rax, fs:[0]
        &[0xf0, 0x0f, 0xb1, 0x0f],                   // lock cmpxchg [rdi], ecx
        &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],          // nop
        &[0xf3, 0x0f, 0x1e, 0xfa],                   // endbr64
        &[0x66, 0x0f, 0x70, 0xc0, 0],                // pshufd
        &[0xf2, 0x0f, 0x10, 0x44, 0x24, 8],          // movsd xmm0, [rsp + 8]
        &[0x4c, 0x89, 0xe7],                         // mov rdi, r12
        &[0x49, 0x89, 0xe4],                         // mov r12, rsp
        &[0x48, 0x39, 0xdc],                         // cmp rsp, rbx
        &[0x0f, 0x05],                               // syscall
        &[0xff, 0xd0],                               // call rax
        &[0xff, 0x15, 0, 0, 0, 0],                   // call [rip]
    ] {
        let code = [instruction, &[0x50, 0x90]].concat();
        assert_eq!(depth(&code, code.len() as u64 - 1), Some(8), "{instruction:x?}");
    }
    // push rbp; mov rbp, rsp; mov ebp, eax; nop
    let framed = [0x55, 0x48, 0x89, 0xe5, 0x89, 0xc5, 0x90];
    assert_eq!([4, 6].map(|pc| at(&framed, pc).framed), [true, false]);
    // mov rsp, rax; add rsp, rax; pop rsp; lea rsp, [rbp - 8]: not followed.
    for lost in [&[0x48, 0x89, 0xc4][..], &[0x48, 0x01, 0xc4], &[0x5c], &[0x48, 0x8d, 0x65, 0xf8]] {
        let code = [lost, &[0x50, 0x90]].concat();
        assert_eq!(
            at(&code, code.len() as u64 - 1),
            Flow { reached: true, ..Flow::default() },
            "{lost:x?}"
        );
    }
}

/// Returns whether the end of the code is reached, the depth there, and where rbp was saved.
fn end(code: &[u8]) -> (bool, Option<u64>, Option<u64>) {
    let flow = at(code, code.len() as u64 - 1);
    (flow.reached, flow.depth, flow.saved)
}

#[test]
fn what_instructions_do_to_the_stack() {
    #[rustfmt::skip]
        let known: [(&[u8], u64, Option<u64>); 14] = [
            (&[0x41, 0x55, 0x90], 8, None),                         // push r13
            (&[0x55, 0x55, 0x90], 16, Some(8)),                     // push rbp, twice
            (&[0x55, 0x5d, 0x90], 0, None),                         // push rbp; pop rbp
            (&[0x55, 0x41, 0x5d, 0x90], 0, Some(8)),                // push rbp; pop r13
            (&[0x50, 0x41, 0x5c, 0x90], 0, None),                   // push rax; pop r12
            (&[0x6a, 1, 0x90], 8, None),                            // push 1
            (&[0x68, 1, 0, 0, 0, 0x90], 8, None),                   // push 1, as 4 bytes
            (&[0xff, 0x36, 0x90], 8, None),                         // push [rsi]
            (&[0x50, 0x8f, 0x07, 0x90], 0, None),                   // push rax; pop [rdi]
            (&[0x48, 0x8d, 0x64, 0x24, 0xf8, 0x90], 8, None),       // lea rsp, [rsp - 8]
            (&[0x50, 0x48, 0x8d, 0x64, 0x24, 8, 0x90], 0, None),    // push rax; lea rsp, [rsp + 8]
            (&[0xf7, 0xc7, 1, 0, 0, 0, 0x50, 0x90], 8, None),       // test edi, 1; push rax
            (&[0x48, 0x81, 0xec, 0, 1, 0, 0, 0x90], 256, None),     // sub rsp, 256
            (&[0x9c, 0x9d, 0x50, 0x90], 8, None),                   // pushf; popf; push rax
        ];
    for (code, depth, saved) in known {
        assert_eq!(end(code), (true, Some(depth), saved), "{code:x?}");
    }
    // sub rsp, 4; cmove rsp, rax; inc rsp
    for code in [
        &[0x48, 0x83, 0xec, 4, 0x90][..],
        &[0x48, 0x0f, 0x44, 0xe0, 0x90],
        &[0x48, 0xff, 0xc4, 0x90],
    ] {
        assert_eq!(end(code), (true, None, None), "{code:x?}");
    }
    assert!(!end(&[0x58, 0x90]).0, "nothing was pushed");
    // push rax; nops; sub rsp, 0x100, of which the last byte is in the next piece.
    let apart = [vec![0x50], vec![0x90; 249], vec![0x48, 0x81, 0xec, 0, 1, 0, 0, 0x90]].concat();
    assert_eq!(depth(&apart, 257), Some(0x108));
    let ends = |length: usize| [vec![0x90; length - 1], vec![0xc3]].concat();
    let longest = [INSTRUCTIONS_MAX, INSTRUCTIONS_MAX + 1].map(|length| at(&ends(length), 9));
    assert_eq!(longest.map(|flow| flow.reached), [true, false]);
}

#[test]
fn paths_that_differ_in_rbp_only() {
    // je 05; push rbp; jmp 06; (05) push rax; (06) nop
    let saved = [0x74, 3, 0x55, 0xeb, 1, 0x50, 0x90];
    assert_eq!(end(&saved), (true, None, None));
    // push rbp; je 05; jmp 08; (05) mov rbp, rsp; (08) nop
    let record = [0x55, 0x74, 2, 0xeb, 3, 0x48, 0x89, 0xe5, 0x90];
    assert_eq!((end(&record), at(&record, 8).framed), ((true, Some(8), Some(8)), false));
    // push rbp; mov rbp, rsp; cmp rbp, 8; nop
    assert!(at(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xfd, 8, 0x90], 8).framed);
    // push rbp; mov rbp, rsp; je 07; push rax; (07) nop: two depths.
    let two = [0x55, 0x48, 0x89, 0xe5, 0x74, 1, 0x50, 0x90];
    assert_eq!((at(&two, 7).framed, at(&two, 7).depth), (true, None));
    // push rax; mov rbp, rsp; nop: no record.
    assert!(!at(&[0x50, 0x48, 0x89, 0xe5, 0x90], 4).framed);
    // push rax; jmp rax: an unbalanced stack, so this is no tail call.
    assert!(!at(&[0x50, 0xff, 0xe0], 1).jumps_away);
}

#[test]
fn the_target_of_a_tail_call_is_a_function_start() {
    // (00) push rax; nop; jmp 00; (07) xor esi, esi; jmp 00
    let code = [0x50, 0x90, 0xeb, 0xfc, 0xcc, 0xcc, 0xcc, 0x31, 0xf6, 0xeb, 0xf5];
    assert_eq!(
        follow(&Bytes(code.to_vec()), 0x1007, 0x1001, &mut Context::default()).depth,
        Some(8)
    );
}

/// Counts the bytes read.
struct Counted(Bytes, Cell<usize>);

impl ReadMemory for Counted {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.1.set(self.1.get() + 1);
        self.0.read(address, buf)
    }
}

/// Each jump leads far away, so each piece is read for one instruction.
#[test]
fn jumps_without_end_are_not_followed() {
    const FAR: usize = 0x200;
    let mut code = vec![0x90; FAR * 4 * PIECES_MAX];
    for jump in code.chunks_exact_mut(FAR) {
        jump[..5].copy_from_slice(&[0xe9, 0xfb, 1, 0, 0]);
    }
    let counted = Counted(Bytes(code), Cell::new(0));
    let there = |jumps: usize| {
        let pc = 0x1000 + (FAR * jumps) as u64;
        follow(&counted, 0x1000, pc, &mut Context::default()).reached
    };
    assert!(there(PIECES_MAX - 1));
    counted.1.set(0);
    assert!(!there(2 * PIECES_MAX));
    assert_eq!(counted.1.get(), PIECES_MAX);
}

proptest! {
    #[test]
    fn any_code_is_followed_within_bounds(code in prop::collection::vec(any::<u8>(), 0..600), pc in 0u64..600) {
        let counted = Counted(Bytes(code), Cell::new(0));
        let flow = follow(&counted, 0x1000, 0x1000 + pc, &mut Context::default());
        prop_assert!(counted.1.get() <= PIECES_MAX + INSTRUCTIONS_MAX, "{} reads", counted.1.get());
        prop_assert!(flow.depth.is_none_or(|depth| depth <= DEPTH_MAX as u64));
        prop_assert!(flow.depth.is_none() || flow.reached);
    }
}
