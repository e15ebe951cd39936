//! Code objects that are replaced by others at the same address.

use super::*;
use crate::unwinder::interpreted::fingerprint;

/// Returns what the kernel takes of a frame.
fn taken(program: &Program, code: u64, offset: i64) -> InterpreterFrame {
    let l = &program.layout.code;
    let word = |at| program.world.get(code + at);
    let first_line = word(l.first_line) as u32;
    InterpreterFrame {
        address: 0x1234,
        code,
        position: program.position(code, offset),
        owner: 0,
        is_entry: true,
        copy: 0,
        fingerprint: fingerprint(
            word(l.file),
            word(l.shown_name()),
            word(l.lines),
            first_line.into(),
        ),
    }
}

/// Returns the frames that were taken at `copied`, in words.
fn named(python: &mut Cpython<&World>, frames: &[InterpreterFrame], copied: Ns) -> Vec<String> {
    python.begin(copied, true);
    let mut frames = frames.to_vec();
    if python.layout.minor >= 12 {
        frames.push(InterpreterFrame { owner: 3, ..InterpreterFrame::default() });
    }
    let taken = Taken { frames, ..Taken::default() };
    let found = python.interpreted(owner(0), Some(&taken)).expect("frames");
    found.frames.iter().map(|frame| words(&python.names, *frame)).collect()
}

const REPLACED: &str = "[code was replaced]";

#[test]
fn a_blocked_thread_is_named_by_what_is_there_now() {
    for layout in layouts() {
        let (program, thread, codes) = program(layout);
        let mut python = reader(&program);
        program.frames(thread, &evaluation(&layout, &[Made::Call(codes[0], 0)]));
        let name = |python: &mut Cpython<&World>| read(python, 0).expect("frames").0.remove(0);
        assert_eq!(name(&mut python), EXPECTED[0]);
        // Everything else is equal at first sight.
        let (l, word) = (&layout.code, |at| program.world.get(codes[0] + at));
        let (file, text) = (word(l.file), word(l.shown_name()));
        program.world.put(text + layout.object.ascii, b"Cart.other");
        program.world.word(text + layout.object.text_hash(), 99);
        assert_eq!(name(&mut python), EXPECTED[0].replace("total", "other"), "{layout:?}");
        program.write_code(codes[0], file, text, 77);
        assert!(name(&mut python).ends_with(":77"), "{layout:?}");
        program.write_code(codes[0], program.text("/x/y.py"), program.text("z"), 77);
        assert_eq!(name(&mut python), "y.z /x/y.py:77", "{layout:?}");
        program.world.word(codes[0] + layout.object.kind, 0x1000);
        // The type is read once: nothing else ever gets another one.
        assert_eq!(name(&mut python), "y.z /x/y.py:77");
        program.world.word(codes[0] + l.file, 0);
        assert_eq!(name(&mut python), "[torn]", "{layout:?}");
    }
}

#[test]
fn a_line_table_is_compared_too() {
    for layout in layouts() {
        let (program, thread, codes) = program(layout);
        let mut python = reader(&program);
        program.frames(thread, &evaluation(&layout, &[Made::Call(codes[0], 4)]));
        let line = |python: &mut Cpython<&World>| {
            read(python, 0).expect("frames").0[0].rsplit(':').next().map(str::to_owned)
        };
        assert_eq!(line(&mut python).as_deref(), Some("12"));
        let table = program.world.get(codes[0] + layout.code.lines) + layout.object.bytes;
        let place = match layout.minor {
            0..=9 => 1,
            10 => 3,
            _ => 2,
        };
        // Another kind of entry, or another difference.
        program.world.put(table + place, if layout.minor <= 10 { &[5] } else { &[0xdf] });
        let expected = if layout.minor <= 10 { "15" } else { "11" };
        assert_eq!(line(&mut python).as_deref(), Some(expected), "{layout:?}");
    }
}

#[test]
fn a_hash_may_be_computed_later() {
    let (program, thread, codes) = program(layouts()[4]);
    let mut python = reader(&program);
    program.frames(thread, &evaluation(&program.layout, &[Made::Call(codes[0], 0)]));
    let text = program.world.get(codes[0] + program.layout.code.shown_name());
    let hash = text + program.layout.object.text_hash();
    program.world.word(hash, u64::MAX);
    let now = monotonic();
    assert_eq!(read(&mut python, 0).expect("frames").0, [EXPECTED[0]]);
    program.world.word(hash, 5);
    program.world.reads();
    assert_eq!(read(&mut python, 0).expect("frames").0, [EXPECTED[0]]);
    assert!(program.world.reads() <= 2);
    assert_eq!(named(&mut python, &[taken(&program, codes[0], 0)], now), [EXPECTED[0]]);
}

#[test]
fn a_running_thread_is_named_by_the_code_of_its_instant() {
    for layout in layouts() {
        let (program, _, codes) = program(layout);
        let mut python = reader(&program);
        let frames = [taken(&program, codes[0], 4), taken(&program, codes[1], 0)];
        let before = monotonic();
        let all = named(&mut python, &frames, before);
        assert_eq!(all[0], EXPECTED[0].replace(":10", ":12"), "{layout:?}");
        assert_eq!(all[1], "größe.Ω /app/größe.py:20");
        // The first one is replaced by an equal one but for its first line.
        let word = |at| program.world.get(codes[0] + at);
        let (file, name) = (word(layout.code.file), word(layout.code.shown_name()));
        let between = monotonic();
        program.write_code(codes[0], file, name, 50);
        let after = monotonic();
        let old = named(&mut python, &frames, after);
        assert_eq!(old, [REPLACED, &all[1]], "{layout:?}: of another code object");
        let later = named(&mut python, &frames, monotonic());
        assert_eq!(later, [REPLACED, &all[1]], "{layout:?}: its fingerprint is another one");
        let new = [taken(&program, codes[0], 0), frames[1]];
        assert_eq!(named(&mut python, &new, monotonic())[0], EXPECTED[0].replace(":10", ":50"));
        // It was found after this stack was copied, so it may be younger.
        let unread = [InterpreterFrame { fingerprint: 0, ..new[0] }];
        assert_eq!(named(&mut python, &unread, between), [REPLACED]);
        assert_ne!(named(&mut python, &unread, monotonic()), [REPLACED]);
    }
}

#[test]
fn what_was_compared_is_valid_for_older_stacks_only_for_some_time() {
    let (program, _, codes) = program(layouts()[6]);
    let mut python = reader(&program);
    let frames = [taken(&program, codes[0], 4)];
    let first = monotonic();
    named(&mut python, &frames, first);
    program.world.reads();
    named(&mut python, &frames, first);
    let soon = monotonic() < first + VALID_FOR;
    assert!(program.world.reads() == 0 || !soon, "it was compared after the copy");
    named(&mut python, &frames, monotonic());
    assert_eq!(program.world.reads(), 1, "one call compares it with memory");
}

#[test]
fn frames_that_are_missing_are_marked() {
    let (program, _, codes) = program(layouts()[0]);
    let mut python = reader(&program);
    let frames = [taken(&program, codes[0], 0), taken(&program, codes[1], 0)];
    let mut read = |gap, end| {
        let taken = Taken { frames: frames.to_vec(), gap, end, ..Taken::default() };
        let found = python.interpreted(owner(0), Some(&taken)).expect("frames");
        let marks = found.frames.iter().map(|frame| words(&python.names, *frame));
        (marks.map(|text| text.starts_with('[')).collect::<Vec<_>>(), found.ends, found.end)
    };
    assert_eq!(read(None, None), (vec![false, false], vec![1, 2], None));
    assert_eq!(read(Some(1), None), (vec![false, true, false], vec![1, 3], None));
    let deep = Some(Marker::TooDeep);
    assert_eq!(read(None, deep), (vec![false, false], vec![1, 2], deep));
    let nothing = Taken::default();
    // A native function that executes frames may have been entered just now.
    assert_eq!(python.interpreted(owner(0), Some(&nothing)), Some(Evaluations::default()));
}

#[test]
fn a_fingerprint_tells_older_code_from_newer() {
    let (program, _, codes) = program(layouts()[6]);
    let mut python = reader(&program);
    let word = |at| program.world.get(codes[0] + at);
    let (file, name) = (word(program.layout.code.file), word(program.layout.code.shown_name()));
    let first = taken(&program, codes[0], 0);
    named(&mut python, &[first], monotonic());
    let copied = monotonic();
    // It was replaced before the stack was copied, and that is found afterwards.
    program.write_code(codes[0], file, name, 50);
    let second = taken(&program, codes[0], 0);
    assert_eq!(named(&mut python, &[second], copied), [EXPECTED[0].replace(":10", ":50")]);
    assert_eq!(named(&mut python, &[first], copied), [REPLACED]);
    // It is freed, and an equal one comes to its place, but the name has another text.
    program.world.word(codes[0] + program.layout.object.kind, 0);
    program.world.word(codes[0] + program.layout.code.file, 0);
    assert_eq!(named(&mut python, &[second], monotonic()), [REPLACED]);
    let kind = program.world.get(codes[1] + program.layout.object.kind);
    program.world.word(codes[0] + program.layout.object.kind, kind);
    program.world.word(codes[0] + program.layout.code.file, file);
    program.world.word(name + program.layout.object.text_hash(), 3);
    assert_eq!(named(&mut python, &[second], copied), [REPLACED]);
    assert_ne!(named(&mut python, &[second], monotonic()), [REPLACED]);
}

/// Of a freed code object only the first word is another one, and its strings may be.
#[test]
fn a_freed_code_object_has_no_name() {
    for layout in layouts().into_iter().filter(|layout| layout.object.kind == 8) {
        let (program, _, codes) = program(layout);
        let named_with = |references: u64| {
            program.world.word(codes[0], references);
            let mut python = reader(&program);
            named(&mut python, &[taken(&program, codes[0], 0)], monotonic())
        };
        // Of 3.11, of 3.12, of 3.13, of 3.14 with flags.
        for alive in [1, 3, 70_000, 999_999_999, 0xffff_ffff, 0x3fff_ffff, 4 << 48 | 0xc000_0000] {
            assert_ne!(named_with(alive), [REPLACED], "{alive:#x}");
        }
        // The end of a list, in a heap behind the program, in mapped memory.
        for freed in [0, 0x00c8_1230, 0x5581_22f0_1230, 0x7f12_c000_1230, 0x7f12_0000_0040] {
            assert_eq!(named_with(freed), [REPLACED], "{freed:#x}");
        }
    }
}

#[test]
fn only_some_older_code_is_remembered() {
    let (program, _, codes) = program(layouts()[6]);
    let mut python = reader(&program);
    let word = |at| program.world.get(codes[0] + at);
    let (file, name) = (word(program.layout.code.file), word(program.layout.code.shown_name()));
    let copied = monotonic();
    for line in 0..7 {
        program.write_code(codes[0], file, name, 100 + line);
        named(&mut python, &[taken(&program, codes[0], 0)], monotonic());
    }
    let last = taken(&program, codes[0], 0);
    assert_eq!(named(&mut python, &[last], copied), [REPLACED], "it may be one of the others");
    assert_ne!(named(&mut python, &[last], monotonic()), [REPLACED]);
}
