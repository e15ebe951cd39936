//! The first screen of a service in trouble names the cause, without a key, on 80x24 cells.

mod common;
#[path = "common/pty.rs"]
mod pty;

use common::{Running, build};
use pty::Session;

/// Starts the service and returns its first screen that shows all of `cause`, with `group` in the
/// first row. (Until names are there, threads that wait for work are rows too.)
fn first_screen(incident: &str, group: &str, cause: &[&str]) -> String {
    first_screen_after(incident, group, cause, |_| {})
}

/// Does the same; `before` gets the process's id before it is watched.
fn first_screen_after(
    incident: &str,
    group: &str,
    cause: &[&str],
    before: impl FnOnce(u32),
) -> String {
    let program = build("incidents.cpp", incident, &["-O2", "-g", "-fno-optimize-sibling-calls"]);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = dir.path().join("ledger").display().to_string();
    let target = Running::start(&program, &[incident, &file]);
    before(target.pid());
    let mut session = Session::start(&["-p", &target.pid().to_string()], 24, 80, dir.path());
    let screen = session.wait_for(incident, |screen| {
        let is_first =
            group.is_empty() || rows(screen).first().is_some_and(|row| row.contains(group));
        is_first && cause.iter().all(|word| screen.contains(word))
    });
    session.press("q");
    assert_eq!(session.wait_end(), 0);
    screen
}

/// The rows of the tree, without the line below them.
fn rows(screen: &str) -> Vec<&str> {
    let is_row = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    screen.lines().skip(5).filter(is_row).collect()
}

#[test]
fn a_hot_function_is_above_forty_idle_workers() {
    let screen = first_screen("hot", "web", &["checkout", "Basket::price", "42 idle (i)"]);
    let rows = rows(&screen);
    assert!(rows.iter().all(|row| !row.contains("pool") && !row.contains("cond")), "{screen}");
}

#[test]
fn a_slow_backend_is_named_with_its_call() {
    first_screen("backend", "sync", &["Supplier::ask", "recv", " io ", "8 busy: 8 io"]);
}

#[test]
fn a_wait_for_a_child_is_no_wait_for_work() {
    first_screen("child", "img", &["Picture::shrink", "wait4"]);
}

#[test]
fn one_thread_that_never_ends_is_above_those_that_serve() {
    first_screen("runaway", "conn", &["serve", "Router::parse"]);
}

#[test]
fn threads_that_want_more_cores_say_so() {
    first_screen("cores", "audio", &["play", "Mixer::mix", "rdy", "wait for a core"]);
}

#[test]
fn the_processes_that_use_a_full_host_are_named() {
    let neighbour = build("incidents.cpp", "cores", &["-O2"]);
    // Each has six threads: at least three for each core, beside one of the service.
    let cores = std::thread::available_parallelism().expect("a number").get();
    let count = (cores / 2).max(2);
    let _neighbours: Vec<Running> =
        (0..count).map(|_| Running::start(&neighbour, &["cores", "-"])).collect();
    let host = format!("% busy, mostly with incidents-cores ({count} processes)");
    first_screen("hot", "web", &["waiting for a core", &host]);
}

#[test]
fn a_convoy_is_named_with_the_function_that_wants_the_lock() {
    let said = "20 threads wait for one mutex";
    let held = "held by warmer in ";
    first_screen("convoy", "page", &["Cache::lookup", "lock", "Cache::rebuild", said, held]);
}

#[test]
fn a_pool_that_waits_for_itself_is_no_wait_for_work() {
    first_screen("self", "task", &["print", "Report::total", "4 busy: 4 wait"]);
}

#[test]
fn a_full_queue_is_named_with_who_wants_to_fill_it() {
    first_screen("full", "till", &["Journal::append", "6 busy: 6 wait"]);
}

#[test]
fn time_in_the_allocator_is_named_with_who_allocates() {
    let screen = first_screen("alloc", "codec", &["stream", "Encoder::encode"]);
    assert!(screen.contains("malloc") || screen.contains("free"), "{screen}");
}

#[test]
fn a_lock_of_the_kernel_is_no_disk() {
    let cause = ["Screen::resize", " lock ", "12 window threads wait for mmap_lock (memory map)"];
    first_screen("mmap", "window", &cause);
}

#[test]
fn a_slow_disk_is_named_with_who_writes() {
    first_screen("fsync", "books", &["book", "Ledger::commit", "fsync"]);
}

#[test]
fn a_stopped_service_says_so() {
    let cause = ["all threads are stopped by a signal or a debugger", " stopped "];
    first_screen_after("idle", "", &cause, |pid| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    });
}

#[test]
fn an_idle_service_says_that_there_is_nothing_to_see() {
    let screen =
        first_screen("idle", "", &["nothing to see: 42 threads wait for work (i shows them)"]);
    assert!(rows(&screen).is_empty(), "{screen}");
}
