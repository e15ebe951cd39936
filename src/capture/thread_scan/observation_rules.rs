//! The rules of observation: when counters prove that a thread still waits, and what the scan
//! reports of all other threads.

use super::*;

/// Maximum retries of a walk that did not reach the end of the stack; then the result is kept.
pub(super) const MAX_INCOMPLETE_WALKS: u8 = 5;

impl ThreadScan {
    /// Applies the first rule. A thread that was blocked and has not run is skipped. An
    /// uninterruptible or stopped one is reported with its last stack. `from`: start of the scan.
    /// Returns false if the state of the thread has to be read.
    pub(super) fn report_unmoved(
        &mut self,
        index: usize,
        counters: Counters,
        from: Ns,
        at: impl FnOnce() -> Ns,
        context: &mut ScanContext<'_>,
    ) -> bool {
        let known = &self.known[index];
        let unmoved =
            known.counters.is_some_and(|c| c.run_ns == counters.run_ns && c.runs == counters.runs);
        match &known.last {
            LastSeen::Blocked if unmoved => {
                if from >= known.seen_at + self.parked_after(known.key.tid) {
                    self.park(index);
                }
                true
            }
            LastSeen::Suspended { seen, name, stack, recovered } if unmoved => {
                let (seen, name, stack, recovered) = (*seen, *name, stack.clone(), *recovered);
                context.events.push(Event::Observation(Observation {
                    counters: Some(counters),
                    stack,
                    recovered,
                    ..Observation::new(at(), known.key, name, seen)
                }));
                true
            }
            _ => {
                self.unpark(index);
                false
            }
        }
    }

    /// Applies the other rules to what was read of a thread. `read` takes its stack if it is off
    /// the core.
    pub(super) fn report_state(
        &mut self,
        index: usize,
        found: &ThreadState,
        counters: Counters,
        context: &mut ScanContext<'_>,
        read: ReadStack<'_>,
    ) {
        if matches!(found.state, b'Z' | b'X' | b'x') {
            self.replace_counters(index, Some(counters));
            self.end(index, context);
            return;
        }
        self.check_identity(index, found, &counters, context);
        self.observe(index, found, counters, context, read);
    }

    /// Detects another thread under the same id, by counters that went backwards or by another
    /// start time. It occurs after an exec by a thread that is not the leader. It also occurs when
    /// an id is reused and no descriptor could be kept open.
    fn check_identity(
        &mut self,
        index: usize,
        found: &ThreadState,
        counters: &Counters,
        context: &mut ScanContext<'_>,
    ) {
        let known = &mut self.known[index];
        let backwards =
            known.counters.is_some_and(|c| counters.run_ns < c.run_ns || counters.runs < c.runs);
        if found.start != known.key.start || backwards {
            let thread = known.key;
            let event = Event::ThreadEnded {
                at: monotonic(),
                thread,
                counters: self.replace_counters(index, None),
            };
            context.events.push(event);
            let known = &mut self.known[index];
            known.key.start = found.start;
            known.at_start = false;
            // Descriptors refer to the thread that they were opened for.
            let fresh = self.tasks.thread(known.key.tid);
            self.tasks.forget(std::mem::replace(&mut known.files, fresh));
        }
    }

    /// Reports a thread that has run, or that was not last seen blocked.
    fn observe(
        &mut self,
        index: usize,
        found: &ThreadState,
        counters: Counters,
        context: &mut ScanContext<'_>,
        read: ReadStack<'_>,
    ) {
        let before = self.replace_counters(index, Some(counters));
        let known = &mut self.known[index];
        let unmoved = before == known.counters;
        known.name = found.name;
        known.seen_at = found.at;
        let ran = before.map_or(0, |before| counters.run_ns - before.run_ns);
        let delayed = before.map_or(0, |before| counters.delay_ns.saturating_sub(before.delay_ns));
        let mut observation = Observation {
            counters: Some(counters),
            ..Observation::new(known.seen_at, known.key, found.name, Seen::Running)
        };
        let again = unmoved && known.incomplete_walks > 0;
        if (found.state != b'R' || found.ready)
            && let Some(walk) = read(&self.tasks, &mut known.files, context, &mut observation)
        {
            // A retried stack is counted once, with the outcome of its first walk.
            if !again {
                count_walk(&walk, context.losses);
            }
        }
        if !unmoved {
            known.incomplete_walks = 0;
        }
        if matches!(observation.seen, Seen::Blocked(_) | Seen::Disk(_)) {
            observation.wait_began = found.left_core;
        }
        known.last = match observation.seen {
            Seen::OnCpu | Seen::Running | Seen::Ready => LastSeen::Running,
            Seen::Blocked(_)
                if may_reach_further(&observation.stack)
                    && known.incomplete_walks < MAX_INCOMPLETE_WALKS =>
            {
                known.incomplete_walks += 1;
                self.again.tids.push(known.key.tid);
                LastSeen::Nothing
            }
            Seen::Blocked(_) => LastSeen::Blocked,
            seen @ (Seen::Disk(_) | Seen::Stopped) => LastSeen::Suspended {
                seen,
                name: observation.name,
                stack: observation.stack.clone(),
                recovered: observation.recovered,
            },
        };
        if !unmoved {
            let runnable = matches!(observation.seen, Seen::Running | Seen::Ready);
            context.moved.push(Moved {
                tid: known.key.tid,
                ran,
                delayed,
                runnable,
                at_start: known.at_start,
            });
        }
        context.events.push(Event::Observation(observation));
    }
}

/// Fills in state and stack of a thread that is off the core, and stays off it during the read.
/// Else the observation stays [`Seen::Running`] without a stack. Returns the walk, if a stack was
/// taken.
pub(super) type ReadStack<'a> = &'a mut dyn FnMut(
    &Tasks,
    &mut ThreadFiles,
    &mut ScanContext<'_>,
    &mut Observation,
) -> Option<Walk>;

/// State read of a thread, beside its counters.
pub(super) struct ThreadState {
    pub(super) at: Ns,
    pub(super) name: RawName,
    /// State letter of /proc/PID/stat.
    pub(super) state: u8,
    /// The thread is runnable and off the core, so its stack can be read.
    pub(super) ready: bool,
    pub(super) start: u64,
    /// When it last left its core, where that is known.
    pub(super) left_core: Option<Ns>,
}

/// Returns whether a later walk may reach further. The unwinder reads the mappings again only at
/// intervals. So it may not know yet a stack or code that was mapped just before the thread
/// blocked.
fn may_reach_further(stack: &[RawFrame]) -> bool {
    let end = stack.last().map(|frame| frame.decode());
    matches!(
        end,
        Some(FrameCode::Marker {
            marker: Marker::BadUnwind
                | Marker::OutsideMaps
                | Marker::NoUnwindInfo
                | Marker::CodeReplaced,
            ..
        })
    )
}

pub(super) fn not_readable(state: u8, observation: &mut Observation) {
    observation.seen = seen_of_state(state, None);
    observation.stack.push(RawFrame::marker(Marker::NotReadable));
}

/// Maps the state letter of /proc/PID/stat. S, I, K, P and W are waits; D, and T and t have states
/// of their own.
pub(super) fn seen_of_state(state: u8, call: Option<Syscall>) -> Seen {
    match state {
        b'D' => Seen::Disk(call),
        b'T' | b't' => Seen::Stopped,
        _ => Seen::Blocked(call.unwrap_or(Syscall { number: -1, args: [0; 6] })),
    }
}

/// Counts the outcome of a walk.
pub fn count_walk(walk: &Walk, losses: &mut Losses) {
    losses.samples += 1;
    losses.recovered += u64::from(walk.recovered);
    match walk.end {
        Some(Marker::Truncated | Marker::TooDeep | Marker::NotCopied | Marker::PageMissing) => {
            losses.truncated += 1
        }
        Some(reason) => {
            losses.unwind_failed += 1;
            match reason {
                Marker::NoUnwindInfo => losses.no_unwind_info += 1,
                Marker::OutsideMaps => losses.outside_maps += 1,
                _ => losses.bad_unwind += 1,
            }
        }
        None => {}
    }
}
