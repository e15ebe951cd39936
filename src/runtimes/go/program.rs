//! A Go program in memory: its functions, the places of its variables, and whose code is whose.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::elf::u64_at;
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::go_functions::{is_wrapper, shown};
use crate::model::vocabulary::role::Origin;
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::pclntab::modules::{MAGIC, Modules};
use crate::pclntab::{Function, Header, MODULE_TREES, Table};
use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::{GoTable, InMemory, Role, go_table};

/// Maximum bytes of the table; the largest known programs have about 100 MB.
const TABLE_MAX: u64 = 256 << 20;
/// Maximum files that are searched for a table.
const FILES_MAX: usize = 64;
/// Maximum bytes of data that are searched for the module data.
const DATA_MAX: u64 = 128 << 20;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// Bytes of the build information that are read, and of data before it.
const INFORMATION: usize = 256 << 10;
const INFORMATION_WITHIN: usize = 64 << 10;
/// Maximum bytes of a function whose operands are searched.
const CODE_MAX: u64 = 16 << 10;
/// Index of the word in the module data with the end of code; see [`crate::pclntab::MODULE_TEXT`].
const MODULE_CODE_END: u64 = 23;

/// Maximum words of a module's data that are searched for the next module.
const MODULE_WORDS: usize = 128;

/// A Go program.
pub struct Program<M> {
    pub memory: M,
    /// The program itself, and plugins.
    files: Vec<GoFile>,
    /// Writable memory of the program itself: initialised and other variables.
    data: Vec<Mapping>,
    functions: OnceCell<Vec<(Vec<u8>, u64)>>,
}

/// A file with Go's code.
struct GoFile {
    name: Arc<str>,
    /// Address of its module data.
    module_data: u64,
    header: Header,
    /// Address of the first function.
    text: u64,
    /// Address of the table.
    at: u64,
    /// The table.
    bytes: Vec<u8>,
    /// Address from which offsets of inlined functions count.
    trees: Option<u64>,
    /// End of its code.
    code_end: u64,
    modules: Modules,
    /// See [`Table::wrapper_id`].
    wrapper_id: Option<u8>,
}

/// How a frame is left, and what is in it.
pub struct Frame {
    /// Bytes from the stack pointer to the return address.
    pub size: Option<u64>,
    pub role: Role,
    /// The functions, the innermost first; without those that the compiler made.
    pub locations: Vec<(Location, Origin)>,
}

impl<M: ReadMemory> Program<M> {
    /// Finds the program that a process executes.
    pub fn find(memory: M, maps: &Maps, pid: u32) -> Option<Program<M>> {
        let is_code = |mapping: &&Mapping| mapping.executable && mapping.backing == Backing::File;
        let mut code = maps.iter().filter(is_code).take(FILES_MAX);
        let (own, found) =
            code.find_map(|code| Some((code, go_table(&memory, maps, code, pid)?)))?;
        let mut files = vec![GoFile::read(&memory, maps, own, found)?];
        // Other libraries in Go have a runtime of their own.
        let mut others: Vec<GoFile> = code
            .filter_map(|code| {
                GoFile::read(&memory, maps, code, go_table(&memory, maps, code, pid)?)
            })
            .collect();
        while let Some(last) = files.last() {
            let next = last.linked(&memory);
            let Some(at) = others.iter().position(|file| next.contains(&file.module_data)) else {
                break;
            };
            files.push(others.swap_remove(at));
        }
        let data = data_of(maps, own).cloned().collect();
        Some(Program { memory, files, data, functions: OnceCell::new() })
    }

    /// Returns of each table the header, the address of the first function and its own address; and
    /// the program's memory.
    pub fn into_tables(self) -> (Vec<(Header, u64, u64)>, M) {
        let tables = self.files.iter().map(|file| (file.header, file.text, file.at));
        (tables.collect(), self.memory)
    }

    /// Returns the file whose code an address is in.
    fn file(&self, address: u64) -> Option<&GoFile> {
        self.files.iter().find(|file| file.is_code(address))
    }

    /// Whether an address is in its code.
    pub fn is_code(&self, address: u64) -> bool {
        self.file(address).is_some()
    }

    /// Whether a function begins at an address.
    pub fn is_start(&self, address: u64) -> bool {
        let function = self.file(address).and_then(|file| file.table()?.function(address));
        function.is_some_and(|function| function.start == address)
    }

    /// Returns the frame of the code at `pc`; `exact`: it is executing, otherwise it is a return
    /// address.
    pub fn frame(&self, pc: u64, exact: bool) -> Option<Frame> {
        let address = if exact { pc } else { pc.checked_sub(1)? };
        let file = self.file(address)?;
        let table = file.table()?;
        let function = table.function(address)?;
        let name = table.name(&function)?;
        let role = Role::of(&name, function.is_outermost(), function.writes_stack_pointer());
        let size = table.frame_size(&function, address);
        let locations = file.locations(&self.memory, &table, &function, address);
        Some(Frame { size, role, locations })
    }

    /// Returns the functions at a return address, the innermost first.
    pub fn locations_before(&self, pc: u64) -> Vec<(Location, Origin)> {
        let found = || {
            let address = pc.checked_sub(1)?;
            let file = self.file(address)?;
            let table = file.table()?;
            Some(file.locations(&self.memory, &table, &table.function(address)?, address))
        };
        found().unwrap_or_default()
    }

    /// Returns addresses that the code of functions with this name refers to: the end of an
    /// instruction, and a distance of 32 bits right before it. Others may be among them.
    pub fn referred_by(&self, function: &str) -> Vec<u64> {
        const DISTANCE: usize = 4;
        let mut found = Vec::new();
        for (start, code) in self.code_of(function) {
            for (at, distance) in code.windows(DISTANCE).enumerate() {
                let distance = i32::from_le_bytes(distance.try_into().expect("4 bytes"));
                let next = start.wrapping_add((at + DISTANCE) as u64);
                let target = next.wrapping_add_signed(distance.into());
                if target % 8 == 0 && self.data.iter().any(|data| data.contains(target)) {
                    found.push(target);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns where functions with this name begin, and the beginning of their code.
    pub fn code_of(&self, function: &str) -> Vec<(u64, Vec<u8>)> {
        let read = |(start, end): (u64, u64)| {
            let mut code = vec![0; (end - start).min(CODE_MAX) as usize];
            let count = self.memory.read(start, &mut code);
            code.truncate(count);
            (start, code)
        };
        self.named(function).into_iter().map(read).collect()
    }

    /// Returns whether the program has a function with this name.
    pub fn has_function(&self, function: &str) -> bool {
        !self.named(function).is_empty()
    }

    /// Returns start and end of the program's own functions with this name.
    fn named(&self, name: &str) -> Vec<(u64, u64)> {
        let Some(table) = self.files.first().and_then(GoFile::table) else { return Vec::new() };
        let functions = self.functions.get_or_init(|| {
            table.functions().filter_map(|f| Some((table.name(&f)?, f.start))).collect()
        });
        let of_name = functions.iter().filter(|(own, _)| own == name.as_bytes());
        let whole = |(_, start): &(Vec<u8>, u64)| {
            table.function(*start).map(|function| (function.start, function.end))
        };
        of_name.filter_map(whole).collect()
    }
}

impl GoFile {
    /// Reads the file whose code is mapped at `code`.
    fn read(
        memory: &impl ReadMemory,
        maps: &Maps,
        code: &Mapping,
        found: GoTable,
    ) -> Option<GoFile> {
        let name = code.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let data: Vec<Mapping> = data_of(maps, code).cloned().collect();
        // It may lie across mappings: a part of it can be protected later.
        let end = maps.loaded_with(code).last().map_or(code.end, |last| last.end);
        let size = end.checked_sub(found.at)?.min(TABLE_MAX);
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let count = memory.read(found.at, &mut bytes);
        bytes.truncate(count);
        let table = Table::new(found.header, found.text, &bytes[..])?;
        let begin = found.at.checked_add(found.header.names())?;
        let module_data = find_module_data(memory, &data, found.at, begin)?;
        let word = |index: u64| memory.read_u64(module_data.checked_add(8 * index)?);
        let code_end = word(MODULE_CODE_END).filter(|end| *end > found.text)?;
        let trees = MODULE_TREES.into_iter().find_map(|index| {
            let at = word(index)?;
            table.fits(&InMemory { memory, at }).then_some(at)
        });
        Some(GoFile {
            name: name.unwrap_or_default().into(),
            module_data,
            header: found.header,
            text: found.text,
            at: found.at,
            trees,
            code_end,
            modules: find_modules(memory, &data),
            wrapper_id: table.wrapper_id(),
            bytes,
        })
    }

    /// Returns the words of its module data: one of them refers to that of the next file. Which one
    /// depends on the version.
    fn linked(&self, memory: &impl ReadMemory) -> Vec<u64> {
        let mut bytes = [0; 8 * MODULE_WORDS];
        let count = memory.read(self.module_data, &mut bytes);
        bytes[..count].chunks_exact(8).filter_map(|word| u64_at(word, 0)).collect()
    }

    fn table(&self) -> Option<Table<&[u8]>> {
        Table::new(self.header, self.text, &self.bytes)
    }

    fn is_code(&self, address: u64) -> bool {
        (self.text..self.code_end).contains(&address)
    }

    fn locations(
        &self,
        memory: &impl ReadMemory,
        table: &Table<&[u8]>,
        function: &Function,
        address: u64,
    ) -> Vec<(Location, Origin)> {
        let trees = self.trees.map(|at| InMemory { memory, at });
        let positions = table.positions(function, address, trees.as_ref()).unwrap_or_default();
        let text = |raw: Vec<u8>| clean_bytes(&raw, NAME_CAP);
        let mut found: Vec<(Location, Origin)> = Vec::new();
        for (depth, position) in positions.into_iter().enumerate() {
            let function = shown(&text(position.name));
            let (file, line) = position.line.map(|(file, line)| (text(file), line)).unzip();
            let is_made = match self.wrapper_id {
                Some(wrapper) => position.id == wrapper,
                None => is_wrapper(&function, file.as_deref()),
            };
            if is_made {
                continue;
            }
            let origin = self.modules.origin(&function);
            let location = Location {
                function: function.into(),
                module: self.name.clone(),
                file: file.map(Into::into),
                line: line.filter(|line| *line > 0),
                kind: FrameKind::Native,
                tier: (depth > 0).then_some(Tier::Inlined),
            };
            found.push((location, origin));
        }
        found.reverse();
        found
    }
}

/// Returns the writable memory of the file whose code is `code`, and what follows it directly:
/// variables without a first value are in memory without a file.
fn data_of<'m>(maps: &'m Maps, code: &Mapping) -> impl Iterator<Item = &'m Mapping> {
    let loaded = maps.loaded_with(code);
    let end = loaded.last().map_or(code.end, |last| last.end);
    let behind = maps.find(end).filter(|mapping| mapping.backing != Backing::File);
    loaded.iter().chain(behind).filter(|mapping| mapping.writable && mapping.readable)
}

/// Finds the module data (`runtime.moduledata`): it begins with the addresses of the table and of
/// its names.
fn find_module_data(
    memory: &impl ReadMemory,
    data: &[Mapping],
    table: u64,
    names: u64,
) -> Option<u64> {
    let wanted = [table.to_le_bytes(), names.to_le_bytes()].concat();
    let mut left = DATA_MAX;
    for mapping in data {
        let mut at = mapping.start;
        while at < mapping.end && left > 0 {
            // A piece overlaps the next one by a word.
            let length = (mapping.end - at).min(PIECE as u64 + 8).min(left.max(16));
            let mut bytes = vec![0; length as usize];
            let count = memory.read(at, &mut bytes);
            let words = bytes[..count].windows(16).step_by(8);
            if let Some(found) = words.into_iter().position(|word| word == wanted) {
                return Some(at + 8 * found as u64);
            }
            at += PIECE as u64;
            left = left.saturating_sub(PIECE as u64);
        }
    }
    None
}

/// Finds the build information, which lies at the beginning of data (debug/buildinfo).
fn find_modules(memory: &impl ReadMemory, data: &[Mapping]) -> Modules {
    const ALIGNMENT: usize = 16;
    for mapping in data {
        let length = (mapping.end - mapping.start).min((INFORMATION_WITHIN + INFORMATION) as u64);
        let mut bytes = vec![0; length as usize];
        let count = memory.read(mapping.start, &mut bytes);
        let bytes = &bytes[..count];
        let within = &bytes[..count.min(INFORMATION_WITHIN)];
        let found = within.chunks(ALIGNMENT).position(|chunk| chunk.starts_with(MAGIC));
        if let Some(found) = found {
            return Modules::parse(&bytes[found * ALIGNMENT..]);
        }
    }
    Modules::default()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::pclntab::HEADER;

    /// Returns a program with this table, whose writable memory is a page at `data`.
    pub fn made_up<M: ReadMemory>(memory: M, table: Vec<u8>, data: u64) -> Program<M> {
        let header = Header::parse(table[..HEADER].try_into().expect("72 bytes")).expect("a head");
        let maps = format!("{data:x}-{:x} rw-p 00000000 00:00 0\n", data + 0x1000);
        let file = GoFile {
            name: "shop".into(),
            module_data: 0,
            header,
            text: header.text,
            at: 0,
            bytes: table,
            trees: None,
            code_end: header.text + 0x60,
            modules: Modules::default(),
            wrapper_id: None,
        };
        Program {
            memory,
            files: vec![file],
            data: Maps::parse(maps.as_bytes()).iter().cloned().collect(),
            functions: OnceCell::new(),
        }
    }

    struct At(u64, Vec<u8>);

    impl ReadMemory for At {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            let into = address.checked_sub(self.0).and_then(|at| self.1.get(at as usize..));
            let rest = into.unwrap_or(&[]);
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            count
        }
    }

    #[test]
    fn the_module_data_is_found_wherever_it_lies() {
        let maps = Maps::parse(b"100000-400000 rw-p 00000000 00:00 0\n");
        let data: Vec<Mapping> = maps.iter().cloned().collect();
        for at in [0, 8, PIECE - 8, PIECE, 2 * PIECE - 16, 3 * PIECE - 16] {
            let mut bytes = vec![0; 3 * PIECE];
            bytes[at..at + 8].copy_from_slice(&77u64.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&88u64.to_le_bytes());
            let memory = At(0x10_0000, bytes);
            let found = find_module_data(&memory, &data, 77, 88);
            assert_eq!(found, Some(0x10_0000 + at as u64));
            assert_eq!(find_module_data(&memory, &data, 77, 89), None);
        }
    }
}
