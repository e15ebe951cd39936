//! Goroutines of Go programs, read from outside while the program runs. Go 1.18 to 1.27.
//!
//! ```text
//! program         its functions, its variables, whose code is whose
//! goroutine_list  all goroutines, and what each does
//! walk            the stack of one
//! ```
//!
//! A goroutine that no thread executes has its stack in memory, and where it goes on in its
//! structure. The program runs meanwhile: a stack counts only if the structure and all bytes of the
//! stack are the same when they are read a second time.

mod goroutine_list;
mod program;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use crate::clock::monotonic;
use crate::model::facts::goroutines::{Goroutine, Goroutines};
use crate::process::maps::Maps;
use crate::process::memory::{Memory, ReadMemory};
use goroutine_list::{GOROUTINE, GoroutineList, Status, read_reasons};
use program::Program;
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
    let maps = Maps::read(pid).ok()?;
    let program = Program::find(Memory::new(pid), &maps, pid)?;
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
        for (at, one) in at.iter().zip(read(program, &list, at)) {
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
    let mut todo = &waiting[..waiting.len().min(STACKS_MAX)];
    while !todo.is_empty() {
        let (mut count, mut bytes) = (0, 0);
        while count < todo.len() && (count == 0 || bytes + size(&todo[count].1) <= AT_ONCE) {
            bytes += size(&todo[count].1);
            count += 1;
        }
        let (portion, rest) = todo.split_at(count);
        todo = rest;
        read_stacks(program, &list, portion, &reasons, &mut frames, &mut out);
    }
    Some(out)
}

/// Reads the structures of goroutines; `None` for one that is unreadable or unknown.
fn read<M: ReadMemory>(
    program: &Program<M>,
    list: &GoroutineList,
    at: &[u64],
) -> Vec<Option<Read>> {
    let pieces: Vec<(u64, usize)> = at.iter().map(|at| (*at, GOROUTINE)).collect();
    let mut bytes = vec![0; GOROUTINE * at.len()];
    match program.memory.read_pieces(&pieces, &mut bytes) {
        Some(()) => bytes.chunks_exact(GOROUTINE).map(|one| list.layout.parse(one)).collect(),
        None => {
            let one = |at: &u64| {
                let mut bytes = vec![0; GOROUTINE];
                program.memory.read_exact(*at, &mut bytes)?;
                list.layout.parse(&bytes)
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
fn read_stacks<M: ReadMemory>(
    program: &Program<M>,
    list: &GoroutineList,
    portion: &[(u64, Read)],
    reasons: &[Arc<str>],
    frames: &mut Frames,
    out: &mut Goroutines,
) {
    let copy = |portion: &[(u64, Read)]| {
        let pieces: Vec<(u64, usize)> =
            portion.iter().map(|(_, one)| (one.sp, size(one))).collect();
        let mut bytes = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        program.memory.read_pieces(&pieces, &mut bytes).map(|()| bytes)
    };
    let places: Vec<u64> = portion.iter().map(|(at, _)| *at).collect();
    let (before, between, after) = (copy(portion), read(program, list, &places), copy(portion));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let mut from = 0;
    for ((at, one), again) in portion.iter().zip(between) {
        let of_it = from..from + size(one);
        from = of_it.end;
        let (a, b) = (before.get(of_it.clone()), after.get(of_it));
        let mut found = match (a, b) {
            (Some(a), Some(b)) if a == b && again == Some(*one) => {
                whole(program, one, a, reasons, frames)
            }
            _ => None,
        };
        let mut ended = false;
        for _ in 0..ATTEMPTS {
            if found.is_some() || ended {
                break;
            }
            let now = read(program, list, &[*at]).pop().flatten();
            match now {
                Some(now) if matches!(now.status, Status::OnThread | Status::Ended) => {
                    ended = true;
                    match now.status {
                        Status::OnThread => out.on_threads += 1,
                        _ => out.found -= 1,
                    }
                }
                Some(now) => {
                    let (a, between, b) = (
                        copy(&[(*at, now)]),
                        read(program, list, &[*at]).pop().flatten(),
                        copy(&[(*at, now)]),
                    );
                    if let (Some(a), Some(b)) = (a, b)
                        && a == b
                        && between == Some(now)
                    {
                        found = whole(program, &now, &a, reasons, frames);
                    }
                }
                None => {}
            }
        }
        match found {
            Some(found) if is_of_runtime(&found) => out.found -= 1,
            Some(found) => out.list.push(found),
            None if ended => {}
            None => out.unreadable += 1,
        }
    }
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
    bytes: &[u8],
    reasons: &[Arc<str>],
    frames: &mut Frames,
) -> Option<Goroutine> {
    let stack = Copied { sp: one.sp, bytes, pc: one.pc };
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
    Some(Goroutine { id: one.number, state, waited, frames: functions, created_by })
}
