//! Walks of constructed stacks, where every byte is known; and of garbage.

mod built_in_code;
mod garbage;
mod go;
mod image;
mod interpreter;
mod replaced;
mod walk_by_code;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::model::vocabulary::frame::{FrameCode, Marker, RawFrame};
use crate::process::mapped_files::Files;
use crate::process::maps::Maps;
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::FramehopUnwinder;
use crate::unwinder::{Registers, StackBytes, Unwinder, Walk};
use image::{
    Fake, Function, IMAGE, MAPS, SP, STACK, STACK_END, at, call, elf, expression, frame_pointer,
    root, sp_plus,
};

/// Machine code at 0x1000.
pub(super) struct Code(pub Vec<u8>);

impl ReadMemory for Code {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let Some(found) = address.checked_sub(0x1000).and_then(|o| self.0.get(o as usize..)) else {
            return 0;
        };
        let n = found.len().min(buf.len());
        buf[..n].copy_from_slice(&found[..n]);
        n
    }
}

/// A simulated process with its unwinder.
struct World {
    memory: Fake,
    files: Files,
    maps: Arc<Mutex<String>>,
    unwinder: FramehopUnwinder<Fake>,
}

/// Function 0 is the outermost; 1 has CFA = rsp + 16; 2 keeps a frame pointer; 3 has no unwind
/// information; 4 is like 1; 5 is like 2.
fn world() -> World {
    world_of(vec![
        (0, root()),
        (1, sp_plus(16)),
        (2, frame_pointer()),
        (4, sp_plus(16)),
        (5, frame_pointer()),
    ])
}

fn world_of(functions: Vec<(u64, Vec<u8>)>) -> World {
    let functions: Vec<Function> =
        functions.into_iter().map(|(number, program)| Function { number, program }).collect();
    let memory = Fake::default();
    memory.put(IMAGE, &elf(&functions));
    memory.put(STACK, &vec![0; (STACK_END - STACK) as usize]);
    let (files, maps) = (Files::default(), Arc::new(Mutex::new(MAPS.to_string())));
    let text = maps.clone();
    let source = Box::new(move || Ok(Maps::parse(text.lock().unwrap().as_bytes())));
    let unwinder = FramehopUnwinder::with_maps(memory.clone(), files.clone(), 1, source);
    World { memory, files, maps, unwinder }
}

impl World {
    /// Walks with `copied` bytes of stack from `SP`; returns the numbers of functions and the walk.
    fn walk(&mut self, rip: u64, rbp: Option<u64>, copied: usize) -> (Vec<String>, Walk) {
        let mut bytes = vec![0; copied];
        let n = crate::process::memory::ReadMemory::read(&self.memory, SP, &mut bytes);
        let registers = Registers { rip, rsp: SP, rbp, ..Registers::default() };
        let mut out = Vec::new();
        let walk =
            self.unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes[..n] }, &mut out);
        check(&out, walk);
        (out.iter().map(|frame| self.name(*frame)).collect(), walk)
    }

    fn name(&self, frame: RawFrame) -> String {
        match frame.decode() {
            FrameCode::Code { file, offset, exact } => {
                assert!(self.files.get(file).is_some());
                let address = IMAGE + offset - u64::from(!exact);
                format!("{}{}", (address - at(0)) / image::FUNCTION, if exact { "!" } else { "" })
            }
            FrameCode::Marker { marker, .. } => format!("{marker:?}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Checks what holds for every walk.
fn check(out: &[RawFrame], walk: Walk) {
    assert!((1..=1024).contains(&out.len()));
    let last = match out[out.len() - 1].decode() {
        FrameCode::Marker { marker, .. } => Some(marker),
        _ => None,
    };
    assert_eq!(last, walk.end);
}

const WHOLE: Walk = Walk { end: None, recovered: false };

fn ends(marker: Marker) -> Walk {
    Walk { end: Some(marker), recovered: false }
}

#[test]
fn steps_lead_to_the_marked_root() {
    let mut world = world();
    // 4 called by 1 called by 0: CFA = rsp + 16 each.
    let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
    world.memory.put_words(SP, &[7, in_1, 7, in_0]);
    let (names, walk) = world.walk(at(4) + 8, Some(0), 0x100);
    assert_eq!((names, walk), (vec!["4!".into(), "1".into(), "0".into()], WHOLE));
    // Exactly at a function's first byte: that function, not the one before.
    assert_eq!(world.walk(at(4), Some(0), 0x100).0[0], "4!");
    // Again, from the cache.
    assert_eq!(world.walk(at(4) + 8, Some(0), 0x100).1, WHOLE);
}

#[test]
fn a_stack_that_was_not_copied_to_its_end_is_truncated_unless_the_thread_stays() {
    let mut world = world();
    let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
    world.memory.put_words(SP, &[7, in_1, 7, in_0]);
    let (names, walk) = world.walk(at(4), Some(0), 0x18);
    assert_eq!(
        (names, walk),
        (vec!["4!".into(), "1".into(), "Truncated".into()], ends(Marker::Truncated))
    );
    assert_eq!(world.walk(at(4), None, 0x18).1, WHOLE);
}

#[test]
fn no_unwind_information_ends_a_stack_however_plausible_rbp_is() {
    let mut world = world();
    let in_1 = call(&world.memory, 1, 3);
    // One frame record, which links to no other.
    world.memory.put_words(SP, &[0, 0, SP + 0x40, in_1]);
    let (names, walk) = world.walk(at(3) + 8, Some(SP + 0x10), 0x100);
    assert_eq!(
        (names, walk),
        (vec!["3!".into(), "NoUnwindInfo".into()], ends(Marker::NoUnwindInfo))
    );
    // rbp outside the stack, unaligned, wild.
    for rbp in [0, 1, SP + 1, STACK - 0x1000, STACK_END, u64::MAX, u64::MAX - 7, at(1)] {
        assert_eq!(
            world.walk(at(3) + 8, Some(rbp), 0x100).1,
            ends(Marker::NoUnwindInfo),
            "{rbp:#x}"
        );
    }
}

#[test]
fn two_linked_frame_records_lead_on() {
    let mut world = world();
    let (in_2, in_5, in_0) =
        (call(&world.memory, 2, 3), call(&world.memory, 5, 2), call(&world.memory, 0, 5));
    // 3 (no information) called by 2 called by 5 called by 0, all with frame pointers.
    world.memory.put_words(SP, &[0, 0, SP + 0x30, in_2, 0, 0, SP + 0x50, in_5, 0, 0, 0, in_0]);
    let (names, walk) = world.walk(at(3) + 8, Some(SP + 0x10), 0x100);
    assert_eq!((names, walk), (vec!["3!".into(), "2".into(), "5".into(), "0".into()], WHOLE));
    // The first record is that of a call of 5, so it is not the frame of 3, whose caller is
    // unknown.
    let elsewhere = call(&world.memory, 2, 5);
    assert_eq!(elsewhere, in_2);
    world.unwinder.invalidate();
    let (names, walk) = world.walk(at(3) + 8, Some(SP + 0x10), 0x100);
    assert_eq!(
        (names, walk),
        (vec!["3!".into(), "NoUnwindInfo".into()], ends(Marker::NoUnwindInfo))
    );
}

#[test]
fn an_innermost_function_without_frame_is_not_skipped() {
    let mut world = world();
    let (in_2, in_0) = (call(&world.memory, 2, 3), call(&world.memory, 0, 2));
    // 3, a leaf, was just called by 2, whose record rbp points to.
    world.memory.put_words(SP, &[in_2, 0, 0, 0, 0, in_0]);
    let (names, walk) = world.walk(at(3) + 8, Some(SP + 0x20), 0x100);
    assert_eq!((names, walk), (vec!["3!".into(), "2".into(), "0".into()], WHOLE));
}

#[test]
fn the_stack_pointer_only_rises_and_stays_in_its_mapping() {
    let mut world = world();
    let in_2 = call(&world.memory, 2, 4);
    world.memory.put_words(SP, &[7, in_2]);
    // 2 has a frame pointer: one below the stack pointer, one outside, one at the very end.
    for rbp in [SP - 0x40, SP, STACK - 0x40, STACK_END - 8, STACK_END, 8, u64::MAX - 15] {
        let (names, walk) = world.walk(at(4), Some(rbp), 0x100);
        assert_eq!(names[..2], ["4!", "2"], "{rbp:#x}");
        // The last word of the stack was not copied.
        let end = if rbp == STACK_END - 8 { Marker::Truncated } else { Marker::BadUnwind };
        assert_eq!(walk.end, Some(end), "{rbp:#x}");
    }
    // A row whose CFA lies below the stack pointer, where a return address lies: a stack never
    // shrinks outward.
    let mut downward = world_of(vec![(0, root()), (1, expression(&[0x77, 0x70]))]);
    let in_0 = call(&downward.memory, 0, 1);
    downward.memory.put_words(SP - 0x18, &[in_0]);
    assert_eq!(downward.walk(at(1), None, 0x100).1, ends(Marker::BadUnwind));
    // A stack pointer in no mapping, or in code.
    for rsp in [0, 8, at(1), STACK_END + 0x10_0000, u64::MAX] {
        let registers = Registers { rip: at(4), rsp, rbp: Some(SP), ..Registers::default() };
        let mut out = Vec::new();
        let walk =
            world.unwinder.walk(&registers, StackBytes { base: rsp, bytes: &[0; 64] }, &mut out);
        check(&out, walk);
        assert_eq!((out.len(), walk.end), (2, Some(Marker::BadUnwind)), "{rsp:#x}");
    }
}

#[test]
fn a_return_address_of_zero_is_a_root_only_by_convention() {
    let mut world = world_of(vec![(0, sp_plus(16)), (1, sp_plus(16)), (2, frame_pointer())]);
    world.memory.put_words(SP, &[7, 0]);
    assert_eq!(world.walk(at(1), Some(0), 0x100).1, WHOLE, "no caller, no caller's frame");
    assert_eq!(world.walk(at(1), Some(SP), 0x100).1, ends(Marker::BadUnwind));
    assert_eq!(world.walk(at(0), Some(SP), 0x100).1, WHOLE, "the program's entry");
    assert_eq!(
        world.walk(at(2), Some(0), 0x100).1,
        ends(Marker::BadUnwind),
        "a frame pointer of 0"
    );
}

#[test]
fn code_outside_every_mapping() {
    let mut world = world();
    let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
    // Called through a null pointer: the return address is on top.
    world.memory.put_words(SP, &[in_1, 7, in_0]);
    let (names, walk) = world.walk(0, Some(0), 0x100);
    assert_eq!((names, walk), (vec!["OutsideMaps".into(), "1".into(), "0".into()], WHOLE));
    // There is no return address.
    world.memory.put_words(SP, &[at(1) + 3]);
    for rip in [0, SP, u64::MAX, 1 << 63] {
        assert_eq!(
            world.walk(rip, Some(0), 0x100),
            (vec!["OutsideMaps".into()], ends(Marker::OutsideMaps))
        );
    }
    world.memory.put_words(SP, &[7, 0x1234]);
    let (names, _) = world.walk(at(4), Some(0), 0x100);
    assert_eq!(names, ["4!", "OutsideMaps"]);
}

#[test]
fn expressions_are_evaluated_with_an_end() {
    // breg7 +8 (CFA = rsp + 8, by an expression); an endless loop; a jump out of the expression; an
    // empty one.
    let good = expression(&[0x77, 8]);
    let endless = expression(&[0x77, 8, 0x2f, 0xfd, 0xff]);
    let away = expression(&[0x2f, 0x00, 0x70]);
    let by_memory = expression(&[0x77, 8, 0x06]);
    let mut world = world_of(vec![
        (0, root()),
        (1, good),
        (2, endless),
        (3, away),
        (4, by_memory),
        (5, expression(&[])),
    ]);
    let in_0 = call(&world.memory, 0, 1);
    world.memory.put_words(SP, &[in_0, SP + 0x20, 0, in_0]);
    assert_eq!(world.walk(at(1), Some(0), 0x100), (vec!["1!".into(), "0".into()], WHOLE));
    assert_eq!(
        world.walk(at(4), Some(0), 0x100),
        (vec!["4!".into(), "0".into()], WHOLE),
        "CFA = [rsp + 8]"
    );
    for broken in [2, 3, 5] {
        assert_eq!(world.walk(at(broken), Some(0), 0x100).1, ends(Marker::BadUnwind), "{broken}");
    }
}

#[test]
fn a_register_that_is_restored_already_is_not_read_again() {
    // CFA = rsp + `offset`, rbp saved at [breg6 + 0]: GCC's description of functions that realign
    // their stack.
    let realigned = |offset| [sp_plus(offset), vec![0x10, 6, 2, 0x76, 0]].concat();
    let functions = vec![
        (0, root()),
        (1, realigned(8)),
        (2, frame_pointer()),
        (4, realigned(24)),
        (5, frame_pointer()),
    ];
    let mut world = world_of(functions);
    let chain = ["2", "5", "0"].map(String::from);
    let (in_5, in_0) = (call(&world.memory, 5, 2), call(&world.memory, 0, 5));
    // Behind `leave`: rbp is the caller's, which lies above.
    let in_2 = call(&world.memory, 2, 1);
    world.memory.put_words(SP, &[in_2, 7, SP + 40, in_5, 7, 0, in_0]);
    assert_eq!(
        world.walk(at(1), Some(SP + 16), 0x100),
        ([&["1!".into()], &chain[..]].concat(), WHOLE)
    );
    // Before it: rbp points at where it was saved.
    let in_2 = call(&world.memory, 2, 4);
    world.memory.put_words(SP, &[7, SP + 32, in_2, 7, SP + 48, in_5, 0, in_0]);
    assert_eq!(
        world.walk(at(4), Some(SP + 8), 0x100),
        ([&["4!".into()], &chain[..]].concat(), WHOLE)
    );
}

#[test]
fn a_missing_rule_for_the_return_address_proves_nothing() {
    // DW_CFA_same_value of the return address.
    let mut world = world_of(vec![(1, vec![0x08, 16])]);
    assert_eq!(world.walk(at(1), Some(0), 0x100).1, ends(Marker::BadUnwind));
}

/// `push rbp; mov rbp, rsp; sub rsp, 0x20`
const WITH_FRAME: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20];

#[test]
fn an_unknown_frame_pointer_is_found_from_the_code() {
    let mut world = world();
    world.memory.put(at(2), &WITH_FRAME);
    let (in_2, in_5, in_0) =
        (call(&world.memory, 2, 4), call(&world.memory, 5, 2), call(&world.memory, 0, 5));
    let frames = |world: &World, in_5: u64| {
        // 4, then 2 with 0x20 bytes of room, its record, 5 with its record, 0.
        world.memory.put_words(SP, &[7, in_2, 0, 0, 0, 0, SP + 0x50, in_5, 0, 0, 0, in_0]);
    };
    frames(&world, in_5);
    let found = Walk { end: None, recovered: true };
    let (names, walk) = world.walk(at(4), None, 0x100);
    assert_eq!((names, walk), (vec!["4!".into(), "2".into(), "5".into(), "0".into()], found));
    // The remains of an earlier call of 2, in its own frame, are not used.
    world.memory.put_words(SP + 0x10, &[SP + 0x30, in_5]);
    assert_eq!(world.walk(at(4), None, 0x100).1, found);
    assert_eq!(world.walk(at(4), None, 0x100).0, ["4!", "2", "5", "0"]);
    // Known registers need no search.
    assert_eq!(world.walk(at(4), Some(SP + 0x30), 0x100).1, WHOLE);
}

#[test]
fn two_records_that_fit_are_one_too_many() {
    let mut world = world();
    // 2 keeps a frame pointer, but its code does not give the size of its frame.
    let (in_2, in_5, in_0) =
        (call(&world.memory, 2, 4), call(&world.memory, 5, 2), call(&world.memory, 0, 5));
    world.memory.put_words(SP, &[7, in_2, 0, 0, 0, 0, SP + 0x50, in_5, 0, 0, 0, in_0]);
    assert_eq!(world.walk(at(4), None, 0x100).1, Walk { end: None, recovered: true });
    world.memory.put_words(SP + 0x10, &[SP + 0x30, in_5]);
    let (names, walk) = world.walk(at(4), None, 0x100);
    assert_eq!(
        (names, walk),
        (vec!["4!".into(), "2".into(), "BadUnwind".into()], ends(Marker::BadUnwind))
    );
    // No record fits.
    world.memory.put_words(SP + 0x10, &[0; 8]);
    assert_eq!(world.walk(at(4), None, 0x100).1, ends(Marker::BadUnwind));
}

#[test]
fn signal_frames_are_crossed_with_all_registers() {
    let mut world = world();
    // Function 3 is the trampoline: mov rax, 15; syscall.
    world.memory.put(at(3), &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    let in_0 = call(&world.memory, 0, 2);
    // 4, the handler, returns to the trampoline; then struct ucontext, with the registers at 40
    // bytes.
    world.memory.put_words(SP, &[7, at(3)]);
    let context = SP + 0x10;
    let mut registers = [0; 17];
    registers[10] = context + 0x200; // rbp
    registers[15] = context + 0x180; // rsp
    registers[16] = at(2) + 0x40; // rip
    world.memory.put_words(context + 40, &registers);
    world.memory.put_words(context + 0x200, &[0, in_0]);
    let (names, walk) = world.walk(at(4), Some(0), 0x1000);
    // The trampoline and the interrupted frame are both exact.
    assert_eq!((names, walk), (vec!["4!".into(), "3!".into(), "2!".into(), "0".into()], WHOLE));
    // An interrupted stack pointer below the signal frame, on the same stack: garbage.
    world.memory.put_words(context + 40 + 8 * 15, &[SP - 0x100]);
    assert_eq!(world.walk(at(4), Some(0), 0x1000).1, ends(Marker::BadUnwind));
    // On another stack, which was not copied.
    world.maps.lock().unwrap().push_str("7f0000100000-7f0000110000 rw-p 00000000 00:00 0\n");
    world.unwinder.invalidate();
    world.memory.put_words(context + 40 + 8 * 15, &[STACK + 0x10_0000, at(1)]);
    let (names, walk) = world.walk(at(4), Some(0), 0x1000);
    assert_eq!(
        (names, walk),
        (["4!", "3!", "1!", "Truncated"].map(String::from).into(), ends(Marker::Truncated))
    );
    // The crossings of a signal frame that returns to itself are limited.
    world.memory.put_words(context + 40 + 8 * 16, &[at(3)]);
    world.memory.put_words(context + 40 + 8 * 15, &[STACK + 0x10_0000]);
    world.memory.put(STACK + 0x10_0000, &vec![0; 0x1000]);
    assert!(world.walk(at(4), None, 0x1000).1.end.is_some());
}

/// Each frame's row uses a register 80 times that no inner frame has saved, so that all of their
/// rows are run.
#[test]
fn rows_that_lead_through_all_other_rows_exhaust_the_walk_not_us() {
    let mut program = [0x7c, 0, 0x13].repeat(80); // breg12 0, drop
    program.extend([0x77, 8]); // breg7 8
    // The length of the expression takes two bytes.
    let mut row = vec![0x0f, program.len() as u8 & 0x7f | 0x80, (program.len() >> 7) as u8];
    row.extend(program);
    let mut world = world_of(vec![(0, root()), (1, row)]);
    let in_1 = call(&world.memory, 1, 1);
    world.memory.put_words(SP, &[in_1; 0x800]);
    let registers =
        Registers { rip: at(1), rsp: SP, rbp: Some(0), general: [1; 14], general_known: true };
    let (bytes, mut out) = (in_1.to_le_bytes().repeat(0x800), Vec::new());
    let walk = world.unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
    check(&out, walk);
    assert_eq!(walk, ends(Marker::BadUnwind));
    assert!((20..1000).contains(&out.len()), "{}", out.len());
    // The next walk may cost as much as any.
    let in_0 = call(&world.memory, 0, 1);
    let bytes = in_0.to_le_bytes();
    out.clear();
    assert_eq!(
        world.unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out),
        WHOLE
    );
}

#[test]
fn endless_stacks_end() {
    let mut world = world();
    let in_1 = call(&world.memory, 1, 1);
    world.memory.put_words(SP, &[in_1; 0x1000]);
    let (names, walk) = world.walk(at(1), Some(0), 0x8000);
    // Nothing lies outside of this recursion.
    assert_eq!((names.len(), walk), (66, ends(Marker::TooDeep)));
}

/// Puts `depth` frames of function 1 there, called by 4, called by 0; 4 is executing in the
/// innermost one.
fn put_recursion(memory: &Fake, depth: usize) {
    let (in_1, in_4, in_0) = (call(memory, 1, 4), call(memory, 4, 1), call(memory, 0, 4));
    assert_eq!(in_1, call(memory, 1, 1));
    let mut words = [7, in_1].repeat(depth);
    words.extend([7, in_4, 7, in_0]);
    memory.put_words(SP, &words);
}

#[test]
fn deep_stacks_keep_both_ends() {
    let mut world = world();
    put_recursion(&world.memory, 1_200);
    let (names, walk) = world.walk(at(4), Some(0), 0x8000);
    assert_eq!((names.len(), walk), (65 + 3, WHOLE));
    assert_eq!((&*names[0], &*names[1], &*names[64]), ("4!", "1", "1"));
    assert_eq!(names[65..], ["Folded", "4", "0"]);
    // Read from memory, with few bytes copied.
    assert_eq!(world.walk(at(4), None, 0x100), (names.clone(), WHOLE));
    put_recursion(&world.memory, 700);
    assert_eq!(world.walk(at(4), None, 0x100), (names, WHOLE));
}

#[test]
fn outermost_frames_of_running_threads_count_after_enough_observations() {
    let mut world = world();
    put_recursion(&world.memory, 1_200);
    let begin = Instant::now();
    let observe = |world: &mut World, n: u32| {
        let mut bytes = vec![0; 0x1000];
        world.memory.read(SP, &mut bytes);
        let registers = Registers { rip: at(4), rsp: SP, rbp: Some(0), ..Registers::default() };
        let mut out = Vec::new();
        let copied = StackBytes { base: SP, bytes: &bytes };
        let walk = world.unwinder.walk_running_at(
            &registers,
            copied,
            begin + Duration::from_millis(10) * n,
            &mut out,
        );
        (out.iter().map(|frame| world.name(*frame)).collect::<Vec<_>>(), walk)
    };
    for n in 0..7 {
        let (names, walk) = observe(&mut world, n);
        assert_eq!((names.len(), walk), (0x100 + 2, ends(Marker::Truncated)), "observation {n}");
    }
    let (names, walk) = observe(&mut world, 7);
    // It is distinguished from a stack that was copied whole.
    assert_eq!((names.len(), walk), (65 + 3, Walk { end: None, recovered: true }));
    assert_eq!(names[64..], ["1", "NotCopied", "4", "0"]);
    // Another word stands where 4 would return to 0.
    let last = SP + 8 * (2 * 1_200 + 3);
    world.memory.put_words(last, &[call(&world.memory, 1, 4)]);
    let (names, walk) = observe(&mut world, 8);
    assert_eq!((names.len(), walk), (0x100 + 2, ends(Marker::Truncated)));
    // Nothing is kept of another program.
    put_recursion(&world.memory, 1_200);
    world.unwinder.invalidate();
    for n in 9..18 {
        assert_eq!(
            observe(&mut world, n).1.end,
            if n < 16 { Some(Marker::Truncated) } else { None },
            "observation {n}"
        );
    }
}

#[test]
fn replaced_code_is_noticed() {
    let mut world = world();
    let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
    world.memory.put_words(SP, &[7, in_1, 7, in_0]);
    let file = |world: &mut World| {
        let registers = Registers { rip: at(4), rsp: SP, rbp: Some(0), ..Registers::default() };
        let mut bytes = [0; 64];
        crate::process::memory::ReadMemory::read(&world.memory, SP, &mut bytes);
        let mut out = Vec::new();
        world.unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
        let FrameCode::Code { file, .. } = out[0].decode() else { panic!("{out:?}") };
        (world.files.get(file).unwrap().path.clone(), out.len())
    };
    assert_eq!(file(&mut world), ("/made/up".into(), 3));
    // Another library at the same place, where 4 is the outermost function.
    let text = world.maps.lock().unwrap().replace("11 /made/up", "12 /made/anew");
    *world.maps.lock().unwrap() = text;
    world.memory.put(IMAGE, &elf(&[Function { number: 4, program: root() }]));
    assert_eq!(file(&mut world), ("/made/up".into(), 3), "not read again so soon");
    world.unwinder.code.refresh(Instant::now() + Duration::from_millis(1100));
    assert_eq!(file(&mut world), ("/made/anew".into(), 1));
    // And at once after invalidation.
    let text = world.maps.lock().unwrap().replace("12 /made/anew", "13 /made/again");
    *world.maps.lock().unwrap() = text;
    world.unwinder.invalidate();
    assert_eq!(file(&mut world), ("/made/again".into(), 1));
}

/// An image with functions of every kind.
fn elf_of_all() -> &'static [u8] {
    static IMAGE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    IMAGE.get_or_init(|| {
        let programs = [
            root(),
            sp_plus(16),
            frame_pointer(),
            expression(&[0x77, 8, 0x06]),
            expression(&[0x76, 0x78]),
        ];
        let functions =
            programs.into_iter().zip(0..).map(|(program, number)| Function { number, program });
        elf(&functions.collect::<Vec<_>>())
    })
}

/// A library replaces another after the mappings were read and before its tables are: they are not
/// used for the other.
#[test]
fn tables_never_stand_under_the_name_of_what_was_mapped_there_before() {
    let World { memory, files, .. } = world();
    let (in_1, in_0) = (call(&memory, 1, 4), call(&memory, 0, 1));
    memory.put_words(SP, &[7, in_1, 7, in_0]);
    let mut bytes = vec![0; 0x100];
    crate::process::memory::ReadMemory::read(&memory, SP, &mut bytes);
    let registers = Registers { rip: at(4) + 8, rsp: SP, rbp: Some(0), ..Registers::default() };
    for (changes, walk) in [(1, WHOLE), (2, WHOLE), (100, ends(Marker::BadUnwind))] {
        let mut readings = 0;
        let source = Box::new(move || {
            readings += 1;
            let inode = format!("{} /made/up", 11 + readings.min(changes + 1));
            Ok(Maps::parse(MAPS.replace("11 /made/up", &inode).as_bytes()))
        });
        let mut unwinder = FramehopUnwinder::with_maps(memory.clone(), files.clone(), 1, source);
        let mut out = Vec::new();
        assert_eq!(
            unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out),
            walk,
            "{changes}"
        );
        check(&out, walk);
        assert_eq!(out.len(), if walk == WHOLE { 3 } else { 1 });
        for frame in out {
            if let FrameCode::Code { file, .. } = frame.decode() {
                assert_eq!(files.get(file).unwrap().inode, 12 + changes);
            }
        }
    }
}
