//! Exported files in the programs that they are for: speedscope's own page, a browser, the Firefox
//! Profiler's tool. Their contents must equal those of `json`.

#[path = "../common/mod.rs"]
mod common;
mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::skipped;
use sampletop::config::Format;
use sampletop::formats;
use sampletop::formats::saved;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::projection::settings::{Filter, Metric, Range, Settings};
use serde_json::Value;

/// Everything that was seen; idle time, too, as `json` has it.
fn whole() -> Settings {
    Settings { range: Range::Cumulative { since: None }, idle: true, ..Settings::default() }
}

/// A session with frames of all kinds, states and processes, hostile names among them.
fn session() -> Snapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/saved/format-1-builds.sampletop");
    saved::read(&std::fs::read(path).expect("a file of the repository"))
        .expect("a profile")
        .snapshot
}

fn written(format: Format, snapshot: &Snapshot, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    formats::write(format, snapshot, settings, &mut bytes).expect("memory takes it");
    bytes
}

/// The tools that `tests/run` installs. Without them the test named is skipped.
fn viewers(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("viewers");
    let there = folder.join("node_modules").exists() && Path::new("/usr/bin/chromium").exists();
    if !there {
        skipped(test, "no browser to look with (tests/run --install gets one)");
    }
    there.then_some(folder)
}

/// Returns what the script finds in a file with these bytes; `None` if the viewers are missing.
fn observe(script: &str, name: &str, bytes: &[u8], arguments: &[&str]) -> Option<Value> {
    let viewers = viewers(name)?;
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&file, bytes).expect("a file for the test");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/viewers").join(script);
    let output = Command::new("node")
        .arg(script)
        .arg(&file)
        .args(arguments)
        .env("VIEWERS", viewers)
        .output();
    let output = output.expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let _ = std::fs::remove_file(&file);
    Some(serde_json::from_slice(&output.stdout).expect("the script prints JSON"))
}

/// Milliseconds on a stack, wall and cpu.
type Times = BTreeMap<Vec<String>, [f64; 2]>;

/// The time of each stack, its group outermost, as the format `json` says it.
fn stacks(snapshot: &Snapshot, settings: &Settings) -> Times {
    let profile: Value =
        serde_json::from_slice(&written(Format::Json, snapshot, settings)).expect("JSON");
    let mut times = Times::new();
    for group in profile["groups"].as_array().expect("groups") {
        let name = group["name"].as_str().expect("a name").to_owned();
        let tree = common::tree(group);
        let mut todo = vec![(vec![name], &tree)];
        while let Some((path, nodes)) = todo.pop() {
            for node in nodes.as_array().expect("nodes") {
                let mut path = path.clone();
                path.push(node["frame"].as_str().expect("a name").to_owned());
                let time = times.entry(path.clone()).or_default();
                time[0] += node["self_wall_ms"].as_f64().expect("a number");
                time[1] += node["self_cpu_ms"].as_f64().expect("a number");
                todo.push((path, &node["children"]));
            }
        }
    }
    times
}

/// Every frame of every group's tree and its wall time, and the groups.
fn frames(snapshot: &Snapshot, settings: &Settings) -> Vec<(String, f64)> {
    let profile: Value =
        serde_json::from_slice(&written(Format::Json, snapshot, settings)).expect("JSON");
    let mut frames = Vec::new();
    let ms = |node: &Value| node["wall_ms"].as_f64().expect("a number");
    for group in profile["groups"].as_array().expect("groups") {
        frames.push((group["name"].as_str().expect("a name").to_owned(), ms(group)));
        for node in group["nodes"].as_array().expect("nodes") {
            frames.push((node["frame"].as_str().expect("a name").to_owned(), ms(node)));
        }
    }
    frames
}

/// Functions and groups by name: the time of stacks that end in one, and of those that contain it.
fn functions(stacks: &Times, metric: Metric) -> BTreeMap<&str, (f64, f64)> {
    let mut functions: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (stack, time) in stacks {
        // Without blanks at their ends, as tables show them.
        let mut names: Vec<&str> = stack.iter().map(|name| name.trim()).collect();
        functions.entry(names[names.len() - 1]).or_default().0 += time[metric as usize];
        names.sort_unstable();
        names.dedup();
        for name in names {
            functions.entry(name).or_default().1 += time[metric as usize];
        }
    }
    functions
}

/// `json` rounds each of its times to a microsecond.
fn is_near(found: f64, wanted: f64, step: f64, what: &str) {
    assert!((found - wanted).abs() <= step + 0.05, "{what}: {found} is not {wanted}");
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("text")).collect()
}

/// A time with its unit, and half of its last digit, ms: `1.50s`.
fn time(text: &str) -> (f64, f64) {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "s" => 1000.0,
        "ms" => 1.0,
        "µs" => 0.001,
        "ns" => 0.000_001,
        _ => match digits.split_once(':') {
            Some((minutes, seconds)) => {
                let number = |text: &str| {
                    text.parse::<f64>().unwrap_or_else(|_| panic!("no number: {text}"))
                };
                // Whole seconds, cut.
                return (number(minutes) * 60_000.0 + number(seconds) * 1000.0 + 500.0, 500.0);
            }
            None => panic!("no time: {text}"),
        },
    };
    (digits.parse::<f64>().expect("a number") * unit, 0.005 * unit)
}

#[test]
fn speedscope_shows_what_json_says() {
    let snapshot = session();
    for metric in [Metric::Wall, Metric::Cpu] {
        let settings = Settings { metric, ..whole() };
        let bytes = written(Format::Speedscope, &snapshot, &settings);
        let name = format!("{}.speedscope.json", metric.word());
        let Some(seen) = observe("speedscope.mjs", &name, &bytes, &[]) else { return };
        assert_eq!(seen["complaints"], serde_json::json!([]));
        assert!(
            seen["title"].as_str().expect("a title").contains("java -jar größe.jar and 1 more"),
            "{}",
            seen["title"]
        );

        // What it has read, as it exports that again.
        let frames: Vec<&str> =
            (seen["read"]["shared"]["frames"].as_array().expect("frames").iter())
                .map(|frame| frame["name"].as_str().expect("a name"))
                .collect();
        let wanted = stacks(&snapshot, &settings);
        for (nth, profile) in
            seen["read"]["profiles"].as_array().expect("profiles").iter().enumerate()
        {
            assert_eq!(
                (&profile["name"], &profile["unit"]),
                (&["wall", "cpu"][nth].into(), &"nanoseconds".into())
            );
            let (mut stack, mut found, mut before): (Vec<String>, Times, f64) =
                (Vec::new(), Times::new(), 0.0);
            for event in profile["events"].as_array().expect("events") {
                let at = event["at"].as_f64().expect("a time") / 1e6;
                if at > before {
                    found.entry(stack.clone()).or_default()[nth] += at - before;
                    before = at;
                }
                match event["type"] == "O" {
                    true => stack.push(
                        frames[event["frame"].as_u64().expect("a frame") as usize].to_owned(),
                    ),
                    false => drop(stack.pop()),
                }
            }
            for (stack, time) in &wanted {
                let found = found.remove(stack).unwrap_or_default()[nth];
                is_near(found, time[nth], 0.0, &stack.join(";"));
            }
            assert_eq!(found, Times::new(), "stacks that no thread was in");
        }

        // What it shows: total, self, name.
        let functions = functions(&wanted, metric);
        let table = seen["table"].as_array().expect("rows").iter();
        let rows = table.filter_map(|row| {
            let cells: Vec<&str> = texts(row).into_iter().filter(|cell| !cell.is_empty()).collect();
            let [total, own, name] = cells[..] else { return None };
            let share = |cell: &'_ str| cell.split_once(" (").map(|(value, _)| time(value));
            Some((name.split(" (/").next().unwrap_or(name), share(total)?, share(own)?))
        });
        let rows: Vec<_> = rows.collect();
        let mut compared = 0;
        for (name, (total, total_step), (own, own_step)) in &rows {
            // Several functions of one name were compared together above.
            if rows.iter().filter(|(other, ..)| other == name).count() == 1 {
                let (own_ms, total_ms) = functions[name];
                is_near(*total, total_ms, *total_step, name);
                is_near(*own, own_ms, *own_step, name);
                compared += 1;
            }
        }
        assert!(compared >= 8, "{rows:?}");
    }
}

#[test]
fn a_browser_shows_the_svg_zooms_and_searches() {
    let snapshot = session();
    let settings = whole();
    let bytes = written(Format::Svg, &snapshot, &settings);
    let name = "com.shop.Cart.m2";
    let Some(seen) = observe("svg.mjs", "x.svg", &bytes, &[name]) else { return };
    assert_eq!(seen["complaints"], serde_json::json!([]));
    assert_eq!(texts(&seen["requests"]).len(), 1, "only itself: {}", seen["requests"]);
    assert!(
        texts(&seen["heading"])[0].contains("java -jar größe.jar and 1 more: wall time"),
        "{}",
        seen["heading"]
    );

    // Every frame's time is that of json: together, by name, since a name may stand in several
    // places.
    let stacks = stacks(&snapshot, &settings);
    let mut drawn: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for title in texts(&seen["titles"]) {
        let (name, said) = title.rsplit_once(" (").expect("a value");
        let ms = said
            .split(" ms")
            .next()
            .expect("a time")
            .replace(',', "")
            .parse::<f64>()
            .expect("a number");
        let (sum, doubt) = drawn.entry(name.to_owned()).or_default();
        (*sum, *doubt) = (*sum + ms, *doubt + 0.5);
    }
    let total: f64 = stacks.values().map(|time| time[0]).sum();
    is_near(drawn["all"].0, total, 0.5, "all");
    let mut wanted: BTreeMap<&str, f64> = BTreeMap::new();
    for (stack, time) in &stacks {
        for name in stack {
            // Without blanks at its ends, as in folded stacks.
            *wanted.entry(name.trim()).or_default() += time[0];
        }
    }
    assert!(drawn.len() > 15, "{drawn:?}");
    for (name, (ms, doubt)) in drawn.iter().filter(|(name, _)| *name != "all") {
        // A frame too small to be drawn is part of its caller.
        let dropped = total / 10_000.0 * stacks.len() as f64;
        assert!(
            *ms <= wanted[name.as_str()] + doubt && *ms >= wanted[name.as_str()] - doubt - dropped,
            "{name}: {ms}"
        );
    }

    // The pointer shows details, a click zooms, and another resets.
    assert!(seen["details"].as_str().expect("text").contains(name), "{}", seen["details"]);
    let widths = |when: &str| -> BTreeMap<String, f64> {
        let frames = seen[when].as_array().expect("frames").iter();
        let mut widths = BTreeMap::new();
        for frame in frames {
            let width = widths.entry(frame[0].as_str().expect("a title").to_owned()).or_insert(0.0);
            *width = frame[1].as_f64().expect("a number").max(*width);
        }
        widths
    };
    let (before, zoomed, after) = (widths("before"), widths("zoomed"), widths("after"));
    let details = seen["details"].as_str().expect("text");
    let title = before.keys().find(|title| details.ends_with(*title)).expect("it is drawn");
    let all = before.keys().find(|title| title.starts_with("all (")).expect("it is drawn");
    assert!(
        before[title] < 0.9 * before[all] && (zoomed[title] - before[all]).abs() < 2.0,
        "{before:?} {zoomed:?}"
    );
    assert_eq!(before, after);
    assert!(
        seen["matched"].as_str().expect("text").starts_with("Matched: "),
        "{}",
        seen["matched"]
    );
}

#[test]
fn names_cannot_break_out_of_the_svg() {
    let snapshot = hostile();
    let bytes = written(Format::Svg, &snapshot, &whole());
    let Some(seen) = observe("svg.mjs", "hostile.svg", &bytes, &[HOSTILE[0]]) else { return };
    assert_eq!((&seen["complaints"], &seen["globals"]), (&serde_json::json!([]), &true.into()));
    assert_eq!(texts(&seen["requests"]).len(), 1, "{}", seen["requests"]);
    for name in HOSTILE {
        let drawn = texts(&seen["titles"]);
        let name = name.replace(';', ":").replace('\u{2028}', " ");
        assert!(
            drawn.iter().any(|title| title.starts_with(&format!("{name} ("))),
            "{name}: {drawn:?}"
        );
    }
}

/// Names that would end the context they are in, or run as code.
const HOSTILE: [&str; 8] = [
    "</title></script><script>window.broken=1</script>",
    "<!--<script>",
    "]]><img src=x onerror=window.broken=1>",
    "\"onload=\"window.broken=1",
    "';window.broken=1;'",
    "&lt;b&gt; &amp;",
    "line\u{2028}separator",
    "https://example.com/x.js?a=1&b=2",
];

/// A second of stacks of such names.
fn hostile() -> Snapshot {
    use sampletop::model::facts::recorder::{Limits, Recorder};
    use sampletop::model::facts::tables::{FrameKind, Location, Named};
    use sampletop::model::vocabulary::event::{Counters, Event, Observation, Seen};
    use sampletop::model::vocabulary::frame::{
        FileId, FrameCode, RawFrame, RawName, SECOND, ThreadKey,
    };
    let start = 1000 * SECOND;
    let mut recorder = Recorder::new(start, Limits::default());
    let frame = |offset: usize| {
        RawFrame::new(FrameCode::Code { file: FileId(1), offset: offset as u64, exact: false })
    };
    for n in 0..=100_u64 {
        recorder.apply(&Event::Observation(Observation {
            at: start + n * SECOND / 100,
            thread: ThreadKey { pid: 9, tid: 9, start: 7 },
            name: RawName::new(b"<script>x()"),
            seen: Seen::OnCpu,
            counters: Some(Counters { run_ns: n * SECOND / 100, delay_ns: 0, runs: 1 }),
            // All of them, and the innermost again and again another.
            stack: (0..HOSTILE.len())
                .chain([n as usize % HOSTILE.len()])
                .rev()
                .map(frame)
                .collect(),
            recovered: false,
            blocker: None,
            wait_began: None,
        }));
    }
    for raw in recorder.take_unnamed() {
        let FrameCode::Code { offset, .. } = raw.decode() else { panic!("only code wants a name") };
        let name = HOSTILE[offset as usize];
        let location = Location {
            file: Some(name.into()),
            module: name.into(),
            line: Some(3),
            ..Location::named(name, FrameKind::Native)
        };
        recorder.set_named(raw, Named::known([location]));
    }
    recorder.close(start + SECOND);
    let view = recorder.view();
    let mut snapshot = session();
    snapshot.targets = [sampletop::model::facts::snapshot::Target {
        command: HOSTILE.join(" ").into(),
        ..snapshot.targets[0].clone()
    }]
    .into();
    (snapshot.tables, snapshot.history, snapshot.threads, snapshot.at) =
        (view.tables, view.history, view.threads, view.at);
    snapshot
}

#[test]
fn the_firefox_profiler_reads_what_json_says() {
    let snapshot = session();
    for metric in [Metric::Wall, Metric::Cpu] {
        let settings = Settings { metric, ..whole() };
        let name = format!("{}.firefox.json", metric.word());
        let Some(seen) =
            observe("firefox.mjs", &name, &written(Format::Firefox, &snapshot, &settings), &[])
        else {
            return;
        };
        let meta = seen["meta"].as_str().expect("text");
        for said in [
            "2026-01-02T03:04:05.123Z",
            "java -jar größe.jar and 1 more",
            concat!("sampletop ", env!("CARGO_PKG_VERSION")),
            "dropped 2",
        ] {
            assert!(meta.contains(said), "{said}: {meta}");
        }
        // The time of stacks that begin so.
        let mut wanted: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for (stack, time) in &stacks(&snapshot, &settings) {
            for depth in 1..=stack.len() {
                *wanted.entry(stack[..depth].to_vec()).or_default() += time[metric as usize];
            }
        }
        let mut found: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for thread in seen["trees"].as_array().expect("threads") {
            let mut todo = vec![(
                vec![thread["name"].as_str().expect("a name").to_owned()],
                &thread["regularCallTree"],
            )];
            while let Some((path, node)) = todo.pop() {
                *found.entry(path.clone()).or_default() +=
                    node["totalSamples"].as_f64().expect("ms");
                for child in node["children"].as_array().expect("children") {
                    let name = child["name"].as_str().expect("a name").to_owned();
                    todo.push(([path.clone(), vec![name]].concat(), child));
                }
            }
        }
        assert!(found.len() > 50, "{found:?}");
        for (path, ms) in &wanted {
            // Where buckets of history were merged, a stack's time in each of them has a resolution
            // of 10 us.
            is_near(found.remove(path).unwrap_or_default(), *ms, 0.2, &path.join(";"));
        }
        assert_eq!(found, BTreeMap::new(), "stacks that no thread was in");
    }
}

#[test]
fn files_show_what_the_settings_show() {
    let snapshot = session();
    let mut settings = whole();
    settings.filters.focus = Filter::set(regex::Regex::new("Cart").expect("a pattern"));
    let json: Value =
        serde_json::from_slice(&written(Format::Json, &snapshot, &settings)).expect("JSON");
    let wanted: f64 = json["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|g| g["wall_ms"].as_f64().expect("ms"))
        .sum();
    let file: Value =
        serde_json::from_slice(&written(Format::Speedscope, &snapshot, &settings)).expect("JSON");
    is_near(file["profiles"][0]["endValue"].as_f64().expect("ns") / 1e6, wanted, 0.0, "speedscope");
    let svg = String::from_utf8(written(Format::Svg, &snapshot, &settings)).expect("UTF-8");
    let all = svg
        .split("<title>all (")
        .nth(1)
        .and_then(|rest| rest.split(" ms").next())
        .expect("everything");
    is_near(all.replace(',', "").parse().expect("ms"), wanted, 0.5, "svg");
}
