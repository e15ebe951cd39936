//! Measures what sampletop itself uses while it samples: CPU time and wake-ups of its threads by
//! the kernel's figures, once it is attached. Run by hand on a quiet machine, as root, after `cargo
//! build --release`:
//!
//! ```text
//! cargo run --release --example cost [-- [ROUNDS] [BACKEND...] [MODE] [TARGET...]
//!     [--program PATH]...]
//! ```
//!
//! For each target and backend (all, if none is named) `sampletop record -i 10ms` is started three
//! times, in turn, without a limit on its overhead. From 2.5 s on, for 5 s, the benchmark takes the
//! run times of its threads: of the sampler, and of all threads as a part of one core. At 100 Hz,
//! 1 % is 100 us a tick. It prints the median of the turns (lowest .. highest). A target is named
//! by its kind, `idle`, or with its number of threads, `idle:2000`.
//!
//! `--program` names the sampletop that is measured, the one beside this benchmark if none is. If
//! there are several, each turn of one is followed by the same turn of the next.
//!
//! | mode | what is measured |
//! |---|---|
//! | `threads` | the same, and a table of the threads |
//! | `live` | the live view on a terminal of 120x40, for a minute from its first rows on |
//! | `ticks` | ticks in 20 s, with the default bound of 3 % and without; own CPU in the second half |
//! | `calls` | system calls of the sampler, by strace |
//!
//! On Python programs, py-spy has its turns too if it is in the PATH. `python:deep` is one of them.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod ticks;

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use common::arguments::{Arguments, Program};
use common::figures::median;
use common::targets::{Scratch, Target, has_tools, is_in_path};
use common::terminal::LiveView;
use common::watcher::{BACKENDS, Recording, Usage, print_threads};

const ATTACHED: Duration = Duration::from_millis(2500);
const TURN: Duration = Duration::from_secs(5);
const LIVE_TURN: Duration = Duration::from_secs(60);
const ROUNDS: usize = 3;
const MODES: [&str; 4] = ["threads", "live", "ticks", "calls"];
/// Rows and columns of the live view.
const TERMINAL: (u16, u16) = (40, 120);

const TARGETS: [(&str, &str, &str); 14] = [
    ("idle", "10", "10 threads, all wait"),
    ("idle", "500", "500 threads, all wait"),
    ("idle", "2000", "2,000 threads, all wait"),
    ("wake", "20", "20 threads, 1 of them active"),
    ("wake", "500", "500 threads, 25 of them active"),
    ("wake", "2000", "2,000 threads, 100 of them active"),
    ("work", "50", "50 threads, 4 of them busy"),
    ("many", "502", "500 threads that wait, 2 busy"),
    ("switch", "1", "pipe ping-pong"),
    // These run only if they are named.
    ("stir", "5000", "5,000 threads, five wake-ups a second each, 1 busy"),
    ("java", "200 8", "Java, 200 threads, 8 of them busy"),
    ("redis", "", "redis-server on busy cores"),
    ("python", "tight 20", "Python, 20 threads that wait, 1 busy"),
    ("python", "deep 98", "Python, 100 threads of 400 frames, 2 of them busy"),
];
/// Programs that watch Python too, and an option of each.
const SPIES: [&str; 2] = ["py-spy --full-filenames", "py-spy --nonblocking"];
/// Targets that run if none is named.
const COMMON: usize = 9;

fn main() {
    let mut arguments = Arguments::read();
    let rounds = arguments.take_number();
    let mut backends = arguments.take(&BACKENDS);
    let modes = arguments.take(&MODES);
    let known = |word: &String| TARGETS.iter().any(|target| is_named(target, word));
    if let Some(word) = arguments.words.iter().find(|word| !known(word)) {
        panic!("{word} is no backend, mode or target");
    }
    let mode = modes.first().copied();
    if backends.is_empty() {
        backends = BACKENDS.to_vec();
    }
    let strace = ["strace"];
    let tools: &[&str] = if mode == Some("calls") { &strace } else { &[] };
    if !has_tools("the number of system calls", tools) {
        return;
    }
    let scratch = Scratch::new("cost");
    match mode {
        Some("calls") => calls::print_head(),
        Some("ticks") => ticks::print_head(),
        _ => print_head(),
    }
    for (index, target) in TARGETS.iter().enumerate() {
        let (kind, threads, title) = *target;
        let is_wanted = match arguments.words.is_empty() {
            true => index < COMMON,
            false => arguments.words.iter().any(|word| is_named(target, word)),
        };
        let started = is_wanted.then(|| Target::start(&scratch.0, kind, threads)).flatten();
        let Some(target) = started else { continue };
        let (pid, programs) = (target.pid(), &arguments.programs);
        let each = || backends.iter().flat_map(|one| programs.iter().map(move |of| (*one, of)));
        match mode {
            Some("calls") => each().for_each(|(backend, program)| {
                calls::print(title, pid, backend, program, &scratch.0);
            }),
            Some("ticks") => each().for_each(|(backend, program)| {
                ticks::print(title, pid, backend, program, &scratch.0);
            }),
            _ => {
                let is_live = mode == Some("live");
                let rounds = rounds.unwrap_or(if is_live { 1 } else { ROUNDS });
                let spies = SPIES.iter().filter(|_| kind == "python" && is_in_path("py-spy"));
                let watchers: Vec<(&str, &Program)> =
                    each().chain(spies.map(|spy| (*spy, &programs[0]))).collect();
                let mut turns: Vec<Vec<Usage>> = watchers.iter().map(|_| Vec::new()).collect();
                for _ in 0..rounds {
                    for ((backend, program), turns) in watchers.iter().zip(&mut turns) {
                        turns.push(match is_live {
                            true => live(pid, backend, program),
                            false => recording(pid, backend, program, &scratch.0),
                        });
                    }
                }
                print(title, &watchers, &turns, mode.is_some());
            }
        }
    }
}

/// Returns whether the word is `KIND` or `KIND:THREADS` of the target.
fn is_named((kind, threads, _): &(&str, &str, &str), word: &str) -> bool {
    let first = threads.split(' ').next().unwrap_or_default();
    word == *kind || word.split_once(':') == Some((kind, first))
}

/// Measures a recording of the target, once attached.
fn recording(pid: u32, backend: &str, program: &Program, scratch: &Path) -> Usage {
    let options = ["-i", "10ms", "--capture", backend];
    let recording = match backend.split_once(' ') {
        Some((spy, option)) if SPIES.contains(&backend) => {
            Recording::spy(spy, option, pid, scratch)
        }
        _ => Recording::start(program, pid, &options, &scratch.join("out.folded")),
    };
    std::thread::sleep(ATTACHED);
    Usage::of(recording.pid(), TURN)
}

/// Measures a live view of the target, with its default limit on its overhead, from its first rows
/// on. A thread of ours reads what it draws.
fn live(pid: u32, backend: &str, program: &Program) -> Usage {
    let mut view = LiveView::start(&program.path, pid, &["--capture", backend], TERMINAL);
    let watcher = view.pid();
    view.wait_for("LIVE");
    let drawing = std::thread::spawn(move || {
        while view.read() {}
        view.drawn
    });
    std::thread::sleep(ATTACHED);
    let usage = Usage::of(watcher, LIVE_TURN);
    let _ = kill_process(Pid::from_raw(watcher.cast_signed()).expect("a pid"), Signal::TERM);
    assert!(drawing.join().expect("it reads") > 0, "the live view draws");
    usage
}

fn print_head() {
    println!("| target | watcher | sampler | all threads | wake-ups of the sampler | of all |");
    println!("| | | % of a core | % of a core | a second | a second |\n|---|---|---|---|---|---|");
}

fn print(title: &str, watchers: &[(&str, &Program)], turns: &[Vec<Usage>], with_threads: bool) {
    for ((backend, program), turns) in watchers.iter().zip(turns) {
        let of = |figure: fn(&Usage) -> f64, digits: usize| {
            median(&turns.iter().map(figure).collect::<Vec<_>>(), digits)
        };
        println!(
            "| {title} | `{backend}`{} | {} | {} | {} | {} |",
            program.label,
            of(|usage| usage.of_sampler().percent, 2),
            of(|usage| usage.of_all().percent, 2),
            of(|usage| usage.of_sampler().runs, 1),
            of(|usage| usage.of_all().runs, 1),
        );
    }
    for ((backend, program), turns) in watchers.iter().zip(turns).filter(|_| with_threads) {
        println!("\nThreads: {title}, `{backend}`{}", program.label);
        print_threads(turns);
        println!();
    }
}
