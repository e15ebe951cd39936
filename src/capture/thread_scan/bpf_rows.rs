//! The rows of the task iterator as source of a scan. A row holds all facts about a thread that
//! ran, or that has to be reported again. No file of a thread that did not run is read.
//!
//! A pass visits either all threads, or those that are not parked and some that are. Only a visit
//! of all threads finds new ones. It is made once a second, and when the number of threads changes.

use crate::capture::bpf::load::MAX_LISTED;
use crate::capture::bpf::rows::{Blocked, Copied, Row, What};
use crate::capture::bpf::{Single, Visit, VisitMethod};
use crate::capture::thread_scan::{
    LastSeen, ScanContext, ThreadScan, ThreadState, not_readable, seen_of_state,
};
use crate::clock::monotonic;
use crate::model::vocabulary::event::{Observation, Seen};
use crate::model::vocabulary::frame::{Marker, Ns, SECOND};
use crate::process::threads::{Tasks, ThreadFiles};
use crate::unwinder::interpreted::StackOwner;
use crate::unwinder::{StackBytes, Walk};

/// Maximum threads visited by an iterator each.
const MAX_SINGLE_ITERATORS: usize = 128;
/// Time after which new threads are looked for again while visits are rationed, ns.
const LIST_RATIONED_EVERY: Ns = SECOND;
/// Threads visited in a pass over all for the cost of one iterator over a single thread.
const SINGLE_ITERATOR_COST: usize = 8;

impl ThreadScan {
    /// Returns the threads that the next pass visits, and those it must report even if they did not
    /// run. `turns`: affordable visits of parked threads per scan.
    pub fn next_visit(&mut self, turns: usize, method: VisitMethod) -> Visit {
        self.visits_saved = self.visits_saved.saturating_add(turns).min(self.parked.len());
        // Where threads come and go all the time, a list and then all would cost more.
        self.is_counted = method == VisitMethod::Listed && !self.churns;
        if !self.is_counted {
            self.compare_links();
        }
        let all = std::mem::take(&mut self.all) || self.again.all || self.must_list();
        let saved = self.visits_saved;
        let mut only = if all { None } else { self.select_threads(turns, method) };
        if self.is_counted && only.as_ref().is_none_or(Vec::is_empty) {
            self.is_counted = false;
            self.compare_links();
            only = only.filter(|_| !self.must_list());
        }
        self.complete = only.is_none();
        if only.is_none() {
            (self.visits_saved, self.visited_all) = (0, monotonic());
        }
        self.visited_parked = if only.is_none() { usize::MAX } else { saved - self.visits_saved };
        Visit { only, again: std::mem::take(&mut self.again) }
    }

    /// Reads the number of threads, before a pass: one created during it changes the number again.
    fn compare_links(&mut self) {
        self.churns = self.links != self.tasks.links();
        self.list_again |= self.churns;
    }

    /// Returns whether threads have come or gone, so that all are to be visited.
    fn must_list(&self) -> bool {
        // Where they come and go all the time, rationed visits would never be few.
        self.list_again && (!self.rationed || monotonic() >= self.visited_all + LIST_RATIONED_EVERY)
    }

    /// Returns whether another pass must follow at once, since threads have come or gone.
    /// `counted`: the number of threads that the process had in the last one, if the kernel told.
    pub fn needs_another_pass(&mut self, counted: Option<u32>) -> bool {
        if !std::mem::take(&mut self.is_counted) {
            return false;
        }
        let links = counted.map_or_else(|| self.tasks.links(), Tasks::links_of);
        let changed = self.links != links;
        self.list_again |= changed;
        self.churns |= changed;
        changed && self.must_list()
    }

    /// Returns the unparked threads and the parked ones of this turn, or `None` if a pass over all
    /// is better.
    fn select_threads(&mut self, turns: usize, method: VisitMethod) -> Option<Vec<Single>> {
        let active = self.known.len() - self.parked.len();
        let full_scan_due = self.visits_saved >= self.parked.len() && !self.proof_holds();
        let due = match method {
            VisitMethod::Listed if self.rationed => self.visits_saved,
            VisitMethod::Listed if self.proof_holds() => 0,
            // Parked threads cost little beside others in a list. Alone, one long list is cheaper
            // than several short ones.
            VisitMethod::Listed
                if active > 0
                    || full_scan_due
                    || self.visits_saved.saturating_add(turns) > MAX_LISTED =>
            {
                self.visits_saved
            }
            VisitMethod::Listed => 0,
            VisitMethod::Each
                if full_scan_due
                    || active > MAX_SINGLE_ITERATORS
                    || active * SINGLE_ITERATOR_COST > self.known.len() =>
            {
                return None;
            }
            VisitMethod::Each => 0,
        };
        let mut threads = Vec::with_capacity(active + due);
        if due > 0 {
            self.visits_saved -= due;
            self.parked.take_turns(due, &mut self.turns);
            let of = |tid| Some(Single { tid, id: self.known[*self.index.get(&tid)?].id });
            threads.extend(self.turns.iter().filter_map(|tid| of(*tid)));
        }
        // Running threads come last: the process clock is to be read right after their counters.
        for runs in [false, true] {
            for (known, _) in
                self.known.iter().zip(&self.is_parked).filter(|(_, is_parked)| !**is_parked)
            {
                if matches!(known.last, LastSeen::Running) == runs
                    && !matches!(known.last, LastSeen::Ended)
                {
                    threads.push(Single { tid: known.key.tid, id: known.id });
                }
            }
        }
        if self.rationed {
            // The next visit of all threads finds the others.
            threads.retain(|thread| thread.id != 0);
            return Some(threads);
        }
        // Found by a sample, and not visited by the iterator yet.
        self.again
            .tids
            .extend(threads.iter().filter(|thread| thread.id == 0).map(|thread| thread.tid));
        threads.iter().all(|thread| thread.id != 0).then_some(threads)
    }

    /// Ends a pass: removes exited threads, and parks those that have waited long enough. `missed`:
    /// a thread was not found; `clock`: the process clock, if it was read.
    pub fn end_pass(
        &mut self,
        missed: bool,
        clock: Option<Option<Ns>>,
        context: &mut ScanContext<'_>,
    ) {
        self.list_again |= missed;
        if let Some(clock) = clock {
            self.take_process_clock(clock, self.visited_parked, context.turns);
        }
        let at = monotonic();
        for index in 0..self.known.len() {
            // Every unparked thread was visited, so one that ran is no longer blocked here.
            let known = &self.known[index];
            if !self.is_parked[index]
                && matches!(known.last, LastSeen::Blocked)
                && at >= known.seen_at + self.parked_after(known.key.tid)
            {
                self.park(index);
            }
        }
        if self.list_again {
            self.update_list(false, context);
        }
        self.attaching = false;
    }

    /// Takes one row of the pass, with its stack.
    pub fn take_row(&mut self, row: &Row, copied: Copied<'_>, context: &mut ScanContext<'_>) {
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
        let ended = matches!(known.last, LastSeen::Ended);
        if same && (ended || self.report_unmoved(index, row.counters, 0, || row.at, context)) {
            return;
        }
        let ready = matches!(row.what, What::Ready(_));
        let found = ThreadState {
            at: row.at,
            name: row.name,
            state: row.state,
            ready,
            start: row.start,
            left_core: Some(row.left_core),
        };
        self.report_state(
            index,
            &found,
            row.counters,
            context,
            &mut |tasks, files, context, observation| {
                read_stack(tasks, files, row, copied, context, observation)
            },
        );
        // The iterator considers the thread reported, but no stack was taken here.
        if matches!(
            (&row.what, &self.known[index].last),
            (What::Blocked(_) | What::Unchanged, LastSeen::Nothing | LastSeen::Running)
        ) {
            self.again.tids.push(row.tid);
        }
    }
}

/// Returns whether the thread has not run since the row was made.
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
    context: &mut ScanContext<'_>,
    observation: &mut Observation,
) -> Option<Walk> {
    let blocked = match &row.what {
        What::Blocked(blocked) | What::Ready(blocked) => blocked,
        What::Torn => {
            context.losses.torn += 1;
            return None;
        }
        What::Late => {
            context.losses.late += 1;
            return None;
        }
        // Stopped or uninterruptible as before, but its last stack is not known here: request it
        // again.
        What::Nothing | What::NoRegisters | What::Unchanged => return None,
    };
    let ready = matches!(row.what, What::Ready(_));
    let Some(stacks) = &mut context.stacks else {
        if !ready {
            not_readable(row.state, observation);
        }
        return None;
    };
    let owner = StackOwner {
        tid: row.tid,
        fs_base: Some(blocked.fs_base),
        sp: blocked.registers.rsp,
        futex: blocked.call.futex().filter(|_| !ready),
    };
    stacks.begin(observation.thread.pid, owner, row.at);
    let registers = &blocked.registers;
    let bytes = StackBytes { base: registers.rsp, bytes: copied.stack };
    copied.kernel_frames(&mut observation.stack);
    let of_user = observation.stack.len();
    let mut walk = stacks.unwinder.walk(registers, bytes, &mut observation.stack);
    let mut name = stacks.unwinder.thread_name(row.at);
    // The stack is deeper than the copy, continues on another stack, or passes code that cannot be
    // walked. The rest is read from the target.
    let resumes = matches!(walk.end, Some(Marker::NoUnwindInfo | Marker::BadUnwind))
        && stacks.unwinder.can_resume();
    if walk.end == Some(Marker::Truncated) || resumes {
        let mut whole = Vec::with_capacity(2 * observation.stack.len());
        copied.kernel_frames(&mut whole);
        let again = stacks.unwinder.walk_blocked(registers, bytes, &mut whole);
        if stayed(tasks, files, row) {
            (walk, observation.stack, name) = (again, whole, stacks.unwinder.thread_name(row.at));
        } else if copied.stack.is_empty() {
            context.losses.torn += 1;
            observation.stack.clear();
            return None;
        }
    }
    let has_labels =
        stacks.place_labels((blocked.fs_base, registers), walk, &mut observation.stack);
    if (has_labels || stacks.unwinder.has_read_frames()) && !stayed(tasks, files, row) {
        context.losses.torn += 1;
        observation.stack.clear();
        return None;
    }
    if !ready
        && let Some((at, frame)) = stacks.unwinder.waits_for()
        && stayed(tasks, files, row)
    {
        observation.stack.insert(of_user + at, frame);
    }
    let Blocked { call, .. } = blocked;
    observation.seen = if ready { Seen::Ready } else { seen_of_state(row.state, Some(*call)) };
    observation.recovered = walk.recovered;
    observation.name = name.unwrap_or(observation.name);
    Some(walk)
}
