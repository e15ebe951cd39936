//! Sessions that contain everything that a file must keep.

#[path = "looked_up.rs"]
mod looked_up;

use std::sync::Arc;

use sampletop::model::facts::history::History;
use sampletop::model::facts::recorder::{Limits, Recorder};
use sampletop::model::facts::snapshot::{Health, Session, Snapshot, Target, Wanted};
use sampletop::model::facts::tables::{FrameKind, Location, Named, Tables, Tier};
use sampletop::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use sampletop::model::vocabulary::event::{
    Counters, Event, Losses, Observation, Seen, Syscall, Tick,
};
use sampletop::model::vocabulary::frame::{
    FileId, FrameCode, Marker, Ns, RawFrame, RawName, SECOND, ThreadKey, ThreadKind,
};
use sampletop::model::vocabulary::role::{Origin, Origins};

pub const MS: Ns = 1_000_000;
pub const START: Ns = 1000 * SECOND;

/// Pseudorandom numbers (xorshift).
pub struct Random(pub u64);

impl Random {
    fn step(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.step() % bound
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// What surrounds the facts.
pub fn snapshot() -> Snapshot {
    let target = |pid, command: &str, ended| Target {
        pid,
        start: 77_777,
        command: command.into(),
        runtime: if pid == 9 { "jvm" } else { "native" },
        uid: 1000,
        unit: (pid == 9).then(|| "shop.service".into()),
        started_unix_ns: 1_767_323_000_000_000_000,
        ended,
    };
    let losses = Losses {
        samples: 1,
        dropped: 2,
        truncated: 3,
        torn: 4,
        unwind_failed: 18,
        no_unwind_info: 5,
        bad_unwind: 6,
        outside_maps: 7,
        recovered: 8,
        throttled: 9,
        late: 10,
        stops: 11,
        stops_blocked: 12,
        stop_p99_ns: 13,
        sampler_cpu_ns: 14,
    };
    Snapshot {
        session: Arc::new(Session {
            version: "0.1.0".into(),
            host: "node7".into(),
            kernel: "6.18.0".into(),
            cores_milli: 3500,
            started: START,
            started_unix_ns: 1_767_323_045_123_456_789,
            interval_ns: 10 * MS,
            max_overhead_percent: Some(0.1 + 0.2),
            wanted: Wanted { title: "--name shop".into(), waits: true },
        }),
        targets: Arc::new([
            target(9, "java -jar größe.jar", None),
            target(12, "shop --port 80", Some(START + 5)),
        ]),
        at: START,
        capture: "ptrace (stops threads)".into(),
        health: Health {
            ticks: 15,
            losses,
            interval_achieved_ns: 10_123_456,
            visit_interval_ns: 50_123_456,
            late_p99_ns: 16,
            self_cpu_percent: 1.0 / 3.0,
            total_cpu_percent: 2.0 / 3.0,
            naming: true,
            host: None,
            folded_facts: 17,
            dropped_buckets: 19,
            startup_ns: 187_000_000,
        },
        tables: Tables::default(),
        history: History::default(),
        threads: Arc::new([]),
        deadlocks: Arc::default(),
        observed_waits: Arc::default(),
        wakeups: None,
        notice: Some("libx.so has no symbols".into()),
        stopped: true,
    }
}

fn frames() -> Vec<RawFrame> {
    let code =
        |offset| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: offset % 2 == 0 });
    let runtime = |id| RawFrame::new(FrameCode::Runtime { id });
    let kernel =
        |offset: u64| RawFrame::new(FrameCode::Kernel { address: 0xffff_ffff_8100_0000 + offset });
    let markers =
        [RawFrame::marker(Marker::Torn), RawFrame::marker_in(Marker::NoUnwindInfo, FileId(3))];
    (0..9).map(code).chain((0..6).map(runtime)).chain((0..3).map(kernel)).chain(markers).collect()
}

/// Returns one of the program's builds, of libc and of the kernel; of one place `None`.
fn build_id(raw: RawFrame) -> Option<&'static str> {
    match raw.decode() {
        FrameCode::Code { offset: 7, .. } => None,
        FrameCode::Code { offset: 3, .. } => Some("93e52a1c73ed1a5c72b4f7a4b0c0a6b4c8b1d6e7"),
        FrameCode::Code { offset, .. } if offset < 6 => {
            Some("00112233445566778899aabbccddeeff01234567")
        }
        FrameCode::Code { .. } => Some("ffeeddccbbaa9988"),
        FrameCode::Kernel { .. } => Some("48dc540c8b76393804ca8088dbfa7d42911a9444"),
        _ => None,
    }
}

fn named(raw: RawFrame) -> Named {
    let kinds = [FrameKind::Java, FrameKind::Jit, FrameKind::Python];
    let tiers = [
        Tier::Interpreted,
        Tier::C1,
        Tier::C2,
        Tier::Inlined,
        Tier::Native,
        Tier::Baseline,
        Tier::Optimized,
        Tier::Gil,
    ];
    let location = |function: &str, module: &str, kind| Location {
        function: function.into(),
        module: module.into(),
        file: Some("/src/größe.c".into()),
        line: Some(7),
        kind,
        tier: None,
    };
    let locations = match raw.decode() {
        FrameCode::Code { offset: 3, .. } => {
            vec![location("pthread_mutex_lock", "libc.so.6", FrameKind::Native)]
        }
        FrameCode::Code { offset: 4, .. } => {
            let inlined = location("shop::vat", "shop", FrameKind::Native);
            let inlined = Location { tier: Some(Tier::Inlined), line: Some(u32::MAX), ..inlined };
            vec![location("shop::pay<Item>", "shop", FrameKind::Native), inlined]
        }
        FrameCode::Code { offset, .. } => {
            let plain = location(&format!("shop::f{offset}"), "shop", FrameKind::Native);
            vec![Location { file: None, line: (offset > 5).then_some(0), ..plain }]
        }
        FrameCode::Runtime { id } => {
            let plain = location(
                &format!("com.shop.Cart.m{}", id / 2),
                "com.shop.Cart",
                kinds[id as usize % 3],
            );
            vec![Location { tier: Some(tiers[id as usize]), ..plain }]
        }
        FrameCode::Kernel { .. } => vec![location("vfs_read", "[kernel]", FrameKind::Kernel)],
        FrameCode::Marker { marker, .. } => {
            vec![Location::named(&marker.text(Some("libx.so")), FrameKind::Marker)]
        }
    };
    let build_id = build_id(raw).map(Into::into);
    let origins = match raw.decode() {
        FrameCode::Code { offset: 3, .. } => Origins::All(Origin::Library),
        FrameCode::Code { offset: 4, .. } => Origins::Each([Origin::App, Origin::Library].into()),
        FrameCode::Runtime { .. } => Origins::All(Origin::Runtime),
        _ => Origins::default(),
    };
    Named { build_id, origins, ..Named::known(locations) }
}

fn blocker(random: &mut Random) -> RawBlocker {
    let held = RawHolder::Thread { pid: 9, tid: 100 + random.below(5) as u32 };
    let foreign = RawHolder::Thread { pid: 77, tid: 78 };
    let others = [RawHolder::Unknown, RawHolder::Free, RawHolder::Readers(3), RawHolder::Unmounted];
    RawBlocker {
        kind: random.one(&BlockerKind::ALL),
        object: random.one(&[0x7f00_0000_1000, 0x7f00_0000_2000, u64::MAX]),
        class: random.one(&[None, Some(RawName::of_runtime(0)), Some(RawName::of_runtime(1))]),
        holder: random.one(&[&[held, held, foreign][..], &others].concat()),
    }
}

/// `scan` observations of seven threads of two processes, for minutes or for some seconds. A fifth
/// of the frames have no names yet.
pub fn session(seed: u64, scan: usize, hours: bool) -> Snapshot {
    let mut random = Random(seed | 1);
    let mut recorder = Recorder::new(START, Limits::default());
    recorder.set_class_name(RawName::of_runtime(0), "com.acme.TaxTable");
    let all = frames();
    let names = [&b"main"[..], b"work-1", b"work-2", b"GC #1", b"\xff\x1b[2J"];
    let kinds = [ThreadKind::Plain, ThreadKind::Plain, ThreadKind::Daemon, ThreadKind::Internal];
    let mut ran = [Counters::default(); 7];
    let mut at = START;
    for _ in 0..scan {
        at += match random.below(30) {
            0 if hours => 70 * SECOND + random.below(600 * SECOND),
            0..3 => SECOND + random.below(3 * SECOND),
            _ => 9 * MS + random.below(2 * MS),
        };
        let tid = random.below(7) as u32;
        let thread = ThreadKey { pid: if tid < 4 { 9 } else { 12 }, tid: 100 + tid, start: 77_777 };
        let ran = &mut ran[tid as usize];
        (ran.run_ns, ran.runs) = (ran.run_ns + random.below(8 * MS), ran.runs + 1);
        let call = Syscall {
            number: random.one(&[0, 202, 232, 230, -1, 7]),
            args: [3, 128, 1 << 40, u64::MAX, 0, 9],
        };
        let seen = random.one(&[
            Seen::OnCpu,
            Seen::OnCpu,
            Seen::Running,
            Seen::Blocked(call),
            Seen::Disk(None),
            Seen::Stopped,
        ]);
        let depth = if seen == Seen::Running { 0 } else { 1 + random.below(8) };
        recorder.apply(&Event::Observation(Observation {
            at,
            thread,
            name: RawName::new(random.one(&names)).of_kind(random.one(&kinds)),
            seen,
            counters: (seen != Seen::OnCpu).then_some(*ran),
            stack: (0..depth).map(|_| random.one(&all)).collect(),
            recovered: random.below(5) == 0,
            blocker: matches!(seen, Seen::Blocked(_))
                .then(|| blocker(&mut random))
                .filter(|_| random.below(3) > 0),
            wait_began: (random.below(3) == 0).then(|| at.saturating_sub(random.below(2 * MS))),
        }));
        match random.below(40) {
            0 => recorder.apply(&Event::ThreadEnded { at, thread, counters: Some(*ran) }),
            1 => recorder.apply(&Event::Gap { from: at - MS, at }),
            2 => recorder.apply(&Event::Exec { at, pid: 12 }),
            _ => {}
        }
        for pid in [9, 12] {
            let losses = Losses { samples: 7, ..Losses::default() };
            recorder.apply(&Event::Tick(Tick { late_ns: 5, losses, ..Tick::new(at, pid) }));
        }
        if random.below(50) == 0 {
            recorder.view();
        }
    }
    for raw in recorder.take_unnamed() {
        if random.below(5) > 0 {
            recorder.set_named(raw, named(raw));
        }
    }
    if random.below(2) == 0 {
        recorder.close(at + random.below(SECOND));
    }
    let view = recorder.view();
    Snapshot {
        observed_waits: looked_up::waits(&mut random, &view),
        wakeups: looked_up::wakeups(&mut random),
        at: view.at,
        tables: view.tables,
        history: view.history,
        threads: view.threads,
        ..snapshot()
    }
}
