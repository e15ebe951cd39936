//! Profiles -> another profile.
//!
//! Knows nothing of files and of where profiles come from.
//!
//! ```text
//! merge    several profiles -> one
//! diff     two projections -> what changed, and what of it is more than sampling makes
//! redact   a snapshot without names
//! ```

pub mod diff;
pub mod merge;
pub mod redact;
