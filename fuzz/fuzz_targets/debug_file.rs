//! Build id and .gnu_debuglink: they decide which files of this host are opened. Input: a piece
//! that is the note, a piece that is the link, the path of the file.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use sampletop::symbols::{SearchPath, debug_file_places};
use sampletop_fuzz::{Input, elf, within};

/// SHT_NOTE (elf.h).
const NOTE: u32 = 7;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (note, link) = (input.piece(), input.piece());
    // A path from the kernel contains no zero byte.
    let path = input.0.split(|b| *b == 0).next().unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(&path[..path.len().min(4096)]));
    let image =
        elf::file(&[(".note.gnu.build-id", NOTE, note), (".gnu_debuglink", elf::PROGBITS, link)]);
    let search = SearchPath { debug_dirs: vec!["/debug".into()], caches: vec!["/cache".into()] };
    let places = within(200, || debug_file_places(&image, path, &search));
    assert!(places.len() <= 5);
    let hexadecimal =
        |part: &OsStr| part.as_bytes().iter().all(u8::is_ascii_hexdigit) && part.len() <= 128;
    for place in places {
        assert!(place.is_absolute() && !place.as_os_str().as_bytes().contains(&0));
        // The file may choose a plain name only, not the folder.
        let folder = place.parent().expect("a file in a folder");
        let name = place.file_name().expect("a plain name");
        let of_link = link.split(|b| *b == 0).next() == Some(name.as_bytes());
        let home = path.parent().unwrap_or(Path::new("/"));
        let below = home.strip_prefix("/").unwrap_or(home);
        let by_link = of_link
            && (folder == home
                || folder == home.join(".debug")
                || folder == Path::new("/debug").join(below));
        let parts: Vec<&OsStr> = place.components().map(Component::as_os_str).skip(1).collect();
        let by_id = match parts[..] {
            [debug, ids, first, rest] => {
                let rest = Path::new(rest);
                debug == "debug"
                    && ids == ".build-id"
                    && first.len() == 2
                    && hexadecimal(first)
                    && rest.extension() == Some(OsStr::new("debug"))
                    && rest.file_stem().is_some_and(hexadecimal)
            }
            [cache, id, file] => cache == "cache" && file == "debuginfo" && hexadecimal(id),
            _ => false,
        };
        assert!(by_link || by_id, "{}", place.display());
    }
});
