//! Pairs of turns on a saturated machine: one unwatched, one watched, in an order that alternates.
//! Where no core is idle, the target loses the watcher's CPU time, and what its wake-ups disturb.
//! Throughput is the product of the CPU time that the target gets, whose ratio has little noise,
//! and of what it does with it, whose ratio has the noise of the machine.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::TURN;
use crate::common::arguments::Program;
use crate::common::figures::with_error;
use crate::common::targets::{Pace, Target};
use crate::common::watcher::{Recording, Usage};

/// From the end of a watched turn to an unwatched one.
const PAUSE: Duration = Duration::from_millis(300);
/// From the start of sampletop to its turn: on busy cores it takes that long to load its programs
/// and the target's symbols.
const ATTACHED: Duration = Duration::from_millis(1500);

/// Ratios of the watched turns to the unwatched ones, and own CPU time, for one watcher.
#[derive(Default)]
struct Ratios {
    per_second: Vec<f64>,
    per_cpu_second: Vec<f64>,
    cores: Vec<f64>,
    /// Percent of a core.
    own: Vec<f64>,
}

/// Measures pairs for each backend and program, in turn. Prints each pair, so that several runs can
/// be put together, and then the medians.
pub fn run(kind: &str, pairs: usize, backends: &[&str], programs: &[Program], scratch: &Path) {
    let Some(mut target) = Target::start(scratch, kind, "") else { return };
    let watchers: Vec<(&str, &Program)> = backends
        .iter()
        .flat_map(|backend| programs.iter().map(move |program| (*backend, program)))
        .collect();
    let mut ratios: Vec<Ratios> = watchers.iter().map(|_| Ratios::default()).collect();
    println!("\n{kind}, pairs: throughput, operations per CPU second, CPU time, own CPU time");
    for pair in 0..pairs {
        for ((backend, program), ratios) in watchers.iter().zip(&mut ratios) {
            let unwatched_first = pair % 2 == 0;
            let before = unwatched_first.then(|| unwatched(&mut target));
            let (with, own) = watched(&mut target, backend, program, scratch);
            let without = before.unwrap_or_else(|| unwatched(&mut target));
            let ratio = |figure: fn(&Pace) -> f64| figure(&with) / figure(&without);
            let throughput = ratio(|pace| pace.per_second);
            let cost = ratio(|pace| pace.per_cpu_second);
            let cores = ratio(|pace| pace.cores);
            ratios.per_second.push(throughput);
            ratios.per_cpu_second.push(cost);
            ratios.cores.push(cores);
            ratios.own.push(own);
            println!("{backend}{}: {throughput:.3} {cost:.3} {cores:.4} {own:.2} %", program.label);
        }
    }
    println!(
        "\n{kind}: median of {pairs} pairs +- standard error of the mean (lowest .. highest)\n\n\
         | watcher | throughput | operations per CPU second | CPU time | own CPU, % of a core |\n\
         |---|---|---|---|---|"
    );
    for ((backend, program), ratios) in watchers.iter().zip(&ratios) {
        println!(
            "| `{backend}`{} | {} | {} | {} | {} |",
            program.label,
            with_error(&ratios.per_second, 3),
            with_error(&ratios.per_cpu_second, 3),
            with_error(&ratios.cores, 4),
            with_error(&ratios.own, 2)
        );
    }
}

fn unwatched(target: &mut Target) -> Pace {
    sleep(PAUSE);
    let before = target.read();
    sleep(TURN);
    target.read().pace_since(&before)
}

/// Returns what the target gets done, and the percent of a core that sampletop uses.
fn watched(target: &mut Target, backend: &str, program: &Program, scratch: &Path) -> (Pace, f64) {
    let options = ["-i", "10ms", "--capture", backend];
    let recording = Recording::start(program, target.pid(), &options, &scratch.join("out.folded"));
    sleep(ATTACHED);
    let before = target.read();
    let usage = Usage::of(recording.pid(), TURN);
    let pace = target.read().pace_since(&before);
    recording.finish();
    (pace, usage.of_all().percent)
}
