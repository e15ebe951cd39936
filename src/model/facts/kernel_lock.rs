//! Locks of the kernel for which uninterruptible threads wait.
//!
//! They are known by the innermost function on the kernel's stack: the kernel's traces leave out
//! its scheduler, and with it the functions that take a lock and sleep (`.sched.text`, such as
//! `rwsem_down_write_slowpath`), so that the one that called them is innermost.
//!
//! By the kernel's source the functions of the lists sleep uninterruptibly for nothing else
//! themselves. Some exist in a part of Linux 5.8 to 6.18 only. Seen in stacks of such threads, on
//! 6.18: `vm_mmap_pgoff`, `__vm_munmap`, `lock_mm_and_find_vma`, `ext4_buffered_write_iter`,
//! `fdget_pos`, `path_openat`, `do_unlinkat`.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KernelLock {
    /// `mmap_lock`: mapping, unmapping and protecting memory, and page faults at that time.
    MemoryMap,
    /// Of a file's inode or a pipe: writing to one file, changing its size.
    File,
    /// `f_pos_lock`: the position of a descriptor that threads share.
    Position,
    /// Of a directory's inode: creating, renaming, removing, finding and listing names in it.
    Directory,
}

/// Functions that wait for a lock. A part that the compiler cut out or cloned has the same name
/// before a point.
const LISTS: [(KernelLock, &[&str]); 4] = [
    (
        KernelLock::MemoryMap,
        &[
            "vm_mmap_pgoff",
            "__vm_munmap",
            "vm_brk_flags",
            "do_mprotect_pkey",
            "do_madvise",
            "madvise_lock",
            "do_mremap",
            "do_mlock",
            "do_mbind",
            "__do_sys_brk",
            "__x64_sys_brk",
            "__se_sys_brk",
            "__do_sys_mremap",
            "__x64_sys_mremap",
            "__se_sys_mremap",
            "__x64_sys_munlock",
            "__mm_populate",
            "lock_mm_and_find_vma",
            "do_user_addr_fault",
            "exc_page_fault",
        ],
    ),
    (
        KernelLock::File,
        &[
            "ext4_buffered_write_iter",
            "ext4_dio_write_iter",
            "ext4_dio_read_iter",
            "ext4_file_write_iter",
            "ext4_file_read_iter",
            "xfs_ilock",
            "xfs_ilock_iocb",
            "xfs_ilock_iocb_for_write",
            "btrfs_inode_lock",
            "f2fs_file_write_iter",
            "nfs_start_io_read",
            "nfs_start_io_write",
            "fuse_cache_write_iter",
            "generic_file_write_iter",
            "shmem_file_write_iter",
            "pipe_read",
            "pipe_write",
            "anon_pipe_read",
            "anon_pipe_write",
            "do_truncate",
        ],
    ),
    (KernelLock::Position, &["fdget_pos", "__fdget_pos"]),
    (
        KernelLock::Directory,
        &[
            "path_openat",
            "open_last_lookups",
            "filename_create",
            "do_unlinkat",
            "do_rmdir",
            "lock_two_directories",
            "lookup_slow",
            "__lookup_slow",
            "walk_component",
            "iterate_dir",
        ],
    ),
];

impl KernelLock {
    pub const ALL: [KernelLock; 4] =
        [KernelLock::MemoryMap, KernelLock::File, KernelLock::Position, KernelLock::Directory];

    /// Returns the lock for which an uninterruptible thread waits in this function of the kernel.
    pub fn of(innermost: &str) -> Option<KernelLock> {
        let name = innermost.split('.').next().unwrap_or_default();
        LISTS.iter().find(|(_, names)| names.contains(&name)).map(|(lock, _)| *lock)
    }

    /// Returns what it is called. `file`: the one that the call names, where it is known.
    pub fn text(self, file: Option<&str>) -> String {
        match self {
            KernelLock::MemoryMap => "mmap_lock (memory map)".into(),
            KernelLock::File => format!("the lock of {}", file.unwrap_or("a file")),
            KernelLock::Position => format!("the position of {}", file.unwrap_or("a shared file")),
            KernelLock::Directory => "the lock of a directory".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_of_the_kernel_decides() {
        for (name, lock) in [
            ("__vm_munmap", Some(KernelLock::MemoryMap)),
            ("exc_page_fault", Some(KernelLock::MemoryMap)),
            ("do_madvise.part.0", Some(KernelLock::MemoryMap)),
            ("ext4_buffered_write_iter", Some(KernelLock::File)),
            ("fdget_pos", Some(KernelLock::Position)),
            ("do_unlinkat", Some(KernelLock::Directory)),
            // A page that is read from a disk; a transaction that is written to it.
            ("folio_wait_bit_common", None),
            ("jbd2_log_wait_commit", None),
        ] {
            assert_eq!(KernelLock::of(name), lock, "{name}");
        }
    }
}
