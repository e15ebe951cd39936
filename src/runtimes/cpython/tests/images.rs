//! Files that have an interpreter, by made-up mappings and images.

use super::*;
use crate::process::maps::Maps;

fn search(text: &str) -> Vec<u64> {
    image::candidates(&Maps::parse(text.as_bytes())).map(|mapping| mapping.start).collect()
}

#[test]
fn libraries_come_before_the_program_and_others_are_left_alone() {
    let text = "\
400000-500000 r-xp 00000000 8:1 5 /usr/bin/uwsgi
7f0000000000-7f0000001000 r--p 00000000 8:1 6 /usr/lib/libc.so.6
7f0000100000-7f0000101000 r--p 00001000 8:1 7 /usr/lib/libpython3.9.so.1.0
7f0000200000-7f0000201000 r--p 00000000 8:1 7 /usr/lib/libpython3.9.so.1.0 (deleted)
7f0000300000-7f0000301000 rw-p 00000000 00:00 0
";
    assert_eq!(search(text), [0x7f00_0020_0000, 0x40_0000]);
    assert_eq!(search("7f0000300000-7f0000301000 rw-p 00000000 00:00 0\n"), [0_u64; 0]);
}

/// A library's exports cannot be read before it is loaded. It is searched again for some time.
#[test]
fn a_library_that_is_being_loaded_is_searched_again() {
    let maps = |file: &str| {
        Maps::parse(format!("{IMAGE:x}-500000 r--p 00000000 8:1 5 /usr/lib/{file}\n").as_bytes())
    };
    let world = World::default();
    let mut search = image::Search::default();
    let mut is_loading = |file| {
        assert_eq!(search.find(&&world, &maps(file)), None);
        search.is_loading()
    };
    assert!(is_loading("libpython3.9.so.1.0"));
    assert!(!is_loading("libc.so.6"));
    let times = (0..1_000).take_while(|_| is_loading("libpython3.9.so.1.0")).count();
    assert_eq!(times, 199);
    assert!(!is_loading("libpython3.9.so.1.0"));
}

const IMAGE: u64 = 0x40_0000;

/// Makes an image whose unwind information has functions of these lengths, one behind the other
/// from 0x10000 on.
fn image(world: &World, lengths: &[u32]) -> Vec<u64> {
    let mut header = [0u8; 64 + 2 * 56];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[32] = 64;
    (header[54], header[56]) = (56, 2);
    let (hdr, frames) = (0x1000u32, 0x4000u32);
    header[64] = 1;
    header[64 + 56..64 + 60].copy_from_slice(&0x6474_e550u32.to_le_bytes());
    header[64 + 56 + 16..64 + 56 + 20].copy_from_slice(&hdr.to_le_bytes());
    world.put(IMAGE, &header);
    let mut table = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
    table.extend((lengths.len() as u32).to_le_bytes());
    let (mut start, mut starts) = (0x1_0000u32, Vec::new());
    for (nth, length) in (0u32..).zip(lengths) {
        let entry = frames + 32 * nth;
        table.extend((start - hdr).to_le_bytes());
        table.extend((entry - hdr).to_le_bytes());
        let mut frame = [0u8; 16];
        frame[8..12].copy_from_slice(&(start.wrapping_sub(entry + 8)).to_le_bytes());
        frame[12..].copy_from_slice(&length.to_le_bytes());
        world.put(IMAGE + u64::from(entry), &frame);
        starts.push(IMAGE + u64::from(start));
        start += length + 16;
    }
    world.put(IMAGE + u64::from(hdr), &table);
    starts
}

#[test]
fn functions_are_found_by_the_unwind_information() {
    let world = World::default();
    let starts = image(&world, &[100, 50_000, 1200, 90_000, 40_000]);
    let functions = image::Functions::read(&&world, IMAGE).expect("functions");
    let around = |at| functions.around(&&world, at);
    assert_eq!(around(starts[2] + 1199), Some(starts[2]..starts[2] + 1200));
    assert_eq!((around(starts[2] + 1200), around(starts[0] - 1)), (None, None));
    assert_eq!(functions.longest(&&world), Some(starts[3]..starts[3] + 90_000));
    // An entry of another function.
    world.put(IMAGE + 0x4000 + 32 * 3 + 8, &[1]);
    assert_eq!(functions.longest(&&world), Some(starts[1]..starts[1] + 50_000));
    let starts = image(&world, &[100, 200, 60_000]);
    let functions = image::Functions::read(&&world, IMAGE).expect("functions");
    assert_eq!(functions.longest(&&world), Some(starts[2]..starts[2] + 60_000), "the last one");
    image(&world, &[100, 200]);
    let functions = image::Functions::read(&&world, IMAGE).expect("functions");
    assert_eq!(functions.longest(&&world), None);
    world.put(IMAGE + 0x1003, &[0x1b]);
    assert!(image::Functions::read(&&world, IMAGE).is_none(), "another encoding");
}

#[test]
fn a_version_is_found_in_the_data() {
    let world = World::default();
    let start = 0x50_0000;
    world.put(start, &vec![b'3'; 600 << 10]);
    let image = Image::made_up(IMAGE, RUNTIME, None, start..start + (600 << 10));
    let version = |world: &World| image.layout(&world).map(|(version, _)| version.words());
    let unknown = Err(Unreadable::Refused("its version is not known".into()));
    assert_eq!(version(&world), unknown);
    // Across the pieces in which it is read.
    world.put(start + (256 << 10) - 3, b"3.9.18 (main, ");
    assert_eq!(version(&world), Ok("3.9.18".into()));
    world.put(start + (256 << 10) - 3, b"3.7.16 (main, ");
    let refused = Unreadable::Refused("the layout of version 3.7.16 is not known".into());
    assert_eq!(version(&world), Err(refused.clone()));
    assert_eq!(
        refused.message(false).as_deref(),
        Some("its Python frames cannot be read: the layout of version 3.7.16 is not known")
    );
    world.put(RUNTIME, &description(14, true));
    assert_eq!(version(&world), Ok("3.14.0".into()));
    world.put(RUNTIME + 10, &[16]);
    assert_eq!(
        version(&world),
        Err(Unreadable::Refused("the layout of version 3.16.0 is not known".into()))
    );
}
