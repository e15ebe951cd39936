//! Where the file is, and whether its text may be trusted.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Gid, Mode, OFlags, Stat, Uid};

use crate::sinks::file;

/// Maximum bytes of the file.
const SIZE_MAX: u64 = 1 << 20;

/// Returns the default path: in the XDG configuration directory. Under sudo it is the caller's.
/// `None`: no home directory is known.
pub fn default_path() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || match file::caller_under_sudo() {
        // HOME is root's there, as a rule.
        Some((uid, _)) => absolute("SUDO_HOME")
            .or_else(|| home_of(&std::fs::read("/etc/passwd").ok()?, uid.as_raw())),
        None => absolute("HOME"),
    };
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))?;
    Some(directory.join("sampletop/config.toml"))
}

/// Returns the home directory of a user in the text of /etc/passwd.
fn home_of(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    // Names of users may have any bytes.
    let lines = passwd.split(|byte| *byte == b'\n');
    let fields = lines.map(|line| line.split(|byte| *byte == b':').collect::<Vec<_>>());
    let id = |fields: &[&[u8]]| std::str::from_utf8(fields.get(2)?).ok()?.parse().ok();
    let mut of_user = fields.filter(|fields| id(fields) == Some(uid));
    let home = PathBuf::from(OsStr::from_bytes(of_user.next()?.get(5)?));
    home.is_absolute().then_some(home)
}

/// Why this path is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// It is the default. It may be missing or out of reach, and must not be another user's.
    ByDefault,
    /// The user named it. It must exist.
    ByUser,
}

/// Reads the file; `None` if it is missing. Fails with one sentence, which quotes nothing of it.
pub fn read(path: &Path, named: Named) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| {
        format!("cannot read the configuration `{}`: {}", file::shown(path), file::why(&error))
    };
    // NONBLOCK, so that a FIFO without a writer does not hang the start.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(error) => {
            use rustix::io::Errno;
            let is_out_of_reach = matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS);
            return match named == Named::ByDefault && is_out_of_reach {
                true => Ok(None),
                false => Err(failed(error.into())),
            };
        }
    };
    let stat = rustix::fs::fstat(&opened).map_err(|error| failed(error.into()))?;
    check(&stat, named)
        .map_err(|why| format!("the configuration `{}` is not used: {why}", file::shown(path)))?;
    let mut bytes = Vec::new();
    let mut opened = std::fs::File::from(opened).take(SIZE_MAX + 1);
    opened.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(format!("the configuration `{}` has more than 1 MB", file::shown(path)));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(format!("the configuration `{}` is not UTF-8 text", file::shown(path))),
    }
}

/// Checks who may have written the file, and under sudo that its caller may read it.
fn check(stat: &Stat, named: Named) -> Result<(), &'static str> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err("it is a directory");
    }
    // Others, as the pipe of `<(COMMAND)`, may have no text yet: it is not waited for.
    if named == Named::ByUser && !is_file && !is_null(stat) {
        return Err("it is neither a regular file nor /dev/null");
    }
    let is_callers = |(uid, _): (Uid, Gid)| uid.as_raw() == stat.st_uid;
    // Root reads every file, and a sentence about a wrong value quotes it.
    if file::caller_under_sudo().is_some_and(|caller| !is_callers(caller))
        && stat.st_mode & 0o004 == 0
    {
        return Err("the user who called sudo may not read it");
    }
    if is_file && stat.st_mode & 0o002 != 0 {
        return Err("all users may write it; `chmod o-w` mends that");
    }
    match named == Named::ByDefault && !(is_file && (file::is_ours(stat) || stat.st_uid == 0)) {
        true => Err("it is no file of yours or root's; name it with --config if you trust it"),
        false => Ok(()),
    }
}

/// Returns whether it is /dev/null: character device 1, 3 (Linux, admin-guide/devices.txt).
fn is_null(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_home_is_found_in_the_list_of_users() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/sh\nbad\nzo\xeb:x:9:9:Zo\xeb:/home/zo\xeb:/bin/sh\n\
                       ann:x:1000:1000:Ann:/home/ann:/bin/sh\nsvc:x:7:7::nohome:/bin/false\n";
        assert_eq!(home_of(passwd, 1000), Some("/home/ann".into()));
        assert_eq!(home_of(passwd, 0), Some("/root".into()));
        assert_eq!((home_of(passwd, 7), home_of(passwd, 8), home_of(b"", 0)), (None, None, None));
        let other = home_of(passwd, 9).expect("it has one");
        assert_eq!(other.as_os_str().as_bytes(), b"/home/zo\xeb");
    }

    #[test]
    fn a_default_may_be_missing_and_a_named_file_may_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = dir.path().join("none/config.toml");
        assert_eq!(read(&missing, Named::ByDefault), Ok(None));
        let sentence = read(&missing, Named::ByUser).expect_err("missing");
        assert!(sentence.contains("none/config.toml`: no such file"), "{sentence}");
        assert!(read(dir.path(), Named::ByUser).expect_err("a directory").contains("directory"));
        assert_eq!(read(Path::new("/dev/null"), Named::ByUser), Ok(Some(String::new())));
        // A pipe may have no text yet.
        let (output, mut input) = std::io::pipe().expect("a pipe");
        std::io::Write::write_all(&mut input, b"idle = true").expect("written");
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", output.as_raw_fd()));
        for path in [&pipe, Path::new("/dev/zero")] {
            let sentence = read(path, Named::ByUser).expect_err("no file");
            assert!(sentence.contains("neither a regular file nor /dev/null"), "{sentence}");
        }
    }

    #[test]
    fn links_are_followed_and_what_others_may_write_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("config.toml"), dir.path().join("link"));
        std::fs::write(&path, "idle = true").expect("written");
        symlink(&path, &link).expect("linked");
        for named in [Named::ByDefault, Named::ByUser] {
            assert_eq!(read(&link, named), Ok(Some("idle = true".into())));
        }
        let mode = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
        };
        mode(0o664);
        assert!(read(&path, Named::ByDefault).is_ok());
        mode(0o646);
        for named in [Named::ByDefault, Named::ByUser] {
            assert!(read(&path, named).expect_err("others write").contains("chmod o-w"));
        }
        mode(0o600);
        std::fs::write(&path, [b'#', 0xff]).expect("written");
        assert!(read(&path, Named::ByUser).expect_err("bytes").contains("UTF-8"));
        std::fs::write(&path, vec![b'#'; (SIZE_MAX + 1) as usize]).expect("written");
        assert!(read(&path, Named::ByUser).expect_err("large").contains("1 MB"));
    }

    #[test]
    fn another_users_file_is_used_only_if_it_was_named() {
        if !crate::skip::need_root("gives a file away") {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.toml");
        std::fs::write(&path, "").expect("written");
        std::os::unix::fs::chown(&path, Some(1234), None).expect("given away");
        assert!(read(&path, Named::ByDefault).expect_err("foreign").contains("--config"));
        assert_eq!(read(&path, Named::ByUser), Ok(Some(String::new())));
    }
}
