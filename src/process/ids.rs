//! Numbers of threads in other pid namespaces.

use std::fs;
use std::io::Read;

use rustc_hash::FxHashMap;

/// Threads that are looked at.
const THREADS_MAX: usize = 100_000;
const STATUS_MAX: u64 = 64 << 10;

/// For a process in a pid namespace of its own: our number of each of its threads, by the one that
/// the thread itself sees (`NSpid` of /proc/PID/task/TID/status). `None` where both are the same.
pub fn ids_inside(pid: u32) -> Option<FxHashMap<u32, u32>> {
    if numbers(&format!("/proc/{pid}/status"))?.len() < 2 {
        return None;
    }
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let tids = tasks
        .take(THREADS_MAX)
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let inner = |tid: u32| numbers(&format!("/proc/{pid}/task/{tid}/status"))?.last().copied();
    Some(tids.filter_map(|tid| Some((inner(tid)?, tid))).collect())
}

/// The number by which a process knows itself.
pub fn pid_inside(pid: u32) -> Option<u32> {
    numbers(&format!("/proc/{pid}/status"))?.last().copied()
}

/// From our pid namespace inwards.
fn numbers(path: &str) -> Option<Vec<u32>> {
    let mut status = String::new();
    fs::File::open(path).ok()?.take(STATUS_MAX).read_to_string(&mut status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(line.split_ascii_whitespace().flat_map(str::parse).collect())
}
