//! Chains through objects that the kernel took with the stack; the program runs on since.

use super::*;

/// Ways from one function to the next, and the functions.
fn ways() -> [(Vec<Then>, &'static [&'static str]); 6] {
    let all = Settles { number: OF_ALL, capability: true };
    let resolves = Settles { number: RESOLVES, capability: false };
    let rejects = Settles { number: REJECTS, capability: false };
    let calls = Calls { program: true, capability: true };
    [
        (vec![Awaits("one"), Awaits("two")], &["one", "two"]),
        (vec![Yields("one", 0), all, Awaits("two")], &["one", "two"]),
        (vec![Direct("one"), resolves, Direct("two")], &["one", "two"]),
        (vec![calls, Awaits("one"), calls], &["one"]),
        (vec![Awaits("one"), rejects, Awaits("two")], &["one"]),
        (vec![], &[""; 0]),
    ]
}

#[test]
fn a_chain_is_that_of_the_instant_at_which_it_was_taken() {
    for version in VERSIONS {
        for (way, expected) in ways() {
            let it = Awaited::new(version, &way);
            let (copied, taken) = (it.copy(), it.taken());
            let mut v8 = reader(&it.program);
            assert_eq!(it.chain(&mut v8, 0, &copied), expected, "{version:?} {way:?}: live");
            // It has returned: other frames are on the stack, and its objects are others.
            let awaiting = it.program.layout.awaiting.clone().expect("it is known");
            let (types, [first, last]) = (awaiting.types, awaiting.contexts);
            let is_gone = |kind: u16| {
                [types.function, types.generator, types.promise, types.reaction].contains(&kind)
                    || (first..=last).contains(&kind)
            };
            for object in taken.objects.iter().filter(|object| is_gone(object.kind)) {
                (0..5).for_each(|nth| it.set(object.at + 1, 8 * nth, small(9)));
            }
            (0..STACK_WORDS).for_each(|at| it.set_stack(at, 0));
            it.walk(&mut v8, 0, &copied);
            assert_eq!(names_of(&mut v8, Some(&taken)), expected, "{version:?} {way:?}");
            it.walk(&mut v8, 0, &copied);
            assert_eq!(names(&mut v8), [""; 0], "it is gone");
        }
    }
}

#[test]
fn what_was_taken_proves_a_chain_or_there_is_none() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one"), Awaits("two")]);
        let taken = it.taken();
        // Nothing can be read beside what was taken.
        let gone = |it: &Awaited| it.set(it.context, 0, 0);
        let mut v8 = reader(&it.program);
        assert_eq!(it.taken_chain(&mut v8, &taken), ["one", "two"]);
        gone(&it);
        assert_eq!(it.taken_chain(&mut v8, &taken), ["one", "two"]);
        let other = TakenObjects { outer: taken.outer + 8, ..taken.clone() };
        assert_eq!(it.taken_chain(&mut v8, &other), [""; 0], "of another frame");
        // Of the way each object is needed, and its type.
        let needed = [it.resumer, it.context, it.resumed, it.promise, it.object_of_first()];
        for at in needed.map(|object| object - 1) {
            let mut without = taken.clone();
            without.objects.retain(|object| object.at != at);
            assert_eq!(it.taken_chain(&mut v8, &without), [""; 0], "{version:?}");
            let mut other = taken.clone();
            let object = other.objects.iter_mut().find(|object| object.at == at);
            object.expect("it was taken").kind = 1;
            assert_eq!(it.taken_chain(&mut v8, &other), [""; 0], "{version:?}");
        }
        // There was no room for what leads to the second function, or to the first one.
        let second = it.word(it.word(it.object_of_first(), 80), 24);
        let reaction = it.word(it.promise, 24);
        for (missing, expected) in [(second, &["one", "…"][..]), (reaction, &["…"])] {
            let mut cut = TakenObjects { is_full: true, ..taken.clone() };
            cut.objects.retain(|object| object.at != missing - 1);
            assert_eq!(it.taken_chain(&mut v8, &cut), expected, "{version:?}");
            cut.is_full = false;
            assert_eq!(it.taken_chain(&mut v8, &cut), [""; 0], "{version:?}");
        }
        // The frame is another function's.
        let mut other = taken.clone();
        let resumed = other.objects.iter_mut().find(|object| object.at == it.resumed - 1);
        resumed.expect("it was taken").words[3] = it.function("other");
        assert_eq!(it.taken_chain(&mut v8, &other), [""; 0]);
    }
}

#[test]
fn objects_that_move_meanwhile_are_the_same() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one")]);
        let mut v8 = reader(&it.program);
        assert_eq!(it.chain(&mut v8, 0, &it.copy()), ["one"]);
        // The frames have the new addresses already, other objects have the old ones.
        let moved = |object: u64| {
            let to = it.object(&it.words(object));
            it.set(object, 0, to - 1);
            to
        };
        let (function, context) = (moved(it.program.told), moved(it.context));
        it.set_stack(INNER - 2, function);
        it.set_stack(OUTER - 1, context);
        let mut taken = it.taken();
        assert_eq!(it.taken_chain(&mut v8, &taken), ["one"], "{version:?}");
        // Others at the same addresses.
        for at in [it.program.told, it.context].map(|object| object - 1) {
            let object = taken.objects.iter_mut().find(|object| object.at == at);
            let object = object.expect("it was taken");
            let now = std::mem::replace(&mut object.now, at);
            assert_eq!(it.taken_chain(&mut v8, &taken), [""; 0], "{version:?}");
            taken.objects.iter_mut().find(|it| it.at == at).expect("it is there").now = now;
        }
    }
}

#[test]
fn the_kernel_is_told_where_functions_are_resumed_once_that_is_proven() {
    for version in VERSIONS {
        let it = Awaited::new(version, &[Awaits("one")]);
        let mut v8 = reader(&it.program);
        let (state, taken) = (it.word(it.resumed, 0), it.taken());
        assert_eq!(v8.chains.wanted(), None);
        it.set(it.resumed, 0, it.map("Script__SCRIPT"));
        it.walk(&mut v8, 0, &it.copy());
        assert_eq!(v8.chains.wanted(), None, "it does not lead to a function");
        it.set(it.resumed, 0, state);
        for _ in 0..2 {
            it.walk(&mut v8, 0, &it.copy());
            assert_eq!(v8.chains.wanted().expect("it is proven").returns, [RESUMER]);
        }
        let wanted = v8.chains.wanted().expect("it is proven").clone();
        let awaiting = it.program.layout.awaiting.as_ref().expect("it is known");
        assert_eq!((wanted.types, wanted.instance_type), (awaiting.types, 12));
        assert_eq!(8 * wanted.context, awaiting.context);
        assert_eq!(8 * wanted.shared, it.program.layout.shared);
        assert_eq!(8 * wanted.next_reaction, awaiting.next_reaction);
        assert_eq!((wanted.data, wanted.resolve), (it.program.layout.data, RESOLVES));
        // Of a V8 with other numbers that one is not known.
        let mut other = it.program.layout.clone();
        other.awaiting.as_mut().expect("it is known").resolve = (601, 41);
        let mut chains = await_chain::Chains::new(&other, 600);
        assert_eq!(chains.wanted(), None);
        chains.begin();
        // What is proven need not be there again.
        it.set(it.context, 0, 0);
        assert_eq!(it.taken_chain(&mut v8, &taken), ["one"]);
        let mut another = reader(&it.program);
        assert_eq!(it.taken_chain(&mut another, &taken), [""; 0], "not proven");
    }
}

/// Workers end, and their built-in code with them.
#[test]
fn the_newest_places_where_functions_are_resumed_count() {
    let it = Awaited::new((14, 6), &[Awaits("one")]);
    let mut v8 = reader(&it.program);
    let place = |nth: u64| BUILTINS + 64 * (20 + nth) + 12;
    for nth in 0..300 {
        it.set_stack(INNER + 1, place(nth));
        it.walk(&mut v8, 0, &it.copy());
    }
    let newest: Vec<u64> = (44..300).map(place).collect();
    assert_eq!(v8.chains.wanted().expect("some are proven").returns, newest);
}

/// Whatever was taken, there is a chain or none.
#[test]
fn every_word_that_was_taken_may_be_anything() {
    for version in [(11, 3), (14, 6)] {
        let all = Settles { number: OF_ALL, capability: true };
        let it = Awaited::new(version, &[Awaits("one"), all, Yields("two", 0), Awaits("three")]);
        let (taken, mut v8) = (it.taken(), reader(&it.program));
        for object in 0..taken.objects.len() {
            for nth in 0..taken.objects[object].words.len() {
                let word = taken.objects[object].words[nth];
                for other in [0, 1, 3, u64::MAX, HEAP + 1, word ^ 8, word | 1 << 62, small(7)] {
                    let mut taken = taken.clone();
                    taken.objects[object].words[nth] = other;
                    it.program.world.reads.set(0);
                    it.taken_chain(&mut v8, &taken);
                    let reads = it.program.world.reads.get();
                    assert!(reads < 1000, "{reads} reads");
                }
            }
        }
    }
}
