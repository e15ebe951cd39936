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
//! The states lock and disk are never idle. By these lists io is idle only where a server reads its
//! own orders. Poll always is, except in the listed functions that run a query. So these lists
//! decide about wait and sleep. A runtime's own threads wait only for work, so they need no known
//! frame.

use super::idle_marks::Mark;
use crate::model::vocabulary::frame::ThreadKind;
use crate::model::vocabulary::state::State;

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
    /// In a function that reads its own server's orders.
    ForOrders,
}

impl Wait {
    /// Returns the conclusion with one more frame, further in.
    pub(super) fn below(self, mark: Mark) -> Wait {
        match (self, mark) {
            (Wait::InQuery, _) | (_, Mark::Query) => Wait::InQuery,
            (_, Mark::Orders) | (Wait::ForOrders, Mark::Plumbing) => Wait::ForOrders,
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
                matches!(self, Wait::InLoop | Wait::ForWork | Wait::ForOrders)
                    || kind == ThreadKind::Internal
            }
            State::Io => self == Wait::ForOrders,
            State::Run | State::Rdy | State::Lock | State::Disk | State::Stopped => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::{FrameKind, Location};
    use crate::model::projection::idle_marks::mark;

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
            &[
                "org.eclipse.jetty.util.thread.ReservedThreadExecutor$ReservedThread.waitForTask",
                "b.C.park",
            ],
            &["org.jboss.threads.EnhancedQueueExecutor$PoolThreadNode.park", "b.C.park"],
            &["okhttp3.internal.concurrent.TaskRunner$RealBackend.coordinatorWait", "b.C.wait"],
            &["okio.AsyncTimeout$Companion.awaitTimeout$okio", "b.C.await"],
            &["jdk.jfr.internal.PlatformRecorder.takeNap", "java.lang.Object.wait"],
            &["JavaThread::run", "recorderthread_entry", "Monitor::wait", "libc.so.6!futex"],
        ] {
            assert!(is_idle(State::Wait, stack), "{stack:?}");
            assert!(is_idle(State::Sleep, stack), "{stack:?}");
        }
    }

    #[test]
    fn parked_threads_of_gos_scheduler_are_idle() {
        let futex = ["runtime.futexsleep", "runtime.futex"];
        for stack in [
            &["runtime.findRunnable", "runtime.stopm", "runtime.mPark", "runtime.notesleep"][..],
            &["runtime.schedule", "runtime.stoplockedm", "runtime.mPark", "runtime.notesleep"],
            &["runtime.schedule", "runtime.startlockedm", "runtime.stopm", "runtime.notesleep"],
            &["runtime.exitsyscallNoP", "runtime.stopm", "runtime.mPark"],
            &["runtime.mstart1", "runtime.sysmon", "runtime.notetsleep"],
            &["runtime.mstart1", "runtime.templateThread", "runtime.notesleep"],
            &["runtime.goexit", "os/signal.loop", "os/signal.signal_recv", "runtime.notetsleepg"],
        ] {
            assert!(is_idle(State::Wait, &[stack, &futex].concat()), "{stack:?}");
        }
        assert!(is_idle(State::Sleep, &["runtime.mstart1", "runtime.sysmon", "runtime.usleep"]));
        assert!(is_idle(State::Poll, &["runtime.findRunnable", "runtime.netpoll"]));
        // A goroutine that keeps its thread: in C, at a lock of the runtime.
        for stack in [
            &["runtime.goexit", "main.fetch", "runtime.cgocall", "pthread_cond_wait"][..],
            &["runtime.goexit", "main.fetch", "runtime.notetsleepg", "runtime.futexsleep"],
            &["runtime.findRunnable", "runtime.lock2", "runtime.futexsleep"],
        ] {
            assert!(!is_idle(State::Wait, stack), "{stack:?}");
        }
        assert!(!is_idle(State::Sleep, &["runtime.goexit", "main.retry", "runtime.usleep"]));
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
        // Not idle here: another method joins, the program calls `main`, or `main` waits for
        // something else, of which `thread_base` decides.
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
    fn threads_of_known_servers_wait_for_work() {
        let scheduler = ["erts_dirty_process_main", "beam.smp!erts_schedule"];
        let waits = ["beam.smp!fn_73ee0", "beam.smp!ethr_event_twait", "libc.so.6!syscall"];
        assert!(is_idle(State::Wait, &[&scheduler[..], &waits].concat()));
        assert!(!is_idle(State::Lock, &[&scheduler[..], &waits].concat()));
        let port = ["beam.smp!erts_port_task_execute", "beam.smp!fn_1000"];
        assert!(!is_idle(State::Wait, &[&scheduler[..], &port, &waits].concat()));
        assert!(!is_idle(State::Wait, &["erts_dirty_process_main", "efile_pwrite", "wait"]));
        let connection = ["mariadbd!handle_one_connection", "mariadbd!do_handle_one_connection"];
        let cond = ["pthread_cond_timedwait"];
        assert!(is_idle(State::Wait, &[&connection[..], &cond].concat()));
        assert!(!is_idle(State::Wait, &[&connection[..], &["do_command"], &cond].concat()));
        assert!(!is_idle(
            State::Wait,
            &[&["worker", "do_handle_one_connection"], &cond[..]].concat()
        ));
        assert!(!is_idle(State::Wait, &["worker", "scheduler_wait", "pthread_cond_wait"]));
        let named = ["main", "isc_app_run", "isc_app_ctxrun", "libc.so.6!__sigwait"];
        assert!(is_idle(State::Wait, &named));
        // For a child.
        let child = ["worker_loop", "handle_request", "run_child", "libc.so.6!__sigtimedwait"];
        assert!(!is_idle(State::Wait, &child));
        let parent = ["ap_run_mpm", "ap_wait_or_timeout", "apr_sleep", "libc.so.6!__select"];
        assert!(is_idle(State::Sleep, &parent));
        assert!(!is_idle(State::Sleep, &["ap_wait_or_timeout", "ap_run_monitor", "nap"]));
        let orders = ["main", "ap_run_mpm", "ap_mpm_podx_check", "libc.so.6!__libc_read"];
        assert!(is_idle(State::Io, &orders));
        assert!(!is_idle(State::Disk, &orders));
        assert!(!is_idle(State::Io, &["main", "ap_run_mpm", "ap_read_request", "__libc_read"]));
        assert!(is_idle(State::Io, &["child_main", "VCLS_Poll", "libc.so.6!__poll"]));
        let order = ["child_main", "VCLS_Poll", "mcf_vcl_load", "libc.so.6!__libc_read"];
        assert!(!is_idle(State::Io, &order));
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
