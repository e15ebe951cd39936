//! An invented shop server: events made by hand, through the real recorder, into a snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::facts::snapshot::{Health, Session, Snapshot, Target, Wanted};
use sampletop::model::facts::tables::{FrameKind, Location, Named, Tier};
use sampletop::model::projection::waits::{Answer, Asked, Facts, Time, describe};
use sampletop::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use sampletop::model::vocabulary::event::{
    Counters, Event, Losses, Observation, Seen, Syscall, Tick,
};
use sampletop::model::vocabulary::frame::{
    FileId, FrameCode, Marker, Ns, RawFrame, RawName, SECOND, ThreadKey, ThreadKind,
};
use sampletop::model::vocabulary::role::{Origin, Origins};

pub const MS: Ns = 1_000_000;
const STARTED: Ns = 1_000 * SECOND;
/// 2026-03-14 14:03:10 UTC.
const STARTED_UNIX: i128 = 1_773_496_990_000_000_000;
pub const PID: u32 = 4321;
const TICK: Ns = 50 * MS;

pub const RECVFROM: i32 = 45;
pub const FUTEX: i32 = 202;
pub const NANOSLEEP: i32 = 35;
pub const EPOLL_WAIT: i32 = 232;
pub const FSYNC: i32 = 74;

/// What a thread does during one tick.
#[derive(Clone, Copy)]
pub enum Doing {
    /// On a core, in this stack.
    Runs(&'static str),
    /// Ready for a core all the time, after it ran in this stack for a moment.
    Queues(&'static str),
    /// In this system call, in this stack; a new `wait` number means a new wait.
    Waits { call: i32, fd: u64, stack: &'static str, wait: u64 },
}

pub type Does = Box<dyn Fn(u64) -> Doing>;

/// One thread: its process, its name (behind `^` of a daemon, behind `~` of a runtime itself) and
/// what it does in a tick.
pub struct Script {
    pub pid: u32,
    pub name: String,
    pub doing: Does,
}

pub struct World {
    recorder: Recorder,
    frames: HashMap<String, RawFrame>,
    /// By thread: its wait's number (0: none), its time on a core, its time ready for one, and how
    /// often it was put on one.
    last: HashMap<u32, (u64, Ns, Ns, u64)>,
    ticks: u64,
    scripts: Vec<Script>,
    wanted: Wanted,
    /// The beginning of names of threads, the mutex for which they wait, and its holder's name.
    held: Vec<(&'static str, u64, &'static str)>,
}

impl World {
    pub fn new(scripts: Vec<Script>) -> World {
        World {
            recorder: Recorder::new(STARTED, Limits::default()),
            frames: HashMap::new(),
            last: HashMap::new(),
            ticks: 0,
            scripts,
            wanted: Wanted::default(),
            held: Vec::new(),
        }
    }

    /// All waits of the threads whose names begin so are for this mutex, which `holder` holds.
    pub fn hold(mut self, waiters: &'static str, mutex: u64, holder: &'static str) -> World {
        self.held.push((waiters, mutex, holder));
        self
    }

    fn blocker(&self, name: &str) -> Option<RawBlocker> {
        let (_, object, holder) = *self.held.iter().find(|held| name.starts_with(held.0))?;
        let tid = PID + self.scripts.iter().position(|script| script.name == holder)? as u32;
        let holder = RawHolder::Thread { pid: PID, tid };
        Some(RawBlocker { kind: BlockerKind::Mutex, object, class: None, holder })
    }

    /// Three processes, found by a name: one that waits, and two that work, one twice as much.
    pub fn web() -> World {
        let doing: [Does; 3] = [
            Box::new(|_| Doing::Waits {
                call: FUTEX,
                fd: 0,
                stack: "main:9;ngx_master_cycle:50;sigsuspend",
                wait: 1,
            }),
            Box::new(|_| Doing::Runs("main:9;ngx_worker_cycle:70;ngx_http_parse:31")),
            Box::new(|tick| match tick % 2 {
                0 => Doing::Runs("main:9;ngx_worker_cycle:70;ngx_http_parse:31"),
                _ => Doing::Waits {
                    call: RECVFROM,
                    fd: 37,
                    stack: "main:9;ngx_worker_cycle:71;recv",
                    wait: tick,
                },
            }),
        ];
        let scripts =
            (PID + 1..).zip(doing).map(|(pid, doing)| Script { pid, name: "nginx".into(), doing });
        let wanted = Wanted { title: "nginx".into(), waits: true };
        World { wanted, ..World::new(scripts.collect()) }
    }

    /// The shop: request threads, a lock, a log that is synced, a pool that waits for work.
    pub fn shop() -> World {
        let mut scripts = Vec::new();
        for n in 0..12u64 {
            let name = format!("http-nio-exec-{n}");
            scripts.push(Script {
                pid: PID,
                name,
                doing: Box::new(move |tick| request_thread(n, tick)),
            });
        }
        for n in 0..4u64 {
            let name = format!("worker-{n}");
            scripts.push(Script { pid: PID, name, doing: Box::new(move |tick| worker(n, tick)) });
        }
        scripts.push(Script { pid: PID, name: "log-writer".into(), doing: Box::new(log_writer) });
        scripts.push(Script {
            pid: PID,
            name: "main".into(),
            doing: Box::new(|_| Doing::Waits {
                call: NANOSLEEP,
                fd: 0,
                stack: "main:12;shop::wait_for_signal:40;sleep",
                wait: 1,
            }),
        });
        for n in 0..40u64 {
            let name = format!("pool-{n}");
            let stack = "start_thread;shop::pool::Worker::run:71;epoll_wait";
            scripts.push(Script {
                pid: PID,
                name,
                doing: Box::new(move |_| Doing::Waits { call: EPOLL_WAIT, fd: 9, stack, wait: 1 }),
            });
        }
        World::new(scripts)
    }

    /// Threads and functions with names that are hard to draw.
    pub fn foreign() -> World {
        let stacks = [
            "main:1;設定を読み込む:12;データベース接続を待つ:7",
            "main:1;café\u{301}::menü:3;naïve:9",
            "main:1;🦀::run::<impl Fn() -> 👩‍👩‍👧>:3;קריאה:9",
            "main:1;a_function_whose_name_is_as_long_as_the_author_had_patience_for_and_then_some_more::{{closure}}::call:123456",
        ];
        let scripts = stacks.into_iter().enumerate().map(|(n, stack)| Script {
            pid: PID,
            name: ["読者", "e\u{301}", "🦀", "long-name-15-by"][n].into(),
            doing: Box::new(move |_| Doing::Runs(stack)),
        });
        World::new(scripts.collect())
    }

    /// Threads that spend their time in the kernel, with names for its functions and without.
    pub fn system() -> World {
        let stacks = [
            "main:12;shop::Backup::copy:44;read;kernel!entry_SYSCALL_64_after_hwframe;kernel!do_syscall_64;kernel!ksys_read;kernel!vfs_read;kernel!ext4_file_read_iter;kernel!filemap_read;kernel!_copy_to_iter",
            "main:12;shop::Backup::copy:44;read;kernel!entry_SYSCALL_64_after_hwframe;kernel!do_syscall_64;kernel!ksys_read;kernel!fdget_pos",
            "main:12;shop::Backup::copy:45;shop::Hash::update:19",
            "main:12;shop::Cache::grow:8;kernel!asm_exc_page_fault;kernel!exc_page_fault;kernel!a_function_of_the_kernel_whose_name_is_longer_than_its_column",
            "main:12;shop::Cache::grow:8;kernel![kernel];kernel![kernel] ",
        ];
        let doing = move |tick: u64| {
            Doing::Runs(stacks[[0, 0, 0, 1, 2, 3, 0, 0, 3, 4][(tick % 10) as usize]])
        };
        World::new(vec![Script { pid: PID, name: "backup".into(), doing: Box::new(doing) }])
    }

    /// A Java server: threads of its own, a daemon, and those of the virtual machine, of which some
    /// compile and some wait.
    pub fn jvm() -> World {
        let request = "clone3;JavaMain;java!java.lang.Thread.run:840;java!org.apache.catalina.core.StandardWrapperValve.invoke:167";
        let stop = "SafepointBlob;SafepointMechanism::process;SafepointSynchronize::block;syscall";
        let in_jvm = "clone3;thread_native_entry;Thread::call_run";
        let stacks = [
            format!("{request};java!com.shop.Cart$Item.total:31;java!com.shop.Pricing.round:12"),
            format!("{request};java!com.shop.Cart$Item.total:31;{stop}"),
            format!("{request};java!com.shop.db.PgStatement.executeQuery:154;recv"),
            format!(
                "{in_jvm};JavaThread::run;CompileBroker::compiler_thread_loop;C2Compiler::compile_method"
            ),
            format!("{in_jvm};WorkerThread::run;G1EvacuateRegionsTask::work"),
            format!("{in_jvm};VMThread::run;VMThread::loop;Monitor::wait"),
            format!("{request};java!com.shop.Watchdog.look:77;java!java.lang.Thread.sleep:0"),
        ];
        // Leaked: the scripts want static text.
        let stacks = stacks.map(|stack| &*stack.leak());
        let waits = move |call, stack: usize, wait| Doing::Waits {
            call,
            fd: 37,
            stack: stacks[stack],
            wait,
        };
        let http = move |tick: u64| match tick % 10 {
            0..5 => Doing::Runs(stacks[0]),
            5 => waits(FUTEX, 1, tick),
            _ => waits(RECVFROM, 2, tick / 10),
        };
        let compiler = move |tick: u64| {
            if tick.is_multiple_of(4) { waits(FUTEX, 5, tick) } else { Doing::Runs(stacks[3]) }
        };
        let collector = move |tick: u64| {
            if tick % 10 == 5 { Doing::Runs(stacks[4]) } else { waits(FUTEX, 5, tick) }
        };
        let own: [(&str, Does); 8] = [
            ("http-nio-exec-1", Box::new(http)),
            ("http-nio-exec-2", Box::new(http)),
            ("^watchdog", Box::new(move |_| waits(NANOSLEEP, 6, 1))),
            ("~C2 CompilerTh0", Box::new(compiler)),
            ("~G1 Conc#0", Box::new(move |_| waits(FUTEX, 5, 1))),
            ("~GC Thread#0", Box::new(collector)),
            ("~GC Thread#1", Box::new(collector)),
            ("~VM Thread", Box::new(move |_| waits(FUTEX, 5, 1))),
        ];
        World::new(own.map(|(name, doing)| Script { pid: PID, name: name.into(), doing }).into())
    }

    /// A recursion `depth` frames deep, and a fork at every level.
    pub fn deep() -> World {
        World::new(vec![Script {
            pid: PID,
            name: "deep".into(),
            doing: Box::new(|tick| {
                // Leaked once per stack: the scripts want static text, and there are 60 of these.
                let depth = 1 + (tick * 7) % 60;
                let stack: Vec<String> =
                    (0..depth).map(|d| format!("parse_level_{d}:{d}")).collect();
                Doing::Runs(stack.join(";").leak())
            }),
        }])
    }

    /// Lets `ns` pass.
    pub fn run(&mut self, ns: Ns) -> &mut World {
        for _ in 0..ns / TICK {
            self.tick();
        }
        self
    }

    fn tick(&mut self) {
        let from = STARTED + self.ticks * TICK;
        let at = from + TICK;
        for n in 0..self.scripts.len() {
            let tid = PID + n as u32;
            let doing = (self.scripts[n].doing)(self.ticks);
            let name = &self.scripts[n].name;
            let name = match (name.strip_prefix('~'), name.strip_prefix('^')) {
                (Some(name), _) => RawName::new(name.as_bytes()).of_kind(ThreadKind::Internal),
                (_, Some(name)) => RawName::new(name.as_bytes()).of_kind(ThreadKind::Daemon),
                _ => RawName::new(name.as_bytes()),
            };
            let thread = ThreadKey { pid: self.scripts[n].pid, tid, start: 77 };
            let last = self.last.get(&tid).copied();
            let (last_wait, mut run_ns, mut delay_ns, mut runs) = last.unwrap_or((0, 0, 0, 1));
            // A new wait after another one begins after a moment on a core.
            runs += match doing {
                Doing::Queues(_) => 1,
                Doing::Runs(_) => u64::from(last_wait != 0),
                Doing::Waits { wait, .. } => u64::from(last_wait != 0 && last_wait != wait),
            };
            let counters = |run_ns, delay_ns| Some(Counters { run_ns, delay_ns, runs });
            let mut scan = Vec::new();
            let wait = match doing {
                Doing::Runs(stack) => {
                    let stack = self.stack(stack);
                    run_ns += TICK;
                    for sample in 0..5 {
                        scan.push((
                            from + sample * TICK / 5 + TICK / 10,
                            Seen::OnCpu,
                            None,
                            stack.clone(),
                        ));
                    }
                    scan.push((at, Seen::Running, counters(run_ns, delay_ns), Vec::new()));
                    0
                }
                Doing::Queues(stack) => {
                    let stack = self.stack(stack);
                    run_ns += MS;
                    delay_ns += TICK - MS;
                    scan.push((from + MS, Seen::OnCpu, None, stack));
                    scan.push((at, Seen::Running, counters(run_ns, delay_ns), Vec::new()));
                    0
                }
                Doing::Waits { call, fd, stack, wait } => {
                    // An unmoved thread sends nothing.
                    if last_wait != wait || last.is_none() {
                        let seen =
                            Seen::Blocked(Syscall { number: call, args: [fd, 0, 0, 0, 0, 0] });
                        scan.push((at, seen, counters(run_ns, delay_ns), self.stack(stack)));
                    }
                    wait
                }
            };
            self.last.insert(tid, (wait, run_ns, delay_ns, runs));
            let blocker = self.blocker(&self.scripts[n].name);
            for (at, seen, counters, stack) in scan {
                self.recorder.apply(&Event::Observation(Observation {
                    counters,
                    stack,
                    blocker: blocker.filter(|_| matches!(seen, Seen::Blocked(_))),
                    ..Observation::new(at, thread, name, seen)
                }));
            }
        }
        self.ticks += 1;
        let losses =
            Losses { samples: self.ticks * 14, truncated: self.ticks / 70, ..Losses::default() };
        for pid in self.pids() {
            self.recorder.apply(&Event::Tick(Tick {
                late_ns: 80_000,
                losses,
                ..Tick::new(at, pid)
            }));
        }
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.scripts.iter().map(|script| script.pid).collect();
        pids.dedup();
        pids
    }

    /// Outermost first, `;` between frames, `:line` behind a name; `[...]` is a marker.
    fn stack(&mut self, text: &str) -> Vec<RawFrame> {
        text.split(';').rev().map(|frame| self.frame(frame)).collect()
    }

    fn frame(&mut self, text: &str) -> RawFrame {
        if text == "[torn]" {
            return RawFrame::marker(Marker::Torn);
        }
        let next = self.frames.len() as u64;
        *self.frames.entry(text.to_owned()).or_insert_with(|| match text.starts_with(KERNEL) {
            true => RawFrame::new(FrameCode::Kernel { address: 0xffff_ffff_8100_0000 + 64 * next }),
            false => {
                RawFrame::new(FrameCode::Code { file: FileId(1), offset: 64 * next, exact: false })
            }
        })
    }

    /// While symbols are still being loaded: frames are called by their offsets.
    pub fn unnamed_snapshot(&mut self) -> Snapshot {
        let mut snapshot = self.view();
        snapshot.health.naming = true;
        snapshot
    }

    pub fn snapshot(&mut self) -> Snapshot {
        let by_frame: HashMap<u64, String> =
            self.frames.iter().map(|(text, frame)| (frame.bits(), text.clone())).collect();
        for frame in self.recorder.take_unnamed() {
            if let Some(text) = by_frame.get(&frame.bits()) {
                // `libx.so!name`
                let is_library = text.contains(".so") && text.contains('!');
                let origin = if is_library { Origin::Library } else { Origin::Unknown };
                let named = Named::known([location(text)]);
                self.recorder.set_named(frame, Named { origins: Origins::All(origin), ..named });
            }
        }
        self.view()
    }

    fn view(&mut self) -> Snapshot {
        let view = self.recorder.view();
        let losses = view.losses;
        Snapshot {
            session: Arc::new(Session {
                version: "0.1.0".into(),
                host: "node7".into(),
                kernel: "6.18.0".into(),
                cores_milli: 4000,
                started: STARTED,
                started_unix_ns: STARTED_UNIX,
                interval_ns: 10 * MS,
                max_overhead_percent: None,
                wanted: self.wanted.clone(),
            }),
            targets: self.pids().into_iter().map(target).collect(),
            at: view.at,
            capture: "perf".into(),
            health: Health {
                ticks: view.ticks,
                losses,
                interval_achieved_ns: 10 * MS,
                visit_interval_ns: 50 * MS,
                late_p99_ns: 100_000,
                self_cpu_percent: 0.4,
                ..Health::default()
            },
            tables: view.tables,
            history: view.history,
            threads: view.threads,
            deadlocks: Arc::default(),
            observed_waits: Arc::default(),
            wakeups: None,
            notice: None,
            stopped: false,
        }
    }
}

fn target(pid: u32) -> Target {
    let command = match pid - PID {
        0 => "/srv/shop/bin/shopd --port 8080",
        n => ["nginx: master process", "nginx: worker process"][n.min(2) as usize - 1],
    };
    Target {
        pid,
        start: 77,
        command: command.into(),
        runtime: "native",
        uid: 1000,
        unit: None,
        started_unix_ns: STARTED_UNIX - 3_600_000_000_000,
        ended: None,
    }
}

/// What the shop's threads wait for.
pub fn shop_facts() -> Facts {
    Facts {
        files: vec![(37, "-> 10.0.3.9:5432".into()), (3, "/srv/shop/log/shop.log".into())],
        watched: Some(12),
        time: Some(Time::Whole(3600 * SECOND)),
        holder: Some("worker-3".into()),
        ..Facts::default()
    }
}

/// Returns the answers to requests about waits.
pub fn look_at(asked: &[Asked], facts: &Facts) -> Vec<Answer> {
    let answer = |asked: &Asked| Some(Answer { asked: *asked, waits_for: describe(asked, facts)? });
    asked.iter().filter_map(answer).collect()
}

/// Before the name of a function of the kernel.
const KERNEL: &str = "kernel!";
/// Before that of a Java method.
const JAVA: &str = "java!";
/// Before a function of Go: of package `main`, or of Go's own library.
const GO: &str = "go!";
/// Before the module of a Python function and `!`. `FILE!name` is a native function.
const PYTHON: &str = "py!";

fn location(text: &str) -> Location {
    if text.starts_with("[labels ") {
        return Location::named(text, FrameKind::Marker);
    }
    if let Some(function) = text.strip_prefix(KERNEL) {
        let named = Location::named(function.trim_end(), FrameKind::Kernel);
        return Location { module: "vmlinux".into(), ..named };
    }
    let (function, line) =
        match text.rsplit_once(':').and_then(|(f, line)| Some((f, line.parse().ok()?))) {
            Some((function, line)) => (function, Some(line)),
            None => (text, None),
        };
    if let Some(name) = function.strip_prefix(GO) {
        let is_own = name.starts_with("main.");
        let file = if is_own { "/src/main.go" } else { "/usr/local/go/src/net/x.go" };
        let named = Location::named(name, FrameKind::Native);
        return Location { module: "shopd".into(), file: Some(file.into()), line, ..named };
    }
    if let Some(method) = function.strip_prefix(JAVA) {
        let (class, name) = method.rsplit_once('.').unwrap_or(("", method));
        let native = name == "sleep";
        return Location {
            function: method.into(),
            module: class.into(),
            file: Some("X.java".into()),
            line: line.filter(|_| !native),
            kind: FrameKind::Java,
            tier: Some(if native { Tier::Native } else { Tier::C2 }),
        };
    }
    if let Some((module, name)) = function.strip_prefix(PYTHON).and_then(|f| f.split_once('!')) {
        let folder = if module.starts_with("shop") { "/app/" } else { "/usr/lib/python3.12/" };
        let file = Some(format!("{folder}{}.py", module.replace('.', "/")).into());
        let named = Location::named(&format!("{module}.{name}"), FrameKind::Python);
        return Location { module: module.into(), file, line, ..named };
    }
    let native = Location::named(function, FrameKind::Native);
    if let Some((module, name)) = function.split_once('!') {
        return Location { function: name.into(), module: module.into(), ..native };
    }
    if line.is_none() && function.contains("::") && !function.contains("shop") {
        return Location { module: "libjvm.so".into(), ..native };
    }
    let library = !function.contains("shop") && line.is_none();
    Location {
        module: if library { "libc.so.6" } else { "shopd" }.into(),
        file: line.map(|_| "/srv/shop/src/main.cpp".into()),
        line,
        ..native
    }
}

/// Returns a pseudorandom number.
fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 31;
    x.wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

macro_rules! serve {
    ($rest:literal) => {
        concat!(
            "start_thread;shop::http::Server::run:210;shop::http::Connection::serve:97;shop::http::Router::dispatch:64;",
            "shop::auth::Session::check:51;shop::trace::Span::enter:19;shop::http::Handler::handle:33;",
            $rest
        )
    };
}

/// Half of the twelve serve requests, the others wait for a connection. For two seconds there is a
/// rush.
fn request_thread(n: u64, tick: u64) -> Doing {
    let rush = (500..540).contains(&tick);
    if n % 2 == 1 && !rush {
        return Doing::Waits {
            call: EPOLL_WAIT,
            fd: 5,
            stack: serve!("shop::http::Accept::next:15;epoll_wait"),
            wait: 1 + tick / 200,
        };
    }
    match mix(n, tick) % 100 {
        0..58 => Doing::Waits {
            call: RECVFROM,
            fd: 37,
            stack: serve!(
                "shop::ShopController::checkout:88;pg::Statement::execute:154;pg::Connection::receive:310;recv"
            ),
            wait: 10 + tick / 6,
        },
        58..88 => Doing::Runs(serve!("shop::ShopController::checkout:90;shop::Pricing::round:31")),
        88..89 if n == 2 => {
            Doing::Runs(serve!("shop::ShopController::checkout:91;shop::TaxTable::lookup:12"))
        }
        88..96 => Doing::Runs(serve!(
            "shop::ShopController::search:140;shop::Index::<shop::Item>::find:77;shop::Tokenizer::next:23"
        )),
        _ => Doing::Runs(serve!(
            "shop::ShopController::search:141;std::vector<shop::Item, std::allocator<shop::Item> >::push_back:1180"
        )),
    }
}

fn worker(n: u64, tick: u64) -> Doing {
    if tick / 10 % 4 == n {
        return Doing::Runs(
            "start_thread;shop::Worker::run:20;shop::Cache::refresh:61;shop::Cache::rehash:75",
        );
    }
    Doing::Waits {
        call: FUTEX,
        fd: 0,
        stack: "start_thread;shop::Worker::run:20;shop::Cache::refresh:58;std::mutex::lock:100;pthread_mutex_lock;__lll_lock_wait",
        wait: 1 + tick / 10,
    }
}

fn log_writer(tick: u64) -> Doing {
    if tick % 10 < 3 {
        Doing::Waits {
            call: FSYNC,
            fd: 3,
            stack: "start_thread;shop::Log::flush:44;fsync",
            wait: 1 + tick / 10 * 2,
        }
    } else {
        Doing::Waits {
            call: FUTEX,
            fd: 0,
            stack: "start_thread;shop::Log::next_line:30;pthread_cond_wait",
            wait: 2 + tick / 10 * 2,
        }
    }
}
