//! What is known of the selected row beyond its figures: what its threads wait for now, its longest wait, how sure it is.

use std::collections::HashSet;
use std::sync::Arc;

use super::rows::What;
use super::view::View;
use crate::model::frame::{Ns, Syscall, ThreadKey};
use crate::model::project::{Confidence, confidence};
use crate::model::snapshot::{Snapshot, ThreadNow};
use crate::model::state::State;

#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// Group rows: the names of its threads.
    pub threads: Vec<Arc<str>>,
    pub now: Option<Now>,
    /// The longest unbroken wait in the range, and when it began.
    pub longest: Option<(Ns, Ns)>,
    pub confidence: Confidence,
}

/// What a thread does in the row at this moment: of several the one that has waited longest.
#[derive(Clone, PartialEq, Debug)]
pub struct Now {
    pub thread: Arc<str>,
    pub state: State,
    /// `recvfrom fd 37`.
    pub call: Option<String>,
    pub since_ns: Ns,
    /// Threads that are in the row at this moment.
    pub count: usize,
}

/// About the row under the cursor.
pub fn explain(view: &View) -> Option<Explanation> {
    let snapshot = view.snapshot.as_ref()?;
    let totals = view.selected_totals()?;
    let metric = view.settings.metric;
    let shown = &view.projection.total;
    Some(Explanation {
        threads: group_threads(view),
        now: now(view, snapshot),
        longest: (totals.longest_ns > 0).then_some((totals.longest_ns, totals.longest_from)),
        confidence: confidence(&totals, shown, metric, snapshot.resolution()),
    })
}

fn group_threads(view: &View) -> Vec<Arc<str>> {
    match view.selected_row().map(|r| r.what) {
        Some(What::Group(group)) if !view.methods_on => {
            view.projection.groups[group as usize].threads.iter().map(|t| t.name.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn now(view: &View, snapshot: &Snapshot) -> Option<Now> {
    let location = view.selected_location()?;
    // In the tree only the threads of the row's group count.
    let group: Option<HashSet<ThreadKey>> = match view.selected_row() {
        Some(row) if !view.methods_on => {
            Some(view.projection.groups[row.group as usize].threads.iter().map(|t| t.thread).collect())
        }
        _ => None,
    };
    let is_in = |thread: &ThreadNow| {
        group.as_ref().is_none_or(|g| g.contains(&thread.thread))
            && snapshot.tables.frames_innermost_first(thread.stack).any(|frame| {
                let named = snapshot.tables.named(frame);
                named.locations.iter().any(|l| l.function == location.function && l.module == location.module)
            })
    };
    let state = |t: &ThreadNow| t.state.resolve(snapshot.tables.futex_kind(t.stack));
    let inside: Vec<&ThreadNow> = snapshot.threads.iter().filter(|t| is_in(t)).collect();
    // Waiting threads first, of these the one that has waited longest.
    let thread = inside.iter().min_by_key(|t| (matches!(state(t), State::Run | State::Rdy), t.since))?;
    Some(Now {
        thread: snapshot.tables.name(thread.name).clone(),
        state: state(thread),
        call: thread.syscall.and_then(call_text),
        since_ns: snapshot.at.saturating_sub(thread.since),
        count: inside.len(),
    })
}

/// Name and, where its first argument is one, the descriptor (x86-64 numbers).
fn call_text(call: Syscall) -> Option<String> {
    let (name, has_fd) = match call.number {
        0 => ("read", true),
        1 => ("write", true),
        7 => ("poll", false),
        17 => ("pread64", true),
        18 => ("pwrite64", true),
        19 => ("readv", true),
        20 => ("writev", true),
        23 => ("select", false),
        34 => ("pause", false),
        35 => ("nanosleep", false),
        42 => ("connect", true),
        43 => ("accept", true),
        44 => ("sendto", true),
        45 => ("recvfrom", true),
        46 => ("sendmsg", true),
        47 => ("recvmsg", true),
        61 => ("wait4", false),
        65 => ("semop", false),
        70 => ("msgrcv", false),
        72 => ("fcntl", true),
        73 => ("flock", true),
        74 => ("fsync", true),
        75 => ("fdatasync", true),
        128 => ("rt_sigtimedwait", false),
        202 => ("futex", false),
        208 => ("io_getevents", false),
        220 => ("semtimedop", false),
        230 => ("clock_nanosleep", false),
        232 => ("epoll_wait", true),
        247 => ("waitid", false),
        270 => ("pselect6", false),
        271 => ("ppoll", false),
        281 => ("epoll_pwait", true),
        288 => ("accept4", true),
        426 => ("io_uring_enter", true),
        441 => ("epoll_pwait2", true),
        _ => return None,
    };
    Some(if has_fd { format!("{name} fd {}", call.args[0] as u32 as i32) } else { name.into() })
}
