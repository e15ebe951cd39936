//! The flat table: a function (or line) wherever it was called.

use super::lines::Line;
use super::read::Seen;
use super::rows::Rows;
use super::tree::{NONE, Scratch, Shape, Trees};
use super::{Method, Totals};
use crate::model::settings::{RollUp, Settings};

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
    let mut method_of_row = vec![NONE; row_count];
    let mut methods: Vec<Method> = Vec::new();
    let mut add_method = |node: usize, row: u32| {
        let method = &mut method_of_row[row as usize];
        if *method == NONE {
            *method = methods.len() as u32;
            let location = trees.nodes[node].location.clone();
            methods.push(Method { location, total: Totals::default(), own: Totals::default(), threads: 0 });
        }
        *method
    };
    let methods_of: Vec<u32> =
        scratch.shape.rows.iter().enumerate().map(|(node, row)| add_method(node, *row)).collect();

    let recursive = recursive(&scratch.shape, &methods_of, methods.len());
    for ((node, method), recursive) in trees.nodes.iter().zip(&methods_of).zip(&recursive) {
        let method = &mut methods[*method as usize];
        // Most nodes have no time of their own.
        if node.own.hits > 0 || !node.own.is_empty() {
            method.own.add(&node.own);
        }
        if !recursive {
            method.total.add(&node.total);
        }
    }
    count_threads(trees, &scratch.shape, &methods_of, seen, &mut methods);
    if settings.roll_up == RollUp::Function {
        choose_lines(settings, rows, scratch, &methods_of, &recursive, &mut methods);
    }
    methods
}

/// Which nodes lie below another node of their method.
fn recursive(shape: &Shape, methods_of: &[u32], method_count: usize) -> Vec<bool> {
    let mut recursive = vec![false; methods_of.len()];
    let mut open = vec![0u32; method_count];
    let mut at = shape.first_root;
    while at != NONE {
        let node = at as usize;
        let here = &mut open[methods_of[node] as usize];
        recursive[node] = *here > 0;
        *here += 1;
        at = shape.first_child[node];
        let mut done = node;
        while at == NONE {
            open[methods_of[done] as usize] -= 1;
            at = shape.next_sibling[done];
            match shape.parents[done] {
                NONE => break,
                parent => done = parent as usize,
            }
        }
    }
    recursive
}

/// `seen` is sorted by thread, so that one mark per node tells whether this thread was there already.
fn count_threads(trees: &Trees, shape: &Shape, methods_of: &[u32], seen: &[Seen], methods: &mut [Method]) {
    let mut at_node = vec![NONE; methods_of.len()];
    let mut at_method = vec![NONE; methods.len()];
    for seen in seen {
        let mut at = trees.attached[seen.cell as usize];
        while at != NONE && std::mem::replace(&mut at_node[at as usize], seen.thread) != seen.thread {
            let method = methods_of[at as usize] as usize;
            if std::mem::replace(&mut at_method[method], seen.thread) != seen.thread {
                methods[method].threads += 1;
            }
            at = shape.parents[at as usize];
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
    // A location is of one function, so of one method.
    let mut sums = vec![(NONE, 0, 0); rows.location_count()];
    for at in scratch.seen_at().filter(|at| !recursive[at.node as usize]) {
        let (method, wall_ns, cpu_ns) = &mut sums[at.location as usize];
        *method = methods_of[at.node as usize];
        *wall_ns += at.wall_ns;
        *cpu_ns += at.cpu_ns;
    }
    let mut best: Vec<Option<Line<'_>>> = vec![None; methods.len()];
    for (id, (method, wall_ns, cpu_ns)) in (0..).zip(sums) {
        if method == NONE {
            continue;
        }
        let location = rows.location(id);
        let line = Line::new(settings.metric, location, wall_ns, cpu_ns);
        let best = &mut best[method as usize];
        if best.is_none_or(|best| line.beats(&best)) {
            *best = Some(line);
            methods[method as usize].location = location.clone();
        }
    }
}
