//! What profiles say of themselves: hosts, kernels, versions.

use crate::model::vocabulary::text::clean;

/// Maximum length of a list in one sentence, bytes.
pub const TEXT_MAX: usize = 300;

/// The distinct values of one property in all profiles, in order of first occurrence.
#[derive(Default)]
pub struct Words(pub Vec<String>);

impl Words {
    /// Adds a value if it is new. Returns its index.
    pub fn add(&mut self, word: &str) -> usize {
        self.0.iter().position(|known| known == word).unwrap_or_else(|| {
            self.0.push(word.to_owned());
            self.0.len() - 1
        })
    }

    /// Returns the values that are not empty: profiles of other tools lack some properties.
    pub fn known(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).filter(|word| !word.is_empty()).collect()
    }

    pub fn text(&self) -> String {
        clean(&self.known().join(", "), TEXT_MAX).into_owned()
    }
}
