//! Which code is mapped where, and since when: reads mappings, applies reports, drops stale
//! entries.

use std::sync::Arc;

use super::*;
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{FrameCode, RawFrame};
use crate::process::mapped_files::MappedFile;
use crate::process::maps::Backing;

impl Code {
    /// Drops everything; the mappings are read again before the next walk.
    pub fn invalidate(&mut self) {
        self.maps = CodeGenerations::default();
        self.read_at = None;
        self.images.clear();
        self.retired.clear();
        self.tables_size = 0;
        self.fresh.clear();
        self.resolved.clear();
        self.stale.clear();
        self.calls.clear();
        self.flows.clear();
        self.unwinder = UnwinderX86_64::new();
        // Otherwise an old rule could be found again once framehop's 16-bit generation has wrapped
        // around.
        self.caches = (0..CACHES).map(|_| CacheX86_64::new()).collect();
    }

    /// Starts a walk; reads the mappings again when it is time.
    pub fn refresh(&mut self, now: Instant) {
        self.of_this_walk = false;
        self.walked = true;
        // Reports of what a read would show may still be pending; then reads are made between
        // walks.
        let due =
            self.read_at.is_none_or(|at| !self.reported && self.is_old(now.duration_since(at)));
        if due {
            self.read_maps(now);
        }
        self.forget_stale();
    }

    pub(super) fn is_old(&self, age: Duration) -> bool {
        age >= READ_AGAIN.max(self.cost * SHARE)
    }

    /// Reads the mappings between walks, when all reports have been applied. `reported`: there are
    /// reports; `lost`: some are missing.
    pub fn revalidate(&mut self, reported: bool, lost: bool) {
        self.reported = reported;
        self.lost |= lost;
        let now = Instant::now();
        let due = self.read_at.is_none_or(|at| {
            let age = now.duration_since(at);
            match reported {
                _ if self.lost || self.maps.is_full() => age >= self.cost * SHARE_UNKNOWN,
                // Without walks nothing can be wrong, and all new code is reported.
                true => self.walked && self.is_old(age),
                false => age >= self.cost * SHARE_UNREPORTED,
            }
        });
        if due {
            self.read_maps(now);
        }
    }

    /// Makes the mappings count as read long ago.
    #[cfg(test)]
    pub fn forget_age(&mut self) {
        self.cost = Duration::ZERO;
    }

    /// Applies a report of new code.
    pub fn report(&mut self, new: &CodeMapping) {
        let replaced = self.maps.report(new);
        for range in replaced {
            self.replace(range);
        }
    }

    /// Drops what is known of addresses that now have other code.
    pub(super) fn replace(&mut self, (start, end): (u64, u64)) {
        let removed: Vec<u64> = self
            .images
            .range(..end)
            .filter(|(_, image)| image.end() > start)
            .map(|(start, _)| *start)
            .collect();
        for start in removed {
            self.retire(start);
        }
        self.stale.push((start, end));
    }

    pub(super) fn forget_stale(&mut self) {
        let stale = std::mem::take(&mut self.stale);
        if stale.is_empty() {
            return;
        }
        self.calls.clear();
        self.flows.clear();
        if stale.len() > STALE_MAX {
            self.followed.clear();
            self.resolved.clear();
        } else {
            self.followed
                .retain(|at| !stale.iter().any(|(start, end)| (*start..*end).contains(&at)));
            // A return address may lie just behind its code.
            self.resolved
                .retain(|(pc, _), _| !stale.iter().any(|(start, end)| start <= pc && pc <= end));
        }
    }

    pub(super) fn retire(&mut self, start: u64) {
        self.unwinder.remove_module(start);
        let Some(image) = self.images.remove(&start) else { return };
        if self.fresh.contains(&start) {
            // Its tables may not belong to what was mapped.
            self.tables_size -= image.size();
            return;
        }
        self.retired.push(image);
        if self.retired.len() > RETIRED_MAX {
            let oldest = self.retired.remove(0);
            self.tables_size -= oldest.size();
        }
    }

    /// Reads the mappings again because no mapping contains an address, unless they were just read.
    pub fn refresh_for_unknown(&mut self) -> bool {
        let now = Instant::now();
        let pause = READ_AGAIN_UNKNOWN.max(self.cost * SHARE_UNKNOWN);
        let due = self.read_at.is_none_or(|at| now.duration_since(at) >= pause);
        if due {
            self.read_maps(now);
        }
        due
    }

    /// Whether the images loaded for this walk belong to the mapped files: the mappings are equal
    /// before and after it. Tables come from memory, so a library that has replaced another would
    /// be named as the other. If not, these images are dropped.
    pub fn settle(&mut self) -> bool {
        if !self.fresh.is_empty() {
            self.read_live();
            for start in std::mem::take(&mut self.fresh) {
                let live = if self.reported { &self.live } else { self.maps.read_last() };
                let Some(image) = self.images.get(&start) else {
                    self.fresh_removed = true;
                    continue;
                };
                if !image.still_in(live) {
                    self.fresh_removed = true;
                    self.tables_size -= image.size();
                    self.images.remove(&start);
                    self.unwinder.remove_module(start);
                }
            }
        }
        let removed = std::mem::take(&mut self.fresh_removed);
        if removed {
            self.resolved.clear();
        }
        !removed
    }

    /// Reads the present mappings, for what is read from memory. Where new code is reported they
    /// may contain code whose report is pending.
    pub(super) fn read_live(&mut self) {
        if self.reported {
            self.live = (self.source)().unwrap_or_default();
            self.live_readings += 1;
            self.of_this_walk = true;
        } else {
            self.read_maps(Instant::now());
        }
    }

    /// Returns the file whose code a frame is.
    pub fn file_of(&self, frame: RawFrame) -> Option<Arc<MappedFile>> {
        match frame.decode() {
            FrameCode::Code { file, .. } => self.files.get(file),
            _ => None,
        }
    }

    /// Returns the mappings that were read last, for whatever purpose, and a number that changes
    /// with them.
    pub fn newest(&self) -> (&Maps, u64) {
        let is_live = self.reported && !self.live.is_empty();
        let maps = if is_live { &self.live } else { self.maps.read_last() };
        (maps, self.readings + self.live_readings)
    }

    pub(super) fn read_maps(&mut self, now: Instant) {
        let begin = monotonic();
        // An error means that the process has ended; then there is nothing to walk either.
        let maps = (self.source)().unwrap_or_default();
        self.read_at = Some(now);
        self.of_this_walk = true;
        self.walked = false;
        self.readings += 1;
        self.cost = now.elapsed();
        // Code generated at run time is patched in place.
        self.calls.clear();
        self.flows.clear();
        // Code of a file is not, as long as it is mapped.
        let before = self.maps.read_last();
        self.followed.retain(|start| {
            let kept = before.find(start).filter(|code| code.backing == Backing::File);
            kept.is_some() && kept == maps.find(start)
        });
        let moved =
            self.maps.read_last().iter().any(|m| m.executable && maps.find(m.start) != Some(m));
        let replaced = self.maps.read(maps, begin, monotonic(), std::mem::take(&mut self.lost));
        let removed: Vec<u64> = self
            .images
            .values()
            .filter(|i| !i.still_in(self.maps.read_last()))
            .map(Image::start)
            .collect();
        for start in removed {
            self.retire(start);
        }
        if moved || !replaced.is_empty() {
            self.resolved.clear();
        }
        if self.reported {
            self.live = self.maps.read_last().clone();
        }
    }
}
