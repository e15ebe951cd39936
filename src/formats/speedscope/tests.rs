use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::formats::fixture::{self, Stack, ran, service, stack, waited};
use crate::model::vocabulary::state::State;

fn written(stacks: &[Stack], settings: &Settings) -> Value {
    let mut out = Vec::new();
    render(&fixture::snapshot(), settings, &fixture::projection(stacks), &mut out)
        .expect("memory takes everything");
    serde_json::from_slice(&out).expect("it is JSON")
}

/// Returns (stack as frame names, its time) in the file's order; fails where calls do not nest or
/// time goes back.
fn stacks(file: &Value, profile: usize) -> Vec<(String, u64)> {
    let frames: Vec<&str> = (file["shared"]["frames"].as_array().expect("frames").iter())
        .map(|frame| frame["name"].as_str().expect("a name"))
        .collect();
    let profile = &file["profiles"][profile];
    let (mut stack, mut found, mut before) = (Vec::new(), Vec::new(), 0);
    for event in profile["events"].as_array().expect("events") {
        let (frame, at) =
            (event["frame"].as_u64().expect("a frame"), event["at"].as_u64().expect("a time"));
        if at > before {
            let names: Vec<&str> = stack.iter().map(|frame| frames[*frame as usize]).collect();
            found.push((names.join(";"), at - before));
        }
        assert!(at >= before, "back in time");
        before = at;
        match event["type"].as_str() {
            Some("O") => stack.push(frame),
            _ => assert_eq!(stack.pop(), Some(frame), "another call ends"),
        }
    }
    assert_eq!((stack.len(), profile["endValue"].as_u64()), (0, Some(before)));
    found
}

#[test]
fn wall_and_cpu_are_two_profiles_of_the_same_frames_with_the_group_outermost() {
    let file = written(&service(), &Settings::default());
    let names: Vec<&str> = file["profiles"]
        .as_array()
        .expect("profiles")
        .iter()
        .map(|p| p["name"].as_str().expect("a name"))
        .collect();
    assert_eq!((names, &file["activeProfileIndex"]), (vec!["wall", "cpu"], &0.into()));
    let expected = [
        ("worker-;start;run;checkout;query", 6000),
        ("worker-;start;run;checkout;price;round", 2500),
        ("worker-;start;run;checkout;price", 400),
        ("worker-;start;run;checkout;tax", 60),
        ("worker-;start;run;audit;lock", 1000),
        ("main;main;accept", 40),
    ];
    let ms = |expected: &[(&str, u64)]| -> Vec<(String, u64)> {
        expected.iter().map(|(stack, ms)| ((*stack).to_owned(), ms * 1_000_000)).collect()
    };
    assert_eq!(stacks(&file, 0), ms(&expected));
    assert_eq!(stacks(&file, 1), ms(&expected[1..4]));
    let frame =
        file["shared"]["frames"].as_array().expect("frames").iter().find(|f| f["name"] == "query");
    let frame = frame.expect("the function's frame");
    assert_eq!((&frame["file"], &frame["line"]), (&"/src/app/main.c".into(), &7.into()));
}

#[test]
fn the_profile_that_is_asked_for_comes_up_first() {
    let cpu = written(&service(), &Settings { metric: Metric::Cpu, ..Settings::default() });
    assert_eq!(cpu["activeProfileIndex"], 1);
    let off = written(&service(), &Settings { metric: Metric::Off, ..Settings::default() });
    assert_eq!(
        (&off["activeProfileIndex"], &off["profiles"][2]["name"]),
        (&2.into(), &"off".into())
    );
    assert_eq!(stacks(&off, 2).iter().map(|(_, ns)| ns).sum::<u64>(), 7_040_000_000);
}

#[test]
fn nothing_is_a_profile_of_nothing() {
    let file = written(&[], &Settings::default());
    assert_eq!(file["profiles"][1]["endValue"], 0);
}

proptest! {
    #[test]
    fn calls_nest_and_no_time_is_lost(
        picks in proptest::collection::vec((0..3u8, proptest::collection::vec("[ab]|.{0,5}", 0..6), 0..99_u64, any::<bool>()), 0..20)
    ) {
        let all: Vec<Stack> = picks
            .iter()
            .map(|(group, frames, ms, on_cpu)| {
                let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
                let own = if *on_cpu { ran(*ms, 1) } else { waited(State::Io, *ms, 1, *ms) };
                stack(&group.to_string(), &frames, own)
            })
            .collect();
        let file = written(&all, &Settings::default());
        for (profile, metric) in [Metric::Wall, Metric::Cpu].into_iter().enumerate() {
            let mut wanted = std::collections::BTreeMap::new();
            for stack in &all {
                let frames = if stack.frames.is_empty() { FRAMELESS.to_owned() } else { stack.frames.join(";") };
                *wanted.entry(format!("{};{frames}", stack.group)).or_insert(0) += stack.own.value(metric);
            }
            wanted.retain(|_, ns| *ns > 0);
            let mut found = std::collections::BTreeMap::new();
            for (stack, ns) in stacks(&file, profile) {
                *found.entry(stack).or_insert(0) += ns;
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
