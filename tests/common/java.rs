//! Shared by the tests with Java programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::{Running, need_root, skipped};

/// Homes of the JDKs here: those in `/usr/lib/jvm`, where distributions put them, and those in
/// `SAMPLETOP_TEST_JDKS`, separated by colons.
pub static JDKS: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let installed =
        std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let named = std::env::var_os("SAMPLETOP_TEST_JDKS").unwrap_or_default();
    let all = installed.chain(std::env::split_paths(&named).collect::<Vec<_>>());
    let homes = all
        .filter(|home| ["javac", "jstack"].iter().all(|tool| home.join("bin").join(tool).exists()));
    homes.filter_map(|home| home.canonicalize().ok()).collect::<BTreeSet<_>>().into_iter().collect()
});

/// A JDK, and where it runs.
pub struct Jdk {
    /// The home by the JDK's own root.
    home: PathBuf,
    place: Place,
}

enum Place {
    /// On this machine, like everything else.
    Here,
    /// In a folder with all that it needs, by chroot, where `tests/jdks` has unpacked it.
    Fetched(PathBuf),
    /// Like `Fetched`, but made for a test: this machine's folders are mounted there, with the JDK
    /// under another path than `outside`. `numbers`: a pid namespace renumbers processes and
    /// threads, as in a container.
    Apart { root: PathBuf, outside: PathBuf, numbers: bool },
}

/// [`JDKS`], and those that `tests/jdks` has fetched.
pub static EVERY_JDK: LazyLock<Vec<Jdk>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jdks");
    let homes = std::fs::read_dir(root.join("usr/lib/jvm")).into_iter().flatten().flatten();
    // Other entries are links to these.
    let homes = homes
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path());
    let mut homes: Vec<PathBuf> = homes.filter(|home| home.join("bin/javac").exists()).collect();
    homes.sort();
    let fetched = homes.into_iter().map(|home| Jdk {
        home: Path::new("/").join(home.strip_prefix(&root).expect("below it")),
        place: Place::Fetched(root.clone()),
    });
    JDKS.iter().map(|home| Jdk { home: home.clone(), place: Place::Here }).chain(fetched).collect()
});

/// A running virtual machine.
pub struct Jvm {
    pub running: Running,
    pid: u32,
}

impl Jvm {
    /// Returns the pid in our namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Maps the virtual machine's own thread ids to ours. Threads that have exited are missing.
    pub fn threads(&self, inside: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
        let place = format!("/proc/{}", self.pid);
        if number_inside(&place) == Some(self.pid.into()) {
            return inside.map(|tid| (tid, tid)).collect();
        }
        // A read of the list ends early if a thread in it exits meanwhile.
        let mut threads = BTreeMap::new();
        for _ in 0..10 {
            let tasks = std::fs::read_dir(format!("{place}/task")).expect("it runs").flatten();
            let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
            threads.extend(
                tids.filter_map(|tid| Some((number_inside(&format!("{place}/task/{tid}"))?, tid))),
            );
        }
        threads
    }
}

/// Returns the id of this process or thread (a folder in /proc) in its own namespace.
fn number_inside(place: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("{place}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

impl Jdk {
    /// Returns one of [`JDKS`] in a chroot, or in a container.
    pub fn apart(outside: &Path, numbers: bool) -> Jdk {
        let name = format!(
            "root-{}-{}",
            outside.file_name().expect("a name").display(),
            std::process::id()
        );
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        for folder in ["proc", "tmp", "jdk"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        Jdk {
            home: "/jdk".into(),
            place: Place::Apart { root, outside: outside.to_owned(), numbers },
        }
    }

    /// Returns a name for messages.
    pub fn name(&self) -> String {
        match &self.place {
            Place::Here => self.home.display().to_string(),
            Place::Fetched(root) => format!("{}{}", root.display(), self.home.display()),
            Place::Apart { outside, numbers: false, .. } => {
                format!("{} in a chroot", outside.display())
            }
            Place::Apart { outside, numbers: true, .. } => {
                format!("{} in a container", outside.display())
            }
        }
    }

    /// Returns the major version that the JDK prints.
    pub fn version(&self) -> u32 {
        let said = self.tool("java").arg("-version").output().expect("it starts");
        // `openjdk version "17.0.15" ...`; before 9 `"1.8.0_..."`.
        let text = String::from_utf8(said.stderr).expect("text");
        let number =
            text.split('"').nth(1).map(|version| version.strip_prefix("1.").unwrap_or(version));
        let first = number.and_then(|version| version.split(['.', '-', '_']).next()?.parse().ok());
        first.unwrap_or_else(|| panic!("{}: {text}", self.name()))
    }

    /// Returns the folder that it sees as `/`.
    fn root(&self) -> Option<&Path> {
        match &self.place {
            Place::Here => None,
            Place::Fetched(root) | Place::Apart { root, .. } => Some(root),
        }
    }

    /// Runs `java` or `javac`. The process is that of the tool from the start; in a container the
    /// tool is a child.
    pub fn tool(&self, tool: &str) -> Command {
        let path = self.home.join("bin").join(tool);
        let Some(root) = self.root() else { return Command::new(path) };
        let mut command = Command::new("unshare");
        command.arg("--mount").current_dir(root);
        let mut mounts = "mount -t proc proc proc".to_owned();
        if let Place::Apart { outside, numbers, .. } = &self.place {
            if *numbers {
                command.args(["--pid", "--fork", "--kill-child"]);
            }
            for folder in ["usr", "etc", "lib", "lib64"] {
                // Links lead to the same target under another root.
                mounts += &format!(
                    " && if [ -h /{folder} ]; then ln -sfn \"$(readlink /{folder})\" {folder}; \
                     elif [ -d /{folder} ]; then mkdir -p {folder} && mount --rbind /{folder} {folder}; fi"
                );
            }
            mounts += &format!(" && mount --bind '{}' jdk", outside.display());
        }
        command.args(["sh", "-c", &format!("{mounts} && exec chroot . \"$0\" \"$@\"")]).arg(path);
        command
    }

    /// Runs `jstack` or `jcmd` on this virtual machine, in its namespaces.
    pub fn on(&self, tool: &str, options: &[&str], jvm: &Jvm) -> Command {
        let path = self.home.join("bin").join(tool);
        let mut command = match &self.place {
            Place::Here => Command::new(path),
            Place::Fetched(_) | Place::Apart { .. } => {
                let mut command = Command::new("nsenter");
                command
                    .args(["--target", &jvm.pid.to_string(), "--mount", "--pid", "--root", "--wd"])
                    .arg(path);
                command
            }
        };
        let inside = number_inside(&format!("/proc/{}", jvm.pid)).expect("it runs");
        command.args(options).arg(inside.to_string());
        command
    }

    /// Compiles a program of `tests/targets`. Returns the folder of its classes, as the JDK sees
    /// it.
    pub fn compile(&self, source: &str) -> PathBuf {
        let (root, folder) = match &self.place {
            Place::Here => return compile(&self.home, source),
            Place::Fetched(root) => {
                (root, Path::new("/tmp").join(self.home.file_name().expect("a name")))
            }
            Place::Apart { root, .. } => (root, PathBuf::from("/tmp/classes")),
        };
        let outside = root.join(folder.strip_prefix("/").expect("absolute"));
        std::fs::create_dir_all(&outside).expect("a folder");
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(source);
        std::fs::copy(from, outside.join(source)).expect("copied");
        let mut javac = self.tool("javac");
        output(
            javac
                .args(["-encoding", "UTF-8", "-nowarn", "-d"])
                .arg(&folder)
                .arg(folder.join(source)),
        );
        folder
    }

    /// Starts a class of a folder, and waits for its line `ready`.
    pub fn start(&self, classes: &Path, options: &[&str], arguments: &[&str]) -> Jvm {
        let mut java = self.tool("java");
        java.args(KNOWN).arg("-cp").arg(classes).args(options).args(arguments);
        let running = Running::start_command(java);
        let pid = match self.place {
            Place::Apart { numbers: true, .. } => only_child(running.pid()),
            Place::Here | Place::Fetched(_) | Place::Apart { .. } => running.pid(),
        };
        Jvm { running, pid }
    }
}

impl Drop for Jdk {
    fn drop(&mut self) {
        let Place::Apart { root, .. } = &self.place else { return };
        let _ = std::fs::remove_dir_all(root.join("tmp"));
        // Mounts there exist in other namespaces only: here these folders are empty, or links.
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if path.is_symlink() {
                std::fs::remove_file(path)
            } else {
                std::fs::remove_dir(path)
            };
        }
        let _ = std::fs::remove_dir(root);
    }
}

/// Returns the process that the only thread of this one has started.
pub fn only_child(pid: u32) -> u32 {
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    children.trim().parse().expect("one child")
}

/// Makes the JVM accept options of other versions and collectors.
const KNOWN: [&str; 3] =
    ["-XX:+UnlockExperimentalVMOptions", "-XX:+IgnoreUnrecognizedVMOptions", "-Xmx256m"];

/// Returns whether there is any JDK to test with.
pub fn can_test() -> bool {
    if JDKS.is_empty() {
        skipped(
            std::thread::current().name().unwrap_or("java"),
            "no JDK in /usr/lib/jvm (Debian: openjdk-17-jdk-headless)",
        );
    }
    !JDKS.is_empty() && need_root("reads another process by every way of capture")
}

/// Returns its standard output. Panics if the command fails.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Compiles a program of `tests/targets` with this JDK. Returns the folder of its classes.
pub fn compile(home: &Path, source: &str) -> PathBuf {
    let id = home.file_name().expect("a name").to_string_lossy().into_owned();
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("java-{id}-{}", std::process::id()));
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
