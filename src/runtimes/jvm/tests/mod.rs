//! Layouts of known versions, and walks through memory of arbitrary contents.

pub mod cache_validity;
mod partial_frames;

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::model::vocabulary::frame::Marker;
use crate::unwinder::{General, Generated, Leave, Place};
use layout::{DebugInfo, Heaps, ThreadList};

/// Recorded tables of these versions (OpenJDK 11.0.13, 17.0.15, 21.0.8 and 25.0.3 on x86-64).
const VERSIONS: [(u32, &str); 4] = [
    (11, include_str!("fields_11.txt")),
    (17, include_str!("fields_17.txt")),
    (21, include_str!("fields_21.txt")),
    (25, include_str!("fields_25.txt")),
];

/// Maximum reads of one step of a walk: names, methods and a search of the stack have their limits.
const READS_MAX: u32 = 200_000;

/// Memory in which every word is computed from its address: all of it is readable, none consistent.
struct Nonsense {
    seed: u64,
    /// The value of every static variable: a version, a pointer.
    number: u64,
    reads: Cell<u32>,
}

impl ReadMemory for Nonsense {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() < READS_MAX, "it goes on and on");
        for (at, byte) in (address..).zip(buf.iter_mut()) {
            let word = ((at / 8) ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            // Small numbers and words that lead to others, as well as garbage.
            let word = match word % 4 {
                0 => word % 256,
                1 => 0x10_0000 + word % 0x1000 * 8,
                2 => self.number,
                _ => word,
            };
            *byte = (word >> (at % 8 * 8)) as u8;
        }
        buf.len()
    }
}

fn layout(version: u32, text: &str) -> Layout {
    struct Version(u32);
    impl ReadMemory for Version {
        fn read(&self, _: u64, buf: &mut [u8]) -> usize {
            buf.fill(0);
            buf[0] = self.0 as u8;
            buf.len()
        }
    }
    Layout::of(&Version(version), &Structs::of_text(text))
        .unwrap_or_else(|missing| panic!("{version}: {missing:?}"))
}

/// Returns a virtual machine with these code heaps and an empty cache.
fn jvm<M: ReadMemory>(memory: M, layout: Layout, heaps: Vec<code_cache::CodeHeap>) -> Jvm<M> {
    let memory = Limited::new(memory, read_limit::WALK);
    Jvm::new(
        memory,
        layout,
        CodeCache::new(heaps),
        Names::default(),
        Err(Missing("objects".into())),
        0x10_0100,
    )
}

#[test]
fn known_versions_say_all_that_is_needed() {
    for (version, text) in VERSIONS {
        let layout = layout(version, text);
        assert_eq!((layout.major, layout.excluded), (version, u8::from(version >= 20)));
        assert!(matches!(layout.code_heap.heaps, Heaps::Many { .. }));
        assert_eq!(matches!(layout.blob.debug, DebugInfo::Apart { .. }), version >= 23);
        assert_eq!(matches!(layout.threads.list, ThreadList::Linked { .. }), version < 17);
        assert_eq!(layout.threads.object_is_handle, version >= 17);
        assert_eq!(layout.method.file_in_pool.is_some(), version >= 15);
        assert!((200..=400).contains(&layout.blob.header), "{version}: {}", layout.blob.header);
    }
}

#[test]
fn what_is_missing_is_named() {
    let (version, text) = VERSIONS[1];
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("nmethod _compile_id"))
        .map(|l| format!("{l}\n"))
        .collect();
    struct Any;
    impl ReadMemory for Any {
        fn read(&self, _: u64, buf: &mut [u8]) -> usize {
            buf.fill(17);
            buf.len()
        }
    }
    let Err(Missing(what)) = Layout::of(&Any, &Structs::of_text(&without)) else {
        panic!("{version}")
    };
    assert_eq!(what, "nmethod::_compile_id or CompiledMethod::_compile_id");
}

proptest! {
    /// Whatever lies in memory, a frame is left or the walk ends, with bounded work. Tables are
    /// never read beyond their limits.
    #[test]
    fn nonsense_is_walked_with_an_end(
        seed in any::<u64>(), version in 0usize..4, pc in 0u64..0x8000, sp in 0u64..0x1000, rbp in prop::option::of(0u64..0x1000),
        exact in any::<bool>(), registers in any::<[u32; 3]>(),
    ) {
        let (version, text) = VERSIONS[version];
        let memory = Nonsense { seed, number: 0x10_0000 + seed % 0x1000 * 8, reads: Cell::new(0) };
        let layout = layout(version, text);
        // Heaps as they may be read from such memory, and one where the program counter is.
        let mut heaps = code_cache::heaps(&memory, &layout.code_heap);
        heaps.push(code_cache::CodeHeap::made_up(0x10_0000, 0x10_8000, 0x20_0000));
        let mut jvm = jvm(memory, layout, heaps);
        let general = exact.then_some(General {
            rax: u64::from(registers[0]), rbx: u64::from(registers[1]) & !7, r13: u64::from(registers[2]), ..General::default()
        });
        let stack = 0x7000_0000u64;
        let place = Place { pc: 0x10_0000 + pc, exact, sp: stack + sp * 8, rbp: rbp.map(|rbp| stack + rbp * 8), general };
        let mut out = Vec::new();
        Generated::begin(&mut jvm, Ns::MAX, true);
        let left = jvm.leave(place, &mut |at| at.checked_sub(stack).map(|at| at.wrapping_mul(seed)), &mut out);
        prop_assert!(out.len() == 1 || (out.is_empty() && !exact));
        prop_assert!(out.iter().all(|frame| jvm.names.named(*frame).is_some()));
        let known = matches!(left, Leave::To { .. } | Leave::End(Marker::BadUnwind));
        prop_assert!(known, "{:?}", left);
        prop_assert!(jvm.thread_names(None).len() < 1000);
    }
}

/// One that is named by an attacker, and one without a name.
#[test]
fn stubs_have_names_that_can_be_shown() {
    let (version, text) = VERSIONS[3];
    let mut jvm = jvm(
        Nonsense { seed: 1, number: 0, reads: Cell::new(0) },
        layout(version, text),
        Vec::new(),
    );
    for (name, shown) in [
        ("a\u{1b}[2Jb", "a[2Jb"),
        ("", "generated code"),
        ("\u{4}", "generated code"),
        ("Stub (x)", "Stub (x)"),
    ] {
        let frame = jvm.stub_frame(name);
        let named = jvm.names.named(frame).expect("a name");
        assert_eq!(&*named.locations[0].function, shown);
    }
}

#[test]
fn calls_are_recognised_by_their_bytes() {
    // As `objdump -d` shows them.
    let calls: [&[u8]; 6] = [
        &[0xff, 0xd0],
        &[0xff, 0x55, 0xf8],
        &[0xff, 0x15, 1, 2, 3, 4],
        &[0xff, 0x14, 0x24],
        &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        &[0xff, 0x14, 0xc5, 1, 2, 3, 4],
    ];
    for call in calls {
        assert!(indirect_call(call), "{call:x?}");
    }
    let others: [&[u8]; 4] = [&[0xff, 0xe0], &[0xff, 0xd0, 0], &[0xff, 0x14], &[0x90, 0xd0]];
    for other in others {
        assert!(!indirect_call(other), "{other:x?}");
    }
}
