//! What is wrong with the measurement, and that there is nothing to say about the program.

use super::{About, Evidence, Finding, Kind};
use crate::model::facts::snapshot::{Health, Snapshot};
use crate::model::projection::Projection;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// Names that are still read matter while stacks with this share of the time lack some.
const UNNAMED: f64 = 0.02;
/// From this share on, lost or broken samples matter more than what the others say, percent.
const GRAVE: f64 = 20.0;

/// Returns why figures may be wrong, and whether that matters more than what they say. Where
/// threads wait for microseconds many stacks are torn, and have no time.
pub(super) fn harm(health: &Health, projection: &Projection) -> Option<(String, bool)> {
    let Projection { busy, total, hidden, .. } = projection;
    let losses = &health.losses;
    let percent = |part: u64, whole: u64| match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64 * 100.0,
    };
    let all = losses.samples + losses.dropped;
    let lost = percent(losses.dropped, all);
    let failed = percent(losses.unwind_failed, losses.samples);
    let truncated = percent(losses.truncated, losses.samples);
    let unobserved = percent(projection.unobserved_ns, total.wall_ns + hidden.idle.wall_ns);
    let torn = percent(busy.torn_ns, busy.total.wall_ns);
    if lost > 1.0 {
        Some((format!("{lost:.0} % of the samples are lost"), lost > GRAVE))
    } else if unobserved > 5.0 {
        Some((format!("{unobserved:.0} % of the time was not observed"), unobserved > GRAVE))
    } else if truncated > 5.0 {
        Some((format!("{truncated:.0} % of the stacks are truncated"), truncated > GRAVE))
    } else if failed > 5.0 {
        Some((format!("{failed:.0} % of the stacks end early"), failed > GRAVE))
    } else if torn > 5.0 {
        Some((format!("{torn:.0} % of the time has torn stacks"), torn > GRAVE))
    } else if losses.stops > 0 {
        let text = format!("threads are stopped for each sample: {} stops so far", losses.stops);
        Some((text, true))
    } else {
        None
    }
}

/// Returns why figures are less precise than was asked for. They are right: a cause of trouble
/// matters more.
pub(super) fn coarse(health: &Health, interval: Ns) -> Option<String> {
    if health.interval_achieved_ns > 2 * interval && health.ticks > 100 {
        let (got, asked) = (health.interval_achieved_ns / 1_000_000, interval / 1_000_000);
        Some(format!("sampled every {got} ms, not {asked} ms, to limit the cost"))
    } else if health.folded_facts > 0 {
        Some("history is full: rare stacks are summed up as (other)".into())
    } else {
        None
    }
}

/// Says that all threads that pass the filters wait for work.
pub(super) fn idle(projection: &Projection) -> Option<Finding> {
    let idle = match projection.only_idle {
        true => projection.groups.iter().map(|group| group.threads.len()).sum(),
        false if projection.total.is_empty() => projection.hidden.idle_threads as usize,
        false => 0,
    };
    let (s, verb) = if idle == 1 { ("", "waits") } else { ("s", "wait") };
    let text = format!("nothing to see: {idle} thread{s} {verb} for work");
    let finding = Finding { about: About::Idle, ..Finding::new(Kind::Nothing, text) };
    (idle > 0).then_some(finding)
}

/// Says that nothing stands out, and how much the program does: the shares of a program at rest are
/// large, its times are not.
pub(super) fn quiet(snapshot: &Snapshot, projection: &Projection) -> Option<Finding> {
    let (total, elapsed) = (&projection.total, projection.elapsed());
    if total.is_empty() {
        return None;
    }
    let cores = (snapshot.session.cores_milli as f64 / 100.0).round() / 10.0;
    let mut text = format!("nothing stands out: cpu {:.2} of {cores}", total.cores(elapsed));
    // The same number as in the header.
    match projection.now.idle {
        0 => {}
        1 => text.push_str(", 1 thread waits for work"),
        idle => text.push_str(&format!(", {idle} threads wait for work")),
    }
    Some(Finding::new(Kind::Nothing, text))
}

/// Time after which names that are still read may never come.
const NAMING: Ns = 5 * SECOND;

impl Evidence<'_> {
    /// Returns whether the session has just begun.
    pub(super) fn is_young(&self) -> bool {
        self.snapshot.at.saturating_sub(self.snapshot.session.started) < NAMING
    }

    /// Returns whether many names are still read.
    pub(super) fn is_naming(&self) -> bool {
        let (unnamed, total) = (self.projection.unnamed_ns, self.projection.total.wall_ns);
        self.snapshot.health.naming && unnamed > 0 && unnamed as f64 >= total as f64 * UNNAMED
    }
}
