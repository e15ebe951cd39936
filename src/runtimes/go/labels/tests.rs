use super::*;
use crate::pclntab::tests::made_up::named;
use crate::runtimes::go::goroutine_list::GOROUTINE;
use crate::runtimes::go::program::tests::made_up;
use crate::runtimes::go::tests::{LIST, Words};

const SET: u64 = 0x50000;
const ENTRIES: u64 = 0x51000;
const TEXTS: u64 = 0x60000;

/// Puts texts into memory. Returns, of each, its address and size.
fn put_texts(memory: &mut Words, texts: &[&str]) -> Vec<[u64; 2]> {
    let put = |(nth, text): (u64, &&str)| {
        let at = TEXTS + 0x1000 * nth;
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(text.len().next_multiple_of(8), 0);
        for (number, word) in (0u64..).zip(bytes.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            memory.put(at + 8 * number, &[word]);
        }
        // An empty text may have no address.
        [if text.is_empty() { 0 } else { at }, text.len() as u64]
    };
    (0..).zip(texts).map(put).collect()
}

fn list(labels: &[(&str, &str)]) -> Words {
    let mut memory = Words::default();
    let texts: Vec<&str> = labels.iter().flat_map(|(key, value)| [*key, *value]).collect();
    let texts = put_texts(&mut memory, &texts);
    memory.put(SET, &[ENTRIES, labels.len() as u64, labels.len() as u64]);
    memory.put(ENTRIES, texts.as_flattened());
    memory
}

/// Puts a map of these labels, by bucket; `more`: of a bucket, the one that follows it.
fn map(logarithm: u64, buckets: &[&[(&str, &str)]], more: &[(u64, u64)]) -> Words {
    let mut memory = Words::default();
    let all: Vec<&str> =
        buckets.iter().flat_map(|bucket| bucket.iter().flat_map(|(k, v)| [*k, *v])).collect();
    let mut texts = put_texts(&mut memory, &all).into_iter();
    let count = all.len() as u64 / 2;
    let header = SET + 0x100;
    memory.put(SET, &[header]);
    memory.put(header, &[count, logarithm << 8, ENTRIES, 0]);
    let address = |nth: u64| ENTRIES + 272 * nth;
    for (nth, bucket) in (0..).zip(buckets) {
        memory.put(address(nth), &[0; 34]);
        let mut marks = [0u8; 8];
        for (entry, _) in (0u64..).zip(*bucket) {
            marks[entry as usize] = 5 + entry as u8;
            let mut next = || texts.next().expect("a text");
            memory.put(address(nth) + 8 + 16 * entry, &next());
            memory.put(address(nth) + 136 + 16 * entry, &next());
        }
        memory.put(address(nth), &[u64::from_le_bytes(marks)]);
    }
    for (from, to) in more {
        memory.put(address(*from) + 264, &[address(*to)]);
    }
    memory
}

pub fn all(labels: &[(&str, &str)]) -> RawLabels {
    let bytes = |(key, value): &(&str, &str)| (key.as_bytes().into(), value.as_bytes().into());
    RawLabels::All(labels.iter().map(bytes).collect())
}

#[test]
fn a_set_is_a_list_or_a_map() {
    let labels = [("handler", "/catalog"), ("tenant", "")];
    assert_eq!(read(&list(&labels), Form::List, SET), all(&labels));
    assert_eq!(read(&list(&labels), Form::List, 0), RawLabels::None);
    assert_eq!(read(&list(&[]), Form::List, SET), RawLabels::None);
    assert_eq!(read(&map(0, &[&labels], &[]), Form::Map, SET), all(&labels));
    assert_eq!(read(&map(0, &[&[]], &[]), Form::Map, SET), RawLabels::None);
    // Two buckets, of which one has a further one.
    let parts: [&[(&str, &str)]; 3] = [&[("a", "1")], &[("b", "2"), ("c", "3")], &[("d", "4")]];
    let found = read(&map(1, &parts, &[(0, 2)]), Form::Map, SET);
    assert_eq!(found, all(&[("a", "1"), ("d", "4"), ("b", "2"), ("c", "3")]));
}

#[test]
fn what_is_not_whole_is_unknown() {
    let labels = [("handler", "/catalog"), ("tenant", "7")];
    let many: Vec<(&str, &str)> = vec![("k", "v"); LABELS_MAX + 1];
    let unknown = |memory: &Words, form| {
        assert_eq!(read(memory, form, SET), RawLabels::Unknown);
    };
    unknown(&list(&many), Form::List);
    assert_eq!(read(&list(&many[1..]), Form::List, SET), all(&many[1..]));
    for (at, word) in [(SET + 8, 1 << 60), (SET, 0x77), (ENTRIES, 0x77), (ENTRIES + 40, 1 << 40)] {
        let mut memory = list(&labels);
        memory.put(at, &[word]);
        unknown(&memory, Form::List);
    }
    let header = SET + 0x100;
    for (at, word) in [
        (SET, 0x77),
        (header, 3),
        (header, 17),
        // It has too many buckets, or it grows.
        (header + 8, 3 << 8),
        (header + 24, ENTRIES),
        (header + 16, 0x77),
        (ENTRIES, 0),
        // A bucket that leads to itself.
        (ENTRIES + 264, ENTRIES),
    ] {
        let mut memory = map(0, &[&labels], &[]);
        memory.put(at, &[word]);
        if (at, word) == (ENTRIES + 264, ENTRIES) {
            memory.put(header, &[LABELS_MAX as u64 - 1]);
        }
        unknown(&memory, Form::Map);
    }
}

#[test]
fn long_texts_are_cut() {
    let (key, value) = ("k".repeat(KEY_MAX + 1), "v".repeat(VALUE_MAX + 1));
    let cut = |text: &str| format!("{}…", &text[1..]);
    assert_eq!(read(&list(&[(&key, &value)]), Form::List, SET), all(&[(&cut(&key), &cut(&value))]));
}

#[test]
fn where_labels_are_is_said_by_what_sets_them() {
    assert_eq!(usize::from(OFFSET_MAX) + 8, GOROUTINE);
    let functions = |second: &'static [u8]| -> [&'static [u8]; 3] {
        [b"runtime/pprof.runtime_setProfLabel", second, b"runtime.goexit"]
    };
    let (list, map) = (&b"runtime/pprof.mergeLabelSets"[..], &b"main.work"[..]);
    let layout = |offset, form| Some(LabelsLayout { offset, form });
    let found = |code: &[u8], functions: [&[u8]; 3]| {
        let mut memory = Words::default();
        let mut code = code.to_vec();
        code.resize(0x40, 0x90);
        for (nth, word) in (0u64..).zip(code.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            memory.put(0x1000 + 8 * nth, &[word]);
        }
        find(&made_up(memory, named(1, 0x1000, functions), LIST))
    };
    let by = |instruction: [u8; 3], offset: u32| [&instruction[..], &offset.to_le_bytes()].concat();
    // By r14, as in Go 1.18, and by rcx.
    let stores = |offset| by([0x49, 0x89, 0x86], offset);
    assert_eq!(found(&by([0x48, 0x89, 0x81], 352), functions(list)), layout(352, Form::List));
    for [first, second, third] in [[0x4a, 0x89, 0x81], [0x48, 0x8b, 0x81], [0x48, 0x89, 0x84]] {
        assert_eq!(found(&by([first, second, third], 352), functions(list)), None);
    }
    assert_eq!(found(&stores(352), functions(map)), layout(352, Form::Map));
    assert_eq!(found(&stores(344), functions(list)), layout(344, Form::List));
    // With a write barrier it is stored in two places.
    let twice = [stores(360), stores(360)].concat();
    assert_eq!(found(&twice, functions(list)), layout(360, Form::List));
    let two = [stores(360), stores(352)].concat();
    for none in [&stores(0)[..], &stores(353), &stores(440), &stores(1 << 16), &two, &[]] {
        assert_eq!(found(none, functions(list)), None, "{none:x?}");
    }
    assert_eq!(found(&stores(352), [b"main.f", b"main.work", b"runtime.goexit"]), None);
}

#[test]
fn no_word_makes_it_panic_or_last() {
    let labels = [("handler", "/catalog"), ("tenant", "7")];
    for (whole, form) in
        [(list(&labels), Form::List), (map(1, &[&labels, &labels], &[(0, 1)]), Form::Map)]
    {
        for at in whole.words.keys() {
            for word in [0, 1, 7, 16, SET, ENTRIES, u64::MAX, u64::MAX - 7, 1 << 63] {
                let mut memory = whole.clone();
                memory.put(*at, &[word]);
                if let RawLabels::All(found) = read(&memory, form, SET) {
                    assert!(found.len() <= LABELS_MAX);
                }
            }
        }
    }
}
