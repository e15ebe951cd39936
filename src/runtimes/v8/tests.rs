//! Frames of made-up programs of each version, whole and with every word replaced.

use std::cell::{Cell, RefCell};

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
mod scripts;

const VERSIONS: [Version; 4] = [(11, 3), (12, 4), (13, 6), (14, 6)];
/// Where the made-up heap and stack begin, and their size.
const HEAP: u64 = 0x6000_0000;
const WORDS: usize = 4096;
const STACK: u64 = 0x7000_0000;
/// Built-in code: 600 functions of 40 bytes, 64 bytes apart.
const BUILTINS: u64 = 0x5000_0000;
const TRAMPOLINE: u64 = BUILTINS + 64 * 7 + 20;
/// The first type of contexts; there are two.
const CONTEXT_TYPE: u16 = 150;
/// V8's number of `Array.prototype.map`.
const MAP: u64 = 9;

/// Types of objects: numbers as their names say.
fn constant(version: Version, name: &str) -> Option<i32> {
    const TYPES: [&str; 22] = [
        "JSFunction__JS_FUNCTION",
        "SharedFunctionInfo__SHARED_FUNCTION_INFO",
        "Script__SCRIPT",
        "DebugInfo__DEBUG_INFO",
        "ScopeInfo__SCOPE_INFO",
        "Code__CODE",
        "InstructionStream__INSTRUCTION_STREAM",
        "BytecodeArray__BYTECODE_ARRAY",
        "InterpreterData__INTERPRETER_DATA",
        "Map__MAP",
        "FixedArray__FIXED_ARRAY",
        "ByteArray__BYTE_ARRAY",
        "PropertyArray__PROPERTY_ARRAY",
        "AccessorPair__ACCESSOR_PAIR",
        "DescriptorArray__DESCRIPTOR_ARRAY",
        "JSObject__JS_OBJECT",
        "JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT",
        "JSAsyncGeneratorObject__JS_ASYNC_GENERATOR_OBJECT",
        "JSPromise__JS_PROMISE",
        "PromiseReaction__PROMISE_REACTION",
        "PromiseCapability__PROMISE_CAPABILITY",
        "AsyncGeneratorRequest__ASYNC_GENERATOR_REQUEST",
    ];
    let of_type = || {
        let name = name.strip_prefix("type_")?.strip_suffix("_TYPE")?;
        TYPES.iter().position(|it| *it == name).map(|nth| 200 + 20 * nth as i32)
    };
    let old = version == (11, 3);
    let number = match name {
        "class_Map__instance_type__uint16_t" => 12,
        "class_Map__instance_size_in_words__char" => 8,
        "FirstContextType" => i32::from(CONTEXT_TYPE),
        "LastContextType" => i32::from(CONTEXT_TYPE) + 1,
        "class_JSFunction__context__Context" if old => 32,
        "class_JSFunction__context__Context" => 40,
        "class_Map__prototype__Object" => 24,
        "class_Map__instance_descriptors_offset" => 40,
        "class_DescriptorArray__header_size__uintptr_t" if version >= (14, 6) => 32,
        "class_DescriptorArray__header_size__uintptr_t" => 24,
        "class_JSFunction__shared__SharedFunctionInfo" if old => 24,
        "class_JSFunction__shared__SharedFunctionInfo" => 32,
        "class_Script__name__Object" => 16,
        "class_Script__source__Object" => 8,
        "class_Script__line_ends__Object" => 56,
        "class_BytecodeArray__data__uintptr_t" if old => 54,
        "class_BytecodeArray__data__uintptr_t" => 64,
        "CodeKindBaseline" => 11,
        "CodeKindFieldMask" => 15,
        "DeoptimizationDataSharedFunctionInfoIndex" => 6,
        "DeoptimizationDataLiteralArrayIndex" => 2,
        "DeoptimizationDataInliningPositionsIndex" => 7,
        "scopeinfo_idx_first_vars" if version >= (13, 6) => 5,
        "scopeinfo_idx_first_vars" => 3,
        "frametype_EntryFrame" => 1,
        "frametype_StubFrame" => 8,
        _ => return of_type(),
    };
    Some(number)
}

fn kind(version: Version, name: &str) -> u16 {
    constant(version, &format!("type_{name}_TYPE")).expect("a type") as u16
}

fn layout(version: Version) -> Layout {
    Layout::of(version, &|name| constant(version, name)).expect("a layout")
}

fn small(value: u64) -> u64 {
    value << 32
}

/// Memory of a made-up program.
struct World {
    words: RefCell<Vec<u64>>,
    used: Cell<usize>,
    reads: Cell<u32>,
    /// Words that change at a read, by its number.
    changes: RefCell<(u32, Vec<(usize, u64)>)>,
}

impl ReadMemory for &World {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        let (when, changes) = &*self.changes.borrow();
        if *when == self.reads.get() {
            changes.iter().for_each(|(at, word)| self.words.borrow_mut()[*at] = *word);
        }
        let words = self.words.borrow();
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = address.checked_add(done as u64).and_then(|at| at.checked_sub(HEAP))
            else {
                break;
            };
            let Some(word) = words.get((at / 8) as usize) else { break };
            buf[done] = word.to_le_bytes()[(at % 8) as usize];
            done += 1;
        }
        done
    }
}

impl World {
    fn new() -> World {
        World {
            words: RefCell::new(vec![0; WORDS]),
            used: Cell::new(0),
            reads: Cell::new(0),
            changes: RefCell::default(),
        }
    }

    /// Writes an object's words and returns its address plus 1.
    fn object(&self, words: &[u64]) -> u64 {
        let at = self.used.get();
        self.used.set(at + words.len());
        self.words.borrow_mut()[at..at + words.len()].copy_from_slice(words);
        HEAP + 8 * at as u64 + 1
    }

    fn set(&self, object: u64, offset: u64, word: u64) {
        self.words.borrow_mut()[((object - 1 + offset - HEAP) / 8) as usize] = word;
    }

    /// Sets four bytes.
    fn set_half(&self, object: u64, offset: u64, half: u32) {
        let at = ((object - 1 + offset - HEAP) / 8) as usize;
        let (word, shift) = (self.words.borrow()[at], 8 * (offset % 8));
        self.words.borrow_mut()[at] = word & !(0xffff_ffff << shift) | u64::from(half) << shift;
    }

    fn map(&self, kind: u16) -> u64 {
        self.object(&[0, u64::from(kind) << 32, 0])
    }

    fn bytes(&self, map: u64, bytes: &[u8]) -> u64 {
        let mut words = vec![map, small(bytes.len() as u64)];
        words.extend(packed(bytes));
        self.object(&words)
    }

    fn string(&self, text: &str) -> u64 {
        let mut words = vec![self.map(8), (text.len() as u64) << 32];
        words.extend(packed(text.as_bytes()));
        self.object(&words)
    }
}

fn packed(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Encodes one entry of a position table that begins before the code.
fn position_table(layout: &Layout, offset: u64, inlined: u64) -> Vec<u8> {
    let raw = (offset + 1) << 1 | inlined << 31;
    let (mut out, code) = (Vec::new(), 1u64 << u32::from(layout.flagged));
    for mut number in [code << 1, raw << 1] {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }
    out
}

/// A program: `outer` has `inner` inlined in optimised code; `based` is baseline code; `told` is
/// interpreted; the frame of `map` is built-in code.
struct Program {
    world: World,
    layout: Layout,
    told: u64,
    bytecode: u64,
    based: u64,
    based_bytecode: u64,
    built_in: u64,
    /// What the optimised code has inlined.
    literals: u64,
    /// Addresses of instructions.
    optimized: u64,
    baseline: u64,
}

const SOURCE: &str = "line one\nline two\r\nthree\rfour\n";

fn program(version: Version) -> Program {
    let (world, layout) = (World::new(), layout(version));
    let types = &layout.types;
    let map = |kind| world.map(kind);
    let arrays = map(types.arrays[0]);
    let byte_arrays = map(types.byte_arrays[0]);
    let script = world.object(&[map(types.script), 0, 0, 0, 0, 0, 0, 0, 0]);
    world.set(script, layout.script_source, world.string(SOURCE));
    world.set(script, layout.script_name, world.string("file:///srv/a%20b.js"));
    let scope = |name: &str, start: u64| {
        let mut words = vec![map(types.scope), 0, 0, small(2)];
        if layout.positions_first {
            words.extend([small(start), small(start + 5)]);
        }
        words.extend([world.string("x"), world.string("y"), small(1), small(1)]);
        words.push(world.string(name));
        if !layout.positions_first {
            words.extend([0, small(start), small(start + 5)]);
        }
        world.object(&words)
    };
    let shared = |name: u64, data: u64| {
        let it = world.object(&[map(types.shared), 0, 0, 0, 0, 0, 0, 0]);
        world.set(it, layout.name, name);
        world.set(it, layout.data[0], data);
        world.set(it, layout.script, script);
        it
    };
    let bytecode = |offset: u64| {
        let it =
            world.object(&[map(types.bytecode), small(40), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let table = world.bytes(byte_arrays, &position_table(&layout, offset, 0));
        world.set(it, layout.bytecode_positions, table);
        it
    };
    let function = |shared: u64| {
        let it = world.object(&[map(types.first_function), 0, 0, 0, 0, 0, 0]);
        world.set(it, layout.shared, shared);
        it
    };
    let stream = map(types.stream);
    let code = |kind: u32, deopt: u64, positions: u64| {
        let it = world.object(&[map(types.code), 0, 0, 0, 0, 0, 0, 0, 0]);
        let header = world.object(&vec![0; (layout.code.header / 8) as usize + 16]);
        let start = header - 1 + layout.code.header;
        world.set(header, 0, stream);
        world.set(header, 8, it);
        world.set(it, layout.code.deopt, deopt);
        world.set(it, layout.code.positions, positions);
        world.set(it, layout.code.start, start);
        world.set_half(it, layout.code.flags, kind);
        world.set_half(it, layout.code.size, 128);
        (it, start)
    };
    let told_bytecode = bytecode(11);
    let told = shared(scope("told", 3), told_bytecode);
    // The bytecode is reached by the baseline code. The first byte is an LdaZero-like one.
    let based_bytecode = bytecode(20);
    world.set(based_bytecode, layout.bytecode_data & !7, 0x0d0d_0d0d_0d0d_0d0d);
    world.set(based_bytecode, (layout.bytecode_data & !7) + 8, 0x0d0d_0d0d_0d0d_0d0d);
    let lengths = world.bytes(byte_arrays, &[8, 100, 20]);
    let (baseline_code, baseline) = code(layout.baseline, based_bytecode, lengths);
    let based = shared(world.string("based"), baseline_code);
    let (inner, outer) = (shared(world.string("inner"), small(1)), shared(scope("outer", 1), 0));
    let inlining: Vec<u8> =
        [(u64::from(25u32) + 1) << 1, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let inlining = world.bytes(byte_arrays, &inlining);
    let literals = world.object(&[arrays, small(1), inner]);
    let data = world.object(&[arrays, small(8), 0, 0, literals, 0, 0, 0, outer, inlining]);
    let positions = world.bytes(byte_arrays, &position_table(&layout, 5, 1));
    let (_, optimized) = code(layout.baseline + 2, data, positions);
    let built_in = function(shared(world.string("map"), small(MAP)));
    Program {
        told: function(told),
        bytecode: told_bytecode,
        based: function(based),
        based_bytecode,
        built_in,
        literals,
        optimized,
        baseline,
        world,
        layout,
    }
}

fn reader(program: &Program) -> V8<&World> {
    let functions: Vec<u8> = (0..600u32)
        .flat_map(|nth| [(64 * nth).to_le_bytes(), 40u32.to_le_bytes(), [0; 4]].concat())
        .collect();
    struct Bytes(Vec<u8>);
    impl ReadMemory for Bytes {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            let from = (address as usize).min(self.0.len());
            let length = buf.len().min(self.0.len() - from);
            buf[..length].copy_from_slice(&self.0[from..from + length]);
            length
        }
    }
    let table = Table::read(&Bytes([vec![0; 24], functions].concat()), BUILTINS, 0);
    let mut v8 = V8::new(
        &program.world,
        program.layout.clone(),
        table.expect("a table"),
        Names::default(),
        Files::default(),
        7,
    );
    let maps = "50000000-50010000 r-xp 00000000 fd:01 7 /node\n60000000-60100000 rwxp 0 00:00 0 \n";
    let maps = Maps::parse(maps.as_bytes());
    v8.builtins.mapped(&maps, &v8.files, 7);
    v8.generated = generated(&maps);
    v8
}

/// The words of a frame: what it returns to, below that its link, context, function, two more, and
/// the bytecode's offset.
fn stack(function: u64, bytecode: u64, offset: u64) -> impl FnMut(u64) -> Option<u64> {
    let words = [0, 0, 0, offset, bytecode, 0, function, 0x6000_0001, STACK + 512, 0x1234_5678];
    move |at| words.get((at.checked_sub(STACK)? / 8) as usize).copied()
}

/// Leaves the frame at `pc` and returns its functions in words, and where it leads.
fn leave(
    v8: &mut V8<&World>,
    now: Ns,
    pc: u64,
    general: Option<General>,
    mut stack: impl FnMut(u64) -> Option<u64>,
) -> (String, Leave) {
    let mut out = Vec::new();
    v8.begin_at(now, Ns::MAX, false);
    let exact = general.is_some();
    let place = Place { pc, exact, sp: STACK, rbp: Some(STACK + 64), general };
    let left = v8.leave_frame(place, &mut stack, &mut out);
    (shown(v8, &out), left)
}

/// Returns frames in words.
fn shown(v8: &V8<&World>, frames: &[RawFrame]) -> String {
    let words = frames.iter().map(|frame| match frame.decode() {
        FrameCode::Code { offset, .. } => format!("builtin {offset:x}"),
        FrameCode::Marker { .. } => frame.marker_text(None).unwrap_or_default(),
        _ => {
            let named = v8.names.named(*frame).expect("a name");
            let word = |at: &Location| {
                for text in [&at.function, &at.module] {
                    assert!(text.len() <= NAME_CAP && !text.chars().any(char::is_control));
                }
                let tier = at.tier.map_or("", Tier::word);
                format!("{} {}:{} {tier}", at.function, at.module, at.line.unwrap_or(0))
            };
            named.locations.iter().map(word).collect::<Vec<_>>().join(" > ")
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

const CALLER: Leave = Leave::To { pc: 0x1234_5678, sp: STACK + 80, rbp: Some(STACK + 512) };

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
        assert!(name.starts_with("(anonymous) "), "{name}");
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
            v8.await_chain();
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
