use super::*;
use crate::formats::fixture;
use crate::model::facts::recorder::{Limits, Recorder};
use crate::model::vocabulary::event::{Counters, Event, Observation, Seen, Syscall, Tick};
use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame, RawName, SECOND, ThreadKey};

const START: Ns = fixture::START;
const MS: u64 = fixture::MS;

/// Returns a session of `seconds` with one thread that runs, and one that waits in `recv`.
fn session(seconds: u64) -> Snapshot {
    let mut recorder = Recorder::new(START, Limits::default());
    let frames = |offsets: &[u64]| -> Vec<RawFrame> {
        let code =
            |offset: &u64| FrameCode::Code { file: FileId(1), offset: *offset, exact: false };
        offsets.iter().map(|offset| RawFrame::new(code(offset))).collect()
    };
    let observe = |at, tid, seen, run_ns, stack| {
        let counters = Some(Counters { run_ns, delay_ns: 0, runs: 1 });
        let name = RawName::new(if tid == 1 { b"runs" } else { b"waits" });
        let thread = ThreadKey { pid: 7, tid, start: 1 };
        Event::Observation(Observation {
            counters,
            stack,
            ..Observation::new(at, thread, name, seen)
        })
    };
    let recv = Seen::Blocked(Syscall { number: 45, args: [3, 0, 0, 0, 0, 0] });
    recorder.apply(&observe(START, 2, recv, 0, frames(&[5, 4])));
    for n in 0..=seconds * 100 {
        let at = START + n * 10 * MS;
        recorder.apply(&observe(at, 1, Seen::OnCpu, n * 10 * MS, frames(&[n % 4 / 3, 2])));
        let losses = Default::default();
        recorder.apply(&Event::Tick(Tick { losses, ..Tick::new(at, 7) }));
    }
    let at = START + seconds * SECOND;
    recorder.close(at);
    let view = recorder.view();
    Snapshot {
        at,
        tables: view.tables,
        history: view.history,
        threads: view.threads,
        ..fixture::snapshot()
    }
}

fn written(snapshot: &Snapshot, settings: &Settings) -> Value {
    let mut out = Vec::new();
    write(snapshot, settings, &mut out).expect("memory takes everything");
    serde_json::from_slice(&out).expect("it is JSON")
}

fn whole() -> Settings {
    Settings { range: Range::Cumulative { since: None }, idle: true, ..Settings::default() }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|n| n.as_f64().expect("a number")).collect()
}

fn thread<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let threads = profile["threads"].as_array().expect("threads");
    threads
        .iter()
        .find(|thread| thread["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {profile}"))
}

#[test]
fn each_second_holds_its_own_time() {
    let profile = written(&session(5), &whole());
    for name in ["runs", "waits"] {
        let samples = &thread(&profile, name)["samples"];
        let (times, weights) = (numbers(&samples["time"]), numbers(&samples["weight"]));
        assert!(times.is_sorted(), "{times:?}");
        for second in 0..5 {
            let within =
                |time: &f64| (second as f64 * 1000.0..(second + 1) as f64 * 1000.0).contains(time);
            let sum: f64 =
                times.iter().zip(&weights).filter(|(time, _)| within(time)).map(|(_, ms)| ms).sum();
            assert!((sum - 1000.0).abs() < 0.001, "{name}, second {second}: {sum}");
        }
        assert_eq!(samples["length"], times.len());
    }
}

#[test]
fn a_window_holds_only_its_seconds_and_the_metric_weighs() {
    let last = written(&session(5), &Settings { range: Range::Rolling(2 * SECOND), ..whole() });
    let sum = |profile: &Value| {
        numbers(&thread(profile, "runs")["samples"]["weight"]).iter().sum::<f64>()
    };
    assert!((sum(&last) - 2000.0).abs() < 0.001, "{}", sum(&last));
    let cpu = written(&session(5), &Settings { metric: Metric::Cpu, ..whole() });
    assert!((sum(&cpu) - 5000.0).abs() < 0.001, "{}", sum(&cpu));
    assert!(
        cpu["threads"].as_array().expect("threads").iter().all(|thread| thread["name"] != "waits")
    );
    let off = written(&session(5), &Settings { metric: Metric::Off, ..whole() });
    assert!(
        (numbers(&thread(&off, "waits")["samples"]["weight"]).iter().sum::<f64>() - 5000.0).abs()
            < 0.001
    );
}

#[test]
fn stacks_say_what_was_called_where_and_in_which_state() {
    let profile = written(&session(1), &whole());
    let shared = &profile["shared"];
    let at = |table: &str, column: &str, place: u64| shared[table][column][place as usize].clone();
    let number = |value: Value| value.as_u64().expect("a number");
    let path = |stack: u64| {
        let (mut path, mut stack) = (Vec::new(), stack);
        loop {
            let frame = number(at("stackTable", "frame", stack));
            let function = number(at("frameTable", "func", frame));
            let name = number(at("funcTable", "name", function));
            let category = number(at("frameTable", "category", frame));
            let text = shared["stringArray"][name as usize].as_str().expect("text");
            path.push((
                text.to_owned(),
                profile["meta"]["categories"][category as usize]["name"].clone(),
            ));
            match number(at("stackTable", "prefixOffset", stack)) {
                0 => break,
                offset => stack -= offset,
            }
        }
        path.reverse();
        path
    };
    let stacks = |name: &str| {
        let stacks = thread(&profile, name)["samples"]["stack"].as_array().expect("stacks").clone();
        stacks.into_iter().map(|stack| path(number(stack))).collect::<Vec<_>>()
    };
    let named = |name: &str, category: &str| (name.to_owned(), Value::from(category));
    assert_eq!(stacks("waits"), [[named("0x4", "app code"), named("0x5", "io")]]);
    assert_eq!(stacks("runs")[0], [named("0x2", "app code"), named("0x0", "run")]);
    for (name, table) in
        shared.as_object().expect("tables").iter().filter(|(_, table)| table.is_object())
    {
        for (column, values) in
            table.as_object().expect("columns").iter().filter(|(column, _)| *column != "length")
        {
            assert_eq!(table["length"], values.as_array().map_or(0, Vec::len), "{name}.{column}");
        }
    }
}

#[test]
fn conditions_are_told() {
    let notice = "way perf was refused, so stacks of threads that wait are read as they lie, and this is a long sentence";
    let snapshot = Snapshot { notice: Some(notice.into()), ..session(1) };
    let profile = written(&snapshot, &whole());
    let entries = profile["meta"]["extra"][0]["entries"].as_array().expect("a list");
    let told = |label: &str| {
        let entry = entries.iter().find(|entry| entry["label"] == label);
        entry.unwrap_or_else(|| panic!("no {label}: {entries:?}"))["value"].as_str().expect("text")
    };
    assert_eq!((told("Notice"), told("Capture")), (notice, "perf"));
    assert!(
        told("Losses").starts_with("dropped 7, ") && told("Time line").contains("no order of time")
    );
}

#[test]
fn nothing_is_a_profile_without_threads() {
    assert_eq!(written(&fixture::snapshot(), &whole())["threads"], serde_json::json!([]));
}

#[test]
fn build_ids_are_as_symbol_servers_want_them() {
    // Breakpad's dump_syms and debuginfod-find name this file the same.
    let id = breakpad_id("00112233445566778899aabbccddeeff01234567");
    assert_eq!(id.as_deref(), Some("33221100554477668899AABBCCDDEEFF0"));
    assert_eq!(
        breakpad_id("ffeeddccbbaa9988").as_deref(),
        Some("CCDDEEFFAABB889900000000000000000")
    );
    for nothing in
        ["", "abc", "kvqmzrtghjkm", "go/id-1234", "ää", "00112233445566778899aabbccddeeff0123456x"]
    {
        assert_eq!(breakpad_id(nothing), None, "{nothing}");
    }
}
