use super::*;
use crate::formats::fixture::{self, Stack, ran, service, stack, waited};
use crate::model::projection::settings::{Filter, Level, Metric};
use crate::model::projection::{CommonWait, Lock};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::waits_for::WaitsFor;
use proptest::prelude::*;

fn rendered(stacks: &[Stack], settings: &Settings) -> String {
    on_paper(&fixture::snapshot(), &fixture::projection(stacks), settings)
}

fn on_paper(snapshot: &Snapshot, projection: &Projection, settings: &Settings) -> String {
    let mut out = Vec::new();
    render(&Report { snapshot, settings, projection, tree_lines: TREE_LINES }, &mut out)
        .expect("memory takes everything");
    String::from_utf8(out).expect("ASCII is UTF-8")
}

fn chains() -> Settings {
    Settings { level: Level::Chains, ..Settings::default() }
}

/// Returns the lines of one part, without its title.
fn part<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    text.lines()
        .skip_while(|line| !line.starts_with(title))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .collect()
}

/// Returns the tree's names with their indents.
fn names(text: &str) -> Vec<String> {
    let tree = part(text, "TREE");
    let column = tree[0].find("FUNCTION").expect("a head");
    tree[1..]
        .iter()
        .map(|line| line.get(column..).unwrap_or(line).replace("  main.c:7  [app]", ""))
        .collect()
}

#[test]
fn parts_come_in_order() {
    let text = rendered(&service(), &Settings::default());
    let heads = [
        "sampletop pid=42",
        "Shown",
        "TREE",
        "TOP 20",
        "10 LONGEST",
        "STATE       SECONDS",
        "Version",
        "From",
        "LEGEND",
    ];
    let places: Vec<_> = heads.iter().map(|head| text.find(head).expect(head)).collect();
    assert!(places.is_sorted(), "{places:?}\n{text}");
}

#[test]
fn waits_that_were_looked_up_have_a_part() {
    assert!(!rendered(&service(), &Settings::default()).contains("\nWAITS"));
    let mut projection = fixture::projection(&service());
    projection.observed = vec![fixture::observed("orders.wal"); 11];
    let text = on_paper(&fixture::snapshot(), &projection, &Settings::default());
    let part = part(&text, "WAITS");
    let lines = [
        "              6        2 fsync fd 3 orders.wal",
        "                         in commit -> harden",
    ];
    assert_eq!(part[..2], lines);
    assert_eq!((part.len(), part[20]), (21, "  and 1 more"));
}

#[test]
fn locks_that_keep_no_owner_are_listed_and_joins_are_not() {
    let mut projection = fixture::projection(&service());
    projection.locks = vec![Lock { kind: BlockerKind::ThreadEnd, ..Lock::monitor_of_orders() }];
    let locks = |projection: &Projection| {
        let text = on_paper(&fixture::snapshot(), projection, &Settings::default());
        part(&text, "LOCKS").iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert!(locks(&projection).is_empty(), "another thread's end is no lock");
    let lock = WaitsFor { what: "lock", object: "0x10".into(), ..WaitsFor::default() };
    projection.busy.waits = vec![CommonWait {
        kernel_lock: None,
        place: vec![fixture::location("touch").into()],
        by: None,
        state: State::Lock,
        waited_ns: 48 * fixture::MS * 1000,
        locked_ns: 0,
        blocks_event_loop: false,
        longest_ns: 1500 * fixture::MS,
        longest_from: fixture::START,
        threads: 12,
        waiting_now: 0,
        of_goroutines: false,
        group: None,
        name: "worker-1".into(),
        now: Vec::new(),
        observed: vec![(2, lock)],
        node: None,
        bursts: None,
    }];
    let expected = [
        "48.000       12        >1.500  lock 0x10",
        "waits in touch",
        "48.000                         holder not known: the lock does not keep it",
    ];
    assert_eq!(locks(&projection), expected);
    // A lock of which this is known: of some of the waits it was read.
    let place = projection.busy.waits[0].place.clone();
    let known = Lock { waiting_in: vec![(place, 9_000)], ..Lock::monitor_of_orders() };
    projection.locks = vec![Lock { waited_ns: 9 * fixture::MS * 1000, ..known.clone() }];
    let all = "48.000                         waited there in all: not each wait's lock is read";
    assert!(locks(&projection).contains(&all.to_owned()), "{:?}", locks(&projection));
    projection.locks = vec![Lock { waited_ns: 44 * fixture::MS * 1000, ..known }];
    assert!(!locks(&projection).contains(&all.to_owned()), "nearly all");
    projection.locks.clear();
    // It began while it was watched.
    projection.busy.waits[0].longest_from += 1_000_000_000;
    assert!(locks(&projection)[0].contains("  1.500  "));
    projection.busy.waits[0].locked_ns = 24 * fixture::MS * 1000;
    assert!(locks(&projection).is_empty(), "it is known for most of the time");
}

#[test]
fn the_first_line_says_it_all() {
    let text = rendered(&service(), &Settings::default());
    let first =
        "sampletop pid=42 host=node7 s=10.0 thr=1.00 cpu=0.30 lost=7 wall_self=60.0% top=query";
    assert_eq!(text.lines().next(), Some(first));
    let quoted = rendered(&[stack("g", &["operator \"x\" = y"], ran(10, 1))], &Settings::default());
    assert!(
        quoted.lines().next().expect("a line").ends_with(r#"top="operator 'x' = y""#),
        "{quoted}"
    );
}

#[test]
fn the_tree_collapses_and_indents_only_at_forks() {
    let text = rendered(&service(), &chains());
    let expected = [
        "worker-  (1 thread)",
        "  start -> run",
        "    checkout",
        "      query",
        "      price",
        "      > round",
        "    audit -> lock",
        "    and 1 group of threads under 1 %",
    ];
    let names = names(&text);
    let seen: Vec<&str> = names.iter().map(|n| n.as_str()).collect();
    assert_eq!(seen[..7], expected[..7], "{text}");
    assert!(seen[7].ends_with("1 group of threads under 1 %"), "{text}");
}

#[test]
fn the_least_share_can_be_chosen() {
    let mut settings = chains();
    settings.filters.min_percent = Filter::set(0.1);
    let all = names(&rendered(&service(), &settings));
    assert!(
        all.iter().any(|n| n.trim() == "tax") && all.iter().any(|n| n.contains("accept")),
        "{all:?}"
    );
    settings.filters.min_percent = Filter::set(50.0);
    assert_eq!(names(&rendered(&service(), &settings))[3].trim(), "> query");
}

#[test]
fn of_many_small_groups_the_largest_are_drawn() {
    let of = |name: &str, ms| stack(name, &["serve", "parse"], ran(ms, 100));
    let mut stacks: Vec<Stack> = (0..143).map(|nth| of(&format!("g{nth:03}"), 100 + nth)).collect();
    let text = rendered(&stacks, &chains());
    let tree = names(&text);
    let expected: Vec<String> = (133..143)
        .rev()
        .flat_map(|nth| [format!("g{nth}  (1 thread)"), "  serve -> parse".to_owned()])
        .collect();
    assert_eq!(tree[..20], expected[..], "{text}");
    assert!(tree[20].ends_with("and 133 groups of threads under 1 %"), "{text}");
    // One group with most of the time is enough, and so is the share that was asked for.
    stacks.push(of("main", 100_000));
    assert_eq!(names(&rendered(&stacks, &chains())).len(), 3);
    let mut settings = chains();
    settings.filters.min_percent = Filter::set(90.0);
    assert_eq!(names(&rendered(&stacks, &settings)).len(), 1);
}

#[test]
fn the_metric_weighs_the_rows() {
    let by = |metric| {
        let settings = Settings { metric, ..Settings::default() };
        let text = rendered(&service(), &settings);
        let top = part(&text, "TOP 20")[1].split_whitespace().map(String::from).collect::<Vec<_>>();
        (top[0].clone(), top[7].clone())
    };
    assert_eq!(by(Metric::Wall), ("60.0".into(), "query".into()));
    assert_eq!(by(Metric::Cpu), ("84.5".into(), "round".into()));
    assert_eq!(by(Metric::Off), ("85.2".into(), "query".into()));
}

#[test]
fn what_settings_hide_is_told() {
    let mut projection = fixture::projection(&service());
    projection.hidden.idle = waited(State::Poll, 70_000, 7, 0);
    projection.hidden.idle_threads = 7;
    projection.hidden.focus = ran(1250, 1);
    projection.hidden.threads = ran(250, 1);
    projection.hidden.gil = ran(500, 1);
    let mut settings = Settings::default();
    let pattern = |p| Filter::set(regex::Regex::new(p).expect("a pattern"));
    settings.filters.focus = pattern("db::");
    settings.filters.threads = pattern("^w");
    settings.filters.gil = true;
    settings.filters.ignore = Filter { on: false, ..pattern("switched-off") };
    let text = on_paper(&fixture::snapshot(), &projection, &settings);
    for line in [
        "Idle         hides 70.000 s, 0.000 s CPU; 7 threads did nothing but wait for work",
        "Threads      /^w/ hides 0.250 s, 0.250 s CPU",
        "Focus        /db::/ hides 1.250 s, 1.250 s CPU",
        "GIL          hides 0.500 s, 0.500 s CPU: shows stacks of threads that hold it",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("switched-off"));
    projection.only_idle = true;
    assert!(
        on_paper(&fixture::snapshot(), &projection, &settings)
            .contains("shown, because there is nothing else")
    );
}

#[test]
fn time_without_a_frame_has_a_row() {
    let text = rendered(
        &[stack("g", &["a"], ran(500, 50)), stack("g", &[], ran(500, 50))],
        &Settings::default(),
    );
    assert!(
        part(&text, "TREE")
            .iter()
            .any(|l| l.contains("   50.0    50.0") && l.ends_with("[every frame hidden]")),
        "{text}"
    );
}

#[test]
fn an_empty_profile_is_a_report_too() {
    let text = rendered(&[], &Settings::default());
    assert!(text.lines().next().expect("a line").ends_with("lost=7"));
    assert_eq!(part(&text, "10 LONGEST")[1], "  none");
}

#[test]
fn twenty_rows_ten_waits_and_no_endless_tree() {
    let mut stacks: Vec<Stack> = (0..50)
        .map(|i| stack("g", &[&format!("f{i:02}")], waited(State::Io, 100 + i, 20, 10 + i)))
        .collect();
    let text = rendered(&stacks, &Settings::default());
    assert_eq!(part(&text, "TOP 20").len(), 1 + 20 + 1);
    assert_eq!(part(&text, "TOP 20")[21], "  and 30 more");
    let waits = part(&text, "10 LONGEST");
    assert_eq!(waits.len(), 11);
    assert!(waits[1].contains("0.059") && waits[10].contains("0.050"), "{text}");

    // Every frame of a chain has own time and so its own line: beyond 400 lines the tree ends with
    // a remark.
    let deep: Vec<String> = (0..1000).map(|i| format!("f{i}")).collect();
    let mut settings = Settings::default();
    settings.filters.min_percent = Filter::set(0.0);
    stacks = (1..=1000)
        .map(|n| Stack {
            group: "g".into(),
            frames: deep[..n].to_vec(),
            own: ran(if n > 900 { 10 } else { 0 }, 1),
        })
        .collect();
    stacks.retain(|s| s.own.wall_ns > 0);
    let tree_lines = part(&rendered(&stacks, &settings), "TREE").len();
    assert!(tree_lines < 420, "{tree_lines}");
}

/// Names of any kind, many of them long, and figures of any size.
fn hostile() -> impl Strategy<Value = Vec<Stack>> {
    let name = prop_oneof![
        "\\PC{0,12}",
        ".{0,300}",
        "[a-z:<>]{0,90}",
        "(漢字|é|\u{202e}|\u{1b}\\[2J|\t|;| ){0,60}"
    ];
    let own = (0..u64::MAX / 64, 0..u64::MAX / 64, 0..9_usize, any::<u32>()).prop_map(
        |(wall_ns, cpu_ns, state, hits)| {
            let mut totals = Totals {
                wall_ns,
                cpu_ns,
                hits: hits.into(),
                longest_ns: wall_ns,
                ..Totals::default()
            };
            totals.longest_from = cpu_ns;
            totals.states_ns[state] = wall_ns;
            totals
        },
    );
    let stack = (name.clone(), proptest::collection::vec(name, 0..12), own)
        .prop_map(|(group, frames, own)| Stack { group, frames, own });
    proptest::collection::vec(stack, 0..24)
}

proptest! {
    #[test]
    fn every_line_is_ascii_and_fits(stacks in hostile(), command in ".{0,999}", window in 1..u64::MAX, metric in 0..3_usize) {
        let mut snapshot = fixture::snapshot();
        let mut target = fixture::target();
        target.command = command.as_str().into();
        target.unit = Some(command.as_str().into());
        snapshot.targets = [target].into();
        snapshot.notice = Some(command.as_str().into());
        snapshot.capture = command.as_str().into();
        let mut session = fixture::session();
        session.host = command.clone();
        session.kernel = command.clone();
        snapshot.session = session.into();
        let mut settings = Settings { metric: Metric::ALL[metric], ..Settings::default() };
        settings.range = crate::model::projection::settings::Range::Rolling(window);
        settings.filters.interesting = Filter::set(vec![command.clone(), "x".into()]);
        settings.filters.focus = Filter::set(regex::Regex::new(&regex::escape(&command)).expect("escaped"));
        settings.rename = vec![crate::model::projection::settings::Rename {
            pattern: regex::Regex::new("a").expect("a pattern"),
            text: command.clone(),
        }];
        let text = on_paper(&snapshot, &fixture::projection(&stacks), &settings);
        for line in text.lines() {
            prop_assert!(line.len() <= 100, "{} columns: {}", line.len(), line);
            prop_assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{:?}", line);
            prop_assert!(!line.ends_with(' '));
        }
        prop_assert!(text.ends_with('\n'));
    }
}

#[test]
fn a_module_is_said_once() {
    let said = |function: &str, module: &str| {
        let module = module.into();
        place(
            &Location {
                module,
                function: function.into(),
                file: None,
                line: None,
                ..fixture::location("x")
            },
            60,
        )
    };
    assert_eq!(said("serve", "/usr/bin/app"), "serve  [app]");
    assert_eq!(said("java.net.Socket.accept", "java.net.Socket"), "java.net.Socket.accept");
    assert_eq!(
        said("java.net.SocketImpl", "java.net.Socket"),
        "java.net.SocketImpl  [java.net.Socket]"
    );
    assert_eq!(said("libc.so.6", "/usr/lib/libc.so.6"), "libc.so.6");
    assert_eq!(said("call_stub", "[jvm]"), "call_stub  [jvm]");
}

#[test]
fn dates_follow_the_sessions_clocks() {
    let text = rendered(&service(), &Settings::default());
    assert!(text.contains("From         2026-01-02 03:04:05.123 UTC\n"), "{text}");
    assert!(text.contains("2026-01-02 03:04:15.123 UTC, 10.000 s\n"));
    // The longest wait began 1.5 s after the start.
    assert!(part(&text, "10 LONGEST")[1].contains("2.000  2026-01-02 03:04:06.623  io "), "{text}");
}

#[test]
fn wakers_of_the_threads_that_were_woken_most() {
    use crate::model::vocabulary::wakeup::{Cost, Pair, Waker, Wakeups, Woken};
    let waker = |pid, call| Waker::Thread {
        pid,
        tid: pid + 1,
        name: "poller".into(),
        process: "redis-server".into(),
        call,
    };
    let pair = |tid, waker, count| Pair { waker, woken: Woken { pid: 42, tid }, count };
    let mut pairs = vec![
        pair(43, waker(812, 44), 900),
        pair(43, waker(42, 202), 90),
        pair(43, Waker::Interrupt, 9),
        pair(43, Waker::Hidden { call: 1 }, 1),
    ];
    pairs.extend((0..11).map(|nth| pair(100 + nth, Waker::Interrupt, 5)));
    let wakeups = Wakeups {
        from: 0,
        duration_ns: 10 * 1_000_000_000,
        pairs,
        lost: 2,
        seen: 5_000,
        cost: Cost::Measured(1_200_000),
    };
    let snapshot = Snapshot { wakeups: Some(wakeups.into()), ..fixture::snapshot() };
    let text = on_paper(&snapshot, &fixture::projection(&service()), &Settings::default());
    let lines = part(&text, "WAKERS  WAKEUPS");
    assert_eq!(
        lines[..7],
        [
            "  1055 wakeups counted in 10.0 s, 2 lost; 1.2 ms CPU, for 5000 of the host",
            "           1000  (exited)[43]",
            "                 woken by redis-server[812] (send) 900 times",
            "                 woken by poller[43] (futex) 90 times",
            "                 woken by an interrupt (a timer or a device) 9 times",
            "                 and one more waker",
            "              5  (exited)[100]",
        ]
    );
    assert_eq!(lines.last(), Some(&"  and 2 more threads"));
    assert!(!rendered(&service(), &Settings::default()).contains("WAKERS"));
}
