//! Schema `sampletop-diff/2`. Fields may be added, never removed or renamed. Call trees are flat
//! lists of nodes, as in `sampletop/2`.
//!
//! Figures are in `unit`: of `before`, of `after`, and `change` = after - before. Considering
//! sampling alone, the change lies between `low` and `high`; `resolved` says that these are on one
//! side of 0. Rows under `--min-percent` are included, so sums hold.

use std::io::{self, Write};

use serde::Serialize;

use super::{Report, unlike};
use crate::formats::json::{
    FrameLine, Rounded, SettingsLine, frameless, open_object, separate, write_nodes,
};
use crate::model::projection::Totals;
use crate::model::transform::diff::{Change, FunctionDiff, GroupDiff, NodeDiff, Pair};
use crate::model::vocabulary::state::State;

pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let diff = &report.diff;
    open_object(&Head::new(report), "functions", out)?;
    for (nth, at) in diff.ordered_functions().into_iter().enumerate() {
        separate(nth, out)?;
        serde_json::to_writer(&mut *out, &FunctionLine::new(report, &diff.functions[at]))?;
    }
    out.write_all(b"],\"groups\":[")?;
    for (nth, at) in diff.ordered_groups().into_iter().enumerate() {
        let group = &diff.groups[at];
        separate(nth, out)?;
        open_object(&GroupLine::new(report, group), "nodes", out)?;
        write_group(report, group, out)?;
        out.write_all(b"]}")?;
    }
    out.write_all(b"]}\n")
}

fn write_group(report: &Report<'_>, group: &GroupDiff, out: &mut dyn Write) -> io::Result<()> {
    let diff = &report.diff;
    let write = |node: u32, parent, out: &mut dyn Write| {
        Ok(serde_json::to_writer(out, &NodeLine::new(report, parent, &diff.nodes[node as usize]))?)
    };
    let written = write_nodes(diff.roots(group), |node| diff.children(node), write, out)?;
    // The group's change is the sum of its roots', so time without a frame needs a root too.
    if group.own.before.value_ns > 0 || group.own.after.value_ns > 0 {
        separate(written, out)?;
        let change = ChangeLine::new(&diff.change(&group.own));
        let (location, total) = (frameless(), change);
        serde_json::to_writer(
            out,
            &NodeLine { parent: None, frame: FrameLine::new(&location), total, own: change },
        )?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    version: &'static str,
    per: &'static str,
    unit: &'static str,
    metric: &'static str,
    rolled_up: &'static str,
    settings: Pair2<SettingsLine<'a>>,
    conditions: Vec<ConditionLine>,
    /// The probability that all functions' changes together lie between their bounds.
    confidence: f64,
    /// Of both profiles unscaled, whatever `per` says.
    totals_ms: TotalsLine,
    /// Wall time by state.
    states: StatesLine,
}

impl<'a> Head<'a> {
    fn new(report: &'a Report<'a>) -> Head<'a> {
        let Report { settings, projections, diff, .. } = report;
        let ms = |of: &dyn Fn(&Totals) -> u64| {
            let ms = projections.map(|projection| of(&projection.total) as f64 / 1e6);
            MsLine {
                before: Rounded(ms.before),
                after: Rounded(ms.after),
                change: Rounded(ms.after - ms.before),
            }
        };
        let elapsed = projections.map(|projection| projection.elapsed() as f64 / 1e6);
        let elapsed_ms = MsLine {
            before: Rounded(elapsed.before),
            after: Rounded(elapsed.after),
            change: Rounded(elapsed.after - elapsed.before),
        };
        Head {
            schema: "sampletop-diff/2",
            version: env!("CARGO_PKG_VERSION"),
            per: diff.per.word(),
            unit: diff.per.unit(),
            metric: diff.metric.word(),
            rolled_up: settings.roll_up.word(),
            settings: Pair2 {
                before: SettingsLine::new(settings, &projections.before),
                after: SettingsLine::new(settings, &projections.after),
            },
            conditions: unlike::conditions(report).into_iter().map(ConditionLine::new).collect(),
            confidence: 0.95,
            totals_ms: TotalsLine {
                elapsed: elapsed_ms,
                wall: ms(&|totals| totals.wall_ns),
                cpu: ms(&|totals| totals.cpu_ns),
            },
            states: StatesLine::new(report, &projections.map(|projection| projection.total)),
        }
    }
}

#[derive(Serialize)]
struct Pair2<T> {
    before: T,
    after: T,
}

#[derive(Serialize)]
struct ConditionLine {
    what: String,
    before: String,
    after: String,
    /// So different that this alone may change the figures.
    differs: bool,
}

impl ConditionLine {
    fn new(condition: unlike::Condition) -> ConditionLine {
        let unlike::Condition { name, before, after, differs } = condition;
        ConditionLine { what: name.to_lowercase(), before, after, differs }
    }
}

#[derive(Serialize)]
struct TotalsLine {
    elapsed: MsLine,
    wall: MsLine,
    cpu: MsLine,
}

#[derive(Serialize)]
struct MsLine {
    before: Rounded,
    after: Rounded,
    change: Rounded,
}

#[derive(Clone, Copy, Serialize)]
struct ChangeLine {
    before: Rounded,
    after: Rounded,
    change: Rounded,
    low: Rounded,
    high: Rounded,
    resolved: bool,
}

impl ChangeLine {
    fn new(change: &Change) -> ChangeLine {
        ChangeLine {
            before: Rounded(change.before),
            after: Rounded(change.after),
            change: Rounded(change.change),
            low: Rounded(change.low),
            high: Rounded(change.high),
            resolved: change.is_resolved(),
        }
    }
}

#[derive(Serialize)]
struct FunctionLine<'a> {
    #[serde(flatten)]
    frame: FrameLine<'a>,
    #[serde(rename = "self")]
    own: ChangeLine,
    total: ChangeLine,
    /// Of self, wall time.
    states: StatesLine,
}

impl<'a> FunctionLine<'a> {
    fn new(report: &Report<'_>, function: &'a FunctionDiff) -> FunctionLine<'a> {
        FunctionLine {
            frame: FrameLine::new(&function.location),
            own: ChangeLine::new(&report.diff.change_of(&function.own)),
            total: ChangeLine::new(&report.diff.change_of(&function.total)),
            states: StatesLine::new(report, &function.own),
        }
    }
}

#[derive(Serialize)]
struct GroupLine<'a> {
    name: &'a str,
    threads: Pair2<usize>,
    total: ChangeLine,
}

impl<'a> GroupLine<'a> {
    fn new(report: &Report<'_>, group: &'a GroupDiff) -> GroupLine<'a> {
        let Pair { before, after } = group.threads;
        let total = ChangeLine::new(&report.diff.change_of_group(group));
        GroupLine { name: &group.name, threads: Pair2 { before, after }, total }
    }
}

#[derive(Serialize)]
struct NodeLine<'a> {
    /// Its index in the list of nodes; `null` for a root.
    parent: Option<usize>,
    #[serde(flatten)]
    frame: FrameLine<'a>,
    total: ChangeLine,
    #[serde(rename = "self")]
    own: ChangeLine,
}

impl<'a> NodeLine<'a> {
    fn new(report: &Report<'_>, parent: Option<usize>, node: &'a NodeDiff) -> NodeLine<'a> {
        NodeLine {
            parent,
            frame: FrameLine::new(&node.location),
            total: ChangeLine::new(&report.diff.change(&node.total)),
            own: ChangeLine::new(&report.diff.change(&node.own)),
        }
    }
}

/// The change of each state's time, without states that neither profile has.
struct StatesLine(Vec<(&'static str, MsLine)>);

impl StatesLine {
    fn new(report: &Report<'_>, totals: &Pair<Totals>) -> StatesLine {
        let line = |state: State| {
            let ns = totals.map(|totals| totals.states_ns[state as usize]);
            let change = report.diff.change_of_state(&ns);
            let [before, after, change] = [change.before, change.after, change.change].map(Rounded);
            (ns.before > 0 || ns.after > 0)
                .then_some((state.word(), MsLine { before, after, change }))
        };
        StatesLine(State::ALL.into_iter().filter_map(line).collect())
    }
}

impl Serialize for StatesLine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(state, line)| (state, line)))
    }
}
