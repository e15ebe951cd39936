//! CPU time that garbage collection takes.

use crate::model::facts::history::Weights;

/// CPU time of garbage collection in a range, ns, whatever the filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collection {
    /// Of threads that do nothing else. It is measured.
    pub threads_ns: u64,
    /// Of the workers of Go's collector, which are goroutines: known by their stacks alone.
    pub workers_ns: u64,
    /// Of the program's own goroutines, which have to collect because they allocate (`assist`).
    pub assists_ns: u64,
    /// Samples of the last two.
    pub hits: u64,
}

/// What a stack of Go does for the garbage collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Collects {
    Works,
    Assists,
}

impl Collection {
    /// Adds a fact. `is_collector`: its thread collects garbage; `by_stack`: what its stack does.
    pub(super) fn add(
        &mut self,
        is_collector: bool,
        by_stack: Option<Collects>,
        weights: &Weights,
    ) {
        let sum = match (is_collector, by_stack) {
            (true, _) => {
                self.threads_ns += weights.cpu_ns;
                return;
            }
            (false, None) => return,
            (false, Some(Collects::Works)) => &mut self.workers_ns,
            (false, Some(Collects::Assists)) => &mut self.assists_ns,
        };
        *sum += weights.cpu_ns;
        self.hits += u64::from(weights.cpu_hits);
    }

    /// Returns all of it, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.threads_ns + self.workers_ns + self.assists_ns
    }
}
