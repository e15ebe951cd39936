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
    kept: Option<Kept>,
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
                Some(Box::new(Compared { from: before.from, till: before.till, diff, baseline }))
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
        Input::Projected(Box::new(Projected {
            request,
            projection,
            compared,
            busy_threads,
            timeline,
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
        let is_kept =
            |kept: &Kept| Arc::ptr_eq(&kept.snapshot, &baseline.snapshot) && kept.settings == text;
        let kept = self.kept.take().filter(is_kept).unwrap_or_else(|| Kept {
            projection: self.before.project(&baseline.snapshot, &settings),
            snapshot: baseline.snapshot.clone(),
            settings: text,
        });
        &self.kept.insert(kept).projection
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
