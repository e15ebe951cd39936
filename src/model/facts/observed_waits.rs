//! What threads were found to wait for in the course of a session, by look-ups beside the sampling:
//! the file, the peer, the child. The other ends are gone when the session ends.

use crate::model::facts::tables::StackId;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::waits_for::WaitsFor;

/// Maximum kept for a session; later ones are dropped.
pub const MAX: usize = 512;

/// Equal waits of one thread in one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedWait {
    pub thread: ThreadKey,
    /// Where it waited.
    pub stack: StackId,
    pub call: Syscall,
    pub waits_for: WaitsFor,
    /// Number of look-ups that found it.
    pub times: u32,
    /// The time of the last one.
    pub at: Ns,
}

/// Adds `new` to equal ones, or keeps it beside them if there is room. What the other end did is
/// kept as long as it was always the same.
pub fn add(found: &mut Vec<ObservedWait>, new: ObservedWait) {
    let is_same = |old: &&mut ObservedWait| {
        (old.thread, old.stack) == (new.thread, new.stack) && old.waits_for.is_same(&new.waits_for)
    };
    let Some(old) = found.iter_mut().find(is_same) else {
        if found.len() < MAX {
            found.push(new);
        }
        return;
    };
    old.times = old.times.saturating_add(new.times);
    let doing = |wait: &ObservedWait| wait.waits_for.peer.as_ref().and_then(|peer| peer.activity);
    if doing(old) != doing(&new)
        && let Some(peer) = &mut old.waits_for.peer
    {
        peer.activity = None;
    }
    if new.at >= old.at {
        (old.at, old.call) = (new.at, new.call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::peer::{Peer, PeerActivity, PeerProcess};

    fn wait(tid: u32, at: Ns, activity: Option<PeerActivity>) -> ObservedWait {
        let process = PeerProcess { name: "db".into(), pid: 9 };
        let peer = Peer { processes: vec![process], activity, ..Peer::default() };
        ObservedWait {
            thread: ThreadKey { pid: 1, tid, start: 0 },
            stack: StackId(3),
            call: Syscall { number: 45, args: [7, at, 0, 0, 0, 0] },
            waits_for: WaitsFor {
                what: "recv",
                fd: Some(7),
                object: "-> 127.0.0.1:5432".into(),
                peer: Some(peer),
            },
            times: 1,
            at,
        }
    }

    #[test]
    fn equal_waits_are_counted_and_what_the_other_end_did_only_if_always() {
        let mut found = Vec::new();
        let (runs, disk) = (Some(PeerActivity::Runs), Some(PeerActivity::Disk));
        for new in [wait(1, 10, runs), wait(1, 30, runs), wait(2, 20, runs), wait(2, 10, disk)] {
            add(&mut found, new);
        }
        let expected = [
            ObservedWait { times: 2, ..wait(1, 30, runs) },
            ObservedWait { times: 2, ..wait(2, 20, None) },
        ];
        assert_eq!(found, expected);
        let mut elsewhere = wait(1, 40, runs);
        elsewhere.stack = StackId(4);
        add(&mut found, elsewhere);
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn they_are_bounded() {
        let mut found = Vec::new();
        (0..2 * MAX as u32).for_each(|tid| add(&mut found, wait(tid, 1, None)));
        assert_eq!(found.len(), MAX);
        add(&mut found, wait(0, 2, None));
        assert_eq!((found.len(), found[0].times), (MAX, 2));
    }
}
