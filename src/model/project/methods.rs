//! The flat table: a function (or line) wherever it was called.

use super::lines;
use super::read::Seen;
use super::rows::Rows;
use super::tree::{Scratch, Trees};
use super::{Method, Totals};
use crate::model::settings::{RollUp, Settings};

const NONE: u32 = u32::MAX;

/// Sums the trees' nodes by row. A node below another of its row adds no total: its stacks count once.
pub(super) fn methods(
    settings: &Settings,
    rows: &Rows,
    trees: &Trees,
    scratch: &Scratch,
    seen: &[Seen],
) -> Vec<Method> {
    let row_count = match settings.roll_up {
        RollUp::Function => rows.function_count(),
        RollUp::Line => rows.location_count(),
    };
    let mut method_of = vec![NONE; row_count];
    let mut methods: Vec<Method> = Vec::new();
    for (node, row) in trees.nodes.iter().zip(&trees.rows) {
        let method = &mut method_of[*row as usize];
        if *method == NONE {
            *method = methods.len() as u32;
            let location = node.location.clone();
            methods.push(Method { location, total: Totals::default(), own: Totals::default(), threads: 0 });
        }
        methods[*method as usize].own.add(&node.own);
    }
    let nodes: Vec<u32> = trees.rows.iter().map(|row| method_of[*row as usize]).collect();

    let recursive = recursive(trees, &nodes, methods.len());
    for ((node, method), recursive) in trees.nodes.iter().zip(&nodes).zip(&recursive) {
        if !recursive {
            methods[*method as usize].total.add(&node.total);
        }
    }
    count_threads(trees, &nodes, seen, &mut methods);
    if settings.roll_up == RollUp::Function {
        choose_lines(settings, rows, scratch, &nodes, &recursive, &mut methods);
    }
    methods
}

/// Which nodes lie below another node of their method.
fn recursive(trees: &Trees, methods: &[u32], method_count: usize) -> Vec<bool> {
    let mut recursive = vec![false; trees.nodes.len()];
    let mut open = vec![0u32; method_count];
    // A node is met twice: going in, and (marked) coming out.
    let mut todo: Vec<(u32, bool)> = Vec::new();
    for group in &trees.groups {
        todo.extend(group.roots.iter().map(|root| (*root, false)));
        while let Some((node, done)) = todo.pop() {
            let open = &mut open[methods[node as usize] as usize];
            if done {
                *open -= 1;
                continue;
            }
            recursive[node as usize] = *open > 0;
            *open += 1;
            todo.push((node, true));
            todo.extend(trees.nodes[node as usize].children.iter().map(|child| (*child, false)));
        }
    }
    recursive
}

/// `seen` is sorted by thread, so that one mark per node tells whether this thread was there already.
fn count_threads(trees: &Trees, methods_of: &[u32], seen: &[Seen], methods: &mut [Method]) {
    let mut at_node = vec![NONE; trees.nodes.len()];
    let mut at_method = vec![NONE; methods.len()];
    for seen in seen {
        let mut at = trees.attached[seen.cell as usize];
        while let Some(node) = at {
            if std::mem::replace(&mut at_node[node as usize], seen.thread) == seen.thread {
                break;
            }
            let method = methods_of[node as usize] as usize;
            if std::mem::replace(&mut at_method[method], seen.thread) != seen.thread {
                methods[method].threads += 1;
            }
            at = trees.nodes[node as usize].parent;
        }
    }
}

/// As for nodes, by the outermost of a recursion's frames.
fn choose_lines(
    settings: &Settings,
    rows: &Rows,
    scratch: &Scratch,
    methods_of: &[u32],
    recursive: &[bool],
    methods: &mut [Method],
) {
    let seen = || {
        let at = scratch.seen_at(|node| methods_of[node as usize]);
        at.filter(|(node, _)| !recursive[*node as usize]).map(|(_, at)| at)
    };
    let mut first = vec![NONE; methods.len()];
    let mut several = vec![false; methods.len()];
    for at in seen() {
        let first = &mut first[at.row as usize];
        if *first == NONE {
            *first = at.location;
            methods[at.row as usize].location = rows.location(at.location).clone();
        }
        several[at.row as usize] |= *first != at.location;
    }
    let candidates = seen().filter(|at| several[at.row as usize]).collect();
    lines::heaviest(candidates, settings.metric, rows, |method, location| {
        methods[method as usize].location = rows.location(location).clone();
    });
}
