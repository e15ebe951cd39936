//! What threads were found to wait for in the course of the session.

use std::io::{self, Write};
use std::sync::Arc;

use super::bytes::Take;
use super::listed::{Listed, string, strings};
use super::threads::{put_call, take_call};
use super::{Budget, kind};
use crate::model::facts::observed_waits::{MAX, ObservedWait};
use crate::model::facts::tables::{StackId, Tables};
use crate::model::projection::waits::{
    Peer, PeerActivity, PeerProcess, WaitsFor, known_call, known_wait,
};
use crate::model::vocabulary::frame::ThreadKey;

/// Maximum processes of a peer. One descriptor is rarely open in more.
const PROCESSES_MAX: usize = 1_024;

pub fn write(waits: &[ObservedWait], out: &mut dyn Write) -> io::Result<()> {
    let mut block = Listed::new(kind::WAITS);
    for wait in waits {
        let ObservedWait { thread, stack, call, waits_for, times, at } = wait;
        block.list.number(thread.pid.into());
        block.list.number(thread.tid.into());
        block.list.number(thread.start);
        block.list.number(stack.0.into());
        put_call(&mut block.list, *call);
        block.list.number((*times).into());
        block.list.number(*at);
        let WaitsFor { what, fd, object, peer } = waits_for;
        block.text(&(*what).into());
        block.list.option(*fd, |put, fd| put.signed(fd.into()));
        block.text(&object.as_str().into());
        block.list.flag(peer.is_some());
        if let Some(peer) = peer {
            write_peer(peer, &mut block);
        }
        block.next(out)?;
    }
    block.end(out)
}

/// The numbers of activities are part of the format.
fn write_peer(peer: &Peer, block: &mut Listed) {
    let Peer { processes, writes, activity, title } = peer;
    let processes = &processes[..processes.len().min(PROCESSES_MAX)];
    block.list.count(processes.len());
    for PeerProcess { name, pid } in processes {
        block.text(&name.as_str().into());
        block.list.number((*pid).into());
    }
    block.list.flag(*writes);
    let number = match activity {
        None => 0,
        Some(PeerActivity::WaitsToo) => 1,
        Some(PeerActivity::Runs) => 2,
        Some(PeerActivity::Disk) => 3,
        Some(PeerActivity::Stopped) => 4,
        Some(PeerActivity::In(_)) => 5,
        Some(PeerActivity::Itself) => 6,
        Some(PeerActivity::NotAccepted) => 7,
        Some(PeerActivity::Full { .. }) => 8,
    };
    block.list.number(number);
    match activity {
        Some(PeerActivity::In(call)) => block.text(&(*call).into()),
        Some(PeerActivity::Full { connections }) => block.list.number((*connections).into()),
        _ => {}
    }
    block.text(&title.as_str().into());
}

/// Decodes a block. `None` if it is corrupt; the waits before the corrupt one are kept. Waits whose
/// words only a newer sampletop knows are passed over.
pub fn take(
    block: &[u8],
    tables: &Tables,
    budget: &mut Budget,
    waits: &mut Vec<ObservedWait>,
) -> Option<()> {
    let mut take = Take(block);
    take.number()?;
    let strings = strings(&mut take, budget, &mut |text| text.into())?;
    for _ in 0..take.count(8)? {
        budget.take(size_of::<ObservedWait>())?;
        let thread = ThreadKey { pid: take.small()?, tid: take.small()?, start: take.number()? };
        let stack = StackId(take.small()?);
        let call = take_call(&mut take)?;
        let (times, at) = (take.small()?, take.ns()?);
        let what = known_wait(&string(&mut take, &strings)?);
        let fd = take.option(|take| i32::try_from(take.signed()?).ok())?;
        let object = owned(string(&mut take, &strings)?, budget)?;
        let peer = if take.flag()? { Some(peer(&mut take, &strings, budget)?) } else { None };
        let is_known = (stack.0 as usize) < tables.stack_count() && waits.len() < MAX;
        let peer = match peer {
            // The word of its activity is unknown.
            Some(None) => continue,
            Some(Some(peer)) => Some(peer),
            None => None,
        };
        if let Some(what) = what.filter(|_| is_known) {
            let waits_for = WaitsFor { what, fd, object, peer };
            waits.push(ObservedWait { thread, stack, call, waits_for, times, at });
        }
    }
    Some(())
}

/// Decodes a peer. The inner `None`: what it does is known only to a newer sampletop.
fn peer(take: &mut Take<'_>, strings: &[Arc<str>], budget: &mut Budget) -> Option<Option<Peer>> {
    let count = take.count(2)?;
    if !(1..=PROCESSES_MAX).contains(&count) {
        return None;
    }
    let mut processes = Vec::with_capacity(count);
    for _ in 0..count {
        budget.take(size_of::<PeerProcess>())?;
        let name = owned(string(take, strings)?, budget)?;
        processes.push(PeerProcess { name, pid: take.small()? });
    }
    let writes = take.flag()?;
    let activity = match take.number()? {
        0 => Some(None),
        1 => Some(Some(PeerActivity::WaitsToo)),
        2 => Some(Some(PeerActivity::Runs)),
        3 => Some(Some(PeerActivity::Disk)),
        4 => Some(Some(PeerActivity::Stopped)),
        5 => known_call(&string(take, strings)?).map(|call| Some(PeerActivity::In(call))),
        6 => Some(Some(PeerActivity::Itself)),
        7 => Some(Some(PeerActivity::NotAccepted)),
        8 => Some(Some(PeerActivity::Full { connections: take.small()? })),
        _ => return None,
    };
    let title = owned(string(take, strings)?, budget)?;
    Some(activity.map(|activity| Peer { processes, writes, activity, title }))
}

/// A wait owns its texts: many may refer to one long string of the block.
fn owned(text: Arc<str>, budget: &mut Budget) -> Option<String> {
    budget.take(text.len())?;
    Some(text.as_ref().to_owned())
}
