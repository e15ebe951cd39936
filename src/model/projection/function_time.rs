//! The time of one function by source line and by place in its code.
//!
//! Self time is that of stacks whose innermost shown frame is the function, at the line and the
//! place where that frame is. As in rows of the user's code, what the function calls elsewhere is
//! its own. Total time is that of all stacks with the function, at every line and place where it
//! is: a recursive function counts once for each of them.
//!
//! A caller's place is that of its call: the byte before the return address, by which it is named
//! too. So a place may lie inside an instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::columns::NONE;
use super::fact_reader::{ReadFacts, Reader};
use super::rows::Rows;
use super::shown_stacks::{Entry, Walker};
use super::{Projector, Totals};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{FrameKind, Location, StackId, Tables};
use crate::model::projection::settings::Settings;
use crate::model::vocabulary::frame::{FileId, FrameCode};

/// Maximum lines and places of a function, each; further ones count as unknown.
pub const MAX_PLACES: usize = if cfg!(test) { 8 } else { 20_000 };

/// Identifies a function, as rows of functions do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FunctionKey {
    pub function: Arc<str>,
    pub module: Arc<str>,
    pub kind: FrameKind,
    /// Its time is also that in which it stands for what the user's code calls; see
    /// [`super::Projection::is_entry`]. Rows of inverted trees have that time.
    pub has_calls: bool,
}

impl FunctionKey {
    pub fn of(location: &Location) -> FunctionKey {
        let Location { function, module, kind, .. } = location.clone();
        FunctionKey { function, module, kind, has_calls: false }
    }

    /// Returns whether an entry is a frame of the function.
    fn is_at(&self, entry: &Entry, rows: &Rows) -> bool {
        (self.has_calls || !entry.is_entry) && self.is(rows.location(entry.location))
    }

    /// Returns whether the location is in the function.
    pub fn is(&self, location: &Location) -> bool {
        self.function == location.function
            && self.module == location.module
            && self.kind == location.kind
    }
}

/// A place in the code of a file: the one under an executing instruction, or the last byte of a
/// call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CodePlace {
    /// Files of one build are one file: the first that was mapped.
    pub file: FileId,
    /// Offset in the file.
    pub offset: u64,
}

/// A line of a source file; `None` as far as it is unknown.
pub type SourceLine = (Option<Arc<str>>, Option<u32>);

/// The time at one line or place.
#[derive(Clone, PartialEq, Debug)]
pub struct TimeAt<Key> {
    pub at: Key,
    pub total: Totals,
    pub own: Totals,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FunctionTime {
    pub total: Totals,
    /// The sum of that of all lines, and of that of all places.
    pub own: Totals,
    /// Ordered by file and line; unknown ones are first.
    pub lines: Vec<TimeAt<SourceLine>>,
    /// Ordered. `None`: frames that are in no file, as those of an interpreter.
    pub places: Vec<TimeAt<Option<CodePlace>>>,
    /// The builds of the files of `places`, where they are known; see
    /// [`crate::model::facts::tables::Named::build_id`].
    pub builds: Vec<(FileId, Arc<str>)>,
    /// The source files of the lines in each mapped file.
    pub sources: BTreeMap<FileId, BTreeSet<Arc<str>>>,
}

impl FunctionTime {
    /// Returns the build of a file of [`FunctionTime::places`].
    pub fn build(&self, file: FileId) -> Option<&Arc<str>> {
        self.builds.iter().find(|(of, _)| *of == file).map(|(_, build)| build)
    }
}

/// Sums by key, in order of first occurrence; the first is that of unknown ones.
struct Sums<Key> {
    index: FxHashMap<Key, u32>,
    list: Vec<TimeAt<Option<Key>>>,
}

impl<Key: Copy + Eq + Hash> Sums<Key> {
    fn new() -> Sums<Key> {
        let unknown = TimeAt { at: None, total: Totals::default(), own: Totals::default() };
        Sums { index: FxHashMap::default(), list: vec![unknown] }
    }

    /// Returns the index of a key's sum; adds it if there is room.
    fn slot(&mut self, key: Option<Key>) -> u32 {
        let Some(key) = key else { return 0 };
        if let Some(slot) = self.index.get(&key) {
            return *slot;
        }
        if self.list.len() > MAX_PLACES {
            return 0;
        }
        let slot = self.list.len() as u32;
        self.index.insert(key, slot);
        self.list.push(TimeAt { at: Some(key), total: Totals::default(), own: Totals::default() });
        slot
    }

    /// Adds the time of stacks that are at these slots, once at each; their own time is at `own`.
    fn add(&mut self, slots: &mut Vec<u32>, own: Option<u32>, time: &Totals) {
        slots.sort_unstable();
        slots.dedup();
        slots.iter().for_each(|slot| self.list[*slot as usize].total.add(time));
        if let Some(own) = own {
            self.list[own as usize].own.add(time);
        }
    }

    /// Returns the sums that are not empty.
    fn sums(self) -> impl Iterator<Item = TimeAt<Option<Key>>> {
        self.list.into_iter().filter(|sum| sum.total != Totals::default())
    }
}

/// The places of frames, and the builds of their files.
#[derive(Default)]
struct Files {
    builds: Vec<(FileId, Arc<str>)>,
    /// By file: the first of the same build.
    first: FxHashMap<FileId, FileId>,
}

impl Files {
    /// Returns the place of a stack's innermost frame.
    fn place(&mut self, tables: &Tables, stack: StackId) -> Option<CodePlace> {
        let frame = tables.top(stack);
        let FrameCode::Code { file, offset, exact } = tables.frame(frame).decode() else {
            return None;
        };
        let offset = offset.checked_sub(u64::from(!exact))?;
        let builds = &mut self.builds;
        let file = *self.first.entry(file).or_insert_with(|| {
            let Some(build) = &tables.named(frame).build_id else { return file };
            match builds.iter().find(|(_, known)| known == build) {
                Some((first, _)) => *first,
                None => {
                    builds.push((file, build.clone()));
                    file
                }
            }
        });
        Some(CodePlace { file, offset })
    }
}

impl Projector {
    /// Returns the time of a function in the shown range by line and by place, under the same
    /// filters as the projection. Off-CPU time is that of each stack; rows settle it by their sum.
    pub fn function_time(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        function: &FunctionKey,
    ) -> FunctionTime {
        let (range, at) = (settings.range, snapshot.at);
        let without_now;
        let snapshot = match snapshot.history.is_past(range) {
            true => {
                without_now = snapshot.without_now();
                &without_now
            }
            false => snapshot,
        };
        self.function_time_of(snapshot, settings, function, &mut |f| {
            snapshot.history.read_by_bucket(range, at, f)
        })
    }

    /// Does the same with facts from elsewhere; `snapshot` gives their names.
    pub(super) fn function_time_of(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        function: &FunctionKey,
        facts: &mut ReadFacts<'_>,
    ) -> FunctionTime {
        self.update(snapshot, settings);
        let Projector { rows, verdicts, groups, facts: scratch, stacks, .. } = self;
        let mut shown =
            Reader::new(snapshot, settings, rows, verdicts, groups, scratch).read(facts);
        let sums = std::mem::take(&mut shown.sums);
        let walker = Walker { tables: &snapshot.tables, settings, rows, verdicts };
        let cells = || (0..).zip(&shown.cells).filter(|(_, cell)| shown.is_shown(cell));
        stacks.update(&walker, cells().map(|(_, cell)| cell.stack));
        let has_it = has_function(stacks.entries(), rows, function);
        // By entry, so that equal stacks of several threads are walked once.
        let mut times: FxHashMap<u32, Totals> = FxHashMap::default();
        for (at, cell) in cells() {
            let entry = stacks.attach(cell.stack);
            if entry != NONE && has_it[entry as usize] {
                times.entry(entry).or_default().add(&sums.get(at));
            }
        }
        shown.done(scratch, &sums);
        let mut times: Vec<(u32, Totals)> = times.into_iter().collect();
        times.sort_unstable_by_key(|(entry, _)| *entry);
        sum_up(&snapshot.tables, (&*rows, stacks.entries()), function, times)
    }
}

/// Returns whether the function is on the way to each entry. An entry that stands for what its
/// caller calls elsewhere is not the function, unless the key says so.
fn has_function(entries: &[Entry], rows: &Rows, function: &FunctionKey) -> Vec<bool> {
    let locations = 0..rows.location_count() as u32;
    let is_it: Vec<bool> = locations.map(|location| function.is(rows.location(location))).collect();
    let mut has_it: Vec<bool> = Vec::with_capacity(entries.len());
    for entry in entries {
        let above = entry.parent != NONE && has_it[entry.parent as usize];
        let counts = function.has_calls || !entry.is_entry;
        has_it.push(above || counts && is_it[entry.location as usize]);
    }
    has_it
}

fn sum_up(
    tables: &Tables,
    (rows, entries): (&Rows, &[Entry]),
    function: &FunctionKey,
    times: Vec<(u32, Totals)>,
) -> FunctionTime {
    let mut time = FunctionTime::default();
    let (mut lines, mut places) = (Sums::new(), Sums::new());
    let mut files = Files::default();
    let (mut of_lines, mut of_places) = (Vec::new(), Vec::new());
    for (attached, mut totals) in times {
        totals.settle_off();
        let mut at = attached;
        // What a function calls elsewhere is its own time.
        while !function.has_calls
            && entries[at as usize].is_entry
            && entries[at as usize].parent != NONE
        {
            at = entries[at as usize].parent;
        }
        of_lines.clear();
        of_places.clear();
        let mut own = None;
        let innermost = at;
        while at != NONE {
            let entry = entries[at as usize];
            if function.is_at(&entry, rows) {
                let Location { file, line, .. } = &**rows.location(entry.location);
                let is_known = file.is_some() || line.is_some();
                let line = is_known.then(|| rows.places().line_of[entry.location as usize]);
                let line = lines.slot(line);
                let place = files.place(tables, entry.stack);
                if let (Some(place), Some(file)) = (place, file) {
                    time.sources.entry(place.file).or_default().insert(file.clone());
                }
                let place = places.slot(place);
                of_lines.push(line);
                of_places.push(place);
                if at == innermost {
                    own = Some((line, place));
                }
            }
            at = entry.parent;
        }
        lines.add(&mut of_lines, own.map(|(line, _)| line), &totals);
        places.add(&mut of_places, own.map(|(_, place)| place), &totals);
        time.total.add(&totals);
        if own.is_some() {
            time.own.add(&totals);
        }
    }
    let line_of = |location: u32| {
        let location = rows.location(location);
        (location.file.clone(), location.line)
    };
    let source = |sum: TimeAt<Option<u32>>| TimeAt {
        at: sum.at.map(line_of).unwrap_or_default(),
        total: sum.total,
        own: sum.own,
    };
    time.lines = lines.sums().map(source).collect();
    time.lines.sort_by(|a, b| a.at.cmp(&b.at));
    time.places = places.sums().collect();
    time.places.sort_by_key(|sum| sum.at);
    time.builds = files.builds;
    time
}
