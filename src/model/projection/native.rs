//! Decides which native frames of stacks with Python frames are shown.
//!
//! Each Python function is called by C functions of the interpreter. Those between two Python
//! functions, and those that start a thread or the program, say nothing about the program. Below
//! the innermost Python function some say what it does: `memmove`, `json`, a dictionary's lookup.
//! So there only glue is hidden, which calls other C functions. Stacks without Python frames keep
//! all their frames.

use super::python::is_glue;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::NativeFrames;
use crate::model::vocabulary::role::Role;

/// Where a frame is hidden, by its place beside the Python frames of its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Hidden {
    /// It is a Python frame itself.
    pub is_python: bool,
    /// Hidden where a Python frame is further in.
    pub outside: bool,
    /// Hidden where a Python frame is further out.
    pub inside: bool,
}

impl Hidden {
    /// Returns where the frame is hidden. `role`: with the user's corrections, so that a frame that
    /// the user named as own code is shown.
    pub fn of(location: &Location, role: Role, native: NativeFrames) -> Hidden {
        let (outside, inside) = match (native, location.kind) {
            (NativeFrames::None, FrameKind::Native | FrameKind::Jit | FrameKind::Kernel) => {
                (true, true)
            }
            (NativeFrames::Auto, FrameKind::Native) if role == Role::Runtime => {
                (true, is_glue(location))
            }
            _ => (false, false),
        };
        let is_python = location.kind == FrameKind::Python && native != NativeFrames::Full;
        Hidden { is_python, outside, inside }
    }
}

/// Removes the frames of one stack that are hidden; `frames`: innermost first.
pub fn remove_hidden(frames: &mut Vec<(Location, Role)>, native: NativeFrames) {
    let of = |(location, role): &(Location, Role)| Hidden::of(location, *role, native);
    let is_python = |frame: &(Location, Role)| of(frame).is_python;
    let Some(first) = frames.iter().position(is_python) else { return };
    let last = frames.iter().rposition(is_python).unwrap_or(first);
    let mut at = 0;
    frames.retain(|frame| {
        let hidden = of(frame);
        let is_hidden = (hidden.inside && at < last) || (hidden.outside && at > first);
        at += 1;
        !is_hidden
    });
}
