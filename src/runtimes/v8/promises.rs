//! Follows promises from an async function that executes to those that await it.
//!
//! The objects are read from memory while the program runs, or they were taken by the kernel at one
//! instant.

use crate::process::memory::ReadMemory;
use crate::runtimes::v8::functions::Functions;
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{Awaiting, Layout};
use crate::unwinder::awaiting::{AwaitTypes, TakenObjects};

/// Maximum functions of a chain, and promises followed for them.
const FUNCTIONS_MAX: usize = 16;
const PROMISES_MAX: usize = 64;
const WORD: usize = 8;

/// Words of the object of an async function or generator. These numbers are equal in all versions;
/// awaiting.bpf.h repeats them. The last word is the promise of a function, and the first request
/// of a generator.
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
pub const AWAIT_LENGTH: i32 = 3;

/// Pieces of memory, and what was read there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    pieces: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

/// Whether all of it is in memory now.
pub fn holds<M: ReadMemory>(memory: &M, evidence: [&Evidence; 2]) -> bool {
    let pieces = evidence.map(|evidence| &evidence.pieces[..]).concat();
    let [first, second] = evidence.map(|evidence| &evidence.bytes[..]);
    let mut bytes = vec![0; first.len() + second.len()];
    memory.read_pieces(&pieces, &mut bytes).is_some()
        && bytes.split_at(first.len()) == (first, second)
}

/// A function that awaits another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaiter {
    /// Its `JSFunction`, what that was called on, and its `SharedFunctionInfo`.
    pub function: u64,
    pub receiver: u64,
    pub shared: u64,
    /// Offset of its bytecode at which it is suspended.
    pub offset: u32,
}

/// The functions that await a resumed one, innermost first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// The `JSFunction` of the resumed one.
    pub function: u64,
    pub awaiters: Vec<Awaiter>,
    /// There are more of them.
    pub has_more: bool,
    /// What was read from memory.
    pub evidence: Evidence,
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
pub struct Reader<'a, M> {
    heap: &'a Heap<M>,
    layout: &'a Layout,
    awaiting: &'a Awaiting,
    types: AwaitTypes,
    functions: &'a mut Functions,
    /// V8's number of the built-in function that resolves a promise, if it is known.
    resolve: Option<usize>,
    /// `None`: objects are read from memory.
    taken: Option<&'a TakenObjects>,
    /// The type of contexts that resume functions.
    resuming: Option<u16>,
    evidence: Evidence,
}

impl<'a, M: ReadMemory> Reader<'a, M> {
    /// `builtins`: the number of V8's built-in functions. `None`: this V8 is not known well enough.
    pub fn new(
        heap: &'a Heap<M>,
        layout: &'a Layout,
        functions: &'a mut Functions,
        builtins: usize,
        taken: Option<&'a TakenObjects>,
    ) -> Option<Reader<'a, M>> {
        let awaiting = layout.awaiting.as_ref()?;
        Some(Reader {
            heap,
            layout,
            awaiting,
            types: awaiting.types,
            functions,
            resolve: awaiting.resolver(builtins),
            taken,
            resuming: None,
            evidence: Evidence::default(),
        })
    }

    /// Returns what was read from memory since the last call.
    pub fn take_evidence(&mut self) -> Evidence {
        std::mem::take(&mut self.evidence)
    }

    /// Returns the first words of an object.
    fn words<const N: usize>(&mut self, at: u64) -> Option<[u64; N]> {
        self.words_from(at, 0)
    }

    /// Returns words of an object from the `nth` one on.
    fn words_from<const N: usize>(&mut self, at: u64, nth: usize) -> Option<[u64; N]> {
        if let Some(taken) = self.taken {
            return taken.get(at)?.words.get(nth..nth + N)?.try_into().ok();
        }
        let at = at.checked_add((WORD * nth) as u64)?;
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

    /// Returns the type of an object.
    fn kind(&self, at: u64) -> Option<u16> {
        match self.taken {
            Some(taken) => Some(taken.get(at)?.kind),
            None => self.heap.kind(self.layout, at),
        }
    }

    /// Whether two addresses are those of one object.
    pub fn are_same(&self, one: u64, other: u64) -> bool {
        let now = |at| self.taken.map_or(at, |taken| taken.now(at));
        now(one) == now(other)
    }

    /// Whether it is the object of an async function or generator.
    fn is_suspendable(&self, kind: u16) -> bool {
        kind == self.types.function || kind == self.types.generator
    }

    /// Returns words and the `SharedFunctionInfo` of a `JSFunction`.
    fn function(&mut self, at: u64) -> Option<([u64; FUNCTION_WORDS], u64)> {
        let words: [u64; FUNCTION_WORDS] = self.words(at)?;
        let (kind, types) = (self.kind(at)?, &self.layout.types);
        (types.first_function..=types.last_function).contains(&kind).then_some(())?;
        Some((words, object(*words.get(self.layout.shared as usize / WORD)?)?))
    }

    /// Returns the object of the function that a built-in function has resumed.
    pub fn resumed_by(&mut self, function: u64, context: u64) -> Option<u64> {
        self.resuming = self.kind(context);
        match self.called(function)? {
            (Some(found), Handler::Resumes(resumed)) if self.are_same(found, context) => {
                Some(resumed)
            }
            _ => None,
        }
    }

    /// Returns the context of a built-in function, and what it does; of another function neither.
    fn called(&mut self, function: u64) -> Option<(Option<u64>, Handler)> {
        let (words, shared) = self.function(function)?;
        let builtin = self.functions.get(self.heap, self.layout, shared)?.builtin;
        let Some(builtin) = builtin else { return Some((None, Handler::Other)) };
        let at = object(*words.get(self.awaiting.context as usize / WORD)?)?;
        let context: [u64; CONTEXT_WORDS] = self.words(at)?;
        let kind = self.kind(at)?;
        (self.awaiting.contexts[0]..=self.awaiting.contexts[1]).contains(&kind).then_some(())?;
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
    pub fn chain(&mut self, resumed: u64) -> Option<Chain> {
        // What it was resumed with changes each time, so that is not read.
        let [_, _, _, function] = self.words(resumed)?;
        let [state, _, promise] = self.words_from(resumed, STATE)?;
        (small(state)? == EXECUTING).then_some(())?;
        let (kind, function) = (self.kind(resumed)?, object(function)?);
        let (mut awaiters, mut has_more) = (Vec::new(), false);
        let mut next = self.promise_of(kind, promise, false)?;
        for _ in 0..PROMISES_MAX {
            let Some(promise) = next.filter(|_| awaiters.len() <= FUNCTIONS_MAX) else { break };
            next = match self.follow(promise, &mut awaiters) {
                Some(next) => next,
                None if self.taken.is_some_and(|taken| taken.is_full) => {
                    has_more = true;
                    break;
                }
                None => return None,
            };
        }
        has_more |= awaiters.len() > FUNCTIONS_MAX;
        awaiters.truncate(FUNCTIONS_MAX);
        Some(Chain { function, awaiters, has_more, evidence: self.take_evidence() })
    }

    /// Returns the promise that is settled after this one, and adds the function that does it.
    fn follow(&mut self, promise: u64, awaiters: &mut Vec<Awaiter>) -> Option<Option<u64>> {
        Some(match self.reaction_to(promise)? {
            Handler::Resumes(awaiting) => {
                let (awaiter, promise) = self.awaiter(awaiting)?;
                awaiters.push(awaiter);
                promise
            }
            Handler::Settles(promise) => promise,
            Handler::Other => None,
        })
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
        (self.kind(promise)? == self.types.promise).then_some(())?;
        let promise: [u64; PROMISE_WORDS] = self.words(promise)?;
        if small(promise[FLAGS])? & STATUS != 0 {
            return Some(Handler::Other);
        }
        let Some(reaction) = object(promise[REACTIONS]) else { return Some(Handler::Other) };
        (self.kind(reaction)? == self.types.reaction).then_some(())?;
        let reaction: [u64; REACTION_WORDS] = self.words(reaction)?;
        let next = self.awaiting.next_reaction as usize / WORD;
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
        let kind = self.kind(at)?;
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
