//! Whose code a frame is.

use std::sync::Arc;

/// The place that a frame's code was loaded from, where it is known. It is evidence for the
/// frame's [`Role`], and not part of its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Origin {
    #[default]
    Unknown = 0,
    /// The program itself, and what is installed with it: its executable, its jar or directory of
    /// classes, libraries outside of the system's directories.
    App = 1,
    /// The system's libraries, and those of other people that are installed with the program.
    Library = 2,
    /// A language's runtime: a virtual machine or an interpreter.
    Runtime = 3,
}

impl Origin {
    pub const ALL: [Origin; 4] = [Origin::Unknown, Origin::App, Origin::Library, Origin::Runtime];

    /// Returns the origin with this number; unknown numbers are [`Origin::Unknown`].
    pub fn from_code(code: u64) -> Origin {
        Origin::ALL.into_iter().find(|origin| *origin as u64 == code).unwrap_or_default()
    }
}

/// The origins of a frame's functions: the outermost first, then those inlined into it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Origins {
    /// All functions have the same.
    All(Origin),
    /// One for each function. A Java method may have one of another jar inlined.
    Each(Arc<[Origin]>),
}

impl Origins {
    /// Returns the origin of the nth function.
    pub fn of(&self, nth: usize) -> Origin {
        match self {
            Origins::All(origin) => *origin,
            Origins::Each(origins) => origins.get(nth).copied().unwrap_or_default(),
        }
    }
}

impl Default for Origins {
    fn default() -> Origins {
        Origins::All(Origin::Unknown)
    }
}

impl FromIterator<Origin> for Origins {
    fn from_iter<T: IntoIterator<Item = Origin>>(origins: T) -> Origins {
        let origins: Vec<Origin> = origins.into_iter().collect();
        match origins.first() {
            None => Origins::default(),
            Some(first) if origins.iter().all(|origin| origin == first) => Origins::All(*first),
            Some(_) => Origins::Each(origins.into()),
        }
    }
}

/// What a frame's code is to the user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Role {
    /// The user's own code; also what cannot be told apart from it.
    #[default]
    App,
    /// Code of others that the user's code calls.
    Library,
    /// Start-up, schedulers, interpreters, trampolines.
    Runtime,
    /// From the call that blocks down to the system call.
    Wait,
    Kernel,
    /// No code: a marker, or the name of threads.
    Marker,
}

impl Role {
    pub const COUNT: usize = 6;

    /// Returns the word in formats.
    pub fn word(self) -> &'static str {
        match self {
            Role::App => "app",
            Role::Library => "library",
            Role::Runtime => "runtime",
            Role::Wait => "wait",
            Role::Kernel => "kernel",
            Role::Marker => "marker",
        }
    }
}
