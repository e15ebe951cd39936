//! The instructions of a function, from the bytes of its file.
//!
//! The range comes from the symbol table, from Go's table of functions, or from the unwind table.
//! The bytes are untrusted: they may be data, and the range may be wrong. So the number of decoded
//! and of formatted instructions is bounded. x86-64 only.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, Mnemonic, OpKind};

use super::debugfile::{Root, SearchPath};
use super::file_symbols::{FileNames, FunctionRange, Trust};
use super::worker::guarded;
use crate::elf::{EM_X86_64, Elf, hex};
use crate::model::vocabulary::text::clean;
use crate::process::filebytes::{FileBytes, Version};
use crate::process::mapped_files::{FileKind, MappedFile};
use crate::process::target_files::open_mapped;

/// Maximum instructions of a listing; of a longer function those around a given place.
pub const INSTRUCTIONS_MAX: usize = 10_000;
/// Maximum bytes of a function that are decoded to find those: 0.1 s.
const BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of the name of a called function.
const NAME_MAX: usize = 200;

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Offset in the file, and length, bytes.
    pub offset: u64,
    pub len: u8,
    /// ELF virtual address, as other tools show it.
    pub address: u64,
    /// In the syntax of binutils, with the name of what it calls: `call 0x1040 <memcpy@plt>`.
    pub text: String,
}

/// The instructions of a function, in the order of their addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disassembly {
    /// The function as its file names it; empty where it has no name. In words where it is not
    /// even known whether it is one function.
    pub function: String,
    pub list: Vec<Listed>,
    /// The function has more instructions.
    pub is_cut: bool,
}

const NOT_IN_A_FILE: &str =
    "this code was made at run time: it is in no file whose instructions could be shown";
const UNREADABLE: &str = "its file is damaged, or it has changed since it was mapped";

/// Disassembles the function of a mapped file around an offset. One sentence where that cannot be.
/// May block where the file system does.
pub fn disassemble_mapped(file: &MappedFile, offset: u64) -> Result<Disassembly, String> {
    match file.kind {
        FileKind::Anonymous => Err(NOT_IN_A_FILE.into()),
        FileKind::Vdso => disassemble(|| FileNames::vdso("[vdso]"), offset),
        FileKind::Regular => {
            let shown = clean(&file.path.to_string_lossy(), NAME_MAX).into_owned();
            let opened = open_mapped(file).map_err(|error| format!("{shown}: {error}"))?;
            let root = Root::of(file.pid).ok().flatten();
            disassemble_beneath(opened, &file.path, root.as_ref(), offset)
        }
    }
}

/// Does the same with an open file of this machine. `path`: where it is, to find its debug file.
pub fn disassemble_file(file: File, path: &Path, offset: u64) -> Result<Disassembly, String> {
    disassemble_beneath(file, path, None, offset)
}

/// `root`: that of the process, if it is not this machine's.
fn disassemble_beneath(
    file: File,
    path: &Path,
    root: Option<&Root>,
    offset: u64,
) -> Result<Disassembly, String> {
    let version = Version::of(&file).map_err(|error| error.to_string())?;
    let host = Root::host().ok();
    let roots: Vec<&Root> = root.into_iter().chain(&host).collect();
    let search = SearchPath::default();
    let open = || FileNames::open("", file, version, path, &roots, &search, Trust::Full).ok();
    disassemble(open, offset)
}

/// Does the same with a whole file in memory.
pub fn disassemble_image(image: Vec<u8>, offset: u64) -> Result<Disassembly, String> {
    disassemble(|| FileNames::of_image("", image), offset)
}

/// Returns whether an open ELF file has this build id, in hexadecimal digits.
pub fn has_build_id(file: &File, build: &str) -> bool {
    let Ok(bytes) = file.try_clone().and_then(FileBytes::map) else { return false };
    let id = || Some(hex(Elf::parse(bytes.bytes())?.build_id()?));
    guarded(id).is_ok_and(|id| id.as_deref() == Some(build)) && bytes.unchanged()
}

fn disassemble(
    open: impl FnOnce() -> Option<FileNames>,
    offset: u64,
) -> Result<Disassembly, String> {
    let work = || {
        let names = open().ok_or(UNREADABLE)?;
        let found = of_file(&names, offset)?;
        if names.unchanged() { Ok(found) } else { Err(UNREADABLE) }
    };
    guarded(work).unwrap_or(Err(UNREADABLE)).map_err(str::to_owned)
}

fn of_file(names: &FileNames, offset: u64) -> Result<Disassembly, &'static str> {
    if names.elf().machine != EM_X86_64 {
        return Err("instructions are shown of x86-64 programs only");
    }
    let address = names.elf().address_of(offset);
    let address = address.ok_or("the file has no code at that place")?;
    let found = names.function_range(address).ok_or("the file has no function at that place")?;
    let FunctionRange { range, name } = found;
    let code = names.code_at(range.start);
    let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let code = &code[..code.len().min(size)];
    // Instructions have no fixed length, so they can only be told from the start.
    let code = &code[..code.len().min(BYTES_MAX)];
    if address - range.start >= code.len() as u64 {
        return Err("this function is too long to be shown");
    }
    let (from, is_cut) = first_listed(code, address - range.start);
    let start = range.start + from as u64;
    let mut decoder = Decoder::with_ip(64, &code[from..], start, DecoderOptions::NONE);
    let mut writer = Writer::new(names, range.clone());
    let mut list = Vec::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() && list.len() < INSTRUCTIONS_MAX {
        decoder.decode_out(&mut instruction);
        list.push(Listed {
            offset: offset.wrapping_add(instruction.ip()).wrapping_sub(address),
            len: instruction.len() as u8,
            address: instruction.ip(),
            text: writer.text(&instruction),
        });
    }
    let is_cut = is_cut || decoder.can_decode() || (code.len() as u64) < range.end - range.start;
    Ok(Disassembly { function: name, list, is_cut })
}

/// Returns where to begin, so that at most half of the instructions are before a place; and whether
/// others are before that.
fn first_listed(code: &[u8], place: u64) -> (usize, bool) {
    let mut starts: Vec<u32> = Vec::new();
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() && decoder.position() as u64 <= place {
        starts.push(decoder.position() as u32);
        decoder.decode_out(&mut instruction);
    }
    let first = starts.len().saturating_sub(INSTRUCTIONS_MAX / 2);
    (starts.get(first).map_or(0, |start| *start as usize), first > 0)
}

/// Formats instructions.
struct Writer<'a> {
    names: &'a FileNames,
    /// The function's own addresses.
    range: Range<u64>,
    formatter: GasFormatter,
    known: HashMap<u64, Option<String>>,
}

impl<'a> Writer<'a> {
    fn new(names: &'a FileNames, range: Range<u64>) -> Writer<'a> {
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_rip_relative_addresses(true);
        options.set_branch_leading_zeros(false);
        options.set_uppercase_hex(false);
        options.set_space_after_operand_separator(false);
        options.set_small_hex_numbers_in_decimal(false);
        Writer { names, range, formatter, known: HashMap::new() }
    }

    fn text(&mut self, instruction: &Instruction) -> String {
        let mut text = String::new();
        self.formatter.format(instruction, &mut text);
        if let Some(name) = self.target(instruction) {
            text += &format!(" <{name}>");
        }
        text
    }

    /// Returns the name of what an instruction calls, or jumps to outside of the function.
    fn target(&mut self, instruction: &Instruction) -> Option<String> {
        let names = self.names;
        let is_call = instruction.mnemonic() == Mnemonic::Call;
        match instruction.op0_kind() {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                let target = instruction.near_branch_target();
                if self.range.contains(&target) && !is_call {
                    return None;
                }
                let name = || names.name_of_target(target).map(short);
                self.known.entry(target).or_insert_with(name).clone()
            }
            OpKind::Memory
                if (is_call || instruction.mnemonic() == Mnemonic::Jmp)
                    && instruction.is_ip_rel_memory_operand() =>
            {
                let slot = instruction.ip_rel_memory_address();
                let name = || names.name_of_slot(slot).map(short);
                self.known.entry(slot).or_insert_with(name).clone()
            }
            _ => None,
        }
    }
}

fn short(name: String) -> String {
    clean(&name, NAME_MAX).into_owned()
}
