//! Functions that throw exceptions: that record the stack, and that search it for a handler.

use crate::model::facts::tables::{FrameKind, Location};

const JAVA: &str = "java.lang.Throwable.fillInStackTrace";

/// The C++ runtime's functions (Itanium C++ ABI); Rust's panics unwind by them, too.
const NATIVE: &[&str] =
    &["__cxa_throw", "__cxa_rethrow", "_Unwind_RaiseException", "_Unwind_Resume"];

pub(super) fn throws(location: &Location) -> bool {
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
    fn exceptions_are_known_by_what_throws_them() {
        let is = |name, kind| throws(&Location::named(name, kind));
        assert!(is("java.lang.Throwable.fillInStackTrace", FrameKind::Java));
        assert!(is("__cxa_throw", FrameKind::Native) && is("_Unwind_Resume", FrameKind::Native));
        // Which only prints one; which only catches one; a function of the user's.
        assert!(!is("java.lang.Throwable.printStackTrace", FrameKind::Java));
        assert!(!is("__cxa_begin_catch", FrameKind::Native));
        assert!(!is("__cxa_throw", FrameKind::Java));
    }
}
