//! The waits that `dump` reports: a program with one thread in each kind of wait, which prints the
//! expected text of each.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::Running;
use sampletop::model::projection::waits::{Asked, Lock};
use sampletop::model::vocabulary::event::Syscall;
use sampletop::model::vocabulary::frame::ThreadKey;
use sampletop::process::threads::{Doing, Tasks};
use sampletop::process::waits::Waits;
use serde_json::Value;

/// Reads from the program: thread, state, wait.
fn expected(target: &mut Running) -> Vec<[String; 3]> {
    let lines =
        target.lines.by_ref().map(|line| line.expect("text")).take_while(|line| line != "end");
    lines
        .map(|line| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            [(); 3].map(|()| words.next().expect("three words"))
        })
        .collect()
}

fn dump(pid: u32, format: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command
        .args(["dump", "-p", &pid.to_string(), "--format", format])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Compares texts; `*` stands for any text.
fn is_like(found: &str, expected: &str) -> bool {
    match expected.split_once('*') {
        Some((start, end)) => found.starts_with(start) && found.ends_with(end),
        None => found == expected,
    }
}

fn check(pid: u32, expected: &[[String; 3]], change: impl Fn(&str) -> String) {
    let dump: Value = serde_json::from_str(&dump(pid, "json")).expect("JSON");
    let threads = dump["threads"].as_array().expect("threads");
    let mut wrong = Vec::new();
    for [name, state, text] in expected {
        if text == "-" {
            common::skipped(name, "there is no IPv6 here");
            continue;
        }
        let text = change(text);
        let thread = threads.iter().find(|thread| thread["name"] == **name);
        let thread = thread.unwrap_or_else(|| panic!("no thread {name} in the dump"));
        let found = thread["waits_for"].as_str().unwrap_or("nothing");
        if thread["state"] != **state || !is_like(found, &text) {
            wrong.push(format!("{name}: {} {found:?}, not {state} {text:?}", thread["state"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn program(variant: &str) -> std::path::PathBuf {
    common::build("waits.c", variant, &["-O2", "-g"])
}

#[test]
fn every_kind_of_wait() {
    if !common::need_root("dump by perf") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut target = Running::start(&program("every"), &[dir.path().to_str().expect("text")]);
    let expected = expected(&mut target);
    assert!(expected.len() > 30, "{expected:?}");
    check(target.pid(), &expected, str::to_owned);
    // And for people.
    let text = dump(target.pid(), "text");
    for name in ["lock-plain", "recv-unix"] {
        let [.., wait] = expected.iter().find(|[of, ..]| of == name).expect("it is one of them");
        let line = text
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(name))
            .expect("it is in the text");
        assert!(line.contains(" ms  ") && line.contains(wait.as_str()), "{line}");
    }
}

/// The test uses pid and network namespaces of its own, as in a container: ids and addresses are
/// those of the target.
#[test]
fn waits_in_a_container() {
    if !common::need_root("makes namespaces") {
        return;
    }
    let program = program("container");
    let path = program.to_str().expect("text");
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().to_str().expect("text");
    let args = ["--pid", "--net", "--mount-proc", "--fork", "--kill-child", path, folder, "up"];
    let mut outer = Running::start(Path::new("unshare"), &args);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.pid()))
        .expect("the child's pid");
    let pid: u32 = children.trim().parse().expect("one child");
    let expected = expected(&mut outer);
    // The owner of the other end of a unix socket is only visible within one's own network
    // namespace.
    check(pid, &expected, |text| {
        if text.contains("-> /") { "recv fd*unix socket".into() } else { text.to_owned() }
    });
}

/// Processes at the other end of sockets and pipes.
#[test]
fn the_other_end_on_this_host() {
    if !common::need_root("lists the sockets of all processes") {
        return;
    }
    let program = common::build("peers.c", "other end", &["-O1", "-g"]);
    let dir = tempfile::tempdir().expect("a folder");
    let mut target = Running::start(&program, &[dir.path().to_str().expect("text")]);
    let expected = expected(&mut target);
    assert!(expected.len() >= 14, "{expected:?}");
    check(target.pid(), &expected, str::to_owned);
    // For people the address is the first to go.
    let text = dump(target.pid(), "text");
    let [.., wait] = expected.iter().find(|[of, ..]| of == "tcp-waits").expect("it is one");
    let (without, _) = wait.split_once(" (").expect("an address");
    assert!(text.contains(without), "{without}: {text}");
}

/// A connection that waits in the queue of a server which does not accept.
#[test]
fn connections_that_are_not_accepted() {
    if !common::need_root("reads descriptors of other processes") {
        return;
    }
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo ready; read -u 3");
    let client = Running::start(Path::new("bash"), &["-c", &script]);
    let own = fs::read_to_string("/proc/self/comm").expect("a name");
    let pid = std::process::id();
    let wait = format!(
        "read fd 3 -> {}[{pid}], connection not accepted yet (127.0.0.1:{port})",
        own.trim_end()
    );
    common::wait_until(&wait, || dump(client.pid(), "json").contains(&wait));
    let accepted = server.accept().expect("the client");
    let wait = wait.replace(", connection not accepted yet", "*");
    let threads: Value = serde_json::from_str(&dump(client.pid(), "json")).expect("JSON");
    let text = threads["threads"][0]["waits_for"].as_str().expect("text");
    assert!(is_like(text, &wait) && !text.contains("accepted"), "{text}");
    drop(accepted);
}

/// A timed run looks the other ends up while it lasts.
#[test]
fn a_recording_names_peers_and_children() {
    if !common::need_root("lists the sockets of all processes") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut target = Running::start(&program("recorded"), &[dir.path().to_str().expect("text")]);
    let expected = expected(&mut target);
    let record = |format: &str, arguments: &[&str]| {
        let pid = target.pid().to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_sampletop"))
            .args(["record", "-p", &pid, "--format", format, "--idle"])
            .args(arguments)
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let file = expected.iter().find(|[name, ..]| name == "read-pipe").expect("it is one");
    let report: Value = serde_json::from_str(&record("json", &["-d", "2s"])).expect("JSON");
    let waits = report["waits"].as_array().expect("waits");
    let of =
        |text: &str| waits.iter().find(|wait| is_like(wait["text"].as_str().expect("text"), text));
    assert!(of(&file[2]).is_some(), "{}: {waits:?}", file[2]);
    let child = of("wait4 child *, in pause").unwrap_or_else(|| panic!("a child: {waits:?}"));
    assert!(child["peers"][0]["pid"].as_u64() > Some(0), "{child}");
    assert!(child["functions"].to_string().contains("run"), "{child}");
    // Who holds a file lock is part of the facts.
    let locks = report["locks"].as_array().expect("locks").iter();
    let mut file_locks = locks.filter(|lock| lock["kind"] == "file lock");
    let is_ours =
        |held: &Value| held["pid"] == target.pid() && held["waited_ms"].as_f64() > Some(900.0);
    assert!(
        file_locks.any(|lock| lock["held_by"].as_array().expect("a list").iter().any(is_ours)),
        "{report}"
    );
    // A run that is too short for the first look is looked at when it ends.
    let short = record("text", &["-d", "100ms"]);
    assert!(short.contains("wait4 child "), "{short}");
    // A saved profile has the same.
    let saved = dir.path().join("p.sampletop");
    let saved = saved.to_str().expect("text");
    record("sampletop", &["-d", "2s", "-o", saved]);
    let open = |arguments: &[&str]| {
        let open = Command::new(env!("CARGO_BIN_EXE_sampletop"))
            .args(["open", saved, "--idle", "-o", "-"])
            .args(arguments)
            .output()
            .expect("it starts");
        assert!(open.status.success(), "{}", String::from_utf8_lossy(&open.stderr));
        String::from_utf8(open.stdout).expect("text")
    };
    let opened: Value = serde_json::from_str(&open(&["--format", "json"])).expect("JSON");
    let waits = opened["waits"].as_array().expect("waits");
    for text in [&file[2], "wait4 child *, in pause"] {
        let is_it = |wait: &Value| is_like(wait["text"].as_str().expect("text"), text);
        assert!(waits.iter().any(is_it), "{text}: {waits:?}");
    }
    assert!(open(&["--format", "text"]).contains("\nWAITS "));
    // Names are replaced there, too.
    let redacted = record("json", &["-d", "1s", "--redact"]);
    let folder = dir.path().file_name().and_then(|name| name.to_str()).expect("text");
    assert!(redacted.contains("wait4 child ") && !redacted.contains(folder), "{redacted}");
}

/// A thread's wait is described only while it is still the same wait.
#[test]
fn a_wait_that_is_over_is_not_described() {
    if !common::need_root("looks at descriptors") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut target = Running::start(&program("over"), &[dir.path().to_str().expect("text")]);
    let expected = expected(&mut target);
    let pid = target.pid();
    let tasks = Tasks::open(pid, 4).expect("its threads");
    let mut tids = Vec::new();
    tasks.list(&mut tids).expect("its threads");
    let of = |tid: &&u32| {
        fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).is_ok_and(|n| n == "read-pipe\n")
    };
    let tid = *tids.iter().find(of).expect("the thread");
    let mut files = tasks.thread(tid);
    let stat = tasks.stat(&mut files).expect("it lives");
    let Ok(Doing::Blocked { call, .. }) = tasks.doing(&mut files) else { panic!("it reads") };
    let asked = Asked { thread: ThreadKey { pid, tid, start: stat.start }, call, lock: Lock::No };
    let observe = |asked: Asked| {
        let mut found = None;
        Waits::default().observe_all(&[asked], |answer| {
            found = Some(answer.waits_for.to_string());
            true
        });
        found
    };
    let [.., text] =
        expected.iter().find(|[name, ..]| name == "read-pipe").expect("it is one of them");
    assert!(observe(asked).is_some_and(|found| is_like(&found, text)));
    let mut other = call;
    other.args[2] += 1;
    let another = observe(Asked { call: other, ..asked });
    assert!(another.is_some_and(|found| is_like(&found, text)), "another buffer");
    other.args[0] += 1;
    assert_eq!(observe(Asked { call: other, ..asked }), None, "another call");
    assert_eq!(
        observe(Asked { call: Syscall { number: 1, ..call }, ..asked }),
        None,
        "another number"
    );
    let born = ThreadKey { start: stat.start + 1, ..asked.thread };
    assert_eq!(observe(Asked { thread: born, ..asked }), None, "another thread of this id");
    drop(target);
    assert_eq!(observe(asked), None, "it has ended");
}
