//! Maintains the list of threads of a process: new ones and exited ones.

use super::*;

impl ThreadScan {
    /// Lists the threads again if their number may have changed. `add`: new threads are read from
    /// /proc; else the next pass of the iterator finds them.
    pub(super) fn update_list(&mut self, add: bool, context: &mut ScanContext<'_>) {
        let links = self.tasks.links();
        if links == self.links && !self.list_again {
            return;
        }
        let mut tids = std::mem::take(&mut self.tids);
        if self.tasks.list(&mut tids).is_ok() {
            // The link count was read before the listing: a thread created during it changes the
            // count again.
            (self.links, self.list_again) = (links, false);
            tids.truncate(MAX_THREADS);
            self.newcomers.clear();
            for tid in tids.iter().rev() {
                if self.index.contains_key(tid) {
                    continue;
                }
                if add {
                    self.newcomers.push(*tid);
                } else {
                    // Created after the iterator passed.
                    self.all = true;
                }
            }
            tids.sort_unstable();
            for index in (0..self.known.len()).rev() {
                let known = &mut self.known[index];
                if tids.binary_search(&known.key.tid).is_ok() {
                    continue;
                }
                // A listing ends early if the thread at its position exits (fs/proc/base.c,
                // next_tid).
                if self.tasks.counters(&mut known.files) != Err(ReadError::Exited) {
                    self.list_again = true;
                    continue;
                }
                self.end(index, context);
                self.remove(index);
            }
        }
        self.tids = tids;
    }

    pub(super) fn add(&mut self, tid: u32) -> Option<()> {
        let mut files = self.tasks.thread(tid);
        let Ok(stat) = self.tasks.stat(&mut files) else {
            self.tasks.forget(files);
            self.list_again = true;
            return None;
        };
        self.insert(tid, stat.start, stat.name, files)
    }

    pub(super) fn insert(
        &mut self,
        tid: u32,
        start: u64,
        name: RawName,
        files: ThreadFiles,
    ) -> Option<()> {
        if self.known.len() >= MAX_THREADS {
            self.tasks.forget(files);
            return None;
        }
        let key = ThreadKey { pid: self.pid, tid, start };
        let at_start = self.attaching;
        self.index.insert(tid, self.known.len());
        self.known.push(KnownThread {
            key,
            id: 0,
            name,
            files,
            counters: None,
            last: LastSeen::Nothing,
            seen_at: 0,
            incomplete_walks: 0,
            at_start,
        });
        self.is_parked.push(false);
        Some(())
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.replace_counters(index, None);
        let known = self.known.swap_remove(index);
        self.is_parked.swap_remove(index);
        self.index.remove(&known.key.tid);
        self.parked.forget(known.key.tid);
        if let Some(moved) = self.known.get(index) {
            self.index.insert(moved.key.tid, index);
        }
        self.tasks.forget(known.files);
    }

    pub(super) fn end(&mut self, index: usize, context: &mut ScanContext<'_>) {
        let known = &mut self.known[index];
        if !matches!(known.last, LastSeen::Ended) {
            known.last = LastSeen::Ended;
            let counters = known.counters;
            context.events.push(Event::ThreadEnded {
                at: monotonic(),
                thread: known.key,
                counters,
            });
        }
    }
}
