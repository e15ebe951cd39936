//! A diff to paste into a ticket. Totals come first, so that a program that became slower
//! everywhere shows; then states, functions, and the tree of changes. ASCII, at most 100 columns.

use std::io::{self, Write};

use super::{Report, unlike};
use crate::formats::FRAMELESS;
use crate::formats::ascii::fit;
use crate::formats::rename;
use crate::formats::text::{Page, Row, WIDTH, head, place};
use crate::model::projection::Totals;
use crate::model::projection::settings::{Metric, NativeFrames, Range, Settings};
use crate::model::transform::diff::{Change, FunctionDiff, GroupDiff, Pair, Per};
use crate::model::vocabulary::state::State;

/// Maximum rows of the table of functions.
const TOP: usize = 30;
/// Maximum names listed that only one profile has.
const NAMES: usize = 8;
/// Minimum share of the shown time that a tree row needs, percent, unless the settings say
/// otherwise.
const MIN_PERCENT: f64 = 1.0;
const TREE_LINES: usize = 200;

pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let page = &mut Page { out };
    summary(report, page)?;
    conditions(report, page)?;
    settings(report, page)?;
    totals(report, page)?;
    states(report, page)?;
    functions(report, page)?;
    tree(report, page)?;
    legend(report, page)
}

/// Writes one line in logfmt, for grep.
fn summary(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Report { diff, projections, .. } = report;
    let total = projections.map(|projection| projection.total);
    let ms = |of: fn(&Totals) -> u64| (of(&total.after) as f64 - of(&total.before) as f64) / 1e6;
    let elapsed = projections.map(|projection| projection.elapsed() as f64 / 1e9);
    let mut line = format!(
        "sampletop diff per={} s={:.1}/{:.1} wall_ms={:+.1} cpu_ms={:+.1}",
        diff.per.word(),
        elapsed.before,
        elapsed.after,
        ms(|totals| totals.wall_ns),
        ms(|totals| totals.cpu_ns),
    );
    let top = diff.ordered_functions().into_iter().map(|at| &diff.functions[at]);
    if let Some((top, change)) =
        top.map(|top| (top, diff.change_of(&top.own))).find(|(_, change)| change.is_resolved())
    {
        line.push_str(&format!(" {}_self={:+.1} top=", diff.metric.word(), change.change));
        let left = WIDTH.saturating_sub(line.len());
        line.push_str(&head::quoted(&top.location.function, left));
    }
    page.line(&line)
}

fn conditions(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    const LABEL: usize = 11;
    const COLUMN: usize = (WIDTH - LABEL - 4) / 2;
    page.title(&format!("{:<LABEL$}  {:<COLUMN$}  AFTER", "", "BEFORE"))?;
    for condition in unlike::conditions(report) {
        let differs = if condition.differs { '!' } else { ' ' };
        let (before, after) = (fit(&condition.before, COLUMN), fit(&condition.after, COLUMN));
        page.line(&format!("{:<LABEL$}{differs} {before:<COLUMN$}  {after}", condition.name))?;
    }
    only_in_one(report, page)
}

/// Lists groups and functions that only one profile has. A function with little time may be missing
/// by chance of sampling.
fn only_in_one(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let diff = &report.diff;
    let mut functions: Vec<&FunctionDiff> = diff.functions.iter().collect();
    functions.sort_by_key(|function| {
        let Pair { before, after } = function.total.map(|totals| totals.value(diff.metric));
        std::cmp::Reverse(before + after)
    });
    for (label, is_after) in [("Only before", false), ("Only after", true)] {
        let missing = |group: &&GroupDiff| {
            (if is_after { group.threads.before } else { group.threads.after }) == 0
        };
        let groups: Vec<&str> =
            diff.groups.iter().filter(missing).map(|group| &*group.name).collect();
        if !groups.is_empty() {
            page.field(label, &format!("threads: {}", listed(&groups)))?;
        }
        let missing = |function: &&&FunctionDiff| {
            (if is_after { &function.total.before } else { &function.total.after }).is_empty()
        };
        let sure = |function: &&FunctionDiff| diff.change_of(&function.total).is_resolved();
        let (sure, rare): (Vec<&FunctionDiff>, _) =
            functions.iter().copied().filter(|f| missing(&f)).partition(sure);
        let sure: Vec<&str> =
            sure.into_iter().map(|function| &*function.location.function).collect();
        let rows = report.settings.roll_up.plural();
        let rare = match rare.len() {
            0 => String::new(),
            1 => format!("1 {} too rare to tell", report.settings.roll_up.heading().to_lowercase()),
            n => format!("{n} {rows} too rare to tell"),
        };
        match (sure.is_empty(), rare.is_empty()) {
            (true, true) => {}
            (true, false) => page.field(label, &rare)?,
            (false, true) => page.field(label, &format!("{rows}: {}", listed(&sure)))?,
            (false, false) => {
                page.field(label, &format!("{rows}: {}; and {rare}", listed(&sure)))?
            }
        }
    }
    Ok(())
}

fn listed(names: &[&str]) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMES).map(|name| fit(name, 40)).collect();
    if names.len() > NAMES {
        shown.push(format!("and {} more", names.len() - NAMES));
    }
    shown.join(", ")
}

fn settings(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let Settings { metric, roll_up, filters, range, .. } = report.settings;
    page.blank()?;
    let range = match range {
        Range::Rolling(ns) => format!("the last {:.0} s", *ns as f64 / 1e9),
        Range::Cumulative { .. } | Range::Between { .. } => "everything".into(),
    };
    let (per, unit) = (report.diff.per.word(), report.diff.per.unit());
    let rows = roll_up.plural();
    page.field(
        "Settings",
        &format!(
            "per {per} ({unit}), metric {}, rows are {rows}, threads by {}, {range} of both",
            metric.word(),
            report.settings.grouping.typed()
        ),
    )?;
    let idle = if report.settings.idle { "shown" } else { "hidden" };
    page.field("Idle", idle)?;
    for pattern in &report.settings.idle_at {
        page.field("Idle at", &format!("also when blocked in /{pattern}/"))?;
    }
    for rule in &report.settings.rename {
        page.field("Rename", &rename(rule))?;
    }
    for (name, filter) in [
        ("Threads", &filters.threads),
        ("Focus", &filters.focus),
        ("Ignore", &filters.ignore),
        ("Hide", &filters.hide),
    ] {
        if let Some(pattern) = filter.active() {
            page.field(name, &format!("/{}/", fit(pattern.as_str(), 200)))?;
        }
    }
    if let Some(prefixes) = filters.interesting.active() {
        page.field("Interesting", &prefixes.join(","))?;
    }
    for (name, on) in [("Daemons", filters.skip_daemon), ("No kernel", filters.no_kernel)] {
        if on {
            page.field(name, "not shown")?;
        }
    }
    if filters.gil {
        page.field("GIL", "only stacks whose thread holds it")?;
    }
    match filters.native {
        NativeFrames::Auto => Ok(()),
        native => page.field("Native", native.word()),
    }
}

/// Writes the totals of the unscaled runs, so that a general slowdown shows under any setting.
fn totals(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let projections = &report.projections;
    page.title("TOTALS                      BEFORE         AFTER        CHANGE         %")?;
    let mut line = |name: &str, figures: Pair<f64>| {
        let change = figures.after - figures.before;
        let percent = match figures.before {
            0.0 => String::new(),
            before => format!("{:>+9.1}", change / before * 100.0),
        };
        page.line(&format!(
            "{name:<20} {:>13.3} {:>13.3} {change:>+13.3} {percent}",
            figures.before, figures.after
        ))
    };
    let elapsed = projections.map(|projection| projection.elapsed());
    let ms =
        |of: fn(&Totals) -> u64| projections.map(|projection| of(&projection.total) as f64 / 1e6);
    line("elapsed, ms", elapsed.map(|ns| *ns as f64 / 1e6))?;
    line("wall, ms", ms(|totals| totals.wall_ns))?;
    line("cpu, ms", ms(|totals| totals.cpu_ns))?;
    line(
        "threads, average",
        projections.map(|projection| projection.total.threads(Metric::Wall, projection.elapsed())),
    )?;
    line(
        "cores, average",
        projections.map(|projection| projection.total.cores(projection.elapsed())),
    )?;
    let hidden = projections.map(|projection| {
        let [threads, daemons, focus, ignore, gil, idle, filtered_idle] =
            projection.hidden.parts().map(|totals| totals.wall_ns as f64 / 1e6);
        [threads, daemons, focus, ignore, gil, idle + filtered_idle]
    });
    let names = ["threads", "daemons", "focus", "ignore", "gil", "idle"];
    for (nth, name) in names.into_iter().enumerate() {
        let ms = hidden.map(|parts| parts[nth]);
        if ms.before > 0.0 || ms.after > 0.0 {
            line(&format!("hidden: {name}, ms"), ms)?;
        }
    }
    Ok(())
}

/// Writes wall time by state, whatever the metric.
fn states(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let diff = &report.diff;
    let unit = diff.per.unit();
    page.title(&format!(
        "{:<21}{:>13} {:>13} {:>13}",
        format!("STATE ({unit})"),
        "BEFORE",
        "AFTER",
        "CHANGE"
    ))?;
    for state in State::ALL {
        let ns = report.projections.map(|projection| projection.total.states_ns[state as usize]);
        if ns.before > 0 || ns.after > 0 {
            let change = diff.change_of_state(&ns);
            let [before, after] =
                [change.before, change.after].map(|figure| plain(diff.per, figure));
            let line = format!("{before:>13} {after:>13} {:>13}", signed(diff.per, change.change));
            page.line(&format!("{:<20} {line}", state.word()))?;
        }
    }
    Ok(())
}

fn functions(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let diff = &report.diff;
    let (unit, metric) = (diff.per.unit(), report.settings.metric.word());
    let rows = report.settings.roll_up.plural();
    let sure = |function: &FunctionDiff| diff.change_of(&function.own).is_resolved();
    let ordered = diff.ordered_functions().into_iter().map(|at| &diff.functions[at]);
    let (resolved, noise): (Vec<&FunctionDiff>, Vec<&FunctionDiff>) =
        ordered.partition(|function| sure(function));
    page.title(&format!("{} BY CHANGE OF SELF ({metric}, {unit})", rows.to_uppercase()))?;
    page.line(&format!("{FIGURES}      TOTAL  STATE  {}", report.settings.roll_up.heading()))?;
    for function in resolved.iter().take(TOP) {
        let change = diff.change_of(&function.own);
        let total = signed(diff.per, diff.change_of(&function.total).change);
        let state = diff.state(&function.own).map_or("", State::word);
        let mut line = format!("{}{total:>11}  {state:<5}  ", figures(diff.per, &change));
        line.push_str(&place(&function.location, WIDTH.saturating_sub(line.len())));
        page.line(&line)?;
    }
    match resolved.len() {
        0 => page.line("   none by more than sampling makes")?,
        n if n > TOP => page.line(&format!("   and {} more", n - TOP))?,
        _ => {}
    }
    let moved: Vec<Change> =
        noise.iter().map(|f| diff.change_of(&f.own)).filter(|c| c.change != 0.0).collect();
    if let (Some(most), Some(first)) = (moved.first(), noise.first()) {
        let name = fit(&first.location.function, 40);
        page.line(&format!(
            "   not listed: {} within their +/-, most {name}: {} {unit}",
            moved.len(),
            signed(diff.per, most.change),
        ))?;
    }
    Ok(())
}

const FIGURES: &str = "    CHANGE        +/-     BEFORE      AFTER";

/// Formats the figures in the heading's order.
fn figures(per: Per, change: &Change) -> String {
    let (before, after) = (figure(per, change.before), figure(per, change.after));
    let reach = plain(per, (change.high - change.low) / 2.0);
    let doubt = if change.is_resolved() || change.change == 0.0 { ' ' } else { '~' };
    format!("{:>10}{doubt}{reach:>10} {before:>10} {after:>10}", signed(per, change.change))
}

/// Formats a figure; a dash for a missing one.
fn figure(per: Per, figure: f64) -> String {
    if figure == 0.0 { "-".into() } else { plain(per, figure) }
}

fn decimals(per: Per) -> usize {
    if per == Per::Run { 1 } else { 2 }
}

fn plain(per: Per, figure: f64) -> String {
    format!("{figure:.*}", decimals(per))
}

/// Formats a figure with its sign; what rounds to zero has none.
pub(super) fn signed(per: Per, figure: f64) -> String {
    let text = format!("{figure:+.*}", decimals(per));
    if text.contains(|c: char| ('1'..='9').contains(&c)) { text } else { text.replace('-', "+") }
}

fn tree(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let diff = &report.diff;
    let percent = report.settings.filters.min_percent.active().copied().unwrap_or(MIN_PERCENT);
    let shown =
        diff.measured(&report.projections.map(|projection| projection.total.value(diff.metric)));
    let least = shown.before.max(shown.after) * percent / 100.0;
    let (unit, metric) = (diff.per.unit(), diff.metric.word());
    page.title(&format!("TREE OF CHANGES ({metric}, {unit}; from {percent} % of what is shown)"))?;
    page.line(&format!("{FIGURES}  {}", report.settings.roll_up.heading()))?;
    let drawn = diff.worth_drawing(least);
    let mut lines = 0;
    let mut dropped = 0;
    for group in diff.ordered_groups() {
        let group = &diff.groups[group];
        let roots: Vec<u32> =
            diff.roots(group).into_iter().filter(|root| drawn[*root as usize]).collect();
        let change = diff.change_of_group(group);
        let frameless = diff.change(&group.own);
        let frameless =
            Some(frameless).filter(|change| change.is_resolved() && change.change.abs() >= least);
        if roots.is_empty() && frameless.is_none() && change.change.abs() < least {
            dropped += 1;
            continue;
        }
        let Pair { before, after } = group.threads;
        page.line(&format!(
            "{}  {}  (threads: {before}, {after})",
            figures(diff.per, &change),
            fit(&group.name, 30)
        ))?;
        if let Some(change) = frameless {
            page.line(&format!("{}    {FRAMELESS}", figures(diff.per, &change)))?;
        }
        let only = roots.len() == 1;
        let mut todo: Vec<Row> =
            roots.into_iter().rev().map(|node| Row { node, depth: 1, only }).collect();
        while let Some(row) = todo.pop() {
            lines += 1;
            if lines > TREE_LINES {
                return page.line(&format!("           the tree ends here: {TREE_LINES} lines"));
            }
            let chain = diff.chain(row.node, &drawn);
            for (nth, (at, swallowed)) in lines_of(chain.len(), row.only).into_iter().enumerate() {
                lines += usize::from(nth > 0);
                let node = &diff.nodes[chain[at] as usize];
                let figures = format!("{}  ", figures(diff.per, &diff.change(&node.total)));
                let mut line = Row { only: row.only || nth > 0, ..row }.line(figures);
                if swallowed > 0 {
                    line.push_str(&format!("...{swallowed} "));
                }
                line.push_str(&place(&node.location, WIDTH.saturating_sub(line.len())));
                page.line(&line)?;
            }
            let last = chain.last().copied().unwrap_or(row.node);
            let children: Vec<u32> =
                diff.children(last).into_iter().filter(|child| drawn[*child as usize]).collect();
            let only = children.len() == 1;
            let depth = row.depth + usize::from(!only);
            todo.extend(children.into_iter().rev().map(|node| Row { node, depth, only }));
        }
    }
    match dropped {
        0 => Ok(()),
        n => page.line(&format!(
            "           and {n} group{} of threads that changed by less",
            if n == 1 { "" } else { "s" }
        )),
    }
}

/// Returns which of a chain's nodes have a line, each with the number of nodes before it that have
/// none. The last two have one, since the caller of the last is the first question. After a fork
/// the first has one too, which distinguishes it from the other branches.
pub(super) fn lines_of(chain: usize, only: bool) -> Vec<(usize, usize)> {
    let mut next = 0;
    let drawn = (0..chain).filter(|at| at + 2 >= chain || (*at == 0 && !only));
    drawn.map(|at| (at, at - std::mem::replace(&mut next, at + 1))).collect()
}

fn legend(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    page.title("LEGEND")?;
    let compared = report.diff.compared();
    let rows = report.settings.roll_up.plural();
    for line in [
        "!       differs so far that the figures may differ by it alone".to_owned(),
        "CHANGE  after - before".to_owned(),
        format!("+/-     how far it may come from sampling: all {compared} {rows} are within theirs with 95 %."),
        "        Two runs of one program differ by more than that: compare some runs with each other, too".to_owned(),
        "~       no more than sampling makes; drawn because something below it did change".to_owned(),
        "TOTAL   change of the time in it and in all it calls".to_owned(),
        "STATE   whose time changed most        -       it is not there".to_owned(),
        "...N F  F, called through N functions in which nothing else changed".to_owned(),
        "> F     F, called by the line above and by nothing else that is drawn".to_owned(),
    ] {
        page.line(&line)?;
    }
    Ok(())
}
