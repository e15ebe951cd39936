//! Reads what language runtimes keep in their own memory, from outside, while the program runs.
//!
//! A runtime is *detected* by the files a process has mapped. It is *attached* to once: its tables
//! are found and read. Then the unwinder asks it to leave frames of the code that it generated
//! ([`crate::unwinder::Generated`]). New frames are named in the tick that first sees them;
//! [`frame_and_thread_names`] keeps these names for all views.
//!
//! ```text
//! frame_and_thread_names  ids of runtime frames and threads, and their names
//! java_class_origins/     whose code a Java class is
//! source_maps/            lines of what scripts were compiled from
//! dynsym                  exported symbols of a loaded library, read from its image in memory
//! cpython/                CPython
//! go/                     goroutines of Go
//! jvm/                    HotSpot
//! perf_map/               other JIT compilers, by a file that names their code
//! replaced_code           where code was replaced
//! v8/                     V8 of Node
//! ```

pub mod cpython;
pub mod dynsym;
pub mod frame_and_thread_names;
pub mod go;
pub mod java_class_origins;
pub mod jvm;
pub mod perf_map;
mod replaced_code;
pub mod source_maps;
pub mod v8;

use std::time::{Duration, Instant};

use crate::process::mapped_files::Files;
use crate::process::maps::Maps;
use crate::process::memory::Memory;
use crate::unwinder::{Detect, Detected, Generated};
use cpython::Cpython;
use frame_and_thread_names::Names;
use jvm::{Jvm, Unreadable};
use perf_map::Finder;
use v8::V8;

/// Maximum attempts to read a runtime: after 10 ms, then after twice as long each time. After half
/// a minute it has started, or it is an unknown one. (To read a virtual machine's tables takes some
/// milliseconds.)
const TRIES: u32 = 12;

/// Returns a function that looks for a runtime in a process, for its unwinder. Frames of code that
/// lies in a file name that by an id from `files`.
pub fn detect(pid: u32, names: Names, files: Files) -> Detect {
    let mut tries = Tries::default();
    let mut finder = Finder::default();
    let mut search = cpython::Search::default();
    let mut search_v8 = v8::Search::default();
    Box::new(move |maps| {
        let jvm = jvm::library(maps);
        let python = match jvm {
            Some(_) => None,
            None => search.find(&Memory::new(pid), maps),
        };
        let v8 = match (jvm, &python) {
            (None, None) => search_v8.find(&Memory::new(pid), maps),
            _ => None,
        };
        let Some(image) = jvm.or(python.as_ref().map(|image| image.start)).or(v8) else {
            if jvm.is_none() && search.is_loading() {
                return Detected::Starting;
            }
            // After an exec nothing of the old runtime is missing any more.
            if std::mem::take(&mut tries).made > 0 {
                names.missing(pid, None);
            }
            note_go(pid, &names);
            return finder.observe(pid, maps, &names);
        };
        match tries.next(image, Instant::now()) {
            Try::Now => {}
            Try::Later => return Detected::Starting,
            Try::Never => return finder.observe(pid, maps, &names),
        }
        let last = tries.made == TRIES;
        let found = match python {
            Some(image) => attach_to_python(pid, &image, &names, last),
            None if v8.is_some() => attach_to_v8(pid, image, &names, &files, last),
            None => attach_to_jvm(pid, image, maps, &names, last),
        };
        match found {
            Ok(runtime) => Detected::Runtime(runtime),
            Err(Again::Soon) => Detected::Starting,
            Err(Again::Never) => {
                tries.made = TRIES;
                finder.observe(pid, maps, &names)
            }
        }
    })
}

/// Records whether a process without another runtime executes a Go program.
fn note_go(pid: u32, names: &Names) {
    let is_go = go::is_go(pid);
    // After an exec it may be another one.
    if is_go != (names.runtime(pid) == "go") {
        names.attached(pid, if is_go { "go" } else { "native" });
    }
}

/// When to attach again to a runtime that could not be read.
enum Again {
    Soon,
    Never,
}

fn attach_to_jvm(
    pid: u32,
    image: u64,
    maps: &Maps,
    names: &Names,
    last: bool,
) -> Result<Box<dyn Generated>, Again> {
    match Jvm::attach(Memory::new(pid), image, names.clone()) {
        Ok(jvm) => {
            names.attached(pid, "jvm");
            names.missing(
                pid,
                jvm.nameless().map(|missing| missing.without("the full names of its threads")),
            );
            Ok(Box::new(jvm.in_process(pid).with_nameless(jvm::nameless(pid, maps))))
        }
        Err(why) => {
            names.missing(pid, unreadable(&why, last));
            Err(Again::Soon)
        }
    }
}

fn attach_to_python(
    pid: u32,
    image: &cpython::Image,
    names: &Names,
    last: bool,
) -> Result<Box<dyn Generated>, Again> {
    match Cpython::attach(Memory::new(pid), image, names.clone(), pid) {
        Ok(cpython) => {
            names.attached(pid, "python");
            names.missing(pid, None);
            Ok(Box::new(cpython))
        }
        Err(why) => {
            names.missing(pid, why.message(last));
            Err(if why.is_final() { Again::Never } else { Again::Soon })
        }
    }
}

fn attach_to_v8(
    pid: u32,
    image: u64,
    names: &Names,
    files: &Files,
    last: bool,
) -> Result<Box<dyn Generated>, Again> {
    match V8::attach(Memory::new(pid), image, names.clone(), files.clone(), pid) {
        Ok(v8) => {
            names.attached(pid, "node");
            names.missing(pid, None);
            Ok(Box::new(v8))
        }
        Err(why) => {
            names.missing(pid, why.message(last));
            Err(if why.is_final() { Again::Never } else { Again::Soon })
        }
    }
}

/// Whether a runtime created this thread for itself and does not list its name; `name` is the
/// kernel's.
pub fn is_own_thread(name: &[u8]) -> bool {
    jvm::is_own(name)
}

/// Returns the message for the user: none while the runtime may still be starting.
fn unreadable(why: &Unreadable, for_the_last_time: bool) -> Option<String> {
    const FRAMES: &str = "its Java frames";
    match why {
        Unreadable::Lacks(missing) => Some(missing.without(FRAMES)),
        Unreadable::Starting(what) if for_the_last_time => {
            Some(format!("{FRAMES} cannot be read: it has no {what}"))
        }
        Unreadable::Starting(_) => None,
    }
}

/// Counts the attempts to read the library at one address.
#[derive(Default)]
struct Tries {
    image: u64,
    made: u32,
    next: Option<Instant>,
}

#[derive(PartialEq, Eq, Debug)]
enum Try {
    Now,
    Later,
    Never,
}

impl Tries {
    fn next(&mut self, image: u64, now: Instant) -> Try {
        if image != self.image {
            *self = Tries { image, ..Tries::default() };
        }
        match self.next {
            _ if self.made >= TRIES => Try::Never,
            Some(next) if now < next => Try::Later,
            _ => {
                self.next = Some(now + Duration::from_millis(10) * 2u32.pow(self.made));
                self.made += 1;
                Try::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_are_reported_and_starting_runtimes_are_not() {
        let lacks = Unreadable::Lacks(jvm::Missing("CodeBlob::_size".into()));
        let says = "its Java frames cannot be read: libjvm.so lacks CodeBlob::_size";
        assert_eq!(unreadable(&lacks, false).as_deref(), Some(says));
        let starting = Unreadable::Starting("code heaps");
        assert_eq!(unreadable(&starting, false), None);
        let says = "its Java frames cannot be read: it has no code heaps";
        assert_eq!(unreadable(&starting, true).as_deref(), Some(says));
    }

    #[test]
    fn unreadable_runtimes_are_retried_with_backoff_and_a_limit() {
        let (mut tries, begin) = (Tries::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        let mut made = |image, ms| tries.next(image, at(ms));
        assert_eq!(
            [made(1, 0), made(1, 9), made(1, 10), made(1, 29), made(1, 30)],
            [Try::Now, Try::Later, Try::Now, Try::Later, Try::Now]
        );
        let now = (31..100_000).filter(|ms| made(1, *ms) == Try::Now).count();
        assert_eq!((now, made(1, 200_000)), (TRIES as usize - 3, Try::Never));
        assert_eq!(made(2, 200_000), Try::Now, "another library");
    }
}
