//! All tasks that have not ended: their coroutines, what each awaits, and which tasks await it.
//!
//! The program runs meanwhile. A list counts if each node is between its neighbours; else it is
//! read again. A task counts if all of its coroutines were the same when they were read a second
//! time, after all that it names.

use std::sync::Arc;

use crate::clock::monotonic;
use crate::elf::u64_at;
use crate::model::facts::tables::Location;
use crate::model::facts::tasks::{Awaited, Task, TaskName, Tasks};
use crate::model::vocabulary::text::clean;
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use crate::runtimes::cpython::asyncio::objects::{Kind, Kinds, Objects, TaskObject};
use crate::runtimes::cpython::asyncio::offsets::State;
use crate::runtimes::cpython::code_objects::Instant;
use crate::runtimes::cpython::frame_list::parse;
use crate::runtimes::cpython::{Cpython, Search};
use crate::runtimes::frame_and_thread_names::Names;
use crate::unwinder::interpreted::InterpreterFrame;

/// Maximum tasks that are read, and that are counted.
const READ_MAX: usize = 10_000;
const FOUND_MAX: usize = 100_000;
/// Maximum objects that are read of all tasks, in all attempts.
const OBJECTS_MAX: usize = 500_000;
/// Maximum coroutines of a task, and objects between two of them.
const DEPTH_MAX: usize = 1000;
/// Maximum bytes that the stack of values of a coroutine is away from its frame.
const STACK_MAX: u64 = 1 << 20;
/// Maximum tasks that await one, slots of a set that are read, and futures between two tasks.
const WAITERS_MAX: usize = 64;
const SLOTS_MAX: u64 = 4096;
const FUTURES_MAX: usize = 4;
/// Attempts to read a list, and a task.
const ATTEMPTS: usize = 5;
/// Maximum bytes of a name.
const NAME_MAX: usize = 1000;
/// The owner of a frame that lies in a generator (Include/internal/pycore_frame.h).
const IN_GENERATOR: u8 = 1;
/// The low bits of a value on a stack may be tags.
const TAGS: u64 = 7;

/// Returns the tasks of a process that has not ended. `None`: it has no asyncio of CPython 3.14 or
/// later, or cannot be read.
pub fn tasks_of(pid: u32) -> Option<Tasks> {
    let maps = Maps::read(pid).ok()?;
    let memory = Memory::new(pid);
    let image = Search::default().find(&memory, &maps)?;
    let mut python = Cpython::attach(memory, &image, Names::default(), pid).ok()?;
    python.find_asyncio_in(&maps);
    Some(Tasks { pid, ..python.pending_tasks()? })
}

/// What was read of a task.
#[derive(PartialEq, Eq)]
struct Read {
    task: TaskObject,
    /// Its coroutines, outermost first.
    frames: Vec<InterpreterFrame>,
    runs: bool,
    awaits: Option<u64>,
}

/// A task with all that it names.
struct Whole {
    read: Read,
    name: Arc<str>,
    frames: Vec<Location>,
    awaits: Option<Awaited>,
    awaited_by: Waiters,
}

/// The tasks that await one.
#[derive(Default)]
struct Waiters {
    tasks: Vec<TaskName>,
    /// There may be more.
    is_incomplete: bool,
}

/// Why a task was not read.
enum Failed {
    /// It has ended.
    Ended,
    /// It is not what it should be, or changes.
    Unreadable,
}

/// Reads tasks of one process.
struct Reader<'a, M> {
    objects: Objects<'a, M>,
    kinds: Kinds,
    /// Objects that may still be read.
    left: usize,
}

impl<M: ReadMemory> Cpython<M> {
    /// Returns the tasks that have not ended. `None`: there is no asyncio.
    pub fn pending_tasks(&mut self) -> Option<Tasks> {
        let offsets = self.asyncio.offsets?;
        self.read_threads(false);
        let Cpython { memory, layout, threads, ids, codes, names, .. } = self;
        let objects = Objects { memory, layout, offsets: &offsets };
        let mut reader = Reader { objects, kinds: Kinds::default(), left: OBJECTS_MAX };
        let of_threads = threads
            .states
            .iter()
            .map(|state| (state.address.wrapping_add(offsets.tasks_of_thread), state.native_id));
        let of_ended = threads.interpreters.iter().map(|interpreter| {
            (interpreter.address.wrapping_add(offsets.tasks_of_interpreter), None)
        });
        let mut out = Tasks::default();
        for (head, id) in of_threads.chain(of_ended) {
            let (nodes, is_whole) = reader.list(head, FOUND_MAX - out.found);
            out.is_incomplete |= !is_whole;
            out.found += nodes.len();
            for node in nodes {
                if out.tasks.len() >= READ_MAX {
                    break;
                }
                let address = node.wrapping_sub(offsets.task.node);
                let named = |frames: &[InterpreterFrame]| {
                    let now = monotonic();
                    let instant = Instant { since: now, copied: None, now };
                    codes.validate(memory, frames, instant);
                    let name = |frame: &InterpreterFrame| -> Option<Location> {
                        let named = codes.frame(memory, layout, names, frame, false, instant);
                        Some(names.named(named.ok()?)?.locations.first()?.clone())
                    };
                    frames.iter().rev().map(name).collect()
                };
                let Whole { read, name, frames, awaits, awaited_by } =
                    match reader.task(address, named) {
                        Ok(whole) => whole,
                        Err(Failed::Ended) => {
                            out.found -= 1;
                            continue;
                        }
                        Err(Failed::Unreadable) => {
                            out.unreadable += 1;
                            continue;
                        }
                    };
                out.tasks.push(Task {
                    id: address,
                    tid: id.and_then(|id| ids.outside(id)),
                    name,
                    runs: read.runs,
                    frames,
                    awaits,
                    awaited_by: awaited_by.tasks,
                    has_more_waiters: awaited_by.is_incomplete,
                });
            }
        }
        Some(out)
    }
}

impl<M: ReadMemory> Reader<'_, M> {
    /// Returns the nodes of a list, and whether it was read to its end.
    fn list(&mut self, head: u64, max: usize) -> (Vec<u64>, bool) {
        let mut nodes = Vec::new();
        for _ in 0..ATTEMPTS {
            nodes.clear();
            if self.nodes(head, max, &mut nodes).is_some() {
                return (nodes, true);
            }
        }
        (nodes, false)
    }

    /// Appends the nodes of a list. `None`: it was not read to its end.
    fn nodes(&mut self, head: u64, max: usize, out: &mut Vec<u64>) -> Option<()> {
        let links = |at: u64| -> Option<(u64, u64)> {
            let mut bytes = [0; 16];
            self.objects.memory.read_exact(at, &mut bytes)?;
            Some((u64_at(&bytes, 0)?, u64_at(&bytes, 8)?))
        };
        let (mut next, _) = links(head)?;
        // Before it is used for the first time.
        if next == 0 {
            return Some(());
        }
        let mut before = head;
        while next != head {
            if out.len() >= max {
                return None;
            }
            let (behind, previous) = links(next)?;
            (previous == before).then_some(())?;
            out.push(next);
            (before, next) = (next, behind);
        }
        Some(())
    }

    /// Reads a task. `named`: returns the functions of its coroutines, innermost first.
    fn task(
        &mut self,
        at: u64,
        mut named: impl FnMut(&[InterpreterFrame]) -> Option<Vec<Location>>,
    ) -> Result<Whole, Failed> {
        for _ in 0..ATTEMPTS {
            let first = self.read(at).and_then(|read| self.whole(read, &mut named));
            match (first, self.read(at)) {
                (_, Some(Read { task: TaskObject { is_listed: false, .. }, .. })) => {
                    return Err(Failed::Ended);
                }
                (Some(first), Some(second)) if first.read == second => return Ok(first),
                _ if self.left == 0 => break,
                _ => {}
            }
        }
        Err(Failed::Unreadable)
    }

    /// Reads what a task names.
    fn whole(
        &mut self,
        read: Read,
        named: impl FnOnce(&[InterpreterFrame]) -> Option<Vec<Location>>,
    ) -> Option<Whole> {
        let name = self.name(read.task.name)?;
        let frames = named(&read.frames)?;
        let awaits = match read.awaits {
            Some(object) => Some(self.awaited(object)?),
            None => None,
        };
        let awaited_by = self.waiters(&read.task);
        Some(Whole { read, name, frames, awaits, awaited_by })
    }

    /// Reads a task with its coroutines as they are now.
    fn read(&mut self, at: u64) -> Option<Read> {
        let task = self.objects.task(&mut self.kinds, at)?;
        let mut read = Read { task, frames: Vec::new(), runs: false, awaits: None };
        // A task that has ended has no coroutine any more.
        let mut object = task.coroutine;
        for _ in 0..DEPTH_MAX {
            if !task.is_listed || read.runs {
                return Some(read);
            }
            self.left = self.left.checked_sub(1)?;
            object = match self.objects.kind(&mut self.kinds, object)? {
                Kind::Generator => match self.generator(object, &mut read)? {
                    Some(next) => next,
                    None => return Some(read),
                },
                Kind::Wrapper => self.objects.wrapped(object)?,
                _ => {
                    read.awaits = Some(object);
                    return Some(read);
                }
            };
        }
        None
    }

    /// Reads a coroutine; returns the object that it awaits, if any.
    fn generator(&self, at: u64, read: &mut Read) -> Option<Option<u64>> {
        let Objects { memory, layout, offsets } = self.objects;
        let fields = &offsets.generator;
        let span = layout.frame.span().max(fields.stack_pointer as usize + 8);
        let mut bytes = vec![0; fields.frame as usize + span];
        memory.read_exact(at, &mut bytes)?;
        let state = fields.state(*bytes.get(fields.state as usize)?)?;
        let place = at.checked_add(fields.frame)?;
        let frame = bytes.get(fields.frame as usize..)?;
        let (parsed, _) = parse(layout, place, frame)?;
        if state == State::Ended || parsed.owner != IN_GENERATOR {
            return None;
        }
        // What executes has other positions from one moment to the next. Where it is, is known to
        // the thread's stack only.
        let executes = state == State::Executes;
        let position = if executes { 0 } else { parsed.position };
        read.frames.push(InterpreterFrame { position, ..parsed });
        read.runs = executes;
        if state != State::Awaits {
            return Some(None);
        }
        let top = u64_at(frame, fields.stack_pointer as usize)?;
        let slot = top.checked_sub(8 * fields.awaited)?;
        let stack = place..place.saturating_add(STACK_MAX);
        let awaited = memory.read_u64(slot).filter(|_| stack.contains(&slot))?;
        Some(Some(awaited & !TAGS))
    }

    fn name(&mut self, name: u64) -> Option<Arc<str>> {
        Some(clean(&self.objects.name(&mut self.kinds, name)?, NAME_MAX).into())
    }

    /// Names what a task awaits.
    fn awaited(&mut self, object: u64) -> Option<Awaited> {
        if self.objects.kind(&mut self.kinds, object)? != Kind::Task {
            return Some(Awaited::Object(self.objects.type_name_of(object)?.into()));
        }
        let task = self.objects.task(&mut self.kinds, object)?;
        Some(Awaited::Task(TaskName { id: object, name: self.name(task.name)? }))
    }

    /// Returns the tasks that await a task.
    fn waiters(&mut self, task: &TaskObject) -> Waiters {
        let mut found = Waiters::default();
        let mut level = vec![(task.awaited_by, task.awaited_by_is_set)];
        for _ in 0..FUTURES_MAX {
            let mut members = Vec::new();
            for (at, is_set) in level.drain(..) {
                match self.members(at, is_set) {
                    Some(more) => members.extend(more),
                    None => found.is_incomplete = true,
                }
            }
            found.is_incomplete |= members.len() > WAITERS_MAX;
            members.truncate(WAITERS_MAX);
            for waiter in members {
                let Some(left) = self.left.checked_sub(1) else {
                    found.is_incomplete = true;
                    break;
                };
                self.left = left;
                if let Some(task) = self.objects.task(&mut self.kinds, waiter) {
                    let name = self.name(task.name);
                    found.tasks.extend(name.map(|name| TaskName { id: waiter, name }));
                } else if self.objects.kind(&mut self.kinds, waiter) == Some(Kind::Future) {
                    level.extend(self.objects.awaited_by(waiter).filter(|(at, _)| *at != 0));
                }
            }
        }
        found.is_incomplete |= !level.is_empty();
        // A set has no order of its own.
        found.tasks.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        found.tasks.dedup();
        found
    }

    /// Returns an object, or the members of a set. `None`: the set changes, or is too large.
    fn members(&self, at: u64, is_set: bool) -> Option<Vec<u64>> {
        if !is_set {
            return Some(Vec::from_iter((at != 0).then_some(at)));
        }
        let set = &self.objects.offsets.set;
        let word = |offset: u64| self.objects.word(at, offset);
        let slots = word(set.mask)?.checked_add(1).filter(|slots| *slots <= SLOTS_MAX)?;
        // In a slot: the object, its hash. That of a slot which is free again is -1.
        let mut table = vec![0; 16 * slots as usize];
        self.objects.memory.read_exact(word(set.table)?, &mut table)?;
        let slots = table.chunks_exact(16).filter_map(|slot| u64_at(slot, 0).zip(u64_at(slot, 8)));
        let live = slots.filter(|(object, hash)| *object != 0 && *hash != u64::MAX);
        let objects: Vec<u64> = live.map(|(object, _)| object).collect();
        (objects.len() as u64 == word(set.used)?).then_some(objects)
    }
}
