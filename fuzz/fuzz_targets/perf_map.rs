//! The perf map of a process, which grows, shrinks and changes while it is read, and code that is
//! looked up in it. Input: steps, each of a byte that chooses its kind and its arguments (pieces
//! have a 16-bit length before them):
//!
//! ```text
//! 0  a piece that is appended         3  ms that go by, 16 bits
//! 1  a length that is left, 16 bits   4  a piece: /proc/PID/maps
//! 2  where a piece is written over    5  a pc of 16 bits; 6: of 64
//! ```
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::process::maps::Maps;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::perf_map::PerfMap;
use sampletop::unwinder::{Generated, Leave, Place};
use sampletop_fuzz::{Input, assert_clean, within};

fuzz_target!(|data: &[u8]| within(2_000, || observe(Input(data))));

fn observe(mut input: Input<'_>) {
    let file = File::from(memfd_create("perf.map", MemfdFlags::CLOEXEC).expect("a file"));
    let names = Names::default();
    let mut map = PerfMap::new(file.try_clone().expect("a descriptor"), names.clone());
    let (mut now, mut pcs) = (Instant::now(), vec![0, u64::MAX]);
    while !input.is_empty() {
        match input.u8() % 7 {
            0 => {
                let length = file.metadata().expect("a file").len();
                file.write_all_at(input.piece(), length).expect("written");
            }
            1 => file.set_len(input.u16().into()).expect("shortened"),
            2 => {
                let at = input.u16();
                file.write_all_at(input.piece(), at.into()).expect("written");
            }
            3 => now += Duration::from_millis(input.u16().into()),
            4 => map.mapped(&Maps::parse(input.piece())),
            5 => pcs.push(input.u16().into()),
            _ => pcs.push(input.u64()),
        }
        map.begin_at(now);
        // Earlier results must be as sound as new ones.
        for pc in pcs.iter().rev().take(8) {
            check(&mut map, &names, *pc);
        }
    }
}

fn check(map: &mut PerfMap, names: &Names, pc: u64) {
    if !map.covers(pc) {
        return;
    }
    let mut out = Vec::new();
    let place = Place { pc, exact: true, sp: 0, rbp: None, general: None };
    match map.leave(place, &mut |_| None, &mut out) {
        Leave::AsCode { start, .. } => {
            assert!(start <= pc, "{pc:x} is not in what begins at {start:x}")
        }
        // Its line no longer exists.
        Leave::Unknown => return assert!(out.is_empty()),
        other => panic!("{other:?} of code that is only named"),
    }
    let [frame] = out[..] else { panic!("{out:?}") };
    let named = names.named(frame).expect("a name");
    let [location] = &named.locations[..] else { panic!("{named:?}") };
    assert!(!location.function.is_empty());
    for text in [&*location.function, &*location.module, location.file.as_deref().unwrap_or("")] {
        assert_clean(text, NAME_CAP);
    }
}
