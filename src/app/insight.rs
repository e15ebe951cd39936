//! The one sentence above the rows: what matters most about this moment, or about the measurement.

use super::AppState;
use crate::model::facts::snapshot::{Health, Snapshot, ThreadNow};
use crate::model::projection::Totals;
use crate::model::projection::settings::Metric;
use crate::model::projection::waits::{Asked, Facts, describe};
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::model::vocabulary::state::State;

/// A wait of this duration is worth a sentence.
const LONG: Ns = SECOND;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Insight {
    pub text: String,
    /// It is about the measurement: figures may be wrong.
    pub warns: bool,
}

/// Returns the sentence; `None` if there is nothing to say.
pub fn insight(app: &AppState) -> Option<Insight> {
    let snapshot = app.view.snapshot.as_ref()?;
    let says = |text: String| Insight { text, warns: false };
    if app.is_behind() {
        return Some(says("reading history ...".into()));
    }
    if app.ptrace_helps {
        return Some(Insight { text: "running threads are not sampled (p)".into(), warns: true });
    }
    if snapshot.session.is_foreign() {
        return Some(says("samples of another tool".into()));
    }
    if let Some(text) = harm(&snapshot.health, app.interval.as_nanos() as Ns) {
        return Some(Insight { text, warns: true });
    }
    let projection = &app.view.projection;
    if projection.total.is_empty() && projection.now.idle > 0 {
        let idle = projection.now.idle;
        let (s, verb) = if idle == 1 { ("", "waits") } else { ("s", "wait") };
        return Some(says(format!(
            "nothing to see: {idle} thread{s} {verb} for work (i shows them)"
        )));
    }
    let sentence = saturation(&projection.total, projection.elapsed(), snapshot)
        .or_else(|| longest_wait(app, snapshot));
    if let Some(text) = sentence {
        return Some(says(text));
    }
    snapshot.health.naming.then(|| says("naming ...".into()))
}

/// Returns what about the measurement is beyond what is harmless.
fn harm(health: &Health, interval: Ns) -> Option<String> {
    let losses = &health.losses;
    let percent = |part: u64, whole: u64| match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64 * 100.0,
    };
    let all = losses.samples + losses.dropped;
    let lost = percent(losses.dropped, all);
    let failed = percent(losses.unwind_failed, losses.samples);
    let (truncated, torn) =
        (percent(losses.truncated, losses.samples), percent(losses.torn, losses.samples));
    if lost > 1.0 {
        Some(format!("{lost:.0} % of the samples are lost"))
    } else if truncated > 5.0 {
        Some(format!("{truncated:.0} % of the stacks are truncated"))
    } else if failed > 5.0 {
        Some(format!("{failed:.0} % of the stacks end early"))
    } else if torn > 5.0 {
        Some(format!("{torn:.0} % of the stacks are torn"))
    } else if losses.stops > 0 {
        Some(format!("threads are stopped for each sample: {} stops so far", losses.stops))
    } else if health.interval_achieved_ns > 2 * interval && health.ticks > 100 {
        let (got, asked) = (health.interval_achieved_ns / 1_000_000, interval / 1_000_000);
        Some(format!("sampled every {got} ms, not {asked} ms, to limit the cost"))
    } else if health.folded_facts > 0 {
        Some("history is full: rare stacks are summed up as (other)".into())
    } else {
        None
    }
}

/// Says that threads want more cores than there are.
fn saturation(total: &Totals, elapsed: Ns, snapshot: &Snapshot) -> Option<String> {
    let cores = (snapshot.session.cores_milli as f64 / 1000.0).max(0.1);
    let of = |state: State| match elapsed {
        0 => 0.0,
        _ => total.states_ns[state as usize] as f64 / elapsed as f64,
    };
    let waiting = of(State::Rdy);
    // Half of the threads that want a core, and one at least, wait for it.
    (waiting >= 1.0 && waiting > of(State::Run)).then(|| {
        format!(
            "{waiting:.0} thread{} wait{} for a core, {:.1} of {} are used",
            if waiting < 1.5 { "" } else { "s" },
            if waiting < 1.5 { "s" } else { "" },
            total.cores(elapsed),
            (cores * 10.0).round() / 10.0,
        )
    })
}

/// Returns the thread that waits longest without waiting for work.
fn longest(app: &AppState, snapshot: &Snapshot) -> Option<(ThreadNow, State)> {
    let state = |t: &ThreadNow| t.state.resolve(snapshot.tables.futex_kind(t.stack));
    let key = app.view.projection.now.longest_wait?;
    let thread = snapshot.threads.iter().find(|thread| thread.thread == key)?;
    Some((*thread, state(thread)))
}

/// Says who waits longest, where, and for what.
fn longest_wait(app: &AppState, snapshot: &Snapshot) -> Option<String> {
    let (thread, state) = longest(app, snapshot)?;
    let waited = snapshot.at.saturating_sub(thread.since);
    if waited < LONG {
        return None;
    }
    let name = snapshot.tables.name(thread.name);
    let seconds = waited / SECOND;
    let duration = match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    };
    let asked = Asked::of(snapshot, &thread);
    let answer = asked.and_then(|asked| {
        let found = app.view.waits.get(&thread.thread).filter(|answer| answer.asked == asked);
        found.map(|answer| answer.waits_for.clone()).or_else(|| describe(&asked, &Facts::default()))
    });
    let what = match answer {
        Some(waits) if waits.what != "futex" => waits.to_string(),
        _ => state.word().to_owned(),
    };
    Some(format!("{name} waits {duration}: {what}"))
}

/// Returns the wait that [`insight`] is about, to be asked for.
pub fn asked(app: &AppState) -> Option<Asked> {
    let snapshot = app.view.snapshot.as_ref()?;
    let (thread, _) = longest(app, snapshot)?;
    Asked::of(snapshot, &thread)
}

/// Returns the words for a metric.
pub fn time_word(metric: Metric) -> &'static str {
    match metric {
        Metric::Wall => "all time",
        Metric::Cpu => "cpu time",
        Metric::Off => "time off cpu",
    }
}
