//! Opens the files that a target has mapped: the exact file, wherever it lives, and nothing else.

#![expect(unsafe_code, reason = "maps a page of a file to learn its device number")]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::process::mapped_files::{FileKind, MappedFile};
use crate::process::maps::Maps;
use crate::process::target;

/// Opens the file that `file` maps, for reading. It tries `/proc/PID/map_files` (the exact inode,
/// deleted files too; needs CAP_CHECKPOINT_RESTORE), then the path beneath the target's root, then
/// the path here. The result is a regular file and the mapped one (device and inode); otherwise it
/// is refused with `NotFound`.
///
/// May block where the file system does (NFS, FUSE): do not call it on the sampling thread. Read
/// the file with `pread` rather than a mapping: a truncated file would end us by SIGBUS.
pub fn open_mapped(file: &MappedFile) -> io::Result<File> {
    if file.kind != FileKind::Regular {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a mapped file"));
    }
    let mut refused = None;
    let mut check = |opened: io::Result<OwnedFd>| match opened.and_then(|fd| accept(fd, file)) {
        Ok(found) => Some(found),
        Err(error) => {
            refused.get_or_insert(error);
            None
        }
    };
    // A zombie leader has neither mappings nor a root; another thread has.
    let pid = target::thread_with_memory(file.pid).unwrap_or(file.pid);
    let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", file.start, file.end);
    if let Some(found) = check(place(Path::new(&exact))) {
        return Ok(found);
    }
    for path in spellings(file) {
        if let Some(found) = check(beneath(pid, &path)) {
            return Ok(found);
        }
        if let Some(found) = check(place(&path)) {
            return Ok(found);
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Opens a file that a process may have written, for reading, as that process sees it: beneath its
/// root, which no link can leave. It must be a regular file and no link, and none that the kernel
/// makes up. May block like [`open_mapped`].
pub fn open_beneath(pid: u32, path: &Path) -> io::Result<File> {
    let found = find_beneath(pid, path, OFlags::NOFOLLOW)?;
    refuse_made_up(&found)?;
    Ok(File::from(reopen(&found)?.0))
}

/// Opens a file of this machine for reading. It must be a regular file, and none that the kernel
/// makes up. May block like [`open_mapped`].
pub fn open_here(path: &Path) -> io::Result<File> {
    let found = place(path)?;
    refuse_made_up(&found)?;
    Ok(File::from(reopen(&found)?.0))
}

/// Opens the file behind a descriptor of a process, for reading. It must be a regular file. May
/// block like [`open_mapped`].
pub fn open_descriptor(pid: u32, descriptor: &OsStr) -> io::Result<File> {
    let found = place(&Path::new(&format!("/proc/{pid}/fd")).join(descriptor))?;
    Ok(File::from(reopen(&found)?.0))
}

/// Returns device and inode of a process's path beneath its root, without opening it.
pub fn identity_beneath(pid: u32, path: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(beneath(pid, path)?)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Returns the paths that a line of `/proc/PID/maps` may mean: ` (deleted)` and `\012` may be part
/// of the name.
fn spellings(file: &MappedFile) -> Vec<PathBuf> {
    let mut paths = vec![file.path.clone()];
    if file.deleted {
        let mut name = file.path.as_os_str().to_owned();
        name.push(" (deleted)");
        paths.push(name.into());
    }
    if file.path.as_os_str().as_bytes().contains(&b'\n') {
        paths.push(PathBuf::from(file.path.to_string_lossy().replace('\n', "\\012")));
    }
    paths
}

/// Refuses files that the kernel makes up as they are read: some block, and reading takes the
/// content of others away (/proc/kmsg, trace_pipe).
fn refuse_made_up(found: &OwnedFd) -> io::Result<()> {
    /// procfs, sysfs, tracefs, debugfs, cgroup, cgroup2 (linux/magic.h).
    const MADE_UP: [u64; 6] =
        [0x9fa0, 0x6265_6572, 0x7472_6163, 0x6462_6720, 0x27_e0eb, 0x6367_7270];
    let kind = rustix::fs::fstatfs(found)?.f_type;
    match MADE_UP.contains(&(kind as u64 & 0xffff_ffff)) {
        true => Err(io::Error::other("the kernel makes it up: it is no file on a disk")),
        false => Ok(()),
    }
}

/// Finds a path without opening it (O_PATH): opening a device or a FIFO could have effects.
fn place(path: &Path) -> io::Result<OwnedFd> {
    if !path.is_absolute() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Finds a process's path beneath its root, following links, without opening it.
pub(super) fn beneath(pid: u32, path: &Path) -> io::Result<OwnedFd> {
    find_beneath(pid, path, OFlags::empty())
}

fn find_beneath(pid: u32, path: &Path, more: OFlags) -> io::Result<OwnedFd> {
    if !path.is_absolute() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
    let flags = OFlags::PATH | OFlags::CLOEXEC | more;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// Opens a regular file for reading, if it is the one that `file` maps.
fn accept(found: OwnedFd, file: &MappedFile) -> io::Result<File> {
    let (opened, stat) = reopen(&found)?;
    let wanted = (file.device, file.inode);
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    // On btrfs and overlayfs stat(2) shows another device than /proc/PID/maps. There, compare as
    // mappings.
    if (device, stat.st_ino) == wanted || as_mapped(&opened) == Some(wanted) {
        return Ok(File::from(opened));
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "another file has taken the place of the one that is mapped",
    ))
}

/// Opens an O_PATH descriptor for reading; regular files only.
fn reopen(found: &OwnedFd) -> io::Result<(OwnedFd, rustix::fs::Stat)> {
    let stat = rustix::fs::fstat(found)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok((
        rustix::fs::open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?,
        stat,
    ))
}

/// Returns device and inode as `/proc/PID/maps` shows them for a mapping of this file.
fn as_mapped(file: &OwnedFd) -> Option<((u32, u32), u64)> {
    const LENGTH: usize = 4096;
    // SAFETY: a new private mapping that is not read; it is removed below.
    let address = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            LENGTH,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::PRIVATE,
            file.as_fd(),
            0,
        )
    }
    .ok()?;
    let maps = Maps::read(std::process::id());
    // SAFETY: exactly the mapping made above.
    let _ = unsafe { rustix::mm::munmap(address, LENGTH) };
    let mapping = maps.ok()?;
    let mapping = mapping.find(address as u64)?;
    Some((mapping.device, mapping.inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Returns this test program itself, as it is mapped.
    fn own_program() -> MappedFile {
        let maps = Maps::read(std::process::id()).unwrap();
        let here = own_program as fn() -> MappedFile as usize as u64;
        maps.find_code(here).unwrap().mapped_file(std::process::id())
    }

    #[test]
    fn the_mapped_file_opens_and_nothing_else() {
        let program = own_program();
        let mut magic = [0; 4];
        open_mapped(&program).unwrap().read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF");
        // Not through map_files (no such mapping), but by path.
        open_mapped(&MappedFile { start: 0x1000, end: 0x2000, ..program.clone() }).unwrap();
        let replaced = MappedFile { inode: program.inode + 1, ..program.clone() };
        // Without CAP_CHECKPOINT_RESTORE map_files refuses first.
        let refused = open_mapped(&replaced).unwrap_err().kind();
        assert!(
            matches!(refused, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
            "{refused:?}"
        );
        let replaced = MappedFile { start: 0x1000, end: 0x2000, ..replaced };
        assert_eq!(open_mapped(&replaced).unwrap_err().kind(), io::ErrorKind::NotFound);
        let elsewhere = MappedFile { path: "/bin/sh".into(), start: 0x1000, ..program.clone() };
        assert_eq!(open_mapped(&elsewhere).unwrap_err().kind(), io::ErrorKind::NotFound);
        for path in ["/dev/null", "/proc", "relative", "", "/no/such/file"] {
            assert!(
                open_mapped(&MappedFile { path: path.into(), start: 0x1000, ..program.clone() })
                    .is_err(),
                "{path}"
            );
        }
        assert!(open_mapped(&MappedFile { kind: FileKind::Vdso, ..program }).is_err());
    }

    #[test]
    fn a_written_file_opens_and_no_link_to_one() {
        let folder = std::env::temp_dir().join(format!("open-beneath-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::fs::write(&file, "text").unwrap();
        let _ = std::os::unix::fs::symlink(&file, &link);
        let pid = std::process::id();
        assert!(open_beneath(pid, &file).is_ok());
        for other in
            [&link, &folder, Path::new("/dev/null"), Path::new("file"), &folder.join("none")]
        {
            assert!(open_beneath(pid, other).is_err(), "{}", other.display());
        }
        assert!(open_here(&file).is_ok());
        for made_up in
            ["/proc/self/stat", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"]
        {
            for opened in [open_here(Path::new(made_up)), open_beneath(pid, Path::new(made_up))] {
                // Where there is none of this name, that is the error.
                assert!(opened.is_err(), "{made_up}");
            }
        }
        let error = open_here(Path::new("/proc/version")).unwrap_err();
        assert!(error.to_string().contains("the kernel makes it up"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_mapping_of_a_file_has_the_identity_that_maps_shows() {
        let program = own_program();
        let fd = OwnedFd::from(File::open(&program.path).unwrap());
        assert_eq!(as_mapped(&fd), Some((program.device, program.inode)));
    }
}
