//! The flat table: each function (or line, class ...) with all its callers.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::columns::NONE;
use super::lines::At;
use super::nodes::Nodes;
use super::{Group, Totals};
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

/// A function with a smaller part of its total as self time is not named with what it calls
/// elsewhere. 5 %.
const OWN_PARTS: u64 = 20;

/// A row of the methods view: a function (or line, class ...), summed over all its frames. A
/// recursive function counts once per stack.
#[derive(Clone, Debug)]
pub struct Method {
    /// By [`Metric`], since the heaviest line differs.
    locations: [Arc<Location>; Metric::ALL.len()],
    /// What it calls outside of the user's code for most of its own time, by [`Metric`].
    entries: [Option<Arc<Location>>; Metric::ALL.len()],
    pub total: Totals,
    pub own: Totals,
    /// Number of distinct threads in which it was seen.
    pub threads: u32,
    /// Whose code it is.
    pub role: Role,
}

impl Method {
    /// Returns the row's name; under roll-up function `line` is its heaviest line (tie: lowest).
    pub fn location(&self, metric: Metric) -> &Arc<Location> {
        &self.locations[metric as usize]
    }

    /// Returns the way out of the user's code that has most of its own time.
    pub fn entry(&self, metric: Metric) -> Option<&Location> {
        self.entries[metric as usize].as_deref()
    }
}

/// Returns false for names of threads, which are no methods, and for entries, whose time is self
/// time of their callers.
fn is_of_method(nodes: &Nodes, node: u32) -> bool {
    // Only a marker can be the name of a thread.
    let is_thread = nodes.role(node) == Role::Marker && nodes.name(node).kind == FrameKind::Thread;
    !is_thread && !nodes.is_entry(node)
}

/// Returns the index into the methods, by node; [`NONE`] for a node of none. Methods are numbered
/// in order of first occurrence.
pub(super) fn methods_of(nodes: &Nodes) -> Vec<u32> {
    let mut method_of_row = vec![NONE; nodes.rows().max().map_or(0, |row| row as usize + 1)];
    let mut next = 0;
    (0..)
        .zip(nodes.rows())
        .map(|(node, row)| {
            if !is_of_method(nodes, node) {
                return NONE;
            }
            let method = &mut method_of_row[row as usize];
            if *method == NONE {
                *method = next;
                next += 1;
            }
            *method
        })
        .collect()
}

/// Sums the nodes by row. A node below another of the same row adds no total, so its stacks count
/// once. `seen` is (thread, node), sorted by thread; `methods_of` is that of all nodes.
pub(super) fn methods(
    nodes: &Nodes,
    groups: &[Group],
    seen: &[(u32, u32)],
    methods_of: &[u32],
) -> Vec<Method> {
    sum_up(nodes, groups, seen, methods_of)
}

/// The method with the most CPU time as self time.
#[derive(Clone, Debug)]
pub struct Hottest {
    pub method: Method,
    /// Of its nodes the one with most CPU time.
    pub node: u32,
}

/// Returns the hottest method; a tie: the first; none with less than `least_ns`. Costs much less
/// than all of them.
pub(super) fn hottest(
    nodes: &Nodes,
    groups: &[Group],
    seen: &[(u32, u32)],
    least_ns: u64,
) -> Option<Hottest> {
    let own_ns = own_ns(nodes);
    let most = own_ns.iter().copied().max().filter(|most| *most >= least_ns.max(1))?;
    let is_hot = |node: &u32| own_ns[nodes.row(*node) as usize] == most;
    let mut of_methods = (0..nodes.len() as u32).filter(|node| is_of_method(nodes, *node));
    let hot_row = nodes.row(of_methods.find(is_hot)?);
    of_row(nodes, groups, seen, hot_row)
}

/// Returns the method of the user's in which, with what it calls, most of this CPU time is, and
/// that has much of it as self time. Not the outermost one, which has nearly all of the time in any
/// program. Of several the one with most self time.
pub(super) fn mostly_within(
    nodes: &Nodes,
    groups: &[Group],
    seen: &[(u32, u32)],
    cpu_ns: u64,
) -> Option<Hottest> {
    let own_ns = own_ns(nodes);
    // At most four.
    let has_much = |row: &u32| cpu_ns > 0 && own_ns[*row as usize] * 4 >= cpu_ns;
    let mut rows: Vec<u32> = (0..own_ns.len() as u32).filter(has_much).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(own_ns[*row as usize]));
    let is_inner = |node: u32| {
        let above = |node: u32| Some(nodes.parent(node)).filter(|parent| *parent != NONE);
        let mut callers = std::iter::successors(above(node), |node| above(*node));
        callers.any(|caller| nodes.role(caller) == Role::App)
    };
    rows.into_iter().filter_map(|row| of_row(nodes, groups, seen, row)).find(|found| {
        let most = found.method.total.cpu_ns * 5 >= cpu_ns * 3;
        most && found.method.role == Role::App && is_inner(found.node)
    })
}

/// Returns the CPU time that each method has as self time, ns, by row: a method has one.
fn own_ns(nodes: &Nodes) -> Vec<u64> {
    let mut own_ns = vec![0; nodes.rows().max().map_or(0, |row| row as usize + 1)];
    for node in (0..nodes.len() as u32).filter(|node| nodes.has_own(*node)) {
        if is_of_method(nodes, node) {
            own_ns[nodes.row(node) as usize] += nodes.own_value(node, Metric::Cpu);
        }
    }
    own_ns
}

/// Returns the method of a row.
fn of_row(nodes: &Nodes, groups: &[Group], seen: &[(u32, u32)], row: u32) -> Option<Hottest> {
    let of_node = |node: u32| match nodes.row(node) == row {
        true if is_of_method(nodes, node) => 0,
        _ => NONE,
    };
    let methods_of: Vec<u32> = (0..nodes.len() as u32).map(of_node).collect();
    let of_method = (0..).zip(&methods_of).filter(|(_, method)| **method == 0);
    let node = of_method.map(|(node, _)| node);
    let node = node.max_by_key(|node| nodes.totals.value(*node, Metric::Cpu))?;
    let method = sum_up(nodes, groups, seen, &methods_of).pop()?;
    Some(Hottest { method, node })
}

/// Does the same for some nodes. `methods_of`: by node, numbered in order of first occurrence.
fn sum_up(nodes: &Nodes, groups: &[Group], seen: &[(u32, u32)], methods_of: &[u32]) -> Vec<Method> {
    let mut methods: Vec<Method> = Vec::new();
    for (node, method) in (0..).zip(methods_of) {
        if *method as usize == methods.len() {
            let locations = Metric::ALL.map(|_| nodes.name(node).clone());
            methods.push(Method {
                locations,
                entries: Default::default(),
                total: Totals::default(),
                own: Totals::default(),
                threads: 0,
                role: nodes.role(node),
            });
        }
    }

    let recursive = recursive(nodes, groups, methods_of, methods.len());
    for (node, (method, recursive)) in (0..).zip(methods_of.iter().zip(&recursive)) {
        let Some(method) = methods.get_mut(*method as usize) else { continue };
        // Most nodes have no own time.
        if nodes.has_own(node) {
            method.own.add(&nodes.own(node));
        }
        if !recursive {
            method.total.add(&nodes.totals.get(node));
        }
    }
    count_threads(nodes, methods_of, seen, &mut methods);
    choose_lines(nodes, methods_of, &recursive, &mut methods);
    choose_entries(nodes, methods_of, &mut methods);
    methods
}

/// Chooses the entry that has more than half of each method's own time, where that counts.
fn choose_entries(nodes: &Nodes, methods_of: &[u32], methods: &mut [Method]) {
    // By method and the entry's row: the first such entry, and the time of all.
    let mut sums: FxHashMap<(u32, u32), (u32, Totals)> = FxHashMap::default();
    for entry in (0..nodes.len() as u32).filter(|node| nodes.is_entry(*node)) {
        let caller = nodes.parent(entry);
        let Some(method) = methods_of.get(caller as usize) else { continue };
        let key = (*method, nodes.row(entry));
        let (_, sum) = sums.entry(key).or_insert((entry, Totals::default()));
        sum.add(&nodes.totals.get(entry));
    }
    for ((method, _), (entry, sum)) in sums {
        let Some(method) = methods.get_mut(method as usize) else { continue };
        for metric in Metric::ALL {
            let [own, total] = [method.own, method.total].map(|totals| totals.value(metric));
            if own >= total.div_ceil(OWN_PARTS) && sum.value(metric) > own / 2 {
                method.entries[metric as usize] = Some(nodes.name(entry).clone());
            }
        }
    }
}

/// Returns which nodes are below another node of their method. Names of threads have no method and
/// count as outermost.
pub(super) fn recursive(
    nodes: &Nodes,
    groups: &[Group],
    methods_of: &[u32],
    method_count: usize,
) -> Vec<bool> {
    let mut recursive = vec![false; methods_of.len()];
    // The last entry is for nodes without a method.
    let mut open = vec![0u32; method_count + 1];
    let place = |node: usize| (methods_of[node] as usize).min(method_count);
    for group in groups {
        let mut at = group.first_root;
        while at != NONE {
            let node = at as usize;
            let here = &mut open[place(node)];
            recursive[node] = *here > 0;
            *here += 1;
            let mut done = at;
            at = nodes.first_child(done);
            while at == NONE {
                open[place(done as usize)] -= 1;
                at = nodes.next_sibling(done);
                match nodes.parent(done) {
                    NONE => break,
                    parent => done = parent,
                }
            }
        }
    }
    recursive
}

/// Counts distinct threads. `seen` is sorted by thread, so the last thread counted is enough to
/// detect repetitions.
fn count_threads(nodes: &Nodes, methods_of: &[u32], seen: &[(u32, u32)], methods: &mut [Method]) {
    let mut at_node = vec![NONE; methods_of.len()];
    let mut at_method = vec![NONE; methods.len()];
    for (thread, node) in seen {
        let mut at = *node;
        while at != NONE && std::mem::replace(&mut at_node[at as usize], *thread) != *thread {
            let method = methods_of[at as usize] as usize;
            if let Some(seen) = at_method.get_mut(method)
                && std::mem::replace(seen, *thread) != *thread
            {
                methods[method].threads += 1;
            }
            at = nodes.parent(at);
        }
    }
}

/// Chooses the heaviest line of each method, from the outermost frames of a recursion.
fn choose_lines(nodes: &Nodes, methods_of: &[u32], recursive: &[bool], methods: &mut [Method]) {
    // Each location belongs to one row, so to one method.
    let mut sums: Vec<At> = (0..nodes.places.locations.len() as u32)
        .map(|location| At { node: NONE, location, wall_ns: 0, cpu_ns: 0 })
        .collect();
    for (node, _) in (0..).zip(recursive).filter(|(_, recursive)| !**recursive) {
        nodes.each_line(node, |at| {
            let sum = &mut sums[at.location as usize];
            sum.node = methods_of[node as usize];
            sum.wall_ns += at.wall_ns;
            sum.cpu_ns += at.cpu_ns;
        });
    }
    sums.retain(|sum| sum.node != NONE);
    nodes.places.sort(&mut sums);
    for lines in sums.chunk_by(|a, b| a.node == b.node) {
        for metric in Metric::ALL {
            if let Some(location) = nodes.places.heaviest(lines, metric) {
                methods[lines[0].node as usize].locations[metric as usize] =
                    nodes.places.locations[location as usize].clone();
            }
        }
    }
}
