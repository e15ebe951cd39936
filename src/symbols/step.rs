//! What a place in a file is called.

use crate::model::vocabulary::role::Origin;

/// One function at an address, with its source position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Whose code it is, where more is known than where the file comes from.
    pub origin: Option<Origin>,
}
