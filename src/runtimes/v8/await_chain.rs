//! The functions that await an async function which was resumed, as `at async NAME` of V8's own
//! `Error.stack` has them.
//!
//! What is left of an async function while it is suspended is an object. A built-in function
//! resumes it; the context of its frame refers to the object. The object has the promise of the
//! function's result. A function that awaits that promise has left a reaction there, which leads to
//! its own object, and so on. V8 follows the same way (`CaptureAsyncStackTrace` in isolate.cc). It
//! ends where a promise has no reaction, or several.
//!
//! The program runs meanwhile, its promises are settled and its objects move. So a chain counts
//! only if each of its words is still the same after it was read, and if after that both frames are
//! still on the stack as they were copied, but for objects that have moved. As long as the resumed
//! function has not returned, none of the functions that await it can go on. Otherwise there is no
//! chain.

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::{AWAIT, RawFrame};
use crate::process::memory::ReadMemory;
use crate::runtimes::v8::V8;
use crate::runtimes::v8::code_objects::Codes;
use crate::runtimes::v8::functions::{Called, Functions};
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{Awaiting, Layout};
use crate::unwinder::Place;

/// Maximum functions of a chain, and promises followed for them.
const FUNCTIONS_MAX: usize = 16;
const PROMISES_MAX: usize = 64;
/// Maximum chains remembered.
const CHAINS_MAX: usize = 1024;
const WORD: usize = 8;

/// Words of the object of an async function or generator, equal in all versions. The last one is
/// the promise of a function, and the first request of a generator.
const OBJECT_WORDS: usize = 11;
const FUNCTION: usize = 3;
const RECEIVER: usize = 5;
/// Where it is suspended, as an interpreted frame has it.
const SUSPENDED_AT: usize = 6;
const STATE: usize = 8;
const PROMISE: usize = 10;
/// The state while it is executed. Not negative: it is suspended.
const EXECUTING: i32 = -2;

/// Words of a promise: the last ones are its reactions, and flags.
const PROMISE_WORDS: usize = 5;
const REACTIONS: usize = 3;
const FLAGS: usize = 4;
/// Bits of the flags that say how the promise was settled; 0: it is pending.
const STATUS: i32 = 3;

/// Words of a reaction, and which ones follow the one that leads to the next reaction: what is
/// called if the promise is fulfilled, and the promise of the result.
const REACTION_WORDS: usize = 6;
const FULFILLED: usize = 2;
const RESULT: usize = 3;
/// Words of a request to a generator, and where it says how to resume, and has its promise.
const REQUEST_WORDS: usize = 5;
const RESUME_MODE: usize = 2;
const REQUEST_PROMISE: usize = 4;
/// The request is to return.
const RETURN: i32 = 1;

/// Words of a `JSFunction` that are read.
const FUNCTION_WORDS: usize = 6;
/// Words of a context that are read: map, length, scope, the context around it, variables.
const CONTEXT_WORDS: usize = 6;
const LENGTH: usize = 1;
const VARIABLE: usize = 4;
/// The length of a context without variables: map and length do not count.
const NO_VARIABLES: usize = 2;
/// The length of the one that resumes a function.
const AWAIT_LENGTH: i32 = 3;

/// What two frames have: of the resumed function its `JSFunction`, link, return address and
/// receiver; of the built-in function that has resumed it the `JSFunction`, context, link and
/// return address.
type Words = [u64; 8];
const RESUMED: usize = 0;
const RESUMING: usize = 4;
const CONTEXT: usize = 5;
/// Those that are objects, which may move.
const OBJECTS: [usize; 4] = [RESUMED, 3, RESUMING, CONTEXT];

/// Bytes below the link of a frame from which on words are read, and how many of each frame.
const BELOW: u64 = 16;
const OF_INNER: usize = 40;
const OF_OUTER: usize = 32;

/// The frames of a resumed function, and of what has resumed it, as they were copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// Where their links are, the inner one first.
    links: [u64; 2],
    words: Words,
}

impl Resumed {
    /// Returns both frames. `place`: where the inner one has returned to; `fp`: where the link of
    /// the outer one is.
    fn copied(place: Place, fp: u64, word: &mut dyn FnMut(u64) -> Option<u64>) -> Option<Resumed> {
        let inner = place.sp.checked_sub(16)?;
        let links = [inner, fp];
        let mut words = [0; 8];
        for (at, found) in places(links).into_iter().zip(&mut words) {
            *found = word(at)?;
        }
        // Only then is it the frame that was left before.
        (words[1] == fp && words[2] == place.pc).then_some(Resumed { links, words })
    }

    /// Returns the words that are on the stack now.
    fn now<M: ReadMemory>(&self, memory: &M) -> Option<Words> {
        let mut bytes = [0; OF_INNER + OF_OUTER];
        let [inner, outer] = self.links.map(|link| link.wrapping_sub(BELOW));
        memory.read_pieces(&[(inner, OF_INNER), (outer, OF_OUTER)], &mut bytes)?;
        let mut words = bytes
            .chunks_exact(WORD)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        // The inner frame's context changes from block to block.
        let function = words.next()?;
        let rest = words.skip(1);
        let mut now = [function; 8];
        now[1..].iter_mut().zip(rest).for_each(|(to, word)| *to = word);
        Some(now)
    }
}

/// Returns where the words of the two frames are.
fn places([inner, outer]: [u64; 2]) -> [u64; 8] {
    let of = |link: u64, offset: i64| link.wrapping_add_signed(offset);
    [
        of(inner, -16),
        inner,
        of(inner, 8),
        of(inner, 16),
        of(outer, -16),
        of(outer, -8),
        outer,
        of(outer, 8),
    ]
}

/// Whether the words are those of before; objects may have moved.
fn are_same<M: ReadMemory>(memory: &M, before: &Words, now: &Words) -> bool {
    (0..before.len()).all(|index| {
        let (before, now) = (before[index], now[index]);
        let has_moved = || {
            // The collector has left the new address in the place of the map.
            let (from, to) = (object(before)?, object(now)?);
            Some(memory.read_u64(from)? == to)
        };
        before == now || OBJECTS.contains(&index) && has_moved() == Some(true)
    })
}

/// Pieces of memory, and what was read there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Evidence {
    pieces: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

/// Whether all of it is in memory now.
fn holds<M: ReadMemory>(memory: &M, evidence: [&Evidence; 2]) -> bool {
    let pieces = evidence.map(|evidence| &evidence.pieces[..]).concat();
    let [first, second] = evidence.map(|evidence| &evidence.bytes[..]);
    let mut bytes = vec![0; first.len() + second.len()];
    memory.read_pieces(&pieces, &mut bytes).is_some()
        && bytes.split_at(first.len()) == (first, second)
}

/// A function that awaits another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Awaiter {
    /// Its `JSFunction`, what that was called on, and its `SharedFunctionInfo`.
    function: u64,
    receiver: u64,
    shared: u64,
    /// Offset of its bytecode at which it is suspended.
    offset: u32,
}

/// The functions that await a resumed one, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Chain {
    /// The `JSFunction` of the resumed one.
    function: u64,
    awaiters: Vec<Awaiter>,
    evidence: Evidence,
}

/// What a stack that is walked says of resumed functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OnStack {
    #[default]
    None,
    One(Resumed),
    /// A program has run its microtasks inside of one. No chain leads to the whole stack then.
    Several,
}

/// Chains by the object of the resumed function.
#[derive(Default)]
pub struct Chains {
    on_stack: OnStack,
    known: FxHashMap<u64, Chain>,
    marker: Option<RawFrame>,
}

impl Chains {
    /// Starts a walk.
    pub fn begin(&mut self) {
        self.on_stack = OnStack::None;
    }
}

impl<M: ReadMemory> V8<M> {
    /// Notes the frame of a built-in function at `fp`, if it is one that resumes async functions.
    pub(super) fn note_resumed(
        &mut self,
        place: Place,
        fp: u64,
        context: u64,
        word: &mut dyn FnMut(u64) -> Option<u64>,
    ) {
        let V8 { heap, layout, chains, .. } = self;
        let Some(types) = &layout.awaiting else { return };
        let context = heap.moved(context);
        let is_context = |kind: u16| (types.contexts[0]..=types.contexts[1]).contains(&kind);
        let length = || small(heap.word(context.checked_add(WORD as u64)?)?);
        if !heap.kind(layout, context).is_some_and(is_context) || length() != Some(AWAIT_LENGTH) {
            return;
        }
        let Some(resumed) = Resumed::copied(place, fp, word) else { return };
        chains.on_stack = match chains.on_stack {
            OnStack::None => OnStack::One(resumed),
            _ => OnStack::Several,
        };
    }

    /// Returns a marker and the functions behind it that await the one which was resumed on the
    /// stack that was walked last, innermost first.
    pub(super) fn await_chain(&mut self) -> Option<Vec<RawFrame>> {
        let OnStack::One(resumed) = self.chains.on_stack else { return None };
        let words = resumed.now(&self.heap.memory)?;
        are_same(&self.heap.memory, &resumed.words, &words).then_some(())?;
        let found = self.chain(&words)?;
        (resumed.now(&self.heap.memory)? == words).then_some(())?;
        self.frames_of(found)
    }

    /// Returns the object of the resumed function, if its chain is known, or is read now.
    fn chain(&mut self, words: &Words) -> Option<u64> {
        let V8 { heap, layout, functions, chains, builtins, .. } = self;
        let types = layout.awaiting.as_ref()?;
        let (count, number) = types.resolve;
        let resolve = (builtins.count() == count).then_some(number);
        let mut reader = Reader {
            heap,
            layout,
            types,
            functions,
            resolve,
            resuming: None,
            evidence: Evidence::default(),
        };
        let resumed = reader.resumed_by(object(words[RESUMING])?, object(words[CONTEXT])?)?;
        let head = std::mem::take(&mut reader.evidence);
        let is_it = |chain: &Chain| Some(chain.function) == object(words[RESUMED]);
        if let Some(known) = chains.known.get(&resumed)
            && is_it(known)
            && holds(&heap.memory, [&head, &known.evidence])
        {
            return Some(resumed);
        }
        let chain = reader.chain(resumed)?;
        (is_it(&chain) && holds(&heap.memory, [&head, &chain.evidence])).then_some(())?;
        if chains.known.len() >= CHAINS_MAX {
            chains.known.clear();
        }
        chains.known.insert(resumed, chain);
        Some(resumed)
    }

    fn frames_of(&mut self, resumed: u64) -> Option<Vec<RawFrame>> {
        let V8 { heap, layout, functions, codes, names, chains, .. } = self;
        let awaiters = &chains.known.get(&resumed)?.awaiters;
        let mut frames = Vec::new();
        for awaiter in awaiters {
            functions.get(heap, layout, awaiter.shared)?;
            find_class(heap, layout, functions, codes, awaiter);
            let Awaiter { shared, offset, .. } = *awaiter;
            frames.push(functions.frame(heap, layout, names, shared, Some(offset), None)?);
        }
        let named = || names.frame(vec![Location::named(AWAIT, FrameKind::Marker)]);
        if !frames.is_empty() {
            frames.insert(0, *chains.marker.get_or_insert_with(named));
        }
        Some(frames)
    }
}

/// Searches the class of an awaiting function if that is not known.
fn find_class<M: ReadMemory>(
    heap: &Heap<M>,
    layout: &Layout,
    functions: &mut Functions,
    codes: &mut Codes,
    awaiter: &Awaiter,
) {
    let Awaiter { function, shared, .. } = *awaiter;
    if !functions.may_be_method(shared, false) {
        return;
    }
    let Some(receiver) = object(awaiter.receiver) else { return };
    if functions.find_class(heap, layout, shared, Called::On { function, receiver }) {
        codes.forget_frames();
    }
}

/// What is called when a promise is fulfilled.
enum Handler {
    /// Resumes the function with this object.
    Resumes(u64),
    /// Settles this promise. `None`: none of the language.
    Settles(Option<u64>),
    /// Leads nowhere.
    Other,
}

/// Follows promises and records what it reads. Each function returns `None` where an object is not
/// what it must be: then nothing is known.
struct Reader<'a, M> {
    heap: &'a Heap<M>,
    layout: &'a Layout,
    types: &'a Awaiting,
    functions: &'a mut Functions,
    /// V8's number of the built-in function that resolves a promise, if it is known.
    resolve: Option<usize>,
    /// The type of contexts that resume functions.
    resuming: Option<u16>,
    evidence: Evidence,
}

impl<M: ReadMemory> Reader<'_, M> {
    /// Reads words.
    fn words<const N: usize>(&mut self, at: u64) -> Option<[u64; N]> {
        let Evidence { pieces, bytes } = &mut self.evidence;
        let from = bytes.len();
        bytes.resize(from + WORD * N, 0);
        self.heap.read(at, &mut bytes[from..])?;
        pieces.push((at, WORD * N));
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes[from..].chunks_exact(WORD)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        Some(words)
    }

    /// Returns the type of the objects with this map.
    fn type_of(&self, map: u64) -> Option<u16> {
        let mut kind = [0; 2];
        self.heap.read(object(map)?.checked_add(self.layout.instance_type)?, &mut kind)?;
        Some(u16::from_le_bytes(kind))
    }

    fn kind(&self, at: u64) -> Option<u16> {
        self.heap.kind(self.layout, at)
    }

    /// Whether it is the object of an async function or generator.
    fn is_suspendable(&self, kind: u16) -> bool {
        kind == self.types.function || kind == self.types.generator
    }

    /// Returns words and the `SharedFunctionInfo` of a `JSFunction`.
    fn function(&mut self, at: u64) -> Option<([u64; FUNCTION_WORDS], u64)> {
        let words: [u64; FUNCTION_WORDS] = self.words(at)?;
        let (kind, types) = (self.type_of(words[0])?, &self.layout.types);
        (types.first_function..=types.last_function).contains(&kind).then_some(())?;
        Some((words, object(*words.get(self.layout.shared as usize / WORD)?)?))
    }

    /// Returns the object of the function that a built-in function has resumed.
    fn resumed_by(&mut self, function: u64, context: u64) -> Option<u64> {
        self.resuming = self.kind(context);
        match self.called(function)? {
            (Some(found), Handler::Resumes(resumed)) if found == context => Some(resumed),
            _ => None,
        }
    }

    /// Returns the context of a built-in function, and what it does; of another function neither.
    fn called(&mut self, function: u64) -> Option<(Option<u64>, Handler)> {
        let (words, shared) = self.function(function)?;
        let builtin = self.functions.get(self.heap, self.layout, shared)?.builtin;
        let Some(builtin) = builtin else { return Some((None, Handler::Other)) };
        let at = object(*words.get(self.types.context as usize / WORD)?)?;
        let context: [u64; CONTEXT_WORDS] = self.words(at)?;
        let kind = self.type_of(context[0])?;
        (self.types.contexts[0]..=self.types.contexts[1]).contains(&kind).then_some(())?;
        let length = usize::try_from(small(context[LENGTH])?).ok()?;
        let variable = |nth: usize| {
            let at = object(context[VARIABLE + nth]).filter(|_| NO_VARIABLES + nth < length);
            at.map_or(Some(None), |at| Some(Some((at, self.kind(at)?))))
        };
        let handler = match (variable(0)?, variable(1)?) {
            (Some((resumed, of)), None)
                if Some(kind) == self.resuming && self.is_suspendable(of) =>
            {
                Handler::Resumes(resumed)
            }
            // The promise of `Promise.all` and its like.
            (_, Some((capability, of))) if of == self.types.capability => {
                Handler::Settles(self.of_capability(capability)?)
            }
            (Some((promise, of)), _)
                if of == self.types.promise && self.resolve == Some(builtin) =>
            {
                Handler::Settles(Some(promise))
            }
            _ => Handler::Other,
        };
        Some((Some(at), handler))
    }

    /// Returns the promise of a `PromiseCapability`.
    fn of_capability(&mut self, capability: u64) -> Option<Option<u64>> {
        let [_, promise] = self.words(capability)?;
        let promise = object(promise)?;
        Some((self.kind(promise)? == self.types.promise).then_some(promise))
    }

    /// Reads the chain of a resumed function.
    fn chain(mut self, resumed: u64) -> Option<Chain> {
        // What it was resumed with changes each time, so that is not read.
        let [map, _, _, function] = self.words(resumed)?;
        let [state, _, promise] = self.words(resumed.checked_add((WORD * STATE) as u64)?)?;
        (small(state)? == EXECUTING).then_some(())?;
        let (kind, function) = (self.type_of(map)?, object(function)?);
        let (mut awaiters, mut next) = (Vec::new(), self.promise_of(kind, promise, false)?);
        for _ in 0..PROMISES_MAX {
            let Some(promise) = next.filter(|_| awaiters.len() < FUNCTIONS_MAX) else { break };
            next = match self.reaction_to(promise)? {
                Handler::Resumes(awaiting) => {
                    let (awaiter, promise) = self.awaiter(awaiting)?;
                    awaiters.push(awaiter);
                    promise
                }
                Handler::Settles(promise) => promise,
                Handler::Other => None,
            };
        }
        Some(Chain { function, awaiters, evidence: self.evidence })
    }

    /// Returns the promise of the result that is due next; `word`: the last one of the object of a
    /// function or generator. `None` inside: there is none.
    fn promise_of(&mut self, kind: u16, word: u64, is_suspended: bool) -> Option<Option<u64>> {
        let last = object(word)?;
        if kind == self.types.function {
            return Some(Some(last));
        }
        (kind == self.types.generator).then_some(())?;
        if self.kind(last)? != self.types.request {
            return Some(None);
        }
        let request: [u64; REQUEST_WORDS] = self.words(last)?;
        // Functions that end a suspended generator have such a context too; V8 follows none.
        let ends = is_suspended && small(request[RESUME_MODE])? == RETURN;
        Some(object(request[REQUEST_PROMISE]).filter(|_| !ends))
    }

    /// Returns what follows when a promise is fulfilled: nothing if it is settled, or if several
    /// things would.
    fn reaction_to(&mut self, promise: u64) -> Option<Handler> {
        let promise: [u64; PROMISE_WORDS] = self.words(promise)?;
        (self.type_of(promise[0])? == self.types.promise).then_some(())?;
        if small(promise[FLAGS])? & STATUS != 0 {
            return Some(Handler::Other);
        }
        let Some(reaction) = object(promise[REACTIONS]) else { return Some(Handler::Other) };
        let reaction: [u64; REACTION_WORDS] = self.words(reaction)?;
        (self.type_of(reaction[0])? == self.types.reaction).then_some(())?;
        let next = self.types.next_reaction as usize / WORD;
        let field = |nth: usize| reaction.get(next + nth).copied();
        if small(field(0)?).is_none() {
            return Some(Handler::Other);
        }
        let fulfilled = object(field(FULFILLED)?)?;
        let (kind, types) = (self.kind(fulfilled)?, &self.layout.types);
        if self.is_suspendable(kind) {
            return Some(Handler::Resumes(fulfilled));
        }
        if (types.first_function..=types.last_function).contains(&kind) {
            let (_, handler) = self.called(fulfilled)?;
            if !matches!(handler, Handler::Other) {
                return Some(handler);
            }
        }
        // The promise that `then` has returned.
        let result = object(field(RESULT)?)?;
        Some(match self.kind(result)? {
            kind if kind == self.types.promise => Handler::Settles(Some(result)),
            kind if kind == self.types.capability => Handler::Settles(self.of_capability(result)?),
            _ => Handler::Other,
        })
    }

    /// Returns a suspended function by its object, and the promise of its result.
    fn awaiter(&mut self, at: u64) -> Option<(Awaiter, Option<u64>)> {
        let words: [u64; OBJECT_WORDS] = self.words(at)?;
        (small(words[STATE])? >= 0).then_some(())?;
        let kind = self.type_of(words[0])?;
        self.is_suspendable(kind).then_some(())?;
        let function = object(words[FUNCTION])?;
        let (_, shared) = self.function(function)?;
        let length = self.functions.get(self.heap, self.layout, shared)?.bytecode.as_ref()?.length;
        // Offsets count from the tagged address of the bytecode.
        let bias = self.layout.bytecode_data - 1;
        let offset = u64::try_from(small(words[SUSPENDED_AT])?).ok()?.checked_sub(bias)?;
        let offset = u32::try_from(offset).ok().filter(|offset| *offset < length)?;
        let promise = self.promise_of(kind, words[PROMISE], true)?;
        Some((Awaiter { function, receiver: words[RECEIVER], shared, offset }, promise))
    }
}
