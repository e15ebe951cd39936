//! Labels of the goroutines that threads execute.

use crate::model::vocabulary::frame::RawFrame;
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::go::detection::is_go;
use crate::runtimes::go::labels::frames::LabelFrames;
use crate::runtimes::go::labels::{LabelsLayout, find, read};
use crate::runtimes::go::program::Program;

/// The labels of the goroutines that threads of a process execute.
pub struct RunningLabels {
    memory: Memory,
    pub frames: LabelFrames,
    /// `None`: the program sets none, or it is not known yet where.
    pub layout: Option<LabelsLayout>,
}

impl RunningLabels {
    pub fn new(memory: Memory, names: Names) -> RunningLabels {
        RunningLabels { memory, frames: LabelFrames::new(names), layout: None }
    }

    /// Searches now where the program has labels. That may take some tenths of a second.
    pub fn search(&mut self) {
        let pid = self.memory.pid();
        if is_go(pid) {
            let program = || Program::find(self.memory.clone(), &Maps::read(pid).ok()?, pid);
            self.layout = program().and_then(|program| find(&program));
        }
    }

    /// Returns the frame that carries the labels of the goroutine that a thread executes, as they
    /// are now. They hold only if the thread does not run meanwhile. `fs_base`: the base of its
    /// segment fs; `r14`: that register, in which code of Go has its goroutine.
    pub fn of_thread(&mut self, fs_base: u64, r14: u64) -> Option<RawFrame> {
        let LabelsLayout { offset, form } = self.layout?;
        let goroutine = executed_by(&self.memory, fs_base, r14)?;
        let at = self.memory.read_u64(goroutine.checked_add(offset.into())?)?;
        self.frames.frame(&read(&self.memory, form, at))
    }
}

/// Returns the goroutine that a thread executes; goroutine.bpf.h does the same.
fn executed_by(memory: &impl ReadMemory, fs_base: u64, r14: u64) -> Option<u64> {
    /// Below the base of the segment fs: the thread's goroutine.
    const TLS: u64 = 8;
    /// In a goroutine: its thread's `m`. In that: the goroutine whose stack is the thread's, and
    /// the one that the thread executes, since Go 1.25 and before.
    const THREAD: u64 = 48;
    const G0: u64 = 0;
    const CURRENT: [u64; 2] = [184, 192];
    let word = |at: u64, offset: u64| memory.read_u64(at.checked_add(offset)?);
    let executed = |goroutine: u64| {
        let thread = word(goroutine, THREAD).filter(|thread| *thread != 0)?;
        let is_of_thread = |goroutine: &u64| word(*goroutine, THREAD) == Some(thread);
        let g0 = word(thread, G0).filter(is_of_thread)?;
        let current = CURRENT.into_iter().filter_map(|offset| word(thread, offset));
        current.filter(|current| ![0, g0].contains(current)).find(is_of_thread)
    };
    let of_variable = memory.read_u64(fs_base.wrapping_sub(TLS)).and_then(executed);
    of_variable.or_else(|| executed(r14))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::go::tests::Words;

    #[test]
    fn a_thread_executes_the_goroutine_that_leads_back() {
        const FS: u64 = 0x10000;
        const G0: u64 = 0x20000;
        const G: u64 = 0x21000;
        const M: u64 = 0x22000;
        for current in [184, 192] {
            let mut memory = Words::default();
            memory.put(G0 + 48, &[M]);
            memory.put(G + 48, &[M]);
            memory.put(M, &[G0]);
            memory.put(M + 184, &[0, 0]);
            memory.put(M + current, &[G]);
            // By the thread's variable, which may be the goroutine or that of the thread's stack;
            // or by the register.
            for (variable, r14) in [(G, 0), (G0, 0), (0, G), (0x77, G0)] {
                memory.put(FS - 8, &[variable]);
                assert_eq!(executed_by(&memory, FS, r14), Some(G), "{current} {variable:#x}");
            }
            memory.put(FS - 8, &[G]);
            for (at, word) in [
                (M + current, 0),
                (M + current, G0),
                (M + current, 0x77),
                (G + 48, 0),
                (G0 + 48, M + 8),
                (M, 0x77),
            ] {
                let mut other = memory.clone();
                other.put(at, &[word]);
                assert_eq!(executed_by(&other, FS, 0), None, "{at:#x} {word:#x}");
            }
        }
    }
}
