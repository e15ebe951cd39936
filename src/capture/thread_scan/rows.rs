//! The rows of the task iterator as source: of the threads that a round visits those that ran, or
//! that have to be told again, come with all there is to know. No file is read of a thread that
//! stands still.
//!
//! A round visits either all threads, or those that are not parked and some that are. Only where
//! all are visited is a new thread found: that is done once a second, and whenever the
//! threads have become more or fewer.

use crate::capture::bpf::load::LISTED_MOST;
use crate::capture::bpf::rows::{Blocked, Copied, Row, What};
use crate::capture::bpf::{Single, Singly, Visit};
use crate::capture::thread_scan::{Found, Last, Round, ThreadScan, not_readable, seen_as};
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Marker, Ns, Observation, Seen};
use crate::process::threads::{Tasks, ThreadFiles};
use crate::unwinder::{StackBytes, Walk};

/// Maximum threads that are visited by an iterator each.
const EACH_MOST: usize = 128;
/// The number of threads in a pass over all that costs as much.
const EACH_COSTS: usize = 8;

impl ThreadScan {
    /// The threads that the next pass has to visit, and to report whatever it reported before.
    /// `turns`: the number of visits of parked threads a round are affordable.
    pub fn next_visit(&mut self, turns: usize, singly: Singly) -> Visit {
        self.visits_saved = self.visits_saved.saturating_add(turns).min(self.parked.len());
        // Before the pass: who is born during it changes the count again.
        self.list_again |= self.links != self.tasks.links();
        let all = std::mem::take(&mut self.all) || self.again.all || self.list_again;
        let saved = self.visits_saved;
        let only = if all { None } else { self.singly(turns, singly) };
        if only.is_none() {
            self.visits_saved = 0;
        }
        self.turned = if only.is_none() { usize::MAX } else { saved - self.visits_saved };
        Visit { only, again: std::mem::take(&mut self.again) }
    }

    /// Those that are not parked, and those whose turn it is; `None` if all had better be visited.
    fn singly(&mut self, turns: usize, singly: Singly) -> Option<Vec<Single>> {
        let active = self.known.len() - self.parked.len();
        let full_scan_due = self.visits_saved >= self.parked.len() && !self.standstill.holds();
        let due = match singly {
            Singly::Listed if self.standstill.holds() => 0,
            // Beside others they cost little, but one list for many is cheaper than many for few.
            Singly::Listed
                if active > 0
                    || full_scan_due
                    || self.visits_saved.saturating_add(turns) > LISTED_MOST =>
            {
                self.visits_saved
            }
            Singly::Listed => 0,
            Singly::Each
                if full_scan_due
                    || active > EACH_MOST
                    || active * EACH_COSTS > self.known.len() =>
            {
                return None;
            }
            Singly::Each => 0,
        };
        let mut threads = Vec::with_capacity(active + due);
        if due > 0 {
            self.visits_saved -= due;
            self.parked.take_turns(due, &mut self.turns);
            let of = |tid| Some(Single { tid, id: self.known[*self.index.get(&tid)?].id });
            threads.extend(self.turns.iter().filter_map(|tid| of(*tid)));
        }
        // Those that run come last: the clock is to be read as soon as their counters have been.
        for runs in [false, true] {
            for (known, _) in
                self.known.iter().zip(&self.is_parked).filter(|(_, is_parked)| !**is_parked)
            {
                if matches!(known.last, Last::Running) == runs && !matches!(known.last, Last::Ended)
                {
                    threads.push(Single { tid: known.key.tid, id: known.id });
                }
            }
        }
        // Met by a sample, and not by the iterator yet.
        self.again
            .tids
            .extend(threads.iter().filter(|thread| thread.id == 0).map(|thread| thread.tid));
        threads.iter().all(|thread| thread.id != 0).then_some(threads)
    }

    /// The pass has come to its end: which threads have exited, and which have waited for long?
    /// `missed`: a thread was not met; `clock`: the process's, if it was asked.
    pub fn end_of_rows(&mut self, missed: bool, clock: Option<Option<Ns>>, round: &mut Round<'_>) {
        self.list_again |= missed;
        if let Some(clock) = clock {
            self.answered(clock, self.turned, round.turns);
        }
        let at = monotonic();
        for index in 0..self.known.len() {
            // Whoever is not parked was visited. Who moved was seen.
            let known = &self.known[index];
            if !self.is_parked[index]
                && matches!(known.last, Last::Blocked)
                && at >= known.seen_at + self.parked.after(known.key.tid)
            {
                self.park(index);
            }
        }
        if self.list_again {
            self.update_list(false, round);
        }
        self.attaching = false;
    }

    /// A row of the pass that is this round, with its stack.
    pub fn row(&mut self, row: &Row, copied: Copied<'_>, round: &mut Round<'_>) {
        if row.tid == 0 {
            return;
        }
        let index = match self.index.get(&row.tid) {
            Some(index) => *index,
            None => {
                self.list_again = true;
                let files = self.tasks.thread(row.tid);
                if self.insert(row.tid, row.start, row.name, files).is_none() {
                    return;
                }
                self.known.len() - 1
            }
        };
        let known = &mut self.known[index];
        known.id = row.id;
        let same = known.key.start == row.start;
        let ended = matches!(known.last, Last::Ended);
        if same && (ended || self.unmoved(index, row.counters, 0, || row.at, round)) {
            return;
        }
        let ready = matches!(row.what, What::Ready(_));
        let found = Found { at: row.at, name: row.name, state: row.state, ready, start: row.start };
        self.found(index, &found, row.counters, round, &mut |tasks, files, round, observation| {
            read_stack(tasks, files, row, copied, round, observation)
        });
        // The iterator has done with it, we have not.
        if matches!(
            (&row.what, &self.known[index].last),
            (What::Blocked(_) | What::Held, Last::Nothing | Last::Running)
        ) {
            self.again.tids.push(row.tid);
        }
    }
}

/// Whether the thread has not run since the row was made.
fn stayed(tasks: &Tasks, files: &mut ThreadFiles, row: &Row) -> bool {
    tasks
        .counters(files)
        .is_ok_and(|now| now.run_ns == row.counters.run_ns && now.runs == row.counters.runs)
}

/// Walks the stack that came with a row.
fn read_stack(
    tasks: &Tasks,
    files: &mut ThreadFiles,
    row: &Row,
    copied: Copied<'_>,
    round: &mut Round<'_>,
    observation: &mut Observation,
) -> Option<Walk> {
    let blocked = match &row.what {
        What::Blocked(blocked) | What::Ready(blocked) => blocked,
        What::Torn => {
            round.losses.torn += 1;
            return None;
        }
        What::Late => {
            round.losses.late += 1;
            return None;
        }
        // Held, and we do not know what it was told with: it is asked for again.
        What::Nothing | What::NoRegisters | What::Held => return None,
    };
    let ready = matches!(row.what, What::Ready(_));
    let Some(stacks) = &mut round.stacks else {
        if !ready {
            not_readable(row.state, observation);
        }
        return None;
    };
    stacks.set_instant(observation.thread.pid, row.at);
    let registers = &blocked.registers;
    let bytes = StackBytes { base: registers.rsp, bytes: copied.stack };
    copied.kernel_frames(&mut observation.stack);
    let of_user = observation.stack.len();
    let mut walk = stacks.unwinder.walk(registers, bytes, &mut observation.stack);
    let mut name = stacks.unwinder.thread_name(row.at);
    // Deeper than what is copied, on another stack beside this one, or behind code that cannot be
    // walk: the rest is read as it lies.
    let resumes = matches!(walk.end, Some(Marker::NoUnwindInfo | Marker::BadUnwind))
        && stacks.unwinder.can_resume();
    if walk.end == Some(Marker::Truncated) || resumes {
        let mut whole = Vec::with_capacity(2 * observation.stack.len());
        copied.kernel_frames(&mut whole);
        let again = stacks.unwinder.walk_blocked(registers, bytes, &mut whole);
        if stayed(tasks, files, row) {
            (walk, observation.stack, name) = (again, whole, stacks.unwinder.thread_name(row.at));
        } else if copied.stack.is_empty() {
            round.losses.torn += 1;
            observation.stack.clear();
            return None;
        }
    }
    if !ready
        && let Some((at, frame)) = stacks.unwinder.waits_for()
        && stayed(tasks, files, row)
    {
        observation.stack.insert(of_user + at, frame);
    }
    let Blocked { call, .. } = blocked;
    observation.seen = if ready { Seen::Ready } else { seen_as(row.state, Some(*call)) };
    observation.recovered = walk.recovered;
    observation.name = name.unwrap_or(observation.name);
    Some(walk)
}
