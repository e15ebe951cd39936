//! Files of every format, from before and after each extension of it, and their contents at the
//! time of writing.
//!
//! `SAMPLETOP_KEEP=1 cargo test --test saved` writes the last of [`KEPT`] if it is missing;
//! existing files are never overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sampletop::formats::saved;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::facts::tables::BlockerId;
use sampletop::model::projection::settings::{Range, Settings};

use super::damaged::sums;
use super::{sessions, spans, written};

/// Oldest first. The number is the format's.
const KEPT: &[&str] =
    &["format-1", "format-1-builds", "format-2", "format-2-waits", "format-2-spans"];

fn path(name: &str, extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/saved/{name}.{extension}"))
}

fn text(snapshot: &Snapshot) -> String {
    let Snapshot {
        session, targets, at, capture, health, threads, notice, history, tables, ..
    } = snapshot;
    let mut text = format!(
        "{} {} {} {}\n",
        session.version, session.host, session.kernel, session.started_unix_ns
    );
    text += &format!(
        "{capture}, {} samples, {} ticks until {at}, {notice:?}\n",
        health.losses.samples, health.ticks
    );
    for target in targets.iter() {
        text +=
            &format!("{} {} {} {:?}\n", target.pid, target.command, target.runtime, target.ended);
    }
    for now in threads.iter() {
        text += &format!(
            "{} {} {:?} {:?}\n",
            now.thread.tid,
            tables.name(now.name),
            now.state,
            now.syscall.map(|c| c.number)
        );
    }
    for (what, sums) in ["buckets", "all"].iter().zip(sums(snapshot)) {
        for ((thread, name, stack, state), (wall, cpu)) in sums {
            text += &format!(
                "{what} {}/{} {name} {state} {stack} wall {wall} cpu {cpu}\n",
                thread.pid, thread.tid
            );
        }
    }
    let mut blocked: BTreeMap<BlockerId, u64> = BTreeMap::new();
    history.read(Range::Rolling(u64::MAX), *at, &mut |key, weights| {
        *blocked.entry(key.blocker).or_default() += weights.wall_ns;
    });
    for (blocker, wall) in blocked {
        if let Some(blocker) = tables.blocker(blocker) {
            text += &format!("{blocker:?} wall {wall}\n");
        }
    }
    for wait in snapshot.observed_waits.iter() {
        text += &format!("{} in stack {:?}: ", wait.thread.tid, wait.stack);
        text += &format!("{}, {} times until {}\n", wait.waits_for, wait.times, wait.at);
    }
    if let Some(wakeups) = &snapshot.wakeups {
        text += &format!("{wakeups:?}\n");
    }
    for (module, builds) in tables.builds() {
        text += &format!("{module}: {builds:?}\n");
    }
    for span in spans::spans_since(snapshot, history.spans().from()) {
        text += &format!(
            "{}/{} {:?} in {:?} from {} for {}: cpu {} hits {}/{} wait {} from {}\n",
            span.key.thread.pid,
            span.key.thread.tid,
            span.key.state,
            span.key.stack,
            span.from,
            span.till - span.from,
            span.cpu_ns,
            span.hits,
            span.cpu_hits,
            span.longest_ns,
            span.longest_from
        );
    }
    for bucket in history.sealed() {
        text += &format!("{}..{}: {} facts\n", bucket.start, bucket.end, bucket.len());
    }
    text
}

#[test]
fn files_of_all_formats_say_what_they_said() {
    let name = *KEPT.last().expect("there is one");
    assert!(name.starts_with(&format!("format-{}", saved::FORMAT)), "the newest format has a file");
    let newest = path(name, "sampletop");
    if std::env::var_os("SAMPLETOP_KEEP").is_some_and(|keep| keep == "1") && !newest.exists() {
        let snapshot = sessions::session(2, 120, true);
        fs::write(&newest, written(&snapshot, &Settings { reverse: true, ..Settings::default() }))
            .expect("it can be written");
        fs::write(path(name, "txt"), text(&snapshot)).expect("it can be written");
    }
    for name in KEPT {
        let file = path(name, "sampletop");
        let bytes = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let opened =
            saved::read(&bytes).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let expected = fs::read_to_string(path(name, "txt")).expect("what it says");
        assert_eq!((opened.lost, opened.settings.reverse), (None, true));
        // Without them a range is whole seconds.
        let history = &opened.snapshot.history;
        let (_, at) = history.span();
        let part = Range::Between { from: at - 50_000_001, till: at - 1 };
        let has_spans = *name == "format-2-spans";
        assert_eq!(history.spans().is_kept(), has_spans, "{name}");
        assert_eq!(history.is_widened(part), !has_spans, "{name}");
        assert!(
            text(&opened.snapshot) == expected,
            "{} says now:\n{}",
            file.display(),
            text(&opened.snapshot)
        );
    }
}
