//! Source maps of scripts: the lines of the program that a compiler made a script from.
//!
//! ```text
//! map    places of a script -> lines of sources
//! paths  where a script's map is, paths of sources
//! ```
//!
//! Files are read on a thread of its own, since a file system may block: as the process sees them,
//! beneath its root. A script counts only if it has as many characters as the one that runs. So a
//! file that was replaced since it was loaded gives no lines.

pub mod map;
pub mod paths;

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;

use crate::process::target_files::open_beneath;
use map::{InSource, SourceMap};
use paths::{MapPlace, map_of};

/// Maximum bytes of a script and of a map.
const SCRIPT_MAX: u64 = 32 << 20;
const MAP_MAX: u64 = 64 << 20;
/// Maximum scripts that are remembered, and bytes of all maps.
const SCRIPTS_MAX: usize = 1 << 16;
const MAPS_MAX: usize = 256 << 20;

/// Source maps of a session; clones share them.
#[derive(Clone, Default)]
pub struct SourceMaps {
    /// `None`: they are not read.
    shared: Option<Arc<Mutex<Shared>>>,
}

#[derive(Default)]
struct Shared {
    /// By path.
    scripts: FxHashMap<Arc<str>, Script>,
    /// The number of scripts that were requested and are not known yet.
    missing: usize,
    /// `None` before the first script, or if there is no thread.
    requests: Option<Sender<Request>>,
}

struct Script {
    characters: u32,
    state: State,
}

#[derive(Clone)]
enum State {
    Requested,
    /// It has no map, or another script has this path.
    Unmapped,
    Mapped(Arc<SourceMap>),
}

struct Request {
    pid: u32,
    path: Arc<str>,
    characters: u32,
}

/// Where a place in a script comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It is being read.
    Pending,
    Unmapped,
    /// See [`map::InSource`].
    Source {
        source: Arc<str>,
        line: u32,
        column: u32,
        behind: u32,
    },
}

impl SourceMaps {
    /// Returns maps that are read.
    pub fn new() -> SourceMaps {
        SourceMaps { shared: Some(Arc::default()) }
    }

    /// Requests the map of a script that a process runs, of this number of UTF-16 units.
    pub fn request(&self, pid: u32, path: &Arc<str>, characters: u32) {
        let Some(of_all) = self.shared.as_ref().filter(|_| path.starts_with('/')) else { return };
        let mut shared = locked(of_all);
        if let Some(script) = shared.scripts.get_mut(path) {
            // Elsewhere it may be another one, so a line would be wrong in one of them.
            if script.characters != characters {
                script.state = State::Unmapped;
            }
            return;
        }
        if shared.requests.is_none() {
            let (sender, receiver) = channel();
            let answers = Answers(Arc::downgrade(of_all));
            let thread = std::thread::Builder::new().name("source-maps".into());
            if thread.spawn(move || run(&receiver, &answers)).is_err() {
                return;
            }
            shared.requests = Some(sender);
        }
        let request = Request { pid, path: path.clone(), characters };
        let room = shared.scripts.len() < SCRIPTS_MAX;
        if room && shared.requests.as_ref().is_some_and(|it| it.send(request).is_ok()) {
            shared.scripts.insert(path.clone(), Script { characters, state: State::Requested });
            shared.missing += 1;
        }
    }

    /// Returns where a place in a script comes from: its line from 1 on, its column from 0 on.
    pub fn origin(&self, path: &str, line: u32, column: u32) -> Origin {
        let Some(shared) = &self.shared else { return Origin::Unmapped };
        let state = locked(shared).scripts.get(path).map(|script| script.state.clone());
        match state {
            None | Some(State::Unmapped) => Origin::Unmapped,
            Some(State::Requested) => Origin::Pending,
            Some(State::Mapped(map)) => match map.place(line, column) {
                Some(InSource { source, line, column, behind }) => {
                    Origin::Source { source: source.clone(), line, column, behind }
                }
                None => Origin::Unmapped,
            },
        }
    }

    /// Returns whether requested maps are not known yet.
    pub fn is_pending(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| locked(shared).missing > 0)
    }
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the thread puts its answers. If it ends, also by a panic, all that is open has no map: no
/// reader waits for it any more.
struct Answers(Weak<Mutex<Shared>>);

impl Answers {
    fn put(&self, path: &Arc<str>, map: Option<SourceMap>) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut shared = locked(&shared);
        shared.missing = shared.missing.saturating_sub(1);
        let open = |script: &&mut Script| matches!(script.state, State::Requested);
        if let Some(script) = shared.scripts.get_mut(path).filter(open) {
            script.state = map.map_or(State::Unmapped, |map| State::Mapped(Arc::new(map)));
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut shared = locked(&shared);
        (shared.missing, shared.requests) = (0, None);
        let open = |script: &&mut Script| matches!(script.state, State::Requested);
        shared.scripts.values_mut().filter(open).for_each(|it| it.state = State::Unmapped);
    }
}

/// Answers requests until the session ends.
fn run(requests: &Receiver<Request>, answers: &Answers) {
    let mut size = 0;
    while let Ok(Request { pid, path, characters }) = requests.recv() {
        if answers.0.strong_count() == 0 {
            return;
        }
        let read = |path: &str, most: u64| read(pid, path, most);
        let map = find(&path, characters, &read).filter(|map| size + map.size() <= MAPS_MAX);
        size += map.as_ref().map_or(0, SourceMap::size);
        answers.put(&path, map);
    }
}

/// Returns the map of a script. `read` returns a file's bytes, up to a limit.
fn find(
    path: &str,
    characters: u32,
    read: &dyn Fn(&str, u64) -> Option<Vec<u8>>,
) -> Option<SourceMap> {
    let script = read(path, SCRIPT_MAX)?;
    let script = String::from_utf8_lossy(&script);
    // Node leaves a byte order mark out.
    let script = script.strip_prefix('\u{feff}').unwrap_or(&script);
    (script.encode_utf16().count() == characters as usize).then_some(())?;
    match map_of(script, path).unwrap_or_else(|| MapPlace::File(format!("{path}.map"))) {
        MapPlace::Inside(json) => SourceMap::parse(&json, path),
        MapPlace::File(file) => SourceMap::parse(&read(&file, MAP_MAX)?, &file),
        MapPlace::Elsewhere => None,
    }
}

/// Reads a file as a process sees it, if the process may read it, and it is not too long.
fn read(pid: u32, path: &str, most: u64) -> Option<Vec<u8>> {
    let file = open_beneath(pid, Path::new(path)).ok()?;
    let (of_file, of_process) = (file.metadata().ok()?, std::fs::metadata(format!("/proc/{pid}")));
    let (mode, of_process) = (of_file.mode(), of_process.ok()?);
    let readable = mode & 0o004 != 0
        || mode & 0o040 != 0 && of_file.gid() == of_process.gid()
        || mode & 0o400 != 0 && of_file.uid() == of_process.uid()
        || of_process.uid() == 0;
    if !readable || of_file.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = r#"{"version":3,"sources":["a.ts"],"mappings":"AAAA;AACA"}"#;

    fn place(files: &[(&str, &str)], characters: u32) -> Option<String> {
        let read = |path: &str, most: u64| {
            let (_, text) = files.iter().find(|(name, _)| *name == path)?;
            (text.len() as u64 <= most).then(|| text.as_bytes().to_vec())
        };
        let map = find("/srv/a.js", characters, &read)?;
        map.place(2, 5).map(|InSource { source, line, .. }| format!("{source}:{line}"))
    }

    #[test]
    fn a_map_is_named_in_the_script_or_lies_beside_it() {
        let named = ("/srv/a.js", "f()\n//# sourceMappingURL=maps/a.map");
        let map = ("/srv/maps/a.map", MAP);
        assert_eq!(place(&[named, map], 35).as_deref(), Some("/srv/maps/a.ts:2"));
        let (plain, beside) = (("/srv/a.js", "f()\ng()\n"), ("/srv/a.js.map", MAP));
        assert_eq!(place(&[plain, beside], 8).as_deref(), Some("/srv/a.ts:2"));
        assert_eq!(place(&[named, beside], 35), None, "it says another");
        assert_eq!(place(&[plain], 8), None);
        assert_eq!(place(&[beside], 8), None);
    }

    #[test]
    fn a_script_of_another_length_is_another_one() {
        let beside = ("/srv/a.js.map", MAP);
        for (text, characters) in [("f()\ng()\n", 8), ("\u{feff}größe", 5), ("a\u{1f600}", 3)] {
            for (count, mapped) in [(characters, true), (characters + 1, false), (0, false)] {
                let found = place(&[("/srv/a.js", text), beside], count);
                assert_eq!(found.is_some(), mapped, "{text} {count}");
            }
        }
    }

    /// Files of this process, which it may read.
    #[test]
    fn maps_are_read_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.js").display().to_string();
        std::fs::write(&path, "f()\ng()\n").expect("written");
        std::fs::write(format!("{path}.map"), MAP).expect("written");
        let (maps, path) = (SourceMaps::new(), Arc::<str>::from(path));
        assert_eq!(maps.origin(&path, 2, 0), Origin::Unmapped, "nothing was requested");
        maps.request(std::process::id(), &path, 8);
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while maps.is_pending() {
            assert!(std::time::Instant::now() < limit, "it does not end");
            std::thread::yield_now();
        }
        let source = folder.path().join("a.ts").display().to_string();
        let found = Origin::Source { source: source.into(), line: 2, column: 0, behind: 0 };
        assert_eq!(maps.origin(&path, 2, 0), found);
        assert_eq!(maps.origin(&path, 3, 0), Origin::Unmapped);
        maps.request(2, &path, 8);
        assert_ne!(maps.origin(&path, 2, 0), Origin::Unmapped, "the same script");
        maps.request(2, &path, 9);
        assert_eq!(maps.origin(&path, 2, 0), Origin::Unmapped, "one of them would be wrong");
        let off = SourceMaps::default();
        off.request(std::process::id(), &path, 8);
        assert_eq!((off.is_pending(), off.origin(&path, 2, 0)), (false, Origin::Unmapped));
    }
}
