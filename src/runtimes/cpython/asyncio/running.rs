//! The name of the task that a thread executes, if the program gave it one.
//!
//! Tasks may be short: a moment later another one is at the same address. So the name is of the
//! same instant as the stack: the kernel takes it of a running thread, and that of a blocked thread
//! is read with its frames.

use rustc_hash::FxHashMap;

use crate::elf::u64_at;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::{RawFrame, task_text};
use crate::model::vocabulary::text::clean;
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::asyncio::objects::{Kinds, Objects, is_default};
use crate::runtimes::frame_and_thread_names::Names;

/// Bytes of a name's object that are read; the kernel takes as much (interpreter.bpf.h). That is
/// 120 ASCII characters.
const OBJECT: usize = 160;
/// Maximum bytes of a name that are shown.
const NAME_MAX: usize = 200;
/// Maximum names that a process's tasks can have; a program may name each task after its request.
const NAMES_MAX: usize = 1000;
/// Stands for all other names.
const OTHER: &str = "(other)";

/// The names of running tasks.
#[derive(Default)]
pub struct TaskNames {
    kinds: Kinds,
    frames: FxHashMap<String, RawFrame>,
}

impl TaskNames {
    /// Returns the frame that names the task at this address, as its name is now. `None`: it is no
    /// task, or has no name of the program's.
    pub fn of_task<M: ReadMemory>(
        &mut self,
        objects: &Objects<'_, M>,
        names: &Names,
        task: u64,
    ) -> Option<RawFrame> {
        let task = objects.task(&mut self.kinds, task)?;
        let mut bytes = [0; OBJECT];
        let length = objects.memory.read(task.name, &mut bytes);
        self.frame(objects, names, &bytes[..length])
    }

    /// Returns the frame that names a task whose name is the object that begins with these bytes.
    pub fn frame<M: ReadMemory>(
        &mut self,
        objects: &Objects<'_, M>,
        names: &Names,
        name: &[u8],
    ) -> Option<RawFrame> {
        let object = &objects.layout.object;
        let kind = u64_at(name, object.kind as usize)?;
        // An int stands for a name that asyncio gave.
        if !objects.is_text_type(&mut self.kinds, kind) {
            return None;
        }
        let text = object.text_in(name)?;
        let name = clean(&text, NAME_MAX);
        (!name.is_empty() && !is_default(&name)).then(|| self.named(names, &name))
    }

    fn named(&mut self, names: &Names, name: &str) -> RawFrame {
        if let Some(frame) = self.frames.get(name) {
            return *frame;
        }
        let is_room = self.frames.len() < NAMES_MAX;
        let shown = if is_room { name } else { OTHER };
        let frame = names.frame(vec![Location::named(&task_text(shown), FrameKind::Marker)]);
        if is_room {
            self.frames.insert(name.to_owned(), frame);
        }
        frame
    }
}
