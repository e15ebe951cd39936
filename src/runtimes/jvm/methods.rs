//! `Method` objects: names, files and lines of Java methods.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::monotonic;
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::frame::Ns;
use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::generated_class_names::class_name;
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::scopes::Scope;
use crate::runtimes::jvm::unsigned5::Unsigned5;
use crate::runtimes::replaced_code::Replaced;

/// Maximum methods remembered, and maximum bytes of what is known of them.
const METHODS_MAX: usize = 100_000;
const BYTES_MAX: usize = 32 << 20;
/// Maximum bytes read of a line table; a method of 64 KiB has at most twice that.
const LINES_MAX: usize = 256 << 10;
/// Maximum bytes of a class or method name.
const SYMBOL_MAX: usize = 16 << 10;
/// JVM_ACC_NATIVE of the access flags.
const NATIVE: i64 = 0x100;

/// What was read of a method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Method {
    /// A different serial is a different method. Addresses are reused when classes are unloaded or
    /// redefined.
    pub serial: u64,
    /// Address of its bytecode.
    pub bytecode: u64,
    pub code_size: u64,
    pub native: bool,
    /// `package.Class.method`
    pub name: Arc<str>,
    /// `package.Class`
    pub class: Arc<str>,
    file: Option<Arc<str>>,
    /// Bytecode index and line, sorted by bytecode index.
    lines: Arc<[(u32, u32)]>,
}

impl Method {
    /// Returns the line at a bytecode index: of the first entry exactly there, else of the last one
    /// before it. HotSpot does the same.
    pub fn line(&self, bci: i32) -> Option<u32> {
        let bci = u32::try_from(bci.max(0)).ok()?;
        let at = self.lines.partition_point(|(from, _)| *from < bci);
        let exact = self.lines.get(at).filter(|(from, _)| *from == bci);
        exact.or_else(|| self.lines.get(at.checked_sub(1)?)).map(|(_, line)| *line)
    }

    pub fn location(&self, bci: Option<i32>, tier: Tier) -> Location {
        let tier = if self.native { Tier::Native } else { tier };
        Location {
            function: self.name.clone(),
            module: self.class.clone(),
            file: self.file.clone(),
            line: bci.filter(|_| !self.native).and_then(|bci| self.line(bci)),
            kind: FrameKind::Java,
            tier: Some(tier),
        }
    }
}

/// Cache of methods.
#[derive(Default)]
pub struct Methods {
    known: FxHashMap<u64, CachedMethod>,
    /// Those that were used in this epoch.
    used: Vec<u64>,
    /// Bytes of all entries.
    size: usize,
    epoch: u64,
    /// Serials given out so far.
    serials: u64,
    /// When the stack that is being walked was copied.
    copied: Ns,
    /// Address ranges of methods that were replaced.
    replaced: Replaced,
    /// A method was asked for that may be younger than the stack.
    untrusted: bool,
}

/// A cached method with the memory it was read from. While that is unchanged it is the same method.
struct CachedMethod {
    method: Arc<Method>,
    evidence: Evidence,
    /// The epochs in which it was last compared with memory, and last used.
    checked: u64,
    used: u64,
}

impl CachedMethod {
    fn size(&self) -> usize {
        let method = &self.method;
        self.evidence.bytes.len()
            + 16 * self.evidence.pieces.len()
            + 8 * method.lines.len()
            + 2 * method.name.len()
    }
}

/// Pieces of memory that were read together: addresses, lengths and contents.
#[derive(Default)]
pub struct Evidence {
    pieces: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl Evidence {
    /// Reads a piece and records it.
    pub fn read<M: ReadMemory>(&mut self, memory: &M, at: u64, length: usize) -> Option<&[u8]> {
        let from = self.bytes.len();
        self.bytes.resize(from + length, 0);
        self.pieces.push((at, length));
        memory.read_exact(at, &mut self.bytes[from..])?;
        Some(&self.bytes[from..])
    }

    pub fn word<M: ReadMemory>(&mut self, memory: &M, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.read(memory, at, 8)?.try_into().ok()?))
    }

    fn half<M: ReadMemory>(&mut self, memory: &M, at: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.read(memory, at, 2)?.try_into().ok()?))
    }

    /// Reads the text of a `Symbol`.
    fn symbol<M: ReadMemory>(&mut self, memory: &M, layout: &Layout, at: u64) -> Option<String> {
        let (length_at, body) = symbol_places(layout, at)?;
        let length = usize::from(self.half(memory, length_at)?);
        if length > SYMBOL_MAX {
            return None;
        }
        modified_utf8(self.read(memory, body, length)?)
    }

    /// Whether the memory still has the recorded contents.
    pub fn holds<M: ReadMemory>(&self, memory: &M) -> bool {
        let mut now = vec![0; self.bytes.len()];
        memory.read_pieces(&self.pieces, &mut now).is_some() && now == self.bytes
    }
}

impl Methods {
    /// Starts an epoch: entries of earlier epochs are stale until they are revalidated. Returns the
    /// addresses that were used in the last epoch, as these are likely used again. The caller reads
    /// the [`Methods::evidence`] of all in a few calls and passes it to [`Methods::found`].
    pub fn begin(&mut self, epoch: u64) -> Vec<u64> {
        self.epoch = epoch;
        let mut used = std::mem::take(&mut self.used);
        used.retain(|at| self.known.contains_key(at));
        used
    }

    /// Sets when the stack was copied whose methods are asked for next.
    pub fn set_instant(&mut self, copied: Ns) {
        (self.copied, self.untrusted) = (copied, false);
    }

    /// Returns whether, since the last call, a frame was named by a method that may be younger than
    /// the stack.
    pub fn take_untrusted(&mut self) -> bool {
        std::mem::take(&mut self.untrusted)
    }

    /// Returns the memory that identifies the method at this address.
    pub fn evidence(&self, at: u64) -> &[(u64, usize)] {
        self.known.get(&at).map_or(&[], |cached| &cached.evidence.pieces)
    }

    /// Revalidates a method by the bytes read in this epoch.
    pub fn found(&mut self, at: u64, bytes: &[u8]) {
        if let Some(cached) =
            self.known.get_mut(&at).filter(|cached| cached.evidence.bytes == bytes)
        {
            cached.checked = self.epoch;
        }
    }

    /// Returns the method at this address; `None` if there is none.
    pub fn get<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        at: u64,
    ) -> Option<Arc<Method>> {
        if at == 0 || !at.is_multiple_of(8) {
            return None;
        }
        if let Some(cached) = self.known.get_mut(&at)
            && (cached.checked == self.epoch || cached.evidence.holds(memory))
        {
            if cached.used != self.epoch {
                self.used.push(at);
            }
            (cached.checked, cached.used) = (self.epoch, self.epoch);
            self.untrusted |= self.replaced.since(self.copied, at);
            return Some(cached.method.clone());
        }
        let before = self.known.remove(&at);
        self.size -= before.as_ref().map_or(0, CachedMethod::size);
        let mut evidence = Evidence::default();
        let mut read = read(memory, layout, at, &mut evidence);
        if let (Some(method), Some(before)) = (&mut read, &before) {
            method.serial = before.method.serial;
        }
        // Otherwise something changed that does not identify the method: a flag, a counter.
        let differs = before.as_ref().is_none_or(|before| read.as_ref() != Some(&*before.method));
        if differs && before.is_some() {
            self.replaced.add(at..at + 1, monotonic());
        }
        self.untrusted |= self.replaced.since(self.copied, at);
        let mut method = read?;
        if differs {
            self.serials += 1;
            method.serial = self.serials;
        }
        let cached = CachedMethod {
            method: Arc::new(method),
            evidence,
            checked: self.epoch,
            used: self.epoch,
        };
        if self.known.len() >= METHODS_MAX || self.size + cached.size() > BYTES_MAX {
            self.known.clear();
            self.size = 0;
        }
        self.size += cached.size();
        let method = cached.method.clone();
        self.known.insert(at, cached);
        self.used.push(at);
        Some(method)
    }

    /// Converts `scopes`, innermost first, to locations, outermost first.
    pub fn locations<M: ReadMemory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        scopes: &[Scope],
        tier: Tier,
    ) -> Option<Vec<Location>> {
        let mut locations = Vec::with_capacity(scopes.len());
        for scope in scopes.iter().rev() {
            let method = self.get(memory, layout, scope.method)?;
            let tier = if locations.is_empty() { tier } else { Tier::Inlined };
            locations.push(method.location(Some(scope.bci), tier));
        }
        Some(locations)
    }
}

fn read<M: ReadMemory>(
    memory: &M,
    layout: &Layout,
    at: u64,
    evidence: &mut Evidence,
) -> Option<Method> {
    let l = &layout.method;
    let pointer =
        |pointer: u64| Some(pointer).filter(|pointer| *pointer != 0 && pointer.is_multiple_of(8));
    let const_method = pointer(evidence.word(memory, at.checked_add(l.const_method.at as u64)?)?)?;
    let constant = evidence.read(memory, const_method, l.const_size)?.to_vec();
    let pool = pointer(l.constants.of(&constant) as u64)?;
    // A class that is redefined gets a constant pool with another serial.
    evidence.read(memory, pool, l.pool_size as usize)?;
    let slot = |index: u16| pool.checked_add(l.pool_size)?.checked_add(8 * u64::from(index));
    let name = evidence.word(memory, slot(l.name_index.of(&constant) as u16)?)? & !3;
    let name = evidence.symbol(memory, layout, name)?;
    let holder = memory.read_u64(pool.checked_add(l.pool_holder)?)?;
    let class = evidence.word(memory, holder.checked_add(l.klass_name)?)?;
    let class = class_name(&evidence.symbol(memory, layout, class)?);
    let file_index = match (l.file_in_pool, l.file_in_holder) {
        (Some(at), _) => half(memory, pool.checked_add(at)?)?,
        (None, Some(at)) => evidence.half(memory, holder.checked_add(at)?)?,
        (None, None) => 0,
    };
    let file = match file_index {
        0 => None,
        index => symbol(memory, layout, memory.read_u64(slot(index)?)? & !3),
    };
    let code_size = u64::from(l.code_size.of(&constant) as u16);
    let bytecode = const_method.checked_add(l.const_size as u64)?;
    let has_lines = l.flags.of(&constant) & 1 != 0;
    let lines = if has_lines {
        lines(memory, layout, bytecode.checked_add(code_size)?)
    } else {
        Vec::new()
    };
    let mut flags = [0; 4];
    memory.read_exact(at.checked_add(l.access_flags.at as u64)?, &mut flags)?;
    Some(Method {
        serial: 0,
        bytecode,
        code_size,
        native: i64::from(u32::from_le_bytes(flags)) & NATIVE != 0,
        name: clean(&format!("{class}.{name}"), NAME_CAP).into(),
        class: clean(&class, NAME_CAP).into(),
        file: file.map(|file| clean(&file, NAME_CAP).into()),
        lines: lines.into(),
    })
}

fn half<M: ReadMemory>(memory: &M, at: u64) -> Option<u16> {
    let mut bytes = [0; 2];
    memory.read_exact(at, &mut bytes)?;
    Some(u16::from_le_bytes(bytes))
}

/// Returns where a `Symbol` has its length and its text.
fn symbol_places(layout: &Layout, at: u64) -> Option<(u64, u64)> {
    let l = &layout.method;
    if at == 0 || !at.is_multiple_of(4) {
        return None;
    }
    let length =
        at.checked_add(l.symbol_length)?.checked_add(if l.symbol_length_shared { 2 } else { 0 })?;
    Some((length, at.checked_add(l.symbol_body)?))
}

/// Reads the text of a `Symbol`.
pub fn symbol<M: ReadMemory>(memory: &M, layout: &Layout, at: u64) -> Option<String> {
    Evidence::default().symbol(memory, layout, at)
}

/// Decodes Java's modified UTF-8. Zeros are two bytes; characters beyond 16 bits are two surrogates
/// of three bytes each.
pub fn modified_utf8(bytes: &[u8]) -> Option<String> {
    if bytes.is_ascii() {
        return String::from_utf8(bytes.to_vec()).ok();
    }
    let (mut units, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((first, more)) = rest.split_first() {
        let continued = |at: usize| {
            more.get(at).filter(|byte| **byte & 0xc0 == 0x80).map(|byte| u16::from(byte & 0x3f))
        };
        let (unit, used) = match first {
            0x00..0x80 => (u16::from(*first), 0),
            0xc0..0xe0 => (u16::from(first & 0x1f) << 6 | continued(0)?, 1),
            0xe0..0xf0 => (u16::from(first & 0x0f) << 12 | continued(0)? << 6 | continued(1)?, 2),
            _ => return None,
        };
        units.push(unit);
        rest = &more[used..];
    }
    Some(String::from_utf16_lossy(&units))
}

/// Reads a compressed line table (src/hotspot/share/code/compressedStream.hpp, oops/method.cpp).
fn lines<M: ReadMemory>(memory: &M, layout: &Layout, at: u64) -> Vec<(u32, u32)> {
    let mut size = 256;
    loop {
        let mut bytes = vec![0; size];
        let read = memory.read(at, &mut bytes);
        bytes.truncate(read);
        match line_table(&bytes, layout.excluded) {
            Some(lines) => return lines,
            None if read < size || size >= LINES_MAX => return Vec::new(),
            None => size *= 4,
        }
    }
}

/// Unpacks a line table; `None` if its end is missing.
fn line_table(bytes: &[u8], excluded: u8) -> Option<Vec<(u32, u32)>> {
    const END: u8 = 0;
    const ESCAPE: u8 = 0xff;
    let mut stream = Unsigned5::new(bytes, excluded);
    let (mut bci, mut line, mut lines) = (0i32, 0i32, Vec::new());
    loop {
        let (step, lines_on) = match stream.byte()? {
            END => break,
            ESCAPE => (stream.signed()?, stream.signed()?),
            byte => (i32::from(byte >> 3), i32::from(byte & 7)),
        };
        (bci, line) = (bci.wrapping_add(step), line.wrapping_add(lines_on));
        if let (Ok(bci), Ok(line)) = (u32::try_from(bci), u32::try_from(line)) {
            lines.push((bci, line));
        }
    }
    lines.sort_by_key(|(bci, _)| *bci);
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_tables_are_unpacked() {
        // bci 3 line 5; by escape back to bci 1 (-2), 100 lines on; end.
        let packed = [3 << 3 | 5, 0xff, 3, 192 + 8, 0, 0];
        assert_eq!(line_table(&packed, 0), Some(vec![(1, 105), (3, 5)]));
        assert_eq!(line_table(&packed[..3], 0), None);
        assert_eq!(line_table(&[0], 1), Some(vec![]));
    }

    #[test]
    fn names_beyond_ascii() {
        assert_eq!(modified_utf8("Größe".as_bytes()).as_deref(), Some("Größe"));
        assert_eq!(modified_utf8(&[0xc0, 0x80]).as_deref(), Some("\0"));
        assert_eq!(modified_utf8(&[0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]).as_deref(), Some("😀"));
        assert_eq!((modified_utf8(&[0xe0, 0x80]), modified_utf8(&[0xff])), (None, None));
    }
}
