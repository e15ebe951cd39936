//! Parses the messages of a profile.proto and skips malformed ones.

use std::collections::HashMap;

use prost::Message;

use crate::formats::pprof::proto::{Function, Location, Mapping, ValueType};
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};

/// Maximum size of one message, bytes: a stack of 8,000 frames has some 40,000.
const MESSAGE_MAX: usize = 1 << 20;
/// Maximum messages of each kind; the rest are not read.
const SAMPLES_MAX: usize = 4_000_000;
const PLACES_MAX: usize = 1_000_000;
const STRINGS_MAX: usize = 4_000_000;

/// The messages of a file; samples are decoded one by one.
#[derive(Default)]
pub struct File<'a> {
    pub types: Vec<ValueType>,
    pub samples: Vec<&'a [u8]>,
    pub mappings: HashMap<u64, Mapping>,
    pub first_mapping: Option<Mapping>,
    pub locations: HashMap<u64, Location>,
    pub functions: HashMap<u64, Function>,
    strings: Vec<&'a [u8]>,
    pub time_nanos: i64,
    pub duration_nanos: i64,
    pub period_type: ValueType,
    pub period: i64,
    pub default_type: i64,
    /// Messages that are malformed, or beyond the maximum.
    pub unread: u64,
}

/// A field in wire format.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> File<'a> {
    /// Parses a file. `None` if it is no profile.proto.
    pub fn read(mut bytes: &'a [u8]) -> Option<File<'a>> {
        let mut file = File::default();
        while !bytes.is_empty() {
            let (number, field) = field(&mut bytes)?;
            file.take(number, field);
        }
        // The first string is always empty; without sample types there is nothing to show.
        let empty_first = file.strings.first().is_some_and(|first| first.is_empty());
        (empty_first && !file.types.is_empty()).then_some(file)
    }

    fn take(&mut self, number: u64, field: Field<'a>) {
        match (number, field) {
            (6, Field::Bytes(bytes)) if self.strings.len() < STRINGS_MAX => {
                self.strings.push(bytes)
            }
            (2, Field::Bytes(bytes))
                if self.samples.len() < SAMPLES_MAX && bytes.len() <= MESSAGE_MAX =>
            {
                self.samples.push(bytes);
            }
            (9, Field::Number(number)) => self.time_nanos = number as i64,
            (10, Field::Number(number)) => self.duration_nanos = number as i64,
            (12, Field::Number(number)) => self.period = number as i64,
            (14, Field::Number(number)) => self.default_type = number as i64,
            (1..=6 | 11, Field::Bytes(bytes)) => {
                self.unread += u64::from(self.message(number, bytes).is_none())
            }
            _ => {}
        }
    }

    fn message(&mut self, number: u64, bytes: &[u8]) -> Option<()> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MESSAGE_MAX)?;
        match number {
            1 if self.types.len() < 64 => self.types.push(ValueType::decode(bytes).ok()?),
            3 if self.mappings.len() < PLACES_MAX => {
                let mapping = Mapping::decode(bytes).ok()?;
                self.first_mapping.get_or_insert(mapping);
                self.mappings.insert(mapping.id, mapping);
            }
            4 if self.locations.len() < PLACES_MAX => {
                let mut location = Location::decode(bytes).ok()?;
                location.line.truncate(128);
                location.line.shrink_to_fit();
                self.locations.insert(location.id, location);
            }
            5 if self.functions.len() < PLACES_MAX => {
                let function = Function::decode(bytes).ok()?;
                self.functions.insert(function.id, function);
            }
            11 => self.period_type = ValueType::decode(bytes).ok()?,
            _ => return None,
        }
        Some(())
    }

    /// Returns a cleaned string; empty if there is none at this index.
    pub fn text(&self, index: i64) -> String {
        let bytes = usize::try_from(index).ok().and_then(|index| self.strings.get(index));
        bytes.map_or(String::new(), |bytes| clean_bytes(bytes, NAME_CAP))
    }
}

/// Parses a field at the front. `None` if this is no message.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = varint(bytes)?;
    let field = match key & 7 {
        0 => Field::Number(varint(bytes)?),
        1 => piece(bytes, 8).map(|_| Field::Other)?,
        2 => {
            let length = varint(bytes)?;
            Field::Bytes(piece(bytes, length)?)
        }
        5 => piece(bytes, 4).map(|_| Field::Other)?,
        _ => return None,
    };
    (key >> 3 != 0).then_some((key >> 3, field))
}

fn piece<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (piece, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(piece)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
