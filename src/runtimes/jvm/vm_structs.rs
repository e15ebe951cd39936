//! The tables that describe HotSpot's layout to debuggers (`vmStructs`,
//! src/hotspot/share/runtime/vmStructs.hpp), read from the target's memory.

use rustc_hash::FxHashMap;

use crate::process::memory::ReadMemory;
use crate::runtimes::dynsym::Exports;

/// Maximum entries of one table; JDK 26 has 840 fields.
const ENTRIES_MAX: u64 = 20_000;
/// Maximum bytes of one entry.
const STRIDE_MAX: u64 = 256;
/// Maximum size of an object that a table describes, bytes. A larger one shows that the table is
/// garbage.
const OBJECT_MAX: u64 = 1 << 20;
/// Maximum bytes of a name.
const NAME_MAX: usize = 256;

/// A table's description of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The C++ type, as written in the source.
    pub kind: String,
    /// The offset in its object, or the address of a static field.
    pub place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Offset(u64),
    Static(u64),
}

/// The contents of all tables.
#[derive(Clone, Debug, Default)]
pub struct Structs {
    fields: FxHashMap<(String, String), Field>,
    sizes: FxHashMap<String, u64>,
    constants: FxHashMap<String, i64>,
}

/// The name of an entry that a virtual machine's tables lack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

impl Missing {
    /// Returns a sentence for the user about what is missing because of it.
    pub fn without(&self, what: &str) -> String {
        format!("{what} cannot be read: libjvm.so lacks {}", self.0)
    }
}

/// Why a virtual machine cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// This is not there yet: the virtual machine is starting.
    Starting(&'static str),
    /// The tables of this virtual machine lack an entry.
    Lacks(Missing),
}

impl From<Missing> for Unreadable {
    fn from(missing: Missing) -> Unreadable {
        Unreadable::Lacks(missing)
    }
}

impl Structs {
    /// Reads all tables of the `libjvm.so` whose first byte is mapped at `image`. Fails where it is
    /// no virtual machine with such tables, or not yet.
    pub fn read<M: ReadMemory>(memory: &M, image: u64) -> Result<Structs, Unreadable> {
        let exports = Exports::of(memory, image).ok_or(Unreadable::Starting("exported symbols"))?;
        let number = |name: &str| {
            let at = exports.find(name).ok_or_else(|| Missing(name.into()))?;
            // A null pointer: the loader has not relocated it yet.
            let value = memory.read_u64(at).filter(|value| *value != 0 || name.ends_with("Offset"));
            value.ok_or(Unreadable::Starting("tables"))
        };
        let table = |prefix: &str, array: &str| {
            let stride = number(&format!("{prefix}EntryArrayStride"))?;
            if stride > STRIDE_MAX {
                return Err(Missing(array.into()).into());
            }
            Ok::<_, Unreadable>(Table { memory, start: number(array)?, stride })
        };
        let mut pages = Strings { memory, pages: FxHashMap::default() };
        let mut structs = Structs::default();

        let prefix = "gHotSpotVMStruct";
        let at = |name: &str| number(&format!("{prefix}Entry{name}Offset"));
        let [owner, name, kind, is_static, offset, address] = [
            at("TypeName")?,
            at("FieldName")?,
            at("TypeString")?,
            at("IsStatic")?,
            at("Offset")?,
            at("Address")?,
        ];
        for entry in table(prefix, "gHotSpotVMStructs")?.entries(owner) {
            let (Some(owner), Some(name)) =
                (pages.at(entry.word(owner)), pages.at(entry.word(name)))
            else {
                continue;
            };
            let kind = pages.at(entry.word(kind)).unwrap_or_default();
            let place = match entry.word(is_static) as u32 {
                0 => Place::Offset(entry.word(offset)),
                _ => Place::Static(entry.word(address)),
            };
            structs.fields.insert((owner, name), Field { kind, place });
        }

        let prefix = "gHotSpotVMType";
        let [name, size] =
            ["TypeName", "Size"].map(|name| number(&format!("{prefix}Entry{name}Offset")));
        let (name, size) = (name?, size?);
        for entry in table(prefix, "gHotSpotVMTypes")?.entries(name) {
            if let Some(name) = pages.at(entry.word(name)) {
                structs.sizes.insert(name, entry.word(size));
            }
        }

        for (prefix, array, wide) in [
            ("gHotSpotVMIntConstant", "gHotSpotVMIntConstants", false),
            ("gHotSpotVMLongConstant", "gHotSpotVMLongConstants", true),
        ] {
            let [name, value] =
                ["Name", "Value"].map(|name| number(&format!("{prefix}Entry{name}Offset")));
            let (name, value) = (name?, value?);
            for entry in table(prefix, array)?.entries(name) {
                let word = entry.word(value);
                let value = if wide { word as i64 } else { i64::from(word as u32 as i32) };
                if let Some(name) = pages.at(entry.word(name)) {
                    structs.constants.insert(name, value);
                }
            }
        }
        Ok(structs)
    }

    /// Parses tables from a recorded text: statics are numbered from 0x1000 on.
    #[cfg(test)]
    pub fn of_text(text: &str) -> Structs {
        let (mut structs, mut next) = (Structs::default(), 0x1000);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| word.parse().expect("a number");
            match words[..] {
                ["sizeof", name, size] => drop(structs.sizes.insert(name.into(), number(size))),
                [owner, name, place, kind] => {
                    let place = if place == "static" {
                        Place::Static(next)
                    } else {
                        Place::Offset(number(place))
                    };
                    next += 8;
                    structs
                        .fields
                        .insert((owner.into(), name.into()), Field { kind: kind.into(), place });
                }
                _ => panic!("{line}"),
            }
        }
        structs
    }

    /// Adds a constant, which recorded texts do not have.
    #[cfg(test)]
    pub fn with_constant(mut self, name: &str, value: i64) -> Structs {
        self.constants.insert(name.into(), value);
        self
    }

    pub fn field(&self, owner: &str, name: &str) -> Option<&Field> {
        // A look-up by borrowed words would need a key type of its own. There are a hundred
        // look-ups, once per process.
        self.fields.get(&(owner.to_owned(), name.to_owned()))
    }

    /// Returns the offset of a field in its object.
    pub fn offset(&self, owner: &str, name: &str) -> Result<u64, Missing> {
        match self.field(owner, name).map(|field| field.place) {
            Some(Place::Offset(offset)) if offset <= OBJECT_MAX => Ok(offset),
            _ => Err(Missing(format!("{owner}::{name}"))),
        }
    }

    /// Returns the address of a static field.
    pub fn address(&self, owner: &str, name: &str) -> Result<u64, Missing> {
        match self.field(owner, name).map(|field| field.place) {
            Some(Place::Static(address)) => Ok(address),
            _ => Err(Missing(format!("{owner}::{name}"))),
        }
    }

    /// Returns the offset of the first of these fields that exists.
    pub fn offset_of_any(&self, names: &[(&str, &str)]) -> Result<u64, Missing> {
        let found = names.iter().find_map(|(owner, name)| self.offset(owner, name).ok());
        found.ok_or_else(|| {
            Missing(
                names
                    .iter()
                    .map(|(owner, name)| format!("{owner}::{name}"))
                    .collect::<Vec<_>>()
                    .join(" or "),
            )
        })
    }

    pub fn size(&self, name: &str) -> Result<u64, Missing> {
        self.sizes
            .get(name)
            .copied()
            .filter(|size| *size <= OBJECT_MAX)
            .ok_or_else(|| Missing(format!("sizeof({name})")))
    }

    pub fn constant(&self, name: &str) -> Option<i64> {
        self.constants.get(name).copied()
    }
}

struct Table<'m, M> {
    memory: &'m M,
    start: u64,
    stride: u64,
}

struct Entry(Vec<u8>);

impl Entry {
    /// Returns the 8 bytes at `at`, with zeros behind the end of this entry.
    fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        let bytes = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let n = bytes.len().min(8);
        word[..n].copy_from_slice(&bytes[..n]);
        u64::from_le_bytes(word)
    }
}

impl<M: ReadMemory> Table<'_, M> {
    /// Iterates over the entries up to the one whose name is null.
    fn entries(&self, name: u64) -> impl Iterator<Item = Entry> {
        const AT_ONCE: u64 = 128;
        let (memory, start, stride) = (self.memory, self.start, self.stride);
        let blocks = (0..ENTRIES_MAX / AT_ONCE).map(move |block| {
            let mut bytes = vec![0; (AT_ONCE * stride) as usize];
            let read = memory.read(start.wrapping_add(block * AT_ONCE * stride), &mut bytes);
            bytes.truncate(read - read % stride as usize);
            bytes
        });
        blocks
            .flat_map(move |bytes| {
                let mut entries: Vec<Option<Entry>> = bytes
                    .chunks_exact(stride as usize)
                    .map(|entry| Some(Entry(entry.to_vec())))
                    .collect();
                // An unreadable entry ends the table too.
                entries.resize_with(AT_ONCE as usize, || None);
                entries
            })
            .map_while(|entry| entry)
            .take_while(move |entry| entry.word(name) != 0)
    }
}

/// A reader of strings by pages: names lie close together, so this takes few reads.
struct Strings<'m, M> {
    memory: &'m M,
    pages: FxHashMap<u64, Vec<u8>>,
}

impl<M: ReadMemory> Strings<'_, M> {
    const PAGE: u64 = 4096;
    /// Maximum pages cached; real tables have names on some 60.
    const PAGES_MAX: usize = 1024;

    fn at(&mut self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        let mut at = address;
        while text.len() <= NAME_MAX {
            let start = at - at % Self::PAGE;
            if self.pages.len() >= Self::PAGES_MAX && !self.pages.contains_key(&start) {
                self.pages.clear();
            }
            let page = self.pages.entry(start).or_insert_with(|| {
                let mut page = vec![0; Self::PAGE as usize];
                let read = self.memory.read(start, &mut page);
                page.truncate(read);
                page
            });
            let rest = page.get((at - start) as usize..).filter(|rest| !rest.is_empty())?;
            match rest.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&rest[..end]);
                    return String::from_utf8(text).ok().filter(|text| text.len() <= NAME_MAX);
                }
                None => text.extend_from_slice(rest),
            }
            at = start.checked_add(Self::PAGE)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with the same text on every page.
    struct Everywhere;

    impl ReadMemory for Everywhere {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            for (at, byte) in (address..).zip(buf.iter_mut()) {
                *byte = if at % 8 == 7 { 0 } else { b'a' + (at % 8) as u8 };
            }
            buf.len()
        }
    }

    #[test]
    fn names_all_over_memory_are_not_all_kept() {
        let mut strings = Strings { memory: &Everywhere, pages: FxHashMap::default() };
        for page in 0..5_000 {
            assert_eq!(strings.at(page * 4096 + 2).as_deref(), Some("cdefg"));
            assert!(strings.pages.len() <= 1024);
        }
    }
}
