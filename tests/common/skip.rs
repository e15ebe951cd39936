//! Tests that cannot run here. src/lib.rs includes this file too, for unit tests.
#![allow(dead_code)] // each test binary uses a part of it

use std::io::Write;

/// Reports that a test cannot run here, and `tests/run` counts it. It writes to the real stderr in
/// one piece: the harness captures what `eprintln!` prints, and drops it if the test passes.
/// Panics where skipping is not allowed: with CI=true in the environment.
pub fn skipped(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("SKIPPED: {test}: {reason}\n").as_bytes());
    assert_ne!(
        std::env::var("CI").as_deref(),
        Ok("true"),
        "nothing may be skipped under CI: {test}: {reason}"
    );
}

/// Returns whether this test runs as root. If not, it is [`skipped`]: `if !need_root("reads another
/// user's process") { return }`.
pub fn need_root(reason: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let thread = std::thread::current();
        skipped(thread.name().unwrap_or("a test"), &format!("needs root: {reason}"));
    }
    root
}
