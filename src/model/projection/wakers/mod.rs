//! Who woke the threads of a snapshot, with their names and where they were.

mod place;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::Location;
use crate::model::projection::samples::{Samples, samples};
use crate::model::projection::settings::{Range, Settings};
use crate::model::projection::waits::read_call;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::thread_name_rules::by_rules;
use crate::model::vocabulary::wakeup::{Waker, Woken};
use place::Places;
pub use place::WakersPlace;

/// A thread, and who woke it.
#[derive(Clone, PartialEq, Debug)]
pub struct WokenThread {
    pub woken: Woken,
    pub name: Arc<str>,
    pub count: u64,
    /// The most frequent first.
    pub by: Vec<WokenBy>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct WokenBy {
    pub who: Who,
    /// Number of the waker's system call; `None` where no call woke.
    pub call: Option<u32>,
    pub place: Option<WakersPlace>,
    pub count: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// A thread of a watched process.
    Thread {
        pid: u32,
        tid: u32,
        name: Arc<str>,
    },
    /// Threads of a watched process whose names differ in numbers only.
    Threads {
        name: String,
        count: usize,
    },
    /// A thread of another process, which is shown as one.
    Process {
        pid: u32,
        name: Arc<str>,
    },
    /// A process that cannot be seen from here.
    Hidden,
    KernelThread {
        tid: u32,
        name: Arc<str>,
    },
    Interrupt,
}

impl Who {
    /// Returns `producer[4712]`, or what woke in words.
    pub fn text(&self) -> String {
        match self {
            Who::Thread { tid: id, name, .. } | Who::Process { pid: id, name } => {
                format!("{name}[{id}]")
            }
            Who::Threads { name, count } => format!("{count} threads {name}"),
            Who::Hidden => "a process that cannot be seen from here".into(),
            Who::KernelThread { tid, name } => format!("kernel thread {name}[{tid}]"),
            Who::Interrupt => "an interrupt (a timer or a device)".into(),
        }
    }
}

impl WokenThread {
    /// Returns the wakers in at most `most` lines, if that is possible by naming threads together
    /// whose names differ in numbers only: those of a pool wake each other.
    pub fn lines(&self, most: usize) -> Vec<WokenBy> {
        if self.by.len() <= most {
            return self.by.clone();
        }
        let mut lines: Vec<WokenBy> = Vec::new();
        let mut places: FxHashMap<(String, Option<u32>), usize> = FxHashMap::default();
        for by in &self.by {
            let Who::Thread { name, .. } = &by.who else {
                lines.push(by.clone());
                continue;
            };
            let name = by_rules(name, &[]);
            let Some(line) = places.get(&(name.clone(), by.call)) else {
                places.insert((name, by.call), lines.len());
                lines.push(by.clone());
                continue;
            };
            let line = &mut lines[*line];
            let others = match line.who {
                Who::Threads { count, .. } => count,
                _ => 1,
            };
            line.who = Who::Threads { name, count: others + 1 };
            line.count += by.count;
            if line.place != by.place {
                line.place = None;
            }
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.count));
        lines
    }
}

impl WokenBy {
    /// Returns `producer[4712] in publish or log (futex)`. Where the waker's samples do not show
    /// the call, they only say what it did most: `producer[4712] (futex), mostly in publish`.
    pub fn text(&self, name: impl Fn(&Location) -> String) -> String {
        let who = self.who.text();
        let call = self.call.map(|number| format!(" ({})", call_name(number))).unwrap_or_default();
        match &self.place {
            Some(WakersPlace::Calls(functions)) => {
                let more = if functions.len() > CALLERS { " or others" } else { "" };
                let functions: Vec<_> = functions.iter().take(CALLERS).map(|f| name(f)).collect();
                format!("{who} in {}{more}{call}", functions.join(" or "))
            }
            Some(WakersPlace::Mostly(function)) => {
                format!("{who}{call}, mostly in {}", name(function))
            }
            None => format!("{who}{call}"),
        }
    }
}

/// Maximum functions of a waker that a line names.
const CALLERS: usize = 2;

/// Returns the threads that were woken, the most frequent first; nothing if that was not counted.
pub fn woken_threads(snapshot: &Snapshot, settings: &Settings) -> Vec<WokenThread> {
    if snapshot.wakeups.is_none() {
        return Vec::new();
    }
    // What filters hide is no less a waker.
    let whole = Settings {
        range: Range::Cumulative { since: None },
        whose: settings.whose.clone(),
        ..Settings::default()
    };
    by_samples(snapshot, &samples(snapshot, &whole))
}

/// Does the same with these samples of the snapshot.
pub(super) fn by_samples(snapshot: &Snapshot, samples: &Samples) -> Vec<WokenThread> {
    let Some(wakeups) = &snapshot.wakeups else { return Vec::new() };
    let names = names(snapshot, samples);
    let watched = |pid: u32| snapshot.targets.iter().any(|target| target.pid == pid);
    let mut places = Places::new(samples);
    let mut threads: FxHashMap<Woken, BTreeMap<(Who, Option<u32>), u64>> = FxHashMap::default();
    for pair in &wakeups.pairs {
        let (who, call) = match &pair.waker {
            Waker::Thread { pid, tid, name, call, .. } if watched(*pid) => {
                let name = names.get(&(*pid, *tid)).unwrap_or(name).clone();
                (Who::Thread { pid: *pid, tid: *tid, name }, Some(*call))
            }
            Waker::Thread { pid, process, call, .. } => {
                (Who::Process { pid: *pid, name: process.clone() }, Some(*call))
            }
            Waker::Hidden { call } => (Who::Hidden, Some(*call)),
            Waker::KernelThread { tid, name } => {
                (Who::KernelThread { tid: *tid, name: name.clone() }, None)
            }
            Waker::Interrupt => (Who::Interrupt, None),
        };
        *threads.entry(pair.woken).or_default().entry((who, call)).or_default() += pair.count;
    }
    let mut threads: Vec<WokenThread> = threads
        .into_iter()
        .map(|(woken, by)| {
            let mut by: Vec<WokenBy> = by
                .into_iter()
                .map(|((who, call), count)| {
                    let place = match (&who, call) {
                        (Who::Thread { pid, tid, .. }, Some(call)) => {
                            places.of((*pid, *tid), &call_name(call))
                        }
                        _ => None,
                    };
                    WokenBy { who, call, place, count }
                })
                .collect();
            by.sort_by_key(|by| std::cmp::Reverse(by.count));
            let known = names.get(&(woken.pid, woken.tid)).cloned();
            let name = known.unwrap_or_else(|| UNKNOWN.into());
            WokenThread { woken, name, count: by.iter().map(|by| by.count).sum(), by }
        })
        .collect();
    threads.sort_by_key(|thread| (std::cmp::Reverse(thread.count), thread.woken));
    threads
}

/// Stands for the name of a thread that ended before it was seen.
const UNKNOWN: &str = "(exited)";

/// Returns the newest names of the watched processes' threads, a runtime's own where it has one.
fn names(snapshot: &Snapshot, samples: &Samples) -> FxHashMap<(u32, u32), Arc<str>> {
    let sampled = samples
        .samples
        .iter()
        .map(|sample| ((sample.thread.pid, sample.thread.tid), sample.name.clone()));
    let living = snapshot
        .threads
        .iter()
        .map(|now| ((now.thread.pid, now.thread.tid), snapshot.tables.name(now.name).clone()));
    sampled.chain(living).collect()
}

/// Returns a system call's name: `futex`, or `call 999` for one that rarely wakes.
pub fn call_name(number: u32) -> Cow<'static, str> {
    let more = match number {
        9 => "mmap",
        10 => "mprotect",
        11 => "munmap",
        12 => "brk",
        28 => "madvise",
        32 | 33 | 292 => "dup",
        41 => "socket",
        56 | 435 => "clone",
        60 => "exit",
        62 => "kill",
        66 => "semctl",
        71 => "msgctl",
        129 | 297 => "sigqueue",
        157 => "prctl",
        200 => "tkill",
        231 => "exit_group",
        233 => "epoll_ctl",
        234 => "tgkill",
        286 => "timerfd_settime",
        424 => "pidfd_send_signal",
        436 => "close_range",
        454 | 456 => "futex",
        _ => "",
    };
    if !more.is_empty() {
        return more.into();
    }
    let call = Syscall { number: number as i32, args: [1; 6] };
    read_call(call).map_or_else(|| format!("call {number}").into(), |(name, _)| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_names() {
        let names: Vec<_> = [202, 454, 1, 44, 7, 230, 60, 999].map(call_name).into();
        assert_eq!(names, ["futex", "futex", "write", "send", "poll", "sleep", "exit", "call 999"]);
    }
}
