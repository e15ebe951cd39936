//! Tasks of asyncio. 3.14 on.
//!
//! ```text
//! offsets       where asyncio's module is, and what it says of its structures
//! objects       tasks, coroutines, futures, in the target's memory
//! running       the name of the task that a thread executes
//! pending       all tasks of all event loops, with what each awaits
//! ```

mod objects;
mod offsets;
mod pending;
mod running;

use std::ops::Range;

use crate::model::vocabulary::frame::RawFrame;
use crate::process::maps::{Backing, Maps};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::Cpython;
use crate::runtimes::cpython::layout::RunningTask;
use objects::Objects;
use offsets::{Offsets, search};
pub use pending::tasks_of;
use running::TaskNames;

/// Versions that describe their tasks: this minor one and later ones.
const FIRST_MINOR: u8 = 14;
/// The name of the module's shared library begins with this.
const LIBRARY: &str = "_asyncio.";
/// Maximum libraries of this name that are searched: one for each copy in the process.
const LIBRARIES_MAX: usize = 8;

/// What is known of asyncio in a process.
#[derive(Default)]
pub struct Asyncio {
    /// `None`: its module is not loaded.
    offsets: Option<Offsets>,
    names: TaskNames,
}

impl<M: ReadMemory> Cpython<M> {
    /// Returns the frame that names the task at this address, if the program named it; 0: none.
    pub(super) fn running_task(&mut self, task: u64) -> Option<RawFrame> {
        let Cpython { memory, layout, names, asyncio, .. } = self;
        let Asyncio { offsets, names: known } = asyncio;
        let offsets = offsets.as_ref().filter(|_| task != 0)?;
        known.of_task(&Objects { memory, layout, offsets }, names, task)
    }

    /// Returns the same for a task whose name is the object that begins with these bytes.
    pub(super) fn task_named(&mut self, name: &[u8]) -> Option<RawFrame> {
        let Cpython { memory, layout, names, asyncio, .. } = self;
        let Asyncio { offsets, names: known } = asyncio;
        let offsets = offsets.as_ref().filter(|_| !name.is_empty())?;
        known.frame(&Objects { memory, layout, offsets }, names, name)
    }

    /// Searches the module in these address ranges: the writable memory of a mapped file.
    pub fn find_asyncio(&mut self, data: &[Range<u64>]) {
        if self.layout.minor < FIRST_MINOR || self.asyncio.offsets.is_some() {
            return;
        }
        let Cpython { memory, layout, runtime, .. } = self;
        self.asyncio.offsets = search(memory, layout, *runtime, data);
        self.layout.thread.task = self.asyncio.offsets.map(|offsets| RunningTask {
            of_thread: offsets.running_task,
            name: offsets.task.name,
        });
    }

    /// Searches the module among mapped libraries. It is loaded by the first `import asyncio`.
    pub(super) fn find_asyncio_in(&mut self, maps: &Maps) {
        if self.layout.minor < FIRST_MINOR || self.asyncio.offsets.is_some() {
            return;
        }
        let is_library = |name: Option<&str>| name.is_some_and(|name| name.starts_with(LIBRARY));
        let libraries = maps
            .iter()
            .filter(|mapping| mapping.offset == 0 && mapping.backing == Backing::File)
            .filter(|mapping| is_library(mapping.path.file_name().and_then(|name| name.to_str())));
        for library in libraries.take(LIBRARIES_MAX) {
            let loaded = maps.loaded_with(library).iter();
            let data = loaded.filter(|mapping| mapping.writable);
            let data: Vec<_> = data.map(|mapping| mapping.start..mapping.end).collect();
            self.find_asyncio(&data);
        }
    }
}
