//! Waits for the interpreter's lock and for locks of the program, on made-up memory.

use super::made_up_objects::{list, thread_object};
use super::*;
use crate::model::facts::tables::Tier;
use crate::model::vocabulary::blocker::{BlockerKind, RawHolder};
use layout::GilAt;

/// A second thread, and addresses that are used for nothing else.
const OTHER: u64 = PTHREAD + 0x10_0000;
const SP: u64 = 0x7000_0000_1000;
const GIL: u64 = 0x6000_0000_0000;
/// Where no code object is.
const CODE_OF_NOTHING: u64 = 0x6000_0002_0000;
const SEMAPHORE: u64 = 0x6000_0001_0000;

/// Makes an interpreter with two threads; returns the state of the second one.
fn two_threads(layout: Layout) -> (Program, u64) {
    let (program, thread, _) = program(layout);
    let interpreter = program.world.get(thread + layout.thread.interpreter);
    let second = program.thread(interpreter, OTHER, 72);
    (program, second)
}

fn at(futex: u64) -> StackOwner {
    StackOwner { sp: SP, futex: Some(futex), ..owner(0) }
}

fn waits(python: &mut Cpython<&World>, futex: u64) -> Option<String> {
    python.begin(Ns::MAX, false);
    let found = python.interpreted(at(futex), None).expect("frames");
    found.waits.map(|frame| words(&python.names, frame))
}

/// Returns kind, class and holder.
fn blocker(
    python: &mut Cpython<&World>,
    futex: u64,
) -> Option<(BlockerKind, Option<String>, RawHolder)> {
    let found = python.blocker(at(futex))?;
    let class = found.class.and_then(|name| python.names.thread(name));
    Some((found.kind, class.map(|class| class.to_string()), found.holder))
}

fn second() -> RawHolder {
    RawHolder::Thread { pid: 0, tid: 72 }
}

/// Returns the address of the lock of the interpreter of this thread state.
fn make_gil(program: &Program, state: u64) -> u64 {
    let Layout { interpreter, thread, .. } = &program.layout;
    match interpreter.gil.at {
        GilAt::Runtime(at) => RUNTIME + at,
        GilAt::Interpreter(at) => {
            program.world.word(program.world.get(state + thread.interpreter) + at, GIL);
            GIL
        }
    }
}

fn tiers(names: &Names, found: &Evaluations) -> Vec<Option<Tier>> {
    let tier = |frame: &RawFrame| names.named(*frame).and_then(|named| named.locations[0].tier);
    found.frames.iter().map(tier).collect()
}

#[test]
fn who_runs_an_interpreter_holds_its_lock_and_not_who_created_it() {
    for layout in layouts().into_iter().filter(|layout| (11..=12).contains(&layout.minor)) {
        let (program, first, codes) = program(layout);
        let main = program.world.get(first + layout.thread.interpreter);
        let created = program.thread(program.interpreter(), PTHREAD, 71);
        program.world.stack_below(PTHREAD + 0x1_0000);
        let second = program.thread(main, PTHREAD + 0x1_0000, 72);
        program.frames(second, &evaluation(&layout, &[Made::Call(codes[1], 0)]));
        program.frames(created, &evaluation(&layout, &[Made::Call(codes[2], 0)]));
        let lock = make_gil(&program, created);
        if let GilAt::Interpreter(at) = layout.interpreter.gil.at {
            program.world.word(main + at, GIL + 0x1000);
        }
        let gil = layout.interpreter.gil;
        program.world.word(lock + gil.holder, created);
        program.world.word(lock + gil.locked, 1);
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        let innermost = |python: &mut Cpython<&World>, nth| {
            python.begin(Ns::MAX, false);
            let found = python.interpreted(owner(nth), None).expect("frames");
            tiers(&python.names, &found)
        };
        assert_eq!(innermost(&mut python, 0), [None; 4], "{layout:?}");
        assert_eq!(innermost(&mut python, 1), [Some(Tier::Gil), None], "{layout:?}");
    }
}

#[test]
fn the_innermost_function_says_that_its_thread_holds_the_lock() {
    for layout in layouts() {
        let (program, second_state) = two_threads(layout);
        let lock = make_gil(&program, second_state);
        let gil = layout.interpreter.gil;
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        let own = program.world.get(RUNTIME + layout.interpreters) + layout.interpreter.threads;
        let mut states = std::iter::successors(Some(program.world.get(own)), |state| {
            Some(program.world.get(state + layout.thread.next)).filter(|state| *state != 0)
        });
        let state = states.find(|state| *state != second_state).expect("the first thread");
        for (holder, locked, holds) in
            [(state, 1, true), (state, 0, false), (second_state, 1, false), (0, 0, false)]
        {
            program.world.word(lock + gil.holder, holder);
            // What lies behind the field is another one.
            program.world.word(lock + gil.locked, 0x7700_0000_0000 | locked);
            python.begin(Ns::MAX, false);
            let found = python.interpreted(owner(0), None).expect("frames");
            let mut expected = vec![None; found.frames.len()];
            expected[0] = (holds && !layout.free_threaded).then_some(Tier::Gil);
            assert_eq!(tiers(&python.names, &found), expected, "{layout:?}");
        }
        // Of a running thread the kernel says it, which finds the same lock.
        let for_kernel = python.interpreter_layout().expect("a layout");
        let [interpreter, holder, locked] =
            [for_kernel.thread_interpreter, for_kernel.lock_holder, for_kernel.lock_locked]
                .map(u64::from);
        let its_lock = match for_kernel.interpreter_lock {
            Some(at) => program.world.get(program.world.get(state + interpreter) + u64::from(at)),
            None => for_kernel.lock,
        };
        assert_eq!((its_lock, holder, locked), (lock, gil.holder, gil.locked), "{layout:?}");
        assert_eq!(for_kernel.lock != 0, !layout.free_threaded, "{layout:?}");
        let frame = InterpreterFrame { code: CODE_OF_NOTHING, ..InterpreterFrame::default() };
        let mut frames = vec![frame];
        let layout_of = |python: &mut Cpython<&World>| {
            let at = python.threads.states.iter().position(|known| known.address == state);
            let mut found = Vec::new();
            python.read_parts(&[at.expect("known")], &mut found).expect("frames");
            found
        };
        frames.extend(layout_of(&mut python));
        for holds_lock in [true, false] {
            let taken = Taken { frames: frames.clone(), holds_lock, ..Taken::default() };
            let found = python.interpreted(owner(0), Some(&taken)).expect("frames");
            let mut expected = vec![None; found.frames.len()];
            // The innermost frame has no name.
            expected[1] = holds_lock.then_some(Tier::Gil);
            assert_eq!(tiers(&python.names, &found), expected, "{layout:?}");
        }
    }
}

#[test]
fn a_futex_in_the_interpreter_s_lock_is_a_wait_for_it() {
    for layout in layouts() {
        let (program, second_state) = two_threads(layout);
        let gil = layout.interpreter.gil;
        let lock = make_gil(&program, second_state);
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        if layout.free_threaded {
            assert_eq!(waits(&mut python, lock + 48), None, "it has none");
            continue;
        }
        let frame = "[waiting for the GIL] :?";
        assert_eq!(waits(&mut python, lock + 48).as_deref(), Some(frame), "{layout:?}");
        assert_eq!(waits(&mut python, lock - 4), None);
        assert_eq!(waits(&mut python, lock + 0x100), None);
        let put = |state: u64, locked: u64| {
            program.world.word(lock + gil.holder, state);
            program.world.word(lock + gil.locked, locked);
        };
        let mut held = || blocker(&mut python, lock + 48).expect("it waits");
        put(second_state, 1);
        assert_eq!(held(), (BlockerKind::Gil, None, second()), "{layout:?}");
        put(second_state, 0);
        assert_eq!(held().2, RawHolder::Free, "just released");
        // It began after the threads were read.
        let interpreter = program.world.get(second_state + layout.thread.interpreter);
        let third = program.thread(interpreter, OTHER + 0x10_0000, 73);
        put(third, 1);
        assert_eq!(held().2, RawHolder::Thread { pid: 0, tid: 73 }, "{layout:?}");
        put(0x1230, 1);
        assert_eq!(held().2, RawHolder::Unknown, "no thread's state");
    }
}

#[test]
fn an_interpreter_may_have_a_lock_of_its_own() {
    for layout in layouts().into_iter().filter(|layout| layout.minor >= 12) {
        let GilAt::Interpreter(offset) = layout.interpreter.gil.at else { continue };
        let (program, second_state) = two_threads(layout);
        make_gil(&program, second_state);
        let own = GIL + 0x1000;
        program.world.word(program.interpreter() + offset, own);
        program.world.word(own + layout.interpreter.gil.holder, second_state);
        program.world.word(own + layout.interpreter.gil.locked, 1);
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        let found = blocker(&mut python, own + 48);
        assert_eq!(found, Some((BlockerKind::Gil, None, second())), "{layout:?}");
    }
}

/// Makes a lock of this type at which a thread waits by a semaphore, or by a mutex.
fn lock(program: &Program, kind: &[u8], by_mutex: bool) -> u64 {
    let (world, o) = (&program.world, &program.layout.object);
    let (name, class, object) = (world.alloc(32), world.alloc(512), world.alloc(64));
    world.put(name, kind);
    world.word(class + o.type_name, name);
    world.word(object + o.kind, class);
    world.word(object + o.kind + 8, if by_mutex { 3 } else { SEMAPHORE });
    world.word(object + o.kind + 16, OTHER);
    object
}

/// Puts words on the native stack, among others.
fn stack(program: &Program, words: &[u64]) {
    program.world.put(SP, &[0; 1536]);
    let numbers = [1, 0x7fff_ffff_ffff_fff8, SP + 64, 0x10_0001, SEMAPHORE];
    for (nth, word) in numbers.iter().chain(words).enumerate() {
        program.world.word(SP + 16 * nth as u64, *word);
    }
}

#[test]
fn a_lock_on_the_stack_is_what_the_thread_waits_for() {
    for layout in layouts() {
        for by_mutex in [false, true] {
            // Of mutexes the futex is elsewhere.
            let futex = if by_mutex { 0x1000 } else { SEMAPHORE };
            let possible = !by_mutex || layout.minor >= 13;
            let (program, _) = two_threads(layout);
            // A thread that does not run yet has no pthread_t, as a lock has none of its holder.
            program.thread(program.world.get(RUNTIME + layout.interpreters), 0, 79);
            let rlock = lock(&program, b"_thread.RLock\0", by_mutex);
            let plain = lock(&program, b"_thread.lock\0", by_mutex);
            let other = lock(&program, b"_thread.other\0", by_mutex);
            let mutex = |object: u64| object + layout.object.kind + 8;
            let mut python = reader(&program);
            python.check(|id| id == 71).expect("it fits");
            let mut found = |objects: &[u64]| {
                stack(&program, objects);
                (waits(&mut python, futex), blocker(&mut python, futex))
            };
            let named = |class: &str, holder| {
                let blocker = (BlockerKind::ThreadingLock, Some(class.to_owned()), holder);
                (Some(format!("{class}.acquire :?")), Some(blocker))
            };
            assert_eq!(found(&[other, mutex(other)]), (None, None), "{layout:?}");
            let expected = named("threading.RLock", second());
            let of_rlock = found(&[other, rlock, mutex(rlock)]);
            assert_eq!(of_rlock, if possible { expected } else { (None, None) }, "{layout:?}");
            let expected = named("threading.Lock", RawHolder::Unknown);
            let of_plain = found(&[plain, mutex(plain), rlock]);
            if by_mutex && possible {
                assert_eq!(of_plain, expected, "{layout:?}");
                // Without its address the mutex is another one's; without a waiter nothing waits.
                assert_eq!(found(&[rlock]), (None, None), "{layout:?}");
                program.world.word(rlock + layout.object.kind + 8, 1);
                assert_eq!(found(&[rlock, mutex(rlock)]), (None, None), "{layout:?}");
            } else if possible {
                // It was the other one before, which still fits.
                assert_eq!(of_plain.1.map(|blocker| blocker.0), Some(BlockerKind::ThreadingLock));
                program.world.word(rlock + layout.object.kind + 8, 0x4444_0000);
                assert_eq!(found(&[rlock, plain, mutex(plain)]), expected, "{layout:?}");
            }
        }
    }
}

/// A worker that waits for work in C does so after each job: that must cost little.
#[test]
fn a_wait_for_something_else_is_found_out_in_few_calls() {
    for layout in layouts() {
        let (program, _) = two_threads(layout);
        let objects: Vec<u64> = (0..60).map(|_| program.world.alloc(64)).collect();
        stack(&program, &objects);
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        assert_eq!(waits(&mut python, 0x1000), None);
        let mut reads = || {
            program.world.reads();
            assert_eq!(waits(&mut python, 0x1000), None);
            program.world.reads()
        };
        let one_unreadable = reads();
        assert!(one_unreadable <= 20, "{one_unreadable}, {layout:?}");
        program.world.word(SEMAPHORE, 0);
        let all_readable = reads();
        assert!(all_readable <= 5, "frames, lock, code objects, stack, objects: {all_readable}");
        // One that cannot be read does not hide the lock behind it.
        let rlock = lock(&program, b"_thread.RLock\0", false);
        stack(&program, &[0x5555_0000, rlock, rlock + layout.object.kind + 8]);
        assert!(waits(&mut python, SEMAPHORE).is_some(), "{layout:?}");
    }
}

#[test]
fn a_join_says_which_thread_is_to_end() {
    for layout in layouts() {
        let (program, second_state) = two_threads(layout);
        let interpreter = program.world.get(second_state + layout.thread.interpreter);
        let name = match layout.minor {
            13.. => "Thread.join",
            11.. => "Thread._wait_for_tstate_lock",
            _ => "_wait_for_tstate_lock",
        };
        let code = program.code("/usr/lib/python3.9/threading.py", name, 1);
        program.frames(second_state, &evaluation(&layout, &[Made::Call(code, 0)]));
        let [first, other] = ["worker", "other"].map(|text| {
            let text = program.text(text);
            thread_object(&program, text, true)
        });
        let active = [(PTHREAD, other), (OTHER, first)];
        list(&program, interpreter, &active);
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        // The main thread has no name of its own: here that is another one.
        python.ids = ThreadIds::made_up(70..80);
        python.thread_names(None);
        let waiting = StackOwner { tid: 7, fs_base: Some(OTHER), ..at(SEMAPHORE) };
        let mut joined = |object: u64| {
            python.begin(Ns::MAX, false);
            python.interpreted(waiting, None).expect("frames");
            let innermost = python.frames.iter().find(|frame| !layout.is_shim(frame.owner));
            let place = innermost.expect("one").address + layout.frame.locals;
            // Since 3.14 there are tags.
            program.world.word(place, object | u64::from(layout.minor >= 14));
            let found = python.interpreted(waiting, None).expect("frames");
            assert_eq!(found.waits, None, "{layout:?}");
            let blocker = python.blocker(waiting).expect("it waits");
            assert_eq!(blocker.kind, BlockerKind::ThreadEnd);
            (blocker.object, blocker.holder)
        };
        let holder = |tid| RawHolder::Thread { pid: 0, tid };
        assert_eq!(joined(other), (other, holder(71)), "{layout:?}");
        assert_eq!(joined(first), (first, holder(72)), "{layout:?}");
        assert_eq!(joined(0x1230), (0, RawHolder::Unknown), "no thread");
        assert_eq!(joined(0), (0, RawHolder::Unknown));
        // Of several interpreters it is not known whose function is the innermost one. (In 3.11
        // and 3.12 the thread's stack would have to be where it is.)
        if (11..=12).contains(&layout.minor) {
            continue;
        }
        assert_eq!(joined(first).0, first);
        program.interpreter();
        python.threads.read(&python.memory, &layout, RUNTIME, &mut python.ids);
        assert_eq!(python.threads.interpreters.len(), 2);
        python.interpreted(waiting, None).expect("frames");
        assert_eq!(python.blocker(waiting).map(|of| of.holder), Some(RawHolder::Unknown));
    }
}

#[test]
fn a_condition_waits_by_a_lock_of_its_own() {
    for layout in layouts() {
        let (program, _) = two_threads(layout);
        let name = if layout.minor >= 11 { "Condition.wait" } else { "wait" };
        let code = program.code("/usr/lib/python3.9/threading.py", name, 300);
        let thread = program
            .world
            .get(program.world.get(RUNTIME + layout.interpreters) + layout.interpreter.threads);
        // The newest thread is the first one in the list.
        program.frames(thread, &evaluation(&layout, &[Made::Call(code, 0)]));
        let plain = lock(&program, b"_thread.lock\0", false);
        stack(&program, &[plain]);
        let mut python = reader(&program);
        python.check(|id| id == 71).expect("it fits");
        let waiting = StackOwner { fs_base: Some(OTHER), ..at(SEMAPHORE) };
        let found = python.interpreted(waiting, None).expect("frames");
        assert_eq!(found.waits, None, "{layout:?}");
        let blocker = python.blocker(waiting).expect("it waits");
        assert_eq!((blocker.kind, blocker.object), (BlockerKind::Condition, 0), "{layout:?}");
        // Later it waits for a child process, which is no futex, and then in other code.
        let elsewhere = StackOwner { futex: None, ..waiting };
        assert_eq!(python.blocker(elsewhere), None, "{layout:?}");
        python.interpreted(elsewhere, None).expect("frames");
        assert_eq!(python.blocker(elsewhere), None, "{layout:?}");
        stack(&program, &[]);
        assert_eq!(python.blocker(waiting), None, "{layout:?}");
        // Its frames cannot be read any more.
        python.interpreted(waiting, None).expect("frames");
        assert!(python.blocker(waiting).is_some());
        let unknown = StackOwner { fs_base: Some(OTHER + 8), ..waiting };
        assert_eq!(python.interpreted(unknown, None), None);
        assert_eq!(python.blocker(waiting), None, "{layout:?}");
    }
}
