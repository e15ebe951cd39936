//! Measures what it costs to walk the stack of a thread of a runtime. Run by hand on a quiet
//! machine, as root; needs a JDK, Node or Go:
//!
//! ```text
//! cargo run --release --example walk java|node|go
//! ```
//!
//! Of Java the threads of tests/targets/Blocked.java wait behind calls of every kind: interpreted,
//! compiled, inlined; stacks of some 24 frames are measured. Threads of Node and Go wait in stacks
//! of some 40 frames. Each of these stacks is copied and walked repeatedly. The first measurement
//! does so once every 10 ms, as at 100 Hz, where cached data has to be compared with the target's
//! memory. The second does so in a tight loop. Prints medians (lowest .. highest) over walks.

#[path = "../../tests/common/running.rs"]
mod running;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
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

const ROUNDS: usize = 300;

fn main() {
    let kind = std::env::args().nth(1).unwrap_or_else(|| "java".into());
    let scratch = std::env::temp_dir().join(format!("sampletop-walk-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    // With the frames, native ones included, of the stacks that are measured.
    let (command, frames) = match kind.as_str() {
        "java" => (java(&scratch), 20..=28),
        "node" => (node(), 36..=52),
        "go" => (go(&scratch), 30..=50),
        _ => panic!("java, node or go, not {kind}"),
    };
    let program = Running::start_command(command);
    measure(program.pid(), frames);
    drop(program);
    let _ = std::fs::remove_dir_all::<PathBuf>(scratch);
}

fn java(scratch: &Path) -> Command {
    built("javac", &["-encoding", "UTF-8", "-nowarn", "-d"], scratch, "tests/targets/Blocked.java");
    let mut java = Command::new("java");
    java.args(["-Xmx64m", "-cp"]).arg(scratch).args(["Blocked", "1", "200"]);
    java
}

fn node() -> Command {
    let mut node = Command::new("node");
    node.arg(source("benches/walk/blocked.js")).arg("4");
    node
}

fn go(scratch: &Path) -> Command {
    let program = scratch.join("blocked");
    built("go", &["build", "-o"], &program, "benches/walk/blocked.go");
    let mut go = Command::new(program);
    go.arg("4");
    go
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn built(tool: &str, options: &[&str], to: &Path, name: &str) {
    let status = Command::new(tool).args(options).arg(to).arg(source(name)).status();
    assert!(status.unwrap_or_else(|e| panic!("{tool}: {e}")).success(), "{tool} failed");
}

fn measure(pid: u32, frames: RangeInclusive<usize>) {
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
        if whole && frames.contains(&out.len()) {
            stacks.push((pc, sp));
        }
    }
    println!("{} of the stacks have {frames:?} frames; all: {sizes:?}", stacks.len());
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
}

/// Returns the CPU time of this thread.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
