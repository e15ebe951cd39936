//! Recorded memory of real virtual machines, and the stacks and names in it: tests the readers of
//! JDK 8 to 26 without any JDK.
//!
//! Each `jdk-N.gz` has what was read of a small program's memory (tests/targets/Blocked.java: 27
//! threads that wait, after calls of every kind), each `jdk-N.txt` what that must give: methods,
//! lines and names as jstack said them at the time. To record one again, because something else is
//! read now, or of another version, as root:
//!
//! ```text
//! cargo run --example record_jvm -- HOME-OF-THE-JAVA HOME-OF-A-JDK jdk-N [OPTION...]
//! ```
//!
//! The second home is where a javac and a jstack are that know Java 8; options go to the Java that
//! is recorded. The example runs by chroot, too, where tests/jdks puts JDKs, if /dev, /proc and
//! this folder are there.
//!
//! Each `waits-N.gz` has what was read of another program (tests/targets/Blockers.java: threads
//! that wait for locks) in one way of locking, each `waits-N.txt` what its threads wait for, judged
//! by `jstack -l`. All are recorded again, with the JDKs of tests/jdks, by
//! `SAMPLETOP_RECORD=1 cargo test --test java_blockers record`.

mod blockers;
mod changed;
mod changed_waits;
mod recording;
mod waits;

use std::collections::BTreeSet;

use sampletop::model::vocabulary::frame::Ns;
use sampletop::process::memory::ReadMemory;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm::Jvm;
use sampletop::unwinder::{Generated, Leave};

use recording::{Frame, PIECE, Pieces, Point, RECORDINGS, Recording, Segment};

fn attach<M: ReadMemory + Send>(memory: M, image: u64, names: &Names) -> Jvm<M> {
    Jvm::attach(memory, image, names.clone()).unwrap_or_else(|missing| panic!("{missing:?}"))
}

/// Walks a segment. Returns its frames in the notation of the expected text, and where they ended;
/// no place, if the walk ended before that.
fn walk(
    jvm: &mut dyn Generated,
    memory: &impl ReadMemory,
    names: &Names,
    segment: &Segment,
) -> (Vec<Frame>, Option<Point>) {
    jvm.begin(Ns::MAX, true);
    let (mut at, mut out) = (Some(segment.enter), Vec::new());
    while let Some(Point { pc, .. }) = at.filter(|at| jvm.covers(at.pc.wrapping_sub(1))) {
        at = match jvm.leave(
            at.unwrap_or_default().place(),
            &mut |at| memory.read_u64(at),
            &mut out,
        ) {
            Leave::To { pc, sp, rbp } => Some(Point { pc, sp, rbp }),
            Leave::End(_) | Leave::AsCode { .. } | Leave::Unknown => None,
        };
        assert!(out.len() < 1024, "{pc:x}");
    }
    let named = out.iter().map(|frame| names.named(*frame).expect("a name"));
    (
        named
            .flat_map(|named| named.locations.iter().rev().map(Frame::of).collect::<Vec<_>>())
            .collect(),
        at,
    )
}

#[test]
fn stacks_are_what_jstack_said() {
    let mut tiers = BTreeSet::new();
    for recording in &RECORDINGS {
        let Recording { version, pieces: memory, expected } = Recording::load(recording);
        let names = Names::default();
        let mut jvm = attach(memory.clone(), expected.image, &names);
        // Data cached in the first pass changes nothing in the second.
        for round in 0..2 {
            for thread in &expected.threads {
                for segment in &thread.segments {
                    let (frames, left) = walk(&mut jvm, &memory, &names, segment);
                    let what = format!("JDK {version}, round {round}, {}", thread.name);
                    assert_eq!(
                        (frames, left),
                        (segment.frames.clone(), Some(segment.leave)),
                        "{what}"
                    );
                }
            }
        }
        let frames = expected
            .threads
            .iter()
            .flat_map(|thread| &thread.segments)
            .flat_map(|segment| &segment.frames);
        let met: BTreeSet<&str> = frames.map(|frame| &frame.tier[..]).collect();
        // `-`: stubs.
        assert!(
            met.is_superset(&BTreeSet::from(["-", "inlined", "interpreted", "native"])),
            "JDK {version}: {met:?}"
        );
        assert_eq!(expected.threads.len(), 27, "JDK {version}");
        tiers.extend(met.into_iter().map(str::to_owned));
    }
    assert!(tiers.contains("c1") && tiers.contains("c2"), "{tiers:?}");
}

#[test]
fn names_are_what_jstack_said() {
    for recording in &RECORDINGS {
        let Recording { version, pieces: memory, expected } = Recording::load(recording);
        let names = Names::default();
        let mut jvm = attach(memory, expected.image, &names);
        let found = Generated::thread_names(&mut jvm, None);
        for thread in &expected.threads {
            let name = found
                .iter()
                .find(|(id, _)| *id == thread.id)
                .and_then(|(_, name)| names.thread(*name));
            assert_eq!(name.as_deref(), Some(&thread.name[..]), "JDK {version}");
        }
        assert!(
            found.iter().any(|(_, name)| names.thread(*name).as_deref() == Some("main")),
            "JDK {version}"
        );
    }
}

/// Memory with a hole.
#[derive(Clone)]
struct Without(Pieces, u64);

impl ReadMemory for Without {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let length = match self.1.checked_sub(address) {
            Some(before) => buf.len().min(before as usize),
            None if address - self.1 < PIECE => 0,
            None => buf.len(),
        };
        self.0.read(address, &mut buf[..length])
    }
}

/// What cannot be read is missing from the result, and nothing wrong replaces it.
#[test]
fn a_hole_in_memory_makes_no_other_frames() {
    /// Of some thousand pieces every 29th is tried.
    const STEP: usize = 29;
    let mut changed = 0;
    for recording in &RECORDINGS {
        let Recording { version, pieces: memory, expected } = Recording::load(recording);
        for hole in memory.0.keys().step_by(STEP) {
            let names = Names::default();
            let memory = Without(memory.clone(), *hole);
            let Ok(mut jvm) = Jvm::attach(memory.clone(), expected.image, names.clone()) else {
                changed += 1;
                continue;
            };
            for thread in &expected.threads {
                for segment in &thread.segments {
                    let (found, _) = walk(&mut jvm, &memory, &names, segment);
                    let mut rest = segment.frames.iter();
                    for frame in found.iter().filter(|frame| frame.tier != "-") {
                        assert!(
                            rest.any(|expected| expected.method == frame.method
                                && fits(&frame.place, &expected.place)),
                            "JDK {version}, {}, a hole at {hole:x}: {frame:?}",
                            thread.name
                        );
                    }
                    changed += u32::from(found.len() != segment.frames.len());
                }
            }
            for (id, name) in Generated::thread_names(&mut jvm, None) {
                if let Some(thread) = expected.threads.iter().find(|thread| thread.id == id) {
                    assert_eq!(
                        names.thread(name).as_deref(),
                        Some(&thread.name[..]),
                        "JDK {version}, {hole:x}"
                    );
                }
            }
        }
    }
    assert!(changed > 100, "{changed}: holes must have been where it matters");
}

/// Returns whether it is the same place, or a part of it.
fn fits(found: &str, expected: &str) -> bool {
    found == expected || found == "Unknown Source" || expected.split(':').next() == Some(found)
}

/// Pseudorandom numbers, the same in every run (splitmix64).
struct Numbers(u64);

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(number ^ number >> 31)
    }
}

/// fuzz/fuzz_targets/jvm.rs and jvm_waits.rs search further for new inputs.
#[test]
fn changed_memory_is_read_with_an_end() {
    let all: Vec<Recording> = RECORDINGS.iter().map(Recording::load).collect();
    let waits: Vec<waits::Recorded> = waits::WAITS.iter().map(waits::Recorded::load).collect();
    let rounds = std::env::var("SAMPLETOP_TEST_ROUNDS")
        .map_or(400, |rounds| rounds.parse().expect("a number"));
    let first =
        std::env::var("SAMPLETOP_TEST_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + rounds {
        let mut numbers = Numbers(seed);
        let length = numbers.next().unwrap_or(0) % 600;
        let bytes: Vec<u8> = numbers.map(|number| number as u8).take(length as usize).collect();
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            changed::observe(&all, &bytes);
            changed_waits::observe(&waits, &bytes);
        }));
        assert!(
            looked.is_ok(),
            "SAMPLETOP_TEST_SEED={seed} SAMPLETOP_TEST_ROUNDS=1 shows it again"
        );
    }
}
