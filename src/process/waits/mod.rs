//! Finds out what a blocked thread waits for: the file or peer behind a descriptor, the process at
//! the other end, the owner of a mutex, the time a sleep takes. It is used for single threads on
//! request, never for all of them at each tick, and never on the sampler's thread. What is read
//! here is the target's and may block (its memory may be on a file server).
//!
//! The result is valid for the wait that was requested: the thread's counters and its system call
//! are compared before and after. Otherwise there is none.

pub mod accept_queues;
pub mod children;
pub mod endpoint_iterator;
pub mod endpoints;
mod other_end;
mod sockets;
pub mod unix_peers;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

pub use sockets::{parse_inet, parse_unix};

use crate::clock;
use crate::model::projection::waits::{
    Answer, Asked, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_WAIT, FUTEX_WAIT_BITSET, Facts, Lock,
    NAMED, Object, Peer, PeerActivity, PeerProcess, Time, Timer, WaitsFor, describe, read_call,
};
use crate::model::vocabulary::blocker::{BlockerKind, RawHolder};
use crate::model::vocabulary::event::{Counters, Syscall};
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
use crate::model::vocabulary::text::clean_bytes;
use crate::process::blockers::{
    BlockedThread, file_lock_holder, mutex_owner, native_blocker, pi_owner,
};
use crate::process::memory::{Memory, ReadMemory};
use crate::process::target;
use crate::process::threads::{Doing, Tasks, ThreadFiles};
use accept_queues::{Listeners, Pending};
use other_end::{Opened, OtherEnds, name_of};
use sockets::Sockets;

/// Maximum bytes kept of a file's or socket's name.
const NAME_MAX: usize = 300;
/// Maximum size of a descriptor table for which the descriptors of an epoll set are counted. The
/// kernel holds the set's lock while it lists them, and the target must not wait for us.
const TABLE_MAX: u64 = 1024;
/// Maximum threads that are searched for an id of the process's own pid namespace.
const SEARCHED: usize = 4096;

/// Reads what threads wait for. Expensive results (the tables of sockets) are cached and read again
/// after a while.
#[derive(Default)]
pub struct Waits {
    sockets: Sockets,
    other_ends: OtherEnds,
    listeners: Listeners,
    /// For this batch: how many descriptors an epoll set watches. Threads of a process that no
    /// longer share one table of descriptors are treated as if they did.
    epolls: HashMap<(u32, i32), Option<usize>>,
}

impl Waits {
    /// Passes each answer to `each` as soon as it is known, until that returns false. There is none
    /// for a thread that has run since, or of which nothing is known.
    pub fn observe_all(&mut self, all: &[Asked], mut each: impl FnMut(Answer) -> bool) {
        self.epolls.clear();
        let mut permitted = HashMap::new();
        let mut all: Vec<&Asked> = all.iter().collect();
        all.retain(|asked| {
            let pid = asked.thread.pid;
            *permitted.entry(pid).or_insert_with(|| target::permitted(pid))
        });
        // Listing all sockets may take longer than a wait lasts, so that is done before.
        self.other_ends.begin(all.iter().any(|asked| {
            let thread = Thread::new(asked.thread);
            thread.only_fd(asked.call).is_some_and(|fd| Opened::read(&thread.place, fd).is_some())
        }));
        for asked in all {
            if let Some(waits_for) = self.observe(asked)
                && !each(Answer { asked: *asked, waits_for })
            {
                return;
            }
        }
    }

    fn observe(&mut self, asked: &Asked) -> Option<WaitsFor> {
        let ThreadKey { pid, tid, start } = asked.thread;
        // From here on the directory's descriptor identifies the process.
        let tasks = Tasks::open(pid, 4).ok()?;
        let mut files = tasks.thread(tid);
        let before = Position::read(&tasks, &mut files)?;
        let Doing::Blocked { call, .. } = before.doing else { return None };
        if !is_same_wait(&asked.call, &call) || tasks.stat(&mut files).ok()?.start != start {
            return None;
        }
        let thread = Thread::new(asked.thread);
        let facts = self.facts(asked, &thread)?;
        let waits_for = describe(asked, &facts)?;
        (Position::read(&tasks, &mut files)? == before).then_some(waits_for)
    }

    fn facts(&mut self, asked: &Asked, thread: &Thread) -> Option<Facts> {
        let (_, object) = read_call(asked.call)?;
        let mut facts = Facts::default();
        if let Some(fd) = thread.only_fd(asked.call)
            && let Some(opened) = Opened::read(&thread.place, fd)
        {
            facts.other_end = self.other_ends.of(thread.pid, opened);
            if facts.other_end.is_none() {
                facts.other_end = self.server(thread, opened.inode);
            }
        }
        match object {
            Object::Nothing => {}
            Object::Child(child) => facts.other_end = children::awaited(thread, child),
            Object::Fd(fd) => {
                self.name(&mut facts, thread, fd);
                facts.holder = thread.file_lock_holder(&asked.call);
            }
            Object::Epoll(fd) => {
                facts.watched = *self
                    .epolls
                    .entry((thread.pid, fd))
                    .or_insert_with(|| thread.watched(fd).map(|fds| fds.len()));
            }
            Object::Poll { at, count } => {
                for fd in thread.polled(at, count).into_iter().take(NAMED) {
                    self.name(&mut facts, thread, fd);
                }
            }
            Object::Select { below, sets } => {
                if let Some(fds) = thread.selected(below, sets) {
                    facts.watched = Some(fds.len());
                    for fd in fds.into_iter().take(NAMED) {
                        self.name(&mut facts, thread, fd);
                    }
                }
            }
            Object::Connect { fd, at, len } => {
                facts.peer = thread.address(at, len);
                let opened = Opened::read(&thread.place, fd);
                facts.other_end = opened.and_then(|opened| self.server(thread, opened.inode));
                if facts.peer.is_none() {
                    self.name(&mut facts, thread, fd);
                }
            }
            Object::Path(at) => facts.path = thread.path(at),
            Object::Sleep(timer) => facts.time = thread.time(timer),
            Object::Futex { at, command, value } => {
                let owner = match command {
                    FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
                        thread.memory.read_u64(at).and_then(|word| pi_owner(word as u32))
                    }
                    FUTEX_WAIT | FUTEX_WAIT_BITSET if asked.lock == Lock::Mutex => {
                        thread.mutex_owner(at, value)
                    }
                    _ => None,
                };
                facts.holder = owner.and_then(|owner| thread.name_of(owner));
            }
        }
        Some(facts)
    }

    /// Returns the process that has not accepted the connection of a socket yet.
    fn server(&mut self, thread: &Thread, inode: u64) -> Option<Peer> {
        let Pending { listener, before } = self.sockets.pending(&thread.place, inode)?;
        let pid = self.listeners.process(listener?)?;
        let name = name_of(pid)?;
        let activity = Some(match before {
            None => PeerActivity::NotAccepted,
            Some(connections) => PeerActivity::Full { connections },
        });
        Some(Peer { processes: vec![PeerProcess { name, pid }], activity, ..Peer::default() })
    }

    /// Adds the name of the file behind `fd` to the facts.
    fn name(&mut self, facts: &mut Facts, thread: &Thread, fd: i32) {
        let name = if fd < 0 { None } else { self.file(thread, fd) };
        facts.files.push((fd, name.unwrap_or_default()));
    }

    fn file(&mut self, thread: &Thread, fd: i32) -> Option<String> {
        // Reading the link does not touch the file.
        let link = fs::read_link(format!("{}/fd/{fd}", thread.place)).ok()?;
        let link = link.as_os_str().as_bytes();
        if let Some(inode) = numbered(link, b"socket:[") {
            return Some(self.sockets.name(&thread.place, inode));
        }
        if numbered(link, b"pipe:[").is_some() {
            return Some("pipe".into());
        }
        if let Some(kind) = link.strip_prefix(b"anon_inode:") {
            let kind =
                kind.strip_prefix(b"[").and_then(|kind| kind.strip_suffix(b"]")).unwrap_or(kind);
            return Some(clean_bytes(kind, NAME_MAX));
        }
        Some(clean_bytes(link, NAME_MAX))
    }
}

/// Parses the number in `socket:[123]`.
fn numbered(link: &[u8], kind: &[u8]) -> Option<u64> {
    std::str::from_utf8(link.strip_prefix(kind)?.strip_suffix(b"]")?).ok()?.parse().ok()
}

fn first_number(line: &[u8]) -> Option<i32> {
    std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Where a thread is blocked, and its counters: equal positions mean that it did not run in
/// between.
#[derive(PartialEq, Eq)]
struct Position {
    counters: Counters,
    doing: Doing,
}

impl Position {
    fn read(tasks: &Tasks, files: &mut ThreadFiles) -> Option<Position> {
        Some(Position { counters: tasks.counters(files).ok()?, doing: tasks.doing(files).ok()? })
    }
}

/// A thread that was blocked when it was requested.
struct Thread {
    /// `/proc/PID/task/TID`.
    place: String,
    pid: u32,
    tid: u32,
    memory: Memory,
}

impl Thread {
    fn new(ThreadKey { pid, tid, .. }: ThreadKey) -> Thread {
        Thread { place: format!("/proc/{pid}/task/{tid}"), pid, tid, memory: Memory::new(pid) }
    }

    /// Returns the descriptor that a call waits for, if that is only one. Nothing is connected to
    /// a socket that accepts.
    fn only_fd(&self, call: Syscall) -> Option<i32> {
        match read_call(call)? {
            ("accept", _) => None,
            (_, Object::Fd(fd)) => Some(fd),
            (_, Object::Poll { at, count: 1 }) => self.polled(at, 1).first().copied(),
            (_, Object::Select { below, sets }) => match self.selected(below, sets)?.as_slice() {
                [fd] => Some(*fd),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the descriptors that an epoll set watches.
    fn watched(&self, fd: i32) -> Option<Vec<i32>> {
        let status = read_file(&format!("{}/status", self.place), 64 << 10)?;
        if line(&status, b"FDSize:")?.trim().parse::<u64>().ok()? > TABLE_MAX {
            return None;
        }
        let info = read_file(&format!("{}/fdinfo/{fd}", self.place), 1 << 20)?;
        let watched = info.split(|b| *b == b'\n').filter_map(|line| line.strip_prefix(b"tfd:"));
        Some(watched.map(|line| first_number(line).unwrap_or(-1)).collect())
    }

    /// Returns the first descriptors of a `struct pollfd[count]`; the kernel ignores negative ones
    /// too.
    fn polled(&self, at: u64, count: u32) -> Vec<i32> {
        let mut array = vec![0; 8 * count.min(64) as usize];
        if self.memory.read_exact(at, &mut array).is_none() {
            return Vec::new();
        }
        let fds = array
            .chunks_exact(8)
            .map(|entry| i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
        fds.filter(|fd| *fd >= 0).collect()
    }

    /// Returns the descriptors below `below` in any of three bit sets.
    fn selected(&self, below: u32, sets: [u64; 3]) -> Option<Vec<i32>> {
        // The limit is above the largest set that glibc creates.
        if below > 1 << 16 {
            return None;
        }
        let mut any = vec![0; below.div_ceil(64) as usize * 8];
        let mut set = any.clone();
        for at in sets.into_iter().filter(|at| *at != 0) {
            self.memory.read_exact(at, &mut set)?;
            any.iter_mut().zip(&set).for_each(|(any, byte)| *any |= byte);
        }
        let is_in = |fd: &u32| any[*fd as usize / 8] >> (fd % 8) & 1 == 1;
        Some((0..below).filter(is_in).map(|fd| fd as i32).collect())
    }

    /// Reads a `struct sockaddr`.
    fn address(&self, at: u64, len: u32) -> Option<String> {
        let mut bytes = vec![0; len.min(128) as usize];
        self.memory.read_exact(at, &mut bytes)?;
        address(&bytes)
    }

    fn path(&self, at: u64) -> Option<String> {
        let mut bytes = vec![0; 4096];
        let read = self.memory.read(at, &mut bytes);
        let path = &bytes[..read];
        // A path without a terminating zero is invalid.
        let path = &path[..path.iter().position(|b| *b == 0)?];
        Some(clean_bytes(path, NAME_MAX)).filter(|path| !path.is_empty())
    }

    fn time(&self, timer: Timer) -> Option<Time> {
        let ms = |ms: i32| Some(Time::Whole(u64::try_from(ms).ok()? * 1_000_000));
        match timer {
            Timer::Ms(time) => ms(time),
            Timer::Timespec(at) => self.pair(at, 1).map(Time::Whole),
            Timer::Timeval(at) => self.pair(at, 1000).map(Time::Whole),
            Timer::Until { clock, at } => {
                let now = match clock {
                    0 => clock::realtime(),
                    1 => clock::monotonic(),
                    7 => clock::boottime(),
                    _ => return None,
                };
                Some(Time::Left(self.pair(at, 1)?.saturating_sub(now)))
            }
        }
    }

    /// Reads seconds and a fraction in units of `unit` ns.
    fn pair(&self, at: u64, unit: u64) -> Option<Ns> {
        let seconds = i64::try_from(self.memory.read_u64(at)?).ok()?.unsigned_abs();
        let part = self.memory.read_u64(at.checked_add(8)?)?.checked_mul(unit)?;
        (part < SECOND).then(|| seconds.saturating_mul(SECOND).saturating_add(part))
    }

    /// Returns who holds the file lock that the thread waits for: `process 4711 (postgres)`.
    fn file_lock_holder(&self, call: &Syscall) -> Option<String> {
        let numbered = |number: u32| self.thread_numbered(number);
        let waits = BlockedThread {
            pid: self.pid,
            tid: self.tid,
            memory: &self.memory,
            thread_id: &numbered,
        };
        let lock =
            native_blocker(&waits, call).filter(|lock| lock.kind == BlockerKind::FileLock)?;
        let RawHolder::Thread { pid, .. } = file_lock_holder(self.pid, call, lock.object) else {
            return None;
        };
        Some(format!("process {pid} ({})", name_of(pid)?))
    }

    fn mutex_owner(&self, at: u64, value: u32) -> Option<u32> {
        let mut mutex = [0; 20];
        self.memory.read_exact(at, &mut mutex)?;
        mutex_owner(&mutex, value)
    }

    /// Returns the name of another thread of the process, by its id in the process's own pid
    /// namespace.
    fn name_of(&self, number: u32) -> Option<String> {
        let tid = self.thread_numbered(number).filter(|tid| *tid != self.tid)?;
        // A thread that has ended has no name here; then it no longer owns the mutex.
        let name = read_file(&format!("/proc/{}/task/{tid}/comm", self.pid), 64)?;
        Some(clean_bytes(name.strip_suffix(b"\n").unwrap_or(&name), 64))
    }

    /// Returns whether the thread's PID namespace is that of our /proc.
    fn shares_our_ids(&self) -> Option<bool> {
        Some(ids_inside(&self.place)?.len() == 1)
    }

    fn thread_numbered(&self, number: u32) -> Option<u32> {
        if number == 0 {
            return None;
        }
        if self.shares_our_ids()? {
            return Some(number);
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let tids =
            tasks.take(SEARCHED).filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut tids = tids.filter(|tid: &u32| {
            ids_inside(&format!("/proc/{}/task/{tid}", self.pid))
                .is_some_and(|ids| ids.last() == Some(&number))
        });
        tids.next()
    }
}

/// Returns whether two calls of a thread wait for the same: a loop that writes does so with other
/// buffers each time.
fn is_same_wait(asked: &Syscall, now: &Syscall) -> bool {
    const FCNTL: i32 = 72;
    const FLOCK: i32 = 73;
    let is_io = matches!(read_call(*asked), Some((_, Object::Fd(_))));
    let of_file = is_io && !matches!(asked.number, FCNTL | FLOCK);
    asked == now || (of_file && (asked.number, asked.args[0]) == (now.number, now.args[0]))
}

/// Returns the ids of a thread in its PID namespaces, the innermost last.
fn ids_inside(place: &str) -> Option<Vec<u32>> {
    let status = read_file(&format!("{place}/status"), 64 << 10)?;
    Some(line(&status, b"NSpid:")?.split_ascii_whitespace().flat_map(str::parse).collect())
}

/// Formats a `struct sockaddr` of the families inet, inet6 and unix.
pub fn address(bytes: &[u8]) -> Option<String> {
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?) {
        1 => unix_name(bytes.get(2..)?),
        2 => {
            let ip = Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?);
            Some(inet(ip.into(), port()?))
        }
        10 => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?);
            Some(inet(ip.into(), port()?))
        }
        _ => None,
    }
}

/// Formats `10.0.3.9:5432`, `[::1]:443`; for the any address, `:8080`.
fn inet(ip: IpAddr, port: u16) -> String {
    let ip = ip.to_canonical();
    if ip.is_unspecified() { format!(":{port}") } else { SocketAddr::new(ip, port).to_string() }
}

/// Reads `sun_path`: a path up to a zero byte, or a name in the abstract namespace, which begins
/// with one.
fn unix_name(path: &[u8]) -> Option<String> {
    let name = match path.strip_prefix(b"\0") {
        Some(name) => format!("@{}", clean_bytes(name, NAME_MAX)),
        None => clean_bytes(path.split(|b| *b == 0).next()?, NAME_MAX),
    };
    (name.len() > 1).then_some(name)
}

/// Returns the rest of the line that begins with `key`.
fn line<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let line = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line).ok()
}

/// Reads a file that is no longer than `cap`.
fn read_file(path: &str, cap: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(cap + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= cap).then_some(bytes)
}

#[cfg(test)]
mod tests;
