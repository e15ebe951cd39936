//! Files that hold what a test expects.
#![allow(dead_code)] // each test binary uses a part of it

use std::path::Path;

/// Returns whether expected files are written instead of compared: the switch of insta.
pub fn is_update() -> bool {
    std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always")
}

/// Compares a text with a file of this repository, or writes the file.
pub fn same_as_file(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if is_update() {
        std::fs::write(&path, found).expect("written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == found,
        "{} is not what is made now (INSTA_UPDATE=always writes it):\n--- expected\n{expected}\n--- \
         made now\n{found}",
        path.display()
    );
}
