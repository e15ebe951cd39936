//! The process's code: mappings, images, and how to leave the frame at each address seen so far.

mod mappings;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder as _};
use rustc_hash::FxHashMap;

use crate::model::vocabulary::frame::{FileId, FrameCode, Marker, Ns, RawFrame};
use crate::process::code_generations::{CodeGenerations, CodeMapping};
use crate::process::mapped_files::Files;
use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::call_sites::{self, CallSite};
use crate::unwinder::framehop::go::GoFrame;
use crate::unwinder::framehop::images::{Image, TABLES_MAX};
use crate::unwinder::framehop::stack_depth::{self, Flow, FollowedFunctions, WayBack};
use crate::unwinder::framehop::unwind_tables::{Context, READ, Rule, Tables};

/// Addresses of user code end here (x86-64, four- and five-level paging alike).
const USER_END: u64 = 1 << 56;
/// Maximum addresses remembered, about 3 MB; more than a program's hot ones.
const RESOLVED_MAX: usize = 1 << 16;
/// Number of framehop caches. Each cache has 509 slots, and each address one possible slot
/// (rule_cache.rs of 0.16). Addresses with the same slot are distributed over the caches. In JDK
/// 17's libjvm two hot addresses had the same slot; with one cache they took 7 % of our time.
const CACHES: usize = 8;
const PLACES: usize = 509;
/// Maximum images remembered, with tables or without.
const IMAGES_MAX: usize = 8192;
/// Maximum images kept after they were unmapped: they may be mapped again.
const RETIRED_MAX: usize = 64;
/// Maximum replaced ranges whose addresses are forgotten one by one; beyond that all are.
const STALE_MAX: usize = 64;

/// Maximum time between reads of the mappings while stacks are walked: code may have been replaced
/// at the same place.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Reads of the mappings take at most this fraction of the time (1/500); for an unknown address
/// 1/20.
const SHARE: u32 = 500;
const SHARE_UNKNOWN: u32 = 20;
/// Where new code is not reported, the mappings are read before stacks are walked, for at most
/// 1/100 of the time.
const SHARE_UNREPORTED: u32 = 100;
const READ_AGAIN_UNKNOWN: Duration = Duration::from_millis(10);

/// How to leave the frame at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Table(Rule),
    /// The kernel's trampoline that returns from a signal handler: all registers lie on the stack.
    Signal,
    /// It has pushed nothing: the return address is on top.
    Leaf,
    /// By Go's own table.
    Go(GoFrame),
    /// No unwind information.
    Unknown,
}

/// An address seen before: its frame and how to leave it.
#[derive(Clone, Copy, Debug)]
pub struct ResolvedAddress {
    pub frame: RawFrame,
    pub step: Step,
    /// Index of the framehop cache that has its rule.
    cache: u8,
}

impl ResolvedAddress {
    /// Returns the file that a marker behind this frame names.
    pub fn file(frame: RawFrame) -> Option<FileId> {
        match frame.decode() {
            FrameCode::Code { file, .. } => Some(file),
            _ => None,
        }
    }
}

/// The source of mappings: /proc, or a test.
pub type Source = Box<dyn FnMut() -> io::Result<Maps> + Send>;

pub struct Code {
    files: Files,
    pid: u32,
    source: Source,
    /// The mappings at the instant of the stack that is walked, if new code is reported.
    pub maps: CodeGenerations,
    /// The present mappings; only where new code is reported.
    live: Maps,
    /// When the stack that is walked was copied.
    pub at: Ns,
    /// The kernel reports new code.
    reported: bool,
    /// Reports are missing since the mappings were read.
    lost: bool,
    read_at: Option<Instant>,
    /// The mappings were read during this walk.
    of_this_walk: bool,
    /// There was a walk since the mappings were read.
    walked: bool,
    /// Number of reads of the mappings.
    pub readings: u64,
    /// Number of reads of the present mappings alone.
    live_readings: u64,
    cost: Duration,
    /// By [`Image::start`].
    images: BTreeMap<u64, Image>,
    /// Images that are no longer mapped, oldest first.
    retired: Vec<Image>,
    /// Bytes of the tables of both.
    tables_size: usize,
    /// Images loaded by mappings that have not been read again since; and whether one of them was
    /// removed meanwhile.
    fresh: Vec<u64>,
    fresh_removed: bool,
    resolved: FxHashMap<(u64, bool), ResolvedAddress>,
    /// Ranges where code was replaced since the last walk.
    stale: Vec<(u64, u64)>,
    calls: FxHashMap<u64, Option<CallSite>>,
    /// By a function's start and the address of an instruction.
    flows: FxHashMap<(u64, u64), Flow>,
    /// Functions that are never replaced.
    followed: FollowedFunctions,
    pub context: Box<Context>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    caches: Vec<CacheX86_64>,
    /// By slot: the cache for the next address.
    next_cache: [u8; PLACES],
}

impl Code {
    pub fn new(files: Files, pid: u32, source: Source) -> Code {
        Code {
            files,
            pid,
            source,
            maps: CodeGenerations::default(),
            live: Maps::default(),
            at: Ns::MAX,
            reported: false,
            lost: false,
            read_at: None,
            of_this_walk: false,
            walked: false,
            readings: 0,
            live_readings: 0,
            cost: Duration::ZERO,
            images: BTreeMap::new(),
            retired: Vec::new(),
            tables_size: 0,
            fresh: Vec::new(),
            fresh_removed: false,
            resolved: FxHashMap::default(),
            stale: Vec::new(),
            calls: FxHashMap::default(),
            flows: FxHashMap::default(),
            followed: FollowedFunctions::default(),
            context: Box::default(),
            unwinder: UnwinderX86_64::new(),
            caches: (0..CACHES).map(|_| CacheX86_64::new()).collect(),
            next_cache: [0; PLACES],
        }
    }

    /// Returns the frame at `pc` and how to leave it. With `exact`, `pc` itself is executing.
    /// Otherwise it is a return address, and the call one byte before decides. `None` outside
    /// executable mappings.
    #[inline]
    pub fn resolve(
        &mut self,
        memory: &impl ReadMemory,
        pc: u64,
        exact: bool,
    ) -> Option<ResolvedAddress> {
        if let Some(resolved) = self.resolved.get(&(pc, exact)) {
            return Some(*resolved);
        }
        // It takes up to seven reads of its code, usually one.
        let resolved =
            self.context.spend(7 * READ).and_then(|()| self.resolve_uncached(memory, pc, exact))?;
        if self.context.exhausted() {
            // Its rule may have been missed, so this is not cached.
            return Some(resolved);
        }
        if self.resolved.len() >= RESOLVED_MAX {
            self.resolved.clear();
        }
        self.resolved.insert((pc, exact), resolved);
        Some(resolved)
    }

    #[cold]
    fn resolve_uncached(
        &mut self,
        memory: &impl ReadMemory,
        pc: u64,
        exact: bool,
    ) -> Option<ResolvedAddress> {
        if let Some(frame) = self.trampoline(memory, pc, exact) {
            return Some(ResolvedAddress { frame, step: Step::Signal, cache: 0 });
        }
        let address = if exact { pc } else { pc.checked_sub(1)? };
        if self.maps.find_code(address).is_none() {
            self.refresh_for_unknown();
        }
        let mapping = self.load_around(memory, address)?;
        if address >= USER_END && mapping.backing != Backing::Vsyscall {
            return None;
        }
        let frame = self.frame(&mapping, pc, exact);
        let step = match mapping.backing {
            Backing::Vsyscall => Step::Leaf,
            _ => {
                let rule = image_of(&self.images, &mapping)
                    .and_then(|image| image.tables.as_ref()?.rule(address, &mut self.context));
                match rule {
                    Some(rule) => Step::Table(rule),
                    None => {
                        self.go_frame(memory, &mapping, address).map_or(Step::Unknown, Step::Go)
                    }
                }
            }
        };
        let cache = if matches!(step, Step::Table(Rule::Plain { .. })) {
            self.cache_for(address)
        } else {
            0
        };
        Some(ResolvedAddress { frame, step, cache })
    }

    /// Whether frames of Go code were met.
    pub fn has_go(&self) -> bool {
        self.images.values().any(|image| image.go.is_some())
    }

    fn go_frame(
        &mut self,
        memory: &impl ReadMemory,
        mapping: &Mapping,
        address: u64,
    ) -> Option<GoFrame> {
        let table = image_of(&self.images, mapping)?.go?;
        table.frame(memory, address, &mut self.context)
    }

    fn cache_for(&mut self, address: u64) -> u8 {
        let next = &mut self.next_cache[(address % PLACES as u64) as usize];
        std::mem::replace(next, (*next + 1) % CACHES as u8)
    }

    fn frame(&self, mapping: &Mapping, pc: u64, exact: bool) -> RawFrame {
        match self.files.register(mapping.mapped_file(self.pid)) {
            // A return address may lie just behind its mapping's end: the offset is still correct.
            Some(file) => {
                RawFrame::new(FrameCode::Code { file, offset: mapping.offset_of(pc), exact })
            }
            None => RawFrame::marker(Marker::OutsideMaps),
        }
    }

    /// Returns the frame if `pc` is in the code that a signal handler returns to: `mov rax, 15;
    /// syscall` (rt_sigreturn). Its frame is always exact, as nothing called it.
    fn trampoline(&self, memory: &impl ReadMemory, pc: u64, exact: bool) -> Option<RawFrame> {
        const FORMS: [&[u8]; 2] =
            [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];
        const LONGEST: usize = FORMS[0].len();
        let mapping = self.code_at(pc)?;
        // One call reads all, except at the ends of readable memory.
        let mut around = [0; 2 * LONGEST];
        let first = pc.wrapping_sub(LONGEST as u64);
        let is_read = memory.read_exact(first, &mut around).is_some();
        let matches = |at: u64, form: &[u8]| {
            if is_read {
                return around[at.wrapping_sub(first) as usize..].starts_with(form);
            }
            let mut code = [0; LONGEST];
            let code = &mut code[..form.len()];
            memory.read_exact(at, code).is_some() && code == form
        };
        let found = FORMS.iter().any(|form| {
            // A thread in the system call itself has its pc behind the instruction, or before it if
            // restarted.
            matches(pc, form)
                || exact
                    && [2, 0]
                        .iter()
                        .any(|left| matches(pc.wrapping_sub(form.len() as u64 - left), form))
        });
        found.then(|| self.frame(mapping, pc, true))
    }

    /// Whether the code at `address` may have been replaced since the stack was copied.
    #[inline]
    pub fn replaced(&self, address: u64) -> bool {
        self.maps.replaced(address, self.at)
    }

    fn code_at(&self, address: u64) -> Option<&Mapping> {
        self.maps.find_code(address).filter(|_| !self.replaced(address))
    }

    /// Returns the mapping of code around `address`, and loads its image if it has one.
    fn load_around(&mut self, memory: &impl ReadMemory, address: u64) -> Option<Mapping> {
        let mapping = self.code_at(address)?;
        let has_none = matches!(mapping.backing, Backing::Anonymous | Backing::Vsyscall);
        if has_none || image_of(&self.images, mapping).is_some() || self.images.len() >= IMAGES_MAX
        {
            return Some(mapping.clone());
        }
        let mapping = mapping.clone();
        if self.bring_back(memory, &mapping) {
            return Some(mapping);
        }
        if !self.of_this_walk {
            self.read_live();
        }
        let mut mapping = self.code_at(address)?.clone();
        if self.reported
            && let Some(live) = self.live.find_code(mapping.start)
            && (live.start, live.offset, &live.path)
                == (mapping.start, mapping.offset, &mapping.path)
            && *live != mapping
        {
            self.maps.correct(&mapping, live);
            mapping = live.clone();
        }
        if image_of(&self.images, &mapping).is_none() {
            self.load(memory, &mapping);
        }
        Some(mapping)
    }

    /// Restores the image of a mapping that is mapped again with the same contents.
    fn bring_back(&mut self, memory: &impl ReadMemory, mapping: &Mapping) -> bool {
        let Some(index) = self.retired.iter().position(|image| image.maps(mapping)) else {
            return false;
        };
        let image = self.retired.remove(index);
        if image.is_unchanged(memory, mapping, self.pid) {
            self.install(image);
            return true;
        }
        self.tables_size -= image.size();
        false
    }

    fn load(&mut self, memory: &impl ReadMemory, mapping: &Mapping) {
        if mapping.backing == Backing::Anonymous {
            return;
        }
        while self.tables_size > TABLES_MAX / 2 && !self.retired.is_empty() {
            self.tables_size -= self.retired.remove(0).size();
        }
        let budget = TABLES_MAX.saturating_sub(self.tables_size);
        let live = if self.reported { &self.live } else { self.maps.read_last() };
        let image = if live.find(mapping.start) == Some(mapping) {
            let image = Image::load(memory, live, mapping, self.pid, budget);
            self.fresh.push(image.start());
            image
        } else {
            // By now other code is mapped there.
            Image::of_file(mapping, self.pid, budget)
        };
        self.tables_size += image.size();
        self.install(image);
    }

    fn install(&mut self, image: Image) {
        if let Some(tables) = &image.tables
            && tables.framehop_reaches()
        {
            let range = image.start()..image.end();
            let module =
                framehop::Module::new(String::new(), range, tables.base(), tables.for_framehop());
            self.unwinder.add_module(module);
        }
        self.images.insert(image.start(), image);
    }

    /// Returns the image whose code contains `address`.
    pub fn image(&self, address: u64) -> Option<&Image> {
        image_of(&self.images, self.code_at(address)?)
    }

    /// Returns the tables of the image around `address`, and the context to evaluate a row.
    pub fn tables(&mut self, address: u64) -> Option<(&Tables, &mut Context)> {
        let image = image_of(
            &self.images,
            self.maps.find_code(address).filter(|_| !self.maps.replaced(address, self.at))?,
        )?;
        Some((image.tables.as_ref()?, &mut self.context))
    }

    /// Returns `[start, end)` of the function around `address`, where there is unwind information.
    /// Loads the image if necessary.
    pub fn function(&mut self, memory: &impl ReadMemory, address: u64) -> Option<(u64, u64)> {
        self.load_around(memory, address)?;
        self.image(address)?.tables.as_ref()?.function(address)
    }

    /// Returns the call before `return_address`, if that lies in executable memory and there is
    /// one.
    pub fn call_before(
        &mut self,
        memory: &impl ReadMemory,
        return_address: u64,
    ) -> Option<CallSite> {
        // The mapping is checked first. Small numbers and stack addresses are the most frequent
        // words of a stack, and are rejected by that.
        self.code_at(return_address.wrapping_sub(1))?;
        if let Some(site) = self.calls.get(&return_address) {
            return *site;
        }
        self.context.spend(READ)?;
        let site = call_sites::call_before(memory, return_address);
        if self.calls.len() >= RESOLVED_MAX {
            self.calls.clear();
            self.flows.clear();
        }
        self.calls.insert(return_address, site);
        site
    }

    /// Returns the state of the stack at `pc`, on all paths through the function that begins at
    /// `start`.
    pub fn flow(&mut self, memory: &impl ReadMemory, start: u64, pc: u64) -> Flow {
        if let Some(flow) = self.flows.get(&(start, pc)) {
            return *flow;
        }
        let flow = stack_depth::follow(memory, start, pc, &mut self.context);
        if self.context.exhausted() {
            // Some paths may be missing.
            return Flow::default();
        }
        if self.flows.len() >= RESOLVED_MAX {
            self.flows.clear();
        }
        self.flows.insert((start, pc), flow);
        flow
    }

    /// As [`Code::flow`], of a function that is never replaced: what was followed is remembered.
    pub fn flow_of_kept(&mut self, memory: &impl ReadMemory, start: u64, pc: u64) -> Flow {
        self.followed.at(memory, start, pc, &mut self.context)
    }

    /// Returns where the return address of the running function is, if its code from `pc` on proves
    /// it.
    pub fn way_back(&mut self, memory: &impl ReadMemory, pc: u64) -> Option<WayBack> {
        stack_depth::way_back(memory, pc, &mut self.context)
    }

    /// See [`stack_depth::jumps_away`].
    pub fn jumps_away(&mut self, memory: &impl ReadMemory, pc: u64) -> bool {
        stack_depth::jumps_away(memory, pc, &mut self.context)
    }

    /// Takes one step by framehop. Only for addresses with the [`Rule`] `Plain`: then it neither
    /// guesses nor evaluates expressions.
    #[inline]
    pub fn framehop_step(
        &mut self,
        pc: u64,
        exact: bool,
        resolved: ResolvedAddress,
        registers: &mut UnwindRegsX86_64,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Result<Option<u64>, framehop::Error> {
        let address = if exact {
            FrameAddress::from_instruction_pointer(pc)
        } else {
            FrameAddress::from_return_address(pc).ok_or(framehop::Error::ReturnAddressIsNull)?
        };
        let cache = &mut self.caches[usize::from(resolved.cache)];
        self.unwinder.unwind_frame(address, registers, cache, &mut |at| word(at).ok_or(()))
    }
}

/// Maximum images that may lie between the pieces of one.
const NESTED_MAX: usize = 4;

fn image_of<'a>(images: &'a BTreeMap<u64, Image>, mapping: &Mapping) -> Option<&'a Image> {
    images
        .range(..=mapping.start)
        .rev()
        .take(NESTED_MAX)
        .map(|(_, image)| image)
        .find(|image| image.maps(mapping))
}

#[cfg(test)]
mod tests;
