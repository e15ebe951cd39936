//! A source map, and the comment in a script that says where it is. Input: the script, a byte 0,
//! and the map.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::runtimes::source_maps::map::SourceMap;
use sampletop::runtimes::source_maps::paths::{MapPlace, map_of};
use sampletop_fuzz::{assert_clean, within};

fuzz_target!(|data: &[u8]| within(2_000, || observe(data)));

fn observe(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (script, json) = (String::from_utf8_lossy(&data[..end]), data.get(end + 1..));
    match map_of(&script, "/srv/app/a.js") {
        Some(MapPlace::File(path)) => {
            assert!(path.starts_with('/') && !path.split('/').any(|part| part == ".."), "{path}");
        }
        Some(MapPlace::Inside(json)) => drop(SourceMap::parse(&json, "/srv/app/a.js")),
        Some(MapPlace::Elsewhere) | None => {}
    }
    let Some(map) = SourceMap::parse(json.unwrap_or_default(), "/srv/app/a.js.map") else { return };
    // Segments take a few times their text; lines and paths have limits of their own.
    assert!(map.size() <= 64 * data.len() + (33 << 20), "{} of {}", map.size(), data.len());
    for line in (0..20).chain([u32::MAX]) {
        for column in [0, 1, 10, 1000, u32::MAX] {
            if let Some(place) = map.place(line, column) {
                assert_clean(place.source, NAME_CAP);
                assert!(place.line > 0 && place.behind <= column);
            }
        }
    }
}
