//! What a row of the tree is called: the user's function, the calls folded into its line, and the
//! way out of the user's code that has most of its time.

use super::kernel_entry::KernelEntry;
use super::{Method, Ordered, WaitedFor, heaviest};
use crate::model::facts::tables::Location;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::role::Role;

#[derive(Clone, PartialEq, Debug)]
pub struct Label<'a> {
    /// The calls that are folded into the line, outermost first.
    pub outer: Vec<&'a Location>,
    pub name: &'a Location,
    /// What the function calls elsewhere for most of its time, or the innermost call of a chain
    /// that leaves the user's code.
    pub inner: Option<&'a Location>,
    /// The lock for which most of the row's time was waited there.
    pub lock: Option<WaitedFor<'a>>,
    /// The row stands for what its caller, the user's function, calls elsewhere.
    pub is_entry: bool,
}

impl<'a> Label<'a> {
    /// Returns the label of a function alone.
    pub fn of_function(name: &'a Location) -> Label<'a> {
        Label { outer: Vec::new(), name, inner: None, lock: None, is_entry: false }
    }

    /// Returns the label of a row of the methods view.
    pub fn of_method(method: &'a Method, metric: Metric) -> Label<'a> {
        Label {
            outer: Vec::new(),
            name: method.location(metric),
            inner: method.entry(metric),
            lock: None,
            is_entry: false,
        }
    }
}

/// Returns the label of a row of the tree. `swallowed`: number of callers folded into its line.
pub fn label<'a>(ordered: &Ordered<'a>, node: u32, swallowed: u32) -> Label<'a> {
    let projection = ordered.projection;
    let location = |node: u32| -> &'a Location { projection.location(node, ordered.metric) };
    let mut chain = vec![node];
    let mut at = node;
    for _ in 0..swallowed {
        let Some(caller) = projection.parent(at) else { break };
        chain.push(caller);
        at = caller;
    }
    let is_app = |node: &u32| projection.role(*node) == Role::App;
    // The innermost function of the user names the line, if there is one.
    let named = chain.iter().position(is_app).unwrap_or(0);
    let name = chain[named];
    let outer = chain[named + 1..].iter().filter(|node| !is_app(&name) || is_app(node));
    let mut outer: Vec<&Location> = outer.map(|node| location(*node)).collect();
    outer.reverse();
    let entries = || projection.children(node).filter(|child| projection.is_entry(*child));
    let inner = match named {
        0 => {
            // A share of the whole row: beside calls of the user's code, most of a small self time
            // says nothing.
            let most = |entry: &u32| ordered.value(*entry) > ordered.value(node) / 2;
            heaviest(ordered, entries()).filter(most)
        }
        // The calls below an interrupt are not the function's.
        _ => {
            let is_interrupt = |node: &u32| {
                KernelEntry::of(projection.name(*node)).is_some_and(KernelEntry::is_interrupt)
            };
            let role = |node: &&u32| projection.role(**node);
            let calls = &chain[..named];
            // The outermost call that waits says more than the system call that it leads to.
            let waits = || calls.iter().rfind(|node| role(node) == Role::Wait);
            let innermost = || calls.iter().find(|node| role(node) != Role::Kernel);
            let inner = waits().or_else(innermost).copied().unwrap_or(node);
            (!calls.iter().any(is_interrupt)).then_some(inner)
        }
    };
    let nodes = std::iter::once(node).chain(entries());
    // CPU time is not waited.
    let lock = match ordered.metric {
        Metric::Cpu => None,
        _ => projection.most_waited_lock(nodes, projection.total(node).wall_ns),
    };
    Label {
        outer,
        name: location(name),
        inner: inner.map(location),
        lock,
        is_entry: projection.is_entry(node),
    }
}
