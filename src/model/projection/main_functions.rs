//! The function of each group that most of its time is spent in: the user's, or else a library's.

use std::cmp::Ordering;

use super::Projection;
use super::columns::NONE;
use super::row_order::by_location;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

/// The innermost functions on the path to a node, including itself: nodes, or [`NONE`].
#[derive(Clone, Copy)]
struct Innermost {
    app: u32,
    library: u32,
}

impl Projection {
    /// Returns the main function of each group, a node: of the user's functions the one with most
    /// time of its own and of what it calls outside of the user's code. Without such time in the
    /// metric, the same of libraries; `None` without either. Of equal ones the first by name.
    ///
    /// Reads all nodes at the first call for a metric.
    pub fn main_functions(&self, metric: Metric) -> &[Option<u32>] {
        self.main_functions[metric as usize].get_or_init(|| self.find_main_functions(metric))
    }

    fn find_main_functions(&self, metric: Metric) -> Vec<Option<u32>> {
        let nodes = &self.nodes;
        let mut group_of = vec![NONE; nodes.len()];
        for (at, group) in (0..).zip(&self.groups) {
            self.roots(group).for_each(|root| group_of[root as usize] = at);
        }
        let mut innermost: Vec<Innermost> = Vec::with_capacity(nodes.len());
        let mut ns = vec![0u64; nodes.len()];
        // Callers precede their callees.
        for (node, parent) in (0..).zip(nodes.parents()) {
            let mut path = Innermost { app: NONE, library: NONE };
            if parent != NONE {
                path = innermost[parent as usize];
                group_of[node as usize] = group_of[parent as usize];
            }
            match nodes.role(node) {
                Role::App => path.app = node,
                Role::Library => path.library = node,
                _ => {}
            }
            innermost.push(path);
            // The caller's own time includes that of its entries.
            if !nodes.is_entry(node) {
                let own = nodes.own_value(node, metric);
                for owner in [path.app, path.library] {
                    if let Some(ns) = ns.get_mut(owner as usize) {
                        *ns += own;
                    }
                }
            }
        }
        let mut main: Vec<Option<u32>> = vec![None; self.groups.len()];
        for node in (0..nodes.len() as u32).filter(|node| ns[*node as usize] > 0) {
            let rank = |node: u32| (nodes.role(node) == Role::App, ns[node as usize]);
            let best = &mut main[group_of[node as usize] as usize];
            let is_better = |best: u32| match rank(node).cmp(&rank(best)) {
                Ordering::Equal => by_location(nodes.name(node), nodes.name(best)).is_lt(),
                order => order.is_gt(),
            };
            if best.is_none_or(is_better) {
                *best = Some(node);
            }
        }
        main
    }
}
