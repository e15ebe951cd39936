//! Functions of JavaScript (`SharedFunctionInfo`): name, script, bytecode.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::anonymous::ANONYMOUS;
use crate::model::vocabulary::frame::RawFrame;
use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::frame_and_thread_names::{InScript, Names};
use crate::runtimes::v8::classes::{class_of, class_of_inlined};
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{LENGTH, Layout};
use crate::runtimes::v8::positions::position;
use crate::runtimes::v8::scripts::Scripts;

/// Maximum functions remembered, and frames of all of them.
const FUNCTIONS_MAX: usize = 1 << 16;
const FRAMES_MAX: usize = 1 << 18;
/// Bytes of a word.
const WORD: usize = 8;
/// Where hash and length are in a string. Names of functions have a hash of what they are.
const HASH: u64 = 8;
/// Maximum characters of a name.
const NAME_MAX: u32 = 512;
/// Maximum bytes of a table of positions, and of bytecode.
pub const TABLE_MAX: u32 = 1 << 20;
/// Searches for the class of a function by its own frames, which may be torn, so one is too few;
/// and where it is inlined.
const TRIES: u8 = 4;
const TRIES_INLINED: u8 = 2;
/// Words of an object searched for a reference to another.
const FIELDS: u64 = 12;

/// The module of code without a file.
const EVAL: &str = "[eval]";

/// Bytecode of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bytecode {
    pub at: u64,
    /// In bytes.
    pub length: u32,
    positions: Vec<u8>,
}

/// Words of a function's object that say which function it is: map, code, name and script.
type Words = [u64; 5];

/// A word that belongs to a function's name: its address and what it is.
type Proof = (u64, u64);

pub struct Function {
    words: Words,
    /// Where its scope refers to the name, and hash and length of that. The collector may give all
    /// addresses in `words` to another function at once.
    name_proof: [Proof; 2],
    name: Arc<str>,
    script: Option<u64>,
    /// Where it begins in its script, characters.
    start: Option<u32>,
    pub bytecode: Option<Bytecode>,
    /// V8's number of the built-in code that is its code.
    pub builtin: Option<usize>,
    /// Searches for its class that are left, by its own frames and where it is inlined.
    tries: [u8; 2],
    /// The epoch in which it was last compared with memory, and last used.
    checked: u64,
    used: u64,
    /// By tier and offset of the bytecode.
    frames: FxHashMap<(Option<Tier>, Option<u32>), RawFrame>,
}

/// How a function was called, by the addresses of objects.
#[derive(Clone, Copy)]
pub enum Called {
    /// Its `JSFunction`, and the object on which that was called.
    On { function: u64, receiver: u64 },
    /// It is inlined in a frame with this context.
    Inlined { context: u64 },
}

/// Functions by address.
#[derive(Default)]
pub struct Functions {
    known: FxHashMap<u64, Function>,
    scripts: Scripts,
    frames: usize,
    pub epoch: u64,
    /// Functions that were used in this epoch.
    pub used: Vec<u64>,
    /// The process.
    pid: u32,
}

/// Returns where the words are that say which function the object at `at` is.
pub fn evidence(layout: &Layout, at: u64) -> (u64, usize) {
    (at, layout.script as usize + 8)
}

/// Picks these words from the bytes there.
fn words(layout: &Layout, bytes: &[u8]) -> Option<Words> {
    let word = |offset: u64| {
        let bytes = bytes.get(offset as usize..offset as usize + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let second = if layout.data[1] == 0 { 0 } else { word(layout.data[1])? };
    Some([word(0)?, word(layout.data[0])?, second, word(layout.name)?, word(layout.script)?])
}

impl Functions {
    /// Returns the file of a script.
    pub fn file_of<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        script: u64,
    ) -> Option<Arc<str>> {
        self.scripts.get(heap, layout, script)?.file.clone()
    }

    /// Returns functions of this process, none so far.
    pub fn new(pid: u32) -> Functions {
        Functions { pid, ..Functions::default() }
    }

    /// Returns the number of remembered frames, for tests.
    #[cfg(test)]
    pub fn frame_count(&self) -> usize {
        self.frames
    }

    /// Returns where the words are that say which function a known one is; as [`evidence`], then
    /// those of its name.
    pub fn evidence_of(&self, layout: &Layout, at: u64) -> [(u64, usize); 3] {
        let places =
            self.known.get(&at).map_or([at; 2], |known| known.name_proof.map(|(at, _)| at));
        [evidence(layout, at), (places[0], WORD), (places[1], WORD)]
    }

    /// Compares a function with what is in memory now, by the bytes of its evidence.
    pub fn found(&mut self, layout: &Layout, at: u64, bytes: &[u8]) {
        let (_, length) = evidence(layout, at);
        let Some((bytes, of_name)) = bytes.split_at_checked(length) else { return };
        if let Some(known) = self.known.get_mut(&at)
            && words(layout, bytes) == Some(known.words)
            && of_name.chunks(WORD).eq(known.name_proof.map(|(_, word)| word.to_le_bytes()))
        {
            known.checked = self.epoch;
        }
    }

    /// Returns the function whose `SharedFunctionInfo` is at this address; `None` if there is none.
    pub fn get<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        at: u64,
    ) -> Option<&mut Function> {
        let valid = self.known.get(&at).is_some_and(|known| known.checked == self.epoch);
        if !valid {
            let (_, length) = evidence(layout, at);
            let mut bytes = vec![0; length];
            heap.read(at, &mut bytes)?;
            let now = words(layout, &bytes)?;
            let is_so = |(at, word): &Proof| heap.word(*at) == Some(*word);
            let known = self
                .known
                .get(&at)
                .is_some_and(|known| known.words == now && known.name_proof.iter().all(is_so));
            if !known {
                self.frames -= self.known.remove(&at).map_or(0, |known| known.frames.len());
                let function = self.read(heap, layout, at, now)?;
                if self.known.len() >= FUNCTIONS_MAX {
                    self.known.clear();
                    self.frames = 0;
                }
                self.known.insert(at, function);
            }
        }
        let known = self.known.get_mut(&at)?;
        if known.used != self.epoch {
            self.used.push(at);
        }
        (known.checked, known.used) = (self.epoch, self.epoch);
        Some(known)
    }

    fn read<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        at: u64,
        words: Words,
    ) -> Option<Function> {
        heap.is(layout, at, layout.types.shared).then_some(())?;
        let [_, data, second, name, script] = words;
        let script = object(script).and_then(|script| script_of(heap, layout, script));
        let script = script.filter(|script| self.scripts.get(heap, layout, *script).is_some());
        // Without a name, what is read of the function anyway.
        let mut name_proof = [(at, words[0]); 2];
        let (name, start) = match object(name) {
            Some(name) if heap.is(layout, name, layout.types.scope) => {
                let (found, start) = scope(heap, layout, name);
                let found = found.map(|(slot, name)| {
                    let string = object(heap.word(slot)?)?;
                    name_proof = [proof(heap, slot)?, proof(heap, string.checked_add(HASH)?)?];
                    Some(name)
                });
                (found.flatten(), start)
            }
            Some(name) => {
                let hash = name.checked_add(HASH).and_then(|at| proof(heap, at));
                name_proof[1] = hash.unwrap_or(name_proof[1]);
                (heap.string(layout, name, NAME_MAX), None)
            }
            None => (None, None),
        };
        let name = name.map(|name| clean(&name, NAME_MAX as usize).into_owned());
        let name = name.filter(|name| !name.is_empty());
        // A private method is in no prototype; a name with a dot was inferred by V8.
        let may_be_method = name.as_ref().is_some_and(|name| {
            !name.starts_with('#') && (!name.contains('.') || name.starts_with('['))
        });
        let bytecode = [data, second]
            .into_iter()
            .filter_map(object)
            .find_map(|data| bytecode_of(heap, layout, data))
            .and_then(|at| bytecode(heap, layout, at));
        let builtin = [data, second].into_iter().filter(|_| bytecode.is_none()).find_map(|data| {
            // 0 is no function of the language.
            usize::try_from(small(data)?).ok().filter(|number| *number != 0)
        });
        Some(Function {
            words,
            name_proof,
            name: name.as_deref().unwrap_or(ANONYMOUS).into(),
            script,
            start,
            bytecode,
            builtin,
            tries: if may_be_method { [TRIES, TRIES_INLINED] } else { [0; 2] },
            checked: self.epoch,
            used: 0,
            frames: FxHashMap::default(),
        })
    }

    /// Whether it is open if this function, which was read before, is a method. `inlined`: its
    /// frame is another function's.
    pub fn may_be_method(&self, at: u64, inlined: bool) -> bool {
        self.known.get(&at).is_some_and(|known| known.tries[usize::from(inlined)] > 0)
    }

    /// Searches the class of a function that was read before. Returns whether it has another name
    /// now.
    pub fn find_class<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        at: u64,
        called: Called,
    ) -> bool {
        let Some(known) = self.known.get_mut(&at) else { return false };
        let inlined = usize::from(matches!(called, Called::Inlined { .. }));
        known.tries[inlined] = known.tries[inlined].saturating_sub(1);
        let is_accessor = known.name.starts_with("get ") || known.name.starts_with("set ");
        let class = match called {
            Called::On { function, receiver } => {
                class_of(heap, layout, function, receiver, is_accessor)
            }
            Called::Inlined { context } => class_of_inlined(heap, layout, at, context, is_accessor),
        };
        let class = class
            .and_then(|class| shared_of_function(heap, layout, class))
            .and_then(|shared| Some(self.get(heap, layout, shared)?.name.clone()))
            .filter(|class| &**class != ANONYMOUS);
        let (Some(class), Some(known)) = (class, self.known.get_mut(&at)) else { return false };
        known.name = clean(&format!("{class}.{}", known.name), NAME_CAP).into();
        known.tries = [0; 2];
        self.frames -= std::mem::take(&mut known.frames).len();
        true
    }

    /// Returns a location in a function that was read before, and whether nothing is missing that
    /// may be readable later. `source`: offset in its script; `None`: unknown, then it is where the
    /// function begins.
    pub fn location<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        names: &Names,
        at: u64,
        source: Option<u32>,
        tier: Option<Tier>,
    ) -> Option<(Location, InScript, bool)> {
        let function = self.known.get(&at)?;
        let (scripts, pid) = (&mut self.scripts, self.pid);
        let file =
            function.script.and_then(|script| scripts.file(heap, layout, names, pid, script));
        let mut place = |offset| scripts.place(heap, layout, function.script?, offset);
        let (line, column) = source.or(function.start).and_then(&mut place).unzip();
        let is_unnamed = &*function.name == ANONYMOUS;
        let begins = function.start.filter(|_| is_unnamed).and_then(place);
        let location = Location {
            function: function.name.clone(),
            module: file.clone().unwrap_or_else(|| EVAL.into()),
            file,
            line,
            kind: FrameKind::Jit,
            tier,
        };
        // Only files have source maps.
        let is_file = location.file.as_deref().is_some_and(|file| file.starts_with('/'));
        let has_all = line.is_some() || (source.is_none() && function.start.is_none());
        let is_final =
            has_all || function.script.is_none_or(|script| !self.scripts.may_have_lines(script));
        Some((location, InScript { column: column.filter(|_| is_file), begins }, is_final))
    }

    /// Returns the frame of a function that executes its bytecode at `offset`, or waits there:
    /// then there is no tier. Also whether nothing is missing that may be readable later.
    pub fn frame<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        names: &Names,
        at: u64,
        offset: Option<u32>,
        tier: Option<Tier>,
    ) -> Option<(RawFrame, bool)> {
        let function = self.get(heap, layout, at)?;
        if let Some(frame) = function.frames.get(&(tier, offset)) {
            return Some((*frame, true));
        }
        let source = function.bytecode.as_ref().zip(offset).and_then(|(bytecode, offset)| {
            Some(position(&bytecode.positions, offset, layout.flagged)?.offset)
        });
        let (location, place, is_final) = self.location(heap, layout, names, at, source, tier)?;
        let frame = names.frame_at(vec![location], vec![place]);
        if is_final {
            if self.frames >= FRAMES_MAX {
                self.known.values_mut().for_each(|known| known.frames.clear());
                self.frames = 0;
            }
            self.frames += 1;
            self.known.get_mut(&at)?.frames.insert((tier, offset), frame);
        }
        Some((frame, is_final))
    }
}

/// Returns the function that an object is: the `SharedFunctionInfo`, or what stands for it.
pub fn shared_of<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, at: u64) -> Option<u64> {
    let kind = heap.kind(layout, at)?;
    if layout.types.shared_wrapper == Some(kind) {
        let shared = heap.object(at.checked_add(8)?)?;
        return heap.is(layout, shared, layout.types.shared).then_some(shared);
    }
    (kind == layout.types.shared).then_some(at)
}

/// Returns the `SharedFunctionInfo` of a `JSFunction`.
pub fn shared_of_function<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, at: u64) -> Option<u64> {
    let at = heap.moved(at);
    let kind = heap.kind(layout, at)?;
    (layout.types.first_function..=layout.types.last_function).contains(&kind).then_some(())?;
    let shared = heap.moved(heap.object(at.checked_add(layout.shared)?)?);
    heap.is(layout, shared, layout.types.shared).then_some(shared)
}

/// Returns the script that a function refers to, directly or by what a debugger knows of it.
fn script_of<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, at: u64) -> Option<u64> {
    let kind = heap.kind(layout, at)?;
    if kind == layout.types.script {
        return Some(at);
    }
    let fields = (1..FIELDS).filter(|_| kind == layout.types.debug_info);
    let mut objects = fields.filter_map(|field| heap.object(at.checked_add(8 * field)?));
    objects.find(|object| heap.is(layout, *object, layout.types.script))
}

/// Returns the bytecode in what a function has as its code: bytecode, baseline code, or what the
/// interpreter knows of it.
pub fn bytecode_of<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, at: u64) -> Option<u64> {
    let types = &layout.types;
    let mut at = at;
    // Code leads to the interpreter's data, that to bytecode.
    for _ in 0..3 {
        let next = match heap.kind(layout, at)? {
            kind if kind == types.bytecode => return Some(at),
            kind if kind == types.code => layout.code.deopt,
            kind if kind == types.interpreter_data => 8,
            _ => return None,
        };
        at = heap.object(at.checked_add(next)?)?;
    }
    None
}

fn bytecode<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, at: u64) -> Option<Bytecode> {
    let length = u32::try_from(small(heap.word(at.checked_add(LENGTH)?)?)?).ok()?;
    let positions = heap
        .object(at.checked_add(layout.bytecode_positions)?)
        .and_then(|table| heap.bytes(layout, table, TABLE_MAX));
    Some(Bytecode { at, length, positions: positions.unwrap_or_default() })
}

/// Variables of a scope from which on their names are in a table of their own.
const MANY_VARIABLES: u64 = 75;
/// Words behind the variables among which a function's name is.
const SEARCHED: u64 = 8;

/// Returns a word with its address.
fn proof<M: ReadMemory>(heap: &Heap<M>, at: u64) -> Option<Proof> {
    Some((at, heap.word(at)?))
}

/// Returns name and place of a function, from its `ScopeInfo`; the name with the address of the
/// word that refers to it. The name may be one that V8 has inferred.
fn scope<M: ReadMemory>(
    heap: &Heap<M>,
    layout: &Layout,
    at: u64,
) -> (Option<(u64, String)>, Option<u32>) {
    let slot = |index: u64| heap.word(at.checked_add(8 + 8 * index)?);
    let place = |index: u64| {
        let (from, to) = (slot(index).and_then(small)?, slot(index + 1).and_then(small)?);
        u32::try_from(from).ok().filter(|_| from <= to)
    };
    // Flags, parameters, number of variables.
    let Some(count) = slot(2).and_then(small).and_then(|count| u64::try_from(count).ok()) else {
        return (None, None);
    };
    let variables = if count < MANY_VARIABLES { 2 * count } else { 1 + count };
    let first = layout.first_variable + variables;
    let mut name = None;
    for index in first..first + SEARCHED {
        let Some(word) = slot(index) else { break };
        let Some(found) = object(word) else { continue };
        // The scope around it, or the next object.
        if heap.is(layout, found, layout.types.scope) || heap.is(layout, found, layout.types.map) {
            break;
        }
        if let Some(text) = heap.string(layout, found, NAME_MAX).filter(|text| !text.is_empty()) {
            name = Some((index, text));
            break;
        }
    }
    let start = if layout.positions_first {
        place(3)
    } else {
        let from = name.as_ref().map_or(first, |(index, _)| index + 1);
        (from..from + SEARCHED)
            .find_map(|index| place(index).filter(|_| slot(index) != slot(index + 1)))
    };
    (name.and_then(|(index, text)| Some((at.checked_add(8 + 8 * index)?, text))), start)
}
