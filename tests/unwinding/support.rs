//! Stacks of live threads for the tests, walked as by the sampler, and by other unwinders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};
use sampletop::model::vocabulary::frame::{FrameCode, RawFrame};
use sampletop::process::mapped_files::{FileKind, Files};
use sampletop::process::maps::{Backing, Maps};
use sampletop::process::memory::{Memory, ReadMemory};
use sampletop::unwinder::framehop::FramehopUnwinder;
use sampletop::unwinder::{Registers, StackBytes, Unwinder, Walk};

/// The functions of a program.
pub struct Symbols {
    pub path: PathBuf,
    /// (file offset of the function, size, name).
    pub functions: Vec<(u64, u64, String)>,
    /// Code of libraries is in the same file: code without a name belongs to them.
    pub with_libraries: bool,
}

impl Symbols {
    pub fn of(path: &Path) -> Symbols {
        let bytes = std::fs::read(path).expect("the program was just built");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let object::File::Elf64(elf) = &file else { panic!("64-bit") };
        let segments: Vec<_> = {
            use object::read::elf::ProgramHeader;
            let e = elf.endian();
            let loads =
                elf.elf_program_headers().iter().filter(|p| p.p_type(e) == object::elf::PT_LOAD);
            loads.map(|p| (p.p_vaddr(e), p.p_memsz(e), p.p_offset(e))).collect()
        };
        let offset = |address: u64| {
            let (start, _, at) = segments
                .iter()
                .find(|(start, size, _)| (*start..start + size).contains(&address))?;
            Some(address - start + at)
        };
        let functions = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.kind() == object::SymbolKind::Text && s.size() > 0)
            .filter_map(|s| Some((offset(s.address())?, s.size(), s.name().ok()?.to_string())))
            .collect();
        Symbols { path: path.to_path_buf(), functions, with_libraries: false }
    }

    /// Keeps only functions that `other` has too.
    pub fn keep_only(&mut self, other: &Symbols) {
        self.functions.retain(|(_, _, name)| other.functions.iter().any(|(_, _, n)| n == name));
        self.with_libraries = true;
    }

    fn name(&self, offset: u64) -> Option<&str> {
        self.functions
            .iter()
            .find(|(at, size, _)| (*at..at + size).contains(&offset))
            .map(|(_, _, name)| &**name)
    }
}

/// One walked stack.
pub struct Stack {
    pub walk: Walk,
    pub frames: Vec<RawFrame>,
}

impl Stack {
    /// Returns the names of frames in files that `symbols` contains; others as `-`, runs of these
    /// as one.
    pub fn names(&self, files: &Files, symbols: &[&Symbols]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for frame in &self.frames {
            let name = match frame.decode() {
                FrameCode::Code { file, offset, exact } => {
                    let file = files.get(file).unwrap();
                    let known = symbols.iter().find(|s| s.path == file.path);
                    let name = known.and_then(|s| s.name(if exact { offset } else { offset - 1 }));
                    match (name, known) {
                        (Some(name), _) => name.to_string(),
                        (None, Some(known)) if known.with_libraries => "-".into(),
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

    /// Returns addresses in the process.
    pub fn addresses(&self, files: &Files, maps: &Maps) -> Vec<u64> {
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

/// Walks a blocked thread as the sampler does: stack pointer and program counter from /proc, no
/// rbp.
pub fn walk_blocked(unwinder: &mut impl Unwinder, pid: u32, tid: u32, copy: usize) -> Stack {
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

/// Returns threads by name once each of them blocks; the main thread's name is `main`. One named
/// `busy` is excluded.
pub fn blocked_threads(pid: u32) -> BTreeMap<String, u32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let tid: u32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let read =
            |name| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap();
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

pub fn unwinder(pid: u32, files: &Files) -> FramehopUnwinder<Memory> {
    FramehopUnwinder::new(Memory::new(pid), files.clone(), pid)
}

/// Returns the output of `eu-stack` (elfutils; it stops the threads) for every thread: addresses,
/// innermost first.
pub fn eu_stack(pid: u32) -> BTreeMap<u32, Vec<u64>> {
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

/// Demangles without arguments, hash and the mark of a split-off part.
pub fn plain(name: &str) -> String {
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

/// A thread stopped by ptrace, as by the backend `ptrace`; released when dropped.
pub struct StoppedThread(i32);

impl StoppedThread {
    pub fn new(tid: u32) -> StoppedThread {
        let tid = tid as i32;
        ptrace(libc::PTRACE_SEIZE, tid, 0);
        ptrace(libc::PTRACE_INTERRUPT, tid, 0);
        let mut status = 0;
        loop {
            // SAFETY: `status` lives during the call.
            assert_eq!(unsafe { libc::waitpid(tid, &mut status, libc::__WALL) }, tid);
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                return StoppedThread(tid);
            }
            // A pending signal (these programs use SIGILL and SIGSEGV): it is passed on, and the
            // wait repeated.
            assert!(libc::WIFSTOPPED(status), "{status:x}");
            ptrace(libc::PTRACE_CONT, tid, libc::WSTOPSIG(status) as usize);
        }
    }

    pub fn registers(&self) -> Registers {
        // SAFETY: plain numbers; PTRACE_GETREGS fills them.
        let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, self.0, &raw mut regs as usize);
        Registers {
            rip: regs.rip,
            rsp: regs.rsp,
            rbp: Some(regs.rbp),
            general: [
                regs.rax, regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.r8, regs.r9,
                regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
            ],
            general_known: true,
        }
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        ptrace(libc::PTRACE_DETACH, self.0, 0);
    }
}

fn ptrace(request: libc::c_uint, tid: i32, data: usize) {
    // SAFETY: the requests used here take a number or a pointer to a user_regs_struct that outlives
    // the call.
    let result = unsafe { libc::ptrace(request, tid, 0, data) };
    assert!(result >= 0, "ptrace {request} of {tid}: {}", std::io::Error::last_os_error());
}

pub fn walk_stopped(
    unwinder: &mut impl Unwinder,
    pid: u32,
    stopped: &StoppedThread,
    copy: usize,
) -> Stack {
    let registers = stopped.registers();
    let mut bytes = vec![0; copy];
    let n = Memory::new(pid).read(registers.rsp, &mut bytes);
    bytes.truncate(n);
    let mut frames = Vec::new();
    let walk =
        unwinder.walk(&registers, StackBytes { base: registers.rsp, bytes: &bytes }, &mut frames);
    Stack { walk, frames }
}

/// Waits until the thread's run time has changed: then it is at another place.
pub fn has_run(pid: u32, tid: u32) {
    let read = || std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap();
    let (before, deadline) = (read(), Instant::now() + Duration::from_secs(20));
    while read() == before {
        assert!(Instant::now() < deadline, "{tid} does not run: {before}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn threads_by_name(pid: u32) -> BTreeMap<String, u32> {
    let read = |tid: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap();
    let ids =
        std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|e| e.unwrap().file_name());
    ids.map(|id| {
        (read(id.to_str().unwrap()).trim().to_string(), id.to_str().unwrap().parse().unwrap())
    })
    .collect()
}

/// Waits until the leader has exited and another thread blocks.
pub fn wait_for_zombie(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = |tid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.as_bytes()[0]
        };
        let others: Vec<u32> =
            threads_by_name(pid).into_values().filter(|tid| *tid != pid).collect();
        if state(pid) == b'Z' && others.iter().all(|tid| state(*tid) == b'S') {
            return;
        }
        assert!(Instant::now() < deadline, "{pid} goes on");
        std::thread::yield_now();
    }
}
