//! The mapped file of a virtual machine, `libjvm.so`.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::elf::{Headers, SHT_SYMTAB};
use crate::process::maps::{Backing, Mapping, Maps};
use crate::process::target_files::open_mapped;

/// Maximum time to wait for the file. It may lie on a file system that hangs.
const WAIT: Duration = Duration::from_millis(200);
/// Maximum sections that are searched; libjvm.so has some 40.
const SECTIONS_MAX: usize = 4096;

/// Returns where the library of a virtual machine is mapped, if there is one.
pub fn library(maps: &Maps) -> Option<u64> {
    first(maps).map(|mapping| mapping.start)
}

fn first(maps: &Maps) -> Option<&Mapping> {
    maps.iter().find(|mapping| mapping.offset == 0 && is_library(mapping))
}

fn is_library(mapping: &Mapping) -> bool {
    mapping.backing == Backing::File
        && mapping.path.file_name().is_some_and(|name| name == "libjvm.so")
}

/// Returns the address range of the library if it was stripped of its symbols. (A debug file may
/// have them all the same.) The file is read on a thread of its own; `None` where that takes too
/// long.
pub fn nameless(pid: u32, maps: &Maps) -> Option<Range<u64>> {
    let first = first(maps)?;
    let file = first.mapped_file(pid);
    let (said, says) = channel();
    // Without a thread (resource limits) it is as if the file hung.
    let ask = move || said.send(open_mapped(&file).is_ok_and(|file| has_symbols(&file)));
    std::thread::Builder::new().name("library".into()).spawn(ask).ok()?;
    let named = says.recv_timeout(WAIT).ok()?;
    let of_it = |mapping: &&Mapping| {
        mapping.executable && is_library(mapping) && mapping.inode == first.inode
    };
    let code = maps.iter().find(of_it)?;
    (!named).then_some(code.start..code.end)
}

/// Returns whether the file has a table of all symbols.
fn has_symbols(file: &File) -> bool {
    let read = |at: u64, buf: &mut [u8]| file.read_exact_at(buf, at).map_or(0, |()| buf.len());
    let sections = Headers::read(&read).and_then(|headers| headers.sections(&read, SECTIONS_MAX));
    sections.is_some_and(|sections| sections.iter().any(|section| section.kind == SHT_SYMTAB))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_stripped_file_is_recognised() {
        let own = File::open("/proc/self/exe").expect("we can read ourselves");
        assert!(has_symbols(&own));
        let stripped = tempfile::NamedTempFile::new().expect("a file");
        let mut strip = std::process::Command::new("strip");
        let status = strip.args(["-o"]).arg(stripped.path()).arg("/proc/self/exe").status();
        assert!(status.expect("strip is needed").success());
        assert!(!has_symbols(&File::open(stripped.path()).expect("written")));
        // Cut off, and something else.
        let mut cut = tempfile::tempfile().expect("a file");
        let bytes = std::fs::read(stripped.path()).expect("written");
        cut.write_all(&bytes[..bytes.len() - 1]).expect("written");
        assert!(!has_symbols(&cut));
        cut.write_all_at(b"\x7fELF\x01", 0).expect("written");
        assert!(!has_symbols(&cut));
    }
}
