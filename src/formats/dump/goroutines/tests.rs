use super::*;
use crate::formats::fixture;

fn framed(name: &str) -> (Location, Role) {
    let role = if name.starts_with("main.") { Role::App } else { Role::Library };
    (fixture::location(name), role)
}

fn goroutine(id: u64, state: &str, waited: Option<Ns>, frames: &[&str]) -> DumpGoroutine {
    DumpGoroutine {
        id,
        state: state.into(),
        waited,
        lock: None,
        labels: None,
        frames: frames.iter().map(|frame| framed(frame)).collect(),
        created_by: None,
    }
}

fn of_process(list: Vec<DumpGoroutine>) -> DumpGoroutines {
    DumpGoroutines { pid: 42, found: list.len() + 3, list, on_threads: 3, unreadable: 0 }
}

fn written(all: &[DumpGoroutines], several: bool, each: bool) -> String {
    let mut out = Vec::new();
    write_text(all, several, each, &mut Page { out: &mut out }).expect("memory takes everything");
    String::from_utf8(out).expect("ASCII is UTF-8")
}

fn some() -> DumpGoroutines {
    let receives = |id, minutes: Ns| {
        let mut one = goroutine(
            id,
            "chan receive",
            Some(minutes * MINUTE),
            &["runtime.gopark", "main.worker"],
        );
        one.created_by = Some(framed("main.start"));
        one
    };
    let mut other = receives(8, 5);
    other.created_by = Some(framed("main.restart"));
    let mut runnable = goroutine(10, "runnable", None, &["main.worker"]);
    runnable.frames.clear();
    of_process(vec![
        goroutine(17, "IO wait", Some(150 * SECOND), &["main.read"]),
        receives(4, 12),
        other,
        receives(5, 3),
        goroutine(9, "select", Some(2 * HOUR), &["runtime.gopark", "main.worker"]),
        receives(6, 7),
        runnable,
    ])
}

#[test]
fn equal_goroutines_stand_together_and_the_largest_group_first() {
    let expected = "
GOROUTINES: 7 that no thread executes, 3 on threads

      3 goroutines  chan receive, at least 3 to 12 min
         4, 5, 6
        #0   runtime.gopark  main.c:7  [app]
      > #1   main.worker  main.c:7  [app]
        created by main.start  main.c:7  [app]

        goroutine 17  IO wait, at least 2 min
      > #0   main.read  main.c:7  [app]

        goroutine 8  chan receive, at least 5 min
        #0   runtime.gopark  main.c:7  [app]
      > #1   main.worker  main.c:7  [app]
        created by main.restart  main.c:7  [app]

        goroutine 9  select, at least 2 h
        #0   runtime.gopark  main.c:7  [app]
      > #1   main.worker  main.c:7  [app]

        goroutine 10  runnable
";
    assert_eq!(written(&[some()], false, false), expected);
    assert_eq!(written(&[], false, false), "");
}

#[test]
fn labels_are_shown_and_tell_goroutines_apart() {
    let labelled = |id, text: &str| DumpGoroutine {
        labels: Some(text.into()),
        ..goroutine(id, "select", None, &["main.a"])
    };
    let all = of_process(vec![
        labelled(1, "[labels handler=/x, tenant=7]"),
        labelled(2, "[labels (other)]"),
        goroutine(3, "select", None, &["main.a"]),
        labelled(4, "[labels handler=/x, tenant=7]"),
        labelled(5, &format!("[labels long={}]", "x".repeat(200))),
    ]);
    let text = written(std::slice::from_ref(&all), false, false);
    let of = |head: &str| {
        let mut lines = text.lines().skip_while(|line| !line.trim().starts_with(head));
        let labels = lines.by_ref().take_while(|line| !line.is_empty());
        let labels = labels.filter_map(|line| line.trim().strip_prefix("labels "));
        labels.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of("2 goroutines  select"), ["handler=/x, tenant=7"]);
    assert_eq!(of("goroutine 2  select"), ["(other)"]);
    assert!(of("goroutine 3  select").is_empty(), "{text}");
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    let line = serde_json::to_value(GoroutinesLine::new(&all)).expect("JSON");
    let labels = |at: usize| line["list"][at]["labels"].clone();
    assert_eq!(labels(0), serde_json::json!({"handler": "/x", "tenant": "7"}));
    assert_eq!([labels(1), labels(2)], [serde_json::Value::Null, serde_json::json!({})]);
}

#[test]
fn those_that_wait_for_one_lock_stand_together() {
    let waits = |id, lock, frame| DumpGoroutine {
        lock,
        ..goroutine(id, "sync.Mutex.Lock", None, &[frame])
    };
    let (one, other) = (Some(0xc000), Some(0xd000));
    let all = of_process(vec![
        goroutine(1, "select", None, &["main.a"]),
        goroutine(2, "select", None, &["main.a"]),
        waits(3, one, "main.b"),
        waits(4, other, "main.b"),
        goroutine(5, "IO wait", None, &["main.c"]),
        waits(6, one, "main.d"),
        waits(7, one, "main.d"),
        waits(8, None, "main.b"),
        waits(9, other, "main.d"),
        waits(10, other, "main.d"),
    ]);
    let text = written(std::slice::from_ref(&all), false, false);
    let heads: Vec<&str> =
        text.lines().filter(|line| line.contains("goroutine")).map(str::trim).collect();
    let expected = [
        "2 goroutines  sync.Mutex.Lock 0xc000",
        "3 goroutines wait for this lock, in 2 groups",
        "goroutine 3  sync.Mutex.Lock 0xc000",
        "3 goroutines wait for this lock, in 2 groups",
        "2 goroutines  sync.Mutex.Lock 0xd000",
        "3 goroutines wait for this lock, in 2 groups",
        "goroutine 4  sync.Mutex.Lock 0xd000",
        "3 goroutines wait for this lock, in 2 groups",
        "2 goroutines  select",
        "goroutine 5  IO wait",
        "goroutine 8  sync.Mutex.Lock",
    ];
    assert_eq!(heads, expected);
    let json = serde_json::to_value(GoroutinesLine::new(&all)).expect("JSON");
    let locks: Vec<&str> = (json["list"].as_array().expect("a list").iter())
        .filter_map(|one| one["lock"].as_str())
        .collect();
    assert_eq!(locks, ["0xc000", "0xd000", "0xc000", "0xc000", "0xd000", "0xd000"]);
}

#[test]
fn with_each_they_stand_one_by_one_in_their_order() {
    let each = written(&[some()], true, true);
    let title = "\nGOROUTINES of process 42: 7 that no thread executes, 3 on threads\n";
    assert!(each.starts_with(title), "{each}");
    let heads: Vec<&str> = each.lines().filter(|line| line.contains(" goroutine")).collect();
    assert_eq!(heads.len(), 7);
    assert_eq!(heads[0].trim(), "goroutine 17  IO wait, at least 2 min");
    assert_eq!(heads[1].trim(), "goroutine 4  chan receive, at least 12 min");
}

#[test]
fn what_is_missing_is_said() {
    let title = |found, unreadable, several| {
        let list = vec![goroutine(1, "select", None, &[]); 2];
        let all = [DumpGoroutines { pid: 42, list, found, on_threads: 1, unreadable }];
        let text = written(&all, several, false);
        text.lines().skip(1).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let whole = "GOROUTINES: 2 that no thread executes, 1 on threads";
    assert_eq!(title(3, 0, false), whole);
    let one = "GOROUTINES: 3 that no thread executes, 1 on threads; 1 could not be read";
    assert_eq!(title(4, 1, false), one);
    let one = "GOROUTINES: 3 that no thread executes, 1 on threads; 1 was not read";
    assert_eq!(title(4, 0, false), one);
    let long = "GOROUTINES of process 42: 8 that no thread executes, 1 on threads
         2 could not be read; 4 were not read";
    assert_eq!(title(9, 2, true), long);
}

#[test]
fn a_time_is_the_least_that_is_known() {
    let time = |times: &[Option<Ns>]| {
        let list: Vec<_> = times.iter().map(|of| goroutine(1, "select", *of, &[])).collect();
        waited(&list.iter().collect::<Vec<_>>()).unwrap_or_default()
    };
    assert_eq!(time(&[None, Some(SECOND - 1)]), "");
    assert_eq!(time(&[Some(SECOND), Some(SECOND + 5)]), "at least 1 s");
    assert_eq!(time(&[Some(2 * MINUTE - 1), Some(2 * MINUTE)]), "at least 119 s to 2 min");
    assert_eq!(time(&[Some(2 * HOUR), Some(2 * HOUR - 1)]), "at least 119 min to 2 h");
    assert_eq!(time(&[Some(3 * MINUTE), None]), "the longest at least 3 min");
    assert_eq!(time(&[Some(3 * MINUTE), Some(1)]), "the longest at least 3 min");
    assert!(time(&[Some(Ns::MAX)]).ends_with(" h"));
}

#[test]
fn long_lists_and_long_lines_are_cut() {
    let same = (0..25).map(|id| goroutine(id, "select", None, &["main.wait"]));
    let text = written(&[of_process(same.collect())], false, false);
    let numbers =
        "\n     25 goroutines  select\n         0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 15 more\n";
    assert!(text.contains(numbers), "{text}");
    let all: Vec<_> =
        (0..1007).map(|id| goroutine(id, "select", None, &[&format!("f{id}")])).collect();
    for each in [false, true] {
        let text = written(&[of_process(all.clone())], false, each);
        assert!(text.contains("f999") && !text.contains("f1000"), "{}", text.len());
        assert!(text.ends_with("\n         7 more goroutines; json has them\n"));
    }
    let text = written(&[of_process(all[..1001].to_vec())], false, false);
    assert!(text.ends_with("\n         1 more goroutine; json has them\n"));
    let long = "n".repeat(500);
    let long = |id| DumpGoroutine {
        created_by: Some(framed(&long)),
        ..goroutine(u64::MAX - id, &long, Some(HOUR), &[&long])
    };
    let text = written(&[of_process((0..12).map(long).collect())], false, false);
    assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    assert!(text.contains(", at least 60 min\n"), "{text}");
    assert!(text.contains("18446744073709551613 and 9 more\n"), "{text}");
}

#[test]
fn json_has_every_goroutine() {
    let all = DumpGoroutines { unreadable: 1, ..some() };
    let line = serde_json::to_value(GoroutinesLine::new(&all)).expect("JSON");
    assert_eq!((&line["pid"], &line["found"]), (&42.into(), &10.into()));
    assert_eq!((&line["on_threads"], &line["unreadable"]), (&3.into(), &1.into()));
    let list = line["list"].as_array().expect("a list");
    assert_eq!(list.len(), 7);
    assert_eq!((&list[1]["id"], &list[1]["state"]), (&4.into(), &"chan receive".into()));
    assert_eq!(list[1]["waited_ns"], 720_000_000_000_u64);
    assert_eq!(list[1]["frames"][1]["frame"], "main.worker");
    assert_eq!(list[1]["frames"][1]["role"], "app");
    assert_eq!(list[1]["created_by"]["frame"], "main.start");
    assert_eq!(list[6]["waited_ns"], serde_json::Value::Null);
    assert_eq!(list[6]["created_by"], serde_json::Value::Null);
}
