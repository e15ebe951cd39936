//! Collects the facts about this machine, this process and the target. No conclusions here.

use std::fs;
use std::io;

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use crate::capture::bpf::Bpf;
use crate::capture::perf::Scope;
use crate::capture::{backend, perf, ptrace};
use crate::model::vocabulary::text;
use crate::process::privileges;
use crate::process::target::{self, AttachError, Status, Target, thread_with_memory};
use crate::process::threads::Tasks;

/// All facts that a verdict is based on.
#[derive(Clone, Debug)]
pub struct Facts {
    pub kernel: Kernel,
    pub own: Own,
    pub place: Place,
    /// `None`: only this machine is examined.
    pub target: Option<TargetFacts>,
    pub tried: Tried,
}

#[derive(Clone, Debug)]
pub struct Kernel {
    pub release: String,
    /// Major and minor number; zeros where the release does not begin with numbers.
    pub version: (u32, u32),
    /// The kernel publishes its types (/sys/kernel/btf/vmlinux).
    pub btf: bool,
    pub perf_event_paranoid: Option<i32>,
    /// kernel.yama.ptrace_scope; `None` without Yama.
    pub yama: Option<u32>,
    /// `none`, `integrity`, `confidentiality`; `None` where it cannot be read.
    pub lockdown: Option<String>,
}

/// This process and its user.
#[derive(Clone, Debug)]
pub struct Own {
    /// The real user id.
    pub uid: u32,
    pub user: String,
    pub effective: CapabilitySet,
    pub permitted: CapabilitySet,
    pub bounding: CapabilitySet,
    pub no_new_privileges: bool,
    pub seccomp: Seccomp,
    /// Limit of locked memory, bytes; `None`: no limit.
    pub memlock: Option<u64>,
    /// Hard limit of open files; `None`: no limit.
    pub descriptors: Option<u64>,
    /// This process is in the initial user namespace. Capabilities of another one do not count for
    /// BPF and perf.
    pub first_user_namespace: bool,
    pub first_pid_namespace: bool,
    /// Path of this program.
    pub program: String,
    /// Its file system ignores file capabilities (mount option nosuid).
    pub nosuid: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seccomp {
    Off,
    Strict,
    Filter,
}

impl Seccomp {
    pub fn word(self) -> &'static str {
        match self {
            Seccomp::Off => "off",
            Seccomp::Strict => "strict",
            Seccomp::Filter => "filter",
        }
    }
}

/// The container engine around this process, by the signs that engines leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    Host,
    Docker,
    Podman,
    Kubernetes,
    /// LXC, systemd-nspawn, or a bare pid namespace.
    Other,
}

impl Engine {
    pub fn word(self) -> &'static str {
        match self {
            Engine::Host => "none",
            Engine::Docker => "docker",
            Engine::Podman => "podman",
            Engine::Kubernetes => "kubernetes",
            Engine::Other => "other",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Place {
    pub engine: Engine,
    /// The host name: container engines set the container's id, Kubernetes the pod's name.
    pub host: String,
}

#[derive(Clone, Debug)]
pub struct TargetFacts {
    pub pid: u32,
    pub command: String,
    pub uid: u32,
    pub user: String,
    /// Whether the target is in this process's namespaces. `None`: cannot be read.
    pub same_pid_namespace: Option<bool>,
    pub same_user_namespace: Option<bool>,
    pub same_mount_namespace: Option<bool>,
    /// Why sampletop does not watch this process at all.
    pub refused: Option<String>,
}

/// What was tried, and what the kernel answered.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Loading the programs, and the sampling of whole processors that they need.
    pub bpf: Trial,
    /// Opening a sampling event for the target, or for this process.
    pub perf: Trial,
    /// That event samples kernel code too.
    pub kernel_visible: bool,
    /// The kernel shows the addresses of its functions, so that they have names
    /// (kernel.kptr_restrict).
    pub kernel_names: bool,
    /// Reading the registers of a thread of the target; `None` without a target.
    pub registers: Option<Trial>,
    /// The system call ptrace, tried without a target.
    pub ptrace: Trial,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trial {
    Works,
    Refused { errno: Option<i32>, why: String },
}

impl Trial {
    pub fn works(&self) -> bool {
        *self == Trial::Works
    }

    pub fn errno(&self) -> Option<i32> {
        match self {
            Trial::Works => None,
            Trial::Refused { errno, .. } => *errno,
        }
    }
}

impl From<io::Error> for Trial {
    fn from(error: io::Error) -> Trial {
        Trial::Refused { errno: error.raw_os_error(), why: error.to_string() }
    }
}

/// Collects the facts. `pid` fails as in other subcommands, except for a process that may not be
/// watched: the doctor explains that case.
pub fn gather(pid: Option<u32>) -> Result<Facts, AttachError> {
    let (target, attached) = match pid {
        Some(pid) => {
            let attached = match Target::attach(pid) {
                Ok(target) => Ok(target),
                Err(AttachError::NotPermitted { why, .. }) => Err(why),
                Err(error) => return Err(error),
            };
            let uid = attached.as_ref().map_or_else(|_| owner(pid), Target::uid);
            let same =
                |kind: &str| Some(namespace("self", kind)? == namespace(&pid.to_string(), kind)?);
            let facts = TargetFacts {
                pid,
                command: attached
                    .as_ref()
                    .map_or_else(|_| String::new(), |target| target.command().to_owned()),
                uid,
                user: target::user_name(uid),
                same_pid_namespace: same("pid"),
                same_user_namespace: same("user"),
                same_mount_namespace: same("mnt"),
                refused: attached.as_ref().err().cloned(),
            };
            (Some(facts), attached.ok())
        }
        None => (None, None),
    };
    // With the same rights as the thread that takes stacks.
    let _ = privileges::raise();
    let own = own();
    Ok(Facts { kernel: kernel(), place: place(&own), own, target, tried: tried(attached.as_ref()) })
}

fn owner(pid: u32) -> u32 {
    Status::read(pid).map_or(u32::MAX, |status| status.uids[0])
}

fn tried(target: Option<&Target>) -> Tried {
    let tid = target.map_or(0, |target| thread_with_memory(target.pid()).unwrap_or(target.pid()));
    let sampling = perf::permitted(tid);
    let bpf = match (bpf(), &sampling) {
        // The bpf backend samples whole processors.
        (Trial::Works, Ok((Scope::Threads, _))) => Trial::Refused {
            errno: None,
            why: "sampling of whole processors is not permitted".into(),
        },
        (Trial::Works, Err(error)) => Trial::Refused {
            errno: error.raw_os_error(),
            why: format!("sampling of whole processors: {error}"),
        },
        (answer, _) => answer,
    };
    let registers = target.map(|target| match Tasks::open(target.pid(), 4) {
        Ok(tasks) if backend::stacks_readable(target, &tasks) => Trial::Works,
        Ok(_) => io::Error::from_raw_os_error(libc::EPERM).into(),
        Err(error) => error.into(),
    });
    let ptrace = match ptrace::permitted() {
        true => Trial::Works,
        false => io::Error::from_raw_os_error(libc::EPERM).into(),
    };
    let kernel_visible = matches!(sampling, Ok((_, true)));
    let perf = sampling.map_or_else(Trial::from, |_| Trial::Works);
    Tried { bpf, perf, kernel_visible, kernel_names: kernel_names(), registers, ptrace }
}

/// Returns whether the kernel shows its addresses; hidden ones are all zeros.
fn kernel_names() -> bool {
    use std::io::Read;
    let mut begin = [0; 16];
    let read = fs::File::open("/proc/kallsyms").and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin.iter().any(|digit| *digit != b'0')
}

fn bpf() -> Trial {
    match Bpf::open() {
        Ok(_) => Trial::Works,
        Err(refusal) => Trial::Refused {
            errno: refusal.errno,
            why: format!("{}: {}", refusal.what, refusal.why),
        },
    }
}

fn kernel() -> Kernel {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Kernel {
        version,
        release: text::clean(&release, 100).into_owned(),
        btf: fs::File::open("/sys/kernel/btf/vmlinux").is_ok(),
        perf_event_paranoid: line("/proc/sys/kernel/perf_event_paranoid")
            .and_then(|text| text.parse().ok()),
        yama: target::yama_scope(),
        lockdown: line("/sys/kernel/security/lockdown").and_then(|text| chosen(&text)),
    }
}

/// Returns the selected word: `none [integrity] confidentiality` -> `integrity`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn own() -> Own {
    let status = line("/proc/thread-self/status").unwrap_or_default();
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let set = |key: &str| {
        let bits = field(key).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
        CapabilitySet::from_bits_truncate(bits)
    };
    let uid = rustix::process::getuid().as_raw();
    let program = fs::read_link("/proc/self/exe")
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default();
    Own {
        uid,
        user: target::user_name(uid),
        effective: set("CapEff:"),
        permitted: set("CapPrm:"),
        bounding: set("CapBnd:"),
        no_new_privileges: field("NoNewPrivs:") == Some("1"),
        seccomp: match field("Seccomp:") {
            Some("1") => Seccomp::Strict,
            Some("2") => Seccomp::Filter,
            _ => Seccomp::Off,
        },
        memlock: getrlimit(Resource::Memlock).current,
        descriptors: getrlimit(Resource::Nofile).maximum,
        first_user_namespace: namespace("self", "user")
            .is_none_or(|name| name == FIRST_USER_NAMESPACE),
        first_pid_namespace: namespace("self", "pid")
            .is_none_or(|name| name == FIRST_PID_NAMESPACE),
        nosuid: rustix::fs::statvfs(program.as_str())
            .is_ok_and(|fs| fs.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID)),
        program: text::clean(&program, 400).into_owned(),
    }
}

/// Inode names of the initial namespaces: PROC_PID_INIT_INO and PROC_USER_INIT_INO,
/// include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

fn namespace(of: &str, kind: &str) -> Option<String> {
    fs::read_link(format!("/proc/{of}/ns/{kind}")).ok()?.to_str().map(str::to_owned)
}

fn place(own: &Own) -> Place {
    let there = |path: &str| fs::exists(path).unwrap_or(false);
    let manager = line("/run/systemd/container")
        .or_else(|| std::env::var("container").ok())
        .unwrap_or_default();
    let cgroup = line("/proc/self/cgroup").unwrap_or_default();
    let engine = if there("/var/run/secrets/kubernetes.io") || cgroup.contains("kubepods") {
        Engine::Kubernetes
    } else if there("/run/.containerenv") || manager == "podman" || cgroup.contains("libpod") {
        Engine::Podman
    } else if there("/.dockerenv") || manager == "docker" || cgroup.contains("/docker") {
        Engine::Docker
    } else {
        Engine::Other
    };
    // A machine made from a container image has these signs too. A container also has a pid
    // namespace of its own, or lacks capabilities.
    let contained = !own.first_pid_namespace
        || !own.first_user_namespace
        || !own.bounding.contains(CapabilitySet::SYS_ADMIN);
    let signs = engine != Engine::Other || !manager.is_empty() || !own.first_pid_namespace;
    let engine = if contained && signs { engine } else { Engine::Host };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Place { engine, host: text::clean(&host, 100).into_owned() }
}

/// Reads a short file of /proc or /sys, without trailing blanks.
fn line(path: &str) -> Option<String> {
    let bytes = target::read_proc(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        assert_eq!(chosen("none [integrity] confidentiality").as_deref(), Some("integrity"));
        assert_eq!(chosen("[none] integrity confidentiality").as_deref(), Some("none"));
        assert_eq!(chosen("none"), None);
        assert_eq!(chosen("]["), None);
    }

    #[test]
    fn this_machine_has_facts() {
        let facts = gather(None).expect("no target that could fail");
        assert!(facts.kernel.version > (5, 0), "{:?}", facts.kernel);
        assert_eq!(facts.own.uid, rustix::process::getuid().as_raw());
        assert!(facts.own.program.contains("sampletop"), "{}", facts.own.program);
        assert!(facts.target.is_none() && facts.tried.registers.is_none());
        let error = gather(Some(std::process::id())).expect_err("ourselves");
        assert_eq!(error.exit_code().number(), 5);
    }
}
