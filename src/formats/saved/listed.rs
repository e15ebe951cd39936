//! Records of consecutive ids in blocks. Each block contains the strings that its records need.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::Budget;
use super::bytes::{Put, Take};
use crate::model::vocabulary::text::{NAME_CAP, clean};

/// Target size of an unpacked block, bytes: a damaged block loses this much.
pub const BLOCK: usize = 64 << 10;

/// Records of consecutive ids, written as blocks: `first, strings, records`.
pub struct Listed {
    kind: u32,
    first: usize,
    pub count: usize,
    strings: HashMap<Arc<str>, usize>,
    texts: Put,
    pub list: Put,
}

impl Listed {
    pub fn new(kind: u32) -> Listed {
        Listed {
            kind,
            first: 0,
            count: 0,
            strings: HashMap::new(),
            texts: Put::default(),
            list: Put::default(),
        }
    }

    /// Appends a reference to a string of this block.
    pub fn text(&mut self, text: &Arc<str>) {
        let next = self.strings.len();
        let nth = *self.strings.entry(Arc::clone(text)).or_insert(next);
        if nth == next {
            self.texts.text(text);
        }
        self.list.count(nth);
    }

    /// Ends a record, and the block if it is full.
    pub fn next(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.count += 1;
        if self.texts.bytes.len() + self.list.bytes.len() >= BLOCK { self.end(out) } else { Ok(()) }
    }

    pub fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let mut block = Put::default();
        block.count(self.first);
        block.count(self.strings.len());
        block.bytes.append(&mut self.texts.bytes);
        block.count(self.count);
        block.bytes.append(&mut self.list.bytes);
        self.first += self.count;
        self.count = 0;
        self.strings.clear();
        super::block::write(out, self.kind, &[&block.bytes])
    }
}

/// Reads a block's strings, and cleans them. `intern` allocates one.
pub fn strings(
    take: &mut Take<'_>,
    budget: &mut Budget,
    intern: &mut dyn FnMut(&str) -> Arc<str>,
) -> Option<Vec<Arc<str>>> {
    let mut strings = Vec::new();
    for _ in 0..take.count(1)? {
        let text = std::str::from_utf8(take.piece()?).ok()?;
        budget.take(text.len() + 64)?;
        strings.push(intern(&clean(text, NAME_CAP)));
    }
    Some(strings)
}

/// Reads a reference to a string of the block.
pub fn string(take: &mut Take<'_>, strings: &[Arc<str>]) -> Option<Arc<str>> {
    strings.get(usize::try_from(take.number()?).ok()?).cloned()
}
