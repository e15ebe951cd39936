//! Locks, their holders, and deadlocks, in JSON.

use serde::Serialize;

use super::Rounded;
use crate::model::facts::tables::{Blocker, Holder, Tables};
use crate::model::projection::{HeldBy, Lock, Place, Stuck};
use crate::model::vocabulary::frame::ThreadKey;

/// A lock that threads waited for.
#[derive(Serialize)]
pub struct LockLine<'a> {
    pid: u32,
    kind: &'static str,
    /// The target's address of the object, as `jstack` prints it; the number of a file or process.
    object: String,
    class: Option<&'a str>,
    waited_ms: Rounded,
    threads: u32,
    waiting_now: u32,
    longest_ms: Rounded,
    waiting_in: Vec<PlaceLine<'a>>,
    held_by: Vec<HeldByLine<'a>>,
}

impl<'a> LockLine<'a> {
    pub fn new(lock: &'a Lock) -> LockLine<'a> {
        LockLine {
            pid: lock.pid,
            kind: lock.kind.word(),
            object: object(lock.object),
            class: lock.class.as_deref(),
            waited_ms: Rounded::ms(lock.waited_ns),
            threads: lock.threads,
            waiting_now: lock.waiting_now,
            longest_ms: Rounded::ms(lock.longest_ns),
            waiting_in: lock
                .waiting_in
                .iter()
                .map(|(place, ns)| PlaceLine::new(place, *ns))
                .collect(),
            held_by: lock.holders.iter().map(HeldByLine::new).collect(),
        }
    }
}

fn object(object: u64) -> String {
    format!("{object:#x}")
}

/// Functions, outermost first.
#[derive(Serialize)]
struct PlaceLine<'a> {
    functions: Vec<&'a str>,
    waited_ms: Rounded,
}

impl<'a> PlaceLine<'a> {
    fn new(place: &'a Place, waited_ns: u64) -> PlaceLine<'a> {
        let functions = place.iter().map(|location| &*location.function).collect();
        PlaceLine { functions, waited_ms: Rounded::ms(waited_ns) }
    }
}

#[derive(Serialize)]
struct HeldByLine<'a> {
    #[serde(flatten)]
    holder: HolderLine<'a>,
    #[serde(flatten)]
    place: PlaceLine<'a>,
}

impl<'a> HeldByLine<'a> {
    fn new(held: &'a HeldBy) -> HeldByLine<'a> {
        HeldByLine {
            holder: HolderLine::new(held.holder, &held.name),
            place: PlaceLine::new(&held.place, held.waited_ns),
        }
    }
}

/// Who holds a lock; all `null` where that is unknown.
#[derive(Default, Serialize)]
pub struct HolderLine<'a> {
    pid: Option<u32>,
    tid: Option<u32>,
    name: Option<&'a str>,
    /// The number of threads that hold it for reading.
    readers: Option<u32>,
}

impl<'a> HolderLine<'a> {
    fn new(holder: Holder, name: &'a str) -> HolderLine<'a> {
        let none = HolderLine::default();
        match holder {
            Holder::Thread { thread: ThreadKey { pid, tid, .. }, .. } => {
                HolderLine { pid: Some(pid), tid: Some(tid), name: Some(name), ..none }
            }
            Holder::Foreign { pid, tid } => HolderLine { pid: Some(pid), tid: Some(tid), ..none },
            Holder::Readers(count) => HolderLine { readers: Some(count), ..none },
            Holder::Unknown | Holder::Free | Holder::Unmounted => none,
        }
    }
}

/// What one thread waits for.
#[derive(Serialize)]
pub struct BlockerLine<'a> {
    kind: &'static str,
    object: String,
    class: Option<&'a str>,
    holder: HolderLine<'a>,
    /// The wait ends by itself.
    has_time_limit: bool,
}

impl<'a> BlockerLine<'a> {
    pub fn new(blocker: &'a Blocker, has_time_limit: bool, tables: &'a Tables) -> BlockerLine<'a> {
        let name = match blocker.holder {
            Holder::Thread { name, .. } => &**tables.name(name),
            _ => "",
        };
        BlockerLine {
            kind: blocker.kind.word(),
            object: object(blocker.object),
            class: blocker.class.as_deref(),
            holder: HolderLine::new(blocker.holder, name),
            has_time_limit,
        }
    }
}

/// A thread of a deadlock.
#[derive(Serialize)]
pub struct StuckLine<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    functions: Vec<&'a str>,
}

impl<'a> StuckLine<'a> {
    pub fn new(stuck: &'a Stuck) -> StuckLine<'a> {
        let ThreadKey { pid, tid, .. } = stuck.thread;
        let functions = stuck.place.iter().map(|location| &*location.function).collect();
        StuckLine { pid, tid, name: &stuck.name, functions }
    }
}
