//! A long session of a busy server, as the sampler would tell it.

use std::sync::Arc;

use sampletop::model::frame::{
    Counters, Event, FileId, FrameCode, Look, Losses, Ns, RawFrame, RawName, SECOND, Seen, Syscall, ThreadKey, Tick,
};
use sampletop::model::recorder::{Limits, Recorder};
use sampletop::model::snapshot::{Health, Session, Snapshot, Target};
use sampletop::model::tables::{FrameKind, Location, Named};

const MS: Ns = 1_000_000;
const PID: u32 = 4321;

/// Numbers that only look random (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// 100 looks a second for `seconds` at 50 threads. Four compute, in `stacks` stacks of 35 frames, some much more often than
/// others; the rest wait, and one of them is woken in every look.
pub fn session(seconds: u64, stacks: usize) -> Snapshot {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let started = 1000 * SECOND;
    let mut recorder = Recorder::new(started, Limits::default());
    let frame = |offset: u64| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
    // Handlers, what they call, and so on: calls of one place lead to a few others.
    let stacks: Vec<Vec<RawFrame>> = (0..stacks as u64)
        .map(|n| (0..35).rev().map(|depth| frame(depth << 32 | n >> (34 - depth).min(20) << 4)).collect())
        .collect();
    let blocked = Seen::Blocked(Syscall { number: 232, args: [4, 0, 64, u64::MAX, 0, 0] });
    let (mut at, mut ran) = (started, [Counters::default(); 50]);
    while at < started + seconds * SECOND {
        let step = 9 * MS + random.below(2 * MS);
        at += step;
        let mut look = |tid: usize, at: Ns, seen: Seen, counters: Option<Counters>, stack: Vec<RawFrame>| {
            recorder.apply(&Event::Look(Look {
                at,
                thread: ThreadKey { pid: PID, tid: PID + tid as u32, start: 77_777 },
                name: RawName::new(format!("worker-{tid}").as_bytes()),
                seen,
                counters,
                stack,
                recovered: false,
            }));
        };
        for (tid, ran) in ran.iter_mut().enumerate().take(4) {
            // The lower half of the stacks has most of the time, its lower half most of that, and so on.
            let bound = (stacks.len() as u64) >> random.below(6);
            let stack = &stacks[random.below(bound.max(1)) as usize];
            look(tid, at - random.below(step), Seen::OnCpu, None, stack.clone());
            ran.run_ns += step - random.below(MS);
            ran.runs += 1 + random.below(3);
            look(tid, at, Seen::Running, Some(*ran), Vec::new());
        }
        let tid = 4 + random.below(46) as usize;
        ran[tid].run_ns += random.below(MS / 10);
        ran[tid].runs += 1;
        look(tid, at, blocked, Some(ran[tid]), stacks[tid].clone());
        recorder.apply(&Event::Tick(Tick {
            at,
            pid: PID,
            late_ns: random.below(MS / 5),
            process_cpu_ns: None,
            interval_ns: 10 * MS,
            losses: Losses::default(),
        }));
    }
    for raw in recorder.take_unnamed() {
        let FrameCode::Code { offset, .. } = raw.decode() else { continue };
        let (depth, n) = (offset >> 32, offset as u32 >> 4);
        let location = Location {
            function: format!("shop::layer{depth}::Handler{n}<Order>::call").into(),
            module: "libshop.so.2".into(),
            file: Some(format!("/src/shop/layer{depth}/handler{n}.cpp").into()),
            line: Some(n % 1000),
            kind: FrameKind::Native,
            tier: None,
        };
        recorder.set_named(raw, Named { locations: Arc::new([location]), pending: false });
    }
    recorder.close(at);
    let view = recorder.view();
    Snapshot {
        session: Arc::new(Session {
            version: "0.1.0".into(),
            host: "node7".into(),
            kernel: "6.18.0".into(),
            cores_milli: 4000,
            started,
            started_unix_ns: 1_767_323_045_123_000_000,
            interval_ns: 10 * MS,
            max_overhead_percent: None,
            wanted: Default::default(),
        }),
        targets: Arc::new([Target {
            pid: PID,
            start: 77_777,
            command: "shop --port 80".into(),
            runtime: "native",
            uid: 1000,
            unit: None,
            started_unix_ns: 1_767_323_000_000_000_000,
            ended: None,
        }]),
        at: view.at,
        capture: "bpf".into(),
        health: Health {
            ticks: view.ticks,
            dropped_buckets: view.dropped_buckets,
            folded_facts: view.folded_facts,
            ..Health::default()
        },
        tables: view.tables,
        history: view.history,
        threads: view.threads,
        notice: None,
        stopped: false,
    }
}
