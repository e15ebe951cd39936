//! Lists the sockets and pipes of all processes of this host through a program in the kernel
//! (endpoints.bpf.c). It is loaded at the first question, and a pass is made at most once a second.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use aya::programs::Iter;
use aya::{Btf, Ebpf, EbpfLoader};

use super::endpoints::{Endpoints, ROW};
use crate::process::privileges;

const BYTES: &[u8; include_bytes!(env!("SAMPLETOP_ENDPOINTS_OBJECT")).len()] =
    include_bytes!(env!("SAMPLETOP_ENDPOINTS_OBJECT"));

/// Aligned, because an ELF header is read from it.
#[repr(C, align(8))]
struct Object([u8; BYTES.len()]);

/// Maximum sockets and pipes of one pass: 5 MB of rows. Of the others nothing is known.
const DESCRIPTORS: usize = 1 << 16;
/// Maximum duration of a pass; what was read until then is used.
const LONGEST: Duration = Duration::from_millis(500);
/// Minimum time between two passes is a second, or this multiple of the duration of the last: at
/// most 2 % of a core.
const REST: u32 = 50;
/// Size of the kernel's buffer of one read (bpf_seq_read).
const READ: usize = 32 << 10;

/// The iterator, and the result of its last pass.
#[derive(Default)]
pub struct EndpointIterator {
    program: Program,
    found: Endpoints,
    /// When the next pass may be made; `None`: now.
    due: Option<Instant>,
}

/// The program in the kernel.
#[derive(Default)]
pub enum Program {
    #[default]
    NotTried,
    Loaded(Box<Ebpf>),
    /// Without rights, or on a kernel without such iterators.
    Unavailable,
}

impl EndpointIterator {
    /// Returns the result of the last pass.
    pub fn found(&self) -> &Endpoints {
        &self.found
    }

    /// Makes a pass, if one is due. Without one nothing is known.
    pub fn refresh(&mut self) {
        if self.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        if matches!(self.program, Program::NotTried) {
            self.program = Program::load().unwrap_or(Program::Unavailable);
        }
        let begun = Instant::now();
        if let Some(found) = self.program.pass() {
            self.found = found.unwrap_or_default();
            let rest = (begun.elapsed() * REST).max(Duration::from_secs(1));
            self.due = Some(Instant::now() + rest);
        }
    }
}

impl Program {
    /// Loads the program, with sampletop's own capabilities.
    pub fn load() -> io::Result<Program> {
        privileges::with(load).map(|ebpf| Program::Loaded(Box::new(ebpf)))
    }

    /// Lists all sockets and pipes; `None` if the program is not loaded.
    pub fn pass(&mut self) -> Option<io::Result<Endpoints>> {
        match self {
            Program::Loaded(ebpf) => Some(privileges::with(|| pass(ebpf))),
            Program::NotTried | Program::Unavailable => None,
        }
    }
}

fn load() -> io::Result<Ebpf> {
    let btf = Btf::from_sys_fs().map_err(io::Error::other)?;
    let object = Object(*BYTES);
    let mut ebpf = EbpfLoader::new().btf(Some(&btf)).load(&object.0).map_err(io::Error::other)?;
    iterator(&mut ebpf)?.load("task_file", &btf).map_err(io::Error::other)?;
    Ok(ebpf)
}

fn iterator(ebpf: &mut Ebpf) -> io::Result<&mut Iter> {
    let program = ebpf.program_mut("list").ok_or(io::ErrorKind::NotFound)?;
    program.try_into().map_err(io::Error::other)
}

fn pass(ebpf: &mut Ebpf) -> io::Result<Endpoints> {
    let begun = Instant::now();
    let program = iterator(ebpf)?;
    let link = program.attach().map_err(io::Error::other)?;
    let mut rows =
        program.take_link(link).map_err(io::Error::other)?.into_file().map_err(io::Error::other)?;
    let mut found = Endpoints::default();
    let mut buffer = vec![0; READ];
    // Bytes of a row whose rest comes with the next read.
    let mut begin = 0;
    while begun.elapsed() < LONGEST {
        let filled = match rows.read(&mut buffer[begin..]) {
            Ok(0) => break,
            Ok(read) => begin + read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // After a million files without a socket or pipe the kernel wants to be asked again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            // What was read before is valid.
            Err(_) => break,
        };
        let whole = filled - filled % ROW;
        if !found.add(&buffer[..whole], DESCRIPTORS) {
            break;
        }
        buffer.copy_within(whole..filled, 0);
        begin = filled - whole;
    }
    Ok(found)
}
