//! Names that a runtime has for its threads: longer than the kernel's, in any script.

use rustc_hash::FxHashMap;

use crate::model::frame::{Ns, RawName, SECOND};
use crate::process::ids::ids_inside;
use crate::unwinder::Unwinder;

/// A new thread's name is asked for at most so often.
const NEW: Ns = SECOND / 20;

/// The names of one process's threads.
#[derive(Default)]
pub struct ThreadNames {
    by_tid: FxHashMap<u32, RawName>,
    read_at: Option<Ns>,
    /// Somebody was looked up in vain since.
    missed: bool,
}

impl ThreadNames {
    /// Reads them again once a second, and soon after a thread was met that has none.
    pub fn refresh(&mut self, pid: u32, at: Ns, unwinder: &mut dyn Unwinder) {
        let pause = if self.missed { NEW } else { SECOND };
        if self.read_at.is_some_and(|read| at < read + pause) {
            return;
        }
        (self.read_at, self.missed) = (Some(at), false);
        let found = unwinder.thread_names();
        // The runtime numbers its threads as its own pid namespace does.
        let ids = if found.is_empty() { None } else { ids_inside(pid) };
        let tid = |inside: u32| ids.as_ref().map_or(Some(inside), |ids| ids.get(&inside).copied());
        self.by_tid = found.into_iter().filter_map(|(inside, name)| Some((tid(inside)?, name))).collect();
    }

    /// The runtime's name of a thread, else the kernel's.
    pub fn of(&mut self, tid: u32, kernel: RawName) -> RawName {
        if self.by_tid.is_empty() {
            return kernel;
        }
        match self.by_tid.get(&tid) {
            Some(name) => *name,
            None => {
                self.missed = true;
                kernel
            }
        }
    }
}
