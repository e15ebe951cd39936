//! Tasks of an event loop: pieces of a program that wait for each other on few threads.

use std::sync::Arc;

use crate::model::facts::tables::Location;

/// The tasks of one process that have not ended, as they were read within some milliseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tasks {
    pub pid: u32,
    /// In the order in which they began, by event loop.
    pub tasks: Vec<Task>,
    /// Tasks that were found, at least: those in `tasks`, those that are unreadable, and those for
    /// which there was no room.
    pub found: usize,
    /// Tasks that changed each time they were read.
    pub unreadable: usize,
    /// Some list of tasks changed each time it was read: there may be more.
    pub is_incomplete: bool,
}

/// A task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// The address of its object.
    pub id: u64,
    /// The thread of its event loop, if that has not ended.
    pub tid: Option<u32>,
    /// Cleaned; `Task-7` if the program gave it none.
    pub name: Arc<str>,
    /// Its thread executes it. Its innermost calls are on the thread's stack.
    pub runs: bool,
    /// Its coroutines, each awaited by the next one; the innermost first.
    pub frames: Vec<Location>,
    /// What the innermost coroutine awaits. `None`: it runs, or waits for its turn.
    pub awaits: Option<Awaited>,
    /// The tasks that await it, also through futures that join several tasks.
    pub awaited_by: Vec<TaskName>,
    /// More tasks may await it.
    pub has_more_waiters: bool,
}

/// What a task awaits at last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Awaited {
    Task(TaskName),
    /// An object that is no task: the name of its type, cleaned.
    Object(Arc<str>),
}

/// A task that another one names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskName {
    /// See [`Task::id`].
    pub id: u64,
    pub name: Arc<str>,
}
