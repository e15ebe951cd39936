use proptest::prelude::*;

use super::*;
use crate::formats::fixture::{self, Stack, ran, service, stack, waited};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::state::State;

fn written(stacks: &[Stack], settings: &Settings) -> String {
    let mut out = Vec::new();
    render(&fixture::projection(stacks), settings, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// Parses a line as flame graph tools do: the last blank separates stack and value, `;` the frames.
/// A second number before the value would mean a difference of two profiles.
fn parsed(line: &str) -> (Vec<String>, u64) {
    let (stack, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("no whole number: {line}"));
    assert!(!line.starts_with("# "), "a comment: {line}");
    if let Some((_, last)) = stack.rsplit_once(' ') {
        assert!(
            last.parse::<f64>().is_err() || !last.starts_with(|c: char| c.is_ascii_digit()),
            "a second value: {line}"
        );
    }
    let frames: Vec<String> = stack.split(';').map(str::to_owned).collect();
    assert!(frames.iter().all(|f| !f.trim().is_empty()), "an empty frame: {line}");
    (frames, value)
}

#[test]
fn one_line_per_stack_in_microseconds() {
    let text = written(&service(), &Settings::default());
    let expected = "worker-;start;run;checkout;query 6000000
worker-;start;run;checkout;price 400000
worker-;start;run;checkout;price;round 2500000
worker-;start;run;checkout;tax 60000
worker-;start;run;audit;lock 1000000
main;main;accept 40000
";
    assert_eq!(text, expected);
}

#[test]
fn the_metric_is_the_value() {
    let cpu = written(&service(), &Settings { metric: Metric::Cpu, ..Settings::default() });
    assert_eq!(cpu.lines().count(), 3, "{cpu}");
    let off = written(&service(), &Settings { metric: Metric::Off, ..Settings::default() });
    assert!(off.contains("query 6000000") && !off.contains("round"), "{off}");
}

#[test]
fn lines_are_part_of_the_name_when_rows_are_lines() {
    let settings = Settings { roll_up: RollUp::Line, ..Settings::default() };
    assert_eq!(written(&[stack("g", &["a", "b"], ran(1, 1))], &settings), "g;a:7;b:7 1000\n");
}

#[test]
fn names_that_look_like_grammar_are_defused() {
    let own = || waited(State::Io, 1, 1, 1);
    let stacks = [
        stack("", &["  ", "line\nbreak\ttab 3.5"], own()),
        stack("a;b", &["x;y", "operator new[] 12"], own()),
        stack("g 7", &[], own()),
        stack("h", &["f 7", "g"], own()),
        stack("# no comment", &["f"], own()),
    ];
    let expected = "(unnamed);(unnamed);line break tab_3.5 1000
#_no comment;f 1000
a:b;x:y;operator new[]_12 1000
g 7;[every frame hidden] 1000
h;f 7;g 1000
";
    assert_eq!(written(&stacks, &Settings::default()), expected);
}

#[test]
fn a_stack_of_no_weight_has_no_line() {
    let mut own = ran(0, 1);
    own.wall_ns = 499;
    assert_eq!(written(&[stack("g", &["a"], own)], &Settings::default()), "");
    own.wall_ns = 500;
    assert_eq!(written(&[stack("g", &["a"], own)], &Settings::default()), "g;a 1\n");
}

proptest! {
    #[test]
    fn any_names_give_lines_that_tools_read(
        stacks in proptest::collection::vec((".{0,9}", proptest::collection::vec(".{0,12}|[ 0-9.;]{0,6}", 0..6), 0..999_u64), 0..20)
    ) {
        let stacks: Vec<Stack> = stacks
            .into_iter()
            .map(|(group, frames, ms)| Stack { group, frames, own: ran(ms, 1) })
            .collect();
        let text = written(&stacks, &Settings::default());
        let mut sum = 0;
        for line in text.lines() {
            prop_assert!(!line.contains(|c: char| c.is_control()));
            sum += parsed(line).1;
        }
        prop_assert_eq!(sum, stacks.iter().map(|s| s.own.wall_ns).sum::<u64>() / 1000);
    }
}
