//! The model: facts below, projections above. Pure: no I/O, no clock, no threads, no terminal.
//!
//! ```text
//! vocabulary   words that pass between capture, the model and the view
//! facts        events in, time booked as facts, history, snapshots
//! projection   facts + settings -> groups, trees, tables
//! transform    profiles -> another profile: merged, compared, redacted
//! ```
//!
//! Each room uses the ones above it in this list only.

pub mod facts;
pub mod projection;
pub mod transform;
pub mod vocabulary;
