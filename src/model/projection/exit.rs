//! Where a stack leaves the user's code: the innermost function of the user, and by what call.

use super::libraries::NO_LIBRARY;
use super::rows::Rows;
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

/// The functions of an [`Exit`], as numbered by [`Rows::function_of`].
pub(super) type Functions = (Option<u32>, Option<u32>);

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

    /// Returns what equal exits have in common.
    pub(super) fn functions(&self, rows: &Rows) -> Functions {
        let function = |location: u32| rows.function_of(location);
        (self.app.map(function), self.by().map(function))
    }
}
