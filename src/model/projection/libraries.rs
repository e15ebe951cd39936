//! Which library a function belongs to.

use super::roles::is_system_module;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::java_packages::is_platform;
use crate::model::vocabulary::qualified::segments;

/// Of functions that name no library: the user's, a runtime's and those of standard libraries.
pub(super) const NO_LIBRARY: u32 = 0;

/// Namespaces of standard libraries: they say nothing of whose work it is.
const STANDARD: &[&str] = &["std", "core", "alloc", "__gnu_cxx", "boost"];
/// Outermost parts of Java packages that are followed by the name of an organisation.
const DOMAINS: &[&str] = &["com", "org", "net", "io", "de", "fr", "uk", "cn"];

/// Whether the function belongs to a platform that everything uses.
pub(super) fn is_standard(location: &Location) -> bool {
    match location.kind {
        FrameKind::Java => is_platform(&location.function),
        _ => {
            is_system_module(&location.module)
                || segments(&location.function).first().is_some_and(|s| STANDARD.contains(s))
        }
    }
}

/// Returns what is equal for functions of one library: `com.zaxxer.hikari`, or the shared object
/// and the outermost namespace.
pub(super) fn library(location: &Location) -> (&str, &str) {
    let name = &*location.function;
    if location.kind == FrameKind::Java {
        let parts =
            if name.split('.').next().is_some_and(|p| DOMAINS.contains(&p)) { 3 } else { 2 };
        let end = name.match_indices('.').nth(parts - 1).map_or(name.len(), |(at, _)| at);
        return ("", &name[..end]);
    }
    let parts = segments(name);
    (&location.module, if parts.len() > 1 { parts[0] } else { "" })
}
