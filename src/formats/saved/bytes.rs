//! Encodes and decodes the numbers and texts of a block. The input is untrusted: every number is
//! checked against the remaining bytes.

use std::sync::Arc;

use crate::model::facts::packed;
use crate::model::vocabulary::text::clean;

/// Maximum length of a text (command lines, notices), bytes; names have
/// [`crate::model::vocabulary::text::NAME_CAP`].
const TEXT_CAP: usize = 16 << 10;

#[derive(Default)]
pub struct Put {
    pub bytes: Vec<u8>,
}

impl Put {
    /// Appends a varint: seven bits per byte, the lowest first.
    pub fn number(&mut self, value: u64) {
        packed::put(&mut self.bytes, value);
    }

    pub fn count(&mut self, value: usize) {
        self.number(value as u64);
    }

    /// Appends a zigzag varint, which is short for values near zero.
    pub fn signed(&mut self, value: i64) {
        self.number(packed::zigzag(value));
    }

    pub fn flag(&mut self, value: bool) {
        self.number(value.into());
    }

    /// Appends all 64 bits.
    pub fn float(&mut self, value: f64) {
        self.bytes.extend(value.to_bits().to_le_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.piece(text.as_bytes());
    }

    pub fn piece(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a flag for whether there is a value, then what `put` writes of it.
    pub fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Put, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }
}

/// Reads from the front. Each method returns `None` if the bytes do not hold such a value.
pub struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub fn number(&mut self) -> Option<u64> {
        packed::take(&mut self.0)
    }

    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Reads the count of the following entries, each of at least `bytes` bytes.
    pub fn count(&mut self, bytes: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len() / bytes).then_some(count)
    }

    pub fn signed(&mut self) -> Option<i64> {
        self.number().map(packed::unzigzag)
    }

    pub fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn float(&mut self) -> Option<f64> {
        let (bits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_bits(u64::from_le_bytes(*bits)))
    }

    /// Reads a text and cleans it.
    pub fn text(&mut self) -> Option<Arc<str>> {
        let text = std::str::from_utf8(self.piece()?).ok()?;
        Some(clean(text, TEXT_CAP).into())
    }

    pub fn piece(&mut self) -> Option<&'a [u8]> {
        let length = self.count(1)?;
        let (piece, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(piece)
    }

    pub fn option<T>(&mut self, take: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.flag()? {
            true => take(self).map(Some),
            false => Some(None),
        }
    }

    /// Reads a time or duration of at most [`LONGEST`], so that sums of a few fit in 64 bits.
    pub fn ns(&mut self) -> Option<u64> {
        self.number().filter(|ns| *ns <= LONGEST)
    }
}

/// Maximum time or duration, ns: some 73 years.
pub const LONGEST: u64 = 1 << 61;
