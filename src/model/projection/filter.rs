//! Applies the settings to each frame, and combines the results for each stack.

use regex::Regex;
use rustc_hash::FxHashMap;

use super::allocation::is_allocation;
use super::base_marks;
use super::collection::Collects;
use super::columns::NONE;
use super::exceptions::is_for_exception;
use super::exit::Exits;
use super::goroutine_start::{GoroutineStart, RuntimePart, StartMark};
use super::idle::Wait;
use super::idle_marks::{self, Mark};
use super::kernel_entry::KernelEntry;
use super::libraries::{NO_LIBRARY, is_standard, library};
use super::monitor;
use super::native::Hidden;
use super::python::{runs_callback, runs_loop};
use super::roles::role;
use super::rows::Rows;
use super::safepoint;
use super::thread_base::{Base, BaseMark};
use super::wait_call::{Call, WaitCall};
use crate::model::facts::tables::{FrameKind, Location, StackId, Tables, Tier};
use crate::model::projection::settings::{Grouping, Settings};
use crate::model::vocabulary::frame::{Marker, ThreadKind};
use crate::model::vocabulary::go_functions;
use crate::model::vocabulary::role::{Origin, Role};
use crate::model::vocabulary::state::{FutexKind, RawState, State};

/// The settings' result for one location.
#[derive(Clone, Copy, Default)]
pub(super) struct Verdict {
    pub hide: bool,
    pub interesting: bool,
    focus: bool,
    ignore: bool,
    groups: bool,
    /// It carries the labels of its stack.
    labels: bool,
    idle: Mark,
    /// A kernel frame without a name: consecutive ones are shown as one.
    pub anonymous: bool,
    pub stops: StopRole,
    /// Where it is hidden on stacks with Python frames.
    pub native: Hidden,
    /// Whose code it is, with the user's corrections.
    pub role: Role,
    /// Its thread holds the lock of its interpreter.
    gil: bool,
    pub enters_kernel: Option<KernelEntry>,
    /// Runs a callback of an event loop.
    runs_callback: bool,
    /// Runs a turn of an event loop.
    runs_loop: bool,
    base: BaseMark,
    call: Call,
    start: StartMark,
    /// A goroutine that calls it has to collect garbage because it allocates.
    assists: bool,
    /// The number of its library; [`NO_LIBRARY`] for the user's, runtimes' and standard functions.
    pub library: u32,
}

impl Verdict {
    /// Returns how much a frame outside of the user's code tells, where it stands for the stack.
    pub(super) fn telling(&self) -> u8 {
        match self.role {
            Role::App | Role::Library => 3,
            // The start of a thread is the same everywhere.
            Role::Runtime if self.base != BaseMark::Starts => 2,
            Role::Wait => 1,
            Role::Runtime | Role::Kernel | Role::Marker => 0,
        }
    }
}

/// The role of a frame in a safepoint stop or in entering a monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum StopRole {
    #[default]
    None,
    /// Leads to a stop, if there is one below.
    LeadsToStop,
    /// Replaces a stop: the frames below it are not shown.
    ReplacesStop,
    /// Replaces entering a monitor: of the frames below it only a stop is shown, in its place.
    ReplacesMonitorEntry,
}

/// Why the time of a stack says less than other time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum Gap {
    #[default]
    None,
    /// The thread moved while its stack was read.
    Torn,
    /// The thread was not observed, so what it did is unknown.
    NotObserved,
}

/// The settings' result for a stack: of all its frames, including hidden ones.
#[derive(Clone, Copy, Default)]
pub(super) struct Path {
    pub focus: bool,
    pub ignore: bool,
    /// Its thread holds the lock of its interpreter.
    pub gil: bool,
    /// Some of its frames are the user's.
    pub has_app: bool,
    wait: Wait,
    base: Base,
    call: WaitCall,
    /// Where its goroutine was started, in a program of Go.
    pub start: GoroutineStart,
    /// It has to collect garbage because it allocates.
    assists: bool,
    /// The first location, outermost first, that matches [`Grouping::Frame`]; the labels, under
    /// [`Grouping::Label`].
    pub group: Option<u32>,
    /// The user's function allocates or frees memory.
    pub allocates: bool,
    /// It creates or throws an exception.
    pub is_for_exception: bool,
    /// In a page fault.
    pub faults: bool,
    /// In a callback of an event loop, which serves nothing else meanwhile.
    pub in_event_loop: bool,
    /// Stopped at a safepoint of a virtual machine.
    pub is_stopped: bool,
    pub gap: Gap,
}

impl Path {
    /// Returns whether a thread of this kind with this stack waits for work in this state. A wait
    /// that was not observed counts as one, too: most are.
    pub(super) fn is_idle(&self, kind: ThreadKind, state: State) -> bool {
        let is_unknown = self.gap == Gap::NotObserved && state == State::Wait;
        is_unknown || self.wait.is_idle(kind, state) || self.base.is_idle(state)
    }

    /// Returns what it does for Go's garbage collection.
    pub(super) fn collects(&self) -> Option<Collects> {
        match self.start {
            GoroutineStart::Runtime(RuntimePart::Collector) => Some(Collects::Works),
            _ => self.assists.then_some(Collects::Assists),
        }
    }

    /// Returns whether a thread with this stack that can run waited for work before, so that only a
    /// core is missing. `futex`: what a futex wait of this stack is.
    pub(super) fn is_woken_from_idle(&self, futex: FutexKind) -> bool {
        match self.call {
            // Frames that only wait for work never run a task.
            WaitCall::None | WaitCall::PollsSome => self.wait == Wait::ForWork,
            WaitCall::Polls => self.is_idle(ThreadKind::Plain, State::Poll),
            WaitCall::Waits => self.is_idle(ThreadKind::Plain, RawState::Futex.resolve(futex)),
        }
    }
}

/// Results for every known location and stack; patterns are matched once per function.
#[derive(Default)]
pub(super) struct Verdicts {
    functions: Vec<Option<Verdict>>,
    locations: Vec<Verdict>,
    /// By location: whether it allocates or frees memory.
    allocates: Vec<bool>,
    /// By location: whether it creates or throws exceptions.
    for_exceptions: Vec<bool>,
    /// By [`StackId`].
    paths: Vec<Path>,
    /// By [`StackId`]; apart from the paths, which are read for each fact.
    exits: Exits,
    /// By [`StackId`]: the location that carries its labels, or [`NONE`].
    labels: Vec<u32>,
    /// What the built-in lists say about each function, which no setting changes.
    known: Vec<Known>,
    /// Numbers of libraries, from [`NO_LIBRARY`] + 1; see [`library`].
    libraries: FxHashMap<(Box<str>, Box<str>), u32>,
}

/// What the built-in lists say about a function, once it was asked for.
#[derive(Clone, Copy, Default)]
struct Known {
    idle: Option<Mark>,
    /// By the role of the frame, which the user may correct.
    base: [Option<BaseMark>; Role::COUNT],
    /// See [`Verdict::library`], of a library's function.
    library: Option<u32>,
}

impl Gap {
    /// Returns that of a marker.
    fn of(location: &Location) -> Gap {
        let is = |marker: Marker| *location.function == *marker.text(None);
        match location.kind == FrameKind::Marker {
            true if is(Marker::Torn) => Gap::Torn,
            true if is(Marker::NotObserved) => Gap::NotObserved,
            _ => Gap::None,
        }
    }
}

impl Verdicts {
    /// Drops all results, after a change of settings.
    pub(super) fn forget(&mut self) {
        self.functions.clear();
        self.locations.clear();
        self.allocates.clear();
        self.for_exceptions.clear();
        self.forget_paths();
    }

    /// Drops the results of stacks, after frames were renamed.
    pub(super) fn forget_paths(&mut self) {
        self.paths.clear();
        self.exits.forget();
        self.labels.clear();
    }

    pub(super) fn update(&mut self, tables: &Tables, rows: &Rows, settings: &Settings) {
        self.functions.resize(rows.function_count(), None);
        self.known.resize(rows.function_count(), Known::default());
        for id in self.locations.len()..rows.location_count() {
            let verdict = self.judge(rows, settings, id as u32);
            self.locations.push(verdict);
            self.allocates.push(is_allocation(rows.location(id as u32)));
            self.for_exceptions.push(is_for_exception(rows.location(id as u32)));
        }
        if self.paths.is_empty() {
            self.paths.push(Path::default()); // the empty stack
            self.labels.push(NONE);
        }
        self.paths.reserve(tables.stack_count().saturating_sub(self.paths.len()));
        for id in self.paths.len()..tables.stack_count() {
            let stack = StackId(id as u32);
            // Parents have lower ids.
            let parent = tables.parent(stack);
            let mut path = self.paths[parent.0 as usize];
            let mut exit = self.exits.of(parent);
            let mut labels = self.labels[parent.0 as usize];
            for location in rows.of_frame(tables.top(stack)) {
                let verdict = &self.locations[*location as usize];
                path.focus |= verdict.focus;
                path.ignore |= verdict.ignore;
                path.gil |= verdict.gil;
                path.has_app |= verdict.role == Role::App;
                path.wait = path.wait.below(verdict.idle);
                path.base = path.base.below(verdict.base);
                path.call = path.call.below(verdict.call);
                path.start = path.start.below(verdict.start, *location);
                path.assists |= verdict.assists;
                exit = exit.below(*location, verdict.role, verdict.library);
                path.allocates |= self.allocates[*location as usize];
                path.allocates &= verdict.role != Role::App;
                path.is_for_exception |= self.for_exceptions[*location as usize];
                // In a loop within a callback (nest_asyncio) the outer one's callbacks go on.
                path.in_event_loop &= !verdict.runs_loop;
                path.in_event_loop |= verdict.runs_callback;
                path.faults |= verdict.enters_kernel == Some(KernelEntry::PageFault);
                if verdict.role == Role::Marker {
                    path.gap = path.gap.max(Gap::of(rows.location(*location)));
                }
                path.is_stopped |= verdict.stops == StopRole::ReplacesStop;
                if verdict.groups && path.group.is_none() {
                    path.group = Some(*location);
                }
                if verdict.labels {
                    labels = *location;
                }
            }
            self.labels.push(labels);
            self.paths.push(path);
            self.exits.push(exit, rows);
        }
    }

    fn judge(&mut self, rows: &Rows, settings: &Settings, id: u32) -> Verdict {
        let location = rows.location(id);
        let function = rows.function_of(id) as usize;
        let known = &mut self.known[function];
        let mark = *known.idle.get_or_insert_with(|| idle_marks::mark(location));
        let by_function = *self.functions[function]
            .get_or_insert_with(|| judge_function(settings, location, mark));
        let interesting = match settings.filters.interesting.active() {
            Some(prefixes) => prefixes.iter().any(|prefix| begins(location, prefix)),
            None => false,
        };
        let role = match (interesting, corrected(settings, location)) {
            (_, Some(role)) => role,
            // Who names what is interesting means to see it.
            (true, None) => Role::App,
            (false, None) => rows.role(id),
        };
        let base =
            *known.base[role as usize].get_or_insert_with(|| base_marks::mark(location, role));
        let call = Call::of(location, role, mark);
        let library = match role {
            Role::Library => *known.library.get_or_insert_with(|| {
                let (outer, inner) = library(location);
                let next = NO_LIBRARY + 1 + self.libraries.len() as u32;
                match is_standard(location) {
                    true => NO_LIBRARY,
                    false => *self.libraries.entry((outer.into(), inner.into())).or_insert(next),
                }
            }),
            _ => NO_LIBRARY,
        };
        let native = Hidden::of(location, role, settings.filters.native);
        let gil = location.tier == Some(Tier::Gil);
        let start = StartMark::of(location, role);
        Verdict { interesting, role, native, base, call, start, library, gil, ..by_function }
    }

    pub(super) fn of_location(&self, id: u32) -> Verdict {
        self.locations[id as usize]
    }

    pub(super) fn exits(&self) -> &Exits {
        &self.exits
    }

    /// Returns the location that carries the labels of a stack.
    pub(super) fn labels_of(&self, stack: StackId) -> Option<u32> {
        self.labels.get(stack.0 as usize).copied().filter(|labels| *labels != NONE)
    }

    /// Returns the result for a stack; for an unknown one that of the empty stack.
    pub(super) fn of_stack(&self, stack: StackId) -> &Path {
        self.paths.get(stack.0 as usize).unwrap_or(&self.paths[0])
    }
}

/// Matches the patterns against the function's name.
fn judge_function(settings: &Settings, location: &Location, mark: Mark) -> Verdict {
    let name = &*location.function;
    let filters = &settings.filters;
    let matches = |pattern: Option<&Regex>| pattern.is_some_and(|p| p.is_match(name));
    Verdict {
        hide: matches(filters.hide.active())
            || (filters.no_kernel && location.kind == FrameKind::Kernel)
            || location.is_labels(),
        interesting: false,
        focus: matches(filters.focus.active()),
        ignore: matches(filters.ignore.active()),
        groups: match &settings.grouping {
            Grouping::Frame(pattern) => pattern.is_match(name) && !location.is_labels(),
            Grouping::Label(_) => location.is_labels(),
            _ => false,
        },
        labels: location.is_labels(),
        anonymous: location.is_unnamed_kernel(),
        native: Hidden::default(),
        role: Role::default(),
        gil: false,
        enters_kernel: KernelEntry::of(location),
        runs_callback: runs_callback(location),
        runs_loop: runs_loop(location),
        base: BaseMark::default(),
        call: Call::default(),
        start: StartMark::default(),
        assists: location.kind == FrameKind::Native && go_functions::is_assist(name),
        library: NO_LIBRARY,
        stops: match location {
            stop if safepoint::is_marker(stop) => StopRole::ReplacesStop,
            enters if monitor::is_frame(enters) => StopRole::ReplacesMonitorEntry,
            leads if safepoint::leads_to_stop(leads) => StopRole::LeadsToStop,
            _ => StopRole::None,
        },
        idle: if settings.idle_at.iter().any(|pattern| pattern.is_match(name)) {
            Mark::Waits
        } else {
            mark
        },
    }
}

/// Returns whose code a frame is: as the user corrected it, else by the evidence. For readers of
/// stacks without a projection.
pub fn role_of(settings: &Settings, location: &Location, origin: Origin) -> Role {
    corrected(settings, location).unwrap_or_else(|| role(location, origin))
}

/// Returns the role of a frame by the user's corrections; `None` if none matches.
fn corrected(settings: &Settings, location: &Location) -> Option<Role> {
    if matches!(location.kind, FrameKind::Marker | FrameKind::Thread) {
        return None;
    }
    let texts = [&*location.function, &*location.module, location.file.as_deref().unwrap_or("")];
    let whose = settings
        .whose
        .iter()
        .rfind(|whose| texts.iter().any(|text| !text.is_empty() && whose.pattern.is_match(text)))?;
    Some(if whose.mine { Role::App } else { Role::Library })
}

/// Returns whether the function, module or file begins with the prefix. A file also matches by its
/// name (`pool.rs`), and from any directory on if the prefix has one (`src/model/`).
fn begins(location: &Location, prefix: &str) -> bool {
    let file = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        path.starts_with(prefix)
            || name == prefix
            || (prefix.contains('/')
                && path.match_indices('/').any(|(slash, _)| path[slash + 1..].starts_with(prefix)))
    };
    location.function.starts_with(prefix)
        || location.module.starts_with(prefix)
        || location.file.as_deref().is_some_and(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_of_function_module_or_file() {
        let location = Location {
            function: "shop::cart::add".into(),
            module: "libshop.so.1".into(),
            file: Some("/home/ann/shop/src/cart.rs".into()),
            line: Some(7),
            kind: FrameKind::Native,
            tier: None,
        };
        for (prefix, interesting) in [
            ("shop::", true),
            ("cart::", false),
            ("libshop", true),
            ("/home/ann/shop", true),
            ("cart.rs", true),
            ("cart", false),
            ("src/", true),
            ("rc/", false),
            ("src", false),
            ("", true),
        ] {
            assert_eq!(begins(&location, prefix), interesting, "{prefix}");
        }
    }
}
