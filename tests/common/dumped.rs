//! Runs sampletop and reads the stacks of its `dump`.

use std::process::Command;

use serde_json::Value;

/// Returns what sampletop prints. It must succeed.
pub fn sampletop(args: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_sampletop")).args(args).output().expect("sampletop runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A frame in a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u64>,
    pub module: String,
    pub kind: String,
    pub tier: Option<String>,
}

/// Returns the frames, innermost first, of the first thread for which `is_meant`, and whether they
/// are all of its stack. `options`: further ones of `dump`.
pub fn dump(pid: u32, options: &[&str], is_meant: impl Fn(&Value) -> bool) -> (Vec<Frame>, bool) {
    let pid = pid.to_string();
    let report = sampletop(&[&["dump", "-p", &pid, "--format", "json"], options].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let threads = report["threads"].as_array().expect("threads");
    let found = threads.iter().find(|thread| is_meant(thread));
    let found = found.unwrap_or_else(|| panic!("no such thread: {report:#}"));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let frame = |frame: &Value| Frame {
        name: text(&frame["frame"]).expect("a name"),
        file: text(&frame["file"]),
        line: frame["line"].as_u64(),
        module: text(&frame["module"]).expect("a module"),
        kind: text(&frame["kind"]).expect("a kind"),
        tier: text(&frame["tier"]),
    };
    let frames = found["frames"].as_array().expect("frames").iter().map(frame).collect();
    (frames, found["complete"] == true)
}
