//! A reader of stacks as they are not to be read: one frame at a time, while the thread runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::edges::Tight;
use crate::interpreters::Interpreter;

/// Where a version keeps its frames.
pub struct Offsets {
    /// In the runtime: the first interpreter.
    interpreters: u64,
    /// In an interpreter: the first thread.
    threads: u64,
    /// In a thread: the innermost frame, or what has it at the second offset.
    innermost: u64,
    indirect: Option<u64>,
    /// In a frame.
    caller: u64,
    code: u64,
}

impl Offsets {
    /// Returns those of versions whose frames have not changed since; `None` for others.
    pub fn of(interpreter: &Interpreter) -> Option<Offsets> {
        let (interpreters, threads, innermost, indirect, caller, code) = match interpreter.minor {
            9 => (32, 8, 24, None, 24, 32),
            11 => (40, 16, 56, Some(8), 48, 32),
            12 => (40, 72, 56, Some(0), 8, 0),
            13 => (632, 7344, 72, None, 8, 0),
            14 => (808, 7344, 72, None, 8, 0),
            _ => return None,
        };
        (!interpreter.free_threaded).then_some(Offsets {
            interpreters,
            threads,
            innermost,
            indirect,
            caller,
            code,
        })
    }
}

/// Runs this on a CPU of its own, with the process on another. Returns `None` if there is only one
/// CPU: then no reader can meet a running thread.
pub fn apart<T: Send>(pid: u32, read: impl FnOnce() -> T + Send) -> Option<T> {
    let allowed = sched_getaffinity(None).expect("the CPUs of this thread");
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let one_of = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    };
    let (ours, theirs) = (one_of(cpus.next()?), one_of(cpus.next()?));
    let pid = rustix::process::Pid::from_raw(pid.cast_signed());
    sched_setaffinity(pid, &theirs).expect("our child");
    // A thread of its own: the tests that follow shall have all CPUs again.
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            sched_setaffinity(None, &ours).expect("this thread");
            read()
        });
        Some(reader.join().expect("it reads"))
    })
}

/// Reads stacks of the only thread, innermost function first. They end where they cannot be read.
pub fn read<'a>(pid: u32, tight: &'a Tight, offsets: &Offsets, count: usize) -> Vec<Vec<&'a str>> {
    let process = remoteprocess::Process::new(pid.cast_signed()).expect("it runs");
    let word = |address: u64| {
        let mut bytes = [0; 8];
        let read = remoteprocess::ProcessMemory::read(&process, address as usize, &mut bytes);
        read.ok().map(|()| u64::from_le_bytes(bytes))
    };
    let interpreter = word(tight.runtime + offsets.interpreters).expect("an interpreter");
    let thread = word(interpreter + offsets.threads).expect("a thread");
    let stack = || {
        let mut names = Vec::new();
        let mut frame = word(thread + offsets.innermost)?;
        if let Some(offset) = offsets.indirect {
            frame = word(frame + offset)?;
        }
        while frame != 0 && names.len() < 100 {
            // Marked references; and frames that are no functions.
            let code = word(frame + offsets.code)? & !3;
            names.extend(tight.codes.get(&code).map(String::as_str));
            frame = word(frame + offsets.caller)?;
        }
        Some(names)
    };
    (0..count)
        .map(|_| {
            // At other instants than the program's own.
            std::thread::sleep(std::time::Duration::from_micros(500));
            stack().unwrap_or_default()
        })
        .collect()
}
