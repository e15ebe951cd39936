use proptest::prelude::*;

use super::*;
use crate::model::vocabulary::frame::FrameCode;

fn python(id: u64) -> RawFrame {
    RawFrame::new(FrameCode::Runtime { id })
}

fn kernel(address: u64) -> RawFrame {
    RawFrame::new(FrameCode::Kernel { address: 0xffff_ffff_8000_0000 | address })
}

const WHOLE: Walk = Walk { end: None, recovered: false };

fn ends(end: Marker) -> Walk {
    Walk { end: Some(end), recovered: false }
}

/// Makes evaluations of these sizes; frames count on from 0.
fn evaluations(sizes: &[usize], end: Option<Marker>) -> Evaluations {
    let ends: Vec<usize> = sizes
        .iter()
        .scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        })
        .collect();
    let count = ends.last().copied().unwrap_or(0);
    let frames = (0..count as u64).map(python).collect();
    Evaluations { frames, ends, end, ..Evaluations::default() }
}

/// Places evaluations in a native stack of `native` letters; `e` evaluates. Returns letters, too:
/// `0` to `9` are the interpreter's frames, `!` is a marker. Frames `x` exchange stacks.
fn placed(native: &str, evaluations: Evaluations, walk: Walk) -> (String, Walk) {
    let before = kernel(7);
    let mut out = vec![before];
    let mut at = Vec::new();
    for (index, letter) in native.chars().enumerate() {
        if letter == 'e' {
            at.push(index);
        }
        out.push(match letter {
            '!' => RawFrame::marker(walk.end.expect("a marker")),
            letter => kernel(u64::from(u32::from(letter))),
        });
    }
    let exchanges = |frame: RawFrame| frame == kernel(u64::from(u32::from('x')));
    let walk = place(&at, evaluations, walk, 1, exchanges, &mut out);
    assert_eq!(out.remove(0), before, "what was there before stays");
    let letter = |frame: &RawFrame| match frame.decode() {
        FrameCode::Runtime { id } => char::from_digit(id as u32 % 10, 10).unwrap_or('?'),
        FrameCode::Kernel { address } => char::from(address as u8),
        FrameCode::Marker { marker: Marker::NotPlaced, .. } => '~',
        FrameCode::Marker { marker: Marker::NotCopied, .. } => '.',
        _ => '!',
    };
    (out.iter().map(letter).collect(), walk)
}

#[test]
fn evaluations_stand_in_the_places_of_their_native_frames() {
    let stack = placed("abecdef", evaluations(&[2, 3], None), WHOLE);
    assert_eq!(stack, ("ab01cd234f".into(), WHOLE));
    assert_eq!(placed("ab", evaluations(&[], None), WHOLE).0, "ab", "a thread without any");
    assert_eq!(placed("aeb", evaluations(&[0], None), WHOLE).0, "ab", "it has just begun");
}

#[test]
fn one_that_has_no_frame_yet_is_the_innermost() {
    assert_eq!(placed("eaebe", evaluations(&[1, 1], None), WHOLE).0, "a0b1");
    // Where the native stack is cut, the evaluation may be missing at either end.
    let (stack, walk) = placed("eaebe!", evaluations(&[1, 1], None), ends(Marker::BadUnwind));
    assert_eq!((stack.as_str(), walk.end), ("01~!", Some(Marker::BadUnwind)));
}

#[test]
fn the_stack_of_a_coroutine_ends_in_the_library_that_started_it() {
    let placed = |native: &str, sizes: &[usize]| placed(native, evaluations(sizes, None), WHOLE).0;
    // `e` further out is of who started it.
    assert_eq!(placed("aebexxcedxef", &[2, 1]), "a01b2xxf");
    assert_eq!(placed("aexxcef", &[3]), "a012xxf", "and not one evaluation that has just begun");
    assert_eq!(placed("eaexxcef", &[1]), "a0xxf", "one has just begun");
    assert_eq!(placed("xxaexef", &[1]), "xxa0xf", "it is about to exchange the stack");
    assert_eq!(placed("eaexxcf", &[1]), "a0xxcf", "the thread began in the library");
    // The library calls the coroutine's own functions (those that trace it).
    assert_eq!(placed("aexbexxcef", &[1, 1]), "a0xb1xxf");
    assert_eq!(placed("exaebexxcef", &[1, 1]), "xa0b1xxf", "one has just begun");
    // Where the interpreter goes on with who started it, all are in their places.
    assert_eq!(placed("aexbec", &[1, 1]), "a0xb1c");
    assert_eq!(placed("aexxcexxceedf", &[1]), "a0xxdf", "one that another one has started");
    assert_eq!(placed("aexxcexdxf", &[1]), "a0xxf", "the outermost runs none of its functions");
    // One whose function is native.
    assert_eq!(placed("zxxcef", &[]), "zxxf");
    assert_eq!(placed("zbxxf", &[]), "zbxxf");
    // It is about to exchange the stack, and the interpreter's frames are linked otherwise.
    assert_eq!(placed("xxaebec", &[1]), "xxa0~c");
    assert_eq!(placed("xaebexxcef", &[1]), "xa0~f");
    // Numbers that do not fit.
    assert_eq!(placed("aebecexf", &[1]), "a0~xf");
    assert_eq!(placed("aexbecedf", &[1, 1]), "a01~df");
}

#[test]
fn a_coroutine_is_whole_where_the_stack_is_cut_further_out() {
    let placed = |native: &str, sizes: &[usize]| {
        placed(native, evaluations(sizes, None), ends(Marker::Truncated))
    };
    let recovered = Walk { end: None, recovered: true };
    assert_eq!(placed("aebexxce!", &[2, 1]), ("a01b2xx".into(), recovered));
    // Further out the thread may have any stack, also none of an interpreter.
    assert_eq!(placed("aebexxg!", &[2, 1]), ("a01b2xx".into(), recovered));
    assert_eq!(placed("eaebexxg!", &[2, 1]), ("a01b2xx".into(), recovered), "one has just begun");
    assert_eq!(placed("aexbexxg!", &[2, 1]), ("a01xb2xx".into(), recovered));
    // The library has not started it.
    let (stack, walk) = placed("aebeg!", &[2, 1]);
    assert_eq!((stack.as_str(), walk.end), ("a01b2g.", None));
    // It is cut further in.
    assert_eq!(placed("aeb!", &[2, 1]).0, "a01b.2");
}

#[test]
fn the_program_s_functions_are_known_where_the_native_stack_is_cut() {
    let (stack, walk) = placed("aeb!", evaluations(&[1, 2, 1], None), ends(Marker::Truncated));
    assert_eq!((stack.as_str(), walk), ("a0b.123", Walk { end: None, recovered: true }));
    // Cut behind all of them.
    let (stack, walk) = placed("aeb!", evaluations(&[2], None), ends(Marker::Truncated));
    assert_eq!((stack.as_str(), walk), ("a01b.", Walk { end: None, recovered: true }));
    // A failed walk stays one.
    let (stack, walk) = placed("aeb!", evaluations(&[1, 2], None), ends(Marker::BadUnwind));
    assert_eq!((stack.as_str(), walk.end), ("a0b!12", Some(Marker::BadUnwind)));
}

#[test]
fn where_the_interpreter_s_list_ends_a_marker_says_why() {
    let torn = |sizes: &[usize]| evaluations(sizes, Some(Marker::Torn));
    let (stack, walk) = placed("aebec", torn(&[2]), WHOLE);
    assert_eq!((stack.as_str(), walk.end), ("a01b!c", Some(Marker::Torn)));
    let (stack, walk) = placed("aebeced", torn(&[]), WHOLE);
    assert_eq!((stack.as_str(), walk.end), ("a!beced", Some(Marker::Torn)));
    // Cut before the first evaluation.
    let (stack, walk) = placed("ab!", torn(&[]), ends(Marker::Truncated));
    assert_eq!((stack.as_str(), walk.end), ("ab!", Some(Marker::Torn)));
    assert_eq!(placed("ab", torn(&[]), WHOLE), ("ab".into(), WHOLE), "it executes none");
    // What was read of the last evaluation is shown.
    let mut partial = torn(&[1]);
    partial.frames.push(python(7));
    assert_eq!(placed("aebec", partial, WHOLE).0, "a0b7!c");
}

#[test]
fn a_wait_for_the_interpreter_s_lock_stands_for_what_leads_to_it() {
    let waits = |sizes: &[usize]| Evaluations {
        waits: Some(kernel(u64::from(u32::from('W')))),
        ..evaluations(sizes, None)
    };
    assert_eq!(placed("abecedf", waits(&[1, 1]), WHOLE).0, "W0c1df");
    assert_eq!(placed("abececedf", waits(&[1]), WHOLE).0, "W0~df", "apart");
    assert_eq!(placed("abc", waits(&[]), WHOLE).0, "abc");
}

#[test]
fn a_task_stands_behind_all_frames_but_before_the_reason_of_an_end() {
    let task = |sizes: &[usize], end| Evaluations {
        task: Some(kernel(u64::from(u32::from('T')))),
        ..evaluations(sizes, end)
    };
    assert_eq!(placed("aebec", task(&[1, 1], None), WHOLE), ("a0b1cT".into(), WHOLE));
    assert_eq!(placed("aebecedf", task(&[1], None), WHOLE).0, "a0~dfT", "apart");
    let bad = ends(Marker::BadUnwind);
    assert_eq!(placed("aebe!", task(&[1, 1], None), bad), ("a0b1T!".into(), bad));
    let cut = ends(Marker::Truncated);
    assert_eq!(placed("aeb!", task(&[1, 1], None), cut).0, "a0b.1T", "all of Python is known");
    let torn = Some(Marker::Torn);
    assert_eq!(placed("aebec", task(&[1], torn), WHOLE).0, "a0b!cT", "the end is in between");
    assert_eq!(placed("ab", task(&[], None), WHOLE).0, "abT");
    let mut alone = vec![python(1), RawFrame::marker(Marker::Torn)];
    place_task(Some(python(2)), ends(Marker::Torn), &mut alone);
    assert_eq!(alone, [python(1), python(2), RawFrame::marker(Marker::Torn)]);
    place_task(None, WHOLE, &mut alone);
    assert_eq!(alone.len(), 3);
}

#[test]
fn what_does_not_fit_says_so() {
    let (stack, walk) = placed("aebecedf", evaluations(&[1], None), WHOLE);
    assert_eq!((stack.as_str(), walk), ("a0~df", WHOLE));
    assert_eq!(placed("aeb", evaluations(&[1, 1, 1], None), WHOLE).0, "a012~b");
    assert_eq!(placed("ab", evaluations(&[1, 1], None), WHOLE).0, "01~ab");
}

proptest! {
    #[test]
    fn no_frame_of_the_interpreter_is_lost_or_moved(
        native in "[abe]{0,20}",
        sizes in prop::collection::vec(0usize..4, 0..6),
        cut in any::<bool>(),
        torn in any::<bool>(),
    ) {
        let end = torn.then_some(Marker::Torn);
        let walk = if cut { ends(Marker::BadUnwind) } else { WHOLE };
        let native = if cut { format!("{native}!") } else { native };
        let given = evaluations(&sizes, end);
        let count = given.frames.len();
        let native_evaluations = native.matches('e').count();
        let (stack, walk_after) = placed(&native, given, walk);
        let own: String = stack.chars().filter(char::is_ascii_digit).collect();
        let expected: String =
            (0..count).filter_map(|id| char::from_digit(id as u32 % 10, 10)).collect();
        prop_assert_eq!(own, expected);
        // The innermost native code stays on top.
        let leaf: String = native.chars().take_while(|letter| "ab".contains(*letter)).collect();
        if native_evaluations > 0 {
            prop_assert!(stack.starts_with(&leaf), "{} {}", stack, leaf);
        }
        // A failed walk does not become a good one.
        prop_assert!(!cut || walk_after.end.is_some());
    }
}
