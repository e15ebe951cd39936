use super::*;
use crate::doctor::facts::{Kernel, Own, Place, TargetFacts, Tried};

/// An ordinary user on an ordinary machine, with a process of their own, perf_event_paranoid 2.
fn plain() -> Facts {
    Facts {
        kernel: Kernel {
            release: "6.1.0".into(),
            version: (6, 1),
            btf: true,
            perf_event_paranoid: Some(2),
            yama: Some(0),
            lockdown: Some("none".into()),
        },
        own: Own {
            uid: 1000,
            user: "ann".into(),
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            bounding: CapabilitySet::all(),
            no_new_privileges: false,
            seccomp: Seccomp::Off,
            memlock: Some(8 << 20),
            descriptors: Some(4096),
            first_user_namespace: true,
            first_pid_namespace: true,
            program: "/usr/local/bin/sampletop".into(),
            nosuid: false,
        },
        place: Place { engine: Engine::Host, host: "box".into() },
        target: Some(TargetFacts {
            pid: 7,
            command: "server".into(),
            uid: 1000,
            user: "ann".into(),
            same_pid_namespace: Some(true),
            same_user_namespace: Some(true),
            same_mount_namespace: Some(true),
            refused: None,
        }),
        tried: Tried {
            bpf: no(libc::EPERM),
            perf: Trial::Works,
            kernel_visible: false,
            kernel_names: false,
            registers: Some(Trial::Works),
            ptrace: Trial::Works,
        },
    }
}

fn no(errno: i32) -> Trial {
    Trial::Refused { errno: Some(errno), why: "so it is".into() }
}

fn root(facts: &mut Facts) {
    facts.own.uid = 0;
    facts.own.effective = CapabilitySet::all();
    facts.tried.bpf = Trial::Works;
    facts.tried.kernel_visible = true;
}

/// A container as Docker starts it: root with a few capabilities, and a seccomp filter that forbids
/// bpf and perf_event_open.
fn docker(facts: &mut Facts) {
    facts.own.uid = 0;
    facts.own.effective = CapabilitySet::CHOWN | CapabilitySet::KILL | CapabilitySet::SETUID;
    facts.own.bounding = facts.own.effective;
    facts.own.seccomp = Seccomp::Filter;
    facts.own.first_pid_namespace = false;
    facts.place = Place { engine: Engine::Docker, host: "4f1c".into() };
    facts.tried.perf = no(libc::EPERM);
}

struct Case {
    name: &'static str,
    machine: fn(&mut Facts),
    best: Option<Kind>,
    exit: u8,
    /// What the first backend that does not work lacks.
    lacks: &'static str,
    unlocks: Option<Kind>,
    /// Part of the line to paste; empty: there is no line.
    line: &'static str,
}

const SETCAP: &str = "sudo chmod 0750 /usr/local/bin/sampletop && sudo setcap cap_bpf,cap_perfmon=ep /usr/local/bin/sampletop";
const SUDO: &str = "sudo \"$(command -v sampletop)\" -p 7";
const SYSCTL: &str = "sudo sysctl kernel.perf_event_paranoid=2";

#[test]
fn machines() {
    let cases = [
        Case {
            name: "root with everything",
            machine: root,
            best: Some(Kind::Bpf),
            exit: 0,
            lacks: "",
            unlocks: None,
            line: "",
        },
        Case {
            name: "a plain user, paranoid 2",
            machine: |_| {},
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF and CAP_PERFMON are missing",
            unlocks: Some(Kind::Bpf),
            line: SETCAP,
        },
        Case {
            name: "the same where files cannot have capabilities",
            machine: |facts| facts.own.nosuid = true,
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: SUDO,
        },
        Case {
            name: "the same where nothing can be gained",
            machine: |facts| facts.own.no_new_privileges = true,
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: "",
        },
        Case {
            name: "a program whose path a shell would split",
            machine: |facts| facts.own.program = "/home/ann/my programs/sampletop".into(),
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: SUDO,
        },
        Case {
            name: "paranoid 3, ptrace permitted",
            machine: |facts| {
                facts.kernel.perf_event_paranoid = Some(3);
                facts.tried.perf = no(libc::EACCES);
            },
            best: Some(Kind::States),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Perf),
            line: SYSCTL,
        },
        Case {
            name: "paranoid 4 and Yama",
            machine: |facts| {
                facts.kernel.perf_event_paranoid = Some(4);
                facts.kernel.yama = Some(1);
                facts.tried.perf = no(libc::EACCES);
                facts.tried.registers = Some(no(libc::EPERM));
            },
            best: Some(Kind::States),
            exit: 4,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::CpuOnly),
            line: SYSCTL,
        },
        Case {
            name: "Yama 1",
            machine: |facts| {
                facts.kernel.yama = Some(1);
                facts.tried.registers = Some(no(libc::EPERM));
            },
            best: Some(Kind::CpuOnly),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: SUDO,
        },
        Case {
            name: "Yama 1, a child of ours: capabilities of the file are still not for getting around Yama",
            machine: |facts| facts.kernel.yama = Some(1),
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: SUDO,
        },
        Case {
            name: "Yama 3, root",
            machine: |facts| {
                root(facts);
                facts.kernel.yama = Some(3);
                facts.tried.registers = Some(no(libc::EPERM));
            },
            best: Some(Kind::CpuOnly),
            exit: 0,
            lacks: "kernel.yama.ptrace_scope is 3",
            unlocks: None,
            line: "",
        },
        Case {
            name: "root, of a process with more capabilities",
            machine: |facts| {
                root(facts);
                facts.kernel.yama = None;
                facts.tried.registers = Some(no(libc::EPERM));
            },
            best: Some(Kind::CpuOnly),
            exit: 0,
            lacks: "the kernel grants no ptrace access to it",
            unlocks: None,
            line: "",
        },
        Case {
            name: "Docker's default",
            machine: docker,
            best: Some(Kind::States),
            exit: 0,
            lacks: "CAP_BPF and CAP_PERFMON are missing",
            unlocks: Some(Kind::Bpf),
            line: "docker run --rm -it --pid=container:4f1c --cap-add=BPF --cap-add=PERFMON --cap-add=SYS_PTRACE",
        },
        Case {
            name: "Docker, not root",
            machine: |facts| {
                docker(facts);
                facts.own.uid = 1000;
                facts.own.effective = CapabilitySet::empty();
            },
            best: Some(Kind::States),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: "docker run",
        },
        Case {
            name: "Docker without ptrace",
            machine: |facts| {
                docker(facts);
                facts.tried.ptrace = no(libc::EPERM);
            },
            best: Some(Kind::States),
            exit: 4,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: "docker run",
        },
        Case {
            name: "a pod",
            machine: |facts| {
                docker(facts);
                facts.place = Place { engine: Engine::Kubernetes, host: "shop-5d".into() };
            },
            best: Some(Kind::States),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: "kubectl debug -it shop-5d --target=CONTAINER --profile=sysadmin",
        },
        Case {
            name: "a rootless container",
            machine: |facts| {
                docker(facts);
                facts.own.effective = CapabilitySet::all();
                facts.own.first_user_namespace = false;
                facts.place = Place { engine: Engine::Podman, host: "4f1c".into() };
            },
            best: Some(Kind::States),
            exit: 0,
            lacks: "capabilities of a user namespace do not count for BPF",
            unlocks: Some(Kind::Bpf),
            line: "sudo \"$(command -v sampletop)\" -p \"$(podman top 4f1c pid hpid | awk '$1 == 7 { print $2 }')\"",
        },
        Case {
            name: "a container of an unknown kind",
            machine: |facts| {
                docker(facts);
                facts.place.engine = Engine::Other;
            },
            best: Some(Kind::States),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: "",
        },
        Case {
            name: "lockdown",
            machine: |facts| {
                root(facts);
                facts.kernel.lockdown = Some("confidentiality".into());
                facts.tried.bpf = no(libc::EPERM);
            },
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "locked down (confidentiality)",
            unlocks: None,
            line: "",
        },
        Case {
            name: "no BTF",
            machine: |facts| {
                root(facts);
                facts.kernel.btf = false;
                facts.tried.bpf = no(libc::ENOENT);
            },
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "no BTF",
            unlocks: None,
            line: "",
        },
        Case {
            name: "an old kernel",
            machine: |facts| {
                root(facts);
                facts.kernel.version = (5, 10);
                facts.tried.bpf = no(libc::EINVAL);
            },
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "this is Linux 5.10",
            unlocks: None,
            line: "",
        },
        Case {
            name: "a program with capabilities",
            machine: |facts| {
                facts.own.effective = CapabilitySet::BPF | CapabilitySet::PERFMON;
                facts.own.permitted = facts.own.effective;
                facts.tried.bpf = Trial::Works;
            },
            best: Some(Kind::Bpf),
            exit: 0,
            lacks: "",
            unlocks: None,
            line: "",
        },
        Case {
            name: "half of the capabilities",
            machine: |facts| facts.own.effective = CapabilitySet::PERFMON,
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF is missing",
            unlocks: Some(Kind::Bpf),
            line: SETCAP,
        },
        Case {
            name: "another user's process",
            machine: |facts| {
                let target = facts.target.as_mut().expect("a target");
                (target.uid, target.refused) = (0, Some("it belongs to user root".into()));
                facts.tried.registers = None;
            },
            best: None,
            exit: 4,
            lacks: "it belongs to user root",
            unlocks: Some(Kind::Bpf),
            line: SUDO,
        },
        Case {
            name: "a unit whose capabilities are cut",
            machine: |facts| {
                root(facts);
                facts.own.effective = CapabilitySet::CHOWN;
                facts.own.bounding = CapabilitySet::CHOWN;
                facts.tried.bpf = no(libc::EPERM);
            },
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF and CAP_PERFMON are missing",
            unlocks: Some(Kind::Bpf),
            line: "",
        },
        Case {
            name: "a kernel without perf events",
            machine: |facts| {
                facts.tried.perf = no(libc::ENOSYS);
            },
            best: Some(Kind::States),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Ptrace),
            line: "sampletop --capture ptrace -p 7",
        },
        Case {
            name: "no target, a plain user",
            machine: |facts| {
                facts.target = None;
                facts.tried.registers = None;
            },
            best: Some(Kind::Perf),
            exit: 0,
            lacks: "CAP_BPF",
            unlocks: Some(Kind::Bpf),
            line: SETCAP,
        },
    ];
    for case in cases {
        let mut facts = plain();
        (case.machine)(&mut facts);
        let verdict = judge(&facts);
        let name = case.name;
        assert_eq!(
            (verdict.best, verdict.exit_code().number()),
            (case.best, case.exit),
            "{name}: {verdict:?}"
        );
        let lacks =
            verdict.backends.iter().find_map(|backend| backend.lacks.clone()).unwrap_or_default();
        assert!(
            lacks.contains(case.lacks) && lacks.is_empty() == case.lacks.is_empty(),
            "{name}: {lacks}"
        );
        assert_eq!(
            verdict.change.as_ref().and_then(|change| change.unlocks),
            case.unlocks,
            "{name}: {verdict:?}"
        );
        let line =
            verdict.change.as_ref().and_then(|change| change.line.clone()).unwrap_or_default();
        assert!(
            line.contains(case.line) && line.is_empty() == case.line.is_empty(),
            "{name}: {line}"
        );
        // All text fits the page, except the line to paste.
        let text = crate::doctor::report::text(&facts, &verdict);
        let long = text.lines().find(|found| found.len() > 100 && !found.ends_with(&line));
        assert_eq!(long, None, "{name}");
        let json: serde_json::Value =
            serde_json::from_str(&crate::doctor::report::json(&facts, &verdict)).expect("json");
        assert_eq!(json["schema"], "sampletop-doctor/1");
        assert_eq!(json["change"]["line"].as_str().unwrap_or_default(), line, "{name}");
    }
}

/// A working backend is never reported as lacking, and a refused one never as working, whatever the
/// other facts are.
#[test]
fn what_was_tried_decides() {
    for bits in 0..256_u32 {
        let bit = |at: u32| bits >> at & 1 == 1;
        let trial = |works: bool| if works { Trial::Works } else { no(libc::EPERM) };
        let mut facts = plain();
        facts.tried.bpf = trial(bit(0));
        facts.tried.perf = trial(bit(1));
        facts.tried.registers = Some(trial(bit(2)));
        facts.tried.ptrace = trial(bit(3));
        facts.kernel.btf = bit(4);
        facts.kernel.perf_event_paranoid = Some(if bit(5) { 4 } else { -1 });
        facts.own.uid = if bit(6) { 0 } else { 1000 };
        facts.own.seccomp = if bit(7) { Seccomp::Filter } else { Seccomp::Off };
        let verdict = judge(&facts);
        let works = |kind| {
            verdict
                .backends
                .iter()
                .any(|backend| backend.backend == kind && backend.lacks.is_none())
        };
        assert_eq!(works(Kind::Bpf), bit(0) && bit(2), "{facts:?}");
        assert_eq!(works(Kind::Perf), bit(1) && bit(2), "{facts:?}");
        assert_eq!(works(Kind::CpuOnly), bit(1), "{facts:?}");
        assert_eq!(works(Kind::Ptrace), bit(2) && bit(3), "{facts:?}");
        assert!(works(Kind::States));
        assert_eq!(verdict.change.is_none(), works(Kind::Bpf), "{verdict:?}");
    }
}
