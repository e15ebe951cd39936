use super::*;
use crate::model::facts::interner::Interner;
use crate::model::facts::tables::Named;
use crate::model::vocabulary::frame::{FrameCode, RawFrame};

fn asked(number: i32, args: [u64; 6], lock: Lock) -> Asked {
    Asked { thread: ThreadKey { pid: 1, tid: 2, start: 3 }, call: Syscall { number, args }, lock }
}

fn text(number: i32, args: &[u64], facts: &Facts) -> String {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    describe(&asked(number, all, Lock::No), facts).map_or("-".into(), |wait| wait.to_string())
}

fn files(files: &[(i32, &str)]) -> Facts {
    Facts {
        files: files.iter().map(|(fd, file)| (*fd, (*file).to_owned())).collect(),
        ..Facts::default()
    }
}

#[test]
fn calls_with_one_descriptor() {
    let calls = [
        (0, "read"),
        (1, "write"),
        (17, "pread"),
        (18, "pwrite"),
        (19, "readv"),
        (20, "writev"),
        (40, "sendfile"),
        (43, "accept"),
        (288, "accept"),
        (44, "send"),
        (45, "recv"),
        (46, "sendmsg"),
        (47, "recvmsg"),
        (299, "recvmmsg"),
        (307, "sendmmsg"),
        (72, "fcntl"),
        (73, "flock"),
        (74, "fsync"),
        (75, "fdatasync"),
        (77, "ftruncate"),
        (217, "getdents"),
        (242, "mq_send"),
        (243, "mq_receive"),
        (285, "fallocate"),
        (426, "io_uring_enter"),
    ];
    for (number, name) in calls {
        // The upper half of the register is not part of an int.
        let fd = 0xdead_beef_0000_0025;
        assert_eq!(text(number, &[fd], &Facts::default()), format!("{name} fd 37"));
        assert_eq!(
            text(number, &[fd], &files(&[(37, "-> db:1")])),
            format!("{name} fd 37 -> db:1")
        );
        assert_eq!(text(number, &[fd], &files(&[(36, "-> db:1")])), format!("{name} fd 37"));
    }
    assert_eq!(text(0, &[u64::MAX], &Facts::default()), "read fd -1");
}

#[test]
fn calls_without_an_object() {
    let calls = [
        (26, "msync"),
        (34, "pause"),
        (58, "vfork"),
        (65, "semop"),
        (220, "semop"),
        (69, "msgsnd"),
        (70, "msgrcv"),
        (128, "sigtimedwait"),
        (130, "sigsuspend"),
        (208, "io_getevents"),
        (333, "io_getevents"),
        (449, "futex_waitv"),
        (219, "restart_syscall"),
    ];
    for (number, name) in calls {
        assert_eq!(text(number, &[5, 5, 5, 5, 5, 5], &Facts::default()), name);
    }
    for number in [-1, i32::MIN, i32::MAX, 39] {
        assert_eq!(text(number, &[], &Facts::default()), "-", "{number}");
    }
}

#[test]
fn many_descriptors() {
    for epoll in [232, 281, 441] {
        assert_eq!(text(epoll, &[7], &Facts::default()), "epoll fd 7");
        let watched = |n| Facts { watched: Some(n), ..Facts::default() };
        assert_eq!(text(epoll, &[7], &watched(12)), "epoll fd 7 (12 descriptors)");
        assert_eq!(text(epoll, &[7], &watched(1)), "epoll fd 7 (1 descriptor)");
    }
    for poll in [7, 271] {
        assert_eq!(text(poll, &[64, 3], &Facts::default()), "poll 3 descriptors");
        let found = files(&[(4, "pipe"), (5, "-> [::1]:443"), (6, "")]);
        assert_eq!(
            text(poll, &[64, 3], &found),
            "poll 3 descriptors: fd 4 pipe, fd 5 -> [::1]:443, fd 6"
        );
        assert_eq!(
            text(poll, &[64, 9], &found),
            "poll 9 descriptors: fd 4 pipe, fd 5 -> [::1]:443, fd 6, ..."
        );
        assert_eq!(text(poll, &[64, 1], &files(&[(4, "pipe")])), "poll fd 4 pipe");
        assert_eq!(text(poll, &[64, 1], &Facts::default()), "poll 1 descriptor");
    }
    for select in [23, 270] {
        assert_eq!(text(select, &[8, 1, 2, 3], &Facts::default()), "select");
        let found = Facts { watched: Some(2), ..files(&[(4, "pipe"), (5, "pipe")]) };
        assert_eq!(
            text(select, &[8, 1, 2, 3], &found),
            "select 2 descriptors: fd 4 pipe, fd 5 pipe"
        );
    }
}

#[test]
fn sleeps() {
    let time = |time| Facts { time: Some(time), ..Facts::default() };
    let two = time(Time::Whole(2 * SECOND));
    // nanosleep, clock_nanosleep, and poll and select without descriptors.
    for (number, args) in
        [(35, [64, 0, 0]), (230, [0, 0, 64]), (7, [0, 0, 2000]), (23, [0, 0, 0]), (270, [0, 0, 0])]
    {
        assert_eq!(text(number, &args, &two), "sleep 2.0 s", "{number}");
        assert_eq!(text(number, &args, &Facts::default()), "sleep", "{number}");
    }
    assert_eq!(text(230, &[1, 1, 64], &time(Time::Left(1_500_000))), "sleep 1.5 ms more");
    let sleep = |number, args| read_call(Syscall { number, args }).map(|(_, object)| object);
    assert_eq!(
        sleep(230, [1, 1, 64, 0, 0, 0]),
        Some(Object::Sleep(Timer::Until { clock: 1, at: 64 }))
    );
    assert_eq!(sleep(230, [1, 0, 64, 0, 0, 0]), Some(Object::Sleep(Timer::Timespec(64))));
    assert_eq!(sleep(7, [0, 0, u64::MAX, 0, 0, 0]), Some(Object::Sleep(Timer::Ms(-1))));
    assert_eq!(sleep(23, [0, 0, 0, 0, 64, 0]), Some(Object::Sleep(Timer::Timeval(64))));
    for (ns, words) in [(1_500_000, "1.5 ms"), (250_999_999, "250 ms"), (3600 * SECOND, "3600 s")] {
        assert_eq!(span(ns), words);
    }
}

#[test]
fn children_that_were_found_have_names() {
    let peer = |pids: &[u32], title: &str| {
        let process = |pid: &u32| PeerProcess { name: "sleep".into(), pid: *pid };
        let processes = pids.iter().map(process).collect();
        let title = title.to_owned();
        let other_end = Some(Peer { processes, title, ..Peer::default() });
        Facts { other_end, ..Facts::default() }
    };
    assert_eq!(text(61, &[4711], &peer(&[4711], "3")), "wait4 child sleep[4711] 3");
    let any = [-1i64 as u64];
    assert_eq!(text(61, &any, &peer(&[7, 8], "")), "wait4 any child: sleep[7,8]");
    assert_eq!(text(247, &[3, 9], &peer(&[7], "")), "waitid fd 9 child sleep[7]");
}

#[test]
fn children_paths_and_peers() {
    assert_eq!(text(61, &[4711], &Facts::default()), "wait4 child 4711");
    assert_eq!(text(61, &[-1i64 as u64], &Facts::default()), "wait4 any child");
    assert_eq!(text(61, &[0], &Facts::default()), "wait4 children of its group");
    assert_eq!(text(61, &[-8i64 as u64], &Facts::default()), "wait4 children of group 8");
    assert_eq!(text(61, &[0x8000_0000], &Facts::default()), "wait4 children of group -2147483648");
    assert_eq!(text(247, &[0, 9], &Facts::default()), "waitid any child");
    assert_eq!(text(247, &[1, 9], &Facts::default()), "waitid child 9");
    assert_eq!(text(247, &[2, 9], &Facts::default()), "waitid children of group 9");
    assert_eq!(text(247, &[3, 9], &Facts::default()), "waitid fd 9 child");
    assert_eq!(text(247, &[8, 9], &Facts::default()), "waitid");
    let path = Facts { path: Some("/mnt/nfs/x".into()), ..Facts::default() };
    assert_eq!(text(257, &[0, 64], &path), "open /mnt/nfs/x");
    assert_eq!(text(332, &[0, 64], &path), "stat /mnt/nfs/x");
    assert_eq!(text(2, &[64], &Facts::default()), "open");
    let peer = Facts { peer: Some("[::1]:443".into()), ..files(&[(9, "tcp")]) };
    assert_eq!(text(42, &[9, 64, 28], &peer), "connect fd 9 -> [::1]:443");
    assert_eq!(
        text(42, &[9, 64, 28], &files(&[(9, "-> 10.0.0.1:80")])),
        "connect fd 9 -> 10.0.0.1:80"
    );
}

/// Files keep the words as text.
#[test]
fn every_word_is_found_again() {
    const LOCKS: [Lock; 9] = [
        Lock::No,
        Lock::Mutex,
        Lock::RwLock,
        Lock::Other,
        Lock::Monitor,
        Lock::Park,
        Lock::ParkOnCondition,
        Lock::ObjectWait,
        Lock::Sleep,
    ];
    let waits = (0..600)
        .flat_map(|number| [0, 1, 3].map(|arg| LOCKS.map(|lock| asked(number, [arg; 6], lock))));
    let words = waits.flatten().filter_map(|asked| describe(&asked, &Facts::default()));
    let words: std::collections::BTreeSet<&str> = words.map(|wait| wait.what).collect();
    assert!(words.len() > 60 && words.contains("park"), "{words:?}");
    for word in words {
        assert_eq!(known_wait(word), Some(word));
    }
    assert_eq!((known_wait("fsynd"), known_call("mutex")), (None, None));
}

#[test]
fn locks() {
    let futex = |command: u64, lock, holder: Option<&str>| {
        let facts = Facts { holder: holder.map(str::to_owned), ..Facts::default() };
        let wait = describe(&asked(202, [0x7f00_1234, command, 2, 0, 0, 0], lock), &facts);
        wait.expect("a futex").to_string()
    };
    let private = 128;
    assert_eq!(futex(private, Lock::No, None), "futex 0x7f001234");
    // Only a mutex has a holder.
    assert_eq!(futex(private, Lock::No, Some("worker-3")), "futex 0x7f001234");
    assert_eq!(futex(private, Lock::Other, Some("worker-3")), "lock 0x7f001234");
    assert_eq!(futex(private, Lock::RwLock, Some("worker-3")), "rwlock 0x7f001234");
    assert_eq!(futex(private, Lock::Mutex, Some("worker-3")), "mutex held by worker-3");
    assert_eq!(futex(private, Lock::Mutex, None), "mutex 0x7f001234");
    assert_eq!(futex(6 | private, Lock::Other, Some("worker-3")), "mutex held by worker-3");
    assert_eq!(futex(13, Lock::No, None), "mutex 0x7f001234");
    for (lock, said) in [
        (Lock::Monitor, "monitor enter"),
        (Lock::ClassInit, "class initialisation"),
        (Lock::Park, "park"),
        (
            Lock::ParkOnCondition,
            "park on java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject",
        ),
        (Lock::ObjectWait, "Object.wait"),
        (Lock::Sleep, "sleep"),
    ] {
        assert_eq!(futex(private | 9, lock, Some("worker-3")), said);
    }
}

fn wait(what: &'static str, fd: Option<i32>, object: &str) -> WaitsFor {
    WaitsFor { what, fd, object: object.to_owned(), peer: None }
}

#[test]
fn many_waits_on_one_line() {
    let mut waits: Vec<WaitsFor> =
        (0..12).map(|n| wait("recv", Some(30 + n), "-> db:5432")).collect();
    waits.extend((0..3).map(|_| wait("mutex", None, "held by worker-3")));
    waits.push(wait("recv", Some(3), "-> cache:11211"));
    waits.extend([wait("epoll", Some(7), ""), wait("epoll", Some(7), "")]);
    let lines: Vec<String> =
        summary(waits.iter()).iter().map(|(count, text)| format!("{count} {text}")).collect();
    let expected = [
        "12 recv fd.. -> db:5432",
        "3 mutex held by worker-3",
        "2 epoll fd 7",
        "1 recv fd 3 -> cache:11211",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn peers_that_all_differ_are_not_listed() {
    let mut waits: Vec<WaitsFor> =
        (0..40).map(|n| wait("recv", Some(n), &format!("-> 10.0.0.9:{n}"))).collect();
    waits.extend((0..9).map(|n| wait("sleep", None, &format!("{n}.0 s"))));
    waits.extend([wait("read", Some(1), "pipe"), wait("read", Some(1), "pipe")]);
    let expected = [(40, "recv fd.."), (9, "sleep"), (2, "read fd 1 pipe")]
        .map(|(n, text)| (n, text.to_owned()));
    assert_eq!(summary(waits.iter()), expected);
}

/// Returns the lock of a stack, innermost first. `!` precedes the kernel's functions; those with
/// `::` are HotSpot's, those with `.` Java's.
fn named_wait(frames: &[&str]) -> Lock {
    let mut interner = Interner::new(1 << 10);
    let raw: Vec<RawFrame> =
        (1..=frames.len() as u64).map(|id| RawFrame::new(FrameCode::Runtime { id })).collect();
    let stack = interner.stack(&raw);
    for (raw, name) in raw.iter().zip(frames) {
        let (kind, module) = match name {
            name if name.starts_with('!') => (FrameKind::Kernel, ""),
            name if name.contains("::") => (FrameKind::Native, "libjvm.so"),
            name if name.contains('.') => (FrameKind::Java, ""),
            name if name.contains(' ') => (FrameKind::Jit, "[jvm]"),
            _ => (FrameKind::Native, "libc.so.6"),
        };
        let location = Location {
            module: module.into(),
            ..Location::named(name.trim_start_matches('!'), kind)
        };
        interner.set_named(*raw, Named::known([location]));
    }
    of_names(&interner.tables(), stack)
}

#[test]
fn what_a_futex_is_to_the_functions_above_it() {
    let (park, support) =
        ("jdk.internal.misc.Unsafe.park", "java.util.concurrent.locks.LockSupport.park");
    let condition = |method: &str| format!("{CONDITION}.{method}");
    let (awaits, signals) = (condition("awaitNanos"), condition("signal"));
    for (frames, lock) in [
        (&["pthread_cond_wait", park, support, "shop.Pool.run"][..], Lock::Park),
        (&["sun.misc.Unsafe.park", support], Lock::Park),
        (
            &[park, support, &awaits, "java.util.concurrent.LinkedBlockingQueue.take"],
            Lock::ParkOnCondition,
        ),
        (&[park, support, &signals, "shop.Pool.run"], Lock::Park),
        (&[park, support, "shop.Pool.take", &awaits], Lock::Park),
        (&["pthread_cond_wait", "ObjectMonitor::wait", "java.lang.Object.wait"], Lock::ObjectWait),
        (&["java.lang.Object.wait", "shop.Queue.take"], Lock::ObjectWait),
        (&["pthread_cond_wait", "ObjectMonitor::enter", "shop.Shop.pay"], Lock::Monitor),
        (&["pthread_cond_wait", "monitor enter", "shop.Shop.pay"], Lock::Monitor),
        (
            &["ObjectMonitor::wait", "InstanceKlass::initialize_impl", "shop.Shop.pay"],
            Lock::ClassInit,
        ),
        (&["pthread_cond_timedwait", "JVM_Sleep", "java.lang.Thread.sleep"], Lock::Sleep),
        (&["!nanosleep", "syscall", "main"], Lock::No),
        (&["!mutex_lock", "__lll_lock_wait", "___pthread_mutex_lock", "main"], Lock::Mutex),
        (&["__pthread_rwlock_wrlock", "main"], Lock::RwLock),
        (&["g_mutex_lock_slowpath", "main"], Lock::Other),
        (&["std::sys::Condvar::wait", "pthread_mutex_lock", "main"], Lock::No),
        (&["syscall", "main"], Lock::No),
    ] {
        assert_eq!(named_wait(frames), lock, "{frames:?}");
    }
}

fn peer(processes: &[(&str, u32)], activity: Option<PeerActivity>) -> Peer {
    let named = |(name, pid): &(&str, u32)| PeerProcess { name: (*name).to_owned(), pid: *pid };
    Peer { processes: processes.iter().map(named).collect(), activity, ..Peer::default() }
}

#[test]
fn the_process_at_the_other_end() {
    use PeerActivity::{Disk, In, Runs, Stopped, WaitsToo};
    let postgres = peer(&[("postgres", 812)], None);
    let titled = Peer { title: "SELECT".into(), activity: Some(Runs), ..postgres.clone() };
    let workers = peer(&[("sh", 80), ("web", 81), ("web", 82)], Some(WaitsToo));
    let many = peer(&[("web", 1), ("web", 2), ("web", 3), ("web", 4), ("web", 5)], None);
    let writer = Peer { writes: true, ..peer(&[("gen", 7)], Some(In("fsync"))) };
    for (object, peer, said) in [
        ("-> 127.0.0.1:5432", &postgres, "-> postgres[812] (127.0.0.1:5432)"),
        ("-> [::1]:5432", &titled, "-> postgres[812] SELECT, runs ([::1]:5432)"),
        ("/run/x.sock", &workers, "-> sh[80], web[81,82], waits, too (/run/x.sock)"),
        ("unix socket", &many, "-> web[1,2,3,4], ... (unix socket)"),
        ("socket", &peer(&[("x", 1)], Some(Disk)), "-> x[1], disk"),
        ("pipe", &peer(&[("x", 1)], Some(Stopped)), "pipe -> x[1], stopped"),
        ("pipe", &writer, "pipe <- gen[7], in fsync"),
    ] {
        let facts = Facts { other_end: Some(peer.clone()), ..files(&[(37, object)]) };
        assert_eq!(text(45, &[37], &facts), format!("recv fd 37 {said}"));
        assert_eq!(text(7, &[64, 1], &facts), format!("poll fd 37 {said}"));
        let wait = describe(&asked(45, [37, 0, 0, 0, 0, 0], Lock::No), &facts).expect("a wait");
        let short = wait.without_address();
        assert_eq!(short, format!("recv fd 37 {said}").split(" (").next().expect("one"));
        // Not where there are several descriptors, and not for a set of them.
        assert!(!text(7, &[64, 2], &facts).contains(&peer.processes[0].name));
        assert!(!text(232, &[37], &facts).contains(&peer.processes[0].name));
    }
}

#[test]
fn connections_to_processes_of_one_name_are_counted_together() {
    use PeerActivity::{Runs, WaitsToo};
    let to = |fd: i32, object: &str, peer: Peer| WaitsFor {
        peer: Some(peer),
        ..wait("recv", Some(fd), object)
    };
    let (db, unix) = ("-> 127.0.0.1:5432", "unix socket");
    let mut waits: Vec<WaitsFor> =
        (0..12).map(|n| to(30 + n, db, peer(&[("postgres", n as u32)], Some(Runs)))).collect();
    waits.extend((0..5).map(|n| to(3, unix, peer(&[("redis", 5)], Some(Runs).filter(|_| n > 0)))));
    waits.extend((0..3).map(|n| to(4, unix, peer(&[("a", 1), ("b", n)], Some(WaitsToo)))));
    waits.extend((0..2).map(|_| to(5, unix, peer(&[("cups", 9)], Some(WaitsToo)))));
    for (nth, wait) in waits.iter_mut().enumerate().filter(|(nth, _)| *nth < 17) {
        let peer = wait.peer.as_mut().expect("each has one");
        // All of one, and all but one of the other.
        peer.title = if nth == 16 { "" } else { "SELECT" }.into();
    }
    let expected = [
        (12, "recv fd.. -> postgres SELECT, runs (127.0.0.1:5432)"),
        (5, "recv fd 3 -> redis[5] (unix socket)"),
        (3, "recv fd 4 unix socket"),
        (2, "recv fd 5 -> cups[9], waits, too (unix socket)"),
    ]
    .map(|(n, text)| (n, text.to_owned()));
    assert_eq!(summary(waits.iter()), expected);
    let alone: Vec<WaitsFor> = (0..9)
        .map(|n| to(n, &format!("-> 10.0.0.1:{n}"), peer(&[("x", n as u32)], None)))
        .collect();
    assert_eq!(summary(alone.iter()), [(9, "recv fd..".to_owned())]);
}
