//! A jar, as a target may have one open: its directory, the jars in it, its manifest. Input: the
//! file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::runtimes::java_class_origins::jar::{Part, read};
use sampletop_fuzz::within;

/// An entry of a directory has at least this many bytes.
const ENTRY: usize = 46;

fuzz_target!(|data: &[u8]| within(1_000, || {
    let mut classes = 0;
    read(&Part::whole(data, data.len() as u64), &mut |class, _| {
        assert!(!class.contains('/'), "{class}");
        classes += 1;
    });
    // Each entry of the outer directory may be a jar that names the same bytes again.
    let entries = data.len() / ENTRY;
    assert!(classes <= entries + entries * entries, "{classes} in {} bytes", data.len());
}));
