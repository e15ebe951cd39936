//! Transforms profiles into other profiles.
//!
//! Independent of files and of the origin of profiles.
//!
//! ```text
//! merge    several profiles -> one
//! diff     two projections -> their differences, and which of them exceed sampling error
//! redact   a snapshot without names
//! ```

pub mod diff;
pub mod merge;
pub mod redact;
