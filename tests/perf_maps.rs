//! Code of JIT compilers, named by what the process writes into its perf map: a program that
//! generates one function under the test's control.

mod common;
#[path = "common/dumped.rs"]
mod dumped;

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Running, build, need_root};
use dumped::Frame;

/// The frames of the thread that has this name, innermost first, and whether they are all.
fn dump(pid: u32, thread: &str, options: &[&str]) -> (Vec<Frame>, bool) {
    dumped::dump(pid, options, |found| found["name"] == thread)
}

/// The program that makes one function; its map goes with it.
struct Made {
    running: Running,
    map: PathBuf,
}

impl Made {
    fn start(variant: &str, what: &str) -> Made {
        Made::of(Running::start(&build("jit.c", variant, &["-O1"]), &[what]))
    }

    fn of(running: Running) -> Made {
        let mut made = Made { running, map: PathBuf::new() };
        made.map = made.tell("path").into();
        made
    }

    /// What it answers to a line.
    fn tell(&mut self, line: &str) -> String {
        let stdin = self.running.child.stdin.as_mut().expect("stdin");
        writeln!(stdin, "{line}").expect("it reads");
        self.running.lines.next().expect("an answer").expect("text")
    }

    /// Waits until code that replaced other code has its name: 100 ms after it was written into the
    /// map.
    fn settle(&self) {
        let written = std::fs::metadata(&self.map).and_then(|meta| meta.modified()).expect("a map");
        while written.elapsed().is_ok_and(|age| age.as_millis() < 100) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// What the function is called in which the thread waits. Its code shows how its frame is left,
    /// named or not.
    fn called(&self) -> String {
        called(self.running.pid())
    }
}

fn called(pid: u32) -> String {
    let (frames, complete) = dump(pid, "jit", &[]);
    let rest = frames.iter().position(|frame| frame.name == "rest").expect("it waits");
    let made = &frames[rest + 1];
    assert_eq!(made.kind, "jit", "{frames:#?}");
    let callers: Vec<&str> =
        frames[rest + 2..].iter().take(2).map(|frame| frame.name.as_str()).collect();
    assert_eq!((callers, complete), (vec!["run_made", "run"], true), "{frames:#?}");
    made.name.clone()
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.map);
    }
}

#[test]
fn a_map_is_read_as_it_grows() {
    if !need_root("samples by every way of capture") {
        return;
    }
    let mut made = Made::start("grows", "wait");
    assert!(made.called().starts_with("[jit]!"), "no map yet");
    made.tell("say first one");
    assert_eq!(made.called(), "first one");
    // While it is profiled: the map begins, it grows, and the code gets another name.
    let mut made = Made::start("grows", "burn");
    let pid = made.running.pid().to_string();
    let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    record.args([
        "record",
        "-p",
        &pid,
        "-d",
        "exit",
        "-i",
        "5ms",
        "--format",
        "folded",
        "--metric",
        "cpu",
        "--no-kernel",
    ]);
    let recording =
        record.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("sampletop runs");
    let cpu = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let fields: Vec<&str> =
            stat.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
    };
    // The map is found while it is looked for; then a second of the program's own time under each
    // name.
    let target = made.running.pid();
    let is_read = |map: &Path| {
        let files = std::fs::read_dir(format!("/proc/{}/fd", recording.id())).expect("it lives");
        files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|file| file == map))
    };
    made.tell("say first one");
    let begin = std::time::Instant::now();
    while !is_read(&made.map) {
        assert!(begin.elapsed().as_secs() < 60, "the map is never read");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for name in ["raw nothing\\x0a", "say second one"] {
        made.tell(name);
        let begin = cpu(target);
        while cpu(target) < begin + 100 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    made.running.child.kill().expect("killed");
    let report =
        String::from_utf8(recording.wait_with_output().expect("it ends").stdout).expect("text");
    let of = |name: &str| -> u64 {
        let values = report
            .lines()
            .filter(|line| line.contains(&format!(";{name} ")))
            .map(|line| line.rsplit_once(' '));
        values.map(|value| value.expect("a value").1.parse::<u64>().expect("a number")).sum()
    };
    assert!(of("first one") > 500_000 && of("second one") > 500_000, "{report}");
}

#[test]
fn hostile_maps_do_no_harm() {
    if !need_root("samples by every way of capture") {
        return;
    }
    let mut made = Made::start("hostile", "wait");
    made.tell("raw \\xff\\xfe\\x00\\x00garbage\\x0a");
    made.tell(
        "raw ffffffffffffffff ffffffffffffffff everything\\x0a0 8000000000000000 everything\\x0a",
    );
    made.tell(&format!("raw 1 1 {}\\x0a", "x".repeat(60_000)));
    // Over a library that has unwind information and names of its own.
    made.tell("over nonsense");
    made.tell("say JS:*\u{1b}[2Jfine\u{202e} /a.js:1:1");
    made.tell("raw 7f00 10 a line without an end");
    made.settle();
    assert_eq!(made.called(), "[2Jfine");
    let (frames, _) = dump(made.running.pid(), "jit", &[]);
    assert!(frames.iter().all(|frame| frame.name != "nonsense"), "{frames:#?}");
}

#[test]
fn maps_of_others_are_not_read() {
    if !need_root("gives files to other users") {
        return;
    }
    let mut made = Made::start("others", "wait");
    made.tell("say mine");
    assert_eq!(made.called(), "mine");
    let (map, aside) = (made.map.clone(), made.map.with_extension("aside"));
    std::fs::rename(&map, &aside).expect("renamed");
    symlink(&aside, &map).expect("a link");
    assert!(made.called().starts_with("[jit]!"), "through a link");
    std::fs::remove_file(&map).expect("removed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &map,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    assert!(made.called().starts_with("[jit]!"), "a FIFO");
    std::fs::rename(&aside, &map).expect("renamed");
    assert_eq!(made.called(), "mine", "as it was");
    let times = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    std::fs::File::options()
        .append(true)
        .open(&map)
        .expect("opened")
        .set_times(times)
        .expect("made older");
    assert!(made.called().starts_with("[jit]!"), "of a process that had this number before");
    made.tell("raw \\x0a");
    assert_eq!(made.called(), "mine", "as it was");
    std::os::unix::fs::chown(&map, Some(65534), None).expect("given away");
    assert!(made.called().starts_with("[jit]!"), "another user's");
}

/// With another numbering of processes and another /tmp, as in a container.
#[test]
fn maps_are_found_in_containers() {
    if !need_root("makes namespaces") {
        return;
    }
    let program = build("jit.c", "container", &["-O1"]);
    // The program may lie in what is hidden.
    let script = format!(
        "exec 3<{} && mount -t tmpfs none /tmp && exec /proc/self/fd/3 wait",
        program.display()
    );
    let args = ["--pid", "--mount", "--mount-proc", "--fork", "--kill-child", "sh", "-c", &script];
    let mut made = Made::of(Running::start(Path::new("unshare"), &args));
    assert_eq!(made.map, Path::new("/tmp/perf-1.map"));
    made.tell("say inside");
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", made.running.pid()))
            .expect("the child");
    assert_eq!(called(children.trim().parse().expect("one child")), "inside");
    made.map = PathBuf::from("/nowhere");
}
