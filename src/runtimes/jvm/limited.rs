//! A bound on what one look may read. Each reader of this module has bounds of its own; chained by
//! an attacker, who chooses what each of them finds, they would still add up to minutes.

use std::cell::Cell;

use crate::process::memory::ReadMemory;

/// To attach: real virtual machines take some 1,700 reads.
pub const ATTACH: u32 = 1 << 16;
/// For a walk: one of 1,000 frames that were never met before takes some 20,000.
pub const WALK: u32 = 1 << 16;
/// For the names of threads: 50,000 threads take some 350,000, six for each to see that it has the
/// name it had.
pub const NAMES: u32 = 1 << 19;

/// Counted as one, of a read that is longer: it takes about as long again.
const BYTES: usize = 4096;

/// Memory that cannot be read any more when too much was read.
pub struct Limited<M> {
    memory: M,
    left: Cell<u32>,
}

impl<M: ReadMemory> Limited<M> {
    pub fn new(memory: M, reads: u32) -> Limited<M> {
        Limited { memory, left: Cell::new(reads) }
    }

    /// Begins an observation that may take this number of reads. Whether the one before was cut
    /// short: then it knows less than there is.
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
    fn behind_the_bound_nothing_is_there() {
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
