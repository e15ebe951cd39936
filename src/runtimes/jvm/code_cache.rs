//! The code cache: which blob contains an address, and what kind of code that is.

use rustc_hash::FxHashMap;

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::layout::{self, CodePlace, Heaps, Layout};

/// Maximum code heaps; a segmented code cache has three.
const HEAPS_MAX: u64 = 16;
/// Maximum hops back through the segment map: one leads over at most 254 segments, 32 KiB.
const HOPS_MAX: u32 = 4096;
/// Addresses of user code end here (x86-64, with four levels of page tables or five).
const USER_END: u64 = 1 << 56;
const SEGMENTS_AT_ONCE: u64 = 256;
/// The segment map's value for a segment that belongs to no blob.
const FREE: u8 = 0xff;

/// A range of addresses that is reserved for generated code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeHeap {
    /// The reserved range, from its first address to the one behind its last.
    pub low: u64,
    pub high: u64,
    segmap: u64,
    log2_segment: u32,
}

/// Returns the code heaps; none while the virtual machine is starting.
pub fn heaps<M: ReadMemory>(memory: &M, layout: &layout::CodeHeap) -> Vec<CodeHeap> {
    let pointers: Vec<u64> = match layout.heaps {
        Heaps::One(at) => memory.read_u64(at).into_iter().collect(),
        Heaps::Many { array, length, data } => {
            let array = memory.read_u64(array).unwrap_or(0);
            let count = memory
                .read_u64(array.wrapping_add(length))
                .map_or(0, |word| u64::from(word as u32))
                .min(HEAPS_MAX);
            let data = memory.read_u64(array.wrapping_add(data)).unwrap_or(0);
            (0..count).filter_map(|n| memory.read_u64(data.wrapping_add(8 * n))).collect()
        }
    };
    pointers
        .into_iter()
        .filter(|pointer| *pointer != 0)
        .filter_map(|pointer| heap(memory, layout, pointer))
        .collect()
}

fn heap<M: ReadMemory>(memory: &M, layout: &layout::CodeHeap, at: u64) -> Option<CodeHeap> {
    let word = |offset: u64| memory.read_u64(at.wrapping_add(offset));
    let low = word(layout.memory + layout.low_boundary)?;
    let high = word(layout.memory + layout.high_boundary)?;
    let segmap = word(layout.segmap + layout.low)?;
    let log2_segment = word(layout.log2_segment_size)? as u32;
    (low != 0
        && low < high
        && high <= USER_END
        && high - low <= 1 << 32
        && segmap != 0
        && (4..16).contains(&log2_segment))
    .then_some(CodeHeap { low, high, segmap, log2_segment })
}

impl CodeHeap {
    #[cfg(test)]
    pub fn made_up(low: u64, high: u64, segmap: u64) -> CodeHeap {
        CodeHeap { low, high, segmap, log2_segment: 7 }
    }

    pub fn contains(&self, pc: u64) -> bool {
        self.low <= pc && pc < self.high
    }

    /// Returns the start of the blob that contains `pc`.
    fn blob<M: ReadMemory>(&self, memory: &M, layout: &layout::CodeHeap, pc: u64) -> Option<u64> {
        let mut segment = (pc - self.low) >> self.log2_segment;
        let mut window: (u64, Vec<u8>) = (0, Vec::new());
        for _ in 0..HOPS_MAX {
            let tag = match segment.checked_sub(window.0).and_then(|at| window.1.get(at as usize)) {
                Some(tag) => *tag,
                None => {
                    let from = segment.saturating_sub(SEGMENTS_AT_ONCE - 1);
                    window = (from, vec![0; (segment - from + 1) as usize]);
                    memory.read_exact(self.segmap.checked_add(from)?, &mut window.1)?;
                    *window.1.last()?
                }
            };
            match tag {
                FREE => return None,
                0 => {
                    let block = self.low + (segment << self.log2_segment);
                    let mut used = [0];
                    memory.read_exact(block.checked_add(layout.block_used)?, &mut used)?;
                    return (used[0] != 0).then(|| block + layout.block_size);
                }
                hop => segment = segment.checked_sub(u64::from(hop))?,
            }
        }
        None
    }
}

/// What kind of code a blob holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A compiled method.
    Compiled(Nmethod),
    /// The wrapper that calls a native method (or a method handle intrinsic).
    NativeWrapper(Nmethod),
    Interpreter,
    /// Code that pushes nothing: entries of method tables, adapters between compiled and
    /// interpreted calls.
    Frameless,
    /// Any other code, with the name of its blob.
    Stub(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nmethod {
    /// Address of its `Method`.
    pub method: u64,
    pub compile_id: i32,
    /// 1 to 3 C1, 4 C2, 0 a native wrapper.
    pub level: u8,
    /// The entry behind the check of the receiver's class.
    pub verified_entry: u64,
    /// Distance from the stack pointer to where a frame to be deoptimised keeps its original pc.
    pub orig_pc: i64,
    /// The handlers to which such a frame returns instead.
    pub deopt: Vec<u64>,
}

/// One piece of generated code, with its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    pub start: u64,
    pub code: u64,
    pub code_end: u64,
    /// Size of a complete frame including the return address, bytes.
    pub frame_size: u64,
    /// Distance from `code` to where the frame is complete. Negative: never.
    pub frame_complete: i64,
    pub kind: Kind,
    /// The header's bytes in memory. Where they are equal it is the same code.
    pub header: Vec<u8>,
}

impl Blob {
    /// Returns the compiled method's data, if this is the code of a method.
    pub fn nmethod(&self) -> Option<&Nmethod> {
        match &self.kind {
            Kind::Compiled(nmethod) | Kind::NativeWrapper(nmethod) => Some(nmethod),
            _ => None,
        }
    }
}

/// The code heaps, with the names of blobs that were read.
pub struct CodeCache {
    pub heaps: Vec<CodeHeap>,
    /// Names by address: a blob's name is a constant of the virtual machine.
    names: FxHashMap<u64, String>,
}

const NAMES_MAX: usize = 4096;
const NAME_MAX: usize = 96;

impl CodeCache {
    pub fn new(heaps: Vec<CodeHeap>) -> CodeCache {
        CodeCache { heaps, names: FxHashMap::default() }
    }

    pub fn contains(&self, pc: u64) -> bool {
        self.heaps.iter().any(|heap| heap.contains(pc))
    }

    /// Returns the blob whose code contains `pc`.
    pub fn find<M: ReadMemory>(&mut self, memory: &M, layout: &Layout, pc: u64) -> Option<Blob> {
        let heap = self.heaps.iter().find(|heap| heap.contains(pc))?;
        let start = heap.blob(memory, &layout.code_heap, pc)?;
        let blob = self.read(memory, layout, start)?;
        (pc < start + layout.blob.size.of(&blob.header) as u64).then_some(blob)
    }

    fn read<M: ReadMemory>(&mut self, memory: &M, layout: &Layout, start: u64) -> Option<Blob> {
        let l = &layout.blob;
        let mut header = vec![0; l.header];
        let read = memory.read(start, &mut header);
        header.truncate(read);
        let name = self.name(memory, l.name.of(&header) as u64)?;
        let (code, code_end) = (l.code.of(start, &header), l.code_end.of(start, &header));
        let size = u64::try_from(l.size.of(&header)).ok()?;
        if !(start <= code && code <= code_end && code_end <= start.checked_add(size)?) {
            return None;
        }
        let compiled = |header: &[u8]| Nmethod {
            method: l.method.of(header) as u64,
            compile_id: l.compile_id.of(header) as i32,
            level: l.level.of(header) as u8,
            verified_entry: match l.verified_entry {
                CodePlace::Pointer(number) => number.of(header) as u64,
                CodePlace::FromBlob(number) => code.wrapping_add(number.of(header) as u16 as u64),
            },
            orig_pc: l.orig_pc.of(header),
            deopt: l
                .deopt
                .iter()
                .map(|place| place.of(start, header))
                .filter(|at| *at > start)
                .collect(),
        };
        let kind = match name.as_str() {
            "nmethod" => Kind::Compiled(compiled(&header)),
            "native nmethod" => Kind::NativeWrapper(compiled(&header)),
            "Interpreter" => Kind::Interpreter,
            name if name == "vtable chunks" || name.contains("adapters") => Kind::Frameless,
            _ => Kind::Stub(name),
        };
        let frame_size = u64::try_from(l.frame_size.of(&header)).unwrap_or(0).min(1 << 20) * 8;
        Some(Blob {
            start,
            code,
            code_end,
            frame_size,
            frame_complete: l.frame_complete.of(&header),
            kind,
            header,
        })
    }

    fn name<M: ReadMemory>(&mut self, memory: &M, at: u64) -> Option<String> {
        if let Some(name) = self.names.get(&at) {
            return Some(name.clone());
        }
        let mut bytes = [0; NAME_MAX];
        let read = memory.read(at, &mut bytes);
        let end = bytes[..read].iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&bytes[..end]).ok()?.to_owned();
        if name.is_empty() || self.names.len() >= NAMES_MAX {
            return None;
        }
        self.names.insert(at, name.clone());
        Some(name)
    }
}
