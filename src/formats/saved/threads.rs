//! The last state and stack of each thread.

use std::io::{self, Write};

use super::bytes::{Put, Take};
use super::listed::BLOCK;
use super::{Budget, kind};
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::{BlockerId, NameId, StackId, Tables};
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::ThreadKey;
use crate::model::vocabulary::state::{RawState, State};

pub fn write(threads: &[ThreadNow], out: &mut dyn Write) -> io::Result<()> {
    let mut block = Put::default();
    for now in threads {
        block.number(now.thread.pid.into());
        block.number(now.thread.tid.into());
        block.number(now.thread.start);
        block.number(now.name.0.into());
        block.number(now.stack.0.into());
        block.number(match now.state {
            RawState::Known(state) => state as u64,
            RawState::Futex => FUTEX,
        });
        block.number(now.since);
        block.number(now.run_ns);
        block.flag(now.recovered);
        block.option(now.syscall, put_call);
        block.number(now.blocker.0.into());
        if block.bytes.len() >= BLOCK {
            super::block::write(out, kind::THREADS, &[&std::mem::take(&mut block).bytes])?;
        }
    }
    if block.bytes.is_empty() {
        Ok(())
    } else {
        super::block::write(out, kind::THREADS, &[&block.bytes])
    }
}

const FUTEX: u64 = 15;

/// Replaces an argument that may be an address: addresses are private.
pub const ADDRESS: u64 = 1 << 63;

/// Returns the argument if it fits in 32 bits, as descriptors, counts and flags do; negative ones
/// included.
pub fn shown(arg: u64) -> u64 {
    let is_int = u32::try_from(arg).is_ok() || i32::try_from(arg as i64).is_ok();
    if is_int { arg } else { ADDRESS }
}

/// Appends a system call without what may be addresses.
pub fn put_call(put: &mut Put, call: Syscall) {
    put.signed(call.number.into());
    call.args.iter().for_each(|arg| put.signed(shown(*arg) as i64));
}

pub fn take_call(take: &mut Take<'_>) -> Option<Syscall> {
    let mut call = Syscall { number: i32::try_from(take.signed()?).ok()?, args: [0; 6] };
    for arg in &mut call.args {
        *arg = take.signed()? as u64;
    }
    Some(call)
}

/// Decodes a block's threads. `None` if it is corrupt; the threads before the corrupt one are kept.
pub fn take(
    format: u64,
    block: &[u8],
    tables: &Tables,
    budget: &mut Budget,
    threads: &mut Vec<ThreadNow>,
) -> Option<()> {
    let mut take = Take(block);
    while !take.0.is_empty() {
        budget.take(size_of::<ThreadNow>())?;
        let now = ThreadNow {
            thread: ThreadKey { pid: take.small()?, tid: take.small()?, start: take.number()? },
            name: NameId(take.small()?),
            stack: StackId(take.small()?),
            state: match take.number()? {
                FUTEX => RawState::Futex,
                state => RawState::Known(*State::ALL.get(usize::try_from(state).ok()?)?),
            },
            since: take.ns()?,
            run_ns: take.ns()?,
            recovered: take.flag()?,
            syscall: take.option(take_call)?,
            blocker: BlockerId(if format < 2 { 0 } else { take.small()? }),
        };
        let known = (now.stack.0 as usize) < tables.stack_count()
            && (now.name.0 as usize) < tables.name_count();
        threads.push(known.then_some(now)?);
    }
    Some(())
}
