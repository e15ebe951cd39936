//! Which library a function belongs to.

use super::python;
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
        FrameKind::Python => python::is_standard(location),
        _ => {
            is_system_module(&location.module)
                || segments(&location.function).first().is_some_and(|s| STANDARD.contains(s))
        }
    }
}

/// Returns what is equal for functions of one library: `com.zaxxer.hikari`, `django`, or the shared
/// object and the outermost namespace.
pub(super) fn library(location: &Location) -> (&str, &str) {
    let name = &*location.function;
    if location.kind == FrameKind::Java {
        let parts =
            if name.split('.').next().is_some_and(|p| DOMAINS.contains(&p)) { 3 } else { 2 };
        let end = name.match_indices('.').nth(parts - 1).map_or(name.len(), |(at, _)| at);
        return ("", &name[..end]);
    }
    if location.kind == FrameKind::Python {
        let module = if location.module.is_empty() { name } else { &location.module };
        return ("", module.split('.').next().unwrap_or(module));
    }
    let parts = segments(name);
    (&location.module, if parts.len() > 1 { parts[0] } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_library_is_its_outermost_package() {
        let of = |module: &str, file: &str| Location {
            module: module.into(),
            file: Some(file.into()),
            ..Location::named(&format!("{module}.run"), FrameKind::Python)
        };
        let django = of("django.db.models.query", "/v/lib/python3.12/site-packages/django/x.py");
        assert_eq!((library(&django), is_standard(&django)), (("", "django"), false));
        let json = of("json.decoder", "/usr/lib/python3.12/json/decoder.py");
        assert_eq!((library(&json), is_standard(&json)), (("", "json"), true));
        let unknown = Location { module: "".into(), ..of("flask.app", "/v/site-packages/x.py") };
        assert_eq!(library(&unknown), ("", "flask"));
    }
}
