//! Detects threads that wait for work, by a built-in list of frames.
//!
//! A blocked stack is idle if it waits for work. Two kinds of frames show that:
//!
//! * a frame that *only* waits for work and never runs a task: the stack is idle wherever that
//!   frame is;
//! * a *loop* that waits for work and also runs the tasks: the stack is idle only if all frames
//!   below the loop belong to the wait itself. A callback below the loop that waits for something
//!   else stays visible.
//!
//! A Java `main` that itself waits for other threads to end (`Thread.join` and similar) is idle
//! too: the work is visible in those threads. `main` must be the outermost Java method and the
//! direct caller. A request that joins its workers stays visible, and so does a method called by
//! `main` that joins: they do the program's own waiting.
//!
//! The states io, lock and disk are never idle. Poll always is, except in the listed functions that
//! run a query. So these lists decide about wait and sleep. A runtime's own threads wait only for
//! work, so they need no known frame.

use std::sync::LazyLock;

use regex::Regex;

use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::ThreadKind;
use crate::model::vocabulary::state::State;

/// Frames that only wait for work. Rust names are `a::B::c` or `<a::B>::c`, depending on their
/// mangling.
const WAITS: &[&str] = &[
    r"<?tokio::runtime::([a-z_]+::)*[A-Za-z]+(<.*>)?>?::park(_timeout|_condvar|_driver|_internal|_yield)?",
    r"<?tokio::park::.*::park(_timeout)?",
    r"<?rayon_core::sleep::Sleep>?::sleep",
    // C and C++: GLib, LLVM's and GNU's OpenMP, Apache, MySQL, oneTBB.
    r"g_thread_pool_wait_for_new_(task|pool)",
    r"__kmp_fork_barrier",
    r"gomp_simple_barrier_wait",
    r"ap_queue_pop_something",
    r"Per_thread_connection_handler::block_until_new_connection",
    r"tbb::.*rml::internal::thread_monitor::(commit_)?wait",
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
    r"org\.eclipse\.jetty\.util\.thread\.(QueuedThreadPool(\$Runner)?\.idleJobPoll|ReservedThreadExecutor\$ReservedThread\.reservedWait)",
    r"io\.netty\.util\.(concurrent\.SingleThreadEventExecutor\.takeTask|HashedWheelTimer\$Worker\.waitForNextTick)",
    r"kotlinx\.coroutines\.scheduling\.CoroutineScheduler\$Worker\.(tryPark|park)",
    r"com\.lmax\.disruptor\.[A-Za-z]*WaitStrategy\.waitFor",
    // Sleeps until Tomcat is to end.
    r"org\.apache\.catalina\.core\.StandardServer\.await",
    // Python, and CPython's own C functions.
    r"(queue\.)?((Lifo|Priority|Simple)?Queue\.)get|queue\.get",
    r"_queue_SimpleQueue_get(_impl)?",
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
    r"(ServiceThread|NotificationThread|MonitorDeflationThread)::[a-z]+_(deflation_)?thread_entry",
    r"GangWorker::loop|WorkerThread::run|G1Concurrent[A-Za-z]+Thread::run_service|NMethodSweeper::sweeper_loop",
    r"[ZX](Director|Driver[A-Za-z]*|Stat|Uncommitter|Unmapper)::(run_service|run_thread|thread_loop)",
    r"Shenandoah[A-Za-z]*Thread::run_service|signal_thread_entry|VMThread::loop",
    // The launcher's Java thread after `main` has returned. It also runs the shutdown hooks.
    r"Threads::destroy_vm|jni_DestroyJavaVM(_inner)?",
    r"java\.util\.concurrent\.ForkJoinPool\.runWorker",
    r"java\.util\.TimerThread\.mainLoop|org\.jboss\.threads\.EnhancedQueueExecutor\$ThreadBody\.run",
    r"org\.quartz\.(core\.QuartzSchedulerThread|simpl\.SimpleThreadPool\$WorkerThread)\.run",
    r"(concurrent\.futures\.thread\.)?_worker",
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
    r"uv_cond_(timed)?wait|uv_sem_wait|g_cond_wait(_until)?|g_async_queue_(timeout_)?pop(_intern)?(_unlocked)?|g_poll",
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
    r"(threading\.)?Condition\.wait|ngx_thread_cond_wait",
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

static LISTS: LazyLock<[Regex; 8]> = LazyLock::new(|| {
    [WAITS, LOOPS, PLUMBING, JOINS, C_LIBRARY, HELPERS, FUTURES, QUERIES].map(|list| {
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
    /// Any other Java method.
    Java,
}

/// Returns the role of a frame by the built-in list.
pub(in crate::model) fn mark(location: &Location) -> Mark {
    let [.., c_library, helpers, _, _] = &*LISTS;
    let name = &location.function;
    let is_java = location.kind == FrameKind::Java;
    let is_in =
        |modules: &Regex| redacted::of(name).is_none() && modules.is_match(&location.module);
    match mark_of_name(name, location.kind) {
        Mark::Nothing if is_in(c_library) => Mark::Plumbing,
        Mark::Nothing if is_in(helpers) => Mark::Waits,
        Mark::Nothing if is_java => Mark::Java,
        mark => mark,
    }
}

/// Returns the role of a frame by its name alone; [`Mark::Nothing`] without one.
pub(super) fn mark_of_name(name: &str, kind: FrameKind) -> Mark {
    let [waits, loops, plumbing, joins, _, _, futures, queries] = &*LISTS;
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
            _ => None,
        });
        return marks.next().unwrap_or_default();
    }
    if kind == FrameKind::Kernel {
        Mark::Plumbing
    } else if queries.is_match(name) {
        Mark::Query
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

/// Conclusion from the frames of a stack, from the outermost down to one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Wait {
    /// No frame of the program's own language says otherwise so far.
    #[default]
    Outside,
    /// A wait here is the program's own.
    Own,
    /// In `main`, the outermost Java method, and in no method that it calls.
    InMain,
    /// In a loop, with only plumbing below it.
    InLoop,
    /// Below a frame that only waits for work.
    ForWork,
    /// In a wait for a future, which may be a job's.
    ForFuture,
    /// In a query.
    InQuery,
}

impl Wait {
    /// Returns the conclusion with one more frame, further in.
    pub(super) fn below(self, mark: Mark) -> Wait {
        match (self, mark) {
            (Wait::InQuery, _) | (_, Mark::Query) => Wait::InQuery,
            (Wait::ForFuture, _) | (_, Mark::Future) => Wait::ForFuture,
            (Wait::ForWork, _) | (_, Mark::Waits) => Wait::ForWork,
            (_, Mark::Loop) => Wait::InLoop,
            (Wait::InLoop, Mark::Plumbing) => Wait::InLoop,
            (Wait::Outside, Mark::Nothing | Mark::Plumbing) => Wait::Outside,
            (Wait::Outside, Mark::Main) => Wait::InMain,
            (Wait::InMain, Mark::Join) => Wait::ForWork,
            _ => Wait::Own,
        }
    }

    /// Returns whether a thread in this state waits for work; `self` is the conclusion from its
    /// whole stack.
    pub(super) fn is_idle(self, kind: ThreadKind, state: State) -> bool {
        match state {
            State::Poll if self == Wait::InQuery => false,
            State::Poll => true,
            State::Wait | State::Sleep => {
                matches!(self, Wait::InLoop | Wait::ForWork) || kind == ThreadKind::Internal
            }
            State::Run | State::Rdy | State::Lock | State::Io | State::Disk | State::Stopped => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(name: &str) -> Location {
        let (module, function) = name.split_once('!').unwrap_or(("app", name));
        Location {
            function: function.into(),
            module: module.into(),
            file: None,
            line: None,
            kind: FrameKind::Native,
            tier: None,
        }
    }

    /// Returns whether the stack is idle; `frames` outermost first.
    fn is_idle(state: State, frames: &[&str]) -> bool {
        is_idle_of(ThreadKind::Plain, state, frames)
    }

    fn is_idle_of(kind: ThreadKind, state: State, frames: &[&str]) -> bool {
        frames
            .iter()
            .fold(Wait::default(), |wait, frame| wait.below(mark(&location(frame))))
            .is_idle(kind, state)
    }

    #[test]
    fn an_allocators_own_thread_waits_for_work_and_its_locks_are_waits() {
        let base = ["start_thread", "libjemalloc.so.2!fn_39c30", "libjemalloc.so.2!fn_39940"];
        assert!(is_idle(State::Wait, &[&base[..], &["pthread_cond_wait"]].concat()));
        let job = ["start_thread", "serve", "libjemalloc.so.2!malloc", "pthread_mutex_lock"];
        assert!(!is_idle(State::Lock, &job));
        // Another library's thread may be in a job.
        let other = ["start_thread", "libshop.so.2!fn_39c30", "pthread_cond_wait"];
        assert!(!is_idle(State::Wait, &other));
    }

    #[test]
    fn pools_that_wait_for_work_are_idle() {
        let condvar = "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout";
        for stack in [
            &["main", "tokio::runtime::park::Inner::park", condvar, "libc.so.6!syscall"][..],
            &[
                "tokio::runtime::scheduler::multi_thread::worker::Context::park_timeout",
                "libc.so.6!epoll_wait",
            ],
            &["<tokio::runtime::park::CachedParkThread>::park", condvar],
            &[
                "tokio::runtime::blocking::pool::Inner::run",
                "std::sync::poison::condvar::Condvar::wait_timeout",
                condvar,
            ],
            &[
                "rayon_core::registry::WorkerThread::wait_until_cold",
                "rayon_core::sleep::Sleep::sleep",
                condvar,
            ],
            &[
                "boost::asio::detail::scheduler::run",
                "boost::asio::detail::scheduler::do_run_one",
                "boost::asio::detail::posix_event::wait<boost::asio::detail::conditionally_enabled_mutex::scoped_lock>",
                "pthread_cond_wait",
                "libc.so.6!fn_8d1f0",
            ],
            &["uv_run", "uv__io_poll", "libc.so.6!epoll_pwait"],
            &["g_main_loop_run", "g_main_context_iterate.isra.0", "g_poll", "poll"],
            &[
                "java.lang.Thread.run",
                "java.util.concurrent.ThreadPoolExecutor.getTask",
                "a.Queue.take",
                "b.C.park",
            ],
            &["java.util.concurrent.ForkJoinPool.awaitWork", "jdk.internal.misc.Unsafe.park"],
            &[
                "org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask",
                "java.util.concurrent.LinkedBlockingQueue.poll",
            ],
            &["org.eclipse.jetty.util.thread.QueuedThreadPool$Runner.idleJobPoll", "b.C.park"],
            &[
                "org.jboss.threads.EnhancedQueueExecutor$ThreadBody.run",
                "java.util.concurrent.locks.LockSupport.park",
            ],
            &["io.netty.util.HashedWheelTimer$Worker.waitForNextTick", "java.lang.Thread.sleep"],
            &["Thread.run", "_worker", "Queue.get", "Condition.wait"],
            &["_worker", "libc.so.6!sem_clockwait"],
        ] {
            assert!(is_idle(State::Wait, stack), "{stack:?}");
            assert!(is_idle(State::Sleep, stack), "{stack:?}");
        }
    }

    #[test]
    fn threads_of_a_runtime_itself_need_no_names_to_be_idle() {
        let stack = ["clone3", "libjvm.so!fn_1a40", "pthread_cond_wait"];
        let of = |kind| {
            State::ALL
                .into_iter()
                .filter(|state| is_idle_of(kind, *state, &stack))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(ThreadKind::Internal), [State::Wait, State::Poll, State::Sleep]);
        assert_eq!(of(ThreadKind::Daemon), [State::Poll]);
    }

    #[test]
    fn virtual_machines_at_rest_are_idle() {
        // Frames as on JDK 11, 17, 21 and 25.
        let (park, cond) = ("os::PlatformEvent::park", "libc.so.6!__futex_abstimed_wait_common64");
        for stack in [
            &["VMThread::run", "VMThread::loop", "Monitor::wait", "Monitor::IWait", park, cond][..],
            &[
                "VMThread::loop",
                "VMThread::wait_for_vm_operations",
                "Monitor::wait",
                "PlatformMonitor::wait",
                cond,
            ],
            &[
                "GCTaskThread::run",
                "GCTaskManager::get_task",
                "Monitor::wait",
                "Monitor::IWait",
                park,
                cond,
            ],
            &["NMethodSweeper::sweeper_loop", "Monitor::wait", "Monitor::IWait", park, cond],
            &["ServiceThread::service_thread_entry", "Monitor::wait", "Monitor::IWait", park, cond],
            &[
                "XStat::run_service",
                "XMetronome::wait_for_tick",
                "Monitor::wait_without_safepoint_check",
                cond,
            ],
            &[
                "ShenandoahControlThread::run_service",
                "os::naked_short_sleep",
                "libc.so.6!__nanosleep",
            ],
            &[
                "java.util.TimerThread.mainLoop",
                "java.lang.Object.wait",
                "JVM_MonitorWait",
                "ObjectSynchronizer::wait",
                cond,
            ],
            &[
                "java.util.concurrent.ForkJoinPool.runWorker",
                "java.util.concurrent.locks.LockSupport.park",
                "Unsafe_Park",
            ],
            &[
                "java.lang.ref.ReferenceQueue.remove0",
                "java.lang.ref.NativeReferenceQueue.await",
                "java.lang.Object.wait0",
            ],
            &["java.lang.ProcessHandleImpl.waitForProcessExit0", "libc.so.6!__wait4"],
            &[
                "org.springframework.boot.web.embedded.tomcat.TomcatWebServer$1.run",
                "org.apache.catalina.core.StandardServer.await",
                "java.lang.Thread.sleep",
                cond,
            ],
            &[
                "java.lang.ref.Reference.tryHandlePending",
                "java.lang.Object.wait",
                "JVM_MonitorWait",
            ],
        ] {
            assert!(is_idle(State::Wait, stack), "{stack:?}");
        }
        let task = [
            "java.util.concurrent.ForkJoinPool.runWorker",
            "shop.Task.exec",
            "java.lang.Object.wait",
        ];
        assert!(!is_idle(State::Wait, &task));
    }

    /// Returns whether the stack is idle; `frames` outermost first. Native functions contain `::`
    /// or `!`.
    fn is_idle_java(frames: &[&str]) -> bool {
        let frame = |name: &&str| match name.contains("::") || name.contains('!') {
            true => location(name),
            false => Location { kind: FrameKind::Java, ..location(name) },
        };
        frames
            .iter()
            .fold(Wait::default(), |wait, name| wait.below(mark(&frame(name))))
            .is_idle(ThreadKind::Plain, State::Wait)
    }

    #[test]
    fn a_main_that_only_waits_for_others_to_end_is_idle() {
        let (start, park) = (
            ["libc.so.6!clone3", "libjli.so!JavaMain", "JavaCalls::call_helper"],
            "os::PlatformEvent::park",
        );
        let below_main = |frames: &[&'static str]| {
            is_idle_java(&[&start[..], frames, &[park, "libc.so.6!futex"]].concat())
        };
        let wait = ["java.lang.Object.wait", "libjvm.so!JVM_MonitorWait", "ObjectMonitor::wait"];
        let joins = ["shop.Main.main", "java.lang.Thread.join", "java.lang.Thread.join"];
        assert!(below_main(&[&joins[..], &wait].concat()));
        assert!(below_main(&[
            "shop.Main.main",
            "java.util.concurrent.CountDownLatch.await",
            "a.Sync.acquire"
        ]));
        assert!(below_main(&[
            "shop.Main.main",
            "java.util.concurrent.ThreadPoolExecutor.awaitTermination"
        ]));
        // A virtual machine without symbols.
        assert!(below_main(
            &[&joins[..], &["java.lang.Object.wait", "libjvm.so!fn_1a40"]].concat()
        ));
        // Not idle: another method joins, the program calls `main`, or `main` waits for something
        // else.
        for other in [
            &["shop.Main.main", "shop.Main.compute", "java.lang.Thread.join"][..],
            &["java.lang.Thread.run", "shop.Request.run", "java.lang.Thread.join"],
            &["java.lang.Thread.run", "shop.Main.main", "java.lang.Thread.join"],
            &["shop.Main.domain", "java.lang.Thread.join"],
            &["shop.Main.main", "java.lang.Object.wait"],
            &["shop.Main.main", "shop.Thread.join"],
            &["shop.Main.main"],
            &["java.lang.Thread.join"],
        ] {
            assert!(!below_main(&[other, &wait].concat()), "{other:?}");
        }
        // A native `main` has no such method below it.
        assert!(!is_idle(State::Wait, &["main", "java.lang.Thread.join"]));
    }

    #[test]
    fn the_launcher_waits_for_the_end_of_others_and_not_for_its_hooks() {
        let end = ["JavaMain", "jni_DestroyJavaVM", "Threads::destroy_vm"];
        let cond = ["Monitor::wait", "os::PlatformMonitor::wait", "libc.so.6!futex"];
        assert!(is_idle(State::Wait, &[&end[..], &cond].concat()));
        assert!(!is_idle(
            State::Wait,
            &[&end[..], &["java.lang.Shutdown.shutdown"], &cond].concat()
        ));
    }

    #[test]
    fn a_task_of_a_loop_that_waits_is_not_idle() {
        for stack in [
            &["boost::asio::detail::scheduler::do_run_one", "shop::checkout", "pthread_cond_wait"]
                [..],
            &["uv_run", "uv__io_poll", "on_read", "uv_cond_wait", "libc.so.6!pthread_cond_wait"],
            &["g_main_loop_run", "g_main_context_iterate", "on_click", "g_cond_wait"],
            &[
                "tokio::runtime::park::CachedParkThread::block_on",
                "shop::serve",
                "std::thread::park",
            ],
            &["_worker", "_WorkItem.run", "checkout", "Condition.wait"],
            &[
                "org.jboss.threads.EnhancedQueueExecutor$ThreadBody.run",
                "shop.Checkout.run",
                "java.util.concurrent.locks.LockSupport.park",
            ],
        ] {
            assert!(!is_idle(State::Wait, stack), "{stack:?}");
        }
    }

    #[test]
    fn a_thread_that_blocks_on_a_future_waits_for_that_and_not_for_work() {
        let park = ["tokio::runtime::park::Inner::park", "libc.so.6!syscall"];
        for block_on in [
            "tokio::runtime::runtime::Runtime::block_on",
            "<tokio::runtime::park::CachedParkThread>::block_on<F>",
        ] {
            assert!(!is_idle(State::Wait, &[&["shop::ask", block_on], &park[..]].concat()));
        }
        assert!(is_idle(State::Wait, &park));
    }

    #[test]
    fn a_query_never_waits_for_work() {
        let latch = ["WaitLatch", "WaitEventSetWait", "libc.so.6!epoll_wait"];
        let query = ["main", "PostgresMain", "exec_simple_query", "pg_sleep"];
        assert!(!is_idle(State::Poll, &[&query[..], &latch].concat()));
        let stripped = ["main", "PostgresMain", "postgres!fn_472280", "PortalRun", "pg_sleep"];
        assert!(!is_idle(State::Poll, &[&stripped[..], &latch].concat()));
        assert!(is_idle(
            State::Poll,
            &[&["main", "PostgresMain", "ReadCommand"], &latch[..]].concat()
        ));
        let taken =
            ["exec_execute_message", "g_async_queue_pop", "g_thread_pool_wait_for_new_task"];
        assert!(!is_idle(State::Wait, &taken));
    }

    #[test]
    fn sleep_and_wait_without_a_match_are_not_idle() {
        assert!(!is_idle(
            State::Sleep,
            &["main", "retry", "std::thread::sleep", "clock_nanosleep"]
        ));
        assert!(!is_idle(State::Wait, &["main", "join", "pthread_cond_wait"]));
        assert!(!is_idle(State::Wait, &[]));
    }

    #[test]
    fn only_poll_wait_and_sleep_can_be_idle() {
        let pool = ["tokio::runtime::park::Inner::park"];
        let idle: Vec<State> =
            State::ALL.into_iter().filter(|state| is_idle(*state, &pool)).collect();
        assert_eq!(idle, [State::Wait, State::Poll, State::Sleep]);
        for kind in [ThreadKind::Plain, ThreadKind::Daemon] {
            let idle: Vec<State> = State::ALL
                .into_iter()
                .filter(|state| is_idle_of(kind, *state, &["main"]))
                .collect();
            assert_eq!(idle, [State::Poll]);
        }
    }
}
