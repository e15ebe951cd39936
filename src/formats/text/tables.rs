//! The flat parts: states, top 20 by self, the longest waits.

use std::io;
use std::sync::Arc;

use super::label::fit_label;
use super::{Page, Report, WIDTH, seconds, state};
use crate::formats::ascii::fit;
use crate::formats::dates;
use crate::model::facts::history::FactKey;
use crate::model::projection::settings::Metric;
use crate::model::projection::{Group, Label, Method, Node, is_of, label};
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

/// Maximum rows of the table of functions.
const TOP: usize = 20;
/// Maximum rows of the table of waits.
const WAITS: usize = 10;

/// Writes wall time by state, whatever the metric.
pub fn states(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let total = &report.projection.total;
    let elapsed = report.projection.elapsed();
    page.title("STATE       SECONDS    WALL%     THR")?;
    let mut line = |name: &str, ns: u64| {
        let part = ns as f64 * 100.0 / total.wall_ns.max(1) as f64;
        let threads = ns as f64 / elapsed.max(1) as f64;
        page.line(&format!("{name:<8} {:>10.3} {part:>8.1} {threads:>7.2}", seconds(ns)))
    };
    for state in State::ALL {
        let ns = total.states_ns[state as usize];
        if ns > 0 {
            line(state.word(), ns)?;
        }
    }
    line("all", total.wall_ns)
}

pub fn top(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let all = report.projection.methods();
    let mut methods: Vec<&Method> = all.iter().filter(|m| report.value(&m.own) > 0).collect();
    let location = |method: &Method| Arc::clone(method.location(report.settings.metric));
    // Ties are ordered by name, so that equal profiles give equal reports.
    methods.sort_by_key(|m| (std::cmp::Reverse(report.value(&m.own)), location(m)));
    let metric = report.settings.metric.word();
    page.title(&format!("TOP {TOP} BY SELF ({metric})"))?;
    let what = report.settings.roll_up.heading();
    page.line(&format!("  SELF%  TOTAL%  SECONDS   CPU s    HITS  STATE         {what}"))?;
    for method in methods.iter().take(TOP) {
        let own = &method.own;
        let mut line = format!(
            "{:>7.1}{}{:>7.1} {:>8.3} {:>7.3} {:>7}  {:<12}  ",
            report.percent(own),
            report.doubt(own),
            report.percent(&method.total),
            seconds(report.value(own)),
            seconds(own.cpu_ns),
            own.hits,
            state(own, report.settings.metric),
        );
        let label = Label::of_method(method, report.settings.metric);
        line.push_str(&fit_label(&label, WIDTH.saturating_sub(line.len())));
        page.line(&line)?;
    }
    match methods.len().saturating_sub(TOP) {
        0 => Ok(()),
        more => page.line(&format!("  and {more} more")),
    }
}

/// Writes the longest unbroken waits: the longest one of each place of each group.
pub fn waits(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let session = &report.snapshot.session;
    let mut waits: Vec<Wait<'_>> = Vec::new();
    let ordered = report.ordered();
    for group in ordered.groups() {
        let group = &report.projection.groups[group as usize];
        super::tree::each(&ordered, ordered.roots(group), &mut |nth, node| {
            // The wait of an entry is its caller's.
            if node.own.longest_ns > 0 && !report.projection.is_entry(nth) {
                waits.push(Wait { group, nth, node, thread: None });
            }
        });
    }
    waits.sort_by_key(|Wait { group, node, .. }| {
        (std::cmp::Reverse(node.own.longest_ns), node.own.longest_from, &group.name, node.location)
    });
    waits.truncate(WAITS);
    name_threads(report, &mut waits);
    page.title(&format!("{WAITS} LONGEST WAITS"))?;
    let what = report.settings.roll_up.heading();
    page.line(&format!("  SECONDS  BEGAN (UTC)              STATE    THREAD           {what}"))?;
    for Wait { group, nth, node, thread } in &waits {
        let own = &node.own;
        let tables = &report.snapshot.tables;
        let state = match thread {
            Some(fact) => Some(tables.state(fact.state, fact.stack)),
            None => own.main_state(Metric::Wall).map(|(state, _)| state),
        };
        let mut line = format!(
            "{:>9}  {}  {:<7}  {:<15}  ",
            at_least(report, own.longest_ns, own.longest_from),
            dates::utc(dates::unix_ns(session, own.longest_from)),
            state.map_or("", State::word),
            fit(thread.map_or(&group.name, |fact| tables.name(fact.name)), 15),
        );
        // What waited is the entry with this very wait, if there is one.
        let is_same = |entry: &u32| {
            let entry = ordered.node(*entry).own;
            (entry.longest_ns, entry.longest_from) == (own.longest_ns, own.longest_from)
        };
        let mut entries = ordered.children(*nth).into_iter();
        let entry = entries.find(|child| report.projection.is_entry(*child) && is_same(child));
        let inner = entry.map(|entry| &**ordered.node(entry).location);
        let label = Label { outer: Vec::new(), inner, ..label(&ordered, *nth, 0) };
        line.push_str(&fit_label(&label, WIDTH.saturating_sub(line.len())));
        page.line(&line)?;
    }
    match waits.is_empty() {
        true => page.line("  none"),
        false => Ok(()),
    }
}

/// Formats a wait; one that began before the session is longer than was seen.
pub fn at_least(report: &Report<'_>, ns: u64, from: Ns) -> String {
    let longer = if report.snapshot.may_have_begun_before(from) { ">" } else { "" };
    format!("{longer}{:.3}", seconds(ns))
}

struct Wait<'a> {
    group: &'a Group,
    nth: u32,
    node: Node<'a>,
    /// The thread that waited, and how.
    thread: Option<FactKey>,
}

/// Finds the fact behind each wait: the same duration and start, a thread of the group, in that
/// row. If several threads match, one stands for all, independent of the order of facts.
fn name_threads(report: &Report<'_>, waits: &mut [Wait<'_>]) {
    let Report { snapshot, settings, projection, .. } = report;
    let tables = &snapshot.tables;
    snapshot.history.read(settings.range, snapshot.at, &mut |key, weights| {
        let span = (weights.longest_ns, weights.longest_from);
        for wait in
            waits.iter_mut().filter(|w| (w.node.own.longest_ns, w.node.own.longest_from) == span)
        {
            let (row, by) = (wait.node.location, settings.roll_up);
            let in_row = || {
                let mut frames = tables.frames_innermost_first(key.stack);
                frames.any(|frame| tables.named(frame).locations.iter().any(|l| is_of(row, l, by)))
                    // Waits that began together may be equally long.
                    && projection.was_at(key.thread, wait.nth)
            };
            if wait.thread.is_none_or(|found| *key < found)
                && wait.group.threads.iter().any(|t| t.thread == key.thread)
                && in_row()
            {
                wait.thread = Some(*key);
            }
        }
    });
}
