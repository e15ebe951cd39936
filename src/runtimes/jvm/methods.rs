//! `Method` objects: names, files and lines of Java methods.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::tables::{FrameKind, Location, Tier};
use crate::model::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::layout::Layout;
use crate::runtimes::jvm::scopes::Scope;
use crate::runtimes::jvm::unsigned5::Unsigned5;

/// Methods remembered.
const METHODS_MAX: usize = 100_000;
/// Bytes of a line table that are read; a method of 64 KiB has at most twice that.
const LINES_MAX: usize = 256 << 10;
/// Bytes of a class or method name.
const SYMBOL_MAX: usize = 16 << 10;
/// JVM_ACC_NATIVE of the access flags.
const NATIVE: i64 = 0x100;

/// What is known of a method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its `ConstMethod`: another one says that the method was redefined, or that another lies in its place.
    const_method: u64,
    /// Where its bytecode is.
    pub bytecode: u64,
    pub code_size: u64,
    pub native: bool,
    /// `package.Class.method`
    pub name: Arc<str>,
    /// `package.Class`
    pub class: Arc<str>,
    file: Option<Arc<str>>,
    /// Bytecode index and line, in the order of the former.
    lines: Arc<[(u32, u32)]>,
}

impl Method {
    /// The line at a bytecode index: of the first entry that is exactly there, else of the last before it, as HotSpot has it.
    pub fn line(&self, bci: i32) -> Option<u32> {
        let bci = u32::try_from(bci.max(0)).ok()?;
        let at = self.lines.partition_point(|(from, _)| *from < bci);
        let exact = self.lines.get(at).filter(|(from, _)| *from == bci);
        exact.or_else(|| self.lines.get(at.checked_sub(1)?)).map(|(_, line)| *line)
    }

    pub fn location(&self, bci: i32, tier: Tier) -> Location {
        let tier = if self.native { Tier::Native } else { tier };
        Location {
            function: self.name.clone(),
            module: self.class.clone(),
            file: self.file.clone(),
            line: if self.native { None } else { self.line(bci) },
            kind: FrameKind::Java,
            tier: Some(tier),
        }
    }
}

/// Methods that were met.
#[derive(Default)]
pub struct Methods {
    known: FxHashMap<u64, Arc<Method>>,
}

impl Methods {
    /// The method at this address; `None` for what is none.
    pub fn get<M: ReadMemory>(&mut self, memory: &M, layout: &Layout, at: u64) -> Option<Arc<Method>> {
        if at == 0 || !at.is_multiple_of(8) {
            return None;
        }
        let l = &layout.method;
        let const_method = memory.read_u64(at.checked_add(l.const_method.at as u64)?)?;
        if let Some(known) = self.known.get(&at).filter(|known| known.const_method == const_method) {
            return Some(known.clone());
        }
        let method = Arc::new(read(memory, layout, at, const_method)?);
        if self.known.len() >= METHODS_MAX {
            self.known.clear();
        }
        self.known.insert(at, method.clone());
        Some(method)
    }

    /// What compiled code is: `scopes` innermost first, as locations outermost first.
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
            locations.push(method.location(scope.bci, tier));
        }
        Some(locations)
    }
}

fn read<M: ReadMemory>(memory: &M, layout: &Layout, at: u64, const_method: u64) -> Option<Method> {
    let l = &layout.method;
    if const_method == 0 || !const_method.is_multiple_of(8) {
        return None;
    }
    let mut object = vec![0; l.size];
    memory.read_exact(at, &mut object)?;
    let mut constant = vec![0; l.const_size];
    memory.read_exact(const_method, &mut constant)?;
    let pool = l.constants.of(&constant) as u64;
    if pool == 0 || !pool.is_multiple_of(8) {
        return None;
    }
    let symbol = |index: u16| {
        let slot = pool.checked_add(l.pool_size)?.checked_add(8 * u64::from(index))?;
        symbol(memory, layout, memory.read_u64(slot)? & !3)
    };
    let name = symbol(l.name_index.of(&constant) as u16)?;
    let holder = memory.read_u64(pool.checked_add(l.pool_holder)?)?;
    let class = self::symbol(memory, layout, memory.read_u64(holder.checked_add(l.klass_name)?)?)?;
    let file_index = match (l.file_in_pool, l.file_in_holder) {
        (Some(at), _) => half(memory, pool.checked_add(at)?)?,
        (None, Some(at)) => half(memory, holder.checked_add(at)?)?,
        (None, None) => 0,
    };
    let file = if file_index == 0 { None } else { symbol(file_index) };
    let code_size = u64::from(l.code_size.of(&constant) as u16);
    let bytecode = const_method.checked_add(l.const_size as u64)?;
    let has_lines = l.flags.of(&constant) & 1 != 0;
    let lines = if has_lines { lines(memory, layout, bytecode.checked_add(code_size)?) } else { Vec::new() };
    let class = class_name(&class);
    Some(Method {
        const_method,
        bytecode,
        code_size,
        native: l.access_flags.of(&object) & NATIVE != 0,
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

/// The text of a `Symbol`.
pub fn symbol<M: ReadMemory>(memory: &M, layout: &Layout, at: u64) -> Option<String> {
    let l = &layout.method;
    if at == 0 || !at.is_multiple_of(4) {
        return None;
    }
    let length_at = at.checked_add(l.symbol_length)?.checked_add(if l.symbol_length_shared { 2 } else { 0 })?;
    let length = usize::from(half(memory, length_at)?);
    if length > SYMBOL_MAX {
        return None;
    }
    let mut bytes = vec![0; length];
    memory.read_exact(at.checked_add(l.symbol_body)?, &mut bytes)?;
    modified_utf8(&bytes)
}

/// Java's own encoding: zeros are two bytes, and characters beyond 16 bits two surrogates of three bytes each.
pub fn modified_utf8(bytes: &[u8]) -> Option<String> {
    if bytes.is_ascii() {
        return String::from_utf8(bytes.to_vec()).ok();
    }
    let (mut units, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((first, more)) = rest.split_first() {
        let continued =
            |at: usize| more.get(at).filter(|byte| **byte & 0xc0 == 0x80).map(|byte| u16::from(byte & 0x3f));
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

/// As Java writes it, and the same from run to run: numbers of generated classes are left out.
pub fn class_name(symbol: &str) -> String {
    // Hidden classes have their address behind a plus: Foo$$Lambda+0x00007f...
    let hidden = symbol.split_once('+').map(|(name, _)| name);
    let name = hidden.unwrap_or(symbol).replace('/', ".");
    for generated in ["$$Lambda$", "GeneratedMethodAccessor", "GeneratedConstructorAccessor", "$$FastClassByCGLIB$$"] {
        if let Some((before, after)) = name.split_once(generated)
            && after.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".$".contains(&byte))
        {
            return format!("{before}{}", generated.trim_end_matches('$'));
        }
    }
    name
}

/// The compressed line table (src/hotspot/share/code/compressedStream.hpp, oops/method.cpp).
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

/// `None` if its end is not there.
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
    fn classes_are_called_the_same_in_every_run() {
        let cases = [
            ("java/lang/Thread", "java.lang.Thread"),
            ("Foo$$Lambda+0x00007f1e", "Foo$$Lambda"),
            ("p/Foo$$Lambda$14/0x0000000800c03000", "p.Foo$$Lambda"),
            ("Foo$$Lambda$1", "Foo$$Lambda"),
            ("jdk/internal/reflect/GeneratedMethodAccessor17", "jdk.internal.reflect.GeneratedMethodAccessor"),
            ("a/B$C", "a.B$C"),
        ];
        for (symbol, name) in cases {
            assert_eq!(class_name(symbol), name);
        }
    }

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
