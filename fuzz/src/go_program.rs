//! A made-up program of Go: an image with its table of functions, and goroutines on the heap.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use sampletop::process::maps::Maps;
use sampletop::process::memory::ReadMemory;

use crate::pclntab::named;

const PAGE: u64 = 4096;
/// Its file: headers, code, the table of functions, data, and variables without a first value.
const IMAGE: u64 = 0x40_0000;
const CODE: u64 = 0x40_1000;
const TABLE: u64 = 0x40_2000;
const DATA: u64 = 0x40_3000;
const VARIABLES: u64 = 0x40_4000;
const MAPS: &str = "\
00400000-00401000 r--p 00000000 08:01 5 /bin/shop
00401000-00402000 r-xp 00001000 08:01 5 /bin/shop
00402000-00403000 r--p 00002000 08:01 5 /bin/shop
00403000-00404000 rw-p 00003000 08:01 5 /bin/shop
00404000-0040a000 rw-p 00000000 00:00 0
c000000000-c000010000 rw-p 00000000 00:00 0
";
/// The list of goroutines, and the table of semaphores.
const LIST: u64 = VARIABLES;
const SEMAPHORES: u64 = VARIABLES + 0x100;
/// On the heap: the pointers of the list, nodes of semaphores, labels, goroutines, stacks.
const POINTERS: u64 = 0xc0_0000_0000;
const NODES: u64 = POINTERS + 0x1000;
const LABELS: u64 = POINTERS + 0x2000;
const GOROUTINES: u64 = POINTERS + 0x3000;
const STACKS: u64 = POINTERS + 0x8000;

/// What the program's first function is.
pub const FIRST: [&[u8]; 4] = [
    b"main.work",
    b"runtime.semacquire1",
    b"runtime.goroutineheader",
    b"runtime/pprof.runtime_setProfLabel",
];

/// Its memory, by page. Clones are the same memory.
#[derive(Clone, Default)]
pub struct Memory(Rc<RefCell<BTreeMap<u64, Vec<u8>>>>);

impl Memory {
    fn put(&self, at: u64, bytes: &[u8]) {
        let mut pages = self.0.borrow_mut();
        for (at, byte) in (at..).zip(bytes) {
            let page = pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[(at % PAGE) as usize] = *byte;
        }
    }

    pub fn words(&self, at: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(at, &bytes);
    }

    /// Returns the addresses of its pages.
    pub fn pages(&self) -> Vec<u64> {
        self.0.borrow().keys().map(|page| page * PAGE).collect()
    }
}

impl ReadMemory for Memory {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let pages = self.0.borrow();
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let Some(page) = pages.get(&(at / PAGE)) else { break };
            let rest = &page[(at % PAGE) as usize..];
            let count = rest.len().min(buf.len() - done);
            buf[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
        done
    }
}

pub fn maps() -> Maps {
    Maps::parse(MAPS.as_bytes())
}

/// Returns the auxiliary vector of such a process.
pub fn vector() -> Vec<u8> {
    [3, IMAGE + 64, 0, 0].map(u64::to_le_bytes).concat()
}

/// Returns a program whose first function is one of [`FIRST`]; `late`: the fields of a goroutine
/// lie as in Go 1.23.
pub fn program(first: &'static [u8], late: bool) -> Memory {
    let memory = Memory::default();
    memory.put(IMAGE, &headers());
    let table = named(1, CODE, [first, b"runtime.allgadd", b"runtime.goexit"]);
    let names = u64::from_le_bytes(table[32..40].try_into().expect("8 bytes"));
    memory.put(TABLE, &table);
    memory.words(CODE, &[0; 12]);
    memory.put(DATA, b"\xff Go buildinf:\x08\x02");
    memory.words(DATA + 0x400, &[TABLE, TABLE + names]);
    memory.words(DATA + 0x400 + 8 * 22, &[CODE, CODE + 0x60]);
    // A distance of 32 bits behind the first byte of each function.
    let refer = |from: u64, to: u64| memory.put(from + 1, &((to - from - 5) as u32).to_le_bytes());
    refer(CODE + 0x40, LIST);
    match first {
        b"runtime/pprof.runtime_setProfLabel" => {
            // mov [r14+400], rax
            memory.put(CODE, &[0x49, 0x89, 0x86, 0x90, 1, 0, 0]);
        }
        b"runtime.semacquire1" => refer(CODE, SEMAPHORES),
        _ => refer(CODE, SEMAPHORES + 8),
    }
    memory.words(LIST, &[POINTERS, 8, 8]);
    memory.words(SEMAPHORES, &[0; 251 * 8]);
    // What goroutines may wait for: texts.
    for (nth, text) in (0u64..).zip(["", "GC assist marking", "IO wait", "sync.Mutex.Lock"]) {
        memory.put(NODES + 0x800 + 64 * nth, text.as_bytes());
        if first == b"runtime.goroutineheader" {
            let words = [NODES + 0x800 + 64 * nth, text.len() as u64];
            memory.words(SEMAPHORES + 8 + 16 * nth, &words);
        }
    }
    let number_at = if late { 160 } else { 152 };
    for (nth, (number, status)) in (0u64..).zip([
        (1u64, 4u64),
        (7, 2),
        (0, 6),
        (9, 0x1001),
        (10, 4),
        (11, 8),
        (12, 4),
        (13, 9),
    ]) {
        let (at, stack) = (GOROUTINES + 0x200 * nth, STACKS + 0x400 * nth);
        memory.words(POINTERS + 8 * nth, &[at]);
        memory.words(at, &[0; 64]);
        memory.words(at, &[stack, stack + 0x40]);
        memory.words(at + 56, &[stack, CODE + 0x10]);
        memory.words(at + number_at - 8, &[status, number]);
        memory.words(at + number_at + 16, &[1_000, 3]);
        memory.words(at + number_at + 200, &[CODE + 0x12, 0, CODE]);
        memory.words(at + 400, &[LABELS]);
        memory.words(stack, &[0, 0, 0, CODE + 0x10, 0, 0, 0, CODE + 0x51]);
    }
    // Two goroutines wait for a semaphore, a third one for another in the same tree.
    let semaphore = POINTERS + 0x4004;
    for (nth, goroutine, address) in
        [(0, 0, semaphore), (1, 4, semaphore), (2, 6, semaphore + 2008)]
    {
        let node = NODES + 0x80 * nth;
        memory.words(node, &[GOROUTINES + 0x200 * goroutine, node + 0x80, node + 0x80, address]);
        memory.words(node + 56, &[0, node + 0x80]);
    }
    memory.words(SEMAPHORES + 64 * ((semaphore >> 3) % 251) + 8, &[NODES]);
    // Labels, as a map with one entry.
    memory.words(LABELS, &[LABELS + 8, 1, 0, LABELS + 0x40, 0]);
    memory.words(LABELS + 0x40, &[7, LABELS + 0x200, 6]);
    memory.words(LABELS + 0x40 + 136, &[LABELS + 0x208, 1]);
    memory.put(LABELS + 0x200, b"tenant\x00\x007");
    memory
}

/// Returns the headers of the file, and a note of Go's linker.
fn headers() -> Vec<u8> {
    const NOTE_AT: usize = 0x200;
    let mut file = vec![0; PAGE as usize];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 62, 0, 1]);
    put(32, &64u64.to_le_bytes());
    put(54, &[56, 0, 5, 0]);
    for (nth, (kind, flags, offset, size)) in [
        (1u32, 4u32, 0u64, PAGE),
        (1, 5, 0x1000, PAGE),
        (1, 4, 0x2000, PAGE),
        (1, 6, 0x3000, PAGE),
        (4, 4, NOTE_AT as u64, 24),
    ]
    .into_iter()
    .enumerate()
    {
        let at = 64 + 56 * nth;
        put(at, &kind.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (place, value) in
            [(8, offset), (16, IMAGE + offset), (24, IMAGE + offset), (32, size), (40, size)]
        {
            put(at + place, &value.to_le_bytes());
        }
    }
    put(NOTE_AT, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
    file
}
