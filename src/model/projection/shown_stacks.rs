//! The shown frames of stacks, whatever the group, the range and the roll-up.
//!
//! Stacks themselves form a tree, so the walk of a stack starts where it leaves the stacks walked
//! before. Each shown frame on the way is an [`Entry`]. The filters decide where a stack's time is
//! attached: at its innermost shown frame, or at the end of the interesting cut.
//!
//! All this depends on names, roles and filters alone, so it is kept for the next projections.
//! Which entries are one row depends on the roll-up too: entries of one row below one branch share
//! a [`Branch`].

use rustc_hash::FxHashMap;

use super::columns::NONE;
use super::filter::{StopRole, Verdict, Verdicts};
use super::kernel_entry::KernelEntry;
use super::libraries::NO_LIBRARY;
use super::rows::Rows;
use crate::model::facts::tables::{StackId, Tables};
use crate::model::projection::settings::{Level, RollUp, Settings};
use crate::model::vocabulary::role::Role;

/// A shown frame. Trees are built by reading entries here and there, so all that is read of one
/// lies in one cache line.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Entry {
    /// Entry of the next shown frame further out, or [`NONE`]; it has a lower number.
    pub parent: u32,
    pub location: u32,
    /// The stack whose innermost frame contains this one.
    pub stack: StackId,
    pub role: Role,
    /// It stands for what its caller calls elsewhere; see [`super::nodes::Nodes::entries`].
    pub is_entry: bool,
    /// Its branch under the present roll-up.
    pub branch: u32,
    /// Its visit.
    pub visit: Mark,
}

/// What a group made of an entry or a branch.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// The group's number in [`super::tree::Scratch`].
    pub walk: u32,
    /// The visit or the node.
    pub of: u32,
}

/// A row on a path: what is a node in every group that has stacks with it.
#[derive(Clone, Copy)]
struct Branch {
    row: u32,
    is_entry: bool,
    first_child: u32,
    next_sibling: u32,
    /// Number of children.
    fan: u32,
}

/// State of the walk at a stack: the result of its own frames and all further out.
#[derive(Clone, Copy)]
struct Place {
    /// The innermost shown frame.
    deepest: u32,
    /// The entry that gets the time of this very stack.
    attach: u32,
    /// Under [`Level::Mine`]: the way out of the user's code below `deepest`, or [`NONE`]. It is
    /// `deepest` itself where an interrupt came.
    way_out: u32,
    /// How much that frame tells; see [`Verdict::telling`].
    telling: u8,
    /// Where the user's code does not call it: the innermost library so far; see
    /// [`Verdict::library`].
    library: u32,
    /// The interesting cut includes one more shown frame.
    one_more: bool,
    /// A Python frame is here or further out.
    in_python: bool,
    /// The thread was stopped here, or enters a monitor: frames further in belong to that.
    within: StopRole,
}

/// Maximum children of a branch without a hash table. Few children are found faster by a linear
/// search: a table of all children exceeds the caches.
/// (Smaller in tests, whose small trees must use the table too.)
const FEW: u32 = if cfg!(test) { 2 } else { 16 };

const NOWHERE: Place = Place {
    deepest: NONE,
    attach: NONE,
    way_out: NONE,
    telling: 0,
    library: NO_LIBRARY,
    one_more: false,
    in_python: false,
    within: StopRole::None,
};

/// No walk has come to this stack.
const NOT_WALKED: u32 = NONE - 1;

/// What the walks of stacks found so far.
pub(super) struct ShownStacks {
    level: Option<Level>,
    /// By [`StackId`].
    places: Vec<Place>,
    /// By [`StackId`]: [`Place::attach`], or [`NOT_WALKED`].
    attach: Vec<u32>,
    entries: Vec<Entry>,
    roll_up: Option<RollUp>,
    branches: Vec<Branch>,
    /// Number of entries with a branch: the first ones.
    branched: usize,
    /// The first outermost branch, and the number of these.
    outermost: (u32, u32),
    /// (branch or [`NONE`], row, whether it is an entry) -> branch, for more than [`FEW`] children.
    children: FxHashMap<(u32, u32, bool), u32>,
    way: Vec<StackId>,
}

impl Default for ShownStacks {
    fn default() -> ShownStacks {
        ShownStacks {
            level: None,
            places: Vec::new(),
            attach: Vec::new(),
            entries: Vec::new(),
            roll_up: None,
            branches: Vec::new(),
            branched: 0,
            outermost: (NONE, 0),
            children: FxHashMap::default(),
            way: Vec::new(),
        }
    }
}

/// What decides which frames are shown.
pub(super) struct Walker<'a> {
    pub tables: &'a Tables,
    pub settings: &'a Settings,
    pub rows: &'a Rows,
    pub verdicts: &'a Verdicts,
}

/// Returns whether a frame that is not the user's gets the time below it, instead of the way out
/// that is known so far. `of_app`: the user's code calls it; then the first function that is not a
/// runtime's names the way out. Elsewhere the outermost library function does, or else the
/// outermost frame of the most telling kind.
fn is_way_out(of_app: bool, known: Option<u8>, next: Verdict) -> bool {
    match known {
        None => !of_app || next.role != Role::Runtime,
        Some(known) => !of_app && next.telling() > known,
    }
}

impl ShownStacks {
    /// Drops all results, after a change of names, roles or filters.
    pub fn forget(&mut self) {
        self.attach.clear();
        self.places.clear();
        self.entries.clear();
        self.forget_branches();
    }

    fn forget_branches(&mut self) {
        self.branches.clear();
        self.branched = 0;
        self.outermost = (NONE, 0);
        self.children.clear();
    }

    /// Walks these stacks, as far as they are new, and adds the branches of their frames.
    pub fn update(&mut self, walker: &Walker<'_>, stacks: impl Iterator<Item = StackId>) {
        let Settings { level, roll_up, .. } = *walker.settings;
        if self.level.replace(level) != Some(level) {
            self.forget();
        }
        if self.roll_up.replace(roll_up) != Some(roll_up) {
            self.forget_branches();
        }
        let count = walker.tables.stack_count().max(1);
        if self.attach.len() < count {
            self.attach.resize(count, NOT_WALKED);
            self.places.resize(count, NOWHERE);
        }
        self.attach[0] = NONE; // the empty stack
        for stack in stacks {
            if self.attach[stack.0 as usize] == NOT_WALKED {
                self.walk(walker, stack);
            }
        }
        for entry in self.branched..self.entries.len() {
            self.entries[entry].branch = self.branch(walker, self.entries[entry]);
        }
        self.branched = self.entries.len();
    }

    /// Returns the entry that gets the time of a walked stack; [`NONE`] if none of its frames is
    /// shown.
    pub fn attach(&self, stack: StackId) -> u32 {
        self.attach[stack.0 as usize]
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the group's mark at an entry.
    pub fn visit_mut(&mut self, entry: u32) -> &mut Mark {
        &mut self.entries[entry as usize].visit
    }

    /// Drops the marks of all groups.
    pub fn forget_visits(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.visit = Mark::default());
    }

    pub fn branch_count(&self) -> usize {
        self.branches.len()
    }

    /// Returns the outermost branch of a row that occurs on no stack.
    pub fn outermost_branch(&mut self, row: u32) -> u32 {
        self.branch_below(NONE, row, false)
    }

    /// Returns the branch of an entry whose callers have theirs.
    fn branch(&mut self, walker: &Walker<'_>, entry: Entry) -> u32 {
        let by = walker.settings.roll_up;
        let (row, _) = walker.rows.row(entry.location, by);
        let above = match entry.parent {
            NONE => NONE,
            parent => self.entries[parent as usize].branch,
        };
        // Consecutive frames of one unit share a row.
        if by.joins() && above != NONE && self.branches[above as usize].row == row {
            return above;
        }
        self.branch_below(above, row, entry.is_entry)
    }

    /// Returns the branch of a row below another, or below [`NONE`]; creates it if missing.
    fn branch_below(&mut self, above: u32, row: u32, is_entry: bool) -> u32 {
        let (first, fan) = match self.branches.get(above as usize) {
            None => self.outermost,
            Some(above) => (above.first_child, above.fan),
        };
        let is_meant = |child: &u32| {
            let child = &self.branches[*child as usize];
            (child.row, child.is_entry) == (row, is_entry)
        };
        let found = match fan <= FEW {
            true => self.siblings(first).find(is_meant),
            false => self.children.get(&(above, row, is_entry)).copied(),
        };
        if let Some(found) = found {
            return found;
        }
        let made = self.branches.len() as u32;
        self.branches.push(Branch {
            row,
            is_entry,
            first_child: NONE,
            next_sibling: first,
            fan: 0,
        });
        match self.branches.get_mut(above as usize) {
            None => self.outermost = (made, fan + 1),
            Some(above) => (above.first_child, above.fan) = (made, fan + 1),
        }
        let family = match fan {
            0..FEW => 0,
            FEW => FEW as usize + 1,
            _ => 1,
        };
        let mut at = made;
        for _ in 0..family {
            let Branch { row, is_entry, next_sibling, .. } = self.branches[at as usize];
            self.children.insert((above, row, is_entry), at);
            at = next_sibling;
        }
        made
    }

    fn siblings(&self, first: u32) -> impl Iterator<Item = u32> {
        let next = |at: u32| self.branches.get(at as usize).map(|branch| branch.next_sibling);
        let first = Some(first).filter(|first| *first != NONE);
        std::iter::successors(first, move |at| next(*at).filter(|next| *next != NONE))
    }

    fn walk(&mut self, walker: &Walker<'_>, stack: StackId) {
        let Walker { tables, rows, verdicts, .. } = *walker;
        let mut at = stack;
        while self.attach[at.0 as usize] == NOT_WALKED {
            self.way.push(at);
            at = tables.parent(at);
        }
        let mut place = self.places[at.0 as usize];
        while let Some(stack) = self.way.pop() {
            for location in rows.of_frame(tables.top(stack)) {
                if verdicts.of_location(*location).native.is_python {
                    self.enter_python(walker, stack, &mut place);
                }
                self.step(walker, stack, *location, &mut place);
            }
            self.places[stack.0 as usize] = place;
            self.attach[stack.0 as usize] = place.attach;
        }
    }

    /// Removes the frames outside of the Python frame of this stack that are hidden there, up to
    /// the next Python frame. Until this frame was met they might have been of a stack without any.
    fn enter_python(&mut self, walker: &Walker<'_>, stack: StackId, place: &mut Place) {
        let Walker { tables, rows, verdicts, .. } = *walker;
        let native = |location: &u32| verdicts.of_location(*location).native;
        let locations = |stack: StackId| rows.of_frame(tables.top(stack)).iter();
        let mut between = Vec::new();
        let mut at = tables.parent(stack);
        while at != StackId::EMPTY && !locations(at).any(|location| native(location).is_python) {
            between.push(at);
            at = tables.parent(at);
        }
        let is_removed = |location: &u32| native(location).outside;
        if between.iter().any(|at| locations(*at).any(is_removed)) {
            *place = self.places[at.0 as usize];
            for at in between.into_iter().rev() {
                for location in locations(at).filter(|location| !is_removed(location)) {
                    self.step(walker, at, *location, place);
                }
            }
        }
        place.in_python = true;
    }

    /// Goes one frame further in.
    fn step(&mut self, walker: &Walker<'_>, stack: StackId, location: u32, place: &mut Place) {
        let Walker { settings, verdicts, .. } = *walker;
        let cut = settings.filters.interesting.active().is_some();
        let mine = settings.level == Level::Mine;
        let verdict = verdicts.of_location(location);
        if place.within == StopRole::ReplacesStop
            || (place.within == StopRole::ReplacesMonitorEntry
                && verdict.stops != StopRole::ReplacesStop)
        {
            return;
        }
        if verdict.stops == StopRole::ReplacesMonitorEntry {
            place.within = StopRole::ReplacesMonitorEntry;
        }
        if verdict.stops == StopRole::ReplacesStop {
            place.within = StopRole::ReplacesStop;
            // Removes the frames that lead to the stop.
            let mut caller = place.deepest;
            while caller != NONE
                && matches!(
                    verdicts.of_location(self.entries[caller as usize].location).stops,
                    StopRole::LeadsToStop | StopRole::ReplacesMonitorEntry
                )
            {
                caller = self.entries[caller as usize].parent;
            }
            let of_caller = (caller != NONE)
                .then(|| verdicts.of_location(self.entries[caller as usize].location));
            place.deepest = caller;
            place.way_out = NONE;
            place.one_more = cut && of_caller.is_some_and(|verdict| verdict.interesting);
            if !cut || place.one_more {
                place.attach = caller;
            }
        }
        let again =
            || verdicts.of_location(self.entries[place.deepest as usize].location).anonymous;
        if verdict.hide
            || (verdict.native.inside && place.in_python)
            || (verdict.anonymous && place.deepest != NONE && again())
        {
            return;
        }
        let entry = self.entries.len() as u32;
        let mut made = Entry {
            parent: place.deepest,
            location,
            role: verdict.role,
            is_entry: false,
            stack,
            branch: NONE,
            visit: Mark::default(),
        };
        if mine && !matches!(verdict.role, Role::App | Role::Marker) {
            let known = (place.way_out != NONE).then_some(place.telling);
            let of_app = self
                .entries
                .get(place.deepest as usize)
                .is_some_and(|caller| caller.role == Role::App);
            let entered = verdict.enters_kernel.filter(|_| of_app && known.is_none());
            if entered.is_some_and(KernelEntry::is_interrupt) {
                // It is time of the user's function, which calls no interrupt.
                place.way_out = place.deepest;
            } else if entered.is_none() && is_way_out(of_app, known, verdict) {
                made.is_entry = of_app;
                self.entries.push(made);
                (place.way_out, place.attach) = (entry, entry);
                (place.telling, place.library) = (verdict.telling(), verdict.library);
            } else if !of_app && ![NO_LIBRARY, place.library].contains(&verdict.library) {
                // A framework says less about the time than the library that it calls.
                made.parent = place.way_out;
                self.entries.push(made);
                (place.attach, place.library) = (entry, verdict.library);
            }
            return;
        }
        let parent = std::mem::replace(&mut place.deepest, entry);
        place.way_out = NONE;
        self.entries.push(made);
        // The cut keeps root .. the interesting frame nearest the leaf, plus one callee; else the
        // root alone.
        if !cut || verdict.interesting || place.one_more || parent == NONE {
            place.attach = entry;
        }
        place.one_more = cut && verdict.interesting;
    }
}
