//! `/proc/PID/maps`: the target chooses paths, addresses (by mapping) and the number of lines.
#![no_main]

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use sampletop::process::maps::{Mapping, Maps};
use sampletop_fuzz::within;

fuzz_target!(|text: &[u8]| {
    let maps = within(200, || Maps::parse(text));
    assert!(maps.iter().len() <= text.split(|b| *b == b'\n').count());
    for pair in maps.iter().as_slice().windows(2) {
        assert!(pair[0].end <= pair[1].start, "sorted, and nothing overlaps");
    }
    within(500, || {
        for mapping in maps.iter() {
            assert!(mapping.start < mapping.end);
            assert_eq!(maps.find(mapping.start), Some(mapping));
            assert_eq!(maps.find(mapping.end - 1), Some(mapping));
            let loaded = maps.loaded_with(mapping);
            assert!(loaded.is_empty() || loaded.contains(mapping) && loaded[0].offset == 0);
            for address in mapping.start.checked_sub(1).into_iter().chain([mapping.end]) {
                assert!(maps.find(address).is_none_or(|found| found != mapping));
                assert!(
                    maps.stack_of(address)
                        .is_none_or(|stack| stack.readable || stack.start > address)
                );
            }
        }
    });
    // The parsed mappings, written in the kernel's format, parse to the same mappings.
    let mut written = Vec::new();
    for mapping in maps.iter() {
        write(mapping, &mut written);
    }
    let again = Maps::parse(&written);
    assert!(again.iter().eq(maps.iter()), "{}", String::from_utf8_lossy(&written));
});

fn write(mapping: &Mapping, out: &mut Vec<u8>) {
    let flag = |set: bool, letter: char| if set { letter } else { '-' };
    let mut line = String::new();
    let _ = write!(line, "{:x}-{:x} ", mapping.start, mapping.end);
    line.push(flag(mapping.readable, 'r'));
    line.push(flag(mapping.writable, 'w'));
    line.push(flag(mapping.executable, 'x'));
    let (major, minor) = mapping.device;
    let _ = write!(line, "p {:08x} {major:02x}:{minor:02x} {} ", mapping.offset, mapping.inode);
    out.extend(line.into_bytes());
    for byte in mapping.path.as_os_str().as_bytes() {
        match byte {
            b'\n' => out.extend(b"\\012"),
            byte => out.push(*byte),
        }
    }
    if mapping.deleted {
        out.extend(b" (deleted)");
    }
    out.push(b'\n');
}
