//! The rows of the task iterator as source: of the threads that a round visits those that ran, or that have to be told again,
//! come with all there is to know. No file is read of a thread that stands still.
//!
//! A round visits either all threads at once or, one by one, those that are not parked. All, whenever the rotation of
//! [`crate::capture::parked`] would have come round: then nobody stays out for longer than where files are read.

use crate::capture::bpf::Visit;
use crate::capture::bpf::rows::{Blocked, Copied, Row, What};
use crate::capture::looks::{Found, Last, Looks, Round, not_readable, seen_as};
use crate::capture::parked::PARKED_AFTER;
use crate::capture::schedule::now;
use crate::model::frame::{Look, Marker};
use crate::process::threads::{Tasks, ThreadFiles};
use crate::unwinder::{StackBytes, Walk};

/// So many threads are visited one by one at most.
const SINGLY_MOST: usize = 128;
/// One visit alone costs as much as so many in a pass over all.
const SINGLY_COSTS: usize = 8;

impl Looks {
    /// Whom the next pass has to visit, and to tell of whatever it told before. `turns`: so many visits of parked threads a
    /// round are affordable.
    pub fn next_visit(&mut self, turns: usize) -> Visit {
        self.visits_saved = self.visits_saved.saturating_add(turns);
        let active = self.known.len() - self.parked.len();
        // Before the pass: who is born during it changes the count again.
        self.list_again |= self.links != self.tasks.links();
        // Only a pass over all finds who is new.
        let all = std::mem::take(&mut self.all)
            || self.again.everybody
            || self.list_again
            || self.visits_saved >= self.parked.len()
            || active > SINGLY_MOST
            || active * SINGLY_COSTS > self.known.len();
        let again = std::mem::take(&mut self.again);
        if all {
            self.visits_saved = 0;
            return Visit { only: None, again };
        }
        let all = self.known.iter().zip(&self.is_parked);
        let active = all.filter(|(known, is_parked)| !**is_parked && !matches!(known.last, Last::Ended));
        Visit { only: Some(active.map(|(known, _)| known.key.tid).collect()), again }
    }

    /// The pass has come to its end: who is gone, and who has waited for long?
    pub fn end_of_rows(&mut self, round: &mut Round<'_>) {
        let since = now().saturating_sub(PARKED_AFTER);
        for index in 0..self.known.len() {
            // Whoever is not parked was visited. Who moved was seen.
            if !self.is_parked[index]
                && matches!(self.known[index].last, Last::Blocked)
                && self.known[index].seen_at <= since
            {
                self.park(index, true);
            }
        }
        if self.list_again {
            self.update_list(false, round);
        }
        self.rounds += 1;
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
        let known = &self.known[index];
        let same = known.key.start == row.start;
        let ended = matches!(known.last, Last::Ended);
        if same && (ended || self.unmoved(index, row.counters, 0, || row.at, round)) {
            return;
        }
        let found = Found { at: row.at, name: row.name, state: row.state, start: row.start };
        self.found(index, &found, row.counters, round, &mut |tasks, files, round, look| {
            read_stack(tasks, files, row, copied, round, look)
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

/// Walks the stack that came with a row.
fn read_stack(
    tasks: &Tasks,
    files: &mut ThreadFiles,
    row: &Row,
    copied: Copied<'_>,
    round: &mut Round<'_>,
    look: &mut Look,
) -> Option<Walk> {
    let blocked = match &row.what {
        What::Blocked(blocked) => blocked,
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
    let Some(stacks) = &mut round.stacks else {
        not_readable(row.state, look);
        return None;
    };
    let registers = &blocked.registers;
    let bytes = StackBytes { base: registers.rsp, bytes: copied.stack };
    copied.kernel_frames(&mut look.stack);
    let mut walk = stacks.unwinder.walk(registers, bytes, &mut look.stack);
    let mut name = stacks.unwinder.thread_name(row.at);
    // Deeper than what is copied, or on another stack beside this one: the rest is read as it lies.
    if walk.end == Some(Marker::Truncated) {
        let mut whole = Vec::with_capacity(2 * look.stack.len());
        copied.kernel_frames(&mut whole);
        let again = stacks.unwinder.walk_blocked(registers, bytes, &mut whole);
        let stayed =
            tasks.counters(files).is_ok_and(|now| now.run_ns == row.counters.run_ns && now.runs == row.counters.runs);
        if stayed {
            (walk, look.stack, name) = (again, whole, stacks.unwinder.thread_name(row.at));
        } else if copied.stack.is_empty() {
            round.losses.torn += 1;
            look.stack.clear();
            return None;
        }
    }
    let Blocked { call, .. } = blocked;
    look.seen = seen_as(row.state, Some(*call));
    look.recovered = walk.recovered;
    look.name = name.unwrap_or(look.name);
    Some(walk)
}
