//! Functions that allocate and free memory.

use crate::model::facts::tables::{FrameKind, Location};

/// Names in C libraries and allocators, without leading underscores and prefixes.
const FUNCTIONS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "int_malloc",
    "int_free",
    "operator new",
    "operator new[]",
    "operator delete",
    "operator delete[]",
];

/// Prefixes of glibc, jemalloc, tcmalloc and mimalloc.
const PREFIXES: &[&str] = &["libc_", "GI_", "je_", "tc_", "mi_"];

pub(super) fn is_allocation(location: &Location) -> bool {
    if location.kind != FrameKind::Native {
        return false;
    }
    let mut name = location.function.trim_start_matches('_');
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest.trim_start_matches('_');
    }
    let name = name.split('(').next().unwrap_or(name);
    FUNCTIONS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_by_their_functions() {
        let is = |name, kind| is_allocation(&Location::named(name, kind));
        for name in [
            "malloc",
            "__libc_malloc",
            "__GI___libc_malloc",
            "_int_free",
            "operator new(unsigned long)",
            "operator delete[](void*)",
            "je_malloc",
        ] {
            assert!(is(name, FrameKind::Native), "{name}");
            assert!(!is(name, FrameKind::Java), "{name}");
        }
        for name in ["mallocate", "freeze", "Pool::free", "operator+", "je_mallctl"] {
            assert!(!is(name, FrameKind::Native), "{name}");
        }
    }
}
