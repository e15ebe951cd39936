//! The list of processes for the picker: four small files of each, a few ms for hundreds.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::model::vocabulary::text;
use crate::process::cgroup;
use crate::process::select::{Found, Processes};
use crate::process::target::unix_ns_of;

/// Maximum length of a command line, bytes.
const COMMAND_CAP: usize = 1024;
/// Maximum processes listed (Linux' default limit for pids on a large machine is 2^22).
const PROCESSES_CAP: usize = 1 << 16;
/// Maximum bytes read of a pid file.
const PIDFILE_CAP: usize = 64;
/// Uncertainty of a start time as a date, ns: start times are in clock ticks since boot, and the
/// boot time is in whole seconds.
const STARTS_ARE_ROUGH: i128 = 2_000_000_000;
/// PF_KTHREAD in include/linux/sched.h, in /proc/PID/stat's flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// One process, as it was when it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessRow {
    pub pid: u32,
    pub parent: u32,
    /// Real user id.
    pub uid: u32,
    /// The name in /etc/passwd.
    pub user: Option<String>,
    /// Command line with spaces between its arguments, or `[name]` where there is none; free of
    /// control characters.
    pub command: String,
    pub threads: u32,
    /// User and system time of all its threads including ended ones, in steps of a clock tick (10
    /// ms).
    pub cpu_ns: u64,
    /// Start time in clock ticks since boot; with `pid` its identity.
    pub start: u64,
    /// The runtime, guessed from the program's name.
    pub runtime: &'static str,
    /// Resident memory, bytes.
    pub memory: u64,
    /// Its systemd unit or container; empty if it is in none.
    pub place: String,
}

/// Returns all processes this user can see, by pid: without kernel threads, ended processes, and
/// sampletop itself.
pub fn processes() -> Vec<ProcessRow> {
    let users = users(&read(Path::new("/etc/passwd"), 1 << 20).unwrap_or_default());
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let mut rows: Vec<ProcessRow> = pids()
        .filter(|pid| *pid != std::process::id())
        .filter_map(|pid| row(pid, tick, &users))
        .collect();
    rows.sort_unstable_by_key(|row| row.pid);
    rows
}

/// Returns the ids of all processes that this user can see.
pub fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(PROCESSES_CAP)
}

/// Reads /proc/PID/stat; `None` if there is no such process.
pub fn stat(pid: u32) -> Option<Stat> {
    Stat::parse(&read(&Path::new("/proc").join(pid.to_string()).join("stat"), 4096)?)
}

/// Reads one process; `None` when it ended meanwhile or cannot be watched.
fn row(pid: u32, tick: u64, users: &HashMap<u32, String>) -> Option<ProcessRow> {
    let place = Path::new("/proc").join(pid.to_string());
    let stat = stat(pid)?;
    if stat.is_kernel_thread() || stat.has_ended() {
        return None;
    }
    let uid = real_uid(&read(&place.join("status"), 4096)?)?;
    let arguments = read(&place.join("cmdline"), COMMAND_CAP + 1).unwrap_or_default();
    let program = remoteprocess::Process { pid: pid.cast_signed() }.exe().ok();
    let first = arguments.split(|b| *b == 0).next().unwrap_or_default();
    Some(ProcessRow {
        pid,
        parent: stat.parent,
        uid,
        user: users.get(&uid).cloned(),
        command: command(&arguments, &stat.name),
        threads: stat.threads,
        cpu_ns: stat.cpu_ticks.saturating_mul(tick),
        start: stat.start,
        runtime: runtime(match &program {
            Some(path) => file_name(path.as_bytes()),
            // Another user's: only its own word for it.
            None => file_name(first),
        }),
        memory: stat.resident_pages.saturating_mul(rustix::param::page_size() as u64),
        place: cgroup::place_of(pid),
    })
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// The processes of this machine, as the rules of [`select`](super::select) ask for them.
pub struct Proc;

impl Processes for Proc {
    fn all(&mut self) -> Vec<u32> {
        pids().collect()
    }

    fn read(&mut self, pid: u32) -> Option<Found> {
        let stat = stat(pid)?;
        let watchable = !stat.is_kernel_thread() && !stat.has_ended();
        let arguments = if watchable {
            let path = Path::new("/proc").join(pid.to_string()).join("cmdline");
            read(&path, COMMAND_CAP + 1).unwrap_or_default()
        } else {
            Vec::new()
        };
        let command = command(&arguments, &stat.name);
        Some(Found { name: stat.name, command, parent: stat.parent, start: stat.start, watchable })
    }

    fn members(&mut self, group: &Path) -> Vec<u32> {
        cgroup::members(group)
    }

    fn of_unit(&mut self, name: &str) -> Vec<u32> {
        cgroup::unit(name).map_or(Vec::new(), |group| cgroup::members(&group))
    }

    fn in_file(&mut self, path: &Path) -> Option<u32> {
        let pid = std::str::from_utf8(&read(path, PIDFILE_CAP)?)
            .ok()?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()?;
        let written =
            std::fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let started = unix_ns_of(stat(pid)?.start);
        (started <= i128::try_from(written.as_nanos()).ok()? + STARTS_ARE_ROUGH).then_some(pid)
    }
}

/// Returns this process, its parent, and so on outward.
pub fn lineage() -> Vec<u32> {
    let mut line = vec![std::process::id()];
    while let Some(stat) = line.last().and_then(|pid| stat(*pid)).filter(|stat| stat.parent > 0) {
        // A circle can only come from a reused pid.
        if line.len() > 1_000 || line.contains(&stat.parent) {
            break;
        }
        line.push(stat.parent);
    }
    line
}

/// Fields of /proc/PID/stat.
#[derive(PartialEq, Eq, Debug)]
pub struct Stat {
    pub name: String,
    pub state: u8,
    pub parent: u32,
    pub flags: u64,
    pub cpu_ticks: u64,
    pub threads: u32,
    /// Clock ticks since boot.
    pub start: u64,
    /// Resident memory. The kernel counts it roughly, for speed.
    pub resident_pages: u64,
}

impl Stat {
    pub fn parse(bytes: &[u8]) -> Option<Stat> {
        // The name may contain spaces and parentheses: it ends at the last one.
        let open = bytes.iter().position(|b| *b == b'(')?;
        let close = bytes.iter().rposition(|b| *b == b')')?;
        let name = text::clean_bytes(bytes.get(open + 1..close)?, 64);
        let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1; this text starts at its field 3.
        let field = |n: usize| fields.get(n - 3).and_then(|word| word.parse::<u64>().ok());
        Some(Stat {
            name,
            state: *fields.first()?.as_bytes().first()?,
            parent: u32::try_from(field(4)?).ok()?,
            flags: field(9)?,
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            threads: u32::try_from(field(20)?).ok()?,
            start: field(22)?,
            resident_pages: field(24).unwrap_or(0),
        })
    }

    fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// A process with a zombie leader counts as alive while other threads live.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Parses the first number of the line `Uid:` in /proc/PID/status.
pub fn real_uid(status: &[u8]) -> Option<u32> {
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

fn command(arguments: &[u8], name: &str) -> String {
    let line: Vec<u8> = arguments.iter().map(|b| if *b == 0 { b' ' } else { *b }).collect();
    match text::clean_bytes(line.trim_ascii(), COMMAND_CAP) {
        line if line.is_empty() => format!("[{name}]"),
        line => line,
    }
}

/// Returns the runtime that a program with this file name usually has.
fn runtime(program: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 10] = [
        (b"java", "jvm"),
        (b"python", "python"),
        (b"pypy", "python"),
        (b"node", "node"),
        (b"ruby", "ruby"),
        (b"perl", "perl"),
        (b"php", "php"),
        (b"dotnet", "dotnet"),
        (b"beam.smp", "beam"),
        (b"lua", "lua"),
    ];
    let version = |rest: &[u8]| {
        rest.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-')) || rest == b"-fpm"
    };
    (KNOWN.iter().find(|(name, _)| program.strip_prefix(*name).is_some_and(version)))
        .map_or("native", |(_, word)| word)
}

fn users(passwd: &[u8]) -> HashMap<u32, String> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|b| *b == b':');
        let name = text::clean_bytes(fields.next()?, 32);
        Some((std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?, name))
    };
    // If an id has several names the first counts, as for getpwuid.
    let mut users = HashMap::new();
    for (uid, name) in passwd.split(|b| *b == b'\n').filter_map(line) {
        users.entry(uid).or_insert(name);
    }
    users
}

/// Reads at most `cap` bytes of a small file.
fn read(path: &Path, cap: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(cap as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn a_pid_file_names_a_process_older_than_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("x.pid");
        let own = std::process::id();
        assert_eq!(Proc.in_file(&path), None);
        for (text, found) in
            [(format!(" {own}\n"), Some(own)), ("x".into(), None), (String::new(), None)]
        {
            std::fs::write(&path, &text).expect("written");
            assert_eq!(Proc.in_file(&path), found, "{text:?}");
        }
        std::fs::write(&path, own.to_string()).expect("written");
        let before = std::time::SystemTime::now() - std::time::Duration::from_secs(100_000);
        let file = File::options().write(true).open(&path).expect("there");
        file.set_modified(before).expect("set");
        assert_eq!(Proc.in_file(&path), None, "it is older than this process: another's");
    }

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let line = b"42 (a) R (b) S 1 42 42 0 -1 4194560 1 2 3 4 500 60 7 8 20 0 9 0 1234567 100 200 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                name: "a) R (b".into(),
                state: b'S',
                parent: 1,
                flags: 4194560,
                cpu_ticks: 560,
                threads: 9,
                start: 1234567,
                resident_pages: 200,
            }
        );
    }

    #[test]
    fn garbage_is_no_process() {
        for line in [
            &b""[..],
            b"(",
            b")(",
            b"1 (x)",
            b"1 (x) S",
            b"1 (x) S 1 2 3",
            b"\xff\xff(\xff)\xff\xff",
        ] {
            assert_eq!(Stat::parse(line), None);
        }
        assert_eq!(real_uid(b"Name:\tx\nUid:\tnobody\n"), None);
        assert_eq!(real_uid(b"Name:\tx\nUid:\t7\t8\t9\t9\n"), Some(7));
    }

    #[test]
    fn commands_are_one_clean_line() {
        assert_eq!(command(b"java\0-jar\0shop.jar\0", "java"), "java -jar shop.jar");
        assert_eq!(command(b"\x1b[2Jx\0\0", "x"), "[2Jx");
        assert_eq!(command(b"", "name"), "[name]");
        assert_eq!(command(&[b'x'; 5000], "x").len(), COMMAND_CAP);
    }

    #[test]
    fn runtimes_by_program_name() {
        for (name, word) in
            [("java", "jvm"), ("python3.11", "python"), ("node", "node"), ("php-fpm", "php")]
        {
            assert_eq!(runtime(name.as_bytes()), word, "{name}");
        }
        for name in ["javac", "nodejs-like", "sampletop", "", "pythonista", "luajit"] {
            assert_eq!(runtime(name.as_bytes()), "native", "{name}");
        }
    }

    #[test]
    fn first_name_of_a_user_counts() {
        let users = users(b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbroken\nme:x:1000:1000::/:/bin/sh\n");
        assert_eq!((users[&0].as_str(), users[&1000].as_str(), users.len()), ("root", "me", 2));
    }

    #[test]
    fn lists_a_child_but_not_itself_and_no_kernel_threads() {
        let mut child = Command::new("cat")
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Read it only after it has answered: during an exec its command line is empty for a
        // moment.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let rows = processes();
        child.kill().unwrap();
        child.wait().unwrap();
        let row = rows.iter().find(|row| row.pid == child.id()).expect("the child is listed");
        assert_eq!((row.command.as_str(), row.threads, row.runtime), ("cat -", 1, "native"));
        assert_eq!(row.uid, rustix::process::getuid().as_raw());
        assert!(row.start > 0 && row.memory > 0 && row.parent == std::process::id());
        assert!(
            rows.iter().all(|row| row.pid != std::process::id() && row.pid != 2),
            "itself, or kthreadd"
        );
        assert!(rows.is_sorted_by_key(|row| row.pid));
    }
}
