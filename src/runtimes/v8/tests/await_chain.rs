//! Functions that await one which was resumed, in made-up memory: each way from one to the next,
//! what ends a chain, and objects that change while they are read.

use super::*;
use crate::unwinder::awaiting::{TakenObject, TakenObjects};

mod awaited;
mod taken;

use Then::{Awaits, Calls, Direct, Settles, Yields};
use awaited::*;

/// Returns names of the functions behind the marker.
fn names(v8: &mut V8<&World>) -> Vec<String> {
    names_of(v8, None)
}

fn names_of(v8: &mut V8<&World>, taken: Option<&TakenObjects>) -> Vec<String> {
    let frames = v8.await_chain(taken).unwrap_or_default();
    let shown = shown(v8, &frames);
    let mut frames = shown.split(", ");
    assert_eq!(frames.next(), Some(if shown.is_empty() { "" } else { "[await] :0 " }));
    let name = |frame: &str| {
        if frame == "[more await] :0 " {
            return "…".to_owned();
        }
        let name = frame.strip_suffix(" /srv/a b.js:2 ");
        name.unwrap_or_else(|| panic!("{frame}: line 2, no tier")).to_owned()
    };
    frames.map(name).collect()
}

const BY_CALLS: [Then; 4] = [
    Calls { program: false, capability: false },
    Calls { program: false, capability: true },
    Calls { program: true, capability: false },
    Calls { program: true, capability: true },
];

#[test]
fn each_way_to_the_next_function_is_followed() {
    for version in VERSIONS {
        let of = |way: &[Then]| Awaited::new(version, way).awaiting();
        assert_eq!(of(&[Awaits("one"), Awaits("two")]), ["one", "two"], "{version:?}");
        assert_eq!(of(&[]), [""; 0], "no one awaits it");
        assert_eq!(of(&[Yields("one", 0), Awaits("two")]), ["one", "two"]);
        assert_eq!(of(&[Yields("one", 2), Awaits("two")]), ["one", "two"]);
        assert_eq!(of(&[Direct("one"), Direct("two")]), ["one", "two"]);
        for then in BY_CALLS {
            assert_eq!(of(&[then, then, Awaits("one")]), ["one"], "{version:?} {then:?}");
        }
        let all = Settles { number: OF_ALL, capability: true };
        assert_eq!(
            of(&[Awaits("one"), all, Awaits("two"), all, Awaits("three")]),
            ["one", "two", "three"]
        );
        let resolves = Settles { number: RESOLVES, capability: false };
        assert_eq!(of(&[resolves, Awaits("one")]), ["one"]);
    }
}

#[test]
fn what_is_not_the_only_way_ends_a_chain() {
    for version in VERSIONS {
        let of = |way: &[Then]| Awaited::new(version, way).awaiting();
        let rejects = Settles { number: REJECTS, capability: false };
        assert_eq!(of(&[Awaits("one"), rejects, Awaits("two")]), ["one"], "{version:?}");
        // A request to return: V8 calls other functions with such a context then.
        assert_eq!(of(&[Yields("one", 1), Awaits("two")]), ["one"]);
        // Another V8 may have other numbers.
        let mut it = Awaited::new(
            version,
            &[Settles { number: RESOLVES, capability: false }, Awaits("one")],
        );
        it.program.layout.awaiting.as_mut().expect("it is known").resolve = (601, 41);
        assert_eq!(it.awaiting(), [""; 0]);
        let it = Awaited::new(version, &[Awaits("one"), Awaits("two")]);
        let first = it.word(it.promise, 24);
        let next = it.program.layout.awaiting.as_ref().expect("it is known").next_reaction;
        // Two functions await it.
        it.set(first, next, first);
        assert_eq!(it.awaiting(), [""; 0]);
        it.set(first, next, 0);
        assert_eq!(it.awaiting(), ["one", "two"]);
        it.set(it.promise, 32, small(1));
        assert_eq!(it.awaiting(), [""; 0], "it is fulfilled");
        it.set(it.promise, 32, small(4));
        assert_eq!(it.awaiting(), ["one", "two"], "another flag");
        // A generator that is asked for nothing.
        let it = Awaited::new(version, &[Yields("one", 0), Awaits("two")]);
        let object = it.object_of_first();
        it.set(object, 80, it.undefined);
        assert_eq!(it.awaiting(), ["one"]);
    }
}

#[test]
fn what_is_not_proven_is_no_chain() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one"), Awaits("two")]);
        let first = it.object_of_first();
        let awaiting = it.program.layout.awaiting.clone().expect("it is known");
        let reaction = it.word(it.promise, 24);
        let handler = it.word(reaction, awaiting.next_reaction + 16);
        let another = it.executed(it.program.told, it.promise(&[Awaits("wrong")]));
        let (_, another) = it.resumer(another);
        let changes = [
            ("it is not executed", it.resumed, 64, small(7)),
            ("it has returned", it.resumed, 64, small(-1i32 as u32 as u64)),
            ("another function is resumed", it.resumed, 24, it.function("other")),
            ("another context", it.resumer, awaiting.context, another),
            ("the function that awaits is executed", first, 64, small(-2i32 as u32 as u64)),
            ("it is suspended before its code", first, 48, small(3)),
            ("it is suspended behind its code", first, 48, small(500)),
            ("it has no bytecode", first, 24, it.builtin(OF_ALL, it.context)),
            ("no function", first, 24, it.undefined),
            ("no promise", it.resumed, 80, it.undefined),
            ("no promise of the next", first, 80, it.undefined),
            ("no reaction", it.promise, 24, it.undefined),
            ("no flags", it.promise, 32, it.undefined),
            ("no handler", reaction, awaiting.next_reaction + 16, small(1)),
        ];
        for (why, object, offset, word) in changes {
            let before = it.word(object, offset);
            it.set(object, offset, word);
            assert_eq!(it.awaiting(), [""; 0], "{version:?}: {why}");
            it.set(object, offset, before);
        }
        for object in [it.resumed, it.promise, reaction, handler, first, it.resumer, it.context] {
            let before = it.word(object, 0);
            it.set(object, 0, it.map("Script__SCRIPT"));
            assert_eq!(it.awaiting(), [""; 0], "{version:?}: another type");
            it.set(object, 0, before);
        }
        assert_eq!(it.awaiting(), ["one", "two"]);
        // A built-in function that returns a value has such a context too, of another type.
        let generator = "JSAsyncGeneratorObject__JS_ASYNC_GENERATOR_OBJECT";
        let value = it.suspended(generator, it.function("value"), it.undefined);
        let context = it.context(CONTEXT_TYPE + 1, &[value]);
        it.set(reaction, awaiting.next_reaction + 16, it.builtin(OF_ALL, context));
        assert_eq!(it.awaiting(), [""; 0]);
    }
}

#[test]
fn a_method_that_awaits_has_its_class() {
    // The classes' own tests have all cases; here its object comes from what is left of it.
    let it = Awaited::new((13, 6), &[Awaits("one")]);
    let first = it.object_of_first();
    let function = it.word(first, 24);
    let Program { ref world, ref layout, .. } = it.program;
    let map = |kind: u16, words: u64, prototype: u64| {
        let of_maps = world.map(layout.types.map);
        world.object(&[of_maps, u64::from(kind) << 32 | words, 0, prototype, 0, 0])
    };
    let object = kind(layout.version, "JSObject__JS_OBJECT");
    let class = world.object(&[map(layout.types.first_function, 8, 0), 0, 0, 0, 0, 0, 0, 0]);
    world.set(class, layout.shared, it.word(it.function("Cart"), layout.shared));
    let prototype = world.object(&[map(object, 5, 0), 0, 0, class, function]);
    world.set(class, 56, prototype);
    it.set(first, 40, world.object(&[map(object, 3, prototype), 0, 0]));
    assert_eq!(it.awaiting(), ["Cart.one"]);
    // Another object is where it was when it was taken: that says nothing of its class.
    let (taken, words, mut v8) = (it.taken(), it.words(function), reader(&it.program));
    (1..6).for_each(|nth| it.set(function, 8 * nth, it.undefined));
    (0..9).for_each(|_| assert_eq!(it.taken_chain(&mut v8, &taken), ["one"]));
    (1..6).for_each(|nth| it.set(function, 8 * nth, words[nth as usize]));
    assert_eq!(it.taken_chain(&mut v8, &taken), ["Cart.one"]);
}

#[test]
fn a_stack_that_has_changed_since_it_was_copied_has_no_chain() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one")]);
        let (copied, mut v8) = (it.copy(), reader(&it.program));
        for at in [INNER - 2, INNER, INNER + 1, INNER + 2, OUTER - 2, OUTER - 1, OUTER, OUTER + 1] {
            it.set_stack(at, copied[at] ^ 8);
            assert_eq!(it.chain(&mut v8, 0, &copied), [""; 0], "{version:?} {at}");
            it.set_stack(at, copied[at]);
            assert_eq!(it.chain(&mut v8, 0, &copied), ["one"], "{version:?} {at}");
        }
        // Blocks have contexts of their own.
        it.set_stack(INNER - 1, copied[INNER - 1] ^ 8);
        assert_eq!(it.chain(&mut v8, 0, &copied), ["one"]);
        // Further out another function was resumed.
        let outer = it.executed(it.program.told, it.promise(&[Awaits("other")]));
        let (resumer, context) = it.resumer(outer);
        let (inner, outer) = (INNER + 24, OUTER + 24);
        for (at, word) in (inner - 5..).zip(&copied[INNER - 5..=INNER + 2]) {
            it.set_stack(at, *word);
        }
        it.set_stack(OUTER, it.stack + 8 * inner as u64);
        it.set_stack(OUTER + 1, TRAMPOLINE);
        it.set_stack(inner, it.stack + 8 * outer as u64);
        for (at, word) in [(outer - 2, resumer), (outer - 1, context), (outer, it.stack + 8 * 62)] {
            it.set_stack(at, word);
        }
        let other = it.copy();
        assert_eq!(it.chain(&mut v8, 0, &other), ["one"]);
        it.walk_frames(&mut v8, &other, it.stack + 8 * (OUTER as u64 + 2), inner);
        assert_eq!(names(&mut v8), [""; 0]);
        v8.begin_at(0, Ns::MAX, false);
        it.walk_frames(&mut v8, &other, it.stack + 8 * (OUTER as u64 + 2), inner);
        assert_eq!(names(&mut v8), ["other"], "alone it has a chain");
        // A frame that has not called the one before it.
        v8.begin_at(0, Ns::MAX, false);
        let mut word = |at: u64| other.get((at.checked_sub(it.stack)? / 8) as usize).copied();
        let (sp, rbp) = (it.stack + 8 * (INNER as u64 + 2), Some(it.stack + 8 * outer as u64));
        let place = Place { pc: RESUMER, exact: false, sp, rbp, general: None };
        v8.leave_frame(place, &mut word, &mut Vec::new());
        assert_eq!(names(&mut v8), [""; 0]);
        assert_eq!(it.chain(&mut v8, 0, &other), ["one"], "the next stack");
    }
}

#[test]
fn a_chain_is_read_once_and_then_compared() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one"), Awaits("two")]);
        let (copied, mut v8) = (it.copy(), reader(&it.program));
        let reads = |v8: &mut V8<&World>, expected: &[&str]| {
            it.program.world.reads.set(0);
            assert_eq!(it.chain(v8, 0, &copied), expected);
            it.program.world.reads.get()
        };
        let first_time = reads(&mut v8, &["one", "two"]);
        assert!(reads(&mut v8, &["one", "two"]) < first_time, "{version:?}: {first_time}");
        // Each word of the way counts.
        let first = it.object_of_first();
        it.set(it.word(first, 80), 32, small(1));
        reads(&mut v8, &["one"]);
        it.set(first, 24, it.function("other"));
        reads(&mut v8, &["other"]);
        it.set(it.promise, 24, 0);
        reads(&mut v8, &[]);
    }
}

#[test]
fn a_chain_has_an_end() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one"), Awaits("two")]);
        let (first, mut v8) = (it.object_of_first(), reader(&it.program));
        let copied = it.copy();
        // It awaits itself.
        it.set(first, 80, it.promise);
        let chain = it.chain(&mut v8, 0, &copied);
        assert_eq!(chain, [&["one"; 16][..], &["…"]].concat(), "{version:?}");
        // It is said where there are more.
        for (awaiting, expected) in [(16, ""), (17, "…"), (20, "…")] {
            let it = Awaited::new(version, &vec![Awaits("one"); awaiting]);
            let (taken, mut v8) = (it.taken(), reader(&it.program));
            let expected = [&["one"; 16][..], &[expected]].concat();
            let expected: Vec<&str> = expected.into_iter().filter(|it| !it.is_empty()).collect();
            assert_eq!(it.chain(&mut v8, 0, &it.copy()), expected, "{version:?} {awaiting}");
            assert_eq!(it.chain(&mut v8, 0, &it.copy()), expected, "it is remembered");
            assert_eq!(it.taken_chain(&mut v8, &taken), expected);
        }
        let it = Awaited::new(version, &[Calls { program: false, capability: false }]);
        let reaction = it.word(it.promise, 24);
        let next = it.program.layout.awaiting.as_ref().expect("it is known").next_reaction;
        it.set(reaction, next + 24, it.promise);
        it.program.world.reads.set(0);
        assert_eq!(it.awaiting(), [""; 0]);
        assert!(it.program.world.reads.get() < 300, "{}", it.program.world.reads.get());
    }
}

/// At each read the collector may have moved everything, and the program have put other objects
/// of the same shape in the same places.
#[test]
fn a_collection_while_it_is_read_gives_no_wrong_chain() {
    for version in VERSIONS {
        let (mut right, mut none) = (0, 0);
        for when in 1..400 {
            let way = [Awaits("one"), Settles { number: OF_ALL, capability: true }, Awaits("two")];
            let it = Awaited::new(version, &way);
            let world = &it.program.world;
            let used = world.used.get();
            // Objects of this program begin behind its stack.
            let from = ((it.stack - HEAP) / 8) as usize + STACK_WORDS;
            let other = Awaited::new(
                version,
                &[Awaits("wrong"), Settles { number: OF_ALL, capability: true }, Awaits("bad")],
            );
            let shift = 8 * (used - from) as u64;
            let moved = |word: u64| match word.checked_sub(HEAP + 8 * from as u64) {
                Some(at) if at < shift && word % 4 == 1 => word + shift,
                _ => word,
            };
            let words = world.words.borrow().clone();
            let mut changes = Vec::new();
            let others = other.program.world.words.borrow();
            for (at, word) in (from..).zip(&words[from..used]) {
                changes.push((at + used - from, moved(*word)));
                changes.push((at, others[at]));
            }
            // Of what the stack refers to the new addresses are known.
            for object in [it.resumer, it.context, it.undefined] {
                changes.push((((object - 1 - HEAP) / 8) as usize, moved(object) - 1));
            }
            for at in 0..STACK_WORDS {
                let word = words[((it.stack - HEAP) / 8) as usize + at];
                changes.push((((it.stack - HEAP) / 8) as usize + at, moved(word)));
            }
            let (copied, mut v8) = (it.copy(), reader(&it.program));
            *world.changes.borrow_mut() = (when, changes);
            world.reads.set(0);
            let found = it.chain(&mut v8, 0, &copied);
            let is_done = world.reads.get() < when;
            match found.len() {
                0 => none += 1,
                _ => {
                    assert_eq!(found, ["one", "two"], "{version:?} {when}");
                    right += 1;
                }
            }
            if is_done {
                break;
            }
        }
        assert!(right > 1 && none > 0, "{version:?}: {right} and {none}");
    }
}

/// At each read the function may have returned, and what awaited it be settled.
#[test]
fn a_function_that_returns_while_it_is_read_gives_no_wrong_chain() {
    for version in VERSIONS {
        let (mut right, mut none) = (0, 0);
        for when in 1..200 {
            // A page is read once. What awaits has pages of its own.
            let it = Awaited::apart(version, &[Awaits("one")], 512);
            let world = &it.program.world;
            let wrong = it.follows(Awaits("wrong"), it.promise(&[]));
            let (copied, mut v8) = (it.copy(), reader(&it.program));
            let place = |object: u64, offset: u64| ((object - 1 + offset - HEAP) / 8) as usize;
            let changes = vec![
                (place(it.promise, 24), wrong),
                (place(it.stack + 1, 8 * (OUTER as u64 + 1)), 0x1234_5678 + 4),
            ];
            *world.changes.borrow_mut() = (when, changes);
            world.reads.set(0);
            let found = it.chain(&mut v8, 0, &copied);
            match found.len() {
                0 => none += 1,
                _ => {
                    assert_eq!(found, ["one"], "{version:?} {when}");
                    right += 1;
                }
            }
            if world.reads.get() < when {
                break;
            }
        }
        assert!(right > 0 && none > 0, "{version:?}: {right} and {none}");
    }
}

/// Whatever a word of memory or of the stack is, there is a chain or none, with bounded work.
#[test]
fn every_word_of_a_chain_may_be_anything() {
    for version in [(11, 3), (14, 6)] {
        let way = [
            Awaits("one"),
            Settles { number: OF_ALL, capability: true },
            Yields("two", 0),
            Calls { program: true, capability: true },
            Awaits("three"),
        ];
        let it = Awaited::new(version, &way);
        let world = &it.program.world;
        let from = ((it.stack - HEAP) / 8) as usize;
        for at in from..world.used.get() {
            let word = world.words.borrow()[at];
            for other in [0, 1, 3, u64::MAX, HEAP + 1, word ^ 8, word | 1 << 62, small(0x7fff_ffff)]
            {
                world.words.borrow_mut()[at] = other;
                world.reads.set(0);
                let mut v8 = reader(&it.program);
                v8.begin_at(0, Ns::MAX, false);
                let copied = it.copy();
                let mut word =
                    |at: u64| copied.get((at.checked_sub(it.stack)? / 8) as usize).copied();
                let link = it.stack + 8 * OUTER as u64;
                for (pc, sp, rbp) in [
                    (TRAMPOLINE, it.stack, it.stack + 8 * INNER as u64),
                    (RESUMER, it.stack + 8 * (INNER as u64 + 2), link),
                ] {
                    let place = Place { pc, exact: false, sp, rbp: Some(rbp), general: None };
                    v8.leave_frame(place, &mut word, &mut Vec::new());
                }
                v8.await_chain(None);
                assert!(world.reads.get() < 1000, "{} reads", world.reads.get());
            }
            world.words.borrow_mut()[at] = word;
        }
    }
}
