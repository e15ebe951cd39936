use super::*;
use crate::formats::fixture;
use crate::model::facts::tables::{FrameId, NameId, Named, Parts, StackId};
use crate::model::projection::waits::{Peer, PeerProcess};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{Marker, RawFrame};
use crate::model::vocabulary::state::FutexKind;
use proptest::prelude::*;

fn wait(what: &'static str, object: &str) -> WaitsFor {
    WaitsFor { what, object: object.to_owned(), ..WaitsFor::default() }
}

fn thread(tid: u32, name: &str, state: State, frames: &[&str]) -> DumpThread {
    DumpThread {
        thread: ThreadKey { pid: 42, tid, start: 9 },
        name: name.into(),
        kind: ThreadKind::Plain,
        state,
        waits_for: (tid == 44).then(|| wait("mutex", "held by worker-3")),
        blocker: BlockerId::NONE,
        timed: false,
        cpu_ns: 12_345_678,
        complete: true,
        recovered: tid == 44,
        frames: frames.iter().map(|f| (fixture::location(f), role(f))).collect(),
    }
}

/// `audit` and what it calls inline are the user's.
fn role(function: &str) -> Role {
    if matches!(function, "audit" | "round") { Role::App } else { Role::Library }
}

fn dump(threads: Vec<DumpThread>) -> Dump {
    Dump {
        session: fixture::session().into(),
        targets: [fixture::target()].into(),
        at: fixture::START + 1,
        took_ns: 12_345_678,
        capture: "perf".into(),
        notice: None,
        threads,
        deadlocks: Arc::default(),
        tasks: Vec::new(),
        goroutines: Vec::new(),
        wakeups: None,
        wakers: Vec::new(),
        tables: Tables::default(),
    }
}

fn service() -> Dump {
    dump(vec![
        thread(42, "main", State::Poll, &["epoll_wait", "serve", "main"]),
        thread(43, "worker-1", State::Lock, &["__lll_lock_wait", "audit", "run"]),
        thread(44, "worker-2", State::Lock, &["__lll_lock_wait", "audit", "run"]),
        thread(45, "worker-3", State::Run, &["round", "audit", "run"]),
    ])
}

fn text(dump: &Dump) -> String {
    written(dump, false)
}

fn written(dump: &Dump, each: bool) -> String {
    let mut out = Vec::new();
    write_text(dump, each, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("ASCII is UTF-8")
}

#[test]
fn an_address_gives_way_to_the_process_at_the_other_end() {
    let process = PeerProcess { name: "postgres".into(), pid: 812 };
    let peer = Some(Peer { processes: vec![process], ..Peer::default() });
    let wait = WaitsFor { fd: Some(7), peer, ..wait("recv", "-> 127.0.0.1:5432") };
    let whole = "recv fd 7 -> postgres[812] (127.0.0.1:5432)";
    assert_eq!(beside(&wait, whole.len()).as_deref(), Some(whole));
    let short = "recv fd 7 -> postgres[812]";
    assert_eq!(beside(&wait, whole.len() - 1).as_deref(), Some(short));
    assert_eq!(beside(&wait, short.len()).as_deref(), Some(short));
    assert_eq!(beside(&wait, short.len() - 1), None);
    let alone = WaitsFor { peer: None, ..wait.clone() };
    assert_eq!(beside(&alone, 20).as_deref(), Some("recv ...7.0.0.1:5432"));
    // On a line of its own.
    let mut thread = thread(44, &"n".repeat(NAME_MAX), State::Io, &["recv"]);
    let peer = wait.peer.map(|peer| Peer { title: "idle in transaction".into(), ..peer });
    let wait = WaitsFor { peer, ..wait };
    let whole = wait.to_string();
    thread.waits_for = Some(wait);
    let text = text(&dump(vec![thread]));
    assert!(text.contains(&format!("\n         {whole}\n")), "{text}");
}

#[test]
fn threads_with_equal_stacks_stand_together() {
    let text = text(&service());
    let body = text.split_once("Capture      perf\n\n").expect("a head").1;
    let expected = "     42 main             poll     cpu 12.346 ms
        #0   epoll_wait  main.c:7  [app]
        #1   serve  main.c:7  [app]
        #2   main  main.c:7  [app]

     43 worker-1         lock     cpu 12.346 ms
     44 worker-2         lock     cpu 12.346 ms  mutex held by worker-3
         frame pointer found by search
        #0   __lll_lock_wait  main.c:7  [app]
      > #1   audit  main.c:7  [app]
        #2   run  main.c:7  [app]

     45 worker-3         run      cpu 12.346 ms
      > #0   round  main.c:7  [app]
        #1   audit  main.c:7  [app]
        #2   run  main.c:7  [app]
";
    assert_eq!(body, expected);
    let first = "sampletop dump pid=42 host=node7 threads=4 at=2026-01-02T03:04:05.123Z";
    assert_eq!(text.lines().next(), Some(first));
}

#[test]
fn each_thread_can_have_its_own_stack() {
    let text = written(&service(), true);
    let body = text.split_once("Capture      perf\n\n").expect("a head").1;
    let lock = "        #0   __lll_lock_wait  main.c:7  [app]
      > #1   audit  main.c:7  [app]
        #2   run  main.c:7  [app]
";
    let first = format!("     43 worker-1         lock     cpu 12.346 ms\n{lock}\n");
    let second = format!(
        "     44 worker-2         lock     cpu 12.346 ms  mutex held by worker-3\n         frame pointer found by search\n{lock}\n"
    );
    assert!(body.contains(&format!("{first}{second}")), "{body}");
}

#[test]
fn a_thread_has_the_locks_that_others_wait_for() {
    let mut dump = service();
    let wait = |kind, object| Blocker {
        kind,
        pid: 42,
        object,
        class: Some("com.acme.TaxTable".into()),
        holder: Holder::Thread {
            thread: dump.threads[3].thread,
            name: NameId(0),
            stack: StackId::EMPTY,
        },
    };
    let kinds = [(BlockerKind::Monitor, 16), (BlockerKind::ThreadEnd, 32)];
    let frame = RawFrame::marker(Marker::Torn);
    dump.tables = Tables::from_parts(Parts {
        blockers: kinds.map(|(kind, object)| wait(kind, object)).into(),
        names: vec![("worker-3".into(), ThreadKind::Plain)],
        stacks: vec![(StackId::EMPTY, FrameId(0), FutexKind::Wait)],
        frames: vec![(frame, Named::unnamed(frame))],
    })
    .expect("sound");
    dump.threads[0].blocker = BlockerId(2);
    (dump.threads[1].blocker, dump.threads[2].blocker) = (BlockerId(1), BlockerId(1));
    let held = "     45 worker-3         run      cpu 12.346 ms
         holding monitor of com.acme.TaxTable 0x10, for which 2 threads wait
      > #0   round  main.c:7  [app]
";
    let text = text(&dump);
    assert!(text.contains(held), "{text}");
    assert_eq!(text.matches("holding").count(), 1, "an end is not held: {text}");
    dump.threads[2].blocker = BlockerId::NONE;
    assert!(self::text(&dump).contains("0x10, for which 1 thread waits\n"));
}

#[test]
fn only_the_threads_of_a_deadlock_are_written() {
    let write = |dump: &Dump| {
        let mut out = Vec::new();
        write_deadlocks(dump, 4, &mut out).expect("memory takes everything");
        String::from_utf8(out).expect("ASCII is UTF-8")
    };
    let mut dump = service();
    assert_eq!(write(&dump), "no deadlock among the 4 threads of process 42\n");
    dump.notice = Some("process 7 may not be watched".into());
    assert!(write(&dump).ends_with("42\nNotice       process 7 may not be watched\n"));
    dump.notice = None;
    let key = |tid| ThreadKey { pid: 42, tid, start: 9 };
    dump.deadlocks = [Deadlock { since: 0, threads: [key(43), key(44)].into() }].into();
    let stuck = |held_by| Blocker {
        kind: BlockerKind::Mutex,
        pid: 42,
        object: 0x10,
        class: None,
        holder: Holder::Foreign { pid: 42, tid: held_by },
    };
    let blockers = [44, 43].map(stuck).into();
    dump.tables = Tables::from_parts(Parts { blockers, ..Parts::default() }).expect("sound");
    (dump.threads[1].blocker, dump.threads[2].blocker) = (BlockerId(1), BlockerId(2));
    let text = write(&dump);
    let first = "sampletop dump pid=42 host=node7 deadlocks=1 at=2026-01-02T03:04:05.123Z\n";
    assert!(text.starts_with(first), "{text}");
    let (_, cycle) = text.split_once(&format!("\n{CYCLE}\n\n")).expect("a cycle");
    let expected = "     43 worker-1         lock     cpu 12.346 ms
         waiting for mutex 0x10, held by thread 44
        #0   __lll_lock_wait  main.c:7  [app]
      > #1   audit  main.c:7  [app]
        #2   run  main.c:7  [app]

     44 worker-2         lock     cpu 12.346 ms  mutex held by worker-3
         frame pointer found by search
         waiting for mutex 0x10, held by thread 43
        #0   __lll_lock_wait  main.c:7  [app]
      > #1   audit  main.c:7  [app]
        #2   run  main.c:7  [app]
";
    assert_eq!(cycle, expected);
    dump.threads[1].timed = true;
    let timed = "waiting for mutex 0x10 (with a time limit), held by thread 44\n";
    assert_eq!(write(&dump).matches(timed).count(), 1);
}

#[test]
fn a_thread_of_several_processes_says_whose_it_is() {
    let mut dump = service();
    let mut other = fixture::target();
    other.pid = 7;
    dump.targets = [fixture::target(), other].into();
    let mut foreign = thread(43, "worker-1", State::Lock, &["__lll_lock_wait", "audit", "run"]);
    foreign.thread.pid = 7;
    dump.threads.push(foreign);
    let text = text(&dump);
    for start in ["     42/     43 worker-1 ", "      7/     43 worker-1 "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{text}");
    }
}

#[test]
fn long_names_of_threads_stay_whole() {
    let names = ["http-nio-8080-exec-10", "main", &"long".repeat(20)];
    let threads = names.iter().map(|name| thread(43, name, State::Wait, &["run"])).collect();
    let text = text(&dump(threads));
    let found: Vec<&str> =
        text.lines().filter(|line| line.starts_with("     43 ")).map(|line| &line[8..50]).collect();
    assert_eq!(found[0], "http-nio-8080-exec-10                 wait");
    assert_eq!(found[1], "main                                  wait");
    assert_eq!(found[2], "longlonglon...nglonglonglonglonglong  wait");
}

#[test]
fn scripts_get_one_entry_per_thread() {
    let mut out = Vec::new();
    write_json(&service(), &mut out).expect("memory takes everything");
    let text = String::from_utf8(out).expect("UTF-8");
    let start = r#"{"schema":"sampletop-dump/1","at":"2026-01-02T03:04:05.123Z","took_ms":12.346,"notice":null,"targets":[{"pid":42,"command":"app --port 80","runtime":"native"}],"threads":[{"pid":42,"tid":42,"name":"main","kind":"plain","state":"poll","waits_for":null,"blocker":null,"cpu_ms":12.346,"complete":true,"recovered":false,"frames":[{"frame":"epoll_wait","file":"/src/app/main.c","line":7,"module":"/usr/bin/app","kind":"native","tier":null,"role":"library"},"#;
    assert!(text.starts_with(start), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(value["threads"].as_array().map(Vec::len), Some(4));
    assert_eq!(value["threads"][2]["recovered"], true);
    assert_eq!(value["threads"][2]["waits_for"], "mutex held by worker-3");
    assert_eq!(value["threads"][3]["frames"][0]["frame"], "round");
}

proptest! {
    #[test]
    fn every_line_is_ascii_and_fits(names in proptest::collection::vec((".{0,40}", proptest::collection::vec(".{0,200}", 0..9)), 0..9)) {
        let threads = names.iter().enumerate().map(|(i, (name, frames))| {
            let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
            let mut thread = thread(u32::MAX - i as u32, name, State::Stopped, &frames);
            thread.waits_for = frames.first().map(|text| wait("open", text));
            thread.recovered = i % 2 == 1;
            thread.blocker = BlockerId(1 + i as u32);
            thread
        });
        let mut dump = dump(threads.collect());
        let blockers = names.iter().map(|(_, frames)| Blocker {
            kind: BlockerKind::OwnedLock,
            pid: 42,
            object: u64::MAX,
            class: frames.first().map(|text| text.as_str().into()),
            holder: Holder::Thread { thread: dump.threads[0].thread, name: NameId(0), stack: StackId::EMPTY },
        });
        let name = (names.first().map_or("", |(name, _)| name).into(), ThreadKind::Plain);
        let empty = (StackId::EMPTY, FrameId(0), FutexKind::Wait);
        let frame = (RawFrame::marker(Marker::Torn), Named::unnamed(RawFrame::marker(Marker::Torn)));
        dump.tables = Tables::from_parts(Parts {
            blockers: blockers.collect(),
            names: vec![name],
            stacks: vec![empty],
            frames: vec![frame],
        }).expect("sound");
        let threads = dump.threads.iter().map(|thread| thread.thread).collect();
        dump.deadlocks = [Deadlock { since: 0, threads }].into();
        for line in text(&dump).lines() {
            prop_assert!(line.len() <= 100 && line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{:?}", line);
        }
        let mut out = Vec::new();
        write_json(&dump, &mut out).expect("memory takes everything");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("it is JSON");
        for (thread, (name, _)) in value["threads"].as_array().expect("a list").iter().zip(&names) {
            prop_assert_eq!(thread["name"].as_str(), Some(name.as_str()));
        }
    }
}
