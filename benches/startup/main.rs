//! Measures how soon sampletop answers: `--version`, and the first rows of the live view by each
//! backend. Run by hand on a quiet machine, as root:
//!
//! ```text
//! cargo build --release && cargo run --release --example startup
//! ```
//!
//! sampletop watches this process, which has a busy thread and a sleeping one. The first rows are
//! there when the screen of 80x24 names the busy thread. Each measurement is made ten times, in
//! turn; the benchmark prints the median (lowest .. highest).

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const TIMES: usize = 10;
const ROWS: NonZero<u16> = NonZero::new(24).expect("more than 0");
const COLUMNS: NonZero<u16> = NonZero::new(80).expect("more than 0");
const BUSY: &str = "startup-busy";

fn main() {
    // `target/release/examples/startup` -> `target/release/sampletop`.
    let this = std::env::current_exe().expect("this program");
    let program = this.ancestors().nth(2).expect("the target directory").join("sampletop");
    assert!(program.exists(), "build it first: cargo build --release");
    spawn(BUSY, || {
        loop {
            std::hint::black_box(0);
        }
    });
    spawn("startup-idle", || {
        loop {
            std::thread::park();
        }
    });
    let mut times: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for _ in 0..TIMES {
        times.entry("--version").or_default().push(version(&program));
        for backend in ["bpf", "perf"] {
            times.entry(backend).or_default().push(first_rows(&program, backend));
        }
    }
    for (what, mut times) in times {
        times.sort();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{what:10} {:6.1} ms ({:.1} .. {:.1})",
            ms(times[TIMES / 2]),
            ms(times[0]),
            ms(times[TIMES - 1])
        );
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.into()).spawn(run).expect("a thread");
}

fn version(program: &Path) -> Duration {
    let started = Instant::now();
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    assert!(status.expect("it runs").success());
    started.elapsed()
}

/// Returns the time from the start of the live view until its screen names the busy thread.
fn first_rows(program: &Path, backend: &str) -> Duration {
    let size = PtySize { rows: ROWS.get(), cols: COLUMNS.get(), pixel_width: 0, pixel_height: 0 };
    let pty = native_pty_system().openpty(size).expect("a pseudo terminal");
    let mut command = CommandBuilder::new(PathBuf::from(program));
    let pid = std::process::id().to_string();
    command.args(["-p", &pid, "--capture", backend, "--secure"]);
    command.env("TERM", "xterm-256color");
    let mut reader = pty.master.try_clone_reader().expect("a reader");
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    let started = Instant::now();
    let mut child = pty.slave.spawn_command(command).expect("it starts");
    drop(pty.slave);
    let mut buffer = [0; 4096];
    while !parser.screen().contents().contains(BUSY) {
        let count = reader.read(&mut buffer).expect("it draws");
        assert!(count > 0, "it ended: {}", parser.screen().contents());
        parser.process(&buffer[..count]);
    }
    let elapsed = started.elapsed();
    child.kill().expect("it ends");
    child.wait().expect("it ended");
    elapsed
}
