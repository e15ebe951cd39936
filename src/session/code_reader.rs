//! Reads the source or the instructions of a function for the live view, each request on its own
//! thread: a dead file server may hang it for any time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use super::source_files;
use crate::app::code_text::{
    CodeFile, CodeOf, CodeRead, CodeRequest, Found, Instruction, Instructions,
};
use crate::config::SourcePath;
use crate::model::vocabulary::text::clean;
use crate::process::mapped_files::{FileKind, Files, MappedFile};
use crate::process::target_files::{open_here, open_mapped};
use crate::symbols::{Disassembly, disassemble_file, disassemble_mapped, has_build_id};

/// Maximum requests that are read at a time.
const AT_ONCE: usize = 4;
/// Maximum bytes of a path that is shown.
const PATH_MAX: usize = 1000;
/// Where programs and libraries are, for a saved profile, which knows their names only.
const FOLDERS: [&str; 10] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/local/lib",
];

/// See the module's documentation.
#[derive(Default)]
pub struct CodeReader {
    running: Arc<AtomicUsize>,
}

impl CodeReader {
    /// Reads on another thread, then calls `found` there; at once where no more can be read.
    /// `files`: the mapped files of a live session.
    pub fn read(
        &self,
        request: CodeRequest,
        files: Option<Files>,
        sources: &[SourcePath],
        found: impl FnOnce(CodeRead) + Send + Clone + 'static,
    ) {
        let number = request.number;
        let is_source = matches!(request.of, CodeOf::Source(_));
        let refused = move |why: &str| {
            let why = why.to_owned();
            let read = match is_source {
                true => Found::Source(Err(why)),
                false => Found::Instructions(Err(why)),
            };
            CodeRead { number, read }
        };
        if self.running.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
            self.running.fetch_sub(1, Ordering::Relaxed);
            return found(refused("earlier files are still being read: a file server may hang"));
        }
        let (running, sources) = (self.running.clone(), sources.to_vec());
        let answer = found.clone();
        let spawned = std::thread::Builder::new().name("code".into()).spawn(move || {
            let read = answer_to(&request, files.as_ref(), &sources);
            running.fetch_sub(1, Ordering::Relaxed);
            answer(CodeRead { number, read });
        });
        if let Err(error) = spawned {
            self.running.fetch_sub(1, Ordering::Relaxed);
            found(refused(&format!("cannot start a thread to read it: {error}")));
        }
    }
}

fn answer_to(request: &CodeRequest, files: Option<&Files>, sources: &[SourcePath]) -> Found {
    let code = &request.code;
    match &request.of {
        CodeOf::Source(location) => {
            let pids: Vec<u32> = match files {
                Some(_) => code.processes.iter().map(|(pid, _)| *pid).collect(),
                // Numbers of a saved profile may be those of other processes now.
                None => Vec::new(),
            };
            let built = modified(code, files, sources);
            Found::Source(source_files::read(location, &pids, sources, built).map(Arc::new))
        }
        CodeOf::Instructions => Found::Instructions(instructions(code, files, sources)),
    }
}

fn instructions(
    code: &CodeFile,
    files: Option<&Files>,
    sources: &[SourcePath],
) -> Result<Arc<Instructions>, String> {
    let place = code.place.ok_or("no place of it in a file is known")?;
    let (path, found) = match files {
        Some(files) => {
            let file = files.get(place.file).ok_or("its file is not known any more")?;
            (name(&file), disassemble_mapped(&file, place.offset)?)
        }
        None => {
            let (path, file) = same_build(code, sources)?;
            let found = disassemble_file(file, &path, place.offset)?;
            (path.to_string_lossy().into_owned(), found)
        }
    };
    let Disassembly { function, list, is_cut } = found;
    let list = list.into_iter().map(|at| Instruction {
        offset: at.offset,
        len: at.len,
        address: at.address,
        text: at.text,
    });
    let path = clean(&path, PATH_MAX).into_owned();
    Ok(Arc::new(Instructions { path, function, list: list.collect(), is_cut }))
}

fn name(file: &MappedFile) -> String {
    match file.kind {
        FileKind::Vdso => "[vdso]".to_owned(),
        _ => file.path.to_string_lossy().into_owned(),
    }
}

/// Finds a file of this machine with the build that a saved profile was taken of.
fn same_build(code: &CodeFile, sources: &[SourcePath]) -> Result<(PathBuf, File), String> {
    let module = clean(&code.module, PATH_MAX).into_owned();
    let Some(build) = &code.build else {
        return Err(format!("which build of {module} was watched is not known"));
    };
    let commands = code.processes.iter().filter_map(|(_, command)| command.split(' ').next());
    let started = commands.map(PathBuf::from).filter(|path| path.is_absolute());
    let is_name = !module.is_empty() && !module.contains('/');
    let below =
        FOLDERS.iter().map(Path::new).chain(sources.iter().filter_map(|source| match source {
            SourcePath::Below(folder) => Some(folder.as_path()),
            SourcePath::Moved { .. } => None,
        }));
    let named = below.filter(|_| is_name).map(|folder| folder.join(&module));
    for path in started.chain(named) {
        let Ok(path) = std::path::absolute(path) else { continue };
        if let Ok(file) = open_here(&path)
            && has_build_id(&file, build)
        {
            return Ok((path, file));
        }
    }
    Err(format!("{module} is not here in the same build (--source DIR)"))
}

/// Returns when the file with the code was changed last, which is not before it was built.
fn modified(code: &CodeFile, files: Option<&Files>, sources: &[SourcePath]) -> Option<SystemTime> {
    let file = match files {
        Some(files) => open_mapped(&*files.get(code.place?.file)?).ok()?,
        None => same_build(code, sources).ok()?.1,
    };
    file.metadata().ok()?.modified().ok()
}
