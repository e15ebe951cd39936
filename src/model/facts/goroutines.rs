//! Goroutines: the threads of a Go program, which its scheduler runs on few threads of the kernel.

use std::sync::Arc;

use crate::model::facts::tables::Location;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::role::Origin;

/// The goroutines of one process that no thread executes, as they were read within some
/// milliseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Goroutines {
    pub pid: u32,
    /// In the order in which the program's list has them.
    pub list: Vec<Goroutine>,
    /// Goroutines that have not ended: those in `list`, those that threads execute, those that are
    /// unreadable, and those for which there was no room.
    pub found: usize,
    /// Goroutines that threads execute; the stacks of these threads are theirs.
    pub on_threads: usize,
    /// Goroutines that changed while they were read, or whose stack is not whole.
    pub unreadable: usize,
}

/// A goroutine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goroutine {
    /// Its number in the program.
    pub id: u64,
    /// What it does, in the words of Go's runtime: `runnable`, or what it waits for: `chan
    /// receive`, `IO wait`, `sync.Mutex.Lock`. Cleaned.
    pub state: Arc<str>,
    /// How long it has waited at least: since a garbage collection found it waiting. `None`:
    /// unknown, or no collection has found it.
    pub waited: Option<Ns>,
    /// Address of the `sync.Mutex` or `sync.RWMutex` for which it waits. `None`: it waits for none,
    /// or it is not known for which.
    pub lock: Option<u64>,
    /// The labels that the program gave it: the text of a frame; see
    /// [`crate::model::vocabulary::labels`].
    pub labels: Option<Arc<str>>,
    /// Its functions with whose code each is; the innermost first.
    pub frames: Vec<(Location, Origin)>,
    /// The function and the line that started it.
    pub created_by: Option<(Location, Origin)>,
}
