//! Permissions: sampletop with file capabilities (setcap) or with the setuid bit, run by a plain
//! user. The tests are root and act as the other users.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Recording, Running, build, need_root, skipped, wait_until};

const NOBODY: u32 = 65_534;

/// The capabilities that `doctor` proposes, and a set as given by a user who grants too many.
const FEW: &str = "cap_bpf,cap_perfmon=ep";
const MANY: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_override,cap_dac_read_search=ep";

/// A folder that no other user can reach, with a copy of sampletop in it.
struct Installed {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Installed {
    /// Returns `None` if the test cannot run, after reporting that.
    fn with(capabilities: &str) -> Option<Installed> {
        if !need_root("gives a program capabilities and becomes nobody") {
            return None;
        }
        let installed = Installed::plain();
        let output = Command::new("setcap").arg(capabilities).arg(&installed.program).output();
        let output = output.expect("setcap is needed (Debian: libcap2-bin)");
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            skipped(
                std::thread::current().name().unwrap_or("a test"),
                &format!("setcap: {}", words.trim()),
            );
            return None;
        }
        Some(installed)
    }

    fn plain() -> Installed {
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))
            .expect("its mode");
        let program = folder.path().join("sampletop");
        std::fs::copy(env!("CARGO_BIN_EXE_sampletop"), &program).expect("copied");
        Installed { folder, program }
    }

    fn copy(&self, from: &Path, name: &str, mode: u32) -> PathBuf {
        let to = self.folder.path().join(name);
        std::fs::copy(from, &to).expect("copied");
        std::fs::set_permissions(&to, PermissionsExt::from_mode(mode)).expect("its mode");
        to
    }

    /// A folder of this user.
    fn folder_of(&self, uid: u32) -> PathBuf {
        let path = self.folder.path().join(format!("of-{uid}"));
        std::fs::create_dir(&path).expect("a folder");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("its mode");
        chown(&path, Some(uid), Some(uid)).expect("its owner");
        path
    }

    fn as_nobody(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("sampletop starts")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir("/").uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        command
    }
}

fn start_as(uid: u32, program: &Path, args: &[&str]) -> Running {
    let mut command = Command::new(program);
    command
        .args(args)
        .uid(uid)
        .gid(uid)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .current_dir("/");
    let mut child = command.spawn().expect("the target starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    Running { child, lines }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(4), ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn capabilities_show_nobody_another_users_process() {
    for capabilities in [FEW, MANY] {
        let Some(installed) = Installed::with(capabilities) else { return };
        let program = installed.copy(&build("cap_exec.c", "others", &["-O1"]), "target", 0o755);
        let target = start_as(0, &program, &["/none"]);
        let pid = target.pid().to_string();
        for backend in ["auto", "perf", "cpu-only", "states", "ptrace"] {
            let output =
                installed.as_nobody(&["record", "-p", &pid, "-d", "200ms", "--capture", backend]);
            refused(&output, &["belongs to user root", "sudo"]);
        }
        refused(&installed.as_nobody(&["dump", "-p", &pid]), &["belongs to user root"]);
    }
}

#[test]
fn they_show_ones_own_by_the_best_way() {
    let Some(installed) = Installed::with(FEW) else { return };
    let program = installed.copy(&build("cap_exec.c", "own", &["-O1"]), "target", 0o755);
    let target = start_as(NOBODY, &program, &["/none"]);
    let pid = target.pid().to_string();
    let output = installed.as_nobody(&["record", "-p", &pid, "-d", "1s", "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let profile: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(profile["capture"], BEST);
    assert!(text(&output.stdout).contains("\"open_burn\""), "{profile}");
}

/// Of other users' processes at the other end of a socket, a plain user sees what `ps` shows: the
/// name and the number. Without the capabilities there is the address only.
#[test]
fn the_other_end_of_another_users_is_a_name() {
    let Some(installed) = Installed::with(FEW) else { return };
    let program = installed.copy(&build("peers.c", "of others", &["-O1"]), "target", 0o755);
    let sockets = installed.folder_of(NOBODY);
    let mut target = start_as(0, &program, &[sockets.to_str().expect("text"), "nobody"]);
    let lines = target.lines.by_ref().map(|line| line.expect("text"));
    let expected: Vec<[String; 3]> = lines
        .take_while(|line| line != "end")
        .map(|line| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            [(); 3].map(|()| words.next().expect("three words"))
        })
        .collect();
    let plain = Installed::plain();
    let pid = target.pid().to_string();
    for (installed, is_known) in [(&installed, true), (&plain, false)] {
        let output = installed.as_nobody(&["dump", "-p", &pid, "--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let dump: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
        let threads = dump["threads"].as_array().expect("threads");
        for name in ["tcp-waits", "tcp-runs", "unix-path", "pipe-from", "poll-one"] {
            let [.., wait] = expected.iter().find(|[of, ..]| of == name).expect("it is one");
            let (process, rest) = wait.split_once(']').expect("a process");
            let address = rest.split_once(" (").map(|(_, address)| format!(" ({address}"));
            let named = format!("{process}]{}", address.unwrap_or_default());
            let found = threads.iter().find(|thread| thread["name"] == name);
            let found = found.expect("it is in the dump")["waits_for"].as_str().expect("text");
            match is_known {
                true => assert_eq!(found, named),
                false => assert!(!found.contains('['), "{found}"),
            }
        }
    }
}

fn setting(name: &str) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).expect("a setting");
    text.trim().parse().expect("a number")
}

#[test]
fn names_of_the_kernel_take_a_right_of_their_own() {
    // Where perf is open to all users, the addresses are, too.
    let free = setting("perf_event_paranoid") < 2 && setting("kptr_restrict") == 0;
    for (capabilities, named) in [(FEW, free), (WITH_NAMES, setting("kptr_restrict") < 2)] {
        let Some(installed) = Installed::with(capabilities) else { return };
        let program = installed.copy(&build("kernel_calls.c", "names", &["-O1"]), "target", 0o755);
        let target = start_as(NOBODY, &program, &["zero"]);
        let pid = target.pid().to_string();
        let output = installed.as_nobody(&["record", "-p", &pid, "-d", "1s", "--format", "folded"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let folded = text(&output.stdout);
        assert_eq!(
            (folded.contains(";vfs_read_[k]"), folded.contains(";[kernel]_[k]")),
            (named, !named),
            "{folded}"
        );
    }
}

const WITH_NAMES: &str = "cap_bpf,cap_perfmon,cap_syslog=ep";

/// What [`FEW`] permits.
const BEST: &str = "bpf";

#[test]
fn they_do_not_open_a_process_that_has_closed_itself() {
    let Some(installed) = Installed::with(MANY) else { return };
    let program = installed.copy(&build("cap_exec.c", "closed", &["-O1"]), "target", 0o755);
    let target = start_as(NOBODY, &program, &["closed"]);
    let pid = target.pid().to_string();
    refused(
        &installed.as_nobody(&["record", "-p", &pid, "-d", "200ms"]),
        &["closed itself", "sudo"],
    );
}

/// Permission is checked again after an exec: the new program may belong to another user.
#[test]
fn an_exec_into_another_users_rights_ends_the_looking() {
    for capabilities in [FEW, MANY] {
        let Some(installed) = Installed::with(capabilities) else { return };
        let program = build("cap_exec.c", "exec", &["-O1", "-g"]);
        let open = installed.copy(&program, "target", 0o755);
        let setuid = installed.copy(&program, "others", 0o4755);
        let mut target = start_as(NOBODY, &open, &[setuid.to_str().expect("text")]);
        let pid = target.pid().to_string();
        let recording = Recording::start(
            &mut installed
                .command(&["record", "-p", &pid, "--format", "folded", "--metric", "cpu"]),
        );
        recording.until_used(target.pid(), 300);
        target.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
        let file_of = |path: &Path| std::fs::metadata(path).expect("it is there").ino();
        let program = PathBuf::from(format!("/proc/{pid}/exe"));
        wait_until("it is the other program", || file_of(&program) == file_of(&setuid));
        // Time in which it could show what it must not show.
        recording.until_used(target.pid(), 300);
        let output = recording.end();
        let (folded, words) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{words}");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        assert!(status.contains("Uid:\t65534\t0\t0\t0"), "the target is not setuid: {status}");
        assert!(folded.contains("open_burn"), "{folded}");
        assert!(
            !folded.contains("secret_burn") && !folded.contains("others!"),
            "{capabilities}: {folded}"
        );
    }
}

#[test]
fn files_are_written_and_commands_run_with_the_callers_rights() {
    let Some(installed) = Installed::with(MANY) else { return };
    let (own, roots) = (installed.folder_of(NOBODY), installed.folder_of(0));
    let path = |folder: &Path| folder.join("p.txt").to_str().expect("text").to_owned();
    let command = ["--", "cat", "/proc/self/status"];
    let record =
        |file: &str| installed.as_nobody(&[&["record", "-o", file], &command[..]].concat());

    let output = record(&path(&own));
    let (status, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
    }
    let file = std::fs::metadata(path(&own)).expect("the profile");
    assert_eq!((file.uid(), file.mode() & 0o777), (NOBODY, 0o600));

    let output = record(&path(&roots));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&roots).expect("a folder").count(), 0);
}

#[test]
fn the_demo_can_be_looked_at() {
    let Some(installed) = Installed::with(FEW) else { return };
    let output = installed.as_nobody(&["demo", "--once", "-d", "1s", "--workload", "mixed"]);
    let report = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let capture = report.lines().find(|line| line.starts_with("Capture")).expect("a line");
    assert!(capture.ends_with(&format!(" {BEST}")), "{capture}");
    assert!(report.contains("sampletop::demo::mixed::method_"), "{report}");
}

#[test]
fn setuid_sampletop_refuses_to_run() {
    if !need_root("installs a setuid program") {
        return;
    }
    let installed = Installed::plain();
    std::fs::set_permissions(&installed.program, PermissionsExt::from_mode(0o4755))
        .expect("its mode");
    for args in [
        &["demo", "--once", "-d", "200ms"][..],
        &["record", "-p", "1"],
        &["doctor"],
        &["record", "--", "true"],
    ] {
        refused(&installed.as_nobody(args), &["setuid", "chmod ug-s", "sudo"]);
    }
}

#[test]
fn a_doctor_names_what_the_file_was_given() {
    let Some(installed) = Installed::with(FEW) else { return };
    let output = installed.as_nobody(&["doctor", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(
        answer["self"]["capabilities"]["effective"],
        serde_json::json!(["cap_perfmon", "cap_bpf"])
    );
    assert_eq!((&answer["best"], output.status.code()), (&BEST.into(), Some(0)), "{answer}");
}
