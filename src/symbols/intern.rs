//! String interning: 100,000 frames have only a few thousand different files and modules.

use std::sync::Arc;

use rustc_hash::FxHashSet;

#[derive(Default)]
pub struct Interner {
    known: FxHashSet<Arc<str>>,
}

impl Interner {
    pub fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.known.insert(text.clone());
        text
    }
}
