//! Go frames: they are described by Go's own table, `pclntab`, instead of `.eh_frame`.
//!
//! Goroutines have stacks of their own. Some functions switch to the stack of the thread (`g0`) in
//! assembly, so the table does not say where the caller is. [`Role`] identifies these functions by
//! their names in the table (runtime/asm_amd64.s and sys_linux_amd64.s of Go 1.18 to 1.27).

use std::os::unix::fs::FileExt;

use crate::pclntab::{ALIGNMENT, BEGINS, Bytes, HEADER, Header, MODULE_TEXT, Table};
use crate::process::maps::{Backing, Mapping};
use crate::process::memory::ReadMemory;
use crate::process::target_files::open_mapped;
use crate::unwinder::framehop::unwind_tables::{Context, READ};

/// How to leave the frame of a Go function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoFrame {
    /// Bytes from the stack pointer to the return address, from the table.
    pub size: u64,
    /// Start of the function.
    pub start: u64,
    pub role: Role,
}

/// How a function uses stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Plain,
    /// It has no caller.
    Outermost,
    /// Calls a function at the bottom of the thread's stack and does not return: the goroutine it
    /// came from is parked.
    Bottom,
    /// Calls a function at the bottom of the thread's stack, for its caller on a goroutine's stack.
    SystemStack,
    /// Calls C at the bottom of the thread's stack, for its caller on a goroutine's stack.
    Cgo,
    /// Its return address is an instruction that made no call: the runtime injected the call.
    Injected,
    /// It was called by C. Its return address on the goroutine's stack is injected too: the frames
    /// of C lie on the thread's stack.
    Callback,
    /// Sets the stack pointer for other reasons, such as a call of the vDSO on the thread's stack.
    Switches,
}

impl Role {
    pub fn of(name: &[u8], outermost: bool, writes: bool) -> Role {
        match name {
            b"runtime.mcall" | b"runtime.morestack" => Role::Bottom,
            b"runtime.systemstack" => Role::SystemStack,
            b"runtime.asmcgocall" => Role::Cgo,
            b"runtime.sigpanic" | b"runtime.asyncPreempt" => Role::Injected,
            // The caller that it sets up is at `asmcgocall`'s apparent position.
            b"runtime.cgocallback" => Role::Callback,
            // The kernel called it, and left a frame of its own.
            b"runtime.sigtramp" => Role::Plain,
            _ if outermost => Role::Outermost,
            _ if writes => Role::Switches,
            _ => Role::Plain,
        }
    }
}

/// The table of one image.
#[derive(Clone, Copy, Debug)]
pub struct GoTable {
    pub header: Header,
    /// Address of the first function.
    pub text: u64,
    /// Address of the table.
    pub at: u64,
}

/// The target's memory from an address on.
pub struct InMemory<'m, M> {
    pub memory: &'m M,
    pub at: u64,
}

impl<M: ReadMemory> Bytes for InMemory<'_, M> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.at.checked_add(offset).map_or(0, |at| self.memory.read(at, buf))
    }
}

/// Maximum section headers of a file that are searched for the table.
const SECTIONS_MAX: u64 = 4096;
const NAMES_MAX: u64 = 1 << 20;
/// Maximum bytes of memory that are searched for the table where there are no section headers.
const SCANNED_MAX: u64 = 128 << 20;
const SCANNED_AT_ONCE: u64 = 1 << 20;

/// Properties of an image from its headers.
pub struct Loaded {
    /// Difference between addresses in the process and in the file.
    pub bias: u64,
    /// It has the note of Go's linker, or no unwind tables.
    pub likely: bool,
    /// It is a program, not a library.
    pub program: bool,
    /// Address and size, in the process, of code and of the other segments.
    pub code: Vec<(u64, u64)>,
    pub data: Vec<(u64, u64)>,
}

impl Loaded {
    fn is_code(&self, address: u64) -> bool {
        self.code
            .iter()
            .any(|(start, size)| address.checked_sub(*start).is_some_and(|into| into < *size))
    }
}

impl GoTable {
    /// Finds the table of an image; `mapping` is a piece of its code.
    pub fn find(
        memory: &impl ReadMemory,
        loaded: &Loaded,
        mapping: &Mapping,
        pid: u32,
    ) -> Option<GoTable> {
        // Go's linker writes a note of its own unless told not to, and unwind tables only if there
        // is C code too. So libraries of other languages are recognised without opening a file.
        if !loaded.likely && !loaded.program {
            return None;
        }
        let (at, module) = match in_sections(mapping, pid) {
            Some((at, module)) => (
                loaded.bias.wrapping_add(at),
                module.map(|module| loaded.bias.wrapping_add(module)),
            ),
            None if loaded.likely => (scan(memory, &loaded.data)?, None),
            None => return None,
        };
        let mut bytes = [0; HEADER];
        memory.read_exact(at, &mut bytes)?;
        let header = Header::parse(&bytes)?;
        let in_module = || memory.read_u64(module?.checked_add(8 * MODULE_TEXT)?);
        let text = Some(header.text).filter(|text| loaded.is_code(*text)).or_else(in_module)?;
        let table = GoTable { header, text, at };
        let (start, end) = table.open(memory)?.range()?;
        let code = loaded.is_code(start) && loaded.is_code(end.wrapping_sub(1));
        code.then_some(table)
    }

    fn open<'m, M: ReadMemory>(&self, memory: &'m M) -> Option<Table<InMemory<'m, M>>> {
        Table::new(self.header, self.text, InMemory { memory, at: self.at })
    }

    /// Returns how to leave the frame whose code is at `address`.
    pub fn frame(
        &self,
        memory: &impl ReadMemory,
        address: u64,
        context: &mut Context,
    ) -> Option<GoFrame> {
        /// Small reads of one look-up: a binary search of the index, and three pieces.
        const READS: usize = 40;
        context.spend(READS * READ)?;
        let table = self.open(memory)?;
        let function = table.function(address)?;
        let name = table.name(&function)?;
        let role = Role::of(&name, function.is_outermost(), function.writes_stack_pointer());
        let size = match role {
            // Its size is not used.
            Role::Outermost => 0,
            _ => table.frame_size(&function, address)?,
        };
        Some(GoFrame { size, start: function.start, role })
    }
}

/// Finds the table by the section headers of the file: addresses of the table, and of the module
/// data if that is a section.
fn in_sections(mapping: &Mapping, pid: u32) -> Option<(u64, Option<u64>)> {
    if mapping.backing != Backing::File {
        return None;
    }
    let file = open_mapped(&mapping.mapped_file(pid)).ok()?;
    let read = |at, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    };
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let header = read(0, 64)?;
    let (at, size, count) =
        (number(&header, 40, 8), number(&header, 58, 2), number(&header, 60, 2));
    let names = number(&header, 62, 2);
    if size != 64 || count > SECTIONS_MAX || names >= count {
        return None;
    }
    let table = read(at, 64 * count)?;
    let section = |index: u64| &table[64 * index as usize..64 * (index as usize + 1)];
    let length = number(section(names), 32, 8);
    let names = read(number(section(names), 24, 8), length.min(NAMES_MAX))?;
    let address = |wanted: &[u8]| {
        let found = (0..count).find(|index| {
            let name = names.get(number(section(*index), 0, 4) as usize..);
            name.and_then(|name| name.strip_prefix(wanted))
                .is_some_and(|rest| rest.first() == Some(&0))
        });
        found.map(|index| number(section(index), 16, 8))
    };
    let table = address(b".gopclntab").or_else(|| address(b".data.rel.ro.gopclntab"))?;
    Some((table, address(b".go.module")))
}

/// Searches the table by its first bytes, in loaded segments without code.
fn scan(memory: &impl ReadMemory, data: &[(u64, u64)]) -> Option<u64> {
    let mut left = SCANNED_MAX;
    for (start, size) in data {
        let (mut at, end) = (*start, start.checked_add(*size)?);
        while at < end && left > 0 {
            let length = SCANNED_AT_ONCE.min(end - at).min(left);
            let mut bytes = vec![0; length as usize];
            let read = memory.read(at, &mut bytes);
            // Pieces begin at multiples of the alignment, as segments do.
            let first = at.next_multiple_of(ALIGNMENT as u64) - at;
            let words = bytes[..read].get(first as usize..).unwrap_or(&[]).chunks_exact(ALIGNMENT);
            for (number, word) in words.enumerate() {
                if BEGINS.iter().any(|begin| word == begin) {
                    let found = at + first + (number * ALIGNMENT) as u64;
                    let mut header = [0; HEADER];
                    if memory.read_exact(found, &mut header).is_some()
                        && Header::parse(&header).is_some()
                    {
                        return Some(found);
                    }
                }
            }
            at += length;
            left -= length;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_leave_a_stack_are_known_by_name_whatever_the_table_says() {
        for (name, role) in [
            ("mcall", Role::Bottom),
            ("morestack", Role::Bottom),
            ("systemstack", Role::SystemStack),
            ("asmcgocall", Role::Cgo),
            ("sigpanic", Role::Injected),
            ("asyncPreempt", Role::Injected),
            ("cgocallback", Role::Callback),
            ("sigtramp", Role::Plain),
        ] {
            for (outermost, writes) in [(false, false), (true, true)] {
                assert_eq!(
                    Role::of(format!("runtime.{name}").as_bytes(), outermost, writes),
                    role,
                    "{name}"
                );
            }
        }
        let of = |outermost, writes| Role::of(b"main.mcall", outermost, writes);
        assert_eq!(
            [of(false, false), of(false, true), of(true, true)],
            [Role::Plain, Role::Switches, Role::Outermost]
        );
    }
}
