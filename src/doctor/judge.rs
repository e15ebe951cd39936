//! What the facts mean: which backends work, and the smallest change that would unlock the next
//! better one. Pure. A backend works if the kernel accepted it when it was tried. The other facts
//! only explain a refusal and suggest the change.

use rustix::thread::CapabilitySet;

use super::facts::{Engine, Facts, Seccomp, TargetFacts, Trial};
use crate::capture::backend::Kind;
use crate::exit_code::ExitCode;

/// The first kernel version whose task iterator may read user memory.
const BPF_SINCE: (u32, u32) = (5, 18);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Best first; `ptrace`, which is never chosen automatically, last.
    pub backends: Vec<BackendVerdict>,
    /// What `--capture auto` selects. `None`: sampletop does not watch this process.
    pub best: Option<Kind>,
    pub change: Option<Change>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendVerdict {
    pub backend: Kind,
    pub needs: &'static str,
    /// What is missing. `None`: the backend works.
    pub lacks: Option<String>,
}

/// The smallest change that unlocks a better backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// `None` where no change is possible here.
    pub unlocks: Option<Kind>,
    /// What the change does, or why there is none.
    pub why: String,
    /// A command line to paste.
    pub line: Option<String>,
}

impl Verdict {
    /// Returns success where any backend except `states` works.
    pub fn exit_code(&self) -> ExitCode {
        match self
            .backends
            .iter()
            .any(|backend| backend.backend != Kind::States && backend.lacks.is_none())
        {
            true => ExitCode::Success,
            false => ExitCode::NotPermitted,
        }
    }
}

pub fn judge(facts: &Facts) -> Verdict {
    let refused = facts.target.as_ref().and_then(|target| target.refused.clone());
    let backends: Vec<BackendVerdict> =
        [Kind::Bpf, Kind::Perf, Kind::CpuOnly, Kind::States, Kind::Ptrace]
            .map(|backend| BackendVerdict {
                backend,
                needs: needs(backend),
                lacks: refused.clone().or_else(|| lacks(backend, facts)),
            })
            .into();
    let works =
        |backend: &&BackendVerdict| backend.backend != Kind::Ptrace && backend.lacks.is_none();
    let best = backends.iter().find(works).map(|backend| backend.backend);
    let by_stops =
        backends.iter().any(|backend| backend.backend == Kind::Ptrace && backend.lacks.is_none());
    let change = change(facts, best, by_stops);
    Verdict { backends, best, change }
}

fn needs(backend: Kind) -> &'static str {
    match backend {
        Kind::Bpf => "Linux 5.18 with BTF, CAP_BPF and CAP_PERFMON, ptrace access to the process",
        Kind::Perf => {
            "perf events (kernel.perf_event_paranoid up to 2, or CAP_PERFMON), ptrace access to the process"
        }
        Kind::CpuOnly => "perf events (kernel.perf_event_paranoid up to 2, or CAP_PERFMON)",
        Kind::States => "nothing",
        Kind::Ptrace => "ptrace access to the process, and the system call ptrace",
    }
}

fn lacks(backend: Kind, facts: &Facts) -> Option<String> {
    let tried = &facts.tried;
    let access =
        || tried.registers.as_ref().filter(|trial| !trial.works()).map(|_| no_access(facts));
    match backend {
        Kind::Bpf => no_bpf(facts).or_else(access),
        Kind::Perf => no_perf(facts).or_else(access),
        Kind::CpuOnly => no_perf(facts),
        Kind::States => None,
        Kind::Ptrace if tried.ptrace.works() => access(),
        Kind::Ptrace => {
            access().or_else(|| Some("the system call ptrace is forbidden here".into()))
        }
    }
}

fn no_bpf(facts: &Facts) -> Option<String> {
    let Trial::Refused { why, .. } = &facts.tried.bpf else { return None };
    Some(if let Some(kernel) = kernel_lacks_bpf(facts) {
        kernel
    } else if !facts.own.first_user_namespace {
        "capabilities of a user namespace do not count for BPF".into()
    } else if let Some(missing) = missing_capabilities(facts) {
        format!("{missing} missing")
    } else if facts.own.seccomp == Seccomp::Filter {
        "a seccomp filter forbids it".into()
    } else {
        why.clone()
    })
}

/// Returns what the kernel lacks for bpf, which no capability can replace.
fn kernel_lacks_bpf(facts: &Facts) -> Option<String> {
    let kernel = &facts.kernel;
    if kernel.version < BPF_SINCE {
        return Some(format!("this is Linux {}.{}", kernel.version.0, kernel.version.1));
    }
    if !kernel.btf {
        return Some("this kernel has no BTF (/sys/kernel/btf/vmlinux)".into());
    }
    (kernel.lockdown.as_deref() == Some("confidentiality"))
        .then(|| "the kernel is locked down (confidentiality)".into())
}

fn missing_capabilities(facts: &Facts) -> Option<&'static str> {
    let has = |set| facts.own.effective.intersects(set | CapabilitySet::SYS_ADMIN);
    match (has(CapabilitySet::BPF), has(CapabilitySet::PERFMON)) {
        (true, true) => None,
        (false, true) => Some("CAP_BPF is"),
        (true, false) => Some("CAP_PERFMON is"),
        (false, false) => Some("CAP_BPF and CAP_PERFMON are"),
    }
}

fn no_perf(facts: &Facts) -> Option<String> {
    let Trial::Refused { errno, why } = &facts.tried.perf else { return None };
    Some(match errno {
        Some(libc::EACCES | libc::EPERM) if paranoid(facts) => {
            format!(
                "kernel.perf_event_paranoid is {}",
                facts.kernel.perf_event_paranoid.unwrap_or(3)
            )
        }
        Some(libc::EPERM) if facts.own.seccomp == Seccomp::Filter => {
            "a seccomp filter forbids perf_event_open".into()
        }
        Some(libc::EACCES) => "the kernel grants no access to it, not even to its owner".into(),
        Some(libc::ENOSYS) => "this kernel is built without perf events".into(),
        _ => why.clone(),
    })
}

/// Returns whether perf_event_paranoid alone forbids perf events.
fn paranoid(facts: &Facts) -> bool {
    let able = facts.own.effective.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN);
    facts.kernel.perf_event_paranoid.is_some_and(|level| level > 2)
        && !(able && facts.own.first_user_namespace)
}

fn no_access(facts: &Facts) -> String {
    match facts.kernel.yama {
        Some(scope @ 1..) => format!("kernel.yama.ptrace_scope is {scope}"),
        _ => "the kernel grants no ptrace access to it".into(),
    }
}

fn change(facts: &Facts, best: Option<Kind>, by_stops: bool) -> Option<Change> {
    if best == Some(Kind::Bpf) {
        return None;
    }
    if best == Some(Kind::Perf)
        && let Some(lack) = kernel_lacks_bpf(facts)
    {
        let why = format!(
            "bpf cannot work here: {lack}; only another kernel or other boot options change that"
        );
        return Some(Change { unlocks: None, line: None, why });
    }
    if facts.place.engine != Engine::Host {
        return Some(in_container(facts));
    }
    Some(on_host(facts, best, by_stops))
}

fn on_host(facts: &Facts, best: Option<Kind>, by_stops: bool) -> Change {
    let own = &facts.own;
    let root = own.uid == 0;
    if root && best == Some(Kind::CpuOnly) {
        let why = match facts.kernel.yama {
            Some(3) => {
                "kernel.yama.ptrace_scope 3 forbids access to all processes, for root too, until the next boot"
            }
            // The kernel's cap_ptrace_access_check requires all capabilities that the target has.
            _ => {
                "the process has capabilities that are missing here (CapPrm in /proc/PID/status), or a security module denies access; \
                 run sampletop where root has all capabilities"
            }
        };
        return Change { unlocks: None, line: None, why: why.into() };
    }
    let perf_missing = facts.tried.perf.errno();
    if perf_missing == Some(libc::ENOSYS) && by_stops {
        let line = Some(format!("sampletop --capture ptrace {}", option(facts.target.as_ref())));
        let why = "stops running threads, each for microseconds; this kernel has no perf events";
        return Change { unlocks: Some(Kind::Ptrace), line, why: why.into() };
    }
    if own.seccomp == Seccomp::Filter || root || !own.first_user_namespace {
        let why = if own.seccomp == Seccomp::Filter {
            "the seccomp filter of this shell (a sandbox, SystemCallFilter= of a unit) forbids more; run sampletop outside of it"
        } else if root {
            "root's capabilities are cut here (CapabilityBoundingSet= of a unit, a sandbox); run sampletop outside of it"
        } else {
            "capabilities in a user namespace do not count for perf and BPF; run sampletop outside of it"
        };
        return Change { unlocks: Some(for_root(facts)), line: None, why: why.into() };
    }
    if own.no_new_privileges {
        let why = "this shell runs with no_new_privs, under which neither sudo nor setcap has an effect; use another one";
        return Change { unlocks: Some(for_root(facts)), line: None, why: why.into() };
    }
    let accessible = facts.tried.registers.as_ref().is_none_or(Trial::works);
    if best == Some(Kind::States) && paranoid(facts) {
        let unlocks = if accessible { Kind::Perf } else { Kind::CpuOnly };
        return Change {
            unlocks: Some(unlocks),
            line: Some("sudo sysctl kernel.perf_event_paranoid=2".into()),
            why: "allows users to sample their own processes, until the next boot".into(),
        };
    }
    // File capabilities are not suggested as a means to get around Yama.
    let by_file = best == Some(Kind::Perf) && !own.nosuid && facts.kernel.yama.unwrap_or(0) == 0;
    if by_file && let Some(line) = by_setcap(facts) {
        let why = "lets the members of a group use bpf on their own processes; log in again afterwards. The owner of the file may replace it, so install it as root's for others";
        return Change { unlocks: Some(Kind::Bpf), line: Some(line), why: why.into() };
    }
    let why = match best {
        None => "root may observe the processes of all users",
        _ => {
            "root has all of these rights; a program that is not running yet can also be started with `sampletop -- COMMAND`"
        }
    };
    Change { unlocks: Some(for_root(facts)), line: Some(by_sudo(facts)), why: why.into() }
}

/// Returns the backend that root gets outside of all containers.
fn for_root(facts: &Facts) -> Kind {
    if kernel_lacks_bpf(facts).is_none() { Kind::Bpf } else { Kind::Perf }
}

fn by_sudo(facts: &Facts) -> String {
    format!("sudo \"$(command -v sampletop)\" {}", option(facts.target.as_ref()))
}

fn option(target: Option<&TargetFacts>) -> String {
    target.map_or_else(|| "-p PID".into(), |target| format!("-p {}", target.pid))
}

/// Returns the setcap line. `None` where the path is not absolute, or where the path or the user's
/// name needs shell quoting.
fn by_setcap(facts: &Facts) -> Option<String> {
    let program = &facts.own.program;
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    let user = &facts.own.user;
    if !program.starts_with('/') || !program.chars().chain(user.chars()).all(plain) {
        return None;
    }
    Some(format!(
        "sudo groupadd -f sampletop && sudo usermod -aG sampletop {user} && sudo chgrp sampletop {program} && sudo chmod 0750 {program} && sudo setcap cap_bpf,cap_perfmon=ep {program}"
    ))
}

fn in_container(facts: &Facts) -> Change {
    let target = option(facts.target.as_ref());
    let host = &facts.place.host;
    let capabilities = "--cap-add=BPF --cap-add=PERFMON --cap-add=SYS_PTRACE";
    let program = "-v \"$(command -v sampletop):/sampletop:ro\" debian:stable-slim /sampletop";
    let outside = Change {
        unlocks: Some(for_root(facts)),
        line: None,
        why: "run sampletop as root outside the container, with the process's pid there".into(),
    };
    let (line, why) = match facts.place.engine {
        // The capabilities of a rootless container are limited to its user namespace.
        Engine::Podman if !facts.own.first_user_namespace => {
            let pid = facts.target.as_ref().map_or(1, |target| target.pid);
            let number = format!("podman top {host} pid hpid | awk '$1 == {pid} {{ print $2 }}'");
            (
                format!("sudo \"$(command -v sampletop)\" -p \"$({number})\""),
                "run this on the host, as the user who runs the container",
            )
        }
        _ if !facts.own.first_user_namespace => return outside,
        Engine::Podman => (
            format!(
                "podman run --rm -it --pid=container:{host} {capabilities} --security-opt seccomp=unconfined {program} {target}"
            ),
            "run this on the host: it starts a second container with the needed rights; this one keeps running",
        ),
        Engine::Docker => (
            format!("docker run --rm -it --pid=container:{host} {capabilities} {program} {target}"),
            "run this on the host: it starts a second container with the needed rights; this one keeps running (Docker 23 or newer)",
        ),
        Engine::Kubernetes => (
            format!(
                "kubectl debug -it {host} --target=CONTAINER --profile=sysadmin --image=IMAGE -- sampletop {target}"
            ),
            "adds a container to the same pod; IMAGE is an image that contains sampletop, CONTAINER the name of this container in the pod",
        ),
        Engine::Other | Engine::Host => return outside,
    };
    Change { unlocks: Some(for_root(facts)), line: Some(line), why: why.into() }
}

#[cfg(test)]
mod tests;
