//! Tasks of asyncio in a made-up program.

use super::made_up::{Program, RUNTIME, description};
use super::made_up_objects::longer;

/// Where the description of asyncio's module is, and the data that it lies in.
pub const DATA: std::ops::Range<u64> = 0x6_0000..0x6_4000;
const DESCRIPTION: u64 = 0x6_1008;
/// In the state of a thread, and in an interpreter.
pub const RUNNING: u64 = 456;
pub const OF_THREAD: u64 = 464;
pub const OF_INTERPRETER: u64 = 10_880;
/// In a coroutine: where its frame's stack of values is.
const STACK: u64 = 400;

/// What a coroutine does.
#[derive(Clone, Copy)]
pub enum Does {
    Begins,
    /// It awaits this object.
    Awaits(u64),
    Executes,
    Ended,
}

/// A program with asyncio.
pub struct Tasks<'a> {
    pub program: &'a Program,
    /// Offsets in builds with a GIL; those without have a longer head.
    longer: u64,
    pub task_type: u64,
    pub future_type: u64,
    pub coroutine_type: u64,
    text_type: u64,
    int_type: u64,
}

impl<'a> Tasks<'a> {
    /// Describes asyncio's module, and makes the lists of these threads and interpreters empty.
    pub fn new(program: &'a Program, threads: &[u64], interpreters: &[u64]) -> Tasks<'a> {
        let (world, layout) = (&program.world, &program.layout);
        let whole = description(layout.minor, layout.free_threaded);
        // The program has the rest for itself.
        world.put(RUNTIME, &whole[..if layout.minor >= 15 { 888 } else { 760 }]);
        let longer = longer(layout);
        world.put(DATA.start, &[0; (DATA.end - DATA.start) as usize]);
        for (nth, word) in (0..).zip(Tasks::words(longer)) {
            world.word(DESCRIPTION + 8 * nth, word);
        }
        let mut tasks = Tasks {
            program,
            longer,
            task_type: 0,
            future_type: 0,
            coroutine_type: 0,
            text_type: 0,
            int_type: 0,
        };
        let object = tasks.kind("object", 0);
        tasks.future_type = tasks.kind("_asyncio.Future", object);
        tasks.task_type = tasks.kind("_asyncio.Task", tasks.future_type);
        tasks.coroutine_type = tasks.kind("coroutine", object);
        tasks.text_type = tasks.kind("str", object);
        tasks.int_type = tasks.kind("int", object);
        let heads = threads.iter().map(|thread| thread + OF_THREAD);
        for head in heads.chain(interpreters.iter().map(|at| at + OF_INTERPRETER)) {
            world.word(head, head);
            world.word(head + 8, head);
        }
        tasks
    }

    /// Returns the words with which asyncio's module describes itself.
    fn words(longer: u64) -> [u64; 13] {
        let of_task = [168, 136, 96, 108, 109, 128, 152].map(|at| at + longer);
        let [size, name, by, is_task, by_is_set, coroutine, node] = of_task;
        let others = [16_000, OF_INTERPRETER, 496, 448, RUNNING, OF_THREAD];
        let [interpreter, tasks, thread, event_loop, running, of_thread] = others;
        [
            size,
            name,
            by,
            is_task,
            by_is_set,
            coroutine,
            node,
            interpreter,
            tasks,
            thread,
            event_loop,
            running,
            of_thread,
        ]
    }

    /// Changes one of these words.
    pub fn describe(&self, nth: u64, word: u64) {
        self.program.world.word(DESCRIPTION + 8 * nth, word);
    }

    pub fn described(&self, nth: u64) -> u64 {
        self.program.world.get(DESCRIPTION + 8 * nth)
    }

    pub fn kind(&self, name: &str, base: u64) -> u64 {
        let world = &self.program.world;
        let (at, text) = (world.alloc(512), world.alloc(64));
        world.put(text, name.as_bytes());
        world.word(at + self.program.layout.object.type_name, text);
        world.word(at + 256 + self.longer, base);
        at
    }

    /// Returns an object of a type.
    pub fn object(&self, kind: u64, size: u64) -> u64 {
        let at = self.program.world.alloc(size);
        self.program.world.word(at, 3);
        self.program.world.word(at + self.program.layout.object.kind, kind);
        at
    }

    /// Returns an object that has a pointer to another one behind its head.
    pub fn wrapper(&self, name: &str, inner: u64) -> u64 {
        let at = self.object(self.kind(name, 0), 64);
        self.program.world.word(at + 16 + self.longer, inner);
        at
    }

    pub fn text(&self, text: &str) -> u64 {
        let at = self.program.text(text);
        self.program.world.word(at, 3);
        self.program.world.word(at + self.program.layout.object.kind, self.text_type);
        at
    }

    pub fn number(&self, number: u64) -> u64 {
        let at = super::made_up_objects::integer(self.program, number);
        self.program.world.word(at + self.program.layout.object.kind, self.int_type);
        at
    }

    /// Returns a coroutine, or the like, of a code object.
    pub fn generator(&self, kind: u64, code: u64, does: Does) -> u64 {
        let (world, layout) = (&self.program.world, &self.program.layout);
        let (at, l) = (self.object(kind, 512), &layout.frame);
        let is_new = layout.minor >= 15;
        let state: i8 = match does {
            Does::Begins => {
                if is_new {
                    0
                } else {
                    -3
                }
            }
            Does::Awaits(_) => {
                if is_new {
                    2
                } else {
                    -1
                }
            }
            Does::Executes => {
                if is_new {
                    4
                } else {
                    0
                }
            }
            Does::Ended => {
                if is_new {
                    5
                } else {
                    4
                }
            }
        };
        world.put(at + 67 + self.longer, &state.to_le_bytes());
        let frame = at + 72 + self.longer;
        world.word(frame + l.code, code | 1);
        world.word(frame + l.position, self.program.position(code, 0));
        world.put(frame + l.owner.expect("3.14 has it"), &[1]);
        if let Does::Awaits(object) = does {
            world.word(at + STACK, object | 1);
            world.word(at + STACK + 8, 0);
            let top = if is_new { 16 } else { 8 };
            world.word(frame + 64, at + STACK + top);
        }
        at
    }

    pub fn coroutine(&self, code: u64, does: Does) -> u64 {
        self.generator(self.coroutine_type, code, does)
    }

    /// Returns what awaits a future: `on` is one object, or several.
    pub fn awaited_by(&self, future: u64, on: &[u64]) {
        let world = &self.program.world;
        if let [one] = on {
            return world.word(future + 96 + self.longer, *one);
        }
        let (set, table) = (world.alloc(128), world.alloc(16 * 8));
        let at = set + self.longer;
        world.word(at + 24, on.len() as u64);
        world.word(at + 32, 7);
        world.word(at + 40, table);
        for (nth, object) in (1..).step_by(2).zip(on) {
            world.word(table + 16 * nth, *object);
        }
        world.word(future + 96 + self.longer, set);
        world.put(future + 109 + self.longer, &[1]);
    }

    /// Returns a task of a type that is in no list.
    pub fn unlisted(&self, kind: u64, name: u64, coroutine: u64) -> u64 {
        let (world, at) = (&self.program.world, self.object(kind, 168 + self.longer));
        world.word(at + 136 + self.longer, name);
        world.word(at + 128 + self.longer, coroutine);
        world.put(at + 108 + self.longer, &[1]);
        at
    }

    /// Returns a task, at the end of the list with this head.
    pub fn task(&self, head: u64, name: u64, coroutine: u64) -> u64 {
        let at = self.unlisted(self.task_type, name, coroutine);
        let (world, node) = (&self.program.world, self.node(at));
        let last = world.get(head + 8);
        world.word(last, node);
        world.word(node, head);
        world.word(node + 8, last);
        world.word(head + 8, node);
        at
    }

    pub fn node(&self, task: u64) -> u64 {
        task + 152 + self.longer
    }
}
