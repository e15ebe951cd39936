//! The files of /proc as source of a scan. It reads the counters of each visited thread, and
//! further files only of threads that ran. Threads that have waited for a while are visited in
//! rotation, see [`crate::capture::thread_scan::parked_rotation`].

use crate::capture::thread_scan::{
    LastSeen, ScanContext, ThreadScan, ThreadState, not_readable, seen_of_state,
};
use crate::clock::monotonic;
use crate::model::vocabulary::event::Observation;
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::process::threads::{CounterSource, Doing, ReadError, Tasks, ThreadFiles};
use crate::unwinder::Walk;
use crate::unwinder::interpreted::StackOwner;

/// Progress of a paused scan.
#[derive(Clone, Copy)]
pub(super) struct ScanPosition {
    /// Start of the scan.
    from: Ns,
    /// Index into `known`: all entries before it are observed, or parked.
    active: usize,
    /// Index into `turns`.
    turn: usize,
}

/// Thread count above which a thread that is blocked at its first observation is parked at once.
const MANY_THREADS: usize = 1_000;
/// Observations between two checks of the pause time.
const OBSERVATIONS_PER_PAUSE_CHECK: usize = 64;

impl ThreadScan {
    /// Observes every thread that is not parked, and the parked threads of this turn. Events are in
    /// order of time. Returns false if the scan paused: call it again to continue.
    pub fn scan_files(&mut self, context: &mut ScanContext<'_>) -> bool {
        let mut at = match self.paused_at.take() {
            Some(at) => at,
            None => {
                // This list concerns only the task iterator, which skips threads it has reported.
                self.again.tids.clear();
                self.update_list(true, context);
                self.admit_newcomers(context.max_first_observations);
                self.complete = std::mem::take(&mut self.all);
                let most = match self.complete {
                    true => usize::MAX,
                    false if self.proof_holds() => 0,
                    false => context.turns,
                };
                self.parked.take_turns(most, &mut self.turns);
                ScanPosition { from: monotonic(), active: 0, turn: 0 }
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
            let events = context.events.len();
            if !self.observe_thread(index, at.from, context) {
                // The last entry of `known` moved to this index.
                self.remove(index);
                self.list_again = true;
            } else if index == at.active {
                at.active += 1;
            }
            scan += 1;
            let may_have_taken_long =
                context.events.len() > events || scan % OBSERVATIONS_PER_PAUSE_CHECK == 0;
            if may_have_taken_long && monotonic() >= context.pause_at {
                self.paused_at = Some(at);
                return false;
            }
        }
        if self.needs_process_clock() {
            self.take_process_clock(self.tasks.clock(), self.turns.len(), context.turns);
        }
        self.attaching &= !self.newcomers.is_empty();
        true
    }

    /// Adds at most `most` listed threads to this scan. A first observation takes nine system calls
    /// and a walk. So a scan that made thousands of them would last many intervals.
    fn admit_newcomers(&mut self, most: usize) {
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
    fn observe_thread(&mut self, index: usize, from: Ns, context: &mut ScanContext<'_>) -> bool {
        let known = &mut self.known[index];
        if matches!(known.last, LastSeen::Ended) {
            return true;
        }
        let counters = match self.tasks.counters(&mut known.files) {
            Ok(counters) => counters,
            Err(ReadError::Exited) => {
                self.end(index, context);
                return false;
            }
            // Unreadable at this scan; its run time since then appears in the next counters.
            Err(_) => {
                self.discard_state(index);
                return true;
            }
        };
        if self.report_unmoved(index, counters, from, monotonic, context) {
            return true;
        }
        match self.read_state(index, context.stacks.is_some()) {
            Ok(found) => {
                let (state, first) = (found.state, self.known[index].counters.is_none());
                self.report_state(
                    index,
                    &found,
                    counters,
                    context,
                    &mut |tasks, files, context, observation| {
                        read_stack(tasks, files, state, context, observation)
                    },
                );
                // Of thousands of threads most have waited for long. Observing each at every tick
                // until it is parked would take longer than an interval.
                let many = first && self.known.len() > MANY_THREADS;
                if (many || self.rationed) && matches!(self.known[index].last, LastSeen::Blocked) {
                    self.park(index);
                }
                true
            }
            Err(ReadError::Exited) => {
                self.end(index, context);
                false
            }
            Err(_) => {
                self.discard_state(index);
                true
            }
        }
    }

    /// Reads name and state of a thread. One that was last seen running most likely still runs: two
    /// short reads suffice to confirm that. The start time matters only without an open descriptor,
    /// which tells threads of the same id apart.
    fn read_state(&mut self, index: usize, may_ask: bool) -> Result<ThreadState, ReadError> {
        let known = &mut self.known[index];
        let likely = matches!(known.last, LastSeen::Running) && may_ask;
        if likely
            && self.tasks.source() == CounterSource::Schedstat
            && !self.tasks.short_of_descriptors()
            && self.tasks.doing(&mut known.files) == Ok(Doing::Running)
        {
            let name = self.tasks.name(&mut known.files)?;
            return Ok(ThreadState {
                at: monotonic(),
                name,
                state: b'R',
                ready: false,
                start: known.key.start,
                left_core: None,
            });
        }
        let stat = self.tasks.stat(&mut known.files)?;
        Ok(ThreadState {
            at: monotonic(),
            name: stat.name,
            state: stat.state,
            ready: false,
            start: stat.start,
            left_core: None,
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
    context: &mut ScanContext<'_>,
    observation: &mut Observation,
) -> Option<Walk> {
    // Stopped by our ptrace helper, or already resumed by it: the thread runs. A stop by another
    // tracer is the target's state.
    if state == b't'
        && context.stops_threads
        && tasks.tracer(files).is_ok_and(|tracer| tracer == 0 || is_ours(tracer))
    {
        return None;
    }
    let Some(stacks) = &mut context.stacks else {
        not_readable(state, observation);
        return None;
    };
    let (call, sp, pc) = match tasks.doing(files) {
        Ok(Doing::Blocked { call, sp, pc }) => (call, sp, pc),
        Ok(Doing::Running) => return None,
        Err(ReadError::NotPermitted) => {
            context.denied = true;
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
    let ThreadKey { pid, tid, .. } = observation.thread;
    let owner = StackOwner { tid, fs_base: None, sp, futex: call.futex() };
    stacks.begin(pid, owner, observation.at);
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
        context.losses.torn += 1;
        observation.stack.clear();
        return None;
    }
    if let Some((at, frame)) = waits_for {
        observation.stack.insert(at, frame);
    }
    observation.seen = seen_of_state(state, Some(call));
    observation.recovered = walk.recovered;
    observation.name = name.unwrap_or(observation.name);
    Some(walk)
}
