//! The time of a function by line and by instruction, of a program that measures its own lines and
//! judged by addr2line.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{Recording, Running, build};
use sampletop::formats::saved;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::facts::tables::{FrameId, FrameKind};
use sampletop::model::projection::settings::{Level, Range, Settings};
use sampletop::model::projection::{FunctionKey, FunctionTime, Projector};
use sampletop::model::transform::redact::{Key, Redactor};
use sampletop::model::vocabulary::frame::FrameCode;

const SOURCE: &str = "source_lines.c";
const FUNCTION: &str = "hot";

fn run(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{tool} is needed: {error}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Records the program; returns the profile, and the time that it spent on each line by its own
/// clock, ns.
fn recorded(program: &Path) -> (Snapshot, [f64; 2]) {
    let mut running = Running::start(program, &[]);
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("profile.sampletop");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["record", "-i", "1ms", "-p", &running.pid().to_string(), "-o"]).arg(&file);
    let recording = Recording::start(&mut command);
    recording.until_used(running.pid(), 4000);
    let output = recording.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
    let line = running.lines.next().expect("its times").expect("text");
    let spent: Vec<f64> = line.split(' ').map(|ns| ns.parse().expect("ns")).collect();
    let bytes = std::fs::read(&file).expect("written");
    (saved::read(&bytes).expect("a profile").snapshot, [spent[0], spent[1]])
}

fn time_of_hot(snapshot: &Snapshot, program: &Path) -> FunctionTime {
    let module = program.file_name().expect("a name").to_string_lossy();
    let key = FunctionKey {
        function: FUNCTION.into(),
        module: (*module).into(),
        kind: FrameKind::Native,
        has_calls: false,
    };
    let range = Range::Cumulative { since: None };
    let settings = Settings { range, level: Level::All, ..Settings::default() };
    Projector::default().function_time(snapshot, &settings, &key)
}

/// Returns the number of the line with a mark.
fn line_of(mark: &str) -> u32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(SOURCE);
    let text = std::fs::read_to_string(path).expect("the source");
    text.lines().position(|line| line.ends_with(mark)).expect("a mark") as u32 + 1
}

/// Returns file offset minus address of the code segment, by readelf.
fn code_shift(program: &str) -> u64 {
    let segments = run("readelf", &["-lW", program]);
    let code = segments.lines().find(|line| line.contains("LOAD") && line.contains(" E "));
    let numbers: Vec<u64> = (code.expect("a code segment").split_whitespace())
        .filter_map(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok())
        .collect();
    numbers[0].wrapping_sub(numbers[1])
}

#[test]
fn lines_and_instructions_have_the_time_that_was_spent_there() {
    let program = build(SOURCE, "lines", &["-g", "-O1"]);
    let (snapshot, spent) = recorded(&program);
    let time = time_of_hot(&snapshot, &program);
    // Places would name functions to who has the program.
    let redacted = Redactor::new(Key::of(b"key")).snapshot(&snapshot);
    let frames = (0..redacted.tables.frame_count()).map(|id| FrameId(id as u32));
    let codes = frames.map(|frame| redacted.tables.frame(frame).decode());
    assert_eq!(codes.filter(|code| matches!(code, FrameCode::Code { .. })).count(), 0);
    assert!(time.own.cpu_hits > 1000, "{time:?}");

    // Samples on a core fall on a line with the probability of its share of the time. Five standard
    // deviations, of which one sample in 1.7 million tests is farther away, and half a percentage
    // point for the ticks at which the program is between its own clock readings.
    let expected = spent[0] / (spent[0] + spent[1]);
    let at = |line: u32| {
        let own = time.lines.iter().filter(|at| at.at.1 == Some(line)).map(|at| at.own.cpu_ns);
        own.sum::<u64>() as f64
    };
    let (a, b) = (at(line_of("LINE A")), at(line_of("LINE B")));
    let found = a / (a + b);
    let deviation = (expected * (1.0 - expected) / time.own.cpu_hits as f64).sqrt();
    let error = (found - expected).abs();
    assert!(error < 5.0 * deviation + 0.005, "{found} is not {expected}: {:?}", time.lines);
    assert!((a + b) / time.own.cpu_ns as f64 > 0.97, "{:?}", time.lines);

    // Each instruction belongs to the line that addr2line names for it.
    let path = program.to_str().expect("a path of this test");
    let shift = code_shift(path);
    let mut by_line: BTreeMap<u32, u64> = BTreeMap::new();
    for place in time.places.iter().filter(|place| place.own.wall_ns > 0) {
        let at = place.at.expect("code of the program");
        let address = format!("{:#x}", at.offset.wrapping_sub(shift));
        let printed = run("addr2line", &["-e", path, "-f", &address]);
        assert_eq!(printed.lines().next(), Some(FUNCTION), "{address}");
        let (_, line) = printed.trim_end().rsplit_once(':').expect("file and line");
        let line = line.split(' ').next().expect("a number").parse().expect("a line");
        *by_line.entry(line).or_default() += place.own.wall_ns;
    }
    let lines = time.lines.iter().filter(|at| at.own.wall_ns > 0);
    let lines: BTreeMap<u32, u64> =
        lines.map(|at| (at.at.1.expect("a line"), at.own.wall_ns)).collect();
    assert_eq!(lines, by_line);
}
