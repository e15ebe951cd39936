pub(crate) mod made_up;

use super::*;
use made_up::{made_up, trees};
use proptest::prelude::*;

fn open(bytes: &[u8]) -> Option<Table<&[u8]>> {
    let header = Header::parse(bytes.get(..HEADER)?.try_into().ok()?)?;
    Table::new(header, header.text, bytes)
}

#[test]
fn functions_frames_names_and_lines() {
    for layout in 0..BEGINS.len() {
        let bytes = made_up(layout);
        let table = open(&bytes).expect("a table");
        assert_eq!(table.range(), Some((0x1000, 0x1060)));
        let at = |address| table.function(address);
        assert_eq!((at(0xfff), at(0x1060)), (None, None));
        let f = at(0x1000).expect("f");
        assert_eq!((f.start, f.end, at(0x103f)), (0x1000, 0x1040, Some(f)));
        assert_eq!(table.name(&f).as_deref(), Some(&b"f"[..]));
        let sizes = [0x1000, 0x1003, 0x1004, 0x103b, 0x103c, 0x103f]
            .map(|address| table.frame_size(&f, address));
        assert_eq!(sizes, [Some(0), Some(0), Some(0x18), Some(0x18), Some(0), Some(0)]);
        let position = |name: &str, line: Option<u32>| Position {
            name: name.into(),
            id: 0,
            line: line.map(|line| (b"/src/a.go".to_vec(), line)),
        };
        let trees = trees(layout);
        let at = |address| table.positions(&f, address, Some(&&trees[..])).expect("a name");
        assert_eq!(at(0x1007), [position("f", Some(10))]);
        assert_eq!(at(0x101f), [position("f", Some(11))]);
        assert_eq!(at(0x1020), [position("f", Some(11)), position("inner", Some(11))]);
        let without = |address| table.positions(&f, address, None::<&&[u8]>).expect("a name");
        assert_eq!(without(0x101f), [position("f", Some(11))]);
        assert_eq!(without(0x1020), [position("f", None)], "the line is the inlined one's");
        assert!(table.fits(&&trees[..]));
        let mut other = trees.clone();
        other.insert(0, 1);
        assert!(!table.fits(&&other[..]) && !table.fits(&&trees[..trees.len() - 1]));
        let at = |address| table.function(address);
        assert!(!f.is_outermost() && !f.writes_stack_pointer());
        let g = at(0x1045).expect("g");
        assert_eq!((table.name(&g), table.frame_size(&g, 0x1045)), (Some(b"g".to_vec()), Some(0)));
        let top = at(0x105f).expect("top");
        assert!(top.is_outermost());
        assert_eq!(
            (table.name(&top), table.frame_size(&top, 0x105f)),
            (Some(b"runtime.top".to_vec()), None)
        );
    }
}

/// Overwrites a number of `size` bytes.
fn put(bytes: &mut [u8], at: usize, size: usize, value: u64) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

fn word(bytes: &[u8], number: usize) -> usize {
    u64::from_le_bytes(bytes[8 * number..8 * number + 8].try_into().expect("8 bytes")) as usize
}

/// Returns the offsets of the index of functions and of the entry of `f`.
fn entry_of_f(bytes: &[u8]) -> (usize, usize) {
    let index = word(bytes, 8);
    let entry = u32::from_le_bytes(bytes[index + 4..index + 8].try_into().expect("4 bytes"));
    (index, index + entry as usize)
}

#[test]
fn a_function_begins_where_the_one_before_ends() {
    for layout in 0..BEGINS.len() {
        let bytes = made_up(layout);
        let table = open(&bytes).expect("a table");
        let name = |address| table.function(address).and_then(|function| table.name(&function));
        let names = [0x103f, 0x1040, 0x104f, 0x1050].map(name);
        assert_eq!(names, [&b"f"[..], b"g", b"g", b"runtime.top"].map(|name| Some(name.to_vec())));
    }
}

#[test]
fn invalid_headers_are_rejected() {
    let is_table = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = made_up(1);
        change(&mut bytes);
        open(&bytes).is_some()
    };
    assert!(is_table(&|_| {}));
    assert!(!is_table(&|bytes| put(bytes, 8, 8, 0)), "no functions");
    assert!(!is_table(&|bytes| put(bytes, 8, 8, FUNCTIONS_MAX + 1)));
    assert!(!is_table(&|bytes| put(bytes, 16, 8, SIZE_MAX)), "too many files");
    assert!(!is_table(&|bytes| put(bytes, 24, 8, 0)), "no address");
    assert!(!is_table(&|bytes| put(bytes, 32, 8, 71)), "names within the head");
    let (names, units) = (word(&made_up(1), 4) as u64, word(&made_up(1), 5) as u64);
    assert!(!is_table(&|bytes| {
        put(bytes, 32, 8, units);
        put(bytes, 40, 8, names);
    }));
    assert!(!is_table(&|bytes| {
        let (index, _) = entry_of_f(bytes);
        put(bytes, index + 8, 4, 0x51);
    }));
}

#[test]
fn entries_that_contradict_themselves_say_nothing() {
    let mut bytes = made_up(1);
    let (_, entry) = entry_of_f(&bytes);
    let values = word(&bytes, 7);
    // The first change of its frame's size.
    put(&mut bytes, values + 3, 1, 0x2e);
    put(&mut bytes, entry + 4, 4, 0);
    let table = open(&bytes).expect("a table");
    let f = table.function(0x1000).expect("f");
    assert_eq!(
        (table.frame_size(&f, 0x1003), table.frame_size(&f, 0x1004)),
        (Some(0), None),
        "23 bytes"
    );
    assert_eq!(table.name(&f), None, "nothing is no name");
    put(&mut bytes, entry, 4, 1);
    assert_eq!(
        open(&bytes).expect("a table").function(0x1000),
        None,
        "the index has another start"
    );
}

#[test]
fn steps_and_names_without_end_are_not_read_to_it() {
    const ENDLESS: usize = 1 << 20;
    for (field, base, endless, most) in
        [(16, 7, [2, 0], STEPS_MAX as usize), (4, 4, [b'x'; 2], NAME_MAX)]
    {
        let mut bytes = made_up(1);
        let (_, entry) = entry_of_f(&bytes);
        let at = bytes.len() - word(&bytes, base);
        put(&mut bytes, entry + field, 4, at as u64);
        bytes.extend(std::iter::repeat_n(endless, ENDLESS / 2).flatten());
        let counted = Counted(&bytes, std::cell::Cell::new(0));
        let header = Header::parse(bytes[..HEADER].try_into().expect("72 bytes")).expect("a head");
        let table = Table::new(header, header.text, &counted).expect("a table");
        let f = table.function(0x1000).expect("f");
        counted.1.set(0);
        let found = if field == 4 {
            table.name(&f).is_some()
        } else {
            table.frame_size(&f, 0x1000).is_some()
        };
        assert!(!found && counted.1.get() <= most / PIECE + 1, "{} reads", counted.1.get());
    }
}

/// Counts the bytes read.
struct Counted<'b>(&'b [u8], std::cell::Cell<usize>);

impl Bytes for &Counted<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.1.set(self.1.get() + 1);
        self.0.read(offset, buf)
    }
}

proptest! {
    #[test]
    fn damaged_tables_cost_no_more_than_their_bounds(
        layout in 0usize..2,
        changes in prop::collection::vec((0usize..400, any::<u8>()), 0..12),
        cut in 72usize..400,
        address in 0xff0u64..0x1070,
    ) {
        let mut bytes = made_up(layout);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut);
        let header = Header::parse(bytes[..HEADER].try_into().expect("72 bytes"));
        let counted = Counted(&bytes, std::cell::Cell::new(0));
        if let Some(header) = header
            && let Some(table) = Table::new(header, header.text, &counted)
            && let Some(function) = table.function(address)
        {
            prop_assert!((function.start..function.end).contains(&address));
            prop_assert!(table.frame_size(&function, address).is_none_or(|size| size % 8 == 0));
            let _ = table.name(&function);
            let trees = trees(layout);
            let _ = table.positions(&function, address, Some(&&trees[..]));
            let _ = table.fits(&&trees[..]);
        }
        prop_assert!(counted.1.get() < 200, "{} reads", counted.1.get());
    }
}

#[test]
fn trees_that_contradict_themselves_say_nothing() {
    for layout in 0..BEGINS.len() {
        let bytes = made_up(layout);
        let table = open(&bytes).expect("a table");
        let f = table.function(0x1000).expect("f");
        let (name, call) = if layout == 0 { (12, 16) } else { (4, 8) };
        let alone = |at: usize, value: u64| {
            let mut trees = trees(layout);
            put(&mut trees, at, 4, value);
            let found = table.positions(&f, 0x1020, Some(&&trees[..])).expect("a name");
            assert_eq!(
                found,
                [Position { name: b"f".to_vec(), id: 0, line: None }],
                "{at} {value}"
            );
            assert!(value == 0x20 || !table.fits(&&trees[..]), "{at} {value}");
        };
        alone(name, 0);
        alone(name, u64::from(u32::MAX));
        alone(call, 0x40);
        alone(call, u64::from(u32::MAX));
        // It is called where it is inlined: without end.
        alone(call, 0x20);
    }
}

#[test]
fn wrappers_have_the_id_behind_a_known_one() {
    let known = [(&b"runtime.systemstack_switch"[..], 23), (b"runtime.systemstack", 24)];
    for (layout, (known, expected)) in (0..BEGINS.len()).flat_map(|n| known.map(|one| (n, one))) {
        let mut bytes = made_up::named(layout, 0x1000, [b"f", b"g", known]);
        assert_eq!(open(&bytes).expect("a table").wrapper_id(), None, "0 is no special function");
        let (index, _) = entry_of_f(&bytes);
        let of_top = &bytes[index + 20..index + 24];
        let of_top = index + u32::from_le_bytes(of_top.try_into().expect("4 bytes")) as usize;
        let at = of_top + if layout == 0 { 36 } else { 40 };
        put(&mut bytes, at, 1, 22);
        let table = open(&bytes).expect("a table");
        assert_eq!(table.wrapper_id(), Some(expected));
        assert!(
            table.function(0x1050).expect("it is there").is_outermost(),
            "the flags are beside"
        );
    }
    assert_eq!(open(&made_up(1)).expect("a table").wrapper_id(), None);
}

#[test]
fn calling_conventions_are_no_part_of_a_name() {
    let bytes = made_up::named(1, 0x1000, [b"goexit.abi0", b"main.f.abiinternal", b".abi0"]);
    let table = open(&bytes).expect("a table");
    let names = [0x1000, 0x1040, 0x1050].map(|at| {
        let name = table.name(&table.function(at).expect("it is there")).expect("a name");
        String::from_utf8(name).expect("text")
    });
    assert_eq!(names, ["goexit", "main.f", ".abi0"]);
}
