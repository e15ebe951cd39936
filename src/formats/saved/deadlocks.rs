//! The deadlocks there were at the end, each with its threads.

use std::io::{self, Write};

use super::bytes::{Put, Take};
use super::{Budget, kind};
use crate::model::facts::snapshot::Deadlock;
use crate::model::vocabulary::frame::ThreadKey;

/// Maximum bytes of a block.
const MAX: usize = 64 << 10;

pub fn write(deadlocks: &[Deadlock], out: &mut dyn Write) -> io::Result<()> {
    let mut block = Put::default();
    for Deadlock { since, threads } in deadlocks {
        block.number(*since);
        block.count(threads.len());
        for thread in threads.iter() {
            block.number(thread.pid.into());
            block.number(thread.tid.into());
            block.number(thread.start);
        }
        if block.bytes.len() >= MAX {
            super::block::write(out, kind::DEADLOCKS, &[&std::mem::take(&mut block).bytes])?;
        }
    }
    match block.bytes.is_empty() {
        true => Ok(()),
        false => super::block::write(out, kind::DEADLOCKS, &[&block.bytes]),
    }
}

/// Decodes a block. `None` if it is corrupt; the deadlocks before the corrupt one are kept.
pub fn take(block: &[u8], budget: &mut Budget, deadlocks: &mut Vec<Deadlock>) -> Option<()> {
    let mut take = Take(block);
    while !take.0.is_empty() {
        let since = take.ns()?;
        let count = take.count(3)?;
        budget.take(size_of::<Deadlock>() + count * size_of::<ThreadKey>())?;
        let thread = |take: &mut Take<'_>| {
            Some(ThreadKey { pid: take.small()?, tid: take.small()?, start: take.number()? })
        };
        let threads = (0..count).map(|_| thread(&mut take)).collect::<Option<_>>()?;
        deadlocks.push(Deadlock { since, threads });
    }
    Some(())
}
