//! Marks frames for [`super::idle`], by a built-in list of names: of pools, queues and loops that
//! wait for work, and of what is between them and the system call.

use std::sync::LazyLock;

use regex::Regex;

use super::python::{self, InWait};
use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};

/// Frames that only wait for work. Rust names are `a::B::c` or `<a::B>::c`, depending on their
/// mangling.
const WAITS: &[&str] = &[
    r"<?tokio::runtime::([a-z_]+::)*[A-Za-z]+(<.*>)?>?::park(_timeout|_condvar|_driver|_internal|_yield)?",
    r"<?tokio::park::.*::park(_timeout)?",
    r"<?rayon_core::sleep::Sleep>?::sleep",
    // C and C++: GLib, LLVM's and GNU's OpenMP, Apache, MySQL, oneTBB, MariaDB.
    r"g_thread_pool_wait_for_new_(task|pool)",
    r"__kmp_fork_barrier",
    r"gomp_simple_barrier_wait",
    r"ap_queue_pop_something",
    r"Per_thread_connection_handler::block_until_new_connection",
    r"tbb::.*rml::internal::thread_monitor::(commit_)?wait",
    r"tpool::thread_pool_generic::(get_task|wait_for_tasks)(\(.*)?",
    // A Java virtual machine's own threads.
    r"CompileQueue::get",
    r"VMThread::wait_for_(vm_)?operations?",
    r"WatcherThread::sleep",
    r"[A-Za-z]*Dispatcher::worker_wait_for_task",
    r"G1[A-Za-z]*::wait_for_(next_cycle|task|completed_buffers)",
    r"StringDedup::Processor::wait_for_requests",
    r"(os::)?signal_wait",
    r"G1ServiceThread::sleep_before_next_cycle",
    r"GCTaskManager::get_task|[XZ]Metronome::wait_for_tick",
    // Threads whose only task is to wait for the thread of `main`.
    r"CallJavaMainInNewThread",
    // Java.
    r"(java\.util\.concurrent|org\.apache\.tomcat\.util\.threads)\.ThreadPoolExecutor\.getTask",
    r"(java\.util\.concurrent|scala\.concurrent\.forkjoin|akka\.dispatch\.forkjoin)\.ForkJoinPool\.(idleA|a)waitWork",
    r"java\.lang\.ref\.Reference\.(waitForReferencePendingList|tryHandlePending)",
    r"java\.lang\.ref\.(ReferenceQueue\.remove0?|NativeReferenceQueue\.await)",
    r"java\.lang\.(ProcessHandleImpl\.waitForProcessExit0|UNIXProcess\.waitForProcessExit)",
    r"org\.eclipse\.jetty\.util\.thread\.(QueuedThreadPool(\$Runner)?\.idleJobPoll|ReservedThreadExecutor\$ReservedThread\.(reservedWait|waitForTask))",
    r"org\.jboss\.threads\.EnhancedQueueExecutor\$PoolThreadNode\.park",
    r"okhttp3\.internal\.concurrent\.TaskRunner(\$RealBackend\.coordinatorWait|\.awaitTaskToRun)",
    r"okio\.AsyncTimeout(\$Companion)?\.awaitTimeout(\$okio)?",
    r"jdk\.jfr\.internal\.PlatformRecorder\.takeNap",
    r"io\.netty\.util\.(concurrent\.SingleThreadEventExecutor\.takeTask|HashedWheelTimer\$Worker\.waitForNextTick)",
    r"kotlinx\.coroutines\.scheduling\.CoroutineScheduler\$Worker\.(tryPark|park)",
    r"com\.lmax\.disruptor\.[A-Za-z]*WaitStrategy\.waitFor",
    // Sleeps until Tomcat is to end.
    r"org\.apache\.catalina\.core\.StandardServer\.await",
    // Threads of Go's scheduler: parked, the monitor, the one that starts others.
    r"runtime\.(stopm|mPark|sysmon|templateThread)",
    // `select {}`: a goroutine that waits for ever.
    r"runtime\.block",
    r"os/signal\.signal_recv",
];

/// Loops that wait for work and run it.
const LOOPS: &[&str] = &[
    r"<?tokio::runtime::blocking::pool::Inner>?::run",
    r"<?blocking::Executor>?::main_loop",
    r"(boost::)?asio::(io_context|io_service)::run(_one)?",
    r"(boost::)?asio::detail::(scheduler|task_io_service)::(do_)?(run|wait)(_one)?",
    r"uv__io_poll|uv_run",
    r"g_main_loop_run|g_main_context_iterate(_unlocked)?(\.isra\.\d+|\.constprop\.\d+)?|g_main_context_iteration",
    r"g_thread_pool_thread_proxy",
    r"event_base_loop|ev_run",
    r"QThreadPoolThread::run",
    r"tbb::.*rml::private_worker::run",
    r"ngx_thread_pool_cycle|ngx_(master|single)_process_cycle",
    // Apache's parent, BIND's main thread, Erlang's schedulers: a process that they take runs below
    // their caller.
    r"ap_wait_or_timeout|isc_app_(ctx)?run|erts_schedule",
    r"(ServiceThread|NotificationThread|MonitorDeflationThread)::[a-z]+_(deflation_)?thread_entry",
    r"GangWorker::loop|WorkerThread::run|G1Concurrent[A-Za-z]+Thread::run_service|NMethodSweeper::sweeper_loop",
    r"[ZX](Director|Driver[A-Za-z]*|Stat|Uncommitter|Unmapper)::(run_service|run_thread|thread_loop)",
    r"Shenandoah[A-Za-z]*Thread::run_service|signal_thread_entry|recorderthread_entry|VMThread::loop",
    // The launcher's Java thread after `main` has returned. It also runs the shutdown hooks.
    r"Threads::destroy_vm|jni_DestroyJavaVM(_inner)?",
    r"java\.util\.concurrent\.ForkJoinPool\.runWorker",
    r"java\.util\.TimerThread\.mainLoop|org\.jboss\.threads\.EnhancedQueueExecutor\$ThreadBody\.run",
    r"org\.quartz\.(core\.QuartzSchedulerThread|simpl\.SimpleThreadPool\$WorkerThread)\.run",
];

/// Frames between a loop and the system call in which it waits, except the C library and the
/// kernel.
const PLUMBING: &[&str] = &[
    r"_*(GI_)?_*pthread_cond_(timed|clock)?wait(64|_common)?",
    r"_*(new_)?sem_(timed|clock)?wait(_slow64|_common)?",
    r"_*futex_(abstimed_)?wait[a-z0-9_]*",
    r"_*(internal_)?syscall(_cancel)?(_arch)?",
    r"_*(epoll_p?wait2?|p?poll|p?select|(clock_)?nanosleep)(64|_time64)?",
    r"<?std::(sys|sync|thread)::.*(wait|park|sleep)[a-z_]*(<.*>)?",
    r"<?parking_lot(_core)?::.*(wait|park)[a-z_]*(<.*>)?",
    r"std::(_\w+::)?(condition_variable(_any)?|__condvar)::_*wait[a-z_]*(<.*>)?",
    r"__gthread_cond_(timed)?wait|std::this_thread::sleep_(for|until)(<.*>)?",
    // C++20's semaphores, and waits for an atomic.
    r"std::(counting_semaphore<.*>|__atomic_semaphore|__atomic_base<.*>|atomic<.*>|__detail::__\w+(<.*>)?)::_*(M_)?(try_)?(acquire|wait|do_wait)[a-z_]*(<.*>)?",
    r"std::(__atomic_wait_\w+|__detail::__\w*wait\w*)(<.*>)?",
    r"(boost::)?asio::detail::(conditionally_enabled_event|posix_event|std_event)::wait[a-z_]*(<.*>)?",
    r"boost::(condition_variable|thread)::.*wait[a-z_]*",
    r"uv__?(cond_(timed)?wait|sem_wait)|g_cond_wait(_until)?|g_async_queue_(timeout_)?pop(_intern)?(_unlocked)?|g_poll",
    r"g_main_context_poll(_unlocked)?|epoll_dispatch|epoll_poll|QWaitCondition(Private)?::wait(_relative)?",
    r"tbb::.*(wait|semaphore|futex)[A-Za-z_:]*",
    r"Monitor::(wait(_without_safepoint_check)?|IWait)|Object(Monitor|Synchronizer)::wait|JVM_MonitorWait|Unsafe_Park",
    r"os::naked_[a-z]*_?sleep",
    r"(os::)?(PlatformMonitor|PlatformEvent|Parker)::(wait|park)[a-z_]*",
    r"(Posix)?Semaphore::wait[a-z_]*|SemaphoreGangTaskDispatcher::[a-z_]+|WorkerTaskDispatcher::[a-z_]+|WatcherThread::run",
    r"MonitorLocker::wait|G1[A-Za-z]*::(wait_for_[a-z_]+|sleep_[a-z_]+)|Z[A-Za-z]*::(wait|get|receive|tick)[a-z_]*",
    r"java\.lang\.Object\.wait0?|(jdk\.internal|sun)\.misc\.Unsafe\.park",
    r"java\.util\.concurrent\.locks\.LockSupport\.park[A-Za-z]*",
    // Jobs take from queues too: answers, connections. `thread_base` decides by the place.
    r"java\.util\.concurrent\.[A-Za-z]*(Queue|Deque)(\$\w+)?\.(take|poll)(First|Last)?",
    r"ngx_thread_cond_wait",
    r"apr_(sleep|proc_wait_all_procs)|Lck_CondWait(Until|Timeout)?|VTIM_sleep",
    r"ethr_(event_t?wait|cond_wait)|erts_(check_io|poll_wait(_flbk)?)",
    r"_*io_uring_(get|wait)_cqes?(_[a-z]+)*",
];

/// The C library and the dynamic loader, whose internal functions have no names on most machines.
const C_LIBRARY: &[&str] = &[r"(libc|libpthread|ld)[-.].*"];

/// Libraries in which only threads of their own wait on a condition, often without names of
/// functions: jemalloc's background threads (its `background_thread.c`).
const HELPERS: &[&str] = &[r"libjemalloc[-.].*"];

/// Java methods that wait for other threads to end.
const JOINS: &[&str] = &[
    r"java\.lang\.Thread\.join",
    r"java\.util\.concurrent\.CountDownLatch\.await",
    r"java\.util\.concurrent\.[A-Za-z]+\.awaitTermination",
];

/// Functions that park their thread until a future is ready. That may be a job's; the parking below
/// them is the same as that of a worker.
const FUTURES: &[&str] = &[r"<?tokio::runtime::.*::block_on(_inner)?(<.*>)?"];

/// Functions that run a query: PostgreSQL's, MySQL's. What is below them is a job, also where it
/// polls: PostgreSQL waits for locks and its `pg_sleep` by epoll, in `WaitLatch`.
const QUERIES: &[&str] = &[
    r"exec_(simple_query|parse_message|bind_message|execute_message)|dispatch_command(\(.*)?",
    // Stripped packages have the names of exported functions only.
    r"PortalRun|standard_ExecutorRun|parse_analyze[a-z_]*|LockAcquire(Extended)?|ProcSleep",
];

/// Functions that read what other processes of the same server tell them: Apache's, Varnish's. They
/// may also do it; what they call for that is a job.
const ORDERS: &[&str] = &[r"ap_mpm_podx?_check", r"VCLS_Poll"];

static LISTS: LazyLock<[Regex; 9]> = LazyLock::new(|| {
    [WAITS, LOOPS, PLUMBING, JOINS, C_LIBRARY, HELPERS, FUTURES, QUERIES, ORDERS].map(|list| {
        let any = format!("^(?:{})$", list.join("|"));
        Regex::new(&any).expect("the shipped lists are regular expressions")
    })
});

/// The role of a frame in waiting for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::model) enum Mark {
    #[default]
    Nothing,
    Waits,
    Loop,
    Plumbing,
    /// A Java method with the name `main`.
    Main,
    /// A Java method that waits for other threads to end.
    Join,
    /// A function of tokio that waits for a future.
    Future,
    /// Runs a query.
    Query,
    /// Reads what to do from its own server's other processes.
    Orders,
    /// Any other Java method.
    Java,
}

/// Returns the role of a frame by the built-in list.
pub(in crate::model) fn mark(location: &Location) -> Mark {
    let [.., c_library, helpers, _, _, _] = &*LISTS;
    let name = &location.function;
    let is_java = location.kind == FrameKind::Java;
    let is_in =
        |modules: &Regex| redacted::of(name).is_none() && modules.is_match(&location.module);
    let known = match mark_of_name(name, location.kind) {
        Mark::Nothing => match python::in_wait(location) {
            Some(InWait::Orders) => Mark::Orders,
            Some(InWait::Loop) => Mark::Loop,
            Some(InWait::Plumbing) => Mark::Plumbing,
            None => Mark::Nothing,
        },
        mark => mark,
    };
    match known {
        Mark::Nothing if location.kind == FrameKind::Python => Mark::Nothing,
        Mark::Nothing if is_in(c_library) => Mark::Plumbing,
        Mark::Nothing if is_in(helpers) => Mark::Waits,
        Mark::Nothing if is_java => Mark::Java,
        Mark::Nothing => of_server(&location.module, name),
        mark => mark,
    }
}

/// Returns the role of a frame whose name may mean something else in another program.
fn of_server(module: &str, name: &str) -> Mark {
    match module {
        // Of its functions in a scheduler's wait only some have names.
        "beam.smp" if is_unnamed(name) || name == "scheduler_wait" => Mark::Plumbing,
        // A thread that is kept for the next client waits there.
        "mariadbd" if name.split('(').next() == Some("do_handle_one_connection") => Mark::Loop,
        _ => Mark::Nothing,
    }
}

/// Returns whether the function has no name: `beam.smp!fn_73ee0`.
fn is_unnamed(name: &str) -> bool {
    name.rsplit('!').next().is_some_and(|name| name.starts_with("fn_"))
}

/// Returns the role of a frame by its name alone; [`Mark::Nothing`] without one.
pub(super) fn mark_of_name(name: &str, kind: FrameKind) -> Mark {
    let [waits, loops, plumbing, joins, _, _, futures, queries, orders] = &*LISTS;
    let is_java = kind == FrameKind::Java;
    if let Some(roles) = redacted::of(name) {
        let mut marks = roles.filter_map(|role| match role {
            redacted::WAITS => Some(Mark::Waits),
            redacted::LOOP => Some(Mark::Loop),
            redacted::PLUMBING => Some(Mark::Plumbing),
            redacted::MAIN => Some(Mark::Main),
            redacted::JOIN => Some(Mark::Join),
            redacted::BLOCKS_ON => Some(Mark::Future),
            redacted::QUERY => Some(Mark::Query),
            redacted::ORDERS => Some(Mark::Orders),
            _ => None,
        });
        return marks.next().unwrap_or_default();
    }
    if kind == FrameKind::Kernel {
        Mark::Plumbing
    } else if kind == FrameKind::Python {
        Mark::Nothing
    } else if queries.is_match(name) {
        Mark::Query
    } else if orders.is_match(name) {
        Mark::Orders
    } else if futures.is_match(name) {
        Mark::Future
    } else if waits.is_match(name) {
        Mark::Waits
    } else if loops.is_match(name) {
        Mark::Loop
    } else if plumbing.is_match(name) {
        Mark::Plumbing
    } else if is_java && name.ends_with(".main") {
        Mark::Main
    } else if is_java && joins.is_match(name) {
        Mark::Join
    } else {
        Mark::Nothing
    }
}
