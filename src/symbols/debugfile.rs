//! Finds the separate debug file of a stripped one: by build id, by .gnu_debuglink, in debuginfod's
//! cache. No network.
//!
//! It is searched beneath the target's root first, where its distribution put it, then on this
//! host. Names from the file are untrusted, so only plain file names are accepted. What is opened
//! is a regular file beneath the root (openat2). It is used only if its build id matches, or its
//! checksum where there is no build id.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::elf::{Elf, hex};
use crate::process::filebytes::FileBytes;

/// Maximum size for a checksum (some seconds on the worker), bytes; larger debug files need a build
/// id.
const CHECKSUM_CAP: usize = 2 << 30;

/// Directories with debug files.
#[derive(Clone, Debug)]
pub struct SearchPath {
    /// Directories with `.build-id/xx/yyyy.debug`, and a copy of the directory tree for
    /// .gnu_debuglink.
    pub debug_dirs: Vec<PathBuf>,
    /// Directories with `BUILDID/debuginfo`; on this host only.
    pub caches: Vec<PathBuf>,
}

impl Default for SearchPath {
    fn default() -> SearchPath {
        SearchPath {
            debug_dirs: vec!["/usr/lib/debug".into(), "/lib/debug".into()],
            caches: caches(),
        }
    }
}

/// Returns debuginfod's cache directories of the user who runs this, also under sudo.
fn caches() -> Vec<PathBuf> {
    let var =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut caches: Vec<PathBuf> = var("DEBUGINFOD_CACHE_PATH").into_iter().collect();
    caches.extend(var("XDG_CACHE_HOME").map(|dir| dir.join("debuginfod_client")));
    let sudo = var("SUDO_USER").and_then(|user| home_of(user.as_os_str()));
    for home in sudo.into_iter().chain(var("HOME")) {
        caches.push(home.join(".cache/debuginfod_client"));
        caches.push(home.join(".debuginfod_client_cache"));
    }
    caches.retain(|dir| dir.is_absolute());
    caches
}

fn home_of(user: &OsStr) -> Option<PathBuf> {
    let users = std::fs::read("/etc/passwd").ok()?;
    users.split(|b| *b == b'\n').find_map(|line| {
        let mut fields = line.split(|b| *b == b':');
        (fields.next()? == user.as_bytes())
            .then(|| fields.nth(4).map(|home| OsStr::from_bytes(home).into()))?
    })
}

/// A directory that paths are resolved beneath.
pub struct Root {
    fd: OwnedFd,
    /// This is the host's own root.
    host: bool,
}

impl Root {
    pub fn host() -> io::Result<Root> {
        Ok(Root {
            fd: rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            host: true,
        })
    }

    /// Returns the root of a process, if it is not this host's. While it is open it can be searched
    /// after the process has ended.
    pub fn of(pid: u32) -> io::Result<Option<Root>> {
        let ours = rustix::fs::stat("/")?;
        let fd = rustix::fs::open(
            format!("/proc/{pid}/root"),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let theirs = rustix::fs::fstat(&fd)?;
        let same = (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino);
        // The same directory in another mount namespace may have other file systems mounted below
        // it.
        let namespace = |path: String| std::fs::read_link(path).ok();
        let same = same
            && namespace("/proc/self/ns/mnt".into()) == namespace(format!("/proc/{pid}/ns/mnt"));
        Ok((!same).then_some(Root { fd, host: false }))
    }

    /// Opens a regular file beneath this root.
    fn open(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = match rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve) {
            // Kernels before 5.6 and some seccomp filters have no openat2; the host's own root
            // needs none.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) if self.host => {
                rustix::fs::open(path, flags, Mode::empty())?
            }
            found => found?,
        };
        if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not a regular file"));
        }
        // It was found without opening (a device or a FIFO could have effects); opening it again
        // makes it readable.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(
            format!("/proc/self/fd/{}", found.as_raw_fd()),
            flags,
            Mode::empty(),
        )?))
    }
}

/// A debug file that matches.
pub struct Found {
    pub bytes: FileBytes,
    pub elf: Elf,
}

/// Finds the debug file of `elf`, which is mapped from `path` in a process with the root
/// `roots[0]`.
pub fn find(
    elf: &Elf,
    bytes: &[u8],
    path: &Path,
    roots: &[&Root],
    search: &SearchPath,
) -> Option<Found> {
    let link = elf.debug_link(bytes);
    for root in roots {
        for candidate in
            candidates(elf.build_id(), link.map(|(name, _)| name), path, root.host, search)
        {
            let Ok(mapped) = root.open(&candidate).and_then(FileBytes::map) else { continue };
            let Some(debug) = Elf::parse(mapped.bytes()) else { continue };
            let right = match (elf.build_id(), debug.build_id(), link) {
                (Some(wanted), Some(got), _) => wanted == got,
                (_, _, Some((_, sum))) => {
                    mapped.bytes().len() <= CHECKSUM_CAP && crc32(mapped.bytes()) == sum
                }
                _ => false,
            };
            if right && !mapped.lost() {
                return Some(Found { bytes: mapped, elf: debug });
            }
        }
    }
    None
}

/// Returns the possible paths on this host of the debug file for an ELF image mapped from `path`.
/// Empty where the image names none.
pub fn debug_file_places(image: &[u8], path: &Path, search: &SearchPath) -> Vec<PathBuf> {
    let Some(elf) = Elf::parse(image) else { return Vec::new() };
    let link = elf.debug_link(image).map(|(name, _)| name);
    candidates(elf.build_id(), link, path, true, search)
}

fn candidates(
    id: Option<&[u8]>,
    link: Option<&[u8]>,
    path: &Path,
    host: bool,
    search: &SearchPath,
) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let Some(id) = id.filter(|id| id.len() > 1) {
        let hex = hex(id);
        let (first, rest) = hex.split_at(2);
        paths.extend(
            search.debug_dirs.iter().map(|dir| dir.join(format!(".build-id/{first}/{rest}.debug"))),
        );
        if host {
            paths.extend(search.caches.iter().map(|dir| dir.join(&hex).join("debuginfo")));
        }
    }
    let plain = |name: &&[u8]| !name.contains(&b'/') && *name != b"." && *name != b"..";
    if let (Some(name), Some(dir)) =
        (link.filter(plain), path.parent().filter(|dir| dir.is_absolute()))
    {
        let name = OsStr::from_bytes(name);
        paths.push(dir.join(name));
        paths.push(dir.join(".debug").join(name));
        let below = dir.strip_prefix("/").unwrap_or(dir);
        paths.extend(search.debug_dirs.iter().map(|debug| debug.join(below).join(name)));
    }
    paths
}

/// Computes the CRC-32 of .gnu_debuglink (IEEE 802.3, reflected).
fn crc32(bytes: &[u8]) -> u32 {
    static TABLES: [[u32; 256]; 8] = crc_tables();
    let mut crc = !0u32;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let low = crc ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        crc = (0..4).fold(0, |sum, n| sum ^ TABLES[7 - n][(low >> (8 * n)) as usize & 255])
            ^ (0..4).fold(0, |sum, n| sum ^ TABLES[3 - n][usize::from(word[4 + n])]);
    }
    for byte in words.remainder() {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 255) as usize];
    }
    !crc
}

/// Builds the tables: table 0 advances the sum by one byte, table n by n bytes more. So eight bytes
/// are one step.
const fn crc_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[n - 1][byte];
            tables[n][byte] = before >> 8 ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_usual_ones() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }

    #[test]
    fn candidates_are_the_usual_places_and_nothing_a_file_could_choose() {
        let search =
            SearchPath { debug_dirs: vec!["/usr/lib/debug".into()], caches: vec!["/cache".into()] };
        let paths = candidates(
            Some(&[0xab, 0xcd, 0xef]),
            Some(b"x.debug"),
            Path::new("/opt/bin/x"),
            true,
            &search,
        );
        let want = [
            "/usr/lib/debug/.build-id/ab/cdef.debug",
            "/cache/abcdef/debuginfo",
            "/opt/bin/x.debug",
            "/opt/bin/.debug/x.debug",
            "/usr/lib/debug/opt/bin/x.debug",
        ];
        assert_eq!(paths, want.map(PathBuf::from));
        assert!(
            candidates(None, Some(b"../../etc/shadow"), Path::new("/x"), true, &search).is_empty()
        );
        assert!(candidates(None, Some(b".."), Path::new("/x"), true, &search).is_empty());
    }

    #[test]
    fn a_link_out_of_a_root_leads_nowhere_and_devices_are_no_files() {
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).expect("a link");
        let fd = rustix::fs::open(dir.path(), OFlags::PATH, Mode::empty()).expect("opens");
        let root = Root { fd, host: false };
        assert!(root.open(Path::new("/out")).is_err());
        assert!(root.open(Path::new("../../../../etc/passwd")).is_err());
        assert!(Root::host().expect("opens").open(Path::new("/dev/zero")).is_err());
        assert!(Root::host().expect("opens").open(Path::new("/etc/passwd")).is_ok());
    }
}
