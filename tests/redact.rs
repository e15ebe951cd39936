//! Output of `--redact` in every format: it contains no name of the program, and every figure is
//! unchanged.

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

use common::{Recording, Running, build};
use sampletop::config::Format;
use sampletop::formats::saved::block;
use serde_json::Value;

/// Parts of all names that the program, its files and its arguments have.
const SECRETS: &[&str] = &["zebra", "quagga", "okapi", "gnusecret", "secret.c", "secret-"];
const KEY: &str = "a key of some length";

fn sampletop(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command.args(args).current_dir(dir).env("SAMPLETOP_REDACT_KEY", KEY).output();
    let output = output.expect("sampletop starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the bytes, and those that are compressed in them.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    for block in block::blocks(bytes) {
        all.extend(block.unpack().expect("it is sound"));
    }
    let _ = flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut all);
    all
}

/// Searches in lower case, as text and as the two bytes of a JavaScript string.
fn found(bytes: &[u8], secrets: &[&str]) -> Vec<String> {
    let text = String::from_utf8_lossy(&unpacked(bytes)).to_lowercase();
    secrets
        .iter()
        .filter(|secret| text.contains(**secret))
        .map(|secret| (*secret).to_owned())
        .collect()
}

fn target(dir: &Path) -> Running {
    let program = build("secret.c", "okapi", &["-O1", "-g", "-fno-omit-frame-pointer"]);
    let folder = dir.join("okapi");
    std::fs::create_dir(&folder).expect("made");
    let fifo = folder.join("okapi.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    Running::start(&program, &[fifo.to_str().expect("plain"), "--gnusecret"])
}

/// Returns every figure of a profile, without names.
fn figures(value: &Value) -> String {
    // Addresses of locks become numbers.
    const NAMES: &[&str] = &[
        "name",
        "frame",
        "functions",
        "sentence",
        "class",
        "object",
        "text",
        "file",
        "module",
        "command",
        "host",
        "version",
        "notice",
        "build_id",
    ];
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| !NAMES.contains(&name.as_str()));
            fields
                .map(|(name, value)| format!("{name}={}", figures(value)))
                .collect::<Vec<_>>()
                .join(" ")
        }
        Value::Array(list) => {
            let mut list: Vec<String> = list.iter().map(figures).collect();
            list.sort();
            format!("[{}]", list.join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
fn no_name_is_in_any_format_and_no_figure_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let (dir, target) = (dir.path(), target(dir.path()));
    let pid = target.pid().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let recording = Recording::start(
        command.args(["record", "-p", &pid, "-o", "p.sampletop"]).current_dir(dir),
    );
    recording.until_used(target.pid(), 300);
    assert!(recording.end().status.success());
    let read = |name: &str| std::fs::read(dir.join(name)).expect("written");
    let plain = read("p.sampletop");
    assert_eq!(found(&plain, SECRETS), SECRETS, "the test sees what it looks for");
    let json: Value = serde_json::from_slice(
        &sampletop(&["open", "p.sampletop", "--format", "json"], dir).stdout,
    )
    .expect("JSON");
    let builds: Vec<&str> = (json["modules"].as_array().expect("a list").iter())
        .filter_map(|module| module["build_id"].as_str())
        .collect();
    assert!(builds.len() > 1 && found(&plain, &builds) == builds, "{builds:?}");
    let secrets = &[SECRETS, &builds].concat()[..];

    for format in Format::ALL {
        let args = ["open", "p.sampletop", "--redact", "--format", format.word(), "-o", "out"];
        sampletop(&args, dir);
        assert_eq!(found(&read("out"), secrets), [""; 0], "{}", format.word());
        sampletop(
            &[
                "merge",
                "p.sampletop",
                "p.sampletop",
                "--redact",
                "--format",
                format.word(),
                "-o",
                "merged",
            ],
            dir,
        );
        assert_eq!(found(&read("merged"), secrets), [""; 0], "merged, {}", format.word());
    }
    for (args, plain) in [
        (&["dump", "-p", &pid][..], &["zebra", "quagga", "okapi", "gnusecret"][..]),
        (&["dump", "-p", &pid, "--each"], &["zebra", "quagga", "okapi", "gnusecret"]),
        (&["dump", "-p", &pid, "--format", "json"], &["zebra", "quagga", "okapi", "gnusecret"]),
        (&["diff", "p.sampletop", "p.sampletop"], &["quagga", "okapi", "gnusecret"]),
        (
            &["diff", "p.sampletop", "p.sampletop", "--format", "json"],
            &["zebra", "quagga", "okapi", "gnusecret"],
        ),
        (&["record", "-p", &pid, "-d", "300ms"], &["zebra", "quagga", "okapi", "gnusecret"]),
    ] {
        let missing = found(&sampletop(args, dir).stdout, plain).len() < plain.len();
        assert!(args[0] == "diff" || !missing, "{args:?} is to show names without --redact");
        let redacted = sampletop(&[args, &["--redact"]].concat(), dir);
        assert_eq!(
            found(&redacted.stdout, secrets),
            [""; 0],
            "{args:?}: {}",
            String::from_utf8_lossy(&redacted.stdout)
        );
    }
    // Each thread's wait, by its kind.
    let dumped = sampletop(&["dump", "-p", &pid, "--redact", "--format", "json"], dir).stdout;
    let dumped: Value = serde_json::from_slice(&dumped).expect("JSON");
    let waits: Vec<&str> = dumped["threads"]
        .as_array()
        .expect("threads")
        .iter()
        .filter_map(|thread| thread["waits_for"].as_str())
        .collect();
    assert_eq!(
        waits.iter().filter(|waits| waits.starts_with("mutex held by ")).count(),
        2,
        "{waits:?}"
    );
    // Names of reports' files contain the host's name, and the target's.
    sampletop(
        &[
            "report",
            "--name",
            "gnusecret",
            "--every",
            "1s",
            "--count",
            "1",
            "-o",
            "reports/",
            "--redact",
        ],
        dir,
    );
    for entry in std::fs::read_dir(dir.join("reports")).expect("made") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(
            (
                found(name.as_bytes(), SECRETS),
                found(&std::fs::read(&path).expect("there"), SECRETS)
            ),
            (vec![], vec![])
        );
    }

    // Figures: of JSON, of a redacted profile that is opened again, and what idle time is.
    sampletop(&["open", "p.sampletop", "--redact", "-o", "r.sampletop"], dir);
    let json = |args: &[&str]| -> Value {
        serde_json::from_slice(&sampletop(&[args, &["--format", "json"]].concat(), dir).stdout)
            .expect("JSON")
    };
    let waits = json(&["open", "p.sampletop", "--idle"])["waits"].to_string();
    assert!(waits.contains("okapi.fifo"), "the file that a thread waits for is kept: {waits}");
    for by in ["function", "class", "module"] {
        let plain = figures(&json(&["open", "p.sampletop", "--by", by]));
        assert_eq!(
            figures(&json(&["open", "p.sampletop", "--by", by, "--redact"])),
            plain,
            "by {by}"
        );
        assert_eq!(
            figures(&json(&["open", "r.sampletop", "--by", by])),
            plain,
            "by {by}, opened again"
        );
    }
    let lines = |args: &[&str]| -> Vec<String> {
        let text = String::from_utf8(sampletop(args, dir).stdout).expect("ASCII");
        let kept = |line: &&str| {
            ["Idle ", "run ", "lock ", "wait ", "io ", "sleep ", "all "]
                .iter()
                .any(|word| line.starts_with(word))
        };
        text.lines().filter(kept).map(str::to_owned).collect()
    };
    let expected = lines(&["report", "p.sampletop"]);
    assert!(expected.len() > 3, "{expected:?}");
    assert_eq!(lines(&["report", "p.sampletop", "--redact"]), expected);
    assert_eq!(lines(&["report", "r.sampletop"]), expected);
    // One key yields the same names: a redacted profile can be compared with another. Another key
    // yields others.
    let names = |key: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        command.args(["open", "p.sampletop", "--redact", "--format", "folded"]).current_dir(dir);
        command.env("SAMPLETOP_REDACT_KEY", key).output().expect("it starts").stdout
    };
    assert!(names(KEY) == names(KEY) && names(KEY) != names("another key of some length"));
}
