//! The list of all goroutines of a program (`runtime.allgs`), and what each is (`runtime.g`).
//!
//! Stripped programs have no names of variables. So the list is searched among the addresses that
//! the function which extends it (`runtime.allgadd`) refers to, and counts if what is there can be
//! nothing else. Fields lie elsewhere in versions of Go 1.18 to 1.27; see [`Layout`].

use std::sync::Arc;

use crate::elf::u64_at;
use crate::model::vocabulary::text::clean_bytes;
use crate::process::memory::ReadMemory;
use crate::runtimes::go::labels::{self, LabelsLayout};
use crate::runtimes::go::program::Program;

/// Maximum goroutines in the list, ended ones too.
const LISTED_MAX: u64 = 10_000_000;
/// Maximum goroutines that are read.
const READ_MAX: usize = 1_000_000;
/// Goroutines by which a layout is checked.
const CHECKED: usize = 16;
/// Bytes of a goroutine's structure that are read. It has 440 or more.
pub const GOROUTINE: usize = 440;
/// Maximum number of states of waiting, and bytes of their names.
const REASONS: usize = 64;
const REASON_MAX: u64 = 64;

/// Offsets in `runtime.g` that are the same in all versions.
const STACK_END: usize = 8;
const SAVED_SP: usize = 56;
const SAVED_PC: usize = 64;
/// Offsets from the goroutine's number.
const STATUS_BEFORE: usize = 8;
const SINCE_BEHIND: usize = 16;
const REASON_BEHIND: usize = 24;

/// Where the number is: in Go up to 1.22 and since 1.25, and between.
const NUMBERS: [usize; 2] = [152, 160];

/// Words of what created a goroutine: the address behind the `go` statement, ancestors (0 unless
/// they are asked for), and the start of its function. They lie together, but not always in the
/// same place.
const CREATED_WORDS: usize = 3;
/// Of these, the start of its function.
const START_WORD: usize = 2;

/// Bits of the status (runtime/runtime2.go).
const SCANNED: u32 = 0x1000;

/// Where the fields of `runtime.g` are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Its number.
    number: usize,
    /// See [`CREATED_WORDS`]; `None` where it was not found.
    pub created: Option<usize>,
    /// `None`: the program sets no labels.
    pub labels: Option<LabelsLayout>,
}

/// What a goroutine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It waits for a thread to run on.
    Runnable,
    /// A thread executes it, also in a system call or in C.
    OnThread,
    /// It waits for something; the number of what.
    Waiting(u8),
    /// It was stopped in the middle and waits for its turn.
    Preempted,
    /// Its stack is being moved, or its state is unknown.
    Changing,
    /// It has ended, or has not begun.
    Ended,
}

/// A goroutine, by its structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goroutine {
    pub number: u64,
    pub status: Status,
    /// Where it goes on: its stack pointer and its instruction.
    pub sp: u64,
    pub pc: u64,
    pub stack_end: u64,
    /// When a garbage collection found it waiting, CLOCK_MONOTONIC, ns; 0: none did.
    pub since: u64,
    /// Address behind the statement that created it, and of its first function; 0: unknown.
    pub created: u64,
    pub start: u64,
    /// Address of its labels; 0: it has none.
    pub labels: u64,
}

/// Where the list is: the address of its slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u64);

impl Place {
    /// Returns the addresses of the structures, of all goroutines that there ever were.
    pub fn pointers(self, memory: &impl ReadMemory) -> Option<Vec<u64>> {
        // The address of the pointers, their number, and how many there is room for.
        let mut slice = [0; 24];
        memory.read_exact(self.0, &mut slice)?;
        let [first, length, room] = [0, 8, 16].map(|at| u64_at(&slice, at).unwrap_or_default());
        if first == 0 || first % 8 != 0 || !(1..=room.min(LISTED_MAX)).contains(&length) {
            return None;
        }
        let mut pointers = vec![0; 8 * (length as usize).min(READ_MAX)];
        memory.read_exact(first, &mut pointers)?;
        Some(pointers.chunks_exact(8).filter_map(|word| u64_at(word, 0)).collect())
    }
}

/// The list of goroutines.
pub struct GoroutineList {
    pub place: Place,
    /// Addresses of the structures, of all goroutines that there ever were.
    pub all: Vec<u64>,
    pub layout: Layout,
}

impl GoroutineList {
    /// Finds and reads the list.
    pub fn read<M: ReadMemory>(program: &Program<M>) -> Option<GoroutineList> {
        let candidates = program.referred_by("runtime.allgadd");
        let mut found = candidates.into_iter().filter_map(|at| GoroutineList::at(program, at));
        found.next()
    }

    /// Reads the list whose slice is at an address.
    fn at<M: ReadMemory>(program: &Program<M>, at: u64) -> Option<GoroutineList> {
        let place = Place(at);
        let all = place.pointers(&program.memory)?;
        let layout = layout(program, &all)?;
        Some(GoroutineList { place, all, layout })
    }
}

/// Finds the layout by the first goroutines. The very first one executes `main` and has the number
/// 1.
fn layout<M: ReadMemory>(program: &Program<M>, all: &[u64]) -> Option<Layout> {
    let read = |at: &u64| {
        let mut bytes = vec![0; GOROUTINE];
        program.memory.read_exact(*at, &mut bytes).map(|()| bytes)
    };
    let first: Vec<Vec<u8>> = all.iter().take(CHECKED).map(read).collect::<Option<_>>()?;
    let number = NUMBERS.into_iter().find(|number| {
        let all: Vec<Goroutine> =
            first.iter().filter_map(|bytes| Layout::numbered(*number).parse(bytes)).collect();
        let is_sound = |one: &Goroutine| {
            one.status == Status::Ended
                || (1..1 << 48).contains(&one.number)
                    && one.sp < one.stack_end
                    && (one.status == Status::OnThread || program.is_code(one.pc))
        };
        let mut numbers: Vec<u64> =
            all.iter().filter(|one| one.status != Status::Ended).map(|one| one.number).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        all.first().is_some_and(|main| main.number == 1)
            && all.len() == first.len()
            && all.iter().all(is_sound)
            && numbers.len() == count
    })?;
    // The first is created by the start of the program, in assembly; the others are clearer.
    let living = |bytes: &&Vec<u8>| {
        Layout::numbered(number)
            .parse(bytes)
            .is_some_and(|one| one.number > 1 && one.status != Status::Ended)
    };
    let living: Vec<&Vec<u8>> = first.iter().filter(living).collect();
    let is_created = |offset: &usize| {
        living.iter().all(|bytes| {
            let words = [0, 8, 16].map(|behind| u64_at(bytes, offset + behind));
            let [Some(by), Some(_), Some(start)] = words else { return false };
            program.is_code(by) && !program.is_start(by) && program.is_start(start)
        })
    };
    let offsets = (number + REASON_BEHIND + 8..=GOROUTINE - 8 * CREATED_WORDS).step_by(8);
    let created = offsets.into_iter().find(is_created).filter(|_| !living.is_empty());
    Some(Layout { number, created, labels: labels::find(program) })
}

impl Layout {
    /// Returns a layout of which no more is known.
    fn numbered(number: usize) -> Layout {
        Layout { number, created: None, labels: None }
    }

    /// Parses a goroutine's structure.
    pub fn parse(&self, bytes: &[u8]) -> Option<Goroutine> {
        let word = |at: usize| u64_at(bytes, at);
        let status = *bytes.get(self.number.checked_sub(STATUS_BEFORE)?..)?.first_chunk::<4>()?;
        let reason = *bytes.get(self.number + REASON_BEHIND)?;
        // runtime/runtime2.go: _Gidle to _Gdeadextra, which is of a thread that C began.
        let status = match u32::from_le_bytes(status) & !SCANNED {
            0 | 5 | 6 | 11 => Status::Ended,
            1 => Status::Runnable,
            2 | 3 => Status::OnThread,
            4 | 10 => Status::Waiting(reason),
            9 => Status::Preempted,
            8 => Status::Changing,
            _ => return None,
        };
        Some(Goroutine {
            number: word(self.number)?,
            status,
            sp: word(SAVED_SP)?,
            pc: word(SAVED_PC)?,
            stack_end: word(STACK_END)?,
            since: word(self.number + SINCE_BEHIND)?,
            created: self.created.and_then(word).unwrap_or(0),
            start: self.created.and_then(|at| word(at + 8 * START_WORD)).unwrap_or(0),
            labels: self.labels.and_then(|labels| word(labels.offset.into())).unwrap_or(0),
        })
    }
}

/// Reads what goroutines may wait for, in the words of Go's runtime, by number. Empty where that
/// was not found.
pub fn read_reasons<M: ReadMemory>(program: &Program<M>) -> Vec<Arc<str>> {
    // It is an array of strings: of each its address and length. The first one is empty.
    let text = |at: u64| {
        let [start, length] = [0, 8].map(|behind| program.memory.read_u64(at.checked_add(behind)?));
        let mut bytes = vec![0; length.filter(|length| *length <= REASON_MAX)? as usize];
        program.memory.read_exact(start?, &mut bytes)?;
        Some(bytes)
    };
    let is_it = |at: &u64| {
        text(*at).is_some_and(|text| text.is_empty())
            && text(at + 16).is_some_and(|text| text == b"GC assist marking")
            && text(at + 32).is_some_and(|text| text == b"IO wait")
    };
    let functions = ["runtime.waitReason.String", "runtime.goroutineheader"];
    let mut places = functions.into_iter().flat_map(|name| program.referred_by(name));
    let Some(begin) = places.find(is_it) else { return Vec::new() };
    let mut reasons = Vec::new();
    for number in 0..REASONS as u64 {
        let Some(text) = text(begin + 16 * number) else { break };
        let is_text = text.iter().all(|byte| (b' '..=b'~').contains(byte));
        if !is_text || text.is_empty() != (number == 0) {
            break;
        }
        reasons.push(clean_bytes(&text, REASON_MAX as usize).into());
    }
    reasons
}
