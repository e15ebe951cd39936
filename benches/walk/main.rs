//! Measures what it costs to walk the stack of a Java thread. Run by hand on a quiet machine, as
//! root; needs a JDK:
//!
//! ```text
//! cargo run --release --example java_walk
//! ```
//!
//! The threads of tests/targets/Blocked.java wait behind calls of every kind: interpreted,
//! compiled, inlined. Each of their stacks is copied and walked repeatedly. The first measurement
//! does so once every 10 ms, as at 100 Hz, where cached data has to be compared with the target's
//! memory. The second does so in a tight loop. Prints medians (lowest .. highest) over walks of
//! stacks of some 24 frames.

#[path = "../../tests/common/running.rs"]
mod running;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use running::Running;
use rustix::time::{ClockId, clock_gettime};
use sampletop::capture::stack_reader::StackReader;
use sampletop::process::mapped_files::Files;
use sampletop::process::memory::Memory;
use sampletop::process::threads::{Doing, Tasks};
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::unwinder::framehop::FramehopUnwinder;

/// Frames, native ones included, of the stacks that are measured.
const FRAMES: std::ops::RangeInclusive<usize> = 20..=28;
const ROUNDS: usize = 300;

fn main() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/Blocked.java");
    let classes = std::env::temp_dir().join(format!("sampletop-java-walk-{}", std::process::id()));
    let compiled = Command::new("javac")
        .args(["-encoding", "UTF-8", "-nowarn", "-d"])
        .arg(&classes)
        .arg(source)
        .status();
    assert!(compiled.expect("javac runs").success(), "javac failed");
    let mut java = Command::new("java");
    java.args(["-Xmx64m", "-cp"]).arg(&classes).args(["Blocked", "1", "200"]);
    let program = Running::start_command(java);
    let pid = program.pid();

    let detect = sampletop::runtimes::detect(pid, Names::default(), Files::default());
    let mut unwinder =
        FramehopUnwinder::new(Memory::new(pid), Files::default(), pid).with_runtimes(detect);
    let mut reader = StackReader::new(Memory::new(pid));
    let tasks = Tasks::open(pid, 10).expect("ours");
    let mut tids = Vec::new();
    tasks.list(&mut tids).expect("it runs");
    let mut out = Vec::new();
    let mut stacks = Vec::new();
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for tid in tids {
        let Ok(Doing::Blocked { sp, pc, .. }) = tasks.doing(&mut tasks.thread(tid)) else {
            continue;
        };
        out.clear();
        let whole = reader.walk(pc, sp, &mut unwinder, &mut out).end.is_none();
        *sizes.entry(out.len()).or_default() += 1;
        if whole && FRAMES.contains(&out.len()) {
            stacks.push((pc, sp));
        }
    }
    println!("{} of the stacks have {FRAMES:?} frames; all: {sizes:?}", stacks.len());
    for (what, pause) in
        [("every 10 ms", Some(Duration::from_millis(11))), ("in a tight loop", None)]
    {
        let mut took = Vec::new();
        for round in 0..ROUNDS {
            let (pc, sp) = stacks[round % stacks.len()];
            out.clear();
            pause.into_iter().for_each(std::thread::sleep);
            let before = cpu_ns();
            reader.walk(pc, sp, &mut unwinder, &mut out);
            took.push((cpu_ns() - before) as f64 / 1e3);
        }
        took.sort_by(f64::total_cmp);
        let last = took.len() - 1;
        println!(
            "{what}: {:.1} us ({:.1} .. {:.1}), 90 % below {:.1}",
            took[last / 2],
            took[0],
            took[last],
            took[last * 9 / 10]
        );
    }
    let _ = std::fs::remove_dir_all::<PathBuf>(classes);
}

/// Returns the CPU time of this thread.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
