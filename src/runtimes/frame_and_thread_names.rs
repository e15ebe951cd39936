//! Names of runtime frames and threads. The walker gives out ids while the target's memory is
//! readable. The reducer looks the names up by these ids at any later time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::java_class_origins::ClassOrigins;
use super::source_maps::{Origin as ScriptOrigin, SourceMaps};
use crate::model::facts::tables::{FrameKind, Location, Named};
use crate::model::vocabulary::anonymous;
use crate::model::vocabulary::frame::{FrameCode, RawFrame, RawName};
use crate::model::vocabulary::role::Origin;

/// Maximum named frames; all beyond share one name.
const NAMES_MAX: usize = 1_000_000;
/// Maximum processes that the notice lists.
const REPORTED_MAX: usize = 3;
/// Maximum thread names; beyond, threads keep the kernel's names.
const THREADS_MAX: usize = 100_000;

/// How far behind a place of a source map a function may begin that is there: `async function*`.
const BEHIND_MAX: u32 = 16;

/// Names of all runtimes of a session; clones share them.
#[derive(Clone, Default)]
pub struct Names {
    table: Arc<Mutex<Table>>,
    class_origins: ClassOrigins,
    source_maps: SourceMaps,
}

/// What a frame is, and where in its script; nothing for code of no script.
type Described = (Arc<[Location]>, Arc<[InScript]>);

/// Where a location is in a script. Columns are from 0 on, in UTF-16 units.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct InScript {
    /// In its line; `None`: unknown, or the script has no source map.
    pub column: Option<u32>,
    /// Line and column where a function begins that has no name.
    pub begins: Option<(u32, u32)>,
}

#[derive(Default)]
struct Table {
    named: Vec<Described>,
    ids: FxHashMap<Described, u64>,
    threads: Vec<Arc<str>>,
    thread_ids: FxHashMap<Arc<str>, u64>,
    runtimes: FxHashMap<u32, &'static str>,
    missing: BTreeMap<u32, String>,
    unseen: BTreeMap<u32, &'static str>,
}

impl Names {
    /// Returns names that are those of the sources of scripts, where `source_maps` and there are
    /// maps.
    pub fn new(source_maps: bool) -> Names {
        let source_maps = if source_maps { SourceMaps::new() } else { SourceMaps::default() };
        Names { source_maps, ..Names::default() }
    }

    /// Returns the frame for this code: outermost function first, then what was inlined into it.
    /// Equal locations are the same frame, wherever their code lies.
    pub fn frame(&self, locations: Vec<Location>) -> RawFrame {
        self.frame_at(locations, Vec::new())
    }

    /// Does the same for scripts. `places`: of each location.
    pub fn frame_at(&self, locations: Vec<Location>, places: Vec<InScript>) -> RawFrame {
        let mut table = self.table();
        let (locations, places) = if table.named.len() >= NAMES_MAX || locations.is_empty() {
            (vec![other()], Vec::new())
        } else {
            (locations, places)
        };
        let described: Described = (locations.into(), places.into());
        if let Some(id) = table.ids.get(&described) {
            return RawFrame::new(FrameCode::Runtime { id: *id });
        }
        let id = table.named.len() as u64;
        table.named.push(described.clone());
        table.ids.insert(described, id);
        RawFrame::new(FrameCode::Runtime { id })
    }

    /// Records that a process runs a script, of this number of UTF-16 units.
    pub fn script(&self, pid: u32, path: &Arc<str>, characters: u32) {
        self.source_maps.request(pid, path, characters);
    }

    /// Returns the locations of a runtime's frame; `None` for any other frame. It is pending while
    /// it is being found out whose code it is; see [`Names::is_placing`].
    pub fn named(&self, frame: RawFrame) -> Option<Named> {
        let FrameCode::Runtime { id } = frame.decode() else { return None };
        let (mut locations, places) = self.table().named.get(usize::try_from(id).ok()?)?.clone();
        let mut pending = false;
        if !places.is_empty() {
            locations = self.of_sources(&locations, &places, &mut pending);
        }
        let origin = |location: &Location| match location.kind {
            FrameKind::Java => {
                self.class_origins.of_method(&location.function).unwrap_or_else(|| {
                    pending = true;
                    Origin::Unknown
                })
            }
            _ => Origin::Unknown,
        };
        let origins = locations.iter().map(origin).collect();
        Some(Named { pending, origins, ..Named::known(locations) })
    }

    /// Returns locations with files and lines of their sources. Sets `pending` if a source map is
    /// being read.
    fn of_sources(
        &self,
        locations: &[Location],
        places: &[InScript],
        pending: &mut bool,
    ) -> Arc<[Location]> {
        let of_source = |(location, place): (&Location, &InScript)| {
            let mut location = location.clone();
            let Some(script) = location.file.clone() else { return location };
            let mut of = |(line, column)| match self.source_maps.origin(&script, line, column) {
                ScriptOrigin::Source { source, line, column, behind } => {
                    Some((source, line, column, behind))
                }
                ScriptOrigin::Pending => {
                    *pending = true;
                    None
                }
                ScriptOrigin::Unmapped => None,
            };
            if let Some(begin) = place.begins {
                // A function that a bundler has made has no place in a source; the last one before
                // it is another's.
                let (file, line, column, _) = of(begin)
                    .filter(|(.., behind)| *behind <= BEHIND_MAX)
                    .unwrap_or_else(|| (script.clone(), begin.0, begin.1, 0));
                location.function = anonymous::name(&file, line, column.saturating_add(1));
            }
            if let Some((source, line, ..)) = location.line.zip(place.column).and_then(of) {
                location.module = source.clone();
                (location.file, location.line) = (Some(source), Some(line));
            }
            location
        };
        locations.iter().zip(places).map(of_source).collect()
    }

    /// Returns whether it is being found out whose code some frames are, or of which source.
    /// Afterwards they are to be asked for again.
    pub fn is_placing(&self) -> bool {
        self.class_origins.is_pending() || self.source_maps.is_pending()
    }

    /// Returns the name that stands for this text; `None` where there are too many.
    pub fn thread_name(&self, text: &str) -> Option<RawName> {
        let mut table = self.table();
        if let Some(id) = table.thread_ids.get(text) {
            return Some(RawName::of_runtime(*id));
        }
        let id = table.threads.len() as u64;
        if table.threads.len() >= THREADS_MAX {
            return None;
        }
        let shared = Arc::<str>::from(text);
        table.threads.push(shared.clone());
        table.thread_ids.insert(shared, id);
        Some(RawName::of_runtime(id))
    }

    /// Returns a thread's name, if a runtime provided it.
    pub fn thread(&self, name: RawName) -> Option<Arc<str>> {
        let id = name.runtime_id()?;
        self.table().threads.get(usize::try_from(id).ok()?).cloned()
    }

    /// Records that this process runs code of that runtime.
    pub fn attached(&self, pid: u32, runtime: &'static str) {
        self.table().runtimes.insert(pid, runtime);
        if runtime == "jvm" {
            self.class_origins.attached(pid);
        }
    }

    /// Records what cannot be read of a process's runtime, and why; `None`: all can be read.
    pub fn missing(&self, pid: u32, text: Option<String>) {
        let mut table = self.table();
        match text {
            Some(text) => drop(table.missing.insert(pid, text)),
            None => drop(table.missing.remove(&pid)),
        }
        table.unseen.remove(&pid);
    }

    /// Records what cannot be seen of a process's runtime, though all can be read. It holds until
    /// the next call of [`Names::missing`].
    pub fn unseen(&self, pid: u32, text: &'static str) {
        self.table().unseen.insert(pid, text);
    }

    /// Returns one sentence about what cannot be read, if anything.
    pub fn notice(&self) -> Option<String> {
        let table = self.table();
        let missing = table.missing.iter().map(|(pid, text)| (pid, text.as_str()));
        let unseen = table.unseen.iter().map(|(pid, text)| (pid, *text));
        let reported = missing
            .chain(unseen)
            .take(REPORTED_MAX)
            .map(|(pid, text)| format!("process {pid}: {text}"));
        let reported: Vec<String> = reported.collect();
        (!reported.is_empty()).then(|| reported.join("; "))
    }

    /// Returns the runtime of a process: `jvm`, or `native`.
    pub fn runtime(&self, pid: u32) -> &'static str {
        self.table().runtimes.get(&pid).copied().unwrap_or("native")
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The location of every frame that found the table full.
fn other() -> Location {
    Location {
        function: "(other)".into(),
        module: "".into(),
        file: None,
        line: None,
        kind: FrameKind::Jit,
        tier: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn java(function: &str) -> Location {
        Location { function: function.into(), kind: FrameKind::Java, line: Some(7), ..other() }
    }

    #[test]
    fn equal_names_are_one_frame() {
        let names = Names::default();
        let (a, b) = (names.frame(vec![java("A.a")]), names.frame(vec![java("A.a"), java("B.b")]));
        assert_ne!(a, b);
        assert_eq!(names.clone().frame(vec![java("A.a")]), a);
        assert_eq!(names.named(b).map(|named| named.locations.len()), Some(2));
        assert_eq!(names.named(RawFrame::new(FrameCode::Runtime { id: 99 })), None);
        assert_eq!(names.named(RawFrame::new(FrameCode::Kernel { address: 0 })), None);
    }

    #[test]
    fn a_frame_of_a_script_gets_the_place_in_its_source() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let script: Arc<str> = path("a.js").into();
        std::fs::write(&*script, "f();g()").expect("written");
        // The second call is in the third line of a source.
        let map = r#"{"version":3,"sources":["a.ts"],"mappings":"AAAA,IAEA"}"#;
        std::fs::write(path("a.js.map"), map).expect("written");
        let (names, off) = (Names::new(true), Names::new(false));
        let (file, module) = (Some(script.clone()), script.clone());
        let called =
            Location { file, module, line: Some(1), ..Location::named("f", FrameKind::Jit) };
        let place = |column| InScript { column, begins: Some((1, 4)) };
        let frame =
            |names: &Names, column| names.frame_at(vec![called.clone()], vec![place(column)]);
        let frames = [Some(0), Some(4), None].map(|column| frame(&names, column));
        assert_eq!(frame(&names, Some(4)), frames[1]);
        assert!(frames[0] != frames[1] && frames[1] != frames[2]);
        names.script(std::process::id(), &script, 7);
        off.script(std::process::id(), &script, 7);
        while names.is_placing() {
            std::thread::yield_now();
        }
        let of = |names: &Names, frame| {
            let named = names.named(frame).expect("a frame");
            let Location { function, file, line, module, .. } = &named.locations[0];
            assert_eq!((file.as_deref(), named.pending), (Some(&**module), false));
            (module.to_string(), line.expect("a line"), function.to_string())
        };
        let (in_source, in_script) = ("(anonymous a.ts:3:1)", "(anonymous a.js:1:5)");
        let source = path("a.ts");
        assert_eq!(of(&names, frames[0]), (source.clone(), 1, in_source.into()));
        assert_eq!(of(&names, frames[1]), (source, 3, in_source.into()));
        let unknown = (script.to_string(), 1, in_source.into());
        assert_eq!(of(&names, frames[2]), unknown, "no column is known");
        assert_eq!(of(&off, frame(&off, Some(4))), (script.to_string(), 1, in_script.into()));
        // No place in a source is near where it begins.
        let place = InScript { column: Some(0), begins: Some((1, 4 + BEHIND_MAX)) };
        let near = names.frame_at(vec![called.clone()], vec![place]);
        assert_eq!(of(&names, near).2, in_source);
        let place = InScript { begins: Some((1, 5 + BEHIND_MAX)), ..place };
        let far = names.frame_at(vec![called.clone()], vec![place]);
        assert_eq!(of(&names, far).2, format!("(anonymous a.js:1:{})", 6 + BEHIND_MAX));
        // Of a map that is being read the script's line is shown meanwhile.
        let slow = Names::new(true);
        let frame = frame(&slow, Some(4));
        slow.script(std::process::id(), &script, 7);
        let named = slow.named(frame).expect("a frame");
        assert!(named.pending || of(&slow, frame).1 == 3);
    }

    #[test]
    fn threads_have_whole_names() {
        let names = Names::default();
        let long = names.thread_name("a name of more than fifteen bytes").expect("room");
        assert_eq!(names.thread_name("a name of more than fifteen bytes"), Some(long));
        assert_ne!(names.thread_name("another"), Some(long));
        assert_eq!(names.thread(long).as_deref(), Some("a name of more than fifteen bytes"));
        assert_eq!(names.thread(RawName::new(b"worker")), None);
        assert_eq!(names.notice(), None);
        (1..9).for_each(|pid| names.missing(pid, Some("lacks a field".into())));
        names.missing(2, None);
        let says = "process 1: lacks a field; process 3: lacks a field; process 4: lacks a field";
        assert_eq!(names.notice().as_deref(), Some(says));
        names.attached(7, "jvm");
        assert_eq!((names.runtime(7), names.runtime(8)), ("jvm", "native"));
    }
}
