//! The stack of a goroutine that no thread executes, by Go's own table.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::Marker;
use crate::model::vocabulary::role::Origin;
use crate::process::memory::ReadMemory;
use crate::runtimes::go::program::{Frame, Program};
use crate::unwinder::framehop::Role;

/// Maximum frames of a stack.
const FRAMES_MAX: usize = 100_000;
/// Maximum functions kept at each end of a deep stack.
const KEPT: usize = 500;
/// Maximum frames that are remembered.
const KNOWN_MAX: usize = 100_000;

/// A stack as it was copied.
pub struct Copied<'b> {
    /// Address of the first byte.
    pub sp: u64,
    pub bytes: &'b [u8],
    /// Where the goroutine goes on.
    pub pc: u64,
}

/// Frames that were met, by address and whether that is no return address.
#[derive(Default)]
pub struct Frames(FxHashMap<(u64, bool), Option<Rc<Frame>>>);

impl Frames {
    fn at<M: ReadMemory>(
        &mut self,
        program: &Program<M>,
        pc: u64,
        exact: bool,
    ) -> Option<Rc<Frame>> {
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        let known = self.0.entry((pc, exact));
        known.or_insert_with(|| program.frame(pc, exact).map(Rc::new)).clone()
    }
}

/// Returns the functions, the innermost first. `None`: the stack is not whole.
pub fn walk<M: ReadMemory>(
    program: &Program<M>,
    frames: &mut Frames,
    stack: &Copied<'_>,
) -> Option<Vec<(Location, Origin)>> {
    let word = |at: u64| {
        let from = usize::try_from(at.checked_sub(stack.sp)?).ok()?;
        let bytes = stack.bytes.get(from..from.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    };
    let marker =
        |marker: Marker| (Location::named(&marker.text(None), FrameKind::Marker), Origin::Unknown);
    // One that has not run yet goes on at the start of its function.
    let mut exact = program.is_start(stack.pc);
    let (mut pc, mut sp) = (stack.pc, stack.sp);
    let mut found: Vec<(Location, Origin)> = Vec::new();
    for _ in 0..FRAMES_MAX {
        let frame = frames.at(program, pc, exact)?;
        found.extend_from_slice(&frame.locations);
        match frame.role {
            Role::Outermost => {
                if found.len() > 2 * KEPT {
                    let outer = found.len() - KEPT;
                    found.splice(KEPT..outer, [marker(Marker::TooDeep)]);
                }
                return Some(found);
            }
            Role::Plain | Role::Injected => {}
            // The frames of C between are on a thread's stack.
            Role::Callback => found.push(marker(Marker::NotCopied)),
            // Threads execute them.
            Role::Bottom | Role::SystemStack | Role::Cgo | Role::Switches => return None,
        }
        exact = matches!(frame.role, Role::Injected | Role::Callback);
        let at = sp.checked_add(frame.size?)?;
        pc = word(at)?;
        sp = at.checked_add(8)?;
    }
    None
}
