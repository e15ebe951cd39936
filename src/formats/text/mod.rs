//! A report to paste into a ticket: ASCII, at most 100 columns, dates in UTC.
//!
//! ```text
//! mod      the order of the parts, and the page
//! head     summary line, identity, conditions, settings and the time each hides
//! tree     the call tree, down to 1 %; label: names of its lines
//! locks    deadlocks; what threads waited for, and who held it
//! waits    files, peers and children that threads were found to wait for
//! wakers   who woke threads
//! tables   top 20 by self, the longest waits, states
//! ```
//!
//! Everything but printable ASCII is written as `\u{hex}`; names that are too long lose their
//! middle.

pub(super) mod head;
mod label;
mod locks;
mod tables;
mod tree;
mod waits;
pub(super) mod wakers;
pub(super) use tree::Row;

use std::io::{self, Write};

use super::ascii::{fit, wrap};
use super::{base, trees};
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{Metric, Settings};
use crate::model::projection::{Ordered, Projection, Totals, confidence, project};

/// Columns of a page.
pub(super) const WIDTH: usize = 100;

/// Columns of a field's label.
pub(super) const INDENT: usize = 13;

/// Maximum lines of the whole tree.
const TREE_LINES: usize = 400;

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    render(
        &Report {
            snapshot,
            settings,
            projection: &trees::project(snapshot, settings),
            tree_lines: TREE_LINES,
        },
        out,
    )
}

/// Writes the report in at most the given number of lines. The tree is shortened first. The legend
/// is dropped where it leaves the tree less than a third. Then the end is cut.
pub fn write_within(
    snapshot: &Snapshot,
    settings: &Settings,
    max_lines: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let projection = &trees::project(snapshot, settings);
    let parts = |tree_lines| -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let report = Report { snapshot, settings, projection, tree_lines };
        render_parts(&report, &mut Page { out: &mut text })?;
        Ok(text)
    };
    let (mut whole, mut signs) = (parts(TREE_LINES)?, Vec::new());
    legend(&mut Page { out: &mut signs })?;
    if lines(&whole) + lines(&signs) > max_lines {
        let room = max_lines.saturating_sub(lines(&parts(0)?));
        let beside_legend = room.saturating_sub(lines(&signs));
        if beside_legend < max_lines / 3 {
            signs.clear();
        }
        let tree_lines = if signs.is_empty() { room } else { beside_legend };
        whole = parts(tree_lines.min(TREE_LINES))?;
    }
    whole.append(&mut signs);
    match lines(&whole).checked_sub(max_lines) {
        None | Some(0) => out.write_all(&whole),
        Some(beyond) => {
            let kept =
                whole.split_inclusive(|byte| *byte == b'\n').take(max_lines.saturating_sub(1));
            kept.into_iter().try_for_each(|line| out.write_all(line))?;
            writeln!(out, "and {} more lines: see --max-lines", beyond + 1)
        }
    }
}

/// All data that a part may use.
#[derive(Clone, Copy)]
pub(super) struct Report<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: &'a Settings,
    pub projection: &'a Projection,
    /// Maximum lines of the tree.
    pub tree_lines: usize,
}

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let page = &mut Page { out };
    render_parts(report, page)?;
    legend(page)
}

/// Writes all but the legend.
fn render_parts(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    head::summary(report, page)?;
    head::sentences(report, page)?;
    head::settings(report, page)?;
    locks::deadlocks(report, page)?;
    tree::tree(report, page)?;
    locks::locks(report, page)?;
    waits::observed(report, page)?;
    wakers::wakers(report, page)?;
    tables::top(report, page)?;
    tables::waits(report, page)?;
    tables::states(report, page)?;
    head::identity(&report.snapshot.session, &report.snapshot.targets, page)?;
    head::conditions(report, page)
}

/// Writes what was measured, how well, and which part is shown, for formats that have a place for
/// remarks.
pub(super) fn write_head(
    snapshot: &Snapshot,
    settings: &Settings,
    projection: &Projection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let report = &Report { snapshot, settings, projection, tree_lines: 0 };
    let page = &mut Page { out };
    head::identity(&snapshot.session, &snapshot.targets, page)?;
    head::conditions(report, page)?;
    head::settings(report, page)
}

/// Writes deadlocks, and the locks that threads waited for; nothing if there are none.
pub(super) fn write_locks(
    snapshot: &Snapshot,
    settings: &Settings,
    projection: &Projection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let report = &Report { snapshot, settings, projection, tree_lines: 0 };
    let page = &mut Page { out };
    locks::deadlocks(report, page)?;
    locks::locks(report, page)
}

/// Returns the lines that [`write_head`] writes.
pub(super) fn head_lines(snapshot: &Snapshot, settings: &Settings) -> io::Result<Vec<String>> {
    let mut bytes = Vec::new();
    write_head(snapshot, settings, &project(snapshot, settings), &mut bytes)?;
    let lines = String::from_utf8_lossy(&bytes);
    Ok(lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn legend(page: &mut Page<'_>) -> io::Result<()> {
    page.title("LEGEND")?;
    for line in [
        "TOTAL%  time in the function and all it calls, of what is shown (100 % = all threads' time shown)",
        "SELF%   time in the function itself; under the settings' metric, as TOTAL%",
        "~       too few observations for a figure: fewer than 10, and less than 10 intervals each",
        "THR     threads in it on average (cpu: on a core, off: off it)  CPU  cores used  HITS  observations",
        "STATE   where most of that time went:  run   on a core             rdy   wants a core",
        "        lock  a mutex or rwlock        wait  a condition or queue  io    read, recv, connect, fsync",
        "        poll  epoll, select, accept    sleep                       disk  uninterruptible",
        ">N      longer than N seconds: the wait began before the first observation",
        "F -> G  F, which calls G for most of its time (in the table by self: of its self time)",
        "-> G    G, which is not your code and is called by the line above",
        "> F     F, called by the line above and by nothing else that is shown",
        "[...]   why a stack ends there, or what stands for time without a stack",
        "\\u{..}  a character that is not ASCII",
    ] {
        page.line(line)?;
    }
    Ok(())
}

impl Report<'_> {
    fn ordered(&self) -> Ordered<'_> {
        self.projection.ordered(self.settings)
    }

    fn value(&self, totals: &Totals) -> u64 {
        totals.value(self.settings.metric)
    }

    /// Returns the percentage of what is shown.
    fn percent(&self, totals: &Totals) -> f64 {
        totals.share(self.settings.metric, &self.projection.total) * 100.0
    }

    /// Returns `~` where the figure is unreliable, else a blank.
    fn doubt(&self, row: &Totals) -> char {
        let interval = self.snapshot.resolution();
        match confidence(row, &self.projection.total, self.settings.metric, interval).unresolved {
            true => '~',
            false => ' ',
        }
    }
}

/// Formats the state with the largest share of the metric's time: `io   66%`.
fn state(totals: &Totals, metric: Metric) -> String {
    match totals.main_state(metric) {
        Some((state, part)) => format!("{:<7} {:>3.0}%", state.word(), part * 100.0),
        None => String::new(),
    }
}

/// Formats name, line and module in `width` columns: the whole name if it fits, then as much of the
/// rest as fits. Omits a module that equals the name or its beginning, as with a class.
pub(super) fn place(location: &Location, width: usize) -> String {
    let mut text = fit(&location.function, width);
    let line = match (&location.file, location.line) {
        (Some(file), Some(line)) => format!("  {}:{line}", base(file)),
        (Some(file), None) => format!("  {}", base(file)),
        (None, Some(line)) => format!(" :{line}"),
        (None, None) => String::new(),
    };
    let module = match base(&location.module) {
        "" => String::new(),
        module
            if location
                .function
                .strip_prefix(module)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) =>
        {
            String::new()
        }
        module if module.starts_with('[') => format!("  {module}"),
        module => format!("  [{module}]"),
    };
    for part in [line, module] {
        let part = super::ascii::ascii(&part).into_owned();
        if text.len() + part.len() <= width {
            text.push_str(&part);
        }
    }
    text
}

/// Formats a count: `1 thread`, `2 threads`.
fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Lines of ASCII, none wider than the page.
pub(super) struct Page<'a> {
    pub out: &'a mut dyn Write,
}

impl Page<'_> {
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", fit(text.trim_end(), WIDTH))
    }

    pub fn blank(&mut self) -> io::Result<()> {
        self.line("")
    }

    /// Writes the heading of a part.
    pub fn title(&mut self, text: &str) -> io::Result<()> {
        self.blank()?;
        self.line(text)
    }

    /// Writes `label   text`, over up to four lines.
    pub fn field(&mut self, label: &str, text: &str) -> io::Result<()> {
        for (i, part) in wrap(text, WIDTH - INDENT, 4).iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            self.line(&format!("{label:<INDENT$}{part}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
