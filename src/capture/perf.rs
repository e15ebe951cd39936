//! The backend `perf`: on-CPU samples by the kernel's cpu-clock event, with user registers and
//! stack bytes. It never stops a thread.
//!
//! With privilege there is one event per CPU for all processes, and samples of other processes are
//! skipped. Under the backend `bpf` a filter in the kernel drops those before they take room.
//! Without privilege there is one inherited event per (thread, CPU), for threads that run. All
//! events of a CPU write into one ring: a ring per thread would reach the memlock limit at about 69
//! threads.

#![expect(unsafe_code, reason = "ioctls of perf's events")]

mod event;
pub mod refused;
mod reports;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use perf_event_open_sys::{bindings as sys, ioctls};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::capture::cpus::{online_cpus, unless_offline};
use crate::capture::kernel_ring::{KernelRing, Record, Sample};
pub use crate::capture::perf::event::permitted;
use crate::capture::perf::event::{
    dump_bytes, enable, holder_attr, lost_of, open_event, period_of, probe, set_filter,
};
use crate::capture::perf::reports::{CpuReports, Reports};
use crate::capture::schedule::Random;
use crate::clock::monotonic;
use crate::model::vocabulary::frame::{Ns, SECOND};
use crate::process::code_generations::CodeMapping;

/// Maximum size of all rings together, bytes.
const ALL_RINGS: usize = 32 << 20;
/// Maximum size of the ring of one CPU, bytes: sixteen samples, more than there are between two
/// ticks at 100 Hz.
const LARGEST_RING: usize = 1 << 20;
/// The same for a plain user. 512 KiB and its control page are exactly what perf_event_mlock_kb
/// grants per CPU.
const LARGEST_RING_OF_USER: usize = 512 << 10;
const SMALLEST_RING: usize = 32 << 10;

/// Sampling periods of run time without a sample after which a new thread gets events of its own. A
/// new thread usually inherits the events of its creator, unless that had none. [`COUNTERS_LAG`] is
/// added: twice the lag of counters behind samples, ns (a tick at 100 Hz).
const UNSAMPLED_NEW: u64 = 4;
pub const COUNTERS_LAG: Ns = 20_000_000;
/// The same for a thread that has events already: they are closed and opened again.
const UNSAMPLED_WATCHED: u64 = 50;
/// Time without run time, ns, after which a thread gives its events to a running one, if
/// descriptors are short.
const QUIET: Ns = SECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One event per CPU, for all processes.
    Everything,
    /// One inherited event per (thread, CPU).
    Threads,
}

struct Cpu {
    number: u32,
    ring: KernelRing,
    /// The event that owns the ring. It samples under [`Scope::Everything`]. Else it only holds the
    /// ring, so that the ring outlives every thread.
    holder: OwnedFd,
    /// Time to start it: each CPU starts at a random phase.
    start_at: Option<Ns>,
    /// Mapping reports of this CPU, under [`Scope::Everything`].
    reports: Option<CpuReports>,
}

/// A thread of a target, under [`Scope::Threads`].
#[derive(Default)]
struct Watched {
    /// One per CPU: (CPU, event, id of the event).
    events: Vec<(u32, OwnedFd, u64)>,
    /// Thread from which it inherited its events.
    inherited_from: Option<u32>,
    /// Run time since its last sample, ns.
    unsampled: Ns,
    /// Last time it was found to have run.
    moved_at: Ns,
    /// It has exited, but others inherited its events: closing these would close theirs.
    ended: bool,
}

/// Counts since the events were opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerfCounts {
    pub lost: u64,
    pub throttled: u64,
}

pub struct Perf {
    /// Processes whose samples are used.
    pub targets: FxHashSet<u32>,
    scope: Scope,
    /// BPF program that passes only samples of the targets.
    filter: Option<RawFd>,
    /// Attributes that this kernel accepted.
    attr: sys::perf_event_attr,
    counts_lost: bool,
    period: Ns,
    ring_bytes: usize,
    cpus: Vec<Cpu>,
    reports: Reports,
    threads: FxHashMap<u32, Watched>,
    owner_of_id: FxHashMap<u64, u32>,
    running: bool,
    /// Number of events that may still be opened.
    budget: usize,
    /// A running thread got no events since the last housekeeping; `was_starved`: before that.
    starved: bool,
    was_starved: bool,
    lost_recorded: u64,
    lost_closed: u64,
    throttled: u64,
    random: Random,
}

impl Perf {
    /// Opens the widest scope that is permitted. `tid`: any living thread of `target`;
    /// `descriptors`: maximum open events. The error is the kernel's last one, see
    /// [`refused::explain`].
    pub fn open(
        target: u32,
        tid: u32,
        interval: Ns,
        descriptors: usize,
        now: Ns,
    ) -> io::Result<Perf> {
        Perf::open_filtered(target, tid, interval, descriptors, now, None)
    }

    /// Opens events with a BPF program that decides which samples are taken. It must stay open as
    /// long as this value, and needs [`Scope::Everything`].
    pub fn open_filtered(
        target: u32,
        tid: u32,
        interval: Ns,
        descriptors: usize,
        now: Ns,
        filter: Option<RawFd>,
    ) -> io::Result<Perf> {
        let numbers = online_cpus()?;
        let mut ring_bytes = LARGEST_RING;
        while ring_bytes > SMALLEST_RING && ring_bytes * numbers.len() > ALL_RINGS {
            ring_bytes /= 2;
        }
        let first = numbers.first().copied().unwrap_or(0);
        let (scope, attr) = probe(tid, first, dump_bytes(ring_bytes))?;
        if scope == Scope::Threads {
            ring_bytes = ring_bytes.min(LARGEST_RING_OF_USER);
        }
        if filter.is_some() && scope != Scope::Everything {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        let mut perf = Perf {
            targets: FxHashSet::from_iter([target]),
            scope,
            filter,
            counts_lost: attr.read_format & u64::from(sys::PERF_FORMAT_LOST) != 0,
            attr,
            period: period_of(interval),
            ring_bytes,
            cpus: Vec::new(),
            reports: Reports::default(),
            threads: FxHashMap::default(),
            owner_of_id: FxHashMap::default(),
            running: true,
            budget: descriptors,
            starved: false,
            was_starved: false,
            lost_recorded: 0,
            lost_closed: 0,
            throttled: 0,
            random: Random::seeded(),
        };
        for number in numbers {
            unless_offline(perf.open_cpu(number, now))?;
        }
        if perf.cpus.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        Ok(perf)
    }

    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns false if samples in kernel mode are forbidden: a thread inside the kernel gets none
    /// then.
    pub fn kernel_visible(&self) -> bool {
        self.attr.exclude_kernel() == 0
    }

    /// Returns the maximum kernel frames asked for.
    pub fn deepest(&self) -> usize {
        usize::from(self.attr.sample_max_stack)
    }

    /// Returns whether a running thread has no events because descriptors ran out.
    pub fn starved(&self) -> bool {
        self.starved || self.was_starved
    }

    pub fn counts(&self) -> PerfCounts {
        PerfCounts { lost: self.lost_closed + self.lost_recorded, throttled: self.throttled }
    }

    /// Returns descriptors to poll: readable when a ring is half full.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let reports =
            self.cpus.iter().filter_map(|cpu| cpu.reports.as_ref()).map(CpuReports::descriptor);
        self.cpus.iter().map(|cpu| cpu.holder.as_fd()).chain(reports)
    }

    /// Returns whether all code that the targets map is reported, with its time.
    pub fn reports_code(&self) -> bool {
        match self.scope {
            Scope::Everything => self.cpus.iter().all(|cpu| cpu.reports.is_some()),
            // A thread without events reports nothing.
            Scope::Threads => self.running && self.attr.mmap2() == 1 && !self.starved(),
        }
    }

    /// Takes the reports of everything that was mapped before this call.
    pub fn take_reports(&mut self) {
        for cpu in &mut self.cpus {
            match &mut cpu.reports {
                Some(reports) => self.reports.take(reports, &self.targets),
                None if self.attr.mmap2() == 1 => self.reports.scan(&mut cpu.ring, &self.targets),
                None => {}
            }
        }
    }

    /// Returns whether a target may have mapped code since the last call, as an exec does. The
    /// reports up to now must have been taken.
    pub fn may_have_mapped(&mut self) -> bool {
        self.reports.take_any() || !self.reports_code()
    }

    /// Returns the oldest report up to `until` that was not returned yet.
    pub fn next_report(&mut self, until: Ns) -> Option<CodeMapping> {
        self.reports.next(until)
    }

    /// Returns the oldest such report of one process.
    pub fn next_report_of(&mut self, pid: u32, until: Ns) -> Option<CodeMapping> {
        self.reports.next_of(pid, until)
    }

    /// Returns whether reports were lost since the last call.
    pub fn lost_reports(&mut self) -> bool {
        self.reports.take_lost()
    }

    /// Returns when to call [`Perf::start_due`], if at all.
    pub fn next_start(&self) -> Option<Ns> {
        self.cpus.iter().filter_map(|cpu| cpu.start_at).min()
    }

    pub fn start_due(&mut self, now: Ns) {
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.start_at.is_some_and(|at| at <= now)) {
            cpu.start_at = None;
            if self.running {
                enable(&cpu.holder, true);
            }
        }
    }

    /// Passes on the targets' samples up to `until`. Later ones stay, so that observations remain
    /// in order of time. Samples are in order within a CPU, CPU after CPU.
    pub fn drain(&mut self, until: Ns, mut f: impl FnMut(&Sample<'_>)) {
        let mut foreign = Vec::new();
        for cpu in &mut self.cpus {
            let processor = cpu.number;
            cpu.ring.drain(|record| {
                match record {
                    Record::Sample(sample) if sample.at > until => return false,
                    Record::Sample(sample) => {
                        let sample = Sample { processor, ..sample };
                        if self.scope == Scope::Threads {
                            note_sample(
                                &mut self.threads,
                                &self.owner_of_id,
                                &sample,
                                &mut foreign,
                            );
                        }
                        if self.targets.contains(&sample.pid) {
                            f(&sample);
                        }
                    }
                    Record::Lost(n) if !self.counts_lost => self.lost_recorded += n,
                    Record::Throttled => self.throttled += 1,
                    Record::Lost(_) | Record::Mapped(_) | Record::Other => {}
                }
                true
            });
        }
        for tid in foreign {
            self.close_thread(tid);
        }
    }

    /// Takes the run time `ran` of a thread since the last call for it, ns. `known_at_start`: the
    /// thread existed when the events were opened, so it cannot have inherited any.
    pub fn moved(&mut self, tid: u32, ran: Ns, known_at_start: bool) {
        if self.scope == Scope::Everything {
            return;
        }
        let period = self.period;
        let watched = self.threads.entry(tid).or_default();
        watched.unsampled = watched.unsampled.saturating_add(ran);
        watched.moved_at = monotonic();
        let patience = match (watched.events.is_empty(), watched.inherited_from, known_at_start) {
            (true, None, true) => 0,
            (true, None, false) => UNSAMPLED_NEW * period + COUNTERS_LAG,
            _ => UNSAMPLED_WATCHED * period + COUNTERS_LAG,
        };
        if watched.unsampled < patience {
            return;
        }
        watched.unsampled = 0;
        watched.inherited_from = None;
        // These events sample no thread. They belong to one that an exec ended, while another
        // thread took its id.
        if self.threads.values().all(|other| other.inherited_from != Some(tid)) {
            self.close_thread(tid);
            self.open_thread(tid);
        }
    }

    pub fn ended(&mut self, tid: u32) {
        if let Some(watched) = self.threads.get_mut(&tid) {
            watched.ended = true;
            let anchor = watched.inherited_from.take();
            self.release_if_unused(tid);
            if let Some(anchor) = anchor {
                self.release_if_unused(anchor);
            }
        }
    }

    pub fn set_interval(&mut self, interval: Ns) {
        self.period = period_of(interval);
        for event in self.sampling_events() {
            // SAFETY: an ioctl on our own event; the argument is copied. A dead CPU's event may
            // refuse, harmlessly.
            unsafe { ioctls::PERIOD(event.as_raw_fd(), &raw const self.period as u64) };
        }
    }

    /// Stops or resumes sampling.
    pub fn run(&mut self, running: bool) {
        self.running = running;
        if self.scope == Scope::Threads {
            self.reports.set_lost();
        }
        for event in self.cpus.iter().filter(|cpu| cpu.start_at.is_none()).map(|cpu| &cpu.holder) {
            // An event that only holds a ring is not affected.
            enable(event, running);
        }
        for (_, event, _) in self.threads.values().flat_map(|watched| &watched.events) {
            enable(event, running);
        }
    }

    /// Opens and closes events as CPUs come and go, and reads the kernel's count of lost samples.
    /// To be called about once a second. An error means that a new CPU could not be opened.
    pub fn housekeeping(&mut self, now: Ns) -> io::Result<()> {
        let mut result = Ok(());
        self.was_starved = std::mem::take(&mut self.starved);
        if let Ok(numbers) = online_cpus() {
            let lost_closed = &mut self.lost_closed;
            self.cpus.retain(|cpu| {
                let stays = numbers.contains(&cpu.number);
                if !stays {
                    *lost_closed += lost_of(&cpu.holder);
                }
                stays
            });
            for watched in self.threads.values_mut() {
                watched.events.retain(|(cpu, event, _)| {
                    let stays = numbers.contains(cpu);
                    if !stays {
                        *lost_closed += lost_of(event);
                    }
                    stays
                });
            }
            let known: Vec<u32> = self.cpus.iter().map(|cpu| cpu.number).collect();
            for number in numbers.into_iter().filter(|n| !known.contains(n)) {
                let opened = self.open_cpu(number, now);
                let sampled = opened.is_ok();
                result = result.and(unless_offline(opened));
                let tids: Vec<u32> = self
                    .threads
                    .iter()
                    .filter(|(_, w)| !w.events.is_empty())
                    .map(|(tid, _)| *tid)
                    .collect();
                for tid in tids.into_iter().filter(|_| sampled) {
                    self.open_thread_on(tid, number);
                }
            }
        }
        self.count_lost();
        result
    }

    /// Reads the kernel's count of lost samples.
    pub fn count_lost(&mut self) {
        if self.counts_lost {
            self.lost_recorded = self.sampling_events().map(lost_of).sum();
        }
    }

    fn sampling_events(&self) -> Box<dyn Iterator<Item = &OwnedFd> + '_> {
        match self.scope {
            Scope::Everything => Box::new(self.cpus.iter().map(|cpu| &cpu.holder)),
            Scope::Threads => Box::new(
                self.threads.values().flat_map(|w| w.events.iter().map(|(_, event, _)| event)),
            ),
        }
    }

    /// Opens the ring of one CPU, and under [`Scope::Everything`] the event that samples it.
    fn open_cpu(&mut self, number: u32, now: Ns) -> io::Result<()> {
        loop {
            let (holder, start_at) = match self.scope {
                Scope::Everything => {
                    let phase = self.random.below(self.period);
                    (open_event(&self.attr_now(), -1, number)?, Some(now + phase))
                }
                Scope::Threads => (open_event(&holder_attr(&self.attr_now()), 0, number)?, None),
            };
            if let Some(filter) = self.filter {
                set_filter(&holder, filter)?;
            }
            match KernelRing::map(holder.as_fd(), self.ring_bytes) {
                Ok(ring) => {
                    let reports = (self.scope == Scope::Everything)
                        .then(|| CpuReports::open(&self.attr, number).ok())
                        .flatten();
                    self.cpus.push(Cpu { number, ring, holder, start_at, reports });
                    return Ok(());
                }
                // The memlock limit of a plain user: use smaller rings, and stacks that fit them.
                Err(e)
                    if e.raw_os_error() == Some(libc::EPERM) && self.ring_bytes > SMALLEST_RING =>
                {
                    self.ring_bytes /= 2;
                    self.attr.sample_stack_user = dump_bytes(self.ring_bytes) as u32;
                }
                // As an error number it would look like a forbidden system call.
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn attr_now(&self) -> sys::perf_event_attr {
        let mut attr = self.attr;
        attr.__bindgen_anon_1.sample_period = self.period;
        attr.__bindgen_anon_2.wakeup_watermark = (self.ring_bytes / 2) as u32;
        attr
    }

    fn open_thread(&mut self, tid: u32) {
        let numbers: Vec<u32> = self.cpus.iter().map(|cpu| cpu.number).collect();
        for number in numbers {
            if !self.open_thread_on(tid, number) {
                return;
            }
        }
    }

    /// Opens the event of a thread on one CPU. Returns false if other CPUs need not be tried.
    fn open_thread_on(&mut self, tid: u32, number: u32) -> bool {
        if self.scope == Scope::Everything {
            return true;
        }
        if self.budget == 0 && (self.starved || !self.release_idle_events()) {
            self.starved = true;
            return false;
        }
        let Some(cpu) = self.cpus.iter().find(|cpu| cpu.number == number) else { return true };
        let event = match open_event(&self.attr_now(), tid as i32, number) {
            Ok(event) => event,
            Err(e) => {
                self.starved |=
                    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM));
                // ESRCH: the thread has just exited.
                return e.raw_os_error() == Some(libc::ENODEV);
            }
        };
        let mut id = 0u64;
        // SAFETY: ioctls on our own events; ID writes one u64 to `id`.
        let redirected = unsafe {
            ioctls::ID(event.as_raw_fd(), &raw mut id) == 0
                && ioctls::SET_OUTPUT(event.as_raw_fd(), cpu.holder.as_raw_fd()) == 0
        };
        if !redirected {
            return false;
        }
        if self.running {
            enable(&event, true);
        }
        // Its earlier mappings are unknown.
        self.reports.set_lost();
        self.budget -= 1;
        self.owner_of_id.insert(id, tid);
        self.threads.entry(tid).or_default().events.push((number, event, id));
        true
    }

    /// Closes the events of the thread that has not run for longest, so that a running one can have
    /// them. Returns false if all are needed.
    fn release_idle_events(&mut self) -> bool {
        let before = monotonic().saturating_sub(QUIET);
        let anchors: FxHashSet<u32> =
            self.threads.values().filter_map(|watched| watched.inherited_from).collect();
        let quiet = |(tid, watched): &(&u32, &Watched)| {
            watched.moved_at < before && !watched.events.is_empty() && !anchors.contains(tid)
        };
        let found = self
            .threads
            .iter()
            .filter(quiet)
            .min_by_key(|(_, watched)| watched.moved_at)
            .map(|(tid, _)| *tid);
        if let Some(tid) = found {
            self.close_thread(tid);
        }
        found.is_some()
    }

    /// Closes the events of a thread whose samples also come by inheritance.
    fn close_thread(&mut self, tid: u32) {
        let Some(watched) = self.threads.get_mut(&tid) else { return };
        for (_, event, id) in watched.events.drain(..) {
            let lost = lost_of(&event);
            self.lost_closed += lost;
            self.lost_recorded = self.lost_recorded.saturating_sub(lost);
            self.owner_of_id.remove(&id);
            self.budget += 1;
        }
    }

    fn release_if_unused(&mut self, tid: u32) {
        if self.threads.get(&tid).is_none_or(|w| !w.ended)
            || self.threads.values().any(|w| w.inherited_from == Some(tid))
        {
            return;
        }
        self.close_thread(tid);
        self.threads.remove(&tid);
    }
}

/// Books a sample to its thread. A thread that is sampled twice, by events of its own and by
/// inherited ones, is added to `twice`.
fn note_sample(
    threads: &mut FxHashMap<u32, Watched>,
    owner_of_id: &FxHashMap<u64, u32>,
    sample: &Sample<'_>,
    twice: &mut Vec<u32>,
) {
    let Some(watched) = threads.get_mut(&sample.tid) else { return };
    watched.unsampled = 0;
    match owner_of_id.get(&sample.id) {
        Some(owner) if *owner != sample.tid => {
            watched.inherited_from = Some(*owner);
            if !watched.events.is_empty() && !twice.contains(&sample.tid) {
                twice.push(sample.tid);
            }
        }
        _ => {}
    }
}
