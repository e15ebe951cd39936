//! Functions that take time for exceptions: that record the stack (Java), also of one that is never
//! thrown, and that search it for a handler (C++, Rust).

use crate::model::facts::tables::{FrameKind, Location};

const JAVA: &str = "java.lang.Throwable.fillInStackTrace";

/// The C++ runtime's functions (Itanium C++ ABI); Rust's panics unwind by them, too.
const NATIVE: &[&str] =
    &["__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException", "_Unwind_Resume"];

pub(super) fn is_for_exception(location: &Location) -> bool {
    match location.kind {
        FrameKind::Java => *location.function == *JAVA,
        FrameKind::Native => NATIVE.contains(&&*location.function),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_known_by_their_functions() {
        let is = |name, kind| is_for_exception(&Location::named(name, kind));
        assert!(is("java.lang.Throwable.fillInStackTrace", FrameKind::Java));
        for name in ["__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException", "_Unwind_Resume"] {
            assert!(is(name, FrameKind::Native), "{name}");
            assert!(!is(name, FrameKind::Java) && !is(name, FrameKind::Kernel), "{name}");
        }
        // These only print one, and catch one.
        assert!(!is("java.lang.Throwable.printStackTrace", FrameKind::Java));
        assert!(!is("__cxa_begin_catch", FrameKind::Native));
    }
}
