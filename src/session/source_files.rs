//! Finds the source file of a function, and reads it. All of it is untrusted: the path comes from
//! the target, and the file may be anything.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use crate::app::code_text::SourceText;
use crate::config::SourcePath;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::text::{clean, clean_bytes};
use crate::process::target_files::{open_beneath, open_here};
use crate::symbols::has_own_root;

/// Maximum bytes and lines that are read of a file, and maximum bytes of a line.
const BYTES_MAX: u64 = 8 << 20;
const LINES_MAX: usize = 200_000;
const LINE_MAX: usize = 1000;
/// Cells to the next tab stop.
const TAB: usize = 8;
/// Where build tools put the sources of Java, below a project's directory.
const JAVA_ROOTS: [&str; 4] = ["", "src/main/java", "src/test/java", "src"];

/// A source file that was found.
struct Opened {
    path: String,
    file: File,
}

/// Reads the source file of a location, which has one: at its path beneath the roots of these
/// processes, in their order, at its path here, or where the user said. `built`: when the program's
/// file was changed last. Else one sentence.
pub fn read(
    location: &Location,
    processes: &[u32],
    sources: &[SourcePath],
    built: Option<SystemTime>,
) -> Result<SourceText, String> {
    let Opened { path, file } = open(location, processes, sources)?;
    let modified = file.metadata().and_then(|meta| meta.modified()).ok();
    let is_newer = modified.zip(built).is_some_and(|(modified, built)| modified > built);
    let shown = clean(&path, LINE_MAX).into_owned();
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{shown}: {}", words(&error)))?;
    let (lines, is_cut) = lines(&bytes).ok_or_else(|| format!("{shown} is no text"))?;
    Ok(SourceText { path: shown, lines, is_newer, is_cut })
}

/// Splits a file into clean lines; says whether there are more. `None` for what is no text.
fn lines(bytes: &[u8]) -> Option<(Vec<String>, bool)> {
    if bytes.contains(&0) {
        return None;
    }
    let is_long = bytes.len() as u64 > BYTES_MAX;
    let bytes = &bytes[..bytes.len().min(BYTES_MAX as usize)];
    let mut all = bytes.split(|byte| *byte == b'\n');
    let mut lines: Vec<String> = all.by_ref().take(LINES_MAX).map(line).collect();
    let more = all.next().is_some_and(|rest| !rest.is_empty());
    // Behind the last line break there is no line.
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Some((lines, more || is_long))
}

/// Returns a line with spaces for tabs.
fn line(bytes: &[u8]) -> String {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if !bytes.contains(&b'\t') {
        return clean_bytes(bytes, LINE_MAX);
    }
    let mut text = String::new();
    let mut column = 0;
    for c in String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LINE_MAX)]).chars() {
        let cells = if c == '\t' { TAB - column % TAB } else { 1 };
        (0..cells).for_each(|_| text.push(if c == '\t' { ' ' } else { c }));
        column += cells;
    }
    clean(&text, LINE_MAX).into_owned()
}

fn open(location: &Location, processes: &[u32], sources: &[SourcePath]) -> Result<Opened, String> {
    let named = location.file.as_deref().unwrap_or_default();
    // Node names its modules so.
    let named = named.strip_prefix("file://").unwrap_or(named);
    let path = path_in_package(location, Path::new(named));
    let mut refused = None;
    let mut check = |shown: PathBuf, opened: io::Result<File>| match opened {
        Ok(file) => Some(Opened { path: shown.to_string_lossy().into_owned(), file }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            refused.get_or_insert((shown, error));
            None
        }
    };
    if path.is_absolute() {
        // At the same path this machine may have the source of another build.
        for pid in processes.iter().filter(|pid| has_own_root(**pid)) {
            let shown = PathBuf::from(format!("/proc/{pid}/root{}", path.display()));
            if let Some(found) = check(shown, open_beneath(*pid, &path)) {
                return Ok(found);
            }
        }
        if let Some(found) = check(path.clone(), open_here(&path)) {
            return Ok(found);
        }
    }
    for place in sources.iter().flat_map(|source| places(source, &path, location.kind)) {
        // A relative DIR is below the directory that sampletop was started in.
        let Ok(place) = std::path::absolute(place) else { continue };
        if let Some(found) = check(place.clone(), open_here(&place)) {
            return Ok(found);
        }
    }
    let path = clean(&path.to_string_lossy(), LINE_MAX).into_owned();
    Err(match refused {
        Some((shown, error)) => {
            format!("{}: {}", clean(&shown.to_string_lossy(), LINE_MAX), words(&error))
        }
        None if sources.is_empty() => format!("{path} is not on this machine (--source DIR)"),
        None => format!("{path} is neither on this machine nor below --source"),
    })
}

/// Returns the path of a Java class: its package is its directory.
fn path_in_package(location: &Location, file: &Path) -> PathBuf {
    if location.kind != FrameKind::Java || file.is_absolute() {
        return file.to_owned();
    }
    // `com.shop.Cart.total`: a method, its class, its package.
    let mut parts: Vec<&str> = location.function.split('.').collect();
    parts.truncate(parts.len().saturating_sub(2));
    let mut path: PathBuf = parts.iter().collect();
    path.push(file);
    path
}

/// Returns a path without `..`, by its names alone: directories of the build need not exist here.
fn without_parents(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = normal.pop(),
            part => normal.push(part),
        }
    }
    normal
}

/// Returns where a file may be, the longest end of its path first.
fn places(source: &SourcePath, path: &Path, kind: FrameKind) -> Vec<PathBuf> {
    let normal = without_parents(path);
    let names: Vec<&std::ffi::OsStr> = normal
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    match source {
        SourcePath::Moved { from, to } => {
            let moved = |path: &Path| path.strip_prefix(from).ok().map(|rest| to.join(rest));
            moved(path).or_else(|| moved(&normal)).into_iter().collect()
        }
        SourcePath::Below(folder) => {
            let roots: &[&str] = if kind == FrameKind::Java { &JAVA_ROOTS } else { &[""] };
            let ends = (0..names.len()).map(|from| names[from..].iter().collect::<PathBuf>());
            let ends: Vec<PathBuf> = ends.collect();
            let below =
                |end: &PathBuf| roots.iter().map(|root| folder.join(root).join(end)).collect();
            ends.iter().flat_map(|end| -> Vec<PathBuf> { below(end) }).collect()
        }
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => clean(&error.to_string(), LINE_MAX).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::Location;

    fn location(file: &str) -> Location {
        Location { file: Some(file.into()), ..Location::named("f", FrameKind::Native) }
    }

    fn java(function: &str, file: &str) -> Location {
        Location { file: Some(file.into()), ..Location::named(function, FrameKind::Java) }
    }

    /// Writes files into a new directory.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        folder
    }

    fn first_line(location: &Location, sources: &[SourcePath]) -> Result<String, String> {
        read(location, &[], sources, None).map(|text| text.lines[0].clone())
    }

    #[test]
    fn the_path_itself_then_a_replaced_prefix_then_the_longest_end() {
        let here = folder(&[("a/x.c", "here"), ("b/src/x.c", "end"), ("b/x.c", "name")]);
        let path = |end: &str| here.path().join(end);
        let at = |end: &str| location(&path(end).to_string_lossy());
        let below = |end: &str| SourcePath::Below(path(end));
        assert_eq!(first_line(&at("a/x.c"), &[below("b")]), Ok("here".into()));
        let lost = location("/build/7/src/x.c");
        assert_eq!(first_line(&lost, &[below("b")]), Ok("end".into()));
        assert_eq!(first_line(&location("/build/7/lib/x.c"), &[below("b")]), Ok("name".into()));
        let moved = SourcePath::Moved { from: "/build/7/src".into(), to: path("a") };
        assert_eq!(first_line(&lost, &[moved.clone(), below("b")]), Ok("here".into()));
        // A prefix ends with a whole name.
        assert!(first_line(&location("/build/7/srcs/x.c"), &[moved]).is_err());
        assert_eq!(first_line(&location("src/x.c"), &[below("b")]), Ok("end".into()));
        assert_eq!(
            first_line(&lost, &[]).unwrap_err(),
            "/build/7/src/x.c is not on this machine (--source DIR)"
        );
        assert!(first_line(&lost, &[below("none")]).unwrap_err().contains("nor below --source"));
    }

    #[test]
    fn no_path_leads_out_of_the_directory() {
        let here = folder(&[("secret", "no"), ("b/x.c", "yes")]);
        let below = [SourcePath::Below(here.path().join("b"))];
        for path in ["../secret", "/lost/../secret", "b/../../secret"] {
            assert!(first_line(&location(path), &below).is_err(), "{path}");
        }
    }

    #[test]
    fn directories_that_a_path_leaves_again_need_not_exist() {
        let here = folder(&[("s/src/x.c", "found"), ("s/obj/src/x.c", "other")]);
        let lost = location("/build/7/obj/../src/x.c");
        let below = SourcePath::Below(here.path().join("s"));
        assert_eq!(first_line(&lost, &[below]), Ok("found".into()));
        let to = here.path().join("s");
        let moved = SourcePath::Moved { from: "/build/7/src".into(), to: to.join("src") };
        assert_eq!(first_line(&lost, &[moved]), Ok("found".into()));
        let moved = SourcePath::Moved { from: "/build/7/obj".into(), to: to.join("obj") };
        assert_eq!(first_line(&lost, &[moved]), Ok("found".into()));
    }

    #[test]
    fn a_module_of_node_is_named_by_its_address() {
        let here = folder(&[("a.mjs", "module")]);
        let at = location(&format!("file://{}", here.path().join("a.mjs").display()));
        assert_eq!(first_line(&at, &[]), Ok("module".into()));
    }

    #[test]
    fn a_package_of_java_is_a_directory() {
        let files = [("src/main/java/com/shop/Cart.java", "cart"), ("lib/Pay.java", "pay")];
        let here = folder(&files);
        let sources = [SourcePath::Below(here.path().to_owned())];
        let cart = java("com.shop.Cart$Item.total", "Cart.java");
        assert_eq!(first_line(&cart, &sources), Ok("cart".into()));
        let lib = [SourcePath::Below(here.path().join("lib"))];
        assert_eq!(first_line(&java("com.shop.Pay.go", "Pay.java"), &lib), Ok("pay".into()));
        assert!(first_line(&java("Pay.go", "Pay.java"), &[]).unwrap_err().starts_with("Pay.java"));
    }

    #[test]
    fn only_regular_files_of_text_are_read() {
        let here = folder(&[("data", "a\0b")]);
        let at = |end: &str| location(&here.path().join(end).to_string_lossy());
        assert!(first_line(&at("data"), &[]).unwrap_err().contains("is no text"));
        assert!(first_line(&location("/dev/zero"), &[]).is_err());
        assert!(first_line(&location("/proc/version"), &[]).is_err());
        assert!(first_line(&location(&here.path().to_string_lossy()), &[]).is_err());
    }

    #[test]
    fn lines_are_clean_and_bounded() {
        let text = b"\tif (x) {\r\n\x1b[31mred\xe2\x80\xae\n\n\xff\ta\n";
        let (found, is_cut) = lines(text).expect("text");
        assert_eq!(found, ["        if (x) {", "[31mred", "", "\u{fffd}       a"]);
        assert!(!is_cut);
        let (found, is_cut) = lines(&b"x\n".repeat(LINES_MAX + 1)).expect("text");
        assert!(is_cut && found.len() == LINES_MAX);
        let (found, is_cut) = lines(&b"y".repeat(BYTES_MAX as usize + 1)).expect("text");
        assert!(is_cut && found.len() == 1 && found[0].len() <= LINE_MAX);
        assert!(line(&b"\t".repeat(1 << 20)).len() <= LINE_MAX);
        assert_eq!(lines(b""), Some((Vec::new(), false)));
        let here = folder(&[("x.c", &"a line\n".repeat(20_000))]);
        let at = location(&here.path().join("x.c").to_string_lossy());
        let read = read(&at, &[], &[], None).expect("read");
        assert_eq!((read.lines.len(), read.is_cut), (20_000, false));
    }

    #[test]
    fn a_file_that_is_newer_than_the_program_is_told() {
        let here = folder(&[("x.c", "text")]);
        let at = location(&here.path().join("x.c").to_string_lossy());
        let newer = |built| read(&at, &[], &[], built).expect("read").is_newer;
        let now = SystemTime::now();
        let day = std::time::Duration::from_secs(86_400);
        assert!(newer(Some(now - day)) && !newer(Some(now + day)) && !newer(None));
    }
}
