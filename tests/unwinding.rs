//! Stacks of live programs, by function name and order, and by address against another unwinder (elfutils).

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Running, build};
use object::{Object, ObjectSymbol};
use sampletop::model::frame::{FrameCode, Marker, RawFrame};
use sampletop::process::files::{FileKind, Files};
use sampletop::process::maps::{Backing, Maps};
use sampletop::process::memory::{Memory, ReadMemory};
use sampletop::unwinder::framehop::FramehopUnwinder;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// What a test knows of a program: where its functions are.
struct Symbols {
    path: PathBuf,
    /// (file offset of the function, size, name).
    functions: Vec<(u64, u64, String)>,
}

impl Symbols {
    fn of(path: &Path) -> Symbols {
        let bytes = std::fs::read(path).expect("the program was just built");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let object::File::Elf64(elf) = &file else { panic!("64-bit") };
        let segments: Vec<_> = {
            use object::read::elf::ProgramHeader;
            let e = elf.endian();
            let loads = elf.elf_program_headers().iter().filter(|p| p.p_type(e) == object::elf::PT_LOAD);
            loads.map(|p| (p.p_vaddr(e), p.p_memsz(e), p.p_offset(e))).collect()
        };
        let offset = |address: u64| {
            let (start, _, at) = segments.iter().find(|(start, size, _)| (*start..start + size).contains(&address))?;
            Some(address - start + at)
        };
        let functions = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.kind() == object::SymbolKind::Text && s.size() > 0)
            .filter_map(|s| Some((offset(s.address())?, s.size(), s.name().ok()?.to_string())))
            .collect();
        Symbols { path: path.to_path_buf(), functions }
    }

    fn name(&self, offset: u64) -> Option<&str> {
        self.functions.iter().find(|(at, size, _)| (*at..at + size).contains(&offset)).map(|(_, _, name)| &**name)
    }
}

/// One walked stack.
struct Stack {
    walk: Walk,
    frames: Vec<RawFrame>,
}

impl Stack {
    /// Names of the frames in files that `symbols` knows; others as `-`, runs of these as one.
    fn names(&self, files: &Files, symbols: &[&Symbols]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for frame in &self.frames {
            let name = match frame.decode() {
                FrameCode::Code { file, offset, exact } => {
                    let file = files.get(file).unwrap();
                    let known = symbols.iter().find(|s| s.path == file.path);
                    let name = known.and_then(|s| s.name(if exact { offset } else { offset - 1 }));
                    match (name, known) {
                        (Some(name), _) => name.to_string(),
                        (None, Some(_)) => format!("?{offset:x}"),
                        (None, None) => "-".into(),
                    }
                }
                FrameCode::Marker { marker, .. } => marker.text(None),
                other => format!("{other:?}"),
            };
            if name != "-" || names.last().is_none_or(|last| last != "-") {
                names.push(name);
            }
        }
        names
    }

    /// Addresses in the process.
    fn addresses(&self, files: &Files, maps: &Maps) -> Vec<u64> {
        let address = |frame: &RawFrame| {
            let FrameCode::Code { file, offset, .. } = frame.decode() else { return 0 };
            let file = files.get(file).unwrap();
            let mapping = maps.iter().find(|m| match file.kind {
                FileKind::Regular => {
                    m.executable
                        && m.path.as_ref() == file.path
                        && (m.offset..=m.offset + (m.end - m.start)).contains(&offset)
                }
                FileKind::Vdso => m.backing == Backing::Vdso,
                FileKind::Anonymous => m.start == file.start,
            });
            let mapping = mapping.expect("still mapped");
            mapping.start + offset - if file.kind == FileKind::Regular { mapping.offset } else { 0 }
        };
        self.frames.iter().map(address).collect()
    }
}

/// Walks a blocked thread as the capture part does: stack pointer and program counter from /proc, no rbp.
fn walk_blocked(unwinder: &mut impl Unwinder, pid: u32, tid: u32, copy: usize) -> Stack {
    let path = format!("/proc/{pid}/task/{tid}/syscall");
    let read = || std::fs::read_to_string(&path).expect("the thread lives");
    let before = read();
    let words: Vec<&str> = before.split_ascii_whitespace().collect();
    assert_eq!(words.len(), 9, "{tid} is not in a system call: {before}");
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let (rsp, rip) = (hex(words[7]), hex(words[8]));
    let mut bytes = vec![0; copy];
    let n = Memory::new(pid).read(rsp, &mut bytes);
    bytes.truncate(n);
    let registers = Registers { rip, rsp, rbp: None, ..Registers::default() };
    let mut frames = Vec::new();
    let walk = unwinder.walk(&registers, StackBytes { base: rsp, bytes: &bytes }, &mut frames);
    assert_eq!(read(), before, "{tid} moved meanwhile");
    Stack { walk, frames }
}

/// Threads by name once each of them blocks; the main thread's name is `main`.
fn blocked_threads(pid: u32) -> BTreeMap<String, u32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let tid: u32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let read = |name| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap();
        // Each does next to nothing between announcing itself and its wait.
        loop {
            let stat = read("stat");
            let state = stat.rsplit_once(") ").unwrap().1.chars().next();
            if state == Some('S') && read("syscall") != "running\n" {
                break;
            }
            assert!(Instant::now() < deadline, "{tid} does not block: {stat}");
            std::thread::yield_now();
        }
        let name = if tid == pid { "main".into() } else { read("comm").trim().to_string() };
        threads.insert(name, tid);
    }
    threads
}

fn unwinder(pid: u32, files: &Files) -> FramehopUnwinder<Memory> {
    FramehopUnwinder::new(Memory::new(pid), files.clone(), pid)
}

/// What `eu-stack` (elfutils; it stops the threads for it) says of every thread: addresses, innermost first.
fn eu_stack(pid: u32) -> BTreeMap<u32, Vec<u64>> {
    let output = Command::new("eu-stack").args(["-n", "0", "-p", &pid.to_string()]).output();
    let output = output.expect("eu-stack (package elfutils) is needed");
    let mut stacks: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut tid = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(id) = line.strip_prefix("TID ") {
            tid = id.trim_end_matches(':').parse().unwrap();
        } else if line.starts_with('#') {
            let address = line.split_ascii_whitespace().nth(1).unwrap();
            stacks.entry(tid).or_default().push(u64::from_str_radix(&address[2..], 16).unwrap());
        }
    }
    stacks
}

/// The chain of calls that a thread of uw_blocked.c is in, innermost first; `-` stands for libraries.
fn expected(kind: &str) -> Vec<String> {
    let inside: &[&str] = match kind {
        "main" => return ["-", "main", "-", "_start"].map(String::from).into(),
        "inline" => &["wait_inline"],
        "qsort" => &["-", "wait_read", "compare", "-", "wait_qsort"],
        "signal" => &["-", "wait_read", "handler", "-", "wait_signal"],
        "altstack" => &["-", "wait_read", "handler", "-", "wait_altstack"],
        "trap" => &["-", "wait_read", "handler", "-", "wait_trap"],
        "context" => return ["-", "wait_read", "coroutine", "-"].map(String::from).into(),
        "pointer" => &["-", "wait_read", "wait_pointer"],
        "library" => &["-", "wait_read", "library_inner", "library_entry", "wait_library"],
        "deep" => {
            let mut chain: Vec<String> = vec!["-".into(), "wait_read".into()];
            chain.extend((0..=400).map(|_| "recurse".into()));
            chain.extend(["wait_deep", "middle_deep", "outer_deep", "thread_main", "-"].map(String::from));
            return chain;
        }
        "too_deep" => {
            let mut chain: Vec<String> = vec!["-".into(), "wait_read".into()];
            chain.extend((0..1021).map(|_| "recurse".into()));
            chain.push(Marker::TooDeep.text(None));
            return chain;
        }
        other => {
            return [
                "-",
                &format!("wait_{other}"),
                &format!("middle_{other}"),
                &format!("outer_{other}"),
                "thread_main",
                "-",
            ]
            .map(String::from)
            .into();
        }
    };
    let mut chain: Vec<String> = inside.iter().map(|s| s.to_string()).collect();
    chain.extend([format!("middle_{kind}"), format!("outer_{kind}"), "thread_main".into(), "-".into()]);
    chain
}

/// glibc's code that a context made by makecontext returns to has no unwind information for its caller: none exists.
const CONTEXT: (&str, Marker) = ("context", Marker::NoUnwindInfo);

/// Builds uw_blocked.c so, and checks every thread of it by name and by address. `copy`: stack bytes copied at first.
/// `without`: kinds whose stack must end early instead, truthfully, with this marker.
fn check_blocked(variant: &str, flags: &[&str], copy: usize, without: &[(&str, Marker)]) {
    let program = build("uw_blocked.c", variant, flags);
    let library = build("uw_library.c", variant, &[flags, &["-shared", "-fPIC"]].concat());
    let running = Running::start(&program, &[library.to_str().unwrap()]);
    let pid = running.pid();
    // A stripped program is laid out like its unstripped twin.
    let unstripped: Vec<&str> = flags.iter().copied().filter(|f| *f != "-s").collect();
    let twin = |source, flags: &[&str]| Symbols::of(&build(source, &format!("{variant}-twin"), flags));
    let own = Symbols { path: program.clone(), ..twin("uw_blocked.c", &unstripped) };
    let its_library =
        Symbols { path: library.clone(), ..twin("uw_library.c", &[&unstripped[..], &["-shared", "-fPIC"]].concat()) };
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let threads = blocked_threads(pid);
    assert_eq!(threads.len(), 22, "{threads:?}");
    let stacks: BTreeMap<&String, Stack> =
        threads.iter().map(|(name, tid)| (name, walk_blocked(&mut unwinder, pid, *tid, copy))).collect();
    let maps = Maps::read(pid).unwrap();
    let judge = eu_stack(pid);
    let mut wrong = Vec::new();
    for (kind, stack) in &stacks {
        let names = stack.names(&files, &[&own, &its_library]);
        let chain = expected(kind);
        let judged = &judge[&threads[*kind]];
        let mut addresses = stack.addresses(&files, &maps);
        if let Some((_, marker)) = without.iter().find(|(k, _)| k == kind) {
            // A true beginning, and the reason.
            let n = names.len() - 1;
            if names[n] != marker.text(None)
                || names[..n] != chain[..n.min(chain.len())]
                || stack.walk.end != Some(*marker)
            {
                wrong.push(format!("{kind}: {names:?} {:?}", stack.walk));
            }
            continue;
        }
        let end = (**kind == "too_deep").then_some(Marker::TooDeep);
        if end.is_some() {
            addresses.pop();
        }
        if names != chain || stack.walk.end != end {
            wrong.push(format!("{kind}: {:?}\n  {names:?}\n  not {chain:?}", stack.walk));
        }
        if judged.len() < addresses.len()
            || addresses != judged[..addresses.len()]
            || (end.is_none() && judged.len() != addresses.len())
        {
            wrong.push(format!("{kind}: {addresses:x?}\n  eu-stack: {judged:x?}"));
        }
    }
    assert!(wrong.is_empty(), "{variant}:\n{}", wrong.join("\n"));
}

#[test]
fn blocked_threads_o2() {
    check_blocked("o2", &["-O2"], 32 << 10, &[CONTEXT]);
}

#[test]
fn blocked_threads_o2_frame_pointers() {
    check_blocked("fp", &["-O2", "-fno-omit-frame-pointer"], 32 << 10, &[CONTEXT]);
}

#[test]
fn blocked_threads_o0_no_pie() {
    check_blocked("o0", &["-O0", "-no-pie"], 32 << 10, &[CONTEXT]);
}

#[test]
fn blocked_threads_hardened() {
    let flags =
        ["-O2", "-fno-omit-frame-pointer", "-fstack-clash-protection", "-fcf-protection", "-fstack-protector-all"];
    check_blocked("hard", &flags, 32 << 10, &[CONTEXT]);
}

#[test]
fn blocked_threads_stripped_few_bytes_copied() {
    check_blocked("stripped", &["-O2", "-s", "-fno-plt"], 256, &[CONTEXT]);
}

/// Checks a program whose threads all block: each is whole, equal to what elfutils says, and contains these functions
/// in this order, innermost first.
fn check_in_order(source: &str, variant: &str, flags: &[&str], expected: &[(&str, &[&str])]) {
    let program = build(source, variant, flags);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    let own = Symbols::of(&program);
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let threads = blocked_threads(pid);
    let stacks: Vec<_> =
        expected.iter().map(|(kind, _)| walk_blocked(&mut unwinder, pid, threads[*kind], 16 << 10)).collect();
    let maps = Maps::read(pid).unwrap();
    let judge = eu_stack(pid);
    for ((kind, functions), stack) in expected.iter().zip(stacks) {
        let names: Vec<String> = stack.names(&files, &[&own]).iter().map(|name| plain(name)).collect();
        assert_eq!(stack.walk.end, None, "{kind}: {names:?}");
        assert_eq!(stack.addresses(&files, &maps), judge[&threads[*kind]], "{kind}: {names:?}");
        let mut rest = names.iter();
        for function in *functions {
            assert!(rest.any(|name| name == function), "{kind}: no {function} there in {names:?}");
        }
    }
}

/// Demangled, without arguments, hash and the mark of a split-off part.
fn plain(name: &str) -> String {
    let name = name.split(".cold").next().unwrap();
    if let Ok(symbol) = cpp_demangle::Symbol::new(name) {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        return symbol.demangle_with_options(&options).unwrap_or_else(|_| name.into());
    }
    format!("{:#}", rustc_demangle::demangle(name))
}

#[test]
fn cpp_templates_virtual_calls_and_exceptions() {
    let expected: [(&str, &[&str]); 5] = [
        (
            "virtual",
            &[
                "wait_here",
                "shop::Cart<std::vector<int, std::allocator<int> > >::checkout",
                "shop::Derived::run",
                "through_virtual",
                "blocked_virtual",
            ],
        ),
        ("throw", &["wait_here", "Unwound::~Unwound", "thrower", "blocked_throw"]),
        ("catch", &["wait_here", "catcher", "blocked_catch"]),
        ("sort", &["wait_here", "blocked_sort"]),
        ("main", &["main", "_start"]),
    ];
    check_in_order("uw_cpp.cpp", "cpp", &["-O2"], &expected);
    check_in_order("uw_cpp.cpp", "cpp-fp", &["-O2", "-fno-omit-frame-pointer"], &expected);
    check_in_order("uw_cpp.cpp", "cpp-o0", &["-O0", "-no-pie"], &expected);
}

#[test]
fn rust_generics_closures_and_trait_objects() {
    let expected: [(&str, &[&str]); 6] = [
        ("mutex", &["uw_rust::wait_mutex"]),
        ("channel", &["uw_rust::wait_channel"]),
        ("condvar", &["uw_rust::wait_condvar"]),
        ("sleep", &["std::thread::sleep", "uw_rust::wait_sleep"]),
        ("park", &["std::thread::park", "uw_rust::wait_park"]),
        (
            "dyn",
            &[
                "uw_rust::wait_sleep",
                "uw_rust::recurse",
                "uw_rust::recurse",
                "<uw_rust::Generic<T> as uw_rust::Work>::work",
                "uw_rust::wait_dyn",
            ],
        ),
    ];
    let release = ["--edition", "2021", "-O"];
    check_in_order("uw_rust.rs", "release", &release, &expected);
    let pointers = ["--edition", "2021", "-O", "-C", "force-frame-pointers=yes"];
    check_in_order("uw_rust.rs", "fp", &pointers, &expected);
    check_in_order("uw_rust.rs", "debug", &["--edition", "2021"], &expected);
}
