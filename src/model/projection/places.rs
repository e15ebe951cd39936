//! Where stacks are: the user's innermost functions.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::filter::Verdicts;
use super::rows::Rows;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{Location, StackId, Tables};
use crate::model::vocabulary::role::Role;

/// The user's innermost functions of a stack, at most [`MAX_DEPTH`], outermost first. Where the
/// user has none, a library's. Empty if that is unknown.
pub type Place = Vec<Arc<Location>>;

/// Returns whether two places are the same functions, however these were compiled.
pub(super) fn is_same_place(one: &Place, other: &Place) -> bool {
    let functions = |place: &'_ Place| -> Vec<(Arc<str>, Arc<str>)> {
        place.iter().map(|at| (at.function.clone(), at.module.clone())).collect()
    };
    functions(one) == functions(other)
}

/// Maximum functions of a [`Place`].
const MAX_DEPTH: usize = 3;

/// A [`Place`] by numbers of [`Rows`].
pub(super) type Path = Vec<u32>;

/// Where each stack is.
pub(super) struct Places<'a> {
    pub(super) tables: &'a Tables,
    pub(super) rows: &'a Rows,
    verdicts: &'a Verdicts,
    known: FxHashMap<StackId, Path>,
    /// The first location of each function, by its name and module: whether it was compiled, or how
    /// well, makes no other place.
    functions: FxHashMap<(Arc<str>, Arc<str>), u32>,
}

impl<'a> Places<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        rows: &'a Rows,
        verdicts: &'a Verdicts,
    ) -> Places<'a> {
        Places {
            tables: &snapshot.tables,
            rows,
            verdicts,
            known: FxHashMap::default(),
            functions: FxHashMap::default(),
        }
    }

    pub(super) fn of(&mut self, stack: StackId) -> Path {
        if let Some(known) = self.known.get(&stack) {
            return known.clone();
        }
        let frames = self.tables.frames_innermost_first(stack);
        let locations = frames.flat_map(|frame| self.rows.of_frame(frame).iter().rev().copied());
        let (mut path, mut of_library) = (Path::new(), None);
        for location in locations {
            let Location { function, module, .. } = &**self.rows.location(location);
            let same = self.functions.entry((function.clone(), module.clone()));
            let location = *same.or_insert(location);
            match self.verdicts.of_location(location).role {
                // A recursion is one function.
                Role::App if path.last() != Some(&location) => path.push(location),
                Role::Library => of_library = of_library.or(Some(location)),
                _ => {}
            }
            if path.len() == MAX_DEPTH {
                break;
            }
        }
        if path.is_empty() {
            path.extend(of_library);
        }
        path.reverse();
        self.known.insert(stack, path.clone());
        path
    }

    /// Returns the call by which a stack leaves the user's code.
    pub(super) fn exit_of(&self, stack: StackId) -> Option<u32> {
        let by = self.verdicts.exits().of(stack).by()?;
        let Location { function, module, .. } = &**self.rows.location(by);
        Some(self.functions.get(&(function.clone(), module.clone())).copied().unwrap_or(by))
    }

    pub(super) fn place(&self, path: &Path) -> Place {
        path.iter().map(|location| self.rows.location(*location).clone()).collect()
    }
}
