//! The report format of the Java library perf-sampler, line for line, so that scripts which read
//! those reports keep working.
//!
//! One line per group of threads, then one per place of the call tree, ordered by name. Each is
//! indented by the levels shown and padded to 150 columns. The milliseconds of wall time below the
//! place and in it follow. A place is a line of a method. A place without own time that has all the
//! time of its caller is omitted.
//!
//! Time spent waiting for work is included, since that library does not distinguish it. Stacks with
//! Java methods omit their other frames, which that library does not see; their time counts for the
//! Java method that called them. Groups and threads, unordered in that library, are ordered by name
//! and number. Dates are UTC.

use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::Timestamp;

use super::{FRAMELESS, dates};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::projection::settings::{Metric, RollUp, Settings};
use crate::model::projection::{Group, Projection, project};
use crate::model::vocabulary::frame::Ns;

/// Columns before the figures.
const WIDTH: usize = 150;
/// Maximum levels of the tree; deeper ones are omitted.
const LEVELS: usize = 1_000;

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let settings =
        Settings { roll_up: RollUp::Line, metric: Metric::Wall, idle: true, ..settings.clone() };
    let projection = project(snapshot, &settings);
    let date = |at: Ns| date(dates::unix_ns(&snapshot.session, at));
    writeln!(
        out,
        "\nReport interval: from {} till {}",
        date(projection.from),
        date(projection.till)
    )?;
    for group in &projection.groups {
        render(&projection, group, out)?;
    }
    Ok(())
}

/// Formats a date as `java.util.Date` does.
fn date(unix_ns: i128) -> String {
    let at = Timestamp::from_nanosecond(unix_ns).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%a %b %d %H:%M:%S UTC %Y").to_string()
}

/// A place in the tree, with the time of it and all below it, ns.
#[derive(Default)]
struct Place {
    total: Ns,
    own: Ns,
    below: BTreeMap<String, usize>,
}

/// The tree of one group; place 0 stands for all of it.
struct Tree {
    places: Vec<Place>,
    /// Frames of the deepest stack.
    depth: usize,
}

fn render(projection: &Projection, group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let tree = Tree::of(projection, group);
    let names: Vec<&str> = group.threads.iter().map(|thread| &*thread.name).collect();
    writeln!(
        out,
        "Aggregated thread: {}. Max depth: {}. Distinct threads: {} [{}]",
        group.name,
        tree.depth,
        names.len(),
        names.join(", ")
    )?;
    tree.write(out)?;
    writeln!(out)
}

impl Tree {
    fn of(projection: &Projection, group: &Group) -> Tree {
        let java_only = is_java(projection, group);
        let mut tree = Tree { places: vec![Place::default()], depth: 0 };
        if group.own.wall_ns > 0 {
            let at = tree.below(0, FRAMELESS);
            tree.book(&[0, at], group.own.wall_ns);
        }
        // (node, length of its caller's path): without recursion, since a target may recurse to any
        // depth.
        let mut todo: Vec<(u32, usize)> = projection.roots(group).map(|root| (root, 1)).collect();
        let mut path = vec![0];
        while let Some((node, above)) = todo.pop() {
            path.truncate(above);
            let location = projection.location(node, Metric::Wall);
            if !java_only || matches!(location.kind, FrameKind::Java | FrameKind::Marker) {
                let at = tree.below(path[path.len() - 1], &text(location));
                path.push(at);
                tree.depth = tree.depth.max(path.len() - 1);
            }
            tree.book(&path, projection.node(node, Metric::Wall).own.wall_ns);
            todo.extend(projection.children(node).map(|child| (child, path.len())));
        }
        tree
    }

    fn below(&mut self, at: usize, name: &str) -> usize {
        if let Some(known) = self.places[at].below.get(name) {
            return *known;
        }
        self.places.push(Place::default());
        let new = self.places.len() - 1;
        self.places[at].below.insert(name.to_owned(), new);
        new
    }

    fn book(&mut self, path: &[usize], own: Ns) {
        path.iter().for_each(|at| self.places[*at].total += own);
        self.places[path[path.len() - 1]].own += own;
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        struct Row<'a> {
            name: &'a str,
            at: usize,
            /// The caller's time in whole milliseconds; none above the outermost.
            above: Option<u64>,
            level: usize,
            indent: usize,
        }
        let below = |at: usize, above, level, indent| {
            let places = self.places[at].below.iter().rev();
            places.map(move |(name, at)| Row { name, at: *at, above, level, indent })
        };
        let mut todo: Vec<Row<'_>> = below(0, None, 0, 0).collect();
        while let Some(Row { name, at, above, level, indent }) = todo.pop() {
            let (total, own) = (millis(self.places[at].total), millis(self.places[at].own));
            let shown = above != Some(total) || own > 0;
            if shown {
                let name = format!("{:indent$}{name} ", "", indent = 2 * indent);
                writeln!(
                    out,
                    "{name:<width$} Cumulative time(ms): {total}, Method time(ms): {own}",
                    width = WIDTH + 1
                )?;
            }
            if level + 1 < LEVELS {
                todo.extend(below(at, Some(total), level + 1, indent + usize::from(shown)));
            }
        }
        Ok(())
    }
}

/// Returns whether the group has any Java method.
fn is_java(projection: &Projection, group: &Group) -> bool {
    let mut todo: Vec<u32> = projection.roots(group).collect();
    while let Some(node) = todo.pop() {
        if projection.name(node).kind == FrameKind::Java {
            return true;
        }
        todo.extend(projection.children(node));
    }
    false
}

/// Formats a location as `java.lang.StackTraceElement` does, even if it is no Java method.
fn text(location: &Location) -> String {
    let Location { function, file, line, kind, tier, .. } = location;
    let file = file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    // Readers of the format split places at commas.
    let function = function.replace([',', '\n'], ";");
    match (file, line, kind) {
        (_, _, FrameKind::Marker | FrameKind::Thread) => function,
        (_, _, FrameKind::Java) if *tier == Some(Tier::Native) => {
            format!("{function}(Native Method)")
        }
        (Some(file), Some(line), _) => format!("{function}({file}:{line})"),
        (Some(file), None, _) => format!("{function}({file})"),
        (None, _, FrameKind::Java) => format!("{function}(Unknown Source)"),
        (None, _, _) => {
            format!("{function}({})", location.module.rsplit('/').next().unwrap_or_default())
        }
    }
}

fn millis(ns: Ns) -> u64 {
    ns.saturating_add(500_000) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::fixture::{self, MS, ran};
    use crate::model::projection::{Totals, test_projections};

    fn java(function: &str, line: u32) -> Location {
        let file = function.split('.').rev().nth(1).map(|class| format!("{class}.java").into());
        Location {
            function: function.into(),
            file,
            line: Some(line),
            kind: FrameKind::Java,
            ..fixture::location("")
        }
    }

    fn rendered(stacks: &[(&str, Vec<Location>, Totals)]) -> Vec<String> {
        let stacks: Vec<_> = stacks
            .iter()
            .map(|(group, frames, own)| (group.to_string(), frames.clone(), *own))
            .collect();
        let projection = test_projections::projection(&stacks);
        let mut out = Vec::new();
        for group in &projection.groups {
            render(&projection, group, &mut out).expect("memory");
        }
        String::from_utf8(out).expect("text").lines().map(str::to_owned).collect()
    }

    /// Pads a line of the tree as that library does.
    fn line(level: usize, name: &str, total: u64, own: u64) -> String {
        let name = "  ".repeat(level) + name;
        let blanks = " ".repeat(150_usize.saturating_sub(name.len()));
        format!("{name} {blanks} Cumulative time(ms): {total}, Method time(ms): {own}")
    }

    #[test]
    fn a_tree_is_collapsed_sorted_and_padded() {
        let run = java("java.lang.Thread.run", 840);
        let (step, other) = (java("a.Job.step", 100), java("a.Job.step", 99));
        let long = java(&format!("a.Job.{}", "x".repeat(150)), 1);
        let text = rendered(&[
            ("pool", vec![run.clone(), java("a.Job.run", 7), step.clone()], ran(20, 2)),
            (
                "pool",
                vec![run.clone(), java("a.Job.run", 7), other.clone(), long.clone()],
                ran(30, 3),
            ),
            ("pool", vec![run.clone(), java("a.Job.run", 7)], ran(1, 1)),
        ]);
        let expected = [
            "Aggregated thread: pool. Max depth: 4. Distinct threads: 1 [pool]".to_owned(),
            line(0, "java.lang.Thread.run(Thread.java:840)", 51, 0),
            // All the time of its caller, and some own time: shown.
            line(1, "a.Job.run(Job.java:7)", 51, 1),
            line(2, "a.Job.step(Job.java:100)", 20, 20),
            line(2, "a.Job.step(Job.java:99)", 30, 0),
            line(3, &format!("a.Job.{}(Job.java:1)", "x".repeat(150)), 30, 30),
            String::new(),
        ];
        assert_eq!(text, expected);
    }

    #[test]
    fn a_place_that_only_calls_on_is_left_out_with_its_level() {
        let text = rendered(&[
            ("t", vec![java("A.a", 1), java("A.b", 2), java("A.c", 3), java("A.d", 4)], ran(5, 1)),
            ("t", vec![java("A.a", 1), java("A.b", 2), java("A.c", 3), java("A.e", 5)], ran(6, 1)),
        ]);
        let expected = [
            line(0, "A.a(A.java:1)", 11, 0),
            line(1, "A.d(A.java:4)", 5, 5),
            line(1, "A.e(A.java:5)", 6, 6),
        ];
        assert_eq!(text[1..4], expected);
    }

    #[test]
    fn places_are_as_java_writes_them() {
        let with = |file: Option<&str>, line, tier| Location {
            file: file.map(Into::into),
            line,
            tier,
            ..java("a.B.c", 0)
        };
        assert_eq!(text(&with(Some("a/B.java"), Some(7), Some(Tier::Inlined))), "a.B.c(B.java:7)");
        assert_eq!(text(&with(Some("B.java"), None, None)), "a.B.c(B.java)");
        assert_eq!(text(&with(Some("B.java"), None, Some(Tier::Native))), "a.B.c(Native Method)");
        assert_eq!(text(&with(None, None, None)), "a.B.c(Unknown Source)");
        assert_eq!(text(&Location::named("[torn]", FrameKind::Marker)), "[torn]");
    }

    #[test]
    fn frames_that_are_not_java_are_their_callers() {
        let native = |name: &str| fixture::location(name);
        let text = rendered(&[
            (
                "t",
                vec![
                    native("start_thread"),
                    java("A.a", 1),
                    native("Unsafe_Park"),
                    native("futex"),
                ],
                ran(5, 1),
            ),
            ("t", vec![native("start_thread"), java("A.a", 1), java("A.b", 2)], ran(2, 1)),
            ("t", vec![native("start_thread"), native("JVM_Sleep"), java("A.a", 1)], ran(1, 1)),
            ("u", vec![native("start_thread"), native("work")], ran(7, 1)),
        ]);
        assert_eq!(text[1..3], [line(0, "A.a(A.java:1)", 8, 6), line(1, "A.b(A.java:2)", 2, 2)]);
        // Without Java all frames are shown, except those that add no information.
        assert_eq!(
            text[5..7],
            [line(0, "start_thread(main.c:7)", 7, 0), line(1, "work(main.c:7)", 7, 7)]
        );
    }

    #[test]
    fn dates_are_as_java_writes_them() {
        assert_eq!(date(1_767_323_045 * 1_000 * i128::from(MS)), "Fri Jan 02 03:04:05 UTC 2026");
    }
}
