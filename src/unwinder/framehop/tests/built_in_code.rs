//! A runtime's built-in code, of which only the start is known: the innermost frame is left by its
//! instructions.

use rustc_hash::FxHashSet;

use super::replaced::reported;
use super::*;
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, RawName};
use crate::unwinder::{Detected, FrameSetup, Generated, Leave, Place};

/// Function 3 is built into it.
struct Runtime(FrameSetup);

impl Generated for Runtime {
    fn begin(&mut self, _: Ns, _: bool) {}

    fn thread_names(&mut self, _: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        Vec::new()
    }

    fn covers(&self, pc: u64) -> bool {
        (at(3)..at(4)).contains(&pc)
    }

    fn leave(
        &mut self,
        place: Place,
        _: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        out.push(RawFrame::marker(Marker::Other));
        assert!(place.exact);
        Leave::AsCode { start: at(3), setup: self.0 }
    }
}

/// Distance from the stack pointer to the frame that rbp points at. It has a mark of the runtime.
const RBP: u64 = 0x40;

/// Walks from the last of the instructions of function 3. `words`: the top of the stack.
fn walked(setup: FrameSetup, code: &[&[u8]], words: &[u64]) -> (Vec<String>, Walk) {
    let (mut world, pc) = built(setup, code, words);
    world.walk(pc, Some(SP + RBP), 0x1000)
}

/// Returns also the address of the last of the instructions of function 3.
fn built(setup: FrameSetup, code: &[&[u8]], words: &[u64]) -> (World, u64) {
    let mut world = world();
    world.unwinder = world
        .unwinder
        .with_runtimes(Box::new(move |_| Detected::Runtime(Box::new(Runtime(setup)))));
    let pc = at(3) + code[..code.len() - 1].concat().len() as u64;
    world.memory.put(at(3), &[code.concat(), vec![0xcc; 32]].concat());
    // Function 1 has called function 3, and 0 function 1.
    let in_0 = call(&world.memory, 0, 1);
    world.memory.put_words(SP + RBP - 8, &[0x22, SP + 0x80, call(&world.memory, 2, 3)]);
    world.memory.put_words(SP + 0x80, &[0, in_0]);
    let words: Vec<u64> = words
        .iter()
        .map(|word| match *word {
            IN_1 => call(&world.memory, 1, 3),
            IN_2 => call(&world.memory, 2, 3),
            IN_4 => call(&world.memory, 4, 6),
            word => word,
        })
        .chain([7, in_0])
        .collect();
    world.memory.put_words(SP, &words);
    (world, pc)
}

/// Return addresses in functions 1, 2 and 4; function 4 has called another one than function 3.
const IN_1: u64 = 1;
const IN_2: u64 = 2;
const IN_4: u64 = 4;

const PUSH_RBP: &[u8] = &[0x55];
const SET_RBP: &[u8] = &[0x48, 0x89, 0xe5];
const PUSH_MARK: &[u8] = &[0x6a, 0x22];
const PUSH_RBX: &[u8] = &[0x53];
const NOP: &[u8] = &[0x90];
/// mov rsp, rbp; pop rbp
const GIVE_UP: &[u8] = &[0x48, 0x89, 0xec, 0x5d];

fn through(caller: &str) -> (Vec<String>, Walk) {
    (["Other", caller, "0"].map(String::from).into(), WHOLE)
}

fn unknown() -> (Vec<String>, Walk) {
    (["Other", "BadUnwind"].map(String::from).into(), ends(Marker::BadUnwind))
}

#[test]
fn what_its_code_pushed_is_above_the_return_address() {
    use FrameSetup::{Marked, Plain};
    // rbx is a return address that remains of another call, and the mark is the caller's.
    assert_eq!(walked(Marked, &[PUSH_RBX, NOP], &[IN_4, IN_1]), through("1"));
    assert_eq!(walked(Marked, &[PUSH_RBX, PUSH_RBX, NOP], &[IN_4, IN_4, IN_1]), through("1"));
    // There is no call before the word.
    assert_eq!(walked(Marked, &[PUSH_RBX, NOP], &[IN_4, 7]), unknown());
    // Before the frame is complete.
    assert_eq!(walked(Marked, &[PUSH_RBP, SET_RBP], &[SP + RBP, IN_1]), through("1"));
    assert_eq!(walked(Plain, &[PUSH_RBP, SET_RBP], &[SP + RBP, IN_1]), unknown());
}

#[test]
fn the_callers_rbp_is_where_its_code_saved_it() {
    // push rbp; xor ebp, ebp; push rbx; nop. The caller's frame is found by rbp.
    let code = [PUSH_RBP, &[0x31, 0xed], PUSH_RBX, NOP];
    assert_eq!(walked(FrameSetup::Marked, &code, &[IN_4, SP + 0x80, IN_2]), through("2"));
}

#[test]
fn behind_its_frame_the_return_address_is_on_top_again() {
    let code = [PUSH_RBP, SET_RBP, PUSH_MARK, GIVE_UP, NOP];
    assert_eq!(walked(FrameSetup::Marked, &code, &[IN_4]), through("4"));
}

#[test]
fn a_frame_that_all_its_code_has_built_counts() {
    let built = [NOP, NOP, NOP, NOP, NOP, PUSH_RBP, SET_RBP, PUSH_MARK, PUSH_RBX, NOP];
    assert_eq!(walked(FrameSetup::Marked, &built, &[IN_4]), through("2"));
    // je over the push of rbx: how much is on the stack is unknown, but rbp is right.
    let either = [NOP, NOP, NOP, NOP, NOP, PUSH_RBP, SET_RBP, PUSH_MARK, &[0x74, 1], PUSH_RBX, NOP];
    assert_eq!(walked(FrameSetup::Marked, &either, &[IN_4]), through("2"));
    // je over all of it.
    let some = [NOP, NOP, NOP, NOP, NOP, &[0x74, 7], PUSH_RBP, SET_RBP, PUSH_MARK, PUSH_RBX, NOP];
    assert_eq!(walked(FrameSetup::Marked, &some, &[IN_4]), unknown());
}

#[test]
fn before_a_jump_in_its_place_the_return_address_is_on_top() {
    // je over sub rsp, r10: how much was taken is unknown.
    let moved: [&[u8]; 2] = [&[0x74, 3], &[0x49, 0x2b, 0xe2]];
    let load: &[u8] = &[0x48, 0x8b, 0x49, 0x27];
    let jump: &[u8] = &[0xff, 0xe1];
    // What is last is behind the instruction that executes.
    let walked = |from: &[u8], rest: &[&[u8]], words: &[u64]| {
        let (mut code, behind) = (moved.to_vec(), [from, &rest.concat()].concat());
        code.push(&behind);
        walked(FrameSetup::Marked, &code, words)
    };
    assert_eq!(walked(load, &[load, jump], &[IN_1]), through("1"));
    assert_eq!(walked(jump, &[], &[IN_4]), through("4"));
    // jmp over a nop
    assert_eq!(walked(&[0xeb, 1], &[NOP, load, jump], &[IN_1]), through("1"));
}

#[test]
fn what_was_followed_is_remembered_until_other_code_is_there() {
    let changes: [fn(&mut World); 3] = [
        |world| world.unwinder.invalidate(),
        |world| {
            *world.maps.lock().unwrap() = MAPS.replace("11 /made/up", "12 /made/anew");
            world.unwinder.code.forget_age();
            world.unwinder.revalidate(false, false);
        },
        |world| world.unwinder.report(&reported(monotonic(), 12, "/made/anew")),
    ];
    for change in changes {
        let (mut world, pc) = built(FrameSetup::Marked, &[PUSH_RBX, NOP], &[IN_4, IN_1]);
        world.unwinder.revalidate(true, false);
        let caller = |world: &mut World| {
            world.unwinder.set_instant(monotonic());
            world.walk(pc, Some(SP + RBP), 0x1000).0[1].clone()
        };
        assert_eq!(caller(&mut world), "1");
        world.memory.put(at(3), NOP);
        assert_eq!(caller(&mut world), "1", "it is remembered");
        change(&mut world);
        assert_eq!(caller(&mut world), "4");
    }
}

/// V8 does so before it jumps to another function: mov rbp, [rbp + 0]; the frame is still there.
#[test]
fn a_frame_whose_link_was_read_back_is_not_the_running_functions() {
    const LINK: &[u8] = &[0x48, 0x8b, 0x6d, 0];
    const CALL_RCX: &[u8] = &[0xff, 0xd1];
    // rbp is the caller's already.
    let code = [PUSH_RBP, SET_RBP, PUSH_RBX, LINK, NOP];
    let words = [IN_4, SP + RBP, IN_1];
    assert_eq!(walked(FrameSetup::Marked, &code, &words), through("1"));
    // Also where the word is no longer on the stack: add rsp, 16.
    let code = [PUSH_RBP, SET_RBP, PUSH_RBX, LINK, &[0x48, 0x83, 0xc4, 16], NOP];
    let (mut world, pc) = built(FrameSetup::Marked, &code, &[IN_2]);
    assert_eq!(world.walk(pc, Some(SP + 0x80), 0x1000), through("2"));
    // A call may have taken what was pushed. So the depth is unknown, and a deeper word that looks
    // like a return address is none.
    let code = [PUSH_RBP, SET_RBP, PUSH_RBX, CALL_RCX, LINK, NOP];
    assert_eq!(walked(FrameSetup::Marked, &code, &[SP + RBP, IN_1, IN_4]), unknown());
    // With the frame it is known again: mov rsp, rbp.
    let code = [PUSH_RBP, SET_RBP, PUSH_RBX, CALL_RCX, &[0x48, 0x89, 0xec], &[0x5d], NOP];
    assert_eq!(walked(FrameSetup::Marked, &code, &[IN_1]), through("1"));
}
