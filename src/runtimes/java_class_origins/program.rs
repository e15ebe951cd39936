//! The files that the classes of one Java program come from.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::jar::{self, Part, Positioned, Within};
use super::outermost;
use super::rules::{Own, Place, is_library_place};
use crate::model::vocabulary::java_launch::{Launch, Runs};
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
    /// The main class, where the command line names it.
    main: Option<String>,
    main_jar: Option<PathBuf>,
    agents: Vec<PathBuf>,
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
        let text = command_line(pid).unwrap_or_default();
        let arguments = text.split('\0').skip(1).filter(|argument| !argument.is_empty());
        let working_directory = std::fs::read_link(format!("/proc/{pid}/cwd")).ok();
        Program::new(pid, &Launch::of(arguments), working_directory.as_deref())
    }

    fn new(pid: u32, launch: &Launch<'_>, working_directory: Option<&Path>) -> Program {
        let absolute = |path: &&str| match Path::new(path).is_absolute() {
            true => Some(path.into()),
            false => Some(working_directory?.join(path)),
        };
        let main = match launch.runs {
            Some(Runs::Class(class)) => Some(class.replace('/', ".")),
            Some(Runs::Module(module)) => module.split_once('/').map(|(_, class)| class.to_owned()),
            Some(Runs::Jar(_)) | None => None,
        };
        let main_jar = match launch.runs {
            Some(Runs::Jar(path)) => absolute(&path),
            _ => None,
        };
        let mut own = Own::default();
        main.iter().for_each(|main| own.add_main(main));
        let is_directory = |path: &&&str| !path.ends_with(".jar");
        Program {
            pid,
            main,
            main_jar,
            agents: launch.agents.iter().filter_map(absolute).collect(),
            directories: launch
                .class_path
                .iter()
                .filter(is_directory)
                .filter_map(absolute)
                .collect(),
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
        let identity = |path: &PathBuf| target_files::identity_beneath(self.pid, path).ok();
        let main_jar = self.main_jar.as_ref().and_then(identity);
        let agents: Vec<(u64, u64)> = self.agents.iter().filter_map(identity).collect();
        for (path, file) in open_jars(self.pid) {
            let Ok(meta) = file.metadata() else { continue };
            let identity = (meta.dev(), meta.ino());
            if !self.read.insert(identity) {
                continue;
            }
            let libraries = path.rsplit_once("/lib/").map(|(directory, _)| directory);
            if let Some(inf) = libraries.filter(|directory| directory.ends_with("-INF")) {
                self.directories.push(Path::new(inf).join("classes"));
            }
            let place = match () {
                () if agents.contains(&identity) => Place::Agent,
                () if main_jar == Some(identity) => Place::MainJar,
                () if is_library_place(&path) => Place::LibraryJar,
                () => Place::OtherJar,
            };
            self.add(&Part::whole(Positioned(file), meta.len()), place);
        }
        self.scanned = Some(begin);
        self.next_scan = Some(Instant::now() + (begin.elapsed() * 10).min(Duration::from_secs(5)));
    }

    /// Adds the classes of a jar.
    fn add<R: rawzip::ReaderAt>(&mut self, file: &Part<R>, place: Place) {
        let mut found: HashMap<u64, Place> = HashMap::new();
        let mut last = String::new();
        let (mut has_main, main, hasher) = (false, self.main.as_deref(), &self.hasher);
        let manifest = jar::read(file, &mut |class, within| {
            let class = outermost(class);
            if class == last {
                return;
            }
            last.clear();
            last.push_str(class);
            has_main |= within == Within::Top && main == Some(class);
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
}

/// Returns the jars that a process has open, each with its path.
fn open_jars(pid: u32) -> impl Iterator<Item = (String, File)> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    descriptors.flatten().take(DESCRIPTORS_MAX).filter_map(move |descriptor| {
        let path = std::fs::read_link(descriptor.path()).ok()?;
        let path = path.to_str()?.trim_end_matches(" (deleted)");
        let is_jar = [".jar", ".war"].iter().any(|ending| path.ends_with(ending));
        let file = is_jar
            .then(|| target_files::open_descriptor(pid, &descriptor.file_name()).ok())
            .flatten()?;
        Some((path.to_owned(), file))
    })
}

/// Returns the arguments, each ended by a zero byte.
fn command_line(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::java_class_origins::jar::tests::archive;

    const CLASSES: &[(&str, &[u8])] =
        &[("com/shop/Main.class", b""), ("com/shop/Cart.class", b""), ("net/json/Json.class", b"")];

    /// Writes a jar and opens it in this process, which is then scanned.
    fn open_jar(folder: &Path, name: &str, files: &[(&str, &[u8])]) -> File {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, archive(files)).unwrap();
        File::open(path).unwrap()
    }

    /// Scans this process as if it had been started so in `folder`.
    fn scanned(folder: &Path, line: &str) -> Program {
        let launch = Launch::of(line.split(' '));
        let mut program = Program::new(std::process::id(), &launch, Some(folder));
        program.scan();
        program
    }

    #[test]
    fn open_jars_are_read_and_the_main_one_is_known_by_its_option_or_its_class() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = ("META-INF/MANIFEST.MF", &b"Main-Class: com.shop.Main\n"[..]);
        let _shop = open_jar(folder.path(), "shop.jar", &[CLASSES, &[manifest]].concat());
        let _other = open_jar(folder.path(), "x/other.jar", &[("org/other/X.class", b"")]);
        for line in ["-jar shop.jar", "-cp shop.jar com.shop.Main", "-cp shop.jar com/shop/Main"] {
            let program = scanned(folder.path(), line);
            let origin = |class| program.origin(class);
            assert_eq!(origin("com.shop.Cart"), Some(Origin::App), "{line}");
            assert_eq!(origin("net.json.Json"), Some(Origin::Unknown), "beside it: {line}");
            assert_eq!(origin("org.other.X"), Some(Origin::Library), "{line}");
            assert_eq!(origin("org.other.Y"), None, "{line}");
        }
        let agent = scanned(folder.path(), "-javaagent:x/other.jar -cp shop.jar org.other.X");
        assert_eq!(agent.origin("org.other.X"), Some(Origin::Library));
    }

    #[test]
    fn classes_that_are_files_are_the_programs() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("classes/org/apache")).unwrap();
        std::fs::write(folder.path().join("classes/org/apache/Own.class"), b"").unwrap();
        std::fs::create_dir_all(folder.path().join("web/WEB-INF/classes")).unwrap();
        std::fs::write(folder.path().join("web/WEB-INF/classes/Page.class"), b"").unwrap();
        let library = &[("net/lib/L.class", &b""[..])];
        let _library = open_jar(folder.path(), "web/WEB-INF/lib/l.jar", library);
        let program =
            scanned(folder.path(), "-cp classes:a.jar org.apache.catalina.startup.Bootstrap");
        assert_eq!(program.origin("org.apache.Own"), Some(Origin::App));
        assert_eq!(program.origin("Page"), Some(Origin::App), "beside an open library");
        assert_eq!(program.origin("net.lib.L"), Some(Origin::Library));
        assert_eq!(program.origin("org.apache.Other"), None);
    }

    #[test]
    fn a_later_scan_reads_what_was_opened_since_but_not_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut program = scanned(folder.path(), "-cp a.jar com.shop.Main");
        let before = Instant::now();
        let _late = open_jar(folder.path(), "late.jar", &[("net/late/Late.class", b"")]);
        program.next_scan = Some(before + Duration::from_secs(3600));
        program.scan();
        assert_eq!(
            (program.origin("net.late.Late"), program.is_scanned_since(before)),
            (None, false)
        );
        program.next_scan = None;
        program.scan();
        assert_eq!(program.origin("net.late.Late"), Some(Origin::Library));
        assert!(program.is_scanned_since(before));
    }
}
