//! The first screen of a service in trouble names the cause, without a key, on 80x24 cells.

mod common;
#[path = "common/pty.rs"]
mod pty;

use common::{Running, build};
use pty::Session;

/// Starts the service and returns its first screen that shows all of `cause`.
fn first_screen(incident: &str, cause: &[&str]) -> String {
    let program = build("incidents.cpp", incident, &["-O2", "-g", "-fno-optimize-sibling-calls"]);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = dir.path().join("ledger").display().to_string();
    let target = Running::start(&program, &[incident, &file]);
    let mut session = Session::start(&["-p", &target.pid().to_string()], 24, 80, dir.path());
    let screen =
        session.wait_for(incident, |screen| cause.iter().all(|word| screen.contains(word)));
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
    let screen = first_screen("hot", &["checkout", "Basket::price"]);
    let rows = rows(&screen);
    assert!(rows[0].contains("web"), "{screen}");
    assert!(rows.iter().all(|row| !row.contains("pool") && !row.contains("cond")), "{screen}");
}

#[test]
fn a_slow_backend_is_named_with_its_call() {
    let screen = first_screen("backend", &["Supplier::ask", "recv", " io "]);
    assert!(rows(&screen)[0].contains("sync"), "{screen}");
    assert!(screen.contains("8 busy: 8 io"), "{screen}");
}

#[test]
fn a_wait_for_a_child_is_no_wait_for_work() {
    let screen = first_screen("child", &["Picture::shrink", "wait4"]);
    assert!(rows(&screen)[0].contains("img"), "{screen}");
}

#[test]
fn one_thread_that_never_ends_is_above_those_that_serve() {
    let screen = first_screen("runaway", &["serve", "Router::parse"]);
    assert!(rows(&screen)[0].contains("conn"), "{screen}");
}

#[test]
fn threads_that_want_more_cores_say_so() {
    let screen = first_screen("cores", &["play", "Mixer::mix", "rdy"]);
    assert!(rows(&screen)[0].contains("audio"), "{screen}");
    assert!(screen.contains("wait for a core"), "{screen}");
}

#[test]
fn a_convoy_is_named_with_the_function_that_wants_the_lock() {
    let screen = first_screen("convoy", &["Cache::lookup", "mutex", "lock", "Cache::rebuild"]);
    assert!(rows(&screen)[0].contains("page"), "{screen}");
}

#[test]
fn a_pool_that_waits_for_itself_is_no_wait_for_work() {
    let screen = first_screen("self", &["print", "Report::total", " wait"]);
    assert!(rows(&screen)[0].contains("task"), "{screen}");
    assert!(screen.contains("4 busy: 4 wait"), "{screen}");
}

#[test]
fn a_full_queue_is_named_with_who_wants_to_fill_it() {
    let screen = first_screen("full", &["Journal::append", "6 busy: 6 wait"]);
    assert!(rows(&screen)[0].contains("till"), "{screen}");
}

#[test]
fn time_in_the_allocator_is_named_with_who_allocates() {
    let screen = first_screen("alloc", &["stream", "Encoder::encode"]);
    assert!(rows(&screen)[0].contains("codec"), "{screen}");
    assert!(screen.contains("malloc") || screen.contains("free"), "{screen}");
}

#[test]
fn a_slow_disk_is_named_with_who_writes() {
    let screen = first_screen("fsync", &["book", "Ledger::commit", "fsync"]);
    assert!(rows(&screen)[0].contains("books"), "{screen}");
}

#[test]
fn an_idle_service_says_that_there_is_nothing_to_see() {
    let screen = first_screen("idle", &["nothing to see: 42 threads wait for work (i shows them)"]);
    assert!(rows(&screen).is_empty(), "{screen}");
}
