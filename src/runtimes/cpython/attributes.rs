//! Dictionaries and attributes of Python objects in the target's memory, in the layouts of CPython
//! 3.8 to 3.15 (Objects/dictobject.c, Include/internal/pycore_dict.h).

use crate::elf::{u32_at, u64_at};
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::layout::{Layout, Object};

/// Maximum entries of a dictionary that are read.
const ENTRIES_MAX: u64 = 1 << 16;
/// Maximum keys whose text is read in one call.
const BATCH_MAX: usize = 500;
/// Maximum bytes of a key that is compared.
const KEY_MAX: usize = 64;

/// In objects of builds with a GIL; without one the head of each object is 16 bytes longer.
const HEAD: u64 = 16;
const DICT_KEYS: u64 = 32;
const DICT_VALUES: u64 = 40;
const TYPE_SIZE: u64 = 32;
const TYPE_FLAGS: u64 = 168;
const TYPE_DICT: u64 = 288;
/// Attributes lie in the object itself (Py_TPFLAGS_INLINE_VALUES); 3.13 on.
const INLINE: u64 = 1 << 2;

/// The entries of a table of keys: where they are, and how long each is.
struct Keys {
    entries: u64,
    count: u64,
    size: u64,
    /// In an entry: the key, the value.
    key: u64,
    value: u64,
}

/// Reads objects of one process.
pub struct Reader<'a, M> {
    pub memory: &'a M,
    pub layout: &'a Layout,
}

impl<M: ReadMemory> Reader<'_, M> {
    fn object(&self) -> &Object {
        &self.layout.object
    }

    /// Bytes by which the head of an object is longer than in builds with a GIL.
    fn longer(&self) -> u64 {
        self.object().kind.saturating_sub(8)
    }

    fn word(&self, at: u64, offset: u64) -> Option<u64> {
        self.memory.read_u64(at.checked_add(offset)?)
    }

    fn keys(&self, at: u64) -> Option<Keys> {
        let mut head = [0; 40];
        self.memory.read_exact(at, &mut head)?;
        let keys = if self.layout.minor <= 10 {
            let size = u64_at(&head, 8)?;
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                0x1_0000..=0xffff_ffff => 4,
                _ => return None,
            };
            let entries = at.checked_add(40 + size * width)?;
            Keys { entries, count: u64_at(&head, 32)?, size: 24, key: 8, value: 16 }
        } else {
            let indices = 1u64.checked_shl(head[9].into()).filter(|size| *size < 1 << 32)?;
            let entries = at.checked_add(32 + indices)?;
            let count = u64_at(&head, 24)?;
            match head[10] {
                0 => Keys { entries, count, size: 24, key: 8, value: 16 },
                // All keys are strings.
                1 | 2 => Keys { entries, count, size: 16, key: 0, value: 8 },
                _ => return None,
            }
        };
        (keys.count <= ENTRIES_MAX).then_some(keys)
    }

    /// Returns the entries of a table: the keys, and where each value is.
    fn entries(&self, keys: &Keys) -> Option<Vec<(u64, u64)>> {
        let mut bytes = vec![0; (keys.count * keys.size) as usize];
        self.memory.read_exact(keys.entries, &mut bytes)?;
        let entry = |(nth, entry): (usize, &[u8])| {
            let key = u64_at(entry, keys.key as usize)?;
            Some((key, keys.entries + nth as u64 * keys.size + keys.value))
        };
        bytes.chunks_exact(keys.size as usize).enumerate().map(entry).collect()
    }

    /// Returns the entries of a dictionary: the keys, and where each value is. Keys are 0 where
    /// there is none.
    pub fn dictionary(&self, at: u64) -> Option<Vec<(u64, u64)>> {
        let at = Some(at).filter(|at| *at != 0)?;
        let longer = self.longer();
        let keys = self.keys(self.word(at, DICT_KEYS + longer)?)?;
        let entries = self.entries(&keys)?;
        match self.word(at, DICT_VALUES + longer)? {
            0 => Some(entries),
            values => {
                let values = values.checked_add(self.values_head())?;
                let slot = |(nth, (key, _)): (usize, (u64, u64))| {
                    Some((key, values.checked_add(8 * nth as u64)?))
                };
                entries.into_iter().enumerate().map(slot).collect()
            }
        }
    }

    /// Bytes before the values of attributes.
    fn values_head(&self) -> u64 {
        if self.layout.minor >= 13 { 8 } else { 0 }
    }

    /// Returns where the value of this key is.
    pub fn entry(&self, dictionary: u64, key: &str) -> Option<u64> {
        let entries = self.dictionary(dictionary)?;
        let at = self.find(entries.iter().map(|(key, _)| *key), key)?;
        Some(entries[at].1)
    }

    /// Returns the value of this key.
    pub fn item(&self, dictionary: u64, key: &str) -> Option<u64> {
        self.memory.read_u64(self.entry(dictionary, key)?).filter(|value| *value != 0)
    }

    /// Returns which of these strings has this text, of ASCII characters.
    fn find(&self, keys: impl Iterator<Item = u64>, text: &str) -> Option<usize> {
        let object = self.object();
        let start = object.ascii as usize;
        let (length, wanted) = (start + text.len().min(KEY_MAX), text.as_bytes());
        let keys: Vec<(usize, u64)> = keys.enumerate().filter(|(_, key)| *key != 0).collect();
        for keys in keys.chunks(BATCH_MAX) {
            let pieces: Vec<_> = keys.iter().map(|(_, key)| (*key, length)).collect();
            let mut bytes = vec![0; length * keys.len()];
            self.memory.read_pieces(&pieces, &mut bytes)?;
            let is = |string: &[u8]| {
                u64_at(string, object.text_length as usize) == Some(text.len() as u64)
                    && &string[start..] == wanted
            };
            let mut strings = keys.iter().zip(bytes.chunks_exact(length));
            if let Some(((at, _), _)) = strings.find(|(_, string)| is(string)) {
                return Some(*at);
            }
        }
        None
    }

    /// Returns the dictionary of a module.
    pub fn of_module(&self, module: u64) -> Option<u64> {
        self.word(module, HEAD + self.longer())
    }

    /// Returns where the value of an attribute of an object is; `object` is of a class that the
    /// program wrote.
    pub fn attribute(&self, object: u64, name: &str) -> Option<u64> {
        let (minor, longer) = (self.layout.minor, self.longer());
        let kind = self.object().type_of(self.memory, object)?;
        let before = |words: u64| self.memory.read_u64(object.checked_sub(8 * words)?);
        match minor {
            0..=10 => {
                let distance = self.word(kind, TYPE_DICT)?.cast_signed();
                let place = u64::try_from(distance).ok().filter(|distance| *distance > 0)?;
                self.entry(self.word(object, place)?, name)
            }
            11 => match before(4)? {
                0 => self.entry(before(3)?, name),
                values => self.shared(kind, values, name),
            },
            12 => match before(3)? {
                values if values & 1 == 1 => self.shared(kind, values + 1, name),
                dictionary => self.entry(dictionary, name),
            },
            _ => {
                if self.word(kind, TYPE_FLAGS + longer)? & INLINE != 0 {
                    let size = self.word(kind, TYPE_SIZE + longer)?.min(1 << 16);
                    let values = object.checked_add(size)?;
                    // Capacity, size, whether they lie in the object, whether they are valid.
                    let mut head = [0; 4];
                    self.memory.read_exact(values, &mut head)?;
                    if head[3] != 0 {
                        return self.shared(kind, values.checked_add(self.values_head())?, name);
                    }
                }
                self.entry(before(if longer == 0 { 3 } else { 1 })?, name)
            }
        }
    }

    /// Returns where an attribute is whose name is in the keys that all objects of a class share.
    fn shared(&self, kind: u64, values: u64, name: &str) -> Option<u64> {
        // In a class: `ht_cached_keys`.
        let shared_keys = match self.layout.minor {
            ..=11 => 872,
            12..=14 => 880,
            _ => 888,
        };
        let keys = self.keys(self.word(kind, shared_keys + self.longer())?)?;
        let names = self.entries(&keys)?;
        let at = self.find(names.iter().map(|(key, _)| *key), name)?;
        values.checked_add(8 * at as u64)
    }

    /// Reads an int that is not negative.
    pub fn integer(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 24];
        self.memory.read_exact(at.checked_add(HEAD + self.longer())?, &mut bytes)?;
        let tag = u64_at(&bytes, 0)?;
        // Up to 3.11 the number of digits; since then their number behind 3 bits, of which the
        // lowest two are not 0 for zero and below.
        let digits = match self.layout.minor {
            0..=11 => tag,
            _ if tag & 3 != 0 => return (tag & 3 == 1).then_some(0),
            _ => tag >> 3,
        };
        if digits > 3 {
            return None;
        }
        (0..digits as usize).rev().try_fold(0u64, |value, nth| {
            let digit = u32_at(&bytes, 8 + 4 * nth)?;
            (value.leading_zeros() >= 30).then_some(value << 30 | u64::from(digit))
        })
    }
}
