//! Offsets and sizes in this virtual machine, from its own tables. Whatever the tables lack and
//! differs by version is in this file only. Versions: JDK 8 to 26 on x86-64.

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::vm_structs::{Missing, Structs};

/// The width of a number in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    Byte,
    Half,
    Int,
    Long,
}

/// A number in an object: its offset and width, sign extended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    pub at: usize,
    pub width: Width,
}

impl Number {
    /// Reads the number from the bytes of its object; 0 if it lies behind their end.
    pub fn of(self, object: &[u8]) -> i64 {
        let bytes = object.get(self.at..).unwrap_or_default();
        fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.first_chunk().copied().unwrap_or([0; N])
        }
        match self.width {
            Width::Byte => i64::from(first::<1>(bytes)[0]),
            Width::Half => i64::from(i16::from_le_bytes(first(bytes))),
            Width::Int => i64::from(i32::from_le_bytes(first(bytes))),
            Width::Long => i64::from_le_bytes(first(bytes)),
        }
    }
}

/// Where the list of code heaps is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heaps {
    /// JDK 8: the address of the pointer to the only heap.
    One(u64),
    /// Later: the address of the pointer to a growable array, and the offsets of its length and of
    /// its elements.
    Many { array: u64, length: u64, data: u64 },
}

#[derive(Clone, Debug)]
pub struct CodeHeap {
    pub heaps: Heaps,
    pub memory: u64,
    pub segmap: u64,
    pub log2_segment_size: u64,
    pub low: u64,
    pub low_boundary: u64,
    pub high_boundary: u64,
    pub block_used: u64,
    pub block_size: u64,
}

/// Where the code of a blob begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodePlace {
    Pointer(Number),
    FromBlob(Number),
}

impl CodePlace {
    pub fn of(self, blob: u64, bytes: &[u8]) -> u64 {
        match self {
            CodePlace::Pointer(number) => number.of(bytes) as u64,
            CodePlace::FromBlob(number) => blob.wrapping_add_signed(number.of(bytes)),
        }
    }
}

/// Where the debug information of a compiled method lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugInfo {
    /// JDK 8 to 22: in the blob. Metadata and PcDescs begin and end at these distances from it.
    InBlob { metadata: Number, scopes: CodePlace, pcs: Number, pcs_end: Number },
    /// JDK 23 and later: outside the code cache. `metadata`, where the blob has it, begins at
    /// `mutable` plus the relocations.
    Apart {
        data: Number,
        size: Number,
        pcs: Number,
        scopes: Number,
        mutable: Number,
        mutable_size: Number,
        relocations: Number,
    },
}

#[derive(Clone, Debug)]
pub struct Blob {
    /// Bytes to read for a header: the size of the largest one.
    pub header: usize,
    pub name: Number,
    pub size: Number,
    pub code: CodePlace,
    pub code_end: CodePlace,
    pub frame_size: Number,
    pub frame_complete: Number,
    pub method: Number,
    pub compile_id: Number,
    pub level: Number,
    pub orig_pc: Number,
    pub verified_entry: CodePlace,
    pub deopt: Vec<CodePlace>,
    pub debug: DebugInfo,
    /// Where the table of exception handlers begins, and ends if not at the PcDescs. Both have the
    /// same base as the debug information.
    pub handlers: Option<(Number, Option<Number>)>,
}

impl Blob {
    /// Whether two headers belong to the same code; `compiled`: a method's. Other bytes of a header
    /// change while the code lives: hotness, whether it may still be entered, marks of the
    /// collector. No two compilations have the same compile id. A native wrapper may have none, but
    /// belongs to one method.
    pub fn same(&self, compiled: bool, one: &[u8], other: &[u8]) -> bool {
        let place = |place: CodePlace| match place {
            CodePlace::Pointer(number) | CodePlace::FromBlob(number) => number,
        };
        let debug = match self.debug {
            DebugInfo::InBlob { metadata, scopes, pcs, pcs_end } => {
                [metadata, place(scopes), pcs, pcs_end]
            }
            DebugInfo::Apart { data, size, pcs, mutable, .. } => [data, size, pcs, mutable],
        };
        let shape = [
            self.name,
            self.size,
            place(self.code),
            place(self.code_end),
            self.frame_size,
            self.frame_complete,
        ];
        let method =
            [self.method, self.compile_id, self.level, self.orig_pc, place(self.verified_entry)];
        let of_method = method.into_iter().chain(debug).filter(|_| compiled);
        one.len() == other.len()
            && shape.into_iter().chain(of_method).all(|number| number.of(one) == number.of(other))
    }
}

#[derive(Clone, Debug)]
pub struct PcDesc {
    pub size: usize,
    pub pc: Number,
    pub scope: Number,
}

#[derive(Clone, Debug)]
pub struct Method {
    pub const_method: Number,
    pub access_flags: Number,
    pub const_size: usize,
    pub constants: Number,
    pub code_size: Number,
    pub name_index: Number,
    pub flags: Number,
    pub pool_size: u64,
    pub pool_holder: u64,
    /// In the constant pool (JDK 15 and later), or in the class that holds it.
    pub file_in_pool: Option<u64>,
    pub file_in_holder: Option<u64>,
    pub klass_name: u64,
    pub symbol_length: u64,
    /// The length is the upper half of a word (JDK 12 to 16).
    pub symbol_length_shared: bool,
    pub symbol_body: u64,
}

/// Slots of an interpreter frame, in words from rbp (src/hotspot/cpu/x86/frame_x86.hpp).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interpreter {
    pub sender_sp: i64,
    pub method: i64,
    pub bytecode: i64,
}

/// Where the list of threads is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadList {
    /// JDK 8 and 11: a linked list.
    Linked { first: u64, next: u64 },
    /// Later: an array.
    Array { list: u64, length: u64, threads: u64 },
}

#[derive(Clone, Debug)]
pub struct Threads {
    pub list: ThreadList,
    pub os_thread: u64,
    pub thread_id: u64,
    pub object: u64,
    /// The field is a handle: the object is behind one more pointer.
    pub object_is_handle: bool,
    /// Where the base of its stack (the higher end) and its size are.
    pub stack: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub struct Layout {
    /// 8, 11, 17, ...
    pub major: u32,
    /// Bytes that compressed numbers never use, see [`super::unsigned5`].
    pub excluded: u8,
    pub code_heap: CodeHeap,
    pub blob: Blob,
    pub pc_desc: PcDesc,
    pub method: Method,
    pub interpreter: Interpreter,
    pub threads: Threads,
    /// The address of a variable with the return address of the call stub, by which native code
    /// enters Java.
    pub call_stub_return: u64,
}

impl Layout {
    pub fn of<M: ReadMemory>(memory: &M, structs: &Structs) -> Result<Layout, Missing> {
        let s = structs;
        let major = major(memory, s)?;
        let number = |owner: &str, name: &str, width| {
            Ok(Number { at: s.offset(owner, name)? as usize, width })
        };
        let any = |names: &[(&str, &str)], width| {
            Ok(Number { at: s.offset_of_any(names)? as usize, width })
        };
        let compiled = |name| [("nmethod", name), ("CompiledMethod", name)];
        Ok(Layout {
            major,
            excluded: u8::from(major >= 20),
            code_heap: code_heap(s)?,
            blob: Blob {
                header: ["nmethod", "CodeBlob"]
                    .iter()
                    .filter_map(|kind| s.size(kind).ok())
                    .max()
                    .unwrap_or(0)
                    .clamp(64, 1024) as usize,
                name: number("CodeBlob", "_name", Width::Long)?,
                size: number("CodeBlob", "_size", Width::Int)?,
                code: match s.offset("CodeBlob", "_code_begin") {
                    Ok(_) => CodePlace::Pointer(number("CodeBlob", "_code_begin", Width::Long)?),
                    Err(_) => CodePlace::FromBlob(number("CodeBlob", "_code_offset", Width::Int)?),
                },
                code_end: match s.offset("CodeBlob", "_code_end") {
                    Ok(_) => CodePlace::Pointer(number("CodeBlob", "_code_end", Width::Long)?),
                    Err(_) => CodePlace::FromBlob(number("CodeBlob", "_data_offset", Width::Int)?),
                },
                frame_size: number("CodeBlob", "_frame_size", Width::Int)?,
                // 16 bits since JDK 25.
                frame_complete: match s.field("CodeBlob", "_frame_complete_offset") {
                    Some(field) if field.kind == "int16_t" => {
                        number("CodeBlob", "_frame_complete_offset", Width::Half)?
                    }
                    _ => number("CodeBlob", "_frame_complete_offset", Width::Int)?,
                },
                method: any(&compiled("_method"), Width::Long)?,
                compile_id: any(&compiled("_compile_id"), Width::Int)?,
                // An int, or a byte since JDK 25: the levels are 0 to 4.
                level: any(&compiled("_comp_level"), Width::Byte)?,
                orig_pc: any(&compiled("_orig_pc_offset"), Width::Int)?,
                verified_entry: match s.offset("nmethod", "_verified_entry_point") {
                    Ok(_) => {
                        CodePlace::Pointer(number("nmethod", "_verified_entry_point", Width::Long)?)
                    }
                    // Relative to the code; see `code_cache::Nmethod`.
                    Err(_) => CodePlace::FromBlob(number(
                        "nmethod",
                        "_verified_entry_offset",
                        Width::Half,
                    )?),
                },
                deopt: deopt(s),
                debug: debug(s)?,
                handlers: handlers(s),
            },
            pc_desc: PcDesc {
                size: s.size("PcDesc")?.clamp(8, 64) as usize,
                pc: number("PcDesc", "_pc_offset", Width::Int)?,
                scope: number("PcDesc", "_scope_decode_offset", Width::Int)?,
            },
            method: method(s)?,
            interpreter: Interpreter {
                sender_sp: -1,
                method: -3,
                bytecode: if major >= 9 { -8 } else { -7 },
            },
            threads: threads(s)?,
            call_stub_return: s.address("StubRoutines", "_call_stub_return_address")?,
        })
    }
}

/// Returns the release. `JDK_Version` has it up to 21; there `Abstract_VM_Version` has HotSpot's
/// own number for JDK 8.
fn major<M: ReadMemory>(memory: &M, s: &Structs) -> Result<u32, Missing> {
    if let (Ok(current), Ok(at)) =
        (s.address("JDK_Version", "_current"), s.offset("JDK_Version", "_major"))
    {
        let mut byte = [0];
        if memory.read_exact(current.wrapping_add(at), &mut byte).is_some() && byte[0] != 0 {
            return Ok(u32::from(byte[0]));
        }
    }
    let at = s.address("Abstract_VM_Version", "_vm_major_version")?;
    match memory.read_u64(at).map(|word| word as u32) {
        Some(major) if (8..1000).contains(&major) => Ok(major),
        _ => Err(Missing("Abstract_VM_Version::_vm_major_version".into())),
    }
}

fn code_heap(s: &Structs) -> Result<CodeHeap, Missing> {
    let heaps = match s.address("CodeCache", "_heaps") {
        Ok(array) => Heaps::Many {
            array,
            length: s.offset_of_any(&[
                ("GrowableArrayBase", "_len"),
                ("GenericGrowableArray", "_len"),
            ])?,
            data: s.offset("GrowableArray<int>", "_data")?,
        },
        Err(_) => Heaps::One(s.address("CodeCache", "_heap")?),
    };
    Ok(CodeHeap {
        heaps,
        memory: s.offset("CodeHeap", "_memory")?,
        segmap: s.offset("CodeHeap", "_segmap")?,
        log2_segment_size: s.offset("CodeHeap", "_log2_segment_size")?,
        low: s.offset("VirtualSpace", "_low")?,
        low_boundary: s.offset("VirtualSpace", "_low_boundary")?,
        high_boundary: s.offset("VirtualSpace", "_high_boundary")?,
        block_used: s.offset("HeapBlock::Header", "_used")?,
        block_size: s.size("HeapBlock")?,
    })
}

/// Returns the handlers that a frame to be deoptimised returns to; a version may have none.
fn deopt(s: &Structs) -> Vec<CodePlace> {
    let names = [
        "_deopt_handler_begin",
        "_deopt_mh_handler_begin",
        "_deopt_handler_offset",
        "_deopt_mh_handler_offset",
        "_deoptimize_offset",
        "_deoptimize_mh_offset",
        "_deopt_handler_entry_offset",
    ];
    let owners = ["nmethod", "CompiledMethod"];
    let found = names.iter().flat_map(|name| owners.iter().map(move |owner| (*owner, *name)));
    found
        .filter_map(|(owner, name)| {
            let at = s.offset(owner, name).ok()? as usize;
            let pointer = name.ends_with("_begin");
            let number = Number { at, width: if pointer { Width::Long } else { Width::Int } };
            Some(if pointer { CodePlace::Pointer(number) } else { CodePlace::FromBlob(number) })
        })
        .collect()
}

fn debug(s: &Structs) -> Result<DebugInfo, Missing> {
    let int = |owner: &str, name: &str| {
        Ok(Number { at: s.offset(owner, name)? as usize, width: Width::Int })
    };
    if s.offset("nmethod", "_immutable_data").is_ok() {
        let long = |owner: &str, name: &str| {
            Ok(Number { at: s.offset(owner, name)? as usize, width: Width::Long })
        };
        return Ok(DebugInfo::Apart {
            data: long("nmethod", "_immutable_data")?,
            size: int("nmethod", "_immutable_data_size")?,
            pcs: int("nmethod", "_scopes_pcs_offset")?,
            scopes: int("nmethod", "_scopes_data_offset")?,
            mutable: long("CodeBlob", "_mutable_data")?,
            mutable_size: int("CodeBlob", "_mutable_data_size")?,
            relocations: int("CodeBlob", "_relocation_size")?,
        });
    }
    let scopes = match s.offset("CompiledMethod", "_scopes_data_begin") {
        Ok(at) => CodePlace::Pointer(Number { at: at as usize, width: Width::Long }),
        Err(_) => CodePlace::FromBlob(int("nmethod", "_scopes_data_offset")?),
    };
    Ok(DebugInfo::InBlob {
        metadata: int("nmethod", "_metadata_offset")?,
        scopes,
        pcs: int("nmethod", "_scopes_pcs_offset")?,
        pcs_end: int("nmethod", "_dependencies_offset")?,
    })
}

fn handlers(s: &Structs) -> Option<(Number, Option<Number>)> {
    let number = |name| {
        let at = s.offset("nmethod", name).ok()? as usize;
        // 16 bits since JDK 23.
        let width = if s.field("nmethod", name)?.kind == "u2" { Width::Half } else { Width::Int };
        Some(Number { at, width })
    };
    let apart = s.offset("nmethod", "_immutable_data").is_ok();
    Some((
        number("_handler_table_offset")?,
        if apart { None } else { Some(number("_nul_chk_table_offset")?) },
    ))
}

fn method(s: &Structs) -> Result<Method, Missing> {
    let number =
        |owner: &str, name: &str, width| Ok(Number { at: s.offset(owner, name)? as usize, width });
    let (symbol_length, symbol_length_shared) = match s.offset("Symbol", "_length") {
        Ok(at) => (at, false),
        Err(_) => (s.offset("Symbol", "_length_and_refcount")?, true),
    };
    let file_in_pool = s.offset("ConstantPool", "_source_file_name_index").ok();
    Ok(Method {
        const_method: number("Method", "_constMethod", Width::Long)?,
        access_flags: Number {
            at: s.offset_of_any(&[("Method", "_access_flags")])? as usize,
            width: Width::Int,
        },
        const_size: s.size("ConstMethod")?.clamp(32, 512) as usize,
        constants: number("ConstMethod", "_constants", Width::Long)?,
        code_size: number("ConstMethod", "_code_size", Width::Half)?,
        name_index: number("ConstMethod", "_name_index", Width::Half)?,
        // In all versions the lowest bit says that there is a line table.
        flags: Number {
            at: s.offset_of_any(&[("ConstMethod", "_flags._flags"), ("ConstMethod", "_flags")])?
                as usize,
            width: Width::Byte,
        },
        pool_size: s.size("ConstantPool")?.clamp(16, 512),
        pool_holder: s.offset("ConstantPool", "_pool_holder")?,
        file_in_pool,
        file_in_holder: match file_in_pool {
            Some(_) => None,
            None => Some(s.offset("InstanceKlass", "_source_file_name_index")?),
        },
        klass_name: s.offset("Klass", "_name")?,
        symbol_length,
        symbol_length_shared,
        symbol_body: s.offset("Symbol", "_body")?,
    })
}

fn threads(s: &Structs) -> Result<Threads, Missing> {
    let list = match s.address("ThreadsSMRSupport", "_java_thread_list") {
        Ok(list) => ThreadList::Array {
            list,
            length: s.offset("ThreadsList", "_length")?,
            threads: s.offset("ThreadsList", "_threads")?,
        },
        Err(_) => ThreadList::Linked {
            first: s.address("Threads", "_thread_list")?,
            next: s.offset("JavaThread", "_next")?,
        },
    };
    Ok(Threads {
        list,
        os_thread: s.offset_of_any(&[("JavaThread", "_osthread"), ("Thread", "_osthread")])?,
        thread_id: s.offset("OSThread", "_thread_id")?,
        object: s.offset("JavaThread", "_threadObj")?,
        object_is_handle: s
            .field("JavaThread", "_threadObj")
            .is_some_and(|field| field.kind.contains("Handle")),
        stack: s
            .offset("JavaThread", "_stack_base")
            .ok()
            .zip(s.offset("JavaThread", "_stack_size").ok()),
    })
}
