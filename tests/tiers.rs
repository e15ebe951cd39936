//! Two tiers of tests. `cargo test` runs those that need only Rust: pure parts, screens, fakes.
//! `tests/run` runs the live tests too. A live test has `test = false` in Cargo.toml.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

#[test]
fn tests_that_start_programs_are_live_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("Cargo.toml");
    let names = |text: &str| -> BTreeSet<String> {
        let name =
            |entry: &str| Some(entry.split_once("name = \"")?.1.split_once('"')?.0.to_owned());
        text.split("[[test]]").skip(1).filter_map(name).collect()
    };
    // Tests that start programs use tests/common.
    let mut live = BTreeSet::new();
    for entry in std::fs::read_dir(root.join("tests")).expect("tests") {
        let path = entry.expect("an entry").path();
        let file = if path.is_dir() { path.join("main.rs") } else { path.clone() };
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if file.extension().is_some_and(|e| e == "rs") && text.lines().any(|l| l == "mod common;") {
            live.insert(path.file_stem().expect("a name").to_string_lossy().into_owned());
        }
    }
    assert_eq!(
        names(&manifest),
        live,
        "the entries `test = false` in Cargo.toml, and the live tests"
    );
    assert_eq!(manifest.matches("[[test]]").count(), manifest.matches("test = false").count());
    if std::env::var_os("SAMPLETOP_LIVE_TESTS").is_none() {
        // On the real stderr: the harness drops what a passing test prints.
        let count = live.len();
        let line = format!("NOT RUN: {count} files of live tests; tests/run runs them\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
