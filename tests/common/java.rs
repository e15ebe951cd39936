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

/// A JDK, and where it is run.
pub struct Jdk {
    /// The folder that it runs in by chroot, with namespaces of its own for mounts, if it was fetched by `tests/jdks`.
    root: Option<PathBuf>,
    /// As it sees it.
    home: PathBuf,
}

/// [`JDKS`], and those that `tests/jdks` has fetched.
pub static EVERY_JDK: LazyLock<Vec<Jdk>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jdks");
    let homes = std::fs::read_dir(root.join("usr/lib/jvm")).into_iter().flatten().flatten();
    // Others are links to these.
    let homes = homes.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    let mut homes: Vec<PathBuf> = homes.filter(|home| home.join("bin/javac").exists()).collect();
    homes.sort();
    let fetched = homes.into_iter().map(|home| Jdk {
        home: Path::new("/").join(home.strip_prefix(&root).expect("below it")),
        root: Some(root.clone()),
    });
    JDKS.iter().map(|home| Jdk { root: None, home: home.clone() }).chain(fetched).collect()
});

impl Jdk {
    /// For messages.
    pub fn name(&self) -> String {
        let root = self.root.as_deref().unwrap_or(Path::new(""));
        format!("{}{}", root.display(), self.home.display())
    }

    /// Runs `java`, `javac`, `jstack`, .... Its process is that of the tool, from the first moment on.
    pub fn tool(&self, tool: &str) -> Command {
        let path = self.home.join("bin").join(tool);
        let Some(root) = &self.root else { return Command::new(path) };
        let mut command = Command::new("unshare");
        let inside = "mount -t proc proc proc && exec chroot . \"$0\" \"$@\"";
        command.args(["--mount", "sh", "-c", inside]).arg(path).current_dir(root);
        command
    }

    /// Compiles a program of `tests/targets`; the folder of its classes, as the JDK sees it.
    pub fn compile(&self, source: &str) -> PathBuf {
        let Some(root) = &self.root else { return compile(&self.home, source) };
        let folder = PathBuf::from("/tmp").join(self.home.file_name().expect("a name"));
        let outside = root.join(folder.strip_prefix("/").expect("absolute"));
        std::fs::create_dir_all(&outside).expect("a folder");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(source);
        std::fs::copy(from, outside.join(source)).expect("copied");
        let mut javac = self.tool("javac");
        output(javac.args(["-encoding", "UTF-8", "-nowarn", "-d"]).arg(&folder).arg(folder.join(source)));
        folder
    }

    /// Starts a class of a folder, and waits for its line `ready`.
    pub fn start(&self, classes: &Path, options: &[&str], arguments: &[&str]) -> Running {
        let mut java = self.tool("java");
        java.args(KNOWN).arg("-cp").arg(classes).args(options).args(arguments);
        Running::start_command(java)
    }
}

/// So that options of other versions and collectors do no harm.
const KNOWN: [&str; 3] = ["-XX:+UnlockExperimentalVMOptions", "-XX:+IgnoreUnrecognizedVMOptions", "-Xmx256m"];

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
    let mut java = Command::new(home.join("bin/java"));
    java.args(KNOWN).arg("-cp").arg(classes).args(options).args(arguments);
    Running::start_command(java)
}
