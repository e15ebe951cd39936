//! Redacted names lead to the same decisions, and no private word remains.

use proptest::prelude::*;

use super::*;
use crate::model::projection::waits::{Asked, Lock, Peer, PeerProcess};
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::{FileId, ThreadKey};
use crate::model::vocabulary::role::Origin;
use crate::model::vocabulary::wakeup::{Cost, Woken};

const KEY: Key = Key([7, 8]);

fn location(function: &str, module: &str, kind: FrameKind) -> Location {
    Location {
        module: module.into(),
        file: Some("/home/alice/secret.c".into()),
        line: Some(7),
        ..Location::named(function, kind)
    }
}

#[test]
fn functions_that_decide_about_waits_still_do() {
    let names = [
        "tokio::runtime::park::park",
        "rayon_core::sleep::Sleep::sleep",
        "uv__io_poll",
        "g_main_loop_run",
        "java.util.concurrent.ForkJoinPool.runWorker",
        "io.netty.util.HashedWheelTimer$Worker.waitForNextTick",
        "parking_lot::raw_mutex::RawMutex::lock_slow",
        "std::sys::sync::mutex::futex::Mutex::lock_contended",
        "__pthread_mutex_lock",
        "std::thread::sleep",
        "std::sync::condvar::Condvar::wait",
        "acme::Queue::take",
        "pthread_cond_wait",
        "SafepointSynchronize::block",
    ];
    let mut redactor = Redactor::new(KEY);
    for name in names {
        for (module, kind) in [
            ("app", FrameKind::Native),
            ("libc.so.6", FrameKind::Native),
            ("a.B", FrameKind::Java),
            ("drv", FrameKind::Kernel),
        ] {
            let old = location(name, module, kind);
            let new = redactor.location(&old, Origin::Unknown);
            assert_eq!(mark(&new), mark(&old), "{name} in {module}: {}", new.function);
            let of = |location: &Location| futex::kind_of(std::slice::from_ref(location));
            assert_eq!(of(&new), of(&old), "{name} in {module}: {}", new.function);
            // Redacts again, as for a profile that was redacted before.
            let again = redactor.location(&new, Origin::Unknown);
            assert_eq!((mark(&again), of(&again)), (mark(&old), of(&old)), "{name} in {module}");
        }
    }
}

#[test]
fn functions_of_known_servers_keep_what_is_decided_by_their_files() {
    let mut redactor = Redactor::new(KEY);
    for (name, module, origin) in [
        ("beam.smp!fn_73ee0", "beam.smp", Origin::Runtime),
        ("ethr_event_wait", "beam.smp", Origin::Runtime),
        ("erts_schedule", "beam.smp", Origin::Runtime),
        ("mariadbd!fn_c7f450", "mariadbd", Origin::App),
        ("do_handle_one_connection", "mariadbd", Origin::App),
        ("inline_mysql_cond_wait", "mariadbd", Origin::App),
        ("handle_slave_io", "mariadbd", Origin::App),
        ("VCLS_Poll", "varnishd", Origin::App),
        ("Lck_CondWaitUntil", "varnishd", Origin::App),
        ("libjemalloc.so.2!fn_39c30", "libjemalloc.so.2", Origin::Library),
    ] {
        let decisions = |location: &Location| {
            let role = role(location, origin);
            (mark(location), role, base_mark(location, role))
        };
        let old = location(name, module, FrameKind::Native);
        let new = redactor.location(&old, origin);
        assert_eq!(decisions(&new), decisions(&old), "{name}: {}", new.function);
        let again = redactor.location(&new, origin);
        assert_eq!(decisions(&again), decisions(&old), "{name}: {}", again.function);
    }
}

#[test]
fn functions_of_python_and_its_interpreter_lead_to_the_same_decisions() {
    let mut redactor = Redactor::new(KEY);
    for (name, module, file, kind) in [
        ("shop.views.Cart.total", "shop.views", "/app/shop/views.py", FrameKind::Python),
        ("shop.<module>", "shop", "/app/shop.py", FrameKind::Python),
        ("shop.work", "shop", "/app/shop.py", FrameKind::Python),
        ("threading.Thread.run", "threading", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("threading.Event.wait", "threading", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("threading.Thread.join", "threading", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("queue.Queue.get", "queue", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("threading.RLock.acquire", "threading", "", FrameKind::Python),
        ("json.loads", "json", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("concurrent.futures.thread._worker", "x", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("multiprocessing.pool.worker", "x", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("subprocess.Popen.wait", "subprocess", "/usr/lib/python3.11/x.py", FrameKind::Python),
        ("django.setup", "django", "/v/site-packages/django/__init__.py", FrameKind::Python),
        ("_PyEval_EvalFrameDefault", "uwsgi", "", FrameKind::Native),
        ("PyThread_acquire_lock_timed", "uwsgi", "", FrameKind::Native),
        ("PyDict_GetItem", "uwsgi", "", FrameKind::Native),
        ("_queue_SimpleQueue_get", "_queue.cpython-311-x86_64-linux-gnu.so", "", FrameKind::Native),
        ("_PyEval_EvalFrameDefault", "libpython3.11.so.1.0", "", FrameKind::Native),
        ("python3.11!fn_584960", "python3.11", "", FrameKind::Native),
    ] {
        let decisions = |location: &Location| {
            let role = role(location, Origin::Unknown);
            let futex = futex::kind_of(std::slice::from_ref(location));
            (mark(location), role, base_mark(location, role), is_glue(location), futex)
        };
        let file = (!file.is_empty()).then(|| file.into());
        let old = Location { file, ..location(name, module, kind) };
        let new = redactor.location(&old, Origin::Unknown);
        assert_eq!(decisions(&new), decisions(&old), "{name}: {}", new.function);
        let again = redactor.location(&new, Origin::Unknown);
        assert_eq!(decisions(&again), decisions(&old), "{name}: {}", again.function);
    }
}

#[test]
fn stacks_of_go_still_say_where_they_begin() {
    let mut redactor = Redactor::new(KEY);
    for (name, file, origin, stays) in [
        ("runtime.goexit", "/usr/local/go/src/runtime/asm_amd64.s", Origin::Library, true),
        ("runtime.gcBgMarkWorker.func2", "/opt/alice/src/runtime/mgc.go", Origin::Library, true),
        ("main.main.gowrap1", "/home/alice/main.go", Origin::Runtime, false),
        ("net/http.(*conn).serve", "/go/src/net/http/server.go", Origin::Library, false),
        ("acme/runtime.work", "/home/alice/runtime/work.go", Origin::App, false),
        // C may not take these for its own.
        ("runtime.secret", "/home/alice/secret.c", Origin::App, false),
        ("secret", "/home/alice/secret.s", Origin::App, false),
    ] {
        let is_go = |l: &Location| go_functions::is_go(&l.function, l.file.as_deref());
        let decisions = |l: &Location| (is_go(l), role(l, origin), mark(l));
        let file = Some(file.into());
        let old = Location { file, ..location(name, "shop", FrameKind::Native) };
        let new = redactor.location(&old, origin);
        assert_eq!(decisions(&new), decisions(&old), "{name}: {}", new.function);
        assert_eq!(new.function == old.function, stays, "{name}: {}", new.function);
        assert!(!new.file.as_deref().unwrap_or("").contains("alice"), "{:?}", new.file);
    }
}

#[test]
fn what_every_system_has_stays_and_nothing_else_does() {
    let mut redactor = Redactor::new(KEY);
    for (function, module, kind, stays) in [
        ("malloc", "/usr/lib/libc.so.6", FrameKind::Native, true),
        ("malloc", "libc-2.31.so", FrameKind::Native, true),
        ("JavaThread::run", "libjvm.so", FrameKind::Native, true),
        ("PyDict_GetItem", "libpython3.12.so.1.0", FrameKind::Native, true),
        ("long_add", "/usr/bin/python3.11", FrameKind::Native, true),
        ("PyDict_GetItem", "pythonshop", FrameKind::Native, false),
        ("json.loads", "json", FrameKind::Python, false),
        ("clock_gettime", "[vdso]", FrameKind::Native, true),
        ("vfs_read", "vmlinux", FrameKind::Kernel, true),
        ("[kernel]", "", FrameKind::Kernel, true),
        ("java.util.HashMap.get", "java.util.HashMap", FrameKind::Java, true),
        ("secret_read", "secretdriver", FrameKind::Kernel, false),
        ("malloc", "libcrypt.so.1", FrameKind::Native, false),
        ("malloc", "libc.so.acme", FrameKind::Native, false),
        ("malloc", "libc", FrameKind::Native, false),
        ("vfs_read", "vmlinux", FrameKind::Native, false),
        ("javax.acme.Cart.get", "javax.acme.Cart", FrameKind::Java, false),
        ("java.Acme.get", "com.Acme", FrameKind::Java, false),
        ("acme", "/tmp/perf.map", FrameKind::Jit, false),
    ] {
        let new = redactor.location(&location(function, module, kind), Origin::Unknown);
        let name = new.function.split('[').next().unwrap_or_default();
        assert_eq!(*new.function == *function, stays, "{function} in {module}: {name}");
        assert_eq!(
            *new.module == *base(module) || new.module.ends_with(&format!("/{}", base(module))),
            stays,
            "{module}"
        );
        assert_eq!((new.line, new.kind), (Some(7), kind));
        assert!(new.file.is_none_or(|file| !file.contains("alice") && !file.contains("secret")));
    }
    for (text, expected) in [
        ("[torn]", "[torn]".to_owned()),
        ("(other)", "(other)".to_owned()),
        ("[JVM safepoint]", "[JVM safepoint]".to_owned()),
        ("[waiting for the GIL]", "[waiting for the GIL]".to_owned()),
        ("[await]", "[await]".to_owned()),
        ("[no unwind info: libacme.so]", format!("[no unwind info: {}]", KEY.words("libacme.so"))),
        ("[acme]", format!("[{}]", KEY.word("acme"))),
        ("[task acme-3]", format!("[task {}]", redactor.thread("acme-3"))),
        ("[task torn]", format!("[task {}]", redactor.thread("torn"))),
        ("[task (other)]", "[task (other)]".to_owned()),
        ("[labels (other)]", "[labels (other)]".to_owned()),
        (
            "[labels acme.id=7, user=ann@acme.org, z=(other)]",
            format!(
                "[labels {}={}, {}={}, {}=(other)]",
                KEY.words("acme.id"),
                KEY.word("7"),
                KEY.word("user"),
                KEY.word("ann@acme.org"),
                KEY.word("z")
            ),
        ),
    ] {
        assert_eq!(
            *redactor.location(&location(text, "", FrameKind::Marker), Origin::Unknown).function,
            *expected
        );
    }
}

#[test]
fn waits_tell_no_file_peer_or_thread() {
    let redactor = Redactor::new(KEY);
    let told = |number: i32, args: [u64; 6], what: &'static str, object: &str| {
        let asked = Asked {
            thread: ThreadKey { pid: 1, tid: 1, start: 1 },
            call: Syscall { number, args },
            lock: Lock::Mutex,
        };
        let waits_for = WaitsFor { what, object: object.into(), ..WaitsFor::default() };
        redactor.waits_for(asked.call, &waits_for).object
    };
    assert_eq!(told(0, [0; 6], "read", "/data/x.db"), KEY.words("/data/x.db"));
    assert_eq!(told(45, [0; 6], "recv", "-> db.acme:5432"), KEY.words("-> db.acme:5432"));
    assert_eq!(
        told(202, [0; 6], "mutex", "held by cart-3"),
        format!("held by {}", redactor.thread("cart-3"))
    );
    assert_eq!(told(202, [0; 6], "mutex", "0x7f12"), KEY.word("0x7f12"));
    assert_eq!(told(232, [3, 0, 0, 0, 0, 0], "epoll", "(12 descriptors)"), "(12 descriptors)");
    assert_eq!(
        told(7, [0, 2, 0, 0, 0, 0], "poll", "2 descriptors: fd 3 /x"),
        format!("2 descriptors: {}", KEY.words("fd 3 /x"))
    );
    assert_eq!(told(7, [0, 2, 0, 0, 0, 0], "poll", "2 descriptors"), "2 descriptors");
    assert_eq!(told(230, [0; 6], "sleep", "2.0 s"), "2.0 s");

    let asked = Asked {
        thread: ThreadKey { pid: 1, tid: 1, start: 1 },
        call: Syscall { number: 45, args: [0; 6] },
        lock: Lock::No,
    };
    let processes = vec![PeerProcess { name: "acme-db".into(), pid: 812 }];
    let peer = Peer { processes, title: "ACME".into(), ..Peer::default() };
    let waits_for = WaitsFor { peer: Some(peer), ..WaitsFor::default() };
    let peer = redactor.waits_for(asked.call, &waits_for).peer.expect("it is kept");
    assert_eq!(peer.to_string(), format!("{}[812] {}", KEY.words("acme-db"), KEY.words("ACME")));
}

#[test]
fn settings_that_go_by_names_are_left_out() {
    let pattern = || Filter::set(regex::Regex::new("acme").expect("one"));
    let mut given = Settings { idle: true, ..Settings::default() };
    assert!(!settings(&given).1);
    given.filters.focus = pattern();
    given.filters.no_kernel = true;
    let (kept, dropped) = settings(&given);
    assert!(dropped && kept.filters.focus.value.is_none() && kept.idle && kept.filters.no_kernel);
    let by_frame = Settings {
        grouping: Grouping::Frame(regex::Regex::new("acme").expect("one")),
        ..Settings::default()
    };
    assert!(matches!(settings(&by_frame), (Settings { grouping: Grouping::Rules, .. }, true)));
    let by_label = Grouping::Label(Some("acme".into()));
    let by_label = Settings { grouping: by_label, ..Settings::default() };
    let (kept, dropped) = settings(&by_label);
    assert!(dropped && matches!(kept.grouping, Grouping::Label(None)));
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["(acme|cart|db)-[0-9]{1,3}", "[0-9]{1,4}", "\\PC{0,12}", "pool-[0-9]-thread-[0-9]"]
}

proptest! {
    #[test]
    fn threads_of_one_group_stay_one_group(one in name(), other in name()) {
        let redactor = Redactor::new(KEY);
        let group = |name: &str| by_rules(name, &[]);
        let [new_one, new_other] = [&one, &other].map(|name| group(&redactor.thread(name)));
        prop_assert_eq!(group(&one) == group(&other), new_one == new_other, "{} {}", new_one, new_other);
    }

    /// Words contain letters that hashes never have, so a match cannot be chance. Rust's `as` is no
    /// name, and stays.
    #[test]
    fn no_word_is_left(words in prop::collection::vec("[a-z]{0,4}[a-f][a-z]{0,4}|[A-F][a-z]{3,9}|[0-9]{5,9}|[äöü]{3}", 1..6), by in prop::sample::select(vec!["::", ".", "/", " ", "<", "$", "-"])) {
        prop_assume!(!words.iter().any(|word| word == "as"));
        let text = words.join(by);
        let mut redactor = Redactor::new(KEY);
        let new = redactor.location(&location(&text, &text, FrameKind::Native), Origin::Unknown);
        let thread = redactor.thread(&format!("~{text}"));
        for word in &words {
            for out in [&*new.function, &*new.module, &*thread] {
                prop_assert!(!out.contains(word.as_str()), "{} in {}", word, out);
            }
        }
        // Equal names get equal replacements.
        prop_assert_eq!(&Redactor::new(KEY).location(&location(&text, &text, FrameKind::Native), Origin::Unknown), &new);
    }
}

#[test]
fn a_snapshot_tells_nothing_of_its_program_host_or_user() {
    let session = Session {
        version: String::new(),
        host: "secrethost.acme".into(),
        kernel: "6".into(),
        cores_milli: 1000,
        started: 0,
        started_unix_ns: 0,
        interval_ns: 1,
        max_overhead_percent: None,
        wanted: Wanted { title: "secretname".into(), waits: true },
    };
    let target = Target {
        pid: 7,
        start: 1,
        command: "/opt/secret/app --secretly".into(),
        runtime: "native",
        uid: 1000,
        unit: Some("secret.service".into()),
        started_unix_ns: 0,
        ended: None,
    };
    let names = [
        ("secret-1", ThreadKind::Plain),
        ("(other)", ThreadKind::Plain),
        ("C2 CompilerThread0", ThreadKind::Internal),
    ];
    let parts =
        Parts { names: names.map(|(name, kind)| (name.into(), kind)).into(), ..Parts::default() };
    let waker = Waker::Thread {
        pid: 8,
        tid: 8,
        name: "secret-1".into(),
        process: "secretd".into(),
        call: 1,
    };
    let wakeups = Wakeups {
        from: 0,
        duration_ns: 1,
        pairs: vec![Pair { waker, woken: Woken { pid: 7, tid: 7 }, count: 1 }],
        lost: 0,
        seen: 1,
        cost: Cost::Measured(1),
    };
    let snapshot = Snapshot {
        session: session.into(),
        targets: [target].into(),
        at: 1,
        // As in another tool's file.
        capture: "pprof of secretive".into(),
        health: Default::default(),
        tables: Tables::from_parts(parts).expect("sound"),
        history: Default::default(),
        threads: [].into(),
        deadlocks: Arc::default(),
        observed_waits: [ObservedWait {
            thread: ThreadKey { pid: 7, tid: 7, start: 1 },
            stack: StackId(0),
            call: Syscall { number: 74, args: [3, 0, 0, 0, 0, 0] },
            waits_for: WaitsFor {
                what: "fsync",
                fd: Some(3),
                object: "/var/secret.db".into(),
                peer: Some(Peer {
                    processes: vec![PeerProcess { name: "secretd".into(), pid: 9 }],
                    title: "--secret".into(),
                    ..Peer::default()
                }),
            },
            times: 3,
            at: 1,
        }]
        .into(),
        wakeups: Some(wakeups.into()),
        notice: Some("secret could not be watched".into()),
        stopped: false,
    };
    assert_eq!(format!("{snapshot:?}").matches("secret").count(), 13);
    let redacted = Redactor::new(KEY).snapshot(&snapshot);
    assert!(!format!("{redacted:?}").contains("secret"), "{redacted:?}");
    assert_eq!(redacted.session.host.matches('.').count(), 1);
    assert_eq!((redacted.observed_waits[0].times, redacted.observed_waits[0].at), (3, 1));
    assert_eq!((redacted.targets[0].pid, redacted.session.wanted.waits), (7, true));
    let [_, other, internal] = [0, 1, 2].map(|id| redacted.tables.name(NameId(id)).to_string());
    assert_eq!((&*other, &*internal), ("(other)", "C2 CompilerThread0"));
    let own = Snapshot {
        session: Session { version: "1".into(), ..Session::clone(&snapshot.session) }.into(),
        capture: "bpf".into(),
        ..snapshot
    };
    assert_eq!(&*Redactor::new(KEY).snapshot(&own).capture, "bpf");
    // What figures depend on is kept, if it is all that is noted.
    let notice = |text: &str| {
        let snapshot = Snapshot { notice: Some(text.into()), ..own.clone() };
        Redactor::new(KEY).snapshot(&snapshot).notice.as_deref() == Some(text)
    };
    let some = "process 7: of its many goroutines only some are read";
    assert!(notice(some) && notice(&format!("{some}; {some}")));
    for other in [&*format!("{some}; process 8: secret"), &some[11..], "process secret: x"] {
        assert!(!notice(other), "{other}");
    }
}

/// They would name functions to who has the program.
#[test]
fn places_in_files_are_dropped() {
    let code = |offset, exact| FrameCode::Code { file: FileId(1), offset, exact };
    let kept = [RawFrame::marker(Marker::Torn), RawFrame::new(FrameCode::Runtime { id: 7 })];
    let frames = [code(64, true), code(65, false)].map(RawFrame::new).into_iter().chain(kept);
    let named = || Named::known([location("f", "app", FrameKind::Native)]);
    let frames = frames.map(|frame| (frame, named())).collect();
    let parts = Parts { names: Vec::new(), frames, stacks: Vec::new(), blockers: Vec::new() };
    let tables = Tables::from_parts(parts).expect("sound");
    let redacted = Redactor::new(KEY).tables(&tables);
    let found: Vec<RawFrame> = (0..4).map(|id| redacted.frame(FrameId(id))).collect();
    assert!(found[..2].iter().all(|raw| matches!(raw.decode(), FrameCode::Runtime { .. })));
    assert_eq!(found[2..], kept);
}

#[test]
fn classes_of_the_languages_own_locks_are_kept() {
    let mut redactor = Redactor::new(KEY);
    let mut kept = |kind, class: &str| *redactor.class(kind, &class.into()) == *class;
    assert!(kept(BlockerKind::ThreadingLock, "threading.RLock"));
    assert!(kept(BlockerKind::OwnedLock, "java.util.concurrent.locks.ReentrantLock"));
    assert!(!kept(BlockerKind::Monitor, "com.acme.TaxTable"));
}
