//! The stack of a thread that is off the core, read as it lies: nobody is stopped, nothing is sent to it.

use crate::capture::schedule::now;
use crate::model::frame::{Marker, Ns, RawFrame};
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use crate::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// Copied at first; enough for nearly every stack.
const FIRST_COPY: usize = 63 << 10;
/// Copied when the first turned out too short, at most.
const LARGEST_COPY: usize = 1 << 20;
/// Mappings are read again for an unknown stack pointer, but only so often, and at most for a twentieth of the time:
/// a target can have very many and change them all the time.
const MAPS_AGAIN: Ns = 50_000_000;
const MAPS_SHARE: Ns = 20;

/// Copies stacks of one process.
pub struct StackReader {
    pid: u32,
    memory: Memory,
    maps: Maps,
    /// When the maps may be read again.
    maps_due: Ns,
    bytes: Vec<u8>,
}

impl StackReader {
    pub fn new(memory: Memory) -> StackReader {
        StackReader { pid: memory.pid(), memory, maps: Maps::default(), maps_due: 0, bytes: Vec::new() }
    }

    /// After exec: nothing known holds any more.
    pub fn invalidate(&mut self) {
        self.maps = Maps::default();
        self.maps_due = 0;
    }

    /// Walks the stack from `sp` and `pc` (exact), appending to `out`. The caller checks afterwards that the thread has not
    /// moved meanwhile.
    pub fn walk(&mut self, pc: u64, sp: u64, unwinder: &mut dyn Unwinder, out: &mut Vec<RawFrame>) -> Walk {
        let registers = Registers { rip: pc, rsp: sp, rbp: None, ..Default::default() };
        let end = self.end_of_stack(sp);
        let start = out.len();
        let walk = self.walk_copy(&registers, end, FIRST_COPY, unwinder, out);
        let deeper = end.saturating_sub(sp) > FIRST_COPY as u64;
        if walk.end == Some(Marker::Truncated) && deeper {
            out.truncate(start);
            return self.walk_copy(&registers, end, LARGEST_COPY, unwinder, out);
        }
        walk
    }

    /// The stack's bytes from `sp` on, as far as the mappings known already tell and a first copy reaches: for a thread that
    /// stands still meanwhile.
    pub fn copy_known(&mut self, sp: u64) -> &[u8] {
        let end = self.maps.stack_of(sp).map_or(u64::MAX, |stack| stack.end);
        let filled = self.copy(sp, end, FIRST_COPY);
        &self.bytes[..filled]
    }

    /// Makes the mapping around `sp` known.
    pub fn learn(&mut self, sp: u64) {
        self.end_of_stack(sp);
    }

    fn copy(&mut self, sp: u64, end: u64, most: usize) -> usize {
        let wanted = usize::try_from(end.saturating_sub(sp)).unwrap_or(most).min(most);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        self.memory.read(sp, &mut self.bytes[..wanted])
    }

    fn walk_copy(
        &mut self,
        registers: &Registers,
        end: u64,
        most: usize,
        unwinder: &mut dyn Unwinder,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
        let filled = self.copy(registers.rsp, end, most);
        unwinder.walk(registers, StackBytes { base: registers.rsp, bytes: &self.bytes[..filled] }, out)
    }

    /// Where the mapping around `sp` ends; where that is not known, as far as a first copy reaches (a read stops by itself
    /// at the first page that is not there).
    fn end_of_stack(&mut self, sp: u64) -> u64 {
        if let Some(stack) = self.maps.stack_of(sp) {
            return stack.end;
        }
        let begin = now();
        if begin >= self.maps_due {
            if let Ok(maps) = Maps::read(self.pid) {
                self.maps = maps;
            }
            let end = now();
            self.maps_due = end + MAPS_AGAIN.max((end - begin) * MAPS_SHARE);
        }
        self.maps.stack_of(sp).map_or(sp.saturating_add(FIRST_COPY as u64), |stack| stack.end)
    }
}
