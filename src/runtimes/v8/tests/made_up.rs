//! A made-up program of each version of V8: functions in every kind of code, in memory of words.

use std::cell::{Cell, RefCell};

use super::super::bytecode_sizes::Version;
use super::super::layout::Layout;
use super::*;

pub(super) const VERSIONS: [Version; 4] = [(11, 3), (12, 4), (13, 6), (14, 6)];
/// Where the made-up heap and stack begin, and their size.
pub(super) const HEAP: u64 = 0x6000_0000;
pub(super) const WORDS: usize = 4096;
pub(super) const STACK: u64 = 0x7000_0000;
/// Built-in code: 600 functions of 40 bytes, 64 bytes apart.
pub(super) const BUILTINS: u64 = 0x5000_0000;
pub(super) const TRAMPOLINE: u64 = BUILTINS + 64 * 7 + 20;
/// The first type of contexts; there are two.
pub(super) const CONTEXT_TYPE: u16 = 150;
/// V8's number of `Array.prototype.map`.
pub(super) const MAP: u64 = 9;

/// Types of objects: numbers as their names say.
pub(super) fn constant(version: Version, name: &str) -> Option<i32> {
    const TYPES: [&str; 23] = [
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
        "WeakArrayList__WEAK_ARRAY_LIST",
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

pub(super) fn kind(version: Version, name: &str) -> u16 {
    constant(version, &format!("type_{name}_TYPE")).expect("a type") as u16
}

pub(super) fn layout(version: Version) -> Layout {
    Layout::of(version, &|name| constant(version, name)).expect("a layout")
}

pub(super) fn small(value: u64) -> u64 {
    value << 32
}

/// Memory of a made-up program.
pub(super) struct World {
    pub(super) words: RefCell<Vec<u64>>,
    pub(super) used: Cell<usize>,
    pub(super) reads: Cell<u32>,
    /// Words that change at a read, by its number.
    pub(super) changes: RefCell<(u32, Vec<(usize, u64)>)>,
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
    pub(super) fn new() -> World {
        World {
            words: RefCell::new(vec![0; WORDS]),
            used: Cell::new(0),
            reads: Cell::new(0),
            changes: RefCell::default(),
        }
    }

    /// Writes an object's words and returns its address plus 1.
    pub(super) fn object(&self, words: &[u64]) -> u64 {
        let at = self.used.get();
        self.used.set(at + words.len());
        self.words.borrow_mut()[at..at + words.len()].copy_from_slice(words);
        HEAP + 8 * at as u64 + 1
    }

    pub(super) fn set(&self, object: u64, offset: u64, word: u64) {
        self.words.borrow_mut()[((object - 1 + offset - HEAP) / 8) as usize] = word;
    }

    /// Sets four bytes.
    pub(super) fn set_half(&self, object: u64, offset: u64, half: u32) {
        let at = ((object - 1 + offset - HEAP) / 8) as usize;
        let (word, shift) = (self.words.borrow()[at], 8 * (offset % 8));
        self.words.borrow_mut()[at] = word & !(0xffff_ffff << shift) | u64::from(half) << shift;
    }

    pub(super) fn map(&self, kind: u16) -> u64 {
        self.object(&[0, u64::from(kind) << 32, 0])
    }

    pub(super) fn bytes(&self, map: u64, bytes: &[u8]) -> u64 {
        let mut words = vec![map, small(bytes.len() as u64)];
        words.extend(packed(bytes));
        self.object(&words)
    }

    pub(super) fn string(&self, text: &str) -> u64 {
        let mut words = vec![self.map(8), (text.len() as u64) << 32];
        words.extend(packed(text.as_bytes()));
        self.object(&words)
    }
}

pub(super) fn packed(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

/// Encodes one entry of a position table that begins before the code.
pub(super) fn position_table(layout: &Layout, offset: u64, inlined: u64) -> Vec<u8> {
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
pub(super) struct Program {
    pub(super) world: World,
    pub(super) layout: Layout,
    pub(super) told: u64,
    pub(super) bytecode: u64,
    pub(super) based: u64,
    pub(super) based_bytecode: u64,
    pub(super) built_in: u64,
    /// What the optimised code has inlined.
    pub(super) literals: u64,
    /// Addresses of instructions.
    pub(super) optimized: u64,
    pub(super) baseline: u64,
}

pub(super) const SOURCE: &str = "line one\nline two\r\nthree\rfour\n";

pub(super) fn program(version: Version) -> Program {
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

pub(super) fn reader(program: &Program) -> V8<&World> {
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
pub(super) fn stack(function: u64, bytecode: u64, offset: u64) -> impl FnMut(u64) -> Option<u64> {
    let words = [0, 0, 0, offset, bytecode, 0, function, 0x6000_0001, STACK + 512, 0x1234_5678];
    move |at| words.get((at.checked_sub(STACK)? / 8) as usize).copied()
}

/// Leaves the frame at `pc` and returns its functions in words, and where it leads.
pub(super) fn leave(
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
pub(super) fn shown(v8: &V8<&World>, frames: &[RawFrame]) -> String {
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

pub(super) const CALLER: Leave =
    Leave::To { pc: 0x1234_5678, sp: STACK + 80, rbp: Some(STACK + 512) };
