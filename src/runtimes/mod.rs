//! Reading what language runtimes keep in their own memory: from outside, while the program runs.
//!
//! A runtime is *detected* by what a process has mapped, *attached* to once (where its tables are, what they say of this
//! version), and then asked by the unwinder to leave frames of the code it made ([`crate::unwinder::Generated`]). What it
//! finds is named in the tick that first sees it: [`names`] keeps the names for whoever shows them.
//!
//! ```text
//! names     ids of runtime frames, and what they are called
//! dynsym    symbols that a loaded library exports, read from its image in memory
//! jvm/      HotSpot
//! ```

pub mod dynsym;
pub mod jvm;
pub mod names;

use crate::process::memory::Memory;
use crate::unwinder::{Detect, Detected};
use jvm::Jvm;
use names::Names;

/// Looks for a runtime in a process; to be handed to its unwinder.
pub fn detect(pid: u32, names: Names) -> Detect {
    Box::new(move |maps| match jvm::library(maps) {
        None => Detected::Nothing,
        Some(image) => match Jvm::attach(Memory::new(pid), image, names.clone()) {
            Ok(jvm) => {
                names.attached(pid, "jvm");
                Detected::Runtime(Box::new(jvm))
            }
            Err(_) => Detected::Starting,
        },
    })
}
