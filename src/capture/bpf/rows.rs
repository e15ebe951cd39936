//! A row of the task iterator: what the program in the kernel reports of one thread (`struct row`
//! in program.bpf.c).

use crate::capture::kernel_ring::{KERNEL_FRAMES, kernel_frame};
use crate::model::vocabulary::event::{Counters, Syscall};
use crate::model::vocabulary::frame::{Marker, Ns, RawFrame, RawName, SECOND};
use crate::unwinder::Registers;

/// Size of a row, bytes.
pub const ROW: usize = 248;

/// Number of slots for stacks; then the size of a slot, and the maximum of a stack, bytes.
pub const SLOTS: usize = 160;
pub const SLOT: usize = 64 << 10;
pub const LARGEST: usize = 63 << 10;
/// Maximum of the kernel's own stack, bytes. Its addresses follow the user stack in the slot, for
/// uninterruptible threads.
pub const KERNEL_LARGEST: usize = SLOT - LARGEST;

const RUNS: u32 = 1;
const HELD: u32 = 2;
const TORN: u32 = 4;
const LATE: u32 = 16;
const READY: u32 = 32;

/// One thread at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub at: Ns,
    /// Thread id in our pid namespace.
    pub tid: u32,
    /// Process id and thread id in the initial pid namespace.
    pub process: u32,
    pub id: u32,
    /// Start time as in /proc/PID/stat: clock ticks since boot.
    pub start: u64,
    pub name: RawName,
    pub counters: Counters,
    /// When it last left its core.
    pub left_core: Ns,
    /// State letter as in /proc/PID/stat.
    pub state: u8,
    pub what: What,
}

/// Result beside the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// On a core, runnable, or exited: no stack.
    Nothing,
    /// Runnable and off its core while it was read: preempted, or just woken. Only if requested.
    Ready(Blocked),
    /// Uninterruptible or stopped, and has not run since its stack was reported.
    Unchanged,
    /// Put on a core while it was read. It will be reported again.
    Torn,
    /// No slot was left for its stack. It will be reported again.
    Late,
    /// Without user registers: exiting, or working for io_uring. It will be reported again.
    NoRegisters,
    /// Off its core. It is not reported again until it runs.
    Blocked(Blocked),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    pub registers: Registers,
    pub call: Syscall,
    /// Base address of thread-local storage.
    pub fs_base: u64,
    /// Slot and length of the copied stack. Length 0: it could not be copied.
    pub slot: usize,
    pub stack_bytes: usize,
    /// Length of the copied part of the kernel's own stack.
    pub kernel_bytes: usize,
}

/// Bytes that were copied for a row.
#[derive(Clone, Copy, Default)]
pub struct Copied<'a> {
    /// User stack, from the stack pointer upwards.
    pub stack: &'a [u8],
    /// Return addresses on the kernel's own stack.
    pub kernel: &'a [u8],
}

impl Copied<'_> {
    /// Appends the kernel's frames, innermost first. A marker follows where there may be more.
    pub fn kernel_frames(&self, out: &mut Vec<RawFrame>) {
        let addresses = self
            .kernel
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        out.extend(
            addresses.take(KERNEL_FRAMES).filter_map(|address| kernel_frame(address, false)),
        );
        if self.kernel.len() >= 8 * KERNEL_FRAMES {
            out.push(RawFrame::marker(Marker::TooDeep));
        }
    }
}

/// Error: bytes that are not whole rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// What the kernel's other clocks differ by, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clocks {
    /// What our time namespace adds to times since boot.
    pub boot: i64,
    /// CLOCK_MONOTONIC minus the scheduler's clock; the largest number where it is not known.
    pub scheduler: u64,
}

/// Decodes one read of the iterator.
pub fn decode(
    bytes: &[u8],
    clocks: Clocks,
) -> Result<impl ExactSizeIterator<Item = Row>, Malformed> {
    let rows = bytes.chunks_exact(ROW);
    if rows.remainder().is_empty() {
        Ok(rows.map(move |bytes| row(bytes, clocks)))
    } else {
        Err(Malformed)
    }
}

/// Reads numbers in order; returns zeros beyond the end.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let Some((bytes, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *bytes
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }
}

fn row(bytes: &[u8], clocks: Clocks) -> Row {
    let mut fields = Fields(bytes);
    let (at, start_ns) = (fields.u64(), fields.u64());
    let counters = Counters { run_ns: fields.u64(), delay_ns: fields.u64(), runs: fields.u64() };
    let left_core = fields.u64().saturating_add(clocks.scheduler).min(at);
    let (tid, process, id) = (fields.u32(), fields.u32(), fields.u32());
    let (state, exit_state) = (fields.u32(), fields.u32());
    let (flags, slot, stack_bytes, kernel_bytes) =
        (fields.u32(), fields.u32(), fields.u16(), fields.u16());
    let name: [u8; 16] = fields.bytes();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(16);
    let (rip, rsp, rbp) = (fields.u64(), fields.u64(), fields.u64());
    let general: [u64; 14] = std::array::from_fn(|_| fields.u64());
    let (number, fs_base) = (fields.u64() as i64, fields.u64());
    let [_, _, _, rdx, rsi, rdi, r8, r9, r10, ..] = general;
    let (slot, stack_bytes, kernel_bytes) =
        (slot as usize, usize::from(stack_bytes), usize::from(kernel_bytes));
    let copied = slot < SLOTS && stack_bytes <= LARGEST && kernel_bytes <= KERNEL_LARGEST;
    let blocked = Blocked {
        registers: Registers { rip, rsp, rbp: Some(rbp), general, general_known: true },
        call: match i32::try_from(number) {
            Ok(number) if number >= 0 => Syscall { number, args: [rdi, rsi, rdx, r10, r8, r9] },
            _ => Syscall { number: -1, args: [0; 6] },
        },
        fs_base,
        slot: if copied { slot } else { 0 },
        stack_bytes: if copied { stack_bytes } else { 0 },
        kernel_bytes: if copied { kernel_bytes } else { 0 },
    };
    let what = match flags {
        _ if exit_state != 0 => What::Nothing,
        _ if flags & (RUNS | READY) == RUNS | READY && rip != 0 && rsp != 0 => What::Ready(blocked),
        _ if flags & RUNS != 0 => What::Nothing,
        _ if flags & HELD != 0 => What::Unchanged,
        _ if flags & TORN != 0 => What::Torn,
        _ if flags & LATE != 0 => What::Late,
        _ if rip == 0 || rsp == 0 => What::NoRegisters,
        _ => What::Blocked(blocked),
    };
    let state = if flags & RUNS != 0 { b'R' } else { letter(state, exit_state) };
    let start = start_ticks(start_ns, clocks.boot);
    let name = RawName::new(&name[..end]);
    Row { at, tid, process, id, start, name, counters, left_core, state, what }
}

/// Returns the state letter as in /proc/PID/stat (task_state_index in include/linux/sched.h).
fn letter(state: u32, exit_state: u32) -> u8 {
    const UNINTERRUPTIBLE: u32 = 2;
    const NOLOAD: u32 = 0x400;
    const RTLOCK_WAIT: u32 = 0x1000;
    const FROZEN: u32 = 0x8000;
    const REPORTED: u32 = 0x7f;
    if state & (UNINTERRUPTIBLE | NOLOAD) == UNINTERRUPTIBLE | NOLOAD {
        return b'I';
    }
    if state & (RTLOCK_WAIT | FROZEN) != 0 && exit_state == 0 {
        return b'D';
    }
    let reported = (state | exit_state) & REPORTED;
    b"RSDTtXZP"[(u32::BITS - reported.leading_zeros()) as usize]
}

fn start_ticks(start_ns: u64, offset_ns: i64) -> u64 {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    start_ns.wrapping_add_signed(offset_ns) / (SECOND / per_second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::vocabulary::frame::FrameCode;

    /// Makes a row of flags, state, exit state, slot, stack bytes, ip, sp and orig_ax. The kernel's
    /// stack has as many bytes as the user stack.
    #[expect(clippy::too_many_arguments, reason = "a row is that many numbers")]
    fn bytes(
        flags: u32,
        state: u32,
        exit: u32,
        slot: u32,
        size: u16,
        ip: u64,
        sp: u64,
        number: i64,
    ) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [1000u64, 20_000_000, 30, 40, 50, 600].map(u64::to_ne_bytes).concat();
        bytes.extend([7u32, 8, 9, state, exit, flags, slot].map(u32::to_ne_bytes).concat());
        bytes.extend([size; 2].map(u16::to_ne_bytes).concat());
        bytes.extend(b"worker\0garbage!!");
        bytes.extend([ip, sp, 99].map(u64::to_ne_bytes).concat());
        bytes.extend((100u64..114).flat_map(u64::to_ne_bytes));
        bytes.extend([number as u64, 0xf5].map(u64::to_ne_bytes).concat());
        assert_eq!(bytes.len(), ROW);
        bytes
    }

    fn one(bytes: &[u8]) -> Row {
        let mut rows = decode(bytes, Clocks::default()).expect("rows");
        assert_eq!(rows.len(), 1);
        rows.next().expect("one")
    }

    #[test]
    fn a_blocked_thread_comes_with_everything() {
        let row = one(&bytes(0, 0x2001, 0, 3, 500, 0x1234, 0x5678, 202));
        assert_eq!((row.at, row.start, row.tid, row.process, row.id), (1000, 2, 7, 8, 9));
        assert_eq!(row.counters, Counters { run_ns: 30, delay_ns: 40, runs: 50 });
        assert_eq!(row.left_core, 600);
        assert_eq!(
            (row.name.bytes(), row.name, row.state),
            (&b"worker"[..], RawName::new(b"worker"), b'S')
        );
        let What::Blocked(blocked) = row.what else { panic!("{row:?}") };
        let registers = blocked.registers;
        assert_eq!((registers.rip, registers.rsp, registers.rbp), (0x1234, 0x5678, Some(99)));
        assert!(registers.general_known && registers.general.into_iter().eq(100..114));
        // rdi, rsi, rdx, r10, r8, r9 among rax rbx rcx rdx rsi rdi r8..r15.
        assert_eq!(blocked.call, Syscall { number: 202, args: [105, 104, 103, 108, 106, 107] });
        assert_eq!((blocked.slot, blocked.stack_bytes, blocked.fs_base), (3, 500, 0xf5));
    }

    #[test]
    fn a_thread_left_its_core_by_the_scheduler_s_clock() {
        let left_core = |scheduler| {
            let bytes = bytes(0, 1, 0, 0, 0, 1, 1, 0);
            let mut rows = decode(&bytes, Clocks { boot: 0, scheduler }).expect("rows");
            rows.next().expect("one").left_core
        };
        assert_eq!([0, 300, 400].map(left_core), [600, 900, 1000]);
        assert_eq!([401, u64::MAX].map(left_core), [1000; 2], "not after the row");
    }

    #[test]
    fn what_is_missing_is_said() {
        let what = |flags, exit| one(&bytes(flags, 1, exit, 0, 0, 1, 1, 0)).what;
        assert_eq!(what(RUNS, 0), What::Nothing);
        assert_eq!(what(0, 0x20), What::Nothing);
        assert!(matches!(what(RUNS | READY, 0), What::Ready(_)));
        assert_eq!(
            [what(RUNS | READY, 0x20), what(RUNS | TORN, 0), what(RUNS | LATE, 0)],
            [What::Nothing; 3]
        );
        assert_eq!(
            one(&bytes(RUNS | READY, 0, 0, 0, 0, 0, 0, 0)).what,
            What::Nothing,
            "it has no registers"
        );
        assert_eq!(what(HELD, 0), What::Unchanged);
        assert_eq!(
            (what(TORN, 0), what(TORN | 8, 0), what(LATE, 0)),
            (What::Torn, What::Torn, What::Late)
        );
        assert_eq!(one(&bytes(0, 1, 0, 0, 0, 0, 0, 0)).what, What::NoRegisters);
        let outside = |slot, size| {
            let What::Blocked(blocked) = one(&bytes(0, 1, 0, slot, size, 1, 1, -1)).what else {
                panic!("blocked")
            };
            (blocked.slot, blocked.stack_bytes, blocked.call.number)
        };
        assert_eq!(outside(SLOTS as u32, 8), (0, 0, -1));
        assert_eq!(outside(0, LARGEST as u16 + 1), (0, 0, -1));
        assert_eq!(outside(0, KERNEL_LARGEST as u16 + 1), (0, 0, -1));
        assert_eq!(
            outside(SLOTS as u32 - 1, KERNEL_LARGEST as u16),
            (SLOTS - 1, KERNEL_LARGEST, -1)
        );
        let call = |number| one(&bytes(0, 1, 0, 0, 0, 1, 1, number)).what;
        assert!(matches!(
            call(1 << 40),
            What::Blocked(Blocked { call: Syscall { number: -1, .. }, .. })
        ));
    }

    #[test]
    fn kernel_stacks_are_return_addresses() {
        let frames = |addresses: &[u64]| {
            let kernel: Vec<u8> = addresses.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut frames = Vec::new();
            Copied { stack: &[], kernel: &kernel }.kernel_frames(&mut frames);
            frames
        };
        let kernel = |address| RawFrame::new(FrameCode::Kernel { address });
        let text = 0xffff_ffff_8100_0000;
        assert_eq!(frames(&[text + 5, 0, 0x7000, text + 9]), [kernel(text + 4), kernel(text + 8)]);
        assert_eq!(frames(&[]), []);
        let deep = frames(&vec![text; KERNEL_LARGEST / 8]);
        assert_eq!(
            (deep.len(), deep.last()),
            (KERNEL_FRAMES + 1, Some(&RawFrame::marker(Marker::TooDeep)))
        );
        assert_eq!(frames(&vec![text; KERNEL_FRAMES - 1]).len(), KERNEL_FRAMES - 1);
    }

    #[test]
    fn states_are_the_letters_of_proc() {
        let letters = [
            (0, 0),
            (1, 0),
            (2, 0),
            (4, 0),
            (8, 0),
            (0x80, 0x20),
            (0x80, 0x10),
            (0x40, 0),
            (0x402, 0),
        ];
        assert_eq!(letters.map(|(state, exit)| letter(state, exit)), *b"RSDTtZXPI");
        // With TASK_WAKEKILL, TASK_FREEZABLE; frozen.
        assert_eq!([0x102, 0x108, 0x2001, 0x8000, 0x1000].map(|state| letter(state, 0)), *b"DtSDD");
    }

    #[test]
    fn start_times_are_those_of_proc() {
        assert_eq!(start_ticks(12_349_999_999, 0), 1_234);
        assert_eq!(start_ticks(12_349_999_999, 1), 1_235);
        assert_eq!(start_ticks(12_340_000_000, -1), 1_233);
    }

    proptest! {
        #[test]
        fn garbage_is_rows_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
            match decode(&bytes, Clocks::default()) {
                Ok(rows) => prop_assert_eq!(rows.map(std::hint::black_box).count() * ROW, bytes.len()),
                Err(Malformed) => prop_assert!(bytes.len() % ROW != 0),
            }
        }
    }
}
