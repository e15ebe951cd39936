//! Sentences about functions that have most of the CPU time.

use super::locks::{MS, mine};
use super::*;
use crate::model::projection::findings::{Kind, Wording, findings};

#[test]
fn the_hottest_function_is_the_first_of_equals_and_has_its_node() {
    let mut world = World::new();
    for function in ["first", "second"] {
        let stack = format!("start;{function}");
        world.fact("w", &stack, State::Run, 50 * MS).cpu_hits = 10;
    }
    let snapshot = world.snapshot();
    let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
    let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    assert_eq!(found[0].text, "50 % of the CPU time is in first");
    let node = found[0].node.expect("its row");
    assert_eq!(&*projection.name(node).function, "first");
}

#[test]
fn a_function_with_much_of_the_time_is_told_with_what_it_calls() {
    let says = |facts: &[(&str, u64)]| {
        let mut world = World::new();
        for (stack, ms) in facts {
            world.fact("w", stack, State::Run, ms * MS).cpu_hits = 10;
        }
        let snapshot = world.snapshot();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
        let function = found.iter().find(|finding| finding.kind == Kind::Function)?;
        let node = function.node.expect("its row");
        Some((function.text.clone(), projection.name(node).function.to_string()))
    };
    let (own, called, other) = ("serve;rank", "serve;rank;compare", "serve");
    let ranks = |share| {
        let text = format!("{share} % of the CPU time is in rank and what it calls");
        Some((text, "rank".to_owned()))
    };
    assert_eq!(says(&[(own, 40), (called, 35), (other, 25)]), ranks(75));
    // The limits, and the share of either of them.
    assert_eq!(says(&[(own, 25), (called, 35), (other, 40)]), ranks(60));
    assert_eq!(says(&[(own, 24), (called, 36), (other, 40)]), None);
    assert_eq!(says(&[(own, 25), (called, 34), (other, 41)]), None);
    // The outermost function has nearly all of the time in any program.
    assert_eq!(says(&[("rank", 40), ("rank;compare", 35), ("rank;other", 25)]), None);
    // With half of it as self time a function is told alone.
    let alone = says(&[(own, 50), (called, 30), (other, 20)]).expect("a sentence").0;
    assert_eq!(alone, "50 % of the CPU time is in rank");
    // Of two the one with more self time.
    let two = [("serve;load;parse", 40), ("serve;load", 26), (other, 34)];
    assert_eq!(says(&two).expect("a sentence").1, "load");
}
