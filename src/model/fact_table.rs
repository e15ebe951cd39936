//! Facts that are still being added to: found by key, published by sharing chunks.

use rustc_hash::FxHashMap;

use super::chunks::Chunks;
use super::fact::{Fact, FactKey, Weights};

/// 20 KB per chunk: what a change after a snapshot copies.
pub type FactChunks = Chunks<Fact, 256>;

#[derive(Default)]
pub struct FactTable {
    facts: FactChunks,
    index: FxHashMap<FactKey, u32>,
}

impl FactTable {
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    pub fn facts(&self) -> &FactChunks {
        &self.facts
    }

    pub fn contains(&self, key: &FactKey) -> bool {
        self.index.contains_key(key)
    }

    /// The weights of `key`, zero at first.
    pub fn entry(&mut self, key: &FactKey) -> &mut Weights {
        let slot = match self.index.get(key) {
            Some(slot) => *slot as usize,
            None => {
                let slot = self.facts.len();
                self.facts.push((*key, Weights::default()));
                self.index.insert(*key, slot as u32);
                slot
            }
        };
        let (_, weights) = self.facts.get_mut(slot).expect("the index names existing slots");
        weights
    }

    /// Bytes held, index included.
    pub fn bytes(&self) -> usize {
        self.facts.bytes() + self.index.capacity() * (size_of::<FactKey>() + 4 + 1)
    }
}
