//! Assigns small numbers to the functions, lines, classes ... of frames once, so that later steps
//! compare only numbers.

use std::collections::HashMap;
use std::sync::Arc;

use super::lines::Places;
use super::monitor;
use super::roles::{role_by_name, role_by_place};
use super::safepoint;
use super::units::unit;
use crate::model::facts::tables::{FrameId, FrameKind, Location, Tables};
use crate::model::projection::settings::RollUp;
use crate::model::vocabulary::frame::FrameCode;
use crate::model::vocabulary::labels;
use crate::model::vocabulary::role::{Origin, Role};

/// Stands for the time in which threads that waited for work are awake and have no core.
const WANTS_CORE: &str = "(wants a core)";

/// Stands for the callers of stacks for which the inverted tree had no room.
pub(super) const NO_ROOM: &str = "[callers dropped: too many different stacks]";

/// Maximum keys of labels that are remembered: the first ones.
const LABEL_KEYS: usize = 8;

/// Identifies a row under roll-up function, whatever the tier. (A virtual machine may first
/// interpret a method, then compile it, and finally inline it.)
#[derive(PartialEq, Eq, Hash)]
struct Function {
    name: Arc<str>,
    module: Arc<str>,
    kind: FrameKind,
}

/// A frame's range in [`Rows::list`].
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// Locations and functions are numbered in order of first occurrence; numbers keep their meaning.
/// The maps use the standard hasher, since their keys are strings of the target.
#[derive(Default)]
pub(super) struct Rows {
    /// Shared with the projections that use it for the names of their rows.
    places: Arc<Places>,
    by_location: HashMap<Arc<Location>, u32>,
    /// Locations without their tier: the first location at each line.
    by_line: HashMap<Location, u32>,
    /// The function of each location.
    function_of: Vec<u32>,
    by_function: HashMap<Function, u32>,
    /// The role of each function, where its name decides.
    named_roles: Vec<Option<Role>>,
    /// Whose code each location is, before the user's corrections, and the origin that this is
    /// judged by.
    roles: Vec<(Role, Origin)>,
    /// Whether the role of a known location changed.
    rejudged: bool,
    /// The class, package and module of each location, which are locations too. Computed on first
    /// use.
    units: [Vec<u32>; 3],
    /// By [`FrameId`].
    frames: Vec<Span>,
    list: Vec<u32>,
    /// Frames whose name or place may change.
    unsettled: Vec<Unsettled>,
    /// Keys of labels, in order.
    label_keys: Vec<Arc<str>>,
}

/// A frame and its present name.
struct Unsettled {
    frame: FrameId,
    name: Arc<[Location]>,
    pending: bool,
}

/// What an update changed of frames that were known before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Nothing,
    Names,
    /// Roles, and maybe names.
    Roles,
}

impl Rows {
    /// Adds every new frame of `tables`. Returns what changed of known ones.
    pub(super) fn update(&mut self, tables: &Tables) -> Change {
        let mut renamed = false;
        for unsettled in std::mem::take(&mut self.unsettled) {
            let frame = unsettled.frame;
            let named = tables.named(frame);
            // Where a frame is still pending only its place may be unknown.
            if Arc::ptr_eq(&unsettled.name, &named.locations) && unsettled.pending == named.pending
            {
                self.unsettled.push(unsettled);
            } else {
                self.frames[frame.0 as usize] = self.meet(tables, frame);
                renamed = true;
            }
        }
        for frame in self.frames.len()..tables.frame_count() {
            let span = self.meet(tables, FrameId(frame as u32));
            self.frames.push(span);
        }
        match (std::mem::take(&mut self.rejudged), renamed) {
            (true, _) => Change::Roles,
            (false, true) => Change::Names,
            (false, false) => Change::Nothing,
        }
    }

    fn meet(&mut self, tables: &Tables, frame: FrameId) -> Span {
        let named = tables.named(frame);
        let start = self.list.len() as u32;
        for (nth, location) in named.locations.iter().enumerate() {
            let id = if safepoint::is_stop(location) {
                self.location_id(&safepoint::marker(), Origin::Unknown)
            } else if monitor::is_enter(location) {
                self.location_id(&monitor::frame(), Origin::Unknown)
            } else {
                self.location_id(location, named.origins.of(nth))
            };
            self.list.push(id);
        }
        // The name of a marker's file may be unknown at first.
        let marks_file =
            matches!(tables.frame(frame).decode(), FrameCode::Marker { file: Some(_), .. });
        if named.pending || marks_file {
            self.unsettled.push(Unsettled {
                frame,
                name: named.locations.clone(),
                pending: named.pending,
            });
        }
        Span { start, end: self.list.len() as u32 }
    }

    /// Returns the number of the location. Its role is that of the first frame with this location
    /// whose origin is known.
    fn location_id(&mut self, location: &Location, origin: Origin) -> u32 {
        if let Some(id) = self.by_location.get(location).copied() {
            let nth = id as usize;
            if self.roles[nth].1 == Origin::Unknown && origin != Origin::Unknown {
                let by_name = self.named_roles[self.function_of[nth] as usize];
                let role = by_name.unwrap_or_else(|| role_by_place(location, origin));
                self.rejudged |= role != self.roles[nth].0;
                self.roles[nth] = (role, origin);
            }
            return id;
        }
        let id = self.places.locations.len() as u32;
        let function = Function {
            name: location.function.clone(),
            module: location.module.clone(),
            kind: location.kind,
        };
        let next = self.by_function.len() as u32;
        let function = *self.by_function.entry(function).or_insert(next);
        self.function_of.push(function);
        if function == next {
            self.named_roles.push(role_by_name(location));
        }
        let role = self.named_roles[function as usize];
        let role = role.unwrap_or_else(|| role_by_place(location, origin));
        self.roles.push((role, origin));
        let of_line = Location { tier: None, ..location.clone() };
        if location.is_labels() {
            self.add_label_keys(location);
        }
        let location = Arc::new(location.clone());
        let places = Arc::make_mut(&mut self.places);
        places.locations.push(location.clone());
        places.line_of.push(*self.by_line.entry(of_line).or_insert(id));
        self.by_location.insert(location, id);
        id
    }

    fn add_label_keys(&mut self, location: &Location) {
        for (key, _) in labels::labels(&location.function) {
            let place = self.label_keys.binary_search_by(|known| (**known).cmp(&*key));
            if let (Err(place), true) = (place, self.label_keys.len() < LABEL_KEYS) {
                self.label_keys.insert(place, key.into());
            }
        }
    }

    /// Returns the keys of labels, in order: at most [`LABEL_KEYS`].
    pub(super) fn label_keys(&self) -> &[Arc<str>] {
        &self.label_keys
    }

    /// Returns the locations of a known frame, outermost first.
    pub(super) fn of_frame(&self, frame: FrameId) -> &[u32] {
        let span = self.frames.get(frame.0 as usize).copied().unwrap_or_default();
        &self.list[span.start as usize..span.end as usize]
    }

    /// Computes the units of new locations. Must be called before [`Rows::row`], and after new
    /// locations were added.
    pub(super) fn roll_up(&mut self, by: RollUp) {
        let Some(nth) = nth_unit(by) else { return };
        let mut units = std::mem::take(&mut self.units[nth]);
        for id in units.len()..self.location_count() {
            let unit = unit(self.location(id as u32), by);
            units.push(unit.map_or(id as u32, |unit| self.location_id(&unit, Origin::Unknown)));
        }
        // Units occur on no stack.
        units.extend(units.len() as u32..self.location_count() as u32);
        self.units[nth] = units;
    }

    /// Returns the row of the location, and the location that the row is shown with.
    pub(super) fn row(&self, location: u32, by: RollUp) -> (u32, u32) {
        match by {
            RollUp::Function => (self.function_of(location), location),
            RollUp::Line => (self.places.line_of[location as usize], location),
            RollUp::Class | RollUp::Package | RollUp::Module => {
                let unit = nth_unit(by).map_or(location, |nth| self.units[nth][location as usize]);
                (unit, unit)
            }
        }
    }

    /// Returns the row of equally named threads within a group.
    pub(super) fn thread_row(&mut self, name: &str, by: RollUp) -> (u32, u32) {
        self.named_row(&Location::named(name, FrameKind::Thread), by)
    }

    /// Returns the row of threads that waited for work and have no core yet.
    pub(super) fn wants_core_row(&mut self, by: RollUp) -> (u32, u32) {
        self.named_row(&Location::named(WANTS_CORE, FrameKind::Marker), by)
    }

    /// Returns the row that stands for callers without room in the inverted tree.
    pub(super) fn no_room_row(&mut self, by: RollUp) -> (u32, u32) {
        self.named_row(&Location::named(NO_ROOM, FrameKind::Marker), by)
    }

    /// Returns the row of what occurs on no stack.
    fn named_row(&mut self, location: &Location, by: RollUp) -> (u32, u32) {
        let location = self.location_id(location, Origin::Unknown);
        // It is its own unit.
        match by {
            RollUp::Function => (self.function_of(location), location),
            _ => (location, location),
        }
    }

    pub(super) fn location(&self, id: u32) -> &Arc<Location> {
        &self.places.locations[id as usize]
    }

    pub(super) fn role(&self, location: u32) -> Role {
        self.roles[location as usize].0
    }

    pub(super) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    pub(super) fn location_count(&self) -> usize {
        self.places.locations.len()
    }

    pub(super) fn function_of(&self, location: u32) -> u32 {
        self.function_of[location as usize]
    }

    pub(super) fn function_count(&self) -> usize {
        self.by_function.len()
    }
}

/// Returns the index in [`Rows::units`].
fn nth_unit(by: RollUp) -> Option<usize> {
    match by {
        RollUp::Function | RollUp::Line => None,
        RollUp::Class => Some(0),
        RollUp::Package => Some(1),
        RollUp::Module => Some(2),
    }
}
