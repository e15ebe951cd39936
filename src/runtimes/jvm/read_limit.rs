//! A limit on how much one observation may read. Each reader in this module has limits of its own.
//! An attacker chooses what each of them finds: chained, they would still add up to minutes.

use std::cell::Cell;

use crate::process::memory::ReadMemory;

/// Maximum reads to attach; real virtual machines take some 1,700.
pub const ATTACH: u32 = 1 << 16;
/// Maximum reads of one walk; one of 1,000 frames never seen before takes some 20,000.
pub const WALK: u32 = 1 << 16;
/// Maximum reads for the names of threads. 50,000 threads take some 350,000: six each to see that
/// the name is unchanged.
pub const NAMES: u32 = 1 << 19;
/// Maximum reads to find what a thread waits for and who holds it. A search of all lock stacks
/// takes some six for each thread, twice.
pub const BLOCKER: u32 = 1 << 17;

/// Bytes counted as one read. Each further block takes about as long as another read.
const BYTES: usize = 4096;

/// Memory that becomes unreadable once the limit is used up.
pub struct Limited<M> {
    memory: M,
    left: Cell<u32>,
}

impl<M: ReadMemory> Limited<M> {
    pub fn new(memory: M, reads: u32) -> Limited<M> {
        Limited { memory, left: Cell::new(reads) }
    }

    /// Starts an observation with this limit of reads. Returns whether the previous one used its
    /// limit up: then its results are incomplete.
    pub fn begin(&self, reads: u32) -> bool {
        self.left.replace(reads) == 0
    }

    fn take(&self, reads: usize, bytes: usize) -> bool {
        let cost = u32::try_from(reads + bytes / BYTES).unwrap_or(u32::MAX);
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }
}

impl<M: ReadMemory> ReadMemory for Limited<M> {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if self.take(1, buf.len()) { self.memory.read(address, buf) } else { 0 }
    }

    fn read_exact(&self, address: u64, buf: &mut [u8]) -> Option<()> {
        if self.take(1, buf.len()) { self.memory.read_exact(address, buf) } else { None }
    }

    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        if self.take(pieces.len(), buf.len()) { self.memory.read_pieces(pieces, buf) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sevens;

    impl ReadMemory for Sevens {
        fn read(&self, _: u64, buf: &mut [u8]) -> usize {
            buf.fill(7);
            buf.len()
        }
    }

    #[test]
    fn memory_is_unreadable_beyond_the_limit() {
        let memory = Limited::new(Sevens, 3);
        assert_eq!(memory.read(0, &mut [0; 8]), 8);
        assert_eq!(memory.read_pieces(&[(0, 4), (9, 4)], &mut [0; 8]), Some(()));
        assert_eq!((memory.read(0, &mut [0; 8]), memory.read_u64(0)), (0, None));
        assert!(memory.begin(2), "it was cut short");
        assert_eq!(memory.read(0, &mut [0; 2 * BYTES]), 0, "a long one counts for more");
        assert!(memory.begin(3));
        assert_eq!(memory.read_exact(0, &mut [0; BYTES]), Some(()));
        assert!(!memory.begin(1), "one was left");
    }
}
