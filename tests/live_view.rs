//! The live view as a user runs it: the real program on a pseudo terminal, profiling the built-in
//! workload.

mod common;
#[path = "common/pty.rs"]
mod pty;

use common::{Running, build};
use pty::Session;
use sampletop::config::Format;
use sampletop::formats;
use sampletop::model::projection::settings::{Range, Settings};

fn demo(args: &[&str], rows: u16, columns: u16) -> (Session, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut all = vec!["demo"];
    all.extend(args);
    (Session::start(&all, rows, columns, dir.path()), dir)
}

fn assert_given_back(session: &Session) {
    assert!(!session.on_alternate_screen(), "the alternate screen was left");
    assert!(!session.cursor_hidden(), "the cursor is back");
}

#[test]
fn the_demo_shows_its_threads_and_functions() {
    let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
    let screen = session.wait_for("a tree", |s| s.contains("mixed-") && s.contains("method_500ms"));
    assert!(screen.contains("LIVE"), "{screen}");
    assert!(session.on_alternate_screen());
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    assert_given_back(&session);
}

#[test]
fn colours_that_were_asked_for_are_written_whatever_the_environment_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = |args: &[&str]| {
        let args = [&["demo", "--workload", "mixed"], args].concat();
        let mut session = Session::start_with(&[("NO_COLOR", "1")], &args, 24, 80, dir.path());
        session.wait_for("a tree", |s| s.contains("method_500ms"));
        session.press("q");
        assert_eq!(session.wait_end(), 0);
        String::from_utf8_lossy(&session.raw).into_owned()
    };
    let raw = start(&["--color", "256"]);
    assert!(raw.contains("\u{1b}[38;5;"), "{raw:?}");
    // This sequence ends bold and reversed letters too.
    assert!(!raw.contains("\u{1b}[;m"), "{raw:?}");
    let raw = start(&[]);
    assert!(!raw.contains("\u{1b}[38;5;") && !raw.contains("\u{1b}[;m"), "{raw:?}");
}

#[test]
fn freeze_and_go_on() {
    let (mut session, _dir) = demo(&["--workload", "mixed"], 30, 120);
    session.wait_for("a tree", |s| s.contains("method_500ms"));
    session.press(" ");
    session.wait_for("FROZEN", |s| s.contains("FROZEN"));
    session.press(" ");
    session.wait_for("LIVE", |s| s.contains("LIVE"));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
}

#[test]
fn every_view_and_setting_key_leaves_it_running() {
    let (mut session, _dir) = demo(&[], 24, 80);
    session.wait_for("a tree", |s| s.contains("mixed-"));
    for keys in [
        "2", "1", "\t", "\t", "m", "m", "m", "b", "b", "t", "t", "t", "t", "t", "E", "C", "i", "i",
        "r", "r", "o", "c", "0", "0",
    ] {
        session.press(keys);
    }
    session.press("?");
    session.wait_for("help", |s| s.contains("one row up"));
    session.press("\u{1b}");
    session.wait_for("the view", |s| s.contains("LIVE"));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    assert_given_back(&session);
}

#[test]
fn an_arrow_key_torn_apart_presses_nothing_else() {
    let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
    session.wait_for("a tree", |s| s.contains("mixed-"));
    for _ in 0..3 {
        for byte in ["\u{1b}", "[", "D"] {
            session.press(byte);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    // `d` and `D` would have opened the interval prompt; the view still obeys plain keys.
    session.press(" ");
    session.wait_for("FROZEN", |s| s.contains("FROZEN"));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    for signal in
        [rustix::process::Signal::TERM, rustix::process::Signal::HUP, rustix::process::Signal::INT]
    {
        let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
        session.wait_for("a tree", |s| s.contains("mixed-"));
        let pid = rustix::process::Pid::from_raw(session.child.process_id().expect("a pid") as i32)
            .expect("a pid");
        rustix::process::kill_process(pid, signal).expect("our own child");
        assert_eq!(session.wait_end(), 0, "{signal:?}");
        assert_given_back(&session);
    }
}

/// The first signal ends it, too: the standard library's handler treats SIGSEGV and SIGBUS as
/// faults that will recur.
#[test]
fn a_fatal_signal_from_outside_ends_it_and_gives_the_terminal_back() {
    use rustix::process::Signal;
    for (signal, name) in
        [(Signal::SEGV, "Segmentation fault"), (Signal::BUS, "Bus error"), (Signal::QUIT, "Quit")]
    {
        let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
        session.wait_for("a tree", |s| s.contains("mixed-"));
        let pid = session.child.process_id().expect("a pid");
        session.signal(pid, signal);
        assert_eq!(session.wait_status().signal(), Some(name));
        assert_given_back(&session);
    }
}

/// Without a screen the terminal sends SIGQUIT for Ctrl-\, as the kernel's own signal.
#[test]
fn quitting_a_recording_by_its_key_ends_it() {
    let (mut session, _dir) = demo(&["--once", "--duration", "1h"], 24, 80);
    let pid = session.child.process_id().expect("a pid");
    let catches = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let caught =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask").trim();
        u64::from_str_radix(caught, 16).expect("hex")
            & 1 << (rustix::process::Signal::QUIT.as_raw() - 1)
            != 0
    };
    common::wait_until("it catches SIGQUIT", catches);
    session.press("\u{1c}");
    assert_eq!(session.wait_status().signal(), Some("Quit"));
}

/// Acts as a shell does when a job is stopped from outside: its own modes, its own text, and later
/// `fg`.
#[test]
fn a_stop_from_outside_and_going_on_gives_the_whole_screen_again() {
    let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
    session.wait_for("a tree", |s| s.contains("method_500ms"));
    let pid = session.child.process_id().expect("it runs");
    session.stop_and_take_the_terminal(pid);
    session.scribble("\x1b[?1049l\x1b[2J\x1b[Hprompt$ ");
    session.signal(pid, rustix::process::Signal::CONT);
    let screen = session.wait_for("the view", |s| s.contains("WHERE") && s.contains("LIVE"));
    assert!(!screen.contains("prompt$"), "{screen}");
    assert!(session.on_alternate_screen());
    // In the modes of a shell a key would wait for the end of its line.
    session.press(" ");
    session.wait_for("FROZEN", |s| s.contains("FROZEN"));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    assert_given_back(&session);
}

#[test]
fn a_lost_connection_ends_it() {
    let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
    session.wait_for("a tree", |s| s.contains("mixed-"));
    session.hang_up();
    session.wait_end();
}

#[test]
fn resizing_at_any_moment_is_survived() {
    let (mut session, _dir) = demo(&[], 24, 80);
    session.wait_for("a tree", |s| s.contains("mixed-"));
    for (rows, columns) in [(5, 20), (1, 1), (60, 200), (10, 40), (24, 80), (3, 300), (24, 80)] {
        session.resize(rows, columns);
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    session.press("\u{c}");
    session.wait_for("the view", |s| s.contains("LIVE"));
    session.press("q");
    assert_eq!(session.wait_end(), 0, "{}", session.screen());
    assert_given_back(&session);
}

#[test]
fn a_key_that_comes_with_a_resize_is_not_left_lying() {
    let (mut session, _dir) = demo(&["--workload", "mixed"], 24, 80);
    session.wait_for("a tree", |s| s.contains("mixed-"));
    for columns in 80..100 {
        for state in ["FROZEN", "LIVE"] {
            session.resize(24, columns);
            session.press(" ");
            session.wait_for(state, |s| s.contains(state));
        }
    }
    session.press("q");
    assert_eq!(session.wait_end(), 0);
}

#[test]
fn export_writes_a_report_and_names_it_again_at_the_end() {
    let (mut session, dir) = demo(&["--workload", "mixed"], 24, 80);
    session.wait_for("a tree", |s| s.contains("method_500ms"));
    session.press("x");
    session.wait_for("the file's name", |s| s.contains("sampletop-") && s.contains(".txt"));
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    let screen = session.screen();
    let files = std::fs::read_dir(dir.path()).expect("the folder").filter_map(Result::ok);
    let mut files: Vec<_> = files.map(|file| file.path()).collect();
    files.sort();
    let [saved, report] = &files[..] else { panic!("{files:?}") };
    for (file, extension) in [(saved, "sampletop"), (report, "txt")] {
        assert_eq!(file.extension().and_then(|e| e.to_str()), Some(extension));
        let name = file.file_name().expect("a file").to_str().expect("text");
        assert!(screen.replace('\n', "").contains(name), "{screen}");
    }
    let report = std::fs::read_to_string(report).expect("the report");
    assert!(report.contains("method_500ms"), "{report}");
    let opened = sampletop::formats::saved::read(&std::fs::read(saved).expect("the profile"))
        .expect("it opens");
    assert_eq!(opened.lost, None);
    let settings = Settings { range: Range::Cumulative { since: None }, ..opened.settings };
    let mut folded = Vec::new();
    formats::write(Format::Folded, &opened.snapshot, &settings, &mut folded)
        .expect("memory takes it");
    assert!(String::from_utf8_lossy(&folded).contains("method_500ms"));
}

#[test]
fn the_result_stays_when_the_command_ends() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut session =
        Session::start(&["--", "sh", "-c", "echo hello; sleep 0.7; exit 3"], 24, 80, dir.path());
    let screen = session.wait_for("EXITED", |s| s.contains("EXITED"));
    let pid = screen.split_whitespace().nth(1).expect("the header: sh PID").to_owned();
    session.press("q");
    assert_eq!(session.wait_end(), 3, "the command's own status");
    assert_given_back(&session);
    let is_output = |entry: &std::fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with("sampletop-output-")
    };
    let output =
        std::fs::read_dir(dir.path()).expect("the folder").filter_map(Result::ok).find(is_output);
    let output = output.expect("a file");
    assert_eq!(std::fs::read_to_string(output.path()).expect("its output"), "hello\n");
    assert_eq!(output.file_name().to_string_lossy(), format!("sampletop-output-{pid}.txt"));
    assert!(
        session.screen().replace('\n', "").contains(&format!("sampletop-output-{pid}.txt")),
        "{}",
        session.screen()
    );
}

/// From waiting for the first to waiting for the next, and on.
#[test]
fn a_name_is_waited_for_and_taken_up_again() {
    let program = build("family.c", "live", &["-O1", "-g"]);
    let name = program.file_name().expect("a name").to_str().expect("text").to_owned();
    let dir = tempfile::tempdir().expect("a folder");
    let mut session = Session::start(&["--name", &name, "--group", "process"], 24, 120, dir.path());
    session
        .wait_for("the waiting", |s| s.contains(&format!("waiting for a process called {name}")));
    let first = Running::start(&program, &["spin", "red"]);
    let pid = format!("{} ", first.pid());
    session.wait_for("its tree", |s| {
        s.contains("LIVE") && s.contains("1 process: ") && s.contains(&pid)
    });
    drop(first);
    session.wait_for("its end, and what it did", |s| {
        s.contains("WAITING") && s.contains("no process: ") && s.contains(&pid)
    });
    let (second, third) =
        (Running::start(&program, &["spin", "blue"]), Running::start(&program, &["spin", "red"]));
    let pids = [second.pid(), third.pid()].map(|pid| format!("{pid} "));
    session.wait_for("the next, and what was before", |s| {
        let all = pids.iter().chain([&pid]).all(|pid| s.contains(pid));
        s.contains("LIVE") && s.contains("2 processes: ") && all
    });
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    assert_given_back(&session);
}
