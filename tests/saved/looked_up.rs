//! What is looked up and counted beside the sampling: waits, and who wakes whom.

use std::sync::Arc;

use sampletop::model::facts::observed_waits::{self, ObservedWait};
use sampletop::model::facts::recorder::View;
use sampletop::model::facts::snapshot::ThreadNow;
use sampletop::model::facts::tables::StackId;
use sampletop::model::projection::waits::{Peer, PeerActivity, PeerProcess, WaitsFor};
use sampletop::model::vocabulary::event::Syscall;
use sampletop::model::vocabulary::frame::{SECOND, ThreadKey};
use sampletop::model::vocabulary::wakeup::{Cost, Pair, Waker, Wakeups, Woken};

use super::{Random, START};

fn peer(random: &mut Random) -> Peer {
    let process = |pid: u64| PeerProcess {
        name: if pid < 83 { "größe".into() } else { "db".into() },
        pid: pid as u32,
    };
    Peer {
        processes: (0..1 + random.below(6)).map(|nth| process(81 + nth)).collect(),
        writes: random.below(2) == 0,
        activity: random.one(&[
            None,
            Some(PeerActivity::WaitsToo),
            Some(PeerActivity::Runs),
            Some(PeerActivity::Disk),
            Some(PeerActivity::Stopped),
            Some(PeerActivity::In("fsync")),
            Some(PeerActivity::Itself),
            Some(PeerActivity::NotAccepted),
            Some(PeerActivity::Full { connections: 129 }),
        ]),
        title: random.one(&["", "SELECT waiting"]).into(),
    }
}

fn waits_for(random: &mut Random) -> WaitsFor {
    WaitsFor {
        what: random.one(&["read", "epoll", "mutex", "monitor enter", "wait4", "park", "poll"]),
        fd: random.one(&[None, Some(3), Some(-1), Some(i32::MAX)]),
        object: random.one(&["", "/srv/größe/log", "pipe", "-> 10.0.3.9:5432", "0x7f00"]).into(),
        peer: if random.below(2) == 0 { Some(peer(random)) } else { None },
    }
}

/// Returns waits of this session's threads, some of them in their present call.
pub fn waits(random: &mut Random, view: &View) -> Arc<[ObservedWait]> {
    let mut waits = Vec::new();
    for _ in 0..random.below(40) {
        let call = Syscall { number: 7, args: [3, 128, 1 << 40, u64::MAX, 0, 9] };
        let of = |now: &ThreadNow| (now.thread, now.stack, now.syscall.unwrap_or(call));
        let other = ThreadKey { pid: 9, tid: 100, start: u64::MAX };
        let nows: Vec<_> = view.threads.iter().map(of).collect();
        let anywhere = StackId(random.below(view.tables.stack_count() as u64) as u32);
        let (thread, stack, call) = random.one(&[&nows[..], &[(other, anywhere, call)]].concat());
        let at = START + random.below(view.at - START + 1);
        let (waits_for, times) = (waits_for(random), 1 + random.below(9) as u32);
        observed_waits::add(&mut waits, ObservedWait { thread, stack, call, waits_for, times, at });
    }
    waits.into()
}

/// Returns counts of some wakeups; of one session in eight none were counted.
pub fn wakeups(random: &mut Random) -> Option<Arc<Wakeups>> {
    if random.below(8) == 0 {
        return None;
    }
    let thread = |pid, tid: u64, call| Waker::Thread {
        pid,
        tid: tid as u32,
        name: "work-größe".into(),
        process: "java".into(),
        call,
    };
    let mut pair = || {
        let waker = match random.below(5) {
            0 => thread(9, 100 + random.below(4), 202),
            1 => thread(812, 813, 44),
            2 => Waker::Hidden { call: 1 },
            3 => Waker::KernelThread { tid: 33, name: "kworker/0:1".into() },
            _ => Waker::Interrupt,
        };
        let tid = 100 + random.below(7) as u32;
        let woken = Woken { pid: if tid < 104 { 9 } else { 12 }, tid };
        Pair { waker, woken, count: random.below(1 << 40) }
    };
    let pairs = (0..12).map(|_| pair()).collect();
    let cost = random.below(SECOND);
    Some(Arc::new(Wakeups {
        from: START + 7,
        duration_ns: 10 * SECOND,
        pairs,
        lost: random.below(5),
        seen: 1 << 50,
        cost: random.one(&[Cost::Measured(cost), Cost::Estimated(cost)]),
    }))
}
