//! V8 on x86-64: JavaScript frames of Node, read from outside, of a program started without
//! options. Node 20, 22, 24 and 26.
//!
//! ```text
//! image           the mapped file that has V8; its constants
//! layout          offsets and types, by its exported constants and by version
//! unreadable      why a V8 cannot be read
//! builtins        built-in code: where it is mapped, its functions
//! heap            objects: tagged words, types, strings, arrays
//! functions       names, scripts and bytecode of functions
//! classes         the classes of methods
//! scripts         files and lines
//! code_objects    address -> generated code, with the functions inlined there
//! positions       code -> place in the source
//! bytecode_sizes  lengths of bytecodes
//! walk            leaves a frame
//! workers         names of worker threads
//! await_chain     functions that await an async function: on the stack
//! promises        and from one to the next
//! ```
//!
//! Everything is read while the target runs, and objects move. Every object is checked to have the
//! type that it must have. An interpreted frame is named only if its function has the bytecode that
//! the frame executes; compiled code says itself of which functions it is. Cached data is valid
//! for [`VALID_FOR`], then compared with memory again.

mod await_chain;
mod builtins;
pub mod bytecode_sizes;
mod classes;
mod code_objects;
mod functions;
mod heap;
mod image;
mod layout;
pub mod positions;
mod promises;
mod scripts;
mod unreadable;
mod walk;
mod workers;

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::monotonic;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::{Ns, RawFrame, RawName};
use crate::process::mapped_files::Files;
use crate::process::maps::{Backing, Maps};
use crate::process::memory::ReadMemory;
use crate::process::pid_namespaces::pid_inside;
use crate::process::threads::parse_stat;
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::replaced_code::Replaced;
use crate::unwinder::awaiting::{AwaitLayout, TakenObjects};
use crate::unwinder::interpreted::StackOwner;
use crate::unwinder::{Generated, Leave, Place};
use await_chain::Chains;
use builtins::{Builtins, Table};
use code_objects::Codes;
use functions::Functions;
use heap::Heap;
pub use image::Search;
use layout::Layout;
pub use unreadable::Unreadable;
use workers::Workers;

/// Time for which validated data stays valid: a tick at 100 Hz.
const VALID_FOR: Ns = 10_000_000;
/// Names of Node's program. A program may change that of its main thread.
const PROGRAMS: [&str; 2] = ["node", "nodejs"];
/// What Node 24 calls its main thread.
const MAIN_THREAD: &str = "MainThread";
/// Maximum pieces compared in one call.
const BATCH_MAX: usize = 256;
/// Maximum bytecode arrays whose functions are remembered.
const BYTECODES_MAX: usize = 1 << 16;

/// V8 in a process.
pub struct V8<M> {
    heap: Heap<M>,
    layout: Layout,
    builtins: Builtins,
    names: Names,
    files: Files,
    pid: u32,
    /// Address ranges of memory in which code is generated.
    generated: Vec<Range<u64>>,
    functions: Functions,
    codes: Codes,
    /// By the address of bytecode: the function that has it.
    by_bytecode: FxHashMap<u64, u64>,
    /// Numbers of built-in functions in which interpreted frames were found.
    trampolines: FxHashSet<usize>,
    stubs: FxHashMap<String, RawFrame>,
    chains: Chains,
    workers: Workers,
    /// The thread whose stack is walked; 0: unknown.
    tid: u32,
    epoch: u64,
    epoch_began: Ns,
    /// When the stack that is walked was copied.
    copied: Ns,
    replaced: Replaced,
}

impl<M: ReadMemory> V8<M> {
    /// Attaches to the V8 whose file is mapped at `image`, in the process `pid`.
    pub fn attach(
        memory: M,
        image: u64,
        names: Names,
        files: Files,
        pid: u32,
    ) -> Result<V8<M>, Unreadable> {
        let layout = image::layout(&memory, image)?;
        let table = image::builtins(&memory, image)?;
        Ok(V8::new(memory, layout, table, names, files, pid))
    }

    /// Creates a reader with empty caches.
    fn new(memory: M, layout: Layout, table: Table, names: Names, files: Files, pid: u32) -> V8<M> {
        let builtins = Builtins::new(table);
        V8 {
            chains: Chains::new(&layout, builtins.count()),
            heap: Heap::new(memory),
            layout,
            builtins,
            names,
            files,
            pid,
            generated: Vec::new(),
            functions: Functions::new(pid),
            codes: Codes::default(),
            by_bytecode: FxHashMap::default(),
            trampolines: FxHashSet::default(),
            stubs: FxHashMap::default(),
            workers: Workers::default(),
            tid: 0,
            epoch: 0,
            epoch_began: 0,
            copied: Ns::MAX,
            replaced: Replaced::default(),
        }
    }

    /// Starts a walk at `now` of a stack that was copied at `copied`. Data that was compared with
    /// memory before a running thread's stack was copied is compared again.
    fn begin_at(&mut self, now: Ns, copied: Ns, running: bool) {
        self.heap.begin(now);
        self.chains.begin();
        self.copied = copied;
        self.codes.second = now / 1_000_000_000;
        let is_due = now >= self.epoch_began.saturating_add(VALID_FOR);
        if is_due || running && (self.epoch_began..now).contains(&copied) {
            self.epoch += 1;
            self.epoch_began = now;
            (self.functions.epoch, self.codes.epoch) = (self.epoch, self.epoch);
            self.revalidate();
        }
    }

    /// Compares what was used in the last epoch with memory, as it is likely used again: in few
    /// calls, which is cheaper than one by one.
    fn revalidate(&mut self) {
        let V8 { heap, layout, functions, codes, .. } = self;
        let used = (std::mem::take(&mut functions.used), std::mem::take(&mut codes.used));
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        let mut read = |pieces: &[(u64, usize)]| {
            bytes.clear();
            bytes.resize(pieces.iter().map(|(_, length)| length).sum(), 0);
            heap.memory.read_pieces(pieces, &mut bytes).map(|()| std::mem::take(&mut bytes))
        };
        for used in used.0.chunks(BATCH_MAX / 3) {
            pieces.clear();
            pieces.extend(used.iter().flat_map(|at| functions.evidence_of(layout, *at)));
            let Some(bytes) = read(&pieces) else { continue };
            let length: usize = pieces.iter().take(3).map(|(_, length)| length).sum();
            for (at, bytes) in used.iter().zip(bytes.chunks(length)) {
                functions.found(layout, *at, bytes);
            }
        }
        for used in used.1.chunks(BATCH_MAX / 2) {
            pieces.clear();
            let used: Vec<(u64, [(u64, usize); 2])> = used
                .iter()
                .filter_map(|start| Some((*start, codes.evidence(layout, *start)?)))
                .collect();
            pieces.extend(used.iter().flat_map(|(_, evidence)| *evidence));
            let length = used.first().map_or(1, |(_, [a, b])| a.1 + b.1);
            let Some(bytes) = read(&pieces) else { continue };
            for ((start, _), bytes) in used.iter().zip(bytes.chunks(length)) {
                codes.found(layout, *start, bytes);
            }
        }
    }

    /// Returns the frame of code that is no function's.
    fn stub_frame(&mut self, name: &str) -> RawFrame {
        if let Some(frame) = self.stubs.get(name) {
            return *frame;
        }
        let location = Location {
            module: "[v8]".into(),
            ..Location::named(&format!("Stub:{name}"), FrameKind::Jit)
        };
        let frame = self.names.frame(vec![location]);
        self.stubs.insert(name.to_owned(), frame);
        frame
    }
}

/// Returns the id of the main thread, in the target's namespace, and its name, if it has only the
/// program's: before Node 24 threads have that, unless libuv names them.
fn main_thread(pid: u32, names: &Names) -> Option<(u32, RawName)> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    PROGRAMS.contains(&name.trim_end()).then_some(())?;
    Some((pid_inside(pid)?, names.thread_name(MAIN_THREAD)?))
}

/// Returns the memory in which code may be generated: runs of anonymous mappings of which at least
/// one is executable. V8 reserves a range and makes parts of it executable when it needs them.
fn generated(maps: &Maps) -> Vec<Range<u64>> {
    let mut found: Vec<(Range<u64>, bool)> = Vec::new();
    let anonymous =
        maps.iter().filter(|m| m.backing == Backing::Anonymous && m.path.as_os_str().is_empty());
    for mapping in anonymous {
        match found.last_mut().filter(|(range, _)| range.end == mapping.start) {
            Some((range, executable)) => {
                range.end = mapping.end;
                *executable |= mapping.executable;
            }
            None => found.push((mapping.start..mapping.end, mapping.executable)),
        }
    }
    found.into_iter().filter(|(_, executable)| *executable).map(|(range, _)| range).collect()
}

impl<M: ReadMemory + Send> Generated for V8<M> {
    fn begin(&mut self, copied: Ns, running: bool) {
        self.begin_at(monotonic(), copied, running);
    }

    fn mapped(&mut self, maps: &Maps) {
        self.builtins.mapped(maps, &self.files, self.pid);
        self.generated = generated(maps);
    }

    fn thread_names(&mut self, _: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.heap.begin(monotonic());
        let V8 { heap, layout, functions, names, workers, pid, .. } = self;
        let stat = |tid: u32| {
            let text = std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
            parse_stat(&text)
        };
        let found = workers.names(heap, layout, functions, names, &stat);
        let inside = |(tid, name)| Some((pid_inside(tid)?, name));
        found.into_iter().filter_map(inside).chain(main_thread(*pid, names)).collect()
    }

    fn set_owner(&mut self, owner: StackOwner) {
        self.tid = owner.tid;
    }

    fn awaiters(&mut self, taken: Option<&TakenObjects>) -> Vec<RawFrame> {
        self.await_chain(taken).unwrap_or_default()
    }

    fn await_layout(&self) -> Option<&AwaitLayout> {
        self.chains.wanted()
    }

    fn covers(&self, pc: u64) -> bool {
        self.builtins.covers(pc) || self.generated.iter().any(|range| range.contains(&pc))
    }

    fn leave(
        &mut self,
        place: Place,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        self.leave_frame(place, word, out)
    }
}

#[cfg(test)]
mod tests;
