//! The flat parts: states, top 20 by self, the longest waits.

use std::io;

use super::{NAME_LEAST, Page, Report, WIDTH, place, seconds, state};
use crate::export::ascii::fit;
use crate::export::dates;
use crate::model::project::{Group, Method, Node};
use crate::model::state::State;

const TOP: usize = 20;
const WAITS: usize = 10;

/// Wall time by state, whatever the metric.
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
    let mut methods: Vec<&Method> = report.projection.methods.iter().filter(|m| report.value(&m.own) > 0).collect();
    // Ties by name, so that equal profiles give equal reports.
    methods.sort_by_key(|m| (std::cmp::Reverse(report.value(&m.own)), &m.location));
    let metric = report.settings.metric.word();
    page.title(&format!("TOP {TOP} BY SELF ({metric})"))?;
    page.line("  SELF%  TOTAL%  SECONDS   CPU s    HITS  STATE         FUNCTION")?;
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
            state(own),
        );
        line.push_str(&place(&method.location, WIDTH.saturating_sub(line.len()).max(NAME_LEAST)));
        page.line(&line)?;
    }
    match methods.len().saturating_sub(TOP) {
        0 => Ok(()),
        more => page.line(&format!("  and {more} more")),
    }
}

/// The longest unbroken waits: the longest one of each place of each group.
pub fn waits(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let session = &report.snapshot.session;
    let mut waits: Vec<(&Group, &Node)> = Vec::new();
    for group in &report.projection.groups {
        super::tree::each(report.projection, &group.roots, &mut |node| {
            if node.own.longest_ns > 0 {
                waits.push((group, node));
            }
        });
    }
    waits.sort_by_key(|(group, node)| {
        (std::cmp::Reverse(node.own.longest_ns), node.own.longest_from, &group.name, &node.location)
    });
    page.title(&format!("{WAITS} LONGEST WAITS"))?;
    page.line("  SECONDS  BEGAN (UTC)              STATE    THREADS               FUNCTION")?;
    for (group, node) in waits.iter().take(WAITS) {
        let own = &node.own;
        let mut line = format!(
            "{:>9.3}  {}  {:<7}  {:<20}  ",
            seconds(own.longest_ns),
            dates::utc(dates::unix_ns(session, own.longest_from)),
            own.main_state().map_or("", |(state, _)| state.word()),
            fit(&group.name, 20),
        );
        line.push_str(&place(&node.location, WIDTH.saturating_sub(line.len()).max(NAME_LEAST)));
        page.line(&line)?;
    }
    match waits.is_empty() {
        true => page.line("  none"),
        false => Ok(()),
    }
}
