//! Loads the program into the kernel, and reads its counts.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};

use super::{Refusal, errno};

const BYTES: &[u8; include_bytes!(env!("SAMPLETOP_WAKEUPS_OBJECT")).len()] =
    include_bytes!(env!("SAMPLETOP_WAKEUPS_OBJECT"));

/// Aligned, because an ELF header is read from it.
#[repr(C, align(8))]
struct Object([u8; BYTES.len()]);

/// Inode of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_NAMESPACE: u64 = 0xeffffffc;

/// Values of `struct pair`, `call`, which are no number of a call.
const INTERRUPT: u32 = -1_i32 as u32;
const KERNEL_THREAD: u32 = -2_i32 as u32;

/// `struct pair` and `struct waker` of wakeups.bpf.c, in their words.
type PairWords = [u32; 6];
type WakerWords = [u64; 5];

pub struct Program {
    ebpf: Ebpf,
}

/// The counts of one waker and one thread that it woke.
pub struct Row {
    /// Process and thread.
    pub waker: (u32, u32),
    pub woken: (u32, u32),
    pub by: By,
    pub count: u64,
    /// Names of the waker and of its process, padded with zeros.
    pub thread: [u8; 16],
    pub process: [u8; 16],
}

#[derive(Clone, Copy)]
pub enum By {
    Call(u32),
    KernelThread,
    Interrupt,
}

pub struct Counted {
    pub pairs: Vec<Row>,
    pub seen: u64,
    pub counted: u64,
    pub lost: u64,
    /// CPU time of the program, where the kernel measures that (kernel.bpf_stats_enabled).
    pub run_ns: Option<u64>,
}

/// Turns an error of the loader into a refusal.
fn refused<E: std::error::Error + 'static>(error: E) -> Refusal {
    // The verifier's log follows on more lines.
    let why = error.to_string();
    Refusal::new(why.lines().next().unwrap_or_default().into(), errno(&error))
}

fn missing(what: &str) -> Refusal {
    Refusal::new(format!("{what} is not in the object"), None)
}

impl Program {
    /// Loads the program and attaches it.
    pub fn load(processes: &[u32]) -> Result<Program, Refusal> {
        let btf = Btf::from_sys_fs().map_err(|error| Refusal::types(error.to_string()))?;
        let object = Object(*BYTES);
        let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(&object.0).map_err(refused)?;
        let targets = ebpf.map_mut("targets").ok_or_else(|| missing("targets"))?;
        let mut targets: HashMap<&mut MapData, u32, u32> = targets.try_into().map_err(refused)?;
        for process in processes {
            targets.insert(process, 1, 0).map_err(refused)?;
        }
        let namespaces = ebpf.map_mut("namespaces").ok_or_else(|| missing("namespaces"))?;
        let mut namespaces: Array<&mut MapData, u32> = namespaces.try_into().map_err(refused)?;
        namespaces.set(0, own_namespace(), 0).map_err(refused)?;
        let program = tracepoint(&mut ebpf)?;
        program.load("sched_waking", &btf).map_err(refused)?;
        program.attach().map_err(refused)?;
        Ok(Program { ebpf })
    }

    /// Detaches the program, and reads its counts.
    pub fn end(mut self) -> Result<Counted, Refusal> {
        let program = tracepoint(&mut self.ebpf)?;
        let Spent { run_ns, missed } = spent(program);
        // Closes the program and its link.
        program.unload().map_err(refused)?;
        let totals = self.ebpf.map("totals").ok_or_else(|| missing("totals"))?;
        let totals: PerCpuArray<&MapData, [u64; 3]> = totals.try_into().map_err(refused)?;
        let totals = totals.get(&0, 0).map_err(refused)?;
        let total = |nth: usize| totals.iter().map(|of_core| of_core[nth]).sum::<u64>();
        let pairs = self.ebpf.map("pairs").ok_or_else(|| missing("pairs"))?;
        let pairs: HashMap<&MapData, PairWords, WakerWords> = pairs.try_into().map_err(refused)?;
        let mut seen = HashSet::new();
        let pairs = pairs
            .iter()
            .flatten()
            .filter(|(pair, _)| seen.insert(*pair))
            .map(|(pair, waker)| row(&pair, &waker))
            .collect();
        let (seen, counted, lost) = (total(0), total(1), total(2) + missed);
        Ok(Counted { pairs, seen, counted, lost, run_ns })
    }
}

fn tracepoint(ebpf: &mut Ebpf) -> Result<&mut BtfTracePoint, Refusal> {
    ebpf.program_mut("count").ok_or_else(|| missing("count"))?.try_into().map_err(refused)
}

pub fn row(pair: &PairWords, waker: &WakerWords) -> Row {
    let [waker_pid, waker_tid, woken_pid, woken_tid, call, _] = *pair;
    let text = |from: usize| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&waker[from].to_ne_bytes());
        bytes[8..].copy_from_slice(&waker[from + 1].to_ne_bytes());
        bytes
    };
    Row {
        waker: (waker_pid, waker_tid),
        woken: (woken_pid, woken_tid),
        by: match call {
            INTERRUPT => By::Interrupt,
            KERNEL_THREAD => By::KernelThread,
            number => By::Call(number),
        },
        count: waker[0],
        thread: text(1),
        process: text(3),
    }
}

struct Spent {
    run_ns: Option<u64>,
    /// Wakeups for which the kernel did not call the program: it ran on that core already.
    missed: u64,
}

/// Reads what the kernel knows of a program from its descriptor (Linux 5.12).
fn spent(program: &BtfTracePoint) -> Spent {
    let info = program.fd().ok().and_then(|fd| {
        fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd())).ok()
    });
    let info = info.unwrap_or_default();
    let number = |word: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(word))?;
        value.trim_start_matches(':').trim().parse::<u64>().ok()
    };
    Spent {
        run_ns: number("run_time_ns").filter(|ns| *ns > 0),
        missed: number("recursion_misses").unwrap_or(0),
    }
}

/// Returns the inode of our pid namespace; 0 for the initial one.
fn own_namespace() -> u32 {
    match fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino()) {
        Ok(INITIAL_NAMESPACE) | Err(_) => 0,
        Ok(inode) => inode as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_the_program_writes_them() {
        let name = u64::from_ne_bytes(*b"producer");
        let call = |call: i32| row(&[7, 8, 9, 10, call as u32, 0], &[3, name, 0, name, 0]);
        let found = call(202);
        assert_eq!((found.waker, found.woken, found.count), ((7, 8), (9, 10), 3));
        assert!(found.thread.starts_with(b"producer\0") && found.process == found.thread);
        assert!(matches!(found.by, By::Call(202)));
        assert!(matches!(call(-1).by, By::Interrupt));
        assert!(matches!(call(-2).by, By::KernelThread));
    }
}
