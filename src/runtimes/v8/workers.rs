//! Names of worker threads: the script that each executes.
//!
//! Code of V8 has in r13 where its isolate is, the heap that one thread works with. Among the roots
//! of the heap is a list of all scripts that it has loaded, in this order. Where among them differs
//! by version; it is found by its type and the type of its elements.

use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::RawName;
use crate::process::memory::ReadMemory;
use crate::process::threads::Stat;
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::v8::functions::Functions;
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::Layout;

/// Maximum workers remembered.
const WORKERS_MAX: usize = 4096;
/// Attempts to name a worker: it may not have loaded a script of the program yet.
const TRIES: u8 = 8;
/// Bytes behind r13 among which the list is searched.
const ROOTS: u64 = 16 << 10;
/// A list of weak references: where its length and its elements are, equal in all versions.
const LENGTH: u64 = 16;
const ELEMENTS: u64 = 24;
/// Maximum scripts of a list that are read.
const SCRIPTS_MAX: u64 = 4096;
/// Elements that must be scripts, or gone.
const PROVEN_BY: u64 = 8;
/// Kernel's names of workers that the program has not named.
const UNNAMED: [&[u8]; 3] = [b"node", b"nodejs", b"WorkerThread"];
/// Node's own scripts, and those of packages.
const NODE: &str = "node:";
const PACKAGES: &str = "/node_modules/";
/// What Node calls a script that is the text of a worker.
const EVALUATED: &str = "[worker eval]";

struct Worker {
    /// What r13 was.
    root: u64,
    /// When the thread started, clock ticks since boot; `None`: it is not known yet.
    start: Option<u64>,
    name: Option<RawName>,
    tries: u8,
}

/// The threads that execute JavaScript, beside the main one.
#[derive(Default)]
pub struct Workers {
    known: FxHashMap<u32, Worker>,
    /// Bytes behind r13 where the list of scripts was found.
    at: Option<u64>,
}

impl Workers {
    /// Notes that a thread executes JavaScript. `root`: its r13 there.
    pub fn note(&mut self, tid: u32, root: u64) {
        let is_other = |worker: &Worker| worker.root != root && worker.name.is_none();
        let is_new = self.known.get(&tid).is_none_or(is_other);
        if is_new && self.known.len() < WORKERS_MAX {
            self.known.insert(tid, Worker { root, start: None, name: None, tries: 0 });
        }
    }

    /// Returns names of workers that live. `stat` returns what the kernel says of a thread; `None`:
    /// it has ended.
    pub fn names<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        functions: &mut Functions,
        names: &Names,
        stat: &dyn Fn(u32) -> Option<Stat>,
    ) -> Vec<(u32, RawName)> {
        let Workers { known, at } = self;
        let mut found = Vec::new();
        known.retain(|tid, worker| {
            let Some(stat) = stat(*tid) else { return false };
            if *worker.start.get_or_insert(stat.start) != stat.start {
                return false;
            }
            if worker.tries < TRIES {
                worker.tries += 1;
                let script = main_script(heap, layout, functions, worker.root, at);
                if let Some((file, is_own)) = script {
                    worker.name = names.thread_name(&title(&file)).or(worker.name);
                    worker.tries = if is_own { TRIES } else { worker.tries };
                }
            }
            let name = worker.name.filter(|_| UNNAMED.contains(&stat.name.bytes()));
            found.extend(name.map(|name| (*tid, name)));
            true
        });
        found
    }
}

/// Returns the name of a worker that executes this script.
pub(super) fn title(file: &str) -> String {
    if file == EVALUATED {
        return "worker eval".into();
    }
    let folders = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    format!("worker {}", &file[folders..])
}

/// Returns the file of the first script that a heap has loaded of the program itself, and true;
/// else the first one of a package. `at`: where the list was found before.
pub(super) fn main_script<M: ReadMemory>(
    heap: &Heap<M>,
    layout: &Layout,
    functions: &mut Functions,
    root: u64,
    at: &mut Option<u64>,
) -> Option<(String, bool)> {
    let list_at = |offset: u64| list(heap, layout, root.checked_add(offset)?);
    let known = at.and_then(list_at);
    let (list, length) = known.or_else(|| {
        (0..ROOTS).step_by(8).find_map(|offset| {
            let found = list_at(offset)?;
            *at = Some(offset);
            Some(found)
        })
    })?;
    let mut of_package = None;
    for nth in 0..length.min(SCRIPTS_MAX) {
        let script = heap.word(list + ELEMENTS + 8 * nth).and_then(object);
        let file = script.and_then(|script| functions.file_of(heap, layout, script));
        match file.filter(|file| !file.starts_with(NODE)) {
            Some(file) if !file.contains(PACKAGES) => return Some((file.to_string(), true)),
            Some(file) => of_package = of_package.or(Some((file.to_string(), false))),
            None => {}
        }
    }
    of_package
}

/// Returns the list of scripts that the word at `at` refers to, and its length.
fn list<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, at: u64) -> Option<(u64, u64)> {
    let list = heap.object(at)?;
    (heap.kind(layout, list)? == layout.types.weak_list?).then_some(())?;
    let length = u64::try_from(small(heap.word(list.checked_add(LENGTH)?)?)?).ok()?;
    let mut is_proven = false;
    for nth in 0..length.min(PROVEN_BY) {
        if let Some(script) = object(heap.word(list.checked_add(ELEMENTS + 8 * nth)?)?) {
            heap.is(layout, script, layout.types.script).then_some(())?;
            is_proven = true;
        }
    }
    is_proven.then_some((list, length))
}
