//! Frames of made-up programs of each version, whole and with every word replaced.

use std::cell::Cell;

use proptest::prelude::*;

use super::bytecode_sizes::Version;
use super::layout::{ELEMENTS, Layout};
use super::*;
use crate::model::facts::tables::Tier;
use crate::model::vocabulary::frame::{FrameCode, Marker};
use crate::model::vocabulary::text::NAME_CAP;
use crate::unwinder::General;

mod await_chain;
mod classes;
mod made_up;
mod scripts;
mod workers;

use made_up::*;

#[test]
fn frames_have_functions_files_and_lines() {
    for version in VERSIONS {
        let program = program(version);
        let (mut v8, bias) = (reader(&program), program.layout.bytecode_data - 1);
        let Program { told, bytecode, based, based_bytecode, built_in, .. } = program;
        let interpreted = |offset| stack(told, bytecode, offset);
        // 11 is in the second line.
        let named = ("told /srv/a b.js:2 interpreted".to_owned(), CALLER);
        assert_eq!(leave(&mut v8, 0, TRAMPOLINE, None, interpreted(small(bias + 3))), named);
        let baseline = stack(based, based_bytecode, 0);
        let named = ("based /srv/a b.js:3 baseline".to_owned(), CALLER);
        let at = program.baseline + 100;
        assert_eq!(leave(&mut v8, 0, at, None, baseline), named, "{version:?}");
        let optimized = stack(told, 0, 0);
        let named = "outer /srv/a b.js:4 optimized > inner /srv/a b.js:1 inlined";
        let at = program.optimized + 30;
        assert_eq!(leave(&mut v8, 0, at, None, optimized), (named.into(), CALLER));
        let map = BUILTINS + 64 * MAP + 12;
        let found = leave(&mut v8, 0, map, None, stack(built_in, small(5), 0));
        assert_eq!(found, (format!("builtin {:x}", map - BUILTINS), CALLER));
        // Behind all code there is none.
        let (name, left) = leave(&mut v8, 0, program.optimized + 200, None, stack(told, 0, 0));
        assert_eq!((name.as_str(), left), ("", Leave::Unknown));
    }
}

#[test]
fn what_executes_has_its_offset_in_a_register() {
    for version in VERSIONS {
        let program = program(version);
        let (mut v8, bias) = (reader(&program), program.layout.bytecode_data - 1);
        let Program { told, bytecode, .. } = program;
        let general = |r9, r12| Some(General { r9, r12, ..General::default() });
        let mut line = |r9, r12, saved| {
            let stack = stack(told, bytecode, saved);
            leave(&mut v8, 0, TRAMPOLINE, general(r9, r12), stack).0
        };
        // The table begins at 0, and its first entry is in line 2; before it, in line 1: `told`
        // begins there.
        let (first, second) = ("told /srv/a b.js:1 baseline", "told /srv/a b.js:2 interpreted");
        assert_eq!(line(bias + 1, bytecode, small(bias + 2)), second);
        assert_eq!(
            line(bias + 1, bytecode, 0).replace("baseline", ""),
            second.replace("interpreted", "")
        );
        assert_eq!(line(bias + 1, 7, 0), first, "the register has something else");
        assert_eq!(line(bias + 40, bytecode, 0), first, "behind the end");
        assert_eq!(line(bias - 1, bytecode, 0), first, "before the beginning");
    }
}

#[test]
fn a_function_without_the_frames_bytecode_names_nothing() {
    for version in VERSIONS {
        let program = program(version);
        let mut v8 = reader(&program);
        let Program { told, bytecode, based_bytecode, .. } = program;
        let saved = small(program.layout.bytecode_data);
        let (name, _) = leave(&mut v8, 0, TRAMPOLINE, None, stack(told, based_bytecode, saved));
        assert!(name.starts_with("builtin"), "{name}: no trampoline yet");
        let (name, _) = leave(&mut v8, 0, TRAMPOLINE, None, stack(told, bytecode, saved));
        assert!(name.starts_with("told"), "{name}");
        let (name, left) = leave(&mut v8, 0, TRAMPOLINE, None, stack(told, based_bytecode, saved));
        assert_eq!((name.as_str(), left), ("[torn]", CALLER));
        // What was proven once is known by the bytecode, wherever the function has gone.
        let (name, _) = leave(&mut v8, 0, TRAMPOLINE, None, stack(0x77, bytecode, saved));
        assert!(name.starts_with("told"), "{name}");
        // Not if another function has it meanwhile.
        let shared = v8.by_bytecode[&(bytecode - 1)];
        program.world.set(shared + 1, program.layout.data[0], based_bytecode);
        let now = 2 * VALID_FOR;
        let (name, _) = leave(&mut v8, now, TRAMPOLINE, None, stack(told, bytecode, saved));
        assert_eq!(name, "[torn]");
    }
}

#[test]
fn moved_functions_are_followed_and_moved_code_is_read_again() {
    for version in VERSIONS {
        let program = program(version);
        let mut v8 = reader(&program);
        let Program { told, bytecode, .. } = program;
        let saved = small(program.layout.bytecode_data);
        // The collector has left the new address in the place of the map.
        let old = program.world.object(&[told - 1, 0, 0]);
        let (name, _) = leave(&mut v8, 0, TRAMPOLINE, None, stack(old, bytecode, saved));
        assert!(name.starts_with("told"), "{name}");
        let at = program.optimized + 30;
        let (name, _) = leave(&mut v8, 0, at, None, stack(told, 0, 0));
        assert!(name.starts_with("outer"), "{name}");
        // Other code is there: what was copied before that was found has no name.
        let header = program.optimized - program.layout.code.header;
        program.world.set(header + 1, 8, 0x77);
        let (name, left) = leave(&mut v8, VALID_FOR, at, None, stack(told, 0, 0));
        assert_ne!(left, CALLER, "{name}");
        v8.begin_at(2 * VALID_FOR, 1, true);
        let place = Place { pc: at, exact: false, sp: STACK, rbp: Some(STACK + 64), general: None };
        let left = v8.leave_frame(place, &mut stack(told, 0, 0), &mut Vec::new());
        assert_eq!(left, Leave::End(Marker::CodeReplaced));
    }
}

/// The collector gives the addresses of objects to others of the same shape, all at once.
#[test]
fn another_function_in_the_same_place_has_its_own_name() {
    for version in VERSIONS {
        // It is compared alone, or with all that was used in the epoch before.
        for (by_hash, alone) in [(true, true), (true, false), (false, true), (false, false)] {
            let program = program(version);
            let Program { told, bytecode, ref world, ref layout, .. } = program;
            let word =
                |object: u64, offset: u64| (&world).read_u64(object - 1 + offset).expect("there");
            let saved = small(layout.bytecode_data);
            let shown = |v8: &mut V8<&World>, at| {
                leave(v8, at, TRAMPOLINE, None, stack(told, bytecode, saved)).0
            };
            let mut v8 = reader(&program);
            for at in if alone { 0..1 } else { 0..2 } {
                assert!(shown(&mut v8, at * VALID_FOR).starts_with("told "), "{version:?}");
            }
            let scope = word(word(told, layout.shared), layout.name);
            // Where the scope refers to its name: behind its variables.
            let slot = 8 + 8 * (layout.first_variable + 4);
            let name = word(scope, slot);
            if by_hash {
                // Another string of this length; its hash is another, too.
                world.set(name, 8, word(name, 8) | 77);
                world.set(name, 16, u64::from_le_bytes(*b"othe\0\0\0\0"));
            } else {
                world.set(scope, slot, world.string("other"));
            }
            for at in [2 * VALID_FOR, 3 * VALID_FOR] {
                let after = shown(&mut v8, at);
                assert!(after.starts_with("othe"), "{version:?}: {after}");
            }
        }
    }
}

/// Behind a scope without a name are the scope around it, and other objects.
#[test]
fn a_name_behind_the_scope_is_not_the_functions() {
    for version in VERSIONS {
        let program = program(version);
        let Program { told, bytecode, ref world, ref layout, .. } = program;
        let word =
            |object: u64, offset: u64| (&world).read_u64(object - 1 + offset).expect("there");
        let shared = word(told, layout.shared);
        let named = word(shared, layout.name);
        let mut words = vec![word(named, 0), 0, 0, small(0)];
        if layout.positions_first {
            words.extend([small(3), small(8)]);
        }
        words.extend([named, world.string("another")]);
        world.set(shared, layout.name, world.object(&words));
        let (mut v8, saved) = (reader(&program), small(layout.bytecode_data));
        let (name, _) = leave(&mut v8, 0, TRAMPOLINE, None, stack(told, bytecode, saved));
        assert!(name.starts_with("(anonymous"), "{name}");
    }
}

/// Whatever a word of memory or of the stack is, a frame is left or not, with bounded work.
#[test]
fn every_word_may_be_anything() {
    for version in VERSIONS {
        let program = program(version);
        let saved = small(program.layout.bytecode_data);
        let used = program.world.used.get();
        for at in 0..used {
            let word = program.world.words.borrow()[at];
            for other in [
                0,
                1,
                3,
                u64::MAX,
                HEAP + 1,
                word ^ 8,
                word ^ 1 << 40,
                word | 1 << 62,
                small(0x7fff_ffff),
            ] {
                program.world.words.borrow_mut()[at] = other;
                let mut v8 = reader(&program);
                program.world.reads.set(0);
                let Program { told, bytecode, based, based_bytecode, .. } = program;
                leave(&mut v8, 0, TRAMPOLINE, None, stack(told, bytecode, saved));
                leave(&mut v8, 0, program.baseline + 100, None, stack(based, based_bytecode, 0));
                leave(&mut v8, 0, program.optimized + 30, None, stack(told, 0, 0));
                assert!(program.world.reads.get() < 200, "{} reads", program.world.reads.get());
            }
            program.world.words.borrow_mut()[at] = word;
        }
    }
}

/// Memory in which every word is computed from its address: all of it is readable, none consistent.
struct Nonsense {
    seed: u64,
    reads: Cell<u32>,
}

impl ReadMemory for &Nonsense {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        for (at, bytes) in (address / 8..).zip(buf.chunks_mut(8)) {
            let word = (at ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let word = match word % 4 {
                0 => (200 + word % 240) << 32,
                1 | 2 => HEAP + word % 0x1000 * 8 + 1,
                _ => word,
            };
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        buf.len()
    }
}

proptest! {
    #[test]
    fn nonsense_is_left_with_an_end(
        seed in any::<u64>(), version in 0usize..4, pc in 0u64..0x8000, exact in any::<bool>(), offset in any::<u64>(),
        rbp in prop::option::of(0u64..100),
    ) {
        let program = program(VERSIONS[version]);
        let V8 { layout, builtins, .. } = reader(&program);
        let memory = Nonsense { seed, reads: Cell::new(0) };
        let mut v8 = V8 {
            builtins,
            generated: std::iter::once(HEAP..HEAP + 0x8000).collect(),
            ..V8::new(&memory, layout, Table::made_up(), Names::default(), Files::default(), 7)
        };
        v8.begin_at(1, 0, true);
        for base in [HEAP, BUILTINS] {
            let general = exact.then_some(General { r9: offset % 100, r12: HEAP + 9, ..General::default() });
            let place = Place { pc: base + pc, exact, sp: STACK, rbp: rbp.map(|rbp| STACK + 8 * rbp), general };
            let mut out = Vec::new();
            let mut stack = |at: u64| Some((at ^ offset).wrapping_mul(seed) % 0x1000 * 8 + HEAP + 1);
            v8.leave_frame(place, &mut stack, &mut out);
            prop_assert!(out.len() <= 1);
            v8.await_chain(None);
        }
        prop_assert!(memory.reads.get() < 10_000);
    }
}

#[test]
fn unknown_versions_and_layouts_are_refused() {
    let refused = |version, wrong: &'static str, number| {
        let constant = move |name: &str| match name == wrong {
            true => number,
            false => constant(version, name),
        };
        match Layout::of(version, &constant) {
            Err(why) => why.message(true).expect("a message"),
            Ok(_) => String::new(),
        }
    };
    let says = "its JavaScript frames cannot be read: ";
    assert_eq!(refused((9, 4), "", None), format!("{says}the layout of V8 9.4 is not known"));
    let lacks = refused((12, 4), "CodeKindBaseline", None);
    assert_eq!(lacks, format!("{says}its V8 lacks v8dbg_CodeKindBaseline"));
    for (wrong, number) in [
        ("class_JSFunction__shared__SharedFunctionInfo", 40),
        ("CodeKindBaseline", 15),
        ("class_Map__instance_type__uint16_t", -4),
        ("type_Script__SCRIPT_TYPE", 0),
    ] {
        assert_ne!(refused((13, 6), wrong, Some(number)), "", "{wrong}");
    }
    assert_eq!(refused((13, 6), "", None), "", "it is known");
    assert_eq!(ELEMENTS, 16);
}
