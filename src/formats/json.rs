//! The format for scripts and tests: schema `sampletop/2`. Fields may be added, never removed or
//! renamed.
//!
//! A call tree is one flat list of nodes, each with the index of its parent. Common readers refuse
//! JSON that is nested as deep as stacks are. Nesting is at most 6, whatever the profile.
//!
//! Times are in the unit of their name's suffix, rounded to three decimals. So a sum may differ
//! from its parts by half a unit of the last decimal each. Idle time is always included, and rows
//! under `--min-percent` are too: every sum holds.

mod locks;
mod waits;
mod wakers;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::model::facts::snapshot::{Health, Snapshot, Target};
use crate::model::facts::tables::{FrameKind, Location, Tables};
use crate::model::projection::settings::{Filter, Range, Settings};
use crate::model::projection::{
    Finding, Group, Node, Ordered, Projection, Totals, WokenThread, project, woken_threads,
    written_findings,
};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

pub(super) use locks::BlockerLine;
use locks::{LockLine, StuckLine};
use waits::WaitLine;
pub(super) use wakers::WakersLine;

use super::{FRAMELESS, dates};

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let mut settings = Settings { idle: true, ..settings.clone() };
    settings.filters.min_percent = Filter::default();
    render(snapshot, &settings, &project(snapshot, &settings), out)
}

pub(super) fn render(
    snapshot: &Snapshot,
    settings: &Settings,
    projection: &Projection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let woken = woken_threads(snapshot, settings);
    open_object(&Head::new(snapshot, settings, projection, &woken), "groups", out)?;
    let ordered = projection.ordered(settings);
    for (i, group) in ordered.groups().into_iter().enumerate() {
        let group = &projection.groups[group as usize];
        separate(i, out)?;
        open_object(&GroupHead::new(group), "nodes", out)?;
        write_group(&ordered, group, out)?;
        out.write_all(b"]}")?;
    }
    out.write_all(b"]}\n")
}

fn write_group(ordered: &Ordered<'_>, group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let write = |node, parent, out: &mut dyn Write| {
        let Node { location, total, own, .. } = ordered.node(node);
        let frame = FrameLine::of_role(location, ordered.projection.role(node));
        Ok(serde_json::to_writer(out, &NodeLine::new(parent, frame, &total, &own))?)
    };
    let written = write_nodes(ordered.roots(group), |node| ordered.children(node), write, out)?;
    // The group's total is the sum of its roots, so time without a frame needs a root too.
    if !group.own.is_empty() {
        separate(written, out)?;
        let location = frameless();
        let frame = FrameLine::of_role(&location, Role::Marker);
        serde_json::to_writer(out, &NodeLine::new(None, frame, &group.own, &group.own))?;
    }
    Ok(())
}

/// Writes a list's nodes depth first, parents before their children, and returns how many. `write`
/// gets a node and the index of its parent in the list. Does not recurse, since a target may
/// recurse to any depth.
pub(super) fn write_nodes(
    roots: Vec<u32>,
    children: impl Fn(u32) -> Vec<u32>,
    write: impl Fn(u32, Option<usize>, &mut dyn Write) -> io::Result<()>,
    out: &mut dyn Write,
) -> io::Result<usize> {
    let mut todo: Vec<(u32, Option<usize>)> =
        roots.into_iter().rev().map(|root| (root, None)).collect();
    let mut written = 0;
    while let Some((node, parent)) = todo.pop() {
        separate(written, out)?;
        write(node, parent, out)?;
        todo.extend(children(node).into_iter().rev().map(|child| (child, Some(written))));
        written += 1;
    }
    Ok(written)
}

/// Returns the location that stands for stacks of which `--hide` removed every frame.
pub(super) fn frameless() -> Location {
    Location {
        function: FRAMELESS.into(),
        module: "".into(),
        file: None,
        line: None,
        kind: FrameKind::Marker,
        tier: None,
    }
}

pub(super) fn separate(nth: usize, out: &mut dyn Write) -> io::Result<()> {
    match nth {
        0 => Ok(()),
        _ => out.write_all(b","),
    }
}

/// Writes `head`'s fields and opens its last one, a list, which the caller fills and closes with
/// `]}`.
pub(super) fn open_object(
    head: &impl Serialize,
    list: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let text = serde_json::to_string(head)?;
    let fields = text.strip_suffix('}').unwrap_or(&text);
    write!(out, "{fields},\"{list}\":[")
}

/// A number with at most three decimals.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Rounded(pub f64);

impl Rounded {
    pub fn ms(ns: u64) -> Rounded {
        Rounded(ns as f64 / 1e6)
    }
    pub fn us(ns: u64) -> Rounded {
        Rounded(ns as f64 / 1e3)
    }
}

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64((self.0 * 1000.0).round() / 1000.0)
    }
}

#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    version: &'a str,
    host: &'a str,
    targets: Vec<TargetLine<'a>>,
    modules: Vec<ModuleLine>,
    from: String,
    till: String,
    elapsed_ms: Rounded,
    interval_ms: Rounded,
    interval_achieved_ms: Rounded,
    visit_interval_ms: Rounded,
    capture: &'a str,
    metric: &'static str,
    rolled_up: &'static str,
    settings: SettingsLine<'a>,
    health: HealthLine,
    /// The most important first, at most three.
    findings: Vec<FindingLine>,
    /// Of shown threads, those with most waited time first.
    locks: Vec<LockLine<'a>>,
    /// Threads that wait for each other, each for what the next one holds.
    deadlocks: Vec<Vec<StuckLine<'a>>>,
    /// What shown threads were found to wait for, the most frequent first.
    waits: Vec<WaitLine<'a>>,
    /// Who woke threads; `null` without `--wakers`.
    wakers: Option<WakersLine<'a>>,
}

/// What costs the program most time, or what is wrong with the measurement.
#[derive(Serialize)]
struct FindingLine {
    kind: &'static str,
    sentence: String,
    /// Thread time that was lost to it.
    lost_ms: Option<Rounded>,
}

impl FindingLine {
    fn new(finding: &Finding) -> FindingLine {
        let lost = Some(finding.lost_ns).filter(|ns| ![0, u64::MAX].contains(ns));
        FindingLine {
            kind: finding.kind.word(),
            sentence: finding.sentence(),
            lost_ms: lost.map(Rounded::ms),
        }
    }
}

impl<'a> Head<'a> {
    fn new(
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        projection: &'a Projection,
        woken: &'a [WokenThread],
    ) -> Head<'a> {
        let session = &snapshot.session;
        Head {
            schema: "sampletop/2",
            version: &session.version,
            host: &session.host,
            targets: targets(&snapshot.targets),
            modules: modules(&snapshot.tables),
            from: dates::rfc3339(dates::unix_ns(session, projection.from)),
            till: dates::rfc3339(dates::unix_ns(session, projection.till)),
            elapsed_ms: Rounded::ms(projection.elapsed()),
            interval_ms: Rounded::ms(session.interval_ns),
            interval_achieved_ms: Rounded::ms(snapshot.health.interval_achieved_ns),
            visit_interval_ms: Rounded::ms(snapshot.health.visit_interval_ns),
            capture: &snapshot.capture,
            metric: settings.metric.word(),
            rolled_up: settings.roll_up.word(),
            settings: SettingsLine::new(settings, projection),
            health: HealthLine::new(&snapshot.health, session.max_overhead_percent),
            findings: written_findings(snapshot, projection).iter().map(FindingLine::new).collect(),
            locks: projection.locks.iter().map(LockLine::new).collect(),
            deadlocks: (projection.deadlocks.iter())
                .map(|stuck| stuck.iter().map(StuckLine::new).collect())
                .collect(),
            waits: projection.observed.iter().map(WaitLine::new).collect(),
            wakers: (snapshot.wakeups.as_ref()).map(|wakeups| WakersLine::new(wakeups, woken)),
        }
    }
}

/// A module whose build is known, even if nothing of it is shown; one entry for each build.
#[derive(Serialize)]
struct ModuleLine {
    name: String,
    build_id: String,
}

fn modules(tables: &Tables) -> Vec<ModuleLine> {
    let builds = tables.builds().into_iter();
    let each = |(name, builds): (Arc<str>, BTreeSet<Arc<str>>)| {
        builds.into_iter().map(move |build_id| ModuleLine {
            name: name.to_string(),
            build_id: build_id.to_string(),
        })
    };
    builds.flat_map(each).collect()
}

#[derive(Serialize)]
pub(super) struct TargetLine<'a> {
    pid: u32,
    command: &'a str,
    runtime: &'a str,
}

pub(super) fn targets(targets: &[Target]) -> Vec<TargetLine<'_>> {
    targets
        .iter()
        .map(|t| TargetLine { pid: t.pid, command: &t.command, runtime: t.runtime })
        .collect()
}

/// The settings in force; `null` and empty lists where not set.
#[derive(Serialize)]
pub(super) struct SettingsLine<'a> {
    group: String,
    rename: Vec<String>,
    threads: Option<&'a str>,
    /// Daemon threads and a runtime's own threads were excluded.
    skip_daemon: bool,
    /// Only stacks whose thread held the lock of its Python interpreter were included.
    gil: bool,
    interesting: Option<&'a [String]>,
    focus: Option<&'a str>,
    ignore: Option<&'a str>,
    hide: Option<&'a str>,
    /// Kernel frames were removed.
    no_kernel: bool,
    /// Which native frames stacks with Python frames have: `auto`, `full` or `none`.
    native: &'static str,
    idle: bool,
    idle_at: Vec<&'a str>,
    /// `null`: everything since the start, or since the mark.
    window_ms: Option<Rounded>,
    /// Wall time that the filters exclude from the groups. Together with the groups it is all
    /// thread time.
    hidden_ms: HiddenLine,
}

#[derive(Serialize)]
struct HiddenLine {
    threads: Rounded,
    daemons: Rounded,
    focus: Rounded,
    ignore: Rounded,
    gil: Rounded,
}

impl<'a> SettingsLine<'a> {
    pub fn new(settings: &'a Settings, projection: &Projection) -> SettingsLine<'a> {
        let filters = &settings.filters;
        let hidden = &projection.hidden;
        SettingsLine {
            group: settings.grouping.typed(),
            rename: settings.rename.iter().map(super::rename).collect(),
            threads: filters.threads.active().map(regex::Regex::as_str),
            skip_daemon: filters.skip_daemon,
            gil: filters.gil,
            interesting: filters.interesting.active().map(Vec::as_slice),
            focus: filters.focus.active().map(regex::Regex::as_str),
            ignore: filters.ignore.active().map(regex::Regex::as_str),
            hide: filters.hide.active().map(regex::Regex::as_str),
            no_kernel: filters.no_kernel,
            native: filters.native.word(),
            idle: settings.idle,
            idle_at: settings.idle_at.iter().map(regex::Regex::as_str).collect(),
            window_ms: match settings.range {
                Range::Rolling(ns) => Some(Rounded::ms(ns)),
                Range::Cumulative { .. } | Range::Between { .. } => None,
            },
            hidden_ms: HiddenLine {
                threads: Rounded::ms(hidden.threads.wall_ns),
                daemons: Rounded::ms(hidden.daemons.wall_ns),
                focus: Rounded::ms(hidden.focus.wall_ns),
                ignore: Rounded::ms(hidden.ignore.wall_ns),
                gil: Rounded::ms(hidden.gil.wall_ns),
            },
        }
    }
}

#[derive(Serialize)]
struct HealthLine {
    ticks: u64,
    samples: u64,
    dropped: u64,
    truncated: u64,
    torn: u64,
    unwind_failed: u64,
    /// These add up to `unwind_failed`.
    unwind_failed_by: FailedBy,
    recovered: u64,
    throttled: u64,
    late: u64,
    late_p99_us: Rounded,
    stops: u64,
    stops_blocked: u64,
    stop_p99_us: Rounded,
    self_cpu_percent: Rounded,
    total_cpu_percent: Rounded,
    /// The governor's limit; `null` where the interval is kept whatever it costs.
    max_overhead_percent: Option<Rounded>,
    /// From attaching to the first observation; not part of `elapsed_ms`.
    startup_ms: Rounded,
}

#[derive(Serialize)]
struct FailedBy {
    no_unwind_info: u64,
    bad_unwind: u64,
    outside_maps: u64,
}

impl HealthLine {
    fn new(health: &Health, bound: Option<f64>) -> HealthLine {
        let losses = &health.losses;
        HealthLine {
            ticks: health.ticks,
            samples: losses.samples,
            dropped: losses.dropped,
            truncated: losses.truncated,
            torn: losses.torn,
            unwind_failed: losses.unwind_failed,
            unwind_failed_by: FailedBy {
                no_unwind_info: losses.no_unwind_info,
                bad_unwind: losses.bad_unwind,
                outside_maps: losses.outside_maps,
            },
            recovered: losses.recovered,
            throttled: losses.throttled,
            late: losses.late,
            late_p99_us: Rounded::us(health.late_p99_ns),
            stops: losses.stops,
            stops_blocked: losses.stops_blocked,
            stop_p99_us: Rounded::us(losses.stop_p99_ns),
            self_cpu_percent: Rounded(health.self_cpu_percent),
            total_cpu_percent: Rounded(health.total_cpu_percent),
            max_overhead_percent: bound.map(Rounded),
            startup_ms: Rounded::ms(health.startup_ns),
        }
    }
}

#[derive(Serialize)]
struct GroupHead<'a> {
    name: &'a str,
    threads: Vec<ThreadLine<'a>>,
    wall_ms: Rounded,
    cpu_ms: Rounded,
    hits: u64,
    cpu_hits: u64,
    longest_ms: Rounded,
    states_ms: States,
}

#[derive(Serialize)]
struct ThreadLine<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    /// `plain`, `daemon` or, for a runtime's own thread, `internal`; `goroutine` for one of Go that
    /// waits.
    kind: &'static str,
}

impl<'a> GroupHead<'a> {
    fn new(group: &'a Group) -> GroupHead<'a> {
        let thread = |t: &'a crate::model::projection::GroupThread| ThreadLine {
            pid: t.thread.pid,
            tid: t.thread.shown_id(),
            name: &t.name,
            kind: super::kind_word(t.thread, t.kind),
        };
        GroupHead {
            name: &group.name,
            threads: group.threads.iter().map(thread).collect(),
            wall_ms: Rounded::ms(group.total.wall_ns),
            cpu_ms: Rounded::ms(group.total.cpu_ns),
            hits: group.total.hits,
            cpu_hits: group.total.cpu_hits,
            longest_ms: Rounded::ms(group.total.longest_ns),
            states_ms: States::of(&group.total),
        }
    }
}

#[derive(Serialize)]
struct NodeLine<'a> {
    /// Its index in the list of nodes; `null` for a root.
    parent: Option<usize>,
    #[serde(flatten)]
    frame: FrameLine<'a>,
    wall_ms: Rounded,
    self_wall_ms: Rounded,
    cpu_ms: Rounded,
    self_cpu_ms: Rounded,
    hits: u64,
    self_hits: u64,
    cpu_hits: u64,
    longest_ms: Rounded,
    states_ms: States,
}

impl<'a> NodeLine<'a> {
    fn new(
        parent: Option<usize>,
        frame: FrameLine<'a>,
        total: &Totals,
        own: &Totals,
    ) -> NodeLine<'a> {
        NodeLine {
            parent,
            frame,
            wall_ms: Rounded::ms(total.wall_ns),
            self_wall_ms: Rounded::ms(own.wall_ns),
            cpu_ms: Rounded::ms(total.cpu_ns),
            self_cpu_ms: Rounded::ms(own.cpu_ns),
            hits: total.hits,
            self_hits: own.hits,
            cpu_hits: total.cpu_hits,
            longest_ms: Rounded::ms(total.longest_ns),
            states_ms: States::of(total),
        }
    }
}

/// The names of a frame, the same in a profile and in a dump.
#[derive(Serialize)]
pub(super) struct FrameLine<'a> {
    frame: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    module: &'a str,
    kind: &'static str,
    tier: Option<&'static str>,
    /// Whose code it is; absent in a diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
}

impl<'a> FrameLine<'a> {
    pub fn new(location: &'a Location) -> FrameLine<'a> {
        FrameLine {
            frame: &location.function,
            file: location.file.as_deref(),
            line: location.line,
            module: &location.module,
            kind: location.kind.word(),
            tier: location.tier.map(|tier| tier.word()),
            role: None,
        }
    }

    pub fn of_role(location: &'a Location, role: Role) -> FrameLine<'a> {
        FrameLine { role: Some(role.word()), ..FrameLine::new(location) }
    }
}

#[derive(Serialize)]
struct States {
    run: Rounded,
    rdy: Rounded,
    lock: Rounded,
    wait: Rounded,
    io: Rounded,
    poll: Rounded,
    sleep: Rounded,
    disk: Rounded,
    stopped: Rounded,
}

impl States {
    fn of(totals: &Totals) -> States {
        let ms = |state: State| Rounded::ms(totals.states_ns[state as usize]);
        States {
            run: ms(State::Run),
            rdy: ms(State::Rdy),
            lock: ms(State::Lock),
            wait: ms(State::Wait),
            io: ms(State::Io),
            poll: ms(State::Poll),
            sleep: ms(State::Sleep),
            disk: ms(State::Disk),
            stopped: ms(State::Stopped),
        }
    }
}

#[cfg(test)]
mod tests;
