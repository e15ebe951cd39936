//! Cached facts are valid for as long as memory is unchanged, and no longer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::model::vocabulary::frame::Marker;
use crate::unwinder::{Generated, Leave, Place};
use layout::{CodePlace, Number, Width};

/// Memory of bytes from address 0 on.
pub struct World {
    bytes: Mutex<Vec<u8>>,
    reads: AtomicU32,
}

impl ReadMemory for &World {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.lock().expect("no panic");
        let found =
            usize::try_from(address).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let n = found.len().min(buf.len());
        buf[..n].copy_from_slice(&found[..n]);
        n
    }
}

impl World {
    pub fn new() -> World {
        World { bytes: Mutex::new(vec![0; 1 << 20]), reads: AtomicU32::new(0) }
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.bytes.lock().expect("no panic")[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub fn word(&self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    pub fn number(&self, object: u64, number: Number, value: u64) {
        let width = match number.width {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Int => 4,
            Width::Long => 8,
        };
        self.put(object + number.at as u64, &value.to_le_bytes()[..width]);
    }

    /// Returns the number of reads.
    pub fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    fn change(&self, at: u64) {
        self.bytes.lock().expect("no panic")[at as usize] ^= 0x40;
    }
}

pub const HEAP: u64 = 0x1_0000;
const SEGMAP: u64 = 0x2_0000;
pub const NAME: u64 = 0x3_0000;
pub const METHOD: u64 = 0x4_0000;
const CONST_METHOD: u64 = 0x4_1000;
const POOL: u64 = 0x4_2000;
const KLASS: u64 = 0x4_3000;
const CLASS_SYMBOL: u64 = 0x4_4000;
const NAME_SYMBOL: u64 = 0x4_5000;
const SIZE: u64 = 4096;

pub fn symbol(world: &World, layout: &Layout, at: u64, text: &str) {
    world.put(at + layout.method.symbol_length, &(text.len() as u16).to_le_bytes());
    world.put(at + layout.method.symbol_body, text.as_bytes());
}

/// Builds `Gen1.run`, compiled, with one record of debug information: at distance 16 of its code,
/// bci 5.
pub fn world(layout: &Layout) -> (World, u64) {
    let world = World::new();
    let (m, b) = (&layout.method, &layout.blob);
    symbol(&world, layout, CLASS_SYMBOL, "Gen1");
    symbol(&world, layout, NAME_SYMBOL, "run");
    world.word(KLASS + m.klass_name, CLASS_SYMBOL);
    world.word(POOL + m.pool_holder, KLASS);
    world.word(POOL + m.pool_size + 8 * 3, NAME_SYMBOL);
    world.number(METHOD, m.const_method, CONST_METHOD);
    world.number(CONST_METHOD, m.constants, POOL);
    world.number(CONST_METHOD, m.code_size, 40);
    world.number(CONST_METHOD, m.name_index, 3);

    world.put(NAME, b"nmethod\0");
    // 4096 bytes of one block, from the heap's first segment on.
    let segments: Vec<u8> = (0..SIZE >> 7).map(|segment| segment as u8).collect();
    world.put(SEGMAP, &[&segments[..], &[0xff; 480]].concat());
    world.put(HEAP + layout.code_heap.block_used, &[1]);
    let blob = HEAP + layout.code_heap.block_size;
    let (code, metadata, scopes, pcs, end) = (0x400, 0x800, 0x808, 0x810, 0x840);
    let place = |place: CodePlace| match place {
        CodePlace::Pointer(number) | CodePlace::FromBlob(number) => number,
    };
    world.number(blob, b.name, NAME);
    world.number(blob, b.size, SIZE - 16);
    world.number(blob, place(b.code), blob + code);
    world.number(blob, place(b.code_end), blob + metadata);
    world.number(blob, b.frame_size, 4);
    world.number(blob, b.method, METHOD);
    world.number(blob, b.compile_id, 77);
    world.number(blob, b.level, 4);
    world.number(blob, place(b.verified_entry), blob + code);
    let DebugInfo::InBlob { metadata: at, scopes: scopes_at, pcs: pcs_at, pcs_end } = b.debug
    else {
        panic!()
    };
    world.number(blob, at, metadata);
    world.number(blob, place(scopes_at), blob + scopes);
    world.number(blob, pcs_at, pcs);
    world.number(blob, pcs_end, end);
    world.word(blob + metadata, METHOD);
    // A record: no caller, method 1, bci 5.
    world.put(blob + scopes, &[0xff, 0, 1, 6]);
    for (number, (pc, record)) in [(-1i32, 0i32), (16, 1), (0x400, 0)].into_iter().enumerate() {
        let desc = blob + pcs + (number * layout.pc_desc.size) as u64;
        world.number(desc, layout.pc_desc.pc, i64::from(pc) as u64);
        world.number(desc, layout.pc_desc.scope, record as u64);
    }
    (world, blob)
}

pub fn layout_17() -> Layout {
    layout(VERSIONS[1].0, VERSIONS[1].1)
}

pub fn jvm_of<M: ReadMemory>(memory: M, layout: &Layout) -> Jvm<M> {
    jvm(memory, layout.clone(), vec![code_cache::CodeHeap::made_up(HEAP, HEAP + 0x1_0000, SEGMAP)])
}

impl<M: ReadMemory> Jvm<M> {
    /// Starts a walk so much later that every fact is stale.
    pub fn later(&mut self) {
        let now = self.epoch_began + VALID_FOR;
        self.begin(now, Ns::MAX, false);
    }

    /// Returns the name of the compiled frame at a distance from the code's beginning.
    fn called(&mut self, distance: u64) -> Option<(String, u64)> {
        let blob = self.blob(HEAP + 0x800)?;
        let frame = self.compiled_frame(&blob, blob.code + distance, false)?;
        let named = self.names.named(frame)?;
        Some((named.locations[0].function.to_string(), frame.bits()))
    }
}

#[test]
fn compiled_code_is_the_same_however_hot_it_gets() {
    let layout = layout_17();
    let (world, blob) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let pc = HEAP + 0x800;
    let mut known = jvm.blob(pc).expect("a blob");
    assert_eq!(
        known.nmethod().map(|nmethod| (nmethod.method, nmethod.compile_id)),
        Some((METHOD, 77))
    );
    assert_eq!(jvm.called(16).map(|(name, _)| name).as_deref(), Some("Gen1.run"));
    let (mut same, mut others) = (0, 0);
    for at in blob..blob + layout.blob.header as u64 {
        world.change(at);
        jvm.later();
        let now = jvm.blob(pc);
        if now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &known)) {
            same += 1;
        } else {
            others += 1;
        }
        world.change(at);
        jvm.later();
        known = jvm.blob(pc).expect("as it was");
    }
    // Six pointers identify it, eight numbers, and the level, which is one byte.
    assert_eq!((others, same), (6 * 8 + 8 * 4 + 1, layout.blob.header as u32 - 81));
    // While it is valid nothing is read.
    assert!(jvm.called(16).is_some());
    let reads = world.reads();
    for walk in 0..100 {
        jvm.begin(jvm.epoch_began + VALID_FOR / 100 * walk, Ns::MAX, false);
        assert!(jvm.blob(pc).is_some() && jvm.called(16).is_some());
    }
    assert_eq!(world.reads(), reads);
    // The block is freed.
    world.put(HEAP + layout.code_heap.block_used, &[0]);
    jvm.later();
    assert!(jvm.blob(pc).is_none());
}

#[test]
fn another_method_at_the_same_place_has_its_own_name() {
    let layout = layout_17();
    let (world, blob) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let first = jvm.called(16).expect("a frame");
    let interpreted = jvm.interpreted_frame(METHOD, Some(5)).expect("a frame");
    // The same classes, loaded again: all addresses are the same, only the names differ.
    symbol(&world, &layout, CLASS_SYMBOL, "Gen2");
    assert_eq!(jvm.interpreted_frame(METHOD, Some(5)), Some(interpreted), "valid for a moment");
    jvm.later();
    let other = jvm.interpreted_frame(METHOD, Some(5)).expect("a frame");
    assert_eq!(
        jvm.names.named(other).map(|named| named.locations[0].function.to_string()).as_deref(),
        Some("Gen2.run")
    );
    assert_eq!(
        jvm.called(16),
        Some(first.clone()),
        "code that was compiled of a method keeps it alive"
    );
    world.number(blob, layout.blob.compile_id, 78);
    jvm.later();
    assert_eq!(jvm.called(16).map(|(name, _)| name).as_deref(), Some("Gen2.run"));
    // A flag of the pool does not identify the method.
    let serial = jvm.methods.get(&jvm.memory, &jvm.layout, METHOD).map(|method| method.serial);
    world.change(POOL + 60);
    jvm.later();
    assert_eq!(
        jvm.methods.get(&jvm.memory, &jvm.layout, METHOD).map(|method| method.serial),
        serial
    );
    // Its lines do.
    world.number(CONST_METHOD, layout.method.flags, 1);
    world.put(CONST_METHOD + layout.method.const_size as u64 + 40, &[3 << 3 | 5, 0]);
    jvm.later();
    assert_ne!(
        jvm.methods.get(&jvm.memory, &jvm.layout, METHOD).map(|method| method.serial),
        serial
    );
    // What cannot be read is no method.
    world.number(METHOD, layout.method.const_method, 1 << 40);
    jvm.later();
    assert!(jvm.interpreted_frame(METHOD, Some(5)).is_none());
}

/// Returns the name of the frame that returns to the record of [`world`], on a stack that was
/// copied at `copied`, of a thread that ran on.
fn called_at(jvm: &mut Jvm<&World>, start: u64, copied: Ns) -> Result<String, Marker> {
    jvm.begin(monotonic(), copied, true);
    let place =
        Place { pc: start + 0x400 + 16, exact: false, sp: 0x7000_0000, rbp: None, general: None };
    let mut out = Vec::new();
    match jvm.leave(place, &mut |_| Some(0), &mut out) {
        Leave::End(marker) => Err(marker),
        _ => Ok(jvm.names.named(out[0]).expect("a name").locations[0].function.to_string()),
    }
}

#[test]
fn stacks_older_than_replaced_code_get_no_name() {
    let layout = layout_17();
    let (world, blob) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    assert_eq!(called_at(&mut jvm, blob, monotonic()).as_deref(), Ok("Gen1.run"));
    let before = monotonic();
    symbol(&world, &layout, CLASS_SYMBOL, "Gen2");
    world.number(blob, layout.blob.compile_id, 78);
    let after = monotonic();
    // When it was replaced between the two readings is unknown.
    for copied in [before, after] {
        assert_eq!(called_at(&mut jvm, blob, copied), Err(Marker::CodeReplaced));
    }
    assert_eq!(called_at(&mut jvm, blob, monotonic()).as_deref(), Ok("Gen2.run"));
    assert_eq!(called_at(&mut jvm, blob, before), Err(Marker::CodeReplaced));
    assert_eq!(called_at(&mut jvm, blob, Ns::MAX).as_deref(), Ok("Gen2.run"), "a thread at rest");
    // The block is freed and nothing is there yet.
    let before = monotonic();
    world.put(HEAP + layout.code_heap.block_used, &[0]);
    assert_eq!(called_at(&mut jvm, blob, before), Err(Marker::CodeReplaced));
}

#[test]
fn stacks_older_than_a_replaced_method_are_untrusted() {
    let layout = layout_17();
    let (world, _) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let mut observe = |copied: Ns| {
        jvm.begin(monotonic(), copied, true);
        (jvm.interpreted_frame(METHOD, Some(5)).is_some(), jvm.methods.take_untrusted())
    };
    assert_eq!(observe(monotonic()), (true, false));
    let before = monotonic();
    symbol(&world, &layout, CLASS_SYMBOL, "Gen2");
    assert_eq!(
        (observe(before), observe(monotonic()), observe(before)),
        ((true, true), (true, false), (true, true))
    );
    // A flag of the pool does not identify the method.
    let before = monotonic();
    world.change(POOL + 60);
    assert_eq!(observe(before), (true, false));
    let before = monotonic();
    world.number(METHOD, layout.method.const_method, 1 << 40);
    assert_eq!(observe(before), (false, true));
}

#[test]
fn entries_used_last_are_revalidated_in_one_call() {
    let layout = layout_17();
    let (world, _) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let observe = |jvm: &mut Jvm<&World>| (jvm.called(16), jvm.interpreted_frame(METHOD, Some(5)));
    let first = observe(&mut jvm);
    assert!(first.0.is_some() && first.1.is_some());
    for _ in 0..3 {
        // One piece is the blob, nine are the method.
        let reads = world.reads();
        jvm.later();
        assert_eq!(world.reads(), reads + 10);
        assert_eq!(observe(&mut jvm), first);
        assert_eq!(world.reads(), reads + 10, "that was all");
    }
    // What was not used any more is not read.
    jvm.later();
    let reads = world.reads();
    jvm.later();
    assert_eq!(world.reads(), reads);
}

#[test]
fn frames_that_are_remembered_are_bounded() {
    let layout = layout_17();
    let (world, _) = world(&layout);
    let mut jvm = jvm_of(&world, &layout);
    let blob = jvm.blob(HEAP + 0x800).expect("a blob");
    for pc in 0..(FACTS_MAX + 1000) as u64 {
        assert!(jvm.compiled_frame(&blob, blob.code + pc, false).is_some());
    }
    assert_eq!(jvm.known.values().map(|known| known.frames.len()).sum::<usize>(), 1000);
    assert_eq!(jvm.facts, 1000);
    jvm.forget(blob.start);
    assert_eq!((jvm.facts, jvm.scopes_size), (0, 0));
}
