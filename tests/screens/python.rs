//! A Python service: a pool of request threads, an event loop, workers that wait for work.

use super::fixture::{Does, Doing, EPOLL_WAIT, FUTEX, NANOSLEEP, PID, RECVFROM, Script};
use super::*;

const THREAD: &str = "clone3;start_thread;~thread_run;~method_vectorcall;py!threading!Thread._bootstrap:1032;\
                      py!threading!Thread._bootstrap_inner:1075;py!threading!Thread.run:1012";
const REQUEST: &str = "py!concurrent.futures.thread!_worker:92;py!concurrent.futures.thread!_WorkItem.run:58;\
                       py!shop.server!Server.serve:181;~slot_tp_init;py!http.server!BaseHTTPRequestHandler.handle:436";
const MAIN: &str = "__libc_start_main_impl;~Py_BytesMain;~_PyRun_SimpleFileObject;~PyEval_EvalCode";
const LOCK: &str =
    "~method_vectorcall;~lock_PyThread_acquire_lock;~PyThread_acquire_lock_timed;sem_wait";

/// Replaces `~` by the interpreter's file. Leaked: the scripts want static text.
fn stack(parts: &[&str]) -> &'static str {
    parts.join(";").replace('~', "libpython3.12.so.1.0!").leak()
}

fn service() -> World {
    let in_request = |frames: &str| stack(&[THREAD, REQUEST, frames]);
    let search = in_request(
        "py!shop.search!Search.find:41;py!re!compile:228;py!re._compiler!compile:743;~PyDict_GetItem",
    );
    let report = in_request(
        "py!shop.report!Report.page:88;~cfunction_vectorcall;~builtin_sorted;~list_sort;~slot_tp_richcompare;\
         py!shop.report!Report.page.<locals>.<lambda>:88",
    );
    let orders = in_request(
        "py!shop.orders!Orders.lines:64;~cfunction_call;libsqlite3.so.0!sqlite3_step;libsqlite3.so.0!sqlite3VdbeExec",
    );
    let ask = in_request("py!shop.orders!Orders.remote:70;_socket.cpython-312.so!sock_recv;recv");
    let locked = in_request(&format!("py!shop.stock!Stock.reserve:97;{LOCK}"));
    let idle = stack(&[THREAD, "py!concurrent.futures.thread!_worker:90", LOCK]);
    let select = stack(&[
        THREAD,
        "py!shop.prices!Prices.run:120;py!asyncio.runners!run:194;py!asyncio.base_events!BaseEventLoop._run_once:1949;\
         py!selectors!EpollSelector.select:468;select.cpython-312.so!select_epoll_poll;epoll_wait",
    ]);
    let blocked = stack(&[
        THREAD,
        "py!shop.prices!Prices.run:120;py!asyncio.runners!run:194;py!asyncio.base_events!BaseEventLoop._run_once:1987;\
         py!asyncio.events!Handle._run:88;~context_run;py!shop.prices!Prices.audit:133;~time_sleep;sleep",
    ]);
    let main = stack(&[
        MAIN,
        "py!shop.server!<module>:260;py!threading!Event.wait:655;py!threading!Condition.wait:355",
        LOCK,
    ]);
    let waits = |call, stack, wait| Doing::Waits { call, fd: 37, stack, wait };
    let mut scripts = Vec::new();
    let mut add = |name: String, doing: Does| scripts.push(Script { pid: PID, name, doing });
    for n in 0..8u64 {
        let doing = move |tick: u64| match (tick + 3 * n) % 16 {
            0..3 if n < 3 => Doing::Runs(search),
            3..5 if n < 3 => Doing::Runs(report),
            5..7 if n < 3 => Doing::Runs(orders),
            7..11 => waits(FUTEX, locked, 1 + tick / 16),
            11..13 => waits(RECVFROM, ask, 1000 + tick / 16),
            _ => waits(FUTEX, idle, 2000 + tick / 16),
        };
        add(format!("http_{n}"), Box::new(doing));
    }
    let prices = move |tick: u64| match tick % 8 {
        0..2 => waits(NANOSLEEP, blocked, 1 + tick / 8),
        _ => waits(EPOLL_WAIT, select, 1000 + tick / 8),
    };
    add("prices".into(), Box::new(prices));
    add("main".into(), Box::new(move |_| waits(FUTEX, main, 1)));
    World::new(scripts)
}

fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(service().run(40 * SECOND).snapshot())));
    live
}

#[test]
fn the_first_screen_names_the_users_functions() {
    golden("python-80x24.txt", &live(80, 24).screen());
    golden("python-120x40.txt", &live(120, 40).press("E").screen());
    golden("python-methods-80x24.txt", &live(80, 24).press("2").screen());
}

#[test]
fn the_interpreters_own_frames_are_rows_only_if_they_are_wanted() {
    let mut live = live(120, 40);
    golden("python-all-120x40.txt", &live.press("ooE").screen());
    assert!(!live.screen().contains("vectorcall"), "{}", live.screen());
    assert!(live.press("fjjjjj <esc>E").screen().contains("vectorcall"), "{}", live.screen());
    golden("python-no-native-120x40.txt", &live.press("fjjjjj <esc>E").screen());
    for native in ["vectorcall", "sqlite3", "sem_wait", "recv"] {
        let rows: Vec<String> = live.screen().lines().skip(5).map(str::to_owned).collect();
        assert!(rows[..rows.len() - 3].iter().all(|row| !row.contains(native)), "{native}");
    }
}

#[test]
fn rows_are_rolled_up_to_classes_packages_and_modules() {
    golden("python-by-class-80x24.txt", &live(80, 24).press("bb2").screen());
    golden("python-by-package-80x24.txt", &live(80, 24).press("bbb2").screen());
    golden("python-by-module-80x24.txt", &live(80, 24).press("bbbb2").screen());
}
