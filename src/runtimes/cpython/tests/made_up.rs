//! Memory of a made-up interpreter, in the layout of any version.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::layout::{Layout, Position, Top, Version};

const PAGE: u64 = 4096;
pub const RUNTIME: u64 = 0x1_0000;
const INTERPRETERS: u64 = 0x10_0000;
const HEAP: u64 = 0x100_0000;
const STACK: u64 = 0x7ff0_0000_0000;
/// Bytes of an interpreter and of a chunk of a data stack.
const INTERPRETER: u64 = 0x4000;
const CHUNK: u64 = 16 << 10;
/// The type of code objects.
const CODE_TYPE: u64 = 0x5_0000;

/// Memory of pages; what was not written is not there.
#[derive(Default)]
pub struct World {
    pages: Mutex<BTreeMap<u64, Box<[u8]>>>,
    reads: AtomicU32,
    next: AtomicU64,
    stack: AtomicU64,
}

impl ReadMemory for &World {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.copy(address, buf)
    }

    fn read_pieces(&self, pieces: &[(u64, usize)], buf: &mut [u8]) -> Option<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut rest = buf;
        for (at, length) in pieces {
            let (piece, behind) = rest.split_at_mut_checked(*length)?;
            (self.copy(*at, piece) == *length).then_some(())?;
            rest = behind;
        }
        rest.is_empty().then_some(())
    }
}

impl World {
    fn copy(&self, address: u64, buf: &mut [u8]) -> usize {
        let pages = self.pages.lock().expect("no panic");
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let Some(page) = pages.get(&(at / PAGE)) else { break };
            let from = (at % PAGE) as usize;
            let length = (page.len() - from).min(buf.len() - done);
            buf[done..done + length].copy_from_slice(&page[from..from + length]);
            done += length;
        }
        done
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        let mut pages = self.pages.lock().expect("no panic");
        let (mut at, mut rest) = (address, bytes);
        while !rest.is_empty() {
            let from = (at % PAGE) as usize;
            let (piece, behind) = rest.split_at(rest.len().min(PAGE as usize - from));
            let page = pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize].into());
            page[from..from + piece.len()].copy_from_slice(piece);
            (at, rest) = (at + piece.len() as u64, behind);
        }
    }

    pub fn word(&self, address: u64, word: u64) {
        self.put(address, &word.to_le_bytes());
    }

    pub fn get(&self, address: u64) -> u64 {
        let mut word = [0; 8];
        self.copy(address, &mut word);
        u64::from_le_bytes(word)
    }

    /// Makes a page unreadable.
    pub fn unmap(&self, address: u64) {
        self.pages.lock().expect("no panic").remove(&(address / PAGE));
    }

    /// Returns the number of reads since the last call.
    pub fn reads(&self) -> u32 {
        self.reads.swap(0, Ordering::Relaxed)
    }

    /// Returns the addresses of all pages.
    pub fn pages(&self) -> Vec<u64> {
        self.pages.lock().expect("no panic").keys().map(|page| page * PAGE).collect()
    }

    /// Makes the native stack that is used next end at an address.
    pub fn stack_below(&self, end: u64) {
        self.stack.store(STACK - end, Ordering::Relaxed);
    }

    /// Returns zeros of this size on a native stack, below those before.
    fn on_stack(&self, size: u64) -> u64 {
        let used = self.stack.fetch_add(size.next_multiple_of(16), Ordering::Relaxed);
        let at = STACK - used - size.next_multiple_of(16);
        self.put(at, &vec![0; size as usize]);
        at
    }

    /// Returns zeros of this size.
    pub fn alloc(&self, size: u64) -> u64 {
        let at = HEAP + self.next.fetch_add(size.next_multiple_of(16), Ordering::Relaxed);
        self.put(at, &vec![0; size as usize]);
        at
    }
}

/// A frame to be made, of a code object, at an offset in its bytes.
#[derive(Clone, Copy, Debug)]
pub enum Made {
    Call(u64, i64),
    /// Its frame is in a generator.
    Generator(u64, i64),
    /// 3.11: the first frame of its evaluation.
    Entry(u64, i64),
    /// 3.12 on.
    Shim,
}

/// A process with interpreters in it.
pub struct Program {
    pub world: World,
    pub layout: Layout,
    interpreters: AtomicU64,
    threads: AtomicU64,
}

impl Program {
    pub fn new(layout: Layout) -> Program {
        let world = World::default();
        let name = world.alloc(16);
        world.put(name, b"code\0");
        world.put(CODE_TYPE, &[0; 64]);
        world.word(CODE_TYPE + layout.object.type_name, name);
        world.word(RUNTIME + layout.interpreters, 0);
        Program { world, layout, interpreters: AtomicU64::new(0), threads: AtomicU64::new(1) }
    }

    /// Adds an interpreter.
    pub fn interpreter(&self) -> u64 {
        let id = self.interpreters.fetch_add(1, Ordering::Relaxed);
        let (at, l) = (INTERPRETERS + id * INTERPRETER, &self.layout.interpreter);
        self.world.put(at, &[0; INTERPRETER as usize]);
        let head = RUNTIME + self.layout.interpreters;
        self.world.word(at + l.next, self.world.get(head));
        self.world.word(at + l.id, id);
        self.world.word(head, at);
        at
    }

    /// Adds a thread.
    pub fn thread(&self, interpreter: u64, pthread: u64, id: u32) -> u64 {
        let at = self.world.alloc(512);
        self.put_thread(at, interpreter, pthread, id);
        at
    }

    /// Adds a thread whose state is at this address.
    pub fn put_thread(&self, at: u64, interpreter: u64, pthread: u64, id: u32) {
        let l = &self.layout.thread;
        let head = interpreter + self.layout.interpreter.threads;
        self.world.word(at + l.next, self.world.get(head));
        self.world.word(at + l.interpreter, interpreter);
        self.world.word(at + l.pthread, pthread);
        let unique = self.threads.fetch_add(1, Ordering::Relaxed);
        self.world.word(at + l.unique, unique);
        if let Some(native_id) = l.native_id {
            self.world.word(at + native_id, id.into());
        }
        // The C library's structure.
        self.world.put(pthread, &[0; 2304]);
        self.world.put(pthread + 720, &id.to_le_bytes());
        if let Top::CFrame { cframe, .. } = l.top {
            self.world.word(at + cframe, self.world.alloc(32));
        }
        self.world.word(head, at);
    }

    /// Returns a string.
    pub fn text(&self, text: &str) -> u64 {
        let o = &self.layout.object;
        let widest = text.chars().map(u32::from).max().unwrap_or(0);
        let (kind, ascii) = match widest {
            0..=0x7f => (1, true),
            0x80..=0xff => (1, false),
            0x100..=0xffff => (2, false),
            _ => (4, false),
        };
        let start = if ascii { o.ascii } else { o.characters };
        let at = self.world.alloc(start + 4 * text.len() as u64 + 8);
        self.world.word(at + o.text_length, text.chars().count() as u64);
        self.world.word(at + o.text_hash(), u64::from(widest) * 77 + text.len() as u64);
        let state = (kind as u32 | 1 << 3 | u32::from(ascii) << 4) << o.interned_bits | 1;
        self.world.put(at + o.text_state, &state.to_le_bytes());
        for (nth, c) in text.chars().enumerate() {
            let code = u32::from(c).to_le_bytes();
            self.world.put(at + start + (nth * kind) as u64, &code[..kind]);
        }
        at
    }

    fn bytes(&self, bytes: &[u8]) -> u64 {
        let o = &self.layout.object;
        let at = self.world.alloc(o.bytes + bytes.len() as u64 + 1);
        self.world.word(at + o.bytes_length, bytes.len() as u64);
        self.world.put(at + o.bytes, bytes);
        at
    }

    /// Returns a code object. Its bytes from the fourth on are two lines behind the first.
    pub fn code(&self, file: &str, name: &str, first_line: u32) -> u64 {
        let at = self.world.alloc(512);
        self.write_code(at, self.text(file), self.text(name), first_line);
        at
    }

    pub fn write_code(&self, at: u64, file: u64, name: u64, first_line: u32) {
        let (l, minor) = (&self.layout.code, self.layout.minor);
        let table: &[u8] = match minor {
            0..=9 => &[4, 2],
            10 => &[4, 0, 200, 2],
            _ => &[0x99, 0x11, 0xe7, 0, 0, 0x9f, 0x11, 0x9f, 0x11],
        };
        // References.
        self.world.word(at, 3);
        self.world.word(at + self.layout.object.kind, CODE_TYPE);
        self.world.word(at + l.file, file);
        self.world.word(at + l.name, name);
        self.world.word(at + l.shown_name(), name);
        self.world.word(at + l.lines, self.bytes(table));
        self.world.put(at + l.first_line, &first_line.to_le_bytes());
    }

    /// Returns the position of an offset of bytes in a code object, as frames have it.
    pub fn position(&self, code: u64, offset: i64) -> u64 {
        match self.layout.frame.how {
            Position::Bytes => offset as u32 as u64,
            Position::Units => (offset / 2) as u32 as u64,
            Position::Address => {
                let first = code + self.layout.code.instructions.expect("3.11 has it");
                first.wrapping_add_signed(offset)
            }
        }
    }

    /// Gives a thread these frames, innermost first.
    pub fn frames(&self, thread: u64, frames: &[Made]) {
        let (l, t) = (&self.layout.frame, &self.layout.thread);
        let size = l.span() as u64 + 24;
        let chunk = t.chunk.map(|at| {
            let length = CHUNK.max(24 + size * frames.len() as u64);
            let chunk = self.world.alloc(length);
            self.world.word(thread + at, chunk);
            self.world.word(chunk + 8, length);
            (at, chunk)
        });
        let (mut caller, mut top) = (0, chunk.map_or(0, |(_, chunk)| chunk + 24));
        for frame in frames.iter().rev() {
            let in_chunk = chunk.is_some() && matches!(frame, Made::Call(..) | Made::Entry(..));
            let at = match frame {
                _ if in_chunk => top,
                Made::Shim => self.world.on_stack(size),
                _ => self.world.alloc(size),
            };
            top += if in_chunk { size } else { 0 };
            self.world.word(at + l.previous, caller);
            let (code, offset, owner) = match frame {
                Made::Call(code, offset) | Made::Entry(code, offset) => (*code, *offset, 0),
                Made::Generator(code, offset) => (*code, *offset, 1),
                Made::Shim => (0x77, 0, 3),
            };
            // Since 3.14 a pointer may have a tag.
            self.world.word(at + l.code, code | u64::from(self.layout.minor >= 14));
            let position = self.position(code, offset);
            match l.how {
                Position::Address => self.world.word(at + l.position, position),
                _ => self.world.put(at + l.position, &(position as u32).to_le_bytes()),
            }
            if let Some(place) = l.owner {
                self.world.put(at + place, &[owner]);
            }
            if let Some(place) = l.is_entry {
                self.world.put(at + place, &[u8::from(matches!(frame, Made::Entry(..)))]);
            }
            caller = at;
        }
        if let Some((place, _)) = chunk {
            self.world.word(thread + place + 8, top);
        }
        match t.top {
            Top::Thread { frame } => self.world.word(thread + frame, caller),
            Top::CFrame { cframe, frame } => {
                let at = self.world.on_stack(32);
                self.world.word(thread + cframe, at);
                self.world.word(at + frame, caller)
            }
        }
    }
}

/// A position, and its values in builds with and without a GIL.
type Described = (usize, u64, u64);

/// Positions of the offsets in a description and their values, by version (see
/// Include/internal/pycore_debug_offsets.h); values of builds with and without a GIL.
const DESCRIBED: [(u8, &[Described]); 3] = [
    (
        13,
        &[
            (40, 632, 632),
            (56, 7272, 7272),
            (64, 7264, 7264),
            (72, 7344, 7344),
            (88, 7656, 7664),
            (112, 16, 16),
            (120, 7800, 7800),
            (136, 7816, 7824),
            (144, 7808, 7816),
            (168, 8, 8),
            (176, 16, 16),
            (184, 72, 72),
            (192, 152, 152),
            (200, 160, 160),
            (208, 232, 232),
            (224, 88, 88),
            (232, 8, 8),
            (240, 0, 0),
            (248, 56, 56),
            (256, 72, 72),
            (264, 70, 70),
            (272, 208, 224),
            (280, 112, 128),
            (288, 120, 136),
            (296, 128, 144),
            (304, 136, 152),
            (312, 68, 84),
            (344, 200, 216),
            (360, 8, 24),
            (376, 24, 40),
            (520, 16, 32),
            (528, 32, 48),
            (544, 32, 48),
            (552, 16, 32),
            (560, 40, 56),
        ],
    ),
    (
        14,
        &[
            (40, 808, 808),
            (48, 16_000, 16_000),
            (56, 7280, 7280),
            (64, 7272, 7272),
            (72, 7344, 7344),
            (96, 7688, 7712),
            (120, 16, 16),
            (128, 7800, 7800),
            (144, 7816, 7824),
            (152, 7808, 7816),
            (176, 400, 400),
            (192, 8, 8),
            (200, 16, 16),
            (208, 72, 72),
            (216, 152, 152),
            (224, 160, 160),
            (232, 232, 232),
            (248, 88, 88),
            (256, 8, 8),
            (264, 0, 0),
            (272, 56, 56),
            (280, 80, 80),
            (288, 74, 78),
            (296, 64, 64),
            (304, 0, 72),
            (312, 216, 240),
            (320, 112, 128),
            (328, 120, 136),
            (336, 128, 144),
            (344, 136, 152),
            (352, 68, 84),
            (384, 208, 232),
            (392, 0, 224),
            (408, 8, 24),
            (424, 24, 40),
            (504, 24, 40),
            (512, 40, 56),
            (520, 32, 48),
            (600, 16, 32),
            (608, 32, 48),
            (624, 32, 48),
            (632, 16, 32),
            (640, 40, 56),
            (680, 72, 88),
            (688, 67, 83),
        ],
    ),
    (
        15,
        &[
            (40, 936, 936),
            (48, 16_000, 16_000),
            (56, 7272, 7272),
            (64, 7264, 7264),
            (72, 7336, 7336),
            (96, 7592, 7592),
            (120, 16, 16),
            (128, 7800, 7800),
            (144, 7816, 7824),
            (152, 7808, 7816),
            (176, 400, 400),
            (192, 8, 8),
            (200, 16, 16),
            (208, 72, 72),
            (240, 176, 176),
            (248, 184, 184),
            (256, 256, 256),
            (312, 88, 88),
            (320, 8, 8),
            (328, 0, 0),
            (336, 56, 56),
            (344, 80, 80),
            (352, 74, 78),
            (360, 64, 64),
            (368, 0, 72),
            (376, 216, 240),
            (384, 112, 128),
            (392, 120, 136),
            (400, 128, 144),
            (408, 136, 152),
            (416, 68, 84),
            (448, 208, 232),
            (456, 0, 224),
            (472, 8, 24),
            (488, 24, 40),
            (600, 24, 40),
            (608, 40, 56),
            (616, 32, 48),
            (696, 16, 32),
            (704, 32, 48),
            (720, 32, 48),
            (728, 16, 32),
            (736, 40, 56),
            (808, 72, 88),
            (816, 67, 83),
        ],
    ),
];

/// Returns what an interpreter of this version describes itself with.
pub fn description(minor: u8, free_threaded: bool) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let mut word = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    word(0, u64::from_le_bytes(*b"xdebugpy"));
    word(8, u64::from(Version::of_minor(minor).0 | 0xf0));
    word(16, free_threaded.into());
    let (_, values) = DESCRIBED.iter().find(|(of, _)| *of == minor).expect("it has one");
    for (at, with, without) in *values {
        word(*at, if free_threaded { *without } else { *with });
    }
    bytes
}

/// Returns all layouts: 3.8 to 3.15, and those without a GIL.
pub fn layouts() -> Vec<Layout> {
    let known = (8..=12).map(|minor| Layout::known(Version::of_minor(minor)));
    let described = [(13, false), (13, true), (14, false), (14, true), (15, false), (15, true)]
        .map(|(minor, free)| Layout::described(&description(minor, free)).map(|(_, l)| l));
    known.chain(described).map(|layout| layout.expect("a layout")).collect()
}

/// The pthread_t of the first thread; the others are 0x10000 apart.
pub const PTHREAD: u64 = 0x7_0000_0000;

/// Returns these frames as those of one evaluation.
pub fn evaluation(layout: &Layout, frames: &[Made]) -> Vec<Made> {
    let mut frames = frames.to_vec();
    match layout.minor {
        0..=10 => {}
        11 => {
            if let Some(last) = frames.last_mut()
                && let Made::Call(code, offset) = *last
            {
                *last = Made::Entry(code, offset);
            }
        }
        _ => frames.push(Made::Shim),
    }
    frames
}

/// Returns a program with one thread, the thread's state, and the code objects of its frames.
pub fn program(layout: Layout) -> (Program, u64, [u64; 3]) {
    let program = Program::new(layout);
    let interpreter = program.interpreter();
    let thread = program.thread(interpreter, PTHREAD, 71);
    let codes = [
        program.code("/usr/lib/python3.9/site-packages/shop/views.py", "Cart.total", 10),
        program.code("/app/größe.py", "Ω", 20),
        program.code("<frozen importlib._bootstrap>", "run\u{1b}𝔘", 30),
    ];
    program.frames(thread, &chain(&layout, codes));
    (program, thread, codes)
}

/// Returns two evaluations: the inner one of a function, the outer one of a function that is called
/// by a generator.
pub fn chain(layout: &Layout, [inner, generator, outer]: [u64; 3]) -> Vec<Made> {
    let mut all = evaluation(layout, &[Made::Call(inner, 0)]);
    let others = [Made::Call(generator, 6), Made::Generator(generator, 4), Made::Call(outer, -2)];
    all.extend(evaluation(layout, &others));
    // The thread's own frame.
    all.extend((layout.minor >= 15).then_some(Made::Shim));
    all
}
