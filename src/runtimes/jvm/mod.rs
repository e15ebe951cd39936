//! HotSpot on x86-64: Java frames, read from outside, of a virtual machine started without options.
//! Tried on JDK 8, 11, 17, 21, 25 to 28.
//!
//! ```text
//! libjvm                 its mapped file
//! vm_structs             its own tables about its layout
//! vm_options             its options that decide how objects are laid out
//! layout                 offsets that are used, and what differs by version
//! read_limit             limits how much of its memory is read at a time
//! code_cache             address -> generated code (blobs)
//! scopes                 compiled code -> methods inlined there
//! methods                `Method` -> class, name, file, lines
//! generated_class_names  stable names of generated classes
//! walk                   leaves a frame of generated code
//!   compiled, interpreter, stub   one each
//! frame_anchors          where Java called native code, for walks that end there; monitor waits
//! blockers/              what a blocked thread waits for, and who holds it
//! heap_objects           Java objects on the heap: classes, fields, strings
//! java_threads           Java threads and their names
//! virtual_thread_names   the virtual thread that is mounted on a carrier's stack
//! unsigned5              compressed numbers
//! ```
//!
//! Everything is read while the target runs. Cached data is valid for [`VALID_FOR`], then compared
//! with memory again. A stack that was copied while its thread ran is named only by data that was
//! compared after the copy. If that comparison found a change, the stack may be older than the
//! change, and ends in a marker.

mod blockers;
mod code_cache;
mod compiled;
mod frame_anchors;
mod generated_class_names;
mod heap_objects;
mod interpreter;
mod java_threads;
mod layout;
mod libjvm;
mod methods;
mod read_limit;
mod scopes;
mod stub;
mod unsigned5;
mod virtual_thread_names;
mod vm_options;
mod vm_structs;
mod walk;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::monotonic;
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::frame::{Ns, RawFrame};
use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::replaced_code::Replaced;
use java_threads::JavaThread;
pub use java_threads::is_own;
pub use libjvm::{library, nameless};
pub use vm_structs::{Missing, Unreadable};

use blockers::Blockers;
use code_cache::{Blob, CodeCache, Kind};
use compiled::Epilogue;
use frame_anchors::{Anchors, Places};
use heap_objects::Objects;
use layout::Layout;
use methods::Methods;
use read_limit::Limited;
use scopes::Scopes;
use virtual_thread_names::Virtuals;
use vm_structs::Structs;

/// Time for which validated code stays valid: a tick at 100 Hz. Freed code is used again only
/// after a safepoint at which no thread was in it.
const VALID_FOR: Ns = 10_000_000;
/// Maximum blobs and methods compared in one call; a method is nine pieces.
const BATCH_MAX: usize = 128;
/// Maximum blobs remembered; 64 MiB of code has some 40,000.
const BLOBS_MAX: usize = 1 << 16;
/// Maximum bytes of debug information kept.
const SCOPES_MAX: usize = 32 << 20;
/// Maximum facts remembered about compiled code, and frames of interpreted code.
const FACTS_MAX: usize = 1 << 18;
const INTERPRETED_MAX: usize = 1 << 16;

/// Maximum bytes of a thread's name.
const NAME_MAX: usize = 4096;

/// A cached blob and the frames in it.
struct CachedBlob {
    blob: Arc<Blob>,
    /// The epochs in which it was last compared with memory, and last used.
    checked: u64,
    used: u64,
    /// Frames by pc in compiled code. Return addresses and interrupted code are looked up alike.
    frames: FxHashMap<u64, RawFrame>,
    /// Return addresses of calls.
    returns: FxHashSet<u64>,
    /// By pc in compiled code: whether a thread interrupted there is leaving the method.
    epilogues: FxHashMap<u64, Option<Epilogue>>,
    scopes: Option<Arc<Scopes>>,
}

impl CachedBlob {
    fn clear(&mut self) {
        (self.frames, self.returns, self.epilogues) = Default::default();
    }

    /// How many facts about its code are kept.
    fn facts(&self) -> usize {
        self.frames.len() + self.returns.len() + self.epilogues.len()
    }
}

/// A cached entry, by its address.
enum CacheEntry {
    Blob(u64),
    Method(u64),
}

/// A virtual machine in a process.
pub struct Jvm<M> {
    memory: Limited<M>,
    layout: Layout,
    code: CodeCache,
    methods: Methods,
    names: Names,
    call_stub_return: u64,
    /// By [`Blob::start`].
    known: BTreeMap<u64, CachedBlob>,
    /// Blobs that were used in this epoch.
    used: Vec<u64>,
    scopes_size: usize,
    /// Sum of [`CachedBlob::facts`].
    facts: usize,
    /// By method (its serial), tier and bytecode index.
    interpreted: FxHashMap<(u64, Tier, Option<i32>), RawFrame>,
    stubs: FxHashMap<String, RawFrame>,
    /// An error where the layout of objects is unknown: then threads keep the kernel's names.
    objects: Result<Objects, Missing>,
    /// By the address of a thread, as last read.
    thread_names: FxHashMap<u64, JavaThread>,
    /// Counts the calls that read names, to choose those that are read again.
    names_part: usize,
    virtuals: Virtuals,
    anchors: Anchors,
    blockers: Blockers,
    /// The next frame of this walk, and its pc: an exception handler, to which no call returns.
    handler: Option<(u64, RawFrame)>,
    /// Address range of its functions, if these have no symbols.
    nameless: Option<Range<u64>>,
    /// Its process, for messages.
    pid: Option<u32>,
    /// Epoch of the cache: entries that were checked in this epoch are valid.
    epoch: u64,
    epoch_began: Ns,
    /// When the stack that is walked was copied.
    copied: Ns,
    /// Address ranges of blobs that were replaced or freed.
    replaced: Replaced,
}

impl<M: ReadMemory> Jvm<M> {
    /// Attaches to the virtual machine whose library is mapped at `image`. Fails while it is still
    /// starting: its code heaps are not there yet, or not even its tables.
    pub fn attach(memory: M, image: u64, names: Names) -> Result<Jvm<M>, Unreadable> {
        let memory = Limited::new(memory, read_limit::ATTACH);
        let structs = Structs::read(&memory, image)?;
        let layout = Layout::of(&memory, &structs)?;
        let objects = Objects::of(&memory, &structs, &layout);
        let virtuals = Virtuals::of(&memory, &structs, &objects);
        let heaps = code_cache::heaps(&memory, &layout.code_heap);
        let call_stub_return = memory.read_u64(layout.call_stub_return).unwrap_or(0);
        if heaps.is_empty() || call_stub_return == 0 {
            return Err(Unreadable::Starting("code heaps"));
        }
        let code = CodeCache::new(heaps);
        let anchors = Anchors::new(Places::of(&structs));
        let blockers = Blockers::of(&structs, &layout, &objects);
        Ok(Jvm {
            virtuals,
            anchors,
            blockers,
            ..Jvm::new(memory, layout, code, names, objects, call_stub_return)
        })
    }

    /// Creates a reader with empty caches.
    fn new(
        memory: Limited<M>,
        layout: Layout,
        code: CodeCache,
        names: Names,
        objects: Result<Objects, Missing>,
        call_stub_return: u64,
    ) -> Jvm<M> {
        Jvm {
            memory,
            layout,
            code,
            methods: Methods::default(),
            names,
            call_stub_return,
            known: BTreeMap::new(),
            used: Vec::new(),
            scopes_size: 0,
            facts: 0,
            interpreted: FxHashMap::default(),
            stubs: FxHashMap::default(),
            objects,
            thread_names: FxHashMap::default(),
            names_part: 0,
            virtuals: Virtuals::default(),
            anchors: Anchors::default(),
            blockers: Blockers::default(),
            handler: None,
            nameless: None,
            pid: None,
            epoch: 0,
            epoch_began: monotonic(),
            copied: Ns::MAX,
            replaced: Replaced::default(),
        }
    }

    /// Sets the process of the virtual machine.
    pub fn in_process(self, pid: u32) -> Jvm<M> {
        Jvm { pid: Some(pid), ..self }
    }

    /// Sets the address range of its functions if these have no symbols.
    pub fn with_nameless(self, nameless: Option<Range<u64>>) -> Jvm<M> {
        Jvm { nameless, ..self }
    }

    /// Returns what is missing for the names of threads.
    pub fn nameless(&self) -> Option<&Missing> {
        self.objects.as_ref().err()
    }

    /// Starts a walk of a stack that was copied at `copied`; `running`: of a thread that ran on.
    /// Starts a new epoch, in which entries are revalidated, if the present one is too old. For a
    /// thread that ran on, it is too old if it began before the stack was copied.
    fn begin(&mut self, now: Ns, copied: Ns, running: bool) {
        self.handler = None;
        self.copied = copied;
        self.methods.set_instant(copied);
        self.virtuals.begin();
        self.anchors.begin();
        if self.memory.begin(read_limit::WALK) {
            self.forget_code();
        }
        if now >= self.epoch_began + VALID_FOR
            || running && (self.epoch_began..now).contains(&copied)
        {
            self.epoch += 1;
            self.epoch_began = now;
            self.revalidate();
            self.virtuals.count(&self.memory);
        }
    }

    /// Drops the cached code, after a walk has used its limit up: entries may be incomplete.
    fn forget_code(&mut self) {
        self.known.clear();
        (self.scopes_size, self.facts) = (0, 0);
    }

    /// Revalidates the entries that were used in the last epoch, as they are likely used again. To
    /// read all in a few calls costs a third of reading each at its use.
    fn revalidate(&mut self) {
        let mut blobs = std::mem::take(&mut self.used);
        blobs.retain(|start| self.known.contains_key(start));
        let methods = self.methods.begin(self.epoch);
        let entries: Vec<CacheEntry> = blobs
            .into_iter()
            .map(CacheEntry::Blob)
            .chain(methods.into_iter().map(CacheEntry::Method))
            .collect();
        let (mut pieces, mut ends, mut now) = (Vec::new(), Vec::new(), Vec::new());
        for entries in entries.chunks(BATCH_MAX) {
            pieces.clear();
            ends.clear();
            let mut length = 0;
            for entry in entries {
                let before = pieces.len();
                match entry {
                    CacheEntry::Blob(start) => {
                        pieces.push(header_place(&self.layout, &self.known[start].blob))
                    }
                    CacheEntry::Method(at) => pieces.extend(self.methods.evidence(*at)),
                }
                length += pieces[before..].iter().map(|(_, length)| length).sum::<usize>();
                ends.push(length);
            }
            now.resize(length, 0);
            if self.memory.read_pieces(&pieces, &mut now).is_none() {
                continue;
            }
            let mut from = 0;
            for (entry, to) in entries.iter().zip(&ends) {
                let found = &now[from..*to];
                from = *to;
                match entry {
                    CacheEntry::Blob(start) => {
                        if let Some(known) = self
                            .known
                            .get_mut(start)
                            .filter(|known| is(&self.layout, &known.blob, found))
                        {
                            known.checked = self.epoch;
                        }
                    }
                    CacheEntry::Method(at) => self.methods.found(*at, found),
                }
            }
        }
    }

    /// Returns the blob that contains `pc`.
    fn blob(&mut self, pc: u64) -> Option<Arc<Blob>> {
        if let Some((start, known)) = self.known.range_mut(..=pc).next_back()
            && pc < known.blob.code_end
        {
            let start = *start;
            if known.checked == self.epoch || unchanged(&self.memory, &self.layout, &known.blob) {
                if known.used != self.epoch {
                    self.used.push(start);
                }
                (known.checked, known.used) = (self.epoch, self.epoch);
                return Some(known.blob.clone());
            }
            let place = known_place(&known.blob);
            self.forget(start);
            self.replaced.add(place, monotonic());
        }
        let blob = Arc::new(self.code.find(&self.memory, &self.layout, pc)?);
        self.forget_beneath(&blob);
        if self.known.len() >= BLOBS_MAX {
            self.known.clear();
            (self.scopes_size, self.facts) = (0, 0);
        }
        let known = CachedBlob {
            blob: blob.clone(),
            checked: self.epoch,
            used: self.epoch,
            frames: FxHashMap::default(),
            returns: FxHashSet::default(),
            epilogues: FxHashMap::default(),
            scopes: None,
        };
        self.known.insert(blob.start, known);
        self.used.push(blob.start);
        Some(blob)
    }

    /// Drops cached blobs that overlap this one: they were replaced.
    fn forget_beneath(&mut self, found: &Blob) {
        let Range { start, end } = known_place(found);
        while let Some((at, known)) = self.known.range(..end).next_back()
            && known.blob.code_end > start
        {
            let (at, place) = (*at, known_place(&known.blob));
            self.forget(at);
            self.replaced.add(place, monotonic());
        }
    }

    /// Whether what lies at `pc` may be younger than the stack that is walked.
    fn may_be_younger(&self, pc: u64) -> bool {
        self.replaced.since(self.copied, pc)
    }

    fn forget(&mut self, start: u64) {
        if let Some(known) = self.known.remove(&start) {
            self.facts -= known.facts();
            self.scopes_size -= known.scopes.map_or(0, |scopes| scopes.size());
        }
    }

    /// Returns the debug information of compiled code; empty where there is none.
    fn scopes(&mut self, blob: &Blob) -> Arc<Scopes> {
        if let Some(scopes) = self.known.get(&blob.start).and_then(|known| known.scopes.clone()) {
            return scopes;
        }
        let scopes = Scopes::read(&self.memory, &self.layout, blob);
        // Meanwhile they may belong to other code.
        let scopes = Arc::new(
            scopes.filter(|_| unchanged(&self.memory, &self.layout, blob)).unwrap_or_default(),
        );
        if self.scopes_size + scopes.size() > SCOPES_MAX {
            self.known.values_mut().for_each(|known| known.scopes = None);
            self.scopes_size = 0;
        }
        if let Some(known) = self.known.get_mut(&blob.start) {
            self.scopes_size += scopes.size();
            known.scopes = Some(scopes.clone());
        }
        scopes
    }

    /// Returns the frame of a compiled method at `pc`; `entered`: nothing of it has run, so nothing
    /// is inlined.
    fn compiled_frame(&mut self, blob: &Blob, pc: u64, entered: bool) -> Option<RawFrame> {
        let nmethod = blob.nmethod()?;
        let tier = match (&blob.kind, nmethod.level) {
            (Kind::NativeWrapper(_), _) => Tier::Native,
            (_, 1..=3) => Tier::C1,
            _ => Tier::C2,
        };
        if entered || tier == Tier::Native {
            return self.frame_in(nmethod.method, tier, Some(0));
        }
        if let Some(frame) = self.known.get(&blob.start).and_then(|known| known.frames.get(&pc)) {
            return Some(*frame);
        }
        let scopes = self.scopes(blob).at(pc.saturating_sub(blob.code));
        if scopes.is_empty() {
            return self.frame_in(nmethod.method, tier, None);
        }
        let locations = self.methods.locations(&self.memory, &self.layout, &scopes, tier)?;
        let frame = self.names.frame(locations);
        if let Some(known) = self.remember(blob.start) {
            known.frames.insert(pc, frame);
        }
        Some(frame)
    }

    /// Returns the frame of a compiled method that is about to handle an exception at `pc`, or to
    /// be left by it there.
    fn handler_frame(&mut self, blob: &Blob, pc: u64) -> Option<RawFrame> {
        let method = blob.nmethod()?.method;
        let scopes = self.scopes(blob).handler(pc.checked_sub(blob.code)?)?;
        if scopes.is_empty() {
            // No inlined method handles it: all of them have been left.
            return self.frame_in(method, Tier::C1, None);
        }
        let locations = self.methods.locations(&self.memory, &self.layout, &scopes, Tier::C1)?;
        Some(self.names.frame(locations))
    }

    /// Returns the frame of an interpreted method.
    fn interpreted_frame(&mut self, method: u64, bci: Option<i32>) -> Option<RawFrame> {
        self.frame_in(method, Tier::Interpreted, bci)
    }

    /// Returns the frame of a method without inlined ones; it has no line if the bytecode index is
    /// unknown.
    fn frame_in(&mut self, method: u64, tier: Tier, bci: Option<i32>) -> Option<RawFrame> {
        let known = self.methods.get(&self.memory, &self.layout, method)?;
        let key = (known.serial, tier, bci);
        if let Some(frame) = self.interpreted.get(&key) {
            return Some(*frame);
        }
        let frame = self.names.frame(vec![known.location(bci, tier)]);
        if self.interpreted.len() >= INTERPRETED_MAX {
            self.interpreted.clear();
        }
        self.interpreted.insert(key, frame);
        Some(frame)
    }

    /// Returns the frame of code that is no method's.
    fn stub_frame(&mut self, name: &str) -> RawFrame {
        if let Some(frame) = self.stubs.get(name) {
            return *frame;
        }
        let shown = clean(name, NAME_CAP);
        let location = Location {
            function: if shown.is_empty() { "generated code" } else { &shown }.into(),
            module: "[jvm]".into(),
            file: None,
            line: None,
            kind: FrameKind::Jit,
            tier: None,
        };
        let frame = self.names.frame(vec![location]);
        self.stubs.insert(name.to_owned(), frame);
        frame
    }

    /// Whether a call in generated code can have pushed `address` as its return address. A number
    /// on the stack is a return address only with such evidence.
    fn returns_to(&mut self, address: u64) -> bool {
        if address == self.call_stub_return {
            return true;
        }
        if !self.code.contains(address.wrapping_sub(1)) {
            return false;
        }
        let Some(blob) = self.blob(address.wrapping_sub(1)) else { return false };
        if address < blob.code || address > blob.code_end {
            return false;
        }
        if blob.kind == Kind::Interpreter
            || self.known.get(&blob.start).is_some_and(|k| k.returns.contains(&address))
        {
            return true;
        }
        let handler = blob.nmethod().is_some_and(|nmethod| nmethod.deopt.contains(&address));
        let barrier = matches!(&blob.kind, Kind::Stub(name) if self.is_barrier(name, address));
        let returns = handler
            || barrier
            || self.is_debug_point(&blob, address)
            || call_before(&self.memory, address);
        if returns && let Some(known) = self.remember(blob.start) {
            known.returns.insert(address);
        }
        returns
    }

    /// Whether a compiled method has a record for exactly this address.
    fn is_debug_point(&mut self, blob: &Blob, address: u64) -> bool {
        blob.nmethod().is_some() && self.scopes(blob).exact(address.wrapping_sub(blob.code))
    }

    /// Returns the blob's entry if there is room for one more fact about its code.
    fn remember(&mut self, start: u64) -> Option<&mut CachedBlob> {
        if self.facts >= FACTS_MAX {
            self.known.values_mut().for_each(CachedBlob::clear);
            self.facts = 0;
        }
        let known = self.known.get_mut(&start)?;
        self.facts += 1;
        Some(known)
    }
}

fn known_place(blob: &Blob) -> Range<u64> {
    blob.start..blob.code_end
}

/// Returns where a blob's header lies, with that of its block before it.
fn header_place(layout: &Layout, blob: &Blob) -> (u64, usize) {
    let before = layout.code_heap.block_size;
    (blob.start - before, before as usize + blob.header.len())
}

/// Whether the bytes `now` are those of the blob, in use and unchanged.
fn is(layout: &Layout, blob: &Blob, now: &[u8]) -> bool {
    let used = now.get(layout.code_heap.block_used as usize).is_some_and(|used| *used != 0);
    used && layout.blob.same(
        blob.nmethod().is_some(),
        &now[layout.code_heap.block_size as usize..],
        &blob.header,
    )
}

fn unchanged<M: ReadMemory>(memory: &M, layout: &Layout, blob: &Blob) -> bool {
    let (at, length) = header_place(layout, blob);
    let mut now = vec![0; length];
    memory.read_exact(at, &mut now).is_some() && is(layout, blob, &now)
}

/// Whether the bytes before `address` are a call: direct, or by register or memory.
fn call_before<M: ReadMemory>(memory: &M, address: u64) -> bool {
    let mut bytes = [0; 7];
    if memory.read_exact(address.wrapping_sub(7), &mut bytes).is_none() {
        return false;
    }
    bytes[2] == 0xe8 || (2..=7).any(|length| indirect_call(&bytes[7 - length..]))
}

/// Whether this is `call r/m64`, from the first byte to the last.
fn indirect_call(bytes: &[u8]) -> bool {
    let [0xff, modrm, rest @ ..] = bytes else { return false };
    let (mode, operation, register) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let index = usize::from(mode != 3 && register == 4);
    let base_is_number = mode == 0
        && (register == 5 || (register == 4 && rest.first().is_some_and(|sib| sib & 7 == 5)));
    let distance = match mode {
        0 if base_is_number => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    operation == 2 && rest.len() == index + distance
}

#[cfg(test)]
mod tests;
