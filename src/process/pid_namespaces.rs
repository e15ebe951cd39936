//! Thread ids in other pid namespaces.

use std::fs;
use std::io::Read;

use rustc_hash::FxHashMap;

/// Maximum threads visited.
const THREADS_MAX: usize = 100_000;
const STATUS_MAX: u64 = 64 << 10;

/// For a process in a pid namespace of its own: maps each thread's id inside that namespace
/// (`NSpid` of /proc/PID/task/TID/status) to our id. `None` where both are the same.
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

/// Returns the pid that a process itself sees.
pub fn pid_inside(pid: u32) -> Option<u32> {
    numbers(&format!("/proc/{pid}/status"))?.last().copied()
}

/// Returns the ids in all pid namespaces, from ours inwards.
fn numbers(path: &str) -> Option<Vec<u32>> {
    let mut status = String::new();
    fs::File::open(path).ok()?.take(STATUS_MAX).read_to_string(&mut status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(line.split_ascii_whitespace().flat_map(str::parse).collect())
}
