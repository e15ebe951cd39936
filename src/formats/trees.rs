//! Shared by the formats of call trees: functions by number, the weight of each subtree, the walk
//! through a tree.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{Metric, Settings};
use crate::model::projection::{self, Group, Ordered, Projection};
use crate::model::vocabulary::role::Role;

use super::dates;

/// Projects; idle time is shown if nothing else is left, at each level: who reads a file cannot ask
/// for it any more.
pub fn project(snapshot: &Snapshot, settings: &Settings) -> Projection {
    let mut projection = projection::project(snapshot, settings);
    if projection.total.is_empty() && !projection.hidden.idle.is_empty() {
        projection = projection::project(snapshot, &Settings { idle: true, ..settings.clone() });
        projection.only_idle = true;
    }
    projection
}

/// The names of nodes: the projection's methods, in their order, then the names of threads that
/// head a part of a group.
pub struct Functions {
    pub list: Vec<Arc<Location>>,
    /// Whose code each is.
    pub roles: Vec<Role>,
    /// Index into `list`, by node.
    pub of_node: Vec<u32>,
}

impl Functions {
    pub fn new(projection: &Projection, metric: Metric) -> Functions {
        let mut list: Vec<Arc<Location>> =
            projection.methods().iter().map(|method| method.location(metric).clone()).collect();
        let mut roles: Vec<Role> = projection.methods().iter().map(|method| method.role).collect();
        let mut heads: HashMap<Arc<Location>, u32> = HashMap::new();
        let mut head = |node: u32| {
            *heads.entry(projection.name(node).clone()).or_insert_with_key(|name| {
                list.push(name.clone());
                roles.push(projection.role(node));
                list.len() as u32 - 1
            })
        };
        let methods = projection.method_of_nodes();
        let of_node =
            (0..).zip(methods).map(|(node, method)| method.unwrap_or_else(|| head(node))).collect();
        Functions { list, roles, of_node }
    }
}

/// Returns the time of each node's stacks, ns, by node: its own and that of all nodes below it.
pub fn weights(projection: &Projection, metric: Metric) -> Vec<u64> {
    let nodes = 0..projection.node_count();
    let mut weights: Vec<u64> =
        nodes.clone().map(|node| projection.node(node, metric).own.value(metric)).collect();
    for node in nodes.rev() {
        if let Some(parent) = projection.parent(node) {
            weights[parent as usize] += weights[node as usize];
        }
    }
    weights
}

/// A step of the walk through a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Enter(u32),
    Leave(u32),
}

/// Walks a group's tree, heaviest first, callers before callees. Without recursion, since a target
/// may recurse to any depth.
pub fn walk<'a>(ordered: &'a Ordered<'_>, group: &Group) -> impl Iterator<Item = Step> + 'a {
    let mut todo: Vec<Step> = ordered.roots(group).into_iter().rev().map(Step::Enter).collect();
    std::iter::from_fn(move || {
        let step = todo.pop()?;
        if let Step::Enter(node) = step {
            todo.push(Step::Leave(node));
            todo.extend(ordered.children(node).into_iter().rev().map(Step::Enter));
        }
        Some(step)
    })
}

/// Returns the target in one line: `app --port 80`, `nginx and 3 more`.
pub fn title(snapshot: &Snapshot) -> String {
    match &snapshot.targets[..] {
        [] => snapshot.session.wanted.title.to_string(),
        [one] => one.command.to_string(),
        [first, others @ ..] => format!("{} and {} more", first.command, others.len()),
    }
}

/// Returns where, when and how, in one line.
pub fn conditions(snapshot: &Snapshot, settings: &Settings, projection: &Projection) -> String {
    let session = &snapshot.session;
    let from = dates::utc(dates::unix_ns(session, projection.from));
    let seconds = projection.elapsed() as f64 / 1e9;
    if session.is_foreign() {
        return format!("{seconds:.3} s, from a file of another tool");
    }
    let interval = snapshot.resolution() as f64 / 1e6;
    let dropped = snapshot.health.losses.dropped;
    let idle = match settings.idle || projection.only_idle {
        true => "",
        false => ", idle time hidden",
    };
    format!(
        "{}, {from} UTC, {seconds:.3} s, capture {}, a sample every {interval:.0} ms, {dropped} dropped{idle}",
        session.host, snapshot.capture,
    )
}
