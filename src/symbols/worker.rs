//! The thread that reads symbol files.
//!
//! It processes one file after the other, in portions. So the first names are available quickly,
//! and a file is open once for all requests for it. No thread waits for it: it may hang on a dead
//! NFS server for any time.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::debugfile::{Root, SearchPath};
use super::file_symbols::{FileNames, NoNames, Spot, Trust};
use super::intern::Interner;
use super::kernel::Kernel;
use super::step::Step;
use super::{Resolved, origin, placeholder};
use crate::model::facts::tables::{FrameKind, Location, Named, Tier};
use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame};
use crate::model::vocabulary::role::{Origin, Origins};
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::process::filebytes::Version;
use crate::process::mapped_files::{FileKind, Files, MappedFile};
use crate::process::program_name::started_as;
use crate::process::target_files::open_mapped;

/// Maximum names per portion.
const PORTION: usize = 64;
/// Time from the mapping of a file to its opening: while files are being mapped, and when none was
/// for `LONG`. Names in a file are requested within a tenth of a second, which opens it too.
const POLL: Duration = Duration::from_millis(50);
const POLL_SELDOM: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(5);
/// Maximum files kept open for a target that may end; later ones are opened on request.
const OPEN_CAP: usize = 512;
/// Maximum files whose symbols are loaded at a time; each maps up to two.
const LOADED_CAP: usize = 24;
/// Maximum memory for the symbols of all of them (without mapped pages), bytes; the one in use may
/// exceed it alone.
const WEIGHT_CAP: usize = 256 << 20;
/// Time after which unused symbols are dropped.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum processes whose root directory is kept open.
const ROOTS_CAP: usize = 64;

/// State shared by the worker and its owner.
#[derive(Default)]
pub struct Shared {
    pub stop: AtomicBool,
    /// Number of files whose symbols were discarded, in part or whole.
    pub damaged: AtomicUsize,
    pub kernel: Kernel,
}

/// State of a file of the registry.
#[derive(Default)]
enum Opened {
    /// To be opened on request.
    #[default]
    Later,
    /// With its version at that time: a file that is rewritten in place is another one.
    Open(File, Version),
    /// It is missing, or never was a file.
    No,
}

struct Loaded {
    names: Result<FileNames, NoNames>,
    used: Instant,
}

pub struct Worker {
    files: Files,
    search: SearchPath,
    requests: Receiver<Vec<RawFrame>>,
    results: Sender<Vec<Resolved>>,
    shared: Arc<Shared>,
    opened: Vec<Opened>,
    /// When the last of them was added.
    opened_at: Instant,
    open: usize,
    /// Frames to name, by file; the files in the order of their first request.
    queued: FxHashMap<FileId, Vec<RawFrame>>,
    order: VecDeque<FileId>,
    loaded: FxHashMap<FileId, Loaded>,
    trust: FxHashMap<FileId, Trust>,
    roots: FxHashMap<u32, Option<Root>>,
    host: Option<Root>,
    strings: Interner,
}

impl Worker {
    pub fn new(
        files: Files,
        search: SearchPath,
        requests: Receiver<Vec<RawFrame>>,
        results: Sender<Vec<Resolved>>,
        shared: Arc<Shared>,
    ) -> Worker {
        Worker {
            files,
            search,
            requests,
            results,
            shared,
            opened: Vec::new(),
            opened_at: Instant::now(),
            open: 0,
            queued: FxHashMap::default(),
            order: VecDeque::new(),
            loaded: FxHashMap::default(),
            trust: FxHashMap::default(),
            roots: FxHashMap::default(),
            host: Root::host().ok(),
            strings: Interner::default(),
        }
    }

    /// Runs until its owner is dropped.
    pub fn run(mut self) {
        loop {
            let wait = match self.order.is_empty() {
                true if self.opened_at.elapsed() < LONG => POLL,
                true => POLL_SELDOM,
                false => Duration::ZERO,
            };
            match self.requests.recv_timeout(wait) {
                Ok(frames) => {
                    // Markers name files too.
                    self.open_new_files();
                    self.sort(frames);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(frames) = self.requests.try_recv() {
                self.open_new_files();
                self.sort(frames);
            }
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
            self.open_new_files();
            if let Some(file) = self.order.front().copied() {
                if self.portion(file).is_none() {
                    return;
                }
            } else {
                self.loaded.retain(|_, loaded| loaded.used.elapsed() < IDLE);
            }
        }
    }

    /// Opens the files mapped since the last call, before their process ends.
    fn open_new_files(&mut self) {
        while self.opened.len() < self.files.len() {
            let id = FileId(self.opened.len() as u32);
            let file = self.files.get(id);
            let name = file.as_ref().and_then(|file| started_as(file));
            let name = name
                .map(|name| clean_bytes(name.as_encoded_bytes(), NAME_CAP))
                .filter(|name| !name.is_empty());
            if let Some(name) = name {
                self.files.call(id, &name);
            }
            let opened = match file {
                Some(file) if file.kind == FileKind::Regular && self.open < OPEN_CAP => {
                    self.remember_root(file.pid);
                    open(&file).unwrap_or(Opened::Later)
                }
                _ => Opened::Later,
            };
            self.open += usize::from(matches!(opened, Opened::Open(..)));
            self.opened.push(opened);
            self.opened_at = Instant::now();
        }
    }

    fn remember_root(&mut self, pid: u32) {
        if self.roots.len() < ROOTS_CAP && !self.roots.contains_key(&pid) {
            self.roots.insert(pid, Root::of(pid).ok().flatten());
        }
    }

    /// Queues frames by file; kernel frames are answered at once.
    fn sort(&mut self, frames: Vec<RawFrame>) {
        let mut at_once = Vec::new();
        let kernel = &self.shared.kernel;
        let addresses: Vec<u64> =
            frames.iter().filter_map(|frame| kernel_address(*frame)).collect();
        if !addresses.is_empty() {
            kernel.learn(addresses.into_iter());
        }
        for frame in frames {
            match frame.decode() {
                FrameCode::Code { file, .. } => {
                    let queue = self.queued.entry(file).or_default();
                    if queue.is_empty() {
                        self.order.push_back(file);
                    }
                    queue.push(frame);
                }
                FrameCode::Kernel { .. } | FrameCode::Marker { .. } | FrameCode::Runtime { .. } => {
                    let named = placeholder::named(&self.files, kernel, frame);
                    at_once.push(Resolved { frame, named: Named { pending: false, ..named } });
                }
            }
        }
        if !at_once.is_empty() {
            // The owner may be dropped; the next receive notices.
            let _ = self.results.send(at_once);
        }
    }

    /// Names the next frames of one file. `None` when they are no longer wanted.
    fn portion(&mut self, id: FileId) -> Option<()> {
        let queue = self.queued.get_mut(&id).map(std::mem::take).unwrap_or_default();
        // Lowest offsets last, as portions are taken off the end; neighbours share functions and
        // units.
        let mut queue = queue;
        queue.sort_unstable_by_key(|frame| std::cmp::Reverse(frame.bits()));
        let rest = queue.len().saturating_sub(PORTION);
        let mut portion = queue.split_off(rest);
        portion.reverse();
        if queue.is_empty() {
            self.queued.remove(&id);
            self.order.pop_front();
        } else {
            self.queued.insert(id, queue);
        }
        let resolved = match self.files.get(id) {
            Some(file) if file.kind != FileKind::Anonymous => self.name_all(id, &file, &portion),
            Some(file) => self.region(id, &file, &portion),
            None => self.unknown(&portion),
        };
        self.results.send(resolved).ok()
    }

    /// Tries with less and less trust until a portion succeeds.
    fn name_all(&mut self, id: FileId, file: &MappedFile, portion: &[RawFrame]) -> Vec<Resolved> {
        loop {
            let trust = self.trust.get(&id).copied().unwrap_or(Trust::Full);
            if let Ok(Some(steps)) = self.attempt(id, file, portion, trust) {
                return steps;
            }
            // The file was truncated or rewritten, or a parser panicked: this attempt is discarded.
            let loaded = self.loaded.remove(&id).and_then(|l| l.names.ok());
            let changed = loaded.is_some_and(|names| !names.unchanged());
            let next = match trust {
                Trust::Full if !changed => Trust::Entries,
                Trust::Full | Trust::Entries => Trust::Nothing,
                Trust::Nothing => return self.unknown(portion),
            };
            self.shared.damaged.fetch_add(1, Ordering::Relaxed);
            self.trust.insert(id, next);
        }
    }

    /// Names a portion. `Ok(None)`: the file changed; `Err`: a parser panicked.
    fn attempt(
        &mut self,
        id: FileId,
        file: &MappedFile,
        portion: &[RawFrame],
        trust: Trust,
    ) -> std::thread::Result<Option<Vec<Resolved>>> {
        if !self.loaded.contains_key(&id) {
            self.make_room();
            let names = guarded(|| self.load(id, file, trust))?;
            self.loaded.insert(id, Loaded { names, used: Instant::now() });
        }
        let Some(loaded) = self.loaded.get_mut(&id) else { return Ok(None) };
        loaded.used = Instant::now();
        let names = match &mut loaded.names {
            Ok(names) => names,
            Err(NoNames::Generated) => return Ok(Some(self.region(id, file, portion))),
            Err(NoNames::Unreadable) => return Ok(Some(self.unknown(portion))),
        };
        let spots: Vec<Spot> = portion.iter().filter_map(|frame| spot(*frame)).collect();
        let (mut found, mut damaged) = (Vec::with_capacity(spots.len()), 0);
        guarded(|| names.name(&spots, &mut damaged, &mut |_, steps| found.push(steps)))?;
        if !names.unchanged() {
            return Ok(None);
        }
        self.shared.damaged.fetch_add(damaged, Ordering::Relaxed);
        let of = OfFile {
            build_id: names.build_id().map(|id| self.strings.get(&id)),
            origin: origin::of(&file.path, names.is_program()),
            module: self.strings.get(&placeholder::module(&self.files, id, file)),
        };
        let named = found.into_iter().map(|steps| self.named(steps, &of)).collect::<Vec<_>>();
        Ok(Some(
            portion
                .iter()
                .zip(named)
                .map(|(frame, named)| Resolved { frame: *frame, named })
                .collect(),
        ))
    }

    fn load(&mut self, id: FileId, file: &MappedFile, trust: Trust) -> Result<FileNames, NoNames> {
        let module = placeholder::module(&self.files, id, file);
        if file.kind == FileKind::Vdso {
            return FileNames::vdso(&module).ok_or(NoNames::Unreadable);
        }
        let opened = self.opened.get_mut(id.0 as usize).ok_or(NoNames::Unreadable)?;
        if let Opened::Later = opened {
            *opened = open(file).unwrap_or(Opened::No);
        }
        let Opened::Open(handle, version) = opened else { return Err(NoNames::Unreadable) };
        let handle = handle.try_clone().map_err(|_| NoNames::Unreadable)?;
        let version = *version;
        self.remember_root(file.pid);
        let roots: Vec<&Root> =
            self.roots.get(&file.pid).into_iter().flatten().chain(&self.host).collect();
        FileNames::open(&module, handle, version, &file.path, &roots, &self.search, trust)
    }

    /// Drops the least recently used symbols until there is room for another file's.
    fn make_room(&mut self) {
        loop {
            let weight: usize = self
                .loaded
                .values()
                .filter_map(|l| l.names.as_ref().ok())
                .map(FileNames::weight)
                .sum();
            if self.loaded.len() < LOADED_CAP && weight < WEIGHT_CAP {
                return;
            }
            let Some(oldest) = self.loaded.iter().min_by_key(|(_, l)| l.used).map(|(id, _)| *id)
            else {
                return;
            };
            self.loaded.remove(&oldest);
        }
    }

    fn named(&mut self, steps: Vec<Step>, of: &OfFile) -> Named {
        let origins: Origins = steps.iter().map(|step| step.origin.unwrap_or(of.origin)).collect();
        let locations = steps
            .into_iter()
            .enumerate()
            .map(|(depth, step)| Location {
                function: self.strings.get(&step.function),
                module: of.module.clone(),
                file: step.file.map(|file| self.strings.get(&file)),
                line: step.line,
                kind: FrameKind::Native,
                tier: (depth > 0).then_some(Tier::Inlined),
            })
            .collect();
        Named { locations, pending: false, build_id: of.build_id.clone(), origins }
    }

    /// Names generated code, in a file or not: one row for the whole region, as otherwise every
    /// address would be a row.
    fn region(&mut self, id: FileId, file: &MappedFile, portion: &[RawFrame]) -> Vec<Resolved> {
        let named = placeholder::region(&self.files, id, file);
        portion.iter().map(|frame| Resolved { frame: *frame, named: named.clone() }).collect()
    }

    fn unknown(&mut self, portion: &[RawFrame]) -> Vec<Resolved> {
        let last = |frame: &RawFrame| Named {
            pending: false,
            ..placeholder::named(&self.files, &self.shared.kernel, *frame)
        };
        portion.iter().map(|frame| Resolved { frame: *frame, named: last(frame) }).collect()
    }
}

/// What all frames of a file have in common.
struct OfFile {
    module: Arc<str>,
    build_id: Option<Arc<str>>,
    origin: Origin,
}

fn open(file: &MappedFile) -> std::io::Result<Opened> {
    let opened = open_mapped(file)?;
    let version = Version::of(&opened)?;
    Ok(Opened::Open(opened, version))
}

fn kernel_address(frame: RawFrame) -> Option<u64> {
    match frame.decode() {
        FrameCode::Kernel { address } => Some(address),
        _ => None,
    }
}

fn spot(frame: RawFrame) -> Option<Spot> {
    match frame.decode() {
        FrameCode::Code { offset, exact, .. } => Some(Spot { offset, exact }),
        _ => None,
    }
}

/// Runs code that reads untrusted files: a panic in it is a result, and prints nothing to the
/// terminal.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let before = super::PARSING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    super::PARSING.set(before);
    result
}
