//! Reading another process's memory without stopping it.

/// Reads foreign memory. Implemented over process_vm_readv for a live target, over recorded bytes in tests.
pub trait ReadMemory {
    /// Reads up to `buf.len()` bytes at `address`; returns how many were read from the start (a prefix), 0 for none.
    fn read(&self, address: u64, buf: &mut [u8]) -> usize;

    /// All of `buf`, or `None`.
    fn read_exact(&self, address: u64, buf: &mut [u8]) -> Option<()> {
        (self.read(address, buf) == buf.len()).then_some(())
    }
}
