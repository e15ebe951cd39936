//! Java objects on the heap, as far as the names of threads and what they wait for need them:
//! classes, fields, strings. A collector may move objects while they are read. So every reader
//! validates its result and reads again.

use rustc_hash::FxHashMap;

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::methods::symbol;
use crate::runtimes::jvm::unsigned5::Unsigned5;
use crate::runtimes::jvm::vm_options::flags;
use crate::runtimes::jvm::vm_structs::{Missing, Structs};

/// Maximum superclasses searched for a field.
const SUPERS_MAX: u32 = 64;
/// Maximum fields of one class.
const FIELDS_MAX: u32 = 4096;
/// Maximum fields remembered, of all classes.
const KNOWN_MAX: usize = 4096;
/// The bits of an address of ZGC before JDK 23 that are below its colours.
const BELOW_COLOURS: u64 = (1 << 42) - 1;
/// Maximum length of a string, UTF-16 units.
const STRING_MAX: usize = 64 << 10;

/// How compressed pointers become addresses.
#[derive(Clone, Copy, Debug)]
struct Narrow {
    base: u64,
    shift: u32,
}

impl Narrow {
    fn address(self, narrow: u32) -> u64 {
        self.base.wrapping_add(u64::from(narrow).wrapping_shl(self.shift))
    }
}

/// Where an object refers to its class.
#[derive(Clone, Copy, Debug)]
enum KlassPlace {
    Wide,
    Narrow(Narrow),
    /// In the highest bits of the mark word, from this bit on (compact headers).
    InMark(Narrow, u32),
}

/// Where the fields of a class are described.
#[derive(Clone, Copy, Debug)]
enum FieldPlaces {
    /// JDK 8 to 20: six numbers each.
    Array { fields: u64, count: u64 },
    /// Later: a compressed stream.
    Stream(u64),
}

/// Where the collector keeps the bits that a reference has only if it may be stale: its object may
/// have been moved.
#[derive(Clone, Copy, Debug)]
enum StaleBits {
    /// References have no such bits.
    None,
    At(u64),
    /// They are not exported, so every reference may be stale.
    Missing,
}

/// A field, by the class that declares it and its name: subclasses may have others with that name.
/// Without a class it is the first one from the object's own class upwards.
pub type Declared = (&'static str, &'static str);

/// Cached result of the search for a field of a class.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// Distance from the object's address.
    At(u64),
    /// It was not found; `asked` counts the requests.
    Missed { asked: u32 },
}

/// How objects are laid out on the heap.
pub struct Objects {
    klass: KlassPlace,
    /// `None`: references are addresses.
    narrow: Option<Narrow>,
    /// References have colour bits (generational ZGC).
    coloured: bool,
    stale_bits: StaleBits,
    /// The collector moves objects while Java code runs.
    pub moved_any_time: bool,
    array_length: u64,
    array_data: u64,
    fields: FieldPlaces,
    constants: u64,
    super_class: u64,
    klass_name: u64,
    pool_size: u64,
    known: FxHashMap<(u64, Declared), Field>,
    /// Where each field was found last: subclasses have it at the same offset.
    usual: FxHashMap<Declared, u64>,
}

impl Objects {
    pub fn of<M: ReadMemory>(memory: &M, s: &Structs, layout: &Layout) -> Result<Objects, Missing> {
        let flags = flags(memory, s)?;
        let on = |name: &str| flags.get(name).copied().unwrap_or(false);
        let narrow = |owners: &[&str], field: &str| {
            let at = |part: &str| {
                let names = owners.iter().flat_map(|owner| {
                    [format!("{field}.{part}"), part.to_owned()]
                        .map(|name| (owner.to_string(), name))
                });
                let mut found = names.filter_map(|(owner, name)| s.address(&owner, &name).ok());
                found.next().ok_or_else(|| Missing(format!("{field}.{part}")))
            };
            let (base, shift) = (at("_base")?, at("_shift")?);
            let word = |at: u64| memory.read_u64(at).ok_or_else(|| Missing(field.into()));
            Ok(Narrow { base: word(base)?, shift: (word(shift)? as u32).min(63) })
        };
        let (compact, narrow_classes) =
            (on("UseCompactObjectHeaders"), on("UseCompressedClassPointers"));
        let klass = if compact {
            let bit = s
                .constant("markWord::klass_shift")
                .and_then(|bit| u32::try_from(bit).ok())
                .unwrap_or(42);
            KlassPlace::InMark(
                narrow(&["CompressedKlassPointers", "Universe"], "_narrow_klass")?,
                bit.min(63),
            )
        } else if narrow_classes {
            KlassPlace::Narrow(narrow(&["CompressedKlassPointers", "Universe"], "_narrow_klass")?)
        } else {
            KlassPlace::Wide
        };
        let (array_length, array_data) = match (compact, narrow_classes) {
            (true, _) => (8, 12),
            (false, true) => (12, 16),
            (false, false) => (16, if layout.major >= 23 { 20 } else { 24 }),
        };
        let fields = match s.offset("InstanceKlass", "_fieldinfo_stream") {
            Ok(stream) => FieldPlaces::Stream(stream),
            Err(_) => FieldPlaces::Array {
                fields: s.offset("InstanceKlass", "_fields")?,
                count: s.offset("InstanceKlass", "_java_fields_count")?,
            },
        };
        // Since JDK 23 ZGC is the generational one, 21 has both.
        let coloured = match (on("UseZGC"), s.address("ZGlobalsForVMStructs", "_instance_p")) {
            (true, Ok(instance)) => s
                .offset("ZGlobalsForVMStructs", "_ZPointerLoadShift")
                .ok()
                .and_then(|at| {
                    memory.read_u64(memory.read_u64(memory.read_u64(instance)?.checked_add(at)?)?)
                })
                .is_some_and(|shift| shift as u32 != 0),
            _ => false,
        };
        let stale_bits = match on("UseZGC") {
            true => stale_bits(memory, s, coloured).map_or(StaleBits::Missing, StaleBits::At),
            false => StaleBits::None,
        };
        let narrow = match on("UseCompressedOops") {
            true => Some(narrow(&["CompressedOops", "Universe"], "_narrow_oop")?),
            false => None,
        };
        Ok(Objects {
            klass,
            narrow,
            coloured,
            stale_bits,
            moved_any_time: on("UseZGC") || on("UseShenandoahGC"),
            array_length,
            array_data,
            fields,
            constants: s.offset("InstanceKlass", "_constants")?,
            super_class: s.offset("Klass", "_super")?,
            klass_name: s.offset("Klass", "_name")?,
            pool_size: s.size("ConstantPool")?,
            known: FxHashMap::default(),
            usual: FxHashMap::default(),
        })
    }

    /// Returns a reader for objects of a made-up layout. It knows no class yet.
    #[cfg(test)]
    pub fn made_up() -> Objects {
        Objects {
            klass: KlassPlace::Wide,
            narrow: None,
            coloured: false,
            stale_bits: StaleBits::None,
            moved_any_time: false,
            array_length: 16,
            array_data: 24,
            fields: FieldPlaces::Array { fields: 0x10, count: 0x18 },
            constants: 0x20,
            super_class: 0x28,
            klass_name: 0x30,
            pool_size: 0x40,
            known: FxHashMap::default(),
            usual: FxHashMap::default(),
        }
    }

    /// Returns the same where objects are moved while Java runs. `stale_bits`: where the bits of
    /// stale references are (ZGC), `None` where objects say that they have moved (Shenandoah).
    #[cfg(test)]
    pub fn made_up_moving(stale_bits: Option<u64>) -> Objects {
        let stale_bits = stale_bits.map_or(StaleBits::None, StaleBits::At);
        Objects { moved_any_time: true, stale_bits, ..Objects::made_up() }
    }

    /// Returns the object that a reference outside the heap leads to; 0 if there is none.
    pub fn plain(&self, reference: u64) -> u64 {
        if !self.coloured {
            return reference;
        }
        // The collector's phases have one of four bits each, and the address begins behind that
        // (src/hotspot/share/gc/z/zAddress.hpp). A reference that was not loaded lately has the bit
        // of an earlier phase.
        match reference >> 12 & 0xf {
            1 => reference >> 13,
            2 => reference >> 14,
            4 => reference >> 15,
            8 => reference >> 16,
            _ => 0,
        }
    }

    /// Reads the bits that only references have that may be stale (ZGC). While they are the same,
    /// an object stays where a reference without them leads.
    pub fn stale_bits<M: ReadMemory>(&self, memory: &M) -> u64 {
        match self.stale_bits {
            StaleBits::None => 0,
            StaleBits::At(at) => memory.read_u64(at).unwrap_or(u64::MAX),
            StaleBits::Missing => u64::MAX,
        }
    }

    /// Whether Shenandoah has moved the object at this address; its header then leads to the new
    /// address. Where references have bits for that, it is not asked.
    pub fn has_moved<M: ReadMemory>(&self, memory: &M, object: u64) -> bool {
        self.moved_any_time
            && matches!(self.stale_bits, StaleBits::None)
            && memory.read_u64(object).is_none_or(|mark| mark & 3 == 3)
    }

    /// Returns the object that a field of another refers to; 0 for null.
    pub fn reference<M: ReadMemory>(&self, memory: &M, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.width()];
        memory.read_exact(at, bytes)?;
        Some(self.decode(bytes))
    }

    /// Returns the width of a reference in an object, bytes.
    pub fn width(&self) -> usize {
        if self.narrow.is_some() { 4 } else { 8 }
    }

    /// Decodes a reference of [`Objects::width`] to the object's address; 0 for null.
    pub fn decode(&self, reference: &[u8]) -> u64 {
        let mut word = [0; 8];
        let length = reference.len().min(8);
        word[..length].copy_from_slice(&reference[..length]);
        match (self.narrow, u64::from_le_bytes(word)) {
            (None, reference) => self.plain(reference),
            (Some(_), 0) => 0,
            (Some(narrow), reference) => narrow.address(reference as u32),
        }
    }

    /// Whether two addresses are of one object. Before JDK 23 ZGC keeps colours above the address
    /// and maps each of them.
    pub fn same(&self, one: u64, other: u64) -> bool {
        one == other || (self.moved_any_time && (one ^ other) & BELOW_COLOURS == 0)
    }

    /// Returns the part of an object's address that is the same at all of its addresses.
    pub fn colourless(&self, object: u64) -> u64 {
        match self.stale_bits {
            StaleBits::None => object,
            _ if self.coloured => object,
            StaleBits::At(_) | StaleBits::Missing => object & BELOW_COLOURS,
        }
    }

    /// Returns where an object refers to its class: distance from its address and length, bytes.
    pub fn klass_place(&self) -> (u64, usize) {
        match self.klass {
            KlassPlace::Wide => (8, 8),
            KlassPlace::Narrow(_) => (8, 4),
            KlassPlace::InMark(..) => (0, 8),
        }
    }

    /// Returns the class that this word refers to.
    fn klass_of(&self, word: u64) -> u64 {
        match self.klass {
            KlassPlace::Wide => word,
            KlassPlace::Narrow(narrow) => narrow.address(word as u32),
            KlassPlace::InMark(narrow, bit) => narrow.address((word >> bit) as u32),
        }
    }

    fn klass<M: ReadMemory>(&self, memory: &M, object: u64) -> Option<u64> {
        let (at, width) = self.klass_place();
        let mut word = [0; 8];
        memory.read_exact(object.checked_add(at)?, &mut word[..width])?;
        Some(self.klass_of(u64::from_le_bytes(word)))
    }

    /// Returns where a field of this object is, if that is known of its class. `word` is the
    /// content of [`Objects::klass_place`].
    pub fn known_field(&self, object: u64, word: u64, field: Declared) -> Option<u64> {
        match self.known.get(&(self.klass_of(word), field))? {
            Field::At(offset) => object.checked_add(*offset),
            Field::Missed { .. } => None,
        }
    }

    /// Returns where a field is if the object's class has it, which [`Objects::known_field`]
    /// confirms.
    pub fn usual_field(&self, object: u64, field: Declared) -> Option<u64> {
        object.checked_add(*self.usual.get(&field)?)
    }

    /// Returns where a field of this object is.
    pub fn field<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        object: u64,
        field: Declared,
    ) -> Option<u64> {
        let klass =
            self.klass(memory, object).filter(|klass| klass.is_multiple_of(8) && *klass != 0)?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let asked = match self.known.get(&(klass, field)) {
            Some(Field::At(offset)) => return object.checked_add(*offset),
            Some(Field::Missed { asked }) => asked.saturating_add(1),
            None => 1,
        };
        // A field that is not found may only have been unreadable. But most such fields belong to
        // another version, and a search takes long.
        let found = if asked.is_power_of_two() {
            self.find_field(memory, layout, klass, field)
        } else {
            None
        };
        self.known.insert((klass, field), found.map_or(Field::Missed { asked }, Field::At));
        self.usual.extend(found.map(|offset| (field, offset)));
        object.checked_add(found?)
    }

    fn find_field<M: ReadMemory>(
        &self,
        memory: &M,
        layout: &Layout,
        klass: u64,
        field: Declared,
    ) -> Option<u64> {
        let ((class, name), mut klass) = (field, klass);
        for _ in 0..SUPERS_MAX {
            if klass == 0 || !klass.is_multiple_of(8) {
                return None;
            }
            if class.is_empty() || self.klass_is(memory, layout, klass, class)? {
                let found = self.own_field(memory, layout, klass, name);
                if found.is_some() || !class.is_empty() {
                    return found;
                }
            }
            klass = memory.read_u64(klass.checked_add(self.super_class)?)?;
        }
        None
    }

    fn own_field<M: ReadMemory>(
        &self,
        memory: &M,
        layout: &Layout,
        klass: u64,
        name: &str,
    ) -> Option<u64> {
        let pool = memory.read_u64(klass.checked_add(self.constants)?)?;
        let is_named = |index: u32| {
            let slot = pool.checked_add(self.pool_size)?.checked_add(8 * u64::from(index))?;
            Some(symbol(memory, layout, memory.read_u64(slot)? & !3)? == name)
        };
        match self.fields {
            FieldPlaces::Array { fields, count } => {
                let array = memory.read_u64(klass.checked_add(fields)?)?;
                let mut number = [0; 2];
                memory.read_exact(klass.checked_add(count)?, &mut number)?;
                for field in 0..u64::from(u16::from_le_bytes(number)).min(u64::from(FIELDS_MAX)) {
                    // Flags, name, signature, value, and the offset in two halves. The elements
                    // begin behind the array's length.
                    let mut words = [0; 12];
                    memory
                        .read_exact(array.checked_add(4)?.checked_add(12 * field)?, &mut words)?;
                    let word =
                        |n: usize| u32::from(u16::from_le_bytes([words[2 * n], words[2 * n + 1]]));
                    if is_named(word(1)) == Some(true) {
                        return Some(u64::from((word(5) << 16 | word(4)) >> 2));
                    }
                }
                None
            }
            FieldPlaces::Stream(stream) => {
                let array = memory.read_u64(klass.checked_add(stream)?)?;
                let length = half_word(memory, array)?.min(FIELDS_MAX * 16);
                let mut bytes = vec![0; length as usize];
                memory.read_exact(array.checked_add(4)?, &mut bytes)?;
                let mut numbers = Unsigned5::new(&bytes, layout.excluded);
                let (java, injected) = (numbers.unsigned()?, numbers.unsigned()?);
                for _ in 0..java.checked_add(injected)?.min(FIELDS_MAX) {
                    let [name, _, offset, _, flags] = [(); 5].map(|()| numbers.unsigned());
                    // A value, a generic signature and a group follow if their flags are set.
                    for bit in [0, 2, 4] {
                        if flags? >> bit & 1 == 1 {
                            numbers.unsigned()?;
                        }
                    }
                    if is_named(name?) == Some(true) {
                        return offset.map(u64::from);
                    }
                }
                None
            }
        }
    }

    /// Whether this is the name of the object's class, as in its `Symbol`.
    pub fn is_of<M: ReadMemory>(
        &self,
        memory: &M,
        layout: &Layout,
        object: u64,
        class: &str,
    ) -> Option<bool> {
        self.klass_is(memory, layout, self.klass(memory, object)?, class)
    }

    fn klass_is<M: ReadMemory>(
        &self,
        memory: &M,
        layout: &Layout,
        klass: u64,
        class: &str,
    ) -> Option<bool> {
        Some(self.klass_symbol(memory, layout, klass)? == class)
    }

    /// Returns the name of the object's class, as in its `Symbol`.
    pub fn class_symbol<M: ReadMemory>(
        &self,
        memory: &M,
        layout: &Layout,
        object: u64,
    ) -> Option<String> {
        self.klass_symbol(memory, layout, self.klass(memory, object)?)
    }

    fn klass_symbol<M: ReadMemory>(
        &self,
        memory: &M,
        layout: &Layout,
        klass: u64,
    ) -> Option<String> {
        symbol(memory, layout, memory.read_u64(klass.checked_add(self.klass_name)?)?)
    }

    /// Reads the text of a `java.lang.String`.
    pub fn string<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        object: u64,
    ) -> Option<String> {
        const STRING: &str = "java/lang/String";
        if !self.is_of(memory, layout, object, STRING)? {
            return None;
        }
        let value = self.field(memory, layout, object, (STRING, "value"))?;
        let array = self.reference(memory, value)?;
        let length = half_word(memory, array.checked_add(self.array_length)?)? as usize;
        // JDK 8 has an array of 16-bit characters and no coder.
        let (wide, units) = match self.field(memory, layout, object, (STRING, "coder")) {
            None if layout.major < 9 => (true, length),
            None => return None,
            Some(at) => {
                let mut coder = [0];
                memory.read_exact(at, &mut coder)?;
                (coder[0] == 1, if coder[0] == 1 { length / 2 } else { length })
            }
        };
        if units > STRING_MAX {
            return None;
        }
        let mut bytes = vec![0; if wide { 2 * units } else { units }];
        memory.read_exact(array.checked_add(self.array_data)?, &mut bytes)?;
        Some(match wide {
            true => String::from_utf16_lossy(
                &bytes
                    .chunks_exact(2)
                    .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
                    .collect::<Vec<_>>(),
            ),
            false => bytes.into_iter().map(char::from).collect(),
        })
    }
}

/// Returns where ZGC keeps the bits of stale references. JDK 21 has both of its kinds.
fn stale_bits<M: ReadMemory>(memory: &M, s: &Structs, coloured: bool) -> Option<u64> {
    let generational = [("ZGlobalsForVMStructs", "_ZPointerLoadBadMask")];
    let single = [
        ("XGlobalsForVMStructs", "_XAddressBadMask"),
        ("ZGlobalsForVMStructs", "_ZAddressBadMask"),
    ];
    let names: &[(&str, &str)] = if coloured { &generational } else { &single };
    names.iter().find_map(|(owner, name)| {
        let instance = memory.read_u64(s.address(owner, "_instance_p").ok()?)?;
        memory.read_u64(instance.checked_add(s.offset(owner, name).ok()?)?)
    })
}

fn half_word<M: ReadMemory>(memory: &M, at: u64) -> Option<u32> {
    let mut word = [0; 4];
    memory.read_exact(at, &mut word)?;
    Some(u32::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::jvm::tests::cache_validity::{World, layout_17, symbol as put_symbol};

    const OBJECT: u64 = 0x1000;
    const KLASS: u64 = 0x2000;
    const POOL: u64 = 0x3000;
    const FIELDS: u64 = 0x4000;
    const NAME: u64 = 0x5000;

    /// An object of a class with one field, which is named `daemon` and lies 24 bytes from the
    /// object's beginning.
    fn object() -> World {
        let world = World::new();
        world.word(OBJECT + 8, KLASS);
        world.word(KLASS + 0x10, FIELDS);
        world.put(KLASS + 0x18, &[1, 0]);
        world.word(KLASS + 0x20, POOL);
        world.word(POOL + 0x40 + 8 * 5, NAME);
        // The name's index, and the offset behind two bits.
        world.put(FIELDS + 4, &[0, 0, 5, 0, 0, 0, 0, 0, 24 << 2, 0, 0, 0]);
        put_symbol(&world, &layout_17(), NAME, "daemon");
        world
    }

    #[test]
    fn a_missing_field_is_searched_for_with_backoff() {
        let (world, layout, mut objects) = (object(), layout_17(), Objects::made_up());
        // Returns the field and whether it was searched for: a search reads more than the check of
        // the object's class.
        let mut ask = |name| {
            let before = world.reads();
            let found = objects.field(&&world, &layout, OBJECT, ("", name));
            (found, world.reads() - before > 1)
        };
        assert_eq!(
            [ask("daemon"), ask("daemon")],
            [(Some(OBJECT + 24), true), (Some(OBJECT + 24), false)]
        );
        let searched: Vec<u32> = (1..=100).filter(|_| ask("holder") == (None, true)).collect();
        assert_eq!(searched, [1, 2, 4, 8, 16, 32, 64]);
        // It may only have been unreadable: at the 128th request it is found, and then stays known.
        put_symbol(&world, &layout, NAME, "holder");
        assert!((101..128).all(|_| ask("holder") == (None, false)));
        assert_eq!(
            [ask("holder"), ask("holder")],
            [(Some(OBJECT + 24), true), (Some(OBJECT + 24), false)]
        );
        assert_eq!(
            ask("daemon"),
            (Some(OBJECT + 24), false),
            "a field that was found is not searched for again"
        );
    }
}
