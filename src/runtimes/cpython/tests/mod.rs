//! A made-up interpreter of each version, read while it changes, and garbage.

mod asyncio;
mod hostile;
mod images;
mod locks;
pub mod made_up;
mod made_up_objects;
mod made_up_tasks;
mod replaced;
mod thread_names;

use super::*;
use crate::model::facts::tables::Location;
use layout::{Top, Version};
use made_up::{
    Made, PTHREAD, Program, RUNTIME, World, chain, description, evaluation, layouts, program,
};

fn owner(nth: u64) -> StackOwner {
    StackOwner { tid: 0, fs_base: Some(PTHREAD + 0x1_0000 * nth), ..StackOwner::default() }
}

fn reader(program: &Program) -> Cpython<&World> {
    let (world, layout) = (&program.world, program.layout);
    let ids = ThreadIds::made_up(71..80);
    let python = Cpython::new(world, layout, RUNTIME, Names::default());
    Cpython { ids, evaluation: std::iter::once(0x1000..0x2000).collect(), ..python }
}

fn words(names: &Names, frame: RawFrame) -> String {
    match names.named(frame) {
        Some(named) => {
            let Location { function, file, line, .. } = &named.locations[0];
            let line = line.map_or("?".into(), |line| line.to_string());
            format!("{function} {}:{line}", file.as_deref().unwrap_or(""))
        }
        None => frame.marker_text(None).expect("a marker"),
    }
}

/// Returns the frames in words, and where evaluations end.
fn read(
    python: &mut Cpython<&World>,
    nth: u64,
) -> Option<(Vec<String>, Vec<usize>, Option<Marker>)> {
    python.begin(Ns::MAX, false);
    let found = python.interpreted(owner(nth), None)?;
    let frames = found.frames.iter().map(|frame| words(&python.names, *frame)).collect();
    Some((frames, found.ends, found.end))
}

const EXPECTED: [&str; 4] = [
    "shop.views.Cart.total /usr/lib/python3.9/site-packages/shop/views.py:10",
    "größe.Ω /app/größe.py:22",
    "größe.Ω /app/größe.py:22",
    "importlib._bootstrap.run𝔘 <frozen importlib._bootstrap>:30",
];

#[test]
fn frames_of_every_version_are_read_in_few_calls() {
    for layout in layouts() {
        let (program, thread, _) = program(layout);
        let mut python = reader(&program);
        python.check(|id| id == 71).unwrap_or_else(|why| panic!("{layout:?}: {why:?}"));
        let ends = if layout.minor <= 10 { vec![1, 2, 3, 4] } else { vec![1, 4] };
        let expected = Some((EXPECTED.map(str::to_owned).to_vec(), ends, None));
        assert_eq!(read(&mut python, 0), expected, "{layout:?}");
        program.world.reads();
        assert_eq!(read(&mut python, 0), expected, "again");
        assert!(program.world.reads() <= 3, "its frames, the lock, and the code objects");
        assert_eq!(read(&mut python, 1), None, "no thread of Python");
        program.frames(thread, &[]);
        assert_eq!(read(&mut python, 0), None, "it has left Python");
        assert!(python.evaluates(0x1fff) && !python.evaluates(0x2000));
        let kernel = python.interpreter_layout().expect("it fits");
        assert_eq!(kernel.interpreters, RUNTIME + layout.interpreters);
        assert_eq!(kernel.shim_owner.is_some(), layout.minor >= 12);
        assert_eq!(kernel.indirect.is_some(), matches!(layout.thread.top, Top::CFrame { .. }));
    }
}

#[test]
fn described_layouts_are_those_of_the_headers() {
    let layouts = layouts();
    let with_gil: Vec<_> = layouts.iter().filter(|l| l.minor >= 13 && !l.free_threaded).collect();
    for layout in with_gil {
        // What is derived is where the versions before have it.
        let gil = layout.interpreter.gil;
        assert_eq!((gil.holder, gil.locked, gil.switches), (8, 16, 24));
        assert_eq!((layout.object.characters, layout.object.text_hash()), (56, 24));
        assert_eq!(layout.code.identity(), (68, 76));
        assert_eq!((layout.frame.copy, layout.code.copies), (None, None));
    }
    let free = layouts.iter().find(|l| l.minor == 14 && l.free_threaded).expect("described");
    assert_eq!((free.frame.copy, free.code.copies), (Some(72), Some(224)));
    assert_eq!((free.object.interned_bits, free.object.text_hash()), (8, 40));
    assert_eq!(free.interpreter.gil.holder, 16);
}

#[test]
fn descriptions_of_other_versions_and_garbage_are_refused() {
    let good = description(13, false);
    let (version, _) = Layout::described(&good).expect("it is known");
    assert_eq!(version.words(), "3.13.0");
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Layout::described(&bytes)
    };
    assert_eq!(with(0, b'y'), None);
    assert_eq!(with(10, 16), None, "3.16");
    assert_eq!(with(11, 4), None, "4.13");
    assert_eq!(with(12, 1), None, "no version");
    assert_eq!(with(234, 1), None, "an offset beyond every structure");
    assert_eq!(Layout::described(&good[..500]), None);
    assert_eq!(Layout::known(Version::of_minor(7)), None);
    assert_eq!(Layout::known(Version::of_minor(13)), None, "it describes itself");
}

#[test]
fn versions_are_parsed() {
    let version = |text: &str| Version::written(text.as_bytes()).map(Version::words);
    assert_eq!(version("3.9.18 (main, Aug"), Some("3.9.18".into()));
    assert_eq!(version("3.10.2+ (main"), None);
    for text in ["3.9 (", "3.9.18", "2.7.18 (", "3.9.18.1 (", "3.x.1 (", "3.999.1 (", " (", ""] {
        assert_eq!(version(text), None, "{text}");
    }
}

#[test]
fn threads_come_and_go() {
    for layout in layouts() {
        let (program, first, codes) = program(layout);
        let mut python = reader(&program);
        assert_eq!(read(&mut python, 1), None);
        let interpreter = program.world.get(first + layout.thread.interpreter);
        // It has the pthread_t of its creator before it runs.
        let second = program.thread(interpreter, PTHREAD, 71);
        program.frames(second, &[]);
        assert_eq!(read(&mut python, 0).map(|(frames, ..)| frames.len()), Some(4), "{layout:?}");
        assert_eq!(read(&mut python, 1), None);
        program.world.word(second + layout.thread.pthread, PTHREAD + 0x1_0000);
        program.frames(second, &evaluation(&layout, &[Made::Call(codes[2], 0)]));
        assert_eq!(read(&mut python, 1).map(|(frames, ..)| frames.len()), Some(1), "{layout:?}");
        // Another one is made where the second was, of another thread.
        program.world.word(second + layout.thread.pthread, PTHREAD + 0x2_0000);
        assert_eq!(read(&mut python, 1), None, "{layout:?}");
        assert_eq!(read(&mut python, 2).map(|(frames, ..)| frames.len()), Some(1));
        // It ends, and the thread gets a new one.
        program.frames(second, &[]);
        program.world.word(interpreter + layout.interpreter.threads, first);
        let third = program.thread(interpreter, PTHREAD + 0x2_0000, 73);
        program.frames(third, &evaluation(&layout, &[Made::Call(codes[1], 0)]));
        assert_eq!(
            read(&mut python, 2).map(|(frames, ..)| frames),
            Some(vec!["größe.Ω /app/größe.py:20".into()])
        );
    }
}

#[test]
fn a_new_thread_may_have_the_place_of_one_that_has_ended() {
    for layout in layouts() {
        let (program, first, codes) = program(layout);
        let interpreter = program.world.get(first + layout.thread.interpreter);
        let head = interpreter + layout.interpreter.threads;
        let mut python = reader(&program);
        let frames = evaluation(&layout, &[Made::Call(codes[2], 0)]);
        let make = |nth: u64| {
            let thread = program.thread(interpreter, PTHREAD + 0x1_0000 * nth, 71 + nth as u32);
            program.frames(thread, &frames);
            thread
        };
        let second = make(1);
        assert!(read(&mut python, 1).is_some());
        let third = make(2);
        assert!(read(&mut python, 2).is_some(), "{layout:?}");
        // The second one ends, and a new thread with its pthread_t gets its state.
        program.world.word(third + layout.thread.next, first);
        program.put_thread(second, interpreter, PTHREAD + 0x1_0000, 74);
        program.frames(second, &frames);
        let fourth = make(3);
        assert!(read(&mut python, 3).is_some());
        for nth in 0..4 {
            assert!(read(&mut python, nth).is_some(), "{nth} {layout:?}");
        }
        assert_eq!(program.world.get(head), fourth);
    }
}

#[test]
fn a_thread_is_found_by_the_kernels_id() {
    for layout in layouts() {
        let (program, ..) = program(layout);
        let mut python = reader(&program);
        let of = |tid| StackOwner { tid, fs_base: None, ..StackOwner::default() };
        let count = |found: Option<Evaluations>| found.map(|found| found.frames.len());
        assert_eq!(count(python.interpreted(of(71), None)), Some(4), "{layout:?}");
        assert_eq!(count(python.interpreted(of(72), None)), None);
    }
}

#[test]
fn the_interpreter_that_was_entered_last_comes_first() {
    for layout in layouts() {
        let (program, first, codes) = program(layout);
        let other = program.interpreter();
        let inner = program.thread(other, PTHREAD, 71);
        let mut frames = evaluation(&layout, &[Made::Call(codes[2], 0)]);
        frames.extend((layout.minor >= 15).then_some(Made::Shim));
        program.frames(inner, &frames);
        let mut python = reader(&program);
        let (frames, ends, end) = read(&mut python, 0).expect("frames");
        if layout.minor <= 10 {
            // It is unknown which thread runs it.
            assert_eq!((frames.len(), end), (4, None), "{layout:?}");
            continue;
        }
        assert_eq!((frames.len(), end), (5, None), "{layout:?}");
        assert_eq!(frames[0], EXPECTED[3], "{layout:?}");
        assert_eq!((ends[0], ends.last()), (1, Some(&5)));
        // The main one is entered again.
        program.frames(first, &chain(&layout, codes));
        assert_eq!(read(&mut python, 0).expect("frames").0[0], EXPECTED[0], "{layout:?}");
    }
}

#[test]
fn the_native_stack_tells_which_thread_runs_an_interpreter() {
    let layouts = layouts().into_iter().filter(|layout| (11..=12).contains(&layout.minor));
    for layout in layouts {
        let (program, first, codes) = program(layout);
        let other = program.interpreter();
        // The main thread created it, the second one runs it.
        let inner = program.thread(other, PTHREAD, 71);
        let interpreter = program.world.get(first + layout.thread.interpreter);
        program.world.stack_below(PTHREAD + 0x1_0000);
        let second = program.thread(interpreter, PTHREAD + 0x1_0000, 72);
        program.frames(second, &evaluation(&layout, &[Made::Call(codes[1], 0)]));
        program.frames(inner, &evaluation(&layout, &[Made::Call(codes[2], 0)]));
        let mut python = reader(&program);
        let frames = read(&mut python, 0).expect("frames").0;
        assert_eq!(frames, EXPECTED, "{layout:?}");
        let frames = read(&mut python, 1).expect("frames").0;
        assert_eq!((frames.len(), &*frames[0]), (2, EXPECTED[3]), "{layout:?}");
    }
}

#[test]
fn the_list_of_a_greenlet_ends_without_the_frame_of_its_thread() {
    for layout in layouts() {
        let (program, thread, codes) = program(layout);
        let mut python = reader(&program);
        let expected = read(&mut python, 0);
        let mut frames = chain(&layout, codes);
        frames.truncate(frames.len() - usize::from(layout.minor >= 15));
        program.frames(thread, &frames);
        assert_eq!(read(&mut python, 0), expected, "{layout:?}");
    }
}

#[test]
fn the_library_of_greenlets_is_known_by_its_name() {
    let (program, ..) = program(layouts().remove(0));
    let python = reader(&program);
    let exchanges = |name| python.exchanges_stacks(name);
    assert!(exchanges("_greenlet.cpython-312-x86_64-linux-gnu.so"));
    assert!(exchanges("greenlet.cpython-38-x86_64-linux-gnu.so"));
    assert!(!exchanges("_gevent_cgreenlet.cpython-312-x86_64-linux-gnu.so"));
    assert!(!exchanges("libpython3.12.so.1.0"));
}

#[test]
fn the_middle_of_a_deep_stack_is_folded() {
    for layout in layouts() {
        let (program, thread, codes) = program(layout);
        let mut frames = vec![Made::Call(codes[0], 0); 30];
        frames.resize(3000, Made::Call(codes[1], 0));
        frames.resize(3030, Made::Call(codes[2], 0));
        let mut frames = evaluation(&layout, &frames);
        frames.extend((layout.minor >= 15).then_some(Made::Shim));
        program.frames(thread, &frames);
        let (frames, ends, end) = read(&mut reader(&program), 0).expect("frames");
        let marks = [12, 15].into_iter().filter(|minor| layout.minor >= *minor).count();
        assert_eq!((frames.len(), end), (1001 - marks, None), "{layout:?}");
        assert_eq!(frames.iter().position(|frame| frame == "[... frames folded]"), Some(500));
        assert_eq!(frames[29], EXPECTED[0]);
        assert_eq!(frames.iter().filter(|frame| **frame == EXPECTED[3]).count(), 30);
        assert_eq!(ends.last(), Some(&frames.len()), "{layout:?}");
        // The list leads back to its own beginning.
        if let Top::Thread { frame } = layout.thread.top {
            let innermost = program.world.get(thread + frame);
            program.world.word(innermost + layout.frame.previous, innermost);
            let (_, _, end) = read(&mut reader(&program), 0).expect("frames");
            assert_eq!(end, Some(Marker::TooDeep), "{layout:?}");
        }
    }
}

#[test]
fn a_list_that_does_not_end_as_it_should_is_torn() {
    for layout in layouts() {
        let (program, thread, codes) = program(layout);
        let mut python = reader(&program);
        if layout.minor >= 11 {
            program.frames(thread, &[Made::Generator(codes[0], 0)]);
            let (frames, ends, end) = read(&mut python, 0).expect("frames");
            assert_eq!((frames.len(), ends, end), (1, vec![], Some(Marker::Torn)), "{layout:?}");
        }
        program.frames(
            thread,
            &evaluation(&layout, &[Made::Generator(codes[0], 0), Made::Call(codes[1], 0)]),
        );
        let innermost = match layout.thread.top {
            Top::Thread { frame } => program.world.get(thread + frame),
            Top::CFrame { cframe, frame } => {
                program.world.get(program.world.get(thread + cframe) + frame)
            }
        };
        program.world.word(innermost + layout.frame.previous, 0x9999_0000);
        let (frames, _, end) = read(&mut python, 0).expect("frames");
        assert_eq!((frames.len(), end), (1, Some(Marker::Torn)), "{layout:?}");
    }
}

#[test]
fn a_layout_that_does_not_fit_is_refused() {
    for layout in layouts() {
        let (made, thread, codes) = program(layout);
        let mut python = reader(&made);
        if layout.thread.native_id.is_some() {
            assert_eq!(
                python.check(|id| id == 7),
                Err(Unreadable::Odd("its threads do not have the ids of the process's"))
            );
        }
        // Nothing of it runs: each code object is checked when it is met.
        made.frames(thread, &[]);
        assert_eq!(python.check(|id| id == 71), Ok(()), "{layout:?}");
        made.frames(thread, &chain(&layout, codes));
        codes.iter().for_each(|code| made.world.word(code + layout.object.kind, 0));
        let odd = Unreadable::Odd("its functions are not where they should be");
        assert_eq!(reader(&made).check(|id| id == 71), Err(odd.clone()), "{layout:?}");
        assert_eq!(odd.message(false), None);
        assert!(odd.message(true).is_some_and(|text| text.ends_with("where they should be")));
        let interpreter = made.world.get(thread + layout.thread.interpreter);
        made.world.word(thread + layout.thread.interpreter, 1);
        let odd = Unreadable::Odd("its threads are not where they should be");
        assert_eq!(reader(&made).check(|id| id == 71), Err(odd), "{interpreter:x}");
        made.world.word(RUNTIME + layout.interpreters, 0);
        let starting = reader(&made).check(|id| id == 71);
        assert_eq!(starting, Err(Unreadable::Starting("interpreter")));
    }
}

#[test]
fn a_copy_of_the_code_has_a_place_of_its_own() {
    for layout in layouts().into_iter().filter(|layout| layout.frame.copy.is_some()) {
        let (program, thread, codes) = program(layout);
        let mut python = reader(&program);
        program.frames(thread, &evaluation(&layout, &[Made::Call(codes[0], 0)]));
        let Top::Thread { frame } = layout.thread.top else { panic!("3.14 has no other") };
        let at = program.world.get(thread + frame);
        let (list, copy) = (program.world.alloc(64), program.world.alloc(64));
        program.world.word(codes[0] + layout.code.copies.expect("it has"), list);
        program.world.word(list, 3);
        program.world.word(list + 8 * 3, copy);
        let line = |python: &mut Cpython<&World>, index: u32, position: u64| {
            program.world.put(at + layout.frame.copy.expect("it has"), &index.to_le_bytes());
            program.world.word(at + layout.frame.position, position);
            read(python, 0).expect("a frame").0[0].rsplit(':').next().map(str::to_owned)
        };
        assert_eq!(line(&mut python, 2, copy + 4).as_deref(), Some("12"));
        assert_eq!(line(&mut python, 2, copy).as_deref(), Some("10"));
        assert_eq!(line(&mut python, 3, copy).as_deref(), Some("?"), "there are three");
        assert_eq!(line(&mut python, 1, copy).as_deref(), Some("?"), "it has none");
        assert_eq!(line(&mut python, 0, program.position(codes[0], 4)).as_deref(), Some("12"));
    }
}

#[test]
fn only_whole_strings_are_names() {
    for layout in layouts() {
        let program = Program::new(layout);
        let (world, object) = (&program.world, &layout.object);
        let text = |at| object.text(&&program.world, at);
        for expected in ["", "a", "Größe", "Ω漢", "𝔘x", &"long".repeat(500), &"Ω".repeat(500)]
        {
            assert_eq!(text(program.text(expected)).as_deref(), Some(expected), "{layout:?}");
        }
        let at = program.text("name");
        world.word(at + object.text_length, 70_000);
        assert_eq!(text(at), None, "too long");
        world.word(at + object.text_length, 4);
        world.put(at + object.text_state, &[0; 4]);
        assert_eq!(text(at), None, "not compact");
        assert_eq!((text(0), text(0x9999_0000), text(u64::MAX - 8)), (None, None, None));
    }
}
