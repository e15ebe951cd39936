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

/// Threads by name once each of them blocks; the main thread's name is `main`. One named `busy` is left out.
fn blocked_threads(pid: u32) -> BTreeMap<String, u32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let tid: u32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let read = |name| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap();
        if read("comm").trim() == "busy" {
            continue;
        }
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
    // The same with all registers known, and by libunwind.
    #[cfg(feature = "libunwind")]
    let mut other = sampletop::unwinder::libunwind::LibunwindUnwinder::new(Memory::new(pid), files.clone(), pid);
    for (kind, stack) in &stacks {
        let held = Held::new(threads[*kind]);
        // Enough for the deepest: a stopped thread's stack is not read any further.
        let known = walk_held(&mut unwinder, pid, &held, 1 << 20);
        // The stack that the handler interrupted is another one: not copied.
        let cut = **kind == "altstack"
            && known.walk.end == Some(Marker::Truncated)
            && stack.frames.starts_with(&known.frames[..known.frames.len() - 1]);
        if (known.frames != stack.frames && !cut) || known.walk.recovered {
            wrong.push(format!("{kind}: with rbp {:?}", known.names(&files, &[&own, &its_library])));
        }
        #[cfg(feature = "libunwind")]
        {
            let mut frames = Vec::new();
            let walk = other.walk_stopped(threads[*kind], &mut frames);
            if frames != stack.frames {
                let judged = Stack { walk, frames };
                wrong.push(format!("{kind}: libunwind {:?}", judged.names(&files, &[&own, &its_library])));
            }
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
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if let Ok(symbol) = cpp_demangle::Symbol::new(name) {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        return symbol.demangle_with_options(&options).unwrap_or_else(|_| name.into());
    }
    name.into()
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
        ("sleep", &["std::thread::functions::sleep", "uw_rust::wait_sleep"]),
        ("park", &["std::thread::functions::park", "uw_rust::wait_park"]),
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

/// A thread held by ptrace, as the way `ptrace` holds it; let go when dropped.
struct Held(i32);

impl Held {
    fn new(tid: u32) -> Held {
        let tid = tid as i32;
        ptrace(libc::PTRACE_SEIZE, tid, 0);
        ptrace(libc::PTRACE_INTERRUPT, tid, 0);
        let mut status = 0;
        loop {
            // SAFETY: `status` lives during the call.
            assert_eq!(unsafe { libc::waitpid(tid, &mut status, libc::__WALL) }, tid);
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                return Held(tid);
            }
            // A signal on its way (these programs live by SIGILL and SIGSEGV): passed on, and asked again.
            assert!(libc::WIFSTOPPED(status), "{status:x}");
            ptrace(libc::PTRACE_CONT, tid, libc::WSTOPSIG(status) as usize);
        }
    }

    fn registers(&self) -> Registers {
        // SAFETY: plain numbers; PTRACE_GETREGS fills them.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, self.0, &raw mut regs as usize);
        Registers {
            rip: regs.rip,
            rsp: regs.rsp,
            rbp: Some(regs.rbp),
            general: [
                regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.r8, regs.r9, regs.r10, regs.r11,
                regs.r12, regs.r13, regs.r14, regs.r15,
            ],
            general_known: true,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        ptrace(libc::PTRACE_DETACH, self.0, 0);
    }
}

fn ptrace(request: libc::c_uint, tid: i32, data: usize) {
    // SAFETY: the requests used here take a number or a pointer to a user_regs_struct that outlives the call.
    let result = unsafe { libc::ptrace(request, tid, 0, data) };
    assert!(result >= 0, "ptrace {request} of {tid}: {}", std::io::Error::last_os_error());
}

fn walk_held(unwinder: &mut impl Unwinder, pid: u32, held: &Held, copy: usize) -> Stack {
    let registers = held.registers();
    let mut bytes = vec![0; copy];
    let n = Memory::new(pid).read(registers.rsp, &mut bytes);
    bytes.truncate(n);
    let mut frames = Vec::new();
    let walk = unwinder.walk(&registers, StackBytes { base: registers.rsp, bytes: &bytes }, &mut frames);
    Stack { walk, frames }
}

/// Waits until the thread's run time has moved: it is somewhere else then.
fn has_run(pid: u32, tid: u32) {
    let read = || std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap();
    let (before, deadline) = (read(), Instant::now() + Duration::from_secs(20));
    while read() == before {
        assert!(Instant::now() < deadline, "{tid} does not run: {before}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn threads_by_name(pid: u32) -> BTreeMap<String, u32> {
    let read = |tid: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap();
    let ids = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|e| e.unwrap().file_name());
    ids.map(|id| (read(id.to_str().unwrap()).trim().to_string(), id.to_str().unwrap().parse().unwrap())).collect()
}

/// Threads of uw_busy.c and what may be found inside busy_KIND, in any order.
const BUSY: [(&str, &[&str]); 11] = [
    ("vdso", &["-"]),
    ("tiny", &["tiny_inner", "tiny_outer"]),
    ("plt", &["-", "plt"]),
    ("recursion", &["fib"]),
    ("many", &["many", "tiny_inner"]),
    ("align", &["aligned", "-", "plt"]),
    ("signal", &["tiny_inner", "tiny_outer", "handler", "trap", "-"]),
    ("null", &["tiny_inner", "tiny_outer", "handler", "segv", "-", "[code outside every mapping]"]),
    ("frame", &["blind_frame"]),
    ("leaf", &["blind_leaf"]),
    ("hard", &["blind_hard"]),
];

/// Stops each thread of uw_busy.c again and again wherever it is, and checks its stack by name. `truthful`: kinds that
/// may end early for want of unwind information, but never wrongly.
fn check_busy(variant: &str, flags: &[&str], truthful: &[&str]) {
    /// Stops per thread: enough that all places of these small loops are met.
    const STOPS: usize = 60;
    let program = build("uw_busy.c", variant, flags);
    let own = Symbols::of(&program);
    let mut wrong: BTreeMap<String, u32> = BTreeMap::new();
    for (kind, inside) in BUSY {
        let running = Running::start(&program, &[kind]);
        let pid = running.pid();
        let files = Files::default();
        let mut unwinder = unwinder(pid, &files);
        #[cfg(feature = "libunwind")]
        let mut judge = sampletop::unwinder::libunwind::LibunwindUnwinder::new(Memory::new(pid), files.clone(), pid);
        let threads = threads_by_name(pid);
        let chain = [
            format!("busy_{kind}"),
            format!("middle_{kind}"),
            format!("outer_{kind}"),
            "thread_main".into(),
            "-".into(),
        ];
        #[cfg(feature = "libunwind")]
        let mut compared = 0;
        for _ in 0..STOPS {
            has_run(pid, threads[kind]);
            let held = Held::new(threads[kind]);
            let stack = walk_held(&mut unwinder, pid, &held, 32 << 10);
            #[cfg(feature = "libunwind")]
            let judged = {
                let mut frames = Vec::new();
                let walk = judge.walk_stopped(threads[kind], &mut frames);
                (walk, frames)
            };
            drop(held);
            let names = stack.names(&files, &[&own]);
            // The program's own linkage table has no symbols.
            let names: Vec<&str> = names.iter().map(|n| if n.starts_with('?') { "plt" } else { n }).collect();
            // Between two calls a thread is in the outer loops: then less of the chain is there.
            let start = names.iter().position(|name| chain.iter().any(|link| link == name && link != "-"));
            let whole = stack.walk.end.is_none()
                && !stack.walk.recovered
                && start.is_some_and(|start| {
                    let links = &names[start..];
                    let missing = chain.len().saturating_sub(links.len());
                    links == &chain[missing..]
                        && (missing == 0 || start == 0)
                        && names[..start].iter().all(|name| inside.contains(name))
                });
            let early = truthful.contains(&kind)
                && stack.walk.end == Some(Marker::NoUnwindInfo)
                && names.len() == 2
                && inside.contains(&names[0]);
            if !whole && !early {
                *wrong.entry(format!("{kind}: {names:?} {:?}", stack.walk)).or_default() += 1;
            }
            #[cfg(feature = "libunwind")]
            if judged.0.end.is_none() && stack.walk.end.is_none() {
                compared += 1;
            }
            #[cfg(feature = "libunwind")]
            if judged.0.end.is_none() && stack.walk.end.is_none() && judged.1 != stack.frames {
                let other = Stack { walk: judged.0, frames: judged.1 };
                let other = other.names(&files, &[&own]);
                *wrong.entry(format!("{kind}: {names:?}\n  libunwind: {other:?}")).or_default() += 1;
            }
        }
        // Where there is unwind information on disk, libunwind has something to say.
        #[cfg(feature = "libunwind")]
        assert!(
            compared > STOPS / 2 || ["vdso", "null", "frame", "leaf", "hard"].contains(&kind),
            "{kind}: {compared}"
        );
    }
    assert!(wrong.is_empty(), "{variant}: {wrong:#?}");
}

#[test]
fn busy_threads_o2() {
    check_busy("o2", &["-O2"], &["frame", "hard"]);
}

#[test]
fn busy_threads_frame_pointers() {
    check_busy("fp", &["-O2", "-fno-omit-frame-pointer"], &["frame", "hard"]);
}

#[test]
fn busy_threads_o0() {
    check_busy("o0", &["-O0", "-no-pie"], &["frame", "hard"]);
}
