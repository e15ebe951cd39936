//! Attaches to the interpreter of a process, after checks that its structures are what the layout
//! says.

use crate::model::vocabulary::frame::{FrameCode, Ns};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::Cpython;
use crate::runtimes::cpython::code_objects::Codes;
use crate::runtimes::cpython::frame_list::FrameLists;
use crate::runtimes::cpython::image::Image;
use crate::runtimes::cpython::layout::{GilAt, Layout};
use crate::runtimes::cpython::thread_ids::ThreadIds;
use crate::runtimes::cpython::thread_names::ThreadNames;
use crate::runtimes::cpython::threads::Threads;
use crate::runtimes::cpython::unreadable::Unreadable;
use crate::runtimes::frame_and_thread_names::Names;
use crate::unwinder::interpreted::{Evaluations, StackOwner};

/// Maximum threads whose frames are read to find one that can be named.
const TRIED_MAX: usize = 64;

impl<M: ReadMemory> Cpython<M> {
    /// Attaches to the interpreter in this image. `pid`: its process, to compare ids of threads.
    pub fn attach(
        memory: M,
        image: &Image,
        names: Names,
        pid: u32,
    ) -> Result<Cpython<M>, Unreadable> {
        let (_, layout) = image.layout(&memory)?;
        let evaluation = image.evaluation(&memory);
        let ids = ThreadIds::of(pid);
        let mut cpython =
            Cpython { evaluation, ids, ..Cpython::new(memory, layout, image.runtime, names) };
        let ids = cpython.ids.all();
        cpython.check(|id| ids.contains(&id))?;
        // Where it is built into the interpreter.
        cpython.find_asyncio(image.data());
        Ok(cpython)
    }

    /// Creates a reader with empty caches. `runtime`: address of `_PyRuntime`.
    pub fn new(memory: M, layout: Layout, runtime: u64, names: Names) -> Cpython<M> {
        Cpython {
            memory,
            layout,
            runtime,
            evaluation: Vec::new(),
            lock: 0,
            names,
            ids: ThreadIds::default(),
            threads: Threads::default(),
            lists: FrameLists::default(),
            thread_names: ThreadNames::default(),
            locks: Default::default(),
            asyncio: Default::default(),
            codes: Codes::default(),
            copied: Ns::MAX,
            frames: Vec::new(),
        }
    }

    /// Reads the threads, and checks the layout by them. `is_thread`: whether the process has a
    /// thread with this id.
    pub fn check(&mut self, is_thread: impl Fn(u32) -> bool) -> Result<(), Unreadable> {
        let word = self.memory.read_u64(self.runtime.wrapping_add(self.layout.interpreters));
        if word.is_none_or(|word| word == 0) {
            return Err(Unreadable::Starting("interpreter"));
        }
        self.threads.read(&self.memory, &self.layout, self.runtime, &mut self.ids);
        let states = &self.threads.states;
        if states.is_empty() {
            return Err(Unreadable::Odd("its threads are not where they should be"));
        }
        if !states.iter().filter_map(|state| state.native_id).any(is_thread) {
            return Err(Unreadable::Odd("its threads do not have the ids of the process's"));
        }
        self.lock = self.lock();
        let owners: Vec<StackOwner> = states
            .iter()
            .take(TRIED_MAX)
            .map(|state| StackOwner {
                tid: 0,
                fs_base: Some(state.pthread),
                ..StackOwner::default()
            })
            .collect();
        let mut some = false;
        for owner in owners {
            let Some(Evaluations { frames, .. }) = self.blocked(owner) else { continue };
            some |= !frames.is_empty();
            let named = |frame: &crate::model::vocabulary::frame::RawFrame| {
                matches!(frame.decode(), FrameCode::Runtime { .. })
            };
            if frames.iter().any(named) {
                return Ok(());
            }
        }
        if some {
            return Err(Unreadable::Odd("its functions are not where they should be"));
        }
        // No thread executes Python now. Each code object is checked when it is first met.
        Ok(())
    }

    /// Returns the address of the main interpreter's lock; 0 where there is none.
    fn lock(&self) -> u64 {
        let main = self.threads.interpreters.iter().min_by_key(|interpreter| interpreter.id);
        match self.layout.interpreter.gil.at {
            GilAt::Runtime(at) => self.runtime.wrapping_add(at),
            GilAt::Interpreter(at) if !self.layout.free_threaded => main
                .and_then(|main| self.memory.read_u64(main.address.wrapping_add(at)))
                .unwrap_or(0),
            GilAt::Interpreter(_) => 0,
        }
    }
}
