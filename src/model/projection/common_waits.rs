//! Where the shown threads waited most in a range, by the user's function and the call that waits;
//! and the time that they lost to memory: page faults, collections, the allocator's locks.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::NONE;
use super::exit::Functions;
use super::fact_reader::{CellKind, Shown};
use super::filter::Verdicts;
use super::locks::{Place, Places};
use super::rows::Rows;
use super::totals::Totals;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{Location, StackId};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::ThreadKey;
use crate::model::vocabulary::state::State;

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
    /// Thread time waited in the range, ns.
    pub waited_ns: u64,
    /// The part of it for which the lock and its holder are known, ns.
    pub locked_ns: u64,
    /// The longest unbroken wait, ns.
    pub longest_ns: u64,
    pub threads: u32,
    /// Index of the group that all of them are in, where groups are named after threads.
    pub group: Option<u32>,
    /// The name of one of them.
    pub name: Arc<str>,
    /// Those that wait there now, the longest wait first; at most [`MAX_ASKED`].
    pub now: Vec<ThreadKey>,
    /// The node at which most of the waits end.
    pub node: Option<u32>,
}

/// Thread time that memory took, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryTime {
    pub page_faults_ns: u64,
    /// Stopped at safepoints of a virtual machine.
    pub stopped_ns: u64,
    /// Waited for locks of the allocator, and by how many threads.
    pub allocator_ns: u64,
    pub allocator_threads: u32,
}

/// What the busy time of a range was spent on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Busy {
    /// All shown time that is not spent waiting for work.
    pub total: Totals,
    /// Most waited time first.
    pub waits: Vec<CommonWait>,
    pub memory: MemoryTime,
}

struct Sum {
    totals: Totals,
    locked_ns: u64,
    /// The stack with most waited time; that time, and its cell.
    most: (u64, StackId, u32),
    /// The group of all its cells; `None`: several.
    group: Option<u32>,
}

/// Returns the part of the time in which threads waited.
fn waited_ns(totals: &Totals) -> u64 {
    [State::Lock, State::Wait, State::Io, State::Poll, State::Sleep, State::Disk]
        .into_iter()
        .map(|state| totals.states_ns[state as usize])
        .sum()
}

impl Busy {
    /// `attached`: the node of each cell, or [`NONE`]; `locked`: by cell, ns waited for known
    /// locks; `group`: the index of a cell's group in the projection, if it is named after threads.
    pub(super) fn of(
        (snapshot, rows, verdicts): (&Snapshot, &Rows, &Verdicts),
        shown: &Shown,
        attached: &[u32],
        locked: &FxHashMap<u32, u64>,
        group: impl Fn(u32) -> Option<u32>,
    ) -> Busy {
        let mut busy = Busy::default();
        let mut numbers: FxHashMap<Functions, u32> = FxHashMap::default();
        let mut sums: Vec<Sum> = Vec::new();
        let mut sum_of_cell = vec![NONE; shown.cells.len()];
        let mut allocates = vec![false; shown.cells.len()];
        for (at, cell) in shown.cells.iter().enumerate() {
            if !matches!(cell.kind, CellKind::Plain | CellKind::Woken) {
                continue;
            }
            busy.total.add(&cell.totals);
            let path = verdicts.of_stack(cell.stack);
            let waited = waited_ns(&cell.totals);
            if path.faults {
                busy.memory.page_faults_ns += cell.totals.wall_ns;
            }
            if path.is_stopped {
                busy.memory.stopped_ns += waited;
            }
            if waited == 0 || path.is_stopped || cell.stack == StackId::EMPTY {
                continue;
            }
            let by_lock = cell.totals.states_ns[State::Lock as usize];
            if path.allocates && by_lock > 0 {
                allocates[at] = true;
                busy.memory.allocator_ns += by_lock;
            }
            let next = sums.len() as u32;
            let number = *numbers.entry(path.exit.functions(rows)).or_insert(next);
            if number == next {
                sums.push(Sum {
                    totals: Totals::default(),
                    locked_ns: 0,
                    most: (0, cell.stack, at as u32),
                    group: Some(cell.group),
                });
            }
            sum_of_cell[at] = number;
            let sum = &mut sums[number as usize];
            sum.totals.add(&cell.totals);
            sum.locked_ns += locked.get(&(at as u32)).copied().unwrap_or(0);
            sum.group = sum.group.filter(|group| *group == cell.group);
            sum.most = sum.most.max((waited, cell.stack, at as u32));
        }
        let mut order: Vec<u32> = (0..sums.len() as u32).collect();
        order.sort_by_key(|at| Reverse(waited_ns(&sums[*at as usize].totals)));
        order.truncate(MAX_WAITS);
        // `seen` is ordered by thread.
        let mut threads: FxHashMap<u32, (u32, u32)> = FxHashMap::default();
        let mut last_allocating = NONE;
        let mut names = FxHashMap::default();
        for seen in &shown.seen {
            if allocates[seen.cell as usize]
                && std::mem::replace(&mut last_allocating, seen.thread) != seen.thread
            {
                busy.memory.allocator_threads += 1;
            }
            let number = sum_of_cell[seen.cell as usize];
            if order.contains(&number) {
                let (count, last) = threads.entry(number).or_insert((0, NONE));
                *count += u32::from(std::mem::replace(last, seen.thread) != seen.thread);
                names.entry(number).or_insert(seen.name);
            }
        }
        let mut places = Places::new(snapshot, rows, verdicts);
        let shown_threads: FxHashSet<&ThreadKey> = shown.threads.iter().collect();
        busy.waits = order
            .into_iter()
            .map(|number| {
                let sum = &sums[number as usize];
                let (_, stack, cell) = sum.most;
                let exit = verdicts.of_stack(stack).exit;
                let is_here = |stack: StackId| {
                    verdicts.of_stack(stack).exit.functions(rows) == exit.functions(rows)
                };
                let place = places.of(stack);
                let now = snapshot.threads.iter().filter(|thread| {
                    let state = thread.state.resolve(snapshot.tables.futex_kind(thread.stack));
                    !matches!(state, State::Run | State::Rdy | State::Stopped)
                        && shown_threads.contains(&thread.thread)
                        && is_here(thread.stack)
                });
                let mut now: Vec<_> = now.map(|thread| (thread.since, thread.thread)).collect();
                now.sort_unstable();
                now.truncate(MAX_ASKED);
                let mut waits = sum.totals;
                waits.states_ns[State::Run as usize] = 0;
                waits.states_ns[State::Rdy as usize] = 0;
                let name = names.get(&number).copied();
                CommonWait {
                    place: places.place(&place),
                    by: exit.by().map(|location| rows.location(location).clone()),
                    state: waits.main_state(Metric::Wall).map_or(State::Wait, |(state, _)| state),
                    waited_ns: waited_ns(&sum.totals),
                    locked_ns: sum.locked_ns,
                    longest_ns: sum.totals.longest_ns,
                    threads: threads.get(&number).map_or(0, |(count, _)| *count),
                    group: sum.group.and_then(&group),
                    name: name.map_or("".into(), |name| snapshot.tables.name(name).clone()),
                    now: now.into_iter().map(|(_, thread)| thread).collect(),
                    node: Some(attached[cell as usize]).filter(|node| *node != NONE),
                }
            })
            .collect();
        busy
    }
}
