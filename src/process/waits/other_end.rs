//! Which processes of this host have the other end of a socket or pipe, and what they do.
//!
//! The name of a process is what `ps` shows to every user. What it does is looked up only where the
//! caller may observe that process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::endpoint_iterator::EndpointIterator;
use super::endpoints::{Holder, What};
use super::{Thread, numbered, read_file};
use crate::model::projection::waits::{Object, Peer, PeerActivity, PeerProcess, read_call};
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::text::clean_bytes;
use crate::process::memory::Memory;
use crate::process::target;
use crate::process::threads::{Doing, Tasks};

/// Maximum threads of a process that are read; of one with more only the name is known.
const THREADS: usize = 64;
/// Maximum processes whose threads are read for one batch of questions.
const PROCESSES: usize = 32;
/// Maximum length of a title, cells.
const TITLE: usize = 24;

/// A socket or pipe behind a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    pub fd: i32,
    pub inode: u64,
}

impl Opened {
    /// Reads what is behind a descriptor of a process, without touching it. Also of a named pipe
    /// the link is a path: that is not recognized.
    pub fn read(place: &str, fd: i32) -> Option<Opened> {
        if fd < 0 {
            return None;
        }
        let link = fs::read_link(format!("{place}/fd/{fd}")).ok()?;
        let link = link.as_os_str().as_bytes();
        let inode = numbered(link, b"socket:[").or_else(|| numbered(link, b"pipe:["))?;
        Some(Opened { fd, inode })
    }
}

/// Finds the other ends. What processes do is read once for each batch of questions.
#[derive(Default)]
pub(super) struct OtherEnds {
    endpoints: EndpointIterator,
    processes: HashMap<u32, Option<Process>>,
}

impl OtherEnds {
    /// Begins a batch of questions. `needed`: one of them is about a socket or pipe.
    pub fn begin(&mut self, needed: bool) {
        self.processes.clear();
        if needed {
            self.endpoints.refresh();
        }
    }

    /// Returns who has the other end of a socket or pipe of `pid`; `None` if that is not another
    /// process of this host, or not known.
    pub fn of(&mut self, pid: u32, opened: Opened) -> Option<Peer> {
        let holder = Holder { pid, fd: opened.fd };
        let found = self.endpoints.found();
        let writes = match found.of(holder)?.what {
            What::Pipe { reads, writes, .. } => reads && !writes,
            What::Inet(_) | What::Unix { .. } => false,
        };
        let mut fds: Vec<(u32, Vec<Opened>)> = Vec::new();
        for other in found.others(holder, opened.inode) {
            let Some(endpoint) = found.of(other) else { continue };
            let opened = Opened { fd: other.fd, inode: endpoint.inode };
            match fds.last_mut().filter(|(pid, _)| *pid == other.pid) {
                Some((_, of)) => of.push(opened),
                None => fds.push((other.pid, vec![opened])),
            }
        }
        // A process that keeps both ends of a pipe waits for itself, if no other has one.
        if fds.is_empty() && found.is_own_pipe(holder, opened.inode) {
            let name = name_of(pid)?;
            let activity = Some(PeerActivity::Itself);
            let own = End { pid, name, title: String::new(), activity };
            return peer(vec![own], writes);
        }
        let ends: Vec<End> = fds.into_iter().filter_map(|(pid, fds)| self.end(pid, &fds)).collect();
        peer(ends, writes)
    }

    fn end(&mut self, pid: u32, opened: &[Opened]) -> Option<End> {
        let room = self.processes.len() < PROCESSES;
        let process = match self.processes.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Process::read(pid, room)),
        };
        let process = process.as_mut()?;
        let mut end = End { pid, name: process.name.clone(), title: String::new(), activity: None };
        if let Some(threads) = &mut process.threads {
            // It may have closed the descriptor since, or be another process of this id.
            let place = format!("/proc/{pid}");
            let fds: Vec<i32> = opened
                .iter()
                .filter(|opened| Opened::read(&place, opened.fd).is_none_or(|now| now == **opened))
                .map(|opened| opened.fd)
                .collect();
            if fds.is_empty() {
                return None;
            }
            end.activity = threads.activity(&fds);
        }
        if end.name == "postgres" {
            end.title = read_file(&format!("/proc/{pid}/cmdline"), 8192)
                .and_then(|line| postgres_title(&line))
                .unwrap_or_default();
        }
        Some(end)
    }
}

/// A process that has the other end open.
#[derive(Clone, PartialEq, Eq, Debug)]
struct End {
    pid: u32,
    name: String,
    title: String,
    activity: Option<PeerActivity>,
}

/// Returns the peer. Where several processes inherited the descriptor, these are the ones that wait
/// for it, if any do.
fn peer(mut ends: Vec<End>, writes: bool) -> Option<Peer> {
    let waits = |end: &End| end.activity == Some(PeerActivity::WaitsToo);
    if ends.iter().any(waits) {
        ends.retain(waits);
    }
    let (activity, title) = match ends.as_slice() {
        [] => return None,
        [end] => (end.activity, end.title.clone()),
        // Which of them will answer is not known.
        several => (several[0].activity.filter(|_| several.iter().all(waits)), String::new()),
    };
    ends.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    let processes =
        ends.into_iter().map(|end| PeerProcess { name: end.name, pid: end.pid }).collect();
    Some(Peer { processes, writes, activity, title })
}

/// Returns the name of a process's first thread.
pub(super) fn name_of(pid: u32) -> Option<String> {
    let name = read_file(&format!("/proc/{pid}/comm"), 64)?;
    Some(clean_bytes(name.strip_suffix(b"\n").unwrap_or(&name), 64))
}

/// What is known of a process in this batch.
struct Process {
    name: String,
    /// If the caller may observe it, and it has few threads.
    threads: Option<Threads>,
}

pub(super) struct Threads {
    pid: u32,
    all: Vec<ThreadNow>,
    /// What its epoll sets watch, by their descriptors.
    epolls: HashMap<i32, Vec<i32>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ThreadNow {
    tid: u32,
    /// As in /proc/PID/stat.
    state: u8,
    call: Option<Syscall>,
}

impl Process {
    fn read(pid: u32, with_threads: bool) -> Option<Process> {
        let name = name_of(pid)?;
        let may = with_threads && target::permitted(pid);
        Some(Process { name, threads: if may { Threads::read(pid) } else { None } })
    }
}

impl Threads {
    pub fn read(pid: u32) -> Option<Threads> {
        let tasks = Tasks::open(pid, 4).ok()?;
        let mut tids = Vec::new();
        tasks.list(&mut tids).ok()?;
        if tids.len() > THREADS {
            return None;
        }
        let now = |tid: u32| {
            let mut files = tasks.thread(tid);
            let call = match tasks.doing(&mut files).ok()? {
                Doing::Running => None,
                Doing::Blocked { call, .. } => Some(call),
            };
            // After the call: a thread that runs now may have been in the call before.
            let state = tasks.stat(&mut files).ok()?.state;
            tasks.forget(files);
            Some(ThreadNow { tid, state, call })
        };
        let all = tids.into_iter().filter_map(now).collect();
        Some(Threads { pid, all, epolls: HashMap::new() })
    }

    /// Returns what the process does about one of these descriptors.
    pub fn activity(&mut self, fds: &[i32]) -> Option<PeerActivity> {
        let watches: Vec<Watch> =
            (0..self.all.len()).map(|nth| self.watches(self.all[nth], fds)).collect();
        activity(&self.all, &watches)
    }

    /// Returns whether a thread waits for one of these descriptors.
    fn watches(&mut self, now: ThreadNow, fds: &[i32]) -> Watch {
        let Some((name, object)) = now.call.and_then(read_call).filter(|_| now.state == b'S')
        else {
            return Watch::No;
        };
        let among = |many: &[i32]| many.iter().any(|fd| fds.contains(fd));
        let thread = Thread {
            place: format!("/proc/{}/task/{}", self.pid, now.tid),
            pid: self.pid,
            tid: now.tid,
            memory: Memory::new(self.pid),
        };
        match object {
            Object::Fd(fd) if name != "accept" && fds.contains(&fd) => Watch::Only,
            Object::Poll { at, count } => {
                let found = among(&thread.polled(at, count));
                if !found {
                    Watch::No
                } else if count == 1 {
                    Watch::Only
                } else {
                    Watch::AmongOthers
                }
            }
            Object::Select { below, sets } => {
                let found = thread.selected(below, sets).is_some_and(|fds| among(&fds));
                if found { Watch::AmongOthers } else { Watch::No }
            }
            Object::Epoll(set) => {
                let watched = self
                    .epolls
                    .entry(set)
                    .or_insert_with(|| thread.watched(set).unwrap_or_default());
                if among(watched) { Watch::AmongOthers } else { Watch::No }
            }
            _ => Watch::No,
        }
    }
}

/// Whether a thread waits for a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    No,
    /// For this one alone.
    Only,
    AmongOthers,
}

/// Decides what a process does about a descriptor, by its threads and what each waits for.
fn activity(threads: &[ThreadNow], watches: &[Watch]) -> Option<PeerActivity> {
    if watches.contains(&Watch::Only) {
        return Some(PeerActivity::WaitsToo);
    }
    // A thread that watches all connections may have given the work to another one: that must be at
    // rest, too.
    let rests = |now: &ThreadNow| {
        let call = now.call.and_then(read_call);
        now.state == b'S'
            && call.is_some_and(|(name, object)| {
                matches!(object, Object::Futex { .. } | Object::Epoll(_) | Object::Sleep(_))
                    || matches!(name, "accept" | "poll" | "select")
            })
    };
    if watches.contains(&Watch::AmongOthers) && threads.iter().all(rests) {
        return Some(PeerActivity::WaitsToo);
    }
    // Which of several threads serves this descriptor is not known.
    let [only] = threads else { return None };
    match only.state {
        b'R' => Some(PeerActivity::Runs),
        b'D' => Some(PeerActivity::Disk),
        b'T' | b't' => Some(PeerActivity::Stopped),
        b'S' => only.call.and_then(read_call).map(|(name, _)| PeerActivity::In(name)),
        _ => None,
    }
}

/// Returns what a backend of PostgreSQL says that it does: the words behind the client's address in
/// `postgres: user database 127.0.0.1(4242) SELECT`.
fn postgres_title(line: &[u8]) -> Option<String> {
    let line = line.split(|byte| *byte == 0).next()?;
    let line = clean_bytes(line, 1024);
    let words: Vec<&str> = line.strip_prefix("postgres: ")?.split_ascii_whitespace().collect();
    let is_client = |word: &&str| {
        *word == "[local]" || {
            let port = word.strip_suffix(')').and_then(|word| word.rsplit_once('('));
            port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        }
    };
    let client = words.iter().position(is_client)?;
    let title = words.get(client + 1..)?.join(" ");
    Some(title.chars().take(TITLE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(pid: u32, activity: Option<PeerActivity>) -> End {
        End { pid, name: "web".into(), title: "SELECT".into(), activity }
    }

    #[test]
    fn of_several_processes_those_that_wait_are_preferred() {
        use PeerActivity::{Runs, WaitsToo};
        let text = |ends: &[End]| peer(ends.to_vec(), false).map(|peer| peer.to_string());
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[end(7, Some(Runs))]).as_deref(), Some("web[7] SELECT, runs"));
        let (runs, waits) = (end(7, Some(Runs)), end(8, Some(WaitsToo)));
        assert_eq!(text(&[runs.clone(), end(6, None)]).as_deref(), Some("web[6,7]"));
        assert_eq!(
            text(&[runs.clone(), waits.clone(), end(6, None)]).as_deref(),
            Some("web[8] SELECT, waits, too")
        );
        let other = End { name: "a".into(), ..end(9, Some(WaitsToo)) };
        assert_eq!(text(&[waits, other, runs]).as_deref(), Some("a[9], web[8], waits, too"));
    }

    #[test]
    fn what_a_process_does_follows_from_its_threads() {
        use PeerActivity::{Disk, In, Runs, Stopped, WaitsToo};
        let thread = |state: u8, call: Option<i32>| ThreadNow {
            tid: 1,
            state,
            call: call.map(|number| Syscall { number, args: [5, 1, 0, 0, 0, 0] }),
        };
        let (runs, disk, stopped) = (thread(b'R', None), thread(b'D', Some(0)), thread(b'T', None));
        let (reads, epolls) = (thread(b'S', Some(0)), thread(b'S', Some(232)));
        let (locks, exits) = (thread(b'S', Some(202)), thread(b'Z', None));
        let (no, only, among) = (Watch::No, Watch::Only, Watch::AmongOthers);
        for (threads, expected) in [
            (&[(runs, no)][..], Some(Runs)),
            (&[(disk, no)], Some(Disk)),
            (&[(stopped, no)], Some(Stopped)),
            (&[(locks, no)], Some(In("futex"))),
            (&[(exits, no)], None),
            (&[(reads, only)], Some(WaitsToo)),
            (&[(epolls, among)], Some(WaitsToo)),
            // One thread for each connection: the others do not matter.
            (&[(runs, no), (reads, only)], Some(WaitsToo)),
            // One thread for all: another may have the work.
            (&[(epolls, among), (locks, no)], Some(WaitsToo)),
            (&[(epolls, among), (runs, no)], None),
            (&[(epolls, among), (disk, no)], None),
            (&[(epolls, among), (reads, no)], None),
            // Which of them would serve it is not known.
            (&[(runs, no), (runs, no)], None),
            (&[], None),
        ] {
            let (threads, watches): (Vec<_>, Vec<_>) = threads.iter().copied().unzip();
            assert_eq!(activity(&threads, &watches), expected, "{threads:?} {watches:?}");
        }
    }

    #[test]
    fn titles_of_postgresql() {
        let title = |line: &str| postgres_title(line.as_bytes());
        for (line, expected) in [
            ("postgres: app shop 127.0.0.1(4242) SELECT", Some("SELECT")),
            ("postgres: app shop [local] idle in transaction  \0", Some("idle in transaction")),
            ("postgres: 15/main: app shop ::1(4242) SELECT waiting", Some("SELECT waiting")),
            ("postgres: app shop [local]", Some("")),
            ("postgres: walwriter ", None),
            ("postgres: app sh(op) x(99999) SELECT", None),
            ("/usr/bin/postgres -D /data", None),
            ("", None),
        ] {
            assert_eq!(title(line).as_deref(), expected, "{line}");
        }
        let long = title(&format!("postgres: a b [local] \x1b[2J{}", "é".repeat(99)));
        assert_eq!(long.expect("a title").chars().count(), TITLE);
    }
}
