//! The model: facts below, projections above. Pure: no I/O, no clock, no threads, no terminal.
//!
//! ```text
//! frame      vocabulary that passes between capture and the rest (raw frames, looks, events)
//! tables     interned raw stacks, and what their frames are called (names arrive late)
//! weigh      looks -> booked time (wall, cpu, hits), exactly as ARCHITECTURE.md's "Weighing"
//! facts      (process, thread, name, stack, state) -> weights, per bucket; history; the cumulative table
//! snapshot   an immutable view of all of it, published to the user interface
//! text       what makes strings of a target safe to show
//! settings   everything the user can choose about what is shown
//! project    facts + settings -> groups, trees, tables
//! ```

pub mod facts;
pub mod frame;
pub mod project;
pub mod settings;
pub mod snapshot;
pub mod state;
pub mod tables;
pub mod text;
pub mod weigh;
