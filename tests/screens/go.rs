//! A Go service: threads without names of their own, each with one goroutine after the other.

use super::fixture::{Doing, FUTEX, PID, Script};
use super::*;

const SERVE: &str = "go!runtime.goexit:1771;go!net/http.(*Server).Serve.gowrap3:3454;\
                     go!net/http.(*conn).serve:2102;go!net/http.HandlerFunc.ServeHTTP:2322;";
const THREAD: &str = "go!runtime.mcall:496;go!runtime.park_m:4303;go!runtime.schedule:4135;\
                      go!runtime.findRunnable:3796;go!runtime.stopm:2986;go!runtime.futex:558";
const COLLECTS: &str = "go!runtime.goexit:1771;go!runtime.gcBgMarkStartWorkers.gowrap1:1461;\
                        go!runtime.gcBgMarkWorker:1609;go!runtime.gcDrain:1237";
const CUT: &str = "[torn];go!runtime.systemstack:514;go!runtime.mallocgc.func1:1214";

fn service() -> World {
    // Leaked: the scripts want static text.
    let serves = |rest: &str| &*format!("{SERVE}{rest}").leak();
    let catalog = serves("go!main.(*Store).catalog:45;go!main.rank:34;go!sort.Slice:32");
    let price = serves("go!main.(*Store).one:51;go!main.(*Store).price:28");
    let audit = "go!runtime.goexit:1771;go!main.(*Audit).run:70;go!main.checksum:38";
    let load = "go!runtime.goexit:1771;go!runtime.main:285;go!main.main:65;go!main.load:12";
    let idle = |tick: u64| Doing::Waits { call: FUTEX, fd: 0, stack: THREAD, wait: 1 + tick / 10 };
    let doing = move |n: u64| {
        move |tick: u64| match (tick + 3 * n) % 20 {
            0..8 => Doing::Runs(catalog),
            8..10 => Doing::Runs(price),
            10..12 => Doing::Runs([audit, load, audit][n as usize]),
            12..14 => Doing::Runs(COLLECTS),
            14 => Doing::Runs(CUT),
            15 => Doing::Runs(THREAD),
            _ => idle(tick),
        }
    };
    let script = |n| Script { pid: PID, name: "shopd".into(), doing: Box::new(doing(n)) };
    World::new((0..3).map(script).collect())
}

fn live(width: u16, height: u16) -> Live {
    let mut live = Live::new(width, height, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(service().run(20 * SECOND).snapshot())));
    live
}

#[test]
fn goroutines_are_grouped_by_what_started_them() {
    golden("go-80x24.txt", &live(80, 24).screen());
    golden("go-chains-120x40.txt", &live(120, 40).press("o").screen());
    golden("go-threads-120x40.txt", &live(120, 40).press("5").screen());
    golden("go-timeline-120x40.txt", &live(120, 40).press("6").screen());
    // By name all threads are alike.
    assert!(live(80, 24).press("t").screen().contains("shopd"));
}

/// A service that gives labels to its work, or not.
fn labelled(labels: [&'static str; 2]) -> Live {
    let doing = move |tick: u64| {
        let work = match tick % 8 {
            0..4 => (labels[0], "go!main.(*Store).catalog:45"),
            4..7 => (labels[1], "go!main.(*Store).one:51"),
            _ => ("", "go!main.(*Store).one:51"),
        };
        Doing::Runs(format!("{}{SERVE}{}", work.0, work.1).leak())
    };
    let script = Script { pid: PID, name: "shopd".into(), doing: Box::new(doing) };
    let mut live = Live::new(80, 24, AppConfig::default());
    let snapshot = World::new(vec![script]).run(20 * SECOND).snapshot();
    live.send(Input::Snapshot(Arc::new(snapshot)));
    live
}

#[test]
fn labels_are_groups_but_no_rows() {
    let live = |keys: &str| {
        let catalog = "[labels handler=/catalog, tenant=7];";
        let mut live = labelled([catalog, "[labels handler=/one, tenant=8];"]);
        live.press(keys);
        live
    };
    assert_eq!(live("").screen(), labelled(["", ""]).screen());
    let by_all = live("ttttt").screen();
    for group in ["handler=/catalog, tenant=7", "handler=/one, tenant=8", "(no labels)"] {
        assert!(by_all.contains(group), "{by_all}");
    }
    assert!(by_all.contains("threads grouped by label ") && !by_all.contains("[labels"));
    golden("go-labels-80x24.txt", &live("tttttt").screen());
    let by_tenant = live("ttttttt").screen();
    assert!(by_tenant.contains("threads grouped by label tenant"), "{by_tenant}");
    let none = live("tttttttt").screen();
    assert!(none.contains("threads grouped by none"), "{none}");
    // One key needs no group of its own.
    let mut one = labelled(["[labels tenant=7];", ""]);
    assert!(one.press("ttttt").screen().contains("threads grouped by label "));
    assert!(one.press("t").screen().contains("threads grouped by none"));
    assert!(labelled(["", ""]).press("ttttt").screen().contains("threads grouped by none"));
}

#[test]
fn each_thread_counts_once_for_the_rules_of_names() {
    let screen = live(80, 24).press("T").screen();
    let group = screen.lines().find(|line| line.contains(" shopd ")).expect("a group");
    assert_eq!(group.split_whitespace().find(|word| *word == "3"), Some("3"), "{screen}");
}
