//! Matches rows of two profiles by name, since builds are in different directories and processes
//! have different pids.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::{Grouping, RollUp};
use crate::model::projection::{OF_PROCESS, Projection};
use crate::model::vocabulary::anonymous;
use crate::model::vocabulary::blocker::BlockerKind;

/// The identity of a row in both profiles.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    function: Arc<str>,
    kind: FrameKind,
    /// Without its directory. `None` if each profile has the function in at most one module; that
    /// module may have different names.
    module: Option<Arc<str>>,
    /// File without its directory, and line, if rows are lines.
    line: Option<(Arc<str>, u32)>,
}

/// Numbers rows; matching rows get equal numbers.
pub(super) struct Alike {
    by: RollUp,
    /// Functions that occur in several modules of one profile.
    several: HashSet<(Arc<str>, FrameKind)>,
    rows: HashMap<Key, u32>,
    /// By address of a location, which the projections keep in place.
    met: FxHashMap<usize, u32>,
}

impl Alike {
    /// Creates it. The projections must outlive it.
    pub fn new(projections: [&Projection; 2], by: RollUp) -> Alike {
        let mut several = HashSet::new();
        for projection in projections {
            let mut modules: HashMap<(Arc<str>, FrameKind), Arc<str>> = HashMap::new();
            let mut met = HashSet::new();
            for location in (0..projection.node_count()).map(|node| projection.name(node)) {
                if !met.insert(Arc::as_ptr(location) as usize) {
                    continue;
                }
                let name = (name_in_both(location), location.kind);
                let module = modules.entry(name.clone()).or_insert_with(|| location.module.clone());
                if base(module) != base(&location.module) {
                    several.insert(name);
                }
            }
        }
        Alike { by, several, rows: HashMap::new(), met: FxHashMap::default() }
    }

    pub fn row(&mut self, location: &Arc<Location>) -> u32 {
        if let Some(row) = self.met.get(&(Arc::as_ptr(location) as usize)) {
            return *row;
        }
        let function = name_in_both(location);
        let several = self.several.contains(&(function.clone(), location.kind));
        let key = Key {
            function,
            kind: location.kind,
            module: several.then(|| base(&location.module).into()),
            line: match (self.by, &location.file, location.line) {
                (RollUp::Line, file, Some(line)) => {
                    Some((base(file.as_deref().unwrap_or("")).into(), line))
                }
                _ => None,
            },
        };
        let next = self.rows.len() as u32;
        let row = *self.rows.entry(key).or_insert(next);
        self.met.insert(Arc::as_ptr(location) as usize, row);
        row
    }
}

/// Returns a function's name without what differs between builds: where a function of JavaScript
/// begins that has no name, `(anonymous app.js:9:12)`.
fn name_in_both(location: &Location) -> Arc<str> {
    match (location.kind, anonymous::file(&location.function)) {
        (FrameKind::Jit, Some(file)) => format!("(anonymous {file})").into(),
        _ => location.function.clone(),
    }
}

/// Returns the name in a comparison of a projection's group: without pid, tid or address, which
/// differ between the profiles.
pub fn group_name(name: &Arc<str>, grouping: &Grouping) -> Arc<str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match grouping {
        // `4321 java -jar shop.jar`
        Grouping::Process => match name.split_once(' ') {
            Some((pid, command)) if digits(pid) => command.into(),
            _ => name.clone(),
        },
        // `worker-1 (4322)`
        Grouping::Thread => match name.rsplit_once(" (") {
            Some((name, tid)) if tid.strip_suffix(')').is_some_and(digits) => name.into(),
            _ => name.clone(),
        },
        // `monitor of com.acme.TaxTable 0x7f5a01c8 of process 4321`, `child 4322`
        Grouping::Blocker => {
            let lock = match name.rsplit_once(OF_PROCESS) {
                Some((lock, pid)) if digits(pid) => lock,
                _ => name,
            };
            match lock.rsplit_once(' ') {
                Some((what, at)) if at.starts_with("0x") => what.into(),
                Some((what, _)) if what == BlockerKind::Child.word() => what.into(),
                _ => lock.into(),
            }
        }
        _ => name.clone(),
    }
}

/// Returns the last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
