//! The processes for whose end a thread waits: their names, commands, and what they do.

use super::other_end::{Threads, name_of};
use super::{SEARCHED, Thread, line, read_file};
use crate::model::projection::waits::{Child, Peer, PeerActivity, PeerProcess};
use crate::model::vocabulary::text::clean_bytes;
use crate::process::target;

/// Maximum children that are named.
const NAMED: usize = 8;
/// Maximum length of a command's arguments, cells.
const ARGUMENTS: usize = 40;
/// Maximum bytes read of a list of children.
const LIST_BYTES: u64 = 64 << 10;

/// Returns the children that a wait is for; `None` where they cannot be found.
pub(super) fn awaited(thread: &Thread, child: Child) -> Option<Peer> {
    let pids = match child {
        Child::Pid(number) => vec![numbered(thread, u32::try_from(number).ok()?)?],
        Child::Fd(fd) => vec![of_pidfd(thread, fd)?],
        Child::Any => children(thread, NAMED),
        // Which of the children are in a group is not looked up.
        Child::Group(_) | Child::OwnGroup => return None,
    };
    let processes: Vec<PeerProcess> = pids
        .iter()
        .filter_map(|pid| Some(PeerProcess { name: name_of(*pid)?, pid: *pid }))
        .collect();
    let (activity, title) = match processes.as_slice() {
        [] => return None,
        [only] => (activity(only.pid), arguments(only.pid).unwrap_or_default()),
        _ => (None, String::new()),
    };
    Some(Peer { processes, writes: false, activity, title })
}

/// Returns what a process with one thread does.
fn activity(pid: u32) -> Option<PeerActivity> {
    if !target::permitted(pid) {
        return None;
    }
    Threads::read(pid)?.activity(&[])
}

/// Returns the arguments of a process's command.
fn arguments(pid: u32) -> Option<String> {
    joined(&read_file(&format!("/proc/{pid}/cmdline"), LIST_BYTES)?)
}

/// Joins the arguments in a command line of /proc by blanks, and cuts them.
pub fn joined(command: &[u8]) -> Option<String> {
    let words = command.strip_suffix(b"\0").unwrap_or(command);
    let (_, arguments) = words.split_at(words.iter().position(|byte| *byte == 0)? + 1);
    let arguments: Vec<u8> =
        arguments.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect();
    let text = clean_bytes(&arguments, 1024);
    Some(match text.char_indices().nth(ARGUMENTS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    })
}

/// Returns the children of all threads of the process, at most `limit`.
fn children(thread: &Thread, limit: usize) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", thread.pid)) else {
        return Vec::new();
    };
    let lists = tasks.take(SEARCHED).filter_map(|task| {
        let path = task.ok()?.path().join("children");
        read_file(path.to_str()?, LIST_BYTES)
    });
    let mut pids: Vec<u32> = lists.flat_map(|list| numbers(&list)).take(limit).collect();
    pids.sort_unstable();
    pids
}

/// Reads the numbers in a list of children.
pub fn numbers(list: &[u8]) -> Vec<u32> {
    let words = list.split(u8::is_ascii_whitespace);
    words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect()
}

/// Returns the child that has this id in the process's own PID namespace.
fn numbered(thread: &Thread, number: u32) -> Option<u32> {
    if thread.shares_our_ids()? {
        return Some(number);
    }
    children(thread, SEARCHED).into_iter().find(|pid| {
        let status = read_file(&format!("/proc/{pid}/status"), LIST_BYTES);
        let inner = status.as_deref().and_then(|status| line(status, b"NSpid:"));
        inner.and_then(|ids| ids.split_ascii_whitespace().last()?.parse().ok()) == Some(number)
    })
}

/// Returns the process that a pidfd is for, as our /proc shows it.
fn of_pidfd(thread: &Thread, fd: i32) -> Option<u32> {
    let info = read_file(&format!("{}/fdinfo/{fd}", thread.place), LIST_BYTES)?;
    line(&info, b"Pid:")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_joined_cleaned_and_cut() {
        assert_eq!(joined(b"sleep\x003\0").as_deref(), Some("3"));
        assert_eq!(joined(b"sh\0-c\0a b\0").as_deref(), Some("-c a b"));
        assert_eq!(joined(b"sleep\0"), None);
        assert_eq!(joined(b""), None);
        let long = [&b"x\0"[..], &b"y".repeat(99)].concat();
        assert_eq!(joined(&long), Some("y".repeat(ARGUMENTS) + "..."));
        assert!(!joined(b"x\0\x1b[2J").expect("an argument").contains('\x1b'));
    }

    #[test]
    fn lists_of_children() {
        assert_eq!(numbers(b"12 345 "), [12, 345]);
        assert!(numbers(b"").is_empty());
        assert_eq!(numbers(b"x -1 7"), [7]);
    }
}
