//! The name that a process was started by, where that is a link to its program: `redis-server` runs
//! the file `redis-check-rdb`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::mapped_files::{FileKind, MappedFile};
use crate::process::{target, target_files};

/// Maximum bytes read of the command line and of the kernel's name: a path, and what a program may
/// put behind it.
const READ_MAX: u64 = 8192;
/// Directories that are searched for a name without a slash, after the program's directory.
const PLACES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Returns the base name that the file's process was started by. The file must be the process's
/// program, and that name another one of the same file. May block where the target's file system
/// does.
pub fn started_as(file: &MappedFile) -> Option<OsString> {
    if file.kind != FileKind::Regular || file.deleted {
        return None;
    }
    let pid = target::thread_with_memory(file.pid).unwrap_or(file.pid);
    let exe = format!("/proc/{pid}/exe");
    if std::fs::read_link(&exe).ok()? != file.path {
        return None;
    }
    let program = std::fs::metadata(&exe).ok()?;
    let same = |path: &Path| {
        let found =
            target_files::beneath(pid, path).and_then(|found| Ok(rustix::fs::fstat(&found)?));
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == (program.dev(), program.ino()))
    };
    let read = |name: &str| {
        let mut bytes = Vec::new();
        File::open(format!("/proc/{pid}/{name}"))
            .ok()?
            .take(READ_MAX)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    };
    // First the path it was started as, or what remains where the program wrote its title over
    // that; then the kernel's name.
    let (arguments, name) = (read("cmdline").unwrap_or_default(), read("comm").unwrap_or_default());
    let first = arguments.split(|byte| *byte == 0).next().unwrap_or_default();
    let word = first.split(|byte| *byte == b' ').next().unwrap_or_default();
    for typed in [first, word, name.trim_ascii_end()] {
        let typed = Path::new(OsStr::from_bytes(typed));
        let Some(base) = typed.file_name() else { continue };
        if Some(base) == file.path.file_name() {
            return None;
        }
        if paths(pid, typed, base, &file.path).iter().any(|path| same(path)) {
            return Some(base.to_owned());
        }
    }
    None
}

/// Returns the paths that the typed name may mean, as the process sees them.
fn paths(pid: u32, typed: &Path, base: &OsStr, program: &Path) -> Vec<PathBuf> {
    if typed.is_absolute() {
        return vec![typed.to_owned()];
    }
    if typed.as_os_str() != base {
        // `./app`, if it is still in the directory where it was started.
        return std::fs::read_link(format!("/proc/{pid}/cwd"))
            .map(|place| place.join(typed))
            .into_iter()
            .collect();
    }
    let places = program.parent().into_iter().chain(PLACES.map(Path::new));
    places.map(|place| place.join(base)).collect()
}
