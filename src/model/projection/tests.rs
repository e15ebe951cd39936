//! Each rule of a projection, on an example small enough to compute by hand.

mod busy_threads;
mod chains;
mod filters;
mod findings;
mod function_time;
mod go;
mod graph;
mod group_now;
mod hot_functions;
mod inverted;
mod kernel_locks;
mod label;
mod labels;
mod locks;
mod long_waits;
mod main_functions;
mod mine;
mod native;
mod paths;
mod properties;
mod samples;
mod stops;
mod timeline;
mod trees;
mod trends;
mod wakers;

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::model::facts::history::{FactKey, History, Weights};
use crate::model::facts::interner::Interner;
use crate::model::facts::snapshot::{Health, Session, Snapshot, Target};
use crate::model::facts::tables::{FrameKind, Location, Named, Tier};
use crate::model::projection::settings::{Filter, Filters, Metric, Settings};
use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame, RawName, ThreadKind};
use crate::model::vocabulary::state::{RawState, State};

/// Hand-made facts and names. A stack is written outermost first: `main;run:7;work`. Functions have
/// a line where it matters. `+` precedes an inlined function: `run:7+get:3` is one frame.
struct World {
    interner: Interner,
    session: Arc<Session>,
    frames: HashMap<String, RawFrame>,
    facts: Vec<(FactKey, Weights)>,
    /// The end of the range, which begins at 0, ns.
    till: Ns,
}

impl World {
    fn new() -> World {
        World {
            interner: Interner::new(1 << 20),
            session: Session::made_up().into(),
            frames: HashMap::new(),
            facts: Vec::new(),
            till: 100,
        }
    }

    /// Adds a fact of `wall` ns in `state`, with one hit; on a core all of it is CPU time.
    fn fact(&mut self, thread: &str, stack: &str, state: State, wall: u64) -> &mut Weights {
        let tid =
            thread.bytes().fold(1, |hash: u32, b| hash.wrapping_mul(31).wrapping_add(b.into()));
        let tid = tid & 0x7fff_ffff;
        self.fact_of(ThreadKey { pid: 1, tid, start: 1 }, thread, stack, state, wall)
    }

    fn fact_of(
        &mut self,
        thread: ThreadKey,
        name: &str,
        stack: &str,
        state: State,
        wall: u64,
    ) -> &mut Weights {
        let mut frames: Vec<RawFrame> =
            stack.split(';').filter(|f| !f.is_empty()).map(|f| self.frame(f)).collect();
        frames.reverse();
        let stack = self.interner.stack(&frames);
        let (name, kind) = of_kind(name);
        let name = self.interner.name(RawName::new(name.as_bytes()).of_kind(kind));
        let on_cpu = state == State::Run;
        let weights = Weights {
            wall_ns: wall,
            cpu_ns: if on_cpu { wall } else { 0 },
            hits: 1,
            cpu_hits: on_cpu.into(),
            ..Weights::default()
        };
        self.facts.push((FactKey::new(thread, name, stack, RawState::Known(state)), weights));
        &mut self.facts.last_mut().unwrap().1
    }

    fn frame(&mut self, text: &str) -> RawFrame {
        let offset = self.frames.len() as u64;
        if let Some(frame) = self.frames.get(text) {
            return *frame;
        }
        let frame = RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
        self.frames.insert(text.to_owned(), frame);
        self.interner.stack(&[frame]);
        let locations: Vec<Location> =
            text.split('+').enumerate().map(|(depth, text)| location(text, depth > 0)).collect();
        self.interner.set_named(frame, Named::known(locations));
        frame
    }

    fn snapshot(&mut self) -> Snapshot {
        let target = Target {
            pid: 1,
            start: 1,
            command: "shop --port 80".into(),
            runtime: "native",
            uid: 0,
            unit: None,
            started_unix_ns: 0,
            ended: None,
        };
        Snapshot {
            session: self.session.clone(),
            targets: [target].into(),
            at: 100,
            capture: "perf".into(),
            health: Health::default(),
            tables: self.interner.tables(),
            history: History::default(),
            threads: [].into(),
            deadlocks: Arc::default(),
            observed_waits: Arc::default(),
            wakeups: None,
            notice: None,
            stopped: false,
        }
    }

    fn project(&mut self, settings: &Settings) -> Projection {
        let snapshot = self.snapshot();
        self.project_with(&mut Projector::default(), &snapshot, settings)
    }

    fn project_with(
        &self,
        projector: &mut Projector,
        snapshot: &Snapshot,
        settings: &Settings,
    ) -> Projection {
        projector.project_facts(snapshot, settings, None, &mut |f| {
            self.facts.iter().for_each(|(key, weights)| f(0, key, weights));
            (0, self.till)
        })
    }

    /// Does the same; facts lie in ten buckets in turn.
    fn project_with_trends(
        &self,
        projector: &mut Projector,
        snapshot: &Snapshot,
        settings: &Settings,
    ) -> Projection {
        let buckets: Vec<_> = (0..10).map(|start| (start, start + 1)).collect();
        let slices = trend::Slices::new(&buckets, snapshot.resolution());
        projector.project_facts(snapshot, settings, slices, &mut |f| {
            for bucket in 0..buckets.len() {
                let of_bucket = self.facts.iter().skip(bucket).step_by(buckets.len());
                of_bucket.for_each(|(key, weights)| f(bucket, key, weights));
            }
            (0, self.till)
        })
    }

    /// Returns what is shown, one group or node per line: name, total, self; see [`drawn`].
    fn shows(&mut self, settings: &Settings) -> String {
        drawn(&self.project(settings), settings)
    }
}

/// Splits a name of these tests: `~` precedes the name of a runtime's own thread, `^` that of a
/// daemon.
fn of_kind(name: &str) -> (&str, ThreadKind) {
    match (name.strip_prefix('~'), name.strip_prefix('^')) {
        (Some(name), _) => (name, ThreadKind::Internal),
        (_, Some(name)) => (name, ThreadKind::Daemon),
        _ => (name, ThreadKind::Plain),
    }
}

/// Parses `name:line` in module `app`, file `app.rs`. An inlined one has the tier inlined; `*name`
/// is HotSpot's code, `@shop.name` a Python function, `@=shop.name` one that has the GIL,
/// `#main.name` a function of Go, `##sync.name` one of its own library.
fn location(text: &str, inlined: bool) -> Location {
    let (function, line) =
        match text.rsplit_once(':').and_then(|(f, line)| Some((f, line.parse().ok()?))) {
            Some((function, line)) => (function, Some(line)),
            None => (text, None),
        };
    let (module, function) = function.split_once('!').unwrap_or(("app", function));
    if let Some(stub) = function.strip_prefix('*') {
        return Location { module: "[jvm]".into(), ..Location::named(stub, FrameKind::Jit) };
    }
    if let Some(name) = function.strip_prefix('@') {
        let (name, tier) =
            name.strip_prefix('=').map_or((name, None), |name| (name, Some(Tier::Gil)));
        let module = name.rsplit_once('.').map_or("", |(module, _)| module).into();
        let file = line.map(|_| "/src/app.py".into());
        return Location { module, file, line, tier, ..Location::named(name, FrameKind::Python) };
    }
    if let Some(name) = function.strip_prefix('#') {
        let (name, file) = match name.strip_prefix('#') {
            Some(name) => (name, "/usr/local/go/src/sync/a.go"),
            None => (name, "/src/app.go"),
        };
        let file = Some(file.into());
        let tier = inlined.then_some(Tier::Inlined);
        let module = module.into();
        return Location { module, file, line, tier, ..Location::named(name, FrameKind::Native) };
    }
    Location {
        function: function.into(),
        module: module.into(),
        file: line.map(|_| "/src/app.rs".into()),
        line,
        kind: match function.starts_with('[') {
            _ if module == "vmlinux" => FrameKind::Kernel,
            true => FrameKind::Marker,
            false => FrameKind::Native,
        },
        tier: inlined.then_some(Tier::Inlined),
    }
}

/// Formats one line per group (`name total self`) and node (indented), in the order shown; with a
/// known line as `name:7`.
fn drawn(projection: &Projection, settings: &Settings) -> String {
    let metric = settings.metric;
    let mut out = String::new();
    let ordered = projection.ordered(settings);
    for group in ordered.groups() {
        let group = &projection.groups[group as usize];
        out +=
            &format!("{} {} {}\n", group.name, group.total.value(metric), group.own.value(metric));
        let mut todo: Vec<(u32, usize)> =
            ordered.roots(group).into_iter().rev().map(|root| (root, 1)).collect();
        while let Some((index, depth)) = todo.pop() {
            let node = ordered.node(index);
            let line = node.location.line.map_or(String::new(), |line| format!(":{line}"));
            let name = &node.location.function;
            let figures = (node.total.value(metric), node.own.value(metric));
            out += &format!("{}{name}{line} {} {}\n", "  ".repeat(depth), figures.0, figures.1);
            for child in ordered.children(index).into_iter().rev() {
                assert_eq!(projection.parent(child), Some(index));
                todo.push((child, depth + 1));
            }
        }
    }
    out
}

/// Compares with the lines of an expected [`drawn`], ignoring their indentation in the source.
#[track_caller]
fn assert_shows(shown: String, expected: &str) {
    let margin = expected
        .lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| l.len() - l.trim_start().len())
        .min();
    let lines =
        expected.lines().filter(|l| !l.trim().is_empty()).map(|l| &l[margin.unwrap_or(0)..]);
    let expected: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(shown == expected, "shown:\n{shown}expected:\n{expected}");
}
