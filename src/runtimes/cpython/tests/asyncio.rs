//! Tasks in made-up programs of each version that describes them.

use std::cell::Cell;
use std::path::Path;

use proptest::prelude::*;

use super::made_up_tasks::{DATA, Does, OF_INTERPRETER, OF_THREAD, RUNNING, Tasks};
use super::*;
use crate::model::facts::tasks::{Awaited, Task};
use crate::process::memory::ReadMemory;

fn describing() -> impl Iterator<Item = Layout> {
    layouts().into_iter().filter(|layout| layout.minor >= 14)
}

/// Returns a reader that has found asyncio.
fn with_asyncio(program: &Program) -> Cpython<&World> {
    let mut python = reader(program);
    python.find_asyncio(&[DATA]);
    python
}

/// Returns the name of the task that a blocked thread executes.
fn executes(python: &mut Cpython<&World>, nth: u64) -> Option<String> {
    python.begin(Ns::MAX, false);
    let task = python.interpreted(owner(nth), None)?.task?;
    Some(words(&python.names, task).trim_end_matches(" :?").to_owned())
}

/// Returns what is known of a task in words: name, what it does, its functions and lines, the
/// innermost first, and what awaits it.
fn line(task: &Task) -> String {
    let does = match &task.awaits {
        _ if task.runs => "runs".to_owned(),
        None => "waits".to_owned(),
        Some(Awaited::Task(task)) => format!("awaits task {}", task.name),
        Some(Awaited::Object(class)) => format!("awaits {class}"),
    };
    let frame =
        |frame: &Location| format!("{}:{}", frame.function, frame.line.map_or(0, |line| line));
    let frames: Vec<String> = task.frames.iter().map(frame).collect();
    let by: Vec<&str> = task.awaited_by.iter().map(|by| &*by.name).collect();
    format!("{} {does} [{}] by [{}]", task.name, frames.join(" "), by.join(" "))
}

fn lines(python: &mut Cpython<&World>) -> Vec<String> {
    python.pending_tasks().expect("it has asyncio").tasks.iter().map(line).collect()
}

#[test]
fn asyncio_is_found_once_and_only_whole() {
    for layout in describing() {
        let (program, thread, _) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let mut python = with_asyncio(&program);
        let kernel = python.interpreter_layout().expect("it fits").running_task;
        let of_task = tasks.described(1) as u32;
        assert_eq!(kernel.map(|task| (task.of_thread, task.name)), Some((RUNNING as u32, of_task)));
        program.world.reads();
        python.find_asyncio(&[DATA]);
        assert_eq!(program.world.reads(), 0, "it is known");
        for nth in 0..13 {
            let before = tasks.described(nth);
            for garbage in [u64::MAX, 1 << 20, before + 1, before ^ 1 << 40] {
                // Whether something awaits a task, and by a set, may be in any byte of it.
                if nth == 3 || nth == 4 {
                    continue;
                }
                tasks.describe(nth, garbage);
                let mut python = with_asyncio(&program);
                assert_eq!(python.interpreter_layout().expect("it fits").running_task, None);
                assert!(python.pending_tasks().is_none(), "{nth}: {garbage}");
            }
            tasks.describe(nth, before);
        }
        assert!(with_asyncio(&program).pending_tasks().is_some());
        let mut python = reader(&program);
        python.find_asyncio(&[DATA.start..DATA.start + 64, 0x6_1000..DATA.end]);
        assert!(python.pending_tasks().is_some(), "it is in another part");
    }
}

#[test]
fn earlier_versions_have_no_tasks() {
    for layout in layouts().into_iter().filter(|layout| layout.minor == 13) {
        let (program, ..) = program(layout);
        let later = if layout.free_threaded { 11 } else { 9 };
        let (described, thread, _) = super::program(layouts()[later - 2]);
        Tasks::new(&described, &[thread], &[]);
        let mut python = Cpython::new(&described.world, program.layout, RUNTIME, Names::default());
        python.find_asyncio(&[DATA]);
        assert!(python.pending_tasks().is_none());
    }
}

#[test]
fn asyncio_is_searched_among_libraries_that_are_mapped() {
    let layout = describing().next().expect("3.14");
    let (program, thread, _) = program(layout);
    Tasks::new(&program, &[thread], &[]);
    let maps = |name: &str, writable: &str| {
        let text = format!(
            "50000-58000 r--p 00000000 08:01 7 {name}\n60000-64000 {writable} 00010000 08:01 7 {name}\n"
        );
        crate::process::maps::Maps::parse(text.as_bytes())
    };
    let library = "/lib/python3.14/lib-dynload/_asyncio.cpython-314-x86_64-linux-gnu.so";
    assert!(Path::new(library).file_name().is_some());
    let finds = |name: &str, writable: &str| {
        let mut python = reader(&program);
        python.mapped(&maps(name, writable));
        python.pending_tasks().is_some()
    };
    assert!(finds(library, "rw-p"));
    assert!(!finds(library, "r--p"), "it has no data");
    assert!(!finds("/lib/my_asyncio.so", "rw-p"));
}

#[test]
fn a_running_task_is_named_by_what_the_program_called_it() {
    for layout in describing() {
        let (program, thread, codes) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let mut python = with_asyncio(&program);
        assert_eq!(executes(&mut python, 0), None, "{layout:?}: no task");
        let coroutine = tasks.coroutine(codes[0], Does::Executes);
        let run = |name: u64| {
            let task = tasks.task(thread + OF_THREAD, name, coroutine);
            program.world.word(thread + RUNNING, task);
            task
        };
        let of = |name: &str| Some(format!("[task {name}]"));
        let first = run(tasks.text("fetch prices"));
        program.world.reads();
        assert_eq!(executes(&mut python, 0), of("fetch prices"));
        assert_eq!(executes(&mut python, 0), of("fetch prices"), "again");
        // Its object is used for another task.
        program.world.word(first + tasks.described(1), tasks.text("größe\u{1b}Ω"));
        assert_eq!(executes(&mut python, 0), of("größeΩ"));
        let long = "x".repeat(300);
        run(tasks.text(&long));
        assert_eq!(
            executes(&mut python, 0),
            of(&format!("{}...", &long[..160 - layout.object.ascii as usize]))
        );
        for nameless in [
            tasks.number(7),
            tasks.text("Task-12"),
            tasks.text(""),
            0x99,
            tasks.object(tasks.future_type, 64),
        ] {
            run(nameless);
            assert_eq!(executes(&mut python, 0), None);
        }
        for named in ["Task-x", "Task-"] {
            run(tasks.text(named));
            assert_eq!(executes(&mut python, 0), of(named));
        }
        // What is there is no task.
        let task = tasks.unlisted(tasks.future_type, tasks.text("no task"), coroutine);
        program.world.word(thread + RUNNING, task);
        assert_eq!(executes(&mut python, 0), None);
        let own =
            tasks.unlisted(tasks.kind("MyTask", tasks.task_type), tasks.text("own"), coroutine);
        program.world.word(thread + RUNNING, own);
        assert_eq!(executes(&mut python, 0), of("own"));
        program.world.word(own, 0);
        assert_eq!(
            executes(&mut python, 0),
            if layout.free_threaded { of("own") } else { None },
            "it is freed"
        );
        let flag = tasks.described(3);
        let task = run(tasks.text("x"));
        program.world.put(task + flag, &[0]);
        assert_eq!(executes(&mut python, 0), None, "it says that it is none");
        let number = tasks.text("number");
        program.world.word(number + layout.object.kind, tasks.future_type);
        run(number);
        assert_eq!(executes(&mut python, 0), None, "its name is no string");
        program.world.word(thread + RUNNING, 0x77);
        assert_eq!(executes(&mut python, 0), None);
    }
}

#[test]
fn the_kernel_takes_the_name_with_the_stack() {
    for layout in describing() {
        let (program, thread, _) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let name = tasks.text("fetch");
        let mut bytes = vec![0; 160];
        assert_eq!((&program.world).read(name, &mut bytes), 160);
        // Meanwhile it is another one.
        program.world.put(name + layout.object.ascii, b"FETCH");
        let mut python = with_asyncio(&program);
        let task = |python: &mut Cpython<&World>, task_name: Vec<u8>| {
            let taken = Taken { task_name, ..Taken::default() };
            let task = python.interpreted(owner(0), Some(&taken)).expect("a stack").task;
            task.map(|task| words(&python.names, task))
        };
        assert_eq!(task(&mut python, bytes.clone()).as_deref(), Some("[task fetch] :?"));
        assert_eq!(task(&mut python, Vec::new()), None);
        assert_eq!(task(&mut python, vec![0xff; 160]), None);
        for length in 0..56 {
            assert_eq!(task(&mut python, bytes[..length.min(40)].to_vec()), None, "{length}");
        }
    }
}

#[test]
fn a_program_with_too_many_names_has_one_for_the_others() {
    let layout = describing().next().expect("3.14");
    let (program, thread, codes) = program(layout);
    let tasks = Tasks::new(&program, &[thread], &[]);
    let mut python = with_asyncio(&program);
    let coroutine = tasks.coroutine(codes[0], Does::Executes);
    let task = tasks.unlisted(tasks.task_type, tasks.text("first"), coroutine);
    program.world.word(thread + RUNNING, task);
    let mut name = |text: &str| {
        program.world.word(task + tasks.described(1), tasks.text(text));
        executes(&mut python, 0)
    };
    for nth in 0..1000 {
        assert_eq!(name(&format!("request {nth}")), Some(format!("[task request {nth}]")));
    }
    assert_eq!(name("request 1000").as_deref(), Some("[task (other)]"));
    assert_eq!(name("request 3").as_deref(), Some("[task request 3]"), "it is known");
}

#[test]
fn what_tasks_await_is_read_through_all_kinds_of_objects() {
    for layout in describing() {
        let (program, thread, codes) = program(layout);
        let interpreter = program.world.get(thread + layout.thread.interpreter);
        let tasks = Tasks::new(&program, &[thread], &[interpreter]);
        let mut python = with_asyncio(&program);
        assert_eq!(lines(&mut python), [""; 0]);
        let [total, size, run] = codes;
        let head = thread + OF_THREAD;
        let future = tasks.object(tasks.future_type, 168);
        let iterator = |of: u64| tasks.wrapper("_asyncio.FutureIter", of);
        let sleeps = tasks.coroutine(total, Does::Awaits(iterator(future)));
        let first =
            tasks.task(head, tasks.text("first"), tasks.coroutine(size, Does::Awaits(sleeps)));
        let second =
            tasks.task(head, tasks.number(12), tasks.coroutine(run, Does::Awaits(iterator(first))));
        // `second` and, through a future that gathers, `third`.
        let gathers = tasks.object(tasks.kind("_GatheringFuture", tasks.future_type), 168);
        tasks.awaited_by(first, &[second, gathers]);
        let third = tasks.task(
            head,
            tasks.text("third"),
            tasks.coroutine(run, Does::Awaits(iterator(gathers))),
        );
        tasks.awaited_by(gathers, &[third]);
        let send = tasks.wrapper(
            "async_generator_asend",
            tasks.generator(
                tasks.kind("async_generator", 0),
                total,
                Does::Awaits(iterator(future)),
            ),
        );
        tasks.task(head, tasks.number(3), tasks.coroutine(size, Does::Awaits(send)));
        tasks.task(head, tasks.number(4), tasks.coroutine(total, Does::Begins));
        let runs = tasks.task(head, tasks.number(5), tasks.coroutine(total, Does::Executes));
        tasks.awaited_by(runs, &[first]);
        tasks.task(head, tasks.number(6), tasks.object(tasks.kind("cython.coroutine", 0), 64));
        tasks.task(
            interpreter + OF_INTERPRETER,
            tasks.number(7),
            tasks.coroutine(total, Does::Begins),
        );
        let [total, size, run] =
            ["shop.views.Cart.total:10", "größe.Ω:20", "importlib._bootstrap.run𝔘:30"];
        let expected = [
            format!("first awaits _asyncio.Future [{total} {size}] by [Task-12 third]"),
            format!("Task-12 awaits task first [{run}] by []"),
            format!("third awaits _GatheringFuture [{run}] by []"),
            format!("Task-3 awaits _asyncio.Future [{total} {size}] by []"),
            format!("Task-4 waits [{total}] by []"),
            "Task-5 runs [shop.views.Cart.total:0] by [first]".to_owned(),
            "Task-6 awaits cython.coroutine [] by []".to_owned(),
            format!("Task-7 waits [{total}] by []"),
        ];
        assert_eq!(lines(&mut python), expected, "{layout:?}");
        let found = python.pending_tasks().expect("asyncio");
        assert_eq!((found.found, found.unreadable, found.is_incomplete), (8, 0, false));
        assert_eq!([found.tasks[0].tid, found.tasks[7].tid], [Some(71), None]);
        assert_eq!(found.tasks[0].id, first);
    }
}

#[test]
fn a_task_of_which_part_cannot_be_read_says_nothing_else() {
    for layout in describing() {
        let (program, thread, codes) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let mut python = with_asyncio(&program);
        let begins = tasks.coroutine(codes[0], Does::Begins);
        let awaited = tasks.unlisted(tasks.task_type, tasks.text("other"), begins);
        let waits = tasks.coroutine(codes[1], Does::Awaits(awaited));
        tasks.task(thread + OF_THREAD, tasks.number(1), waits);
        let size = "größe.Ω:20";
        assert_eq!(lines(&mut python), [format!("Task-1 awaits task other [{size}] by []")]);
        // What it awaits has no name, and says that it is no task.
        for (offset, word) in [(tasks.described(1), 0x99), (tasks.described(3), 0)] {
            let before = program.world.get(awaited + offset);
            program.world.word(awaited + offset, word);
            let found = python.pending_tasks().expect("asyncio");
            assert_eq!((found.tasks.len(), found.unreadable), (0, 1), "{layout:?}: {found:?}");
            program.world.word(awaited + offset, before);
        }
    }
}

#[test]
fn tasks_that_await_one_may_be_more_than_are_read() {
    for layout in describing() {
        let (program, thread, codes) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let mut python = with_asyncio(&program);
        let begins = tasks.coroutine(codes[0], Does::Begins);
        let task = tasks.task(thread + OF_THREAD, tasks.number(1), begins);
        let other =
            |nth: u64| tasks.unlisted(tasks.task_type, tasks.text(&format!("w{nth}")), begins);
        let mut waiters = || {
            let found = python.pending_tasks().expect("asyncio").tasks.remove(0);
            (found.awaited_by.len(), found.has_more_waiters)
        };
        assert_eq!(waiters(), (0, false));
        let all: Vec<u64> = (0..65).map(other).collect();
        let set = |number: usize, used: u64, table: Option<u64>| {
            let (at, own) = (program.world.alloc(128), program.world.alloc(16 * 128));
            for (nth, object) in (0..).zip(&all[..number]) {
                program.world.word(own + 16 * nth, *object);
            }
            // One that is free again.
            program.world.word(own + 16 * 100, begins);
            program.world.word(own + 16 * 100 + 8, u64::MAX);
            let set = at + if layout.free_threaded { 16 } else { 0 };
            program.world.word(set + 24, used);
            program.world.word(set + 32, 127);
            program.world.word(set + 40, table.unwrap_or(own));
            program.world.word(task + tasks.described(2), at);
            program.world.put(task + tasks.described(4), &[1]);
        };
        set(64, 64, None);
        assert_eq!(waiters(), (64, false), "{layout:?}");
        set(65, 65, None);
        assert_eq!(waiters(), (64, true));
        set(10, 11, None);
        assert_eq!(waiters(), (0, true), "it changes");
        set(10, 10, Some(0x77_0000));
        assert_eq!(waiters(), (0, true), "it cannot be read");
        let future = || tasks.object(tasks.future_type, 168);
        // One task itself, and through a future.
        let gathers = future();
        tasks.awaited_by(gathers, &all[..1]);
        tasks.awaited_by(task, &[all[0], gathers]);
        assert_eq!(waiters(), (1, false), "{layout:?}");
        // Futures that await each other.
        program.world.put(task + tasks.described(4), &[0]);
        let chain: Vec<u64> = (0..4).map(|_| future()).collect();
        program.world.word(task + tasks.described(2), chain[0]);
        for pair in chain.windows(2) {
            tasks.awaited_by(pair[0], &pair[1..]);
        }
        assert_eq!(waiters(), (0, false));
        tasks.awaited_by(chain[3], &all[..1]);
        assert_eq!(waiters(), (0, true), "too many futures");
    }
}

#[test]
fn what_is_no_sound_task_is_counted() {
    for layout in describing() {
        let (program, thread, codes) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let mut python = with_asyncio(&program);
        let head = thread + OF_THREAD;
        let good = tasks.coroutine(codes[0], Does::Begins);
        tasks.task(head, tasks.number(1), good);
        let counts = |python: &mut Cpython<&World>| {
            let found = python.pending_tasks().expect("asyncio");
            (found.tasks.len(), found.found, found.unreadable, found.is_incomplete)
        };
        assert_eq!(counts(&mut python), (1, 1, 0, false));
        // A coroutine that has ended, one that awaits itself, one without code, a frame that is
        // not its own, a stack that is elsewhere, a name that is none.
        tasks.task(head, tasks.number(2), tasks.coroutine(codes[0], Does::Ended));
        let circle = tasks.coroutine(codes[0], Does::Begins);
        let again = tasks.coroutine(codes[0], Does::Awaits(circle));
        let place = |coroutine: u64, at: u64| coroutine + 72 + layout.object.kind - 8 + at;
        let circle = tasks.coroutine(codes[0], Does::Awaits(again));
        program.world.word(again + 400, circle);
        tasks.task(head, tasks.number(3), circle);
        tasks.task(head, tasks.number(4), tasks.coroutine(0x99, Does::Begins));
        let other = tasks.coroutine(codes[0], Does::Begins);
        program.world.put(place(other, layout.frame.owner.expect("it has one")), &[0]);
        tasks.task(head, tasks.number(5), other);
        let astray = tasks.coroutine(codes[0], Does::Awaits(good));
        // Below its frame.
        let top = if layout.minor >= 15 { 16 } else { 8 };
        program.world.word(good + 480, good);
        program.world.word(place(astray, 64), good + 480 + top);
        tasks.task(head, tasks.number(6), astray);
        tasks.task(head, tasks.object(tasks.future_type, 64), good);
        let states = tasks.coroutine(codes[0], Does::Begins);
        program.world.put(place(states, 0) - 5, &[77]);
        tasks.task(head, tasks.number(7), states);
        tasks.task(head, tasks.number(8), good);
        assert_eq!(counts(&mut python), (2, 9, 7, false), "{layout:?}");
        // One that ends while the list is read has no place in it any more.
        let ended = tasks.task(head, tasks.number(9), good);
        program.world.word(tasks.node(ended) + 8, 0);
        let (_, _, _, is_incomplete) = counts(&mut python);
        assert!(is_incomplete);
        program.world.word(tasks.node(ended), 0);
        assert!(counts(&mut python).3);
        // A list that never comes back to its head.
        let (program, thread, codes) = super::program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let mut python = with_asyncio(&program);
        let good = tasks.coroutine(codes[0], Does::Begins);
        let first = tasks.node(tasks.task(thread + OF_THREAD, tasks.number(1), good));
        let second = tasks.node(tasks.task(thread + OF_THREAD, tasks.number(2), good));
        program.world.word(second, first);
        assert_eq!(counts(&mut python), (2, 2, 0, true));
        program.world.word(thread + OF_THREAD, 0);
        assert_eq!(counts(&mut python), (0, 0, 0, false), "it was never used");
    }
}

/// Memory of which one word grows with each read.
struct Running<'a> {
    world: &'a World,
    word: Cell<u64>,
    runs: Cell<bool>,
}

impl ReadMemory for &Running<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if self.runs.get() {
            self.world.word(self.word.get(), self.world.get(self.word.get()) + 8);
        }
        self.world.read(address, buf)
    }
}

#[test]
fn a_task_that_goes_on_is_not_guessed() {
    let layout = describing().next().expect("3.14");
    let (program, thread, codes) = program(layout);
    let tasks = Tasks::new(&program, &[thread], &[]);
    let coroutine = tasks.coroutine(codes[0], Does::Begins);
    tasks.task(thread + OF_THREAD, tasks.number(1), coroutine);
    let memory = Running {
        world: &program.world,
        word: Cell::new(coroutine + 72 + layout.frame.position),
        runs: Cell::new(false),
    };
    let ids = ThreadIds::made_up(71..80);
    let mut python = Cpython { ids, ..Cpython::new(&memory, layout, RUNTIME, Names::default()) };
    python.find_asyncio(&[DATA]);
    let mut counts = || {
        let found = python.pending_tasks().expect("asyncio");
        (found.tasks.len(), found.unreadable)
    };
    assert_eq!(counts(), (1, 0));
    memory.runs.set(true);
    assert_eq!(counts(), (0, 1));
}

/// Memory in which a task ends when its coroutine is read.
struct Ending<'a> {
    world: &'a World,
    coroutine: u64,
    node: u64,
}

impl ReadMemory for &Ending<'_> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if address == self.coroutine {
            self.world.word(self.node, 0);
        }
        self.world.read(address, buf)
    }
}

#[test]
fn a_task_that_ends_meanwhile_is_none() {
    for layout in describing() {
        let (program, thread, codes) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let coroutine = tasks.coroutine(codes[0], Does::Begins);
        let task = tasks.task(thread + OF_THREAD, tasks.number(1), coroutine);
        let memory = Ending { world: &program.world, coroutine, node: tasks.node(task) };
        let mut python = Cpython::new(&memory, layout, RUNTIME, Names::default());
        python.find_asyncio(&[DATA]);
        let found = python.pending_tasks().expect("asyncio");
        assert_eq!((found.tasks.len(), found.found, found.unreadable), (0, 0, 0), "{layout:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Words are changed, before or after asyncio was found.
    #[test]
    fn changed_tasks_are_read_with_an_end(
        version in 0usize..4, first in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u64..512, any::<prop::sample::Index>(), 0u64..512, 0u8..4), 1..60),
    ) {
        let layout = describing().nth(version).expect("there are four");
        let (program, thread, codes) = program(layout);
        let tasks = Tasks::new(&program, &[thread], &[]);
        let head = thread + OF_THREAD;
        let mut before = tasks.object(tasks.future_type, 168);
        for nth in 0..6 {
            let awaited = tasks.wrapper("_asyncio.FutureIter", before);
            let inner = tasks.coroutine(codes[0], Does::Awaits(awaited));
            let outer = tasks.coroutine(codes[1], Does::Awaits(inner));
            let task = tasks.task(head, tasks.text(&format!("task {nth}")), outer);
            tasks.awaited_by(before, &[task, before, task]);
            before = task;
        }
        program.world.word(thread + RUNNING, before);
        let mut python = reader(&program);
        if first {
            python.find_asyncio(&[DATA]);
        }
        let pages = program.world.pages();
        for (page, word, other, at, kind) in changes {
            let to = other.get(&pages) + 8 * at;
            let value = match kind {
                0 => to,
                1 => program.world.get(to),
                2 => at,
                _ => u64::MAX - at,
            };
            program.world.word(page.get(&pages) + 8 * word, value);
        }
        python.find_asyncio(&[DATA]);
        program.world.reads();
        if let Some(found) = python.pending_tasks() {
            prop_assert!(found.tasks.len() <= found.found);
        }
        let _ = executes(&mut python, 0);
        prop_assert!(program.world.reads() < 3_000_000);
    }
}
