//! Answers requests to project a snapshot, and to compare it with a baseline.

use std::sync::Arc;

use super::baseline::{Baseline, Compared};
use super::event::{Input, Projected, Request};
use super::row_path::GroupKey;
use super::thread_list;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::{Settings, SortColumn};
use crate::model::projection::timeline::Members;
use crate::model::projection::{Projection, Projector};
use crate::model::transform::diff::{Per, Side, diff};

/// Answers requests, and keeps what the next answer can use again.
#[derive(Default)]
pub struct Projectors {
    now: Projector,
    /// A projector drops its names when the session changes, and a baseline may be of another.
    before: Projector,
    /// Without idle time and with it: if one side has nothing else, both are read in both ways.
    kept: [Option<Kept>; 2],
}

/// The projection of a baseline: it only changes with the settings.
struct Kept {
    snapshot: Arc<Snapshot>,
    /// As text, with the baseline's range.
    settings: String,
    projection: Projection,
}

impl Projectors {
    pub fn answer(&mut self, mut request: Request) -> Input {
        if let Some(spare) = request.spare.take() {
            self.now.reuse(*spare);
        }
        let mut projection = self.project(&request);
        let compared = match request.against.clone() {
            None => {
                (self.before, self.kept) = Default::default();
                None
            }
            Some(baseline) => {
                let before = self.baseline(&baseline, &request.settings);
                if before.only_idle != projection.only_idle {
                    // If one side shows idle time because it has nothing else, the other has to
                    // show its idle time too.
                    request.settings.idle = true;
                    projection = self.project(&request);
                }
                let before = self.baseline(&baseline, &request.settings);
                let resolution = baseline.snapshot.resolution();
                let before_side = Side { projection: before, resolution };
                let resolution = request.snapshot.resolution();
                let side = Side { projection: &projection, resolution };
                let diff = diff(before_side, side, &request.settings, Per::Share);
                let (from, till, gone) = (before.from, before.till, diff.gone());
                Some(Box::new(Compared { from, till, diff, gone, baseline }))
            }
        };
        if request.settings.sort == SortColumn::Change {
            projection.read_changes(request.settings.metric);
        }
        let busy_threads = self.now.busy_threads(&request.snapshot);
        let timeline = request.timeline.take().map(|of| {
            let (snapshot, settings) = (&request.snapshot, &request.settings);
            let members = members(of.group, of.before, &projection, settings);
            self.now.timeline(snapshot, settings, &projection, &members, of.columns.into())
        });
        let function_time = request
            .function
            .as_ref()
            .map(|function| self.now.function_time(&request.snapshot, &request.settings, function));
        Input::Projected(Box::new(Projected {
            request,
            projection,
            compared,
            busy_threads,
            timeline,
            function_time,
        }))
    }

    fn project(&mut self, request: &Request) -> Projection {
        match request.trends {
            true => self.now.project_with_trends(&request.snapshot, &request.settings),
            false => self.now.project(&request.snapshot, &request.settings),
        }
    }

    /// Returns the projection of a baseline under these settings.
    fn baseline(&mut self, baseline: &Baseline, settings: &Settings) -> &Projection {
        let settings = Settings { range: baseline.range, inverted: false, ..settings.clone() };
        let text = format!("{settings:?}");
        let is_other = |kept: &mut Kept| !Arc::ptr_eq(&kept.snapshot, &baseline.snapshot);
        self.kept.iter_mut().for_each(|slot| drop(slot.take_if(is_other)));
        let slot = &mut self.kept[usize::from(settings.idle)];
        let kept = slot.take().filter(|kept| kept.settings == text).unwrap_or_else(|| Kept {
            projection: self.before.project(&baseline.snapshot, &settings),
            snapshot: baseline.snapshot.clone(),
            settings: text,
        });
        &slot.insert(kept).projection
    }
}

/// Returns the threads of the chosen group; without it those from before, or of the heaviest group.
fn members(
    group: Option<GroupKey>,
    before: Option<Members>,
    projection: &Projection,
    settings: &Settings,
) -> Members {
    let groups = 0..projection.groups.len() as u32;
    let is_chosen = |at: &u32| {
        let key = || thread_list::key(*at, projection, settings);
        group.as_ref().is_some_and(|chosen| *chosen == key())
    };
    let of = |group: u32| Members::of(&projection.groups[group as usize]);
    let heaviest = || projection.ordered(settings).groups().first().copied().map(of);
    let chosen = groups.into_iter().find(is_chosen).map(of);
    chosen.or(before).or_else(heaviest).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::fact::{FactKey, Weights};
    use crate::model::facts::history::{History, Parts};
    use crate::model::facts::interner::Interner;
    use crate::model::facts::packed::Packed;
    use crate::model::projection::settings::{Level, Range};
    use crate::model::vocabulary::frame::{
        FileId, FrameCode, Ns, RawFrame, RawName, SECOND, ThreadKey,
    };
    use crate::model::vocabulary::state::{RawState, State};

    /// A session of two seconds with a thread in each of these states for the first of them.
    fn snapshot(states: &[State]) -> Arc<Snapshot> {
        let mut interner = Interner::new(100);
        let facts = (1..).zip(states).map(|(tid, state)| {
            let code = FrameCode::Code { file: FileId(1), offset: 64, exact: false };
            let stack = interner.stack(&[RawFrame::new(code)]);
            let name = interner.name(RawName::new(b"worker"));
            let thread = ThreadKey { pid: 1, tid, start: 1 };
            let weights = Weights { wall_ns: SECOND, hits: 100, ..Weights::default() };
            (FactKey::new(thread, name, stack, RawState::Known(*state)), weights)
        });
        let sealed = vec![Packed::new(0, SECOND, facts.collect())];
        let at = 2 * SECOND;
        let parts = Parts { started: 0, at, sealed, ..Parts::default() };
        let history = History::from_parts(parts).expect("buckets in order");
        Snapshot { tables: interner.tables(), history, ..Snapshot::made_up(at, &[]) }.into()
    }

    fn answer(projectors: &mut Projectors, against: &Baseline, now: &Arc<Snapshot>) -> Compared {
        let settings = Settings {
            level: Level::All,
            range: Range::Cumulative { since: None },
            ..Settings::default()
        };
        let request = Request {
            number: 1,
            snapshot: now.clone(),
            settings,
            against: Some(against.clone()),
            trends: false,
            timeline: None,
            function: None,
            urgent: true,
            spare: None,
        };
        let Input::Projected(projected) = projectors.answer(request) else { panic!("no answer") };
        *projected.compared.expect("a comparison")
    }

    /// Of a baseline that shows idle time because it has nothing else, and of one whose idle time
    /// is shown because the range has nothing else, each projection is made once.
    #[test]
    fn a_baseline_is_not_projected_again() {
        const MARK: Ns = 77;
        for states in [[&[State::Poll][..], &[State::Run]], [&[State::Run], &[State::Poll]]] {
            let [before, now] = states.map(snapshot);
            let range = Range::Cumulative { since: None };
            let baseline = Baseline { snapshot: before, range, file: None };
            let mut projectors = Projectors::default();
            assert_eq!(answer(&mut projectors, &baseline, &now).from, 0);
            // Another projection of the same would not have it.
            projectors.kept.iter_mut().flatten().for_each(|kept| kept.projection.from = MARK);
            assert_eq!(answer(&mut projectors, &baseline, &now).from, MARK);
            // Another baseline takes the place of both.
            let other = Baseline { snapshot: snapshot(states[0]), ..baseline.clone() };
            assert_eq!(answer(&mut projectors, &other, &now).from, 0);
            assert_eq!(Arc::strong_count(&baseline.snapshot), 1);
        }
    }
}
