//! Measures each stage by itself: observing a thread, walking, the ring, reducing, publishing,
//! projecting, a key, listing sockets and pipes.
//!
//! ```text
//! cargo bench --bench stages [-- NAME]
//! ```
//!
//! The stages up to the walk observe real threads: the built-in workload's pool, which waits. The
//! others work on a profile made here: 100,000 distinct stacks of 24 frames in 50 threads, which
//! make a tree of 211,290 nodes. First it prints how many bytes a steady redraw sends to a
//! terminal, and how long a key takes to its frame, also with 5,000 threads.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use divan::{Bencher, black_box};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use sampletop::app::key::Key;
use sampletop::app::projectors::Projectors;
use sampletop::app::{AppConfig, AppState, Effect, Input, READ_WITHIN};
use sampletop::capture::event_ring;
use sampletop::capture::stack_reader::StackReader;
use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::facts::snapshot::{Health, Session, Snapshot, Target};
use sampletop::model::facts::tables::{FrameKind, Location, Named};
use sampletop::model::projection::settings::{Metric, Range, Settings};
use sampletop::model::projection::{Projector, RowOf};
use sampletop::model::vocabulary::blocker::{BlockerKind, RawBlocker};
use sampletop::model::vocabulary::event::{Counters, Event, Observation, Seen, Syscall, Tick};
use sampletop::model::vocabulary::frame::{
    FileId, FrameCode, Ns, RawFrame, RawName, SECOND, ThreadKey,
};
use sampletop::process::blockers::{BlockedThread, native_blocker};
use sampletop::process::mapped_files::Files;
use sampletop::process::memory::Memory;
use sampletop::process::threads::{Doing, Tasks, raise_descriptor_limit};
use sampletop::process::waits::endpoint_iterator::Program;
use sampletop::tui::theme::Theme;
use sampletop::unwinder::framehop::FramehopUnwinder;

const STACKS: u64 = 100_000;
const THREADS: u64 = 50;
const MANY_THREADS: u64 = 5_000;
const FRAMES: u64 = 24;
const STARTED: Ns = 1_000 * SECOND;
const PID: u32 = 4321;

fn main() {
    bytes_per_redraw();
    key_to_frame("all time", THREADS, settings());
    key_to_frame("the last 200 s, with trends", THREADS, window());
    key_to_frame("all time, 5,000 threads", MANY_THREADS, settings());
    divan::main();
}

/// A profile that grows.
struct World {
    threads: u64,
    recorder: Recorder,
    scan: u64,
    at: Ns,
}

impl World {
    /// Adds every stack once, over 100 s.
    fn full(threads: u64) -> World {
        let recorder = Recorder::new(STARTED, Limits::default());
        let mut world = World { threads, recorder, scan: 0, at: STARTED };
        world.observe(STACKS);
        world
    }

    fn observe(&mut self, count: u64) {
        for _ in 0..count {
            let observation = self.next_look();
            self.recorder.apply(&observation);
            if self.scan.is_multiple_of(10) {
                self.recorder.apply(&tick(self.at));
            }
        }
        for frame in self.recorder.take_unnamed() {
            self.recorder.set_named(frame, Named::known([location(frame)]));
        }
    }

    /// Returns the next sample; there is one a millisecond.
    fn next_look(&mut self) -> Event {
        let n = self.scan;
        self.scan += 1;
        self.at += SECOND / 1_000;
        observe(self.at, n, self.threads)
    }

    fn snapshot(&mut self) -> Snapshot {
        let view = self.recorder.view();
        static SESSION: OnceLock<Arc<Session>> = OnceLock::new();
        let session = SESSION.get_or_init(|| {
            Arc::new(Session {
                version: "0".into(),
                host: "bench".into(),
                kernel: "0".into(),
                cores_milli: 4_000,
                started: STARTED,
                started_unix_ns: 1_700_000_000_000_000_000,
                interval_ns: SECOND / 100,
                max_overhead_percent: None,
                wanted: Default::default(),
            })
        });
        Snapshot {
            session: Arc::clone(session),
            targets: Arc::new([Target {
                pid: PID,
                start: 1,
                command: "bench".into(),
                runtime: "native",
                uid: 0,
                unit: None,
                started_unix_ns: 0,
                ended: None,
            }]),
            at: view.at,
            capture: "perf".into(),
            health: Health { ticks: view.ticks, losses: view.losses, ..Health::default() },
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

fn tick(at: Ns) -> Event {
    Event::Tick(Tick { late_ns: 50_000, interval_ns: SECOND / 100, ..Tick::new(at, PID) })
}

/// Returns an on-CPU sample: stack number `n` (they repeat after [`STACKS`]).
fn observe(at: Ns, n: u64, threads: u64) -> Event {
    let thread = n % threads;
    Event::Observation(Observation {
        counters: Some(Counters { run_ns: at - STARTED, delay_ns: 0, runs: n }),
        stack: stack(n % STACKS),
        ..Observation::new(
            at,
            ThreadKey { pid: PID, tid: PID + thread as u32, start: 1 },
            RawName::new(
                format!("worker{}-{thread}", (b'a' + (thread % 10) as u8) as char).as_bytes(),
            ),
            Seen::OnCpu,
        )
    })
}

/// Returns a path through a tree that forks into ten at each of the five innermost levels,
/// innermost frame first.
fn stack(n: u64) -> Vec<RawFrame> {
    let frame =
        |id: u64| RawFrame::new(FrameCode::Code { file: FileId(0), offset: 16 * id, exact: false });
    let mut rest = n;
    let mut frames = Vec::with_capacity(FRAMES as usize);
    for level in 0..5 {
        frames.push(frame(100 + level * 10 + rest % 10));
        rest /= 10;
    }
    frames.extend((5..FRAMES).map(frame));
    frames
}

fn location(frame: RawFrame) -> Location {
    let number = match frame.decode() {
        FrameCode::Code { offset, .. } => offset / 16,
        _ => 0,
    };
    Location {
        function: format!("bench::module_{}::function_{number}", number % 7).into(),
        module: "bench".into(),
        file: Some("/src/bench.rs".into()),
        line: Some(number as u32),
        kind: FrameKind::Native,
        tier: None,
    }
}

fn settings() -> Settings {
    Settings { range: Range::Cumulative { since: None }, ..live() }
}

/// The same facts, read by bucket: only those have trends.
fn window() -> Settings {
    Settings { range: Range::Rolling(200 * SECOND), ..live() }
}

/// The settings that the live view starts with.
fn live() -> Settings {
    AppConfig::default().settings
}

fn full() -> &'static Arc<Snapshot> {
    static FULL: OnceLock<Arc<Snapshot>> = OnceLock::new();
    FULL.get_or_init(|| Arc::new(World::full(THREADS).snapshot()))
}

/// The pool of the built-in workload, and one of its waiting threads.
struct Pool {
    child: Child,
    tasks: Tasks,
    tid: u32,
}

impl Pool {
    fn start() -> Pool {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sampletop"))
            .args(["__workload", "pool", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the workload starts");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut ready)
            .expect("it speaks");
        let tasks = Tasks::open(child.id(), 1_000).expect("ours to look at");
        let comm =
            |tid: u32| std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", child.id()));
        let mut tids = Vec::new();
        tasks.list(&mut tids).expect("it lives");
        let tid =
            tids.into_iter().find(|tid| comm(*tid).is_ok_and(|name| name == "pool-thread-7\n"));
        Pool { tasks, tid: tid.expect("a thread that waits in read"), child }
    }

    fn blocked(&self) -> (u64, u64) {
        let mut files = self.tasks.thread(self.tid);
        loop {
            match self.tasks.doing(&mut files) {
                Ok(Doing::Blocked { sp, pc, .. }) if sp != 0 => return (pc, sp),
                Ok(_) => std::thread::yield_now(), // not yet inside the call
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures the whole cost of an idle thread at a tick.
#[divan::bench]
fn capture_counters_of_an_unmoved_thread(bencher: Bencher) {
    let pool = Pool::start();
    let mut files = pool.tasks.thread(pool.tid);
    bencher.bench_local(|| pool.tasks.counters(&mut files));
}

#[divan::bench]
fn capture_system_call_of_a_thread(bencher: Bencher) {
    let pool = Pool::start();
    let mut files = pool.tasks.thread(pool.tid);
    bencher.bench_local(|| pool.tasks.doing(&mut files));
}

/// Measures copying the stack of a waiting thread, finding rbp, and every step, with warm caches.
#[divan::bench]
fn walk_a_blocked_stack(bencher: Bencher) {
    let pool = Pool::start();
    let (pc, sp) = pool.blocked();
    let pid = pool.child.id();
    let mut unwinder = FramehopUnwinder::new(Memory::new(pid), Files::default(), pid);
    let mut reader = StackReader::new(Memory::new(pid));
    let mut frames = Vec::new();
    let walk = reader.walk(pc, sp, &mut unwinder, &mut frames);
    assert_eq!(walk.end, None, "whole: {frames:?}");
    bencher.counter(divan::counter::ItemsCount::new(frames.len())).bench_local(|| {
        frames.clear();
        reader.walk(pc, sp, &mut unwinder, &mut frames)
    });
}

#[divan::bench]
fn ring_push_and_pop(bencher: Bencher) {
    let (mut writer, mut reader) = event_ring::channel(64 << 10);
    let event = observe(STARTED, 12_345, THREADS);
    bencher.bench_local(|| {
        assert!(writer.push(black_box(&event)));
        reader.next()
    });
}

#[divan::bench]
fn reduce_a_sample(bencher: Bencher) {
    let mut world = World::full(THREADS);
    let scan: Vec<Event> = (0..1_000).map(|_| world.next_look()).collect();
    let mut next = 0;
    bencher.bench_local(|| {
        world.recorder.apply(&scan[next % scan.len()]);
        next += 1;
    });
}

/// Measures publishing after the 250 samples of 250 ms, while the previous snapshot is still in
/// use.
#[divan::bench]
fn publish_at_100_000_stacks(bencher: Bencher) {
    let world = Mutex::new((World::full(THREADS), None));
    bencher
        .with_inputs(|| {
            let (world, before) = &mut *world.lock().expect("one thread");
            *before = Some(world.snapshot());
            world.observe(250);
        })
        .bench_local_values(|()| world.lock().expect("one thread").0.snapshot());
}

#[divan::bench(sample_count = 20)]
fn load_the_list_of_endpoints(bencher: Bencher) {
    bencher.bench_local(|| Program::load().expect("root, and a kernel with BPF iterators"));
}

/// Measures a pass over the sockets of all processes, 6,000 of them our own.
#[divan::bench]
fn list_6_000_endpoints(bencher: Bencher) {
    raise_descriptor_limit();
    let pairs: Vec<_> =
        (0..3_000).map(|_| UnixStream::pair().expect("enough descriptors")).collect();
    let mut program = Program::load().expect("root, and a kernel with BPF iterators");
    bencher.bench_local(|| program.pass().expect("it is loaded").expect("a list").len());
    drop(pairs);
}

/// Maximum reads of a tick.
const READS: usize = 200;

/// Measures the reads of one tick: what 200 threads of this process wait for, which wait for as
/// many others to end.
#[divan::bench]
fn read_200_blockers(bencher: Bencher) {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().expect("it is not poisoned");
    let waiting: Vec<_> = (0..READS)
        .map(|_| {
            let gate = gate.clone();
            let sleeper = std::thread::spawn(move || drop(gate.lock()));
            std::thread::spawn(move || sleeper.join().is_ok())
        })
        .collect();
    let pid = std::process::id();
    let tasks = Tasks::open(pid, 2 * READS + 100).expect("our own threads");
    let memory = Memory::new(pid);
    let read = |tid: u32, call: &Syscall| {
        let thread_id = |tid| Some(tid);
        let thread = BlockedThread { pid, tid, memory: &memory, thread_id: &thread_id };
        native_blocker(&thread, call)
    };
    let call_of = |tid: u32| match tasks.doing(&mut tasks.thread(tid)) {
        Ok(Doing::Blocked { call, .. }) => Some(call),
        _ => None,
    };
    let joins = || -> Vec<(u32, Syscall)> {
        let folder = std::fs::read_dir("/proc/self/task").expect("our own threads");
        let tids = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let calls = tids.filter_map(|tid| Some((tid, call_of(tid)?)));
        let is_join = |found: RawBlocker| found.kind == BlockerKind::ThreadEnd;
        calls.filter(|(tid, call)| read(*tid, call).is_some_and(is_join)).collect()
    };
    let mut found = joins();
    while found.len() < READS {
        std::thread::yield_now();
        found = joins();
    }
    bencher.bench_local(|| found.iter().filter_map(|(tid, call)| read(*tid, call)).count());
    drop(closed);
    assert!(waiting.into_iter().all(|thread| thread.join().is_ok()));
}

#[divan::bench(sample_count = 20)]
fn project_100_000_stacks_first(bencher: Bencher) {
    let (snapshot, settings) = (full(), settings());
    bencher.bench_local(|| Projector::default().project(snapshot, &settings));
}

#[divan::bench(sample_count = 20)]
fn project_100_000_stacks_again(bencher: Bencher) {
    let (snapshot, settings) = (full(), settings());
    let mut projector = Projector::default();
    bencher.bench_local(|| projector.project(snapshot, &settings));
}

#[divan::bench(sample_count = 20)]
fn project_100_000_stacks_by_bucket(bencher: Bencher) {
    let (snapshot, settings) = (full(), window());
    let mut projector = Projector::default();
    bencher.bench_local(|| projector.project(snapshot, &settings));
}

#[divan::bench(sample_count = 20)]
fn project_100_000_stacks_with_trends(bencher: Bencher) {
    let (snapshot, settings) = (full(), window());
    let mut projector = Projector::default();
    bencher.bench_local(|| projector.project_with_trends(snapshot, &settings));
}

/// Measures the trends of as many rows as a screen has.
#[divan::bench(sample_count = 20)]
fn trends_of_34_nodes(bencher: Bencher) {
    let projection = Projector::default().project_with_trends(full(), &window());
    let rows: Vec<RowOf> = (0..34).map(|node| RowOf::Nodes(vec![node])).collect();
    bencher.bench_local(|| projection.trends(&rows, Metric::Wall));
}

#[divan::bench(sample_count = 20)]
fn trends_of_34_methods(bencher: Bencher) {
    let projection = Projector::default().project_with_trends(full(), &window());
    let rows: Vec<RowOf> = (0..34).map(RowOf::Method).collect();
    projection.methods();
    bencher.bench_local(|| projection.trends(&rows, Metric::Wall));
}

/// A terminal that only counts the bytes it gets.
#[derive(Clone, Default)]
struct Sent(Rc<Cell<usize>>);

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The live view on a terminal of 120 x 40.
struct View {
    app: AppState,
    projectors: Projectors,
    terminal: Terminal<CrosstermBackend<Sent>>,
    sent: Sent,
    theme: Theme,
}

impl View {
    fn new(snapshot: Arc<Snapshot>, settings: Settings) -> View {
        let config = AppConfig { settings, ..AppConfig::default() };
        let theme = Theme::new(&config.screen);
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, 120, 40)) };
        let sent = Sent::default();
        let backend = CrosstermBackend::new(sent.clone());
        let terminal = Terminal::with_options(backend, options).expect("it only counts");
        let mut view = View {
            app: AppState::new(config),
            projectors: Projectors::default(),
            terminal,
            sent,
            theme,
        };
        view.app.update(Input::Resize { width: 120, height: 40 });
        view.take(snapshot);
        view
    }

    fn take(&mut self, snapshot: Arc<Snapshot>) -> usize {
        self.send(Input::Snapshot(snapshot))
    }

    fn press(&mut self, key: Key) -> usize {
        self.send(Input::Key(key))
    }

    /// Draws the frame with the answer, as the program does if the answer comes soon enough.
    fn send(&mut self, input: Input) -> usize {
        let effects = self.app.update(input);
        self.answer(effects);
        self.draw()
    }

    fn answer(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Project(request) = effect {
                self.app.update(self.projectors.answer(*request));
            }
        }
    }

    /// Draws, and returns how many bytes went to the terminal.
    fn draw(&mut self) -> usize {
        self.sent.0.set(0);
        self.terminal
            .draw(|frame| sampletop::tui::draw(frame, &self.app, &self.theme))
            .expect("drawn");
        self.sent.0.get()
    }
}

/// Measures from a key to its frame, 120 x 40, with every line of the hottest path open. Some keys
/// read history again. Their frame is drawn with the answer if that comes soon enough, else
/// without; then another frame shows the figures.
fn key_to_frame(range: &str, threads: u64, settings: Settings) {
    let snapshot = Arc::new(World::full(threads).snapshot());
    println!("{range}");
    println!("from a key, ms        to its frame: median    p99    to its figures: median    p99");
    for (what, key) in [
        ("down  move", Key::Down),
        ("C     collapse, expand", Key::Char('C')),
        ("Tab   next view", Key::Tab),
        ("s     sort", Key::Char('s')),
        ("m     metric", Key::Char('m')),
        ("t     group by", Key::Char('t')),
        ("i     idle", Key::Char('i')),
        ("b     roll up", Key::Char('b')),
        ("r     range", Key::Char('r')),
        ("=     differences", Key::Char('=')),
    ] {
        // What a key leaves behind is not to change what the next one costs.
        let mut view = View::new(Arc::clone(&snapshot), settings.clone());
        view.press(Key::Home);
        view.press(Key::Char('E'));
        // The range that `=` compares with.
        view.press(Key::Char('M'));
        let (mut frames, mut figures) = (Vec::new(), Vec::new());
        for nth in 0..200 {
            if nth % 10 == 0 {
                view.press(Key::Home);
            }
            let start = Instant::now();
            let effects = view.app.update(Input::Key(key));
            let updated = start.elapsed();
            let asks = !effects.is_empty();
            view.draw();
            let at_once = start.elapsed();
            // Times the answer as if nothing had been drawn before it.
            let start = Instant::now();
            view.answer(effects);
            let answered = updated + start.elapsed();
            view.draw();
            let all = updated + start.elapsed();
            let late = asks && answered > READ_WITHIN;
            frames.push(if late { READ_WITHIN + at_once } else { all.max(at_once) });
            figures.push(if late { all + at_once } else { all.max(at_once) });
        }
        let median_and_p99 = |mut times: Vec<Duration>| {
            times.sort_unstable();
            [times.len() / 2, times.len() * 99 / 100 - 1].map(|at| times[at].as_secs_f64() * 1e3)
        };
        let ([frame, frame_p99], [figure, figure_p99]) =
            (median_and_p99(frames), median_and_p99(figures));
        println!("{what:<22} {frame:>20.2} {frame_p99:>6.2} {figure:>26.2} {figure_p99:>6.2}");
    }
    println!();
}

/// Measures a minute of two redraws a second, every one with new figures.
fn bytes_per_redraw() {
    let mut world = World::full(THREADS);
    let mut view = View::new(Arc::new(world.snapshot()), live());
    view.press(Key::Char('E'));
    let sent: Vec<usize> = (0..120)
        .map(|_| {
            world.observe(500);
            view.take(Arc::new(world.snapshot()))
        })
        .collect();
    println!(
        "a redraw of 120 x 40 with new figures sends {} bytes on average, {} at most\n",
        sent.iter().sum::<usize>() / sent.len(),
        sent.iter().max().unwrap_or(&0)
    );
}
