//! The backends of capture, and which of them this machine permits: found out by trying.

use crate::capture::bpf::load::Refusal;
use crate::capture::bpf::taken::TakenWithSamples;
use crate::capture::bpf::{self, Bpf};
use crate::capture::perf::{self, Perf};
use crate::capture::ptrace;
use crate::clock::monotonic;
use crate::config::CaptureChoice;
use crate::model::vocabulary::frame::Ns;
use crate::process::target::{AttachError, Target, thread_with_memory};
use crate::process::threads::{ReadError, Tasks};

/// Kinds of backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The kernel samples running threads; its task iterator reads all others.
    Bpf,
    /// The kernel samples running threads; blocked stacks are read from the target's memory.
    Perf,
    /// The kernel samples running threads; the target's memory is not accessible.
    CpuOnly,
    /// Names, states and CPU time only.
    States,
    /// Stops running threads, one at a time; blocked stacks are read from the target's memory.
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

/// An open backend.
pub struct Backend {
    pub kind: Kind,
    pub perf: Option<Perf>,
    /// Declared after `perf`, which uses its filter, so that it is dropped later.
    pub bpf: Option<Bpf>,
    /// Reads what the kernel takes with the samples, beside what perf takes.
    pub taken: Option<TakenWithSamples>,
    /// Stacks of threads that are off the core are read from the target's memory.
    pub reads_stacks: bool,
    /// [`Kind::Ptrace`] is permitted.
    pub may_stop: bool,
    /// What this backend lacks, and why; `None` if the user asked for it by name.
    pub lack: Option<String>,
}

/// Inputs of [`open`].
pub struct Setting<'a> {
    /// The process to open the backend with; further ones are added by [`Backend::add`].
    pub target: &'a Target,
    pub tasks: &'a Tasks,
    /// Interval between samples of the kernel, ns.
    pub interval: Ns,
    /// Read runnable threads that are off the core, if the backend can.
    pub runnable: bool,
    /// Maximum descriptors for perf events.
    pub descriptors: usize,
    /// sampletop started the target.
    pub own_child: bool,
}

/// Opens the backend of `choice`. [`CaptureChoice::Auto`] takes the first one that is permitted.
pub fn open(choice: CaptureChoice, setting: &Setting<'_>) -> Result<Backend, AttachError> {
    let pid = setting.target.pid();
    let refused = |(why, fix)| AttachError::NotPermitted { pid, why, fix };
    let has_access = stacks_readable(setting.target, setting.tasks);
    let may_stop = has_access && ptrace::permitted();
    let backend = |kind, perf, lack| {
        let reads_stacks = matches!(kind, Kind::Perf | Kind::Ptrace);
        Ok(Backend { kind, perf, bpf: None, taken: None, reads_stacks, may_stop, lack })
    };
    match choice {
        CaptureChoice::States => return backend(Kind::States, None, None),
        CaptureChoice::Ptrace if may_stop => return backend(Kind::Ptrace, None, None),
        CaptureChoice::Ptrace if has_access => return Err(refused(no_ptrace())),
        CaptureChoice::Ptrace => return Err(refused(no_access())),
        // The kernel lets BPF read any process, so sampletop checks access itself.
        CaptureChoice::Bpf if !has_access => return Err(refused(no_access())),
        CaptureChoice::Bpf | CaptureChoice::Auto if has_access => {
            match (setting.open_bpf(), choice) {
                (Ok((mut bpf, perf)), _) => {
                    return Ok(Backend {
                        kind: Kind::Bpf,
                        perf: Some(perf),
                        taken: bpf.take_reader(),
                        bpf: Some(bpf),
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
        // Only a program that sampletop started may be stopped without being asked to.
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
    /// Adds a process. `readable`: the result of [`stacks_readable`]. Without that right `bpf`
    /// leaves the process to the files of /proc, because the kernel lets BPF read any process.
    pub fn add(&mut self, pid: u32, readable: bool) -> std::io::Result<()> {
        if let Some(bpf) = self.bpf.as_mut().filter(|_| readable) {
            bpf.add(pid)?;
        }
        if let Some(perf) = &mut self.perf {
            perf.targets.insert(pid);
        }
        Ok(())
    }

    /// Stops taking stacks of a process.
    pub fn remove(&mut self, pid: u32) {
        if let Some(bpf) = &mut self.bpf {
            if let (Some(taken), Some(id)) = (&mut self.taken, bpf.process_of(pid)) {
                taken.forget(id);
            }
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

/// Asks the kernel for the registers of one thread. The right to read its stack, or to stop it, is
/// the same.
pub fn stacks_readable(target: &Target, tasks: &Tasks) -> bool {
    let tid = thread_with_memory(target.pid()).unwrap_or(target.pid());
    let mut files = tasks.thread(tid);
    let answer = tasks.doing(&mut files);
    tasks.forget(files);
    answer != Err(ReadError::NotPermitted)
}

/// Returns why stacks are not readable, and the one fix.
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

/// Returns reason and fix where a filter of system calls, as in containers, forbids ptrace although
/// the rights of the process would permit it.
fn no_ptrace() -> (String, String) {
    (
        "the system call ptrace is forbidden here".into(),
        "run sampletop outside the container, or give the container CAP_SYS_PTRACE".into(),
    )
}
