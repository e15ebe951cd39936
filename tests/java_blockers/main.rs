//! What blocked Java threads wait for and who holds it: read from outside, and judged by jstack. It
//! knows objects, classes and owners of locks; the program's own names say who else is waited for.

#[path = "../common/mod.rs"]
mod common;
mod jstack;
mod reader;
#[path = "../java_recorded/recording.rs"]
mod recording;
#[path = "../java_recorded/waits.rs"]
mod waits;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::java::{EVERY_JDK, can_test};
use common::wait_until_all_sleep;
use jstack::{Printed, jstack, shown};
use reader::{Found, OBSERVATIONS, Reader};
use recording::Pieces;
use sampletop::model::vocabulary::blocker::{BlockerKind, RawHolder};
use sampletop::process::maps::Maps;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm;
use waits::{PID, Thread, Wait, Waits};

/// Threads of each kind.
const COPIES: usize = 2;

/// Who holds what a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    Thread(&'static str),
    /// The thread that runs a virtual thread.
    Carrier,
    Raw(RawHolder),
}

/// Returns what threads with this name wait for, and who holds it. `unmounts`: virtual threads
/// leave their carriers while they own a monitor.
fn expected(name: &str, unmounts: bool) -> Option<(BlockerKind, Holder)> {
    let holder = Holder::Thread("holder");
    let unknown = Holder::Raw(RawHolder::Unknown);
    Some(match name {
        "monitor" | "heavy" | "array" | "arrays" | "class" => (BlockerKind::Monitor, holder),
        "again" => (BlockerKind::Monitor, Holder::Thread("holds-again")),
        "notify" | "notify-timed" | "notify-thread" => (BlockerKind::Notify, unknown),
        "join" | "join-timed" => (BlockerKind::ThreadEnd, holder),
        "join-worker" => (BlockerKind::ThreadEnd, Holder::Thread("holds-worker")),
        "lock" | "lock-timed" | "fair" | "written-read" | "written-write" => {
            (BlockerKind::OwnedLock, holder)
        }
        "once" => (BlockerKind::OwnedLock, Holder::Thread("holds-read-once")),
        "twice" => (BlockerKind::OwnedLock, Holder::Raw(RawHolder::Readers(2))),
        "semaphore" => (BlockerKind::Semaphore, unknown),
        "latch" => (BlockerKind::Latch, unknown),
        "future" => (BlockerKind::Future, Holder::Thread("holds-future")),
        "future-not-begun" => (BlockerKind::Future, Holder::Raw(RawHolder::Free)),
        "condition" => (BlockerKind::Condition, unknown),
        "parked" | "parked-queue" | "parked-completable" => (BlockerKind::Parked, unknown),
        "mounted" => (BlockerKind::Monitor, Holder::Carrier),
        "unmounted" if !unmounts => (BlockerKind::Monitor, Holder::Carrier),
        "unmounted" => (BlockerKind::Monitor, Holder::Raw(RawHolder::Unmounted)),
        "virtual-lock" => (BlockerKind::OwnedLock, Holder::Raw(RawHolder::Unmounted)),
        _ => return None,
    })
}

/// How many objects, classes and holders were right, of how many.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    /// Threads whose waits were found.
    threads: usize,
    objects: usize,
    classes: usize,
    holders: usize,
    none: usize,
}

/// A virtual machine that is tried.
struct Case {
    what: String,
    unmounts: bool,
    /// The collector moves objects while Java runs. Then what has not been looked at since may be
    /// unknown, and monitors have their own addresses.
    moves_any_time: bool,
}

/// Compares what is found with what jstack prints.
fn judge(
    found: &BTreeMap<u32, Found>,
    printed: &BTreeMap<u32, Printed>,
    names: &Names,
    case: &Case,
) -> Counts {
    let name_of = |tid: u32| printed.get(&tid).map_or("?", |printed| &printed.name);
    let mut counts = Counts::default();
    let mut addresses: BTreeMap<u64, u64> = BTreeMap::new();
    for (tid, printed_thread) in printed {
        let name = &*printed_thread.name;
        let Some(Found { blocker, .. }) = found.get(tid) else {
            let expected = expected(name, case.unmounts);
            assert!(expected.is_none(), "{}: {name} is not blocked", case.what);
            continue;
        };
        let what = format!("{}: {name} {blocker:x?}", case.what);
        let Some((kind, holder)) = expected(name, case.unmounts) else {
            if name.starts_with("none-") || name.starts_with("hold") {
                assert_eq!(*blocker, None, "{what}");
                counts.none += 1;
            }
            continue;
        };
        let Some(blocker) = *blocker else {
            assert!(case.moves_any_time, "{what}");
            continue;
        };
        counts.threads += 1;
        if case.moves_any_time && blocker.object == 0 {
            assert_eq!((blocker.class, blocker.holder), (None, RawHolder::Unknown), "{what}");
            continue;
        }
        assert_eq!(blocker.kind, kind, "{what}");
        // jstack knows the condition, and we its lock.
        let object = match kind {
            BlockerKind::Condition => printed
                .values()
                .find(|printed| printed.name == "holds-condition")
                .and_then(|printed| printed.locks.first()),
            _ => printed_thread.waits_for.as_ref(),
        };
        let (address, class) = object.unwrap_or_else(|| panic!("{what}: {printed_thread:?}"));
        let before = addresses.insert(*address, blocker.object);
        let same = match case.moves_any_time {
            true => before.is_none_or(|before| before == blocker.object),
            false => blocker.object == *address,
        };
        assert!(same, "{what}: not {address:x}, {before:x?}");
        counts.objects += 1;
        let found = blocker.class.and_then(|class| names.thread(class));
        if !case.moves_any_time || found.is_some() {
            assert_eq!(found.as_deref(), Some(&*shown(class)), "{what}");
            counts.classes += 1;
        }
        if let RawHolder::Thread { tid, .. } = blocker.holder {
            let unprinted = ["join", "join-timed", "join-worker", "future", "once"];
            let owner = printed.iter().find(|(_, thread)| thread.owns.contains(address));
            let is_printed = !unprinted.contains(&name);
            assert!(
                !is_printed || owner.is_none_or(|(owner, _)| *owner == tid),
                "{what}: {owner:?}"
            );
        }
        if !case.moves_any_time || blocker.holder != RawHolder::Unknown {
            assert!(is_right(blocker.holder, holder, &name_of, case), "{what}: not {holder:?}");
            counts.holders += 1;
        }
    }
    counts
}

fn moves_any_time(options: &[&str]) -> bool {
    options.iter().any(|option| option.contains("ZGC") || option.contains("Shenandoah"))
}

/// Enough carriers for those virtual threads that keep theirs.
const CARRIERS: [&str; 1] = ["-Djdk.virtualThreadScheduler.parallelism=8"];

/// Virtual machines to try: options, and the versions that have them.
const OPTIONS: [(&[&str], std::ops::RangeInclusive<u32>); 14] = [
    (&[], 8..=99),
    (&["-Xint"], 8..=99),
    (&["-Xcomp"], 8..=99),
    (&["-XX:-UseCompressedOops"], 8..=99),
    (&["-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"], 8..=21),
    (&["-XX:+UseSerialGC"], 8..=99),
    (&["-XX:+UseParallelGC"], 8..=99),
    (&["-XX:LockingMode=0"], 21..=25),
    (&["-XX:LockingMode=1"], 21..=25),
    (&["-XX:LockingMode=2"], 21..=25),
    (&["-XX:+UseCompactObjectHeaders"], 25..=99),
    (&["-XX:+UseZGC"], 11..=99),
    (&["-XX:+UseZGC", "-XX:+ZGenerational"], 21..=21),
    (&["-XX:+UseShenandoahGC"], 11..=99),
];

#[test]
fn objects_classes_and_owners_are_what_jstack_prints() {
    if !can_test() {
        return;
    }
    for jdk in EVERY_JDK.iter() {
        let version = jdk.version();
        let classes = jdk.compile("Blockers.java");
        for (options, versions) in &OPTIONS {
            if !versions.contains(&version) {
                continue;
            }
            let uses = |collector| options.iter().any(|option| option.contains(collector));
            let case = Case {
                what: format!("{} {}", jdk.name(), options.join(" ")),
                unmounts: version >= 24 && !uses("LockingMode=1"),
                moves_any_time: moves_any_time(options),
            };
            let what = &case.what;
            let copies = COPIES.to_string();
            let mut target =
                jdk.start(&classes, &[options, &CARRIERS[..]].concat(), &["Blockers", &copies]);
            wait_until_all_sleep(target.pid());
            let mut reader = Reader::attach(target.pid());
            reader.blockers(OBSERVATIONS);
            let printed = jstack(jdk, &target);
            let found = reader.blockers(OBSERVATIONS);
            let counts = judge(&found, &printed, &reader.names, &case);
            let kinds = if version < 21 { 27 } else { 30 };
            println!("{what}: {counts:?}");
            assert_eq!(counts.threads, kinds * COPIES, "{what}");
            // The carrier of a virtual thread waits for what that waits for.
            if version >= 21 {
                let pinned = found.iter().filter(|(tid, found)| {
                    printed.get(tid).is_some_and(|p| p.name.starts_with("ForkJoinPool-"))
                        && found.blocker.is_some_and(|b| b.kind == BlockerKind::OwnedLock)
                });
                assert_eq!(pinned.count(), 1, "{what}");
            }
            // An object that was moved since then takes some more.
            let calls = found.iter().filter(|(tid, _)| is_none(**tid, &printed));
            let mut calls: Vec<u32> = calls.map(|(_, found)| found.calls).collect();
            calls.sort_unstable();
            assert!(calls[calls.len() / 2] <= 2, "{what}: {calls:?} calls");
            // Objects were moved.
            let program = &mut target.running;
            program.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
            assert_eq!(program.lines.next().expect("a line").expect("text"), "collected");
            wait_until_all_sleep(target.pid());
            let moved = reader.blockers(OBSERVATIONS);
            let printed = jstack(jdk, &target);
            let after = judge(&moved, &printed, &reader.names, &case);
            println!(
                "{what}: {counts:?}; after a collection {after:?}; {}",
                costs(&found, &printed)
            );
        }
    }
}

/// Virtual machines that are recorded: version, options, name.
const RECORDED: [(u32, &[&str], &str); 9] = [
    (8, &[], "8"),
    (11, &[], "11"),
    (17, &[], "17"),
    (21, &["-XX:LockingMode=0"], "21-0"),
    (21, &["-XX:LockingMode=1"], "21-1"),
    (21, &["-XX:LockingMode=2"], "21-2"),
    (25, &["-XX:LockingMode=1"], "25-1"),
    (25, &["-XX:LockingMode=2"], "25-2"),
    (26, &[], "26"),
];

/// Records what tests/java_recorded reads, again after a change of the readers:
/// `SAMPLETOP_RECORD=1 cargo test --test java_blockers record`, with all JDKs of tests/jdks.
#[test]
fn record_waits() {
    if std::env::var_os("SAMPLETOP_RECORD").is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java_recorded");
    for jdk in EVERY_JDK.iter() {
        let classes = jdk.compile("Blockers.java");
        for (version, options, name) in RECORDED {
            if jdk.version() != version {
                continue;
            }
            let unmounts = version >= 24 && name != "25-1";
            let case =
                Case { what: format!("{} {name}", jdk.name()), unmounts, moves_any_time: false };
            let options = [options, &CARRIERS[..], &["-Xmx32m"]].concat();
            let target = jdk.start(&classes, &options, &["Blockers", "1"]);
            wait_until_all_sleep(target.pid());
            let printed = jstack(jdk, &target);
            let pieces = Arc::new(Mutex::default());
            let mut reader = Reader::attach_and_record(target.pid(), Some(pieces.clone()));
            let found = reader.blockers(OBSERVATIONS);
            judge(&found, &printed, &reader.names, &case);
            let said = jdk.tool("java").arg("-version").output().expect("it starts");
            let said = String::from_utf8(said.stderr).expect("text");
            let maps = Maps::read(target.pid()).expect("it runs");
            let image = jvm::library(&maps).expect("a virtual machine");
            let threads = found.iter().filter_map(|(tid, found)| {
                let name = printed.get(tid)?.name.clone();
                let is_of_program =
                    expected(&name, unmounts).is_some() || name.starts_with("none-");
                let wait = found.blocker.map(|blocker| Wait {
                    kind: blocker.kind,
                    object: blocker.object,
                    holder: match blocker.holder {
                        RawHolder::Thread { tid, .. } => RawHolder::Thread { pid: PID, tid },
                        holder => holder,
                    },
                    class: blocker
                        .class
                        .and_then(|class| reader.names.thread(class))
                        .map_or_else(String::new, |class| class.to_string()),
                });
                is_of_program.then_some(Thread { tid: *tid, sp: found.sp, name, wait })
            });
            let version = said.lines().nth(1).unwrap_or_default().trim().to_owned();
            let waits = Waits { version, image, threads: threads.collect() };
            let stem = folder.join(format!("waits-{name}"));
            std::fs::write(stem.with_extension("txt"), waits.text()).expect("a file");
            let pieces = Pieces(Arc::new(pieces.lock().expect("no panic").clone()));
            pieces.save(&stem.with_extension("gz")).expect("a file");
            println!("{name}: {} threads, {} pieces", waits.threads.len(), pieces.0.len());
        }
    }
}

/// Returns medians of the times and calls for one thread.
fn costs(found: &BTreeMap<u32, Found>, printed: &BTreeMap<u32, Printed>) -> String {
    let median = |wanted: &dyn Fn(u32, &Found) -> bool| {
        let wanted: Vec<&Found> = found
            .iter()
            .filter(|(tid, found)| wanted(**tid, found))
            .map(|(_, found)| found)
            .collect();
        let (mut us, mut calls): (Vec<f64>, Vec<u32>) =
            wanted.iter().map(|found| (found.us, found.calls)).unzip();
        us.sort_by(f64::total_cmp);
        calls.sort_unstable();
        format!("{:.1} us {} calls", us[us.len() / 2], calls[calls.len() / 2])
    };
    let of_kind = |kind| {
        move |_: u32, found: &Found| found.blocker.is_some_and(|blocker| blocker.kind == kind)
    };
    format!(
        "monitor {}, lock {}, none {}",
        median(&of_kind(BlockerKind::Monitor)),
        median(&of_kind(BlockerKind::OwnedLock)),
        median(&|tid, _| is_none(tid, printed)),
    )
}

/// Whether this thread waits for nothing of Java.
fn is_none(tid: u32, printed: &BTreeMap<u32, Printed>) -> bool {
    printed.get(&tid).is_some_and(|printed| printed.name.starts_with("none-"))
}

/// Passes over all threads while objects are moved and locks change hands.
const PASSES: usize = 300;

#[test]
fn no_wrong_owner_is_named_while_objects_are_moved() {
    if !can_test() {
        return;
    }
    let collectors: [(&[&str], std::ops::RangeInclusive<u32>); 6] = [
        (&["-XX:+UseG1GC"], 8..=99),
        (&["-XX:+UseSerialGC"], 8..=99),
        (&["-XX:+UseG1GC", "-XX:LockingMode=2"], 21..=21),
        (&["-XX:+UseZGC"], 11..=99),
        (&["-XX:+UseZGC", "-XX:+ZGenerational"], 21..=21),
        (&["-XX:+UseShenandoahGC"], 11..=99),
    ];
    for jdk in EVERY_JDK.iter() {
        let version = jdk.version();
        let classes = jdk.compile("Blockers.java");
        for (options, versions) in &collectors {
            if !versions.contains(&version) {
                continue;
            }
            let case = Case {
                what: format!("{} {}", jdk.name(), options.join(" ")),
                unmounts: version >= 24,
                moves_any_time: moves_any_time(options),
            };
            let what = &case.what;
            let options = [options, &CARRIERS[..]].concat();
            let target = jdk.start(&classes, &options, &["Blockers", "1", "churn"]);
            let mut reader = Reader::attach(target.pid());
            let printed = jstack(jdk, &target);
            let mut churn = Churn::default();
            for _ in 0..PASSES {
                let found = reader.blockers(1);
                churn.judge(&found, &printed, &reader.names, &case);
            }
            println!("{what}: {churn:?}");
            assert!(churn.all > PASSES && churn.in_groups > PASSES / 4, "{what}: {churn:?}");
        }
    }
}

/// Counts of threads whose locks stay as they are, and of owners of locks that change hands.
#[derive(Default, Debug)]
struct Churn {
    all: usize,
    found: usize,
    /// With object and class.
    proven: usize,
    held: usize,
    in_groups: usize,
}

impl Churn {
    fn judge(
        &mut self,
        found: &BTreeMap<u32, Found>,
        printed: &BTreeMap<u32, Printed>,
        names: &Names,
        case: &Case,
    ) {
        let name_of = |tid| printed.get(&tid).map_or("?", |printed| &printed.name);
        for (tid, Found { blocker, .. }) in found {
            let Some(printed) = printed.get(tid) else { continue };
            let name = &*printed.name;
            let what = format!("{}: {name} {blocker:x?}", case.what);
            if name.starts_with("spin-group-") {
                // It waits for another thread of its group, or for nothing.
                if let Some(RawHolder::Thread { tid: holder, .. }) = blocker.map(|b| b.holder) {
                    assert_eq!((name_of(holder), holder != *tid), (name, true), "{what}");
                    self.in_groups += 1;
                }
                continue;
            }
            let Some((kind, holder)) = expected(name, case.unmounts) else { continue };
            self.all += 1;
            // Its own object may be unreadable.
            let Some(blocker) = *blocker else { continue };
            self.found += 1;
            if blocker.holder != RawHolder::Unknown {
                assert!(is_right(blocker.holder, holder, &name_of, case), "{what}: not {holder:?}");
                self.held += 1;
            }
            if blocker.object == 0 {
                assert_eq!(blocker.class, None, "{what}");
                continue;
            }
            self.proven += 1;
            assert_eq!(blocker.kind, kind, "{what}");
            let class = blocker.class.and_then(|class| names.thread(class));
            let may_be_unknown = case.moves_any_time && class.is_none();
            let known = printed.waits_for.as_ref();
            if let Some((_, known)) =
                known.filter(|_| kind != BlockerKind::Condition && !may_be_unknown)
            {
                assert_eq!(class.as_deref(), Some(&*shown(known)), "{what}");
            }
        }
    }
}

fn is_right<'n>(
    found: RawHolder,
    expected: Holder,
    name_of: &dyn Fn(u32) -> &'n str,
    case: &Case,
) -> bool {
    match (found, expected) {
        // The object of the only reader may have been moved.
        (RawHolder::Readers(1), Holder::Thread("holds-read-once")) => case.moves_any_time,
        (RawHolder::Thread { tid, .. }, Holder::Thread(expected)) => name_of(tid) == expected,
        (RawHolder::Thread { tid, .. }, Holder::Carrier) => {
            name_of(tid).starts_with("ForkJoinPool-")
        }
        (found, Holder::Raw(expected)) => found == expected,
        _ => false,
    }
}
