//! pprof profiles: written ones show the same in `go tool pprof`; those of Go and of sampletop are
//! read.

mod common;
#[path = "saved/sessions.rs"]
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use common::{Recording, Running, build};
use proptest::prelude::*;
use prost::Message;
use sampletop::config::Format;
use sampletop::formats;
use sampletop::formats::pprof::proto::Profile;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::facts::tables::{Blocker, Holder, Location};
use sampletop::model::projection::settings::{Filter, Metric, Range, RollUp, Settings};
use sampletop::model::projection::{Projection, project};
use sampletop::model::vocabulary::blocker::BlockerKind;
use sampletop::model::vocabulary::state::State;
use serde_json::Value;

fn whole() -> Settings {
    Settings { range: Range::Cumulative { since: None }, ..Settings::default() }
}

fn written(snapshot: &Snapshot, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    formats::write(Format::Pprof, snapshot, settings, &mut bytes).expect("memory takes it");
    bytes
}

/// Returns the output of `go tool pprof`. Panics with its errors if it fails.
fn go_tool(args: &[&str], dir: &Path) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof"]).args(args).current_dir(dir);
    let output = command.output().expect("go is needed");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go tool pprof {args:?}: {words}");
    String::from_utf8(output.stdout).expect("text")
}

/// ns of each function by its name: self, and with all its callees. Zeros are dropped.
type Flat = BTreeMap<String, (i64, i64)>;

/// By `go tool pprof -top`.
fn top(file: &str, kind: &str, dir: &Path) -> Flat {
    let kind = format!("-sample_index={kind}");
    let args = [
        "-top",
        "-unit=ns",
        &kind,
        "-nodecount=1000000",
        "-nodefraction=0",
        "-edgefraction=0",
        file,
    ];
    let text = go_tool(&args, dir);
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let mut ns = |skip: usize| -> i64 {
            let word = words.nth(skip).unwrap_or_else(|| panic!("{line}"));
            word.strip_suffix("ns").unwrap_or(word).parse().unwrap_or_else(|_| panic!("{line}"))
        };
        let (own, total) = (ns(0), ns(2));
        // Behind flat%, sum% and cum%.
        let (at, _) = line.match_indices("% ").nth(2).unwrap_or_else(|| panic!("{line}"));
        let name = &line[at + 2..];
        let name = name.trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)").trim();
        (name.to_owned(), (own, total))
    };
    rows.map(row).filter(|(_, sums)| *sums != (0, 0)).collect()
}

/// By the projection; functions of one name in several modules are one, as they are for pprof.
fn flat(projection: &Projection, metric: Metric) -> Flat {
    let signed = |totals: &sampletop::model::projection::Totals| match metric {
        Metric::Wall => totals.wall_ns as i64,
        Metric::Cpu => totals.cpu_ns as i64,
        Metric::Off => totals.wall_ns as i64 - totals.cpu_ns as i64,
    };
    let mut flat = Flat::new();
    for group in &projection.groups {
        let entry = flat.entry("[every frame hidden]".to_owned()).or_default();
        *entry = (entry.0 + signed(&group.own), entry.1 + signed(&group.own));
        let mut todo: Vec<(u32, BTreeSet<String>)> =
            projection.roots(group).map(|root| (root, BTreeSet::new())).collect();
        while let Some((at, mut above)) = todo.pop() {
            let node = projection.node(at, metric);
            let name = node.location.function.trim().to_owned();
            // The rows of a runtime's own threads are no functions.
            if node.location.kind.word() == "thread" {
                let entry = flat.entry("[every frame hidden]".to_owned()).or_default();
                *entry = (entry.0 + signed(&node.own), entry.1 + signed(&node.own));
            } else {
                let entry = flat.entry(name.clone()).or_default();
                entry.0 += signed(&node.own);
                entry.1 += if above.insert(name) { signed(&node.total) } else { 0 };
            }
            todo.extend(projection.children(at).map(|child| (child, above.clone())));
        }
    }
    flat.retain(|_, sums| *sums != (0, 0));
    flat
}

fn decoded(bytes: &[u8]) -> Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).expect("packed");
    Profile::decode(&plain[..]).expect("a profile")
}

/// ns of each value of some labels (`-` where one is not there), for one sample type.
fn by_labels(bytes: &[u8], kind: &str, keys: &[&str]) -> BTreeMap<Vec<String>, i64> {
    let profile = decoded(bytes);
    let text = |at: i64| profile.string_table[at as usize].as_str();
    let at =
        profile.sample_type.iter().position(|of| text(of.r#type) == kind).expect("it is there");
    let mut sums = BTreeMap::new();
    for sample in &profile.sample {
        let value = |key: &&str| {
            let label = sample.label.iter().find(|label| text(label.key) == *key);
            label.map_or("-", |label| text(label.str)).to_owned()
        };
        *sums.entry(keys.iter().map(value).collect()).or_insert(0) += sample.value[at];
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

#[test]
fn what_is_pushed_is_the_same_time_in_fewer_series() {
    let dir = tempfile::tempdir().expect("a folder");
    for seed in [3, 4] {
        let snapshot = sessions::session(seed, 120, false);
        let whole_one = written(&snapshot, &whole());
        let intervals = formats::pprof::intervals(&snapshot, &whole()).expect("memory takes it");
        assert_eq!(
            intervals.iter().map(|interval| interval.metric).collect::<Vec<_>>(),
            [Metric::Cpu, Metric::Wall]
        );
        for interval in &intervals {
            let (kind, keys) = match interval.metric {
                Metric::Wall => ("wall", &["group", "idle"][..]),
                _ => ("cpu", &["group"][..]),
            };
            let sums = by_labels(&interval.bytes, kind, keys);
            assert_eq!(sums, by_labels(&whole_one, kind, keys), "seed {seed}, {kind}");
            assert!(sums.len() > 1 && by_labels(&interval.bytes, kind, &["thread"]).len() == 1);
            std::fs::write(dir.path().join("p.pb.gz"), &interval.bytes).expect("written");
            let shown = project(&snapshot, &Settings { idle: true, ..whole() });
            assert_eq!(
                top("p.pb.gz", kind, dir.path()),
                flat(&shown, interval.metric),
                "seed {seed}, {kind}"
            );
            let profile = decoded(&interval.bytes);
            assert_eq!(i128::from(profile.time_nanos), interval.from_unix_ns);
            assert_eq!(
                i128::from(profile.duration_nanos),
                interval.till_unix_ns - interval.from_unix_ns
            );
        }
    }
    // Without samples there is nothing to send.
    let mut no_thread = whole();
    no_thread.filters.threads =
        Filter::set(regex::Regex::new("no such thread").expect("a pattern"));
    let none = formats::pprof::intervals(&sessions::session(3, 20, false), &no_thread)
        .expect("memory takes it");
    assert!(none.is_empty());
}

#[test]
fn go_tool_pprof_shows_the_same_numbers() {
    let dir = tempfile::tempdir().expect("a folder");
    let filtered = {
        let mut settings = Settings { roll_up: RollUp::Class, metric: Metric::Off, ..whole() };
        settings.filters.hide = Filter::set(regex::Regex::new("f[0-9]").expect("a pattern"));
        settings.filters.threads = Filter::set(regex::Regex::new("work|main").expect("a pattern"));
        settings
    };
    let by_line = Settings { roll_up: RollUp::Line, metric: Metric::Cpu, ..whole() };
    for (seed, settings) in [(3, whole()), (4, filtered), (5, by_line)] {
        let snapshot = sessions::session(seed, 120, false);
        std::fs::write(dir.path().join("p.pb.gz"), written(&snapshot, &settings)).expect("written");
        let shown = project(&snapshot, &Settings { idle: true, ..settings.clone() });
        for metric in [Metric::Wall, Metric::Cpu, settings.metric] {
            let expected = flat(&shown, metric);
            assert!(expected.len() > 5, "{expected:?}");
            assert_eq!(
                top("p.pb.gz", metric.word(), dir.path()),
                expected,
                "seed {seed}, {}",
                metric.word()
            );
        }
        // The settings' metric is shown first.
        let first = go_tool(&["-top", "p.pb.gz"], dir.path());
        assert!(first.contains(&format!("Type: {}\n", settings.metric.word())), "{first}");
    }
}

/// The seed of a session in which the frames that tests ask for have names.
const NAMED: u64 = 1;

#[test]
fn labels_lines_and_remarks_are_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let snapshot = sessions::session(NAMED, 120, false);
    std::fs::write(dir.path().join("p.pb.gz"), written(&snapshot, &whole())).expect("written");
    let tags = go_tool(&["-tags", "-unit=ns", "p.pb.gz"], dir.path());
    for label in
        ["thread:", "group:", "state:", "pid:", "tid:", "work-1", "work-", "run", "role:", "idle:"]
    {
        assert!(tags.contains(label), "{label}: {tags}");
    }
    let remarks = go_tool(&["-comments", "p.pb.gz"], dir.path());
    for words in [
        "Capture      ptrace (stops threads)",
        "Losses       dropped",
        "Settings     metric wall",
        "Host         node7",
    ] {
        assert!(remarks.contains(words), "{words}: {remarks}");
    }
    // A machine frame with an inlined function is one place with two lines.
    let traces = go_tool(&["-traces", "-lines", "p.pb.gz"], dir.path());
    assert!(traces.contains("shop::vat /src/größe.c:4294967295 (inline)"), "{traces}");
    assert!(traces.contains("shop::pay<Item> /src/größe.c:7"), "{traces}");
    // The gzip header has no name and no time: equal profiles are equal files.
    assert_eq!(written(&snapshot, &whole()), written(&snapshot, &whole()));
}

/// Wall time by what was waited for, of the facts themselves.
fn waits(snapshot: &Snapshot) -> BTreeMap<Vec<String>, i64> {
    let tables = &snapshot.tables;
    let mut sums = BTreeMap::new();
    snapshot.history.read(whole().range, snapshot.at, &mut |key, weights| {
        let labels = match tables.blocker(key.blocker) {
            None => vec!["-".to_owned(); 3],
            Some(Blocker { kind, class, object, holder, pid: of }) => vec![
                match class {
                    Some(class) if *kind == BlockerKind::Parked => class.to_string(),
                    Some(class) => format!("{} of {class}", kind.word()),
                    None => kind.word().to_owned(),
                },
                match (kind, object) {
                    (_, 0) => "-".into(),
                    (BlockerKind::FileLock | BlockerKind::Child, number) => number.to_string(),
                    (_, address) => format!("0x{address:x}"),
                },
                match holder {
                    Holder::Thread { name, .. } => tables.name(*name).to_string(),
                    Holder::Foreign { pid, tid } if pid == of => format!("thread {tid}"),
                    Holder::Foreign { pid, tid } if pid == tid => format!("process {pid}"),
                    Holder::Foreign { pid, tid } => format!("thread {tid} of process {pid}"),
                    Holder::Readers(1) => "one reader".into(),
                    Holder::Readers(count) => format!("{count} readers"),
                    Holder::Unmounted => "a virtual thread that does not run".into(),
                    Holder::Unknown | Holder::Free => "-".into(),
                },
            ],
        };
        *sums.entry(labels).or_insert(0) += weights.wall_ns as i64;
    });
    sums.retain(|_, sum| *sum != 0);
    sums
}

#[test]
fn waits_are_labelled_by_what_they_are_for() {
    let dir = tempfile::tempdir().expect("a folder");
    for seed in [3, 4] {
        let snapshot = sessions::session(seed, 120, false);
        let bytes = written(&snapshot, &whole());
        let by_blocker = by_labels(&bytes, "wall", &["blocker", "blocker_address", "held_by"]);
        assert_eq!(by_blocker, waits(&snapshot), "seed {seed}");
        assert!(by_blocker.keys().filter(|labels| labels[2] != "-").count() > 3, "{by_blocker:?}");
        // Those that a user of pprof would choose.
        std::fs::write(dir.path().join("p.pb.gz"), &bytes).expect("written");
        let tags = go_tool(&["-tags", "-unit=ns", "p.pb.gz"], dir.path());
        for label in ["blocker:", "blocker_address:", "held_by:"] {
            assert!(tags.contains(label), "{label}: {tags}");
        }
        let mut of_blockers: BTreeMap<&str, i64> = BTreeMap::new();
        for (labels, ns) in by_blocker.iter().filter(|(labels, _)| labels[0] != "-") {
            *of_blockers.entry(&labels[0]).or_default() += ns;
        }
        let (name, ns) = of_blockers.into_iter().max_by_key(|(_, ns)| *ns).expect("there are some");
        let focus = format!("-tagfocus=blocker=^{}$", regex::escape(name));
        let shown =
            go_tool(&["-top", "-unit=ns", "-sample_index=wall", &focus, "p.pb.gz"], dir.path());
        assert!(shown.contains(&format!("for {ns}ns,")), "{name}: {shown}");
    }
}

/// Time of every path of names: (group, path) -> (of its own by state, cpu, hits).
type Paths = BTreeMap<(String, Vec<String>), ([u64; State::COUNT], u64, u64)>;

fn paths(snapshot: &Snapshot) -> Paths {
    let settings = Settings { idle: true, ..whole() };
    let projection = project(snapshot, &settings);
    let mut paths = Paths::new();
    for group in &projection.groups {
        let mut todo: Vec<(u32, Vec<String>)> =
            projection.roots(group).map(|root| (root, Vec::new())).collect();
        while let Some((at, mut path)) = todo.pop() {
            let node = projection.node(at, Metric::Wall);
            path.push(node.location.function.to_string());
            let (states, cpu, hits) =
                paths.entry((group.name.to_string(), path.clone())).or_default();
            states.iter_mut().zip(node.own.states_ns).for_each(|(sum, ns)| *sum += ns);
            *cpu += node.own.cpu_ns;
            *hits += node.own.hits;
            todo.extend(projection.children(at).map(|child| (child, path.clone())));
        }
        let own = paths.entry((group.name.to_string(), Vec::new())).or_default();
        own.0.iter_mut().zip(group.own.states_ns).for_each(|(sum, ns)| *sum += ns);
        own.1 += group.own.cpu_ns;
        own.2 += group.own.hits;
    }
    paths.retain(|_, (states, cpu, hits)| states.iter().any(|ns| *ns > 0) || *cpu > 0 || *hits > 0);
    paths
}

/// Returns the builds of the modules whose frames have time.
fn builds(snapshot: &Snapshot) -> BTreeSet<(String, String, String)> {
    let mut builds = BTreeSet::new();
    let tables = &snapshot.tables;
    let settings = whole();
    snapshot.history.read(settings.range, snapshot.at, &mut |key, _| {
        for named in tables.frames_innermost_first(key.stack).map(|frame| tables.named(frame)) {
            let Some(build_id) = &named.build_id else { continue };
            let Location { function, module, .. } = &named.locations[0];
            builds.insert((
                function.to_string(),
                module.trim_matches(['[', ']']).to_owned(),
                build_id.to_string(),
            ));
        }
    });
    builds
}

/// Of `readelf -n`.
fn readelf(file: &Path) -> String {
    let output = Command::new("readelf").arg("-n").arg(file).output().expect("readelf is needed");
    let text = String::from_utf8(output.stdout).expect("text");
    let id = text.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    id.unwrap_or_else(|| panic!("{}: {text}", file.display())).to_owned()
}

/// Build ids by files, of `go tool pprof -raw`.
fn mappings(file: &str, dir: &Path) -> BTreeSet<(String, String)> {
    let raw = go_tool(&["-raw", file], dir);
    let rows = raw.lines().skip_while(|line| *line != "Mappings").skip(1);
    // `1: 0x0/0x0/0x0 /usr/bin/app 0a1b2c [FN][FL][LN][IN]`
    let row = |line: &str| {
        let mut words = line.trim().split(' ').skip(2);
        let (name, id) = (words.next().expect("a file"), words.next().unwrap_or(""));
        (name.to_owned(), if id.starts_with('[') { String::new() } else { id.to_owned() })
    };
    rows.take_while(|line| !line.trim().is_empty()).map(row).collect()
}

#[test]
fn several_builds_of_a_file_are_several_mappings() {
    let dir = tempfile::tempdir().expect("a folder");
    let snapshot = sessions::session(NAMED, 120, false);
    std::fs::write(dir.path().join("p.pb.gz"), written(&snapshot, &whole())).expect("written");
    let mappings = mappings("p.pb.gz", dir.path());
    let of = |name: &str| -> Vec<&str> {
        mappings.iter().filter(|(module, _)| module == name).map(|(_, id)| id.as_str()).collect()
    };
    assert_eq!(of("shop"), ["", "00112233445566778899aabbccddeeff01234567", "ffeeddccbbaa9988"]);
    assert_eq!(of("libc.so.6"), ["93e52a1c73ed1a5c72b4f7a4b0c0a6b4c8b1d6e7"]);
    assert_eq!(of("[kernel]"), ["48dc540c8b76393804ca8088dbfa7d42911a9444"]);
    assert_eq!(of("[java]"), [""]);
    // Modules are rows of one name, whatever their builds. A build is reported only if the whole
    // row is of one.
    let by_module = Settings { roll_up: RollUp::Module, ..whole() };
    std::fs::write(dir.path().join("m.pb.gz"), written(&snapshot, &by_module)).expect("written");
    let shown = project(&snapshot, &Settings { idle: true, ..by_module });
    assert_eq!(top("m.pb.gz", "wall", dir.path()), flat(&shown, Metric::Wall));
}

#[test]
fn build_ids_are_those_of_the_files_that_ran() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("kernel_calls.c", "ids", &["-O1", "-Wl,--build-id"]);
    let target = Running::start(&program, &["zero", "user"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let pid = target.pid().to_string();
    let recording = Recording::start(
        command.args(["record", "-p", &pid, "-o", "p.sampletop"]).current_dir(dir.path()),
    );
    recording.until_used(target.pid(), 500);
    assert!(recording.end().status.success());
    let mut expected = BTreeSet::new();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let libc = maps
        .lines()
        .find_map(|line| line.split_whitespace().last().filter(|path| path.contains("/libc.so.6")));
    for file in [program.as_path(), Path::new(libc.expect("it has one"))] {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        expected.insert((name, readelf(file)));
    }
    drop(target);
    // The kernel's notes, as the only section of an object.
    let notes = dir.path().join("notes");
    std::fs::copy("/sys/kernel/notes", &notes).expect("the kernel has notes");
    let mut objcopy = Command::new("objcopy");
    objcopy.args([
        "-I",
        "binary",
        "-O",
        "elf64-x86-64",
        "--rename-section",
        ".data=.note.gnu.build-id",
    ]);
    assert!(
        objcopy
            .arg(&notes)
            .arg(dir.path().join("notes.o"))
            .status()
            .expect("objcopy is needed")
            .success()
    );
    // Only root sees the kernel.
    if rustix::process::geteuid().is_root() {
        expected.insert(("vmlinux".to_owned(), readelf(&dir.path().join("notes.o"))));
    }

    sampletop(&["open", "p.sampletop", "-o", "p.pb.gz"], dir.path());
    let found = mappings("p.pb.gz", dir.path());
    assert!(expected.is_subset(&found), "{expected:?} are not all in {found:?}");
    // Every file in which code ran has its build.
    let names: BTreeSet<&String> = found.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), found.len(), "{found:?}");
    let first = go_tool(&["-top", "p.pb.gz"], dir.path());
    let id = readelf(&program);
    assert!(first.contains(&format!("Build ID: {id}")), "{first}");
    // The other formats that have a field for it.
    let json: Value =
        serde_json::from_str(&sampletop(&["open", "p.pb.gz", "--format", "json"], dir.path()))
            .expect("json");
    let listed = json["modules"].as_array().expect("a list");
    assert!(listed.iter().any(|module| module["build_id"] == *id), "{listed:?}");
    let firefox = sampletop(&["open", "p.sampletop", "--format", "firefox"], dir.path());
    let firefox: Value = serde_json::from_str(&firefox).expect("json");
    let libs = firefox["libs"].as_array().expect("a list");
    assert!(libs.iter().any(|lib| lib["codeId"] == *id), "{libs:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_was_written_is_read_again(seed in any::<u64>(), scan in 0_usize..150) {
        let snapshot = sessions::session(seed, scan, false);
        let opened = formats::import::read(&written(&snapshot, &whole())).expect("a profile").expect("with time");
        prop_assert_eq!(&opened.lost, &None);
        let frameless = |(group, path): &(String, Vec<String>)| match path.is_empty() {
            true => (group.clone(), vec!["[every frame hidden]".to_owned()]),
            false => (group.clone(), path.clone()),
        };
        let expected: Paths = paths(&snapshot).into_iter().map(|(key, sums)| (frameless(&key), sums)).collect();
        prop_assert_eq!(paths(&opened.snapshot), expected);
        prop_assert_eq!(builds(&opened.snapshot), builds(&snapshot));
        let span = |snapshot: &Snapshot| snapshot.at - snapshot.session.started;
        prop_assert_eq!(span(&opened.snapshot), span(&snapshot).max(1));
        prop_assert_eq!(opened.snapshot.session.started_unix_ns, snapshot.session.started_unix_ns);
        prop_assert_eq!(opened.snapshot.session.interval_ns, snapshot.session.interval_ns);
    }
}

fn sampletop(args: &[&str], dir: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command.args(args).current_dir(dir).output().expect("sampletop starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_recorded_program_is_the_same_in_every_tool() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("../../demos/work.c", "o2g", &["-O2", "-g"]);
    let target = Running::start(&program, &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let pid = target.pid().to_string();
    let recording = Recording::start(
        command.args(["record", "-p", &pid, "-o", "p.sampletop"]).current_dir(dir.path()),
    );
    recording.until_used(target.pid(), 500);
    assert!(recording.end().status.success());

    sampletop(&["open", "p.sampletop", "-o", "p.pb.gz"], dir.path());
    // Both are wall time; of the functions that json tells to a thousandth of a ms.
    let json = |file: &str| -> Value {
        serde_json::from_str(&sampletop(&["open", file, "--format", "json"], dir.path()))
            .expect("json")
    };
    let (own, again) = (json("p.sampletop"), json("p.pb.gz"));
    let sixty = top("p.pb.gz", "cpu", dir.path())["sixty"].0 as f64 / 1e6;
    for profile in [&own, &again] {
        let mut found = 0.0;
        let mut todo: Vec<&Value> = profile["groups"].as_array().expect("groups").iter().collect();
        while let Some(node) = todo.pop() {
            todo.extend(node["nodes"].as_array().into_iter().flatten());
            found += if node["frame"] == "sixty" {
                node["self_cpu_ms"].as_f64().expect("ms")
            } else {
                0.0
            };
        }
        assert!((found - sixty).abs() < 0.01 && sixty > 100.0, "{found} and {sixty}");
    }
    // Group by group, function by function, state by state; pprof only lacks the duration of single
    // waits.
    let [own, again] = [own, again].map(|mut profile| {
        let mut todo: Vec<&mut Value> =
            profile["groups"].as_array_mut().expect("groups").iter_mut().collect();
        while let Some(node) = todo.pop() {
            let Value::Object(node) = node else { panic!("no object") };
            node.remove("longest_ms");
            todo.extend(node.get_mut("nodes").and_then(Value::as_array_mut).into_iter().flatten());
        }
        profile["groups"].to_string()
    });
    assert!(own == again, "{own}\n{again}");
    let first = go_tool(&["-top", "p.pb.gz"], dir.path());
    let name = program.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(first.starts_with(&format!("File: {name}\n")), "{first}");
    // Its source is found by the lines.
    let source = go_tool(&["-list=^sixty$", "-sample_index=cpu", "p.pb.gz"], dir.path());
    assert!(source.contains("BURN(6 * unit_ns)"), "{source}");
}

/// A Go program's profiles of itself: of its CPU time and of its memory.
static OF_GO: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let files =
        ["cpu", "heap"].map(|kind| folder.join(format!("go-{}-{kind}.pprof", std::process::id())));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/profiled.go");
    let output =
        Command::new("go").arg("run").arg(source).args(&files).output().expect("go is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [cpu, heap] = files;
    (cpu, heap)
});

#[test]
fn a_profile_of_gos_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = OF_GO.0.to_str().expect("text");
    let by_go = top(file, "cpu", dir.path());
    let opened = formats::import::read(&std::fs::read(file).expect("a file"))
        .expect("a profile")
        .expect("with time");
    assert_eq!((opened.lost, opened.settings.metric), (None, Metric::Cpu));
    let ours = flat(&project(&opened.snapshot, &opened.settings), Metric::Cpu);
    assert_eq!(ours, by_go);
    assert!(ours["main.burn"].1 > 100_000_000, "{ours:?}");
    let text = sampletop(&["report", file], dir.path());
    assert!(
        text.contains("main.burn")
            && text.contains("Capture      pprof: samples in count, cpu in nanoseconds"),
        "{text}"
    );
    assert!(text.starts_with("sampletop profile=profiled s="), "{text}");
    assert!(text.contains("Losses       not known: another tool took the samples"), "{text}");
    // Saved as a file of our own it has the same contents.
    sampletop(&["open", file, "-o", "p.sampletop"], dir.path());
    assert_eq!(sampletop(&["report", "p.sampletop"], dir.path()), text);
}

#[test]
fn a_profile_without_time_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command
        .arg("report")
        .arg(&OF_GO.1)
        .current_dir(dir.path())
        .output()
        .expect("sampletop starts");
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    assert!(
        sentence.contains("this pprof profile holds no time (alloc_objects in count, "),
        "{sentence}"
    );
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
}
