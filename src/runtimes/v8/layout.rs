//! Constants of one V8: what its exported symbols for debuggers say (`v8dbg_*`), and by version
//! what they do not.
//!
//! Offsets are those of the object without its tag. They hold for V8 as Node builds it on x86-64:
//! whole pointers, small integers in the upper half of a word.

use crate::runtimes::v8::bytecode_sizes::{self, Sizes, Version};
use crate::runtimes::v8::unreadable::Unreadable;
use crate::unwinder::awaiting::AwaitTypes;

/// What the symbols do not say, by version: byte offsets.
#[derive(Clone, Copy)]
struct Known {
    version: Version,
    /// Where a `SharedFunctionInfo` has its code or bytecode; 0: there is no second place.
    data: [u64; 2],
    name: u64,
    script: u64,
    code: Code,
    bytecode_positions: u64,
    /// In a `ScopeInfo`, the function's place in the source stands before its variables.
    positions_first: bool,
    /// A position table has one more flag in its code offsets.
    flagged: bool,
    /// Where a reaction to a promise leads to the next one.
    next_reaction: u64,
    /// See [`Awaiting::resolve`].
    resolve: (usize, usize),
}

/// Node 20, 22, 24 and 26.
const KNOWN: [Known; 4] = [
    Known {
        version: (11, 3),
        data: [8, 0],
        name: 16,
        script: 32,
        code: Code { deopt: 16, positions: 24, start: 40, flags: 48, size: 56, header: 16 },
        bytecode_positions: 32,
        positions_first: false,
        flagged: false,
        next_reaction: 8,
        resolve: (2182, 1272),
    },
    Known {
        version: (12, 4),
        data: [8, 0],
        name: 16,
        script: 32,
        code: Code { deopt: 8, positions: 16, start: 40, flags: 48, size: 52, header: 32 },
        bytecode_positions: 24,
        positions_first: false,
        flagged: false,
        next_reaction: 16,
        resolve: (2304, 1322),
    },
    Known {
        version: (13, 6),
        data: [8, 16],
        name: 24,
        script: 40,
        code: Code { deopt: 8, positions: 16, start: 40, flags: 52, size: 56, header: 32 },
        bytecode_positions: 24,
        positions_first: true,
        flagged: false,
        next_reaction: 16,
        resolve: (2384, 1374),
    },
    Known {
        version: (14, 6),
        data: [8, 16],
        name: 24,
        script: 40,
        code: Code { deopt: 8, positions: 16, start: 40, flags: 52, size: 56, header: 32 },
        bytecode_positions: 24,
        positions_first: true,
        flagged: true,
        next_reaction: 16,
        resolve: (2415, 1154),
    },
];

/// Length of an array, and its first element: equal in all versions.
pub const LENGTH: u64 = 8;
pub const ELEMENTS: u64 = 16;

/// A `Code` object, and the header before the instructions of its `InstructionStream`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// Data for deoptimisation; of baseline code its bytecode.
    pub deopt: u64,
    /// Table of positions; of baseline code that of bytecode offsets.
    pub positions: u64,
    pub start: u64,
    pub flags: u64,
    pub size: u64,
    pub header: u64,
}

/// Types of objects. A map says the type of its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Types {
    pub first_function: u16,
    pub last_function: u16,
    pub shared: u16,
    /// Stands for a `SharedFunctionInfo` among objects of the trusted space.
    pub shared_wrapper: Option<u16>,
    pub script: u16,
    pub debug_info: u16,
    pub scope: u16,
    pub code: u16,
    pub stream: u16,
    pub bytecode: u16,
    pub interpreter_data: u16,
    pub map: u16,
    /// Of lists of weak references.
    pub weak_list: Option<u16>,
    /// Of arrays of objects.
    pub arrays: Vec<u16>,
    /// Of arrays of bytes.
    pub byte_arrays: Vec<u16>,
}

/// Indices in the data for deoptimisation of optimised code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deopt {
    pub literals: u64,
    pub shared: u64,
    pub inlining: u64,
}

/// Where prototypes, and the methods that they hold, are found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classes {
    /// Offset in a map.
    pub prototype: u64,
    /// Offset in a map of a byte: the words of an object.
    pub size: u64,
    /// Offset in a map.
    pub descriptors: u64,
    /// Bytes before the first descriptor.
    pub header: u64,
    /// The first type of objects that may have a class.
    pub first_object: u16,
    pub pair: u16,
    pub properties: u16,
    pub descriptor_arrays: [u16; 2],
    /// The first and the last type of contexts.
    pub contexts: [u16; 2],
}

impl Classes {
    /// Returns what this V8 has exported; `None` if something is missing.
    fn of(constant: &dyn Fn(&str) -> Option<i32>) -> Option<Classes> {
        let kind = |name: &str| kind_of(constant(&format!("type_{name}_TYPE"))?).ok();
        let offset = |name: &str| offset_of(constant(&format!("class_{name}"))?).ok();
        let descriptors = kind("DescriptorArray__DESCRIPTOR_ARRAY")?;
        let strong = kind("StrongDescriptorArray__STRONG_DESCRIPTOR_ARRAY").unwrap_or(descriptors);
        Some(Classes {
            prototype: offset("Map__prototype__Object")?,
            size: offset("Map__instance_size_in_words__char")?,
            descriptors: offset("Map__instance_descriptors_offset")?,
            header: offset("DescriptorArray__header_size__uintptr_t")?,
            first_object: kind("JSObject__JS_OBJECT")?,
            pair: kind("AccessorPair__ACCESSOR_PAIR")?,
            properties: kind("PropertyArray__PROPERTY_ARRAY")?,
            descriptor_arrays: [descriptors, strong],
            contexts: [
                kind_of(constant("FirstContextType")?).ok()?,
                kind_of(constant("LastContextType")?).ok()?,
            ],
        })
    }
}

/// Objects that lead from an async function to the one that awaits it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Awaiting {
    pub types: AwaitTypes,
    /// The first and the last type of contexts.
    pub contexts: [u16; 2],
    /// Offset in a function.
    pub context: u64,
    /// Offset in a reaction.
    pub next_reaction: u64,
    /// V8's number of `PromiseCapabilityDefaultResolve`, in a V8 with this number of built-in
    /// functions.
    pub resolve: (usize, usize),
}

impl Awaiting {
    /// Returns what this V8 has exported; `None` if something is missing.
    fn of(known: &Known, constant: &dyn Fn(&str) -> Option<i32>) -> Option<Awaiting> {
        let kind = |name: &str| kind_of(constant(&format!("type_{name}_TYPE"))?).ok();
        let types = AwaitTypes {
            function: kind("JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT")?,
            generator: kind("JSAsyncGeneratorObject__JS_ASYNC_GENERATOR_OBJECT")?,
            promise: kind("JSPromise__JS_PROMISE")?,
            reaction: kind("PromiseReaction__PROMISE_REACTION")?,
            capability: kind("PromiseCapability__PROMISE_CAPABILITY")?,
            request: kind("AsyncGeneratorRequest__ASYNC_GENERATOR_REQUEST")?,
        };
        Some(Awaiting {
            types,
            contexts: [
                kind_of(constant("FirstContextType")?).ok()?,
                kind_of(constant("LastContextType")?).ok()?,
            ],
            context: offset_of(constant("class_JSFunction__context__Context")?).ok()?,
            next_reaction: known.next_reaction,
            resolve: known.resolve,
        })
    }

    /// Returns V8's number of the built-in function that resolves a promise, if it is known where
    /// there are this many built-in functions.
    pub fn resolver(&self, builtins: usize) -> Option<usize> {
        let (count, number) = self.resolve;
        (builtins == count).then_some(number)
    }
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub version: Version,
    pub types: Types,
    /// Offset of a map's instance type.
    pub instance_type: u64,
    /// Offset of a function's `SharedFunctionInfo`.
    pub shared: u64,
    pub data: [u64; 2],
    pub name: u64,
    pub script: u64,
    pub script_name: u64,
    pub script_source: u64,
    pub line_ends: u64,
    pub code: Code,
    /// Kind of baseline code among kinds of code, and their mask; larger kinds are optimised.
    pub baseline: u32,
    pub kinds: u32,
    pub bytecode_positions: u64,
    pub bytecode_data: u64,
    pub deopt: Deopt,
    /// First index of a `ScopeInfo`'s variables.
    pub first_variable: u64,
    pub positions_first: bool,
    pub flagged: bool,
    /// Types of frames with a mark, and their names.
    pub frame_types: Vec<(u64, &'static str)>,
    /// `None`: methods have no class.
    pub classes: Option<Classes>,
    /// `None`: who awaits an async function is not shown.
    pub awaiting: Option<Awaiting>,
    pub sizes: &'static Sizes,
}

/// Names of types of frames; not all versions have all.
const FRAMES: &[&str] = &[
    "ApiAccessorExit",
    "ApiCallbackExit",
    "ApiConstructExit",
    "ApiIndexedAccessorExit",
    "ApiNamedAccessorExit",
    "BuiltinContinuation",
    "BuiltinExit",
    "Builtin",
    "CWasmEntry",
    "ConstructEntry",
    "Construct",
    "Entry",
    "Exit",
    "FastConstruct",
    "Internal",
    "Irregexp",
    "JavaScriptBuiltinContinuation",
    "JavaScriptBuiltinContinuationWithCatch",
    "JsToWasm",
    "Native",
    "StackSwitch",
    "Stub",
    "TurbofanStubWithContext",
    "WasmDebugBreak",
    "WasmExit",
    "Wasm",
    "WasmJspi",
    "WasmLiftoffSetup",
    "WasmSegmentStart",
    "WasmStackEntry",
    "WasmStackExit",
    "WasmToJs",
    "WasmToJsFunction",
];

/// The type of a frame at which JavaScript was entered from native code.
pub const ENTRIES: [&str; 2] = ["Entry", "ConstructEntry"];

const ARRAYS: &[&str] = &[
    "FixedArray__FIXED_ARRAY",
    "TrustedFixedArray__TRUSTED_FIXED_ARRAY",
    "ProtectedFixedArray__PROTECTED_FIXED_ARRAY",
    "WeakFixedArray__WEAK_FIXED_ARRAY",
    "TrustedWeakFixedArray__TRUSTED_WEAK_FIXED_ARRAY",
    "ProtectedWeakFixedArray__PROTECTED_WEAK_FIXED_ARRAY",
];

const BYTE_ARRAYS: &[&str] = &["ByteArray__BYTE_ARRAY", "TrustedByteArray__TRUSTED_BYTE_ARRAY"];

impl Layout {
    /// Returns the layout. `constant` returns the number behind an exported symbol, by its name
    /// without `v8dbg_`.
    pub fn of(
        version: Version,
        constant: &dyn Fn(&str) -> Option<i32>,
    ) -> Result<Layout, Unreadable> {
        let (major, minor) = version;
        let known = KNOWN.iter().find(|known| known.version == version).ok_or_else(|| {
            Unreadable::Refused(format!("the layout of V8 {major}.{minor} is not known"))
        })?;
        let number = |name: &str| {
            constant(name).ok_or_else(|| Unreadable::Refused(format!("its V8 lacks v8dbg_{name}")))
        };
        let kind = |name: &str| number(&format!("type_{name}_TYPE")).and_then(kind_of);
        let offset = |name: &str| number(&format!("class_{name}")).and_then(offset_of);
        let index = |name: &str| number(name).and_then(index_of);
        let optional = |names: &[&str]| -> Vec<u16> {
            let number = |name: &&str| constant(&format!("type_{name}_TYPE"));
            names.iter().filter_map(number).filter_map(|number| kind_of(number).ok()).collect()
        };
        let function = kind("JSFunction__JS_FUNCTION")?;
        let limits = (constant("FirstJSFunctionType"), constant("LastJSFunctionType"));
        let (first_function, last_function) = match limits {
            (Some(first), Some(last)) => (kind_of(first)?, kind_of(last)?),
            // The classes of functions of 11.3.
            _ => (function, function + 16),
        };
        let types = Types {
            first_function,
            last_function,
            shared: kind("SharedFunctionInfo__SHARED_FUNCTION_INFO")?,
            shared_wrapper: optional(&["SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER"])
                .first()
                .copied(),
            script: kind("Script__SCRIPT")?,
            debug_info: kind("DebugInfo__DEBUG_INFO")?,
            scope: kind("ScopeInfo__SCOPE_INFO")?,
            code: kind("Code__CODE")?,
            stream: kind("InstructionStream__INSTRUCTION_STREAM")?,
            bytecode: kind("BytecodeArray__BYTECODE_ARRAY")?,
            interpreter_data: kind("InterpreterData__INTERPRETER_DATA")?,
            map: kind("Map__MAP")?,
            weak_list: optional(&["WeakArrayList__WEAK_ARRAY_LIST"]).first().copied(),
            arrays: optional(ARRAYS),
            byte_arrays: optional(BYTE_ARRAYS),
        };
        let shared = index("DeoptimizationDataSharedFunctionInfoIndex")
            .or_else(|_| index("DeoptimizationDataWrappedSharedFunctionInfoIndex"))?;
        let frame_types = FRAMES.iter().filter_map(|name| {
            let number = constant(&format!("frametype_{name}Frame"))?;
            Some((u64::try_from(number).ok()?, *name))
        });
        let layout = Layout {
            version,
            types,
            instance_type: offset("Map__instance_type__uint16_t")?,
            shared: offset("JSFunction__shared__SharedFunctionInfo")?,
            data: known.data,
            name: known.name,
            script: known.script,
            script_name: offset("Script__name__Object")?,
            script_source: offset("Script__source__Object")?,
            line_ends: offset("Script__line_ends__Object")?,
            code: known.code,
            baseline: u32::try_from(number("CodeKindBaseline")?).unwrap_or(0),
            kinds: u32::try_from(number("CodeKindFieldMask")?).unwrap_or(0),
            bytecode_positions: known.bytecode_positions,
            bytecode_data: offset("BytecodeArray__data__uintptr_t")?,
            deopt: Deopt {
                literals: index("DeoptimizationDataLiteralArrayIndex")?,
                shared,
                inlining: index("DeoptimizationDataInliningPositionsIndex")?,
            },
            first_variable: index("scopeinfo_idx_first_vars")?,
            positions_first: known.positions_first,
            flagged: known.flagged,
            frame_types: frame_types.collect(),
            classes: Classes::of(constant),
            awaiting: Awaiting::of(known, constant),
            sizes: bytecode_sizes::of(version)
                .ok_or_else(|| Unreadable::Refused("its bytecodes are not known".into()))?,
        };
        layout.check()
    }

    /// Refuses numbers that the version cannot have.
    fn check(self) -> Result<Layout, Unreadable> {
        let odd = |what| Err(Unreadable::Refused(format!("its V8 has another layout of {what}")));
        let expected = if self.version == (11, 3) { (24, 54) } else { (32, 64) };
        match &self {
            it if (it.shared, it.bytecode_data) != expected => odd("functions"),
            it if it.baseline == 0 || it.kinds != 15 || it.baseline >= it.kinds => odd("code"),
            it if it.frame_type(ENTRIES[0]).is_none() => odd("frames"),
            it if it.types.arrays.is_empty() || it.types.byte_arrays.is_empty() => odd("arrays"),
            _ => Ok(self),
        }
    }

    /// Returns the number of a type of frame.
    pub fn frame_type(&self, name: &str) -> Option<u64> {
        self.frame_types.iter().find(|(_, found)| *found == name).map(|(number, _)| *number)
    }

    /// Returns the name of the type of frame that a mark says: twice the type.
    pub fn frame_name(&self, mark: u64) -> Option<&'static str> {
        let number = mark.is_multiple_of(2).then_some(mark / 2)?;
        self.frame_types.iter().find(|(found, _)| *found == number).map(|(_, name)| *name)
    }
}

/// Returns the type of objects that a constant says.
fn kind_of(number: i32) -> Result<u16, Unreadable> {
    let kind = u16::try_from(number).ok().filter(|kind| *kind != 0);
    kind.ok_or(Unreadable::Starting("types of objects"))
}

/// Largest offset of a field, bytes.
const OFFSET_MAX: i32 = 256;

/// Returns the offset of a field that a constant says, bytes.
fn offset_of(number: i32) -> Result<u64, Unreadable> {
    let offset = (0..OFFSET_MAX).contains(&number).then_some(number as u64);
    offset.ok_or_else(|| Unreadable::Refused("its V8 has fields that are too far".into()))
}

fn index_of(number: i32) -> Result<u64, Unreadable> {
    offset_of(number)
}
