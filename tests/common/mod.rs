//! Shared by the live tests: builds target programs and runs them.
#![allow(dead_code)] // each test binary uses a part of it

pub mod java;
pub mod running;
pub mod skip;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use running::{LIMIT, Running, wait_until};
pub use skip::{need_root, skipped};

/// Returns state letter and name of each thread of a process.
pub fn states(pid: u32) -> Vec<(char, String)> {
    let folder = format!("/proc/{pid}/task");
    let threads = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let stats =
        threads.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let state = |stat: String| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        Some((rest.chars().next()?, name.to_owned()))
    };
    stats.filter_map(state).collect()
}

/// Waits until every thread sleeps but those whose names begin with `spin`. A target that prints
/// `ready` has started its threads. On a busy machine they need a while to reach their waits.
pub fn wait_until_all_sleep(pid: u32) {
    let mut last = Vec::new();
    let sleeps = |(state, name): &(char, String)| *state == 'S' || name.starts_with("spin");
    let limit = Instant::now() + LIMIT;
    while !last.iter().all(sleeps) || last.is_empty() {
        assert!(Instant::now() < limit, "they do not come to rest: {last:?}");
        std::thread::sleep(Duration::from_millis(1));
        last = states(pid);
    }
}

/// Compiles `tests/targets/SOURCE` (C by cc, C++ by c++, Rust by rustc) with `flags`; `variant`
/// names the result. Panics with the compiler's messages if it fails: a missing compiler is a
/// failure, not a skip.
pub fn build(source: &str, variant: &str, flags: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let stem = Path::new(source).file_stem().expect("a file name").to_string_lossy().into_owned();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{stem}-{variant}-{}", std::process::id()));
    // Under another name first: a second test that builds the same must not write into a running
    // program.
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let new = out.with_extension(format!("new{}", BUILT.fetch_add(1, Ordering::Relaxed)));
    let compiler = match Path::new(source).extension().and_then(|e| e.to_str()) {
        Some("c") => "cc",
        Some("cpp") => "c++",
        Some("rs") => "rustc",
        other => panic!("no compiler known for {source} ({other:?})"),
    };
    let mut command = Command::new(compiler);
    if compiler == "rustc" {
        command.args(flags).arg(root.join(source)).arg("-o").arg(&new);
    } else {
        // Libraries follow the source, as static linking requires.
        command
            .args(flags)
            .arg(root.join(source))
            .arg("-o")
            .arg(&new)
            .args(["-pthread", "-lm", "-ldl"]);
    }
    let output =
        command.output().unwrap_or_else(|e| panic!("{compiler} is needed to build {source}: {e}"));
    assert!(
        output.status.success(),
        "{compiler} {source}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&new, &out).unwrap_or_else(|error| panic!("{}: {error}", new.display()));
    out
}

/// A `sampletop record` that runs until it has seen enough: no fixed duration suffices if other
/// processes share the machine.
pub struct Recording(Option<Child>);

impl Recording {
    /// Starts it, and waits until it samples: by then perf's events, or the counters of threads,
    /// are open.
    pub fn start(command: &mut Command) -> Recording {
        let command = command
            .args(["-d", "1h"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let place = format!("/proc/{}/fd", child.id());
        let scan = |path: PathBuf| {
            path.ends_with("schedstat") || path.to_string_lossy().contains("[perf_event]")
        };
        let mut ended = false;
        wait_until("it looks", || {
            let files = std::fs::read_dir(&place).into_iter().flatten().flatten();
            ended = child.try_wait().expect("our child").is_some();
            ended || files.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(scan)
        });
        let recording = Recording(Some(child));
        if ended {
            panic!("{command:?}: {:?}", recording.end());
        }
        recording
    }

    /// Waits until the process has used `ms` more CPU time.
    pub fn until_used(&self, pid: u32, ms: u64) {
        let used = || sampletop::clock::cpu_of_process(pid).expect("it lives") / 1_000_000;
        let enough = used() + ms;
        wait_until(&format!("{pid} uses {ms} ms"), || used() >= enough);
    }

    /// Interrupts it, as Ctrl-C does; it then writes its profile.
    pub fn end(mut self) -> Output {
        let child = self.0.take().expect("it is ended once");
        // It may have exited by itself.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::INT,
        );
        child.wait_with_output().expect("it ends")
    }
}

impl Recording {
    /// Sends one signal and waits for the exit.
    pub fn end_by(mut self, signal: rustix::process::Signal) -> ExitStatus {
        let child = self.0.as_mut().expect("it is ended once");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal)
            .expect("our child");
        let mut status = None;
        wait_until(&format!("{signal:?} ends it"), || {
            status = child.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Builds a group's call tree from its flat list: returns the roots, each node with its callees as
/// `children`.
pub fn tree(group: &serde_json::Value) -> serde_json::Value {
    let mut nodes =
        group["nodes"].as_array().unwrap_or_else(|| panic!("no nodes: {group}")).clone();
    let mut roots = Vec::new();
    // The last node of the list already has its children, the last child first.
    while let Some(mut node) = nodes.pop() {
        let fields = node.as_object_mut().expect("an object");
        let below =
            fields.entry("children").or_insert_with(|| Vec::<serde_json::Value>::new().into());
        below.as_array_mut().expect("a list").reverse();
        match node["parent"].as_u64() {
            None => roots.push(node),
            Some(parent) => {
                let above = nodes[parent as usize].as_object_mut().expect("an object");
                let siblings = above
                    .entry("children")
                    .or_insert_with(|| Vec::<serde_json::Value>::new().into());
                siblings.as_array_mut().expect("a list").push(node);
            }
        }
    }
    roots.reverse();
    roots.into()
}
