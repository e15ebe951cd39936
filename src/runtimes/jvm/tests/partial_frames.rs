//! Frames that are partly built, partly removed, or of a method of which nothing has run.

use std::collections::HashMap;

use super::cache_validity::{HEAP, METHOD, World, jvm_of, layout_17, world};
use super::*;

const SP: u64 = 0x7000_0000;
/// Blobs of the program, next to those of [`world`].
const INTERPRETER: u64 = HEAP + 0x1000;
const ROUTINES: u64 = HEAP + 0x2000;

/// Writes a blob of 4096 bytes that is no method.
fn blob(world: &World, layout: &Layout, at: u64, name_at: u64, name: &str) {
    world.put(name_at, name.as_bytes());
    world.put(at + layout.code_heap.block_used, &[1]);
    let start = at + layout.code_heap.block_size;
    let number = |number: layout::CodePlace| match number {
        layout::CodePlace::Pointer(number) | layout::CodePlace::FromBlob(number) => number,
    };
    world.number(start, layout.blob.name, name_at);
    world.number(start, layout.blob.size, 4080);
    world.number(start, number(layout.blob.code), start + 0x100);
    world.number(start, number(layout.blob.code_end), start + 0xf00);
    // Segments of 128 bytes, counted from the blob's first one.
    let segments: Vec<u8> = (0..32).collect();
    world.put(0x2_0000 + ((at - HEAP) >> 7), &segments);
}

/// Leaves one frame of a stack that has `words` at these distances from [`SP`].
fn leave(jvm: &mut Jvm<&World>, place: Place, words: &[(i64, u64)]) -> (Leave, Vec<String>) {
    let words: HashMap<u64, u64> =
        words.iter().map(|(at, word)| (SP.wrapping_add_signed(*at), *word)).collect();
    let mut out = Vec::new();
    let left = jvm.leave(place, &mut |at| words.get(&at).copied(), &mut out);
    let name = |frame: &RawFrame| jvm.names.named(*frame).expect("a name").locations[0].clone();
    let names =
        out.iter().map(name).map(|l| format!("{} {}", l.function, l.tier.map_or("-", Tier::word)));
    (left, names.collect())
}

#[test]
fn methods_are_entered_and_left_step_by_step() {
    let layout = layout_17();
    let (world, start) = world(&layout);
    blob(&world, &layout, INTERPRETER, 0x3_1000, "Interpreter\0");
    let mut jvm = jvm_of(&world, &layout);
    // An address in the compiled method for which it has a record.
    let back = start + 0x400 + 16;
    let place = |rbp: u64, rax: u64, rbx: u64, r13: u64| Place {
        pc: INTERPRETER + 0x800,
        exact: true,
        sp: SP,
        rbp: Some(rbp),
        general: Some(General { rax, rbx, r13, ..General::default() }),
    };
    let to = |sp: u64, rbp: u64| Leave::To { pc: back, sp, rbp: Some(rbp) };
    let entered = |left: Leave| (left, vec!["Gen1.run interpreted".to_string()]);
    // Called by compiled code, which had another value in rbp; one argument.
    let words = [(0, back), (8, 1)];
    assert_eq!(leave(&mut jvm, place(77, 0, METHOD, SP + 16), &words), entered(to(SP + 16, 77)));
    // The return address is in rax, while room for locals is made.
    assert_eq!(
        leave(&mut jvm, place(77, back, METHOD, SP + 40), &[(0, 0)]),
        entered(to(SP + 40, 77))
    );
    // rbp is pushed and set: the caller's is on the stack.
    let words = [(0, 77), (8, back)];
    assert_eq!(leave(&mut jvm, place(SP, back, METHOD, SP + 24), &words), entered(to(SP + 24, 77)));
    // The caller's stack pointer is pushed too: r13 has become the bytecode pointer.
    let words = [(0, SP + 32), (8, 77), (16, back)];
    assert_eq!(
        leave(&mut jvm, place(SP + 8, 5, METHOD, 0x4_1030), &words),
        entered(to(SP + 32, 77))
    );
    // The method is left: rbx has the caller's stack pointer, the return address is on top, then in
    // r13.
    let left = |left: Leave| (left, vec!["interpreter -".to_string()]);
    assert_eq!(leave(&mut jvm, place(77, 0, SP + 24, 0), &[(0, back)]), left(to(SP + 24, 77)));
    assert_eq!(leave(&mut jvm, place(77, 0, SP + 24, back), &[(0, 1)]), left(to(SP + 24, 77)));
    // A return address further up is no proof.
    let words = [(0, 1), (8, back), (16, back)];
    assert_eq!(
        leave(&mut jvm, place(77, 0, SP + 24, 0), &words),
        left(Leave::End(Marker::BadUnwind))
    );
}

#[test]
fn how_a_method_is_left_is_decoded_once() {
    let layout = layout_17();
    let (world, start) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let (pc, back) = (start + 0x400 + 0x100, start + 0x400 + 16);
    let place = Place { pc, exact: true, sp: SP, rbp: Some(77), general: None };
    let words = [(0, back), (8, back)];
    world.put(pc, &[0xc3]);
    let returned = leave(&mut jvm, place, &words);
    assert_eq!(returned.0, Leave::To { pc: back, sp: SP + 8, rbp: Some(77) });
    let reads = world.reads();
    assert_eq!(leave(&mut jvm, place, &words), returned);
    assert_eq!(world.reads(), reads, "that is known");
    // Other code at the same place pops rbp there.
    world.put(pc, &[0x5d]);
    world.number(start, layout.blob.compile_id, 78);
    jvm.later();
    let popped = leave(&mut jvm, place, &words).0;
    assert_eq!(popped, Leave::To { pc: back, sp: SP + 16, rbp: Some(back) });
}

#[test]
fn a_barrier_at_the_entry_has_a_word_of_its_own_below_the_return_address() {
    let layout = layout_17();
    let (world, start) = world(&layout);
    blob(&world, &layout, ROUTINES, 0x3_1000, "StubRoutines (2)\0");
    let mut jvm = jvm_of(&world, &layout);
    // Addresses behind calls for which the method has no record.
    let (in_stub, in_method) = (ROUTINES + 0x800, start + 0x400 + 40);
    world.put(in_stub - 5, &[0xe8]);
    world.put(in_method - 5, &[0xe8]);
    let place =
        |pc: u64, sp: u64| Place { pc, exact: false, sp, rbp: Some(SP + 64), general: None };
    let words = [
        (64, 77),
        (72, u64::MAX),
        (80, in_method),
        (88 + 32 - 16, 99),
        (88 + 32 - 8, start + 0x400 + 16),
    ];
    let (left, names) = leave(&mut jvm, place(in_stub, SP), &words);
    let caller = Leave::To { pc: in_method, sp: SP + 88, rbp: Some(77) };
    assert_eq!((left, names), (caller, vec!["StubRoutines -".to_string()]));
    // Nothing of the method has run: the record behind it, of bytecode 5, does not apply.
    let mut out = Vec::new();
    let words: HashMap<u64, u64> =
        words.iter().map(|(at, word)| (SP.wrapping_add_signed(*at), *word)).collect();
    let at = Place { rbp: Some(77), ..place(in_method, SP + 88) };
    let left = jvm.leave(at, &mut |at| words.get(&at).copied(), &mut out);
    assert_eq!(left, Leave::To { pc: start + 0x400 + 16, sp: SP + 88 + 32, rbp: Some(99) });
    assert_eq!(Some(out[0]), jvm.frame_in(METHOD, Tier::C2, Some(0)));
    assert!(
        jvm.interpreted.contains_key(&(1, Tier::C2, Some(0)))
            && jvm.known.values().all(|known| known.frames.is_empty())
    );
}

#[test]
fn no_frame_is_shown_where_nothing_has_called() {
    let layout = layout_17();
    let (world, start) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let place = |pc: u64| Place { pc, exact: false, sp: SP, rbp: None, general: None };
    let words = [(16, 77), (24, start + 0x400 + 16)];
    let (left, names) = leave(&mut jvm, place(start + 0x400 + 16), &words);
    let caller = Leave::To { pc: start + 0x400 + 16, sp: SP + 32, rbp: Some(77) };
    assert_eq!((left, names), (caller, vec!["Gen1.run c2".to_string()]));
    let (left, names) = leave(&mut jvm, place(start + 0x400 + 24), &words);
    assert_eq!((left, names), (Leave::End(Marker::BadUnwind), vec![]));
}
