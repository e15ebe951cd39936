use super::*;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::base_mark as mark;
use crate::model::projection::role;
use crate::model::vocabulary::role::Origin;
use crate::model::vocabulary::role::Role;

/// `frames` outermost first: `.` in names of Java, `libx!name` in a library of the system.
fn is_idle(state: State, frames: &[&str]) -> bool {
    let base = frames.iter().fold(Base::default(), |base, text| {
        let (module, name) = text.split_once('!').unwrap_or(("shop", text));
        let is_java = name.contains('.') && !name.contains("::");
        let kind = if is_java { FrameKind::Java } else { FrameKind::Native };
        let origin = match module {
            "shop" => Origin::Unknown,
            "mariadbd" | "varnishd" => Origin::App,
            "beam.smp" => Origin::Runtime,
            "node" => Origin::Runtime,
            _ => Origin::Library,
        };
        let location = Location { module: module.into(), ..Location::named(name, kind) };
        base.below(mark(&location, role(&location, origin)))
    });
    base.is_idle(state)
}

#[test]
fn a_wait_for_work_at_the_base_is_idle() {
    let start = ["libc.so.6!clone3", "start_thread", "libstdc++.so.6!fn_d4490"];
    for frames in [
        &[
            "shop::start::{lambda()#1}::operator()",
            "shop::pool::{lambda()#2}::operator()",
            "shop::Queue::take",
        ][..],
        &["shop::start::{lambda()#1}::operator()"],
        &["bioProcessBackgroundJobs"],
        &["worker", "Queue::wait_for_task"],
        &["node!node::(anonymous namespace)::PlatformWorkerThread", "node!uv_cond_wait"],
        &["node!worker", "node!uv_cond_wait"],
        &["node!node::inspector::StartIoThreadMain", "node!uv_sem_wait", "node!uv__sem_wait"],
        &["main", "Server::wait_for_shutdown"],
        &["main", "__libc_pause"],
        &["Worker::threadMain", "Worker::nextJob"],
        &["main", "shop::serve", "shop::wait_for_signal"],
        &["shop::main::{{closure}}", "shop::wait_for_job"],
        &["Pool::run", "Pool::getTask"],
    ] {
        let frames =
            [&start[..], frames, &["std::condition_variable::wait", "pthread_cond_wait"]].concat();
        assert!(is_idle(State::Wait, &frames), "{frames:?}");
    }
    for frames in [
        &["main", "svc::serve"][..],
        &["main"],
        &["main", "std::rt::lang_start_internal", "shop::main"],
        &["plan_loop"],
        &["shop::tick::{lambda()#1}::operator()", "svc::pause_ms"],
        &[
            "java.lang.Thread.run",
            "shop.Main.lambda$main$0",
            "shop.Main.nap",
            "java.lang.Thread.sleep",
        ],
    ] {
        assert!(
            is_idle(State::Sleep, &[&["_start"], frames, &["clock_nanosleep"]].concat()),
            "{frames:?}"
        );
    }
}

#[test]
fn threads_of_known_servers_have_few_functions_where_they_wait_for_work() {
    let start = ["libc.so.6!clone3", "start_thread"];
    let idle = |state, frames: &[&str]| is_idle(state, &[&start[..], frames].concat());
    let worker = ["varnishd!fn_7ffb0", "varnishd!fn_7f750"];
    let waits = ["varnishd!Lck_CondWaitUntil", "pthread_cond_wait"];
    assert!(idle(State::Wait, &[&worker[..], &waits].concat()));
    let job = ["varnishd!fn_2b5b0", "varnishd!CNT_Request"];
    for state in [State::Wait, State::Io, State::Sleep] {
        assert!(!idle(state, &[&worker[..], &job, &waits].concat()));
    }
    for (state, frames) in [
        (State::Wait, &["mariadbd!fn_c18070", "mariadbd!fn_c1f4e0", "pthread_cond_wait"][..]),
        (State::Wait, &["mariadbd!fn_c7f450", "mariadbd!signal_hand", "libc.so.6!__sigtimedwait"]),
        (State::Io, &["mariadbd!fn_ea0520", "__io_uring_get_cqe", "liburing.so.2!fn_28d0"]),
        (State::Io, &["beam.smp!fn_2e9b00", "beam.smp!fn_264160", "libc.so.6!read"]),
        (
            State::Io,
            &[
                "beam.smp!fn_2e9b00",
                "beam.smp!fn_73660",
                "beam.smp!erts_check_io",
                "beam.smp!erts_poll_wait_flbk",
                "ppoll",
            ],
        ),
        (State::Wait, &["beam.smp!fn_2e9b00", "beam.smp!fn_1fdac0", "beam.smp!ethr_event_wait"]),
        (State::Sleep, &["varnishd!fn_7f5b0", "varnishd!fn_84300", "varnishd!VTIM_sleep"]),
        (
            State::Sleep,
            &["beam.smp!main", "beam.smp!erl_start", "beam.smp!erts_sys_main_thread", "select"],
        ),
    ] {
        assert!(idle(state, frames), "{state:?} {frames:?}");
        assert!(!idle(State::Lock, frames) && !idle(State::Disk, frames), "{frames:?}");
    }
    let with_symbols = [
        "mariadbd!pfs_spawn_thread",
        "mariadbd!handle_manager",
        "mariadbd!inline_mysql_cond_timedwait",
        "pthread_cond_timedwait",
    ];
    assert!(idle(State::Wait, &with_symbols));
    for frames in [
        // A command, a group of transactions that waits for others, a probe of a backend.
        &["mariadbd!fn_c7f450", "mariadbd!handle_one_connection", "mariadbd!do_command"][..],
        &["mariadbd!fn_c7f450", "mariadbd!handle_rpl_parallel_thread", "pthread_cond_wait"],
        &["varnishd!fn_7ffb0", "varnishd!fn_7f750", "varnishd!vbp_task", "poll"],
        // A driver's own library.
        &["beam.smp!fn_2e9b00", "beam.smp!fn_1fdac0", "libdrv.so!work", "poll"],
    ] {
        for state in [State::Wait, State::Io, State::Sleep] {
            assert!(!idle(state, frames), "{state:?} {frames:?}");
        }
    }
    // Another program's functions may be jobs, also with such names.
    for name in ["scheduler_wait", "my_cond_wait_for_results", "do_handle_one_connection"] {
        assert!(!idle(State::Wait, &["fn_7ffb0", name, "pthread_cond_wait"]), "{name}");
    }
    assert!(!idle(State::Wait, &["fn_7ffb0", "fn_7f750", "pthread_cond_wait"]));
}

#[test]
fn a_wait_in_a_job_is_busy() {
    for frames in [
        &[
            "shop::main::{{closure}}",
            "shop::confirm",
            "shop::enqueue",
            "std::sync::mpsc::SyncSender<T>::send",
        ][..],
        &["shop::main::{{closure}}", "std::sync::mpsc::SyncSender<T>::send"],
        &["shop::start::{lambda()#1}::operator()", "shop::render", "shop::convert", "wait4"],
        &["shop::start::{lambda()#1}::operator()", "shop::render", "shop::Queue::take"],
        &["worker_loop", "shop::handle", "pthread_cond_wait"],
        &["worker_loop", "shop::Task::run", "pthread_cond_wait"],
        &["worker_loop", "shop::run::{lambda()#1}::operator()", "pthread_cond_wait"],
        &["main", "shop::fetch", "shop::pause_ms", "clock_nanosleep"],
        &["java.lang.Thread.run", "shop.Request.run", "java.lang.Object.wait"],
        &["java.lang.Thread.run", "shop.Request.run", "java.util.concurrent.FutureTask.get"],
        &[
            "java.lang.Thread.run",
            "java.util.concurrent.ThreadPoolExecutor.runWorker",
            "shop.Main.lambda$submit$0",
            "java.lang.Thread.sleep",
        ],
        &["java.lang.Thread.run", "shop.Convoy.slowFormat", "java.lang.Thread.sleep"],
        &["libx.so!run", "libx.so!fn_1a", "libx.so!fn_2b", "libx.so!fn_3c", "pthread_cond_wait"],
        &["libx.so!handle_request", "pthread_cond_wait"],
        &["libx.so!pool_run", "shop::on_reply", "pthread_cond_wait"],
        &["shop::serve_all", "libx.so!query", "pthread_cond_wait"],
        &["handle_request", "pthread_cond_wait"],
        &[
            "node!worker",
            "node!uv__queue_work",
            "node!node::ThreadPoolWork::ScheduleWork()::{lambda(uv_work_s*)#1}::_FUN",
            "node!node::zlib::Deflate",
            "node!uv_cond_wait",
        ],
        &["handle_request", "delay_ms", "clock_nanosleep"],
        &["shop::main::{{closure}}", "Pool::get_connection", "pthread_cond_wait"],
        &["java.lang.Thread.run", "shop.Request.run", "java.lang.Thread.sleep"],
    ] {
        let frames = [&["clone3"], frames].concat();
        for state in [State::Wait, State::Sleep] {
            assert!(!is_idle(state, &frames), "{state:?} {frames:?}");
        }
    }
}

#[test]
fn the_first_function_of_a_native_thread_may_have_any_name_but_that_of_a_job() {
    let start = ["clone3", "start_thread", "libstdc++.so.6!fn_d4490"];
    let idle = |state, frames: &[&str]| is_idle(state, &[&start[..], frames].concat());
    for frames in [
        &["updater", "pthread_cond_timedwait"][..],
        &["dispatch", "queue_get", "pthread_cond_wait"],
        &["dispatch", "inbox_sem_wait", "sem_wait"],
        &["reaper", "libc.so.6!__wait4"],
        &["signals", "libc.so.6!__sigwait", "__sigtimedwait"],
        &["shop::Pool::process", "std::counting_semaphore<1000>::acquire", "syscall"],
        &["shop::Pool::process", "shop::Channel<int>::pop", "pthread_cond_wait"],
        &["main::$_1::operator()", "std::_V2::condition_variable_any::wait<M>"],
        &["shop::pool::{{closure}}", "shop::worker", "std::sync::mpsc::Receiver<T>::recv"],
        &["shop::pool::{{closure}}", "std::sync::mpmc::list::Channel<T>::recv::{{closure}}"],
        &["shop::pool::{{closure}}", "shop::Worker::run", "shop::Inbox::next"],
        &["shop::pool::{{closure}}", "crossbeam_channel::select::run_select"],
        &["shop::worker", "shop::serve", "core::iter::for_each", "crossbeam_channel::recv"],
        &["shop::pool::{{closure}}", "core::iter::Iterator::for_each", "crossbeam_channel::recv"],
    ] {
        assert!(idle(State::Wait, frames), "{frames:?}");
    }
    assert!(idle(State::Sleep, &["housekeeping", "nanosleep"]));
    assert!(idle(State::Sleep, &["shop::Metrics::report", "std::this_thread::sleep_for<A>"]));
    for frames in [
        &["updater", "refresh", "pthread_cond_timedwait"][..],
        &["updater", "shop::{lambda()#1}::operator()", "pthread_cond_wait"],
        &["process_order", "queue_get", "pthread_cond_wait"],
        &["shop::Request::run", "queue_get", "pthread_cond_wait"],
        &["shop::serve::{{closure}}", "shop::Request::run", "shop::Queue::pop"],
        &["shop::serve::{{closure}}", "shop::Worker::run", "pthread_cond_wait"],
        &["updater", "___pthread_barrier_wait", "pthread_barrier_wait"],
        &["updater", "std::thread::join", "__pthread_clockjoin_ex"],
        &["updater", "std::__future_base::_State_baseV2::wait", "syscall"],
        &["updater", "std::__basic_future<int>::_M_get_result", "syscall"],
        &["updater", "<std::sync::barrier::Barrier>::wait", "pthread_cond_wait"],
        &["shop::pool::{{closure}}", "std::sync::mpsc::Sender<T>::send", "syscall"],
        &["shop::pool::{{closure}}", "std::sync::mpsc::list::recv", "shop::Item::drop"],
        &["shop::pool::{{closure}}", "core::iter::Iterator::for_each", "shop::Queue::pop"],
        &["libx.so!on_event", "queue_get", "pthread_cond_wait"],
    ] {
        assert!(!idle(State::Wait, frames), "{frames:?}");
    }
    assert!(!idle(State::Sleep, &["retry", "nanosleep"]));
    assert!(!idle(State::Sleep, &["updater", "refresh", "nanosleep"]));
}

#[test]
fn a_main_that_joins_threads_or_blocks_on_its_future_is_idle() {
    let idle = |frames: &[&str]| is_idle(State::Wait, &[&["_start"], frames].concat());
    let join = ["std::thread::join", "__pthread_clockjoin_ex", "libc.so.6!futex"];
    assert!(idle(&[&["main"], &join[..]].concat()));
    for join in ["lifecycle::JoinInner<T>", "join_handle::JoinHandle<T>", "JoinHandle<T>"] {
        assert!(idle(&["main", "shop::main", &format!("std::thread::{join}::join")]), "{join}");
    }
    assert!(idle(&["main", "shop::main", "tokio::runtime::runtime::Runtime::block_on"]));
    for frames in [
        &["main", "shop::sum", "std::thread::join"][..],
        &["main", "shop::fetch", "tokio::runtime::runtime::Runtime::block_on"],
        &["main", "std::thread::join", "shop::on_end"],
        &["shop::ask::{{closure}}", "tokio::runtime::runtime::Runtime::block_on"],
    ] {
        assert!(!idle(frames), "{frames:?}");
    }
}

#[test]
fn a_librarys_own_thread_waits_for_work_unless_it_calls_the_users() {
    let idle =
        |state, frames: &[&str]| is_idle(state, &[&["clone3", "start_thread"], frames].concat());
    assert!(idle(State::Wait, &["libtbb.so.12!fn_22180", "syscall"]));
    assert!(idle(State::Wait, &["libx.so!a", "libx.so!b", "libx.so!c", "pthread_cond_wait"]));
    let openmp = ["libomp.so.5!a"; 6];
    assert!(idle(State::Wait, &[&openmp[..], &["pthread_cond_wait"]].concat()));
    assert!(!idle(State::Wait, &[&openmp[..], &["shop::sum", "pthread_cond_wait"]].concat()));
    assert!(!idle(State::Wait, &["shop::sum", "libomp.so.5!a", "pthread_cond_wait"]));
    assert!(!idle(State::Wait, &["libx.so!a", "shop::task", "pthread_cond_wait"]));
    assert!(!idle(State::Sleep, &["libx.so!a", "nanosleep"]), "it may try again in a job");
}

#[test]
fn a_java_queue_is_a_wait_for_work_at_the_base_only() {
    let park = "java.util.concurrent.locks.LockSupport.park";
    let take = ["java.util.concurrent.LinkedBlockingQueue.take", park];
    let poll = [
        "java.util.concurrent.SynchronousQueue.poll",
        "java.util.concurrent.SynchronousQueue$TransferStack.transfer",
        park,
    ];
    let idle = |frames: &[&str]| {
        let start = ["start_thread", "java.lang.Thread.run"];
        is_idle(State::Wait, &[&start[..], frames].concat())
    };
    for base in ["shop.Consumer.run", "shop.Main.lambda$main$7", "ch.qos.logback.Worker.run"] {
        assert!(idle(&[&[base], &take[..]].concat()), "{base}");
        assert!(idle(&[&[base], &poll[..]].concat()), "{base}");
    }
    let hadoop = ["org.apache.hadoop.Handler.run", "org.apache.hadoop.CallQueueManager.take"];
    assert!(idle(&[&hadoop[..], &take[..]].concat()));
    let borrows = ["shop.Worker.run", "shop.Order.save", "org.apache.commons.Pool.take"];
    assert!(!idle(&[&borrows[..], &take[..]].concat()));
    assert!(idle(&["shop.Worker.run", "shop.Pool$Inbox.next", "java.lang.Object.wait"]));
    assert!(idle(&["shop.Main.lambda$main$7", park]));
    for base in [
        &["shop.Request.run"][..],
        &["shop.Worker.run", "shop.Order.confirm"],
        &["shop.Worker.run", "shop.Retry.run"],
        &["shop.Main.lambda$main$7", "shop.Main.lambda$named$1"],
        &["java.util.concurrent.ThreadPoolExecutor.runWorker", "shop.Main.lambda$main$7"],
        &["java.util.concurrent.FutureTask.run", "shop.Consumer.run"],
        &["shop.Pool.borrow"],
    ] {
        assert!(!idle(&[base, &take[..]].concat()), "{base:?}");
        assert!(!idle(&[base, &poll[..]].concat()), "{base:?}");
    }
    assert!(!idle(&["shop.Consumer.run", "java.util.concurrent.SynchronousQueue.put", park]));
    assert!(!idle(&["shop.Main.lambda$main$7", "java.util.concurrent.CountDownLatch.await"]));
}

#[test]
fn a_java_worker_that_waits_in_its_own_run_is_idle() {
    let park = "java.util.concurrent.locks.LockSupport.park";
    let sync = "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire";
    let condition = "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await";
    let idle = |frames: &[&str]| is_idle(State::Wait, &[&["start_thread"], frames].concat());
    let run = "java.lang.Thread.run";
    for frames in [
        // A class of a thread, and a task of one.
        &["shop.Main$Worker.run", "java.lang.Object.wait"][..],
        &[run, "shop.Main$Worker.run", "java.lang.Object.wait"],
        &[run, "shop.Flusher.run", condition, park],
        &[run, "shop.Parker.run", park],
        &[run, "shop.Gate.run", "java.util.concurrent.Semaphore.acquire", sync, park],
        &[run, "shop.Tick.run", "java.util.concurrent.CountDownLatch.await", sync, park],
        &["shop.Pump.run", "shop.OwnBlockingQueue.next", "java.lang.Object.wait"],
        &["shop.Pump.run", "shop.Signals.await", condition, park],
        &["shop.Pump.run", "shop.Backlog.next", "java.lang.Object.wait"],
        &["shop.Pump.run", "org.apache.mq.Consumer.receive", "java.lang.Object.wait"],
        &["shop.Named.run", run, "shop.Worker.run", "java.lang.Object.wait"],
        &["org.h2.mvstore.FileStore$BackgroundWriterThread.run", "java.lang.Object.wait"],
    ] {
        assert!(idle(frames), "{frames:?}");
    }
    let keeper = ["jdk.internal.misc.InnocuousThread.run", run, "sun.net.KeepAliveCache.run"];
    let keeper = [&["start_thread"], &keeper[..], &["java.lang.Thread.sleep"]].concat();
    assert!(is_idle(State::Sleep, &keeper));
    for frames in [
        &[run, "shop.PayRequest.run", "java.lang.Object.wait"][..],
        &["shop.Named.run", run, "shop.PayRequest.run", "java.lang.Object.wait"],
        &[run, "java.util.concurrent.FutureTask.run", "shop.Worker.run", park],
        &[run, "shop.OrderTask.call", condition, park],
        &[run, "shop.OrderTask.run", "java.util.concurrent.Semaphore.acquire", park],
        &[run, "shop.Worker.run", "shop.Order.confirm", "java.lang.Object.wait"],
        &[run, "shop.Worker.run", "shop.Reply.await", "java.lang.Object.wait"],
        &[run, "shop.Worker.run", "shop.ConnectionPool.next", park],
        &[run, "shop.Worker.run", "shop.Queue.next", "shop.Order.pay", park],
        &[run, "shop.Worker.run", "org.apache.Pool.borrow", park],
        &[run, "shop.Worker.run", "java.util.concurrent.CompletableFuture.get", park],
        &[run, "shop.Worker.run", "java.lang.Thread.join", "java.lang.Object.wait"],
        &[run, "org.apache.mq.SendTask.run", "java.lang.Object.wait"],
        &[run, "org.apache.mq.Sender.run", "org.apache.mq.Sender.flush", park],
        // The virtual machine collects garbage for it.
        &[run, "shop.Worker.run", "libc.so.6!pthread_cond_wait"],
        &[run, "shop.Main.lambda$main$7", "java.util.concurrent.Semaphore.acquire", park],
    ] {
        assert!(!idle(frames), "{frames:?}");
    }
}

#[test]
fn a_java_main_that_waits_for_the_end_of_a_server_is_idle() {
    let (wait, park) = ("java.lang.Object.wait", "java.util.concurrent.locks.LockSupport.park");
    let latch = "java.util.concurrent.CountDownLatch.await";
    let idle = |frames: &[&str]| is_idle(State::Wait, &[&["start_thread"], frames].concat());
    let grpc = "io.grpc.internal.ServerImpl.awaitTermination";
    for frames in [
        &["shop.Main.main", wait][..],
        &["shop.Main.main", park],
        &["shop.Main.main", latch, park],
        &["shop.Main.main", "java.lang.Thread.join", wait],
        &["shop.Main.main", "shop.Main.blockUntilShutdown", grpc, wait],
        &["shop.Main.main", "shop.Main.awaitExit", latch, park],
        &["shop.Main.main", "shop.Main.runUntilStopped", "java.lang.Thread.join", wait],
        &[
            "shop.Main.main",
            "io.netty.channel.DefaultChannelPromise.sync",
            "io.netty.util.concurrent.DefaultPromise.await",
            wait,
        ],
        &[
            "shop.Main.main",
            "org.eclipse.jetty.server.Server.join",
            "org.eclipse.jetty.util.thread.QueuedThreadPool.join",
            park,
        ],
        &[
            "shop.Main.main",
            "java.util.concurrent.CompletableFuture.join",
            "java.util.concurrent.CompletableFuture.waitingGet",
            park,
        ],
        &["shop.Main.main", "java.util.concurrent.FutureTask.get", park],
        &["shop.Main.main", "java.util.concurrent.ExecutorService.close", wait],
        &["java.lang.Thread.run", "shop.Main.lambda$main$0", grpc, wait],
        &["java.lang.Thread.run", "shop.Keeper.run", "shop.Server.awaitStop", latch, park],
    ] {
        assert!(idle(frames), "{frames:?}");
    }
    for frames in [
        &["shop.Main.main", "shop.Batch.load", "java.util.concurrent.FutureTask.get", park][..],
        &["shop.Main.main", "shop.Batch.runBackend", latch, park],
        &["shop.Main.main", "shop.Batch.load", "java.lang.Thread.join", wait],
        &["shop.Main.main", "com.zaxxer.hikari.HikariDataSource.getConnection", park],
        &["shop.Main.main", "org.apache.http.Client.get", park],
        &["shop.Main.main", "io.grpc.stub.ClientCalls.blockingUnaryCall", park],
        &["shop.Main.main", "org.eclipse.jetty.server.Server.join", "shop.Hook.stop", wait],
        &["shop.Main.main", "pthread_cond_wait"],
        &["shop.Main.main"],
        &["java.lang.Thread.run", "shop.Main.lambda$main$0", "java.lang.Thread.join", wait],
        &["java.lang.Thread.run", "shop.Main.lambda$main$0", "shop.Main.awaitExit", wait],
        &[
            "java.lang.Thread.run",
            "shop.Main.lambda$main$0",
            "java.util.concurrent.ThreadPoolExecutor.awaitTermination",
            park,
        ],
        &["java.lang.Thread.run", "shop.Batch.load", "shop.Main.main", wait],
    ] {
        assert!(!idle(frames), "{frames:?}");
    }
}

#[test]
fn inlined_functions_of_rust_are_known_by_their_files() {
    let of = |name: &str, file: &str| {
        let location = Location {
            module: "shop".into(),
            file: Some(file.into()),
            ..Location::named(name, FrameKind::Native)
        };
        mark(&location, Role::Library)
    };
    let std = "/rustc/4eb161250e340c8f48f66e2b929ef4a5bed7c181/library/std/src/thread/mod.rs";
    assert_eq!(of("wait_until", std), BaseMark::Library);
    assert_eq!(of("recv<alloc::boxed::Box<dyn FnOnce<()>>>", std), BaseMark::Receives);
    assert_eq!(of("join<()>", std), BaseMark::Joins);
    assert_eq!(of("with<Once>", std), BaseMark::Library);
    assert_eq!(of("send<u32>", std), BaseMark::Job);
    let registry = "/root/.cargo/registry/src/index/";
    let file = |place: &str| format!("{registry}{place}/src/lib.rs");
    assert_eq!(of("run_worker", &file("tokio-1.54.1")), BaseMark::OfPool);
    assert_eq!(of("recv<u32>", &file("crossbeam-channel-0.5.17")), BaseMark::Receives);
    assert_eq!(of("recv<u32>", &file("shop-0.1.0")), BaseMark::Foreign);
}

#[test]
fn a_thread_of_a_client_waits_for_its_requests() {
    let recv = "libc.so.6!__libc_recv";
    let read = "sun.nio.ch.NioSocketImpl.implRead";
    let idle = |frames: &[&str]| is_idle(State::Io, &[&["start_thread"], frames].concat());
    for frames in [
        &["session_main", "wait_for_client", "libc.so.6!__poll"][..],
        &["session_main", "chat::Session::readRequest", recv],
        &["chat::main::{{closure}}", "chat::next_command", "std::net::TcpStream::read", recv],
        &["listener", "accept_loop", "libc.so.6!accept4"],
        &["java.lang.Thread.run", "chat.Session.run", "chat.Session.readCommand", read, recv],
    ] {
        assert!(idle(frames), "{frames:?}");
    }
    for frames in [
        &["session_main", recv][..],
        &["session_main", "read_line", recv],
        &["session_main", "fetch_rate", "read_request", recv],
        &["session_main", "read_request", "authenticate", recv],
        &["session_main", "get_request", recv],
        &["session_main", "take_item", recv],
        &["java.lang.Thread.run", "chat.Session.run", "chat.Session.readReply", read, recv],
    ] {
        assert!(!idle(frames), "{frames:?}");
    }
}

#[test]
fn other_states_are_never_idle() {
    for state in State::ALL {
        let idle = is_idle(state, &["clone3", "worker", "Queue::take"]);
        assert_eq!(idle, matches!(state, State::Wait | State::Sleep), "{state:?}");
        let idle = is_idle(state, &["clone3", "worker", "wait_for_client"]);
        let can = matches!(state, State::Wait | State::Sleep | State::Io);
        assert_eq!(idle, can, "{state:?}");
    }
    assert!(!is_idle(State::Wait, &[]), "without code of the user the lists decide");
    assert!(!is_idle(State::Wait, &["worker", "Queue::take"]), "what is above is not known");
}

/// `frames` outermost first, below `runtime.goexit`: `main.x` is the user's, `runtime.x` the
/// runtime's, others are libraries'.
fn is_idle_in_go(state: State, frames: &[&str]) -> bool {
    let all = [&["runtime.goexit"], frames, &["runtime.gopark"]].concat();
    let base = all.into_iter().fold(Base::default(), |base, name| {
        let origin = match name.split('.').next() {
            Some("main") => Origin::App,
            _ => Origin::Library,
        };
        let file = Some("/src/a.go".into());
        let location = match name.starts_with('[') {
            true => Location::named(name, FrameKind::Marker),
            false => Location { file, ..Location::named(name, FrameKind::Native) },
        };
        base.below(mark(&location, role(&location, origin)))
    });
    base.is_idle(state)
}

#[test]
fn a_goroutine_that_waits_in_its_own_function_is_idle() {
    let receive = ["runtime.chanrecv2", "runtime.chanrecv"];
    for frames in [
        &["main.consume"][..],
        &["main.main.gowrap1", "main.consume"],
        &["main.(*Pool).work", "sync.(*Cond).Wait"],
        &["main.main.func1"],
        &["main.main.func1", "main.consume"],
        &["main.(*Server).Start.func2", "main.(*Server).drain"],
        &["main.(*Worker).watch", "main.(*Worker).loop"],
        &["runtime.main", "main.main", "sync.(*WaitGroup).Wait"],
        &["runtime.main", "main.main", "main.load"],
        &["runtime.main", "main.main", "cobra.execute", "main.run", "main.await"],
        &["database/sql.(*DB).connectionOpener"],
        &["net/http.(*persistConn).writeLoop"],
    ] {
        assert!(is_idle_in_go(State::Wait, &[frames, &receive].concat()), "{frames:?}");
        assert!(is_idle_in_go(State::Sleep, &[frames, &["time.Sleep"]].concat()), "{frames:?}");
        assert!(!is_idle_in_go(State::Lock, &[frames, &receive].concat()), "{frames:?}");
    }
    for frames in [
        &["net/http.(*conn).serve", "net/http.serverHandler.ServeHTTP", "main.one"][..],
        &["net/http.(*conn).serve", "net/http.serverHandler.ServeHTTP", "proxy.Handle"],
        &["main.consume", "main.price"],
        &["main.main.func1", "main.consume", "main.price"],
        &["main.(*Shop).order.func1", "main.price"],
        &["sort.Slice", "main.less"],
        &["runtime.main", "main.main", "main.load", "net/http.(*Client).Do"],
        &["main.(*Shop).order", "main.all", "sync.(*WaitGroup).Wait"],
        &["main.handleOrder"],
        // It waits for an answer, in a function of its own.
        &["main.poll", "net/http.(*Client).Get", "net/http.(*Client).do", "net/http.setRequest"],
        &["main.main.func1", "net/http.(*Transport).RoundTrip"],
        &["main.work", "google.golang.org/grpc.(*ClientConn).Invoke"],
        &["main.work", "database/sql.(*DB).QueryContext", "database/sql.(*DB).conn"],
        &["runtime.main", "main.main", "net/http.(*Client).do"],
    ] {
        assert!(!is_idle_in_go(State::Wait, &[frames, &receive].concat()), "{frames:?}");
    }
}

#[test]
fn a_goroutine_that_sends_has_work() {
    let send = ["runtime.chansend1", "runtime.chansend"];
    for frames in [
        &["main.stage"][..],
        &["main.query.func1"],
        &["main.(*Limiter).run", "main.(*Limiter).acquire"],
        &["runtime.main", "main.main"],
        &["github.com/fsnotify/fsnotify.(*Watcher).readEvents"],
    ] {
        assert!(!is_idle_in_go(State::Wait, &[frames, &send].concat()), "{frames:?}");
    }
    let select = ["main.stage", "runtime.selectgo"];
    assert!(is_idle_in_go(State::Wait, &select));
    assert!(!is_idle_in_go(State::Wait, &[&select[..], &["[select with a send]"]].concat()));
}

#[test]
fn a_goroutine_that_waits_for_a_client_is_idle_and_one_that_waits_for_an_answer_is_not() {
    let read = ["net.(*conn).Read", "internal/poll.(*FD).Read", "runtime.netpollblock"];
    let accept = ["net.(*TCPListener).Accept", "internal/poll.(*FD).Accept"];
    let main = ["runtime.main", "main.main", "net/http.ListenAndServe"];
    for frames in [
        [&main[..], &accept].concat(),
        [&["net/http.(*conn).serve", "net/http.(*conn).readRequest"][..], &read].concat(),
        [&["net/http.(*connReader).backgroundRead"][..], &read].concat(),
        [&["net/http.(*persistConn).readLoop"][..], &read].concat(),
    ] {
        assert!(is_idle_in_go(State::Io, &frames), "{frames:?}");
    }
    for frames in [
        [&["net/http.(*conn).serve", "net/http.serverHandler.ServeHTTP", "main.one"][..], &read]
            .concat(),
        [&["main.fetch"][..], &read].concat(),
        [&["runtime.main", "main.main", "net/http.Get"][..], &read].concat(),
    ] {
        assert!(!is_idle_in_go(State::Io, &frames), "{frames:?}");
    }
}
