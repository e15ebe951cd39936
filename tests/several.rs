//! Several processes at once: which are found, that each has its own share, children, restarts,
//! groups, and permissions.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{LIMIT, Running, build, need_root, skipped, wait_until};
use serde_json::Value;

const NOBODY: u32 = 65_534;
fn sampletop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn profile(output: &Output) -> Value {
    assert!(output.status.success(), "{}", words(output));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", words(output)))
}

/// `record` as json to stdout.
fn record(args: &[&str]) -> Value {
    let all = [&["record", "--format", "json"], args].concat();
    profile(&sampletop(&all).output().expect("sampletop starts"))
}

fn targets(profile: &Value) -> Vec<u64> {
    profile["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .map(|t| t["pid"].as_u64().expect("a pid"))
        .collect()
}

/// The group of a process, under `--group process`.
fn group_of(profile: &Value, pid: u32) -> &Value {
    let groups = profile["groups"].as_array().expect("groups");
    let is_it =
        |group: &&Value| group["name"].as_str().expect("a name").starts_with(&format!("{pid} "));
    groups.iter().find(is_it).unwrap_or_else(|| {
        let names: Vec<&Value> = groups.iter().map(|g| &g["name"]).collect();
        panic!("no group of {pid} in {names:?}")
    })
}

fn has_frame(group: &Value, name: &str) -> bool {
    group["nodes"].as_array().expect("nodes").iter().any(|node| node["frame"] == name)
}

/// CPU clocks of processes, read repeatedly: the moment, and each one's time, ms.
struct Clocks<const N: usize>(Vec<(f64, [f64; N])>);

impl<const N: usize> Clocks<N> {
    /// Reads the clocks while `work` runs.
    fn during<T>(pids: [u32; N], work: impl FnOnce() -> T) -> (T, Clocks<N>) {
        let (done, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let began = Instant::now();
        let read = || {
            let clock = |pid| sampletop::clock::cpu_of_process(pid).expect("it lives") as f64 / 1e6;
            (began.elapsed().as_secs_f64() * 1e3, pids.map(clock))
        };
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut readings = vec![read()];
                begun.store(true, Ordering::Relaxed);
                while !done.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                    readings.push(read());
                }
                readings
            });
            wait_until("the first reading", || begun.load(Ordering::Relaxed));
            let result = work();
            done.store(true, Ordering::Relaxed);
            (result, Clocks(reading.join().expect("readings")))
        })
    }

    /// Returns the minimum and maximum that this process can have used in any `ms` of that work.
    fn used_within(&self, index: usize, ms: f64) -> (f64, f64) {
        let Clocks(readings) = self;
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for pair in readings.windows(2) {
            // Every interval that begins between these two readings ends between those two.
            let last = readings.partition_point(|(at, _)| *at <= pair[0].0 + ms) - 1;
            if last == readings.len() - 1 {
                break;
            }
            let end =
                readings.partition_point(|(at, _)| *at < pair[1].0 + ms).min(readings.len() - 1);
            least = least.min(readings[last].1[index] - pair[1].1[index]);
            most = most.max(readings[end].1[index] - pair[0].1[index]);
        }
        assert!(most > 0.0, "it took less than {ms} ms");
        (least, most)
    }
}

/// A copy of its own, so that nothing else on this machine has that name.
fn family(variant: &str) -> PathBuf {
    build("family.c", variant, &["-O1", "-g"])
}

fn name_of(program: &Path) -> String {
    program.file_name().expect("a name").to_str().expect("text").to_owned()
}

#[test]
fn each_process_has_its_own_share() {
    if !need_root("samples all processors") {
        return;
    }
    let program = family("share");
    let red = Running::start(&program, &["spin", "red"]);
    let blue = Running::start(&program, &["spin", "blue", "60"]);
    let (red_pid, blue_pid) = (red.pid(), blue.pid());
    let pids = [red_pid.to_string(), blue_pid.to_string()];
    for backend in ["bpf", "perf", "states", "ptrace"] {
        let args = [
            "-p",
            &pids[0],
            "-p",
            &pids[1],
            "--group",
            "process",
            "-d",
            "3s",
            "--capture",
            backend,
        ];
        let (profile, clocks) = Clocks::during([red_pid, blue_pid], || record(&args));
        let mut listed = targets(&profile);
        listed.sort_unstable();
        assert_eq!(listed, {
            let mut pids = [u64::from(red_pid), u64::from(blue_pid)];
            pids.sort_unstable();
            pids
        });
        assert_eq!(profile["capture"].as_str().expect("a way").split(' ').next(), Some(backend));
        // The 3 s that were asked for; opening the backend comes before.
        let (asked, elapsed) = (3_000.0, profile["elapsed_ms"].as_f64().expect("a time"));
        for (n, pid) in [red_pid, blue_pid].into_iter().enumerate() {
            let group = group_of(&profile, pid);
            // One thread each, observed all the time: the kernel's own figures, independent of
            // samples.
            let wall = group["wall_ms"].as_f64().expect("a time");
            assert!(
                wall > 0.9 * asked && wall <= elapsed + 1.0,
                "{backend} {pid}: {wall} of {elapsed} ms"
            );
            let cpu = group["cpu_ms"].as_f64().expect("a time");
            // A thread's counters lag by a tick of the kernel, at the first observation and at the
            // last: 10 ms at 100 Hz.
            let (least, most) = clocks.used_within(n, wall);
            assert!(
                cpu >= least - 20.0 && cpu <= most + 20.0,
                "{backend} {pid}: {cpu}, its clock: {least} to {most} ms"
            );
            if backend != "states" {
                let (own, other) =
                    if n == 0 { ("spin_red", "spin_blue") } else { ("spin_blue", "spin_red") };
                assert!(has_frame(group, own) && !has_frame(group, other), "{backend}: {group}");
            }
        }
        // A tick observes both.
        let (ticks, got) =
            (profile["health"]["ticks"].as_f64(), profile["visit_interval_ms"].as_f64());
        let (ticks, got) = (ticks.expect("a count"), got.expect("a time"));
        assert!(
            (ticks * got - asked).abs() < 0.5 * asked,
            "{backend}: {ticks} rounds of {got} ms in {elapsed} ms"
        );
    }
}

#[test]
fn children_are_watched_as_they_appear_and_end() {
    if !need_root("samples all processors") {
        return;
    }
    let program = family("fork");
    let parent = Running::start(&program, &["fork", "3", "800"]);
    let pid = parent.pid().to_string();
    let profile = record(&["-p", &pid, "--subprocesses", "--group", "process", "-d", "5s"]);
    let found = targets(&profile);
    assert!(found.len() >= 8, "three at a time that live for 0.8 s: {found:?}");
    assert_eq!(found[0], u64::from(parent.pid()));
    let groups = profile["groups"].as_array().expect("groups");
    let spin = groups.iter().filter(|group| has_frame(group, "spin_child")).count();
    assert!(spin >= found.len() / 2, "{spin} of {}", found.len());
    // Without the option it is the parent alone.
    assert_eq!(targets(&record(&["-p", &pid, "-d", "1s"])), [u64::from(parent.pid())]);

    let nest = Running::start(&program, &["nest", "4"]);
    let dump =
        sampletop(&["dump", "-p", &nest.pid().to_string(), "--subprocesses", "--format", "json"]);
    let dump = profile_of_all(dump, 6);
    let threads = dump["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 6, "one thread each: {dump}");
}

/// Returns the output, once it has `wanted` targets.
fn profile_of_all(mut command: Command, wanted: usize) -> Value {
    let limit = Instant::now() + LIMIT;
    loop {
        let value = profile(&command.output().expect("sampletop starts"));
        if targets(&value).len() >= wanted {
            return value;
        }
        assert!(Instant::now() < limit, "{value}");
    }
}

#[test]
fn a_command_is_watched_with_its_children() {
    if !need_root("samples all processors") {
        return;
    }
    let program = family("command");
    let script = format!(
        "exec 3< <(sleep 2); {} spin red <&3 & {} spin blue <&3; wait",
        program.display(),
        program.display()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("p.json");
    let to = file.to_str().expect("text");
    // Its standard output is the command's.
    let args =
        ["record", "-o", to, "--subprocesses", "--group", "process", "--", "bash", "-c", &script];
    let output = sampletop(&args).output().expect("sampletop starts");
    assert!(output.status.success(), "{}", words(&output));
    let profile: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("the profile")).expect("JSON");
    let groups = profile["groups"].as_array().expect("groups");
    for frame in ["spin_red", "spin_blue"] {
        assert!(
            groups.iter().any(|group| has_frame(group, frame)),
            "{frame}: {}",
            profile["targets"]
        );
    }
    // A child is named after its exec.
    let commands: Vec<&str> = profile["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .map(|t| t["command"].as_str().expect("text"))
        .collect();
    assert!(commands.iter().any(|command| command.ends_with("spin red")), "{commands:?}");
}

/// A sampletop that runs; ended by its number when dropped.
struct Session(Child);

impl Session {
    fn start(args: &[&str]) -> Session {
        Session(sampletop(args).spawn().expect("sampletop starts"))
    }

    /// Starts `record` as json to stdout, by a backend whose observed processes are visible from
    /// outside.
    fn record(args: &[&str]) -> Session {
        Session::start(&[&["record", "--format", "json", "--capture", "perf"], args].concat())
    }

    /// Its first line on stderr.
    fn says(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stderr.as_mut().expect("piped")).read_line(&mut line).expect("text");
        line
    }

    /// Interrupted, as by Ctrl-C: it writes what there is.
    fn interrupted(self) -> Output {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)
            .expect("it can be signalled");
        self.output()
    }

    fn output(mut self) -> Output {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        self.0.stdout.take().expect("piped").read_to_end(&mut out).expect("read");
        self.0.stderr.take().expect("piped").read_to_end(&mut err).expect("read");
        Output { status: self.0.wait().expect("it ends"), stdout: out, stderr: err }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the process is profiled by `perf`: the counters of its threads stay open.
fn is_watched(session: &Session, pid: u32) -> bool {
    let files =
        std::fs::read_dir(format!("/proc/{}/fd", session.0.id())).into_iter().flatten().flatten();
    let mut files = files.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    files.any(|path| path.starts_with(format!("/proc/{pid}/task")) && path.ends_with("schedstat"))
}

fn wait_until_watched(session: &Session, pid: u32) {
    wait_until(&format!("{pid} is watched"), || is_watched(session, pid));
}

/// Ends it, and waits until sampletop has noticed.
fn end_watched(session: &Session, target: Running) {
    let pid = target.pid();
    drop(target);
    wait_until(&format!("{pid} is watched no more"), || !is_watched(session, pid));
}

#[test]
fn a_name_is_waited_for_and_taken_up_again_after_a_restart() {
    if !need_root("samples all processors") {
        return;
    }
    let program = family("again");
    let name = name_of(&program);
    let mut session = Session::record(&["--group", "process", "--name", &name, "-d", "1h"]);
    let said = session.says();
    assert!(said.contains("waiting") && said.contains(&name), "{said}");
    let first = Running::start(&program, &["spin", "red"]);
    wait_until_watched(&session, first.pid());
    std::thread::sleep(Duration::from_millis(1_000));
    let first_pid = first.pid();
    end_watched(&session, first);
    // The gap.
    std::thread::sleep(Duration::from_millis(1_500));
    let second = Running::start(&program, &["spin", "blue"]);
    wait_until_watched(&session, second.pid());
    std::thread::sleep(Duration::from_millis(1_000));
    let profile = profile(&session.interrupted());
    assert_eq!(targets(&profile), [u64::from(first_pid), u64::from(second.pid())]);
    let (red, blue) = (group_of(&profile, first_pid), group_of(&profile, second.pid()));
    assert!(has_frame(red, "spin_red") && has_frame(blue, "spin_blue"));
    let wall = |group: &Value| group["wall_ms"].as_f64().expect("a time");
    let elapsed = profile["elapsed_ms"].as_f64().expect("a time");
    assert!(wall(red) >= 900.0, "{}", wall(red));
    // During the gap no process has any time.
    assert!(
        wall(red) + wall(blue) <= elapsed - 1_400.0,
        "{} + {} of {elapsed} ms",
        wall(red),
        wall(blue)
    );
    assert_eq!(profile["groups"].as_array().expect("groups").len(), 2, "{}", profile["groups"]);
}

#[test]
fn the_session_ends_with_the_last_process_and_not_before() {
    if !need_root("samples all processors") {
        return;
    }
    let program = family("end");
    let (one, other) =
        (Running::start(&program, &["spin", "red"]), Running::start(&program, &["spin", "blue"]));
    let pids = [one.pid().to_string(), other.pid().to_string()];
    let session =
        Session::record(&["--group", "process", "-p", &pids[0], "-p", &pids[1], "-d", "exit"]);
    wait_until_watched(&session, one.pid());
    wait_until_watched(&session, other.pid());
    let (first, last) = (one.pid(), other.pid());
    end_watched(&session, one);
    std::thread::sleep(Duration::from_millis(1_000));
    drop(other);
    let profile = profile(&session.output());
    let wall = |pid| group_of(&profile, pid)["wall_ms"].as_f64().expect("a time");
    assert!(wall(last) >= wall(first) + 900.0, "{} and {}", wall(first), wall(last));
}

#[test]
fn ctrl_c_ends_the_waiting() {
    let mut command = sampletop(&["record", "--name", "no-process-has-such-a-name-7f3a"]);
    // A background job of a script ignores SIGINT, and so would everything below. SAFETY: signal(2)
    // may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut session = Session(command.spawn().expect("sampletop starts"));
    assert!(session.says().contains("waiting"));
    assert_eq!(session.interrupted().status.signal(), Some(libc::SIGINT));
}

#[test]
fn a_group_is_watched_with_the_groups_within_it() {
    let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let name = format!("sampletop-test-{}", std::process::id());
    let made = places.iter().find_map(|place| {
        let (outer, inner) = (place.join(&name), place.join(&name).join("inner"));
        let is_v2 = place.join("cgroup.controllers").exists();
        (is_v2 && std::fs::create_dir_all(&inner).is_ok()).then_some((outer, inner))
    });
    let Some((outer, inner)) = made else {
        return skipped(
            "a_group_is_watched_with_the_groups_within_it",
            "no control groups can be made here",
        );
    };
    let program = family("group");
    let outcome = std::panic::catch_unwind(|| {
        let (early, late) = (
            Running::start(&program, &["spin", "red"]),
            Running::start(&program, &["spin", "blue"]),
        );
        let enter = |group: &Path, pid: u32| {
            std::fs::write(group.join("cgroup.procs"), pid.to_string()).expect("moved")
        };
        let mut session = Session::record(&["--cgroup", &name, "-d", "1h"]);
        assert!(session.says().contains("waiting"), "no process is in it");
        enter(&outer, early.pid());
        wait_until_watched(&session, early.pid());
        enter(&inner, late.pid());
        wait_until_watched(&session, late.pid());
        let pids = [u64::from(early.pid()), u64::from(late.pid())];
        assert_eq!(targets(&profile(&session.interrupted())), pids);
        // By its path, and as /proc shows it.
        let paths = [outer.to_str().expect("text").to_owned(), format!("/{name}")];
        for path in paths {
            let mut found = targets(&record(&["--cgroup", &path, "-d", "500ms"]));
            found.sort_unstable();
            let mut pids = pids;
            pids.sort_unstable();
            assert_eq!(found, pids, "{path}");
        }
    });
    // Killed processes leave their group a moment later.
    let limit = Instant::now() + LIMIT;
    while (std::fs::remove_dir(&inner).is_err() && inner.exists())
        || std::fs::remove_dir(&outer).is_err()
    {
        assert!(Instant::now() < limit, "{} cannot be removed", outer.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn who_may_not_be_watched_is_named_and_the_others_go_on() {
    if !need_root("plays other users") {
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let (program, target) = (folder.path().join("sampletop"), folder.path().join("target"));
    std::fs::copy(env!("CARGO_BIN_EXE_sampletop"), &program).expect("copied");
    std::fs::copy(family("rights"), &target).expect("copied");
    let start = |uid: u32| {
        let mut command = Command::new(&target);
        command
            .args(["spin", "red"])
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the target starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut running = Running { child, lines };
        assert_eq!(running.lines.next().expect("a line").expect("text"), "ready");
        running
    };
    let (own, roots) = (start(NOBODY), start(0));
    let (own_pid, roots_pid, nobodys) =
        (own.pid().to_string(), roots.pid().to_string(), (1 << 22).to_string());
    let ask = |args: &[&str]| {
        let mut command = Command::new(&program);
        let command = command
            .args(["record", "--format", "json", "-d", "500ms", "--capture", "states"])
            .args(args);
        command.uid(NOBODY).gid(NOBODY).current_dir("/").output().expect("sampletop starts")
    };
    let text = |args: &[&str]| {
        let mut command = Command::new(&program);
        let command = command.args(["record", "-d", "500ms", "--capture", "states"]).args(args);
        let output =
            command.uid(NOBODY).gid(NOBODY).current_dir("/").output().expect("sampletop starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let output = ask(&["-p", &own_pid, "-p", &roots_pid, "-p", &nobodys]);
    assert_eq!(targets(&profile(&output)), [u64::from(own.pid())]);
    let report = text(&["-p", &own_pid, "-p", &roots_pid, "-p", &nobodys]);
    let notice =
        report.lines().skip_while(|line| !line.starts_with("Notice")).take(6).collect::<String>();
    assert!(notice.contains(&format!("not permitted to profile process {roots_pid}")), "{report}");
    assert!(notice.contains(&format!("no process has the pid {nobodys}")), "{report}");
    // By name, too: both have it.
    let path = target.to_str().expect("text");
    assert_eq!(targets(&profile(&ask(&["--name", path]))), [u64::from(own.pid())]);
    let refused = |args: &[&str]| {
        let output = ask(args);
        (output.status.code(), words(&output).lines().count())
    };
    assert_eq!(refused(&["-p", &roots_pid, "-p", &nobodys]), (Some(4), 1));
    assert_eq!(refused(&["-p", &nobodys]), (Some(3), 1));
    drop(own);
    assert_eq!(refused(&["--name", path]), (Some(4), 1));
}

#[test]
fn a_storm_of_forks_is_survived_and_its_losses_are_told() {
    if !need_root("samples all processors") {
        return;
    }
    let program = family("storm");
    let storm = Running::start(&program, &["storm", "2000"]);
    let pid = storm.pid().to_string();
    let session =
        Session::start(&["record", "-p", &pid, "--subprocesses", "-d", "4s", "--capture", "perf"]);
    wait_until_watched(&session, storm.pid());
    let mut most = 0;
    let place = format!("/proc/{}/fd", session.0.id());
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        most = most.max(std::fs::read_dir(&place).map_or(0, Iterator::count));
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = session.output();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert!(most < 1_500, "{most} descriptors");
    let report = String::from_utf8(output.stdout).expect("text");
    assert!(report.contains("exited before they could be observed"), "{report}");
}

/// Numbers are those of the namespace; those of BPF are translated.
#[test]
fn names_are_found_inside_a_pid_namespace() {
    if !need_root("makes a pid namespace") {
        return;
    }
    let program = family("inside");
    // From the beginning: the shell's own command line has these words, too, and so has each of its
    // forks before its exec.
    let path = program.display();
    for backend in ["bpf", "perf"] {
        let script = format!(
            "exec 3< <(sleep 20); {path} spin red <&3 >/dev/null & {path} spin blue <&3 >/dev/null & \
             exec {} record --format json --group process --capture {backend} --name '^{path} spin' -d 2s",
            env!("CARGO_BIN_EXE_sampletop")
        );
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", &script]);
        let output = command.output().expect("unshare starts");
        let profile = profile(&output);
        let found = targets(&profile);
        assert!(found.len() == 2 && found.iter().all(|pid| *pid < 100), "{backend}: {found:?}");
        let groups = profile["groups"].as_array().expect("groups");
        for frame in ["spin_red", "spin_blue"] {
            let with = groups.iter().filter(|group| has_frame(group, frame)).count();
            assert_eq!(with, 1, "{backend}: {frame}");
        }
    }
}
