//! Events in, time booked as facts, history, snapshots.
//!
//! Knows nothing of settings or of how facts are shown.
//!
//! ```text
//! recorder     ties the others together: events in, snapshots out
//! thread       one thread's observations; weigh: observations -> booked time (wall, cpu, hits)
//! unsampled    time that no sample hit, and the stacks it is shared among
//! fact         (process, thread, name, stack, state) -> weights; fact_table adds them up
//! buckets      writes history; history: as a snapshot reads it; packed, chunks: how it is stored
//! tables       interned stacks, and what their frames are called; interner writes them
//! snapshot     an immutable view of all of it
//! futex, role  what a futex wait is, by the functions above it; what such names say of waits
//! ```

pub mod buckets;
pub mod chunks;
pub mod fact;
pub mod fact_table;
pub mod futex;
pub mod history;
pub mod interner;
pub mod packed;
pub mod recorder;
pub mod role;
pub mod snapshot;
pub mod tables;
pub mod thread;
pub mod unsampled;
pub mod weigh;
