//! How soon work is observed after the target was idle for 3 s.
//!
//! `bursts.c` works for 100 ms in bursts, in another function each millisecond, and says nothing to
//! sampletop. The first of these functions that is in the profile tells when the first stack of the
//! burst was taken. So the figure is the time from the first instruction after the sleep to the
//! first stack, whoever takes it, kernel or sampler. How soon it is booked or drawn is not in it.

use std::collections::BTreeMap;
use std::io::Write;

use crate::common::arguments::Program;
use crate::common::figures::median;
use crate::common::running::Running;
use crate::common::targets::{Scratch, compile, has_tools};
use crate::common::watcher::{BACKENDS, Recording};

const BURSTS: usize = 5;

pub fn run(programs: &[Program]) {
    if !has_tools("first activity", &["cc"]) {
        return;
    }
    let scratch = Scratch::new("activity");
    let bursts = compile(&scratch.0, "startup/bursts.c", "bursts");
    println!(
        "| watcher | ms of work until the first stack | bursts without a stack |\n|---|---|---|"
    );
    for backend in BACKENDS {
        for program in programs {
            let mut target = Running::start(&bursts, &[]);
            let out = scratch.0.join("out.folded");
            let options = ["-i", "10ms", "--capture", backend];
            let recording = Recording::start(program, target.pid(), &options, &out);
            target.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it listens");
            let done = target.lines.next().expect("it ends").expect("text");
            assert_eq!(done, "done");
            recording.finish();
            let folded = std::fs::read_to_string(&out).expect("a profile");
            let delays = delays(&folded);
            let delays_of_all: Vec<f64> = delays.values().copied().collect();
            let figures = match delays_of_all.is_empty() {
                true => "none was seen".into(),
                false => median(&delays_of_all, 0),
            };
            println!("| `{backend}`{} | {figures} | {} |", program.label, BURSTS - delays.len());
        }
    }
}

/// Returns the first step of each burst that is in the profile, as the ms before its end.
fn delays(folded: &str) -> BTreeMap<u32, f64> {
    let mut delays = BTreeMap::new();
    for line in folded.lines() {
        let number = |prefix: &str| -> Option<u32> {
            line.split([';', ' ']).find_map(|frame| frame.strip_prefix(prefix)?.parse().ok())
        };
        if let (Some(burst), Some(step)) = (number("burst_"), number("step_")) {
            let delay = f64::from(step) + 1.0;
            let first = delays.entry(burst).or_insert(delay);
            *first = first.min(delay);
        }
    }
    delays
}
