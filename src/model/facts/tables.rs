//! Interned stacks and names. Tables only grow and ids keep their meaning, so newer `Tables` can
//! replace older ones. A frozen snapshot thus gets names that were found later.
//!
//! Stacks are a prefix tree: (caller's stack, frame). A parent's id is always lower than its
//! children's, so a whole tree is summed in one backward pass. All data are in fixed-size shared
//! chunks. Cloning `Tables` for a snapshot copies one pointer per chunk, and a change copies one
//! chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::facts::chunks::Chunks;
use crate::model::facts::kernel_lock::KernelLock;
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{
    FrameCode, Marker, RawFrame, ThreadKey, ThreadKind, task_name,
};
use crate::model::vocabulary::labels;
use crate::model::vocabulary::role::Origins;
use crate::model::vocabulary::state::{FutexKind, RawState, State};

/// A whole stack: a node of the prefix tree. 0 is the empty stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(pub u32);

impl StackId {
    pub const EMPTY: StackId = StackId(0);
}

impl NameId {
    /// The thread name `(exited)`: CPU time of threads that started and exited between two scans.
    pub const EXITED: NameId = NameId(0);
    /// The thread name `(other)`: threads folded together for lack of room.
    pub const OTHER: NameId = NameId(1);
}

/// An interned [`RawFrame`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameId(pub u32);

/// An interned, cleaned thread name (control characters stripped, invalid UTF-8 replaced), with the
/// kind of thread. The same text with another kind has another id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameId(pub u32);

/// An interned [`Blocker`]. 0: what the thread waits for is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct BlockerId(pub u32);

impl BlockerId {
    pub const NONE: BlockerId = BlockerId(0);
}

/// What a thread waits for, and who held it at that time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Blocker {
    pub kind: BlockerKind,
    /// The target's process: addresses are its own.
    pub pid: u32,
    /// See [`crate::model::vocabulary::blocker::RawBlocker::object`].
    pub object: u64,
    /// The class of a Java object, cleaned.
    pub class: Option<Arc<str>>,
    pub holder: Holder,
}

/// Who holds what a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Holder {
    /// It cannot be known, or is not proven.
    Unknown,
    /// No thread holds it: it was just released.
    Free,
    /// A thread of a watched process: its name, and its stack when the wait was observed.
    Thread { thread: ThreadKey, name: NameId, stack: StackId },
    /// A thread that is not watched.
    Foreign { pid: u32, tid: u32 },
    /// This number of readers, whose threads are unknown.
    Readers(u32),
    /// A virtual thread of Java that runs on no carrier.
    Unmounted,
}

/// The kind of a frame's code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FrameKind {
    Native,
    Kernel,
    Java,
    Python,
    Jit,
    Marker,
    /// No code: the name of threads that are shown together within a group.
    Thread,
}

impl FrameKind {
    /// Returns the word in JSON.
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

/// How a frame's code is executed; `None` in a [`Location`] if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tier {
    Interpreted,
    C1,
    C2,
    Inlined,
    Native,
    /// Compiled line by line, by another compiler than HotSpot's.
    Baseline,
    Optimized,
    /// Interpreted, by a thread that holds the interpreter's lock (GIL).
    Gil,
}

impl Tier {
    /// Returns the word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Tier::Interpreted => "interpreted",
            Tier::C1 => "c1",
            Tier::C2 => "c2",
            Tier::Inlined => "inlined",
            Tier::Native => "native",
            Tier::Baseline => "baseline",
            Tier::Optimized => "optimized",
            Tier::Gil => "gil",
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

/// Name of the kernel's code, and of its functions without names.
pub const KERNEL: &str = "[kernel]";

impl Location {
    /// Returns a location with a name, but no file, line or module.
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

    /// Returns whether this names the task that a thread executes; see [`task_name`].
    pub fn is_task(&self) -> bool {
        self.kind == FrameKind::Marker && task_name(&self.function).is_some()
    }

    /// Returns whether this carries the labels of what a thread executes; see [`labels`].
    pub fn is_labels(&self) -> bool {
        self.kind == FrameKind::Marker && labels::shown(&self.function).is_some()
    }

    /// Returns whether this is a kernel function without a name: not every user may see their
    /// addresses (kernel.kptr_restrict).
    pub fn is_unnamed_kernel(&self) -> bool {
        self.kind == FrameKind::Kernel && *self.function == *KERNEL
    }
}

/// The functions of one raw frame: the outermost first, then those inlined into it. Never empty.
/// While its symbols are being loaded it is `pending`, with one [`Location`] named
/// `module!0xoffset`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    pub locations: Arc<[Location]>,
    pub pending: bool,
    /// The build of the module, if known: the file's GNU build id in lower-case hexadecimal digits,
    /// or its equivalent in another tool's profile. Not part of [`Location`], since a function is
    /// the same in all builds.
    pub build_id: Option<Arc<str>>,
    /// Where its code was loaded from. Not part of [`Location`] either: it is the same function.
    pub origins: Origins,
}

impl Named {
    /// Returns final names of a frame, without a known build or origin.
    pub fn known(locations: impl Into<Arc<[Location]>>) -> Named {
        Named {
            locations: locations.into(),
            pending: false,
            build_id: None,
            origins: Origins::default(),
        }
    }

    /// Returns the name of a frame before its file is read: its offset, `pending`. A marker's name
    /// is its text.
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
        Named {
            locations: Arc::new([location]),
            pending,
            build_id: None,
            origins: Origins::default(),
        }
    }
}

/// A node of the prefix tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackNode {
    pub parent: StackId,
    pub top: FrameId,
}

/// See the module's documentation. Written by [`crate::model::facts::interner::Interner`].
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(super) nodes: Chunks<StackNode, 4096>,
    pub(super) futex: Chunks<FutexKind, 16384>,
    pub(super) frames: Chunks<RawFrame, 4096>,
    pub(super) named: Chunks<Named, 512>,
    pub(super) names: Chunks<(Arc<str>, ThreadKind), 1024>,
    /// By id - 1.
    pub(super) blockers: Chunks<Blocker, 256>,
}

/// Tables as lists, indexed by id, from which a file's reader rebuilds them.
#[derive(Debug, Default)]
pub struct Parts {
    pub names: Vec<(Arc<str>, ThreadKind)>,
    pub frames: Vec<(RawFrame, Named)>,
    /// Caller's stack, innermost frame, and kind of a futex wait below it. The first entry is the
    /// empty stack.
    pub stacks: Vec<(StackId, FrameId, FutexKind)>,
    /// By id - 1.
    pub blockers: Vec<Blocker>,
}

impl Tables {
    /// Builds tables. `None` if a stack precedes its caller's or has an unknown frame, or a frame
    /// has no location.
    pub fn from_parts(parts: Parts) -> Option<Tables> {
        let Parts { names, frames, stacks, blockers } = parts;
        let known = |frame: FrameId| (frame.0 as usize) < frames.len();
        let sound = |(id, (parent, top, _)): (usize, &(StackId, FrameId, FutexKind))| {
            known(*top) && if id == 0 { parent.0 == 0 } else { (parent.0 as usize) < id }
        };
        let held_soundly = |blocker: &Blocker| match blocker.holder {
            Holder::Thread { name, stack, .. } => {
                (name.0 as usize) < names.len() && (stack.0 as usize) < stacks.len()
            }
            _ => true,
        };
        if !stacks.iter().enumerate().all(sound)
            || !blockers.iter().all(held_soundly)
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
        blockers.into_iter().for_each(|blocker| tables.blockers.push(blocker));
        Some(tables)
    }

    /// Returns the number of thread names; all lower ids are valid.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Returns the caller's stack; the empty stack is its own parent.
    pub fn parent(&self, stack: StackId) -> StackId {
        self.nodes.get(stack.0 as usize).map_or(StackId::EMPTY, |node| node.parent)
    }

    /// Returns the innermost frame; for the empty stack frame 0, the marker `(other)`.
    pub fn top(&self, stack: StackId) -> FrameId {
        self.nodes.get(stack.0 as usize).map_or(FrameId(0), |node| node.top)
    }

    /// Returns the number of stacks, including the empty one; all lower ids are valid.
    pub fn stack_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of frames; all lower ids are valid.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }

    pub fn frame(&self, frame: FrameId) -> RawFrame {
        self.frames.get(frame.0 as usize).copied().unwrap_or(RawFrame::marker(Marker::Other))
    }

    /// Returns the frame's present name; `(other)` for an unknown id. (Use ids with the tables they
    /// came from, or newer ones.)
    pub fn named(&self, frame: FrameId) -> &Named {
        match self.named.get(frame.0 as usize) {
            Some(named) => named,
            None => unknown(),
        }
    }

    /// Returns a thread's name.
    pub fn name(&self, name: NameId) -> &Arc<str> {
        match self.names.get(name.0 as usize) {
            Some((name, _)) => name,
            None => &unknown().locations[0].function,
        }
    }

    /// Returns the kind of thread with this name.
    pub fn kind(&self, name: NameId) -> ThreadKind {
        self.names.get(name.0 as usize).map_or(ThreadKind::Plain, |(_, kind)| *kind)
    }

    /// Returns the kind of a futex wait below this stack; [`FutexKind::Wait`] until its names are
    /// known.
    pub fn futex_kind(&self, stack: StackId) -> FutexKind {
        self.futex.get(stack.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the state of a thread with this stack. One that waits for a lock of the kernel is
    /// uninterruptible too.
    pub fn state(&self, state: RawState, stack: StackId) -> State {
        match state {
            RawState::Known(State::Disk) if self.kernel_lock(stack).is_some() => State::Lock,
            RawState::Known(state) => state,
            futex => futex.resolve(self.futex_kind(stack)),
        }
    }

    /// Returns the lock of the kernel for which an uninterruptible thread with this stack waits.
    pub fn kernel_lock(&self, stack: StackId) -> Option<KernelLock> {
        let innermost = self.named(self.top(stack)).locations.last()?;
        let is_kernel = innermost.kind == FrameKind::Kernel;
        is_kernel.then(|| KernelLock::of(&innermost.function)).flatten()
    }

    /// Returns what a thread waited for, where that is known.
    pub fn blocker(&self, blocker: BlockerId) -> Option<&Blocker> {
        self.blockers.get((blocker.0 as usize).checked_sub(1)?)
    }

    /// Returns the number of blockers; ids from 1 up to it are valid.
    pub fn blocker_count(&self) -> usize {
        self.blockers.len()
    }

    /// Returns the builds of each module, by name. Omits modules without a known build.
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

/// Returns the name for ids that the tables do not have.
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
        let nameless = Named::known([]);
        assert!(
            Tables::from_parts(Parts {
                frames: vec![(RawFrame::marker(Marker::Torn), nameless)],
                ..Parts::default()
            })
            .is_none()
        );
    }
}
