//! Loads the programs into the kernel, and reads their output. Only this file accesses maps and
//! links.

#![expect(unsafe_code, reason = "the system call bpf, and maps that the kernel shares with us")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use aya::maps::{HashMap, Map, MapData, MapError, RingBuf};
use aya::programs::{Iter, PerfEvent};
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::btf::BtfKind;
use rustix::mm::{MapFlags, ProtFlags};

use crate::capture::bpf::rows::{Blocked, Copied, KERNEL_LARGEST, LARGEST, ROW, SLOT, SLOTS};
use crate::capture::bpf::taken::TakenWithSamples;

const BYTES: &[u8; include_bytes!(env!("SAMPLETOP_BPF_OBJECT")).len()] =
    include_bytes!(env!("SAMPLETOP_BPF_OBJECT"));

/// Aligned, because an ELF header is read from it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Object([u8; BYTES.len()]);

/// Kernel functions that `visit` calls, and the numbers that stand for them in its calls. They have
/// no helper numbers: a call holds their BTF id in the running kernel (Linux 6.2).
const FUNCTIONS: [(&str, i32); 2] =
    [("bpf_task_from_pid", 0x7a5c_0001), ("bpf_task_release", 0x7a5c_0002)];

/// The filters of samples. These also take what perf does not, the first one most; a kernel may
/// refuse them.
const TAKING: [&str; 2] = ["takes_most", "takes_more"];
const PLAIN: &str = "is_target";

/// Maximum threads that a pass can be asked to report again by id; for more, it reports all.
pub const MAX_REPEATS: usize = 1_000;

/// Maximum threads of one [`Programs::read_listed`].
pub const MAX_LISTED: usize = 128;

/// Why the programs cannot be used.
#[derive(Debug)]
pub struct Refusal {
    /// The step that failed.
    pub what: &'static str,
    /// Message of the kernel, or of the loader.
    pub why: String,
    /// The kernel's error number, if there is one.
    pub errno: Option<i32>,
}

impl Refusal {
    pub fn new(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Refusal {
        // The loader wraps the kernel's error.
        let mut cause = Some(error);
        let mut errno = None;
        while let Some(error) = cause {
            errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error).or(errno);
            cause = error.source();
        }
        Refusal { what, why: error.to_string(), errno }
    }
}

/// The loaded programs. Dropping this unloads them.
pub struct Programs {
    /// Keeps the programs, and the maps that are not accessed below, loaded.
    ebpf: Ebpf,
    order: Shared,
    stacks: Shared,
    list: Shared,
    /// Rows of the threads of a list.
    listed_rows: Shared,
    /// Link of the iterator over listed threads; `None` before Linux 6.2.
    listed: Option<OwnedFd>,
    /// An open iterator of `listed`. The kernel walks all threads of the machine in it, one step
    /// per list.
    lists: Option<File>,
    again: HashMap<MapData, u32, u32>,
    targets: HashMap<MapData, u32, u32>,
    wakeups: RingBuf<MapData>,
    /// Which filter of samples is loaded.
    filter: &'static str,
    reader: Option<TakenWithSamples>,
    calls: u64,
}

/// Value of [`Word::Again`]: report every visited thread.
const AGAIN_ALL: u32 = u32::MAX;

/// Index of the words of `struct order`.
#[derive(Clone, Copy)]
enum Word {
    Generation = 0,
    Again = 1,
    Used = 2,
    Visited = 3,
    Only = 4,
    Process = 5,
    Listed = 6,
    Rows = 7,
    Runnable = 8,
    Wakeup = 9,
    /// The first of two words.
    Ahead = 10,
    Threads = 12,
}

/// A thread that is visited by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Single {
    pub tid: u32,
    /// Thread id in the initial pid namespace.
    pub id: u32,
}

/// Link of the iterator over one process.
pub struct Link {
    fd: OwnedFd,
    /// The process that the program selects, where the kernel's iterator has no such option: before
    /// Linux 6.1 it walks all threads of the machine. Else 0.
    only: u32,
}

impl Programs {
    /// Loads the programs. `lists`: visit lists of threads, and take with samples what perf does
    /// not, if the kernel supports that.
    pub fn load(lists: bool) -> Result<Programs, Refusal> {
        let refused = |what| move |error: aya::BtfError| Refusal::new(what, &error);
        let btf = Btf::from_sys_fs().map_err(refused("reading the kernel's types"))?;
        let mut object = Object(*BYTES);
        let takes_more = lists;
        let lists = lists && find_functions(&mut object, &btf);
        // The loader has no type for task storage maps, and needs none.
        let loaded = EbpfLoader::new().btf(Some(&btf)).allow_unsupported_maps().load(&object.0);
        let mut ebpf = loaded.map_err(|error| Refusal::new("making the maps", &error))?;
        let missing =
            |what| move || Refusal { what, why: "it is not in the object".into(), errno: None };
        let failed = |what| move |error: aya::programs::ProgramError| Refusal::new(what, &error);

        const ITERATOR: &str = "loading the task iterator";
        let observation: &mut Iter = ebpf
            .program_mut("look")
            .ok_or_else(missing(ITERATOR))
            .and_then(|program| program.try_into().map_err(failed(ITERATOR)))?;
        observation.load("task", &btf).map_err(failed(ITERATOR))?;
        let visit = ebpf.program_mut("visit").filter(|_| lists);
        let listed = visit.and_then(|program| {
            let visit: &mut Iter = program.try_into().ok()?;
            visit.load("task", &btf).ok()?;
            link_create(visit.fd().ok()?.as_fd().as_raw_fd(), &[]).ok()
        });
        const FILTER: &str = "loading the filter of samples";
        let mut load_filter = |name| {
            let filter: &mut PerfEvent = ebpf
                .program_mut(name)
                .ok_or_else(missing(FILTER))
                .and_then(|program| program.try_into().map_err(failed(FILTER)))?;
            filter.load().map_err(failed(FILTER))
        };
        let taking = TAKING.iter().filter(|_| takes_more).find(|name| load_filter(name).is_ok());
        if taking.is_none() {
            load_filter(PLAIN)?;
        }

        let (again, targets) = (take(&mut ebpf, "again")?, take(&mut ebpf, "targets")?);
        let wakeups = take(&mut ebpf, "wakeups")?;
        let reader = match taking {
            Some(_) => Some(TakenWithSamples::new(
                take(&mut ebpf, "interpreters")?,
                take(&mut ebpf, "go_programs")?,
                take(&mut ebpf, "await_layouts")?,
                take(&mut ebpf, "await_returns")?,
                take(&mut ebpf, "taken")?,
            )),
            None => None,
        };
        let shared = |name, size| {
            let Some(Map::Array(map)) = ebpf.map(name) else {
                return Err(missing("sharing the maps")());
            };
            Shared::new(map.fd().as_fd(), size)
                .map_err(|error| Refusal::new("sharing the maps", &error))
        };
        let (order, stacks) = (shared("orders", 4096)?, shared("stacks", SLOTS * SLOT)?);
        let listed_rows = shared("listed_rows", (MAX_LISTED * ROW).next_multiple_of(4096))?;
        let list = shared("list", 4096)?;
        let lists = None;
        let mut programs = Programs {
            ebpf,
            order,
            stacks,
            list,
            listed_rows,
            listed,
            lists,
            again,
            targets,
            wakeups,
            filter: taking.unwrap_or(&PLAIN),
            reader,
            calls: 0,
        };
        // The kernel's maps begin with zeros, which would count as a distance.
        let _ = programs.take_ahead();
        Ok(programs)
    }

    /// Makes the next sample wake the sampler, once.
    pub fn request_wakeup(&mut self) {
        self.order.set(Word::Wakeup, 1);
    }

    /// Returns the descriptor that the requested wake-up makes readable.
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeups.as_fd()
    }

    /// Withdraws the request, or accepts the wake-up.
    pub fn end_wakeup(&mut self) {
        self.order.set(Word::Wakeup, 0);
        while self.wakeups.next().is_some() {}
    }

    /// Returns CLOCK_MONOTONIC minus the scheduler's clock as of the last read, ns: too large by
    /// the time from the sampler's arrival on its core to the first row. `None` without a row.
    pub fn take_ahead(&mut self) -> Option<u64> {
        let at = Word::Ahead as usize;
        let [low, high] =
            [at, at + 1].map(|word| self.order.word(word).swap(u32::MAX, Ordering::SeqCst));
        let ahead = u64::from(low) | u64::from(high) << 32;
        (ahead != u64::MAX).then_some(ahead)
    }

    /// Returns the reader of what is taken with samples, once; `None` if the kernel refused the
    /// program that takes it.
    pub fn take_reader(&mut self) -> Option<TakenWithSamples> {
        self.reader.take()
    }

    /// Returns the program for [`perf_event_open_sys::ioctls::SET_BPF`].
    pub fn filter(&self) -> Option<RawFd> {
        self.program(self.filter)
    }

    fn program(&self, name: &str) -> Option<RawFd> {
        Some(self.ebpf.program(name)?.fd().ok()?.as_fd().as_raw_fd())
    }

    /// Passes samples of this process, by its id in the initial pid namespace.
    pub fn allow_samples(&mut self, process: u32) -> io::Result<()> {
        self.targets.insert(process, 1, 0).map_err(io::Error::other)
    }

    pub fn disallow_samples(&mut self, process: u32) {
        let _ = self.targets.remove(&process);
    }

    /// Opens the link of a process. `pid`: in our pid namespace.
    pub fn link(&self, pid: u32) -> io::Result<Link> {
        let program =
            self.program("look").ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        match link_create(program, &[0, pid, 0]) {
            Ok(fd) => Ok(Link { fd, only: 0 }),
            Err(_) => Ok(Link { fd: link_create(program, &[])?, only: pid }),
        }
    }

    /// Opens the link of a single thread. Returns `None` if the kernel has no such iterators
    /// (before Linux 6.1), or no descriptor is free.
    pub fn link_one(&self, link: &Link, tid: u32) -> Option<OwnedFd> {
        let program = self.program("look").filter(|_| link.only == 0)?;
        link_create(program, &[tid, 0, 0]).ok()
    }

    /// Begins a pass over all threads of a process. It reports threads again that were reported
    /// under another generation, and those in `again`, at most [`MAX_REPEATS`].
    pub fn begin(&mut self, link: &Link, generation: u32, again: &[u32]) -> io::Result<File> {
        let again = &again[..again.len().min(MAX_REPEATS)];
        for tid in again {
            self.again.insert(tid, 1, 0).map_err(io::Error::other)?;
            self.calls += 1;
        }
        self.order.set(Word::Generation, generation);
        self.order.set(Word::Again, again.len() as u32);
        self.order.set(Word::Visited, 0);
        self.order.set(Word::Only, link.only);
        self.order.set(Word::Process, 0);
        self.order.set(Word::Threads, 0);
        // The call below, and the close.
        self.calls += 2;
        iter_create(link.fd.as_fd())
    }

    /// Ends a pass over all threads.
    pub fn end(&mut self, again: &[u32]) {
        for tid in &again[..again.len().min(MAX_REPEATS)] {
            let _ = self.again.remove(tid);
            self.calls += 1;
        }
    }

    /// Reads the next rows. Returns 0 bytes at the end. Stacks of earlier rows are overwritten.
    pub fn read(&mut self, rows: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        self.order.set(Word::Used, 0);
        self.read_on(rows, buffer)
    }

    fn read_on(&mut self, rows: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.calls += 1;
            match rows.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Returns whether lists of threads can be visited.
    pub fn lists(&self) -> bool {
        self.listed.is_some()
    }

    /// Begins a pass over single threads of a process, given by its id in the initial pid
    /// namespace.
    pub fn begin_singly(&mut self, process: u32, generation: u32) {
        self.order.set(Word::Generation, generation);
        self.order.set(Word::Visited, 0);
        self.order.set(Word::Only, 0);
        self.order.set(Word::Process, process);
        self.order.set(Word::Threads, 0);
    }

    /// Reads the rows of single threads, at most [`MAX_LISTED`]. The flag of each thread asks for
    /// a row even if it has not run. Returns the number of bytes.
    pub fn read_listed(
        &mut self,
        threads: impl Iterator<Item = (Single, bool)>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut listed = 0;
        for (thread, again) in threads.take(MAX_LISTED) {
            self.list.word(2 * listed).store(thread.id, Ordering::SeqCst);
            self.list.word(2 * listed + 1).store(again.into(), Ordering::SeqCst);
            listed += 1;
        }
        self.order.set(Word::Listed, listed as u32);
        self.order.set(Word::Used, 0);
        self.order.set(Word::Rows, 0);
        self.visit_list()?;
        let told = self.order.get(Word::Rows) as usize * ROW;
        match (buffer.get_mut(..told), self.listed_rows.bytes().get(..told)) {
            (Some(buffer), Some(rows)) => buffer.copy_from_slice(rows),
            _ => return Err(io::Error::other("the BPF iterator returned more rows than threads")),
        }
        Ok(told)
    }

    /// Makes the kernel visit the list.
    fn visit_list(&mut self) -> io::Result<()> {
        let mut mark = [0];
        if let Some(mut lists) = self.lists.take() {
            if self.read_on(&mut lists, &mut mark)? == 1 {
                self.lists = Some(lists);
                return Ok(());
            }
            self.calls += 1;
        }
        let link = self.listed.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let mut lists = iter_create(link.as_fd())?;
        self.calls += 1;
        match self.read_on(&mut lists, &mut mark)? {
            1 => self.lists = Some(lists),
            _ => return Err(io::Error::other("the BPF iterator visited no thread")),
        }
        Ok(())
    }

    /// Returns how many threads the process had in the last pass over single threads; `None` where
    /// it was not a list, or an empty one.
    pub fn threads(&self) -> Option<u32> {
        Some(self.order.get(Word::Threads)).filter(|threads| *threads > 0)
    }

    /// Reads the rows of single threads by their links. The flag of each asks for a row even if it
    /// has not run. Takes as many as fit into the buffer, which is no more than there are slots.
    /// Returns the number of bytes.
    pub fn read_singly<'a>(
        &mut self,
        links: impl Iterator<Item = (BorrowedFd<'a>, bool)>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        self.order.set(Word::Used, 0);
        let mut filled = 0;
        for (link, again) in links.take(buffer.len() / ROW) {
            self.order.set(Word::Again, if again { AGAIN_ALL } else { 0 });
            // Each gives one row or none, so its end need not be read.
            self.calls += 2;
            let mut row = iter_create(link)?;
            filled += self.read_on(&mut row, &mut buffer[filled..])?;
        }
        self.order.set(Word::Again, 0);
        Ok(filled)
    }

    /// Makes later passes read runnable threads that are off the core.
    pub fn read_runnable(&mut self) {
        self.order.set(Word::Runnable, 1);
    }

    /// Returns the system calls made for observations so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns how many threads the pass has visited.
    pub fn visited(&self) -> u32 {
        self.order.get(Word::Visited)
    }

    /// Returns the bytes in the slot of this row.
    pub fn copied(&self, row: &Blocked) -> Copied<'_> {
        let part =
            |from: usize, length| self.stacks.bytes().get(from..from + length).unwrap_or_default();
        let from = row.slot * SLOT;
        Copied {
            stack: part(from, row.stack_bytes.min(LARGEST)),
            kernel: part(from + LARGEST, row.kernel_bytes.min(KERNEL_LARGEST)),
        }
    }
}

/// Opens a map of the object, once.
fn take<M: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &str) -> Result<M, Refusal> {
    const OPENING: &str = "opening the maps";
    let missing = || Refusal {
        what: OPENING,
        why: format!("the map {name} is not in the object"),
        errno: None,
    };
    let map = ebpf.take_map(name).ok_or_else(missing)?;
    M::try_from(map).map_err(|error| Refusal::new(OPENING, &error))
}

/// Writes the BTF ids of the kernel's functions into the calls. Returns false if the kernel lacks
/// one.
fn find_functions(object: &mut Object, btf: &Btf) -> bool {
    FUNCTIONS.iter().all(|(name, number)| {
        btf.id_by_type_name_kind(name, BtfKind::Func)
            .is_ok_and(|place| call(object, *number, place) > 0)
    })
}

/// Turns helper calls of `number` into calls of the kernel function with the BTF id `place`.
/// Returns how many there were.
fn call(object: &mut Object, number: i32, place: u32) -> usize {
    // `struct bpf_insn`: operation, registers, offset, number. The source register holds 0 (a
    // helper) or BPF_PSEUDO_KFUNC_CALL.
    const CALL: [u8; 4] = [0x85, 0x00, 0, 0];
    const CALL_FUNCTION: [u8; 4] = [0x85, 0x20, 0, 0];
    let mut calls = 0;
    for instruction in object.0.chunks_exact_mut(8) {
        if instruction[..4] == CALL && instruction[4..] == number.to_le_bytes() {
            instruction[..4].copy_from_slice(&CALL_FUNCTION);
            instruction[4..].copy_from_slice(&place.to_le_bytes());
            calls += 1;
        }
    }
    calls
}

/// A map of the kernel that is mapped into our memory.
struct Shared {
    start: *mut u8,
    size: usize,
}

// SAFETY: the memory belongs to this value alone; nothing about it is tied to a thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new(map: BorrowedFd<'_>, size: usize) -> io::Result<Shared> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                map,
                0,
            )?
        };
        Ok(Shared { start: start.cast(), size })
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.size / 4);
        // SAFETY: the word lies in the mapping, which is page-aligned and lives as long as this
        // value. The program in the kernel and sampletop change it by whole words only.
        unsafe { &*self.start.cast::<AtomicU32>().add(index) }
    }

    fn set(&self, word: Word, value: u32) {
        self.word(word as usize).store(value, Ordering::SeqCst);
    }

    fn get(&self, word: Word) -> u32 {
        self.word(word as usize).load(Ordering::SeqCst)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `size` bytes and lives as long as this value. Only our own program
        // writes to it, and only during reads of an iterator, which borrow everything exclusively.
        unsafe { std::slice::from_raw_parts(self.start, self.size) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, not used afterwards.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.size) };
    }
}

/// Of `enum bpf_cmd` and `enum bpf_attach_type` (include/uapi/linux/bpf.h).
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// The members of `union bpf_attr` that BPF_LINK_CREATE reads for an iterator.
#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    info: u64,
    info_size: u32,
    padding: u32,
}

/// Creates an iterator link over one thread, the threads of one process (Linux 6.1), or all
/// threads. `which`: the member `task` of union bpf_iter_link_info, which is tid, pid, pid_fd; or
/// nothing.
fn link_create(program: RawFd, which: &[u32]) -> io::Result<OwnedFd> {
    let mut attr = LinkCreate {
        program: program as u32,
        target: 0,
        attach_type: BPF_TRACE_ITER,
        flags: 0,
        info: if which.is_empty() { 0 } else { which.as_ptr() as u64 },
        info_size: size_of_val(which) as u32,
        padding: 0,
    };
    bpf(BPF_LINK_CREATE, &mut attr)
}

fn iter_create(link: BorrowedFd<'_>) -> io::Result<File> {
    // link_fd, flags.
    let mut attr = [link.as_raw_fd() as u32, 0];
    bpf(BPF_ITER_CREATE, &mut attr).map(File::from)
}

fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` has the layout and size that the command reads, and so has all that it points
    // to. Both commands return a new descriptor that no other code owns.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>());
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_of_a_function_is_found() {
        let mut object = Object(*BYTES);
        for (name, number) in FUNCTIONS {
            assert_eq!(call(&mut object, number, 4_711), 2, "{name}: of the leader, and listed");
            assert_eq!(call(&mut object, number, 4_711), 0, "{name}");
        }
        let changed = object.0.iter().zip(BYTES).filter(|(now, before)| now != before).count();
        assert_eq!(changed, 4 * 5, "a source and four bytes of a number");
    }
}
