//! (mapped file, offset) -> function, file, line, inlined frames; cached per file, on a worker thread.

use crate::model::frame::RawFrame;
use crate::model::tables::Named;
use crate::process::files::Files;

mod placeholder;

/// A name that was found.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub frame: RawFrame,
    pub named: Named,
}

/// The names of a session. Dropping it stops its worker.
pub struct Symbols {
    files: Files,
}

impl Symbols {
    /// Starts the worker.
    pub fn start(files: Files) -> Symbols {
        Symbols { files }
    }

    /// Asks for names; never blocks. A frame that was asked for before is not looked up again.
    pub fn request(&self, frames: &[RawFrame]) {
        let _ = frames;
    }

    /// The names found since the last call; never blocks.
    pub fn take(&mut self) -> Vec<Resolved> {
        Vec::new()
    }

    /// Frames asked for whose names have not been taken yet.
    pub fn pending(&self) -> usize {
        0
    }

    /// What a frame is called until its name is found, at once and without file access: `module!0xoffset`, pending.
    /// Markers and kernel frames are final.
    pub fn placeholder(&self, frame: RawFrame) -> Named {
        placeholder::named(&self.files, frame)
    }
}
