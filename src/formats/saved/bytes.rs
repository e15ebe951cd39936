//! Numbers and text in a block, and back. The input is untrusted: every number is checked
//! against what is left.

use std::sync::Arc;

use crate::model::facts::packed;
use crate::model::vocabulary::text::clean;

/// The longest text that is kept, bytes: command lines, notices; names have
/// [`crate::model::vocabulary::text::NAME_CAP`].
const TEXT_CAP: usize = 16 << 10;

#[derive(Default)]
pub struct Put {
    pub bytes: Vec<u8>,
}

impl Put {
    /// Seven bits a byte, the lowest first.
    pub fn number(&mut self, value: u64) {
        packed::put(&mut self.bytes, value);
    }

    pub fn count(&mut self, value: usize) {
        self.number(value as u64);
    }

    /// Small where it is near zero.
    pub fn signed(&mut self, value: i64) {
        self.number(packed::zigzag(value));
    }

    pub fn flag(&mut self, value: bool) {
        self.number(value.into());
    }

    /// All of its bits.
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

    /// Whether there is one, then what `put` writes of it.
    pub fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Put, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }
}

/// Reads from the front; `None` wherever the bytes do not say what is asked for.
pub struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub fn number(&mut self) -> Option<u64> {
        packed::take(&mut self.0)
    }

    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// How many follow, of which each takes at least `bytes`.
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

    /// Cleaned.
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

    /// A moment or a span that sums of such cannot carry beyond 64 bits: at most [`LONGEST`].
    pub fn ns(&mut self) -> Option<u64> {
        self.number().filter(|ns| *ns <= LONGEST)
    }
}

/// ns, some 73 years.
pub const LONGEST: u64 = 1 << 61;
