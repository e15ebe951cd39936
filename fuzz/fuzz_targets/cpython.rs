//! Reading a made-up interpreter whose memory is garbage, or an attack. Input: the version, then
//! steps, each of a byte that chooses its kind:
//!
//! ```text
//! 0 to 4  a word is changed: the page and the place in it; then another page and place, which say
//!         what it is: that address, the word there, the place, a number near the end, 64 bits
//! 5       the frames of a blocked thread are read
//! 6       frames that were taken of a running one are named
//! 7       the names of threads are read, and the layout is checked
//! 8       a line table is read: its format, an offset, a piece
//! 9       the tasks of event loops are read
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::clock::monotonic;
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::runtimes::cpython::Cpython;
use sampletop::runtimes::cpython::line_table::LineFormat;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::unwinder::Generated;
use sampletop::unwinder::interpreted::{Evaluations, InterpreterFrame, StackOwner, Taken};
use sampletop_fuzz::made_up::{PTHREAD, RUNTIME, layouts, program};
use sampletop_fuzz::made_up_objects::{list, thread_object};
use sampletop_fuzz::made_up_tasks::{DATA, Does, OF_THREAD, RUNNING, Tasks};
use sampletop_fuzz::{Input, assert_clean, within};

fuzz_target!(|data: &[u8]| within(5_000, || observe(Input(data))));

/// Maximum steps that read.
const READINGS: usize = 50;

fn observe(mut input: Input<'_>) {
    let layouts = layouts();
    let layout = layouts[usize::from(input.u8()) % layouts.len()];
    let (program, thread, codes) = program(layout);
    let world = &program.world;
    let interpreter = world.get(thread + layout.thread.interpreter);
    let object = thread_object(&program, program.text("worker"), false);
    list(&program, interpreter, &[(PTHREAD, object)]);
    let has_tasks = layout.minor >= 14;
    if has_tasks {
        let tasks = Tasks::new(&program, &[thread], &[interpreter]);
        let head = thread + OF_THREAD;
        let awaited = tasks.task(head, tasks.number(1), tasks.coroutine(codes[0], Does::Begins));
        let awaits = tasks.coroutine(codes[1], Does::Awaits(awaited));
        let task = tasks.task(head, tasks.text("worker"), awaits);
        tasks.awaited_by(awaited, &[task]);
        world.word(thread + RUNNING, task);
    }
    let pages = world.pages();
    let names = Names::default();
    let mut python = Cpython::new(world, layout, RUNTIME, names.clone());
    if has_tasks {
        python.find_asyncio(&[DATA]);
    }
    let mut readings = 0;
    while !input.is_empty() && readings < READINGS {
        let kind = input.u8() % 10;
        match kind {
            0..=4 => {
                let (at, value) = input.change(kind, &pages, |at| world.get(at));
                world.word(at, value);
                continue;
            }
            5 => {
                python.begin(u64::MAX, false);
                let owner = StackOwner { tid: 71, fs_base: Some(PTHREAD), ..StackOwner::default() };
                check(&names, python.interpreted(owner, None));
            }
            6 => {
                python.begin(monotonic(), true);
                let frames = codes.map(|code| InterpreterFrame {
                    code,
                    position: program.position(code, i64::from(input.u8())),
                    owner: input.u8() % 4,
                    is_entry: true,
                    ..InterpreterFrame::default()
                });
                let gap = Some(usize::from(input.u8()) % 4);
                let task_name = input.piece().to_vec();
                let taken = Taken { frames: frames.to_vec(), gap, task_name, ..Taken::default() };
                check(&names, python.interpreted(StackOwner::default(), Some(&taken)));
            }
            7 => {
                for (_, name) in python.thread_names(None) {
                    assert_clean(&names.thread(name).expect("one of ours"), NAME_CAP);
                }
                let _ = python.check(|id| id == 71);
            }
            9 => {
                let tasks = python.pending_tasks();
                assert!(tasks.is_none() || has_tasks);
                for task in tasks.iter().flat_map(|tasks| &tasks.tasks) {
                    assert_clean(&task.name, NAME_CAP);
                    task.frames.iter().for_each(|frame| assert_clean(&frame.function, NAME_CAP));
                }
            }
            _ => {
                let format = LineFormat::of_minor(8 + input.u8() % 4);
                let offset = u32::from(input.u16());
                format.line(input.piece(), 7, offset);
            }
        }
        readings += 1;
    }
}

fn check(names: &Names, found: Option<Evaluations>) {
    let Some(Evaluations { frames, ends, .. }) = found else { return };
    assert!(frames.len() <= 1_001 * 256);
    assert!(ends.is_sorted() && ends.last().is_none_or(|last| *last <= frames.len()));
    for named in frames.iter().filter_map(|frame| names.named(*frame)) {
        let location = &named.locations[0];
        for text in [&location.function, &location.module] {
            assert_clean(text, NAME_CAP);
        }
        assert_clean(location.file.as_deref().unwrap_or(""), NAME_CAP);
    }
}
