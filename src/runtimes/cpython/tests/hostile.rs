//! Memory of arbitrary contents: reading ends, within limits.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::model::vocabulary::text::NAME_CAP;
use crate::process::memory::ReadMemory;

/// Maximum reads of one call: 20,000 frames, and 1,000 code objects, of 9 reads each.
const READS_MAX: u32 = 400_000;

/// Memory in which every word is computed from its address: all of it is readable, none consistent.
struct Nonsense {
    seed: u64,
    reads: Cell<u32>,
}

impl ReadMemory for &Nonsense {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() < READS_MAX, "it goes on and on");
        for (at, bytes) in (address / 8..).zip(buf.chunks_mut(8)) {
            let word = (at ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let word = match word % 4 {
                0 => word % 256,
                1 | 2 => 0x10_0000 + word % 0x1000 * 8,
                _ => word,
            };
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        buf.len()
    }
}

fn sound(names: &Names, found: Option<Evaluations>) {
    let Some(Evaluations { frames, ends, .. }) = found else { return };
    assert!(frames.len() <= 70_000);
    assert!(ends.is_sorted() && ends.last().is_none_or(|last| *last <= frames.len()));
    for named in frames.iter().filter_map(|frame| names.named(*frame)) {
        for text in [&named.locations[0].function, &named.locations[0].module] {
            assert!(text.len() <= NAME_CAP && !text.chars().any(char::is_control));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_is_read_with_an_end(seed in any::<u64>(), version in 0usize..11) {
        let memory = Nonsense { seed, reads: Cell::new(0) };
        let names = Names::default();
        let layout = layouts()[version];
        let mut python =
            Cpython::new(&memory, layout, 0x10_0000, names.clone());
        let _ = python.check(|_| true);
        for nth in 0..3 {
            memory.reads.set(0);
            sound(&names, python.blocked(StackOwner { tid: 0x10_0000 + 8 * nth, fs_base: None, ..StackOwner::default() }));
            memory.reads.set(0);
            sound(&names, python.blocked(StackOwner { tid: 0, fs_base: Some(0x10_0000 + 8 * u64::from(nth)), ..StackOwner::default() }));
        }
        let frame = InterpreterFrame { code: 0x10_0000 + seed % 4096 * 8, position: seed, ..Default::default() };
        memory.reads.set(0);
        sound(&names, Some(python.taken(&Taken { frames: vec![frame; 30], gap: Some(3), ..Taken::default() })));
        memory.reads.set(0);
        thread_names_of(&mut python);
    }

    /// Words of a real one are changed, before or after it was read once.
    #[test]
    fn a_changed_program_is_read_with_an_end(
        version in 0usize..11, first in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u64..512, any::<prop::sample::Index>(), 0u64..512, 0u8..4), 1..30),
    ) {
        let layout = layouts()[version];
        let (program, ..) = program(layout);
        let mut python = reader(&program);
        if first {
            let _ = python.check(|_| true);
            read(&mut python, 0);
        }
        let pages = program.world.pages();
        for (page, word, other, at, kind) in changes {
            let to = other.get(&pages) + 8 * at;
            let value = match kind {
                0 => to,
                1 => program.world.get(to),
                2 => at,
                _ => u64::MAX - at,
            };
            program.world.word(page.get(&pages) + 8 * word, value);
        }
        for nth in 0..2 {
            python.begin(Ns::MAX, false);
            let found = python.interpreted(owner(nth), None);
            sound(&python.names, found);
            thread_names_of(&mut python);
            let _ = python.check(|_| true);
        }
        prop_assert!(program.world.reads() < READS_MAX);
    }
}

fn thread_names_of<M: ReadMemory>(python: &mut Cpython<M>) {
    let Cpython { memory, layout, threads, names, .. } = python;
    python.thread_names.read(memory, layout, threads, names, None, None);
}
