//! Where the shown threads waited most in a range, by the user's function and the call that waits.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Projection;
use super::bursts::Bursts;
use super::busy_time::{BusyTime, MemoryTime, Sum};
use super::columns::{Columns, NONE};
use super::fact_reader::{CellKind, Shown};
use super::filter::Verdicts;
use super::locks::Lock;
use super::observed::{CommonObject, most_common};
use super::places::{Place, Places, is_same_place};
use super::rows::Rows;
use super::totals::Totals;
use crate::model::facts::kernel_lock::KernelLock;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{Location, NameId, StackId};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::waits_for::WaitsFor;

/// Maximum waits of a range, those with most waited time.
const MAX_WAITS: usize = 4;
/// Maximum threads of a wait of which it is looked up for what they wait.
const MAX_ASKED: usize = 8;

/// Threads that waited in one function of the user, by one call.
#[derive(Clone, PartialEq, Debug)]
pub struct CommonWait {
    /// In what threads waited for most of that time.
    pub place: Place,
    /// The call that waits: of a library or of the system. `None`: the user's own function.
    pub by: Option<Arc<Location>>,
    /// The state of most of that time.
    pub state: State,
    /// Of the kernel, for which they waited in half of that time.
    pub kernel_lock: Option<KernelLock>,
    /// Thread time waited in the range, ns.
    pub waited_ns: u64,
    /// The part of it for which the lock and its holder are known, ns.
    pub locked_ns: u64,
    /// Most of that time was in callbacks of event loops, which serve nothing else meanwhile.
    pub blocks_event_loop: bool,
    /// The longest unbroken wait, ns.
    pub longest_ns: u64,
    /// Its start.
    pub longest_from: Ns,
    pub threads: u32,
    /// How many of them wait there now.
    pub waiting_now: u32,
    /// All of these are goroutines.
    pub of_goroutines: bool,
    /// Index of the group that all of them are in, where groups are named after threads.
    pub group: Option<u32>,
    /// The name of one of them.
    pub name: Arc<str>,
    /// Those that wait there now, the longest wait first; at most [`MAX_ASKED`].
    pub now: Vec<ThreadKey>,
    /// What threads were found to wait for there, with the number of look-ups.
    pub observed: Vec<(u32, WaitsFor)>,
    /// The node at which most of the waits end.
    pub node: Option<u32>,
    /// Where threads waited together in some moments only.
    pub bursts: Option<Bursts>,
}

/// What the busy time of a range was spent on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Busy {
    /// All shown and observed time that is not spent waiting for work: wall, CPU and states only.
    pub total: Totals,
    /// Most waited time first.
    pub waits: Vec<CommonWait>,
    pub memory: MemoryTime,
    /// Of stacks that moved while they were read.
    pub torn_ns: u64,
    /// CPU time for exceptions.
    pub exceptions_cpu_ns: u64,
}

/// The threads and the heaviest stack of a wait.
#[derive(Clone, Copy, Default)]
struct Waiters {
    count: u32,
    /// How many of them are goroutines.
    goroutines: u32,
    /// The last one that was counted, and its newest name.
    last: Option<(u32, NameId)>,
    /// The cell with most waited time: that time, ns, its stack, and its number. Of equal ones the
    /// same stack is chosen whatever the order of facts.
    heaviest: Option<(u64, StackId, u32)>,
    /// Waited time by [`KernelLock`], ns.
    kernel_ns: [u64; KernelLock::ALL.len()],
}

/// Returns the part of a cell's time in which threads waited.
fn waited_ns(sums: &Columns, cell: u32) -> u64 {
    let of = |state: State| sums.state_ns(cell, state);
    sums.value(cell, Metric::Wall) - of(State::Run) - of(State::Rdy) - of(State::Stopped)
}

impl CommonWait {
    /// Returns what the threads were found to wait for, if it was always the same.
    pub fn observed_object(&self) -> Option<CommonObject> {
        let observed = self.observed.iter().map(|(times, waits)| (*times, waits));
        most_common(observed).filter(|(_, others)| !others).map(|(common, _)| common)
    }
}

impl Projection {
    /// Returns whether stacks of a thread ended at this node, or at the call out of it that stands
    /// for its own time.
    pub fn was_at(&self, thread: ThreadKey, node: u32) -> bool {
        let is_there = |at: u32| at == node || (self.is_entry(at) && self.parent(at) == Some(node));
        let mut seen = self.seen.iter();
        seen.any(|(of, at)| self.threads[*of as usize] == thread && is_there(*at))
    }

    /// Returns waits for locks of which mostly neither the kind nor the holder is known: those of
    /// Rust, and others that are no locks of the C library.
    pub fn waits_for_locks_without_owner(&self) -> Vec<&CommonWait> {
        let is_known = |wait: &CommonWait| {
            let mut places = self.locks.iter().flat_map(|lock| &lock.waiting_in);
            places.any(|(place, _)| is_same_place(place, &wait.place))
        };
        let is_one = |wait: &&CommonWait| {
            wait.state == State::Lock && wait.locked_ns * 2 < wait.waited_ns && !is_known(wait)
        };
        self.busy.waits.iter().filter(is_one).collect()
    }

    /// Returns the waits in places where no other lock was waited for. Of short waits not every
    /// lock is read: those in the same place wait for it, too.
    pub fn waits_for_only(&self, lock: &Lock) -> Vec<&CommonWait> {
        let is_of = |lock: &Lock, wait: &CommonWait| {
            lock.waiting_in.iter().any(|(place, _)| is_same_place(place, &wait.place))
        };
        let here = |wait: &&CommonWait| {
            let mut of_place = self.locks.iter().filter(|lock| is_of(lock, wait));
            wait.state == State::Lock
                && of_place.next().is_some_and(|first| std::ptr::eq(first, lock))
                && of_place.next().is_none()
        };
        self.busy.waits.iter().filter(here).collect()
    }
}

impl Busy {
    /// `times`: the time of each cell; `attached`: its node, or [`NONE`]; `group`: the index of a
    /// cell's group in the projection, if it is named after threads.
    pub(super) fn of(
        time: BusyTime,
        (snapshot, rows, verdicts): (&Snapshot, &Rows, &Verdicts),
        (shown, times): (&Shown, &Columns),
        attached: &[u32],
        group: impl Fn(u32) -> Option<u32>,
    ) -> Busy {
        let BusyTime { total, mut memory, torn_ns, exceptions_cpu_ns, mut sums, .. } = time;
        sums.sort_by_key(|sum| (Reverse(sum.waited_ns), sum.exit));
        let range = shown.till.saturating_sub(shown.from);
        let bursts = |sum: &Sum| sum.long.bursts(sum.waited_ns, range);
        // What happens in some moments may have little time.
        if let Some(at) = sums.iter().position(|sum| bursts(sum).is_some())
            && at >= MAX_WAITS
        {
            sums.swap(at, MAX_WAITS - 1);
        }
        sums.truncate(MAX_WAITS);
        let exits = verdicts.exits();
        let mut waiters = [Waiters::default(); MAX_WAITS];
        // By cell: the wait that it is part of, and whether threads wait for the allocator there.
        let mut parts: Vec<(u8, bool)> = Vec::with_capacity(shown.cells.len());
        let is_needed = !sums.is_empty() || memory.allocator_ns > 0;
        for (at, cell) in (0..).zip(&shown.cells).filter(|_| is_needed) {
            let is_busy = cell.kind == CellKind::Plain;
            let number = exits.number(cell.stack).filter(|_| is_busy);
            let rank = sums.iter().position(|sum| Some(sum.exit) == number);
            let allocates = memory.allocator_ns > 0 && is_busy && {
                let by_lock = times.state_ns(at, State::Lock) > 0;
                by_lock && verdicts.of_stack(cell.stack).allocates
            };
            let Some(rank) = rank.filter(|_| waited_ns(times, at) > 0) else {
                parts.push((u8::MAX, allocates));
                continue;
            };
            parts.push((rank as u8, allocates));
            let heaviest = &mut waiters[rank].heaviest;
            *heaviest = (*heaviest).max(Some((waited_ns(times, at), cell.stack, at)));
            let locked_ns = times.state_ns(at, State::Lock);
            if locked_ns > 0
                && let Some(lock) = snapshot.tables.kernel_lock(cell.stack)
            {
                waiters[rank].kernel_ns[lock as usize] += locked_ns;
            }
        }
        // `seen` is ordered by thread: the last one that was counted is enough to know the next.
        let mut last_allocating = NONE;
        for seen in shown.seen.iter().filter(|_| is_needed) {
            let (rank, allocates) = parts[seen.cell as usize];
            if allocates && std::mem::replace(&mut last_allocating, seen.thread) != seen.thread {
                memory.allocator_threads += 1;
            }
            let Some(waiters) = waiters.get_mut(usize::from(rank)) else { continue };
            let same = waiters.last.filter(|(thread, _)| *thread == seen.thread);
            let is_goroutine = shown.threads[seen.thread as usize].is_goroutine();
            waiters.count += u32::from(same.is_none());
            waiters.goroutines += u32::from(same.is_none() && is_goroutine);
            // Whatever the order of facts, a thread has its newest name.
            let name = same.map_or(seen.name, |(_, name)| name.max(seen.name));
            waiters.last = Some((seen.thread, name));
        }
        let mut places = Places::new(snapshot, rows, verdicts);
        let shown_threads: FxHashSet<&ThreadKey> = shown.threads.iter().collect();
        let wait = |(sum, waiters): (Sum, Waiters)| {
            let (_, _, cell) = waiters.heaviest?;
            let stack = shown.cells[cell as usize].stack;
            let place = places.of(stack);
            let now = snapshot.threads.iter().filter(|thread| {
                let state = snapshot.tables.state(thread.state, thread.stack);
                !matches!(state, State::Run | State::Rdy | State::Stopped)
                    && exits.number(thread.stack) == Some(sum.exit)
                    && shown_threads.contains(&thread.thread)
            });
            let mut now: Vec<_> = now.map(|thread| (thread.since, thread.thread)).collect();
            now.sort_unstable();
            let waiting_now = now.len() as u32;
            now.truncate(MAX_ASKED);
            let observed = snapshot.observed_waits.iter().filter(|wait| {
                exits.number(wait.stack) == Some(sum.exit)
                    && shown_threads.contains(&wait.thread)
                    && (shown.from..=shown.till).contains(&wait.at)
            });
            let by_state = Totals { states_ns: sum.by_state_ns, ..Totals::default() };
            let (_, name) = waiters.last?;
            Some(CommonWait {
                place: places.place(&place),
                by: exits.of(stack).by().map(|location| rows.location(location).clone()),
                state: by_state.main_state(Metric::Wall).map_or(State::Wait, |(state, _)| state),
                kernel_lock: KernelLock::ALL
                    .into_iter()
                    .find(|lock| waiters.kernel_ns[*lock as usize] * 2 >= sum.waited_ns),
                waited_ns: sum.waited_ns,
                locked_ns: sum.locked_ns,
                blocks_event_loop: sum.in_event_loop_ns * 2 > sum.waited_ns,
                longest_ns: sum.longest_ns,
                longest_from: sum.longest_from,
                threads: waiters.count,
                waiting_now,
                of_goroutines: waiters.goroutines == waiters.count,
                group: sum.group.and_then(&group),
                name: snapshot.tables.name(name).clone(),
                observed: observed.map(|wait| (wait.times, wait.waits_for.clone())).collect(),
                now: now.into_iter().map(|(_, thread)| thread).collect(),
                node: Some(attached[cell as usize]).filter(|node| *node != NONE),
                bursts: bursts(&sum),
            })
        };
        let waits = sums.into_iter().zip(waiters).filter_map(wait).collect();
        Busy { total, waits, memory, torn_ns, exceptions_cpu_ns }
    }
}
