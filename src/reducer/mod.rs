//! Drains the ring, resolves names, folds facts, publishes snapshots.
