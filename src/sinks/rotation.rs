//! Destinations of successive reports: standard output, the end of a file, or a new file each in a
//! directory.
//!
//! Written reports stay: a report that does not fit on the disk is removed whole, and a file is
//! never overwritten.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::file;
use crate::config::Kept;

/// The names of a directory's files: `sampletop-HOST-LABEL-UTC.EXTENSION`.
#[derive(Clone, Debug)]
pub struct Names {
    pub host: String,
    /// The target's label; the same from report to report.
    pub label: String,
    pub extension: &'static str,
}

pub struct Series {
    to: To,
}

enum To {
    Stdout,
    /// `None`: it could not be reopened.
    File {
        path: PathBuf,
        file: Option<File>,
    },
    Directory {
        path: PathBuf,
        names: Names,
        kept: Kept,
    },
}

/// Returns whether reports go into separate files there: the path ends in `/`, or is a directory.
pub fn is_directory(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir()
}

impl Series {
    /// Opens the destination. `None`: standard output. Creates a missing directory, but not its
    /// parents. Returns one sentence if nothing could be written.
    pub fn open(path: Option<&Path>, names: Names, kept: Kept) -> Result<Series, String> {
        let to = match path {
            None => To::Stdout,
            Some(path) if is_directory(path) => {
                if !path.is_dir() {
                    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
                    made.map_err(|error| failed(path, &error))?;
                    file::give_to_caller(&File::open(path).map_err(|error| failed(path, &error))?)
                        .map_err(|error| failed(path, &error))?;
                }
                file::probe(&path.join(file::name(&names.host, &names.label, 0, names.extension)))?;
                To::Directory { path: path.into(), names, kept }
            }
            Some(path) => To::File { path: path.into(), file: Some(open_end(path)?) },
        };
        Ok(Series { to })
    }

    /// Starts a new file after the old one was moved away.
    pub fn reopen(&mut self) -> Result<(), String> {
        if let To::File { path, file } = &mut self.to {
            *file = None;
            *file = Some(open_end(path)?);
        }
        Ok(())
    }

    /// Writes one report; `till_unix_ns`, the end of its interval, names its file. On failure
    /// returns one sentence; nothing of the report is there then, and all earlier ones are.
    pub fn write(&mut self, report: &[u8], till_unix_ns: i128) -> Result<(), String> {
        match &mut self.to {
            To::Stdout => {
                let mut out = io::stdout().lock();
                let written = out.write_all(report).and_then(|()| out.flush());
                written.map_err(|error| {
                    format!("cannot write to standard output: {}", file::why(&error))
                })
            }
            To::File { path, file } => {
                // The file was deleted, not moved with a signal: no reader would see what is
                // appended to it.
                if file.as_ref().is_some_and(|open| open.metadata().is_ok_and(|of| of.nlink() == 0))
                {
                    *file = None;
                }
                let open = match file {
                    Some(open) => open,
                    None => file.insert(open_end(path)?),
                };
                append_with(open, |file| file.write_all(report))
                    .map_err(|error| failed(path, &error))
            }
            To::Directory { path, names, kept } => {
                let first = file::name(&names.host, &names.label, till_unix_ns, names.extension);
                let stem = &first[..first.len() - names.extension.len() - 1];
                let (mut name, mut nth) = (first.clone(), 0);
                // Two reports within a second: the later sorts after the first.
                while path.join(&name).exists() {
                    nth += 1;
                    name = format!("{stem}_{nth:03}.{}", names.extension);
                }
                file::save(&path.join(&name), report)?;
                clear(path, names, *kept, &name);
                Ok(())
            }
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot write `{}`: {}", file::shown(path), file::why(error))
}

/// Opens a file for appending; creates it if it is missing.
fn open_end(path: &Path) -> Result<File, String> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let place = file::Place::of(path)?;
    let open = |flags, mode| rustix::fs::openat(&place.directory, place.name, flags, mode);
    let there = open(flags, Mode::empty());
    let opened = match there {
        Err(rustix::io::Errno::NOENT) => {
            let made = open(flags | OFlags::CREATE | OFlags::EXCL, file::MODE).map(File::from);
            made.map_err(io::Error::from)
                .and_then(|made| file::give_to_caller(&made).map(|()| made))
        }
        Err(rustix::io::Errno::LOOP) => {
            let shown = file::shown(path);
            return Err(format!(
                "`{shown}` is a symbolic link, which is not written through; name a file"
            ));
        }
        there => there.map(File::from).map_err(io::Error::from),
    };
    let opened = opened.map_err(|error| failed(path, &error))?;
    let kind = opened.metadata().map_err(|error| failed(path, &error))?.file_type();
    let is_foreign = kind.is_file()
        && file::is_foreign(&place.directory, &opened).map_err(|error| failed(path, &error))?;
    match kind.is_file() || kind.is_char_device() {
        true if is_foreign => Err(format!(
            "`{}` is another user's file in a directory that others can write to; name a file in a directory of your own",
            file::shown(path)
        )),
        true => Ok(opened),
        false => {
            Err(format!("`{}` is no regular file; name a file, or a directory", file::shown(path)))
        }
    }
}

/// Appends all of it, or nothing.
fn append_with(file: &mut File, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let before = file.metadata()?.len();
    fill(file).inspect_err(|_| {
        let _ = file.set_len(before);
    })
}

/// Removes the oldest reports, by their names.
fn clear(directory: &Path, names: &Names, kept: Kept, newest: &str) {
    if kept == Kept::default() {
        return;
    }
    let mut ours: Vec<(String, u64)> = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name != newest && file::is_named(&name, &names.host, &names.label, names.extension) {
            let length =
                entry.metadata().ok().filter(std::fs::Metadata::is_file).map(|of| of.len());
            ours.extend(length.map(|length| (name, length)));
        }
    }
    ours.sort();
    let newest = std::fs::metadata(directory.join(newest)).map_or(0, |of| of.len());
    let (mut files, mut bytes) = (1, newest);
    for (name, length) in ours.into_iter().rev() {
        files += 1;
        bytes += length;
        if kept.files.is_some_and(|most| files > most)
            || kept.bytes.is_some_and(|most| bytes > most)
        {
            // Ignored: the next report tries again.
            let _ = std::fs::remove_file(directory.join(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const SECOND: i128 = 1_000_000_000;
    const AT: i128 = 1_767_323_045 * SECOND;

    fn names() -> Names {
        Names { host: "h".into(), label: "42".into(), extension: "txt" }
    }

    fn there(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("there");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn series(path: &Path, kept: Kept) -> Series {
        Series::open(Some(path), names(), kept).expect("it can be written")
    }

    #[test]
    fn a_file_grows_and_moves_with_its_rotation() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, moved) = (dir.path().join("r.log"), dir.path().join("r.log.1"));
        std::fs::write(&path, "before\n").expect("written");
        let mut to = series(&path, Kept::default());
        to.write(b"one\n", AT).expect("written");
        std::fs::rename(&path, &moved).expect("moved");
        to.write(b"two\n", AT).expect("written");
        assert!(!path.exists(), "no signal said that it was moved");
        to.reopen().expect("opened");
        to.write(b"three\n", AT).expect("written");
        assert_eq!(std::fs::read_to_string(&moved).expect("there"), "before\none\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "three\n");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_file_that_was_removed_is_made_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let folder = dir.path().join("logs");
        std::fs::create_dir(&folder).expect("made");
        let path = folder.join("r.log");
        let mut to = series(&path, Kept::default());
        to.write(b"one\n", AT).expect("written");
        std::fs::remove_file(&path).expect("removed");
        to.write(b"two\n", AT).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "two\n");
        std::fs::remove_dir_all(&folder).expect("removed");
        assert!(to.write(b"three\n", AT).is_err(), "its folder is gone");
        std::fs::create_dir(&folder).expect("made");
        to.write(b"four\n", AT).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "four\n");
    }

    #[test]
    fn a_report_that_does_not_fit_is_taken_back_and_the_next_is_tried() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r.log");
        let mut to = series(&path, Kept::default());
        to.write(b"first\n", AT).expect("written");
        let mut file = open_end(&path).expect("opened");
        let failed = append_with(&mut file, |file| {
            file.write_all(b"half of the s")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "first\n");
        to.write(b"third\n", AT).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "first\nthird\n");
    }

    #[test]
    fn a_directory_keeps_the_newest() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("reports/");
        let mut to = series(&path, Kept { files: Some(3), bytes: None });
        for other in [
            "sampletop-h-4-20200101T000000Z.txt",
            "sampletop-h-42-20200101T000000Z.json",
            "notes.txt",
        ] {
            std::fs::write(path.join(other), "another's").expect("written");
        }
        for second in 0..5 {
            to.write(&[b'x'; 10], AT + second * SECOND).expect("written");
        }
        let ours = |path: &Path| {
            there(path).into_iter().filter(|name| name.starts_with("sampletop-h-42-2026")).collect()
        };
        let last: Vec<String> = ours(&path);
        let stamp = |second| format!("sampletop-h-42-20260102T03040{second}Z.txt");
        assert_eq!(last, [stamp(7), stamp(8), stamp(9)]);
        assert_eq!(there(&path).len(), 6, "what is not of this series stays");
        // Limited by bytes; the newest stays whatever its size, and two of one second are two.
        let mut to = series(&path, Kept { files: None, bytes: Some(25) });
        to.write(&[b'x'; 10], AT + 4 * SECOND).expect("written");
        assert_eq!(
            ours(&path) as Vec<String>,
            [stamp(9), "sampletop-h-42-20260102T030409Z_001.txt".to_owned()]
        );
        to.write(&[b'x'; 100], AT + 60 * SECOND).expect("written");
        assert_eq!(ours(&path) as Vec<String>, ["sampletop-h-42-20260102T030505Z.txt"]);
    }

    #[test]
    fn a_file_that_another_user_planted_is_refused() {
        if !crate::skip::need_root("gives a file away") {
            return;
        }
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r.log");
        let open = || Series::open(Some(&path), names(), Kept::default()).err();
        let mode = |mode| {
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).expect("changed")
        };
        std::fs::write(&path, "theirs\n").expect("written");
        // Like /tmp. A file of our own is appended to.
        mode(0o1777);
        assert_eq!(open(), None);
        chown(&path, Some(1234), None).expect("given away");
        for others in [0o1777, 0o775, 0o757] {
            mode(others);
            let refused = open().expect("a refusal");
            assert!(
                refused.contains(&path.display().to_string()) && refused.contains("of your own"),
                "{refused}"
            );
            assert_eq!(refused.lines().count(), 1);
        }
        // Another user's own directory: they can put another file there at any time.
        mode(0o755);
        chown(dir.path(), Some(1234), None).expect("given away");
        assert!(open().is_some());
        // Where only root can write, root created the file.
        chown(dir.path(), Some(0), None).expect("taken back");
        assert_eq!(open(), None);
        mode(0o1777);
        let link = dir.path().join("link");
        symlink(&path, &link).expect("linked");
        assert!(Series::open(Some(&link), names(), Kept::default()).is_err());
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "theirs\n");
    }

    #[test]
    fn what_cannot_be_written_is_told_at_the_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = dir.path().join("link");
        symlink(dir.path().join("target"), &link).expect("linked");
        for path in [
            link,
            dir.path().join("no/such/file"),
            dir.path().join("no/such/"),
            "/proc/reports/".into(),
        ] {
            let sentence =
                Series::open(Some(&path), names(), Kept::default()).err().expect("refused");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
        assert!(there(dir.path()) == ["link"]);
    }
}
