//! Holders that wait themselves, and what they wait for.

use super::locks::{HELD, MS, mine, now, says};
use super::*;
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::{Blocker, BlockerId, Holder, StackId};
use crate::model::projection::waits::{Asked, Peer, PeerProcess, WaitsFor};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::event::Syscall;

const POLL: RawState = RawState::Known(State::Poll);
const FLUSHES: &str = "start;Log::flush;libc.so.6!write";

/// Waits of two requests for the timer, of the timer for `log` for this time, and of `log` for
/// `last`, where that is not empty.
fn chain_of_waits(timer_ms: u64, last: &str) -> String {
    let mut world = World::new();
    let by_timer = world.held_by(0x10, "timer", "start;reload;libc.so.6!pthread_mutex_lock");
    world.waits("http-1", 200, by_timer.clone());
    world.waits("http-2", 200, by_timer);
    let by_log = world.held_by(0x20, "log", FLUSHES);
    world.waits("timer", timer_ms, by_log);
    if !last.is_empty() {
        let by_last = world.held_by(0x30, last, "start;Disk::wait;libc.so.6!fsync");
        world.waits("log", 200, by_last);
    }
    says(&mut world).expect("a lock").sentence()
}

#[test]
fn a_holder_that_waits_itself_is_followed_to_the_last_one() {
    let of_two = "held by timer in start > reload, who waits for log in Log::flush > write";
    assert_eq!(chain_of_waits(100, "").split_once(", held").map(|parts| parts.1), of_two.get(4..));
    // It held the lock for about 200 ms, and waited for less than half of that.
    let alone = chain_of_waits(99, "");
    assert!(alone.ends_with("held by timer in start > reload > pthread_mutex_lock"), "{alone}");
    let of_three = chain_of_waits(200, "disk");
    let expected = "reload, who waits for log, who waits for disk in Disk::wait > fsync";
    assert!(of_three.ends_with(expected), "{of_three}");
    // Two that wait for each other are not followed for ever.
    let circle = chain_of_waits(200, "timer");
    assert!(circle.contains("who waits for log, who waits for timer"), "{circle}");
}

#[test]
fn a_holder_that_computes_is_on_a_core() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", "start;recompute");
    world.waits("http-1", 90, held);
    world.fact("timer", "start;recompute", State::Run, 50 * MS);
    let sentence = says(&mut world).expect("a lock").sentence();
    assert!(sentence.ends_with("held by timer in start > recompute (on CPU)"), "{sentence}");
}

#[test]
fn the_sentence_about_a_lock_says_what_its_holder_waits_for() {
    let mut world = World::new();
    let held = world.held_by(0x10, "timer", "start;Rules::log;libc.so.6!write");
    world.waits("http-1", 300, held.clone());
    let Holder::Thread { thread, name, stack } = held.holder else { panic!("a thread") };
    let mut snapshot = world.snapshot();
    let syscall = Some(Syscall { number: 1, args: [4, 0, 0, 0, 0, 0] });
    let state = RawState::Known(State::Io);
    let mut now = ThreadNow {
        thread,
        name,
        stack,
        state,
        since: 10,
        syscall,
        blocker: BlockerId::NONE,
        run_ns: 0,
        recovered: false,
    };
    let processes = vec![PeerProcess { name: "logger".into(), pid: 77 }];
    let peer = Some(Peer { processes, ..Peer::default() });
    let waits_for = WaitsFor { what: "write", fd: Some(4), object: "pipe".into(), peer };
    let answer = |_: &Asked| Some(waits_for.clone());
    let mut says = |now: ThreadNow| {
        snapshot.threads = [now].into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        findings(&snapshot, &projection, 10_000_000, &answer, Wording::WHOLE)[0].sentence()
    };
    let sentence = says(now);
    let end = "held by timer in start > Rules::log > write pipe -> logger[77]";
    assert!(sentence.ends_with(end), "{sentence}");
    // It has left the place in which it had the lock.
    now.stack = StackId(1);
    let sentence = says(now);
    assert!(sentence.ends_with("held by timer in start > Rules::log > write"), "{sentence}");
}

#[test]
fn a_chain_of_waits_ends_where_nobody_is_known_or_where_it_began() {
    // Who waits for whom; the chain from the first.
    let of_locks = |waits: &[(&str, &str)], objects: &[u64], last: Option<Holder>| {
        let mut world = World::new();
        for ((waiting, holder), object) in waits.iter().zip(objects.iter().copied()) {
            let held = world.held_by(object, holder, HELD);
            world.waits(waiting, 300, held.clone());
            if let Some(holder) = last {
                let last = Blocker { object: 99, holder, ..held };
                world.waits(waits.last().expect("some").1, 300, last);
            }
        }
        let mut snapshot = world.snapshot();
        // The newest fact of each thread says what it does now.
        let mut threads: Vec<ThreadNow> = Vec::new();
        for (key, _) in &world.facts {
            threads.retain(|now| now.thread != key.thread || key.blocker == BlockerId::NONE);
            if threads.iter().all(|now| now.thread != key.thread) {
                threads.push(now(key));
            }
        }
        snapshot.threads = threads.into();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let first = snapshot
            .threads
            .iter()
            .find(|now| &**snapshot.tables.name(now.name) == waits[0].0)
            .expect("it waits");
        let chain = projection.wait_chain(&snapshot, first).expect("a holder");
        let names: Vec<String> =
            chain.holders.iter().map(|holder| holder.name.to_string()).collect();
        (names.join(" "), chain.end.map(|end| end.holder), chain.is_circle)
    };
    let chain = |waits: &[(&str, &str)], last| of_locks(waits, &[16, 17, 18], last);
    assert_eq!(chain(&[("a", "b"), ("b", "c")], None), ("b c".into(), None, false));
    // The second had the lock when the first was observed, and waits for it again.
    assert_eq!(of_locks(&[("a", "b"), ("b", "c")], &[16, 16], None), ("c".into(), None, false));
    let in_turn = of_locks(&[("a", "b"), ("b", "a")], &[16, 16], None);
    assert_eq!(in_turn, ("".into(), None, true));
    assert_eq!(chain(&[("a", "b"), ("b", "a")], None), ("b".into(), None, true));
    assert_eq!(chain(&[("a", "b"), ("b", "c"), ("c", "b")], None), ("b c".into(), None, true));
    let readers = Holder::Readers(3);
    assert_eq!(chain(&[("a", "b")], Some(readers)), ("b".into(), Some(readers), false));
    assert_eq!(chain(&[("a", "b")], Some(Holder::Free)), ("b".into(), None, false));
}

#[test]
fn a_thread_that_waits_for_work_is_in_no_block() {
    for (kind, is_known) in [
        (BlockerKind::Monitor, false),
        (BlockerKind::ClassInit, false),
        (BlockerKind::Future, false),
        // It may have been forgotten to give these back.
        (BlockerKind::OwnedLock, true),
        (BlockerKind::Mutex, true),
        (BlockerKind::ThreadEnd, true),
    ] {
        let mut world = World::new();
        let held = world.held_by(0x10, "pool-7", "start_thread;loop;epoll_wait");
        world.waits("http-1", 300, Blocker { kind, ..held });
        let mut snapshot = world.snapshot();
        let threads = world.facts.iter().map(|(key, _)| now(key)).map(|now| ThreadNow {
            state: if now.blocker == BlockerId::NONE { POLL } else { now.state },
            ..now
        });
        snapshot.threads = threads.collect();
        let projection = world.project_with(&mut Projector::default(), &snapshot, &mine());
        let waiting = snapshot.threads.iter().find(|now| now.blocker != BlockerId::NONE);
        let chain = projection.wait_chain(&snapshot, waiting.expect("it waits"));
        assert_eq!(chain.is_some(), is_known, "{kind:?}");
    }
}
