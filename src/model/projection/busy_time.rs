//! Sums up the busy time of facts while they are read: by where threads waited, and what memory
//! took.

use super::bursts::LongWaits;
use super::columns::NONE;
use super::exit::Exits;
use super::filter::{Gap, Path};
use super::totals::Totals;
use crate::model::facts::fact::Weights;
use crate::model::facts::tables::StackId;
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::state::State;

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

/// The busy time of facts, summed up while they are read.
#[derive(Default)]
pub(super) struct BusyTime {
    pub total: Totals,
    pub memory: MemoryTime,
    /// Of stacks that moved while they were read.
    pub torn_ns: u64,
    /// CPU time for exceptions.
    pub exceptions_cpu_ns: u64,
    /// By number of an exit: index in `sums`, or [`NONE`].
    sum_of_exit: Vec<u32>,
    pub sums: Vec<Sum>,
}

/// Waits with the same exit from the user's code.
pub(super) struct Sum {
    pub exit: u32,
    pub waited_ns: u64,
    pub by_state_ns: [u64; State::COUNT],
    /// The part for which the lock and its holder are known.
    pub locked_ns: u64,
    /// The part in callbacks of event loops.
    pub in_event_loop_ns: u64,
    pub longest_ns: u64,
    pub longest_from: Ns,
    /// The group of all its facts; `None`: several.
    pub group: Option<u32>,
    pub long: LongWaits,
}

impl BusyTime {
    /// Adds a fact that is shown, was observed and is not a wait for work.
    pub(super) fn add(
        &mut self,
        stack: StackId,
        (path, exits): (&Path, &Exits),
        (group, thread): (u32, u32),
        state: State,
        weights: &Weights,
        is_locked: bool,
    ) {
        let ns = weights.wall_ns;
        if path.gap == Gap::Torn {
            self.torn_ns += ns;
        }
        if path.is_for_exception {
            self.exceptions_cpu_ns += weights.cpu_ns;
        }
        self.total.wall_ns += ns;
        self.total.cpu_ns += weights.cpu_ns;
        self.total.states_ns[state as usize] += ns;
        if path.faults {
            self.memory.page_faults_ns += ns;
        }
        if matches!(state, State::Run | State::Rdy | State::Stopped) || ns == 0 {
            return;
        }
        if path.is_stopped {
            self.memory.stopped_ns += ns;
            return;
        }
        if path.allocates && state == State::Lock {
            self.memory.allocator_ns += ns;
        }
        let Some(exit) = exits.number(stack) else { return };
        if self.sum_of_exit.len() <= exit as usize {
            self.sum_of_exit.resize(exit as usize + 1, NONE);
        }
        let number = &mut self.sum_of_exit[exit as usize];
        if *number == NONE {
            *number = self.sums.len() as u32;
            self.sums.push(Sum {
                exit,
                waited_ns: 0,
                by_state_ns: [0; State::COUNT],
                locked_ns: 0,
                in_event_loop_ns: 0,
                longest_ns: 0,
                longest_from: 0,
                group: Some(group),
                long: LongWaits::default(),
            });
        }
        let sum = &mut self.sums[*number as usize];
        sum.waited_ns += ns;
        sum.by_state_ns[state as usize] += ns;
        sum.locked_ns += if is_locked { ns } else { 0 };
        sum.in_event_loop_ns += if path.in_event_loop { ns } else { 0 };
        let (longest, from) = (weights.longest_ns, weights.longest_from);
        if longest > sum.longest_ns || (longest == sum.longest_ns && from < sum.longest_from) {
            (sum.longest_ns, sum.longest_from) = (longest, from);
        }
        if state != State::Sleep {
            sum.long.add(thread, from, longest);
        }
        sum.group = sum.group.filter(|known| *known == group);
    }
}
