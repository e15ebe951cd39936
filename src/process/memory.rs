//! Reads another process's memory without stopping it.

#![expect(unsafe_code, reason = "process_vm_readv")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};

use remoteprocess::ProcessMemory;

use crate::process::target;

/// A reader of another process's memory: process_vm_readv for a live target, recorded bytes in
/// tests.
pub trait ReadMemory {
    /// Reads up to `buf.len()` bytes at `address`; returns how many were read from the start (a
    /// prefix), 0 for none.
    fn read(&self, address: u64, buf: &mut [u8]) -> usize;

    /// Fills all of `buf`, or returns `None`.
    fn read_exact(&self, address: u64, buf: &mut [u8]) -> Option<()> {
        (self.read(address, buf) == buf.len()).then_some(())
    }

    /// Reads several pieces (address, length) into `buf`, one behind the other: all or `None`. The
    /// order of the reads is undefined.
    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        one_by_one(self, pieces, buf)
    }

    /// Reads the 8 bytes at `address`, little-endian.
    fn read_u64(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read_exact(address, &mut word)?;
        Some(u64::from_le_bytes(word))
    }
}

fn one_by_one<M: ReadMemory + ?Sized>(
    memory: &M,
    pieces: &[(u64, usize)],
    buf: &mut [u8],
) -> Option<()> {
    let mut rest = buf;
    for (address, length) in pieces {
        let (piece, behind) = rest.split_at_mut_checked(*length)?;
        memory.read_exact(*address, piece)?;
        rest = behind;
    }
    rest.is_empty().then_some(())
}

const PAGE: u64 = 4096;
/// Maximum pieces of one process_vm_readv (IOV_MAX, Linux).
const PIECES: usize = 1024;

/// The memory of one live process. Cheap to create and to clone; several threads may read at once.
#[derive(Debug)]
pub struct Memory {
    pid: u32,
    /// The thread it is read through: the leader, or another thread if the leader is a zombie,
    /// which has no memory.
    through: AtomicI32,
}

impl Memory {
    pub fn new(pid: u32) -> Memory {
        Memory { pid, through: AtomicI32::new(pid as i32) }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Runs `read` through the thread that worked last time. If that has no memory any more, it
    /// tries another: the leader is a zombie, or the other thread has ended.
    fn through<T>(&self, mut read: impl FnMut(i32) -> Result<T, i32>) -> Option<T> {
        let through = self.through.load(Ordering::Relaxed);
        match read(through) {
            Ok(found) => Some(found),
            Err(libc::ESRCH | libc::EINVAL) => {
                let other = target::thread_with_memory(self.pid)? as i32;
                if other == through {
                    return None;
                }
                self.through.store(other, Ordering::Relaxed);
                read(other).ok()
            }
            Err(_) => None,
        }
    }
}

/// Reads what is readable from `address` on, in one piece; an error if nothing is.
fn read_piece(through: i32, address: u64, buf: &mut [u8]) -> Result<usize, i32> {
    let local = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buf.len() };
    // SAFETY: `local` is `buf`, which outlives the call; the remote address is only used by
    // the kernel, in the other process.
    let n = unsafe { libc::process_vm_readv(through, &local, 1, &remote, 1, 0) };
    usize::try_from(n).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Reads page by page, one iovec each. Only whole iovecs are promised when a read meets an
/// unreadable page (process_vm_readv(2)).
fn read_pages(through: i32, address: u64, buf: &mut [u8]) -> Result<usize, i32> {
    let mut done = 0;
    let mut pieces = Vec::with_capacity((buf.len() / PAGE as usize + 2).min(PIECES));
    while done < buf.len() {
        pieces.clear();
        let mut planned = 0;
        while done + planned < buf.len() && pieces.len() < PIECES {
            let Some(at) = address.checked_add((done + planned) as u64) else { break };
            let length = ((PAGE - at % PAGE) as usize).min(buf.len() - done - planned);
            pieces.push(libc::iovec { iov_base: at as *mut libc::c_void, iov_len: length });
            planned += length;
        }
        let local = libc::iovec { iov_base: buf[done..].as_mut_ptr().cast(), iov_len: planned };
        // SAFETY: `local` covers `planned` bytes inside `buf`, which outlives the call; the remote
        // addresses are only used by the kernel, in the other process.
        let n = unsafe {
            libc::process_vm_readv(through, &local, 1, pieces.as_ptr(), pieces.len() as u64, 0)
        };
        let Ok(n) = usize::try_from(n) else {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return if done > 0 { Ok(done) } else { Err(errno) };
        };
        done += n;
        if n < planned || planned == 0 {
            break;
        }
    }
    Ok(done)
}

/// Reads `/proc/PID/mem`, which needs the same rights, where a container's seccomp filter forbids
/// the system call. (It also shows pages that the process itself may not read.) It is opened for
/// each read: an open descriptor belongs to the program from before an exec.
fn read_file(through: i32, address: u64, buf: &mut [u8]) -> Result<usize, i32> {
    let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
    match File::open(format!("/proc/{through}/mem"))
        .and_then(|file| file.read_at(buf, address))
        .map_err(errno)?
    {
        // The thread has no memory any more.
        0 => Err(libc::ESRCH),
        n => Ok(n),
    }
}

impl Clone for Memory {
    fn clone(&self) -> Memory {
        Memory { pid: self.pid, through: AtomicI32::new(self.through.load(Ordering::Relaxed)) }
    }
}

impl ReadMemory for Memory {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        if buf.is_empty() {
            return 0;
        }
        // One piece nearly always returns everything there is: kernels so far stop at the
        // unreadable page. Where it returns less, page by page finds the rest.
        let found = self.through(|id| match read_piece(id, address, buf) {
            Ok(n) if n < buf.len() => Ok(n + address
                .checked_add(n as u64)
                .map_or(0, |at| read_pages(id, at, &mut buf[n..]).unwrap_or(0))),
            Err(libc::EFAULT) => read_pages(id, address, buf),
            Err(libc::EPERM | libc::ENOSYS) => read_file(id, address, buf),
            result => result,
        });
        found.unwrap_or(0)
    }

    fn read_exact(&self, address: u64, buf: &mut [u8]) -> Option<()> {
        if buf.is_empty() {
            return Some(());
        }
        let process = remoteprocess::Process { pid: self.through.load(Ordering::Relaxed) };
        if process.read(address as usize, buf).is_ok() {
            return Some(());
        }
        // Unreadable memory, or a thread without memory.
        (self.read(address, buf) == buf.len()).then_some(())
    }

    /// In one system call, where that is permitted.
    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        let wanted = pieces.iter().try_fold(0usize, |sum, (_, length)| sum.checked_add(*length));
        if wanted == Some(buf.len())
            && read_scattered(self.through.load(Ordering::Relaxed), pieces, buf)
        {
            return Some(());
        }
        // One by one finds out why.
        one_by_one(self, pieces, buf)
    }
}

/// Maximum gap, in bytes, that is read along between two pieces in one page. The kernel pins the
/// pages of each range separately, which costs more than copying the gap.
const GAP: u64 = 512;

/// Ranges of memory that cover the pieces; close pieces share a range.
struct Ranges {
    /// Address and length, by address.
    ranges: Vec<(u64, usize)>,
    /// Offset of each piece in the bytes read of all ranges.
    places: Vec<usize>,
    length: usize,
}

impl Ranges {
    /// Merges pieces to ranges; `None` if one lies beyond the end of memory.
    fn of(pieces: &[(u64, usize)]) -> Option<Ranges> {
        let mut order: Vec<u32> = (0..pieces.len() as u32).collect();
        order.sort_unstable_by_key(|piece| pieces[*piece as usize].0);
        let mut found = Ranges { ranges: Vec::new(), places: vec![0; pieces.len()], length: 0 };
        for piece in order {
            let (start, length) = pieces[piece as usize];
            let end = start.checked_add(length as u64)?;
            match found.ranges.last_mut() {
                Some((first, whole)) if joins(*first + *whole as u64, start) => {
                    let more = end.saturating_sub(*first + *whole as u64) as usize;
                    found.places[piece as usize] =
                        found.length - *whole + (start - *first) as usize;
                    (*whole, found.length) = (*whole + more, found.length + more);
                }
                _ => {
                    found.places[piece as usize] = found.length;
                    found.ranges.push((start, length));
                    found.length += length;
                }
            }
        }
        Some(found)
    }
}

/// Whether a piece that begins at `start` joins a range that ends at `end`.
fn joins(end: u64, start: u64) -> bool {
    start <= end || (start - end <= GAP && end / PAGE == start / PAGE)
}

/// Reads all pieces with one system call; returns whether that worked.
fn read_scattered(through: i32, pieces: &[(u64, usize)], buf: &mut [u8]) -> bool {
    let Some(Ranges { ranges, places, length }) =
        Ranges::of(pieces).filter(|found| found.ranges.len() <= PIECES)
    else {
        return false;
    };
    let iovec = |(address, length): &(u64, usize)| libc::iovec {
        iov_base: *address as *mut libc::c_void,
        iov_len: *length,
    };
    let remote: Vec<libc::iovec> = ranges.iter().map(iovec).collect();
    let mut read = vec![0; length];
    let local = libc::iovec { iov_base: read.as_mut_ptr().cast(), iov_len: read.len() };
    // SAFETY: `local` is `read`, which outlives the call; the remote addresses are only used
    // by the kernel, in the other process.
    let n = unsafe {
        libc::process_vm_readv(through, &local, 1, remote.as_ptr(), remote.len() as u64, 0)
    };
    if usize::try_from(n) != Ok(length) {
        return false;
    }
    let mut rest = buf;
    for ((_, length), place) in pieces.iter().zip(places) {
        let Some((piece, behind)) = rest.split_at_mut_checked(*length) else { return false };
        piece.copy_from_slice(&read[place..place + length]);
        rest = behind;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Maps two readable pages and one that is not.
    fn fenced() -> (u64, *mut libc::c_void) {
        // SAFETY: a fresh private mapping; the last page is made unreadable and no code here
        // touches it.
        unsafe {
            let size = 3 * PAGE as usize;
            let base = libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(base.cast::<u8>(), 2 * PAGE as usize).fill(0x5a);
            assert_eq!(
                libc::mprotect(base.cast::<u8>().add(2 * PAGE as usize).cast(), PAGE as usize, 0),
                0
            );
            (base as u64, base)
        }
    }

    #[test]
    fn a_read_across_an_unreadable_page_gives_the_prefix() {
        let (start, base) = fenced();
        let memory = Memory::new(std::process::id());
        let mut buf = vec![0; 3 * PAGE as usize];
        assert_eq!(memory.read(start + 10, &mut buf), 2 * PAGE as usize - 10);
        assert!(buf[..2 * PAGE as usize - 10].iter().all(|b| *b == 0x5a));
        assert_eq!(memory.read(start + 2 * PAGE, &mut buf), 0);
        assert_eq!(memory.read_exact(start + 2 * PAGE - 4, &mut [0; 8]), None);
        assert_eq!(memory.read_u64(start), Some(0x5a5a_5a5a_5a5a_5a5a));
        // SAFETY: the mapping made above, no longer used.
        unsafe { libc::munmap(base, 3 * PAGE as usize) };
    }

    #[test]
    fn pieces_come_all_or_not_at_all() {
        let (start, base) = fenced();
        let memory = Memory::new(std::process::id());
        let own = *b"here";
        let mut buf = [0; 9];
        let pieces = [(own.as_ptr() as u64, 4), (start + 2 * PAGE - 5, 5)];
        assert_eq!(memory.read_pieces(&pieces, &mut buf), Some(()));
        assert_eq!(&buf, b"hereZZZZZ");
        assert_eq!(memory.read_pieces(&pieces, &mut buf[..8]), None, "no room");
        assert_eq!(memory.read_pieces(&pieces, &mut [0; 10]), None, "too much room");
        let beyond = [pieces[0], (start + 2 * PAGE - 4, 5)];
        assert_eq!(memory.read_pieces(&beyond, &mut buf), None);
        let far = vec![0x5au8; 2 * PIECES * GAP as usize];
        let many: Vec<_> = far
            .chunks(2 * GAP as usize)
            .chain(far.chunks(2 * GAP as usize))
            .map(|at| (at.as_ptr() as u64, 4))
            .collect();
        let mut read = vec![0; 4 * many.len()];
        assert_eq!(
            memory.read_pieces(&many, &mut read),
            Some(()),
            "more than one call may ask for"
        );
        assert!(read.iter().all(|byte| *byte == 0x5a));
        // SAFETY: the mapping made above, no longer used.
        unsafe { libc::munmap(base, 3 * PAGE as usize) };
    }

    #[test]
    fn pieces_that_lie_close_together_are_one_range() {
        let at = 7 * PAGE;
        let ranges =
            |pieces: &[(u64, usize)]| Ranges::of(pieces).map(|found| (found.ranges, found.places));
        // Adjacent, with a gap, overlapping, nested; in any order.
        let pieces = [(at + 40, 8), (at, 8), (at + 8, 4), (at + 44, 16), (at + 41, 1)];
        assert_eq!(ranges(&pieces), Some((vec![(at, 60)], vec![40, 0, 8, 44, 41])));
        // Too far apart, and across a page boundary, whose other side may be unreadable.
        let pieces = [(at, 8), (at + 9 + GAP, 8), (at + PAGE - 8, 7), (at + PAGE, 8)];
        assert_eq!(ranges(&pieces), Some((pieces.to_vec(), vec![0, 8, 16, 23])));
        let over = [(at + PAGE - 8, 16), (at + PAGE + 12, 8), (at + PAGE - 8, 8)];
        assert_eq!(ranges(&over), Some((vec![(at + PAGE - 8, 28)], vec![0, 20, 0])));
        assert_eq!(ranges(&[(u64::MAX - 3, 8)]), None);
        assert_eq!(ranges(&[]), Some((vec![], vec![])));
        assert_eq!(ranges(&[(0, 8), (0, 0)]).map(|(ranges, _)| ranges), Some(vec![(0, 8)]));
    }

    proptest! {
        /// Equal to reading them one by one, wherever they lie.
        #[test]
        fn many_pieces_are_what_each_is(pieces in proptest::collection::vec((0usize..9000, 0usize..700), 0..60)) {
            let here: Vec<u8> = (0..10_000u32).map(|at| ((at * 7919) >> 8) as u8).collect();
            let memory = Memory::new(std::process::id());
            let places: Vec<_> = pieces.iter().map(|(at, length)| (here[*at..].as_ptr() as u64, *length)).collect();
            let expected: Vec<u8> = pieces.iter().flat_map(|(at, length)| &here[*at..*at + *length]).copied().collect();
            let mut found = vec![0; expected.len()];
            prop_assert_eq!(memory.read_pieces(&places, &mut found), Some(()));
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_file_gives_what_the_system_call_gives() {
        let (start, base) = fenced();
        let id = std::process::id().cast_signed();
        let mut buf = vec![0; 2 * PAGE as usize - 10];
        assert_eq!(read_file(id, start + 10, &mut buf), Ok(buf.len()));
        assert!(buf.iter().all(|b| *b == 0x5a));
        assert_eq!(read_file(id, 0, &mut buf), Err(libc::EIO));
        assert!(read_file(id, u64::MAX - 7, &mut [0; 8]).is_err());
        assert!(read_file(1 << 23, start, &mut [0; 8]).is_err());
        // SAFETY: the mapping made above, no longer used.
        unsafe { libc::munmap(base, 3 * PAGE as usize) };
    }

    #[test]
    fn wild_addresses_and_ended_processes_read_nothing() {
        let memory = Memory::new(std::process::id());
        for address in [0, 1, u64::MAX, u64::MAX - 7, 1 << 47, 0xffff_8000_0000_0000] {
            assert_eq!(memory.read(address, &mut [0; 4096]), 0, "{address:#x}");
        }
        // Above the largest pid Linux gives out (PID_MAX_LIMIT, 2^22).
        assert_eq!(Memory::new(1 << 23).read(0x1000, &mut [0; 8]), 0);
    }
}
