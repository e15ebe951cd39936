use super::*;
use crate::formats::fixture;
use crate::model::facts::tasks::TaskName;

fn name(id: u64, name: &str) -> TaskName {
    TaskName { id, name: name.into() }
}

fn task(id: u64, name: &str, frames: &[&str], awaits: Option<Awaited>) -> DumpTask {
    let task = Task {
        id,
        tid: Some(42),
        name: name.into(),
        runs: false,
        frames: frames.iter().map(|frame| fixture::location(frame)).collect(),
        awaits,
        awaited_by: Vec::new(),
        has_more_waiters: false,
    };
    let role = |frame: &&str| if *frame == "fetch" { Role::App } else { Role::Library };
    DumpTask { task, roles: frames.iter().map(role).collect() }
}

fn future() -> Option<Awaited> {
    Some(Awaited::Object("_asyncio.Future".into()))
}

fn of_process(tasks: Vec<DumpTask>) -> DumpTasks {
    DumpTasks { pid: 42, found: tasks.len(), tasks, unreadable: 0, is_incomplete: false }
}

fn written(all: &[DumpTasks], several: bool, each: bool) -> String {
    let mut out = Vec::new();
    write_text(all, several, each, &mut Page { out: &mut out }).expect("memory takes everything");
    String::from_utf8(out).expect("ASCII is UTF-8")
}

fn some() -> DumpTasks {
    let mut runs = task(1, "main", &["main"], None);
    runs.task.runs = true;
    let mut first = task(2, "fetch prices", &["sleep", "fetch"], future());
    first.task.awaited_by = vec![name(4, "Task-4"), name(1, "main")];
    let second = task(3, "größe", &["sleep", "fetch"], future());
    let third = task(4, "Task-4", &["gather"], Some(Awaited::Task(name(2, "fetch prices"))));
    let mut last = task(5, "Task-5", &["sleep", "fetch"], None);
    last.task.tid = None;
    of_process(vec![runs, first, second, third, last])
}

#[test]
fn tasks_with_equal_coroutines_stand_together() {
    let expected = "
TASKS: 5 have not ended

     42 main             runs
        #0   main  main.c:7  [app]

     42 fetch prices     awaits a future
         awaited by Task-4, main
     42 gr\\u{f6}\\u{df}e  awaits a future
        #0   sleep  main.c:7  [app]
      > #1   fetch  main.c:7  [app]

     42 Task-4           awaits task fetch prices
        #0   gather  main.c:7  [app]

      - Task-5           waits for its turn
        #0   sleep  main.c:7  [app]
      > #1   fetch  main.c:7  [app]
";
    assert_eq!(written(&[some()], false, false), expected);
    let each = written(&[some()], true, true);
    assert!(each.starts_with("\nTASKS of process 42: 5 have not ended\n"), "{each}");
    assert_eq!(each.matches("> #1   fetch").count(), 3);
    assert_eq!(written(&[], false, false), "");
}

#[test]
fn what_is_missing_is_said() {
    let title = |found, unreadable, is_incomplete, read: usize| {
        let tasks = vec![task(1, "a", &[], None); read];
        title(&DumpTasks { pid: 42, tasks, found, unreadable, is_incomplete }, false)
    };
    assert_eq!(title(1, 0, false, 1), "TASKS: 1 has not ended");
    assert_eq!(
        title(3, 1, true, 2),
        "TASKS: at least 3 have not ended; 1 changed each time it was read"
    );
    assert_eq!(
        title(9, 2, false, 3),
        "TASKS: 9 have not ended; 2 changed each time they were read; 4 were not read"
    );
}

#[test]
fn long_lists_are_cut() {
    let same = (0..25).map(|id| task(id, &format!("Task-{id}"), &["fetch"], future()));
    let text = written(&[of_process(same.collect())], false, false);
    assert!(text.contains(" Task-9 ") && !text.contains("Task-10"), "{text}");
    assert!(text.contains("\n         and 15 more with the same coroutines\n"), "{text}");
    let other = (0..1007).map(|id| task(id, &format!("t{id}"), &[&format!("f{id}")], None));
    let text = written(&[of_process(other.collect())], false, false);
    assert!(text.contains("f999") && !text.contains("f1000"), "{}", text.len());
    assert!(text.ends_with("\n         7 more tasks; json has them\n"));
    for (waiters, has_more, expected) in [
        (7, false, "awaited by w0, w1, w2, w3, w4 and 2 more\n"),
        (7, true, "awaited by w0, w1, w2, w3, w4 and at least 2 more\n"),
        (1, true, "awaited by w0 and more\n"),
        (0, true, "awaited by tasks that were not read\n"),
    ] {
        let mut popular = task(1, "a", &["fetch"], None);
        popular.task.awaited_by = (0..waiters).map(|id| name(id, &format!("w{id}"))).collect();
        popular.task.has_more_waiters = has_more;
        let text = written(&[of_process(vec![popular])], false, false);
        assert!(text.contains(expected), "{text}");
    }
    let long = "n".repeat(500);
    let mut long = task(1, &long, &[&long], Some(Awaited::Task(name(2, &long))));
    long.task.awaited_by = vec![name(2, &"w".repeat(500)); 3];
    let text = written(&[of_process(vec![long])], false, false);
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
}

#[test]
fn json_has_every_task() {
    let mut all = some();
    (all.unreadable, all.is_incomplete) = (1, true);
    let line = serde_json::to_value(TasksLine::new(&all)).expect("JSON");
    assert_eq!((&line["pid"], &line["found"]), (&42.into(), &5.into()));
    assert_eq!((&line["unreadable"], &line["incomplete"]), (&1.into(), &true.into()));
    let list = line["list"].as_array().expect("a list");
    assert_eq!((&list[0]["runs"], &list[0]["awaits"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(list[1]["awaits"].to_string(), r#"{"object":"_asyncio.Future"}"#);
    let by = r#"[{"id":"0x4","name":"Task-4"},{"id":"0x1","name":"main"}]"#;
    assert_eq!(list[1]["awaited_by"].to_string(), by);
    assert_eq!(list[1]["more_waiters"], false);
    assert_eq!(list[1]["frames"][1]["frame"], "fetch");
    assert_eq!(list[3]["awaits"].to_string(), r#"{"task":{"id":"0x2","name":"fetch prices"}}"#);
    assert_eq!((&list[4]["id"], &list[4]["tid"]), (&"0x5".into(), &serde_json::Value::Null));
    assert_eq!(list[2]["name"], "größe");
}
