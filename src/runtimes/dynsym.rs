//! Exported symbols of a loaded library, found by name in its image in the target's memory. No file
//! is opened, so containers, chroots and deleted files need nothing special.

use crate::elf::{Headers, PT_DYNAMIC, PT_LOAD};
use crate::process::memory::ReadMemory;

/// The dynamic symbol table of a loaded library.
pub struct Exports<'m, M> {
    memory: &'m M,
    bias: u64,
    symbols: u64,
    strings: u64,
    strings_size: u64,
    gnu_hash: Option<u64>,
    /// The older table (`DT_HASH`). Libraries linked for old systems have only this one.
    hash: Option<u64>,
}

/// Maximum entries read from the dynamic section; real ones have some 30.
const DYNAMIC_MAX: u64 = 512;
/// Maximum symbols visited in one hash chain; real ones have a handful.
const CHAIN_MAX: u32 = 100_000;

const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

fn u32_at<M: ReadMemory>(memory: &M, at: u64) -> Option<u32> {
    let mut word = [0; 4];
    memory.read_exact(at, &mut word)?;
    Some(u32::from_le_bytes(word))
}

impl<'m, M: ReadMemory> Exports<'m, M> {
    /// Reads the dynamic section of the library whose first byte is mapped at `image`. Returns
    /// `None` where there is no library with a hash table.
    pub fn of(memory: &'m M, image: u64) -> Option<Exports<'m, M>> {
        let headers =
            Headers::read(&|at, buf| image.checked_add(at).map_or(0, |at| memory.read(at, buf)))?;
        let address_of = |kind| {
            let first = headers.segments.iter().find(|segment| segment.kind == kind)?;
            Some(first.address)
        };
        // The first one that is loaded holds the file's first byte.
        let bias = image.wrapping_sub(address_of(PT_LOAD)?);
        let dynamic = bias.wrapping_add(address_of(PT_DYNAMIC)?);
        let mut exports = Exports {
            memory,
            bias,
            symbols: 0,
            strings: 0,
            strings_size: 0,
            gnu_hash: None,
            hash: None,
        };
        for number in 0..DYNAMIC_MAX {
            let at = dynamic.checked_add(16 * number)?;
            let (tag, value) = (memory.read_u64(at)?, memory.read_u64(at.checked_add(8)?)?);
            // glibc relocates these addresses when it loads a library; musl leaves the values of
            // the file.
            let address = if value < bias { bias.wrapping_add(value) } else { value };
            match tag {
                DT_NULL => break,
                DT_STRTAB => exports.strings = address,
                DT_SYMTAB => exports.symbols = address,
                DT_STRSZ => exports.strings_size = value,
                DT_HASH => exports.hash = Some(address),
                DT_GNU_HASH => exports.gnu_hash = Some(address),
                _ => {}
            }
        }
        (exports.symbols != 0
            && exports.strings != 0
            && exports.gnu_hash.or(exports.hash).is_some())
        .then_some(exports)
    }

    /// Returns the address of a symbol that the library defines.
    pub fn find(&self, name: &str) -> Option<u64> {
        match (self.gnu_hash, self.hash) {
            (Some(table), _) => self.find_by_gnu_hash(table, name),
            (None, Some(table)) => self.find_by_hash(table, name),
            (None, None) => None,
        }
    }

    fn find_by_hash(&self, table: u64, name: &str) -> Option<u64> {
        let (buckets, symbols) =
            (u32_at(self.memory, table)?, u32_at(self.memory, table.checked_add(4)?)?);
        let word = |number: u64| u32_at(self.memory, table.checked_add(8 + 4 * number)?);
        let mut number = word(u64::from(sysv_hash(name).checked_rem(buckets)?))?;
        for _ in 0..CHAIN_MAX.min(symbols) {
            if number == 0 || number >= symbols {
                return None;
            }
            if let Some(address) = self.symbol(number, name) {
                return Some(address);
            }
            number = word(u64::from(buckets) + u64::from(number))?;
        }
        None
    }

    fn find_by_gnu_hash(&self, table: u64, name: &str) -> Option<u64> {
        let (buckets, first, bloom) = (
            u32_at(self.memory, table)?,
            u32_at(self.memory, table + 4)?,
            u32_at(self.memory, table + 8)?,
        );
        let bucket_table = table.checked_add(16)?.checked_add(8 * u64::from(bloom))?;
        let chains = bucket_table.checked_add(4 * u64::from(buckets))?;
        let hash = hash(name);
        let bucket = hash.checked_rem(buckets)?;
        let begin = u32_at(self.memory, bucket_table.checked_add(4 * u64::from(bucket))?)?;
        if begin < first {
            return None;
        }
        for number in begin..begin.saturating_add(CHAIN_MAX) {
            let link = u32_at(self.memory, chains.checked_add(4 * u64::from(number - first))?)?;
            if link | 1 == hash | 1
                && let Some(address) = self.symbol(number, name)
            {
                return Some(address);
            }
            if link & 1 == 1 {
                return None;
            }
        }
        None
    }

    fn symbol(&self, number: u32, name: &str) -> Option<u64> {
        let mut symbol = [0; 24];
        self.memory.read_exact(self.symbols.checked_add(24 * u64::from(number))?, &mut symbol)?;
        let word = |at: usize| u64::from_le_bytes(symbol[at..at + 8].try_into().expect("8 bytes"));
        let (at, value) = (word(0) & 0xffff_ffff, word(8));
        let defined = u16::from_le_bytes([symbol[6], symbol[7]]) != 0;
        if !defined || at.checked_add(name.len() as u64)? >= self.strings_size {
            return None;
        }
        let mut text = vec![0; name.len() + 1];
        self.memory.read_exact(self.strings.checked_add(at)?, &mut text)?;
        let (end, text) = text.split_last()?;
        (*end == 0 && text == name.as_bytes()).then(|| self.bias.wrapping_add(value))
    }
}

/// The hash function of DT_GNU_HASH.
fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

/// The hash function of DT_HASH (System V ABI).
fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let sum = (hash << 4).wrapping_add(u32::from(byte));
        (sum ^ (sum >> 24 & 0xf0)) & 0x0fff_ffff
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps::Maps;
    use crate::process::memory::Memory;

    #[test]
    fn what_our_own_c_library_exports() {
        let pid = std::process::id();
        let memory = Memory::new(pid);
        let maps = Maps::read(pid).expect("our own");
        let library = maps
            .iter()
            .find(|mapping| {
                mapping.offset == 0 && mapping.path.to_string_lossy().contains("libc.so")
            })
            .expect("a C library");
        let exports = Exports::of(&memory, library.start).expect("exports");
        assert_eq!(exports.find("getpid"), Some(libc::getpid as *const () as u64));
        assert_eq!(exports.find("read"), Some(libc::read as *const () as u64));
        assert_eq!(exports.find("no such function"), None);
        assert_eq!(
            (sysv_hash(""), sysv_hash("printf"), sysv_hash("syscall")),
            (0, 0x077_905a6, 0x0b09_985c)
        );
        assert!(Exports::of(&memory, library.start + 8).is_none());
    }
}
