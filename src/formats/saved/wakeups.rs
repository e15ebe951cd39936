//! Who woke threads. The session block has what holds for all pairs; each block has some pairs.

use std::io::{self, Write};
use std::sync::Arc;

use super::bytes::{Put, Take};
use super::listed::{Listed, string, strings};
use super::{Budget, kind};
use crate::model::vocabulary::wakeup::{Cost, PAIRS_MAX, Pair, SUM_MAX, Waker, Wakeups, Woken};

pub fn write(wakeups: &Wakeups, out: &mut dyn Write) -> io::Result<()> {
    let mut block = Listed::new(kind::WAKEUPS);
    for Pair { waker, woken, count } in &wakeups.pairs {
        block.list.number(woken.pid.into());
        block.list.number(woken.tid.into());
        block.list.number(*count);
        match waker {
            Waker::Thread { pid, tid, name, process, call } => {
                block.list.number(0);
                block.list.number((*pid).into());
                block.list.number((*tid).into());
                block.text(name);
                block.text(process);
                block.list.number((*call).into());
            }
            Waker::Hidden { call } => {
                block.list.number(1);
                block.list.number((*call).into());
            }
            Waker::KernelThread { tid, name } => {
                block.list.number(2);
                block.list.number((*tid).into());
                block.text(name);
            }
            Waker::Interrupt => block.list.number(3),
        }
        block.next(out)?;
    }
    block.end(out)
}

/// Decodes a block's pairs. `None` if it is corrupt; the pairs before the corrupt one are kept.
pub fn take(block: &[u8], budget: &mut Budget, wakeups: &mut Wakeups) -> Option<()> {
    let mut take = Take(block);
    take.number()?;
    let strings = strings(&mut take, budget, &mut |text| text.into())?;
    let mut sum = wakeups.counted();
    for _ in 0..take.count(4)? {
        budget.take(size_of::<Pair>())?;
        let woken = Woken { pid: take.small()?, tid: take.small()? };
        let count = take.number()?;
        sum = sum.checked_add(count).filter(|sum| *sum <= SUM_MAX)?;
        let waker = waker(&mut take, &strings)?;
        if wakeups.pairs.len() == PAIRS_MAX {
            return None;
        }
        wakeups.pairs.push(Pair { waker, woken, count });
    }
    Some(())
}

fn waker(take: &mut Take<'_>, strings: &[Arc<str>]) -> Option<Waker> {
    Some(match take.number()? {
        0 => Waker::Thread {
            pid: take.small()?,
            tid: take.small()?,
            name: string(take, strings)?,
            process: string(take, strings)?,
            call: take.small()?,
        },
        1 => Waker::Hidden { call: take.small()? },
        2 => Waker::KernelThread { tid: take.small()?, name: string(take, strings)? },
        3 => Waker::Interrupt,
        _ => return None,
    })
}

/// Writes all but the pairs.
pub fn write_head(wakeups: &Wakeups, put: &mut Put) {
    let Wakeups { from, duration_ns, pairs: _, lost, seen, cost } = wakeups;
    let (is_estimated, cost_ns) = match cost {
        Cost::Measured(ns) => (false, ns),
        Cost::Estimated(ns) => (true, ns),
    };
    [from, duration_ns, lost, seen, cost_ns].into_iter().for_each(|number| put.number(*number));
    put.flag(is_estimated);
}

pub fn take_head(take: &mut Take<'_>) -> Option<Wakeups> {
    let mut number = || take.number().filter(|number| *number <= SUM_MAX);
    let (from, duration_ns, lost, seen, cost_ns) =
        (number()?, number()?, number()?, number()?, number()?);
    let cost = if take.flag()? { Cost::Estimated(cost_ns) } else { Cost::Measured(cost_ns) };
    Some(Wakeups { from, duration_ns, pairs: Vec::new(), lost, seen, cost })
}
