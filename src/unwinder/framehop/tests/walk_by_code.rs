//! Return addresses found by following constructed code: only those at exactly the depth that their
//! callee has.

use super::*;
use crate::unwinder::framehop::stack_depth;
use crate::unwinder::framehop::unwind_tables::Context;
use proptest::prelude::*;

/// push rbx; sub rsp, 24; nop, 32 bytes deep; call rax; ret
const PLAIN: [u8; 9] = [0x53, 0x48, 0x83, 0xec, 0x18, 0x90, 0xff, 0xd0, 0xc3];
const NOP: u64 = 5;
const DEPTH: u64 = 0x20;

/// Walks from the `nop` of [`PLAIN`] in function 3. Functions 3 and 6 have no unwind information.
/// `words`: depth, caller and callee of each return address on the stack.
fn walked(code: &[(u64, &[u8])], words: &[(u64, u64, u64)]) -> (Vec<String>, Walk) {
    let mut world = world();
    code.iter().for_each(|(number, code)| world.memory.put(at(*number), code));
    let in_0 = call(&world.memory, 0, 1);
    for (depth, caller, callee) in words {
        let found = call(&world.memory, *caller, *callee);
        world.memory.put_words(SP + depth, &[found, 7, in_0]);
    }
    world.walk(at(3) + NOP, Some(0), 0x1000)
}

fn through(caller: &str) -> (Vec<String>, Walk) {
    (["3!", caller, "0"].map(String::from).into(), WHOLE)
}

fn unknown() -> (Vec<String>, Walk) {
    (["3!", "NoUnwindInfo"].map(String::from).into(), ends(Marker::NoUnwindInfo))
}

/// Code: `before`, then a jump from function 6 to `into` bytes in function 3.
fn jumps(before: &[u8], into: u64) -> Vec<u8> {
    let behind = at(6) + before.len() as u64 + 5;
    let by = (at(3) + into).wrapping_sub(behind) as u32;
    [before, &[0xe9], &by.to_le_bytes()].concat()
}

#[test]
fn a_stale_return_address_is_rejected() {
    let code: [(u64, &[u8]); 1] = [(3, &PLAIN)];
    assert_eq!(walked(&code, &[(DEPTH, 1, 3)]), through("1"));
    // The remains of an earlier call of the same function, within its frame.
    assert_eq!(walked(&code, &[(8, 4, 3), (DEPTH, 1, 3)]), through("1"));
    // Above it: the return address of an outer call.
    assert_eq!(walked(&code, &[(DEPTH, 1, 3), (0x40, 4, 3)]), through("1"));
    for depth in [8, 0x18, 0x28, 0x100] {
        assert_eq!(walked(&code, &[(depth, 4, 3)]), unknown(), "{depth:#x}");
    }
}

#[test]
fn a_stale_return_address_on_top_is_rejected() {
    let code: [(u64, &[u8]); 1] = [(3, &PLAIN)];
    assert_eq!(walked(&code, &[(0, 4, 3), (DEPTH, 1, 3)]), through("1"));
    assert_eq!(walked(&code, &[(0, 4, 3)]), unknown());
}

#[test]
fn of_two_callees_the_one_that_comes_to_the_instruction_counts() {
    // push rax; push rax; nop; ret: the same depth as its return address, but another instruction.
    let code: [(u64, &[u8]); 2] = [(3, &PLAIN), (6, &[0x50, 0x50, 0x90, 0xc3])];
    assert_eq!(walked(&code, &[(8, 4, 6), (DEPTH, 1, 3)]), through("1"));
    assert_eq!(walked(&code, &[(DEPTH, 4, 6)]), unknown());
}

#[test]
fn tail_calls_and_jumps_into_another_function_are_followed() {
    // push rax; pop rax; jmp: nothing is on the stack any more.
    let tail = jumps(&[0x50, 0x58], 0);
    assert_eq!(walked(&[(3, &PLAIN), (6, &tail)], &[(8, 1, 6), (DEPTH, 4, 6)]), through("4"));
    // push rax; jmp behind the first push: the same depth as if that had been executed.
    let same = jumps(&[0x50], 1);
    assert_eq!(walked(&[(3, &PLAIN), (6, &same)], &[(DEPTH, 4, 6)]), through("4"));
    // Two pushes: deeper by one.
    let deeper = jumps(&[0x50, 0x50], 1);
    assert_eq!(walked(&[(3, &PLAIN), (6, &deeper)], &[(DEPTH, 4, 6)]), unknown());
    assert_eq!(walked(&[(3, &PLAIN), (6, &deeper)], &[(DEPTH + 8, 4, 6)]), through("4"));
}

#[test]
fn code_that_ends_before_the_instruction_proves_nothing() {
    // push rbx; ret or ud2 or hlt; ...; nop; ret: no path leads to the nop.
    for ends in
        [[0x53, 0xc3, 0x90, 0x90, 0x90, 0x90, 0xc3], [0x53, 0x0f, 0x0b, 0x90, 0x90, 0x90, 0xc3]]
    {
        for depth in [8, DEPTH] {
            assert_eq!(walked(&[(3, &ends)], &[(depth, 4, 3)]), unknown(), "{ends:x?} {depth:#x}");
        }
    }
    // Two paths with two depths lead to it: test edi, edi; je over the push; push rax; nop; ret.
    let two = [0x85, 0xff, 0x74, 0x01, 0x50, 0x90, 0xc3];
    for depth in [8, 0x10] {
        assert_eq!(walked(&[(3, &two)], &[(depth, 4, 3)]), unknown(), "{depth:#x}");
    }
}

/// push rbx; sub rsp, 24; nop, 32 bytes deep; add rsp, 24; pop rbx; ret
const LEAF: [u8; 12] = [0x53, 0x48, 0x83, 0xec, 0x18, 0x90, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0xc3];

#[test]
fn a_function_that_calls_nothing_more_is_left_whoever_called_it() {
    // By a function that does not lead to it, or through a pointer.
    assert_eq!(walked(&[(3, &LEAF)], &[(DEPTH, 4, 6)]), through("4"));
    let mut world = world();
    world.memory.put(at(3), &LEAF);
    world.memory.put(at(4) + 0x10, &[0xff, 0xd0]);
    let in_0 = call(&world.memory, 0, 1);
    world.memory.put_words(SP + DEPTH, &[at(4) + 0x12, 7, in_0]);
    assert_eq!(world.walk(at(3) + NOP, Some(0), 0x1000), through("4"));
    // What remains of earlier calls at other depths, also of this very function, counts for
    // nothing.
    let stale = [(0, 1, 3), (8, 1, 3), (DEPTH, 4, 6), (0x40, 1, 3)];
    assert_eq!(walked(&[(3, &LEAF)], &stale), through("4"));
    // There is no call before the word.
    world.memory.put(at(4) + 0x10, &[0x90, 0x90]);
    world.unwinder.invalidate();
    assert_eq!(world.walk(at(3) + NOP, Some(0), 0x1000), unknown());
}

#[test]
fn rbp_is_the_one_that_is_restored() {
    // push rbp; sub rsp, 24; nop; add rsp, 24; pop rbp; ret: the caller 5 keeps a frame pointer.
    let mut leaf = LEAF;
    (leaf[0], leaf[10]) = (0x55, 0x5d);
    let mut world = world();
    world.memory.put(at(3), &leaf);
    let (in_5, in_0) = (call(&world.memory, 5, 6), call(&world.memory, 0, 5));
    let record = SP + 0x40;
    world.memory.put_words(SP + DEPTH - 8, &[record, in_5]);
    world.memory.put_words(record, &[0, in_0]);
    let names = ["3!", "5", "0"].map(String::from);
    assert_eq!(world.walk(at(3) + NOP, Some(0x1234), 0x1000), (names.into(), WHOLE));
}

proptest! {
    #[test]
    fn garbage_is_accepted_at_its_own_depth_only(
        one in prop::collection::vec(any::<u8>(), 0..0x80),
        other in prop::collection::vec(any::<u8>(), 0..0x80),
        depth in 1u64..64,
        callee in prop::sample::select(vec![3u64, 6]),
    ) {
        let mut world = world();
        world.memory.put(at(3), &one);
        world.memory.put(at(6), &other);
        let (in_4, in_0) = (call(&world.memory, 4, callee), call(&world.memory, 0, 1));
        world.memory.put_words(SP + 8 * depth, &[in_4, 7, in_0]);
        let (names, _) = world.walk(at(3) + NOP, Some(0), 0x1000);
        let flow = stack_depth::follow(&world.memory, at(callee), at(3) + NOP, &mut Context::default());
        let way = stack_depth::way_back(&world.memory, at(3) + NOP, &mut Context::default());
        if let Some(way) = way {
            prop_assert!(names.get(1).is_none_or(|name| name != "4") || way.distance == 8 * depth);
        } else if names.get(1).is_some_and(|name| name == "4") && !flow.jumps_away {
            prop_assert_eq!(flow.depth, Some(8 * depth));
        }
    }
}
