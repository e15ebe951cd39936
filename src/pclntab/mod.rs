//! Go's table of functions (`pclntab`): the function of an address, the size of its frame there,
//! and its name, file and line. Every Go program has it, stripped or not, as Go's own garbage
//! collector walks stacks by it.
//!
//! Layouts of Go 1.18 to 1.27 (runtime/symtab.go, cmd/link/internal/ld/pcln.go). The bytes are the
//! target's. So offsets are checked at each use, and each query costs a bounded number of bounded
//! reads.
//!
//! Pure: [`Bytes`] reads from a file or from memory.

mod inline_tree;
pub mod modules;
#[cfg(test)]
pub(crate) mod tests;

pub use inline_tree::{MODULE_TREES, Position};

/// Access to a table's bytes.
pub trait Bytes {
    /// Reads a prefix of `buf` at an offset from the table's first byte; returns its length.
    fn read(&self, offset: u64, buf: &mut [u8]) -> usize;
}

impl Bytes for &[u8] {
    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let length = rest.len().min(buf.len());
        buf[..length].copy_from_slice(&rest[..length]);
        length
    }
}

/// Maximum functions of a table; the largest known programs have about half a million.
const FUNCTIONS_MAX: u64 = 1 << 22;
/// Maximum offset from the table's first byte; offsets in it are 32 bits wide.
const SIZE_MAX: u64 = 1 << 32;
/// Maximum bytes of one function's encoded values (`pcsp`, `pcfile`, `pcln`); the longest in Go's
/// own tools has 20 KB.
const STEPS_MAX: u64 = 256 << 10;
/// Maximum bytes of a name or a path.
const NAME_MAX: usize = 16 << 10;
/// Bytes read at a time.
const PIECE: usize = 64;

/// Index of the word in the module data (`runtime.moduledata`) with the address of the first
/// function.
pub const MODULE_TEXT: u64 = 22;
/// Bytes of a [`Header`].
pub const HEADER: usize = 72;

/// First bytes of a table, by layout; a table is aligned to [`ALIGNMENT`] bytes.
pub const BEGINS: [[u8; 8]; 2] =
    [[0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8], [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]];
pub const ALIGNMENT: usize = 8;

/// The fields of a function's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// Go 1.18 and 1.19.
    Go118,
    /// Go 1.20 and later: with the function's first line.
    Go120,
}

/// The head of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    layout: Layout,
    functions: u64,
    /// Address of the first function; 0 since Go 1.26, where only the module data has it.
    pub text: u64,
    names: u64,
    units: u64,
    files: u64,
    values: u64,
    index: u64,
}

impl Header {
    /// Parses a header; `None` for anything but a table of Go 1.18 or later for x86-64.
    pub fn parse(bytes: &[u8; HEADER]) -> Option<Header> {
        let layout = match BEGINS.iter().position(|begin| bytes.starts_with(begin))? {
            0 => Layout::Go118,
            _ => Layout::Go120,
        };
        let word = |number: usize| {
            u64::from_le_bytes(bytes[8 * number..8 * number + 8].try_into().expect("8 bytes"))
        };
        let header = Header {
            layout,
            functions: word(1),
            text: word(3),
            names: word(4),
            units: word(5),
            files: word(6),
            values: word(7),
            index: word(8),
        };
        let offsets = [
            HEADER as u64,
            header.names,
            header.units,
            header.files,
            header.values,
            header.index,
            SIZE_MAX,
        ];
        // The linker of 1.27 may put the header elsewhere than right before the names, but never
        // behind them.
        let sound = offsets.is_sorted()
            && (1..=FUNCTIONS_MAX).contains(&header.functions)
            && word(2) < SIZE_MAX;
        sound.then_some(header)
    }

    /// Offset of the names from the table's first byte.
    pub fn names(&self) -> u64 {
        self.names
    }
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    pub start: u64,
    pub end: u64,
    name: u32,
    sizes: u32,
    files: u32,
    lines: u32,
    unit: u32,
    /// Offset of its values: `pcdata`, then `funcdata`; and how many each has.
    values: u64,
    pcdata: u32,
    funcdata: u8,
    /// Which of the functions that the runtime knows it is (`funcID`).
    id: u8,
    flags: u8,
}

impl Function {
    /// Whether it has no caller (`TOPFRAME`): `goexit`, `mstart`, `rt0_go`.
    pub fn is_outermost(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether it sets its stack pointer in ways that the table does not follow (`SPWRITE`),
    /// usually to another stack.
    pub fn writes_stack_pointer(&self) -> bool {
        self.flags & 2 != 0
    }
}

/// The functions of a program.
#[derive(Clone, Copy, Debug)]
pub struct Table<B> {
    header: Header,
    text: u64,
    bytes: B,
}

impl<B: Bytes> Table<B> {
    /// Opens a table; `text` is the address of the first function. `None` where the index of
    /// functions is invalid.
    pub fn new(header: Header, text: u64, bytes: B) -> Option<Table<B>> {
        /// Entries that are checked.
        const FIRST: u64 = 5;
        let table = Table { header, text, bytes };
        let mut starts = Vec::new();
        for number in (0..FIRST.min(header.functions)).chain([header.functions]) {
            starts.push(table.start(number)?);
        }
        (starts.is_sorted() && text != 0).then_some(table)
    }

    /// Returns the start of the first function and the end of the last one.
    pub fn range(&self) -> Option<(u64, u64)> {
        Some((
            self.text.checked_add(self.start(0)?)?,
            self.text.checked_add(self.start(self.header.functions)?)?,
        ))
    }

    /// Returns the function that contains `address`.
    pub fn function(&self, address: u64) -> Option<Function> {
        let wanted = address.checked_sub(self.text)?;
        // Finds the last one that begins at or before it.
        let (mut low, mut high) = (0, self.header.functions);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.start(middle)? <= wanted { low = middle } else { high = middle - 1 }
        }
        if low == self.header.functions {
            return None;
        }
        let (start, end) = (self.start(low)?, self.start(low + 1)?);
        if !(start..end).contains(&wanted) {
            return None;
        }
        self.entry(low, start, end)
    }

    /// Returns all functions, in order of their addresses.
    pub fn functions(&self) -> impl Iterator<Item = Function> {
        (0..self.header.functions).filter_map(|number| self.numbered(number))
    }

    /// Returns function `number`.
    fn numbered(&self, number: u64) -> Option<Function> {
        self.entry(number, self.start(number)?, self.start(number + 1)?)
    }

    /// Returns function `number`, which begins at `start` and ends at `end`.
    fn entry(&self, number: u64, start: u64, end: u64) -> Option<Function> {
        let at = u64::from(self.u32(self.header.index + 8 * number + 4)?);
        let mut fields = [0; 44];
        let size = match self.header.layout {
            Layout::Go118 => 40,
            Layout::Go120 => 44,
        };
        self.exactly(self.header.index + at, &mut fields[..size])?;
        let field = |at: usize| u32::from_le_bytes(fields[at..at + 4].try_into().expect("4 bytes"));
        // The entry repeats the start in the index.
        if u64::from(field(0)) != start {
            return None;
        }
        Some(Function {
            start: self.text.checked_add(start)?,
            end: self.text.checked_add(end)?,
            name: field(4),
            sizes: field(16),
            files: field(20),
            lines: field(24),
            unit: field(32),
            values: self.header.index + at + size as u64,
            pcdata: field(28),
            funcdata: fields[size - 1],
            id: fields[size - 4],
            flags: fields[size - 3],
        })
    }

    /// Returns the id of functions that the compiler made to call another one: wrappers of methods,
    /// `go f(x)`. Searches through all functions.
    pub fn wrapper_id(&self) -> Option<u8> {
        /// The functions whose ids are the ones before, in all versions (internal/abi/symtab.go),
        /// and by how much. In Go 1.18 the first has none.
        const BEFORE: [(&[u8], u8); 2] =
            [(b"runtime.systemstack_switch", 1), (b"runtime.systemstack", 2)];
        let by = |function: Function| {
            let name = self.name(&function)?;
            let (_, before) = BEFORE.into_iter().find(|(known, _)| *known == name)?;
            function.id.checked_add(before).filter(|_| function.id > 0)
        };
        self.functions().find_map(by)
    }

    /// Returns the bytes between the stack pointer and the return address at the instruction at
    /// `address` (`pcsp`).
    pub fn frame_size(&self, function: &Function, address: u64) -> Option<u64> {
        let size = self.value(function.sizes, function, address, &mut STEPS_MAX.clone())?;
        u64::try_from(size).ok().filter(|size| size.is_multiple_of(8))
    }

    /// Returns the name, without the calling convention that the linker of Go 1.18 adds in plugins
    /// and in what loads them.
    pub fn name(&self, function: &Function) -> Option<Vec<u8>> {
        const CONVENTIONS: [&[u8]; 2] = [b".abi0", b".abiinternal"];
        let mut name = self.string(self.header.names + u64::from(function.name))?;
        let stripped = CONVENTIONS.iter().find_map(|end| name.strip_suffix(*end)).map(<[u8]>::len);
        name.truncate(stripped.filter(|length| *length > 0).unwrap_or(name.len()));
        Some(name)
    }

    /// Returns source file and line of the instruction at `address`, which may be of a function
    /// that is inlined there.
    fn line_at(&self, function: &Function, address: u64, left: &mut u64) -> Option<(Vec<u8>, u32)> {
        let file = u32::try_from(self.value(function.files, function, address, left)?).ok()?;
        let line = u32::try_from(self.value(function.lines, function, address, left)?).ok()?;
        let entry = u64::from(function.unit) + u64::from(file);
        let path = self.u32(self.header.units + 4 * entry).filter(|path| *path != u32::MAX)?;
        Some((self.string(self.header.files + u64::from(path))?, line))
    }

    /// Returns the start of function `number`, relative to the first; behind the last function, the
    /// end of that.
    fn start(&self, number: u64) -> Option<u64> {
        self.u32(self.header.index + 8 * number).map(u64::from)
    }

    /// Decodes a value that changes from instruction to instruction. It is encoded as pairs of
    /// (change, bytes of code with this value), each a number of 7 bits per byte. It starts at -1.
    /// `left`: bytes that may still be read.
    fn value(&self, steps: u32, function: &Function, address: u64, left: &mut u64) -> Option<i32> {
        // 0 means that there is no such value.
        let first = self.header.values + u64::from(Some(steps).filter(|steps| *steps != 0)?);
        let mut numbers = Numbers {
            table: self,
            at: first,
            end: first + STEPS_MAX.min(*left),
            piece: [0; PIECE],
            used: 0,
            length: 0,
        };
        let value = numbers.value_at(function.start, address);
        *left = left.saturating_sub(numbers.at - first);
        value
    }

    fn u32(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.exactly(at, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    fn exactly(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        (self.bytes.read(at, buf) == buf.len()).then_some(())
    }

    /// Reads a string up to its zero byte. `None` without a zero byte, or for an empty string.
    fn string(&self, at: u64) -> Option<Vec<u8>> {
        let (mut text, mut piece) = (Vec::new(), [0; PIECE]);
        while text.len() < NAME_MAX {
            let length = self.bytes.read(at + text.len() as u64, &mut piece);
            let end = piece[..length].iter().position(|byte| *byte == 0);
            text.extend_from_slice(&piece[..end.unwrap_or(length)]);
            if end.is_some() {
                return Some(text).filter(|text| !text.is_empty());
            }
            if length == 0 {
                break;
            }
        }
        None
    }
}

/// Decodes numbers of 7 bits per byte, the lowest bits first.
struct Numbers<'t, B> {
    table: &'t Table<B>,
    /// Offset of the next piece, and the end of reading.
    at: u64,
    end: u64,
    piece: [u8; PIECE],
    used: usize,
    length: usize,
}

impl<B: Bytes> Numbers<'_, B> {
    /// Returns the value at `address`, of those of a function that begins at `start`.
    fn value_at(&mut self, start: u64, address: u64) -> Option<i32> {
        let (mut value, mut pc) = (-1i32, start);
        loop {
            let change = self.next()?;
            if change == 0 && pc != start {
                return None;
            }
            // Zig-zag: the lowest bit is the sign.
            value = value.wrapping_add((change >> 1) as i32 ^ -((change & 1) as i32));
            pc = pc.checked_add(u64::from(self.next()?))?;
            if address < pc {
                return Some(value);
            }
        }
    }

    fn next(&mut self) -> Option<u32> {
        let mut number = 0u32;
        for shift in (0..32).step_by(7) {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f).wrapping_shl(shift);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        if self.used == self.length {
            if self.at >= self.end {
                return None;
            }
            self.length = self.table.bytes.read(self.at, &mut self.piece);
            self.at += self.length as u64;
            self.used = 0;
        }
        let byte = *self.piece[..self.length].get(self.used)?;
        self.used += 1;
        Some(byte)
    }
}
