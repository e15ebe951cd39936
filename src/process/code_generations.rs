//! Generations of code in a process: which code lies where, and since when. It combines the
//! mappings that were read last with those that the kernel reported since.
//!
//! A stack is named by the code of the instant at which it was copied. Where the code at an address
//! is younger, [`CodeGenerations::replaced`] says so. Such a stack must not be named by what lies
//! there now.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::model::vocabulary::frame::Ns;
use crate::process::maps::{Backing, Mapping, Maps};

/// Executable memory that a process has mapped, or made executable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeMapping {
    pub pid: u32,
    pub at: Ns,
    pub mapping: Arc<Mapping>,
}

impl Mapping {
    /// Creates a mapping of executable memory from a kernel report. `path`: the name in perf's
    /// record.
    pub fn reported(
        range: (u64, u64),
        offset: u64,
        device: (u32, u32),
        inode: u64,
        path: &[u8],
    ) -> Mapping {
        let (path, deleted) = match path.strip_suffix(b" (deleted)") {
            Some(path) if inode != 0 => (path, true),
            _ => (path, false),
        };
        let backing = match path {
            _ if inode != 0 => Backing::File,
            b"[vdso]" => Backing::Vdso,
            b"[stack]" => Backing::MainStack,
            _ => Backing::Anonymous,
        };
        let path = if path == b"//anon" { b"" } else { path };
        Mapping {
            start: range.0,
            end: range.1,
            readable: true,
            writable: false,
            executable: true,
            offset: if inode != 0 { offset } else { 0 },
            device,
            inode,
            backing,
            path: Arc::from(Path::new(OsStr::from_bytes(path))),
            deleted,
        }
    }

    /// Whether both have the same code at every address that both cover.
    pub fn same_code(&self, other: &Mapping) -> bool {
        let bias = |mapping: &Mapping| mapping.start.wrapping_sub(mapping.offset);
        self.backing == other.backing
            && (self.backing != Backing::File
                || (self.device, self.inode) == (other.device, other.inode)
                    && self.path == other.path
                    && bias(self) == bias(other))
    }
}

/// Maximum entries; beyond that the next read of the mappings replaces all of them.
pub const RANGES_MAX: usize = 1 << 14;
/// Maximum pieces of code that one new mapping is compared with; anything beyond counts as
/// replaced.
const PIECES_MAX: usize = 1024;
/// How long a replacement is remembered, ns. Every stack is walked sooner after it was copied.
const KEPT: Ns = 5_000_000_000;

#[derive(Clone, Debug)]
struct Range {
    end: u64,
    since: Ns,
    /// `None`: the mappings that were read last apply.
    mapping: Option<Arc<Mapping>>,
}

/// The code of one process.
#[derive(Debug, Default)]
pub struct CodeGenerations {
    read: Maps,
    /// When that read began and ended; 0 before the first read.
    read_at: Ns,
    read_till: Ns,
    /// The first mappings that are read have replaced another program's code.
    follows_exec: bool,
    /// By start address; not overlapping.
    ranges: BTreeMap<u64, Range>,
    /// No code is younger than this.
    newest: Ns,
    /// For stacks copied before this no code is known.
    floor: Ns,
}

impl CodeGenerations {
    /// Returns the mappings that were read last.
    pub fn read_last(&self) -> &Maps {
        &self.read
    }

    pub fn follows_exec(&mut self) {
        self.follows_exec = true;
    }

    /// Whether enough changes were reported that the mappings should be read again.
    pub fn is_full(&self) -> bool {
        self.ranges.len() >= RANGES_MAX
    }

    pub fn find(&self, address: u64) -> Option<&Mapping> {
        match self.range_at(address).and_then(|(_, range)| range.mapping.as_deref()) {
            Some(mapping) => Some(mapping),
            None => self.read.find(address),
        }
    }

    pub fn find_code(&self, address: u64) -> Option<&Mapping> {
        self.find(address).filter(|mapping| mapping.executable)
    }

    /// See [`Maps::stack_of`].
    pub fn stack_of(&self, sp: u64) -> Option<&Mapping> {
        self.read.stack_of(sp)
    }

    /// Whether the code at `address` may be younger than a stack that was copied at `at`.
    #[inline]
    pub fn replaced(&self, address: u64, at: Ns) -> bool {
        at < self.newest && self.replaced_since(address, at)
    }

    #[cold]
    fn replaced_since(&self, address: u64, at: Ns) -> bool {
        at < self.floor || self.range_at(address).is_some_and(|(_, range)| at < range.since)
    }

    fn range_at(&self, address: u64) -> Option<(u64, &Range)> {
        if self.ranges.is_empty() {
            return None;
        }
        let (start, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some((*start, range))
    }

    /// Returns the code at `address`, if any, and the end of the piece with the same state.
    fn piece(&self, address: u64) -> (Option<&Mapping>, u64) {
        let (reported, until) = match self.range_at(address) {
            Some((_, range)) => (range.mapping.as_deref(), range.end),
            None => {
                (None, self.ranges.range(address..).next().map_or(u64::MAX, |(start, _)| *start))
            }
        };
        match reported {
            Some(mapping) => (Some(mapping).filter(|mapping| mapping.executable), until),
            None => {
                let (mapping, end) = self.read.piece(address);
                (mapping.filter(|mapping| mapping.executable), until.min(end))
            }
        }
    }

    /// Returns the parts of `[start, end)` where `judge` accepts the code that is there, joined.
    fn parts(
        &self,
        start: u64,
        end: u64,
        mut judge: impl FnMut(Option<&Mapping>) -> bool,
    ) -> Vec<(u64, u64)> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = start;
        for _ in 0..PIECES_MAX {
            if at >= end {
                return parts;
            }
            let (code, until) = self.piece(at);
            let until = until.min(end);
            if judge(code) {
                match parts.last_mut() {
                    Some(last) if last.1 == at => last.1 = until,
                    _ => parts.push((at, until)),
                }
            }
            at = until;
        }
        parts.push((at, end));
        parts
    }

    /// Whether `new` replaces other code.
    pub fn would_replace(&self, new: &CodeMapping) -> bool {
        let Mapping { start, end, .. } = *new.mapping;
        new.at > self.read_at
            && !self
                .parts(start, end, |code| code.is_some_and(|code| !code.same_code(&new.mapping)))
                .is_empty()
    }

    /// Applies a kernel report; reports come in order of time. Returns the ranges where other code
    /// was replaced.
    pub fn report(&mut self, new: &CodeMapping) -> Vec<(u64, u64)> {
        let Mapping { start, end, executable, .. } = *new.mapping;
        if start >= end || !executable {
            return Vec::new();
        }
        if new.at <= self.read_at {
            // The mappings were read later. If they contain the reported code, the report says
            // since when. If not, the code that they contain came after it.
            for (start, end) in
                self.parts(start, end, |code| code.is_some_and(|code| code.same_code(&new.mapping)))
            {
                self.date(start, end, new.at);
            }
            for (start, end) in self
                .parts(start, end, |code| code.is_some_and(|code| !code.same_code(&new.mapping)))
            {
                self.put(start, end, Range { end, since: self.read_till, mapping: None });
            }
            return Vec::new();
        }
        let replaced =
            self.parts(start, end, |code| code.is_some_and(|code| !code.same_code(&new.mapping)));
        let other =
            self.parts(start, end, |code| code.is_none_or(|code| !code.same_code(&new.mapping)));
        for (start, end) in other {
            self.put(start, end, Range { end, since: new.at, mapping: Some(new.mapping.clone()) });
        }
        if self.ranges.len() > 2 * RANGES_MAX {
            // The mappings were not read for too long: no code is known until they are.
            self.ranges.clear();
            (self.floor, self.newest) = (Ns::MAX, Ns::MAX);
        }
        replaced
    }

    /// Records that this code existed at `at` at the latest.
    fn date(&mut self, start: u64, end: u64, at: Ns) {
        self.split(start);
        self.split(end);
        for (_, range) in self.ranges.range_mut(start..end) {
            range.since = range.since.min(at);
        }
    }

    /// Applies mappings that were read between `begin` and `end`. `lost`: reports are missing.
    /// Returns the ranges where other code was replaced.
    pub fn read(&mut self, maps: Maps, begin: Ns, end: Ns, lost: bool) -> Vec<(u64, u64)> {
        let first = self.read_at == 0;
        let mut replaced = Vec::new();
        let mut fresh = Vec::new();
        for new in maps.iter().filter(|new| new.executable) {
            // The common case: nothing has changed.
            if self.ranges.is_empty() && self.read.find(new.start) == Some(new) {
                continue;
            }
            replaced.extend(
                self.parts(new.start, new.end, |code| {
                    code.is_some_and(|code| !code.same_code(new))
                }),
            );
            if !first || self.follows_exec {
                fresh.extend(self.parts(new.start, new.end, |code| code.is_none()));
            }
        }
        self.read = maps;
        (self.read_at, self.read_till) = (begin.max(1), end);
        if self.floor == Ns::MAX {
            (self.floor, self.newest) = (end, end);
        }
        self.ranges.retain(|_, range| range.since + KEPT > end);
        for range in self.ranges.values_mut() {
            range.mapping = None;
            if lost {
                range.since = end;
            }
        }
        if lost && !self.ranges.is_empty() {
            self.newest = self.newest.max(end);
        }
        for (start, end_of_part) in replaced.iter().chain(&fresh).copied() {
            self.put(start, end_of_part, Range { end: end_of_part, since: end, mapping: None });
        }
        replaced
    }

    /// Corrects a mapping's identity: `/proc/PID/maps` may show another device or inode than
    /// reports do (overlayfs, btrfs).
    pub fn correct(&mut self, known: &Mapping, as_read: &Mapping) {
        let as_read = Arc::new(as_read.clone());
        for (_, range) in self.ranges.range_mut(known.start..known.end) {
            if range.mapping.as_deref() == Some(known) {
                range.mapping = Some(as_read.clone());
            }
        }
    }

    fn put(&mut self, start: u64, end: u64, range: Range) {
        self.split(start);
        self.split(end);
        let covered: Vec<u64> = self.ranges.range(start..end).map(|(start, _)| *start).collect();
        for start in covered {
            self.ranges.remove(&start);
        }
        self.newest = self.newest.max(range.since);
        self.ranges.insert(start, range);
    }

    fn split(&mut self, at: u64) {
        let Some((start, range)) = self.range_at(at).map(|(start, range)| (start, range.clone()))
        else {
            return;
        };
        if start < at {
            if let Some(first) = self.ranges.get_mut(&start) {
                first.end = at;
            }
            self.ranges.insert(at, range);
        }
    }
}

#[cfg(test)]
mod tests;
