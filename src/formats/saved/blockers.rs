//! Blockers in a block of the tables: what threads waited for, and who held it.

use std::sync::Arc;

use super::bytes::Take;
use super::listed::{Listed, string};
use crate::model::facts::tables::{Blocker, Holder, NameId, StackId};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::ThreadKey;

/// Stands for a blocker that a damaged file has lost.
pub const LOST: Blocker =
    Blocker { kind: BlockerKind::Parked, pid: 0, object: 0, class: None, holder: Holder::Unknown };

pub fn write(blocker: &Blocker, block: &mut Listed) {
    let Blocker { kind, pid, object, class, holder } = blocker;
    block.list.number(*kind as u64);
    block.list.number((*pid).into());
    block.list.number(*object);
    block.list.flag(class.is_some());
    if let Some(class) = class {
        block.text(class);
    }
    let numbers: &[u64] = match *holder {
        Holder::Unknown => &[0],
        Holder::Free => &[1],
        Holder::Thread { thread, name, stack } => {
            &[2, thread.pid.into(), thread.tid.into(), thread.start, name.0.into(), stack.0.into()]
        }
        Holder::Foreign { pid, tid } => &[3, pid.into(), tid.into()],
        Holder::Readers(count) => &[4, count.into()],
        Holder::Unmounted => &[5],
    };
    numbers.iter().for_each(|number| block.list.number(*number));
}

/// Decodes a blocker of a file with these numbers of names and stacks. The inner `None`: its kind
/// is known only to a newer sampletop. A holder whose name or stack the file cannot have is
/// unknown.
pub fn take(
    take: &mut Take<'_>,
    strings: &[Arc<str>],
    names: usize,
    stacks: usize,
) -> Option<Option<Blocker>> {
    let kind = u8::try_from(take.number()?).ok().and_then(BlockerKind::of);
    let (pid, object) = (take.small()?, take.number()?);
    let class = if take.flag()? { Some(string(take, strings)?) } else { None };
    let holder = match take.number()? {
        0 => Holder::Unknown,
        1 => Holder::Free,
        2 => {
            let thread =
                ThreadKey { pid: take.small()?, tid: take.small()?, start: take.number()? };
            let (name, stack) = (NameId(take.small()?), StackId(take.small()?));
            let known = (name.0 as usize) < names && (stack.0 as usize) < stacks;
            if known { Holder::Thread { thread, name, stack } } else { Holder::Unknown }
        }
        3 => Holder::Foreign { pid: take.small()?, tid: take.small()? },
        4 => Holder::Readers(take.small()?),
        5 => Holder::Unmounted,
        _ => return None,
    };
    Some(kind.map(|kind| Blocker { kind, pid, object, class, holder }))
}
