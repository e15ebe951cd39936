//! The files of /proc as source of a scan. It reads the counters of each visited thread, and
//! further files only of threads that ran. Threads that have waited for a while are visited in
//! rotation, see [`crate::capture::parked`].

use crate::capture::thread_scan::{Found, Last, Round, ThreadScan, not_readable, seen_as};
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, Observation};
use crate::process::threads::{CounterSource, Doing, ReadError, Tasks, ThreadFiles};
use crate::unwinder::Walk;

/// Progress of a paused scan.
#[derive(Clone, Copy)]
pub(super) struct UnderWay {
    /// Start of the scan.
    from: Ns,
    /// Index into `known`: all entries before it are observed, or parked.
    active: usize,
    /// Index into `turns`.
    turn: usize,
}

/// Thread count above which a thread that is blocked at its first observation is parked at once.
const MANY: usize = 1_000;
/// Observations between two checks of the pause time.
const LOOKS_AT_ONCE: usize = 64;

impl ThreadScan {
    /// Observes every thread that is not parked, and the parked threads of this turn. Events are in
    /// order of time. Returns false if the scan paused: call it again to continue.
    pub fn round(&mut self, round: &mut Round<'_>) -> bool {
        let mut at = match self.under_way.take() {
            Some(at) => at,
            None => {
                // This list concerns only the task iterator, which skips threads it has reported.
                self.again.tids.clear();
                self.update_list(true, round);
                self.take_in(round.first_most);
                let most = match std::mem::take(&mut self.all) {
                    true => usize::MAX,
                    false if self.standstill.holds() => 0,
                    false => round.turns,
                };
                self.parked.take_turns(most, &mut self.turns);
                UnderWay { from: monotonic(), active: 0, turn: 0 }
            }
        };
        let mut scan = 0;
        loop {
            let index = if at.active < self.known.len() {
                if self.is_parked[at.active] {
                    at.active += 1;
                    continue;
                }
                at.active
            } else if let Some(tid) = self.turns.get(at.turn) {
                at.turn += 1;
                match self.index.get(tid) {
                    // A sample during a pause unparks its thread: the next scan observes it.
                    Some(index) if self.is_parked[*index] => *index,
                    _ => continue,
                }
            } else {
                break;
            };
            let events = round.events.len();
            if !self.observe_in_turn(index, at.from, round) {
                // The last entry of `known` moved to this index.
                self.remove(index);
                self.list_again = true;
            } else if index == at.active {
                at.active += 1;
            }
            scan += 1;
            let may_have_taken_long = round.events.len() > events || scan % LOOKS_AT_ONCE == 0;
            if may_have_taken_long && monotonic() >= round.pause_at {
                self.under_way = Some(at);
                return false;
            }
        }
        if self.asks_the_clock() {
            self.answered(self.tasks.clock(), self.turns.len(), round.turns);
        }
        self.attaching &= !self.newcomers.is_empty();
        true
    }

    /// Adds at most `most` listed threads to this scan. A first observation takes nine system calls
    /// and a walk. So a scan that made thousands of them would last many intervals.
    fn take_in(&mut self, most: usize) {
        let mut taken = 0;
        while taken < most
            && let Some(tid) = self.newcomers.pop()
        {
            // A sample may have added it already.
            if !self.index.contains_key(&tid) {
                self.add(tid);
                taken += 1;
            }
        }
    }

    /// Observes one thread. Returns false if it has exited. `from`: start of the scan.
    fn observe_in_turn(&mut self, index: usize, from: Ns, round: &mut Round<'_>) -> bool {
        let known = &mut self.known[index];
        if matches!(known.last, Last::Ended) {
            return true;
        }
        let counters = match self.tasks.counters(&mut known.files) {
            Ok(counters) => counters,
            Err(ReadError::Gone) => {
                self.end(index, round);
                return false;
            }
            // Unreadable at this scan; its run time since then appears in the next counters.
            Err(_) => {
                self.not_seen(index);
                return true;
            }
        };
        if self.unmoved(index, counters, from, monotonic, round) {
            return true;
        }
        match self.find(index, round.stacks.is_some()) {
            Ok(found) => {
                let (state, first) = (found.state, self.known[index].counters.is_none());
                self.found(
                    index,
                    &found,
                    counters,
                    round,
                    &mut |tasks, files, round, observation| {
                        read_stack(tasks, files, state, round, observation)
                    },
                );
                // Of thousands of threads most have waited for long. Observing each at every tick
                // until it is parked would take longer than an interval.
                if first
                    && self.known.len() > MANY
                    && matches!(self.known[index].last, Last::Blocked)
                {
                    self.park(index);
                }
                true
            }
            Err(ReadError::Gone) => {
                self.end(index, round);
                false
            }
            Err(_) => {
                self.not_seen(index);
                true
            }
        }
    }

    /// Reads name and state of a thread. One that was last seen running most likely still runs: two
    /// short reads suffice to confirm that. The start time matters only without an open descriptor,
    /// which tells threads of the same id apart.
    fn find(&mut self, index: usize, may_ask: bool) -> Result<Found, ReadError> {
        let known = &mut self.known[index];
        let likely = matches!(known.last, Last::Running) && may_ask;
        if likely
            && self.tasks.source() == CounterSource::Schedstat
            && !self.tasks.short_of_descriptors()
            && self.tasks.doing(&mut known.files) == Ok(Doing::Running)
        {
            let name = self.tasks.name(&mut known.files)?;
            return Ok(Found {
                at: monotonic(),
                name,
                state: b'R',
                ready: false,
                start: known.key.start,
            });
        }
        let stat = self.tasks.stat(&mut known.files)?;
        Ok(Found {
            at: monotonic(),
            name: stat.name,
            state: stat.state,
            ready: false,
            start: stat.start,
        })
    }
}

/// Returns whether the tracer is ours: the kernel names the tracing thread, not its process.
fn is_ours(tid: u32) -> bool {
    std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()
}

/// Reads the stack of a thread that is off the core. Returns `None` if it ran meanwhile.
fn read_stack(
    tasks: &Tasks,
    files: &mut ThreadFiles,
    state: u8,
    round: &mut Round<'_>,
    observation: &mut Observation,
) -> Option<Walk> {
    // Stopped by our ptrace helper, or already resumed by it: the thread runs. A stop by another
    // tracer is the target's state.
    if state == b't'
        && round.stops_threads
        && tasks.tracer(files).is_ok_and(|tracer| tracer == 0 || is_ours(tracer))
    {
        return None;
    }
    let Some(stacks) = &mut round.stacks else {
        not_readable(state, observation);
        return None;
    };
    let (call, sp, pc) = match tasks.doing(files) {
        Ok(Doing::Blocked { call, sp, pc }) => (call, sp, pc),
        Ok(Doing::Running) => return None,
        Err(ReadError::NotPermitted) => {
            round.denied = true;
            not_readable(state, observation);
            return None;
        }
        // The thread exited, or no descriptor was free: the next scan finds out.
        Err(_) => return None,
    };
    if sp == 0 && pc == 0 {
        // The thread is exiting and has released its registers.
        return None;
    }
    stacks.set_instant(observation.thread.pid, observation.at);
    let walk = stacks.reader.walk(pc, sp, stacks.unwinder, &mut observation.stack);
    let name = stacks.unwinder.thread_name(observation.at);
    let waits_for = stacks.unwinder.waits_for();
    let same_place = tasks.doing(files) == Ok(Doing::Blocked { call, sp, pc });
    let same_counters = tasks.counters(files).is_ok_and(|again| {
        observation
            .counters
            .is_some_and(|first| first.run_ns == again.run_ns && first.runs == again.runs)
    });
    if !(same_place && same_counters) {
        round.losses.torn += 1;
        observation.stack.clear();
        return None;
    }
    if let Some((at, frame)) = waits_for {
        observation.stack.insert(at, frame);
    }
    observation.seen = seen_as(state, Some(call));
    observation.recovered = walk.recovered;
    observation.name = name.unwrap_or(observation.name);
    Some(walk)
}
