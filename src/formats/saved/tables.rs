//! Tables in blocks: names of threads, frames, stacks. Each block states its ids and contains the
//! strings they need, so every intact block of a damaged file is usable. Ids that no block holds
//! become [`LOST`].
//!
//! Frames are identified by name, not by address. The file therefore reveals no addresses of the
//! target or the kernel.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::bytes::{Put, Take};
use super::listed::{Listed, string, strings};
use super::{Budget, blockers, kind};
use crate::model::facts::interner::{MAX_BLOCKERS, MAX_NAMES, MAX_STACKS};
use crate::model::facts::tables::{
    Blocker, BlockerId, FrameId, FrameKind, Location, NameId, Named, Parts, StackId, Tables, Tier,
};
use crate::model::vocabulary::frame::{FileId, FrameCode, Marker, RawFrame, ThreadKind};
use crate::model::vocabulary::role::{Origin, Origins};
use crate::model::vocabulary::state::FutexKind;

/// The name of frames and threads that a damaged file has lost.
pub const LOST: &str = "[lost from the file]";

/// Maximum frames of a stack: a record of the ring buffer has room for no more.
const DEPTH_MAX: u16 = 8_192;

/// Maximum functions at one address; inlining is at most 128 deep.
const LOCATIONS_MAX: usize = 1_024;

/// Numbers of ids of each kind. The file states them first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub names: usize,
    pub frames: usize,
    pub stacks: usize,
    /// Frames with a known build of their file.
    pub builds: usize,
    pub blockers: usize,
}

impl Counts {
    pub fn of(tables: &Tables) -> Counts {
        let frames = tables.frame_count();
        let of_builds =
            (0..frames).filter(|id| tables.named(FrameId(*id as u32)).build_id.is_some());
        Counts {
            names: tables.name_count(),
            frames,
            stacks: tables.stack_count(),
            builds: of_builds.count(),
            blockers: tables.blocker_count(),
        }
    }

    /// Returns whether no count exceeds the limit of a session.
    pub fn are_sound(&self) -> bool {
        self.names <= MAX_NAMES
            && self.frames <= MAX_STACKS
            && self.stacks <= MAX_STACKS
            && self.builds <= self.frames
            && self.blockers <= MAX_BLOCKERS
    }
}

pub fn write(tables: &Tables, out: &mut dyn Write) -> io::Result<()> {
    let counts = Counts::of(tables);
    let mut block = Listed::new(kind::NAMES);
    for id in (0..counts.names).map(|id| NameId(id as u32)) {
        block.text(tables.name(id));
        block.list.number(tables.kind(id) as u64);
        block.next(out)?;
    }
    block.end(out)?;

    let mut block = Listed::new(kind::FRAMES);
    for id in (0..counts.frames).map(|id| FrameId(id as u32)) {
        let named = tables.named(id);
        let is_marker = matches!(tables.frame(id).decode(), FrameCode::Marker { .. });
        let locations = &named.locations[..named.locations.len().min(LOCATIONS_MAX)];
        block.list.number(
            (locations.len() as u64) << 2 | u64::from(named.pending) << 1 | u64::from(is_marker),
        );
        for location in locations {
            block.list.number(code(location.kind, location.tier));
            block.text(&location.function);
            block.text(&location.module);
            block.list.flag(location.file.is_some());
            if let Some(file) = &location.file {
                block.text(file);
            }
            block.list.number(location.line.map_or(0, |line| u64::from(line) + 1));
        }
        block.next(out)?;
    }
    block.end(out)?;

    if counts.builds > 0 {
        let mut block = Listed::new(kind::BUILDS);
        for id in (0..counts.frames).map(|id| FrameId(id as u32)) {
            let build_id = &tables.named(id).build_id;
            block.list.flag(build_id.is_some());
            if let Some(build_id) = build_id {
                block.text(build_id);
            }
            block.next(out)?;
        }
        block.end(out)?;
    }

    let mut block = Listed::new(kind::ORIGINS);
    for id in (0..counts.frames).map(|id| FrameId(id as u32)) {
        write_origins(&tables.named(id).origins, &mut block.list);
        block.next(out)?;
    }
    block.end(out)?;

    let mut block = Listed::new(kind::PLACES);
    for id in (0..counts.frames).map(|id| FrameId(id as u32)) {
        write_place(tables.frame(id), &mut block.list);
        block.next(out)?;
    }
    block.end(out)?;

    let mut block = Listed::new(kind::STACKS);
    let mut before = 0;
    for id in 0..counts.stacks as u32 {
        if block.count == 0 {
            before = 0;
        }
        let (stack, FrameId(top)) = (StackId(id), tables.top(StackId(id)));
        block
            .list
            .number(u64::from(id - tables.parent(stack).0) << 2 | tables.futex_kind(stack) as u64);
        block.list.signed(i64::from(top) - i64::from(before));
        before = top;
        block.next(out)?;
    }
    block.end(out)?;

    let mut block = Listed::new(kind::BLOCKERS);
    for id in 1..=counts.blockers as u32 {
        if let Some(blocker) = tables.blocker(BlockerId(id)) {
            blockers::write(blocker, &mut block);
        }
        block.next(out)?;
    }
    block.end(out)
}

/// The first number in a block of origins that is no [`Origin`].
const EACH: u64 = 16;

const KINDS: [FrameKind; 7] = [
    FrameKind::Native,
    FrameKind::Kernel,
    FrameKind::Java,
    FrameKind::Python,
    FrameKind::Jit,
    FrameKind::Marker,
    FrameKind::Thread,
];
const TIERS: [Option<Tier>; 9] = [
    None,
    Some(Tier::Interpreted),
    Some(Tier::C1),
    Some(Tier::C2),
    Some(Tier::Inlined),
    Some(Tier::Native),
    Some(Tier::Baseline),
    Some(Tier::Optimized),
    Some(Tier::Gil),
];
const THREAD_KINDS: [ThreadKind; 3] = [ThreadKind::Plain, ThreadKind::Daemon, ThreadKind::Internal];
const FUTEX_KINDS: [FutexKind; 3] = [FutexKind::Lock, FutexKind::Wait, FutexKind::Sleep];

/// Encodes kind and tier as positions in the lists above. The positions are part of the format, so
/// the lists may only grow at their ends.
fn code(kind: FrameKind, tier: Option<Tier>) -> u64 {
    let kind = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
    let tier = TIERS.iter().position(|known| *known == tier).unwrap_or(0);
    (tier << 4 | kind) as u64
}

/// Writes the one origin of all functions, or else [`EACH`] + their number and then each.
fn write_origins(origins: &Origins, list: &mut Put) {
    match origins {
        Origins::All(origin) => list.number(*origin as u64),
        Origins::Each(origins) => {
            let origins = &origins[..origins.len().min(LOCATIONS_MAX)];
            list.number(EACH + origins.len() as u64);
            origins.iter().for_each(|origin| list.number(*origin as u64));
        }
    }
}

/// Writes the place of a frame in the code of a file: the file's number + 1, or 0 without one, then
/// the offset and whether an instruction was executing there.
fn write_place(frame: RawFrame, list: &mut Put) {
    match frame.decode() {
        FrameCode::Code { file, offset, exact } => {
            list.number(u64::from(file.0) + 1);
            list.number(offset << 1 | u64::from(exact));
        }
        _ => list.number(0),
    }
}

/// Decodes a place. The inner `None`: the frame has none.
fn place(take: &mut Take<'_>) -> Option<Option<RawFrame>> {
    let Some(file) = take.number()?.checked_sub(1) else { return Some(None) };
    let file = FileId(u32::try_from(file).ok().filter(|file| *file <= FileId::MAX)?);
    let offset = take.number()?;
    let code = FrameCode::Code { file, offset: offset >> 1, exact: offset & 1 == 1 };
    // Offsets that no file has become markers.
    Some(Some(RawFrame::new(code)).filter(|frame| frame.decode() == code))
}

fn origins(take: &mut Take<'_>) -> Option<Origins> {
    let number = take.number()?;
    match number.checked_sub(EACH) {
        None => Some(Origins::All(Origin::from_code(number))),
        Some(count) if count > LOCATIONS_MAX as u64 => None,
        Some(count) => (0..count).map(|_| Some(Origin::from_code(take.number()?))).collect(),
    }
}

fn of_code(code: u64) -> Option<(FrameKind, Option<Tier>)> {
    let (kind, tier) = (code & 15, usize::try_from(code >> 4).ok()?);
    Some((*KINDS.get(kind as usize)?, *TIERS.get(tier)?))
}

/// The entries read so far, by id.
#[derive(Default)]
pub struct Found {
    names: Vec<Option<(Arc<str>, ThreadKind)>>,
    frames: Vec<Option<(RawFrame, Named)>>,
    /// By frame. Empty if the file holds no builds.
    builds: Vec<Option<Arc<str>>>,
    /// By frame. Older files hold none.
    origins: Vec<Origins>,
    /// By frame. Older files hold none.
    places: Vec<Option<RawFrame>>,
    stacks: Vec<Option<(StackId, FrameId, FutexKind)>>,
    blockers: Vec<Option<Blocker>>,
    /// The numbers of entries that the file promises.
    counts: Counts,
    /// Shares one allocation per string, since several blocks may contain the same string.
    strings: HashMap<Arc<str>, ()>,
}

impl Found {
    pub fn new(counts: Counts) -> Found {
        Found {
            names: vec![None; counts.names],
            frames: vec![None; counts.frames],
            builds: vec![None; if counts.builds > 0 { counts.frames } else { 0 }],
            origins: vec![Origins::default(); counts.frames],
            places: vec![None; counts.frames],
            stacks: vec![None; counts.stacks],
            blockers: vec![None; counts.blockers],
            counts,
            strings: HashMap::new(),
        }
    }

    /// Decodes a block of one of the four kinds. `None` if it is corrupt; the entries before the
    /// corrupt one are kept.
    pub fn take(&mut self, kind: u32, block: &[u8], budget: &mut Budget) -> Option<()> {
        let mut take = Take(block);
        let first = usize::try_from(take.number()?).ok()?;
        let strings = strings(&mut take, budget, &mut |text| self.intern(text))?;
        for id in first..first.checked_add(take.count(match kind {
            kind::BUILDS | kind::ORIGINS | kind::PLACES => 1,
            _ => 2,
        })?)? {
            match kind {
                kind::NAMES => {
                    let name =
                        (string(&mut take, &strings)?, *THREAD_KINDS.get(take.number()? as usize)?);
                    *self.names.get_mut(id)? = Some(name);
                }
                kind::FRAMES => {
                    let named = frame(id, &mut take, &strings, budget)?;
                    *self.frames.get_mut(id)? = named;
                }
                kind::BUILDS => {
                    let build_id =
                        if take.flag()? { Some(string(&mut take, &strings)?) } else { None };
                    *self.builds.get_mut(id)? = build_id;
                }
                kind::ORIGINS => *self.origins.get_mut(id)? = origins(&mut take)?,
                kind::PLACES => *self.places.get_mut(id)? = place(&mut take)?,
                kind::BLOCKERS => {
                    let blocker =
                        blockers::take(&mut take, &strings, self.names.len(), self.stacks.len())?;
                    *self.blockers.get_mut(id)? = blocker;
                }
                _ => {
                    let before =
                        if id == first { None } else { self.stacks.get(id - 1).copied().flatten() };
                    *self.stacks.get_mut(id)? =
                        Some(stack(id, before.map_or(0, |b| b.1.0), &mut take)?);
                }
            }
        }
        Some(())
    }

    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some((known, ())) = self.strings.get_key_value(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.strings.insert(Arc::clone(&text), ());
        text
    }

    /// Builds the tables, and counts the missing entries of each.
    pub fn tables(self) -> Option<(Tables, Counts)> {
        let missing = |found: usize, all: usize| all - found;
        let lost = Counts {
            names: missing(self.names.iter().flatten().count(), self.names.len()),
            frames: missing(self.frames.iter().flatten().count(), self.frames.len()),
            stacks: missing(self.stacks.iter().flatten().count(), self.stacks.len()),
            builds: self.counts.builds.saturating_sub(self.builds.iter().flatten().count()),
            blockers: missing(self.blockers.iter().flatten().count(), self.blockers.len()),
        };
        let text: Arc<str> = LOST.into();
        let raw = RawFrame::marker(Marker::Other);
        let unknown = Location { function: text.clone(), ..Location::named("", FrameKind::Marker) };
        let unnamed = (raw, Named::known([unknown]));
        let names = self
            .names
            .into_iter()
            .map(|name| name.unwrap_or((text.clone(), ThreadKind::Plain)))
            .collect();
        let mut frames: Vec<_> =
            self.frames.into_iter().map(|frame| frame.unwrap_or(unnamed.clone())).collect();
        for ((_, named), build_id) in frames.iter_mut().zip(self.builds) {
            named.build_id = build_id;
        }
        for ((_, named), origins) in frames.iter_mut().zip(self.origins) {
            named.origins = origins;
        }
        let is_marker = |raw: &RawFrame| matches!(raw.decode(), FrameCode::Marker { .. });
        for ((raw, _), place) in frames.iter_mut().zip(self.places) {
            *raw = place.filter(|_| !is_marker(raw)).unwrap_or(*raw);
        }
        // The substitute for lost stacks gets the id after all others.
        let lost_frame = FrameId(frames.len() as u32);
        let mut depths: Vec<u16> = Vec::with_capacity(self.stacks.len());
        let mut stacks = Vec::with_capacity(self.stacks.len());
        let mut uses_lost = false;
        for stack in self.stacks {
            let deep = |(parent, ..): &(StackId, _, _)| {
                depths.get(parent.0 as usize).map_or(0, |depth| depth + 1)
            };
            let sound = stack.filter(|stack| stack.1 < lost_frame && deep(stack) <= DEPTH_MAX);
            depths.push(sound.as_ref().map_or(1, deep));
            uses_lost |= sound.is_none();
            stacks.push(sound.unwrap_or((StackId::EMPTY, lost_frame, FutexKind::Wait)));
        }
        if uses_lost {
            frames.push(unnamed);
        }
        let blockers = self.blockers.into_iter().map(|blocker| blocker.unwrap_or(blockers::LOST));
        let blockers = blockers.collect();
        Some((Tables::from_parts(Parts { names, frames, stacks, blockers })?, lost))
    }
}

/// Decodes a frame. The inner `None`: its kind is known only to a newer sampletop.
fn frame(
    id: usize,
    take: &mut Take<'_>,
    strings: &[Arc<str>],
    budget: &mut Budget,
) -> Option<Option<(RawFrame, Named)>> {
    let head = take.number()?;
    let (pending, is_marker) = (head & 2 != 0, head & 1 != 0);
    let count =
        usize::try_from(head >> 2).ok().filter(|count| (1..=LOCATIONS_MAX).contains(count))?;
    let mut locations = Vec::new();
    let mut known = true;
    for _ in 0..count {
        budget.take(size_of::<Location>() + 16)?;
        let code = of_code(take.number()?);
        known &= code.is_some();
        let (kind, tier) = code.unwrap_or((FrameKind::Marker, None));
        let (function, module) = (string(take, strings)?, string(take, strings)?);
        let file = if take.flag()? { Some(string(take, strings)?) } else { None };
        let line = match take.number()? {
            0 => None,
            line => Some(u32::try_from(line - 1).ok()?),
        };
        locations.push(Location { function, module, file, line, kind, tier });
    }
    // Nothing interns frames by this key any more; it only keeps different frames different.
    let raw = match is_marker {
        true => RawFrame::marker(Marker::Other),
        false => RawFrame::new(FrameCode::Runtime { id: id as u64 }),
    };
    let named = Named { pending, ..Named::known(locations) };
    Some(known.then_some((raw, named)))
}

fn stack(id: usize, before: u32, take: &mut Take<'_>) -> Option<(StackId, FrameId, FutexKind)> {
    let head = take.number()?;
    let futex = *FUTEX_KINDS.get((head & 3) as usize)?;
    let parent = id.checked_sub(usize::try_from(head >> 2).ok()?)?;
    let top = u32::try_from(i64::from(before).checked_add(take.signed()?)?).ok()?;
    // Only the empty stack is its own caller.
    (parent < id || id == 0).then_some((StackId(parent as u32), FrameId(top), futex))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::snapshot::Snapshot;
    use crate::model::projection::settings::Settings;

    fn code(file: u32, offset: u64, exact: bool) -> RawFrame {
        RawFrame::new(FrameCode::Code { file: FileId(file), offset, exact })
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for frame in [
            code(0, 0, true),
            code(1, 0x1234, false),
            code(FileId::MAX, (1 << 40) - 1, true),
            RawFrame::new(FrameCode::Runtime { id: 7 }),
            RawFrame::marker(Marker::Torn),
        ] {
            let mut list = Put::default();
            write_place(frame, &mut list);
            let mut take = Take(&list.bytes);
            let wanted = Some(frame).filter(|f| matches!(f.decode(), FrameCode::Code { .. }));
            assert_eq!(place(&mut take), Some(wanted), "{frame:?}");
            assert_eq!(take.number(), None, "all of it is read");
        }
    }

    #[test]
    fn a_place_that_no_file_has_is_none() {
        let read = |numbers: &[u64]| {
            let mut list = Put::default();
            numbers.iter().for_each(|number| list.number(*number));
            place(&mut Take(&list.bytes))
        };
        let last = u64::from(FileId::MAX) + 1;
        assert_eq!(read(&[last, 2]), Some(Some(code(FileId::MAX, 1, false))));
        assert_eq!(read(&[last + 1, 2]), None);
        assert_eq!(read(&[u64::MAX, 2]), None);
        assert_eq!(read(&[1, 1 << 41]), Some(None));
        assert_eq!(read(&[1]), None);
    }

    #[test]
    fn a_few_places_among_many_frames_are_kept() {
        let named = || Named::known([Location::named("f", FrameKind::Native)]);
        let raw = |id| match id {
            70 => code(2, 0x1234, true),
            id => RawFrame::new(FrameCode::Runtime { id }),
        };
        let frames = (0..100).map(|id| (raw(id), named())).collect();
        let parts = Parts { names: Vec::new(), frames, stacks: Vec::new(), blockers: Vec::new() };
        let tables = Tables::from_parts(parts).expect("sound");
        let snapshot = Snapshot { tables, ..crate::formats::fixture::snapshot() };
        let mut bytes = Vec::new();
        super::super::write(&snapshot, &Settings::default(), &mut bytes).expect("memory");
        let tables = super::super::read(&bytes).expect("a profile").snapshot.tables;
        let is_code =
            |id: &u32| matches!(tables.frame(FrameId(*id)).decode(), FrameCode::Code { .. });
        assert_eq!((0..100).filter(is_code).collect::<Vec<_>>(), [70]);
        assert_eq!(tables.frame(FrameId(70)), raw(70));
    }

    /// A marker has a meaning of its own.
    #[test]
    fn no_place_takes_a_marker_away() {
        let counts = Counts { frames: 3, stacks: 0, ..Counts::default() };
        let named = || Named::known([Location::named("f", FrameKind::Native)]);
        let raw = [
            RawFrame::marker(Marker::Torn),
            RawFrame::new(FrameCode::Runtime { id: 1 }),
            RawFrame::new(FrameCode::Runtime { id: 2 }),
        ];
        let place = code(1, 64, true);
        let mut found = Found::new(counts);
        found.frames = raw.iter().map(|raw| Some((*raw, named()))).collect();
        found.places = vec![Some(place), None, Some(place)];
        let (tables, _) = found.tables().expect("sound");
        let frames = (0..3).map(|id| tables.frame(FrameId(id)));
        assert_eq!(frames.collect::<Vec<_>>(), [raw[0], raw[1], place]);
    }
}
