//! Walks of constructed Go code: `f` of a constructed table called `g`, and may be a function that
//! changes stacks.

use super::*;
use crate::pclntab::tests::made_up::named;
use crate::unwinder::GoroutineStack;
use crate::unwinder::interpreted::{StackOwner, Taken};

/// Return addresses in `f`, whose frame has 24 bytes, and in `top`, the outermost function.
const IN_F: u64 = image::CODE + 0x20;
const IN_TOP: u64 = image::CODE + 0x58;
/// A goroutine's stack.
const OTHER: u64 = STACK + 0x10_0000;

/// Walks from `g`, and returns for each frame its marker, if it is one, and how the walk ends.
/// Behind the frame of `f` lies a return address in `top`: a real one, or the remains of an earlier
/// call.
fn walk(f: &[u8]) -> (Vec<Option<Marker>>, Walk) {
    walk_with(f, |_| {})
}

fn walk_with(f: &[u8], prepare: impl FnOnce(&mut dyn Unwinder)) -> (Vec<Option<Marker>>, Walk) {
    walk_in(f, |_| {}, prepare)
}

/// `change`: what is different in memory.
fn walk_in(
    f: &[u8],
    change: impl FnOnce(&Fake),
    prepare: impl FnOnce(&mut dyn Unwinder),
) -> (Vec<Option<Marker>>, Walk) {
    let mut world = world_of(Vec::new());
    // There are no unwind tables, so Go's own table is searched for.
    world.memory.put(IMAGE + 64 + 2 * 56, &[0; 4]);
    world.memory.put(IMAGE + 0x600, &named(1, image::CODE, [f, b"g", b"runtime.top"]));
    world.memory.put(IN_F - 5, &[0xe8]);
    let distance = (image::CODE as u32).wrapping_sub(IN_TOP as u32);
    world.memory.put(IN_TOP - 5, &[&[0xe8][..], &distance.to_le_bytes()].concat());
    world.maps.lock().unwrap().push_str("7f0000100000-7f0000110000 rw-p 00000000 00:00 0\n");
    world.memory.put_words(SP, &[IN_F, 0, 0, OTHER + 0x100, IN_TOP]);
    let registers = Registers {
        rip: image::CODE + 0x48,
        rsp: SP,
        rbp: Some(OTHER + 0x100),
        ..Registers::default()
    };
    let mut bytes = vec![0; 0x100];
    assert!(world.memory.read_exact(SP, &mut bytes).is_some());
    let mut out = Vec::new();
    change(&world.memory);
    prepare(&mut world.unwinder);
    let walk = world.unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
    let marker = |frame: &RawFrame| match frame.decode() {
        FrameCode::Marker { marker, .. } => Some(marker),
        _ => None,
    };
    (out.iter().map(marker).collect(), walk)
}

#[test]
fn a_plain_function_is_left_by_its_size() {
    assert_eq!(walk(b"main.f"), (vec![None; 3], WHOLE));
    // Names that only begin or end like those of functions that change stacks.
    for plain in [
        &b"runtime.mcall1"[..],
        b"runtime.morestack_noctxt",
        b"main.mcall",
        b"runtime.systemstack_switch",
    ] {
        assert_eq!(walk(plain), (vec![None; 3], WHOLE), "{}", String::from_utf8_lossy(plain));
    }
}

#[test]
fn goroutines_behind_mcall_and_morestack_are_not_shown() {
    for bottom in [&b"runtime.mcall"[..], b"runtime.morestack"] {
        assert_eq!(walk(bottom), (vec![None; 2], WHOLE), "{}", String::from_utf8_lossy(bottom));
    }
}

#[test]
fn a_goroutine_that_was_not_copied_is_missing_behind_systemstack() {
    for calls in [&b"runtime.systemstack"[..], b"runtime.asmcgocall"] {
        let expected = (vec![None, None, Some(Marker::Truncated)], ends(Marker::Truncated));
        assert_eq!(walk(calls), expected, "{}", String::from_utf8_lossy(calls));
    }
}

#[test]
fn a_goroutine_that_was_copied_too_follows_behind_systemstack() {
    // From its frame record on: what rbp was, the return address.
    let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = |base, words: &[u64]| Some(GoroutineStack { base, bytes: bytes(words) });
    let whole = at(OTHER + 0x100, &[0, IN_TOP, 0]);
    for calls in [&b"runtime.systemstack"[..], b"runtime.asmcgocall"] {
        let with = |copied: &Option<GoroutineStack>| {
            walk_with(calls, |unwinder| unwinder.set_goroutine_stack(copied.clone()))
        };
        assert_eq!(with(&whole), (vec![None; 3], WHOLE));
        let cut = (vec![None, None, Some(Marker::Truncated)], ends(Marker::Truncated));
        for copied in [at(OTHER + 0x100, &[0]), at(OTHER + 0xf8, &[0, 0, IN_TOP + 1])] {
            assert_eq!(with(&copied), cut);
        }
        let before = |unwinder: &mut dyn Unwinder| {
            unwinder.set_goroutine_stack(whole.clone());
            unwinder.set_owner(StackOwner::default(), Taken::nothing());
        };
        assert_eq!(walk_with(calls, before), cut, "it belongs to another walk");
    }
}

#[test]
fn a_word_that_no_call_has_left_is_no_return_address() {
    let expected = (vec![None, Some(Marker::BadUnwind)], ends(Marker::BadUnwind));
    assert_eq!(walk_in(b"main.f", |memory| memory.put(IN_F - 5, &[0x90]), |_| {}), expected);
}

#[test]
fn before_go_1_21_the_record_is_the_callers_whose_frame_ends_there() {
    // `systemstack` has no frame record of its own. `f` calls itself here; its frame has 24 bytes.
    let calls_itself = |memory: &Fake| {
        let distance = (image::CODE as u32).wrapping_sub(IN_F as u32);
        memory.put(IN_F - 5, &[&[0xe8][..], &distance.to_le_bytes()].concat());
    };
    let walk = |below: u64| {
        let record = OTHER + 0x100;
        let mut words = [0u64; 10];
        words[(0x40 - below as usize) / 8] = IN_F;
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let copied = GoroutineStack { base: record - 0x40, bytes };
        let prepare = |unwinder: &mut dyn Unwinder| unwinder.set_goroutine_stack(Some(copied));
        walk_in(b"runtime.systemstack", calls_itself, prepare).0
    };
    let is_found = |below| walk(below).len() > 3;
    assert_eq!([8, 16, 24, 32, 40].map(is_found), [false, false, true, false, false]);
}

#[test]
fn c_that_calls_back_is_missing_behind_cgocallback() {
    let expected = (vec![None, None, Some(Marker::NotCopied), None], ends(Marker::NotCopied));
    assert_eq!(walk(b"runtime.cgocallback"), expected);
    // Behind an injected call no frame is missing.
    assert_eq!(walk(b"runtime.sigpanic"), (vec![None; 3], WHOLE));
}
