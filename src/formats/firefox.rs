//! A processed profile of version 70 for <https://profiler.firefox.com>, as that page's sources
//! describe it (`src/types/profile.ts`, `docs-developer/processed-profile-format.md`). Newer
//! versions of the page read it too.
//!
//! A group is a thread, the heaviest first. A sample is the time of one stack in one state within
//! one bucket of history, in the settings' metric. Its weight is that time in milliseconds, its
//! category the state. A bucket covers a second; older ones are wider. History records how much
//! time a stack took within a bucket, but not when. So the bucket's samples follow one another,
//! each as long as its share. The time line is therefore exact to a bucket, and the sums are exact.
//! It shows what the settings show, idle time only with `--idle`.

use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::{Value, json};

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::{Metric, Range, Settings};
use crate::model::projection::{Projection, Projector, Totals, project};
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

use super::trees::{self, Step};
use super::{FRAMELESS, dates, text};

/// Version of the format.
const VERSION: u32 = 70;

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let whole = project(snapshot, settings);
    // If only idle time is left, it is shown; decided for the whole range, not per bucket.
    let settings = Settings { idle: settings.idle || whole.only_idle, ..settings.clone() };
    let mut profile = Profile::default();
    let ordered = whole.ordered(&settings);
    for group in ordered.groups() {
        profile.thread(&whole.groups[group as usize].name);
    }
    let mut projector = Projector::default();
    for (from, till) in buckets(snapshot, settings.range) {
        let at = Snapshot { at: till, ..snapshot.clone() };
        let settings = Settings { range: Range::Rolling(till - from), ..settings.clone() };
        let shown = projector.project(&at, &settings);
        if settings.idle || !shown.only_idle {
            profile.bucket(
                &shown,
                &settings,
                [from.saturating_sub(whole.from), till.saturating_sub(whole.from)],
            );
        }
    }
    profile.write(snapshot, &settings, &whole, out)
}

/// Returns the range's spans of history, oldest first; each can be read by itself.
fn buckets(snapshot: &Snapshot, range: Range) -> Vec<(Ns, Ns)> {
    let history = &snapshot.history;
    let (_, booked) = history.span();
    let wanted = match range {
        Range::Rolling(window) => snapshot.at.min(booked).saturating_sub(window),
        Range::Cumulative { since } => since.unwrap_or(0),
        Range::Between { .. } => return history.buckets(range, snapshot.at),
    };
    let mut spans = Vec::new();
    let sealed = history.sealed().iter().map(|bucket| (bucket.start, bucket.end));
    for (start, end) in sealed.chain(history.open().map(|bucket| (bucket.start, bucket.end))) {
        if end <= wanted {
            continue;
        }
        // The last one includes all observations since the newest tick.
        if end >= booked {
            spans.push((start.min(booked), booked));
            break;
        }
        spans.push((start, end));
    }
    spans
}

/// Columns in the format's order; entries refer to others by index.
#[derive(Default)]
struct Profile {
    strings: Interned<Arc<str>>,
    /// Name, file, module: strings.
    functions: Interned<(u32, Option<u32>, u32)>,
    modules: Interned<u32>,
    files: Interned<u32>,
    /// Function, line, category.
    frames: Interned<(u32, Option<u32>, usize)>,
    /// Frame, and the caller's stack.
    stacks: Interned<(u32, Option<u32>)>,
    threads: Interned<Arc<str>>,
    samples: Vec<Samples>,
}

/// Assigns indexes to values, in order of first use.
struct Interned<T> {
    list: Vec<T>,
    places: FxHashMap<T, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Interned<T> {
        Interned { list: Vec::new(), places: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    fn place(&mut self, thing: T) -> u32 {
        *self.places.entry(thing).or_insert_with_key(|thing| {
            self.list.push(thing.clone());
            self.list.len() as u32 - 1
        })
    }
}

/// Samples of one thread, ordered by time: ms since the profile began, and ms.
#[derive(Default, Serialize)]
struct Samples {
    stack: Vec<u32>,
    time: Vec<f64>,
    weight: Vec<f64>,
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Profile {
    fn string(&mut self, text: &str) -> u32 {
        match self.strings.places.get(text) {
            Some(place) => *place,
            None => self.strings.place(text.into()),
        }
    }

    fn thread(&mut self, name: &Arc<str>) -> usize {
        let thread = self.threads.place(name.clone()) as usize;
        self.samples.resize_with(self.threads.list.len(), Samples::default);
        thread
    }

    fn frame(&mut self, location: &Location, category: usize) -> u32 {
        let name = self.string(&location.function);
        let module = self.string(&location.module);
        let file = location.file.as_deref().map(|file| self.string(file));
        let function = self.functions.place((name, file, module));
        self.frames.place((function, location.line, category))
    }

    /// Adds a bucket's projection; the bucket lasted from and till these ns since the profile
    /// began.
    fn bucket(&mut self, shown: &Projection, settings: &Settings, [from, till]: [Ns; 2]) {
        let ordered = shown.ordered(settings);
        for group in ordered.groups() {
            let group = &shown.groups[group as usize];
            let thread = self.thread(&group.name);
            // Stack and ns.
            let mut parts: Vec<(u32, u64)> = Vec::new();
            let mut callers: Vec<Option<u32>> = vec![None];
            for step in trees::walk(&ordered, group) {
                let Step::Enter(node) = step else {
                    callers.pop();
                    continue;
                };
                let role = shown.role(node);
                let node = ordered.node(node);
                let caller = callers.last().copied().flatten();
                self.own(node.location, caller, &node.own, settings.metric, &mut parts);
                let frame = self.frame(node.location, Category::of_role(role));
                callers.push(Some(self.stacks.place((frame, caller))));
            }
            self.own(
                &Location::named(FRAMELESS, FrameKind::Marker),
                None,
                &group.own,
                settings.metric,
                &mut parts,
            );
            let total: u64 = parts.iter().map(|(_, ns)| ns).sum();
            let samples = &mut self.samples[thread];
            let mut before = 0;
            for (stack, ns) in parts {
                samples.stack.push(stack);
                samples.weight.push(ms(ns));
                samples.time.push(ms(from) + ms(till - from) * (before as f64 / total as f64));
                before += ns;
            }
        }
    }

    /// Adds the time that ended in this frame: a sample for each state.
    fn own(
        &mut self,
        location: &Location,
        caller: Option<u32>,
        own: &Totals,
        metric: Metric,
        parts: &mut Vec<(u32, u64)>,
    ) {
        let states = (0..).zip(own.states_ns);
        let parts_of: Vec<(usize, u64)> = match metric {
            Metric::Wall => states.collect(),
            Metric::Cpu => vec![(State::Run as usize, own.cpu_ns)],
            // CPU time is not recorded per state, so all off-CPU time goes to the state that has
            // the largest share of it.
            Metric::Off => {
                let main = own.main_state(Metric::Off).map_or(State::Run, |(state, _)| state);
                vec![(main as usize, own.value(Metric::Off))]
            }
        };
        for (state, ns) in parts_of.into_iter().filter(|(_, ns)| *ns > 0) {
            let frame = self.frame(location, Category::of_state(state));
            parts.push((self.stacks.place((frame, caller)), ns));
        }
    }

    fn write(
        mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        whole: &Projection,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let session = &snapshot.session;
        let mut head = Vec::new();
        text::write_head(snapshot, settings, whole, &mut head)?;
        let mut remarks: Vec<(String, String)> = Vec::new();
        let head = String::from_utf8_lossy(&head);
        for (label, value) in head.lines().filter_map(|line| line.split_at_checked(text::INDENT)) {
            match (label.trim(), remarks.last_mut()) {
                // Continues the previous line.
                ("", Some((_, remark))) => *remark = format!("{remark} {value}"),
                (label, _) => remarks.push((label.to_owned(), value.to_owned())),
            }
        }
        let told = "within a bucket of history (1 s; 10 s where older than 10 minutes) samples stand in no order of time";
        remarks.push(("Time line".to_owned(), told.to_owned()));
        if snapshot.history.oldest() > whole.from {
            let oldest = dates::utc(dates::unix_ns(session, snapshot.history.oldest()));
            remarks.push(("Kept since".to_owned(), format!("{oldest} UTC")));
        }
        let entry = |(label, value)| json!({"label": label, "format": "string", "value": value});
        let entries: Vec<Value> = remarks.into_iter().map(entry).collect();
        let title = trees::title(snapshot);
        let pid = snapshot.targets.first().map_or(0, |target| target.pid).to_string();
        let threads: Vec<usize> =
            (0..self.samples.len()).filter(|at| !self.samples[*at].stack.is_empty()).collect();
        let visible: Vec<usize> = (0..threads.len().min(20)).collect();
        let mut meta = json!({
            // The page divides by it; profiles of other tools may have none.
            "interval": ms(snapshot.resolution().max(1_000_000)),
            "startTime": dates::unix_ns(session, whole.from) as f64 / 1e6,
            "profilingStartTime": 0.0,
            "profilingEndTime": ms(whole.elapsed()),
            "processType": 0,
            "categories": Category::all(),
            "product": title,
            "stackwalk": 1,
            "version": 36,
            "preprocessedProfileVersion": VERSION,
            "symbolicated": true,
            "symbolicationNotSupported": true,
            "markerSchema": [],
            "importedFrom": super::PROGRAM,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "keepProfileThreadOrder": true,
            "initialVisibleThreads": visible,
            "initialSelectedThreads": visible.get(..1).unwrap_or_default(),
            "extra": [{"label": "How it was measured", "entries": entries}],
        });
        if !session.is_foreign() {
            meta["oscpu"] = json!(format!("Linux {}", session.kernel));
            meta["arguments"] = json!(title);
            meta["logicalCPUs"] = json!((session.cores_milli as f64 / 1000.0).ceil());
        }
        let libs = Libs::new(snapshot);
        write!(out, "{{\"meta\":{meta},\"libs\":{},\"shared\":", Value::Array(libs.list.clone()))?;
        serde_json::to_writer(&mut *out, &self.shared(&libs))?;
        out.write_all(b",\"threads\":[")?;
        for (nth, thread) in threads.into_iter().enumerate() {
            let samples = &self.samples[thread];
            let thread = json!({
                "processType": "default",
                "processStartupTime": 0.0,
                "processShutdownTime": null,
                "registerTime": 0.0,
                "unregisterTime": null,
                "pausedRanges": [],
                "name": &*self.threads.list[thread],
                "isMainThread": nth == 0,
                "processName": title,
                "pid": pid,
                "tid": nth,
                "markers": {
                    "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0
                },
                "samples": {
                    "weightType": "tracing-ms",
                    "length": samples.stack.len(),
                    "stack": samples.stack,
                    "time": samples.time,
                    "weight": samples.weight,
                },
            });
            write!(out, "{}{thread}", if nth == 0 { "" } else { "," })?;
        }
        out.write_all(b"]}\n")
    }

    /// Returns the tables that the threads share.
    fn shared(&mut self, libs: &Libs) -> Value {
        let functions = std::mem::take(&mut self.functions.list);
        let resources: Vec<u32> =
            functions.iter().map(|(_, _, module)| self.modules.place(*module)).collect();
        let sources: Vec<Option<u32>> =
            functions.iter().map(|(_, file, _)| file.map(|file| self.files.place(file))).collect();
        let (frames, stacks) = (&self.frames.list, &self.stacks.list);
        let lib_of = |function: u32| {
            libs.by_module.get(&self.strings.list[functions[function as usize].2 as usize])
        };
        let nothing = |length: usize| vec![Value::Null; length];
        let offsets =
            (0..).zip(stacks).map(|(at, (_, caller))| caller.map_or(0, |caller| at - caller));
        json!({
            "stackTable": {
                "frame": stacks.iter().map(|(frame, _)| frame).collect::<Vec<_>>(),
                "prefixOffset": offsets.collect::<Vec<u32>>(),
                "length": stacks.len(),
            },
            "frameTable": {
                "address": vec![-1; frames.len()],
                "lib": frames.iter().map(|(function, ..)| lib_of(*function).copied().unwrap_or(-1)).collect::<Vec<i64>>(),
                "inlineDepth": vec![0; frames.len()],
                "category": frames.iter().map(|(_, _, category)| category).collect::<Vec<_>>(),
                "subcategory": vec![0; frames.len()],
                "func": frames.iter().map(|(function, ..)| function).collect::<Vec<_>>(),
                "nativeSymbol": nothing(frames.len()),
                "innerWindowID": nothing(frames.len()),
                "line": frames.iter().map(|(_, line, _)| line).collect::<Vec<_>>(),
                "column": nothing(frames.len()),
                "originalLocation": nothing(frames.len()),
                "length": frames.len(),
            },
            "funcTable": {
                "name": functions.iter().map(|(name, ..)| name).collect::<Vec<_>>(),
                "isJS": vec![false; functions.len()],
                "relevantForJS": vec![false; functions.len()],
                "resource": resources,
                "source": sources,
                "lineNumber": nothing(functions.len()),
                "columnNumber": nothing(functions.len()),
                "originalLocation": nothing(functions.len()),
                "length": functions.len(),
            },
            // Type 1: libraries.
            "resourceTable": {
                "name": self.modules.list,
                "host": nothing(self.modules.list.len()),
                "type": vec![1; self.modules.list.len()],
                "length": self.modules.list.len(),
            },
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
            "stringArray": self.strings.list.iter().map(|text| &**text).collect::<Vec<&str>>(),
            "sources": {
                "id": nothing(self.files.list.len()),
                "filename": self.files.list,
                "startLine": vec![1; self.files.list.len()],
                "startColumn": vec![1; self.files.list.len()],
                "sourceMapURL": nothing(self.files.list.len()),
                "content": nothing(self.files.list.len()),
                "length": self.files.list.len(),
            },
            "sourceLocationTable": {"source": [], "line": [], "column": [], "length": 0},
        })
    }
}

/// The files whose build is known.
#[derive(Default)]
struct Libs {
    /// Entries in the format's order.
    list: Vec<Value>,
    /// Indexes into the list. With several builds of a module a frame's build is unknown: the frame
    /// stands for a row, and a row joins all builds.
    by_module: FxHashMap<Arc<str>, i64>,
}

impl Libs {
    fn new(snapshot: &Snapshot) -> Libs {
        // Profiles of other tools do not record the machine.
        let arch = if snapshot.session.is_foreign() { "" } else { "x86_64" };
        let mut libs = Libs::default();
        for (module, builds) in snapshot.tables.builds() {
            // Excludes what other tools and `--redact` have instead of build ids: it could not be
            // looked up.
            let known: Vec<(&Arc<str>, String)> = builds
                .iter()
                .filter_map(|build_id| Some((build_id, breakpad_id(build_id)?)))
                .collect();
            if builds.len() == 1 && known.len() == 1 {
                libs.by_module.insert(module.clone(), libs.list.len() as i64);
            }
            libs.list.extend(known.into_iter().map(|(build_id, breakpad_id)| {
                json!({
                    "arch": arch,
                    "name": *module,
                    "path": *module,
                    "debugName": *module,
                    "debugPath": *module,
                    "breakpadId": breakpad_id,
                    "codeId": **build_id,
                })
            }));
        }
        libs
    }
}

/// Converts a build id for Breakpad symbol servers: 16 bytes, read as a little-endian GUID, and an
/// age of 0. `None` for anything but a GNU build id.
fn breakpad_id(build_id: &str) -> Option<String> {
    let byte = |at: usize| match build_id.get(at..at + 2) {
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(digits),
        None => Some("00"),
    };
    let whole = !build_id.is_empty() && build_id.len().is_multiple_of(2) && build_id.is_ascii();
    let all = (0..build_id.len()).step_by(2).all(|at| byte(at).is_some());
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let id: Option<String> = ORDER.into_iter().map(|nth| byte(2 * nth)).collect();
    id.filter(|_| whole && all).map(|id| id.to_ascii_uppercase() + "0")
}

/// The page's colour categories: the state of a running or waiting stack, and whose code called it.
struct Category;

impl Category {
    /// A grey category for frames without one, which the page requires.
    const OTHER: usize = 0;
    const ROLES: [Role; 5] = [Role::App, Role::Library, Role::Runtime, Role::Wait, Role::Kernel];

    fn of_state(state: usize) -> usize {
        Category::OTHER + 1 + state
    }

    fn of_role(role: Role) -> usize {
        let place = Category::ROLES.iter().position(|known| *known == role);
        place.map_or(Category::OTHER, |place| Category::OTHER + 1 + State::COUNT + place)
    }

    fn all() -> Vec<Value> {
        let category = |name: &str, color: &str| json!({"name": name, "color": color, "subcategories": ["Other"]});
        let state = |state: State| match state {
            State::Run => "green",
            State::Rdy => "yellow",
            State::Lock => "red",
            State::Wait => "lightblue",
            State::Io => "blue",
            // The page's word for idle.
            State::Poll | State::Sleep => "transparent",
            State::Disk => "magenta",
            State::Stopped => "brown",
        };
        let role = |role: Role| match role {
            Role::App => "orange",
            Role::Library => "lightred",
            Role::Kernel => "purple",
            Role::Runtime | Role::Wait | Role::Marker => "grey",
        };
        let states = State::ALL.map(|s| category(s.word(), state(s)));
        let roles = Category::ROLES.map(|r| category(&format!("{} code", r.word()), role(r)));
        [category("other", "grey")].into_iter().chain(states).chain(roles).collect()
    }
}

#[cfg(test)]
mod tests;
