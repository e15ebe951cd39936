//! Pages of a running thread's stack that were not in memory when the kernel copied it.
//!
//! The kernel samples where it must not wait, so its copy of a stack ends at the first page that is
//! not in memory. Such a page was never touched, in a frame with a large array, or was swapped out.
//! A read from outside brings it into memory: an untouched one as the kernel's page of zeros, which
//! costs the target no memory. The next samples of the thread contain it.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::process::memory::ReadMemory;
use crate::unwinder::StackBytes;

/// Reads take at most 1 part in this number of the time.
const SHARE: u32 = 50;
/// Maximum bytes read at a time: perf copies no more than 64 KiB.
const BYTES_MAX: u64 = 64 << 10;

/// Returns the part of the stack that the copy lacks: the copy had room for it, and the mapping,
/// which ends at `end`, continues.
pub fn missing_pages(copied: StackBytes<'_>, room: usize, end: u64) -> Option<Range<u64>> {
    let from = copied.base.checked_add(copied.bytes.len() as u64)?;
    let until = copied.base.saturating_add(room as u64).min(end);
    (from < until).then_some(from..until)
}

/// Reads pages, within its share of the time.
#[derive(Default)]
pub struct PageReader {
    due: Option<Instant>,
    buffer: Vec<u8>,
}

impl PageReader {
    pub fn read<M: ReadMemory>(&mut self, memory: &M, pages: Range<u64>, now: Instant) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        let began = Instant::now();
        self.buffer.resize((pages.end - pages.start).min(BYTES_MAX) as usize, 0);
        memory.read(pages.start, &mut self.buffer);
        self.due = Some(now + began.elapsed().max(Duration::from_micros(1)) * SHARE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Reads(RefCell<Vec<(u64, usize)>>);

    impl ReadMemory for Reads {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            self.0.borrow_mut().push((address, buf.len()));
            buf.len()
        }
    }

    #[test]
    fn pages_are_missing_where_the_copy_had_room_and_the_stack_goes_on() {
        let bytes = [0; 0x800];
        let missing =
            |room, end| missing_pages(StackBytes { base: 0x7800, bytes: &bytes }, room, end);
        assert_eq!(missing(0x4000, 0x10_0000), Some(0x8000..0xb800));
        assert_eq!(missing(0x4000, 0x9000), Some(0x8000..0x9000), "no further than the mapping");
        assert_eq!(missing(0x800, 0x10_0000), None, "there was no room");
        assert_eq!(missing(0x4000, 0x8000), None, "the stack ends there");
        assert_eq!(missing(0x4000, 0x7000), None);
        assert_eq!(
            missing_pages(StackBytes { base: u64::MAX - 7, bytes: &bytes }, 0x4000, u64::MAX),
            None
        );
    }

    #[test]
    fn pages_are_read_within_the_share_of_the_time() {
        let (memory, now) = (Reads(RefCell::default()), Instant::now());
        let mut pages = PageReader::default();
        pages.read(&memory, 0x8000..0xb800, now);
        pages.read(&memory, 0x8000..0xb800, now);
        assert_eq!(*memory.0.borrow(), [(0x8000, 0x3800)], "not again at once");
        pages.read(&memory, 0..1 << 40, now + Duration::from_secs(60));
        assert_eq!(memory.0.borrow()[1], (0, BYTES_MAX as usize));
    }
}
