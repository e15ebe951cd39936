//! The default unwinder: walks copied stack bytes with the target's own unwind tables.
//!
//! ```text
//! walk      frame by frame: what follows, and why it ends where it ends
//! code      what is known of the process's code; framehop's own modules and caches
//! images    loads unwind tables from the target's memory, or its files
//! tables    the checked tables of one image: functions, rules
//! rows      rows that framehop cannot step over, evaluated here
//! recover   frame records: verified, or searched for where rbp is unknown
//! calls     what machine code says about a return address
//! entering  how far generated code has come with its frame
//! stack     words of the stack: copied, or read from a thread that stays where it is
//! ```
//!
//! framehop takes the ordinary steps, from its cache. But it falls back to frame pointers without saying so when it
//! knows no module or no unwind information for an address, and a stack walked like that may be wrong and look
//! whole. So each address is classified first (once: the answer is kept), and framehop only gets those that it
//! steps over by unwind information.

mod calls;
pub(super) mod code;
mod entering;
mod images;
mod recover;
mod rows;
mod stack;
pub(super) mod tables;
pub(super) mod walk;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::model::frame::{Marker, Ns, RawFrame, RawName};
use crate::process::files::Files;
use crate::process::maps::Maps;
use crate::process::memory::ReadMemory;
use crate::unwinder::{Detect, Detected, Generated, Registers, StackBytes, Unwinder, Walk};

use code::{Code, Source};
use rows::Left;
use stack::Stack;
use walk::{Crossing, Walker};

/// A walk is made again if what it loaded was not what is mapped, so often in all.
const ATTEMPTS: usize = 3;

/// Walks the stacks of one process.
pub struct FramehopUnwinder<M> {
    memory: M,
    code: Code,
    runtime: Runtime,
    // Room that is used again for each walk.
    left: Vec<Left>,
    window: Vec<u8>,
    /// Of the last walk.
    crossing: Option<Crossing>,
}

impl<M: ReadMemory> FramehopUnwinder<M> {
    /// Frames name their files by ids from `files`.
    pub fn new(memory: M, files: Files, pid: u32) -> FramehopUnwinder<M> {
        FramehopUnwinder::with_maps(memory, files, pid, Box::new(move || Maps::read(pid)))
    }

    /// The same with mappings from elsewhere than /proc.
    pub fn with_maps(memory: M, files: Files, pid: u32, source: Source) -> FramehopUnwinder<M> {
        FramehopUnwinder {
            memory,
            code: Code::new(files, pid, source),
            runtime: Runtime::default(),
            left: Vec::new(),
            window: Vec::new(),
            crossing: None,
        }
    }

    /// Leaves frames of generated code as the runtime knows that `detect` finds.
    pub fn with_runtimes(mut self, detect: Detect) -> FramehopUnwinder<M> {
        self.runtime.detect = Some(detect);
        self
    }

    /// Forgets everything known about the process's code: after an exec, or when mappings are known to have changed.
    pub fn invalidate(&mut self) {
        self.code.invalidate();
        self.runtime = Runtime { detect: self.runtime.detect.take(), ..Runtime::default() };
    }
}

/// While a runtime is starting it is looked at so often.
const STARTING: Duration = Duration::from_millis(10);

/// The runtime whose code the process runs, if there is one.
#[derive(Default)]
struct Runtime {
    detect: Option<Detect>,
    found: Option<Box<dyn Generated>>,
    /// The mappings that were looked at last, by [`Code::readings`].
    looked_at: u64,
    /// Those that the runtime was told of.
    mapped: u64,
    /// It was starting then.
    starting: Option<Instant>,
}

impl Runtime {
    /// A walk begins.
    fn begin(&mut self, code: &Code, now: Instant) -> Option<&mut dyn Generated> {
        let again = self.starting.is_some_and(|at| now.duration_since(at) >= STARTING);
        if self.found.is_none()
            && (again || self.looked_at != code.readings)
            && let Some(detect) = &mut self.detect
        {
            self.looked_at = code.readings;
            self.starting = None;
            match detect(&code.maps) {
                Detected::Nothing => {}
                Detected::Starting => self.starting = Some(now),
                Detected::Runtime(found) => self.found = Some(found),
            }
        }
        let found = self.found.as_deref_mut()?;
        if self.mapped != code.readings {
            self.mapped = code.readings;
            found.mapped(&code.maps);
        }
        found.begin();
        Some(found)
    }
}

impl<M: ReadMemory> Unwinder for FramehopUnwinder<M> {
    fn walk(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        // Only a thread that is read as it lies, blocked, is still where it was when its stack was copied.
        self.walk_copy(registers, stack, registers.rbp.is_none(), out)
    }

    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.runtime.found.as_deref_mut().map(|found| found.thread_names(moved)).unwrap_or_default()
    }

    fn thread_name(&mut self, at: Ns) -> Option<RawName> {
        self.runtime.found.as_deref_mut()?.thread_name(at)
    }

    fn waits_for(&mut self) -> Option<(usize, RawFrame)> {
        let Crossing { frame, sp, callee } = self.crossing.take()?;
        Some((frame, self.runtime.found.as_deref_mut()?.waits_for(sp, callee)?))
    }

    fn can_resume(&self) -> bool {
        self.runtime.found.as_deref().is_some_and(Generated::can_resume)
    }

    fn walk_blocked(&mut self, registers: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
        self.walk_copy(registers, stack, true, out)
    }
}

impl<M: ReadMemory> FramehopUnwinder<M> {
    /// `stays`: what was not copied is read from memory.
    fn walk_copy(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        stays: bool,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let now = Instant::now();
        self.code.refresh(now);
        let first = out.len();
        for _ in 0..ATTEMPTS {
            let walk = self.walk_once(registers, stack, stays, now, out);
            if self.code.settle() {
                return walk;
            }
            out.truncate(first);
        }
        out.push(RawFrame::marker(Marker::BadUnwind));
        Walk { end: Some(Marker::BadUnwind), recovered: false }
    }

    fn walk_once(
        &mut self,
        registers: &Registers,
        stack: StackBytes<'_>,
        stays: bool,
        now: Instant,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        self.code.context.begin();
        let generated = self.runtime.begin(&self.code, now);
        self.left.clear();
        let live = stays.then_some(&self.memory);
        let walker = Walker {
            code: &mut self.code,
            memory: &self.memory,
            stack: Stack::new(stack, live, std::mem::take(&mut self.window)),
            registers,
            left: &mut self.left,
            out,
            recovered: false,
            signals: 0,
            gap: None,
            crossing: None,
            at_rest: stays,
            generated,
        };
        let (walk, stack, crossing) = walker.walk();
        self.window = stack.into_window();
        self.crossing = crossing;
        walk
    }
}
