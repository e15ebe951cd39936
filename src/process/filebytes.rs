//! The bytes of a target's file, mapped read-only, safe against SIGBUS.
//!
//! Symbol files are mapped, not copied. A debug file of 1 GB then costs only the pages that are
//! read, and the kernel can reclaim these at any time. A copy would take a gigabyte of memory on a
//! machine that has other work to do. The price is SIGBUS. It comes when a page is read behind the
//! end of a file that was truncated meanwhile (an upgrade by `cp`), or when the disk cannot deliver
//! it. The handler of [`fatal`] then maps a page of zeros there and marks the mapping as
//! [`FileBytes::lost`]. The parser's result must then be discarded. Only addresses inside mappings
//! registered here are handled; every other SIGBUS ends the program.
//!
//! The bytes may also *change* while they are read (a file rewritten in place). So parsers must
//! take every byte for hostile at each read. [`FileBytes::unchanged`] says afterwards whether the
//! result is valid.

#![expect(unsafe_code, reason = "maps files, and replaces their lost pages")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::fatal_signals;

/// Maximum size of a mapped file, bytes. Only address space is at stake, so this is generous.
pub const FILE_CAP: u64 = 64 << 30;

/// Maximum files mapped at a time; a symbol worker needs two or three.
const SLOTS: usize = 64;

/// A mapping handled by the signal handler. `start` is 0 while the slot is free.
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

static MAPPINGS: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

/// Size and modification time of a file, to detect that it changed after it was opened. The inode's
/// change time is not used: an upgrade that removes or renames the file changes it, but not the
/// content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Version {
    pub fn of(file: &File) -> io::Result<Version> {
        let meta = file.metadata()?;
        Ok(Version {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

/// A whole file, mapped. See the module's documentation.
pub struct FileBytes {
    file: File,
    version: Version,
    slot: &'static Slot,
    len: usize,
}

impl FileBytes {
    /// Maps a regular file of at most [`FILE_CAP`] bytes. All of it is mapped; nothing is read yet.
    pub fn map(file: File) -> io::Result<FileBytes> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if meta.len() == 0 || meta.len() > FILE_CAP {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "empty or too large"));
        }
        fatal_signals::mend_bus_faults(replace_page)?;
        let version = Version::of(&file)?;
        let len = usize::try_from(version.size).map_err(io::Error::other)?;
        let slot = MAPPINGS
            .iter()
            .find(|slot| {
                slot.taken
                    .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            })
            .ok_or_else(|| io::Error::other("too many files mapped"))?;
        // SAFETY: a fresh read-only mapping at an address the kernel chooses; it is unmapped in
        // `drop` only.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            slot.taken.store(false, Ordering::Release);
            return Err(error);
        }
        slot.lost.store(false, Ordering::Relaxed);
        slot.end.store(address as usize + len.next_multiple_of(page_size()), Ordering::Relaxed);
        slot.start.store(address as usize, Ordering::Release);
        Ok(FileBytes { file, version, slot, len })
    }

    pub fn bytes(&self) -> &[u8] {
        let start = self.slot.start.load(Ordering::Relaxed) as *const u8;
        // SAFETY: `len` bytes are mapped readable at `start` until `drop`. Another process may
        // write to the file. Readers must trust no byte (module's documentation), and nothing here
        // is ever viewed as `str` or a typed reference.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }

    /// Whether a page was unreadable and replaced by zeros. Nothing parsed from this mapping is
    /// then valid.
    pub fn lost(&self) -> bool {
        self.slot.lost.load(Ordering::Relaxed)
    }

    /// Whether no page was lost and the file still has the size and time it had when it was mapped.
    pub fn unchanged(&self) -> bool {
        !self.lost() && Version::of(&self.file).is_ok_and(|now| now == self.version)
    }

    pub fn version(&self) -> Version {
        self.version
    }
}

impl Drop for FileBytes {
    fn drop(&mut self) {
        let start = self.slot.start.swap(0, Ordering::AcqRel);
        self.slot.end.store(0, Ordering::Relaxed);
        // SAFETY: mapped by `map` with this length, and no borrow of `bytes` outlives `self`.
        unsafe { libc::munmap(start as *mut libc::c_void, self.len) };
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// Puts a page of zeros at `address` if it lies in a mapping registered here. Runs in a signal
/// handler.
fn replace_page(address: usize) -> bool {
    for slot in &MAPPINGS {
        let start = slot.start.load(Ordering::Acquire);
        if start == 0 || address < start || address >= slot.end.load(Ordering::Relaxed) {
            continue;
        }
        let page = page_size();
        // SAFETY: replaces one page of a mapping of ours, which stays registered while it is read;
        // mmap is a bare system call, and its errno is put back for the interrupted code.
        let placed = unsafe {
            let errno = *libc::__errno_location();
            let placed = libc::mmap(
                (address & !(page - 1)) as *mut libc::c_void,
                page,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            );
            *libc::__errno_location() = errno;
            placed
        };
        if placed != libc::MAP_FAILED {
            slot.lost.store(true, Ordering::Relaxed);
            return true;
        }
    }
    false
}

fn page_size() -> usize {
    // x86-64, the only architecture with an unwinder, has no other.
    4096
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("room for it");
        file
    }

    #[test]
    fn a_file_truncated_while_mapped_reads_as_zeros_and_is_lost() {
        let file = file_of(&[7; 10 * 4096]);
        let mapped = FileBytes::map(file.reopen().expect("opens")).expect("maps");
        assert_eq!(mapped.bytes()[9 * 4096], 7);
        assert!(mapped.unchanged());
        file.as_file().set_len(4096).expect("truncates");
        assert_eq!(mapped.bytes()[4095], 7);
        assert!(!mapped.lost());
        assert_eq!(mapped.bytes()[9 * 4096], 0);
        assert!(mapped.lost() && !mapped.unchanged());
    }

    #[test]
    fn a_file_rewritten_in_place_is_noticed() {
        let file = file_of(&[7; 4096]);
        let mapped = FileBytes::map(file.reopen().expect("opens")).expect("maps");
        std::fs::write(file.path(), [8; 8192]).expect("writes");
        assert!(!mapped.lost() && !mapped.unchanged());
    }

    #[test]
    fn only_regular_files_that_hold_something_are_mapped() {
        assert!(FileBytes::map(File::open("/dev/zero").expect("opens")).is_err());
        assert!(FileBytes::map(File::open("/proc/self/maps").expect("opens")).is_err());
        assert!(FileBytes::map(file_of(b"").reopen().expect("opens")).is_err());
    }

    #[test]
    fn slots_are_given_back() {
        let file = file_of(&[1; 100]);
        for _ in 0..3 * SLOTS {
            FileBytes::map(file.reopen().expect("opens")).expect("a slot is free again");
        }
    }
}
