//! Writes an export whole or not at all.
//!
//! A new file is written beside the destination, flushed to the disk, and renamed over it, all
//! through one descriptor of the directory. So a full disk leaves the old file, and no reader sees
//! half a profile. A name that another user planted is replaced or refused, never written through.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Access, AtFlags, FileType, Gid, Mode, OFlags, Uid};

use crate::model::vocabulary::text::clean;

/// Only the owner may read a profile: it reveals paths and names of the target.
pub(super) const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Maximum bytes of a host name or other part of a file name.
const PART_CAP: usize = 64;

/// Checks whether a file of that name could be saved now; leaves nothing behind. Returns one
/// sentence if not.
pub fn probe(path: &Path) -> Result<(), String> {
    let place = Place::of(path)?;
    place.check()?;
    place.temporary().map(drop).map_err(|error| place.failed(&error))
}

/// Writes `bytes` to a new file beside `path` and renames it over `path`. On failure returns one
/// sentence; the old file is untouched and no new one remains.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    save_with(path, caller_under_sudo(), |file| file.write_all(bytes))
}

/// Gives a new file to the caller of sudo.
pub(super) fn give_to_caller(file: &File) -> io::Result<()> {
    match caller_under_sudo() {
        Some((uid, gid)) => Ok(rustix::fs::fchown(file, Some(uid), Some(gid))?),
        None => Ok(()),
    }
}

/// Opens what [`save`] wrote: a regular file that belongs to the user (or the caller of sudo), not
/// a link.
pub fn open_own(path: &Path) -> io::Result<File> {
    // NONBLOCK, so that a planted FIFO does not hang the open.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && is_ours(&stat) {
        true => Ok(file.into()),
        false => Err(io::Error::other("it is no regular file of ours")),
    }
}

/// Creates a directory and its parents where they are missing. What is created is for its owner
/// alone: the caller of sudo in a directory of the caller's, otherwise us. Fails with one sentence.
pub fn make_directory(path: &Path) -> Result<(), String> {
    make_directory_of(path, caller_under_sudo())
}

fn make_directory_of(path: &Path, caller: Option<(Uid, Gid)>) -> Result<(), String> {
    if path.is_dir() || path.as_os_str().is_empty() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), |parent| make_directory_of(parent, caller))?;
    make_one_directory(path, caller)
        .map_err(|error| format!("cannot make `{}`: {}", shown(path), why(&error)))
}

/// Creates a directory in one that exists. Works through descriptors: the caller of sudo may
/// replace names in a directory of theirs meanwhile.
fn make_one_directory(path: &Path, caller: Option<(Uid, Gid)>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty())?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        made => made?,
    }
    // sudo may keep root's HOME: what is created there stays root's.
    let parent_owner = Uid::from_raw(rustix::fs::fstat(&parent)?.st_uid);
    if let Some((uid, gid)) = caller.filter(|(uid, _)| *uid == parent_owner) {
        let made = rustix::fs::openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        rustix::fs::fchown(&made, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Creates a directory for our files alone, with its parents, if it is missing, and opens it.
/// Returns one sentence if others could put files there.
pub fn own_directory(path: &Path) -> Result<File, String> {
    let failed = |error: io::Error| format!("cannot make `{}`: {}", shown(path), why(&error));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let stat = rustix::fs::fstat(&directory).map_err(|error| failed(error.into()))?;
    match is_ours(&stat) && stat.st_mode & 0o022 == 0 {
        true => Ok(directory.into()),
        false => Err(format!(
            "others can write in `{}`; remove it, or name another directory",
            shown(path)
        )),
    }
}

/// Returns whether a user other than us and root may have created that file or may replace it.
pub(super) fn is_foreign(directory: &OwnedFd, file: &File) -> io::Result<bool> {
    let (directory, file) = (rustix::fs::fstat(directory)?, rustix::fs::fstat(file)?);
    let others_write =
        directory.st_mode & 0o022 != 0 || !(is_ours(&directory) || directory.st_uid == 0);
    Ok(!is_ours(&file) && others_write)
}

/// Returns whether it belongs to us or the caller of sudo.
pub fn is_ours(stat: &rustix::fs::Stat) -> bool {
    let owner = Uid::from_raw(stat.st_uid);
    owner == rustix::process::geteuid() || caller_under_sudo().is_some_and(|(uid, _)| uid == owner)
}

/// Returns where sampletop keeps data for later runs: in the XDG state directory. `None`: HOME is
/// not set.
pub fn state_directory() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("sampletop"))
}

fn save_with(
    path: &Path,
    owner: Option<(Uid, Gid)>,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), String> {
    let place = Place::of(path)?;
    place.check()?;
    let save = || -> io::Result<()> {
        let mut temporary = place.temporary()?;
        if let Some((uid, gid)) = owner {
            rustix::fs::fchown(&temporary.file, Some(uid), Some(gid))?;
        }
        fill(&mut temporary.file)?;
        temporary.file.sync_all()?;
        temporary.rename(place.name)?;
        // Makes the new name survive a crash too; the file itself is on disk already.
        let _ = rustix::fs::fsync(&place.directory);
        Ok(())
    };
    save().map_err(|error| place.failed(&error))
}

/// Returns `sampletop-HOST-LABEL-UTC.EXTENSION`, valid on any file system, for the moment
/// `unix_ns`.
pub fn name(host: &str, label: &str, unix_ns: i128, extension: &str) -> String {
    let at = jiff::Timestamp::from_nanosecond(unix_ns).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{}{}.{extension}", stem(host, label), at.strftime(STAMP))
}

const STAMP: &str = "%Y%m%dT%H%M%SZ";

/// Returns whether [`name`] gave that name, for any moment.
pub fn is_named(name: &str, host: &str, label: &str, extension: &str) -> bool {
    let stamp = name
        .strip_prefix(&stem(host, label))
        .and_then(|rest| rest.strip_suffix(extension)?.strip_suffix('.'));
    // A second file of the same moment has a number after it.
    let stamp = stamp.map(|stamp| stamp.split_once('_').unwrap_or((stamp, "")));
    stamp.is_some_and(|(stamp, nth)| {
        jiff::civil::DateTime::strptime(STAMP, stamp).is_ok()
            && nth.bytes().all(|digit| digit.is_ascii_digit())
    })
}

fn stem(host: &str, label: &str) -> String {
    let part = |text: &str, otherwise: &str| {
        let text: String =
            text.chars().take(PART_CAP).map(|c| if plain(c) { c } else { '-' }).collect();
        match text.trim_matches(['-', '.']) {
            "" => otherwise.to_owned(),
            text => text.to_owned(),
        }
    };
    format!("sampletop-{}-{}-", part(host, "host"), part(label, "processes"))
}

fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// A name in an open directory.
pub(super) struct Place<'a> {
    path: &'a Path,
    pub directory: OwnedFd,
    pub name: &'a OsStr,
}

impl<'a> Place<'a> {
    pub fn of(path: &'a Path) -> Result<Place<'a>, String> {
        let shown = shown(path);
        let ends_in_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let name = path.file_name().filter(|_| !ends_in_slash);
        let name = name.ok_or_else(|| format!("`{shown}` names no file; give a file name"))?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::open(parent, flags, Mode::empty()) {
            Ok(directory) => Ok(Place { path, directory, name }),
            Err(error) => Err(format!(
                "cannot write `{shown}`: its directory cannot be opened: {}",
                why(&error.into())
            )),
        }
    }

    /// Checks that the present content may be replaced: nothing, or a regular file that the caller
    /// may write.
    fn check(&self) -> Result<(), String> {
        let shown = shown(self.path);
        let stat = match rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(self.failed(&error.into())),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                rustix::fs::accessat(&self.directory, self.name, Access::WRITE_OK, AtFlags::EACCESS)
                    .map_err(|error| self.failed(&error.into()))
            }
            FileType::Symlink => Err(format!(
                "`{shown}` is a symbolic link, which is not written through; name a file"
            )),
            FileType::Directory => Err(format!("`{shown}` is a directory; name a file in it")),
            _ => Err(format!(
                "`{shown}` is no regular file; name a file, or `-` for standard output"
            )),
        }
    }

    /// Creates an empty file beside the destination.
    fn temporary(&self) -> io::Result<Temporary<'_>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..16 {
            let name = format!(
                ".sampletop-{}-{}.tmp",
                std::process::id(),
                NEXT.fetch_add(1, Ordering::Relaxed)
            );
            match rustix::fs::openat(&self.directory, &name, flags, MODE) {
                Ok(file) => {
                    return Ok(Temporary {
                        directory: &self.directory,
                        name,
                        file: file.into(),
                        done: false,
                    });
                }
                // Left by an earlier process with the same pid, or planted.
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("cannot write `{}`: {}", shown(self.path), why(error))
    }
}

/// Removed on drop unless it was renamed.
struct Temporary<'a> {
    directory: &'a OwnedFd,
    name: String,
    file: File,
    done: bool,
}

impl Temporary<'_> {
    fn rename(mut self, name: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(self.directory, &self.name, self.directory, name)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.done {
            // Ignored: nothing could be done, and the earlier error is the one to report.
            let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Returns the caller of sudo, where that made us root. Root's files in a user's directory would be
/// a nuisance.
pub fn caller_under_sudo() -> Option<(Uid, Gid)> {
    let id = |name| std::env::var(name).ok();
    match rustix::process::geteuid().is_root() {
        true => sudo_ids(id("SUDO_UID")?.as_str(), id("SUDO_GID")?.as_str()),
        false => None,
    }
}

fn sudo_ids(uid: &str, gid: &str) -> Option<(Uid, Gid)> {
    // For fchown the highest number means "no change".
    let id = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    Some((Uid::from_raw(id(uid)?), Gid::from_raw(id(gid)?)))
}

pub fn shown(path: &Path) -> String {
    clean(&path.to_string_lossy(), 200).into_owned()
}

/// Returns the system's error text, without its number.
pub fn why(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .expect("the directory is there")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn a_file_is_written_for_its_owner_only() {
        let dir = scratch();
        let path = dir.path().join("p.txt");
        probe(&path).expect("writable");
        assert!(names(dir.path()).is_empty(), "a probe leaves nothing");
        save(&path, b"one").expect("saved");
        save(&path, b"two").expect("saved again");
        assert_eq!(std::fs::read(&path).expect("there"), b"two");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o600);
        assert_eq!(names(dir.path()), ["p.txt"]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = scratch();
        let path = dir.path().join("p.txt");
        save(&path, b"old").expect("saved");
        let error = save_with(&path, None, |file| {
            file.write_all(b"half of the n")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        })
        .expect_err("the disk is full");
        assert_eq!(error, format!("cannot write `{}`: no space left on device", path.display()));
        assert_eq!(std::fs::read(&path).expect("there"), b"old");
        assert_eq!(names(dir.path()), ["p.txt"]);
    }

    #[test]
    fn under_sudo_new_directories_belong_to_whom_their_parent_belongs() {
        if !crate::skip::need_root("gives a directory away") {
            return;
        }
        let caller = sudo_ids("1234", "1235");
        let dir = scratch();
        let owner = |path: &Path| {
            let stat = std::fs::metadata(path).expect("there");
            (stat.uid(), stat.gid(), stat.permissions().mode() & 0o7777)
        };
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let of_root = dir.path().join("root/.local/state");
        make_directory_of(&of_root, caller).expect("made");
        for path in [&of_root, of_root.parent().expect("one"), &dir.path().join("root")] {
            assert_eq!(owner(path), (own.0, own.1, 0o700), "{}", path.display());
        }
        let home = dir.path().join("home");
        std::fs::create_dir(&home).expect("made");
        std::os::unix::fs::chown(&home, Some(1234), Some(1235)).expect("given away");
        let of_caller = home.join(".local/state");
        make_directory_of(&of_caller, caller).expect("made");
        for path in [&of_caller, of_caller.parent().expect("one")] {
            assert_eq!(owner(path), (1234, 1235, 0o700), "{}", path.display());
        }
        // Whose it is already stays so.
        make_directory_of(&dir.path().join("root"), caller).expect("there");
        assert_eq!(owner(&dir.path().join("root")).0, own.0);
    }

    #[test]
    fn under_sudo_the_file_is_its_callers() {
        let ids = sudo_ids("1234", "1235").expect("two numbers");
        assert_eq!((ids.0.as_raw(), ids.1.as_raw()), (1234, 1235));
        for (uid, gid) in [("", "1"), ("1", "x"), ("-1", "1"), ("1", "4294967295")] {
            assert_eq!(sudo_ids(uid, gid), None, "{uid} {gid}");
        }
        if !crate::skip::need_root("gives a file away") {
            return;
        }
        let dir = scratch();
        let path = dir.path().join("p.txt");
        save_with(&path, Some(ids), |file| file.write_all(b"x")).expect("saved");
        let stat = std::fs::metadata(&path).expect("there");
        assert_eq!(
            (stat.uid(), stat.gid(), stat.permissions().mode() & 0o7777),
            (1234, 1235, 0o600)
        );
    }

    #[test]
    fn nothing_is_written_through_a_link_or_over_what_is_no_file() {
        let dir = scratch();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").expect("written");
        let link = dir.path().join("link");
        symlink(&victim, &link).expect("linked");
        let dangling = dir.path().join("dangling");
        symlink(dir.path().join("nowhere"), &dangling).expect("linked");
        std::fs::create_dir(dir.path().join("sub")).expect("made");
        for (name, word) in
            [("link", "symbolic link"), ("dangling", "symbolic link"), ("sub", "directory")]
        {
            let path = dir.path().join(name);
            assert!(probe(&path).expect_err(name).contains(word), "{name}");
            assert!(save(&path, b"x").expect_err(name).contains(word), "{name}");
        }
        assert_eq!(std::fs::read(&victim).expect("there"), b"precious");
        assert_eq!(names(dir.path()), ["dangling", "link", "sub", "victim"]);
        // Renaming over a device would replace it for the whole system.
        assert!(probe(Path::new("/dev/null")).expect_err("a device").contains("no regular file"));
    }

    #[test]
    fn what_cannot_be_written_is_told_beforehand() {
        let dir = scratch();
        for path in [
            dir.path().join("missing/p.txt"),
            "/proc/p.txt".into(),
            dir.path().join("p/"),
            "..".into(),
            "".into(),
        ] {
            let error = probe(&path).expect_err(&path.to_string_lossy());
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(save(&path, b"x").is_err());
        }
        let long = dir.path().join("x".repeat(300));
        assert!(probe(&long).expect_err("too long").contains("too long"));
    }

    #[test]
    fn only_our_own_files_and_folders_are_taken() {
        let dir = scratch();
        let folder = dir.path().join("a/b");
        own_directory(&folder).expect("made");
        own_directory(&folder).expect("there");
        assert_eq!(std::fs::metadata(&folder).expect("there").permissions().mode() & 0o7777, 0o700);
        let path = folder.join("p");
        save(&path, b"x").expect("saved");
        open_own(&path).expect("ours");
        let link = dir.path().join("link");
        symlink(&path, &link).expect("linked");
        assert!(
            open_own(&link).is_err()
                && open_own(&folder).is_err()
                && open_own(&folder.join("none")).is_err()
        );
        let link = dir.path().join("folder");
        symlink(&folder, &link).expect("linked");
        assert!(own_directory(&link).is_err());
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o770)).expect("changed");
        assert!(
            own_directory(&folder).expect_err("others write there").contains("others can write")
        );
        if crate::skip::need_root("gives a file away") {
            std::os::unix::fs::chown(&path, Some(1234), None).expect("given away");
            assert!(open_own(&path).is_err());
        }
    }

    #[test]
    fn names_left_by_an_earlier_run_are_passed_over() {
        let dir = scratch();
        let planted =
            |n: u32| dir.path().join(format!(".sampletop-{}-{n}.tmp", std::process::id()));
        for n in 0..200 {
            std::fs::write(planted(n), "planted").expect("made");
        }
        let path = dir.path().join("p.txt");
        // 16 attempts per save: a few saves get past the existing files.
        assert!((0..20).any(|_| save(&path, b"x").is_ok()));
        assert_eq!(std::fs::read(&path).expect("there"), b"x");
        for n in 0..200 {
            assert_eq!(std::fs::read(planted(n)).expect("it is left alone"), b"planted");
        }
    }

    #[test]
    fn names_are_fit_for_any_file_system_and_known_again() {
        let at = 1_767_323_045 * 1_000_000_000;
        assert_eq!(
            name("node-7.example", "42", at, "txt"),
            "sampletop-node-7.example-42-20260102T030405Z.txt"
        );
        assert_eq!(
            name("../a b/é\u{1b}", "x/.*", at, "json"),
            "sampletop-a-b-x-20260102T030405Z.json"
        );
        assert_eq!(name("", "", at, "txt"), "sampletop-host-processes-20260102T030405Z.txt");
        assert!(name(&"h".repeat(500), &"l".repeat(500), at, "txt").len() < 192);
        assert!(name("h", "1", i128::MAX, "txt").starts_with("sampletop-h-1-1970"));
        let known = |text: &str| is_named(text, "a-b", "x", "txt");
        assert!(
            known(&name("a-b", "x", at, "txt"))
                && known("sampletop-a-b-x-20260102T030405Z_002.txt")
        );
        for other in [
            "sampletop-a-b-x-y-20260102T030405Z.txt",
            "sampletop-a-b-x-20260102T030405Z.tx",
            "a-b-x.txt",
        ] {
            assert!(!known(other), "{other}");
        }
    }
}
