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

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::{AWAIT, MORE_AWAIT, RawFrame};
use crate::process::memory::ReadMemory;
use crate::runtimes::v8::V8;
use crate::runtimes::v8::code_objects::Codes;
use crate::runtimes::v8::functions::{Called, Functions, shared_of_function};
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{Awaiting, Layout};
use crate::runtimes::v8::promises::{AWAIT_LENGTH, Awaiter, Chain, Reader, holds};
use crate::unwinder::Place;
use crate::unwinder::awaiting::{AwaitLayout, RETURNS_MAX, TakenObjects};

/// Maximum chains remembered.
const CHAINS_MAX: usize = 1024;
const WORD: usize = 8;

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

/// What a stack that is walked says of resumed functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OnStack {
    #[default]
    None,
    One(Resumed),
    /// A program has run its microtasks inside of one. No chain leads to the whole stack then.
    Several,
}

/// Chains by the object of the resumed function, and what the kernel has to know to take them.
#[derive(Default)]
pub struct Chains {
    on_stack: OnStack,
    known: FxHashMap<u64, Arc<Chain>>,
    markers: Option<[RawFrame; 2]>,
    wanted: AwaitLayout,
}

impl Chains {
    /// `builtins`: the number of V8's built-in functions.
    pub fn new(layout: &Layout, builtins: usize) -> Chains {
        let of = |awaiting: &Awaiting| AwaitLayout {
            returns: Vec::new(),
            types: awaiting.types,
            functions: [layout.types.first_function, layout.types.last_function],
            instance_type: layout.instance_type,
            context: awaiting.context / WORD as u64,
            shared: layout.shared / WORD as u64,
            next_reaction: awaiting.next_reaction / WORD as u64,
            data: layout.data,
            resolve: awaiting.resolver(builtins).unwrap_or_default() as u64,
        };
        let wanted = layout.awaiting.as_ref().map(of).unwrap_or_default();
        Chains { wanted, ..Chains::default() }
    }

    /// Returns which objects the kernel shall take, once it is known where functions are resumed.
    pub fn wanted(&self) -> Option<&AwaitLayout> {
        Some(&self.wanted).filter(|wanted| !wanted.returns.is_empty())
    }

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
        // The context may be gone, but this code does nothing else.
        let is_known = self.chains.wanted.returns.contains(&place.pc);
        if !is_known && !self.is_resuming(context) {
            return;
        }
        let Some(resumed) = Resumed::copied(place, fp, word) else { return };
        if !is_known && self.has_resumed(&resumed) {
            let returns = &mut self.chains.wanted.returns;
            // The oldest may be that of a worker that has ended.
            if returns.len() >= RETURNS_MAX {
                returns.remove(0);
            }
            returns.push(place.pc);
        }
        let chains = &mut self.chains;
        chains.on_stack = match chains.on_stack {
            OnStack::None => OnStack::One(resumed),
            _ => OnStack::Several,
        };
    }

    /// Whether a built-in function with this context may have resumed a function.
    fn is_resuming(&self, context: u64) -> bool {
        let V8 { heap, layout, .. } = self;
        let Some(awaiting) = &layout.awaiting else { return false };
        let context = heap.moved(context);
        let [first, last] = awaiting.contexts;
        let is_context = |kind: u16| (first..=last).contains(&kind);
        let length = || small(heap.word(context.checked_add(WORD as u64)?)?);
        heap.kind(layout, context).is_some_and(is_context) && length() == Some(AWAIT_LENGTH)
    }

    /// Whether the objects of both frames are still there and prove it.
    fn has_resumed(&mut self, resumed: &Resumed) -> bool {
        let by = [resumed.words[RESUMING], resumed.words[CONTEXT]].map(object);
        let ([Some(function), Some(context)], Some(mut reader)) = (by, self.reader(None)) else {
            return false;
        };
        reader.resumed_by(function, context).is_some()
    }

    fn reader<'a>(&'a mut self, taken: Option<&'a TakenObjects>) -> Option<Reader<'a, M>> {
        let V8 { heap, layout, functions, builtins, .. } = self;
        Reader::new(heap, layout, functions, builtins.count(), taken)
    }

    /// Returns a marker and the functions behind it that await the one which was resumed on the
    /// stack that was walked last, innermost first. `taken`: what the kernel has taken with it.
    pub(super) fn await_chain(&mut self, taken: Option<&TakenObjects>) -> Option<Vec<RawFrame>> {
        let OnStack::One(resumed) = self.chains.on_stack else { return None };
        if let Some(taken) = taken.filter(|taken| taken.outer == resumed.links[1])
            && let Some(chain) = self.taken_chain(&resumed.words, taken)
        {
            return self.frames_of(&chain);
        }
        let words = resumed.now(&self.heap.memory)?;
        are_same(&self.heap.memory, &resumed.words, &words).then_some(())?;
        let chain = self.chain(&words)?;
        (resumed.now(&self.heap.memory)? == words).then_some(())?;
        self.frames_of(&chain)
    }

    /// Returns the chain that was taken at the instant of the stack.
    fn taken_chain(&mut self, words: &Words, taken: &TakenObjects) -> Option<Chain> {
        let mut reader = self.reader(Some(taken))?;
        let resumed = reader.resumed_by(object(words[RESUMING])?, object(words[CONTEXT])?)?;
        let chain = reader.chain(resumed)?;
        reader.are_same(chain.function, object(words[RESUMED])?).then_some(chain)
    }

    /// Returns the chain of the resumed function, which is known, or is read now.
    fn chain(&mut self, words: &Words) -> Option<Arc<Chain>> {
        let V8 { heap, layout, functions, chains, builtins, .. } = self;
        let mut reader = Reader::new(heap, layout, functions, builtins.count(), None)?;
        let resumed = reader.resumed_by(object(words[RESUMING])?, object(words[CONTEXT])?)?;
        let head = reader.take_evidence();
        let is_it = |chain: &Chain| Some(chain.function) == object(words[RESUMED]);
        if let Some(known) = chains.known.get(&resumed)
            && is_it(known)
            && holds(&heap.memory, [&head, &known.evidence])
        {
            return Some(known.clone());
        }
        let chain = Arc::new(reader.chain(resumed)?);
        (is_it(&chain) && holds(&heap.memory, [&head, &chain.evidence])).then_some(())?;
        if chains.known.len() >= CHAINS_MAX {
            chains.known.clear();
        }
        chains.known.insert(resumed, chain.clone());
        Some(chain)
    }

    fn frames_of(&mut self, chain: &Chain) -> Option<Vec<RawFrame>> {
        let V8 { heap, layout, functions, codes, names, chains, .. } = self;
        let mut frames = Vec::new();
        for awaiter in &chain.awaiters {
            functions.get(heap, layout, awaiter.shared)?;
            find_class(heap, layout, functions, codes, awaiter);
            let Awaiter { shared, offset, .. } = *awaiter;
            frames.push(functions.frame(heap, layout, names, shared, Some(offset), None)?.0);
        }
        let named = |text| names.frame(vec![Location::named(text, FrameKind::Marker)]);
        let [before, more] = *chains.markers.get_or_insert_with(|| [AWAIT, MORE_AWAIT].map(named));
        if !frames.is_empty() || chain.has_more {
            frames.insert(0, before);
        }
        frames.extend(chain.has_more.then_some(more));
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
    let has_moved = shared_of_function(heap, layout, function) != Some(shared);
    if !has_moved && functions.find_class(heap, layout, shared, Called::On { function, receiver }) {
        codes.forget_frames();
    }
}
