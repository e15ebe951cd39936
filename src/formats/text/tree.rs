//! The call tree, per group of threads.
//!
//! Lines are collapsed as in the view, and indented only where the tree forks. An only child stands
//! below its caller with a `>` before it. The walk is iterative, since a target may recurse to any
//! depth.

use std::io;

use super::label::fit_label;
use super::{Page, Report, WIDTH, count, state};
use crate::formats::FRAMELESS;
use crate::model::projection::settings::Level;
use crate::model::projection::{Chain, Node, Ordered, Totals, chain, label};

/// Minimum share of a row, percent, unless the settings say otherwise.
const MIN_PERCENT: f64 = 1.0;

/// Groups that are drawn at least, where the larger ones have less than half of the time.
const GROUPS_LEAST: usize = 10;

/// Maximum forks shown by indentation; deeper ones are numbered.
const MAX_INDENT: usize = 7;

pub fn tree(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let wanted = report.settings.filters.min_percent.active().copied();
    let least = wanted.unwrap_or(MIN_PERCENT);
    page.title(&format!("TREE (from {least} % of what is shown)"))?;
    let what = report.settings.roll_up.heading();
    page.line(&format!(" TOTAL%   SELF%     THR     CPU  STATE         {what}"))?;
    let mut lines = 0;
    let mut dropped = 0;
    let ordered = report.ordered();
    let ends_here = format!("        the tree ends here: {} lines", report.tree_lines);
    let many_small = match wanted {
        Some(_) => Vec::new(),
        None => largest_of_many(report, least),
    };
    for at in ordered.groups() {
        let group = &report.projection.groups[at as usize];
        let least = match is_drawn(report, &group.total, least) {
            true => least,
            // Its heaviest path.
            false if many_small.contains(&at) => report.percent(&group.total) / 2.0,
            false => {
                dropped += 1;
                continue;
            }
        };
        lines += 1;
        if lines > report.tree_lines {
            return page.line(&ends_here);
        }
        let threads = group.thread_count();
        let name = crate::formats::ascii::fit(&group.name, 30);
        page.line(&format!("{}{name}  ({threads})", figures(report, &group.total, &group.own)))?;
        let mut todo: Vec<Row> = Vec::new();
        push(report, ordered.roots(group), 1, false, least, &mut todo);
        if is_drawn(report, &group.own, least) {
            page.line(&format!("{}  {FRAMELESS}", figures(report, &group.own, &group.own)))?;
        }
        while let Some(row) = todo.pop() {
            lines += 1;
            if lines > report.tree_lines {
                return page.line(&ends_here);
            }
            let chain = match report.settings.level {
                Level::All => Chain { last: row.node, swallowed: 0 },
                Level::Mine | Level::Chains => chain(&ordered, row.node),
            };
            let node = ordered.node(chain.last);
            let mut line = row.line(figures(report, &node.total, &node.own));
            let label = label(&ordered, chain.last, chain.swallowed);
            line.push_str(&fit_label(&label, WIDTH.saturating_sub(line.len())));
            page.line(&line)?;
            let mut children = ordered.children(chain.last);
            children.retain(|child| is_drawn_node(report, *child, least));
            // The only way out of the user's code stands on the line already.
            if let ([one], Some(_)) = (&children[..], label.inner)
                && report.projection.is_entry(*one)
            {
                children.clear();
            }
            let fork = children.len() > 1;
            push(report, children, row.depth + usize::from(fork), !fork, least, &mut todo);
        }
    }
    match dropped {
        0 => Ok(()),
        n => page.line(&format!("        and {} of threads under {least} %", count(n, "group"))),
    }
}

/// Returns the largest groups, where those from `least` percent have less than half of the time:
/// with hundreds of groups none may be large.
fn largest_of_many(report: &Report<'_>, least: f64) -> Vec<u32> {
    let groups = &report.projection.groups;
    let value = |at: &u32| report.value(&groups[*at as usize].total);
    let is_large = |at: &&u32| is_drawn(report, &groups[**at as usize].total, least);
    let mut order: Vec<u32> = (0..groups.len() as u32).filter(|at| value(at) > 0).collect();
    let large: u64 = order.iter().filter(is_large).map(value).sum();
    if large.saturating_mul(2) >= report.value(&report.projection.total) {
        return Vec::new();
    }
    order.sort_by_key(|at| std::cmp::Reverse(value(at)));
    order.truncate(GROUPS_LEAST);
    order
}

/// A line of a tree.
#[derive(Clone, Copy)]
pub struct Row {
    pub node: u32,
    /// Forks above it; its group is the first.
    pub depth: usize,
    /// The only drawn callee of the line above.
    pub only: bool,
}

impl Row {
    /// Formats the row's position after its figures.
    pub fn line(self, figures: String) -> String {
        let mut line = figures;
        match self.depth {
            depth if depth <= MAX_INDENT => line.push_str(&"  ".repeat(depth)),
            depth => line.push_str(&format!(
                "{:<width$}",
                format!("(fork {depth})"),
                width = 2 * MAX_INDENT
            )),
        }
        if self.only {
            line.push_str("> ");
        }
        line
    }
}

/// Pushes the shown `nodes` on the stack, so that the first of them is popped first.
fn push(
    report: &Report<'_>,
    nodes: Vec<u32>,
    depth: usize,
    only: bool,
    least: f64,
    todo: &mut Vec<Row>,
) {
    let drawn = nodes.into_iter().rev().filter(|node| is_drawn_node(report, *node, least));
    todo.extend(drawn.map(|node| Row { node, depth, only }));
}

fn is_drawn_node(report: &Report<'_>, node: u32, least: f64) -> bool {
    is_drawn(report, &report.projection.total(node), least)
}

fn is_drawn(report: &Report<'_>, totals: &Totals, least: f64) -> bool {
    report.value(totals) > 0 && report.percent(totals) >= least
}

fn figures(report: &Report<'_>, total: &Totals, own: &Totals) -> String {
    let elapsed = report.projection.elapsed();
    format!(
        "{:>7.1}{}{:>7.1} {:>7.2} {:>7.2}  {:<12}  ",
        report.percent(total),
        report.doubt(total),
        report.percent(own),
        total.threads(report.settings.metric, elapsed),
        total.cores(elapsed),
        state(total, report.settings.metric),
    )
}

/// Calls `f` for every node below `roots`, callers before callees.
pub fn each<'a>(ordered: &Ordered<'a>, roots: Vec<u32>, f: &mut dyn FnMut(u32, Node<'a>)) {
    let mut todo: Vec<u32> = roots.into_iter().rev().collect();
    while let Some(node) = todo.pop() {
        f(node, ordered.node(node));
        todo.extend(ordered.children(node).into_iter().rev());
    }
}
