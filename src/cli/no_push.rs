//! Stands in for `push` in a build without that feature: there are no such options.

use super::Surroundings;
use super::options::PushOptions;
use super::typed::Typed;
use crate::config::Push;

impl PushOptions {
    pub fn is_given(&self) -> bool {
        false
    }

    pub fn without_server(&self) -> Option<&'static str> {
        None
    }
}

pub fn push(_: &Typed, surroundings: &Surroundings) -> Result<Option<Push>, String> {
    // The variable is set for another build.
    let _ = &surroundings.push_token;
    Ok(None)
}
