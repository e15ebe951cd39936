//! A simulated process: one ELF image with chosen unwind tables, a stack, and mappings that name
//! them.

use std::sync::{Arc, Mutex};

use crate::process::memory::ReadMemory;

/// Address of the image.
pub const IMAGE: u64 = 0x40_0000;
/// Start of its code, and bytes per function.
pub const CODE: u64 = IMAGE + 0x1000;
pub const FUNCTION: u64 = 0x100;
/// The stack's mapping, and the stack pointer of the tests.
pub const STACK: u64 = 0x7f00_0000_0000;
pub const STACK_END: u64 = STACK + 0x1_0000;
pub const SP: u64 = STACK + 0x8000;

/// Mappings of the above.
pub const MAPS: &str = "\
400000-401000 r--p 00000000 08:01 11 /made/up\n\
401000-411000 r-xp 00001000 08:01 11 /made/up\n\
7f0000000000-7f0000010000 rw-p 00000000 00:00 0\n";

/// Address and bytes.
type Pieces = Vec<(u64, Vec<u8>)>;

/// Memory in pieces; shared, so that a test can change it.
#[derive(Clone, Default)]
pub struct Fake {
    pieces: Arc<Mutex<Pieces>>,
}

impl Fake {
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let mut pieces = self.pieces.lock().unwrap();
        for (start, piece) in pieces.iter_mut() {
            if let Some(offset) = at.checked_sub(*start).map(|o| o as usize)
                && let Some(room) = piece.get_mut(offset..offset + bytes.len())
            {
                room.copy_from_slice(bytes);
                return;
            }
        }
        pieces.push((at, bytes.to_vec()));
    }

    pub fn put_words(&self, at: u64, words: &[u64]) {
        self.put(at, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>());
    }
}

impl ReadMemory for Fake {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let pieces = self.pieces.lock().unwrap();
        for (start, piece) in pieces.iter() {
            if let Some(found) =
                address.checked_sub(*start).and_then(|o| piece.get(usize::try_from(o).ok()?..))
                && !found.is_empty()
            {
                let n = found.len().min(buf.len());
                buf[..n].copy_from_slice(&found[..n]);
                return n;
            }
        }
        0
    }
}

/// One constructed function: the start of its code, relative to [`CODE`] in units of [`FUNCTION`],
/// and its unwind program (after the CIE's: CFA = rsp + 8, return address at CFA - 8).
pub struct Function {
    pub number: u64,
    pub program: Vec<u8>,
}

pub fn at(number: u64) -> u64 {
    CODE + number * FUNCTION
}

/// Returns a return address in function `number`: behind a direct call of function `callee`, which
/// is written to `fake`.
pub fn call(fake: &Fake, number: u64, callee: u64) -> u64 {
    let after = at(number) + 0x80;
    let mut code = vec![0xe8];
    code.extend_from_slice(&(at(callee).wrapping_sub(after) as u32).to_le_bytes());
    fake.put(after - 5, &code);
    after
}

// DWARF call frame instructions.
/// CFA = rsp + `offset`.
pub fn sp_plus(offset: u8) -> Vec<u8> {
    vec![0x0c, 7, offset]
}
/// CFA = rbp + 16, rbp saved at CFA - 16.
pub fn frame_pointer() -> Vec<u8> {
    vec![0x0c, 6, 16, 0x80 | 6, 2]
}
/// The return address is undefined.
pub fn root() -> Vec<u8> {
    vec![0x07, 16]
}
/// CFA by this expression.
pub fn expression(operations: &[u8]) -> Vec<u8> {
    let mut program = vec![0x0f, operations.len() as u8];
    program.extend_from_slice(operations);
    program
}

/// Returns the bytes of an ELF image with these functions, 0x11000 long.
pub fn elf(functions: &[Function]) -> Vec<u8> {
    const HDR: usize = 0x200;
    const EH_FRAME: usize = 0x400;
    let mut image = vec![0; 0x1_1000];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    // ELF header: 64-bit, little-endian, x86-64, entry at function 0, three program headers.
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &62u16.to_le_bytes());
    put(24, &(at(0) - IMAGE).to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &3u16.to_le_bytes());
    let segments: [(u32, u32, u64, u64); 3] =
        [(1, 4, 0, 0x1000), (1, 5, 0x1000, 0x1_0000), (0x6474_e550, 4, HDR as u64, 0x200)];
    for (i, (kind, flags, offset, size)) in segments.into_iter().enumerate() {
        let header = 64 + 56 * i;
        put(header, &kind.to_le_bytes());
        put(header + 4, &flags.to_le_bytes());
        for (j, value) in [offset, offset, offset, size, size, 0x1000].into_iter().enumerate() {
            put(header + 8 + 8 * j, &value.to_le_bytes());
        }
    }
    // .eh_frame: one CIE (zR, absolute addresses of 8 bytes relative to their place), one FDE per
    // function.
    let mut eh_frame = Vec::new();
    let mut entry = |id: u32, body: &[u8]| {
        let start = eh_frame.len();
        let padded = (4 + body.len()).next_multiple_of(8) + 4;
        eh_frame.extend_from_slice(&(padded as u32).to_le_bytes());
        let pointer = if id == 0 { 0 } else { start as u32 + 4 };
        eh_frame.extend_from_slice(&pointer.to_le_bytes());
        eh_frame.extend_from_slice(body);
        eh_frame.resize(start + 4 + padded, 0);
        start
    };
    // Version 1, "zR", code 1, data -8, return address 16, augmentation 1 byte: pcrel sdata8; CFA =
    // rsp + 8; RA -8.
    entry(0, &[1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1c, 0x0c, 7, 8, 0x80 | 16, 1]);
    let mut table = Vec::new();
    for function in functions {
        let place = 0x1000 + function.number * FUNCTION;
        let mut body = vec![0; 8];
        body.extend_from_slice(&FUNCTION.to_le_bytes());
        body.push(0);
        body.extend_from_slice(&function.program);
        let start = entry(1, &body);
        table.push((place, EH_FRAME + start));
    }
    for (place, start) in &table {
        let field = start - EH_FRAME + 8;
        let relative = (*place as i64) - (EH_FRAME + field) as i64;
        eh_frame[field..field + 8].copy_from_slice(&relative.to_le_bytes());
    }
    put(EH_FRAME, &eh_frame);
    // .eh_frame_hdr: pointer pcrel sdata4, count udata4, table datarel sdata4.
    put(HDR, &[1, 0x1b, 0x03, 0x3b]);
    put(HDR + 4, &((EH_FRAME - HDR - 4) as u32).to_le_bytes());
    put(HDR + 8, &(table.len() as u32).to_le_bytes());
    for (i, (place, start)) in table.iter().enumerate() {
        put(HDR + 12 + 8 * i, &((*place as i64 - HDR as i64) as i32).to_le_bytes());
        put(HDR + 16 + 8 * i, &((*start as i64 - HDR as i64) as i32).to_le_bytes());
    }
    image
}
