//! Short notation for events, and facts as readable rows.

use std::collections::BTreeMap;

use sampletop::model::facts::history::Weights;
use sampletop::model::facts::recorder::{Limits, Recorder, View};
use sampletop::model::facts::tables::StackId;
use sampletop::model::projection::settings::Range;
use sampletop::model::vocabulary::event::{
    Counters, Event, Losses, Observation, Seen, Syscall, Tick,
};
use sampletop::model::vocabulary::frame::{FileId, FrameCode, Ns, RawFrame, RawName, ThreadKey};

pub const PID: u32 = 42;
pub const MS: Ns = 1_000_000;
pub const SECOND: Ns = 1_000 * MS;
/// Start of the examples' session, ns.
pub const START: Ns = 1_000 * SECOND;

/// epoll_wait, a futex wait, read, nanosleep.
pub const EPOLL: i32 = 232;
pub const FUTEX: i32 = 202;
pub const READ: i32 = 0;

pub fn thread(tid: u32) -> ThreadKey {
    ThreadKey { pid: PID, tid, start: 7 }
}

pub fn code(offset: u64) -> RawFrame {
    RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false })
}

/// Run time, run delay in ms, and runs.
pub fn counters(run: u64, delay: u64, runs: u64) -> Option<Counters> {
    Some(Counters { run_ns: run * MS, delay_ns: delay * MS, runs })
}

/// A recorder fed in ms since its start.
pub struct Feed {
    pub recorder: Recorder,
    pub losses: Losses,
}

impl Feed {
    pub fn new() -> Feed {
        Feed::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Feed {
        Feed { recorder: Recorder::new(START, limits), losses: Losses::default() }
    }

    /// Feeds an observation of thread `tid`, whose innermost frame is `stack` (over one common
    /// root, 1).
    pub fn observe(
        &mut self,
        at: u64,
        tid: u32,
        seen: Seen,
        stack: u64,
        counters: Option<Counters>,
    ) {
        let stack = if seen == Seen::Running { vec![] } else { vec![code(stack), code(1)] };
        let name = RawName::new(format!("t{tid}").as_bytes());
        let observation = Observation {
            counters,
            stack,
            ..Observation::new(START + at * MS, thread(tid), name, seen)
        };
        self.recorder.apply(&Event::Observation(observation));
    }

    pub fn on_cpu(&mut self, at: u64, tid: u32, stack: u64) {
        self.observe(at, tid, Seen::OnCpu, stack, None);
    }

    pub fn running(&mut self, at: u64, tid: u32, counters: Option<Counters>) {
        self.observe(at, tid, Seen::Running, 0, counters);
    }

    pub fn blocked(
        &mut self,
        at: u64,
        tid: u32,
        call: i32,
        stack: u64,
        counters: Option<Counters>,
    ) {
        self.observe(
            at,
            tid,
            Seen::Blocked(Syscall { number: call, args: [0; 6] }),
            stack,
            counters,
        );
    }

    pub fn tick(&mut self, at: u64) {
        self.tick_with(at, None);
    }

    /// `cpu`: the process's clock, ms.
    pub fn tick_with(&mut self, at: u64, cpu: Option<u64>) {
        self.recorder.apply(&Event::Tick(Tick {
            process_cpu_ns: cpu.map(|ms| ms * MS),
            losses: self.losses,
            ..Tick::new(START + at * MS, PID)
        }));
    }

    /// Ticks every 10 ms after `from` up to `till`.
    pub fn ticks(&mut self, from: u64, till: u64) {
        for at in (from + 10..=till).step_by(10) {
            self.tick(at);
        }
    }

    pub fn ended(&mut self, at: u64, tid: u32, counters: Option<Counters>) {
        self.recorder.apply(&Event::ThreadEnded {
            at: START + at * MS,
            thread: thread(tid),
            counters,
        });
    }

    pub fn gap(&mut self, from: u64, at: u64) {
        self.recorder.apply(&Event::Gap { from: START + from * MS, at: START + at * MS });
    }

    pub fn rows(&mut self) -> Vec<String> {
        rows(&self.recorder.view())
    }

    pub fn close(&mut self, at: u64) -> Vec<String> {
        self.recorder.close(START + at * MS);
        self.rows()
    }
}

/// Returns the name of a stack here: its innermost code offset, or its marker's text.
pub fn stack_name(view: &View, stack: StackId) -> String {
    match view.tables.frame(view.tables.top(stack)).decode() {
        FrameCode::Code { offset, .. } => offset.to_string(),
        FrameCode::Marker { marker, .. } => marker.text(None),
        other => format!("{other:?}"),
    }
}

pub type Sums = BTreeMap<(ThreadKey, String, String, String), Weights>;

/// Adds up everything in `range`.
pub fn sums(view: &View, range: Range, at: Ns) -> (Sums, Ns, Ns) {
    let mut sums = Sums::new();
    let (from, till) = view.history.read(range, at, &mut |key, weights| {
        let state = key.state.resolve(view.tables.futex_kind(key.stack)).word().to_string();
        let name = view.tables.name(key.name).to_string();
        sums.entry((key.thread, name, stack_name(view, key.stack), state))
            .or_default()
            .add(weights);
    });
    (sums, from, till)
}

pub fn all(view: &View) -> Sums {
    sums(view, Range::Cumulative { since: None }, view.at).0
}

/// Returns rows `name stack state wall=ms cpu=ms hits=all/on-cpu`, and for waits `longest=ms@ms
/// since the start`.
pub fn rows(view: &View) -> Vec<String> {
    rows_of(&all(view))
}

pub fn rows_of(sums: &Sums) -> Vec<String> {
    let ms =
        |ns: u64| if ns.is_multiple_of(MS) { (ns / MS).to_string() } else { format!("{}ns", ns) };
    let mut rows = Vec::new();
    for ((_, name, stack, state), w) in sums {
        let mut row = format!(
            "{name} {stack} {state} wall={} cpu={} hits={}/{}",
            ms(w.wall_ns),
            ms(w.cpu_ns),
            w.hits,
            w.cpu_hits
        );
        if w.longest_ns > 0 {
            row += &format!(" longest={}@{}", ms(w.longest_ns), ms(w.longest_from - START));
        }
        rows.push(row);
    }
    rows.sort();
    rows
}
