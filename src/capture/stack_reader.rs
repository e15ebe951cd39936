//! Reads the stack of a thread that is off the core from the target's memory. No thread is stopped
//! or signalled.

use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame};
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use crate::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// Size of the first copy, bytes; enough for nearly every stack.
const FIRST_COPY: usize = 63 << 10;
/// Maximum size of the second copy, made if the first was too short, bytes.
const LARGEST_COPY: usize = 1 << 20;
/// Minimum time between reads of the mappings for an unknown stack pointer, ns. [`MAPS_SHARE`] is
/// the inverse of the maximum share of time that they take. A target can have very many mappings
/// and change them all the time.
const MAPS_AGAIN: Ns = 50_000_000;
const MAPS_SHARE: Ns = 20;

/// Copies and walks stacks of one process.
pub struct StackReader {
    pid: u32,
    memory: Memory,
    maps: Maps,
    /// Time of the earliest next read of the mappings.
    maps_due: Ns,
    bytes: Vec<u8>,
}

impl StackReader {
    pub fn new(memory: Memory) -> StackReader {
        StackReader {
            pid: memory.pid(),
            memory,
            maps: Maps::default(),
            maps_due: 0,
            bytes: Vec::new(),
        }
    }

    /// Discards the known mappings, after an exec.
    pub fn invalidate(&mut self) {
        self.maps = Maps::default();
        self.maps_due = 0;
    }

    /// Walks the stack from `sp` and `pc` (exact), and appends frames to `out`. The caller checks
    /// afterwards that the thread has not run meanwhile.
    pub fn walk(
        &mut self,
        pc: u64,
        sp: u64,
        unwinder: &mut dyn Unwinder,
        out: &mut Vec<RawFrame>,
    ) -> Walk {
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

    /// Returns the stack's bytes from `sp` on, up to the end of the known mapping or of a first
    /// copy. It reads no mappings, because the thread is stopped meanwhile.
    pub fn copy_known(&mut self, sp: u64) -> &[u8] {
        let end = self.maps.stack_of(sp).map_or(u64::MAX, |stack| stack.end);
        let filled = self.copy(sp, end, FIRST_COPY);
        &self.bytes[..filled]
    }

    /// Reads the mapping around `sp`, if it is not known.
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
        unwinder.walk(
            registers,
            StackBytes { base: registers.rsp, bytes: &self.bytes[..filled] },
            out,
        )
    }

    /// Returns the end of the mapping around `sp`. If that is unknown, returns the end of a first
    /// copy: a read stops by itself at the first page that is not mapped.
    fn end_of_stack(&mut self, sp: u64) -> u64 {
        if let Some(stack) = self.maps.stack_of(sp) {
            return stack.end;
        }
        let begin = monotonic();
        if begin >= self.maps_due {
            if let Ok(maps) = Maps::read(self.pid) {
                self.maps = maps;
            }
            let end = monotonic();
            self.maps_due = end + MAPS_AGAIN.max((end - begin) * MAPS_SHARE);
        }
        self.maps.stack_of(sp).map_or(sp.saturating_add(FIRST_COPY as u64), |stack| stack.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports a stack as truncated until it gets enough bytes of it.
    struct Needs(usize, Vec<usize>);

    impl Unwinder for Needs {
        fn walk(&mut self, _: &Registers, stack: StackBytes<'_>, out: &mut Vec<RawFrame>) -> Walk {
            self.1.push(stack.bytes.len());
            out.push(RawFrame::from_bits(stack.bytes.len() as u64));
            let end = (stack.bytes.len() < self.0).then_some(Marker::Truncated);
            Walk { end, recovered: false }
        }
    }

    /// Walks a thread's stack from below an array of `DEPTH` bytes on it.
    fn walk_over<const DEPTH: usize>(unwinder: &mut Needs) -> (Walk, Vec<RawFrame>) {
        let mut frames = vec![RawFrame::from_bits(7)];
        let walk = std::thread::scope(|scope| {
            let frames = &mut frames;
            let thread =
                std::thread::Builder::new().stack_size(4 << 20).spawn_scoped(scope, move || {
                    let deep = std::hint::black_box([1u8; DEPTH]);
                    let mut reader = StackReader::new(Memory::new(std::process::id()));
                    reader.walk(0x1000, deep.as_ptr() as u64, unwinder, frames)
                });
            thread.expect("a thread").join().expect("it ends")
        });
        (walk, frames)
    }

    #[test]
    fn a_shallow_stack_is_copied_to_its_end_at_once() {
        let mut unwinder = Needs(1_000, Vec::new());
        let (walk, frames) = walk_over::<1_000>(&mut unwinder);
        assert_eq!((walk.end, frames.len(), unwinder.1.len()), (None, 2, 1));
        assert!(unwinder.1[0] < FIRST_COPY, "no further than the mapping: {:?}", unwinder.1);
    }

    #[test]
    fn a_deep_stack_is_completed_and_keeps_no_frame_of_the_first_try() {
        let mut unwinder = Needs(300_000, Vec::new());
        let (walk, frames) = walk_over::<300_000>(&mut unwinder);
        assert_eq!((walk.end, frames.len()), (None, 2));
        assert_eq!(frames[0], RawFrame::from_bits(7), "what was there before stays");
        assert_eq!((unwinder.1[0], unwinder.1.len()), (FIRST_COPY, 2));
        assert!(unwinder.1[1] >= 300_000, "{:?}", unwinder.1);
    }

    #[test]
    fn beyond_the_cap_a_stack_stays_truncated() {
        let mut unwinder = Needs(2_000_000, Vec::new());
        let (walk, _) = walk_over::<2_000_000>(&mut unwinder);
        assert_eq!(walk.end, Some(Marker::Truncated));
        assert_eq!(unwinder.1, [FIRST_COPY, LARGEST_COPY]);
    }

    #[test]
    fn an_address_without_a_mapping_gives_no_bytes() {
        let mut unwinder = Needs(1, Vec::new());
        let mut reader = StackReader::new(Memory::new(std::process::id()));
        let walk = reader.walk(0x1000, 0x10, &mut unwinder, &mut Vec::new());
        assert_eq!((walk.end, unwinder.1), (Some(Marker::Truncated), vec![0]));
        let mut unwinder = Needs(1, Vec::new());
        reader.walk(0x1000, u64::MAX - 7, &mut unwinder, &mut Vec::new());
        assert_eq!(unwinder.1[0], 0);
    }
}
