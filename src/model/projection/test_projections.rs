//! Hand-made projections for tests: each stack's weight is given, all sums are derived.

use std::collections::HashMap;
use std::sync::Arc;

use super::columns::NONE;
use super::lines::Places;
use super::nodes::{Nodes, Seen};
use super::{Group, GroupThread, Projection, Totals};
use crate::model::facts::tables::Location;
use crate::model::vocabulary::frame::{ThreadKey, ThreadKind};
use crate::model::vocabulary::role::Role;

/// Returns a projection of stacks: group name, frames outermost first (empty: all hidden), time.
/// Each group is one thread, and each location a row.
pub fn projection(stacks: &[(String, Vec<Location>, Totals)]) -> Projection {
    let mut projection = Projection::nothing();
    let mut nodes = Nodes::default();
    let mut locations: Vec<Arc<Location>> = Vec::new();
    let mut children: HashMap<(usize, u32, u32), u32> = HashMap::new();
    let mut own: Vec<(u32, Totals)> = Vec::new();
    for (name, frames, totals) in stacks {
        let groups = &mut projection.groups;
        let nth = groups.iter().position(|g| *g.name == **name).unwrap_or_else(|| {
            let thread = ThreadKey { pid: 42, tid: 100 + groups.len() as u32, start: 5 };
            let threads =
                vec![GroupThread { thread, name: name.as_str().into(), kind: ThreadKind::Plain }];
            let (total, own) = (Totals::default(), Totals::default());
            groups.push(Group {
                name: name.as_str().into(),
                threads,
                total,
                own,
                first_root: NONE,
            });
            groups.len() - 1
        });
        let group = &mut groups[nth];
        let mut at = NONE;
        for frame in frames {
            let row = locations.iter().position(|l| **l == *frame).unwrap_or_else(|| {
                locations.push(Arc::new(frame.clone()));
                locations.len() - 1
            }) as u32;
            let push = || {
                nodes.push(
                    at,
                    Seen { row, location: row, role: Role::App, is_entry: false },
                    &mut group.first_root,
                )
            };
            at = *children.entry((nth, at, row)).or_insert_with(push);
        }
        match at {
            NONE => group.own.add(totals),
            node => {
                own.push((node, *totals));
                projection.seen.push((nth as u32, node));
            }
        }
    }
    projection.seen.sort_unstable();
    (0..nodes.len()).for_each(|_| _ = nodes.owns.push());
    for (node, totals) in own {
        nodes.set_own(node, node);
        nodes.owns.add(node, &totals);
    }
    nodes.add_up();
    for group in &mut projection.groups {
        group.own.settle_off();
        group.total = nodes.total(group.first_root, &group.own);
        projection.total.add(&group.total);
    }
    let line_of = (0..locations.len() as u32).collect();
    nodes.places = Arc::new(Places { locations, line_of });
    projection.nodes = nodes;
    projection
}
