//! What threads were found to wait for: files, peers, children.

use std::io;

use super::locks::place_lines;
use super::{Page, Report, WIDTH};
use crate::formats::ascii::fit;
use crate::model::projection::ObservedPlace;

/// Maximum waits.
const WAITS: usize = 10;
/// Columns before a wait.
const INDENT: usize = 25;

/// Writes for what threads waited, where that was looked up.
pub fn observed(report: &Report<'_>, page: &mut Page<'_>) -> io::Result<()> {
    // Locks have a part of their own.
    let is_listed = |wait: &&ObservedPlace| wait.object.waits_for.what != "lock";
    let observed: Vec<_> = report.projection.observed.iter().filter(is_listed).collect();
    if observed.is_empty() {
        return Ok(());
    }
    page.title("WAITS      SEEN  THREADS  FOR WHAT: one look a second at some of the threads")?;
    for wait in observed.iter().take(WAITS) {
        let line = format!("{:>15}  {:>7}", wait.times, wait.threads);
        let text = fit(&wait.object.text(), WIDTH - INDENT);
        page.line(&format!("{line:INDENT$}{text}"))?;
        place_lines(page, INDENT, "in", &wait.place)?;
    }
    match observed.len().saturating_sub(WAITS) {
        0 => Ok(()),
        more => page.line(&format!("  and {more} more")),
    }
}
