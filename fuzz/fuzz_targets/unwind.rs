//! Walking a stack: the target chooses its unwind tables, its code, its registers and its stack.
//!
//! Input: flags (1: rbp is known, 2: other registers are known, 4: the image is overwritten from
//! its first byte, else from its unwind tables on), how many words of the stack were copied, words
//! for rip, rsp and rbp, a piece to overwrite the image with, a piece of code, then the stack's
//! words. See [`word`].
#![no_main]

use std::cell::Cell;
use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::frame::{FrameCode, RawFrame};
use sampletop::process::mapped_files::Files;
use sampletop::process::maps::Maps;
use sampletop::process::memory::ReadMemory;
use sampletop::unwinder::framehop::FramehopUnwinder;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};
use sampletop_fuzz::image::{self, CODE, IMAGE, STACK};
use sampletop_fuzz::{ALTERNATE, Input, TABLES, within, word};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let flags = input.u8();
    let copied = usize::from(input.u8());
    let (rip, rsp, rbp) = (word(&mut input), word(&mut input), word(&mut input));
    let mut image = image::elf(&[]);
    let tables = input.piece();
    overwrite(&mut image, if flags & 4 == 0 { TABLES } else { 0 }, tables);
    overwrite(&mut image, (CODE - IMAGE) as usize, input.piece());
    let mut stack = Vec::new();
    while !input.is_empty() {
        stack.extend(word(&mut input).to_le_bytes());
    }
    let words = (stack.len() / 8).max(1);
    let maps = format!(
        "400000-401000 r--p 00000000 08:01 11 /made/up\n401000-411000 r-xp 00001000 08:01 11 /made/up\n\
         {STACK:x}-{:x} rw-p 00000000 00:00 0\n{ALTERNATE:x}-{:x} rw-p 00000000 00:00 0\n",
        STACK + 8 * words as u64,
        ALTERNATE + 8 * words as u64,
    );
    let reads = Rc::new(Cell::new(0));
    let pieces = [(IMAGE, image), (STACK, stack.clone()), (ALTERNATE, stack)];
    let memory = Memory { pieces, reads: reads.clone() };
    let mut bytes = vec![0; 8 * copied];
    let filled = memory.read(rsp, &mut bytes);
    bytes.truncate(filled);
    let registers = Registers {
        rip,
        rsp,
        rbp: (flags & 1 != 0).then_some(rbp),
        general: [rbp; 14],
        general_known: flags & 2 != 0,
    };
    let (files, source) = (Files::default(), Box::new(move || Ok(Maps::parse(maps.as_bytes()))));
    let mut unwinder = FramehopUnwinder::with_maps(memory, files.clone(), 1, source);
    let mut walk = || {
        let mut out = Vec::new();
        reads.set(0);
        let walk = within(250, || {
            unwinder.walk(&registers, StackBytes { base: rsp, bytes: &bytes }, &mut out)
        });
        assert!(reads.get() <= 1 << 18, "{} reads of memory", reads.get());
        check(&files, &out, walk, words);
        (out, walk)
    };
    let cold = walk();
    assert_eq!(walk(), cold, "what is remembered of code changes nothing");
});

fn overwrite(image: &mut [u8], at: usize, bytes: &[u8]) {
    let end = image.len().min(at + bytes.len());
    image[at..end].copy_from_slice(&bytes[..end - at]);
}

fn check(files: &Files, out: &[RawFrame], walk: Walk, words: usize) {
    assert!((1..=1024).contains(&out.len()), "{} frames", out.len());
    let mut interrupted = 0;
    for (depth, frame) in out.iter().enumerate() {
        match frame.decode() {
            FrameCode::Code { file, exact, .. } => {
                assert!(files.get(file).is_some());
                interrupted += usize::from(exact && depth > 0);
            }
            FrameCode::Marker { .. } => {}
            other => panic!("{other:?} in user space"),
        }
    }
    let last = match out[out.len() - 1].decode() {
        FrameCode::Marker { marker, .. } => Some(marker),
        _ => None,
    };
    assert_eq!(last, walk.end);
    // The stack pointer rises with each frame, except at signals.
    assert!(out.len() <= (interrupted + 1) * (words + 3), "{} frames on {words} words", out.len());
}

struct Memory {
    pieces: [(u64, Vec<u8>); 3],
    reads: Rc<Cell<u32>>,
}

impl ReadMemory for Memory {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        for (start, piece) in &self.pieces {
            let offset =
                address.checked_sub(*start).and_then(|offset| usize::try_from(offset).ok());
            if let Some(found) =
                offset.and_then(|offset| piece.get(offset..)).filter(|found| !found.is_empty())
            {
                let n = found.len().min(buf.len());
                buf[..n].copy_from_slice(&found[..n]);
                return n;
            }
        }
        0
    }
}
