//! Frames of an interpreter in walked stacks, and the search for it, by a made-up runtime.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashSet;

use super::*;
use crate::model::vocabulary::frame::{Ns, RawName};
use crate::unwinder::awaiting::{TakenObject, TakenObjects};
use crate::unwinder::interpreted::{Evaluations, InterpreterFrame, StackOwner, Taken};
use crate::unwinder::{Detected, Generated, Leave, Place};

/// How many frames were taken of each thread that was asked for; `None`: they are to be read.
type Asked = Arc<Mutex<Vec<Option<usize>>>>;

/// An interpreter that functions 4 and 1 execute; each evaluation has one frame. Others may await
/// what is executed.
struct Interpreter {
    asked: Asked,
    awaiters: Vec<RawFrame>,
}

impl Generated for Interpreter {
    fn begin(&mut self, _: Ns, _: bool) {}

    fn thread_names(&mut self, _: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        Vec::new()
    }

    fn covers(&self, _: u64) -> bool {
        false
    }

    fn evaluates(&self, pc: u64) -> bool {
        [1, 4].iter().any(|number| (at(*number)..at(*number) + image::FUNCTION).contains(&pc))
    }

    fn interpreted(&mut self, owner: StackOwner, taken: Option<&Taken>) -> Option<Evaluations> {
        assert_eq!(owner.tid, 7);
        self.asked.lock().unwrap().push(taken.map(|taken| taken.frames.len()));
        let frames = [0, 1].map(|id| RawFrame::new(FrameCode::Runtime { id })).to_vec();
        let end = taken.and_then(|taken| taken.end);
        Some(Evaluations { frames, ends: vec![1, 2], end, ..Evaluations::default() })
    }

    fn awaiters(&mut self, taken: Option<&TakenObjects>) -> Vec<RawFrame> {
        let most = taken.map_or(usize::MAX, |taken| taken.objects.len());
        self.awaiters.iter().copied().take(most).collect()
    }

    fn leave(
        &mut self,
        _: Place,
        _: &mut dyn FnMut(u64) -> Option<u64>,
        _: &mut Vec<RawFrame>,
    ) -> Leave {
        Leave::Unknown
    }
}

/// A stack of functions 4, 1 and 0.
fn interpreted() -> (World, Asked) {
    interpreted_for(&[])
}

/// The same with functions that await its own.
fn interpreted_for(awaiters: &[RawFrame]) -> (World, Asked) {
    let mut world = world();
    let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
    world.memory.put_words(SP, &[7, in_1, 7, in_0]);
    let asked = Asked::default();
    let (of_runtime, awaiters) = (asked.clone(), awaiters.to_vec());
    world.unwinder = world.unwinder.with_runtimes(Box::new(move |_| {
        let (asked, awaiters) = (of_runtime.clone(), awaiters.clone());
        Detected::Runtime(Box::new(Interpreter { asked, awaiters }))
    }));
    world.unwinder.set_owner(StackOwner { tid: 7, ..StackOwner::default() }, Taken::nothing());
    (world, asked)
}

/// Returns frames as letters: those of the interpreter, the native ones as numbers, markers.
fn letters(world: &World, out: &[RawFrame]) -> Vec<String> {
    let letter = |frame: &RawFrame| match frame.decode() {
        FrameCode::Runtime { id } => format!("python {id}"),
        _ => world.name(*frame),
    };
    out.iter().map(letter).collect()
}

/// How a stack is walked.
type Method = fn(&mut World, &Registers, StackBytes<'_>, &mut Vec<RawFrame>) -> Walk;

const COPIED: Method = |world, registers, stack, out| world.unwinder.walk(registers, stack, out);
const BLOCKED: Method =
    |world, registers, stack, out| world.unwinder.walk_blocked(registers, stack, out);
const RUNNING: Method =
    |world, registers, stack, out| world.unwinder.walk_running(registers, stack, 0x100, out);

fn walk(world: &mut World, copied: usize, method: Method) -> (Vec<String>, Walk) {
    let mut bytes = vec![0; copied];
    world.memory.read(SP, &mut bytes);
    let registers = Registers { rip: at(4) + 8, rsp: SP, rbp: Some(0), ..Registers::default() };
    let mut out = Vec::new();
    let walk = method(world, &registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
    (letters(world, &out), walk)
}

#[test]
fn frames_of_a_blocked_thread_are_read_and_have_to_be_proven() {
    let (mut world, asked) = interpreted();
    assert_eq!(
        walk(&mut world, 0x100, COPIED),
        (vec!["python 0", "python 1", "0"].into_iter().map(str::to_owned).collect(), WHOLE)
    );
    assert_eq!((world.unwinder.has_read_frames(), &**asked.lock().unwrap()), (true, &[None][..]));
}

#[test]
fn a_stack_that_is_walked_again_is_not_completed_before() {
    let (mut world, asked) = interpreted();
    let (frames, end) = walk(&mut world, 0x18, COPIED);
    assert_eq!(
        (frames, end),
        (vec!["4!".into(), "1".into(), "Truncated".into()], ends(Marker::Truncated))
    );
    assert!(!world.unwinder.has_read_frames() && asked.lock().unwrap().is_empty());
    assert_eq!(walk(&mut world, 0x18, BLOCKED).1, WHOLE);
    assert!(world.unwinder.has_read_frames());
}

#[test]
fn frames_of_a_running_thread_are_those_that_were_taken() {
    let (mut world, asked) = interpreted();
    let owner = StackOwner { tid: 7, ..StackOwner::default() };
    let taken = Taken { frames: vec![InterpreterFrame::default(); 3], ..Taken::default() };
    world.unwinder.set_owner(owner, taken);
    let whole = walk(&mut world, 0x100, RUNNING);
    assert_eq!((whole.0.len(), whole.1), (3, WHOLE));
    // Cut, its functions are known all the same.
    let known = Walk { end: None, recovered: true };
    let (frames, end) = walk(&mut world, 0x8, RUNNING);
    assert_eq!((frames.join(" "), end), ("python 0 NotCopied python 1".into(), known));
    let (frames, end) = walk(&mut world, 0x10, RUNNING);
    assert_eq!((frames.join(" "), end), ("python 0 python 1 NotCopied".into(), known));
    world.unwinder.set_owner(owner, Taken::nothing());
    assert_eq!(walk(&mut world, 0x100, RUNNING).0.len(), 3);
    assert_eq!(&**asked.lock().unwrap(), &[Some(3), Some(3), Some(3), Some(0)]);
    assert!(!world.unwinder.has_read_frames());
}

#[test]
fn functions_that_await_stand_behind_all_frames() {
    let awaiters = [8, 9].map(|id| RawFrame::new(FrameCode::Runtime { id }));
    let (mut world, _) = interpreted_for(&awaiters);
    let mut frames = |copied, method: Method| walk(&mut world, copied, method).0.join(" ");
    let whole = "python 0 python 1 0 python 8 python 9";
    assert_eq!([COPIED, BLOCKED].map(|method| frames(0x100, method)), [whole; 2]);
    assert_eq!(frames(0x18, BLOCKED), whole);
    assert_eq!(frames(0x18, COPIED), "4! 1 Truncated", "it is walked again");
    let known = frames(0x100, RUNNING);
    assert!(known.ends_with("0 python 8 python 9"), "{known}");
    let cut = frames(0x8, RUNNING);
    assert!(cut.ends_with("python 1 python 8 python 9"), "{cut}");
    // What was taken belongs to the next stack alone, and is forgotten with its owner.
    let taken = TakenObjects { objects: vec![TakenObject::default()], ..TakenObjects::default() };
    let owner = StackOwner { tid: 7, ..StackOwner::default() };
    for (taken, expected) in [(Some(taken), "0 python 8"), (None, "0 python 8 python 9")] {
        world.unwinder.set_owner(owner, Taken::nothing());
        if taken.is_some() {
            world.unwinder.set_awaiting(taken);
        }
        let known = walk(&mut world, 0x100, RUNNING).0.join(" ");
        assert!(known.ends_with(expected), "{known}");
    }
}

#[test]
fn a_runtime_is_searched_for_in_the_newest_mappings() {
    let later = format!("{MAPS}7f0000000000-7f0000001000 r-xp 00000000 8:1 99 /lib/libjvm.so\n");
    for reported_later in [false, true] {
        let mut world = world();
        let reads = Arc::new(AtomicUsize::new(0));
        let text = later.clone();
        // The library is mapped after the first reading.
        let source = Box::new(move || {
            let first = reads.fetch_add(1, Ordering::Relaxed) == 0;
            Ok(Maps::parse(if first { MAPS } else { &text }.as_bytes()))
        });
        let found: Arc<Mutex<Vec<(bool, bool)>>> = Arc::default();
        let log = found.clone();
        let unwinder =
            FramehopUnwinder::with_maps(world.memory.clone(), world.files.clone(), 1, source);
        world.unwinder = unwinder.with_runtimes(Box::new(move |maps| {
            let library = maps.find(0x7f00_0000_0000).is_some();
            log.lock().unwrap().push((maps.is_empty(), library));
            Detected::Nothing
        }));
        if reported_later {
            world.unwinder.revalidate(false, false);
        }
        world.unwinder.revalidate(true, false);
        let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
        world.memory.put_words(SP, &[7, in_1, 7, in_0]);
        // The first walk loads an image, for which the mappings are read.
        for _ in 0..2 {
            world.walk(at(4) + 8, Some(0), 0x100);
        }
        let found = found.lock().unwrap();
        assert!(found.iter().all(|(empty, _)| !empty), "{reported_later} {found:?}");
        assert_eq!(found.last(), Some(&(false, true)), "{reported_later} {found:?}");
    }
}
