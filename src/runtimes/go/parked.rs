//! Goroutines that wait, again and again: a reader of a program that keeps what it has found, and
//! reads a few at a time.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::{Ns, RawFrame, RawName, SELECT_SENDS};
use crate::model::vocabulary::go_functions::{is_wrapper, shown};
use crate::model::vocabulary::state::{RawState, State};
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::pclntab::{Header, Table};
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::go::goroutine_list::{GoroutineList, Layout, Place, Status, read_reasons};
use crate::runtimes::go::labels::{LabelsLayout, RawLabels};
use crate::runtimes::go::program::Program;
use crate::runtimes::go::selects::Selects;
use crate::runtimes::go::semaphores::Semaphores;
use crate::runtimes::go::{Read, Unchanged, read, size, unchanged_stacks};
use crate::unwinder::framehop::InMemory;

/// Maximum goroutines that wait which are read in one round. Of more, some are chosen, always the
/// same ones.
const ROUND_MAX: usize = 4_000;
/// Maximum structures that are read in one round. The list keeps those of goroutines that ended.
const STRUCTURES_MAX: usize = 50_000;
/// Maximum stacks of one batch.
const STACKS_MAX: usize = 64;
/// Maximum names of start functions that are remembered.
const STARTS_MAX: usize = 10_000;

/// A goroutine that waits, as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parked {
    /// Its number in the program.
    pub id: u64,
    /// Where it goes on: its instruction, behind a call, and its stack pointer.
    pub pc: u64,
    pub sp: u64,
    /// Its stack, from `sp` to its end.
    pub stack: Vec<u8>,
    pub state: RawState,
    /// A time since which it has waited without a break; `None`: unknown.
    pub since: Option<Ns>,
    /// The function that it was started with.
    pub name: RawName,
    pub labels: RawLabels,
    /// It waits in a `select`, and one of its cases sends.
    pub sends: bool,
}

#[cfg(test)]
impl Parked {
    /// Makes one up.
    pub fn with_number(id: u64) -> Parked {
        let state = RawState::Known(State::Wait);
        let (stack, name) = (Vec::new(), RawName::default());
        let labels = RawLabels::None;
        Parked { id, pc: 1, sp: 2, stack, state, since: None, name, labels, sends: false }
    }
}

/// What a place in the list of goroutines holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Slot {
    Parked(Parked),
    /// A goroutine that does not wait, that has ended, or that could not be read.
    Other,
}

/// Some goroutines, by the addresses of their structures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    pub slots: Vec<(u64, Slot)>,
    /// How many structures are read in a round.
    pub listed: usize,
    /// There are more, which are not read.
    pub is_part: bool,
    /// It is the last one of a round.
    pub is_last: bool,
    /// Where the program has labels.
    pub labels: Option<LabelsLayout>,
}

/// Reads the goroutines of one program that wait.
pub struct Reader<M> {
    memory: M,
    names: Names,
    /// Address of the list.
    list: Place,
    layout: Layout,
    reasons: Vec<Arc<str>>,
    selects: Selects,
    /// The tables of functions: header, address of the first function, own address.
    tables: Vec<(Header, u64, u64)>,
    starts: FxHashMap<u64, Option<RawName>>,
    /// Those of this round that have not been read yet, the next one last.
    left: Vec<u64>,
    /// How many there were at its begin.
    listed: usize,
    /// Of this round so far: how many structures were read, and how many of their goroutines wait.
    visited: usize,
    waiting: usize,
    /// One of this number of goroutines is read.
    parts: u64,
}

impl Reader<Memory> {
    /// Finds the goroutines of a process. `None`: it is no Go program, cannot be read, or has just
    /// begun.
    pub fn of(pid: u32, names: Names) -> Option<Reader<Memory>> {
        Reader::find(Memory::new(pid), &Maps::read(pid).ok()?, pid, names)
    }
}

impl<M: ReadMemory> Reader<M> {
    /// Does the same for a process with this memory and these mappings.
    pub fn find(memory: M, maps: &Maps, pid: u32, names: Names) -> Option<Reader<M>> {
        Reader::new(Program::find(memory, maps, pid)?, names)
    }

    /// Finds the goroutines of a program. `None`: there is no list, or not yet.
    pub fn new(program: Program<M>, names: Names) -> Option<Reader<M>> {
        /// Goroutines of a program that is about to start its first ones.
        const TOO_FEW: usize = 2;
        let GoroutineList { place, all, layout } = GoroutineList::read(&program)?;
        if all.len() <= TOO_FEW && layout.created.is_none() {
            return None;
        }
        let reasons = read_reasons(&program);
        let (tables, memory) = program.into_tables();
        Some(Reader {
            memory,
            names,
            list: place,
            layout,
            reasons,
            selects: Selects::default(),
            tables,
            starts: FxHashMap::default(),
            left: Vec::new(),
            listed: 0,
            visited: 0,
            waiting: 0,
            parts: 1,
        })
    }

    /// Reads the next goroutines of a round, or the first ones of a new round; `count` or fewer.
    pub fn next_batch(&mut self, count: usize) -> Batch {
        if self.left.is_empty() {
            let Some(all) = self.list.pointers(&self.memory) else { return Batch::default() };
            self.parts = parts(self.parts, all.len(), (self.waiting, self.visited));
            self.left = chosen(all, self.parts);
            self.left.reverse();
            (self.listed, self.visited, self.waiting) = (self.left.len(), 0, 0);
        }
        let rest = self.left.len().saturating_sub(count);
        let mut places = self.left.split_off(rest);
        places.reverse();
        let found = read(&self.memory, &self.layout, &places);
        let waits = |(at, one): (&u64, Option<Read>)| {
            Some((*at, one.filter(|one| matches!(one.status, Status::Waiting(_)))?))
        };
        let mut waiting: Vec<(u64, Read)> = places.iter().zip(found).filter_map(waits).collect();
        if let Some((at, _)) = waiting.get(STACKS_MAX)
            && let Some(next) = places.iter().position(|place| place == at)
        {
            self.left.extend(places.drain(next..).rev());
            waiting.truncate(STACKS_MAX);
        }
        self.visited += places.len();
        self.waiting += waiting.len();
        if self.waiting >= 2 * ROUND_MAX {
            // More wait than in the round before. The next round chooses fewer.
            self.left.clear();
        }
        let (memory, layout) = (&self.memory, &self.layout);
        let unchanged = |of: &[(u64, Read)]| {
            let stacks = unchanged_stacks(memory, layout, &Semaphores::default(), of);
            let parts = |Unchanged { bytes, labels, .. }: Unchanged| (bytes, labels);
            stacks.into_iter().map(|stack| stack.map(parts)).collect::<Vec<_>>()
        };
        let mut stacks = unchanged(&waiting);
        // One that cannot be read spoils all.
        if waiting.len() > 1 && stacks.iter().all(Option::is_none) {
            let one = |one: &(u64, Read)| unchanged(&[*one]).pop().flatten();
            stacks = waiting.iter().map(one).collect();
        }
        let mut parked = FxHashMap::default();
        for ((at, one), stack) in waiting.iter().zip(stacks) {
            // A stack that is not read to its end would not be whole.
            let is_whole = one.stack_end.checked_sub(one.sp) == Some(size(one) as u64);
            if let (Some((stack, labels)), true) = (stack, is_whole)
                && let Some(mut found) = self.parked(one, stack, labels)
            {
                found.sends = self.sends(*at, one);
                parked.insert(*at, found);
            }
        }
        let slot = |at: u64| (at, parked.remove(&at).map_or(Slot::Other, Slot::Parked));
        let (slots, is_last) = (places.into_iter().map(slot).collect(), self.left.is_empty());
        let labels = self.layout.labels;
        Batch { slots, listed: self.listed, is_part: self.parts > 1, is_last, labels }
    }

    /// Returns a goroutine with what it waits for; `None`: the runtime started it for itself.
    fn parked(&mut self, one: &Read, stack: Vec<u8>, labels: RawLabels) -> Option<Parked> {
        let Status::Waiting(reason) = one.status else { return None };
        let name = self.start_name(one.start)?;
        let reason = self.reasons.get(usize::from(reason)).map_or("", |reason| &**reason);
        let since = Some(one.since).filter(|since| *since > 0);
        let Read { number: id, pc, sp, .. } = *one;
        let state = state_of(reason);
        Some(Parked { id, pc, sp, stack, state, since, name, labels, sends: false })
    }

    /// Returns whether a goroutine waits in a `select` of which one case sends. It is proven if it
    /// still waits afterwards.
    fn sends(&mut self, at: u64, one: &Read) -> bool {
        let Status::Waiting(reason) = one.status else { return false };
        let is_select = self.reasons.get(usize::from(reason)).is_some_and(|r| **r == *"select");
        is_select
            && self.selects.sends(&self.memory, at)
            && read(&self.memory, &self.layout, &[at]) == [Some(*one)]
    }

    /// Returns the name of a goroutine's first function; `None`: it is one of the runtime's own.
    fn start_name(&mut self, start: u64) -> Option<RawName> {
        if self.starts.len() >= STARTS_MAX {
            self.starts.clear();
        }
        let (memory, names, tables) = (&self.memory, &self.names, &self.tables);
        *self.starts.entry(start).or_insert_with(|| {
            let name = tables.iter().find_map(|(header, text, at)| {
                let table = Table::new(*header, *text, InMemory { memory, at: *at })?;
                name_of_start(memory, &table, start)
            });
            match name.as_deref() {
                Some("runtime.main") => names.thread_name("main.main"),
                Some(name) if name.starts_with("runtime.") => None,
                Some(name) => names.thread_name(name),
                None => names.thread_name("goroutine"),
            }
        })
    }
}

/// Returns the frame that stands for the cases of a `select` of which one sends.
pub fn frame_of_send(names: &Names) -> RawFrame {
    names.frame(vec![Location::named(SELECT_SENDS, FrameKind::Marker)])
}

/// Returns the name of the function at `start`, or of the one that it calls if the compiler made it
/// for that.
fn name_of_start<M: ReadMemory>(
    memory: &M,
    table: &Table<InMemory<'_, M>>,
    start: u64,
) -> Option<String> {
    /// Maximum bytes of a wrapper.
    const WRAPPER_MAX: u64 = 512;
    /// A call, by the distance from its end.
    const CALL: u8 = 0xe8;
    const DISTANCE: usize = 4;
    let named = |start: u64| {
        let function = table.function(start).filter(|function| function.start == start)?;
        Some((shown(&clean_bytes(&table.name(&function)?, NAME_CAP)), function.end))
    };
    let (name, end) = named(start)?;
    if !is_wrapper(&name, None) {
        return Some(name);
    }
    let mut code = vec![0; end.saturating_sub(start).min(WRAPPER_MAX) as usize];
    let count = memory.read(start, &mut code);
    let calls = code[..count].windows(1 + DISTANCE).enumerate();
    let called = |(at, bytes): (usize, &[u8])| {
        let distance = i32::from_le_bytes(bytes.get(1..)?.try_into().ok()?);
        let next = start.wrapping_add((at + bytes.len()) as u64);
        (bytes[0] == CALL).then(|| next.wrapping_add_signed(distance.into()))
    };
    let of_program = |name: &String| !name.starts_with("runtime.");
    let callee = calls.filter_map(called).filter_map(|at| Some(named(at)?.0)).find(of_program);
    // It may be inlined.
    let of_statement = || name.rsplit_once('.').map_or(name.clone(), |(outer, _)| outer.to_owned());
    Some(callee.unwrap_or_else(of_statement))
}

/// Returns one of how many goroutines is read in the next round: a power of two. `before`: of the
/// last round. `waiting`: how many waited there, of how many that were read. It is not known
/// beforehand which have ended, so the number goes by the last round.
fn parts(before: u64, all: usize, (waiting, read): (usize, usize)) -> u64 {
    let (waiting, read) = if read == 0 { (1, 1) } else { (waiting as u64, read as u64) };
    let all = all as u64;
    let fits = |parts: u64, stacks: u64| {
        all * waiting <= stacks * read * parts && all <= STRUCTURES_MAX as u64 * parts
    };
    let mut parts = before;
    while !fits(parts, ROUND_MAX as u64) {
        parts *= 2;
    }
    // Not each time that one more or less waits.
    while parts > 1 && fits(parts / 2, ROUND_MAX as u64 * 3 / 4) {
        parts /= 2;
    }
    parts
}

/// Returns one of `parts` goroutines, the same ones in each round. The main goroutine, which is the
/// first, is among them.
fn chosen(all: Vec<u64>, parts: u64) -> Vec<u64> {
    /// Spreads addresses (Knuth's multiplicative hash).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let main = all.first().copied();
    let is_chosen =
        |at: &u64| Some(*at) == main || (at.wrapping_mul(SPREAD) >> 32).is_multiple_of(parts);
    all.into_iter().filter(is_chosen).collect()
}

/// Returns the state of a goroutine that waits, by the words of Go's runtime (`waitReason` in
/// runtime/runtime2.go, Go 1.18 to 1.27).
fn state_of(reason: &str) -> RawState {
    RawState::Known(match reason {
        "sync.Mutex.Lock" | "sync.RWMutex.RLock" | "sync.RWMutex.Lock" => State::Lock,
        "IO wait" => State::Io,
        "sleep" => State::Sleep,
        // Of a mutex before Go 1.20, too.
        "semacquire" => return RawState::Futex,
        _ => State::Wait,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pclntab::HEADER;
    use crate::pclntab::tests::made_up::named;
    use crate::runtimes::go::program::tests::made_up;
    use crate::runtimes::go::tests::{FUNCTIONS, LIST, Words, put_table, world};

    #[test]
    fn of_many_goroutines_some_are_chosen_and_always_the_same() {
        let all = |count: u64| (0..count).map(|n| 0xc000_0000 + 448 * n).collect::<Vec<u64>>();
        assert_eq!(chosen(all(1_000), 1), all(1_000));
        for (count, parts) in [(4_001u64, 2), (10_000, 4), (100_000, 32)] {
            let some = chosen(all(count), parts);
            let expected = (count / parts) as usize;
            // Six standard deviations of a choice by chance.
            let error = 6 * (expected as f64).sqrt() as usize;
            assert!(some.len().abs_diff(expected) <= error, "{count}: {}", some.len());
            assert!(chosen(all(count + 1), parts).starts_with(&some));
            assert_eq!(some[0], all(1)[0]);
            // What fewer parts choose, more do not choose besides.
            let fewer = chosen(all(count), 2 * parts);
            assert!(fewer.iter().all(|at| some.contains(at)), "{count}");
        }
        assert!(chosen(Vec::new(), 1).is_empty());
    }

    #[test]
    fn how_many_are_chosen_goes_by_how_many_waited() {
        // The first round, and later ones in which all wait.
        for all_wait in [(0, 0), (4_000, 4_000)] {
            for (all, expected) in
                [(0, 1), (4_000, 1), (4_001, 2), (8_001, 4), (100_000, 32), (1_000_000, 256)]
            {
                assert_eq!(parts(1, all, all_wait), expected, "{all}");
            }
        }
        // Most have ended: all that wait are read, as far as structures are.
        assert_eq!(parts(8, 30_000, (10, 3_750)), 1);
        assert_eq!(parts(32, 100_000, (3, 3_125)), 2);
        assert_eq!(parts(256, 1_000_000, (0, 4_000)), 32);
        // They wait again.
        assert_eq!(parts(1, 30_000, (8_000, 8_000)), 8);
        // One more or less changes nothing.
        assert_eq!([3_999, 4_000, 4_001].map(|all| parts(2, all, (1, 1))), [2; 3]);
        assert_eq!([3_000, 3_001].map(|all| parts(2, all, (1, 1))), [1, 2]);
    }

    #[test]
    fn what_the_compiler_made_for_a_statement_has_the_name_of_what_it_calls() {
        // Functions from 0x1000, 0x1040 and 0x1050 on.
        let name = |functions: [&[u8]; 3], calls: &[u64]| {
            let table = named(1, 0x1000, functions);
            let mut code = Vec::new();
            for target in calls {
                code.push(0xe8);
                let next = 0x1000 + code.len() as u64 + 4;
                code.extend((target.wrapping_sub(next) as u32).to_le_bytes());
            }
            code.resize(0x40, 0x90);
            let mut memory = Words::default();
            for (at, bytes) in [(0, &table), (0x1000, &code)] {
                for (nth, word) in (0u64..).zip(bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..word.len()].copy_from_slice(word);
                    memory.put(at + 8 * nth, &[u64::from_le_bytes(whole)]);
                }
            }
            let header = Header::parse(table[..HEADER].try_into().expect("72 bytes"));
            let header = header.expect("a header");
            let table = Table::new(header, header.text, InMemory { memory: &memory, at: 0 });
            name_of_start(&memory, &table.expect("a table"), 0x1000)
        };
        let made: [&[u8]; 3] = [b"main.main.gowrap1", b"main.work", b"runtime.newstack"];
        assert_eq!(name(made, &[0x1050, 0x1048, 0x1040]).as_deref(), Some("main.work"));
        // What it calls may be inlined.
        assert_eq!(name(made, &[0x1050]).as_deref(), Some("main.main"));
        let own: [&[u8]; 3] = [b"main.main.func1", b"main.work", b"runtime.newstack"];
        assert_eq!(name(own, &[0x1040]).as_deref(), Some("main.main.func1"));
    }

    #[test]
    fn a_round_in_which_twice_as_many_wait_as_are_read_ends() {
        let mut memory = world(152);
        put_table(&mut memory, &named(1, 0x1000, FUNCTIONS));
        let program = made_up(memory, named(1, 0x1000, FUNCTIONS), LIST);
        let mut reader = Reader::new(program, Names::default()).expect("a list");
        // The first of six waits.
        assert!(!reader.next_batch(1).is_last);
        for (waiting, is_last) in [(2 * ROUND_MAX - 2, false), (2 * ROUND_MAX - 1, true)] {
            let mut all = reader.list.pointers(&reader.memory).expect("a list");
            all.reverse();
            (reader.left, reader.waiting) = (all, waiting);
            assert_eq!(reader.next_batch(1).is_last, is_last, "{waiting}");
        }
    }

    #[test]
    fn words_of_the_runtime_are_states() {
        let reasons = ["sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock", "IO wait"];
        let states = [State::Lock, State::Lock, State::Lock, State::Io];
        assert_eq!(reasons.map(state_of), states.map(RawState::Known));
        let others = [State::Sleep, State::Wait, State::Wait].map(RawState::Known);
        assert_eq!(["sleep", "chan receive", ""].map(state_of), others);
        assert_eq!(state_of("semacquire"), RawState::Futex);
    }
}
