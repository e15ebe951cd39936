//! Symbolisation: (mapped file, offset) to function, file, line, inlined frames. Results are cached
//! per file, on a worker thread.
//!
//! ```text
//! worker        the thread: requests in, names out, one file after the other
//! file_symbols  one file: the sources of names and their order
//! dwarf         functions, inlined functions, lines
//! go_names      Go's own table of functions
//! step          what a place in a file is called
//! symtab        .symtab, .dynsym, procedure linkage table
//! unwind_entry  starts of functions, for files without symbols
//! debugfile     finds separate debug files
//! kernel, vdso  code that is in no file
//! disassembly   the instructions of a function
//! demangle      demangling: raw symbol -> readable name
//! placeholder   names that need no file
//! ```
//!
//! All of it reads untrusted files. See `process::filebytes` for files that change or shrink
//! meanwhile, and `dwarf` for how the work is bounded.

mod debugfile;
mod demangle;
mod disassembly;
mod dwarf;
mod file_symbols;
mod go_names;
mod intern;
mod kernel;
mod origin;
mod placeholder;
mod step;
mod symtab;
mod unwind_entry;
mod vdso;
mod worker;

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Once};

use rustc_hash::FxHashSet;

use self::debugfile::Root;
pub use self::debugfile::{SearchPath, debug_file_places};
pub use self::demangle::readable;
pub use self::disassembly::{
    Disassembly, INSTRUCTIONS_MAX, Listed, disassemble_file, disassemble_image, disassemble_mapped,
    has_build_id,
};
use self::file_symbols::FileNames;
pub use self::file_symbols::Spot;
pub use self::step::Step;
pub(crate) use self::worker::guarded;
use self::worker::{Shared, Worker};
use crate::model::facts::tables::Named;
use crate::model::vocabulary::frame::RawFrame;
use crate::process::mapped_files::Files;

/// The name of a frame.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub frame: RawFrame,
    pub named: Named,
}

/// Returns whether a process has another root directory than this program, as in a container, and
/// it can be opened.
pub fn has_own_root(pid: u32) -> bool {
    Root::of(pid).is_ok_and(|root| root.is_some())
}

/// Names places in a whole file in memory, by that file alone. Returns for each, in the given
/// order, the function and what is inlined there, outermost first. `None` if it is no ELF file. The
/// caller must catch panics of the parsers.
pub fn name_image(module: &str, image: Vec<u8>, spots: &[Spot]) -> Option<Vec<Vec<Step>>> {
    let mut named = Vec::with_capacity(spots.len());
    FileNames::of_image(module, image)?.name(spots, &mut 0, &mut |_, steps| named.push(steps));
    Some(named)
}

/// The names of a session. Dropping it stops its worker without waiting.
pub struct Symbols {
    files: Files,
    requests: Sender<Vec<RawFrame>>,
    results: Receiver<Vec<Resolved>>,
    shared: Arc<Shared>,
    asked: RefCell<FxHashSet<RawFrame>>,
    /// Requested and not taken yet.
    pending: Cell<usize>,
}

impl Symbols {
    /// Starts the worker. It opens files soon after they are registered, so that they can be named
    /// after their process has ended.
    pub fn start(files: Files) -> Symbols {
        Symbols::with_search_path(files, SearchPath::default())
    }

    /// As [`Symbols::start`], with other directories for debug files.
    pub fn with_search_path(files: Files, search: SearchPath) -> Symbols {
        silence_parsers();
        let (requests, requested) = channel();
        let (found, results) = channel();
        let shared = Arc::new(Shared::default());
        let worker = (files.clone(), shared.clone());
        // Without a thread (resource limits) every name stays its placeholder, and the profile
        // continues.
        let _ = std::thread::Builder::new()
            .name("symbols".into())
            .spawn(move || Worker::new(worker.0, search, requested, found, worker.1).run());
        Symbols {
            files,
            requests,
            results,
            shared,
            asked: RefCell::default(),
            pending: Cell::new(0),
        }
    }

    /// Requests names; never blocks. A frame that was requested before is not looked up again.
    pub fn request(&self, frames: &[RawFrame]) {
        let mut asked = self.asked.borrow_mut();
        let new: Vec<RawFrame> =
            frames.iter().copied().filter(|frame| asked.insert(*frame)).collect();
        let count = new.len();
        if count > 0 && self.requests.send(new).is_ok() {
            self.pending.set(self.pending.get() + count);
        }
    }

    /// Returns the names found since the last call; never blocks.
    pub fn take(&mut self) -> Vec<Resolved> {
        let found: Vec<Resolved> = self.results.try_iter().flatten().collect();
        self.pending.set(self.pending.get().saturating_sub(found.len()));
        found
    }

    /// Returns the number of requested frames whose names have not been taken yet.
    pub fn pending(&self) -> usize {
        self.pending.get()
    }

    /// Returns the name of a frame until its real one is found, at once and without file access:
    /// `module!0xoffset`, pending. Names of markers are final, and those of kernel frames too once
    /// the kernel's symbols are loaded.
    pub fn placeholder(&self, frame: RawFrame) -> Named {
        placeholder::named(&self.files, &self.shared.kernel, frame)
    }

    /// Whether kernel functions were requested and the kernel hides their addresses from this user.
    pub fn kernel_is_nameless(&self) -> bool {
        self.shared.kernel.is_nameless()
    }

    /// Returns how often a file's symbols were discarded, in part or whole, because it was damaged
    /// or changed while it was read.
    pub fn damaged(&self) -> usize {
        self.shared.damaged.load(Ordering::Relaxed)
    }
}

impl Drop for Symbols {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    /// This thread is inside a parser, whose panics are caught and counted.
    static PARSING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread reads an untrusted file and a panic would be caught. A panic hook must then
/// neither print nor restore the terminal.
pub fn parsing() -> bool {
    PARSING.get()
}

/// Keeps caught panics from being printed. A hook that is set later must check [`parsing`] itself.
fn silence_parsers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !parsing() {
                before(panic);
            }
        }));
    });
}
