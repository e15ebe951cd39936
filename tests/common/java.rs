//! What the tests with Java programs share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::{Running, need_root, skipped};

/// Homes of the JDKs here: `/usr/lib/jvm`, where distributions put them, and those that are named in
/// `SAMPLETOP_TEST_JDKS`, separated by colons.
pub static JDKS: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let installed = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let named = std::env::var_os("SAMPLETOP_TEST_JDKS").unwrap_or_default();
    let all = installed.chain(std::env::split_paths(&named).collect::<Vec<_>>());
    let homes = all.filter(|home| ["javac", "jstack"].iter().all(|tool| home.join("bin").join(tool).exists()));
    homes.filter_map(|home| home.canonicalize().ok()).collect::<BTreeSet<_>>().into_iter().collect()
});

/// Whether there is anything to try it on.
pub fn can_test() -> bool {
    if JDKS.is_empty() {
        skipped(
            std::thread::current().name().unwrap_or("java"),
            "no JDK in /usr/lib/jvm (Debian: openjdk-17-jdk-headless)",
        );
    }
    !JDKS.is_empty() && need_root("reads another process by every way of capture")
}

/// What it wrote to its standard output; it has to succeed.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Compiles a program of `tests/targets` by this JDK; the folder that its classes are in.
pub fn compile(home: &Path, source: &str) -> PathBuf {
    let id = home.file_name().expect("a name").to_string_lossy().into_owned();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("java-{id}-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(source);
    let mut javac = Command::new(home.join("bin/javac"));
    output(javac.arg("-encoding").arg("UTF-8").arg("-nowarn").arg("-d").arg(&out).arg(source));
    out
}

/// Starts a class of a folder, and waits for its line `ready`.
pub fn start(home: &Path, classes: &Path, options: &[&str], arguments: &[&str]) -> Running {
    let classes = classes.to_string_lossy();
    let known = ["-XX:+UnlockExperimentalVMOptions", "-XX:+IgnoreUnrecognizedVMOptions", "-Xmx256m", "-cp", &classes];
    Running::start(&home.join("bin/java"), &[&known, options, arguments].concat())
}
