//! The configuration file: TOML, one key per option.
//!
//! ```text
//! place    where the file is, whether it may be trusted, and its text
//! entries  its text -> keys, values and lines
//! choices  what the live view saves -> keys and values, put into the text
//! ```
//!
//! What a key means is the command line's matter: `cli::file` passes values on to its options.

pub mod choices;
pub mod entries;
pub mod place;

use std::path::Path;

use crate::config::Choices;
use crate::sinks::file;
use choices::Before;

/// Saves what the user chose in the live view since `before`. Other keys and comments stay. Fails
/// with one sentence.
pub fn save(path: &Path, choices: &Choices, before: Option<&Before>) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        file::make_directory(folder)?;
    }
    let old = place::read(path, place::Named::ByDefault)?.unwrap_or_default();
    let new = choices::put_into(&old, choices, before)
        .map_err(|fault| format!("`{}`:{}: {}", file::shown(path), fault.line, fault.sentence))?;
    file::save(path, new.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_file_is_made_for_its_owner_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/sampletop/config.toml");
        let choices = Choices { mouse: true, ..Choices::default() };
        save(&path, &choices, None).expect("saved");
        let text = || std::fs::read_to_string(&path).expect("there");
        let mode =
            |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o7777;
        assert_eq!((text().as_str(), mode(&path)), ("mouse = true\n", 0o600));
        assert_eq!(mode(&dir.path().join("a")), 0o700);
        std::fs::write(&path, "# mine\nmouse = true # here\n").expect("written");
        save(&path, &Choices::default(), None).expect("saved");
        assert_eq!(text(), "# mine\nmouse = false # here\n");
        // It was broken meanwhile.
        std::fs::write(&path, "x = 1\nmouse = \n").expect("written");
        let sentence = save(&path, &choices, None).expect_err("no TOML");
        assert!(sentence.contains("config.toml`:2: this is no TOML"), "{sentence}");
        assert_eq!(text(), "x = 1\nmouse = \n");
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let (target, link) = (dir.path().join("dotfiles"), dir.path().join("config.toml"));
        std::fs::write(&target, "idle = true\n").expect("written");
        symlink(&target, &link).expect("linked");
        let choices = Choices { mouse: true, ..Choices::default() };
        assert!(save(&link, &choices, None).expect_err("a link").contains("symbolic link"));
        assert_eq!(std::fs::read_to_string(&target).expect("there"), "idle = true\n");
        assert!(save(Path::new("/dev/null"), &choices, None).is_err());
    }
}
