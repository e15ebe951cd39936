use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use crate::model::facts::tables::Location;
use crate::pclntab::tests::made_up::named;
use program::tests::made_up;

/// Words in memory; what was not written is not there.
#[derive(Clone, Default)]
pub struct Words {
    pub words: BTreeMap<u64, u64>,
    /// A word that differs from the nth read of it on.
    changes: Option<(u64, u32)>,
    read: Cell<u32>,
}

impl Words {
    pub fn put(&mut self, at: u64, words: &[u64]) {
        for (number, word) in (0..).zip(words) {
            self.words.insert(at + 8 * number, *word);
        }
    }
}

impl ReadMemory for Words {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let mut last = None;
        for (number, byte) in buf.iter_mut().enumerate() {
            let Some(at) = address.checked_add(number as u64) else { return number };
            let known = last.filter(|(known, _)| *known == at & !7);
            let found = || Some((at & !7, *self.words.get(&(at & !7))?));
            last = known.or_else(found);
            let Some((_, mut word)) = last else { return number };
            if let Some((changing, from)) = self.changes
                && changing == at
            {
                self.read.set(self.read.get() + 1);
                if self.read.get() > from {
                    word ^= u64::from(self.read.get());
                }
            }
            *byte = word.to_le_bytes()[(at & 7) as usize];
        }
        buf.len()
    }
}

/// Functions: `main.work` from 0x1000 on, that which extends the list from 0x1040, `goexit` from
/// 0x1050.
pub const FUNCTIONS: [&[u8]; 3] = [b"main.work", b"runtime.allgadd", b"runtime.goexit"];
pub const LIST: u64 = 0x9000;
const POINTERS: u64 = 0x20000;
const STACK: u64 = 0x40000;

/// Where the goroutine `nth` is, of those that are put into memory.
fn place(nth: u64) -> u64 {
    0x30000 + 0x200 * nth
}

/// Puts a goroutine into memory. Its stack: `main.work` calls itself and waits, 0x18 bytes each.
fn goroutine(memory: &mut Words, number_at: u64, nth: u64, number: u64, status: u64, reason: u64) {
    let (at, stack) = (place(nth), STACK + 0x1000 * nth);
    memory.put(at, &[0; GOROUTINE / 8]);
    memory.put(at, &[stack, stack + 0x40]);
    memory.put(at + 56, &[stack, 0x1010]);
    memory.put(at + number_at - 8, &[status, number]);
    memory.put(at + number_at + 16, &[1_000, reason]);
    // It was created by `main.work`; its function begins there, too.
    memory.put(at + number_at + 200, &[0x1012, 0, 0x1000]);
    memory.put(stack, &[0, 0, 0, 0x1010, 0, 0, 0, 0x1051]);
}

pub fn world(number_at: u64) -> Words {
    let mut memory = Words::default();
    // The code of the function that extends the list: a distance at 0x1041.
    let distance = (LIST - 0x1045) as u32;
    memory.put(0x1040, &[u64::from(distance) << 8, 0]);
    memory.put(LIST, &[POINTERS, 6, 8]);
    memory.put(POINTERS, &[0, 1, 2, 3, 4, 5].map(place));
    // Waiting, on a thread, ended, runnable and seen by the collector, waiting, moved about.
    goroutine(&mut memory, number_at, 0, 1, 4, 1);
    goroutine(&mut memory, number_at, 1, 7, 2, 0);
    goroutine(&mut memory, number_at, 2, 0, 11, 0);
    goroutine(&mut memory, number_at, 3, 9, 0x1001, 0);
    goroutine(&mut memory, number_at, 4, 10, 4, 99);
    goroutine(&mut memory, number_at, 5, 11, 8, 0);
    memory
}

fn read_all(memory: &Words) -> Option<Goroutines> {
    goroutines(&made_up(memory.clone(), named(1, 0x1000, FUNCTIONS), LIST))
}

fn names(one: &Goroutine) -> Vec<&str> {
    one.frames.iter().map(|(location, _): &(Location, _)| &*location.function).collect()
}

#[test]
fn goroutines_that_no_thread_executes_are_read() {
    for number_at in [152, 160] {
        let found = read_all(&world(number_at)).expect("goroutines");
        let ids: Vec<(u64, &str)> = found.list.iter().map(|one| (one.id, &*one.state)).collect();
        assert_eq!(ids, [(1, "waiting"), (9, "runnable"), (10, "waiting")]);
        assert_eq!((found.found, found.on_threads, found.unreadable), (5, 1, 1));
        for one in &found.list {
            assert_eq!(names(one), ["main.work", "main.work", "runtime.goexit"]);
            assert_eq!(one.waited.is_some(), &*one.state == "waiting");
            let by = one.created_by.as_ref().expect("it was created");
            assert_eq!((&*by.0.function, by.0.line), ("main.work", Some(11)));
        }
    }
}

#[test]
fn what_it_waits_for_is_named_in_the_runtimes_words() {
    let functions = [&b"main.work"[..], b"runtime.goroutineheader", b"runtime.goexit"];
    let mut memory = world(152);
    let texts = ["", "GC assist marking", "IO wait", "sync.Mutex.Lock"];
    for (nth, text) in (0u64..).zip(texts) {
        let at = 0x50000 + 64 * nth;
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(64, 0);
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8"))).collect();
        memory.put(at, &words);
        memory.put(LIST + 16 * nth, &[at, text.len() as u64]);
    }
    let read = |memory: &Words| {
        let program = made_up(memory.clone(), named(1, 0x1000, functions), LIST);
        read_reasons(&program).iter().map(|text| text.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(read(&memory), texts);
    memory.put(0x50000 + 64 * 3, &[0x0a]);
    assert_eq!(read(&memory), texts[..3], "that is no text");
    memory.put(LIST + 32, &[0x50000]);
    assert!(read(&memory).is_empty(), "the second one is known");
}

/// The table of semaphores, and its nodes.
const TABLE: u64 = 0x60000;
fn node(nth: u64) -> u64 {
    0x70000 + 0x80 * nth
}

/// Puts a node for a goroutine that waits for an address; `address_at`: by version.
fn put_node(memory: &mut Words, address_at: u64, nth: u64, goroutine: u64, address: u64) {
    memory.put(node(nth), &[0; 12]);
    memory.put(node(nth), &[place(goroutine)]);
    memory.put(node(nth) + address_at, &[address]);
}

/// Goroutines 0 and 4 wait for the address 0x8004, 3 for one in the same tree, and 5 for another.
fn with_semaphores(address_at: u64) -> Words {
    let mut memory = world(152);
    let distance = (TABLE - 0x1045) as u32;
    memory.put(0x1040, &[u64::from(distance) << 8, 0]);
    memory.put(TABLE, &[0; 251 * 8]);
    let tree = |address: u64| TABLE + 64 * ((address >> 3) % 251) + 8;
    let [one, same, other] = [0x8004, 0x8004 + 8 * 251, 0x8010];
    for (nth, goroutine, address) in [(0, 0, one), (1, 4, one), (2, 3, same), (3, 5, other)] {
        put_node(&mut memory, address_at, nth, goroutine, address);
    }
    memory.put(tree(one), &[node(0)]);
    memory.put(tree(other), &[node(3)]);
    // The list of the address, and the tree.
    let list = if address_at == 24 { 64 } else { 72 };
    memory.put(node(0) + list, &[node(1)]);
    memory.put(node(0) + 16, &[node(2)]);
    memory.put(node(2) + list - 8, &[node(0)]);
    memory
}

fn semaphores(memory: &Words) -> Vec<Option<u64>> {
    let functions = [&b"main.work"[..], b"runtime.semacquire1", b"runtime.goexit"];
    let program = made_up(memory.clone(), named(1, 0x1000, functions), TABLE);
    let mut found = Semaphores::find(&program, &[0, 1, 2, 3, 4, 5].map(place));
    found.update(&program.memory);
    (0..6).map(|nth| found.address(memory, place(nth))).collect()
}

#[test]
fn goroutines_wait_for_the_semaphores_of_their_nodes() {
    let same = Some(0x8004 + 8 * 251);
    let expected = [Some(0x8004), None, None, same, Some(0x8004), Some(0x8010)];
    for address_at in [24, 32] {
        let memory = with_semaphores(address_at);
        assert_eq!(semaphores(&memory), expected, "{address_at}");
        // A node of another goroutine, or in a wrong tree, proves nothing, and neither does what
        // it leads to.
        let mut stray = memory.clone();
        stray.put(node(0), &[0x77]);
        assert_eq!(semaphores(&stray), [None, None, None, None, None, Some(0x8010)]);
        let mut moved = memory.clone();
        moved.put(node(3) + address_at, &[0x8018]);
        assert_eq!(semaphores(&moved)[5], None);
        let mut odd = memory.clone();
        odd.put(node(3) + address_at, &[0x8011]);
        assert_eq!(semaphores(&odd)[5], None);
    }
}

#[test]
fn what_one_reading_missed_another_has() {
    let functions = [&b"main.work"[..], b"runtime.semacquire1", b"runtime.goexit"];
    let whole = with_semaphores(24);
    let program = made_up(whole.clone(), named(1, 0x1000, functions), TABLE);
    let mut found = Semaphores::find(&program, &[0, 1, 2, 3, 4, 5].map(place));
    found.update(&whole);
    // The tree is changed at this moment: its root is none.
    let mut changed = whole.clone();
    changed.put(TABLE + 64 * ((0x8004 >> 3) % 251) + 8, &[0]);
    found.update(&changed);
    assert_eq!(found.address(&whole, place(4)), Some(0x8004));
    // One that waits for something else meanwhile has another node.
    put_node(&mut changed, 24, 9, 5, 0x8018);
    changed.put(TABLE + 64 * ((0x8018 >> 3) % 251) + 8, &[node(9)]);
    found.update(&changed);
    assert_eq!(found.address(&changed, place(5)), Some(0x8018));
}

#[test]
fn a_goroutine_that_was_woken_waits_for_no_semaphore() {
    let memory = with_semaphores(24);
    let functions = [&b"main.work"[..], b"runtime.semacquire1", b"runtime.goexit"];
    let program = made_up(memory.clone(), named(1, 0x1000, functions), TABLE);
    let mut found = Semaphores::find(&program, &[0, 1, 2, 3, 4, 5].map(place));
    found.update(&memory);
    for (at, word) in [(node(0) + 24, 0), (node(0) + 24, 0x8008), (node(0), place(4))] {
        let mut later = memory.clone();
        later.put(at, &[word]);
        assert_eq!(found.address(&later, place(0)), None, "{at:#x}");
        assert_eq!(found.address(&later, place(4)), Some(0x8004));
    }
}

#[test]
fn no_table_of_semaphores_makes_it_last() {
    for address_at in [24, 32] {
        let whole = with_semaphores(address_at);
        let trees = (0..251).map(|tree| TABLE + 64 * tree + 8).step_by(25);
        let words = whole.words.keys().copied().filter(|at| *at >= node(0));
        for at in words.chain(trees) {
            for word in [7, node(0), node(3), u64::MAX - 7] {
                let mut memory = whole.clone();
                memory.put(at, &[word]);
                semaphores(&memory);
            }
        }
    }
}

/// Puts the table of functions into memory, from where it is read, too.
pub fn put_table(memory: &mut Words, table: &[u8]) {
    for (nth, word) in (0u64..).zip(table.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        memory.put(8 * nth, &[u64::from_le_bytes(bytes)]);
    }
}

#[test]
fn goroutines_have_the_labels_that_they_had_all_the_time() {
    use labels::{Form, LabelsLayout, RawLabels};
    use parked::{Reader, Slot};

    const SET: u64 = 0x50000;
    let setter = b"runtime/pprof.runtime_setProfLabel";
    let table = named(1, 0x1000, [setter, FUNCTIONS[1], FUNCTIONS[2]]);
    let mut memory = world(152);
    put_table(&mut memory, &table);
    // mov [r14+400], rax
    memory.put(0x1000, &[u64::from_le_bytes([0x49, 0x89, 0x86, 0x90, 1, 0, 0, 0x90])]);
    // A map with one entry.
    memory.put(place(0) + 400, &[SET]);
    memory.put(SET, &[SET + 8, 1, 0, SET + 0x40, 0]);
    memory.put(SET + 0x40, &[0; 34]);
    memory.put(SET + 0x40, &[7, SET + 0x200, 6]);
    memory.put(SET + 0x40 + 136, &[SET + 0x208, 1]);
    memory.put(SET + 0x200, &[u64::from_le_bytes(*b"tenant\0\0"), u64::from(b'7')]);
    let of_each = |memory: &Words| {
        let found = goroutines(&made_up(memory.clone(), table.clone(), LIST)).expect("goroutines");
        let labels =
            found.list.iter().map(|one| (one.id, one.labels.as_deref().map(str::to_owned)));
        labels.collect::<Vec<_>>()
    };
    let labelled = |text: &str| [(1, Some(text.to_owned())), (9, None), (10, None)];
    assert_eq!(of_each(&memory), labelled("[labels tenant=7]"));
    let mut gone = memory.clone();
    gone.put(SET + 8, &[2]);
    assert_eq!(of_each(&gone), labelled("[labels (other)]"));
    // It gets other labels meanwhile.
    let changing = Words { changes: Some((place(0) + 400, 2)), ..memory.clone() };
    assert_eq!(of_each(&changing), labelled("")[1..]);

    let program = made_up(memory, table, LIST);
    let batch = Reader::new(program, Default::default()).expect("a list").next_batch(64);
    assert_eq!(batch.labels, Some(LabelsLayout { offset: 400, form: Form::Map }));
    let Slot::Parked(parked) = &batch.slots[0].1 else { panic!("{batch:?}") };
    assert_eq!(parked.labels, RawLabels::All(vec![(b"tenant".into(), b"7".into())]));
}

#[test]
fn stacks_that_change_or_are_not_whole_are_counted() {
    let whole = world(152);
    let unreadable = |memory: &Words| {
        let found = read_all(memory).expect("goroutines");
        assert_eq!(found.list.len() + found.unreadable + found.on_threads, found.found);
        found.unreadable
    };
    // A return address: the stack changes between each two readings.
    let changing = Words { changes: Some((STACK + 24, 1)), ..whole.clone() };
    assert_eq!(unreadable(&changing), 2);
    // Its structure: where it goes on.
    let changing = Words { changes: Some((place(4) + 64, 2)), ..whole.clone() };
    assert_eq!(unreadable(&changing), 2);
    let mut cut = whole.clone();
    cut.put(STACK + 56, &[0x1010]);
    assert_eq!(unreadable(&cut), 2, "it does not reach its beginning");
    let mut missing = whole.clone();
    missing.words.remove(&(STACK + 0x3000));
    assert_eq!(unreadable(&missing), 2, "only the one whose stack is not there");
}

#[test]
fn lists_that_cannot_be_are_none() {
    let whole = world(152);
    for (at, word) in [
        (LIST, 0),
        (LIST, POINTERS + 1),
        (LIST + 8, 0),
        (LIST + 8, 9),
        (POINTERS, 0x77),
        (place(0) + 152, 2),
        (place(3) + 152, 7),
        (place(3) + 144, 77),
        (place(3) + 64, 0x2000),
        (place(3) + 56, STACK + 0x4000),
    ] {
        let mut memory = whole.clone();
        memory.put(at, &[word]);
        assert_eq!(read_all(&memory), None, "{at:#x} {word:#x}");
    }
}

#[test]
fn no_word_makes_it_panic_or_last() {
    let whole = world(152);
    for at in whole.words.keys() {
        for word in [0, 1, 7, 0x1010, STACK, u64::MAX, u64::MAX - 7, 1 << 63] {
            let mut memory = whole.clone();
            memory.put(*at, &[word]);
            if let Some(found) = read_all(&memory) {
                assert!(found.list.iter().all(|one| one.frames.len() < 10), "{at:#x} {word:#x}");
            }
        }
    }
}

#[test]
fn goroutines_that_wait_are_read_in_rounds() {
    use crate::model::vocabulary::state::{RawState, State};
    use crate::runtimes::frame_and_thread_names::Names;
    use parked::{Batch, Parked, Reader, Slot};

    let names = Names::default();
    let reader = |memory: &Words| {
        let program = made_up(memory.clone(), named(1, 0x1000, FUNCTIONS), LIST);
        Reader::new(program, names.clone()).expect("a list")
    };
    let mut memory = world(152);
    put_table(&mut memory, &named(1, 0x1000, FUNCTIONS));
    let waits = |batch: &Batch| -> Vec<u64> {
        let id = |(_, slot): &(u64, Slot)| match slot {
            Slot::Parked(parked) => Some(parked.id),
            Slot::Other => None,
        };
        batch.slots.iter().filter_map(id).collect()
    };
    let mut all = reader(&memory);
    let batch = all.next_batch(64);
    assert_eq!((batch.slots.len(), batch.listed, batch.is_last), (6, 6, true));
    assert_eq!(waits(&batch), [1, 10]);
    let stack: Vec<u8> = [0, 0, 0, 0x1010, 0, 0, 0, 0x1051u64].map(u64::to_le_bytes).concat();
    let name = names.thread_name("main.work").expect("room");
    let (pc, sp, since) = (0x1010, STACK, Some(1_000));
    let labels = RawLabels::None;
    let (state, sends) = (RawState::Known(State::Wait), false);
    let expected = Parked { id: 1, pc, sp, stack, state, since, name, labels, sends };
    assert_eq!(batch.slots[0], (place(0), Slot::Parked(expected)));
    assert_eq!(batch.slots[1], (place(1), Slot::Other), "a thread executes it");
    assert_eq!(all.next_batch(64), batch, "the next round");

    // Its stack changes at each read, is not there, or is longer than what is read.
    let without_first = |change: &dyn Fn(&mut Words)| {
        let mut memory = memory.clone();
        change(&mut memory);
        waits(&reader(&memory).next_batch(64))
    };
    assert_eq!(without_first(&|memory| memory.changes = Some((STACK + 8, 0))), [10]);
    let gone = |memory: &mut Words| assert!(memory.words.remove(&STACK).is_some());
    assert_eq!(without_first(&gone), [10]);
    let end = |memory: &mut Words| {
        const LENGTH: u64 = 2 << 20;
        memory.put(place(0) + 8, &[STACK + LENGTH]);
        for at in (STACK..STACK + LENGTH).step_by(8) {
            memory.words.entry(at).or_insert(0);
        }
    };
    assert_eq!(without_first(&end), [10]);
    // The runtime started it for itself.
    let of_runtime = |memory: &mut Words| memory.put(place(0) + 152 + 200 + 16, &[0x1050]);
    assert_eq!(without_first(&of_runtime), [10]);

    // A program that has just begun.
    let mut few = memory.clone();
    few.put(LIST, &[POINTERS, 1, 8]);
    let program = made_up(few, named(1, 0x1000, FUNCTIONS), LIST);
    assert!(Reader::new(program, names.clone()).is_none());

    // Of many, a batch is a part.
    let mut many = memory.clone();
    (6..120).for_each(|nth| goroutine(&mut many, 152, nth, 100 + nth, 4, 1));
    many.put(LIST, &[POINTERS, 120, 120]);
    many.put(POINTERS, &(0..120).map(place).collect::<Vec<u64>>());
    let mut many = reader(&many);
    let sizes: Vec<(usize, bool)> = (0..3)
        .map(|_| many.next_batch(64))
        .map(|batch| (batch.slots.len(), batch.is_last))
        .collect();
    assert_eq!(sizes, [(64, false), (56, true), (64, false)]);
    // However many structures are read, at most 64 stacks are.
    let batch = many.next_batch(1_000);
    assert_eq!((batch.slots.len(), batch.is_last), (56, true));
    let batch = many.next_batch(1_000);
    let places: Vec<u64> = batch.slots.iter().map(|(at, _)| *at).collect();
    assert_eq!((waits(&batch).len(), batch.is_last), (64, false));
    assert_eq!(places, (0..places.len() as u64).map(place).collect::<Vec<u64>>());
    let rest = many.next_batch(1_000);
    let behind = (places.len() as u64..120).map(place).collect::<Vec<u64>>();
    assert_eq!(rest.slots.iter().map(|(at, _)| *at).collect::<Vec<u64>>(), behind);
    assert!(rest.is_last);
}
