//! One stack of every thread.

use std::io::{self, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::ascii::fit;
use super::text::{Page, WIDTH, head, place};
use super::{dates, json};
use crate::model::facts::snapshot::{Deadlock, Session, Target};
use crate::model::facts::tables::{Blocker, BlockerId, Holder, Location, Tables};
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// Columns of threads' names: what the kernel keeps of one, and as much of a runtime's as leaves
/// room for what is waited for.
const NAME_MIN: usize = 15;
const NAME_MAX: usize = 36;

/// One process and its threads.
#[derive(Clone, Debug)]
pub struct Dump {
    pub session: Arc<Session>,
    pub targets: Arc<[Target]>,
    /// When the last stack was taken, CLOCK_MONOTONIC.
    pub at: Ns,
    /// Duration within which the stacks were taken.
    pub took_ns: Ns,
    /// The backend, as the header names it.
    pub capture: Arc<str>,
    /// What was unavailable, or what changed.
    pub notice: Option<Arc<str>>,
    /// In written order; text groups equal stacks.
    pub threads: Vec<DumpThread>,
    pub deadlocks: Arc<[Deadlock]>,
    /// Says what blockers are.
    pub tables: Tables,
}

/// One thread.
#[derive(Clone, Debug)]
pub struct DumpThread {
    pub thread: ThreadKey,
    pub name: Arc<str>,
    pub kind: ThreadKind,
    pub state: State,
    /// What it waits for, if known; cleaned.
    pub waits_for: Option<String>,
    /// The lock or the like that it waits for, and who holds it, if known.
    pub blocker: BlockerId,
    /// CPU time since the thread's birth, ns.
    pub cpu_ns: u64,
    /// The stack is proven complete.
    pub complete: bool,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
    /// Innermost first, including inlined frames, with whose code each is; an incomplete stack ends
    /// in a marker.
    pub frames: Vec<(Location, Role)>,
}

/// Writes text: threads with equal stacks together, in the order of their first, or with `each` one
/// by one. The innermost frame is on top; `>` marks the innermost of the user's code.
pub fn write_text(dump: &Dump, each: bool, out: &mut dyn Write) -> io::Result<()> {
    let page = &mut Page { out };
    let pid = dump.targets.first().map_or(0, |target| target.pid);
    let at = dates::unix_ns(&dump.session, dump.at);
    let host = head::quoted(&dump.session.host, 20);
    let threads = dump.threads.len();
    page.line(&format!(
        "sampletop dump pid={pid} host={host} threads={threads} at={}",
        dates::rfc3339(at)
    ))?;
    head::identity(&dump.session, &dump.targets, page)?;
    page.blank()?;
    let took = dump.took_ns as f64 / 1e6;
    page.field("At", &format!("{} UTC, stacks taken within {took:.0} ms", dates::utc(at)))?;
    page.field("Capture", &dump.capture)?;
    if let Some(notice) = &dump.notice {
        page.field("Notice", notice)?;
    }
    let longest =
        dump.threads.iter().map(|thread| fit(&thread.name, NAME_MAX).len()).max().unwrap_or(0);
    let width = longest.max(NAME_MIN);
    // With several processes each thread names its own.
    let several = dump.targets.len() > 1;
    let lists = match each {
        true => dump.threads.iter().map(|thread| vec![thread]).collect(),
        false => alike(&dump.threads),
    };
    for alike in lists {
        page.blank()?;
        for thread in &alike {
            let key = thread.thread;
            let (tid, name, state) = (key.tid, fit(&thread.name, NAME_MAX), thread.state.word());
            let cpu = thread.cpu_ns as f64 / 1e6;
            let pid = if several { format!("{:>7}/", key.pid) } else { String::new() };
            let mut line = format!("{pid}{tid:>7} {name:<width$}  {state:<7}  cpu {cpu:.3} ms");
            if let Some(waits_for) = &thread.waits_for {
                line += "  ";
                line += &fit(waits_for, WIDTH.saturating_sub(line.len()));
            }
            let note = "  frame pointer found by search";
            if thread.recovered && line.len() + note.len() <= WIDTH {
                line += note;
            } else if thread.recovered {
                page.line(&line)?;
                line = format!("       {note}");
            }
            page.line(&line)?;
            if let Some(blocker) = dump.tables.blocker(thread.blocker) {
                page.line(&format!("{:>9}{}", "", waiting_for(blocker, &dump.tables)))?;
            }
        }
        let frames = alike.first().map_or(&[][..], |thread| &thread.frames);
        let mine = frames.iter().position(|(_, role)| *role == Role::App);
        for (depth, (frame, _)) in frames.iter().enumerate() {
            let mark = if mine == Some(depth) { '>' } else { ' ' };
            let mut line = format!("      {mark} #{depth:<3} ");
            line.push_str(&place(frame, WIDTH.saturating_sub(line.len())));
            page.line(&line)?;
        }
    }
    write_deadlocks(dump, page)
}

/// `waiting for monitor of com.acme.TaxTable 0x7f5a01c8, held by scheduling-1 (4711)`.
fn waiting_for(blocker: &Blocker, tables: &Tables) -> String {
    let class = blocker.class.as_ref().map(|class| format!(" of {class}")).unwrap_or_default();
    let held = match blocker.holder {
        Holder::Unknown => String::new(),
        Holder::Free => ", just released".into(),
        Holder::Thread { thread, name, .. } => {
            format!(", held by {} ({})", tables.name(name), thread.tid)
        }
        Holder::Foreign { pid, tid } => format!(", held by thread {tid} of process {pid}"),
        Holder::Readers(count) => format!(", held by {count} readers"),
        Holder::Unmounted => ", held by a virtual thread that does not run".into(),
    };
    format!("waiting for {}{class} {:#x}{held}", blocker.kind.word(), blocker.object)
}

/// Writes each deadlock as the circle of its threads.
fn write_deadlocks(dump: &Dump, page: &mut Page<'_>) -> io::Result<()> {
    for Deadlock { threads, .. } in dump.deadlocks.iter() {
        page.title("DEADLOCK: each of these threads waits for the next, the last for the first")?;
        for key in threads.iter() {
            let thread = dump.threads.iter().find(|thread| thread.thread == *key);
            let name = thread.map_or("", |thread| &*thread.name);
            let blocker = thread.and_then(|thread| dump.tables.blocker(thread.blocker));
            let waits = blocker.map_or(String::new(), |blocker| waiting_for(blocker, &dump.tables));
            page.line(&format!("{:>7} {name:<NAME_MIN$}  {waits}", key.tid))?;
        }
    }
    Ok(())
}

/// Groups the threads by stack: each list has the same frames.
fn alike(threads: &[DumpThread]) -> Vec<Vec<&DumpThread>> {
    let mut lists: Vec<Vec<&DumpThread>> = Vec::new();
    let mut by_stack: FxHashMap<&[(Location, Role)], usize> = FxHashMap::default();
    for thread in threads {
        let list = *by_stack.entry(&thread.frames).or_insert(lists.len());
        match lists.get_mut(list) {
            Some(list) => list.push(thread),
            None => lists.push(vec![thread]),
        }
    }
    lists
}

/// Writes JSON: schema `sampletop-dump/1`, one entry per thread, innermost frame first.
pub fn write_json(dump: &Dump, out: &mut dyn Write) -> io::Result<()> {
    let document = Document {
        schema: "sampletop-dump/1",
        at: dates::rfc3339(dates::unix_ns(&dump.session, dump.at)),
        took_ms: json::Rounded::ms(dump.took_ns),
        notice: dump.notice.as_deref(),
        targets: json::targets(&dump.targets),
        threads: dump.threads.iter().map(|t| ThreadLine::new(t, &dump.tables)).collect(),
        deadlocks: (dump.deadlocks.iter())
            .map(|deadlock| deadlock.threads.iter().map(|t| (t.pid, t.tid)).collect())
            .collect(),
    };
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    at: String,
    /// Duration before that moment within which the stacks were taken.
    took_ms: json::Rounded,
    notice: Option<&'a str>,
    targets: Vec<json::TargetLine<'a>>,
    threads: Vec<ThreadLine<'a>>,
    /// Process and thread ids: each thread waits for the next, the last for the first.
    deadlocks: Vec<Vec<(u32, u32)>>,
}

#[derive(Serialize)]
struct ThreadLine<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    /// `plain`, `daemon` or, for a runtime's own thread, `internal`.
    kind: &'static str,
    state: &'static str,
    waits_for: Option<&'a str>,
    blocker: Option<json::BlockerLine<'a>>,
    cpu_ms: json::Rounded,
    complete: bool,
    recovered: bool,
    frames: Vec<json::FrameLine<'a>>,
}

impl<'a> ThreadLine<'a> {
    fn new(thread: &'a DumpThread, tables: &'a Tables) -> ThreadLine<'a> {
        ThreadLine {
            pid: thread.thread.pid,
            tid: thread.thread.tid,
            name: &thread.name,
            kind: thread.kind.word(),
            state: thread.state.word(),
            waits_for: thread.waits_for.as_deref(),
            blocker: (tables.blocker(thread.blocker))
                .map(|blocker| json::BlockerLine::new(blocker, tables)),
            cpu_ms: json::Rounded::ms(thread.cpu_ns),
            complete: thread.complete,
            recovered: thread.recovered,
            frames: thread
                .frames
                .iter()
                .map(|(location, role)| json::FrameLine::of_role(location, *role))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::fixture;
    use proptest::prelude::*;

    fn thread(tid: u32, name: &str, state: State, frames: &[&str]) -> DumpThread {
        DumpThread {
            thread: ThreadKey { pid: 42, tid, start: 9 },
            name: name.into(),
            kind: ThreadKind::Plain,
            state,
            waits_for: (tid == 44).then(|| "mutex held by worker-3".to_owned()),
            blocker: BlockerId::NONE,
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
        let found: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("     43 "))
            .map(|line| &line[8..50])
            .collect();
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
                thread.waits_for = frames.first().map(|text| (*text).to_owned());
                thread.recovered = i % 2 == 1;
                thread
            });
            let dump = dump(threads.collect());
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
}
