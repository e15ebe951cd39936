//! The rows of the task iterator as source: every thread is visited in each round, and those that ran, or that have to be told
//! again, come with all there is to know. Nobody is parked, and no file is read of a thread that stands still.

use crate::capture::bpf::Again;
use crate::capture::bpf::rows::{Blocked, Row, What};
use crate::capture::looks::{Found, Last, Looks, Round, not_readable, seen_as};
use crate::model::frame::{Look, Marker};
use crate::process::threads::{Tasks, ThreadFiles};
use crate::unwinder::{StackBytes, Walk};

impl Looks {
    /// Whom the next pass has to tell of, whatever it told before.
    pub fn take_again(&mut self) -> Again {
        // Since everybody is visited in every pass, nobody can be left out.
        self.all = false;
        std::mem::take(&mut self.again)
    }

    /// The pass has come to its end: who is gone?
    pub fn end_of_rows(&mut self, round: &mut Round<'_>) {
        self.update_list(false, round);
        self.rounds += 1;
    }

    /// A row of the pass that is this round, with the bytes of its stack.
    pub fn row(&mut self, row: &Row, stack: &[u8], round: &mut Round<'_>) {
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
            read_stack(tasks, files, row, stack, round, look)
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
    stack: &[u8],
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
    let copied = StackBytes { base: registers.rsp, bytes: stack };
    let mut walk = stacks.unwinder.walk(registers, copied, &mut look.stack);
    // Deeper than what is copied, or on another stack beside this one: the rest is read as it lies.
    if walk.end == Some(Marker::Truncated) {
        let mut whole = Vec::with_capacity(2 * look.stack.len());
        let again = stacks.unwinder.walk_blocked(registers, copied, &mut whole);
        let stayed =
            tasks.counters(files).is_ok_and(|now| now.run_ns == row.counters.run_ns && now.runs == row.counters.runs);
        if stayed {
            (walk, look.stack) = (again, whole);
        } else if stack.is_empty() {
            round.losses.torn += 1;
            look.stack.clear();
            return None;
        }
    }
    let Blocked { call, .. } = blocked;
    look.seen = seen_as(row.state, Some(*call));
    look.recovered = walk.recovered;
    Some(walk)
}
