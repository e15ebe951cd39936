//! Made-up async functions that await each other, and the stack of the one that was resumed.

use super::*;

/// V8's numbers of built-in functions: of what resumes a function, of what `Promise.all` waits for,
/// and of what resolves and rejects a promise.
pub(super) const RESUMES: u64 = 30;
pub(super) const OF_ALL: u64 = 40;
pub(super) const RESOLVES: u64 = 41;
pub(super) const REJECTS: u64 = 42;
/// The built-in function that has resumed, behind its call.
pub(super) const RESUMER: u64 = BUILTINS + 64 * RESUMES + 12;

/// Words of the stack, and of the links of both frames in it.
pub(super) const STACK_WORDS: usize = 64;
pub(super) const INNER: usize = 10;
pub(super) const OUTER: usize = 20;

/// What follows when a promise is fulfilled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Then {
    /// This function awaits it.
    Awaits(&'static str),
    /// So does this async generator, which was asked in this way.
    Yields(&'static str, u64),
    /// The function's object is in the reaction itself.
    Direct(&'static str),
    /// A built-in function of this number has the promise that is settled, by a capability or not.
    Settles { number: u64, capability: bool },
    /// `then` has returned a promise, as a capability or not; the function called before is one of
    /// the program, or none.
    Calls { program: bool, capability: bool },
}

pub(super) struct Awaited {
    pub(super) program: Program,
    /// Address of the first word of the stack.
    pub(super) stack: u64,
    /// Objects, as addresses plus 1: of the resumed function; the promise of its result.
    pub(super) resumed: u64,
    pub(super) promise: u64,
    /// What has resumed it, and the context of that.
    pub(super) resumer: u64,
    pub(super) context: u64,
    pub(super) undefined: u64,
}

impl Awaited {
    pub(super) fn new(version: Version, way: &[Then]) -> Awaited {
        Awaited::apart(version, way, 0)
    }

    /// The same with this number of words before and behind the functions that await.
    pub(super) fn apart(version: Version, way: &[Then], gap: usize) -> Awaited {
        let mut program = program(version);
        if let Some(awaiting) = &mut program.layout.awaiting {
            awaiting.resolve = (600, RESOLVES as usize);
        }
        let stack = program.world.object(&[0; STACK_WORDS]) - 1;
        let undefined = program.world.object(&[program.world.map(131), 0]);
        let mut it =
            Awaited { program, stack, resumed: 0, promise: 0, resumer: 0, context: 0, undefined };
        it.object(&vec![0; gap]);
        it.promise = it.promise(way);
        it.object(&vec![0; gap]);
        it.resumed = it.executed(it.program.told, it.promise);
        (it.resumer, it.context) = it.resumer(it.resumed);
        let Program { told, bytecode, ref layout, .. } = it.program;
        for (at, word) in [
            (INNER - 5, small(layout.bytecode_data)),
            (INNER - 4, bytecode),
            (INNER - 2, told),
            (INNER - 1, it.undefined),
            (INNER, it.stack + 8 * OUTER as u64),
            (INNER + 1, RESUMER),
            (INNER + 2, it.undefined),
            (OUTER - 2, it.resumer),
            (OUTER - 1, it.context),
            (OUTER, it.stack + 8 * 30),
            (OUTER + 1, 0x1234_5678),
        ] {
            it.set_stack(at, word);
        }
        it
    }

    pub(super) fn map(&self, name: &str) -> u64 {
        self.program.world.map(kind(self.program.layout.version, name))
    }

    pub(super) fn object(&self, words: &[u64]) -> u64 {
        self.program.world.object(words)
    }

    pub(super) fn set(&self, object: u64, offset: u64, word: u64) {
        self.program.world.set(object, offset, word);
    }

    pub(super) fn word(&self, object: u64, offset: u64) -> u64 {
        (&self.program.world).read_u64(object - 1 + offset).expect("there")
    }

    /// Returns the first words of an object.
    pub(super) fn words(&self, object: u64) -> Vec<u64> {
        (0..11).map(|nth| self.word(object, 8 * nth)).collect()
    }

    pub(super) fn set_stack(&self, at: usize, word: u64) {
        self.set(self.stack + 1, 8 * at as u64, word);
    }

    /// Makes a function of the program with the bytecode of `told`.
    pub(super) fn function(&self, name: &str) -> u64 {
        let Program { told, ref layout, .. } = self.program;
        let of_told = self.word(told, layout.shared);
        let shared: Vec<u64> = (0..8).map(|nth| self.word(of_told, 8 * nth)).collect();
        let shared = self.object(&shared);
        self.set(shared, layout.name, self.program.world.string(name));
        self.closure(shared, 0)
    }

    pub(super) fn closure(&self, shared: u64, context: u64) -> u64 {
        let Program { told, ref layout, .. } = self.program;
        let closure = self.object(&[self.word(told, 0), 0, 0, 0, 0, 0, 0]);
        self.set(closure, layout.shared, shared);
        let at = layout.awaiting.as_ref().expect("it is known").context;
        self.set(closure, at, context);
        closure
    }

    /// Makes a built-in function of this number.
    pub(super) fn builtin(&self, number: u64, context: u64) -> u64 {
        let Program { told, ref layout, .. } = self.program;
        let shared =
            self.object(&[self.word(self.word(told, layout.shared), 0), 0, 0, 0, 0, 0, 0, 0]);
        self.set(shared, layout.data[0], small(number));
        self.set(shared, layout.name, self.program.world.string("built"));
        self.closure(shared, context)
    }

    pub(super) fn context(&self, kind: u16, variables: &[u64]) -> u64 {
        let head = [self.program.world.map(kind), small(2 + variables.len() as u64), 0, 0];
        self.object(&[&head, variables, &[0, 0]].concat())
    }

    /// Makes what resumes the function with this object, and returns its context too.
    pub(super) fn resumer(&self, object: u64) -> (u64, u64) {
        let context = self.context(CONTEXT_TYPE, &[object]);
        (self.builtin(RESUMES, context), context)
    }

    /// Makes the object of a suspended function.
    pub(super) fn suspended(&self, kind: &str, function: u64, last: u64) -> u64 {
        let at = small(self.program.layout.bytecode_data + 2);
        self.object(&[self.map(kind), 0, 0, function, 0, self.undefined, at, 0, small(7), 0, last])
    }

    /// Makes the object of a function that is executed.
    pub(super) fn executed(&self, function: u64, promise: u64) -> u64 {
        let kind = "JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT";
        let object = self.suspended(kind, function, promise);
        self.set(object, 64, small(-2i32 as u32 as u64));
        object
    }

    pub(super) fn suspended_function(&self, name: &str, promise: u64) -> u64 {
        let kind = "JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT";
        self.suspended(kind, self.function(name), promise)
    }

    pub(super) fn reaction(&self, fulfilled: u64, result: u64) -> u64 {
        let map = self.map("PromiseReaction__PROMISE_REACTION");
        let reaction = self.object(&[map, 0, 0, 0, 0, 0, 0]);
        let next = self.program.layout.awaiting.as_ref().expect("it is known").next_reaction;
        self.set(reaction, next + 8, self.undefined);
        self.set(reaction, next + 16, fulfilled);
        self.set(reaction, next + 24, result);
        reaction
    }

    pub(super) fn capability(&self, promise: u64) -> u64 {
        self.object(&[self.map("PromiseCapability__PROMISE_CAPABILITY"), promise, 0, 0])
    }

    /// Makes the promise after which this follows.
    pub(super) fn promise(&self, way: &[Then]) -> u64 {
        let reactions = match way.split_first() {
            None => 0,
            Some((then, outer)) => self.follows(*then, self.promise(outer)),
        };
        self.object(&[self.map("JSPromise__JS_PROMISE"), 0, 0, reactions, 0])
    }

    pub(super) fn follows(&self, then: Then, outer: u64) -> u64 {
        let undefined = self.undefined;
        let or_capability = |is: bool| if is { self.capability(outer) } else { outer };
        match then {
            Awaits(name) => {
                self.reaction(self.resumer(self.suspended_function(name, outer)).0, undefined)
            }
            Direct(name) => self.reaction(self.suspended_function(name, outer), undefined),
            Yields(name, mode) => {
                let map = self.map("AsyncGeneratorRequest__ASYNC_GENERATOR_REQUEST");
                let request = self.object(&[map, undefined, small(mode), undefined, outer]);
                let kind = "JSAsyncGeneratorObject__JS_ASYNC_GENERATOR_OBJECT";
                let generator = self.suspended(kind, self.function(name), request);
                self.reaction(self.resumer(generator).0, undefined)
            }
            Settles { number, capability } => {
                let variables = match capability {
                    true => [small(1), self.capability(outer), undefined],
                    false => [outer, undefined, undefined],
                };
                let context = self.context(CONTEXT_TYPE + 1, &variables);
                self.reaction(self.builtin(number, context), undefined)
            }
            Calls { program, capability } => {
                let called = if program { self.function("called") } else { undefined };
                self.reaction(called, or_capability(capability))
            }
        }
    }

    /// Returns the words of the stack as they are now.
    pub(super) fn copy(&self) -> Vec<u64> {
        (0..STACK_WORDS as u64).map(|nth| self.word(self.stack + 1, 8 * nth)).collect()
    }

    /// Walks both frames of a stack that was copied.
    pub(super) fn walk(&self, v8: &mut V8<&World>, now: Ns, copied: &[u64]) {
        v8.begin_at(now, Ns::MAX, false);
        self.walk_frames(v8, copied, self.stack, INNER);
    }

    /// Leaves the frame of a function whose link is the word `inner`, and its caller's.
    pub(super) fn walk_frames(&self, v8: &mut V8<&World>, copied: &[u64], sp: u64, inner: usize) {
        let mut word = |at: u64| copied.get((at.checked_sub(self.stack)? / 8) as usize).copied();
        let rbp = Some(self.stack + 8 * inner as u64);
        let mut place = Place { pc: TRAMPOLINE, exact: false, sp, rbp, general: None };
        for _ in 0..2 {
            let left = v8.leave_frame(place, &mut word, &mut Vec::new());
            let Leave::To { pc, sp, rbp } = left else { panic!("{left:?}") };
            place = Place { pc, sp, rbp, ..place };
        }
    }

    /// Returns names of the functions that await the resumed one.
    pub(super) fn chain(&self, v8: &mut V8<&World>, now: Ns, copied: &[u64]) -> Vec<String> {
        self.walk(v8, now, copied);
        names(v8)
    }

    pub(super) fn awaiting(&self) -> Vec<String> {
        self.chain(&mut reader(&self.program), 0, &self.copy())
    }

    /// Returns what the kernel takes, and more: all objects that the frames lead to.
    pub(super) fn taken(&self) -> TakenObjects {
        let frames = [INNER - 2, OUTER - 2, OUTER - 1];
        let mut todo: Vec<u64> =
            frames.iter().map(|at| self.word(self.stack + 1, 8 * *at as u64)).collect();
        let mut objects: Vec<TakenObject> = Vec::new();
        let (world, mut seen) = (&&self.program.world, FxHashSet::default());
        while let Some(word) = todo.pop() {
            let Some(at) = heap::object(word).filter(|at| seen.insert(*at)) else { continue };
            let read = |at: u64| world.read_u64(at).unwrap_or_default();
            let is_moved = |map: u64| map & 3 == 0 && map >= HEAP;
            let now = Some(read(at)).filter(|map| is_moved(*map)).unwrap_or(at);
            let words = std::array::from_fn(|nth| read(now.wrapping_add(8 * nth as u64)));
            let kind = read((words[0] & !3).wrapping_add(8)) >> 32;
            objects.push(TakenObject { at, now, kind: kind as u16, words });
            todo.extend(words);
        }
        TakenObjects { outer: self.stack + 8 * OUTER as u64, is_full: false, objects }
    }

    /// Returns names of the functions that awaited the resumed one when this was taken.
    pub(super) fn taken_chain(&self, v8: &mut V8<&World>, taken: &TakenObjects) -> Vec<String> {
        self.walk(v8, 0, &self.copy());
        names_of(v8, Some(taken))
    }

    /// Returns the object of the first function that awaits.
    pub(super) fn object_of_first(&self) -> u64 {
        let awaiting = self.program.layout.awaiting.as_ref().expect("it is known");
        let handler = self.word(self.word(self.promise, 24), awaiting.next_reaction + 16);
        self.word(self.word(handler, awaiting.context), 32)
    }
}
