//! Recorded memory in which words are changed: its readers must terminate, with bounded work,
//! whatever they find. A test tries some inputs, a fuzz target more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use sampletop::model::vocabulary::frame::{FrameCode, Ns, RawFrame};
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::process::mapped_files::Files;
use sampletop::process::maps::Maps;
use sampletop::process::memory::ReadMemory;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm::Jvm;
use sampletop::unwinder::framehop::FramehopUnwinder;
use sampletop::unwinder::{
    Detected, General, Generated, Leave, Place, Registers, StackBytes, Unwinder,
};

use crate::recording::{PIECE, Pieces, Recording, Segment};

/// Frames of a stack, as the unwinder has it.
const FRAMES_MAX: usize = 1024;
/// Maximum reads to attach (valid memory takes some 1,700), of a walk with its reads of the stack
/// (cold some 1,000), and for all names: the limits of `jvm/read_limit.rs`, and the stack.
pub const ATTACH_READS: u64 = 1 << 16;
const WALK_READS: u64 = 1 << 17;
const NAMES_READS: u64 = 1 << 19;

/// Reads a recording as `data` describes. Panics if a guarantee does not hold.
///
/// Input: version, flags (1: the changes come only after it was attached to, 2: and after a first
/// walk, 4: walk by the unwinder, as from a sample, 8: the pc is executing, and registers are
/// known, 16: rbp is not), the segment to be walked, how far off the pc and the stack pointer are,
/// words for rax, rbx, r13; then changes: place and word, see [`Changes`].
pub fn observe(all: &[Recording], data: &[u8]) {
    let mut input = Input(data);
    let recording = &all[usize::from(input.u8()) % all.len()];
    let flags = input.u8();
    let segments: Vec<&Segment> =
        recording.expected.threads.iter().flat_map(|thread| &thread.segments).collect();
    let segment = segments[usize::from(input.u8()) % segments.len()];
    let (off, moved) = (i64::from(input.u8() as i8), i64::from(input.u8() as i8));
    let memory = Changed::new(&recording.pieces);
    let [rax, rbx, r13] = [(); 3].map(|()| memory.word(&mut input));
    let changes = Changes::read(&memory, &mut input);

    let late = flags & 1 != 0;
    let later = late && flags & 2 != 0;
    if !late {
        memory.change(&changes);
    }
    let names = Names::default();
    let image = recording.expected.image;
    let Ok(mut jvm) = Jvm::attach(memory.clone(), image, names.clone()) else { return };
    memory.take_reads(ATTACH_READS);
    let place = Place {
        pc: segment.enter.pc.wrapping_add_signed(off),
        exact: flags & 8 != 0,
        sp: segment.enter.sp.wrapping_add_signed(8 * moved),
        rbp: segment.enter.rbp.filter(|_| flags & 16 == 0),
        general: (flags & 8 != 0).then_some(General { rax, rbx, r13, ..General::default() }),
    };
    if flags & 4 != 0 {
        let registers = Registers {
            rip: place.pc,
            rsp: place.sp,
            rbp: place.rbp,
            general: [rax, rbx, 0, 0, 0, 0, 0, 0, 0, 0, 0, r13, 0, 0],
            general_known: place.exact,
        };
        let (low, high) = (place.sp & !0xfff, (place.sp & !0xfff).saturating_add(1 << 20));
        let maps = format!("{low:x}-{high:x} rw-p 00000000 00:00 0\n");
        let mut jvm = Some(jvm);
        let detect = Box::new(move |_: &Maps| match jvm.take() {
            Some(jvm) => Detected::Runtime(Box::new(jvm)),
            None => Detected::Nothing,
        });
        let source = Box::new(move || Ok(Maps::parse(maps.as_bytes())));
        let unwinder = FramehopUnwinder::with_maps(memory.clone(), Files::default(), 1, source);
        let mut unwinder = unwinder.with_runtimes(detect);
        for round in 0..3 {
            if round == usize::from(later) && late {
                memory.change(&changes);
            }
            let mut out = Vec::new();
            let mut bytes = vec![0; 1 << 12];
            let filled = memory.read(place.sp, &mut bytes);
            let stack = StackBytes { base: place.sp, bytes: &bytes[..filled] };
            unwinder.walk_blocked(&registers, stack, &mut out);
            unwinder.thread_name(u64::MAX);
            memory.take_reads(WALK_READS);
            check(&names, &out);
        }
        let found = unwinder.thread_names(None);
        memory.take_reads(NAMES_READS);
        assert!(found.len() <= 50_000);
        return;
    }
    for round in 0..3 {
        if round == usize::from(later) && late {
            memory.change(&changes);
        }
        let mut out = Vec::new();
        walk(&mut jvm, &memory, place, &mut out);
        memory.take_reads(WALK_READS);
        check(&names, &out);
    }
    let found = Generated::thread_names(&mut jvm, None);
    memory.take_reads(NAMES_READS);
    for (_, name) in found.iter().take(100) {
        assert_clean(&names.thread(*name).expect("a name"), NAME_CAP);
    }
}

/// Walks as the unwinder does, without native frames.
fn walk(jvm: &mut dyn Generated, memory: &Changed, start: Place, out: &mut Vec<RawFrame>) {
    jvm.begin(Ns::MAX, true);
    // Ends of native code that cannot be walked.
    if matches!(jvm.resume(start.sp, &mut |at| memory.read_u64(at), out), Some((at, _)) if at <= start.sp)
    {
        panic!("it goes back");
    }
    let mut at = start;
    while out.len() < FRAMES_MAX && jvm.covers(if at.exact { at.pc } else { at.pc.wrapping_sub(1) })
    {
        let before = out.len();
        let left = jvm.leave(at, &mut |at| memory.read_u64(at), out);
        // None where no call was made.
        let ends = matches!(left, Leave::End(_));
        assert!(out.len() == before + 1 || ends && out.len() == before, "one frame at a time");
        at = match left {
            Leave::To { pc, sp, rbp } if sp > at.sp => {
                Place { pc, exact: false, sp, rbp, general: None }
            }
            _ => return,
        };
    }
}

fn check(names: &Names, out: &[RawFrame]) {
    assert!(out.len() <= FRAMES_MAX, "{} frames", out.len());
    for frame in out {
        let named = match frame.decode() {
            FrameCode::Runtime { .. } => names.named(*frame).expect("a name"),
            FrameCode::Marker { .. } => continue,
            other => panic!("{other:?} in generated code"),
        };
        assert!((1..=64).contains(&named.locations.len()), "{} inlined", named.locations.len());
        for location in named.locations.iter() {
            assert!(!location.function.is_empty());
            assert_clean(&location.function, NAME_CAP);
            assert_clean(&location.module, NAME_CAP);
            assert_clean(location.file.as_deref().unwrap_or(""), NAME_CAP);
        }
    }
}

/// Panics unless it can be shown: short enough, and nothing in it that moves the cursor or reverses
/// text.
pub fn assert_clean(text: &str, cap: usize) {
    assert!(text.len() <= cap, "{} bytes", text.len());
    assert!(
        !text.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)),
        "{text:?}"
    );
}

/// Takes numbers from the front; zeros once it is used up.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (first, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        first.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    pub fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    fn u64(&mut self) -> u64 {
        self.number(8)
    }
}

#[derive(Clone)]
pub struct Changed {
    pieces: Pieces,
    /// Where they are, in order.
    places: Arc<[u64]>,
    changes: Arc<Mutex<BTreeMap<u64, u64>>>,
    reads: Arc<AtomicU64>,
}

/// The changes: an aligned address, and its new word. Decoded from two bytes that choose a piece,
/// one that chooses a word in it, and a word.
pub struct Changes(Vec<(u64, u64)>);

const CHANGES_MAX: usize = 256;

impl Changed {
    pub fn new(pieces: &Pieces) -> Changed {
        Changed {
            pieces: pieces.clone(),
            places: pieces.0.keys().copied().collect(),
            changes: Arc::default(),
            reads: Arc::default(),
        }
    }

    pub fn change(&self, changes: &Changes) {
        self.changes.lock().expect("no panic").extend(changes.0.iter().copied());
    }

    /// Panics if there were more than `most` reads since the last call.
    pub fn take_reads(&self, most: u64) {
        let reads = self.reads.swap(0, Relaxed);
        assert!(reads <= most, "{reads} reads of memory");
    }

    fn place(&self, input: &mut Input<'_>) -> u64 {
        let piece = self.places[usize::from(input.u16()) % self.places.len()];
        piece + u64::from(input.u8()) % (PIECE / 8) * 8
    }

    /// Decodes a word that is likely to lead somewhere: a small number, the address of something,
    /// any 8 bytes, all bits set.
    fn word(&self, input: &mut Input<'_>) -> u64 {
        match input.u8() % 5 {
            0 => u64::from(input.u16()),
            1 => self.place(input),
            2 => self.place(input) + u64::from(input.u8()),
            3 => input.u64(),
            _ => u64::MAX,
        }
    }
}

impl Changes {
    pub fn read(memory: &Changed, input: &mut Input<'_>) -> Changes {
        let mut changes = Vec::new();
        while !input.0.is_empty() && changes.len() < CHANGES_MAX {
            let place = memory.place(input);
            let word = match input.u8() % 4 {
                // Some of its bits, or half of it.
                0 => memory.pieces.read_u64(place).unwrap_or(0) ^ 1 << (input.u8() % 64),
                1 => {
                    memory.pieces.read_u64(place).unwrap_or(0) & !0xffff_ffff
                        | u64::from(input.u16())
                }
                _ => memory.word(input),
            };
            changes.push((place, word));
        }
        Changes(changes)
    }
}

impl ReadMemory for Changed {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.fetch_add(1, Relaxed);
        let read = self.pieces.read(address, buf);
        let end = address.saturating_add(read as u64);
        for (at, word) in
            self.changes.lock().expect("no panic").range(address.saturating_sub(7)..end)
        {
            for (at, byte) in (*at..).zip(word.to_le_bytes()) {
                if (address..end).contains(&at) {
                    buf[(at - address) as usize] = byte;
                }
            }
        }
        read
    }
}
