//! Java where it is hard: virtual machines that nobody knows, code that comes and goes, stacks that cannot be followed.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Running, build, need_root};

fn sampletop(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sampletop")).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A report says which field is missing, and so does a dump.
#[test]
fn a_virtual_machine_that_nobody_knows_is_named() {
    if !need_root("reads another process by every way of capture") {
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("unknown-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let library = folder.join("libjvm.so");
    std::fs::rename(build("unknown_jvm.c", "library", &["-shared", "-fPIC"]), &library).expect("the same folder");
    let target = Running::start(&build("loads.c", "", &[]), &[&library.to_string_lossy()]);
    let pid = target.pid().to_string();
    let says = format!("process {pid}: its Java frames cannot be read: libjvm.so lacks CodeCache::_heap");
    for command in [&["record", "-d", "1s", "--format", "text"][..], &["dump", "--format", "text"]] {
        let report = sampletop(&[command, &["-p", &pid]].concat());
        // Lines are broken where they are long.
        let words = report.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&says), "{report}");
    }
}
