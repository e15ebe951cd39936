//! Reads the source or the instructions of a function for the live view, each request on its own
//! thread: a dead file server may hang it for any time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use super::source_files;
use crate::app::code_text::{
    CodeFile, CodeOf, CodeRead, CodeRequest, Found, Instruction, Instructions,
};
use crate::config::SourcePath;
use crate::model::vocabulary::text::clean;
use crate::process::mapped_files::{FileKind, Files, MappedFile};
use crate::process::target_files::{open_here, open_mapped};
use crate::symbols::{Disassembly, disassemble_file, disassemble_mapped, guarded, has_build_id};

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

/// One of the requests that are read at a time.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

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
        let (slot, sources) = (Slot(self.running.clone()), sources.to_vec());
        let answer = found.clone();
        let spawned = std::thread::Builder::new().name("code".into()).spawn(move || {
            let read = guarded(|| answer_to(&request, files.as_ref(), &sources));
            drop(slot);
            answer(match read {
                Ok(read) => CodeRead { number, read },
                Err(_) => refused("it could not be read: sampletop has a bug"),
            });
        });
        if let Err(error) = spawned {
            // The slot was dropped with the closure.
            found(refused(&format!("cannot start a thread to read it: {error}")));
        }
    }
}

fn answer_to(request: &CodeRequest, files: Option<&Files>, sources: &[SourcePath]) -> Found {
    let code = &request.code;
    match &request.of {
        CodeOf::Source(location) => {
            let pids = roots(code, files);
            let built = modified(code, files, sources);
            Found::Source(source_files::read(location, &pids, sources, built).map(Arc::new))
        }
        CodeOf::Instructions => Found::Instructions(instructions(code, files, sources)),
    }
}

/// Returns the processes beneath whose roots source files may be: first the one that mapped the
/// code.
fn roots(code: &CodeFile, files: Option<&Files>) -> Vec<u32> {
    // Numbers of a saved profile may be those of other processes now.
    let Some(files) = files else { return Vec::new() };
    let mapper = code.place.and_then(|place| Some(files.get(place.file)?.pid));
    let mut pids: Vec<u32> = code.processes.iter().map(|(pid, _)| *pid).collect();
    pids.sort_by_key(|pid| Some(*pid) != mapper);
    pids
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
    // `--source` may also name the file itself.
    let itself = sources.iter().filter_map(|source| match source {
        SourcePath::Below(file) => Some(file.clone()),
        SourcePath::Moved { .. } => None,
    });
    for path in started.chain(named).chain(itself) {
        let Ok(path) = std::path::absolute(path) else { continue };
        if let Ok(file) = open_here(&path)
            && has_build_id(&file, build)
        {
            return Ok((path, file));
        }
    }
    Err(format!("{module} is not here in the same build (--source: its directory)"))
}

/// Returns when the file with the code was changed last, which is not before it was built; of code
/// in no file when it was there already.
fn modified(code: &CodeFile, files: Option<&Files>, sources: &[SourcePath]) -> Option<SystemTime> {
    if let Some(started) = code.started_unix_ns {
        let since = Duration::from_nanos(u64::try_from(started).ok()?);
        return SystemTime::UNIX_EPOCH.checked_add(since);
    }
    let file = match files {
        Some(files) => open_mapped(&*files.get(code.place?.file)?).ok()?,
        None => same_build(code, sources).ok()?.1,
    };
    file.metadata().ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::elf::{Elf, hex};
    use crate::model::facts::tables::{FrameKind, Location};
    use crate::model::projection::CodePlace;
    use crate::model::vocabulary::frame::FileId;

    const MODULE: &str = "libshop.so.6";

    /// Copies a library of this machine into a new directory, under another name. Returns its
    /// build.
    fn library() -> (tempfile::TempDir, Arc<str>) {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
        let path = maps.lines().find(|line| line.ends_with("/libc.so.6")).expect("the C library");
        let bytes = std::fs::read(&path[path.find('/').expect("a path")..]).expect("read");
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join(MODULE), &bytes).expect("written");
        let elf = Elf::parse(&bytes).expect("a library");
        (folder, hex(elf.build_id().expect("a build id")).into())
    }

    fn code(build: Option<&str>, processes: &[(u32, &str)]) -> CodeFile {
        CodeFile {
            place: Some(CodePlace { file: FileId(1), offset: 64 }),
            module: MODULE.into(),
            build: build.map(Arc::from),
            started_unix_ns: None,
            processes: processes.iter().map(|(pid, command)| (*pid, (*command).into())).collect(),
        }
    }

    #[test]
    fn a_saved_profile_is_explained_by_the_same_build_only() {
        let (folder, build) = library();
        let below = [SourcePath::Below(folder.path().to_owned())];
        let path = folder.path().join(MODULE);
        let found = |code: &CodeFile, sources: &[SourcePath]| {
            same_build(code, sources).map(|(path, _)| path)
        };
        assert_eq!(found(&code(Some(&build), &[]), &below), Ok(path.clone()));
        let other = "00".repeat(20);
        let sentence = format!("{MODULE} is not here in the same build (--source: its directory)");
        assert_eq!(found(&code(Some(&other), &[]), &below), Err(sentence.clone()));
        // `--source` may name the library itself.
        let itself = [SourcePath::Below(path.clone())];
        assert_eq!(found(&code(Some(&build), &[]), &itself), Ok(path.clone()));
        assert_eq!(found(&code(Some(&other), &[]), &itself), Err(sentence.clone()));
        assert_eq!(found(&code(Some(&build), &[]), &[]), Err(sentence));
        assert!(found(&code(None, &[]), &below).unwrap_err().contains("which build"));
        // The program itself is where it was started.
        let command = format!("{} --port 80", path.display());
        assert_eq!(found(&code(Some(&build), &[(7, &command)]), &[]), Ok(path));
    }

    #[test]
    fn processes_of_a_saved_profile_are_not_asked() {
        let code = code(None, &[(7, "shopd"), (8, "shopd")]);
        assert_eq!(roots(&code, Some(&Files::default())), [7, 8]);
        assert!(roots(&code, None).is_empty());
    }

    #[test]
    fn a_source_that_is_newer_than_the_program_of_a_saved_profile_is_told() {
        let (folder, build) = library();
        let source = folder.path().join("x.c");
        std::fs::write(&source, "text").expect("written");
        let open = |name| File::options().write(true).open(folder.path().join(name));
        let program = open(MODULE).expect("there");
        let file = Some(source.to_string_lossy().into());
        let location = Location { file, ..Location::named("f", FrameKind::Native) };
        let code = code(Some(&build), &[]);
        let request = CodeRequest { number: 1, of: CodeOf::Source(location.into()), code };
        let is_newer = |built: SystemTime| {
            program.set_modified(built).expect("ours");
            let below = [SourcePath::Below(folder.path().to_owned())];
            match answer_to(&request, None, &below) {
                Found::Source(Ok(text)) => text.is_newer,
                other => panic!("{other:?}"),
            }
        };
        let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
        assert!(is_newer(now - day) && !is_newer(now + day));
    }

    #[test]
    fn code_in_no_file_was_there_when_its_process_started() {
        let code =
            CodeFile { place: None, started_unix_ns: Some(1_500_000_000), ..code(None, &[]) };
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
        assert_eq!(modified(&code, None, &[]), Some(since));
    }

    /// As when a panic ends the thread.
    #[test]
    fn a_slot_is_free_again_however_its_thread_ends() {
        let running = Arc::new(AtomicUsize::new(1));
        let slot = Slot(running.clone());
        let ended = guarded(move || {
            let _slot = slot;
            panic!("a parser");
        });
        assert!(ended.is_err());
        assert_eq!(running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn files_that_hang_keep_their_threads_and_others_are_read_again() {
        let reader = CodeReader::default();
        let read = || {
            let (sender, found) = channel();
            let request =
                CodeRequest { number: 3, of: CodeOf::Instructions, code: code(None, &[]) };
            reader.read(request, None, &[], move |read| sender.send(read).expect("it waits"));
            found.recv_timeout(Duration::from_secs(60)).expect("an answer")
        };
        let why = |CodeRead { number, read }| match (number, read) {
            (3, Found::Instructions(Err(why))) => why,
            other => panic!("{other:?}"),
        };
        for _ in 0..2 * AT_ONCE {
            assert!(why(read()).contains("which build"));
        }
        reader.running.store(AT_ONCE, Ordering::Relaxed);
        for _ in 0..2 {
            assert!(why(read()).contains("a file server may hang"));
        }
        reader.running.store(AT_ONCE - 1, Ordering::Relaxed);
        assert!(why(read()).contains("which build"));
    }
}
