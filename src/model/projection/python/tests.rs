use super::super::base_marks;
use super::super::idle::Wait;
use super::super::idle_marks;
use super::super::roles::role;
use super::super::thread_base::Base;
use super::*;
use crate::model::vocabulary::frame::ThreadKind;
use crate::model::vocabulary::role::Origin;
use crate::model::vocabulary::state::State;

const LIB: &str = "/usr/lib/python3.13/";
const PACKAGES: &str = "/app/venv/lib/python3.13/site-packages/";

/// Reads a frame. `FILE!name` is a native function, and `FILE!!N` one without a name. `=name` is of
/// Python's library, `+name` of a package, `[name]` a marker. Any other name is a Python function
/// of the user.
fn frame(text: &str) -> (Location, Role) {
    let python = |name: &str, file: String| Location {
        file: Some(file.into()),
        module: name.split('.').next().unwrap_or("").into(),
        ..Location::named(name, FrameKind::Python)
    };
    let (location, origin) = match (text.split_once('!'), text.split_at(1)) {
        (Some((module, name)), _) => {
            let name = match name.strip_prefix('!') {
                Some(number) => format!("{module}!fn_{number}"),
                None => name.to_owned(),
            };
            let origin = match module {
                _ if is_interpreter(module) => Origin::Runtime,
                "shop" | "_fast.so" => Origin::App,
                _ => Origin::Library,
            };
            let named = Location::named(&name, FrameKind::Native);
            (Location { module: module.into(), ..named }, origin)
        }
        (_, ("[", _)) => (Location::named(text, FrameKind::Marker), Origin::Unknown),
        (_, ("=", name)) => (python(name, format!("{LIB}x.py")), Origin::Unknown),
        (_, ("+", name)) => (python(name, format!("{PACKAGES}x.py")), Origin::Unknown),
        _ => (python(text, "/app/x.py".into()), Origin::Unknown),
    };
    let role = role(&location, origin);
    (location, role)
}

/// Returns whether a thread in this state waits for work; frames outermost first.
fn judged(state: State, frames: &[&str]) -> bool {
    let (wait, base) = frames.iter().fold((Wait::default(), Base::default()), |(wait, base), f| {
        let (location, role) = frame(f);
        let base = base.below(base_marks::mark(&location, role));
        (wait.below(idle_marks::mark(&location)), base)
    });
    wait.is_idle(ThreadKind::Plain, state) || base.is_idle(state)
}

/// The same, and it must not depend on the name of a task that the thread executes.
#[track_caller]
fn is_idle(state: State, frames: &[&str]) -> bool {
    let nameless = judged(state, frames);
    for task in ["[task fetch]", "[task event_loop]", "[task handle_request]", "[task take]"] {
        assert_eq!(judged(state, &[&[task][..], frames].concat()), nameless, "{task}");
    }
    nameless
}

fn joined<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

const PY: &str = "libpython3.13.so.1.0";
const THREAD: &[&str] = &[
    "libc.so.6!clone3",
    "libc.so.6!start_thread",
    "libpython3.13.so.1.0!pythread_wrapper",
    "libpython3.13.so.1.0!thread_run",
    "libpython3.13.so.1.0!method_vectorcall",
    "libpython3.13.so.1.0!_PyObject_VectorcallTstate",
    "=threading.Thread._bootstrap",
    "=threading.Thread._bootstrap_inner",
    "=threading.Thread.run",
];
/// The same of CPython 3.8, which says no classes, in Debian's file without names.
const OLD_THREAD: &[&str] = &[
    "libc.so.6!clone3",
    "libc.so.6!start_thread",
    "python3.8!!6543a0",
    "python3.8!!679380",
    "=threading._bootstrap",
    "python3.8!_PyFunction_Vectorcall",
    "python3.8!PyVectorcall_Call",
    "=threading._bootstrap_inner",
    "python3.8!!584960",
    "=threading.run",
    "python3.8!PyVectorcall_Call",
];
const MAIN: &[&str] = &[
    "python!_start",
    "libc.so.6!__libc_start_main_impl",
    "libc.so.6!__libc_start_call_main",
    "libpython3.13.so.1.0!Py_BytesMain",
    "libpython3.13.so.1.0!pymain_run_python",
    "libpython3.13.so.1.0!_PyRun_SimpleFileObject",
    "libpython3.13.so.1.0!run_mod",
    "libpython3.13.so.1.0!PyEval_EvalCode",
    "shop.<module>",
];
const LOCK: &[&str] = &[
    "libpython3.13.so.1.0!PyObject_Vectorcall",
    "libpython3.13.so.1.0!method_vectorcall_VARARGS_KEYWORDS",
    "libpython3.13.so.1.0!lock_PyThread_acquire_lock",
    "libpython3.13.so.1.0!acquire_timed",
    "libpython3.13.so.1.0!PyThread_acquire_lock_timed",
    "libc.so.6!__new_sem_wait_slow64",
    "libc.so.6!__futex_abstimed_wait_common64",
];
const OLD_LOCK: &[&str] = &[
    "python3.8!!fe530",
    "python3.8!PyThread_acquire_lock_timed",
    "libc.so.6!__new_sem_wait_slow64",
];
const PARK: &[&str] = &[
    "libpython3.13.so.1.0!_PyParkingLot_Park",
    "libpython3.13.so.1.0!_PySemaphore_Wait",
    "libpython3.13.so.1.0!_PySemaphore_PlatformWait",
    "libc.so.6!__new_sem_wait_slow64",
];
const SIMPLE_QUEUE: &[&str] = &[
    "libpython3.13.so.1.0!method_vectorcall_FASTCALL_KEYWORDS_METHOD",
    "_queue.cpython-313-x86_64-linux-gnu.so!_queue_SimpleQueue_get",
    "_queue.cpython-313-x86_64-linux-gnu.so!_queue_SimpleQueue_get_impl",
];
const SLEEP: &[&str] = &[
    "libpython3.13.so.1.0!cfunction_vectorcall_O",
    "libpython3.13.so.1.0!time_sleep",
    "libpython3.13.so.1.0!pysleep",
    "libc.so.6!__clock_nanosleep",
];
const QUEUE: &[&str] = &["=queue.Queue.get", "=threading.Condition.wait"];
const POLL: &[&str] = &[
    "select.cpython-313-x86_64-linux-gnu.so!select_poll_poll",
    "select.cpython-313-x86_64-linux-gnu.so!select_poll_poll_impl",
    "libc.so.6!__poll",
];
const RECV_INTO: &[&str] = &[
    "libpython3.13.so.1.0!_io__Buffered_readline",
    "libpython3.13.so.1.0!_bufferedreader_raw_read",
    "libpython3.13.so.1.0!PyObject_VectorcallMethod",
    "=socket.SocketIO.readinto",
    "_socket.cpython-313-x86_64-linux-gnu.so!sock_recv_into",
    "libc.so.6!__libc_recv",
];

#[test]
fn threads_that_wait_for_work_are_idle() {
    for stack in [
        // Pools and queues.
        joined(&[THREAD, &["=concurrent.futures.thread._worker"], SIMPLE_QUEUE, PARK]),
        joined(&[THREAD, &["=concurrent.futures.thread._worker"], &["python3.11!!5fe530"], PARK]),
        joined(&[OLD_THREAD, &["=concurrent.futures.thread._worker"], OLD_LOCK]),
        joined(&[THREAD, &["shop.work"], QUEUE, LOCK]),
        joined(&[THREAD, &["shop.consume"], SIMPLE_QUEUE, PARK]),
        joined(&[
            THREAD,
            &["shop.consume", "_queue.cpython-311-x86_64-linux-gnu.so!!2880"],
            OLD_LOCK,
        ]),
        joined(&[OLD_THREAD, &["shop.consume", "=queue.get", "=threading.wait"], OLD_LOCK]),
        joined(&[THREAD, &["shop.Mailer.run"], QUEUE, LOCK]),
        joined(&[
            THREAD,
            &["shop.Mailer.run", "shop.Mailer.next_job", "=threading.Condition.wait"],
            LOCK,
        ]),
        // Of libraries.
        joined(&[THREAD, &["=logging.handlers.QueueListener._monitor"], QUEUE, LOCK]),
        joined(&[THREAD, &["=threading.Timer.run", "=threading.Event.wait"], LOCK]),
        joined(&[
            THREAD,
            &["+waitress.task.ThreadedTaskDispatcher.handler_thread", "=threading.Condition.wait"],
            LOCK,
        ]),
        joined(&[THREAD, &["+sentry_sdk.worker.Worker._target", "+sentry_sdk.q.Queue.get"], LOCK]),
        // Events, the end of others.
        joined(&[
            THREAD,
            &["shop.watch", "=threading.Event.wait", "=threading.Condition.wait"],
            LOCK,
        ]),
        joined(&[MAIN, &["shop.main", "=threading.Event.wait", "=threading.Condition.wait"], LOCK]),
        joined(&[
            MAIN,
            &["shop.main", "=threading.Thread.join"],
            &[
                "libpython3.13.so.1.0!PyThreadHandleObject_join",
                "libpython3.13.so.1.0!ThreadHandle_join",
            ],
            PARK,
        ]),
        joined(&[MAIN, &["=threading.join", "=threading._wait_for_tstate_lock"], OLD_LOCK]),
        joined(&[
            &MAIN[..4],
            &["libpython3.13.so.1.0!Py_FinalizeEx", "=threading._shutdown"],
            LOCK,
        ]),
        joined(&[
            MAIN,
            &["=concurrent.futures._base.Future.result", "=threading.Condition.wait"],
            LOCK,
        ]),
        joined(&[
            MAIN,
            &["=multiprocessing.pool.worker", "=multiprocessing.queues.SimpleQueue.get"],
            &[
                "=multiprocessing.synchronize.SemLock.__enter__",
                "_multiprocessing.cpython-313-x86_64-linux-gnu.so!_multiprocessing_SemLock_acquire_impl",
                "libc.so.6!__new_sem_wait_slow64",
            ],
        ]),
    ] {
        assert!(is_idle(State::Wait, &stack), "{stack:#?}");
        assert!(!is_idle(State::Lock, &stack), "{stack:#?}");
    }
    for stack in [joined(&[THREAD, &["shop.beat"], SLEEP]), joined(&[MAIN, &["shop.main"], SLEEP])]
    {
        assert!(is_idle(State::Sleep, &stack), "{stack:#?}");
    }
    // In functions of Python's library.
    for stack in [
        joined(&[THREAD, &["shop.beat", "=sched.scheduler.run"], SLEEP]),
        joined(&[MAIN, &["shop.main", "=sched.scheduler.run"], SLEEP]),
    ] {
        assert!(is_idle(State::Sleep, &stack), "{stack:#?}");
    }
    let own: &[&str] = &["=logging.a", "=logging.b", "=logging.c", "=logging.d"];
    let stack = joined(&[THREAD, own, &["=threading.Condition.wait"], LOCK]);
    assert!(is_idle(State::Wait, &stack), "{stack:#?}");
    // They read what clients and parents ask for.
    for stack in [
        joined(&[THREAD, &["shop.Connection.read_request"], RECV_INTO]),
        joined(&[
            MAIN,
            &["=socketserver.BaseServer.serve_forever"],
            &["=selectors._PollLikeSelector.select"],
            POLL,
        ]),
        joined(&[
            THREAD,
            &["=socketserver.ThreadingMixIn.process_request_thread"],
            &[
                "=socketserver.BaseServer.finish_request",
                "libpython3.13.so.1.0!slot_tp_init",
                "=socketserver.BaseRequestHandler.__init__",
                "=http.server.BaseHTTPRequestHandler.handle",
                "=http.server.BaseHTTPRequestHandler.handle_one_request",
            ],
            RECV_INTO,
        ]),
        joined(&[
            MAIN,
            &["=multiprocessing.pool.worker", "=multiprocessing.queues.SimpleQueue.get"],
            &[
                "=multiprocessing.connection._ConnectionBase.recv_bytes",
                "=multiprocessing.connection.Connection._recv",
                "libpython3.13.so.1.0!os_read",
                "libpython3.13.so.1.0!_Py_read",
                "libc.so.6!__libc_read",
            ],
        ]),
    ] {
        assert!(is_idle(State::Io, &stack), "{stack:#?}");
    }
}

#[test]
fn a_forked_worker_waits_for_work_below_the_functions_that_forked_it() {
    let parents: &[&str] =
        &["shop.main", "shop.serve", "=multiprocessing.context.BaseContext.Pool"];
    let worker: &[&str] = &[
        "=multiprocessing.process.BaseProcess._bootstrap",
        "=multiprocessing.process.BaseProcess.run",
        "=multiprocessing.pool.worker",
    ];
    let get: &[&str] = &[
        "=multiprocessing.queues.SimpleQueue.get",
        "=multiprocessing.synchronize.SemLock.__enter__",
        "_multiprocessing.cpython-313-x86_64-linux-gnu.so!!2d90",
        "libc.so.6!__new_sem_wait_slow64",
    ];
    assert!(is_idle(State::Wait, &joined(&[MAIN, parents, worker, get])));
    assert!(!is_idle(State::Wait, &joined(&[MAIN, parents, worker, &["shop.resize"], get])));
}

#[test]
fn a_worker_of_celery_waits_for_its_tasks() {
    let worker: &[&str] =
        &["+billiard.process.BaseProcess._bootstrap", "+billiard.pool.Worker.workloop"];
    let receive = [
        "+billiard.pool.Worker._make_protected_receive.<locals>.receive",
        "+billiard.pool.Worker._make_recv_method.<locals>._recv",
        "+billiard.queues._SimpleQueue.get_payload",
        "+billiard.connection._ConnectionBase.recv_bytes",
        "+billiard.connection.Connection._recv_bytes",
        "+billiard.connection.Connection._recv",
        "libpython3.13.so.1.0!os_read",
        "libc.so.6!__libc_read",
    ];
    assert!(is_idle(State::Io, &joined(&[MAIN, worker, &receive])));
    let task: &[&str] = &["+celery.app.trace.trace_task", "shop.tasks.resize"];
    assert!(!is_idle(State::Io, &joined(&[MAIN, worker, task, &["libc.so.6!__libc_read"]])));
}

#[test]
fn a_wait_in_a_job_is_not_idle() {
    let task: &[&str] =
        &["=concurrent.futures.thread._worker", "=concurrent.futures.thread._WorkItem.run"];
    let old_task: &[&str] =
        &["=concurrent.futures.thread._worker", "=concurrent.futures.thread.run"];
    let request: &[&str] = &[
        "=socketserver.ThreadingMixIn.process_request_thread",
        "=socketserver.BaseServer.finish_request",
        "libpython3.13.so.1.0!slot_tp_init",
        "=http.server.BaseHTTPRequestHandler.handle_one_request",
    ];
    let handle: &[&str] = &[
        "=asyncio.runners.run",
        "=asyncio.base_events.BaseEventLoop.run_forever",
        "=asyncio.base_events.BaseEventLoop._run_once",
        "=asyncio.events.Handle._run",
        "libpython3.13.so.1.0!context_run",
    ];
    let event: &[&str] = &["=threading.Event.wait", "=threading.Condition.wait"];
    for stack in [
        joined(&[THREAD, task, &["shop.checkout"], LOCK]),
        joined(&[OLD_THREAD, old_task, &["shop.checkout"], OLD_LOCK]),
        joined(&[THREAD, task, &["shop.checkout"], event, LOCK]),
        joined(&[THREAD, task, &["shop.checkout"], QUEUE, LOCK]),
        joined(&[THREAD, task, LOCK]),
        joined(&[THREAD, request, &["shop.Handler.do_GET"], LOCK]),
        joined(&[THREAD, request, &["shop.Handler.do_GET"], event, LOCK]),
        joined(&[MAIN, handle, &["shop.page"], event, LOCK]),
        joined(&[MAIN, handle, &["shop.page"], LOCK]),
        // The first function of a thread waits for a lock, for a result, or is a job by its name.
        joined(&[THREAD, &["shop.work"], LOCK]),
        joined(&[OLD_THREAD, &["shop.work"], OLD_LOCK]),
        joined(&[THREAD, &["shop.work", "=threading.Thread.join"], PARK]),
        joined(&[
            THREAD,
            &["shop.work", "=threading.Barrier.wait", "=threading.Barrier._wait"],
            LOCK,
        ]),
        joined(&[THREAD, &["shop.work", "=concurrent.futures._base.Future.result"], event, LOCK]),
        joined(&[THREAD, &["shop.fetch_prices"], QUEUE, LOCK]),
        joined(&[THREAD, &["shop.work", "shop.price"], event, LOCK]),
        joined(&[MAIN, &["shop.main", "shop.Cart.total"], event, LOCK]),
        joined(&[MAIN, &["shop.main"], LOCK]),
        // A connection of a pool; a child; a callback.
        joined(&[THREAD, &["shop.work", "+urllib3.pool.Pool._get_conn"], QUEUE, LOCK]),
        joined(&[
            MAIN,
            &["shop.main", "=subprocess.Popen.wait", "libpython3.13.so.1.0!os_waitpid"],
            &["libc.so.6!__wait4"],
        ]),
        joined(&[THREAD, &["=threading.Timer.run", "shop.on_time"], event, LOCK]),
        joined(&[THREAD, &["=sched.scheduler.run", "shop.tick"], event, LOCK]),
        joined(&[MAIN, &["=multiprocessing.pool.worker", "shop.resize"], LOCK]),
    ] {
        assert!(!is_idle(State::Wait, &stack), "{stack:#?}");
    }
    // A module of the user with a name of the standard library.
    let own_event = joined(&[THREAD, &["shop.work", "threading.Event.wait"], LOCK]);
    assert!(!is_idle(State::Wait, &own_event));
    for stack in [
        joined(&[THREAD, task, &["shop.checkout"], SLEEP]),
        joined(&[THREAD, request, &["shop.Handler.do_GET"], SLEEP]),
        joined(&[MAIN, handle, &["shop.page"], SLEEP]),
    ] {
        assert!(!is_idle(State::Sleep, &stack), "{stack:#?}");
    }
    for stack in [
        joined(&[THREAD, request, &["shop.Handler.do_GET", "+requests.get"], RECV_INTO]),
        joined(&[THREAD, &["shop.work", "=http.client.HTTPConnection.getresponse"], RECV_INTO]),
        joined(&[
            MAIN,
            &["=socketserver.BaseServer.serve_forever"],
            request,
            &["shop.ask"],
            RECV_INTO,
        ]),
    ] {
        assert!(!is_idle(State::Io, &stack), "{stack:#?}");
    }
}

#[test]
fn code_has_the_role_of_its_place_and_of_its_task() {
    for (text, role) in [
        ("shop.views.Cart.total", Role::App),
        ("shop.<module>", Role::App),
        ("shop.outer.<locals>.inner", Role::App),
        ("queue.Queue.get", Role::App),
        ("selectors.select", Role::App),
        ("=json.decoder.JSONDecoder.decode", Role::Library),
        ("+django.db.models.query.QuerySet._fetch_all", Role::Library),
        ("=threading.Thread.run", Role::Runtime),
        ("=threading.run", Role::Runtime),
        ("=asyncio.base_events.BaseEventLoop._run_once", Role::Runtime),
        ("=concurrent.futures.thread._WorkItem.run", Role::Runtime),
        ("=runpy._run_module_as_main", Role::Runtime),
        ("=importlib._bootstrap._find_and_load", Role::Runtime),
        ("=threading.Condition.wait", Role::Wait),
        ("=queue.Queue.get", Role::Wait),
        ("=selectors.EpollSelector.select", Role::Wait),
        // C functions.
        ("libpython3.13.so.1.0!_PyEval_EvalFrameDefault", Role::Runtime),
        ("libpython3.13.so.1.0!long_add", Role::Runtime),
        ("libpython3.13.so.1.0!PyObject_GetAttr", Role::Runtime),
        ("python3.11!!584960", Role::Runtime),
        ("python3.11!main", Role::Runtime),
        ("libpython3.13.so.1.0!list_sort_impl", Role::Library),
        ("libpython3.13.so.1.0!builtin_sorted", Role::Library),
        ("libpython3.13.so.1.0!sre_ucs1_match", Role::Library),
        ("libpython3.13.so.1.0!os_read_impl", Role::Library),
        ("_json.cpython-313-x86_64-linux-gnu.so!scanner_call", Role::Library),
        ("libpython3.13.so.1.0!PyThread_acquire_lock_timed", Role::Wait),
        ("libpython3.13.so.1.0!time_sleep", Role::Wait),
        // In a program that contains the interpreter, and in extensions of the user.
        ("shop!_PyEval_EvalFrameDefault", Role::Runtime),
        ("shop!PyDict_GetItem", Role::Runtime),
        ("shop!thread_run", Role::App),
        ("shop!method_call", Role::App),
        ("shop!time_sleep", Role::App),
        ("shop!list_sort", Role::App),
        ("shop!main", Role::App),
        ("_fast.so!PyInit__fast", Role::App),
        ("_fast.so!PyArray_Sum", Role::App),
    ] {
        assert_eq!(frame(text).1, role, "{text}");
    }
    let frozen = Location {
        file: Some("<frozen os>".into()),
        ..Location::named("os.walk", FrameKind::Python)
    };
    assert_eq!(role(&frozen, Origin::Unknown), Role::Library);
    assert!(is_standard(&frozen));
    assert!(is_standard(&frame("=json.loads").0));
    assert!(!is_standard(&frame("+django.setup").0));
    assert!(!is_standard(&frame("shop.total").0));
}

#[test]
fn glue_leads_only_from_one_python_function_to_the_next() {
    // As on CPython 3.8, 3.11 and 3.13.
    for name in [
        "_PyEval_EvalFrameDefault",
        "_PyEval_EvalFrameDefault.cold",
        "_PyEval_Vector.lto_priv.0",
        "run_mod.constprop.0",
        "_PyObject_CallNoArg",
        "pyrun_simple_file",
        "_PyEval_EvalFrame",
        "_PyEval_EvalCodeWithName",
        "_PyEval_Vector",
        "PyEval_EvalCodeEx",
        "_PyFunction_Vectorcall",
        "function_code_fastcall",
        "call_function",
        "do_call_core",
        "_PyObject_Vectorcall",
        "_PyObject_VectorcallTstate",
        "_PyObject_VectorcallDictTstate",
        "_PyObject_FastCallDict",
        "_PyObject_MakeTpCall",
        "_PyObject_Call_Prepend",
        "_PyObject_CallNoArgs",
        "PyObject_CallOneArg",
        "PyObject_CallMethodObjArgs",
        "PyObject_VectorcallMethod",
        "PyVectorcall_Call",
        "object_vacall",
        "cfunction_call",
        "cfunction_call_varargs",
        "cfunction_vectorcall_FASTCALL_KEYWORDS_METHOD",
        "method_vectorcall",
        "method_vectorcall_VARARGS_KEYWORDS",
        "type_call",
        "slot_tp_init",
        "slot_nb_add",
        "property_descr_get",
        "calliter_iternext",
        "gen_send_ex",
        "gen_iternext",
        "run_mod",
        "run_eval_code_obj",
        "pyrun_file",
        "_PyRun_SimpleFileObject",
        "PyRun_SimpleFileExFlags",
        "pymain_run_python",
        "Py_RunMain",
        "Py_BytesMain",
        "PyImport_ImportModuleLevelObject",
        "thread_run",
        "t_bootstrap",
        "pythread_wrapper",
        "main",
        "_start",
        "!584960",
    ] {
        let (location, role) = frame(&format!("{PY}!{name}"));
        assert!(is_glue(&location), "{name}");
        assert_eq!(role, Role::Runtime, "{name}");
    }
    for text in [
        "libpython3.13.so.1.0!list_sort_impl",
        "libpython3.13.so.1.0!PyDict_GetItem",
        "libpython3.13.so.1.0!long_add",
        "libpython3.13.so.1.0!PyThread_acquire_lock_timed",
        "libpython3.13.so.1.0!gc_collect_main",
        "_json.cpython-313-x86_64-linux-gnu.so!!2880",
        "libc.so.6!memmove",
        "shop!main",
        "shop!thread_run",
        "shop!type_call",
        "shop.Cart.total",
        "=threading.Thread.run",
    ] {
        assert!(!is_glue(&frame(text).0), "{text}");
    }
    assert!(is_glue(&frame("shop!_PyEval_EvalFrameDefault").0));
}
