//! Reading a made-up program of Go whose memory is garbage, or an attack. Input: which program it
//! is, then steps, each of a byte that chooses its kind:
//!
//! ```text
//! 0 to 4  a word is changed: the page and the place in it; then another page and place, which say
//!         what it is: that address, the word there, the place, a number near the end, 64 bits
//! 5       all goroutines are read, once
//! 6       goroutines that wait are read by a reader that goes on; how many
//! 7       such a reader is made anew
//! 8       it is found out whether it is a program of Go
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::labels;
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::process::memory::ReadMemory;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::go::detection::is_program_of_go;
use sampletop::runtimes::go::goroutines_in;
use sampletop::runtimes::go::labels::RawLabels;
use sampletop::runtimes::go::labels::frames::LabelFrames;
use sampletop::runtimes::go::parked::{Reader, Slot};
use sampletop_fuzz::go_program::{FIRST, maps, program, vector};
use sampletop_fuzz::{Input, assert_clean, within};

fuzz_target!(|data: &[u8]| within(5_000, || observe(Input(data))));

/// Maximum steps that read.
const READINGS: usize = 50;
/// The number of no process: no file of it can be opened.
const NO_PROCESS: u32 = u32::MAX;

fn observe(mut input: Input<'_>) {
    let which = input.u8();
    let first = FIRST[usize::from(which) % FIRST.len()];
    let memory = program(first, which & 0x80 != 0);
    // Those that begin in the runtime are its own.
    let listed = if first.starts_with(b"runtime.") { 0 } else { 5 };
    let (pages, maps, names) = (memory.pages(), maps(), Names::default());
    let mut frames = LabelFrames::new(names.clone());
    let reader = || Reader::find(memory.clone(), &maps, NO_PROCESS, names.clone());
    let mut reading = reader();
    let (mut readings, mut is_changed) = (0, false);
    while !input.is_empty() && readings < READINGS {
        let kind = input.u8() % 9;
        match kind {
            0..=4 => {
                let (at, value) = input.change(kind, &pages, |at| memory.read_u64(at).unwrap_or(0));
                memory.words(at, &[value]);
                is_changed = true;
                continue;
            }
            5 => {
                let found = goroutines_in(memory.clone(), &maps, NO_PROCESS);
                assert!(found.is_some() || is_changed);
                let Some(found) = found else { continue };
                let all = found.list.len() + found.on_threads + found.unreadable;
                assert!(all <= found.found, "{found:?}");
                assert!(is_changed || found.list.len() == listed, "{found:?}");
                for one in &found.list {
                    assert_clean(&one.state, 64);
                    let by = one.created_by.as_ref();
                    for (location, _) in one.frames.iter().chain(by) {
                        assert_clean(&location.function, NAME_CAP);
                        assert_clean(location.file.as_deref().unwrap_or(""), NAME_CAP);
                    }
                    let text = one.labels.as_deref().unwrap_or("[labels (other)]");
                    assert_clean(text, NAME_CAP);
                    assert!(labels::labels(text).len() <= 16);
                }
            }
            6 => {
                let count = usize::from(input.u8());
                let Some(reader) = &mut reading else { continue };
                let batch = reader.next_batch(count);
                assert!(batch.slots.len() <= count.max(1), "{count}");
                for (_, slot) in batch.slots {
                    let Slot::Parked(parked) = slot else { continue };
                    assert!(parked.stack.len() <= 1 << 20);
                    assert_clean(&names.thread(parked.name).expect("one of ours"), NAME_CAP);
                    let frame = frames.frame(&parked.labels);
                    assert_eq!(frame.is_none(), parked.labels == RawLabels::None);
                    if let Some(named) = frame.and_then(|frame| names.named(frame)) {
                        assert_clean(&named.locations[0].function, NAME_CAP);
                    }
                }
            }
            7 => reading = reader(),
            _ => {
                let is_go = is_program_of_go(&memory, &vector());
                assert!(is_go == Some(true) || is_changed);
                is_program_of_go(&memory, input.piece());
            }
        }
        readings += 1;
    }
}
