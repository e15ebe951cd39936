//! Describes what a blocked thread waits for, by its system call and what `process::waits` found
//! out about its arguments. This applies only to the current wait and is not part of the facts.

mod call;
mod summary;

pub use call::{
    Child, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_WAIT, FUTEX_WAIT_BITSET, Object, Timer,
    known as known_call, read as read_call,
};
pub use summary::summary;

use crate::model::facts::futex;
use crate::model::facts::snapshot::{Snapshot, ThreadNow};
use crate::model::facts::tables::{FrameKind, Location, StackId, Tables};
use crate::model::projection::is_monitor_enter;
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{Ns, SECOND, ThreadKey};
pub use crate::model::vocabulary::peer::{Peer, PeerActivity, PeerProcess};
use crate::model::vocabulary::state::{FutexKind, State};
pub use crate::model::vocabulary::waits_for::WaitsFor;

/// A wait to be described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub thread: ThreadKey,
    pub call: Syscall,
    pub lock: Lock,
}

/// The kind of a futex wait, by its callers' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lock {
    /// No lock.
    #[default]
    No,
    /// `pthread_mutex_lock` or similar.
    Mutex,
    /// `pthread_rwlock_rdlock` or similar.
    RwLock,
    /// A lock, but none of the C library's.
    Other,
    /// `synchronized` in Java.
    Monitor,
    /// A class that another thread of Java initialises.
    ClassInit,
    /// `LockSupport.park` in Java.
    Park,
    /// `LockSupport.park`, called by `Condition.await`.
    ParkOnCondition,
    /// `Object.wait` in Java.
    ObjectWait,
    /// A sleep: some runtimes use a futex for it.
    Sleep,
}

/// Java's methods that park, and the class whose methods call them in `Condition.await`.
const PARK: [&str; 2] = ["jdk.internal.misc.Unsafe.park", "sun.misc.Unsafe.park"];
const CONDITION: &str = "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject";

impl Asked {
    /// Returns whether the call's arguments lead to a file, a peer or a process. What is known of
    /// locks is part of the facts.
    pub fn has_arguments(&self) -> bool {
        match read_call(self.call) {
            Some((_, object)) => match object {
                Object::Fd(_)
                | Object::Connect { .. }
                | Object::Poll { .. }
                | Object::Select { .. }
                | Object::Path(_)
                | Object::Child(_) => true,
                // Of a lock that does not say who has it, the address is known.
                Object::Futex { .. } => self.lock == Lock::Other,
                Object::Nothing | Object::Epoll(_) | Object::Sleep(_) => false,
            },
            None => false,
        }
    }

    /// Returns the wait in which `thread` was last seen; `None` if it runs or its system call is
    /// unknown.
    pub fn of(snapshot: &Snapshot, thread: &ThreadNow) -> Option<Asked> {
        let state = snapshot.tables.state(thread.state, thread.stack);
        if matches!(state, State::Run | State::Rdy | State::Stopped) {
            return None;
        }
        let lock = of_names(&snapshot.tables, thread.stack);
        // Whether it is a lock was decided with the state.
        let lock = match (state, lock) {
            (State::Lock, Lock::No) => Lock::Other,
            (State::Lock, _)
            | (_, Lock::Park | Lock::ParkOnCondition | Lock::ObjectWait | Lock::Sleep) => lock,
            _ => Lock::No,
        };
        Some(Asked { thread: thread.thread, call: thread.syscall?, lock })
    }
}

/// Returns the kind given by the innermost function that has one. glibc's `__lll_lock_wait` only
/// shows that it is some lock.
fn of_names(tables: &Tables, stack: StackId) -> Lock {
    let frames = tables.frames_innermost_first(stack);
    let mut locations = frames
        .flat_map(|frame| tables.named(frame).locations.iter().rev())
        .filter(|location| location.kind != FrameKind::Kernel);
    while let Some(location) = locations.next() {
        let function = &*location.function;
        let is_java = location.kind == FrameKind::Java;
        if is_java && PARK.contains(&function) {
            let mut callers =
                locations.take_while(|caller| caller.function.starts_with("java.util.concurrent."));
            let waits = |caller: &Location| {
                caller
                    .function
                    .strip_prefix(CONDITION)
                    .is_some_and(|method| method.starts_with(".await"))
            };
            return if callers.any(waits) { Lock::ParkOnCondition } else { Lock::Park };
        }
        let kind = futex::kind_of(std::slice::from_ref(location));
        let plain =
            function.trim_start_matches('_').trim_start_matches("GI_").trim_start_matches('_');
        match kind {
            None => {}
            Some(FutexKind::Sleep) => return Lock::Sleep,
            Some(FutexKind::Wait) if is_java => return Lock::ObjectWait,
            Some(FutexKind::Wait) => return Lock::No,
            Some(FutexKind::Lock) if plain.starts_with("pthread_mutex_") => return Lock::Mutex,
            Some(FutexKind::Lock) if plain.starts_with("pthread_rwlock_") => return Lock::RwLock,
            Some(FutexKind::Lock) if plain.starts_with("lll_") => {}
            Some(FutexKind::Lock)
                if function.starts_with("ObjectMonitor::") || is_monitor_enter(location) =>
            {
                return Lock::Monitor;
            }
            Some(FutexKind::Lock) if function.starts_with("InstanceKlass::") => {
                return Lock::ClassInit;
            }
            Some(FutexKind::Lock) => return Lock::Other,
        }
    }
    Lock::No
}

/// Results of looking up a wait's arguments. All are optional, and cleaned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Descriptors of the call, and their objects: `/data/x.db`, `-> 10.0.3.9:5432`, `:8080`,
    /// `pipe`.
    pub files: Vec<(i32, String)>,
    /// Number of descriptors that an epoll set or a select watches.
    pub watched: Option<usize>,
    /// Who has the other end of the call's only descriptor, a socket or pipe; or the children that
    /// the call waits for.
    pub other_end: Option<Peer>,
    /// The address to which a socket is being connected.
    pub peer: Option<String>,
    pub path: Option<String>,
    pub time: Option<Time>,
    /// The name of the thread that holds the mutex, or of the process that holds the file lock.
    pub holder: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Total duration of the sleep.
    Whole(Ns),
    /// Remaining duration of the sleep.
    Left(Ns),
}

/// The answer to an [`Asked`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub asked: Asked,
    pub waits_for: WaitsFor,
}

/// Maximum descriptors of a poll or select that are listed.
pub const NAMED: usize = 4;

/// Returns the wait as text. `None` if the call does not show what it waits for.
pub fn describe(asked: &Asked, facts: &Facts) -> Option<WaitsFor> {
    let (what, object) = read_call(asked.call)?;
    let plain = |object: String| WaitsFor { what, object, ..WaitsFor::default() };
    let plain_of = |what: &'static str| WaitsFor { what, ..WaitsFor::default() };
    let of = |fd: i32, object: String| WaitsFor { fd: Some(fd), ..plain(object) };
    let file = |fd: i32| {
        facts.files.iter().find(|(of, _)| *of == fd).map_or(String::new(), |(_, file)| file.clone())
    };
    Some(match object {
        Object::Nothing => plain(String::new()),
        Object::Fd(fd) => {
            let is_lock = matches!(what, "flock" | "fcntl");
            let holder = facts.holder.as_ref().filter(|_| is_lock);
            let held = holder.map(|holder| format!(", held by {holder}"));
            let object = file(fd) + held.as_deref().unwrap_or_default();
            WaitsFor { peer: facts.other_end.clone(), ..of(fd, object) }
        }
        Object::Epoll(fd) => {
            let object = facts.watched.map_or(String::new(), |n| format!("({})", descriptors(n)));
            of(fd, object)
        }
        Object::Connect { fd, .. } => {
            let object = facts.peer.as_ref().map_or_else(|| file(fd), |peer| format!("-> {peer}"));
            WaitsFor { peer: facts.other_end.clone(), ..of(fd, object) }
        }
        Object::Poll { count, .. } => one_of_many(what, facts, count as usize),
        Object::Select { .. } => match facts.watched {
            Some(count) => one_of_many(what, facts, count),
            None => plain(String::new()),
        },
        Object::Path(_) => plain(facts.path.clone().unwrap_or_default()),
        Object::Sleep(_) => plain(match facts.time {
            Some(Time::Whole(ns)) => span(ns),
            Some(Time::Left(ns)) => format!("{} more", span(ns)),
            None => String::new(),
        }),
        Object::Child(child) => {
            let peer = facts.other_end.clone();
            let object = match child {
                Child::Any => "any child".into(),
                // The process has that number, or another one where that counts.
                Child::Pid(_) if peer.is_some() => "child".into(),
                Child::Pid(pid) => format!("child {pid}"),
                Child::Group(group) => format!("children of group {group}"),
                Child::OwnGroup => "children of its group".into(),
                Child::Fd(fd) => return Some(WaitsFor { peer, ..of(fd, "child".into()) }),
            };
            WaitsFor { peer, ..plain(object) }
        }
        Object::Futex { at, command, .. } => {
            let held = facts.holder.as_ref().map(|name| format!("held by {name}"));
            let (what, held) = match asked.lock {
                // These commands are used only for mutexes.
                _ if matches!(command, FUTEX_LOCK_PI | FUTEX_LOCK_PI2) => ("mutex", held),
                Lock::Mutex => ("mutex", held),
                Lock::RwLock => ("rwlock", None),
                Lock::Other => ("lock", None),
                Lock::No => ("futex", None),
                // The address is private to the thread and says nothing.
                Lock::Monitor => return Some(plain_of("monitor enter")),
                Lock::ClassInit => return Some(plain_of(BlockerKind::ClassInit.word())),
                Lock::Park => return Some(plain_of("park")),
                Lock::ParkOnCondition => {
                    return Some(WaitsFor {
                        object: format!("on {CONDITION}"),
                        ..plain_of("park")
                    });
                }
                Lock::ObjectWait => return Some(plain_of("Object.wait")),
                Lock::Sleep => return Some(plain_of("sleep")),
            };
            let object = held.unwrap_or_else(|| format!("{at:#x}"));
            WaitsFor { object, ..plain_of(what) }
        }
    })
}

/// Describes a poll or select of `count` descriptors.
fn one_of_many(what: &'static str, facts: &Facts, count: usize) -> WaitsFor {
    if let (1, Some((fd, file))) = (count, facts.files.first()) {
        let peer = facts.other_end.clone();
        return WaitsFor { what, fd: Some(*fd), object: file.clone(), peer };
    }
    let named: Vec<String> = facts
        .files
        .iter()
        .take(NAMED)
        .map(|(fd, file)| format!("fd {fd} {file}").trim_end().to_owned())
        .collect();
    let mut object = descriptors(count);
    if !named.is_empty() {
        object += &format!(": {}", named.join(", "));
        object += if count > named.len() { ", ..." } else { "" };
    }
    WaitsFor { what, object, ..WaitsFor::default() }
}

fn descriptors(count: usize) -> String {
    if count == 1 { "1 descriptor".into() } else { format!("{count} descriptors") }
}

/// Returns the word of [`describe`] that equals `text`, as a saved file has it.
pub fn known_wait(text: &str) -> Option<&'static str> {
    const OTHERS: [&str; 6] = ["mutex", "rwlock", "lock", "monitor enter", "park", "Object.wait"];
    OTHERS.into_iter().find(|word| *word == text).or_else(|| known_call(text))
}

/// Formats a duration: `1.5 ms`, `250 ms`, `2.0 s`, `3600 s`.
fn span(ns: Ns) -> String {
    match ns {
        ..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..SECOND => format!("{} ms", ns / 1_000_000),
        _ if ns < 10 * SECOND => format!("{:.1} s", ns as f64 / 1e9),
        _ => format!("{} s", ns / SECOND),
    }
}

#[cfg(test)]
mod tests;
