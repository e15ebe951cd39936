//! Stacks of Go programs, against those that their own runtime prints: blocked in system calls and
//! in C, called back from C, and running; static, relocated by the loader, stripped, with C: each
//! function, also inlined ones, with file and line. Also names of stripped programs, against nm on
//! their twins with symbols. On the Go of this machine, and on those that `tests/gos` has fetched;
//! `SAMPLETOP_TEST_GO` names one to take instead.

mod common;
#[path = "go/labels.rs"]
mod labels;
#[path = "go/plugins.rs"]
mod plugins;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Running;
use sampletop::model::facts::goroutines::Goroutines;
use sampletop::runtimes::go::{goroutines_of, is_go};
use sampletop::symbols::{Spot, disassemble_image, name_image};

/// Permitted outermost frames: of a goroutine, or of a thread.
const OUTERMOST: [&str; 5] =
    ["runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.morestack", "runtime.rt0_go"];

/// The programs `go` that are tested: the machine's, and the fetched ones.
fn gos() -> Vec<PathBuf> {
    if let Some(go) = std::env::var_os("SAMPLETOP_TEST_GO") {
        return vec![go.into()];
    }
    let fetched = std::fs::read_dir(Path::new(env!("CARGO_TARGET_TMPDIR")).join("gos"));
    let fetched = fetched.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/go"));
    let mut all: Vec<PathBuf> = fetched.filter(|go| go.exists()).collect();
    all.sort();
    all.insert(0, "go".into());
    all
}

/// Runs `go` itself, whatever version the environment asks for.
fn command(go: &Path) -> Command {
    let mut command = Command::new(go);
    command.env("GOTOOLCHAIN", "local").env_remove("GOROOT");
    command
}

/// Returns the version: `go version go1.26.8 linux/amd64`.
fn version_of(go: &Path) -> String {
    let version = command(go).arg("version").output().expect("go is needed");
    String::from_utf8_lossy(&version.stdout).into_owned()
}

/// Builds go_stacks.go, with C or without.
fn build(go: &Path, variant: &str, cgo: bool, flags: &[&str]) -> PathBuf {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("go_stacks-{variant}-{}", std::process::id()));
    let mut command = command(go);
    command.env("CGO_ENABLED", if cgo { "1" } else { "0" }).current_dir(targets);
    command.args(["build", "-o"]).arg(&out).args(flags).arg("go_stacks.go");
    command.arg(if cgo { "go_stacks_cgo.go" } else { "go_stacks_plain.go" });
    let output = command.output().expect("go is needed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    out
}

/// A function's name, and file and line: `server.go:3311`.
type Frame = (String, String);

/// Every thread's frames, innermost first, as `sampletop dump` shows them.
fn dump(pid: u32) -> Vec<Vec<Frame>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let output = command.args(["dump", "-p", &pid.to_string()]).output().expect("our program");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut stacks: Vec<Vec<Frame>> = Vec::new();
    for line in text.lines() {
        let Some(frame) = line.trim_start_matches([' ', '>']).strip_prefix('#') else { continue };
        let (number, name) = frame.split_once(' ').expect("a number and a name");
        if number == "0" {
            stacks.push(Vec::new());
        }
        let mut words = name.trim_start().split("  ");
        let name = words.next().expect("a name");
        let place = words.find(|word| word.contains(':')).unwrap_or("").trim();
        stacks.last_mut().expect("0 comes first").push((name.to_owned(), place.to_owned()));
    }
    stacks
}

/// The program's own functions of each goroutine, innermost first, as its runtime prints them.
fn as_the_runtime_says(running: &mut Running) -> Vec<Vec<Frame>> {
    running.child.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it reads");
    let mut goroutines: Vec<Vec<Frame>> = Vec::new();
    let mut lines =
        running.lines.by_ref().map(|line| line.expect("text")).take_while(|line| line != "end");
    while let Some(line) = lines.next() {
        if line.starts_with("goroutine ") {
            goroutines.push(Vec::new());
        } else if line.starts_with("main.") {
            // Arguments follow the name; a method's receiver may stand in brackets, too.
            let name = line.rsplit_once('(').expect("arguments").0;
            // `\t/src/go_stacks.go:58 +0x1d`
            let place = lines.next().expect("a place");
            let place =
                place.trim_start().rsplit('/').next().and_then(|file| file.split(' ').next());
            let place = place.expect("a file").to_owned();
            goroutines.last_mut().expect("it has a head").push((name.to_owned(), place));
        }
    }
    goroutines
}

fn own(stack: &[Frame]) -> Vec<Frame> {
    // Wrappers that the compiler makes are not shown by Go's runtime.
    let is_wrapper = |name: &str| name.contains(".gowrap") || name == "main.main.func2";
    let wanted = |(name, _): &&Frame| name.starts_with("main.") && !is_wrapper(name);
    // `main` reads a line while it is dumped, and prints when its runtime does.
    let frame = |frame: &Frame| match &*frame.0 {
        "main.main" => (frame.0.clone(), String::new()),
        _ => frame.clone(),
    };
    stack.iter().filter(wanted).map(frame).collect()
}

fn check_blocked(variant: &str, cgo: bool, flags: &[&str]) {
    gos().iter().for_each(|go| check_blocked_on(go, variant, cgo, flags));
}

fn check_blocked_on(go: &Path, variant: &str, cgo: bool, flags: &[&str]) {
    let mut running = Running::start(&build(go, variant, cgo, flags), &[]);
    let variant = format!("{variant} of {}", go.display());
    assert!(is_go(running.pid()), "{variant}");
    let stacks = dump(running.pid());
    for stack in &stacks {
        let last = stack.last().expect("frames");
        assert!(OUTERMOST.contains(&last.0.as_str()), "{variant}: {stack:#?}");
        // C without symbols has no names.
        let named = |(name, _): &Frame| !name.contains("!fn_") && !name.contains("!0x");
        assert!(cgo || stack.iter().all(named), "{variant}: {stack:#?}");
    }
    let chains = |stacks: &[Vec<Frame>]| {
        let mut chains: Vec<_> =
            stacks.iter().map(|stack| own(stack)).filter(|c| !c.is_empty()).collect();
        chains.sort();
        chains
    };
    let (ours, theirs) = (chains(&stacks), chains(&as_the_runtime_says(&mut running)));
    let kinds = if cgo { 8 } else { 6 };
    assert_eq!(theirs.len(), kinds + 1, "{variant}: each goroutine, and the main one: {theirs:#?}");
    assert_eq!(ours, theirs, "{variant}");
    let names = |stack: &Vec<Frame>| stack.iter().map(|(name, _)| name.clone()).collect();
    let stacks: Vec<Vec<String>> = stacks.iter().map(names).collect();
    // Each of these is among them: called by C, or calling it.
    if cgo {
        let has = |names: &[&str]| {
            stacks.iter().any(|s| {
                let mut rest = s.iter();
                names.iter().all(|name| rest.any(|frame| frame == name))
            })
        };
        assert!(
            has(&[
                "runtime.asmcgocall",
                "runtime.cgocall",
                "main._Cfunc_read_in_c",
                "main.special"
            ]),
            "{stacks:#?}"
        );
        let gap = "[... frames not copied]";
        assert!(
            has(&[
                "main.read",
                "runtime.cgocallback",
                gap,
                "runtime.cgocall",
                "main._Cfunc_call_back"
            ]),
            "{stacks:#?}"
        );
        // C that has called back is on the thread's stack: a marker stands for it, and for nothing
        // else.
        for stack in &stacks {
            let behind =
                |(at, _): (usize, &String)| at > 0 && stack[at - 1] == "runtime.cgocallback";
            let gaps = stack.iter().enumerate().filter(|(_, name)| *name == gap).map(behind);
            let called_back = stack.iter().filter(|name| *name == "runtime.cgocallback").count();
            assert_eq!(gaps.collect::<Vec<_>>(), vec![true; called_back], "{stack:#?}");
        }
    }
}

#[test]
fn blocked_goroutines() {
    check_blocked("static", false, &[]);
}

#[test]
fn blocked_goroutines_stripped_and_moved_about() {
    check_blocked("pie-stripped", false, &["-buildmode=pie", "-ldflags=-s -w"]);
}

#[test]
fn blocked_goroutines_without_a_build_id() {
    check_blocked("no-id-stripped", false, &["-ldflags=-s -w -buildid="]);
}

#[test]
fn blocked_goroutines_and_c() {
    check_blocked("cgo", true, &[]);
}

#[test]
fn blocked_goroutines_and_c_stripped_and_moved_about() {
    check_blocked("cgo-pie-stripped", true, &["-buildmode=pie", "-ldflags=-s -w"]);
}

/// Stacks of running threads, outermost first, each with its group.
fn running_stacks(pid: u32) -> Vec<(String, Vec<String>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("stacks.folded");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command
        .args(["record", "-p", &pid.to_string(), "-d", "4s", "--metric", "cpu", "--idle", "-o"])
        .arg(&out);
    let output = command.output().expect("our program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(out).expect("it is written");
    // What the compiler makes for a `go` statement has had its name since Go 1.21.
    let name = |name: &str| name.replace("main.main.func2", "main.main.gowrap1");
    let stack = |line: &str| {
        let mut names = line.rsplit_once(' ').expect("a weight").0.split(';').map(name);
        (names.next().expect("a group"), names.collect())
    };
    text.lines().map(stack).collect()
}

#[test]
fn processes_without_go_are_none_of_go() {
    assert!(!is_go(std::process::id()));
    assert!(!is_go(u32::MAX));
}

/// Checks stacks of goroutines that run in Go, in the runtime on the thread's own stack, and in C.
fn check_running(go: &Path, variant: &str, cgo: bool, flags: &[&str]) {
    let kinds: &[&str] =
        if cgo { &["spin", "grow", "spin_in_c", "clock"] } else { &["spin", "grow"] };
    let running = Running::start(&build(go, variant, cgo, flags), kinds);
    let variant = format!("{variant} of {}", version_of(go));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    command.args(["record", "-p", &running.pid().to_string(), "-d", "200ms", "--format", "json"]);
    let output = command.output().expect("our program");
    let profile: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(profile["targets"][0]["runtime"], "go");
    let stacks = running_stacks(running.pid());
    let start = "main.main.func1";
    let mut seen = (false, false, false, false);
    for (group, stack) in &stacks {
        let names: Vec<&str> = stack.iter().map(String::as_str).collect();
        let chain = |middle: &[&'static str]| {
            let rest = names.iter().filter(|name| !name.contains(".gowrap"));
            [&["runtime.goexit", "main.main.func1"], middle]
                .concat()
                .iter()
                .eq(rest.take(middle.len() + 2))
        };
        let has = |name| names.contains(&name);
        if has("main.spin") || has("main.leaf") {
            assert!(chain(&["main.outer", "main.spin"]), "{variant}: {stack:#?}");
            assert_eq!(group, start, "{variant}");
            seen.0 = true;
        }
        // The collector's own threads enter it, too.
        if has("main.grow") || has("runtime.mallocgc") {
            assert!(chain(&["main.outer", "main.grow"]), "{variant}: {stack:#?}");
            // In at least 0.4 of its samples, and 36 of them at least: missed with 1e-8.
            seen.1 |= has("runtime.systemstack");
        }
        if names.iter().any(|name| name.ends_with("spin_in_c")) {
            let middle = ["main.special", "main._Cfunc_spin_in_c", "runtime.cgocall"];
            assert!(chain(&middle), "{variant}: {stack:#?}");
            assert_eq!(group, start, "{variant}");
            seen.2 |= has("runtime.asmcgocall");
        }
        if has("main.clock") {
            let middle = ["main.special", "main._Cfunc_call_back", "runtime.cgocall"];
            assert!(chain(&middle), "{variant}: {stack:#?}");
            assert_eq!(group, start, "{variant}");
            let in_vdso = |name: &str| name.contains("vdso") || name.starts_with("[vdso]");
            seen.3 |= names.iter().any(|name| in_vdso(name));
        }
        // An interrupted signal handler, or one instruction of a change of stacks, is rare.
        let has_none = matches!(names[..], ["[cpu, not sampled]" | "[not observed]"]);
        let is_cut = names[0].starts_with('[') && !has_none;
        let of_handlers = ["runtime.sigtramp", "runtime.cgoSigtramp", "runtime.sigreturn"];
        // The C library's return from a handler has no name.
        let of_handlers = [&of_handlers[..], &["libc.so.6!gap_", "__restore_rt"]].concat();
        let is_of_handler = |name: &&str| of_handlers.iter().any(|of| name.starts_with(of));
        let is_rare = names.iter().any(is_of_handler)
            || has("gogo")
            || names.last() == Some(&"runtime.mcall");
        assert!(!is_cut || is_rare, "{variant}: {stack:#?}");
        let is_unknown = names.iter().any(|name| name.starts_with("[no unwind info"));
        assert!(!is_unknown || is_rare, "{variant}: {stack:#?}");
    }
    assert_eq!(seen, (true, true, cgo, cgo), "{variant}: {stacks:#?}");
}

#[test]
fn running_goroutines() {
    gos().iter().for_each(|go| check_running(go, "running-static", false, &[]));
}

#[test]
fn running_goroutines_stripped_and_moved_about() {
    check_running(&gos()[0], "running-pie", false, &["-buildmode=pie", "-ldflags=-s -w"]);
}

#[test]
fn running_goroutines_and_c() {
    check_running(&gos()[0], "running-cgo", true, &[]);
}

#[test]
fn running_goroutines_and_c_stripped_and_moved_about() {
    let flags = ["-buildmode=pie", "-ldflags=-s -w"];
    gos().iter().for_each(|go| check_running(go, "running-cgo-pie", true, &flags));
}

/// The name of a generic function as Go's runtime prints it: `main.apply[...]`.
fn without_shapes(name: &str) -> String {
    match (name.split_once('['), name.rsplit_once(']')) {
        (Some((before, _)), Some((_, after))) => format!("{before}[...]{after}"),
        _ => name.to_owned(),
    }
}

#[test]
fn stripped_programs_have_the_names_of_their_twins() {
    gos().iter().for_each(|go| check_stripped(go));
}

fn check_stripped(go: &Path) {
    let flags = |more: &[&'static str]| [&["-trimpath"], more].concat();
    let twin = build(go, "twin", false, &flags(&[]));
    let stripped = build(go, "stripped", false, &flags(&["-ldflags=-s -w"]));
    let stripped = std::fs::read(stripped).expect("it was built");
    let output = Command::new("nm").arg(&twin).output().expect("nm is needed");
    let mut functions = BTreeMap::new();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let fields: Vec<&str> = line.splitn(3, ' ').collect();
        if let [address, "t" | "T", name] = fields[..]
            && !["runtime.text", "runtime.etext", "go:textfipsstart", "go:textfipsend"]
                .contains(&name)
        {
            functions.insert(
                u64::from_str_radix(address, 16).expect("hex"),
                without_shapes(name.trim_end_matches(".abi0")),
            );
        }
    }
    assert!(functions.len() > 1500, "{}", functions.len());
    // A static program of Go's own linker: code lies at its offset from 0x400000.
    let spot = |address: &u64| Spot { offset: address - 0x40_0000, exact: true };
    let spots: Vec<Spot> = functions.keys().map(spot).collect();
    // Its instructions are those of one function, not of all its code.
    for (address, name) in functions.iter().filter(|(_, name)| name.starts_with("main.")) {
        let found = disassemble_image(stripped.clone(), address - 0x40_0000 + 1);
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.list[0].address, *address, "{name}");
        let last = found.list.last().expect("instructions").address;
        let next = functions.range(address + 1..).next().map(|(next, _)| *next);
        assert!(next.is_none_or(|next| last < next), "{name} ends at {last:x}");
        assert_eq!(found.function.replace('·', "."), *name);
        assert!(!found.is_cut, "{name}");
    }
    let named = name_image("twin", stripped, &spots).expect("an ELF file");
    // There the first instruction of a function may be of one that is inlined.
    let version = version_of(go);
    let begins_inlined = ["go1.18.", "go1.19.", "go1.20."].iter().any(|old| version.contains(old));
    let mut other = Vec::new();
    let mut lines = 0;
    for ((address, name), steps) in functions.iter().zip(&named) {
        lines += usize::from(steps[0].line.is_some());
        let is_alone = steps.len() == 1 || begins_inlined;
        if !is_alone || steps[0].function.replace('·', ".") != *name {
            other.push(format!("{address:x} {name}: {steps:?}"));
        }
    }
    assert!(other.is_empty(), "{other:#?}");
    assert!(
        lines * 10 > functions.len() * 9,
        "{lines} of {} functions have a first line",
        functions.len()
    );
}

/// A goroutine that its runtime prints: number, state, functions with file and line, what created
/// it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Printed {
    number: u64,
    state: String,
    frames: Vec<Frame>,
    created_by: Option<Frame>,
}

/// Reads what the runtime prints of its goroutines.
fn printed(running: &mut Running) -> Vec<Printed> {
    running.child.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it reads");
    let mut all: Vec<Printed> = Vec::new();
    let mut lines =
        running.lines.by_ref().map(|line| line.expect("text")).take_while(|line| line != "end");
    while let Some(line) = lines.next() {
        // `goroutine 18 [chan receive, 2 minutes]:`
        if let Some(head) = line.strip_prefix("goroutine ") {
            let (number, state) = head.split_once(' ').expect("a state");
            let state = state.trim_start_matches('[').split([',', ']']).next();
            all.push(Printed {
                number: number.parse().expect("a number"),
                state: state.expect("a state").to_owned(),
                frames: Vec::new(),
                created_by: None,
            });
            continue;
        }
        if line.is_empty() || line.starts_with("...") {
            continue;
        }
        let place = lines.next().expect("a place");
        let place = place.trim_start().rsplit('/').next().and_then(|file| file.split(' ').next());
        let place = place.expect("a file").to_owned();
        let last = all.last_mut().expect("it has a head");
        match line.strip_prefix("created by ") {
            Some(by) => {
                let by = by.split(" in goroutine").next().expect("a function").to_owned();
                last.created_by = Some((by, place));
            }
            // Arguments follow the name; a method's receiver may stand in brackets, too.
            None => {
                let name = line.rsplit_once('(').expect("arguments").0.to_owned();
                last.frames.push((name, place));
            }
        }
    }
    all
}

/// What we read of the same.
fn read(pid: u32) -> (Vec<Printed>, usize) {
    let found = goroutines_of(pid).expect("it is a Go program");
    let frame = |location: &sampletop::model::facts::tables::Location| {
        let file = location.file.as_deref().unwrap_or("?");
        let file = file.rsplit('/').next().expect("a name");
        (location.function.to_string(), format!("{file}:{}", location.line.unwrap_or(0)))
    };
    let list = found.list.iter().map(|one| Printed {
        number: one.id,
        state: one.state.to_string(),
        frames: one.frames.iter().map(|(location, _)| frame(location)).collect(),
        created_by: one.created_by.as_ref().map(|(location, _)| frame(location)),
    });
    let mut list: Vec<Printed> = list.collect();
    list.sort();
    (list, found.unreadable)
}

/// Functions at each end of a deep stack that are compared.
const ENDS: usize = 40;

/// The program has a mutex, and two read-write locks behind it. Of the first it waits for the mutex
/// in it, and as a reader; of the second for its readers to end.
fn check_locks(found: &Goroutines, variant: &str) {
    let mut locks: Vec<(u64, usize)> = Vec::new();
    for one in &found.list {
        let is_in = |name: &str| one.frames.iter().any(|(at, _)| &*at.function == name);
        assert_eq!(one.lock.is_some(), is_in("main.locked"), "{variant}: {one:#?}");
        let Some(lock) = one.lock else { continue };
        match locks.iter_mut().find(|(known, _)| *known == lock) {
            Some((_, count)) => *count += 1,
            None => locks.push((lock, 1)),
        }
    }
    locks.sort_unstable();
    let first = locks.first().expect("locks").0;
    assert_eq!(locks, [(first, 21), (first + 8, 2), (first + 32, 1)], "{variant}");
}

/// Builds the program whose goroutines wait.
fn build_parked(go: &Path, variant: &str, flags: &[&str]) -> PathBuf {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("go_parked-{variant}-{}", std::process::id()));
    let mut command = command(go);
    let cgo = if variant.contains("cgo") { "1" } else { "0" };
    command.env("CGO_ENABLED", cgo).current_dir(targets);
    let output = command.args(["build", "-o"]).arg(&out).args(flags).arg("go_parked.go").output();
    let output = output.expect("go is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// Builds and starts it.
fn parked(go: &Path, variant: &str, flags: &[&str]) -> Running {
    Running::start(&build_parked(go, variant, flags), &[])
}

fn check_parked(variant: &str, flags: &[&str]) {
    gos().iter().for_each(|go| check_parked_on(go, variant, flags));
}

fn check_parked_on(go: &Path, variant: &str, flags: &[&str]) {
    let mut running = parked(go, variant, flags);
    let variant = format!("{variant} of {}", go.display());
    check_locks(&goroutines_of(running.pid()).expect("it is a Go program"), &variant);
    let (ours, unreadable) = read(running.pid());
    assert_eq!(unreadable, 0, "{variant}");
    // Its runtime does not print its own functions, nor the middle of deep stacks.
    let shown = |mut one: Printed| {
        one.frames.retain(|(name, _)| !name.starts_with("runtime.") && name != "panic");
        if one.frames.len() > 2 * ENDS {
            one.frames.drain(ENDS..one.frames.len() - ENDS);
        }
        one
    };
    let theirs: Vec<Printed> = printed(&mut running).into_iter().map(shown).collect();
    let mut missing = Vec::new();
    let mut count = 0;
    for one in &theirs {
        let own = ours.iter().find(|own| own.number == one.number).cloned().map(shown);
        // The one that prints.
        if one.number == 1 {
            continue;
        }
        count += 1;
        if own.as_ref() != Some(one) {
            missing.push((one.clone(), own));
        }
    }
    assert!(count >= 115, "{variant}: {count}");
    assert!(missing.is_empty(), "{variant}: {} of {count}: {:#?}", missing.len(), &missing[..1]);
}

#[test]
fn goroutines_that_wait() {
    check_parked("static", &[]);
    check_parked("cgo", &[]);
}

/// Wall time by stack, ms: of a run of `seconds`, the stacks of all goroutines and threads of
/// `target`: `-p` and a number, or a command, which reads from a pipe that is open all the time.
fn waited(target: &[&str], seconds: u64) -> BTreeMap<String, f64> {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("stacks.folded");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let time = format!("{seconds}s");
    command.args(["record", "-d", &time, "--idle", "--level", "all", "-o"]).arg(&out);
    command.args(target).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("our program");
    let _open = child.stdin.take();
    assert!(child.wait().expect("it ends").success(), "{target:?}");
    let text = std::fs::read_to_string(out).expect("it is written");
    let stack = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        (stack.to_owned(), weight.parse::<f64>().expect("a number") / 1000.0)
    };
    text.lines().map(stack).collect()
}

#[test]
fn goroutines_that_wait_have_time_of_their_own() {
    gos().iter().for_each(|go| check_waited(go));
}

fn check_waited(go: &Path) {
    const SECONDS: u64 = 6;
    let running = parked(go, "timed", &[]);
    let stacks = waited(&["-p", &running.pid().to_string()], SECONDS);
    let time = |group: &str, functions: &[&str]| -> f64 {
        let is_there = |stack: &str| {
            // Go 1.18 calls closures what it makes for a `go` statement.
            let is_made =
                |name: &&str| name.contains(".gowrap") || name.starts_with("main.main.func");
            let mut names = stack.split(';').filter(|name| !is_made(name));
            names.next() == Some(group) && names.take(functions.len()).eq(functions.iter().copied())
        };
        stacks.iter().filter(|(stack, _)| is_there(stack)).map(|(_, ms)| ms).sum()
    };
    // Each waits all the time. They are read soon after the start, one by one.
    let most = (SECONDS * 1000) as f64 * 1.1;
    let check = |count: f64, group: &str, functions: &[&str]| {
        let found = time(group, functions);
        let (least, most) = (count * most * 0.4, count * most);
        assert!((least..most).contains(&found), "{group} {functions:?}: {found}: {stacks:#?}");
    };
    check(21.0, "main.locked", &["runtime.goexit", "main.locked", "sync.(*Mutex).Lock"]);
    check(2.0, "main.locked", &["runtime.goexit", "main.locked", "sync.(*RWMutex).Lock"]);
    let receive = ["runtime.goexit", "main.(*worker).receive"];
    check(2.0, "main.(*worker).receive", &receive);
    check(1.0, "time.Sleep", &["runtime.goexit", "time.Sleep"]);
    check(1.0, "sync.(*WaitGroup).Wait", &["runtime.goexit", "sync.(*WaitGroup).Wait"]);
    // Only of those that send it is said, whatever others wait at the same channel.
    let sends = |function: &str| -> (f64, f64) {
        let of = |stack: &&String| stack.contains(function);
        let all = || stacks.iter().filter(|(stack, _)| of(stack));
        let said = all().filter(|(stack, _)| stack.ends_with(";[select with a send]"));
        (said.map(|(_, ms)| ms).sum(), all().map(|(_, ms)| ms).sum())
    };
    let (said, all) = sends(";main.offer");
    assert!(said > 0.9 * all && all > 0.8 * most, "{said} {all}: {stacks:#?}");
    assert_eq!(sends(";main.choose").0, 0.0, "{stacks:#?}");
    let hidden = stacks.keys().filter(|stack| stack.contains("runtime.gcBgMarkWorker"));
    assert_eq!(hidden.count(), 0, "the runtime's own are none of the program's");
}

#[test]
fn goroutines_are_found_from_the_start_of_a_program_and_behind_an_exec() {
    for go in gos() {
        let program = build_parked(&go, "again", &[]);
        let stacks = waited(&["--", program.to_str().expect("text"), "again"], 5);
        let received = |(stack, _): &(&String, &f64)| stack.contains("main.(*worker).receive");
        let found: f64 = stacks.iter().filter(received).map(|(_, ms)| ms).sum();
        // Four goroutines, for a second before the exec and up to four behind it.
        assert!((8_000.0..20_500.0).contains(&found), "{}: {found}: {stacks:#?}", go.display());
    }
}

#[test]
fn goroutines_that_wait_stripped_and_moved_about() {
    check_parked("pie-stripped", &["-buildmode=pie", "-ldflags=-s -w"]);
    check_parked("stripped", &["-trimpath", "-ldflags=-s -w"]);
}
