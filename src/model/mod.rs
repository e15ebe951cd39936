//! The model: facts below, projections above. Pure: no I/O, no clock, no threads, no terminal.
//!
//! ```text
//! frame       vocabulary that passes between capture and the rest (raw frames, looks, events)
//! state       what a thread is doing, by system call; a futex wait by the names above it (futex)
//! tables      interned raw stacks, and what their frames are called (names arrive late); interner writes them
//! qualified   the parts of a demangled name
//! weigh       looks -> booked time (wall, cpu, hits), exactly as docs/design/weighing.md says; thread by thread
//! unsampled   time that no sample hit, and the stacks it is shared among
//! fact        (process, thread, name, stack, state) -> weights; fact_table adds them up
//! facts       history as a snapshot reads it: buckets of time (packed) and the cumulative table; buckets writes it
//! recorder    all of the above tied together: events in, views out
//! snapshot    an immutable view of all of it, published to the user interface
//! waits       what a blocked thread waits for, in words
//! text        what makes strings of a target safe to show
//! settings    everything the user can choose about what is shown
//! merge       several profiles -> one
//! redact      a snapshot without anybody's names; role: what such names still say of waits
//! project     facts + settings -> groups, trees, tables
//! diff        two projections -> what changed, and what of it is more than sampling makes
//! ```

pub mod buckets;
pub mod chunks;
pub mod diff;
pub mod fact;
pub mod fact_table;
pub mod facts;
pub mod frame;
pub mod futex;
pub mod interner;
pub mod merge;
pub mod packed;
pub mod project;
pub mod qualified;
pub mod recorder;
pub mod redact;
pub mod role;
pub mod settings;
pub mod snapshot;
pub mod state;
pub mod tables;
pub mod text;
pub mod thread;
pub mod unsampled;
pub mod waits;
pub mod weigh;
