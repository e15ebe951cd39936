//! Converts events to time booked as facts, with history and snapshots.
//!
//! Independent of settings and of the presentation.
//!
//! ```text
//! recorder     connects the others: events in, snapshots out
//! thread       one thread's account; weigh: observations -> booked time (wall, cpu, hits)
//! unsampled    assigns stacks to time that no sample hit
//! fact         (process, thread, name, stack, state) -> weights; fact_table sums them
//! ledger       places a thread's booked time: each moment once; span_log: keeps it in order
//! buckets      writes history; history: reads it; packed, chunks: store it
//! goroutines   goroutines of Go that no thread executes, at one moment
//! tasks        tasks of event loops, at one moment
//! tables       interned stacks and names of frames; interner writes them
//! tick_rhythm  the intervals achieved
//! snapshot     an immutable view of all of it
//! futex        the kind of a futex wait, by its callers; kernel_lock: locks of the kernel
//! observed_waits  what threads waited for, by look-ups beside the sampling
//! redacted     roles of functions in replaced names
//! ```

pub mod buckets;
pub mod chunks;
pub mod fact;
pub mod fact_table;
pub mod futex;
pub mod goroutines;
pub mod history;
pub mod interner;
pub mod kernel_lock;
pub mod ledger;
pub mod observed_waits;
pub mod packed;
pub mod recorder;
pub mod redacted;
pub mod snapshot;
pub mod span_log;
pub mod tables;
pub mod tasks;
pub mod thread;
pub mod tick_rhythm;
pub mod unsampled;
pub mod weigh;
