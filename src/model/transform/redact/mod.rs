//! Redacts a snapshot: its names reveal nothing about the program, its machine or its users; its
//! figures, states and structure stay the same. Functions, classes, modules, files, command lines,
//! hosts and threads become keyed hashes of their words.
//!
//! Names that exist on every system stay readable if they are certain. These are functions of the C
//! library, the loader, the kernel proper and HotSpot: in files of these names, without parts of a
//! program's names. Java's package `java` stays too, since no virtual machine lets programs add
//! classes to it. A function that decides idle time or the kind of a wait keeps its role
//! ([`crate::model::facts::redacted`]).

mod words;

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::facts::futex;
use crate::model::facts::observed_waits::ObservedWait;
use crate::model::facts::redacted;
use crate::model::facts::snapshot::{Session, Snapshot, Target, Wanted};
use crate::model::facts::tables::{
    Blocker, BlockerId, FrameId, FrameKind, Location, NameId, Named, Parts, StackId, Tables,
};
use crate::model::projection::settings::{Filter, Grouping, Settings};
use crate::model::projection::waits::{Object, Peer, PeerProcess, WaitsFor, read_call};
use crate::model::projection::{
    self, Mark, base_mark, is_glue, is_interpreter, is_monitor_enter, mark, role,
};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{
    AWAIT, FrameCode, MORE_AWAIT, Marker, RawFrame, SELECT_SENDS, SOME_GOROUTINES, ThreadKind,
    WAITS_FOR_GIL, task_name, task_text,
};
use crate::model::vocabulary::go_functions;
use crate::model::vocabulary::goroutine_states::is_of_go;
use crate::model::vocabulary::labels;
use crate::model::vocabulary::role::Origin;
use crate::model::vocabulary::thread_name_rules::{UNNAMED, by_rules};
use crate::model::vocabulary::wakeup::{Pair, Waker, Wakeups};
pub use words::Key;

/// Shared objects with the same functions on every system, without their versions.
const PUBLIC: &[&str] = &["libc", "libpthread", "libm", "ld", "ld-linux-x86-64", "libjvm"];

/// Replaces names; equal names get equal replacements.
pub struct Redactor {
    key: Key,
    words: HashMap<Arc<str>, Arc<str>>,
}

impl Redactor {
    pub fn new(key: Key) -> Redactor {
        Redactor { key, words: HashMap::new() }
    }

    pub fn snapshot(&mut self, snapshot: &Snapshot) -> Snapshot {
        let session = &snapshot.session;
        let title = self.text(&session.wanted.title);
        let session = Session {
            host: self.key.words(&session.host),
            wanted: Wanted { title, ..session.wanted.clone() },
            ..Session::clone(session)
        };
        // Another tool's file may contain any text here.
        let capture = match session.is_foreign() {
            true => self.text(&snapshot.capture),
            false => snapshot.capture.clone(),
        };
        let targets = snapshot.targets.iter().map(|target| Target {
            command: self.text(&target.command),
            unit: target.unit.as_ref().map(|unit| self.text(unit)),
            ..target.clone()
        });
        Snapshot {
            targets: targets.collect(),
            session: session.into(),
            capture,
            tables: self.tables(&snapshot.tables),
            observed_waits: (snapshot.observed_waits.iter())
                .map(|wait| ObservedWait {
                    waits_for: self.waits_for(wait.call, &wait.waits_for),
                    ..wait.clone()
                })
                .collect(),
            wakeups: snapshot.wakeups.as_ref().map(|wakeups| self.wakeups(wakeups).into()),
            notice: snapshot.notice.as_ref().map(|notice| match is_of_goroutines(notice) {
                true => notice.clone(),
                false => "there is a notice, which --redact leaves out".into(),
            }),
            ..snapshot.clone()
        }
    }

    /// Threads of the kernel keep their names.
    fn wakeups(&mut self, wakeups: &Wakeups) -> Wakeups {
        let mut redacted = wakeups.clone();
        for Pair { waker, .. } in &mut redacted.pairs {
            if let Waker::Thread { name, process, .. } = waker {
                *name = self.thread(name).into();
                *process = self.text(process);
            }
        }
        redacted
    }

    fn tables(&mut self, tables: &Tables) -> Tables {
        let names = (0..tables.name_count()).map(|id| NameId(id as u32));
        let names = names.map(|name| {
            let kind = tables.kind(name);
            let text = tables.name(name);
            (
                if kind == ThreadKind::Internal { text.clone() } else { self.thread(text).into() },
                kind,
            )
        });
        let names = names.collect();
        let frames = (0..tables.frame_count()).map(|id| FrameId(id as u32)).map(|frame| {
            let named = tables.named(frame);
            let locations = named.locations.iter().enumerate();
            let locations = locations
                .map(|(nth, location)| self.location(location, named.origins.of(nth)))
                .collect();
            // A build id identifies the program to anybody with the same file.
            let build_id = named.build_id.as_ref().map(|build_id| self.text(build_id));
            // Offsets and the size of functions would name them to who has the program.
            let raw = match tables.frame(frame) {
                raw if matches!(raw.decode(), FrameCode::Code { .. }) => {
                    RawFrame::new(FrameCode::Runtime { id: frame.0.into() })
                }
                raw => raw,
            };
            (raw, Named { locations, build_id, ..named.clone() })
        });
        let frames = frames.collect();
        let stacks = (0..tables.stack_count()).map(|id| StackId(id as u32));
        let stacks =
            stacks.map(|stack| (tables.parent(stack), tables.top(stack), tables.futex_kind(stack)));
        let stacks = stacks.collect();
        let blockers = self.blockers(tables);
        Tables::from_parts(Parts { names, frames, stacks, blockers }).unwrap_or_default()
    }

    /// Addresses become numbers: equal ones stay equal.
    fn blockers(&mut self, tables: &Tables) -> Vec<Blocker> {
        let mut numbers: HashMap<(u32, u64), u64> = HashMap::new();
        let ids = (1..=tables.blocker_count()).map(|id| BlockerId(id as u32));
        let blockers = ids.filter_map(|id| tables.blocker(id));
        let mut redacted = Vec::with_capacity(tables.blocker_count());
        for blocker in blockers {
            let next = numbers.len() as u64 + 1;
            let object = match blocker.kind {
                // The number of a process is no address.
                BlockerKind::Child => blocker.object,
                _ => *numbers.entry((blocker.pid, blocker.object)).or_insert(next),
            };
            let class = blocker.class.as_ref().map(|class| self.class(blocker.kind, class));
            redacted.push(Blocker { object, class, ..blocker.clone() });
        }
        redacted
    }

    /// Returns the class of what a thread waits for; Java's and Python's own are no secret.
    fn class(&mut self, kind: BlockerKind, class: &Arc<str>) -> Arc<str> {
        match kind == BlockerKind::ThreadingLock || is_of_java(class, class) {
            true => class.clone(),
            false => self.text(class),
        }
    }

    fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.words.get(text) {
            return known.clone();
        }
        let replaced: Arc<str> = self.key.words(text).into();
        self.words.insert(text.clone(), replaced.clone());
        replaced
    }

    /// Returns the replacement of a thread's name: the same word for threads of one default group,
    /// plus a number.
    pub fn thread(&self, name: &str) -> String {
        if OWN_NAMES.contains(&name) {
            return name.to_owned();
        }
        let number = self.key.number(name) % 10_000;
        match by_rules(name, &[]) {
            unnamed if unnamed == UNNAMED => number.to_string(),
            group => format!("{}-{number}", self.key.word(&group)),
        }
    }

    /// Returns the replacement of a task's name, if the program gave it one.
    pub fn task(&self, name: &str) -> String {
        let number = name.strip_prefix("Task-");
        match number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            true => name.to_owned(),
            false => self.thread(name),
        }
    }

    /// Returns the replacement of the text of a frame that carries labels. Values may be any text
    /// of a user's, so not even their punctuation is kept.
    pub fn labels(&self, text: &str) -> String {
        let replaced = |(key, value): (String, String)| match &*value {
            labels::OTHER => (self.key.words(&key), value),
            value => (self.key.words(&key), self.key.word(value)),
        };
        let all: Vec<(String, String)> = labels::labels(text).into_iter().map(replaced).collect();
        if all.is_empty() { labels::text_of_others() } else { labels::text(&all) }
    }

    /// Returns the replacement of the name of a type that a task awaits; CPython's own are no
    /// secret.
    pub fn awaited(&self, class: &str) -> String {
        const OWN: [&str; 3] = ["_asyncio.Future", "_GatheringFuture", "async_generator_athrow"];
        if OWN.contains(&class) { class.to_owned() } else { self.key.words(class) }
    }

    /// Returns the replacement of what a goroutine does; words of Go's runtime are no secret.
    pub fn goroutine_state(&self, state: &str) -> String {
        if is_of_go(state) { state.to_owned() } else { self.key.words(state) }
    }

    pub fn location(&mut self, location: &Location, origin: Origin) -> Location {
        let Location { function, module, file, line, kind, tier } = location;
        let (line, kind, tier) = (*line, *kind, *tier);
        if kind == FrameKind::Marker {
            let function = match task_name(function) {
                Some(name) => task_text(&self.task(name)),
                None if location.is_labels() => self.labels(function),
                None => marker(&self.key, function),
            };
            let function = function.into();
            return Location { function, module: self.text(module), file: None, line, kind, tier };
        }
        if kind == FrameKind::Java && is_of_java(function, module) {
            return Location {
                file: file.clone().filter(|file| !file.contains('/')),
                ..location.clone()
            };
        }
        // The virtual machine's own code, whose name decides which frames share a row.
        if kind == FrameKind::Jit && is_monitor_enter(location) {
            return location.clone();
        }
        let of_go = kind == FrameKind::Native && go_functions::is_go(function, file.as_deref());
        let is_public = is_public(kind, base(module));
        let module: Arc<str> = match module.rsplit_once('/') {
            Some((folder, base)) if is_public => {
                format!("{}/{base}", self.key.words(folder)).into()
            }
            None if is_public => module.clone(),
            _ => self.text(module),
        };
        // By functions of Go's runtime it is known what a stack is of, and where it begins.
        let is_of_all = is_public || of_go && go_functions::package(function) == "runtime";
        let function_for_all = if is_of_all { function.clone() } else { self.text(function) };
        let file = file.as_ref().map(|file| match file.rsplit_once('.') {
            // The language is no secret.
            Some((path, ending @ ("go" | "s"))) if of_go => {
                format!("{}.{ending}", self.key.words(path)).into()
            }
            _ => self.text(file),
        });
        let new = Location { function: function_for_all, module, file, line, kind, tier };
        self.with_roles(location, new, origin)
    }

    /// Appends roles to the new name, so that it leads to the same decisions.
    fn with_roles(&self, old: &Location, new: Location, origin: Origin) -> Location {
        let mut roles = Vec::new();
        let was = mark(old);
        if mark(&new) != was {
            roles.extend(match was {
                Mark::Nothing | Mark::Java => None,
                Mark::Waits => Some(redacted::WAITS),
                Mark::Loop => Some(redacted::LOOP),
                Mark::Plumbing => Some(redacted::PLUMBING),
                Mark::Main => Some(redacted::MAIN),
                Mark::Join => Some(redacted::JOIN),
                Mark::Future => Some(redacted::BLOCKS_ON),
                Mark::Query => Some(redacted::QUERY),
                Mark::Orders => Some(redacted::ORDERS),
            });
        }
        let kind = |location: &Location| futex::kind_of(std::slice::from_ref(location));
        if kind(&new) != kind(old) {
            roles.extend(kind(old).map(redacted::of_futex));
        }
        if is_glue(old) && !is_glue(&new) {
            roles.push(redacted::GLUE);
        }
        let was = role(old, origin);
        // A mark by the module alone would make a wait of the new name.
        let marked =
            Location { function: redacted::with(&new.function, &roles).into(), ..new.clone() };
        if role(&marked, origin) != was {
            roles.extend(redacted::of_code_role(was));
        }
        let base = base_mark(old, was);
        if base_mark(&new, was) != base {
            roles.extend(base.word());
        }
        match roles.is_empty() {
            true => new,
            false => Location { function: redacted::with(&new.function, &roles).into(), ..new },
        }
    }

    /// Returns what a thread waits for, without the names of files, peers and threads.
    pub fn waits_for(&self, call: Syscall, waits_for: &WaitsFor) -> WaitsFor {
        let WaitsFor { what, fd, object, peer } = waits_for.clone();
        let words = |text: &str| self.key.words(text);
        let object = match read_call(call) {
            Some((_, Object::Nothing | Object::Epoll(_) | Object::Sleep(_) | Object::Child(_))) => {
                object
            }
            Some((_, Object::Futex { .. })) => match object.strip_prefix("held by ") {
                Some(name) => format!("held by {}", self.thread(name)),
                // An address.
                None => self.key.word(&object),
            },
            // `3 descriptors: fd 5 /x, ...`
            Some((_, Object::Poll { .. } | Object::Select { .. })) => match object.split_once(": ")
            {
                Some((count, files)) => format!("{count}: {}", words(files)),
                None if object.ends_with("descriptors") || object.ends_with("1 descriptor") => {
                    object
                }
                None => words(&object),
            },
            _ => words(&object),
        };
        let process = |PeerProcess { name, pid }| PeerProcess { name: words(&name), pid };
        let peer = peer.map(|peer| Peer {
            processes: peer.processes.into_iter().map(process).collect(),
            title: words(&peer.title),
            ..peer
        });
        WaitsFor { what, fd, object, peer }
    }
}

/// Returns the settings without those that match names: these would reveal the old names and not
/// match the new ones. Also returns whether there were any.
pub fn settings(settings: &Settings) -> (Settings, bool) {
    let mut kept = settings.clone();
    let filters = &mut kept.filters;
    let mut dropped =
        !settings.rename.is_empty() || !settings.idle_at.is_empty() || !settings.whose.is_empty();
    dropped |= filters.interesting.active().is_some();
    filters.interesting = Filter::default();
    for filter in [&mut filters.focus, &mut filters.ignore, &mut filters.hide, &mut filters.threads]
    {
        dropped |= filter.active().is_some();
        *filter = Filter::default();
    }
    kept.rename.clear();
    kept.idle_at.clear();
    kept.whose.clear();
    if matches!(kept.grouping, Grouping::Frame(_)) {
        kept.grouping = Grouping::Rules;
        dropped = true;
    }
    if matches!(kept.grouping, Grouping::Label(Some(_))) {
        kept.grouping = Grouping::Label(None);
        dropped = true;
    }
    (kept, dropped)
}

/// Whether a notice only says that not all goroutines are read, which figures depend on.
fn is_of_goroutines(notice: &str) -> bool {
    let mut sentences = notice.split("; ");
    sentences.all(|sentence| {
        let rest = sentence.strip_prefix("process ").and_then(|rest| rest.split_once(": "));
        rest.is_some_and(|(pid, what)| pid.parse::<u32>().is_ok() && what == SOME_GOROUTINES)
    })
}

/// Redacts a marker: `[no unwind info: libfoo.so]` has sampletop's words and a private name.
fn marker(key: &Key, text: &str) -> String {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let own = |text: &str| OWN_MARKERS.contains(&text) || Marker::is_text(text);
    match inner.and_then(|inner| inner.split_once(": ")) {
        _ if own(text) => text.to_owned(),
        Some((why @ ("no unwind info" | "unwind failed"), file)) => {
            format!("[{why}: {}]", key.words(file))
        }
        _ => key.words(text),
    }
}

/// Names of threads that have no name of their own.
const OWN_NAMES: &[&str] = &[
    projection::ALL,
    UNNAMED,
    projection::INTERNAL,
    projection::GO_RUNTIME,
    projection::UNKNOWN_GOROUTINE,
    "(exited)",
    "(other)",
];

/// Texts of markers that are no [`Marker`].
const OWN_MARKERS: &[&str] = &[
    "[JVM safepoint]",
    "[every frame hidden]",
    "[lost from the file]",
    "frames on the heap",
    WAITS_FOR_GIL,
    SELECT_SENDS,
    AWAIT,
    MORE_AWAIT,
];

/// Returns whether the function is of Java's package `java`, to which programs cannot add classes.
fn is_of_java(function: &str, class: &str) -> bool {
    function.starts_with("java.") && (class.is_empty() || class.starts_with("java."))
}

/// Returns whether the module has the same functions on every system.
fn is_public(kind: FrameKind, module: &str) -> bool {
    match kind {
        FrameKind::Kernel => matches!(module, "vmlinux" | ""),
        FrameKind::Native => {
            let (name, version) = module.split_once(".so").unwrap_or((module, ""));
            let numbers =
                |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            // `libc-2.31.so`
            let plain = name
                .rsplit_once('-')
                .filter(|(_, version)| numbers(version))
                .map_or(name, |(name, _)| name);
            module == "[vdso]"
                || is_interpreter(module)
                || (module.contains(".so") && numbers(version) && PUBLIC.contains(&plain))
        }
        _ => false,
    }
}

/// Returns the last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
