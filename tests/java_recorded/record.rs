//! Records what main.rs replays; see there.

mod recording;
#[path = "../common/running.rs"]
mod running;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use regex::Regex;
use rustc_hash::FxHashSet;
use sampletop::capture::stack_reader::StackReader;
use sampletop::model::vocabulary::frame::{Ns, RawFrame, RawName};
use sampletop::process::mapped_files::Files;
use sampletop::process::maps::Maps;
use sampletop::process::memory::{Memory, ReadMemory};
use sampletop::process::threads::{Doing, Tasks};
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm::{self, Jvm};
use sampletop::unwinder::framehop::FramehopUnwinder;
use sampletop::unwinder::{Detected, Generated, Leave, Place};

use recording::{Expected, Frame, PIECE, Piece, Pieces, Point, Segment, Thread};
use running::Running;

const THREADS: &str = "27";

/// Records the memory that is read.
#[derive(Clone)]
struct Logged {
    memory: Memory,
    pieces: Arc<Mutex<BTreeMap<u64, Piece>>>,
}

impl ReadMemory for Logged {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let read = self.memory.read(address, buf);
        self.keep(address, read as u64);
        read
    }
}

impl Logged {
    fn keep(&self, address: u64, length: u64) {
        let mut pieces = self.pieces.lock().expect("no panic");
        let mut at = address - address % PIECE;
        while at < address + length {
            let mut piece = [0; PIECE as usize];
            if self.memory.read_exact(at, &mut piece).is_some() {
                pieces.insert(at, piece);
            }
            at += PIECE;
        }
    }
}

/// Steps through generated code: where from, frames found, where to.
type Steps = Arc<Mutex<Vec<(Place, Vec<RawFrame>, Leave)>>>;

/// Records the requests, and the parts of the stack that are read.
struct Watched<G> {
    inner: G,
    memory: Logged,
    steps: Steps,
}

impl<G: Generated> Generated for Watched<G> {
    fn begin(&mut self, copied: Ns, running: bool) {
        self.inner.begin(copied, running);
    }

    fn thread_names(&mut self, moved: Option<&FxHashSet<u32>>) -> Vec<(u32, RawName)> {
        self.inner.thread_names(moved)
    }

    fn thread_name(&mut self, at: Ns) -> Option<RawName> {
        self.inner.thread_name(at)
    }

    fn covers(&self, pc: u64) -> bool {
        self.inner.covers(pc)
    }

    fn leave(
        &mut self,
        place: Place,
        word: &mut dyn FnMut(u64) -> Option<u64>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        let first = out.len();
        let memory = self.memory.clone();
        let mut kept = |at: u64| word(at).inspect(|_| memory.keep(at, 8));
        let left = self.inner.leave(place, &mut kept, out);
        self.steps.lock().expect("no panic").push((place, out[first..].to_vec(), left));
        left
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [java, jdk, out, options @ ..] = &arguments[..] else {
        panic!("record_jvm HOME-OF-A-JAVA HOME-OF-A-JDK NAME [OPTION...]")
    };
    let (java, jdk) = (Path::new(java), Path::new(jdk));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let classes = std::env::temp_dir().join(format!("record-jvm-{}", std::process::id()));
    // The same program for all versions.
    let javac = ["--release", "8", "-Xlint:-options", "-encoding", "UTF-8", "-d"];
    run(Command::new(jdk.join("bin/javac"))
        .args(javac)
        .arg(&classes)
        .arg(folder.join("targets/Blocked.java")));
    let version = run(Command::new(java.join("bin/java")).arg("-version"));
    let mut command = Command::new(java.join("bin/java"));
    command.args(["-Xmx32m", "-cp"]).arg(&classes).args(options).args(["Blocked", "1", THREADS]);
    let program = Running::start_command(command);
    let pid = program.pid();
    let maps = Maps::read(pid).expect("it runs");
    let image = jvm::library(&maps).expect("a virtual machine");
    let memory = Logged { memory: Memory::new(pid), pieces: Arc::default() };
    let names = Names::default();
    let steps = Steps::default();
    let (logged, shared, its_names) = (memory.clone(), steps.clone(), names.clone());
    let detect = Box::new(move |_: &Maps| {
        let inner = Jvm::attach(logged.clone(), image, its_names.clone()).expect("it can be read");
        Detected::Runtime(Box::new(Watched {
            inner,
            memory: logged.clone(),
            steps: shared.clone(),
        }))
    });
    let mut unwinder =
        FramehopUnwinder::new(Memory::new(pid), Files::default(), pid).with_runtimes(detect);
    let tasks = Tasks::open(pid, 1000).expect("ours");
    let mut tids = Vec::new();
    tasks.list(&mut tids).expect("it runs");
    let said = jstack(jdk, pid);
    let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
    for tid in tids {
        let Some((name, frames)) =
            said.get(&tid).filter(|(name, _)| name.starts_with("a thread with"))
        else {
            continue;
        };
        let Ok(Doing::Blocked { sp, pc, .. }) = tasks.doing(&mut tasks.thread(tid)) else {
            panic!("{name} runs")
        };
        steps.lock().expect("no panic").clear();
        let walk = StackReader::new(Memory::new(pid)).walk(pc, sp, &mut unwinder, &mut Vec::new());
        assert_eq!(walk.end, None, "{name}: not whole");
        let segments = segments(&steps.lock().expect("no panic"), &names);
        let found: Vec<(String, String)> = segments
            .iter()
            .flat_map(|segment| &segment.frames)
            .filter(|frame| frame.tier != "-")
            .map(|frame| (frame.method.clone(), frame.place.clone()))
            .collect();
        assert_eq!(found, *frames, "{name}");
        threads.insert(tid, Thread { id: tid, name: name.clone(), segments });
    }
    assert_eq!(threads.len().to_string(), THREADS);
    for (tid, name) in sampletop::unwinder::Unwinder::thread_names(&mut unwinder, None) {
        if let Some(thread) = threads.get(&tid) {
            assert_eq!(names.thread(name).as_deref(), Some(&thread.name[..]));
        }
    }
    let version = version.lines().nth(1).unwrap_or_default().trim().to_string();
    let expected = Expected { version, image, threads: threads.into_values().collect() };
    let stem = folder.join("java_recorded").join(out);
    std::fs::write(stem.with_extension("txt"), expected.text()).expect("a file");
    let pieces = Pieces(Arc::new(memory.pieces.lock().expect("no panic").clone()));
    pieces.save(&stem.with_extension("gz")).expect("a file");
    println!("{}: {} pieces of {PIECE} bytes", expected.version, pieces.0.len());
    let _ = std::fs::remove_dir_all::<PathBuf>(classes);
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{command:?}: {error}");
    if out.is_empty() { error } else { out }
}

/// Steps that follow each other are one segment.
fn segments(steps: &[(Place, Vec<RawFrame>, Leave)], names: &Names) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for (place, frames, left) in steps {
        let from = Point { pc: place.pc, sp: place.sp, rbp: place.rbp };
        let Leave::To { pc, sp, rbp } = *left else { panic!("a walk that ends: {left:?}") };
        if segments.last().is_none_or(|segment| segment.leave != from) {
            assert!(!place.exact, "a blocked thread is in native code");
            segments.push(Segment { enter: from, frames: Vec::new(), leave: from });
        }
        let segment = segments.last_mut().expect("there is one");
        segment.leave = Point { pc, sp, rbp };
        for frame in frames {
            let named = names.named(*frame).expect("a name");
            segment.frames.extend(named.locations.iter().rev().map(Frame::of));
        }
    }
    segments
}

/// By thread id: name, and methods with places, innermost first.
fn jstack(jdk: &Path, pid: u32) -> BTreeMap<u32, (String, Vec<(String, String)>)> {
    let thread = Regex::new(r#"^"(.*)" .*\bnid=(0x[0-9a-f]+|\d+)"#).expect("a pattern");
    let frame = Regex::new(r"^\s+at ([^(]+)\((.*)\)$").expect("a pattern");
    // Numbers of generated classes, and addresses of hidden ones, differ from run to run.
    let number =
        Regex::new(r"/0x[0-9a-f]+|(\$\$Lambda|Generated\w+Accessor)\$?\d+(/(0x[0-9a-f]+|\d+))?")
            .expect("a pattern");
    let mut threads: BTreeMap<u32, (String, Vec<(String, String)>)> = BTreeMap::new();
    let mut current = None;
    let mut jstack = Command::new(jdk.join("bin/jstack"));
    jstack.args(["-J-Dfile.encoding=UTF-8", "-J-Dstdout.encoding=UTF-8"]).arg(pid.to_string());
    for line in run(&mut jstack).replace(")\tat ", ")\n\tat ").lines() {
        if let Some(found) = thread.captures(line) {
            let id = found[2]
                .strip_prefix("0x")
                .map_or(found[2].parse(), |hex| u32::from_str_radix(hex, 16));
            let id = id.expect("a number");
            // For a character beyond 16 bits jstack prints two replacement characters.
            threads.insert(id, (found[1].replace("\u{fffd}\u{fffd}", "😀"), Vec::new()));
            current = Some(id);
        } else if let Some(found) = frame.captures(line)
            && let Some((_, frames)) = current.and_then(|id| threads.get_mut(&id))
        {
            let last = |text: &str| text.rsplit('/').next().unwrap_or_default().to_string();
            frames.push((last(&number.replace_all(&found[1], "$1")), last(&found[2])));
        }
    }
    threads
}
