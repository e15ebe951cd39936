//! CPython on x86-64: Python frames, read from outside, of an interpreter that nothing prepared.
//! Versions 3.8 to 3.15.
//!
//! ```text
//! image         the mapped file that has the interpreter; its version; its evaluating function
//! layout        offsets in its structures, by version
//! described     the same, as newer interpreters describe themselves
//! attach        checks that the layout fits
//! unreadable    why an interpreter cannot be read
//! threads       states of threads, and whose they are
//! thread_ids    the kernel's ids of threads
//! gil           who waits for the interpreter's own lock, and who holds it
//! frame_list    the frames of a blocked thread
//! several       a thread that executes code of several interpreters
//! evaluations   which of them one native call executes
//! code_objects  names, files and lines of functions
//! line_table    instruction -> line
//! locks         `threading.Lock` and `RLock` that threads wait for
//! module_names  file -> module
//! objects       strings, bytes, types
//! asyncio/      tasks of event loops
//! attributes    dictionaries, attributes of objects
//! thread_names  names that the program gives to threads
//! ```
//!
//! Everything is read while the target runs. A blocked thread's frames are read now; the caller
//! checks afterwards that it has not run. Those of a running thread were taken by the kernel. Code
//! objects are compared with memory for each stack; see [`code_objects`].

mod asyncio;
mod attach;
mod attributes;
mod code_objects;
mod described;
mod evaluations;
mod frame_list;
mod gil;
mod image;
pub mod layout;
pub mod line_table;
mod locks;
mod module_names;
mod objects;
mod several;
mod thread_ids;
mod thread_names;
mod threads;
mod unreadable;

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::clock::monotonic;
use crate::model::vocabulary::blocker::RawBlocker;
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName};
use crate::process::maps::Maps;
use crate::process::memory::ReadMemory;
use crate::runtimes::frame_and_thread_names::Names;
use crate::unwinder::interpreted::{Evaluations, InterpreterFrame, InterpreterLayout};
use crate::unwinder::interpreted::{StackOwner, Taken};
use crate::unwinder::{Generated, Leave, Place};
use asyncio::Asyncio;
pub use asyncio::tasks_of;
use code_objects::{Codes, Instant, Nameless};
use evaluations::{Chain, split};
use frame_list::FrameLists;
pub use image::{Image, Search};
use layout::Layout;
use locks::Locks;
use several::Part;
use thread_ids::ThreadIds;
use thread_names::ThreadNames;
use threads::Threads;
pub use unreadable::Unreadable;

/// Time for which validated code stays valid for stacks that were copied before: a tick at 100 Hz.
const VALID_FOR: Ns = 10_000_000;
/// Maximum frames kept at each end of a deep stack.
const KEPT: usize = 500;

/// The interpreters of a process.
pub struct Cpython<M> {
    memory: M,
    layout: Layout,
    /// Address of `_PyRuntime`.
    runtime: u64,
    /// Address ranges of the native function that executes frames.
    evaluation: Vec<Range<u64>>,
    /// Address of the main interpreter's lock; 0: it has none.
    lock: u64,
    names: Names,
    ids: ThreadIds,
    threads: Threads,
    lists: FrameLists,
    thread_names: ThreadNames,
    locks: Locks,
    asyncio: Asyncio,
    codes: Codes,
    /// When the stack that is walked was copied.
    copied: Ns,
    /// Frames of the thread that is read.
    frames: Vec<InterpreterFrame>,
}

impl<M: ReadMemory> Cpython<M> {
    /// Reads the frames of a blocked thread.
    fn blocked(&mut self, owner: StackOwner) -> Option<Evaluations> {
        let mut out = Evaluations::default();
        // A second attempt where a state is not that thread's any more, or where the thread may
        // have got another one.
        for last in [false, true] {
            let Cpython { memory, layout, threads, ids, .. } = self;
            let states = threads.of(memory, layout, self.runtime, ids, owner);
            let pthread = states.first().map_or(0, |at| threads.states[*at].pthread);
            let states = several::candidates(layout, threads, states);
            let sound = self.read_states(&states, pthread, &mut out);
            if sound && !is_empty(&out) {
                return Some(out);
            }
            out = Evaluations::default();
            if last || states.is_empty() || !self.read_threads(sound) {
                return None;
            }
        }
        None
    }

    /// Reads the thread states again; `if_new`: only if there are new ones. Returns whether it did.
    fn read_threads(&mut self, if_new: bool) -> bool {
        let Cpython { memory, layout, threads, ids, .. } = self;
        let done = if if_new {
            threads.update(memory, layout, self.runtime, ids)
        } else {
            threads.read(memory, layout, self.runtime, ids);
            true
        };
        if done {
            self.lists.retain(&self.threads.states);
        }
        done
    }

    /// Appends the frames of a thread; `states`: those that may have some. Returns whether all are
    /// still of the threads that they were of.
    fn read_states(&mut self, states: &[usize], pthread: u64, out: &mut Evaluations) -> bool {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let parts = self.read_parts(states, &mut frames);
        let sound = parts.is_some();
        let main = self.threads.pthread_of(self.ids.main());
        let parts = parts.unwrap_or_default();
        let parts = several::order(&self.layout, &self.threads, parts, pthread, main);
        let mut holds_lock = parts.iter().any(|part| self.holds_lock(part.state));
        out.task = parts.iter().find_map(|part| {
            let task = self.lists.task(&self.threads.states[part.state]);
            self.running_task(task)
        });
        for part in parts {
            let Part { frames: range, end, .. } = part;
            let all = &mut frames[range];
            let gap = (all.len() > 2 * KEPT).then_some(KEPT);
            let kept = if gap.is_some() {
                let outermost = all.len() - KEPT;
                all.copy_within(outermost.., KEPT);
                &all[..2 * KEPT]
            } else {
                &all[..]
            };
            let now = monotonic();
            let instant = Instant { since: now, copied: None, now };
            self.name(Chain { frames: kept, gap, end }, &mut holds_lock, instant, out);
            if out.end.is_some() {
                break;
            }
        }
        self.frames = frames;
        sound
    }

    /// Appends the frames of these thread states, and returns which are whose. `None`: one of them
    /// is not what it was.
    fn read_parts(
        &mut self,
        states: &[usize],
        frames: &mut Vec<InterpreterFrame>,
    ) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        for at in states.iter().copied() {
            let (state, from) = (self.threads.states[at], frames.len());
            let end = self.lists.read(&self.memory, &self.layout, &state, frames)?;
            if frames.len() > from || end.is_some() {
                let cframe = self.lists.cframe(&state);
                let place = several::place(&self.layout, &frames[from..], cframe);
                let frames = from..frames.len();
                parts.push(Part { state: at, nth: state.nth, place, frames, end });
            }
        }
        Some(parts)
    }

    /// Names the frames that the kernel took.
    fn taken(&mut self, taken: &Taken) -> Evaluations {
        let mut out = Evaluations::default();
        let now = monotonic();
        // What was compared since the stack was copied, and not long ago.
        let since = self.copied.max(now.saturating_sub(VALID_FOR)).min(now);
        let instant = Instant { since, copied: Some(self.copied), now };
        let chain = Chain { frames: &taken.frames, gap: taken.gap, end: taken.end };
        self.name(chain, &mut taken.holds_lock.clone(), instant, &mut out);
        out.task = self.task_named(&taken.task_name);
        out
    }

    /// Appends named frames. `holds_lock`: the thread holds the interpreter's lock, which the
    /// innermost frame with a name says; afterwards false if one has said it.
    fn name(
        &mut self,
        chain: Chain<'_>,
        holds_lock: &mut bool,
        instant: Instant,
        out: &mut Evaluations,
    ) {
        let (memory, layout, names, codes) =
            (&self.memory, &self.layout, &self.names, &mut self.codes);
        codes.validate(memory, chain.frames, instant);
        let name = |frame: &InterpreterFrame| match codes.frame(
            memory,
            layout,
            names,
            frame,
            *holds_lock,
            instant,
        ) {
            Ok(named) => {
                *holds_lock = false;
                named
            }
            Err(Nameless::Unreadable) => RawFrame::marker(Marker::Torn),
            Err(Nameless::Replaced) => RawFrame::marker(Marker::CodeReplaced),
        };
        split(layout, chain, name, out);
    }
}

fn is_empty(found: &Evaluations) -> bool {
    found.frames.is_empty() && found.ends.is_empty() && found.end.is_none()
}

impl<M: ReadMemory + Send> Generated for Cpython<M> {
    fn begin(&mut self, copied: Ns, _: bool) {
        self.copied = copied;
    }

    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.read_threads(true);
        let Cpython { memory, layout, threads, names, .. } = self;
        self.thread_names.read(memory, layout, threads, names, moved, self.ids.main())
    }

    fn mapped(&mut self, maps: &Maps) {
        self.find_asyncio_in(maps);
    }

    fn covers(&self, _: u64) -> bool {
        false
    }

    fn evaluates(&self, pc: u64) -> bool {
        self.evaluation.iter().any(|range| range.contains(&pc))
    }

    /// That of greenlet, which gevent and eventlet use:
    /// `_greenlet.cpython-312-x86_64-linux-gnu.so`.
    fn exchanges_stacks(&self, library: &str) -> bool {
        library.trim_start_matches('_').starts_with("greenlet.")
    }

    fn interpreted(&mut self, owner: StackOwner, taken: Option<&Taken>) -> Option<Evaluations> {
        match taken {
            // Of a thread without Python nothing is missing.
            Some(taken)
                if taken.is_nothing() && self.threads.known(&mut self.ids, owner).is_empty() =>
            {
                None
            }
            Some(taken) => Some(self.taken(taken)),
            None => {
                self.forget_wait(owner.tid);
                let evaluations = self.blocked(owner)?;
                let innermost = evaluations.frames.first().copied();
                let waits = self.waits_for_lock(owner).or_else(|| {
                    innermost.and_then(|function| self.waits_for_python_lock(owner, function))
                });
                Some(Evaluations { waits, ..evaluations })
            }
        }
    }

    fn blocker(&mut self, owner: StackOwner) -> Option<RawBlocker> {
        self.lock_blocker(owner).or_else(|| self.python_lock_blocker(owner))
    }

    fn interpreter_layout(&self) -> Option<InterpreterLayout> {
        self.layout.for_kernel(self.runtime, self.lock)
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

#[cfg(test)]
mod tests;
