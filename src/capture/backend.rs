//! The ways of taking stacks, and which of them this box permits: found out by trying.

use crate::capture::bpf::load::Refusal;
use crate::capture::bpf::{self, Bpf};
use crate::capture::perf::{self, Perf};
use crate::capture::ptrace;
use crate::clock::monotonic;
use crate::config::CaptureChoice;
use crate::model::vocabulary::frame::Ns;
use crate::process::target::{AttachError, Target, thread_with_memory};
use crate::process::threads::{ReadError, Tasks};

/// What a way is called where the user sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// On-CPU samples by the kernel, threads by its task iterator.
    Bpf,
    /// On-CPU samples by the kernel, blocked stacks read as they lie.
    Perf,
    /// On-CPU samples by the kernel; no access to the target's memory.
    CpuOnly,
    /// Names, states and CPU time only.
    States,
    /// Stops running threads, one at a time; blocked stacks read as they lie.
    Ptrace,
}

impl Kind {
    pub fn title(self) -> &'static str {
        match self {
            Kind::Bpf => "bpf",
            Kind::Perf => "perf",
            Kind::CpuOnly => "cpu-only",
            Kind::States => "states",
            Kind::Ptrace => "ptrace (stops threads)",
        }
    }
}

/// A way, opened.
pub struct Backend {
    pub kind: Kind,
    pub perf: Option<Perf>,
    /// After `perf`, whose filter it holds: dropped after it.
    pub bpf: Option<Bpf>,
    /// Stacks of threads that are off the core are read.
    pub reads_stacks: bool,
    /// [`Kind::Ptrace`] would be permitted.
    pub may_stop: bool,
    /// What this backend lacks, and why: where it was not asked for by name.
    pub lack: Option<String>,
}

/// What opening a way depends on.
pub struct Setting<'a> {
    /// The process that it is opened with; others come by [`Backend::add`].
    pub target: &'a Target,
    pub tasks: &'a Tasks,
    /// Between samples of the kernel.
    pub interval: Ns,
    /// Runnable threads that are off the core are read, where the way can.
    pub runnable: bool,
    /// Descriptors that perf events may take.
    pub descriptors: usize,
    /// sampletop started the target.
    pub own_child: bool,
}

/// Opens what `choice` asks for; [`CaptureChoice::Auto`] takes the first that is permitted.
pub fn open(choice: CaptureChoice, setting: &Setting<'_>) -> Result<Backend, AttachError> {
    let pid = setting.target.pid();
    let refused = |(why, fix)| AttachError::NotPermitted { pid, why, fix };
    let has_access = stacks_readable(setting.target, setting.tasks);
    let may_stop = has_access && ptrace::permitted();
    let backend = |kind, perf, lack| {
        let reads_stacks = matches!(kind, Kind::Perf | Kind::Ptrace);
        Ok(Backend { kind, perf, bpf: None, reads_stacks, may_stop, lack })
    };
    match choice {
        CaptureChoice::States => return backend(Kind::States, None, None),
        CaptureChoice::Ptrace if may_stop => return backend(Kind::Ptrace, None, None),
        CaptureChoice::Ptrace if has_access => return Err(refused(no_ptrace())),
        CaptureChoice::Ptrace => return Err(refused(no_access())),
        // The kernel does not ask whether BPF may look at this process: we do.
        CaptureChoice::Bpf if !has_access => return Err(refused(no_access())),
        CaptureChoice::Bpf | CaptureChoice::Auto if has_access => {
            match (setting.open_bpf(), choice) {
                (Ok((bpf, perf)), _) => {
                    let (perf, bpf) = (Some(perf), Some(bpf));
                    return Ok(Backend {
                        kind: Kind::Bpf,
                        perf,
                        bpf,
                        reads_stacks: true,
                        may_stop,
                        lack: None,
                    });
                }
                (Err(refusal), CaptureChoice::Bpf) => return Err(refused(bpf::explain(&refusal))),
                (Err(_), _) => {}
            }
        }
        CaptureChoice::Auto | CaptureChoice::Bpf | CaptureChoice::Perf | CaptureChoice::CpuOnly => {
        }
    }
    let perf = match (setting.open_perf(), choice) {
        (Ok(perf), _) => perf,
        // Only for a program that we started is stopping threads ours to decide.
        (Err(_), CaptureChoice::Auto) if setting.own_child && may_stop => {
            return backend(Kind::Ptrace, None, None);
        }
        (Err(error), CaptureChoice::Auto) => {
            let (why, fix) = perf::refused::explain(&error);
            return backend(
                Kind::States,
                None,
                Some(format!("no stacks, only states: {why}; {fix}")),
            );
        }
        (Err(error), _) => return Err(refused(perf::refused::explain(&error))),
    };
    match choice {
        CaptureChoice::Perf if !has_access => Err(refused(no_access())),
        CaptureChoice::CpuOnly => backend(Kind::CpuOnly, Some(perf), None),
        _ if has_access => backend(Kind::Perf, Some(perf), None),
        _ => {
            let (why, fix) = no_access();
            backend(
                Kind::CpuOnly,
                Some(perf),
                Some(format!("no stacks of waiting threads: {why}; {fix}")),
            )
        }
    }
}

impl Backend {
    /// Another process is watched, too. `readable`: as [`stacks_readable`] says; without, `bpf`
    /// leaves it to the files of /proc, because the kernel does not ask whether that may look at
    /// it.
    pub fn add(&mut self, pid: u32, readable: bool) -> std::io::Result<()> {
        if let Some(bpf) = self.bpf.as_mut().filter(|_| readable) {
            bpf.add(pid)?;
        }
        if let Some(perf) = &mut self.perf {
            perf.targets.insert(pid);
        }
        Ok(())
    }

    /// No stacks of it are taken any more.
    pub fn remove(&mut self, pid: u32) {
        if let Some(bpf) = &mut self.bpf {
            bpf.remove(pid);
        }
        if let Some(perf) = &mut self.perf {
            perf.targets.remove(&pid);
        }
    }
}

impl Setting<'_> {
    fn open_bpf(&self) -> Result<(Bpf, Perf), Refusal> {
        let pid = self.target.pid();
        let refused = |what| move |error: std::io::Error| Refusal::new(what, &error);
        let mut bpf = Bpf::open()?;
        if self.runnable {
            bpf.read_runnable();
        }
        bpf.add(pid).map_err(refused("watching the process"))?;
        let tid = thread_with_memory(pid).unwrap_or(pid);
        let perf = Perf::open_filtered(
            pid,
            tid,
            self.interval,
            self.descriptors,
            monotonic(),
            bpf.filter(),
        );
        Ok((bpf, perf.map_err(refused("sampling all processors"))?))
    }

    fn open_perf(&self) -> std::io::Result<Perf> {
        let pid = self.target.pid();
        Perf::open(
            pid,
            thread_with_memory(pid).unwrap_or(pid),
            self.interval,
            self.descriptors,
            monotonic(),
        )
    }
}

/// Asks for one thread's registers: the same right is needed to read its stack, or to stop it.
pub fn stacks_readable(target: &Target, tasks: &Tasks) -> bool {
    let tid = thread_with_memory(target.pid()).unwrap_or(target.pid());
    let mut files = tasks.thread(tid);
    let answer = tasks.doing(&mut files);
    tasks.forget(files);
    answer != Err(ReadError::NotPermitted)
}

/// Why stacks are not readable, and the one fix.
fn no_access() -> (String, String) {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if matches!(scope.trim(), "1" | "2" | "3") {
        return (
            format!("kernel.yama.ptrace_scope is {}", scope.trim()),
            "run sampletop as root, or start the program under it with `-- COMMAND`".into(),
        );
    }
    ("the kernel grants no ptrace access to it".into(), "run sampletop as root".into())
}

/// A filter of system calls, as containers have it, forbids more than the rights of processes do.
fn no_ptrace() -> (String, String) {
    (
        "the system call ptrace is forbidden here".into(),
        "run sampletop outside the container, or give the container CAP_SYS_PTRACE".into(),
    )
}
