//! (mapped file, offset) -> function, file, line, inlined frames; cached per file, on a worker
//! thread.
//!
//! ```text
//! worker        the thread: requests in, names out, one file after the other
//! names         one file: which source of names is asked in which order
//! dwarf         functions, inlined functions, lines
//! go            Go's own table of functions
//! symtab        .symtab, .dynsym, procedure linkage table
//! unwind_entry  where functions begin, for files without symbols
//! debugfile     finding separate debug files
//! elf           sections, segments, build id
//! kernel, vdso  what is no file
//! demangle      raw symbol -> readable name
//! placeholder   names that need no file
//! ```
//!
//! All of it reads hostile files: see `process::filebytes` for how a file that changes or shrinks
//! meanwhile is survived, and `dwarf` for how the work is bounded.

mod debugfile;
mod demangle;
mod dwarf;
mod go;
mod intern;
mod kernel;
mod names;
mod placeholder;
mod symtab;
mod unwind_entry;
mod vdso;
mod worker;

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Once};

use rustc_hash::FxHashSet;

pub use self::debugfile::{SearchPath, debug_file_places};
pub use self::demangle::readable;
use self::names::FileNames;
pub use self::names::{Spot, Step};
use self::worker::{Shared, Worker};
use crate::model::facts::tables::Named;
use crate::model::vocabulary::frame::RawFrame;
use crate::process::files::Files;

/// A name that was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub frame: RawFrame,
    pub named: Named,
}

/// Names places of a whole file in memory, by the file alone: for each, in the order given, the
/// function and what is inlined there, outermost first. `None` for what is no ELF file. The
/// parsers' panics are the caller's.
pub fn name_image(module: &str, image: Vec<u8>, spots: &[Spot]) -> Option<Vec<Vec<Step>>> {
    let mut named = Vec::with_capacity(spots.len());
    FileNames::of_image(module, image)?.name(spots, &mut 0, &mut |_, steps| named.push(steps));
    Some(named)
}

/// The names of a session. Dropping it tells its worker to end, and does not wait for that.
pub struct Symbols {
    files: Files,
    requests: Sender<Vec<RawFrame>>,
    results: Receiver<Vec<Resolved>>,
    shared: Arc<Shared>,
    asked: RefCell<FxHashSet<RawFrame>>,
    /// Asked for and not taken yet.
    pending: Cell<usize>,
}

impl Symbols {
    /// Starts the worker. It opens files soon after they are registered, so that they can be named
    /// after their process has ended.
    pub fn start(files: Files) -> Symbols {
        Symbols::with_search_path(files, SearchPath::default())
    }

    /// [`Symbols::start`], with debug files looked for elsewhere.
    pub fn with_search_path(files: Files, search: SearchPath) -> Symbols {
        silence_parsers();
        let (requests, requested) = channel();
        let (found, results) = channel();
        let shared = Arc::new(Shared::default());
        let worker = (files.clone(), shared.clone());
        // Without a thread (resource limits) every name stays its placeholder: the profile goes on.
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

    /// Asks for names; never blocks. A frame that was asked for before is not looked up again.
    pub fn request(&self, frames: &[RawFrame]) {
        let mut asked = self.asked.borrow_mut();
        let new: Vec<RawFrame> =
            frames.iter().copied().filter(|frame| asked.insert(*frame)).collect();
        let count = new.len();
        if count > 0 && self.requests.send(new).is_ok() {
            self.pending.set(self.pending.get() + count);
        }
    }

    /// The names found since the last call; never blocks.
    pub fn take(&mut self) -> Vec<Resolved> {
        let found: Vec<Resolved> = self.results.try_iter().flatten().collect();
        self.pending.set(self.pending.get().saturating_sub(found.len()));
        found
    }

    /// Frames asked for whose names have not been taken yet.
    pub fn pending(&self) -> usize {
        self.pending.get()
    }

    /// What a frame is called until its name is found, at once and without file access:
    /// `module!0xoffset`, pending. Markers are final, kernel frames too once the kernel's symbols
    /// are loaded.
    pub fn placeholder(&self, frame: RawFrame) -> Named {
        placeholder::named(&self.files, &self.shared.kernel, frame)
    }

    /// Functions of the kernel were asked for, and it does not show their addresses to this user.
    pub fn kernel_is_nameless(&self) -> bool {
        self.shared.kernel.is_nameless()
    }

    /// How often a file's symbols had to be given up, in part or whole: it was damaged, or changed
    /// while it was read.
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

/// True while this thread reads a hostile file and a panic would be caught: a panic hook must then
/// neither print nor restore the terminal.
pub fn parsing() -> bool {
    PARSING.get()
}

/// Keeps caught panics from being printed. A hook that is set later has to ask [`parsing`] itself.
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
