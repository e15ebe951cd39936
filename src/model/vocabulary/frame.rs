//! Frames, threads and their names, as they pass between the side that captures and the side that
//! shows.
//!
//! Any module may name these types; they name nothing outside of the vocabulary.

use std::fmt;

use super::labels;

/// Nanoseconds on CLOCK_MONOTONIC, or a span of them.
pub type Ns = u64;

/// One nanosecond count per second.
pub const SECOND: Ns = 1_000_000_000;

/// A file (or anonymous region, or the vDSO) that is or was mapped executable in a target.
/// Given out by `process::mapped_files`, never reused within a session, so that dlclose, exec and
/// reused addresses cannot change the past. At most [`FileId::MAX`] of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId(pub u32);

impl FileId {
    /// Ids are 20 bits wide inside a [`RawFrame`].
    pub const MAX: u32 = (1 << 20) - 1;
}

/// One frame as it was captured: 64 bits, no name, no bare address.
///
/// Layout: `tag:3 | payload:61`. The packed form is what the ring carries and what stacks are
/// interned by; equal bits mean the same frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawFrame(u64);

/// What a [`RawFrame`] says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameCode {
    /// Machine code of a mapped file.
    Code {
        file: FileId,
        /// Byte offset in the file (for an anonymous region: from the region's start), below 2^40.
        offset: u64,
        /// True for the innermost frame and for a frame interrupted by a signal: the address itself
        /// is executing. False for a return address: names and lines are looked up one byte before.
        exact: bool,
    },
    /// An address in the kernel's text, or in that of a module of it (canonical, upper half). For a
    /// caller it lies in the call, not behind it.
    Kernel { address: u64 },
    /// A frame named by a runtime reader (`runtimes`), an id in that runtime's name table.
    Runtime { id: u64 },
    /// The stack ends here, or this stands in for one; `file` where the reason concerns a file.
    Marker { marker: Marker, file: Option<FileId> },
}

const TAG_SHIFT: u32 = 61;
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

impl RawFrame {
    /// Packs; offsets beyond 2^40 and ids beyond their width become [`Marker::OutsideMaps`].
    pub fn new(code: FrameCode) -> RawFrame {
        match code {
            FrameCode::Code { file, offset, exact }
                if file.0 <= FileId::MAX && offset <= OFFSET_MASK =>
            {
                RawFrame(u64::from(exact) << 60 | u64::from(file.0) << OFFSET_BITS | offset)
            }
            FrameCode::Code { .. } => RawFrame::marker(Marker::OutsideMaps),
            FrameCode::Kernel { address } => RawFrame(1 << TAG_SHIFT | address & ((1 << 48) - 1)),
            FrameCode::Runtime { id } => RawFrame(2 << TAG_SHIFT | id & ((1 << 60) - 1)),
            FrameCode::Marker { marker, file } => RawFrame(
                3 << TAG_SHIFT | (marker as u64) << 32 | file.map_or(0, |f| u64::from(f.0) + 1),
            ),
        }
    }

    pub fn marker(marker: Marker) -> RawFrame {
        RawFrame::new(FrameCode::Marker { marker, file: None })
    }

    pub fn marker_in(marker: Marker, file: FileId) -> RawFrame {
        RawFrame::new(FrameCode::Marker { marker, file: Some(file) })
    }

    /// The marker of a stack that goes on behind the `kib` KiB that were copied of it.
    pub fn truncated(kib: u32) -> RawFrame {
        RawFrame(RawFrame::marker(Marker::Truncated).0 | u64::from(kib))
    }

    /// What a marker is called, in brackets; `file` names the mapped file concerned. `None` for
    /// other frames.
    pub fn marker_text(self, file: Option<&str>) -> Option<String> {
        match self.decode() {
            FrameCode::Marker { marker: Marker::Truncated, .. } if self.0 as u32 > 0 => {
                Some(format!("{DEEPER_THAN}{}{COPIED}", self.0 as u32))
            }
            FrameCode::Marker { marker, .. } => Some(marker.text(file)),
            _ => None,
        }
    }

    /// The packed word, for the ring.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`RawFrame::bits`]; foreign bits decode to some frame, never panic.
    pub fn from_bits(bits: u64) -> RawFrame {
        RawFrame(bits)
    }

    pub fn decode(self) -> FrameCode {
        let payload = self.0 & ((1 << TAG_SHIFT) - 1);
        match self.0 >> TAG_SHIFT {
            0 => FrameCode::Code {
                file: FileId((payload >> OFFSET_BITS) as u32 & FileId::MAX),
                offset: payload & OFFSET_MASK,
                exact: payload >> 60 & 1 == 1,
            },
            1 => FrameCode::Kernel { address: 0xffff_0000_0000_0000 | payload },
            2 => FrameCode::Runtime { id: payload & ((1 << 60) - 1) },
            _ => {
                let marker = Marker::from_code((payload >> 32) as u8);
                // Of a truncated stack the word holds the size of the copy.
                let file = if marker == Marker::Truncated {
                    None
                } else {
                    (payload as u32).checked_sub(1)
                };
                FrameCode::Marker { marker, file: file.map(FileId) }
            }
        }
    }
}

impl fmt::Debug for RawFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decode().fmt(f)
    }
}

/// Text around the size of the copy in the marker of a truncated stack.
const DEEPER_THAN: &str = "[truncated: stack deeper than the ";
const COPIED: &str = " KiB copied]";

/// The frame that stands for what a thread calls to get the lock of CPython's interpreter.
pub const WAITS_FOR_GIL: &str = "[waiting for the GIL]";

/// The frame that stands for the cases of a `select` of Go, of which one sends.
pub const SELECT_SENDS: &str = "[select with a send]";

/// Stands between the stack of an async function that was resumed and the functions that await it,
/// which are further out. Nothing is missing in its place.
pub const AWAIT: &str = "[await]";

/// Stands for further functions that await, where there are more than are shown.
pub const MORE_AWAIT: &str = "[more await]";

/// Text around the name of a task.
const TASK: &str = "[task ";
const TASK_END: &str = "]";

/// Returns the text of the frame that names the task which a thread executes: `[task fetch]`. It is
/// a marker, as no code has that name, but nothing is missing in its place.
pub fn task_text(name: &str) -> String {
    format!("{TASK}{name}{TASK_END}")
}

/// Returns the name of the task in the text of such a frame.
pub fn task_name(text: &str) -> Option<&str> {
    text.strip_prefix(TASK)?.strip_suffix(TASK_END)
}

/// Whether the text of a marker stands for no missing frame.
pub fn is_harmless(text: &str) -> bool {
    matches!(text, WAITS_FOR_GIL | SELECT_SENDS | AWAIT | MORE_AWAIT)
        || task_name(text).is_some()
        || labels::shown(text).is_some()
}

/// Why a stack ends early, or what stands where no stack could be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Marker {
    /// The copied stack bytes ended before the outermost frame.
    Truncated = 0,
    /// More frames than a record can carry.
    TooDeep = 1,
    /// No unwind information for the address (`file` says where) and no two linked frame records.
    NoUnwindInfo = 2,
    /// The thread moved while its stack was copied.
    Torn = 3,
    /// The kernel let us read names and counters, but not the stack.
    NotReadable = 4,
    /// The unwinder met contradictory data (stack pointer went down, unreadable return address).
    BadUnwind = 5,
    /// A program counter outside every executable mapping.
    OutsideMaps = 6,
    /// The thread was running and no sample of it was taken.
    NotSampled = 7,
    /// CPU time that no on-CPU sample hit within 10 s.
    CpuNotSampled = 8,
    /// System time that this backend cannot attribute to a stack.
    KernelNotVisible = 9,
    /// CPU time of exited threads, for which no sample was taken.
    ThreadsGone = 10,
    /// There was no observation (sampling stopped, sampletop starved or suspended).
    NotObserved = 11,
    /// Facts folded together because a bucket or the cumulative table was full.
    Other = 12,
    /// Other code has come to this address since the stack was copied, or may have.
    CodeReplaced = 13,
    /// Frames in the middle of a deep stack that are not kept; their number is not known.
    Folded = 14,
    /// The same of a stack of which only the inner end was copied. The outer end was read later,
    /// and had been the same before.
    NotCopied = 15,
    /// A page of the stack of a running thread was not in memory; the kernel copied what lies below
    /// it.
    PageMissing = 16,
    /// The thread has not been put on a core since it was created.
    NotRunYet = 17,
    /// Native frames among those of an interpreter are missing here: it could not be told where
    /// they belong.
    NotPlaced = 18,
}

impl Marker {
    pub const ALL: [Marker; 19] = [
        Marker::Truncated,
        Marker::TooDeep,
        Marker::NoUnwindInfo,
        Marker::Torn,
        Marker::NotReadable,
        Marker::BadUnwind,
        Marker::OutsideMaps,
        Marker::NotSampled,
        Marker::CpuNotSampled,
        Marker::KernelNotVisible,
        Marker::ThreadsGone,
        Marker::NotObserved,
        Marker::Other,
        Marker::CodeReplaced,
        Marker::Folded,
        Marker::NotCopied,
        Marker::PageMissing,
        Marker::NotRunYet,
        Marker::NotPlaced,
    ];

    fn from_code(code: u8) -> Marker {
        Marker::ALL.get(usize::from(code)).copied().unwrap_or(Marker::BadUnwind)
    }

    /// The frame name shown, in brackets (`(other)` aside); `file` names the mapped file concerned.
    pub fn text(self, file: Option<&str>) -> String {
        match (self, file) {
            (Marker::Truncated, _) => "[truncated: stack deeper than what was copied]".into(),
            (Marker::TooDeep, _) => "[truncated: too many frames]".into(),
            (Marker::NoUnwindInfo, Some(file)) => format!("[no unwind info: {file}]"),
            (Marker::NoUnwindInfo, None) => "[no unwind info]".into(),
            (Marker::Torn, _) => "[torn]".into(),
            (Marker::NotReadable, _) => "[stack not readable]".into(),
            (Marker::BadUnwind, Some(file)) => format!("[unwind failed: {file}]"),
            (Marker::BadUnwind, None) => "[unwind failed]".into(),
            (Marker::OutsideMaps, _) => "[code outside every mapping]".into(),
            (Marker::NotSampled, _) => "[running, not sampled]".into(),
            (Marker::CpuNotSampled, _) => "[cpu, not sampled]".into(),
            (Marker::KernelNotVisible, _) => "[in kernel, not visible]".into(),
            (Marker::ThreadsGone, _) => "[exited threads, not sampled]".into(),
            (Marker::NotObserved, _) => "[not observed]".into(),
            (Marker::Other, _) => "(other)".into(),
            (Marker::CodeReplaced, _) => "[code was replaced]".into(),
            (Marker::Folded, _) => "[... frames folded]".into(),
            (Marker::NotCopied, _) => "[... frames not copied]".into(),
            (Marker::PageMissing, _) => "[truncated: a page of the stack was not in memory]".into(),
            (Marker::NotRunYet, _) => "[new thread, has not run yet]".into(),
            (Marker::NotPlaced, _) => "[native frames that could not be placed]".into(),
        }
    }

    /// Whether this is the text of a marker that concerns no file.
    pub fn is_text(text: &str) -> bool {
        let size = text.strip_prefix(DEEPER_THAN).and_then(|rest| rest.strip_suffix(COPIED));
        size.is_some_and(|size| size.bytes().all(|byte| byte.is_ascii_digit()))
            || Marker::ALL.iter().any(|marker| marker.text(None) == text)
            // Saved by earlier builds.
            || text == "[threads gone between looks]"
    }
}

/// What is noted of a program that has too many goroutines to read all.
pub const SOME_GOROUTINES: &str = "of its many goroutines only some are read";

/// A bit of the ids that stand for goroutines. No thread of the kernel has it (PID_MAX_LIMIT is
/// 2^22). The other bits are the lowest ones of its number.
const GOROUTINE: u32 = 1 << 31;

/// A thread across reuse of ids. `pid` and `tid` are as sampletop's own pid namespace numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ThreadKey {
    pub pid: u32,
    pub tid: u32,
    /// Start time, clock ticks since boot (`/proc/PID/task/TID/stat` field 22).
    pub start: u64,
}

impl ThreadKey {
    /// Some thread of the process: it exited before it could be observed.
    pub fn unknown(pid: u32) -> ThreadKey {
        ThreadKey { pid, tid: 0, start: 0 }
    }

    pub fn is_unknown(&self) -> bool {
        *self == ThreadKey::unknown(self.pid)
    }

    /// Returns the key of a goroutine, by its number in the program. `found`: a number that the
    /// process has given no other goroutine.
    pub fn goroutine(pid: u32, id: u64, found: u64) -> ThreadKey {
        ThreadKey { pid, tid: GOROUTINE | id as u32, start: found }
    }

    /// Returns the id that users know: of a goroutine its number.
    pub fn shown_id(&self) -> u32 {
        self.tid & !GOROUTINE
    }

    /// Whether it is a goroutine and no thread of the kernel.
    pub fn is_goroutine(&self) -> bool {
        self.tid & GOROUTINE != 0
    }
}

/// What a thread is to the runtime that its process has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum ThreadKind {
    /// A thread of the program, or one of which no more is known.
    #[default]
    Plain = 0,
    /// A thread of the program that does not keep it running (Java's daemon threads).
    Daemon = 1,
    /// The runtime made it for itself: a collector, a compiler.
    Internal = 2,
}

impl ThreadKind {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            ThreadKind::Plain => "plain",
            ThreadKind::Daemon => "daemon",
            ThreadKind::Internal => "internal",
        }
    }

    fn from_code(code: u8) -> ThreadKind {
        match code {
            1 => ThreadKind::Daemon,
            2 => ThreadKind::Internal,
            _ => ThreadKind::Plain,
        }
    }
}

/// A thread's name: the kernel's (`comm`), up to 15 bytes of any kind, zero-padded; or a runtime's
/// own. The last byte is its [`ThreadKind`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RawName(pub [u8; 16]);

impl RawName {
    pub fn new(bytes: &[u8]) -> RawName {
        let mut name = [0; 16];
        let n = bytes.len().min(15);
        name[..n].copy_from_slice(&bytes[..n]);
        RawName(name)
    }
    /// A name that a runtime gave, by its id in the runtimes' own table. Nothing else begins with a
    /// zero and goes on.
    pub fn of_runtime(id: u64) -> RawName {
        let mut name = [0; 16];
        name[1] = 1;
        name[7..15].copy_from_slice(&id.to_le_bytes());
        RawName(name)
    }
    /// The same name, of a thread of this kind.
    pub fn of_kind(mut self, kind: ThreadKind) -> RawName {
        self.0[15] = kind as u8;
        self
    }
    pub fn kind(&self) -> ThreadKind {
        ThreadKind::from_code(self.0[15])
    }
    /// The inverse of [`RawName::of_runtime`], whatever the thread's kind.
    pub fn runtime_id(&self) -> Option<u64> {
        let id = u64::from_le_bytes(self.0[7..15].try_into().ok()?);
        (self.of_kind(ThreadKind::Plain) == RawName::of_runtime(id)).then_some(id)
    }
    /// The bytes before the first zero.
    pub fn bytes(&self) -> &[u8] {
        let end = self.0[..15].iter().position(|b| *b == 0).unwrap_or(15);
        &self.0[..end]
    }
}

impl fmt::Debug for RawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_packing() {
        let codes = [
            FrameCode::Code { file: FileId(0), offset: 0, exact: false },
            FrameCode::Code { file: FileId(FileId::MAX), offset: OFFSET_MASK, exact: true },
            FrameCode::Kernel { address: 0xffff_ffff_8100_1234 },
            FrameCode::Runtime { id: 0x0123_4567_89ab_cdef & ((1 << 60) - 1) },
            FrameCode::Marker { marker: Marker::Torn, file: None },
            FrameCode::Marker { marker: Marker::NoUnwindInfo, file: Some(FileId(7)) },
        ];
        for code in codes {
            assert_eq!(RawFrame::new(code).decode(), code);
            assert_eq!(RawFrame::from_bits(RawFrame::new(code).bits()).decode(), code);
        }
    }

    #[test]
    fn a_task_is_named_by_its_frame() {
        for name in ["fetch", "", "x] [task y", "[torn]"] {
            assert_eq!(task_name(&task_text(name)), Some(name));
            assert!(is_harmless(&task_text(name)) && !Marker::is_text(&task_text(name)));
        }
        let others = [WAITS_FOR_GIL, SELECT_SENDS, AWAIT, MORE_AWAIT, "[labels tenant=7]"];
        assert!(others.into_iter().all(is_harmless));
        for marker in Marker::ALL {
            assert!(!is_harmless(&marker.text(None)), "{marker:?}");
        }
        for text in ["[task", "[task]", "task fetch", "[task fetch] x"] {
            assert!(!is_harmless(text), "{text}");
        }
    }

    #[test]
    fn a_truncated_stack_names_the_size_of_its_copy() {
        let frame = RawFrame::truncated(63);
        assert_eq!(frame.decode(), FrameCode::Marker { marker: Marker::Truncated, file: None });
        assert_eq!(
            RawFrame::from_bits(frame.bits()).marker_text(None).as_deref(),
            Some("[truncated: stack deeper than the 63 KiB copied]")
        );
        assert_eq!(RawFrame::truncated(0), RawFrame::marker(Marker::Truncated));
        assert!(Marker::is_text(&frame.marker_text(None).expect("a marker")));
        assert!(!Marker::is_text("[truncated: stack deeper than the secret KiB copied]"));
        assert_eq!(RawFrame::new(FrameCode::Kernel { address: 0 }).marker_text(None), None);
    }

    #[test]
    fn what_does_not_fit_is_a_marker() {
        let too_far = FrameCode::Code { file: FileId(1), offset: OFFSET_MASK + 1, exact: false };
        assert_eq!(RawFrame::new(too_far), RawFrame::marker(Marker::OutsideMaps));
    }

    #[test]
    fn names_of_runtimes_are_no_others() {
        for id in [0, 7, u64::MAX] {
            assert_eq!(RawName::of_runtime(id).runtime_id(), Some(id));
        }
        assert_eq!(
            (RawName::new(b"").runtime_id(), RawName::new(b"\0\x01x").runtime_id()),
            (None, None)
        );
    }

    #[test]
    fn a_name_keeps_the_kind_of_its_thread_apart() {
        for name in
            [RawName::new(b"123456789012345"), RawName::new(b""), RawName::of_runtime(u64::MAX)]
        {
            for kind in [ThreadKind::Plain, ThreadKind::Daemon, ThreadKind::Internal] {
                let of_kind = name.of_kind(ThreadKind::Internal).of_kind(kind);
                assert_eq!(of_kind.kind(), kind);
                assert_eq!(
                    (of_kind.bytes(), of_kind.runtime_id()),
                    (name.bytes(), name.runtime_id())
                );
                assert_eq!(of_kind == name, kind == ThreadKind::Plain);
            }
        }
        assert_eq!(RawName([0xff; 16]).kind(), ThreadKind::Plain, "foreign bytes are some kind");
    }

    #[test]
    fn marker_codes_are_their_position() {
        for (code, marker) in Marker::ALL.iter().enumerate() {
            assert_eq!(*marker as usize, code);
        }
    }
}
