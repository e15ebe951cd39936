//! The first screen of each kind of incident: without a key it names the function of the program
//! that causes the trouble.

use sampletop::model::projection::waits::{Facts, Time};

use super::fixture::{Does, Doing, EPOLL_WAIT, FSYNC, FUTEX, NANOSLEEP, PID, RECVFROM, Script};
use super::*;

const WAIT4: i32 = 61;
const ACCEPT4: i32 = 288;

/// The tick, of 50 ms, in which trouble begins that was not there from the start. The screens are
/// of the ticks 200 to 800.
const BEGINS: u64 = 560;

fn waits(call: i32, fd: u64, stack: &'static str, wait: u64) -> Doing {
    Doing::Waits { call, fd, stack, wait: wait + 1 }
}

/// Returns `count` threads; `doing` gets the number of the thread and of the tick.
fn threads(
    name: &'static str,
    count: u64,
    doing: impl Fn(u64, u64) -> Doing + Copy + 'static,
) -> impl Iterator<Item = Script> {
    (1..=count).map(move |n| {
        let name = if count == 1 { name.to_string() } else { format!("{name}-{n}") };
        let doing: Does = Box::new(move |tick| doing(n, tick));
        Script { pid: PID, name, doing }
    })
}

/// Returns threads of a native pool that wait for work.
fn idle_pool(count: u64) -> impl Iterator<Item = Script> {
    const STACK: &str =
        "clone3;start_thread;shop::Pool::run:40;shop::Queue::pop:12;pthread_cond_wait";
    threads("pool", count, |_, _| waits(FUTEX, ADDRESS, STACK, 0))
}

/// A native thread of the service, down to a request.
macro_rules! request {
    ($rest:literal) => {
        concat!("clone3;start_thread;shop::Server::run:210;shop::Handler::handle:33;", $rest)
    };
}

/// A thread of Tomcat's pool, down to a request.
macro_rules! servlet {
    ($rest:literal) => {
        concat!(
            "clone3;start_thread;java!java.lang.Thread.run:840;",
            "java!org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker:1191;",
            "java!org.apache.catalina.core.StandardWrapperValve.invoke:167;",
            "java!org.springframework.web.servlet.DispatcherServlet.doDispatch:1089;",
            $rest
        )
    };
}

/// A thread of a pool of the Java library, down to its task.
macro_rules! task {
    ($rest:literal) => {
        concat!(
            "clone3;start_thread;java!java.lang.Thread.run:840;",
            "java!java.util.concurrent.ThreadPoolExecutor$Worker.run:642;",
            "java!java.util.concurrent.ThreadPoolExecutor.runWorker:1144;",
            $rest
        )
    };
}

fn hot_function() -> Vec<Script> {
    const HOT: &str = request!("shop::Report::render:77;shop::Money::format:19");
    const FINE: &str = request!("shop::Report::page:12;shop::Template::fill:140");
    const NEXT: &str = request!("shop::Socket::wait_for_request:71;epoll_wait");
    let web = |n, tick| match tick {
        _ if n == 3 && tick >= BEGINS => Doing::Runs(HOT),
        _ if (tick + n) % 20 == 0 => Doing::Runs(FINE),
        _ => waits(EPOLL_WAIT, 5, NEXT, tick / 20),
    };
    threads("web", 4, web).chain(idle_pool(200)).collect()
}

pub fn lock_convoy() -> Vec<Script> {
    const ENTERS: &str = servlet!(
        "java!com.shop.web.CheckoutController.submit:71;java!com.shop.Ledger.post:44;ObjectMonitor::enter;PlatformEvent::park;pthread_cond_wait"
    );
    const HOLDS: &str = servlet!(
        "java!com.shop.web.CheckoutController.submit:71;java!com.shop.Ledger.post:46;java!com.shop.Ledger.audit:90;java!java.lang.Thread.sleep:0;PlatformEvent::park;pthread_cond_timedwait"
    );
    let exec = |n, tick| match n {
        7 => waits(NANOSLEEP, 0, HOLDS, tick / 100),
        _ => waits(FUTEX, ADDRESS, ENTERS, 0),
    };
    threads("http-exec", 30, exec).chain(spring().into_iter().skip(10)).collect()
}

fn slow_backend() -> Vec<Script> {
    const ASKS: &str = request!("shop::Rates::refresh:31;curl_easy_perform;Curl_recv;recv");
    const CONVERTS: &str = request!("shop::Rates::convert:57");
    let web = |n, tick| match (tick + 7 * n) % 60 {
        0 => Doing::Runs(CONVERTS),
        _ => waits(RECVFROM, 37, ASKS, (tick + 7 * n) / 60),
    };
    threads("web", 8, web).chain(idle_pool(12)).collect()
}

fn disk_bound() -> Vec<Script> {
    const SYNCS: &str = request!("shop::Order::store:140;shop::Journal::append:88;fsync");
    const ENCODES: &str = request!("shop::Order::store:138;shop::Journal::encode:52");
    let web = |n, tick| match (tick + 3 * n) % 8 {
        0 => Doing::Runs(ENCODES),
        _ => waits(FSYNC, 3, SYNCS, (tick + 3 * n) / 8),
    };
    threads("web", 6, web).chain(idle_pool(12)).collect()
}

pub fn child() -> Vec<Script> {
    const WAITS: &str = request!("shop::Thumbnail::make:63;shop::run_command:22;waitpid;wait4");
    threads("img", 3, |n, tick| waits(WAIT4, 7000 + n, WAITS, tick / 200))
        .chain(idle_pool(12))
        .collect()
}

/// Backtracking, as deep as the input is long.
fn library_recursion() -> Vec<Script> {
    let depths: Vec<&'static str> = (0..20)
        .map(|depth| {
            let nested = "java!java.util.regex.Pattern$GroupTail.match:4863;java!java.util.regex.Pattern$Loop.match:4941;java!java.util.regex.Pattern$GroupHead.match:4804;".repeat(57 + depth);
            let stack = format!(
                "{}java!java.util.regex.Matcher.matches:766;java!java.util.regex.Matcher.match:1755;{nested}java!java.util.regex.Pattern$CharProperty.match:3965",
                servlet!("java!com.shop.web.SignUpController.submit:40;java!com.shop.EmailCheck.isValid:58;"),
            );
            // Leaked: the scripts want static text.
            &*stack.leak()
        })
        .collect();
    let exec: Does = Box::new(move |tick| Doing::Runs(depths[(tick * 7 % 20) as usize]));
    let hot = Script { pid: PID, name: "http-exec-4".into(), doing: exec };
    spring().into_iter().chain([hot]).collect()
}

fn full_channel() -> Vec<Script> {
    const SENDS: &str = "clone3;start_thread;shop::ingest::read_file:140;std::sync::mpsc::SyncSender<shop::Row>::send:300;std::sync::mpmc::array::Channel<shop::Row>::send:412;std::sync::mpmc::context::Context::wait_until:139;std::thread::park:1100;syscall";
    const PARSES: &str =
        "clone3;start_thread;shop::ingest::read_file:133;shop::ingest::parse_row:61";
    const STORES: &str = "clone3;start_thread;shop::store::run:20;shop::store::insert:77;shop::store::Index::rebalance:31";
    let reader = |n, tick| match (tick + 5 * n) % 20 {
        0 => Doing::Runs(PARSES),
        _ => waits(FUTEX, ADDRESS, SENDS, (tick + 5 * n) / 20),
    };
    threads("reader", 4, reader).chain(threads("store", 1, |_, _| Doing::Runs(STORES))).collect()
}

fn saturated() -> Vec<Script> {
    const STEPS: &str = request!("shop::Risk::simulate:91;shop::Path::step:17");
    let calc = |n, tick| match (tick + n) % 4 {
        0 => Doing::Runs(STEPS),
        _ => Doing::Queues(STEPS),
    };
    threads("calc", 16, calc).chain(idle_pool(12)).collect()
}

/// A Spring Boot service without requests.
fn spring() -> Vec<Script> {
    const EXEC: &str = "clone3;start_thread;java!java.lang.Thread.run:840;java!org.apache.tomcat.util.threads.ThreadPoolExecutor.runWorker:1176;java!org.apache.tomcat.util.threads.ThreadPoolExecutor.getTask:1112;java!java.util.concurrent.LinkedBlockingQueue.take:435;java!java.util.concurrent.locks.LockSupport.park:371;java!jdk.internal.misc.Unsafe.park:0;Unsafe_Park;pthread_cond_wait";
    const ACCEPTOR: &str = "clone3;start_thread;java!java.lang.Thread.run:840;java!org.apache.tomcat.util.net.Acceptor.run:128;java!sun.nio.ch.ServerSocketChannelImpl.accept:425;accept";
    const POLLER: &str = "clone3;start_thread;java!java.lang.Thread.run:840;java!org.apache.tomcat.util.net.NioEndpoint$Poller.run:787;java!sun.nio.ch.SelectorImpl.select:146;java!sun.nio.ch.EPoll.wait:0;epoll_wait";
    const SCHEDULED: &str = task!(
        "java!java.util.concurrent.ThreadPoolExecutor.getTask:1062;java!java.util.concurrent.ScheduledThreadPoolExecutor$DelayedWorkQueue.take:1170;java!java.util.concurrent.locks.LockSupport.parkNanos:269;java!jdk.internal.misc.Unsafe.park:0;Unsafe_Park;pthread_cond_timedwait"
    );
    const DESTROY: &str =
        "clone3;start_thread;jni_DestroyJavaVM;Threads::destroy_vm;Monitor::wait;pthread_cond_wait";
    const OWN: &str = "clone3;start_thread;Thread::call_run;VMThread::run;VMThread::loop;Monitor::wait;pthread_cond_wait";
    let parked = |stack| move |_, _| waits(FUTEX, ADDRESS, stack, 0);
    threads("http-exec", 10, parked(EXEC))
        .chain(threads("^http-poller", 1, |_, _| waits(EPOLL_WAIT, 9, POLLER, 0)))
        .chain(threads("^http-acceptor", 1, |_, _| waits(ACCEPT4, 8, ACCEPTOR, 0)))
        .chain(threads("^hikari-house", 1, parked(SCHEDULED)))
        .chain(threads("scheduling-1", 1, |_, tick| waits(FUTEX, ADDRESS, SCHEDULED, tick / 100)))
        .chain(threads("DestroyJavaVM", 1, parked(DESTROY)))
        .chain(threads("~VM Thread", 1, parked(OWN)))
        .chain(threads("~GC Thread", 4, parked(OWN)))
        .collect()
}

fn malloc_contention() -> Vec<Script> {
    const ALLOCATES: &str = request!(
        "shop::Feed::parse:45;shop::Token::copy:9;operator new(unsigned long);malloc;_int_malloc"
    );
    const LOCKS: &str = request!(
        "shop::Feed::parse:45;shop::Token::copy:9;operator new(unsigned long);malloc;__lll_lock_wait_private"
    );
    const FREES: &str =
        request!("shop::Feed::parse:52;shop::Token::clear:15;free;__lll_lock_wait_private");
    let feed = |n, tick| match (tick + n) % 8 {
        0 => Doing::Runs(ALLOCATES),
        1..3 => waits(FUTEX, ADDRESS, FREES, tick),
        _ => waits(FUTEX, ADDRESS, LOCKS, tick),
    };
    threads("feed", 16, feed).chain(idle_pool(12)).collect()
}

fn endless_loop() -> Vec<Script> {
    const TRIES: &str = request!("shop::Payment::settle:118;shop::Retry::next_delay:40");
    const SERVES: &str = request!("shop::Cart::total:31");
    const NEXT: &str = request!("shop::Socket::wait_for_request:71;epoll_wait");
    let web = |n, tick| match (tick + 11 * n) % 40 {
        _ if n == 17 && tick >= BEGINS => Doing::Runs(TRIES),
        0 => Doing::Runs(SERVES),
        _ => waits(EPOLL_WAIT, 5, NEXT, (tick + 11 * n) / 40),
    };
    threads("web", 51, web).collect()
}

/// Every thread of the pool waits for a task that no thread of the pool is left to run.
fn self_wait() -> Vec<Script> {
    const GETS: &str = task!(
        "java!java.util.concurrent.FutureTask.run:317;java!com.shop.ReportJob.call:33;java!com.shop.Report.sections:51;java!java.util.concurrent.FutureTask.get:190;java!java.util.concurrent.FutureTask.awaitDone:447;java!java.util.concurrent.locks.LockSupport.park:221;java!jdk.internal.misc.Unsafe.park:0;Unsafe_Park;pthread_cond_wait"
    );
    threads("report-pool", 8, |_, _| waits(FUTEX, ADDRESS, GETS, 0)).chain(spring()).collect()
}

/// An address of the target, as an argument of a call.
const ADDRESS: u64 = 0x7f3a_5c00_0020;

/// Each kind of incident, the function of the program that causes it, and its threads. An idle
/// service has none.
fn incidents() -> [(&'static str, &'static str, Vec<Script>); 12] {
    [
        ("hot-function", "Money::format", hot_function()),
        ("lock-convoy", "Ledger.post", lock_convoy()),
        ("slow-backend", "Rates::refresh", slow_backend()),
        ("disk-bound", "Journal::append", disk_bound()),
        ("child", "run_command", child()),
        ("library-recursion", "EmailCheck.isValid", library_recursion()),
        ("full-channel", "Index::rebalance", full_channel()),
        ("saturated", "Path::step", saturated()),
        ("idle-service", "", spring()),
        ("malloc", "Token::copy", malloc_contention()),
        ("endless-loop", "Retry::next_delay", endless_loop()),
        ("self-wait", "Report.sections", self_wait()),
    ]
}

#[test]
fn the_first_screen_names_the_cause() {
    for (kind, cause, scripts) in incidents() {
        let snapshot = Arc::new(World::new(scripts).run(40 * SECOND).snapshot());
        for (width, height) in [(80, 24), (120, 40), (200, 60)] {
            let mut live = Live::new(width, height, AppConfig::default());
            live.facts = Facts {
                files: vec![(37, "-> 10.0.3.9:8443".into()), (3, "/srv/shop/journal".into())],
                watched: Some(40),
                time: Some(Time::Whole(5 * SECOND)),
                holder: Some("http-exec-7".into()),
                ..Facts::default()
            };
            live.send(Input::Snapshot(snapshot.clone()));
            let screen = live.screen();
            golden(&format!("incident-{kind}-{width}x{height}.txt"), &screen);
            assert!(screen.contains(cause), "{kind}: {cause} is the cause:\n{screen}");
            let nothing = screen.contains("nothing to see");
            assert_eq!(nothing, cause.is_empty(), "{kind}:\n{screen}");
        }
    }
}

#[test]
fn one_collection_in_a_program_at_rest_is_no_trouble() {
    let screen = |every: u64| {
        const COLLECTS: &str = "clone3;start_thread;Thread::call_run;GCTaskThread::run";
        let collector = move |_, tick: u64| match tick % every {
            0 => Doing::Runs(COLLECTS),
            _ => waits(FUTEX, ADDRESS, COLLECTS, tick / every),
        };
        let scripts = spring().into_iter().chain(threads("~GC Thread#9", 1, collector)).collect();
        let mut live = Live::new(80, 24, AppConfig::default());
        live.send(Input::Snapshot(Arc::new(World::new(scripts).run(40 * SECOND).snapshot())));
        live.screen()
    };
    let (rest, busy) = (screen(20), screen(5));
    assert!(!rest.contains("gc ") && rest.contains("nothing"), "{rest}");
    assert!(busy.contains("gc 100 %"), "{busy}");
}
