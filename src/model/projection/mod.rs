//! Facts and settings -> groups, trees, tables.
//!
//! Changes no fact, and knows nothing of screens or files.
//!
//! ```text
//! settings   everything the user can choose about what is shown
//! project    the projection: idle rules, grouping, folding, confidence, rows
//! waits      what a blocked thread waits for, in words
//! ```

pub mod project;
pub mod settings;
pub mod waits;
