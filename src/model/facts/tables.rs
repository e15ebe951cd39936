//! Interned stacks and names. Ids only ever grow and never change meaning, so a newer `Tables` can
//! stand in for an older one (a frozen snapshot gets names that were found later).
//!
//! Stacks are a prefix tree: (caller's stack, frame), so a parent's id is always lower than its
//! children's and a whole tree is summed in one backward pass. Everything is held in fixed-size
//! shared chunks, so that cloning a `Tables` for a snapshot costs a pointer per chunk, and a change
//! copies one chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::facts::chunks::Chunks;
use crate::model::vocabulary::frame::{FrameCode, Marker, RawFrame, ThreadKind};
use crate::model::vocabulary::state::FutexKind;

/// A whole stack: a node of the prefix tree. 0 is the empty stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(pub u32);

impl StackId {
    pub const EMPTY: StackId = StackId(0);
}

impl NameId {
    /// The thread name `(exited)`: CPU time of threads that started and exited between two scans.
    pub const EXITED: NameId = NameId(0);
    /// The thread name `(other)`: what was folded together because there was no room.
    pub const OTHER: NameId = NameId(1);
}

/// An interned [`RawFrame`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub u32);

/// An interned, cleaned thread name (control characters stripped, invalid UTF-8 replaced), and the
/// kind of thread that had it: the same text of another kind is another id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameId(pub u32);

/// What kind of code a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FrameKind {
    Native,
    Kernel,
    Java,
    Python,
    Jit,
    Marker,
    /// No code: the name of threads that are shown together inside of a group.
    Thread,
}

impl FrameKind {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
            FrameKind::Java => "java",
            FrameKind::Python => "python",
            FrameKind::Jit => "jit",
            FrameKind::Marker => "marker",
            FrameKind::Thread => "thread",
        }
    }
}

/// How a frame's code came to be run; `None` in a [`Function`] where there is nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tier {
    Interpreted,
    C1,
    C2,
    Inlined,
    Native,
    /// Compiled line by line, by a compiler other than HotSpot's.
    Baseline,
    Optimized,
}

impl Tier {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Tier::Interpreted => "interpreted",
            Tier::C1 => "c1",
            Tier::C2 => "c2",
            Tier::Inlined => "inlined",
            Tier::Native => "native",
            Tier::Baseline => "baseline",
            Tier::Optimized => "optimized",
        }
    }
}

/// One named frame. Strings are shared, cleaned (no control or bidi characters) and capped at 4
/// KiB.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Location {
    /// Demangled, without parameter list or hash: `ns::Type<T>::method`.
    pub function: Arc<str>,
    /// Shared object, class or Python module: `libc.so.6`.
    pub module: Arc<str>,
    pub file: Option<Arc<str>>,
    pub line: Option<u32>,
    pub kind: FrameKind,
    pub tier: Option<Tier>,
}

/// What the kernel's code, and its functions where they have no names, are called.
pub const KERNEL: &str = "[kernel]";

impl Location {
    /// A name without a place.
    pub fn named(name: &str, kind: FrameKind) -> Location {
        Location {
            function: name.into(),
            module: "".into(),
            file: None,
            line: None,
            kind,
            tier: None,
        }
    }

    /// Addresses of the kernel's functions are not shown to every user (kernel.kptr_restrict).
    pub fn is_unnamed_kernel(&self) -> bool {
        self.kind == FrameKind::Kernel && *self.function == *KERNEL
    }
}

/// What one raw frame stands for: outermost function first, then what was inlined into it. Never
/// empty. While its symbols are still being loaded it is one [`Location`] named `module!0xoffset`,
/// and `pending`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    pub locations: Arc<[Location]>,
    pub pending: bool,
    /// Which build of its module the code is of, where that is known: the file's GNU build id in
    /// small hexadecimal digits, or what another tool's profile has in its place. It is not part of
    /// a [`Location`], since a function is one in all builds.
    pub build_id: Option<Arc<str>>,
}

impl Named {
    /// The name of a frame before its file is read: its offset, and `pending`; a
    /// marker its own text.
    pub fn unnamed(frame: RawFrame) -> Named {
        let (function, kind, pending) = match frame.decode() {
            FrameCode::Code { offset, .. } => (format!("0x{offset:x}"), FrameKind::Native, true),
            FrameCode::Kernel { .. } => (KERNEL.into(), FrameKind::Kernel, true),
            FrameCode::Runtime { id } => (format!("#{id}"), FrameKind::Jit, true),
            FrameCode::Marker { .. } => {
                (frame.marker_text(None).unwrap_or_default(), FrameKind::Marker, false)
            }
        };
        let location = Location {
            function: function.into(),
            module: "".into(),
            file: None,
            line: None,
            kind,
            tier: None,
        };
        Named { locations: Arc::new([location]), pending, build_id: None }
    }
}

/// A node of the prefix tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackNode {
    pub parent: StackId,
    pub top: FrameId,
}

/// See the module's head. The writing side is [`crate::model::facts::interner::Interner`].
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(super) nodes: Chunks<StackNode, 4096>,
    pub(super) futex: Chunks<FutexKind, 16384>,
    pub(super) frames: Chunks<RawFrame, 4096>,
    pub(super) named: Chunks<Named, 512>,
    pub(super) names: Chunks<(Arc<str>, ThreadKind), 1024>,
}

/// Tables as lists, indexed by their ids: to be rebuilt from a file.
#[derive(Debug, Default)]
pub struct Parts {
    pub names: Vec<(Arc<str>, ThreadKind)>,
    pub frames: Vec<(RawFrame, Named)>,
    /// Caller's stack, innermost frame, and what a futex wait under it is. The first is the empty
    /// stack.
    pub stacks: Vec<(StackId, FrameId, FutexKind)>,
}

impl Tables {
    /// `None`: a stack does not come after its caller's or has a frame that is not there, or a
    /// frame has no location.
    pub fn from_parts(parts: Parts) -> Option<Tables> {
        let Parts { names, frames, stacks } = parts;
        let known = |frame: FrameId| (frame.0 as usize) < frames.len();
        let sound = |(id, (parent, top, _)): (usize, &(StackId, FrameId, FutexKind))| {
            known(*top) && if id == 0 { parent.0 == 0 } else { (parent.0 as usize) < id }
        };
        if !stacks.iter().enumerate().all(sound)
            || frames.iter().any(|(_, named)| named.locations.is_empty())
        {
            return None;
        }
        let mut tables = Tables::default();
        names.into_iter().for_each(|name| tables.names.push(name));
        for (frame, named) in frames {
            tables.frames.push(frame);
            tables.named.push(named);
        }
        for (parent, top, futex) in stacks {
            tables.nodes.push(StackNode { parent, top });
            tables.futex.push(futex);
        }
        Some(tables)
    }

    /// Ids below this are names of threads.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// The caller's stack; the empty stack is its own parent.
    pub fn parent(&self, stack: StackId) -> StackId {
        self.nodes.get(stack.0 as usize).map_or(StackId::EMPTY, |node| node.parent)
    }

    /// The innermost frame; of the empty stack frame 0, the marker `(other)`.
    pub fn top(&self, stack: StackId) -> FrameId {
        self.nodes.get(stack.0 as usize).map_or(FrameId(0), |node| node.top)
    }

    /// Ids below this are stacks (the empty one included).
    pub fn stack_count(&self) -> usize {
        self.nodes.len()
    }

    /// Ids below this are frames.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    pub fn frame(&self, frame: FrameId) -> RawFrame {
        self.frames.get(frame.0 as usize).copied().unwrap_or(RawFrame::marker(Marker::Other))
    }

    /// What the frame is called so far; an id that is not in these tables is called `(other)` (ids
    /// are to be read in the tables they came with, or in newer ones).
    pub fn named(&self, frame: FrameId) -> &Named {
        match self.named.get(frame.0 as usize) {
            Some(named) => named,
            None => unknown(),
        }
    }

    /// A thread's name.
    pub fn name(&self, name: NameId) -> &Arc<str> {
        match self.names.get(name.0 as usize) {
            Some((name, _)) => name,
            None => &unknown().locations[0].function,
        }
    }

    /// What kind of thread has the name.
    pub fn kind(&self, name: NameId) -> ThreadKind {
        self.names.get(name.0 as usize).map_or(ThreadKind::Plain, |(_, kind)| *kind)
    }

    /// What a futex wait under this stack is; [`FutexKind::Wait`] until its names are known.
    pub fn futex_kind(&self, stack: StackId) -> FutexKind {
        self.futex.get(stack.0 as usize).copied().unwrap_or_default()
    }

    /// The builds that there are of each module, by names. Modules of which none is known are not
    /// in it.
    pub fn builds(&self) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
        let mut builds: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for named in self.named.iter() {
            let (Some(build_id), Some(location)) = (&named.build_id, named.locations.first())
            else {
                continue;
            };
            builds.entry(location.module.clone()).or_default().insert(build_id.clone());
        }
        builds
    }

    pub fn frames_innermost_first(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut at = stack;
        std::iter::from_fn(move || {
            if at == StackId::EMPTY {
                return None;
            }
            let frame = self.top(at);
            at = self.parent(at);
            Some(frame)
        })
    }
}

/// Stands in for an id that these tables do not have.
fn unknown() -> &'static Named {
    static UNKNOWN: std::sync::OnceLock<Named> = std::sync::OnceLock::new();
    UNKNOWN.get_or_init(|| Named::unnamed(RawFrame::marker(Marker::Other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_parts_are_tables() {
        let frame =
            || (RawFrame::marker(Marker::Torn), Named::unnamed(RawFrame::marker(Marker::Torn)));
        let tables = |stacks: &[(u32, u32)], frames: usize| {
            let stacks = stacks
                .iter()
                .map(|(parent, top)| (StackId(*parent), FrameId(*top), FutexKind::Lock))
                .collect();
            Tables::from_parts(Parts {
                frames: (0..frames).map(|_| frame()).collect(),
                stacks,
                ..Parts::default()
            })
        };
        let sound = tables(&[(0, 0), (0, 0), (1, 1)], 2).expect("each caller comes first");
        assert_eq!((sound.parent(StackId(2)), sound.top(StackId(2))), (StackId(1), FrameId(1)));
        assert_eq!((sound.stack_count(), sound.futex_kind(StackId(2))), (3, FutexKind::Lock));
        assert!(tables(&[], 0).is_some());
        for (stacks, frames) in [
            (&[(1, 0)][..], 2),
            (&[(0, 0), (1, 0)], 2),
            (&[(0, 0), (0, 0), (3, 1)], 2),
            (&[(0, 0), (0, 2)], 2),
        ] {
            assert!(tables(stacks, frames).is_none(), "{stacks:?}");
        }
        let nameless = Named { locations: [].into(), pending: false, build_id: None };
        assert!(
            Tables::from_parts(Parts {
                frames: vec![(RawFrame::marker(Marker::Torn), nameless)],
                ..Parts::default()
            })
            .is_none()
        );
    }
}
