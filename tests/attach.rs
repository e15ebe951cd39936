//! Which processes may be profiled, by which user. Needs root: the tests act as other users.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::{Running, build};
use sampletop::model::vocabulary::frame::Marker;
use sampletop::process::mapped_files::{FileKind, Files};
use sampletop::process::maps::Maps;
use sampletop::process::memory::Memory;
use sampletop::process::target::{AttachError, Target};
use sampletop::process::target_files::open_mapped;
use sampletop::unwinder::framehop::FramehopUnwinder;
use sampletop::unwinder::{Registers, StackBytes, Unwinder};

const NOBODY: u32 = 65534;

struct Sleeper(Child);

impl Sleeper {
    fn of(uid: u32) -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg("1000").stdout(Stdio::null()).uid(uid).gid(uid);
        let sleeper =
            Sleeper(command.spawn().expect("sleep, and root to change users, are needed"));
        // The exec is done when the name is the new program's; until then it is a copy of this one.
        while !std::fs::read_to_string(format!("/proc/{}/comm", sleeper.pid()))
            .unwrap()
            .starts_with("sleep")
        {
            std::thread::yield_now();
        }
        sleeper
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `ask` on a thread with these real and effective user and group ids (Linux keeps them per
/// thread; only the C library changes them for all threads). `keep`: the capabilities remain, as
/// those of a program installed with setcap.
fn as_user<T: Send>(real: u32, effective: u32, keep: bool, ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: system calls with plain numbers, on this thread alone, which ends with `ask`.
            unsafe {
                if keep {
                    assert_eq!(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
                }
                assert_eq!(
                    libc::syscall(libc::SYS_setresgid, real, effective, effective),
                    0,
                    "needs root"
                );
                assert_eq!(
                    libc::syscall(libc::SYS_setresuid, real, effective, effective),
                    0,
                    "needs root"
                );
            }
            if keep {
                let sets = rustix::thread::capabilities(None).unwrap();
                let sets = rustix::thread::CapabilitySets { effective: sets.permitted, ..sets };
                rustix::thread::set_capabilities(None, sets).unwrap();
            }
            ask()
        });
        thread.join().unwrap()
    })
}

#[test]
fn another_users_process_is_refused_even_with_capabilities() {
    let (roots, nobodys) = (Sleeper::of(0), Sleeper::of(NOBODY));
    for keep in [false, true] {
        let error = as_user(NOBODY, NOBODY, keep, || Target::attach(roots.pid())).unwrap_err();
        assert_eq!(error.exit_code().number(), 4, "{error}");
        let text = error.to_string();
        assert!(text.contains("belongs to user root") && text.contains("sudo"), "{text}");
        let own = as_user(NOBODY, NOBODY, keep, || Target::attach(nobodys.pid()));
        assert_eq!(own.unwrap().uid(), NOBODY);
    }
    assert!(Target::attach(nobodys.pid()).is_ok(), "root may observe every user's");
}

#[test]
fn a_setuid_sampletop_refuses() {
    let nobodys = Sleeper::of(NOBODY);
    let error = as_user(NOBODY, 0, false, || Target::attach(nobodys.pid())).unwrap_err();
    assert_eq!(error.exit_code().number(), 4);
    assert!(error.to_string().contains("setuid"), "{error}");
}

#[test]
fn a_32_bit_process_cannot_be_profiled() {
    let flags =
        ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-stack-protector", "-O1"];
    // Without the libraries that the common builder adds: there are none for 32 bits.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/uw_32bit.c");
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("uw_32bit-{}", std::process::id()));
    let built = Command::new("cc").args(flags).arg(root).arg("-o").arg(&program).status();
    assert!(built.expect("cc is needed").success());
    let running = Running::start(&program, &[]);
    let error = Target::attach(running.pid()).unwrap_err();
    assert_eq!(error.exit_code().number(), 5, "{error}");
    assert!(error.to_string().contains("32-bit"), "{error}");
}

#[test]
fn a_thread_is_named_as_one() {
    let program = build("uw_orphan.c", "thread", &["-O2"]);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    let ids = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let tid = ids
        .map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .find(|tid| *tid != pid)
        .unwrap();
    assert_eq!(Target::attach(tid).unwrap_err(), AttachError::ThreadOf { tid, pid });
}

#[test]
fn a_deleted_program_is_read_all_the_same() {
    let program = build("uw_orphan.c", "deleted", &["-O2"]);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    std::fs::remove_file(&program).unwrap();
    // Another file takes the program's path.
    std::fs::write(&program, b"not the program").unwrap();
    Target::attach(pid).unwrap();
    let maps = Maps::read(pid).unwrap();
    let mapping = maps
        .iter()
        .find(|m| m.executable && m.path.as_ref() == program)
        .expect("without ` (deleted)`");
    assert!(mapping.deleted);
    let file = mapping.mapped_file(pid);
    assert_eq!(file.kind, FileKind::Regular);
    let mut magic = [0; 4];
    std::io::Read::read_exact(
        &mut open_mapped(&file).expect("root may follow map_files"),
        &mut magic,
    )
    .unwrap();
    assert_eq!(&magic, b"\x7fELF");
    // Its unwind tables come from its memory.
    let entry = mapping.start + 0x10;
    let sp = maps
        .iter()
        .find(|m| m.readable && m.writable && m.path.as_os_str() == "[stack]")
        .unwrap()
        .end
        - 64;
    let mut unwinder = FramehopUnwinder::new(Memory::new(pid), Files::default(), pid);
    let mut out = Vec::new();
    let registers = Registers { rip: entry, rsp: sp, rbp: Some(0), ..Registers::default() };
    let walk = unwinder.walk(&registers, StackBytes { base: sp, bytes: &[0; 64] }, &mut out);
    assert_ne!(walk.end, Some(Marker::OutsideMaps));
}

#[test]
fn a_kernel_thread_cannot_be_profiled() {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut pids = processes.filter_map(|e| e.unwrap().file_name().to_str()?.parse::<u32>().ok());
    // Kernel threads have no program, and no memory to map.
    let kernel = pids.find(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("\nKthread:\t1\n")
    });
    let Some(pid) = kernel else {
        return common::skipped(
            "kernel threads",
            "none is visible here (a pid namespace, or Linux before 6.8)",
        );
    };
    let error = Target::attach(pid).unwrap_err();
    assert_eq!(error.exit_code().number(), 5, "{error}");
    assert!(error.to_string().contains("kernel thread"), "{error}");
}
