//! Where a stack leaves the user's code: the innermost function of the user, and by what call.

use rustc_hash::FxHashMap;

use super::libraries::NO_LIBRARY;
use super::rows::Rows;
use crate::model::facts::tables::StackId;
use crate::model::vocabulary::role::Role;

/// Numbers of locations; `None` where the stack has no such frame.
#[derive(Clone, Copy, Default)]
pub(super) struct Exit {
    app: Option<u32>,
    /// The first function of a library that it calls, standard libraries included.
    call: Option<u32>,
    /// The outermost function of the innermost library: `HikariDataSource.getConnection`, not the
    /// queue in which that parks, nor the framework that called it.
    entry: Option<u32>,
    /// The library of `entry`.
    library: u32,
}

/// The exits of stacks, and numbers for those with the same functions.
#[derive(Default)]
pub(super) struct Exits {
    exits: Vec<Exit>,
    /// By stack.
    numbers: Vec<u32>,
    /// By the functions of `app` and [`Exit::by`], as numbered by [`Rows::function_of`].
    by_functions: FxHashMap<(Option<u32>, Option<u32>), u32>,
}

impl Exits {
    pub(super) fn forget(&mut self) {
        *self = Exits::default();
    }

    /// Returns the exit of a known stack; the empty one has none.
    pub(super) fn of(&self, stack: StackId) -> Exit {
        match stack.0 {
            0 => Exit::default(),
            id => self.exits.get(id as usize - 1).copied().unwrap_or_default(),
        }
    }

    /// Returns a number that stacks with the same functions have in common; `None` for the empty
    /// stack.
    pub(super) fn number(&self, stack: StackId) -> Option<u32> {
        self.numbers.get((stack.0 as usize).checked_sub(1)?).copied()
    }

    /// Adds the next stack's.
    pub(super) fn push(&mut self, exit: Exit, rows: &Rows) {
        let function = |location: u32| rows.function_of(location);
        let functions = (exit.app.map(function), exit.by().map(function));
        let next = self.by_functions.len() as u32;
        self.numbers.push(*self.by_functions.entry(functions).or_insert(next));
        self.exits.push(exit);
    }
}

impl Exit {
    /// Returns the exit with one more frame, further in. `library`: its number, or [`NO_LIBRARY`].
    pub(super) fn below(mut self, location: u32, role: Role, library: u32) -> Exit {
        match role {
            Role::App => return Exit { app: Some(location), ..Exit::default() },
            Role::Library | Role::Wait => {}
            Role::Runtime | Role::Kernel | Role::Marker => return self,
        }
        self.call = self.call.or(Some(location));
        if ![NO_LIBRARY, self.library].contains(&library) {
            (self.entry, self.library) = (Some(location), library);
        }
        self
    }

    /// Returns the call by which the user's code is left.
    pub(super) fn by(&self) -> Option<u32> {
        self.entry.or(self.call)
    }
}
