//! The interpreters to test with, and programs that run on them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Once};

use crate::common::java::output;
use crate::common::{Running, need_root, skipped};

/// The versions that sampletop reads, by their second number.
const MINORS: std::ops::RangeInclusive<u32> = 8..=15;

/// An interpreter, and where it runs.
pub struct Interpreter {
    /// The program, by its own root.
    program: PathBuf,
    /// It runs in this folder, by chroot.
    root: Option<PathBuf>,
    /// Its second number: 11 of 3.11.
    pub minor: u32,
    pub free_threaded: bool,
}

/// A program that runs.
pub struct Target {
    pub running: Running,
    /// In our namespace.
    pub pid: u32,
}

/// All of this machine: of pyenv, of the distribution, those that `SAMPLETOP_TEST_PYTHONS` names
/// (separated by colons), and those that `tests/pythons` has fetched.
pub static EVERY: LazyLock<Vec<Interpreter>> = LazyLock::new(|| {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pythons");
    // Found programs have the paths that links lead to.
    let fetched = fetched.canonicalize().unwrap_or(fetched);
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")));
    let mut programs = BTreeSet::new();
    for folder in [pyenv.unwrap_or_default().join("versions"), fetched.join("compiled")] {
        let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
        programs.extend(versions.flat_map(|version| in_folder(&version.path().join("bin"))));
    }
    for folder in ["/usr/bin", "/usr/local/bin"] {
        programs.extend(in_folder(Path::new(folder)));
    }
    let named = std::env::var_os("SAMPLETOP_TEST_PYTHONS").unwrap_or_default();
    programs.extend(std::env::split_paths(&named).filter_map(|path| path.canonicalize().ok()));
    let here = programs.into_iter().filter_map(|program| Interpreter::new(program, None));
    let in_root = in_folder(&fetched.join("usr/bin")).into_iter().filter_map(|program| {
        let inside = Path::new("/").join(program.strip_prefix(&fetched).ok()?);
        Interpreter::new(inside, Some(fetched.clone()))
    });
    let mut all: Vec<Interpreter> = here.chain(in_root).collect();
    all.sort_by_key(|one| (one.minor, one.free_threaded, one.name()));
    all
});

/// Returns the interpreters in a folder of programs, each by one name.
fn in_folder(folder: &Path) -> BTreeSet<PathBuf> {
    let is_python = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("python3.").is_some_and(|rest| {
            let digits = rest.strip_suffix('t').unwrap_or(rest);
            digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(is_python);
    let files = files.filter_map(|path| path.canonicalize().ok());
    let mut by_inode = BTreeMap::new();
    for file in files {
        by_inode.extend(file.metadata().ok().map(|metadata| (metadata.ino(), file)));
    }
    by_inode.into_values().collect()
}

impl Interpreter {
    fn new(program: PathBuf, root: Option<PathBuf>) -> Option<Interpreter> {
        let mut one = Interpreter { program, root, minor: 0, free_threaded: false };
        let script = "import sys, sysconfig; print(sys.version_info[0], sys.version_info[1], \
                      sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";
        let said = one.command().args(["-c", script]).output().ok()?;
        let said = String::from_utf8(said.stdout).ok()?;
        let numbers: Vec<u32> =
            said.split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [3, minor, free] = numbers[..] else { return None };
        (one.minor, one.free_threaded) = (minor, free == 1);
        MINORS.contains(&minor).then_some(one)
    }

    /// Returns a name for messages.
    pub fn name(&self) -> String {
        match &self.root {
            None => self.program.display().to_string(),
            Some(root) => format!("{}{}", root.display(), self.program.display()),
        }
    }

    /// Returns whether it is a package of Debian: these have no table of local symbols.
    pub fn is_stripped(&self) -> bool {
        self.program.starts_with("/usr/bin")
    }

    /// Returns its path, if it runs without chroot.
    pub fn path_here(&self) -> Option<String> {
        self.root.is_none().then(|| self.program.to_string_lossy().into_owned())
    }

    /// Runs it; by chroot the process is the interpreter from the start.
    pub fn command(&self) -> Command {
        self.in_namespaces(&[])
    }

    /// Runs it with these options of `unshare`.
    fn in_namespaces(&self, options: &[&str]) -> Command {
        let mut command = match &self.root {
            None if options.is_empty() => Command::new(&self.program),
            None => {
                let mut command = Command::new("unshare");
                command.args(options).arg("--mount-proc").arg(&self.program);
                command
            }
            Some(root) => {
                let mut command = Command::new("unshare");
                let script = "mount -t proc proc proc && exec chroot . \"$0\" \"$@\"";
                command.arg("--mount").args(options).current_dir(root);
                command.args(["sh", "-c", script]).arg(&self.program);
                command
            }
        };
        // Without files of compiled code beside the programs.
        command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        command
    }

    /// Returns the path of a file of `tests/python/programs`, as the interpreter sees it.
    pub fn program(&self, name: &str) -> PathBuf {
        static COPIED: Once = Once::new();
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/programs");
        let Some(root) = &self.root else { return programs.join(name) };
        COPIED.call_once(|| {
            output(Command::new("cp").arg("-r").arg(&programs).arg(root.join("tmp")));
        });
        Path::new("/tmp/programs").join(name)
    }

    /// Starts a program of `tests/python/programs`, and waits for its line `ready`.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Target {
        let mut command = self.command();
        command.arg(self.program(program)).args(arguments);
        let running = Running::start_command(command);
        Target { pid: running.pid(), running }
    }

    /// Does the same in a container: there processes and threads have other numbers.
    pub fn start_in_a_container(&self, program: &str) -> Target {
        let options = ["--pid", "--mount", "--fork", "--kill-child"];
        let mut command = self.in_namespaces(&options);
        command.arg(self.program(program));
        let running = Running::start_command(command);
        Target { pid: crate::common::java::only_child(running.pid()), running }
    }
}

impl Target {
    /// Returns the next line that it prints.
    pub fn line(&mut self) -> String {
        self.running.lines.next().expect("a line").expect("text")
    }

    /// Returns its answer to an empty line.
    pub fn ask(&mut self) -> String {
        self.running.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
        self.line()
    }
}

/// Returns whether there is an interpreter to test with. Says which versions are missing.
pub fn can_test() -> bool {
    let test = std::thread::current().name().unwrap_or("python").to_owned();
    if EVERY.is_empty() {
        skipped(&test, "no CPython of 3.8 to 3.15 (Debian: python3)");
        return false;
    }
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let there: BTreeSet<u32> = EVERY.iter().map(|one| one.minor).collect();
        let mut missing: Vec<String> = MINORS
            .filter(|minor| !there.contains(minor))
            .map(|minor| format!("3.{minor}"))
            .collect();
        if !EVERY.iter().any(|one| one.free_threaded) {
            missing.push("free-threaded".into());
        }
        if !missing.is_empty() {
            // On the real stderr: the harness drops what a passing test prints.
            let text = format!("NOT TESTED: CPython {}: not here\n", missing.join(", "));
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    });
    need_root("reads another process by every way of capture")
}

/// Returns py-spy, which `tests/pythons` fetches, or says that it is missing.
pub fn py_spy() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pythons/py-spy/bin/py-spy");
    if fetched.exists() {
        return Some(fetched);
    }
    let text = "NOT COMPARED: no py-spy (tests/pythons fetches it)\n";
    let _ = std::io::stderr().write_all(text.as_bytes());
    None
}

/// Returns the folder, as the interpreter sees it, that `tests/pythons` has fetched greenlet into
/// for its version; `None`: there is none.
pub fn greenlet(interpreter: &Interpreter) -> Option<String> {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pythons");
    let inside = format!("packages/3.{}", interpreter.minor);
    let there = fetched.join(&inside).join("greenlet").is_dir() && !interpreter.free_threaded;
    there.then(|| match interpreter.root {
        Some(_) => format!("/{inside}"),
        None => fetched.join(&inside).display().to_string(),
    })
}
