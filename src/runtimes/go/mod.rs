//! Goroutines of Go programs, read from outside while the program runs. Go 1.18 to 1.27.
//!
//! ```text
//! detection       whether a process executes one
//! program         its functions, its variables, whose code is whose
//! goroutine_list  all goroutines, and what each does
//! labels          labels that the program gave them
//! parked          those that wait, read again and again
//! semaphores      for which locks they wait
//! selects         which of them want to send
//! walk            the stack of one
//! ```
//!
//! A goroutine that no thread executes has its stack in memory, and where it goes on in its
//! structure. The program runs meanwhile: a stack counts only if the structure and all bytes of the
//! stack are the same when they are read a second time.

pub mod detection;
mod goroutine_list;
pub mod labels;
pub mod parked;
mod program;
mod selects;
mod semaphores;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::monotonic;
use crate::model::facts::goroutines::{Goroutine, Goroutines};
use crate::model::vocabulary::go_functions::lock_before;
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
pub use detection::is_go;
use goroutine_list::{GOROUTINE, GoroutineList, Layout, Status, read_reasons};
use labels::{LabelsLayout, RawLabels};
use program::Program;
use semaphores::Semaphores;
use walk::{Copied, Frames, walk};

/// Maximum goroutines whose stacks are read.
const STACKS_MAX: usize = 10_000;
/// Maximum bytes of a stack, and of all stacks that are read at once.
const STACK_MAX: u64 = 1 << 20;
const AT_ONCE: usize = 4 << 20;
/// Attempts to read a goroutine that changes.
const ATTEMPTS: usize = 3;

/// Returns the goroutines of a process that no thread executes. `None`: it is no Go program, or
/// cannot be read.
pub fn goroutines_of(pid: u32) -> Option<Goroutines> {
    goroutines_in(Memory::new(pid), &Maps::read(pid).ok()?, pid)
}

/// Returns the same of a process with this memory and these mappings.
pub fn goroutines_in<M: ReadMemory>(memory: M, maps: &Maps, pid: u32) -> Option<Goroutines> {
    let program = Program::find(memory, maps, pid)?;
    Some(Goroutines { pid, ..goroutines(&program)? })
}

/// A goroutine as it was read.
type Read = goroutine_list::Goroutine;

fn goroutines<M: ReadMemory>(program: &Program<M>) -> Option<Goroutines> {
    let list = GoroutineList::read(program)?;
    let reasons = read_reasons(program);
    let mut out = Goroutines::default();
    let mut waiting: Vec<(u64, Read)> = Vec::new();
    for at in list.all.chunks(1024) {
        for (at, one) in at.iter().zip(read(&program.memory, &list.layout, at)) {
            match one {
                None => continue,
                Some(Read { status: Status::Ended, .. }) => continue,
                Some(Read { status: Status::OnThread, .. }) => out.on_threads += 1,
                Some(Read { status: Status::Changing, .. }) => out.unreadable += 1,
                Some(one) => waiting.push((*at, one)),
            }
            out.found += 1;
        }
    }
    let mut frames = Frames::default();
    let mut semaphores = Semaphores::find(program, &list.all);
    let mut todo = &waiting[..waiting.len().min(STACKS_MAX)];
    while !todo.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        while count < todo.len() && (count == 0 || bytes + size(&todo[count].1) <= AT_ONCE) {
            bytes += size(&todo[count].1);
            count += 1;
        }
        let (portion, rest) = todo.split_at(count);
        todo = rest;
        let mut named = |one: &Read, stack: Option<Unchanged>| {
            whole(program, one, &stack?, &reasons, &mut frames)
        };
        read_stacks(program, &list, portion, &mut semaphores, &mut named, &mut out);
    }
    Some(out)
}

/// Reads the structures of goroutines; `None` for one that is unreadable or unknown.
fn read(memory: &impl ReadMemory, layout: &Layout, at: &[u64]) -> Vec<Option<Read>> {
    let pieces: Vec<(u64, usize)> = at.iter().map(|at| (*at, GOROUTINE)).collect();
    let mut bytes = vec![0; GOROUTINE * at.len()];
    match memory.read_pieces(&pieces, &mut bytes) {
        Some(()) => bytes.chunks_exact(GOROUTINE).map(|one| layout.parse(one)).collect(),
        None => {
            let one = |at: &u64| {
                let mut bytes = vec![0; GOROUTINE];
                memory.read_exact(*at, &mut bytes)?;
                layout.parse(&bytes)
            };
            at.iter().map(one).collect()
        }
    }
}

/// Bytes of the stack in use.
fn size(one: &Read) -> usize {
    one.stack_end.saturating_sub(one.sp).min(STACK_MAX) as usize
}

/// Reads the stacks of some goroutines, all at once, and again one by one where they changed.
/// `named`: what is made of a stack.
fn read_stacks<M: ReadMemory>(
    program: &Program<M>,
    list: &GoroutineList,
    portion: &[(u64, Read)],
    semaphores: &mut Semaphores,
    named: &mut dyn FnMut(&Read, Option<Unchanged>) -> Option<Goroutine>,
    out: &mut Goroutines,
) {
    semaphores.update(&program.memory);
    let (memory, layout) = (&program.memory, &list.layout);
    let stacks = unchanged_stacks(memory, layout, semaphores, portion);
    for ((at, one), stack) in portion.iter().zip(stacks) {
        let (mut found, mut is_gone) = (named(one, stack), false);
        for _ in 0..ATTEMPTS {
            if found.is_some() || is_gone {
                break;
            }
            match read(memory, layout, &[*at]).pop().flatten() {
                Some(Read { status: Status::OnThread, .. }) => {
                    out.on_threads += 1;
                    is_gone = true;
                }
                Some(Read { status: Status::Ended, .. }) => {
                    out.found -= 1;
                    is_gone = true;
                }
                Some(now) => {
                    semaphores.update(memory);
                    let stacks = unchanged_stacks(memory, layout, semaphores, &[(*at, now)]);
                    let stack = stacks.into_iter().next().flatten();
                    found = named(&now, stack);
                }
                None => {}
            }
        }
        match found {
            Some(found) if is_of_runtime(&found) => out.found -= 1,
            Some(found) => out.list.push(found),
            None if is_gone => {}
            None => out.unreadable += 1,
        }
    }
}

/// A stack that did not change, and what its goroutine had meanwhile: labels, and the semaphore for
/// which it waited.
struct Unchanged {
    bytes: Vec<u8>,
    labels: RawLabels,
    semaphore: Option<u64>,
}

/// Copies the stacks of goroutines; `None` for one that is unreadable, or changed meanwhile, or
/// whose structure is not what it was.
fn unchanged_stacks(
    memory: &impl ReadMemory,
    layout: &Layout,
    semaphores: &Semaphores,
    portion: &[(u64, Read)],
) -> Vec<Option<Unchanged>> {
    let pieces: Vec<(u64, usize)> = portion.iter().map(|(_, one)| (one.sp, size(one))).collect();
    let copy = || {
        let mut bytes = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        memory.read_pieces(&pieces, &mut bytes).map(|()| bytes)
    };
    let places: Vec<u64> = portion.iter().map(|(at, _)| *at).collect();
    let between = || {
        let awaited = places.iter().map(|at| semaphores.address(memory, *at));
        (read(memory, layout, &places), awaited.collect::<Vec<_>>())
    };
    // The goroutine has them before and afterwards, so they are its own.
    let labels = labels_of(memory, layout, portion);
    let (before, (between, awaited), after) = (copy(), between(), copy());
    let mut from = 0;
    let mut of_one = |(((_, one), again), semaphore): ((&(u64, Read), Option<Read>), _)| {
        let range = from..from + size(one);
        from = range.end;
        let (before, after) = (before.as_ref()?.get(range.clone())?, after.as_ref()?.get(range)?);
        let is_same = before == after && again == Some(*one);
        let labels = || labels.get(&one.labels).cloned().unwrap_or_default();
        is_same.then(|| Unchanged { bytes: before.to_vec(), labels: labels(), semaphore })
    };
    portion.iter().zip(between).zip(awaited).map(&mut of_one).collect()
}

/// Reads the labels of goroutines, by their addresses. Many goroutines have the same ones.
fn labels_of(
    memory: &impl ReadMemory,
    layout: &Layout,
    portion: &[(u64, Read)],
) -> FxHashMap<u64, RawLabels> {
    let mut found = FxHashMap::default();
    let Some(LabelsLayout { form, .. }) = layout.labels else { return found };
    for (_, one) in portion.iter().filter(|(_, one)| one.labels != 0) {
        found.entry(one.labels).or_insert_with(|| labels::read(memory, form, one.labels));
    }
    found
}

/// Whether the runtime started a goroutine for itself, as Go's own dumps tell it
/// (`runtime.isSystemGoroutine`): the collector's workers and the like.
fn is_of_runtime(one: &Goroutine) -> bool {
    let mut outermost = one.frames.iter().rev().map(|(location, _)| &*location.function);
    let start = outermost.find(|name| *name != "runtime.goexit");
    start.is_some_and(|name| name.starts_with("runtime.") && name != "runtime.main")
}

/// Returns a goroutine with its stack, if that is whole.
fn whole<M: ReadMemory>(
    program: &Program<M>,
    one: &Read,
    unchanged: &Unchanged,
    reasons: &[Arc<str>],
    frames: &mut Frames,
) -> Option<Goroutine> {
    let stack = Copied { sp: one.sp, bytes: &unchanged.bytes, pc: one.pc };
    let functions = walk(program, frames, &stack)?;
    let state = match one.status {
        Status::Waiting(reason) => match reasons.get(usize::from(reason)) {
            Some(reason) if !reason.is_empty() => reason.clone(),
            _ => "waiting".into(),
        },
        Status::Preempted => "preempted".into(),
        _ => "runnable".into(),
    };
    let now = monotonic();
    let waited = Some(one.since)
        .filter(|since| *since > 0 && matches!(one.status, Status::Waiting(_)))
        .and_then(|since| now.checked_sub(since));
    let created_by = Some(one.created).filter(|created| *created != 0);
    let created_by =
        created_by.and_then(|created| program.locations_before(created).into_iter().next());
    let lock = unchanged.semaphore.and_then(|semaphore| {
        let names = functions.iter().map(|(location, _)| &*location.function);
        semaphore.checked_sub(lock_before(names)?)
    });
    let labels = labels::frames::text_of(&unchanged.labels).map(Into::into);
    Some(Goroutine { id: one.number, state, waited, lock, labels, frames: functions, created_by })
}
