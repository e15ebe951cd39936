//! The files that the classes of one Java program come from.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::jar::{self, Part, Positioned, Within};
use super::launch::Launch;
use super::outermost;
use super::rules::{Own, Place, is_library_place};
use crate::model::vocabulary::role::Origin;
use crate::process::target_files;

/// Maximum bytes read of the command line: class paths are long.
const COMMAND_MAX: u64 = 1 << 20;
/// Maximum descriptors looked at, and classes remembered.
const DESCRIPTORS_MAX: usize = 1 << 16;
const CLASSES_MAX: usize = 2_000_000;

/// Reads the jars that a process has open. A virtual machine keeps those open whose classes it has
/// looked for.
pub struct Program {
    pid: u32,
    launch: Launch,
    working_directory: Option<PathBuf>,
    /// Where classes lie as files.
    directories: Vec<PathBuf>,
    own: Own,
    /// Device and inode of files that were read.
    read: FxHashSet<(u64, u64)>,
    /// The best place of each class, by a keyed hash of its name: names are the target's.
    places: FxHashMap<u64, Place>,
    hasher: RandomState,
    /// When descriptors were last read, and when they may be read again.
    scanned: Option<Instant>,
    next_scan: Option<Instant>,
}

impl Program {
    pub fn of(pid: u32) -> Program {
        let mut program = Program::new(pid, launch_of(pid).unwrap_or_default());
        program.working_directory = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
        let directories = program.launch.class_path.iter().filter(|path| !path.ends_with(".jar"));
        let directories = directories.filter_map(|path| program.absolute(path)).collect();
        program.directories = directories;
        program
    }

    fn new(pid: u32, launch: Launch) -> Program {
        let mut own = Own::default();
        launch.main.iter().for_each(|main| own.add_main(main));
        Program {
            pid,
            launch,
            working_directory: None,
            directories: Vec::new(),
            own,
            read: FxHashSet::default(),
            places: FxHashMap::default(),
            hasher: RandomState::new(),
            scanned: None,
            next_scan: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the origin of a class, by the files read so far; `None` if none of them has it.
    pub fn origin(&self, class: &str) -> Option<Origin> {
        let place = self.places.get(&self.hasher.hash_one(class)).copied();
        place
            .or_else(|| self.is_in_a_directory(class).then_some(Place::Classes))
            .map(|place| self.own.origin(class, place))
    }

    fn is_in_a_directory(&self, class: &str) -> bool {
        let file = format!("{}.class", class.replace('.', "/"));
        // A name of the target must not lead out of the directory.
        !file.contains("..")
            && self.directories.iter().any(|directory| {
                target_files::identity_beneath(self.pid, &directory.join(&file)).is_ok()
            })
    }

    /// Returns whether [`Program::origin`] knows all jars that were open at that time.
    pub fn is_scanned_since(&self, time: Instant) -> bool {
        self.scanned.is_some_and(|scanned| scanned > time)
    }

    /// Reads the jars that were opened since the last time, unless that was just now: many
    /// descriptors take their time.
    pub fn scan(&mut self) {
        let begin = Instant::now();
        if self.next_scan.is_some_and(|next| begin < next) {
            return;
        }
        let main_jar = self.launch.jar.as_deref().and_then(|jar| self.identity(jar));
        let agents: Vec<(u64, u64)> =
            self.launch.agents.iter().filter_map(|agent| self.identity(agent)).collect();
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten();
        for descriptor in descriptors.flatten().take(DESCRIPTORS_MAX) {
            let Ok(path) = std::fs::read_link(descriptor.path()) else { continue };
            let Some(path) = path.to_str().map(|path| path.trim_end_matches(" (deleted)")) else {
                continue;
            };
            if ![".jar", ".war"].iter().any(|ending| path.ends_with(ending)) {
                continue;
            }
            let name: OsString = descriptor.file_name();
            let Ok(file) = target_files::open_descriptor(self.pid, &name) else { continue };
            let Ok(meta) = file.metadata() else { continue };
            let identity = (meta.dev(), meta.ino());
            if !self.read.insert(identity) {
                continue;
            }
            if let Some((place, _)) = path.rsplit_once("/lib/").filter(|(p, _)| p.ends_with("-INF"))
            {
                self.directories.push(Path::new(place).join("classes"));
            }
            let place = match () {
                () if agents.contains(&identity) => Place::Agent,
                () if main_jar == Some(identity) => Place::MainJar,
                () if is_library_place(path) => Place::LibraryJar,
                () => Place::OtherJar,
            };
            let length = meta.len();
            self.add(&Part::whole(Positioned(file), length), place);
        }
        self.scanned = Some(begin);
        self.next_scan = Some(Instant::now() + (begin.elapsed() * 10).min(Duration::from_secs(5)));
    }

    /// Adds the classes of a jar.
    fn add<R: rawzip::ReaderAt>(&mut self, file: &Part<R>, place: Place) {
        let mut found: HashMap<u64, Place> = HashMap::new();
        let mut last = String::new();
        let main = self.launch.main.clone();
        let (mut has_main, hasher) = (false, self.hasher.clone());
        let manifest = jar::read(file, &mut |class, within| {
            let class = outermost(class);
            if class == last {
                return;
            }
            last.clear();
            last.push_str(class);
            has_main |= within == Within::Top && main.as_deref() == Some(class);
            let place = match within {
                Within::Top => place,
                Within::Classes => Place::Classes,
                Within::Nested => Place::LibraryJar,
            };
            let best = found.entry(hasher.hash_one(class)).or_insert(place);
            *best = place.min(*best);
        });
        // The manifest of a library may name a main class, too.
        if place == Place::MainJar {
            let Some(manifest) = manifest else { return };
            manifest.main.iter().chain(&manifest.start).for_each(|main| self.own.add_main(main));
        }
        for (class, mut place) in found {
            if has_main && place == Place::OtherJar {
                place = Place::MainJar;
            }
            if self.places.len() < CLASSES_MAX {
                let best = self.places.entry(class).or_insert(place);
                *best = place.min(*best);
            }
        }
    }

    fn identity(&self, path: &str) -> Option<(u64, u64)> {
        target_files::identity_beneath(self.pid, &self.absolute(path)?).ok()
    }

    fn absolute(&self, path: &str) -> Option<PathBuf> {
        match Path::new(path).is_absolute() {
            true => Some(path.into()),
            false => Some(self.working_directory.as_ref()?.join(path)),
        }
    }
}

fn launch_of(pid: u32) -> Option<Launch> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(Launch::of(text.split('\0').skip(1).filter(|argument| !argument.is_empty())))
}
