//! Writes [`Tables`]: finds or adds stacks, frames and thread names. Its indexes are never cloned.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::futex;
use crate::model::facts::tables::{
    Blocker, BlockerId, FrameId, Holder, NameId, Named, StackId, StackNode, Tables,
};
use crate::model::vocabulary::frame::{FrameCode, Marker, RawFrame, RawName, ThreadKind};
use crate::model::vocabulary::state::FutexKind;
use crate::model::vocabulary::text::clean_bytes;
use crate::model::vocabulary::thread_name_rules::{by_rules, internal_name};

/// Maximum stack nodes, and maximum frames; beyond it a new stack becomes `(other)`.
pub const MAX_STACKS: usize = 1_000_000;
/// Maximum thread names, including groups; beyond it a new name becomes `(other)`.
pub const MAX_NAMES: usize = 100_000;
/// Maximum blockers; beyond it a new one is unknown.
pub const MAX_BLOCKERS: usize = 100_000;
/// Maximum thread names before a new one is stored only as its group. Otherwise a server with one
/// thread name per request would use up all of them.
const MAX_RAW_NAMES: usize = MAX_NAMES / 2;
/// Maximum bytes of function names per frame, on average; beyond it frames keep their present
/// names. Protects against a target with a million symbols of 4 KiB.
const NAME_BYTES: usize = 128;

pub struct Interner {
    tables: Tables,
    max_stacks: usize,
    by_frame: FxHashMap<RawFrame, FrameId>,
    /// (caller's stack, frame) -> stack: one lookup per frame of a known stack.
    by_node: FxHashMap<(StackId, RawFrame), StackId>,
    by_name: FxHashMap<RawName, NameId>,
    /// The previous generation of `by_name`, from before it was full. Names found here are added
    /// again.
    by_name_before: FxHashMap<RawName, NameId>,
    /// By name: its group by the default rules, or the name itself.
    groups: Vec<NameId>,
    by_text: FxHashMap<(Arc<str>, ThreadKind), NameId>,
    by_blocker: FxHashMap<Blocker, BlockerId>,
    /// What each frame's name says about a futex wait beneath it.
    futex: Vec<Option<FutexKind>>,
    /// A frame that decides a kind of wait was named since the kinds of stacks were last computed.
    stale: bool,
    unnamed: Vec<RawFrame>,
    /// Total bytes of function names.
    name_bytes: usize,
    other: StackId,
    refused: u64,
}

impl Interner {
    pub fn new(max_stacks: usize) -> Interner {
        let mut interner = Interner {
            tables: Tables::default(),
            max_stacks: max_stacks.clamp(16, MAX_STACKS),
            by_frame: FxHashMap::default(),
            by_node: FxHashMap::default(),
            by_name: FxHashMap::default(),
            by_name_before: FxHashMap::default(),
            groups: Vec::new(),
            by_text: FxHashMap::default(),
            by_blocker: FxHashMap::default(),
            futex: Vec::new(),
            stale: false,
            unnamed: Vec::new(),
            name_bytes: 0,
            other: StackId::EMPTY,
            refused: 0,
        };
        let other = RawFrame::marker(Marker::Other);
        let top = interner.frame(other).unwrap_or(FrameId(0));
        interner.tables.nodes.push(StackNode { parent: StackId::EMPTY, top });
        interner.tables.futex.push(FutexKind::Wait);
        interner.other = interner.stack(&[other]);
        interner.text("(exited)", ThreadKind::Plain);
        interner.text("(other)", ThreadKind::Plain);
        interner
    }

    /// Returns the stack's id. Without room for a new one, counts it and returns `(other)`.
    pub fn stack(&mut self, innermost_first: &[RawFrame]) -> StackId {
        let mut at = StackId::EMPTY;
        for frame in innermost_first.iter().rev() {
            at = match self.by_node.get(&(at, *frame)) {
                Some(known) => *known,
                None => match self.add(at, *frame) {
                    Some(added) => added,
                    None => {
                        self.refused += 1;
                        return self.other;
                    }
                },
            };
        }
        at
    }

    /// Returns the stack of only this marker.
    pub fn marker(&mut self, marker: Marker) -> StackId {
        self.stack(&[RawFrame::marker(marker)])
    }

    /// Returns the stack `(other)`.
    pub fn other(&self) -> StackId {
        self.other
    }

    fn add(&mut self, parent: StackId, frame: RawFrame) -> Option<StackId> {
        if self.tables.nodes.len() >= self.max_stacks {
            return None;
        }
        let top = self.frame(frame)?;
        let id = StackId(self.tables.nodes.len() as u32);
        self.tables.nodes.push(StackNode { parent, top });
        let kind = self.futex[top.0 as usize].unwrap_or_else(|| self.tables.futex_kind(parent));
        self.tables.futex.push(kind);
        self.by_node.insert((parent, frame), id);
        Some(id)
    }

    fn frame(&mut self, frame: RawFrame) -> Option<FrameId> {
        if let Some(known) = self.by_frame.get(&frame) {
            return Some(*known);
        }
        if self.tables.frames.len() >= self.max_stacks {
            return None;
        }
        let id = FrameId(self.tables.frames.len() as u32);
        let named = Named::unnamed(frame);
        // A marker with a file needs the file's name; other markers have fixed names.
        if named.pending || matches!(frame.decode(), FrameCode::Marker { file: Some(_), .. }) {
            self.unnamed.push(frame);
        }
        self.name_bytes += named.locations[0].function.len();
        self.tables.frames.push(frame);
        self.tables.named.push(named);
        self.futex.push(None);
        self.by_frame.insert(frame, id);
        Some(id)
    }

    /// Returns the frames added since the last call that have no final name.
    pub fn take_unnamed(&mut self) -> Vec<RawFrame> {
        std::mem::take(&mut self.unnamed)
    }

    /// Sets or replaces a frame's name. Ignores unknown frames and names without locations.
    pub fn set_named(&mut self, frame: RawFrame, mut named: Named) {
        let Some(id) = self.by_frame.get(&frame).copied() else { return };
        if named.locations.is_empty() {
            return;
        }
        let bytes = |named: &Named| {
            named.locations.iter().map(|location| location.function.len()).sum::<usize>()
        };
        let before = self.tables.named(id);
        let total = (self.name_bytes + bytes(&named)).saturating_sub(bytes(before));
        if total > self.max_stacks * NAME_BYTES && bytes(&named) > bytes(before) {
            named.locations = before.locations.clone();
        } else {
            self.name_bytes = total;
        }
        let kind = if named.pending { None } else { futex::kind_of(&named.locations) };
        if let Some(place) = self.futex.get_mut(id.0 as usize)
            && *place != kind
        {
            *place = kind;
            self.stale = true;
        }
        if let Some(place) = self.tables.named.get_mut(id.0 as usize) {
            *place = named;
        }
    }

    /// Returns the id of a thread's cleaned name. `(other)` if a runtime gave the name and it is no
    /// longer known.
    pub fn name(&mut self, name: RawName) -> NameId {
        self.name_if_known(name).unwrap_or(NameId::OTHER)
    }

    /// Does the same, but returns `None` where a runtime's name is no longer known.
    pub fn name_if_known(&mut self, name: RawName) -> Option<NameId> {
        if let Some(known) = self.by_name.get(&name) {
            return Some(*known);
        }
        let id = match self.by_name_before.get(&name) {
            Some(known) => *known,
            None if name.runtime_id().is_some() => return None,
            // 15 bytes of invalid UTF-8 become at most 45 bytes of U+FFFD.
            None => self.text(&clean_bytes(name.bytes(), 64), name.kind()),
        };
        self.remember(name, id);
        Some(id)
    }

    /// Stores a name's id. Forgets names that were not used since `MAX_NAMES / 2` others were.
    fn remember(&mut self, name: RawName, id: NameId) {
        if self.by_name.len() >= MAX_NAMES / 2 {
            self.by_name_before = std::mem::take(&mut self.by_name);
        }
        self.by_name.insert(name, id);
    }

    /// Returns by name: its group by the default rules.
    pub fn groups(&self) -> &[NameId] {
        &self.groups
    }

    /// Returns the text of a thread's name.
    pub fn name_of(&self, name: NameId) -> &str {
        self.tables.name(name)
    }

    /// Sets the text of a name that is an id.
    pub fn call(&mut self, name: RawName, text: &str) {
        if !self.by_name.contains_key(&name) && !self.by_name_before.contains_key(&name) {
            let id = self.text(text, name.kind());
            self.remember(name, id);
        }
    }

    /// Returns the id of this text; beyond [`MAX_RAW_NAMES`] that of its group.
    pub(in crate::model) fn text(&mut self, text: &str, kind: ThreadKind) -> NameId {
        let name: (Arc<str>, ThreadKind) = (text.into(), kind);
        if let Some(known) = self.by_text.get(&name) {
            return *known;
        }
        let group = match kind {
            ThreadKind::Internal => internal_name(text, &[]),
            _ => by_rules(text, &[]),
        };
        if self.tables.names.len() >= MAX_RAW_NAMES && group != text {
            return self.add_name((group.into(), kind));
        }
        let id = self.add_name(name);
        if group != text && id != NameId::OTHER {
            self.groups[id.0 as usize] = self.add_name((group.into(), kind));
        }
        id
    }

    /// Adds a name that is its own group.
    fn add_name(&mut self, name: (Arc<str>, ThreadKind)) -> NameId {
        if let Some(known) = self.by_text.get(&name) {
            return *known;
        }
        if self.tables.names.len() >= MAX_NAMES {
            return NameId::OTHER;
        }
        let id = NameId(self.tables.names.len() as u32);
        self.tables.names.push(name.clone());
        self.groups.push(id);
        self.by_text.insert(name, id);
        id
    }

    /// Returns the id of a blocker; [`BlockerId::NONE`] beyond [`MAX_BLOCKERS`].
    pub fn blocker(&mut self, blocker: Blocker) -> BlockerId {
        if let Some(known) = self.by_blocker.get(&blocker) {
            return *known;
        }
        if self.tables.blockers.len() >= MAX_BLOCKERS {
            return BlockerId::NONE;
        }
        self.tables.blockers.push(blocker.clone());
        let id = BlockerId(self.tables.blockers.len() as u32);
        self.by_blocker.insert(blocker, id);
        id
    }

    /// Returns whether some frames have only a placeholder as name.
    pub fn is_pending(&self) -> bool {
        self.tables.named.iter().any(|named| named.pending)
    }

    /// Returns empty tables with the same limits. [`Carrier`] copies the entries to keep.
    pub fn afresh(&self) -> Interner {
        Interner::new(self.max_stacks)
    }

    /// Returns the number of stacks that became `(other)` because the tables were full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the current tables, for a snapshot.
    pub fn tables(&mut self) -> Tables {
        if self.stale {
            self.stale = false;
            self.decide_again();
        }
        self.tables.clone()
    }

    /// Computes all kinds again in one pass, callers first; copies only chunks that change. This is
    /// rare, since few frames decide a kind.
    fn decide_again(&mut self) {
        for id in 1..self.tables.nodes.len() {
            let Some(node) = self.tables.nodes.get(id).copied() else { break };
            let kind = self.futex[node.top.0 as usize]
                .unwrap_or_else(|| self.tables.futex_kind(node.parent));
            if self.tables.futex.get(id) != Some(&kind)
                && let Some(place) = self.tables.futex.get_mut(id)
            {
                *place = kind;
            }
        }
    }
}

/// Copies stacks and thread names from one interner to another, where they get new ids.
pub struct Carrier<'a> {
    pub from: &'a Interner,
    pub to: &'a mut Interner,
}

impl Carrier<'_> {
    pub fn stack(&mut self, stack: StackId) -> StackId {
        let tables = &self.from.tables;
        let frames: Vec<FrameId> = tables.frames_innermost_first(stack).collect();
        let raw: Vec<RawFrame> = frames.iter().map(|frame| tables.frame(*frame)).collect();
        let carried = self.to.stack(&raw);
        for (frame, raw) in frames.into_iter().zip(raw) {
            self.to.set_named(raw, tables.named(frame).clone());
        }
        carried
    }

    pub fn name(&mut self, name: NameId) -> NameId {
        let tables = &self.from.tables;
        self.to.text(tables.name(name), tables.kind(name))
    }

    pub fn blocker(&mut self, blocker: BlockerId) -> BlockerId {
        let Some(mut blocker) = self.from.tables.blocker(blocker).cloned() else {
            return BlockerId::NONE;
        };
        if let Holder::Thread { name, stack, .. } = &mut blocker.holder {
            (*name, *stack) = (self.name(*name), self.stack(*stack));
        }
        self.to.blocker(blocker)
    }
}

impl Drop for Carrier<'_> {
    /// Keeps the pending requests for names of carried frames. All other carried frames have a
    /// name, or it was requested before.
    fn drop(&mut self) {
        let to = &mut *self.to;
        to.unnamed = self
            .from
            .unnamed
            .iter()
            .filter(|frame| to.by_frame.contains_key(frame))
            .copied()
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_a_number_have_one_group() {
        let mut interner = Interner::new(MAX_STACKS);
        let [seven, eight, main] =
            [&b"worker-7"[..], b"worker-8", b"main"].map(|name| interner.name(RawName::new(name)));
        let group = |name: NameId| interner.groups()[name.0 as usize];
        assert!(seven != eight && group(seven) == group(eight) && group(seven) != seven);
        assert_eq!((group(main), group(group(seven))), (main, group(seven)));
    }

    #[test]
    fn a_name_of_a_runtime_s_is_known_until_too_many_others_were_used_since() {
        let mut interner = Interner::new(MAX_STACKS);
        let name = RawName::of_runtime;
        interner.call(name(1), "first");
        let first = interner.name(name(1));
        for id in 2..=MAX_NAMES as u64 / 2 + 1 {
            interner.call(name(id), "other");
        }
        // The name keeps its text, and counts as used.
        interner.call(name(1), "renamed");
        assert_eq!(interner.name_if_known(name(1)), Some(first));
        for id in 2..=MAX_NAMES as u64 / 2 {
            interner.call(name(1 << 32 | id), "other");
        }
        assert_eq!(interner.name_if_known(name(1)), Some(first));
        for id in 2..=MAX_NAMES as u64 + 2 {
            interner.call(name(2 << 32 | id), "other");
        }
        assert_eq!(
            (interner.name_if_known(name(1)), interner.name(name(1))),
            (None, NameId::OTHER)
        );
        assert!(interner.by_name.len() + interner.by_name_before.len() <= MAX_NAMES);
    }

    #[test]
    fn one_name_of_two_kinds_of_threads_is_two() {
        let mut interner = Interner::new(MAX_STACKS);
        let (plain, long) = (RawName::new(b"pool"), RawName::of_runtime(7));
        interner.call(long.of_kind(ThreadKind::Daemon), "pool");
        let ids = [plain, plain.of_kind(ThreadKind::Internal), long.of_kind(ThreadKind::Daemon)];
        let ids = ids.map(|name| interner.name(name));
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        let tables = interner.tables();
        assert_eq!(ids.map(|id| &**tables.name(id)), ["pool"; 3]);
        assert_eq!(
            ids.map(|id| tables.kind(id)),
            [ThreadKind::Plain, ThreadKind::Internal, ThreadKind::Daemon]
        );
    }
}
