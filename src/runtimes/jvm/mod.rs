//! HotSpot on x86-64: Java frames, from outside, of a virtual machine that was started with no
//! option. Tried on JDK 8, 11, 17, 21, 25 to 28.
//!
//! ```text
//! structs     the tables by which it says how it is laid out
//! layout      the places that are used, and what differs by version
//! heap        address -> generated code (blobs)
//! scopes      compiled code -> methods inlined there
//! methods     `Method` -> class, name, file, lines
//! normal      what generated classes are called
//! replaced    where code and methods have given way to others
//! walk        leaving a frame of generated code
//!   compiled, interpreter, stub   one each
//! anchors     where Java code was left, for walks that come no further; what a thread waits for
//! library     its file
//! virtuals    whose stack it is that a carrier has, of virtual threads
//! objects     Java objects on its heap, for
//! threads     Java threads and their names
//! unsigned5   its compressed numbers
//! limited     how much of its memory is read at a time
//! ```
//!
//! Everything is read with the target running. What was read is believed for [`BELIEVED`], then
//! compared with what is there. A stack that was copied while its thread ran is told by what was
//! compared after that. Where something else was found meanwhile, the stack may be older than that,
//! and ends in a marker.

mod anchors;
mod compiled;
mod heap;
mod interpreter;
mod layout;
mod library;
mod limited;
mod methods;
mod normal;
mod objects;
mod replaced;
mod scopes;
mod structs;
mod stub;
mod threads;
mod unsigned5;
mod virtuals;
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
use crate::runtimes::names::Names;
pub use library::{library, nameless};
pub use structs::{Missing, Unreadable};
use threads::JavaThread;
pub use threads::is_own;

use anchors::{Anchors, Places};
use heap::{Blob, CodeCache, Kind};
use layout::Layout;
use limited::Limited;
use methods::Methods;
use objects::Objects;
use replaced::Replaced;
use scopes::Scopes;
use structs::Structs;
use virtuals::Virtuals;

/// Time for which validated code stays valid: a tick at 100 Hz. Freed code is used again only
/// after a safepoint at which no thread was in it.
const BELIEVED: Ns = 10_000_000;
/// Blobs and methods that are compared in one call; a method is nine pieces.
const MET_AT_ONCE: usize = 128;
/// Blobs remembered; 64 MiB of code has some 40,000.
const BLOBS_MAX: usize = 1 << 16;
/// Bytes of debug information kept.
const SCOPES_MAX: usize = 32 << 20;
/// Frames and return addresses in compiled code remembered, and frames of interpreted code.
const FACTS_MAX: usize = 1 << 18;
const INTERPRETED_MAX: usize = 1 << 16;

/// Bytes of a thread's name.
const NAME_MAX: usize = 4096;

/// A blob that was met, and the frames in it.
struct Known {
    blob: Arc<Blob>,
    /// The rounds in which it was compared with memory, and met, last.
    checked: u64,
    used: u64,
    /// Of each pc in compiled code that is known to say more than its method: the frame. Return
    /// addresses and interrupted code are looked up alike.
    frames: FxHashMap<u64, RawFrame>,
    /// Addresses that calls return to.
    returns: FxHashSet<u64>,
    scopes: Option<Arc<Scopes>>,
}

impl Known {
    fn clear(&mut self) {
        (self.frames, self.returns) = Default::default();
    }
}

/// What was met in a round, by its address.
enum Remembered {
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
    known: BTreeMap<u64, Known>,
    /// Those that were met in this round.
    used: Vec<u64>,
    scopes_size: usize,
    /// Frames and return addresses in [`Known`].
    facts: usize,
    /// By method (its number), tier and bytecode index.
    interpreted: FxHashMap<(u64, Tier, Option<i32>), RawFrame>,
    stubs: FxHashMap<String, RawFrame>,
    /// Where it is not known how objects lie, threads have the names that the kernel knows.
    objects: Result<Objects, Missing>,
    /// By the address of a thread, as they were read last.
    thread_names: FxHashMap<u64, JavaThread>,
    /// Which of them are read again next.
    names_turn: usize,
    virtuals: Virtuals,
    anchors: Anchors,
    /// The next frame of this walk, and where it goes on: no call returns there.
    handler: Option<(u64, RawFrame)>,
    /// Where its functions lie, if these have no names.
    nameless: Option<Range<u64>>,
    /// Whom it belongs to, for those who are told.
    pid: Option<u32>,
    /// What was checked in this round is believed.
    round: u64,
    round_began: Ns,
    /// When the stack that is walked was copied.
    copied: Ns,
    /// Where blobs were that are not there any more.
    replaced: Replaced,
}

impl<M: ReadMemory> Jvm<M> {
    /// Attaches to the virtual machine whose library is mapped at `image`. Fails while it is still
    /// starting: its code heaps are not there yet, or not even its tables.
    pub fn attach(memory: M, image: u64, names: Names) -> Result<Jvm<M>, Unreadable> {
        let memory = Limited::new(memory, limited::ATTACH);
        let structs = Structs::read(&memory, image)?;
        let layout = Layout::of(&memory, &structs)?;
        let objects = Objects::of(&memory, &structs, &layout);
        let virtuals = Virtuals::of(&memory, &structs, &objects);
        let heaps = heap::heaps(&memory, &layout.code_heap);
        let call_stub_return = memory.read_u64(layout.call_stub_return).unwrap_or(0);
        if heaps.is_empty() || call_stub_return == 0 {
            return Err(Unreadable::Starting("code heaps"));
        }
        let code = CodeCache::new(heaps);
        let anchors = Anchors::new(Places::of(&structs));
        Ok(Jvm {
            virtuals,
            anchors,
            ..Jvm::new(memory, layout, code, names, objects, call_stub_return)
        })
    }

    /// Nothing is known of it yet.
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
            names_turn: 0,
            virtuals: Virtuals::default(),
            anchors: Anchors::default(),
            handler: None,
            nameless: None,
            pid: None,
            round: 0,
            round_began: monotonic(),
            copied: Ns::MAX,
            replaced: Replaced::default(),
        }
    }

    /// Whose virtual machine it is.
    pub fn in_process(self, pid: u32) -> Jvm<M> {
        Jvm { pid: Some(pid), ..self }
    }

    /// Its functions have no names, and lie there.
    pub fn with_nameless(self, nameless: Option<Range<u64>>) -> Jvm<M> {
        Jvm { nameless, ..self }
    }

    /// What is missing for the names of threads.
    pub fn nameless(&self) -> Option<&Missing> {
        self.objects.as_ref().err()
    }

    /// A walk begins, of a stack that was copied at `copied`, `running`: of a thread that ran on.
    /// What was believed for long enough is looked at again; of a thread that ran on, what was last
    /// looked at before the stack was copied.
    fn begin(&mut self, now: Ns, copied: Ns, running: bool) {
        self.handler = None;
        self.copied = copied;
        self.methods.set_instant(copied);
        self.virtuals.begin();
        self.anchors.begin();
        if self.memory.begin(limited::WALK) {
            // What was not read any more is not known of it.
            self.known.clear();
            (self.scopes_size, self.facts) = (0, 0);
        }
        if now >= self.round_began + BELIEVED
            || running && (self.round_began..now).contains(&copied)
        {
            self.round += 1;
            self.round_began = now;
            self.check_again();
            self.virtuals.count(&self.memory);
        }
    }

    /// What was met in the last round is likely met in this one: to look at it all in a few calls
    /// costs a third of looking at each when it is met.
    fn check_again(&mut self) {
        let mut blobs = std::mem::take(&mut self.used);
        blobs.retain(|start| self.known.contains_key(start));
        let methods = self.methods.begin(self.round);
        let met: Vec<Remembered> = blobs
            .into_iter()
            .map(Remembered::Blob)
            .chain(methods.into_iter().map(Remembered::Method))
            .collect();
        let (mut pieces, mut ends, mut now) = (Vec::new(), Vec::new(), Vec::new());
        for met in met.chunks(MET_AT_ONCE) {
            pieces.clear();
            ends.clear();
            let mut length = 0;
            for met in met {
                let before = pieces.len();
                match met {
                    Remembered::Blob(start) => {
                        pieces.push(header_place(&self.layout, &self.known[start].blob))
                    }
                    Remembered::Method(at) => pieces.extend(self.methods.evidence(*at)),
                }
                length += pieces[before..].iter().map(|(_, length)| length).sum::<usize>();
                ends.push(length);
            }
            now.resize(length, 0);
            if self.memory.read_pieces(&pieces, &mut now).is_none() {
                continue;
            }
            let mut from = 0;
            for (met, to) in met.iter().zip(&ends) {
                let found = &now[from..*to];
                from = *to;
                match met {
                    Remembered::Blob(start) => {
                        if let Some(known) = self
                            .known
                            .get_mut(start)
                            .filter(|known| is(&self.layout, &known.blob, found))
                        {
                            known.checked = self.round;
                        }
                    }
                    Remembered::Method(at) => self.methods.found(*at, found),
                }
            }
        }
    }

    /// The blob around `pc`.
    fn blob(&mut self, pc: u64) -> Option<Arc<Blob>> {
        if let Some((start, known)) = self.known.range_mut(..=pc).next_back()
            && pc < known.blob.code_end
        {
            let start = *start;
            if known.checked == self.round || unchanged(&self.memory, &self.layout, &known.blob) {
                if known.used != self.round {
                    self.used.push(start);
                }
                (known.checked, known.used) = (self.round, self.round);
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
        let known = Known {
            blob: blob.clone(),
            checked: self.round,
            used: self.round,
            frames: FxHashMap::default(),
            returns: FxHashSet::default(),
            scopes: None,
        };
        self.known.insert(blob.start, known);
        self.used.push(blob.start);
        Some(blob)
    }

    /// Blobs that lay where this one was found are not there any more.
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
            self.scopes_size -= known.scopes.map_or(0, |scopes| scopes.size());
            self.facts -= known.frames.len() + known.returns.len();
        }
    }

    /// The debug information of compiled code; empty where there is none.
    fn scopes(&mut self, blob: &Blob) -> Arc<Scopes> {
        if let Some(scopes) = self.known.get(&blob.start).and_then(|known| known.scopes.clone()) {
            return scopes;
        }
        let scopes = Scopes::read(&self.memory, &self.layout, blob);
        // They may be those of other code already.
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

    /// The frame of a compiled method at `pc`; `entered`: nothing of it has run, so nothing is
    /// inlined.
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

    /// The frame of a compiled method that is about to handle an exception at `pc`, or to be left
    /// by it there.
    fn handler_frame(&mut self, blob: &Blob, pc: u64) -> Option<RawFrame> {
        let method = blob.nmethod()?.method;
        let scopes = self.scopes(blob).handler(pc.checked_sub(blob.code)?)?;
        if scopes.is_empty() {
            // No frame handles it: all that was inlined has been left.
            return self.frame_in(method, Tier::C1, None);
        }
        let locations = self.methods.locations(&self.memory, &self.layout, &scopes, Tier::C1)?;
        Some(self.names.frame(locations))
    }

    /// The frame of an interpreted method.
    fn interpreted_frame(&mut self, method: u64, bci: Option<i32>) -> Option<RawFrame> {
        self.frame_in(method, Tier::Interpreted, bci)
    }

    /// The frame of a method that nothing is inlined into; without a line if it is not known where
    /// in the method.
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

    /// The frame of code that is no method's.
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

    /// Whether a call of generated code can have pushed `address` as its return address: a number
    /// on the stack is one only if something says so.
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

    /// Room for one more fact about code in a blob.
    fn remember(&mut self, start: u64) -> Option<&mut Known> {
        if self.facts >= FACTS_MAX {
            self.known.values_mut().for_each(Known::clear);
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

/// Where a blob's header lies, and that of its block before it.
fn header_place(layout: &Layout, blob: &Blob) -> (u64, usize) {
    let before = layout.code_heap.block_size;
    (blob.start - before, before as usize + blob.header.len())
}

/// Whether what lies there now is the blob, in use, and as it was.
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
