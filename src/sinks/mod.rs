//! Where bytes go: files and directories of reports.
//!
//! ```text
//! file       one file: whole or not at all, for its owner only
//! rotation   reports that come one after the other: a log, or a directory with a limit
//! ```

pub mod file;
pub mod rotation;
