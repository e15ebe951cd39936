//! What functions of JavaScript are called that have no name: `(anonymous app.js:9:12)`.

use std::sync::Arc;

/// The name where it is not known where the function begins.
pub const ANONYMOUS: &str = "(anonymous)";

/// Returns the name of a function that begins in this file, at this line and column, from 1 on.
pub fn name(file: &str, line: u32, column: u32) -> Arc<str> {
    let base = file.rsplit('/').next().unwrap_or(file);
    format!("(anonymous {base}:{line}:{column})").into()
}

/// Returns the file in such a name, without its directory. `None`: it is no such name.
pub fn file(name: &str) -> Option<&str> {
    let place = name.strip_prefix("(anonymous ")?.strip_suffix(')')?;
    place.rsplitn(3, ':').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_file_without_its_directory() {
        for (path, base) in [("/srv/a b.js", "a b.js"), ("node:fs", "node:fs"), ("", "")] {
            let name = name(path, 9, 12);
            assert_eq!(*name, *format!("(anonymous {base}:9:12)"));
            assert_eq!(file(&name), Some(base));
        }
        for other in [ANONYMOUS, "(anonymous namespace)::run", "(anonymous a.js)", "run"] {
            assert_eq!(file(other), None, "{other}");
        }
    }
}
