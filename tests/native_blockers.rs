//! What blocked threads of native programs wait for, and who holds it: C and Rust programs whose
//! threads wait in every way, and print what is right.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::Running;
use sampletop::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use sampletop::process::blockers::{BlockedThread, file_lock_holder, native_blocker};
use sampletop::process::memory::Memory;
use sampletop::process::threads::{Doing, Tasks};

/// Returns the program's lines, each in words.
fn expected(target: &mut Running) -> Vec<Vec<String>> {
    let lines =
        target.lines.by_ref().map(|line| line.expect("text")).take_while(|line| line != "end");
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// The threads of a process: ids in its own PID namespace, and ours.
fn thread_ids(pid: u32) -> HashMap<u32, u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let ids = tasks.map(|entry| {
        let path = entry.expect("an entry").path();
        let status = fs::read_to_string(path.join("status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).expect("ids");
        let ids: Vec<u32> =
            line.split_whitespace().map(|id| id.parse().expect("a number")).collect();
        (ids[ids.len() - 1], ids[0])
    });
    ids.collect()
}

/// Observes a thread as the sampler does; with the holder of a file lock.
fn observe(pid: u32, tid: u32, ids: &HashMap<u32, u32>) -> Option<RawBlocker> {
    let tasks = Tasks::open(pid, 4).expect("its threads");
    let mut files = tasks.thread(tid);
    let Ok(Doing::Blocked { call, .. }) = tasks.doing(&mut files) else {
        panic!("thread {tid} does not wait")
    };
    let memory = Memory::new(pid);
    let thread_id = |number: u32| ids.get(&number).copied();
    let thread = BlockedThread { pid, tid, memory: &memory, thread_id: &thread_id };
    let mut found = native_blocker(&thread, &call)?;
    if found.kind == BlockerKind::FileLock {
        found.holder = file_lock_holder(pid, &call, found.object);
    }
    Some(found)
}

/// Formats a blocker as the programs do.
fn text(blocker: Option<RawBlocker>) -> String {
    let Some(RawBlocker { kind, object, class: None, holder }) = blocker else {
        return "none".into();
    };
    let object = match kind {
        BlockerKind::FileLock | BlockerKind::Child => object.to_string(),
        _ => format!("{object:#x}"),
    };
    let holder = match holder {
        RawHolder::Thread { pid, tid } => format!("thread:{pid}:{tid}"),
        RawHolder::Readers(count) => format!("readers:{count}"),
        RawHolder::Unknown => "unknown".into(),
        other => format!("{other:?}"),
    };
    format!("{} {object} {holder}", kind.word().replace(' ', "-"))
}

/// Compares every line `NAME TID KIND...` with what is observed; `change` turns the program's text
/// into ours. Returns the number of threads of each kind.
fn check(
    pid: u32,
    expected: &[Vec<String>],
    change: impl Fn(String) -> String,
) -> HashMap<String, usize> {
    let ids = thread_ids(pid);
    let mut wrong = Vec::new();
    let mut counts = HashMap::new();
    for line in expected {
        let [name, tid, words @ ..] = line.as_slice() else { panic!("{line:?}") };
        let tid = ids[&tid.parse().expect("an id")];
        let (expected, found) = (change(words.join(" ")), text(observe(pid, tid, &ids)));
        if found != expected {
            wrong.push(format!("{name}: {found}, not {expected}"));
        }
        *counts.entry(words[0].clone()).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), expected.len(), wrong.join("\n"));
    counts
}

fn program() -> PathBuf {
    common::build("blockers.c", "every", &["-O2", "-g"])
}

#[test]
fn every_kind_of_wait_in_c() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut target = Running::start(&program(), &[dir.path().to_str().expect("text")]);
    let expected = expected(&mut target);
    let counts = check(target.pid(), &expected, |text| text);
    eprintln!("{counts:?}");
    for (kind, least) in [("mutex", 115), ("rwlock", 48), ("thread-end", 3), ("none", 37)] {
        assert!(counts[kind] >= least, "{kind}: {counts:?}");
    }
}

/// In a PID namespace of its own: the program's ids are not ours.
#[test]
fn every_kind_of_wait_in_a_container() {
    if !common::need_root("makes namespaces") {
        return;
    }
    let program = program();
    let dir = tempfile::tempdir().expect("a folder");
    let args = [
        "--pid",
        "--mount-proc",
        "--fork",
        "--kill-child",
        program.to_str().expect("text"),
        dir.path().to_str().expect("text"),
    ];
    let mut outer = Running::start(Path::new("unshare"), &args);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.pid()))
        .expect("the child's pid");
    let pid: u32 = children.trim().parse().expect("one child");
    let expected = expected(&mut outer);
    // The holders of file locks are the program's children.
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its children");
    let mut ids = thread_ids(pid);
    for child in children.split_whitespace() {
        ids.extend(thread_ids(child.parse().expect("an id")));
    }
    check(pid, &expected, |text| {
        let Some((start, holder)) = text.split_once(" thread:") else { return text };
        let mut numbers = holder.split(':').map(|id| ids[&id.parse().expect("an id")]);
        let [holder_pid, tid] = [(); 2].map(|()| numbers.next().expect("two ids"));
        // A child is not looked for in another namespace, nor is another process's mutex.
        if holder_pid != pid && !start.starts_with("file-lock") {
            return format!("{start} unknown");
        }
        format!("{start} thread:{holder_pid}:{tid}")
    });
}

/// A Mutex of Rust waits with the value of a locked mutex of C, and has no owner.
#[test]
fn waits_of_the_standard_library_of_rust() {
    let program = common::build("blockers.rs", "std", &["--edition", "2024", "-O"]);
    let mut target = Running::start(&program, &[]);
    let expected = expected(&mut target);
    let pid = target.pid();
    let ids = thread_ids(pid);
    assert!(expected.len() >= 28, "{expected:?}");
    for line in &expected {
        let [name, tid, words @ ..] = line.as_slice() else { panic!("{line:?}") };
        let found = observe(pid, ids[&tid.parse().expect("an id")], &ids);
        match words {
            [none] => assert_eq!((none.as_str(), found), ("none", None), "{name}"),
            [_, holder] => {
                let found = found.unwrap_or_else(|| panic!("{name}: no blocker"));
                assert_eq!(found.kind, BlockerKind::ThreadEnd);
                let tid = holder.strip_prefix("thread:").and_then(|tid| tid.parse().ok());
                let tid = tid.expect("an id");
                assert_eq!(found.holder, RawHolder::Thread { pid, tid }, "{name}");
            }
            _ => panic!("{line:?}"),
        }
    }
}
