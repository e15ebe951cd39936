//! The classes in a jar or war, by its central directory alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rawzip::{CompressionMethod, RangeReader, ReaderAt, ZipArchive, ZipArchiveEntryWayfinder};

/// Maximum entries read of a file, with those of the jars in it.
const ENTRIES_MAX: usize = 2_000_000;
/// Maximum bytes of a manifest.
const MANIFEST_MAX: u64 = 64 << 10;
/// How far from its end the directory of a file is looked for: the longest comment that the format
/// allows.
const COMMENT_MAX: u64 = 1 << 16;

/// The place of a class within a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Within {
    /// At the top, as in a plain jar.
    Top,
    /// In the directory of the program's own classes: `BOOT-INF/classes`, `WEB-INF/classes`.
    Classes,
    /// In a jar inside of the file: `BOOT-INF/lib`, `WEB-INF/lib`.
    Nested,
}

/// What the manifest names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    pub main: Option<String>,
    /// The program's main class, where the one above is a launcher's (Spring Boot).
    pub start: Option<String>,
}

/// A part of a file, as a file.
#[derive(Clone)]
pub struct Part<R> {
    whole: Arc<R>,
    start: u64,
    end: u64,
}

impl<R: ReaderAt> Part<R> {
    pub fn whole(file: R, length: u64) -> Part<R> {
        Part { whole: Arc::new(file), start: 0, end: length }
    }

    fn part(&self, start: u64, end: u64) -> Part<R> {
        let at = |offset: u64| self.start.saturating_add(offset).min(self.end);
        Part { whole: self.whole.clone(), start: at(start), end: at(end) }
    }
}

impl<R: ReaderAt> ReaderAt for Part<R> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let at = self.start.saturating_add(offset).min(self.end);
        let length = buffer.len().min(usize::try_from(self.end - at).unwrap_or(usize::MAX));
        self.whole.read_at(&mut buffer[..length], at)
    }
}

/// A regular file of a target.
pub struct Positioned(pub File);

impl ReaderAt for Positioned {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }
}

/// Calls `class` with the full name of each class, as often as it has inner ones, and returns the
/// manifest. `None` if the file is no archive. A damaged one has the classes before the damage.
pub fn read<R: ReaderAt>(file: &Part<R>, class: &mut dyn FnMut(&str, Within)) -> Option<Manifest> {
    let mut left = ENTRIES_MAX;
    let (manifest, nested) = read_one(file, &mut left, &mut |name, within| class(name, within))?;
    for jar in nested {
        // What a nested jar nests is not on its class path.
        let _ = read_one(&jar, &mut left, &mut |name, within| {
            if within == Within::Top {
                class(name, Within::Nested);
            }
        });
    }
    Some(manifest)
}

/// Reads one archive. Returns its manifest and the jars in it.
fn read_one<R: ReaderAt>(
    file: &Part<R>,
    left: &mut usize,
    class: &mut dyn FnMut(&str, Within),
) -> Option<(Manifest, Vec<Part<R>>)> {
    let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
    let locator = ZipArchive::with_max_search_space(COMMENT_MAX);
    let length = file.end - file.start;
    let archive = locator.locate_in_reader(file, &mut buffer, length).ok()?;
    let (mut manifest, mut jars) = (None, Vec::new());
    let mut entries = archive.entries(&mut buffer);
    while let Ok(Some(entry)) = entries.next_entry() {
        *left = left.checked_sub(1)?;
        let path = entry.file_path();
        let Ok(path) = std::str::from_utf8(path.as_ref()) else { continue };
        if let Some(path) = path.strip_suffix(".class") {
            match ["BOOT-INF/classes/", "WEB-INF/classes/"]
                .iter()
                .find_map(|d| path.strip_prefix(d))
            {
                Some(path) => class(&path.replace('/', "."), Within::Classes),
                None => class(&unversioned(path).replace('/', "."), Within::Top),
            }
        } else if path == "META-INF/MANIFEST.MF" {
            manifest = Some((entry.wayfinder(), entry.compression_method()));
        } else if path.ends_with(".jar") && entry.compression_method() == CompressionMethod::STORE {
            jars.push(entry.wayfinder());
        }
    }
    let range = |entry: ZipArchiveEntryWayfinder| {
        archive.get_entry(entry).ok().map(|entry| entry.compressed_data_range())
    };
    let manifest = manifest.and_then(|(entry, method)| {
        let (start, end) = range(entry)?;
        manifest_of(RangeReader::new(file, start..end), method)
    });
    let jars = jars.into_iter().filter_map(range).map(|(start, end)| file.part(start, end));
    Some((manifest.unwrap_or_default(), jars.collect()))
}

/// A class of a multi-release jar has a copy for newer versions of Java.
fn unversioned(path: &str) -> &str {
    let versioned = path.strip_prefix("META-INF/versions/");
    versioned.and_then(|path| path.split_once('/')).map_or(path, |(_, path)| path)
}

fn manifest_of(bytes: impl Read, method: CompressionMethod) -> Option<Manifest> {
    let mut text = String::new();
    let read = match method {
        CompressionMethod::STORE => bytes.take(MANIFEST_MAX).read_to_string(&mut text),
        CompressionMethod::DEFLATE => {
            flate2::read::DeflateDecoder::new(bytes).take(MANIFEST_MAX).read_to_string(&mut text)
        }
        _ => return None,
    };
    read.ok()?;
    // A long line goes on in the next one, behind a blank.
    let text = text.replace("\r\n", "\n").replace("\n ", "");
    let value = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    };
    Some(Manifest { main: value("Main-Class"), start: value("Start-Class") })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write;

    /// Returns an archive of these files. Those with content are compressed, unless they are jars.
    pub fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut archive = rawzip::ZipArchiveWriter::new(&mut bytes);
        for (name, content) in files {
            let deflated = name.ends_with(".MF");
            let method = match deflated {
                true => CompressionMethod::DEFLATE,
                false => CompressionMethod::STORE,
            };
            let entry = archive.new_file(name).compression_method(method);
            let (mut entry, config) = entry.start().unwrap();
            let written = if deflated {
                let encoder =
                    flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
                let mut writer = config.wrap(encoder);
                writer.write_all(content).unwrap();
                let (encoder, written) = writer.finish().unwrap();
                encoder.finish().unwrap();
                written
            } else {
                let mut writer = config.wrap(&mut entry);
                writer.write_all(content).unwrap();
                writer.finish().unwrap().1
            };
            entry.finish(written).unwrap();
        }
        archive.finish().unwrap();
        bytes
    }

    fn classes(bytes: Vec<u8>) -> Option<(Vec<String>, Manifest)> {
        let length = bytes.len() as u64;
        let mut found = Vec::new();
        let manifest = read(&Part::whole(bytes, length), &mut |name, within| {
            found.push(format!("{name} {within:?}"));
        });
        Some((found, manifest?))
    }

    #[test]
    fn a_spring_boot_jar_has_launcher_program_and_libraries() {
        let library = archive(&[
            ("META-INF/MANIFEST.MF", b"Main-Class: com.lib.Tool\n"),
            ("com/lib/Json.class", b"x"),
            ("BOOT-INF/classes/x/Y.class", b""),
            ("META-INF/versions/21/com/lib/Json.class", b"x"),
        ]);
        let jar = archive(&[
            (
                "META-INF/MANIFEST.MF",
                b"Manifest-Version: 1.0\r\nMain-Class: org.springframework.boot.loader.launch.JarL\r\n auncher\r\nStart-Class: com.shop.Shop\r\n",
            ),
            ("org/springframework/boot/loader/launch/JarLauncher.class", b""),
            ("BOOT-INF/classes/com/shop/Shop.class", b""),
            ("BOOT-INF/classes/com/shop/Shop$Inner.class", b""),
            ("BOOT-INF/classes/application.yml", b"a: b"),
            ("BOOT-INF/lib/lib-1.0.jar", &library),
        ]);
        let (classes, manifest) = classes(jar).unwrap();
        assert_eq!(
            classes,
            [
                "org.springframework.boot.loader.launch.JarLauncher Top",
                "com.shop.Shop Classes",
                "com.shop.Shop$Inner Classes",
                "com.lib.Json Nested",
                "com.lib.Json Nested",
            ]
        );
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(manifest.main, name("org.springframework.boot.loader.launch.JarLauncher"));
        assert_eq!(manifest.start, name("com.shop.Shop"));
    }

    #[test]
    fn other_files_have_no_classes() {
        assert_eq!(classes(b"no archive".to_vec()), None);
        assert_eq!(classes(Vec::new()), None);
        let (found, manifest) = classes(archive(&[("a.txt", b"x")])).unwrap();
        assert_eq!((found.len(), manifest), (0, Manifest::default()));
    }

    #[test]
    fn a_cut_or_changed_file_ends_without_panic() {
        let nested = archive(&[("com/lib/Json.class", b"x")]);
        let jar = archive(&[
            ("META-INF/MANIFEST.MF", b"Main-Class: com.shop.Shop\n"),
            ("WEB-INF/lib/a.jar", &nested),
        ]);
        for at in 0..jar.len() {
            let _ = classes(jar[..at].to_vec());
            for bit in [1, 0x80, 0xff] {
                let mut changed = jar.clone();
                changed[at] ^= bit;
                let _ = classes(changed);
            }
        }
    }
}
