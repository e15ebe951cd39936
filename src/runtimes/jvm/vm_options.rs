//! The virtual machine's options.

use rustc_hash::FxHashMap;

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::vm_structs::{Missing, Structs};

/// Maximum options of a virtual machine; JDK 26 has 1,700.
const FLAGS_MAX: u64 = 10_000;

/// Reads the virtual machine's boolean options that decide how objects are laid out.
pub fn flags<M: ReadMemory>(
    memory: &M,
    s: &Structs,
) -> Result<FxHashMap<&'static str, bool>, Missing> {
    const WANTED: [&str; 5] = [
        "UseCompressedOops",
        "UseCompressedClassPointers",
        "UseCompactObjectHeaders",
        "UseZGC",
        "UseShenandoahGC",
    ];
    let owner = if s.size("JVMFlag").is_ok() { "JVMFlag" } else { "Flag" };
    let missing = || Missing(format!("{owner}::flags"));
    let size = s.size(owner)?.clamp(8, 256);
    let (name, value) = (s.offset(owner, "_name")?, s.offset(owner, "_addr")?);
    let table = memory.read_u64(s.address(owner, "flags")?).ok_or_else(missing)?;
    let count = memory.read_u64(s.address(owner, "numFlags")?).ok_or_else(missing)?.min(FLAGS_MAX);
    let mut found = FxHashMap::default();
    let mut entries = vec![0; (count * size) as usize];
    let read = memory.read(table, &mut entries);
    for entry in entries[..read].chunks_exact(size as usize) {
        let word = |at: u64| {
            let bytes = entry.get(at as usize..).and_then(|bytes| bytes.first_chunk::<8>());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let mut text = [0; 32];
        let length = memory.read(word(name), &mut text);
        let end = text[..length].iter().position(|byte| *byte == 0);
        let Some(wanted) =
            end.and_then(|end| WANTED.iter().find(|wanted| wanted.as_bytes() == &text[..end]))
        else {
            continue;
        };
        let mut byte = [0];
        if memory.read_exact(word(value), &mut byte).is_some() {
            found.insert(*wanted, byte[0] != 0);
        }
    }
    Ok(found)
}
