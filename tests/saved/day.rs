//! A day at 100 samples a second, as the buckets of history keep it.

use sampletop::model::facts::buckets::{Buckets, HORIZON};
use sampletop::model::facts::history::FactKey;
use sampletop::model::facts::interner::Interner;
use sampletop::model::facts::recorder::Limits;
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::facts::tables::{FrameKind, Location, Named, StackId};
use sampletop::model::vocabulary::frame::{
    FileId, FrameCode, Ns, RawFrame, RawName, SECOND, ThreadKey,
};
use sampletop::model::vocabulary::state::{RawState, State};

use super::sessions::{MS, Random, START, snapshot};

/// Four threads that compute all the time in `stacks` stacks of 35 frames, some much more often
/// than others, and 46 that wait and are woken twice a second. Times vary as those of real samples:
/// by a tenth of the interval.
pub fn session(seconds: u64, stacks: usize) -> Snapshot {
    let mut random = Random(7);
    let mut interner = Interner::new(1_000_000);
    let stacks: Vec<StackId> = (0..stacks as u64)
        .map(|n| {
            // Handlers, what they call, and so on: calls of one place lead to a few others.
            let frame = |depth: u64| depth << 32 | n >> (34 - depth).min(20) << 4;
            let code =
                |offset| RawFrame::new(FrameCode::Code { file: FileId(1), offset, exact: false });
            interner.stack(&(0..35).rev().map(|depth| code(frame(depth))).collect::<Vec<_>>())
        })
        .collect();
    for raw in interner.take_unnamed() {
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
        interner.set_named(raw, Named::known([location]));
    }
    let key = |interner: &mut Interner, tid: u32, stack: StackId, state: RawState| {
        let thread = ThreadKey { pid: 4321, tid: 4321 + tid, start: 77_777 };
        let name = interner.name(RawName::new(format!("worker-{tid}").as_bytes()));
        FactKey::new(thread, name, stack, state)
    };
    let mut buckets = Buckets::new(START, Limits::default(), interner.other());
    let till = START + seconds * SECOND;
    let mut at = START;
    while at < till {
        // Old data is kept by the minute. It is booked by the minute too, or this would take
        // minutes.
        let step = if till - at > 5_000 * SECOND { 60 } else { 1 };
        for tid in 0..4 {
            let mut run = key(&mut interner, tid, stacks[0], RawState::Known(State::Run));
            for _ in 0..100 * step {
                // The lower half of the stacks has most of the time, its lower half most of that,
                // and so on.
                let bound = (stacks.len() as u64) >> random.below(6);
                run.stack = stacks[random.below(bound.max(1)) as usize];
                let weights = buckets.entry(at, &run);
                weights.wall_ns += 9 * MS + random.below(2 * MS);
                weights.cpu_ns += 9 * MS + random.below(2 * MS);
                weights.hits += 1;
                weights.cpu_hits += 1;
            }
        }
        for tid in 4..50 {
            let wait = key(&mut interner, tid, stacks[tid as usize], RawState::Known(State::Poll));
            let longest = SECOND / 4 + random.below(SECOND);
            let weights = buckets.entry(at, &wait);
            weights.wall_ns += step * SECOND - random.below(MS);
            weights.hits += 2 * step as u32;
            weights.longest(longest, at - random.below(SECOND));
        }
        at += step * SECOND;
        buckets.keep_house(at, HORIZON, &|_: &ThreadKey| false);
    }
    let history = buckets.history(at as Ns, std::iter::empty());
    Snapshot { at, history, tables: interner.tables(), ..snapshot() }
}
