//! V8's tables: positions of code in the source, and lengths of the parts of baseline code.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::runtimes::v8::bytecode_sizes;
use sampletop::runtimes::v8::positions::{bytecode_offset, position};
use sampletop_fuzz::{Input, within};

const VERSIONS: [bytecode_sizes::Version; 4] = [(11, 3), (12, 4), (13, 6), (14, 6)];

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let head = input.take(3);
    let [version, offset, length] = [0, 1, 2].map(|at| head.get(at).copied().unwrap_or(0));
    let table = input.take(length.into());
    let sizes = bytecode_sizes::of(VERSIONS[usize::from(version % 4)]).expect("a known version");
    let bytecodes = input.0;
    within(100, || {
        for offset in [u32::from(offset), 1000 * u32::from(offset), u32::MAX] {
            if let Some(found) = bytecode_offset(table, bytecodes, sizes, offset) {
                assert!((found as usize) < bytecodes.len());
            }
            for flagged in [false, true] {
                let found = position(data, offset, flagged);
                assert!(found.is_none_or(|found| found.offset < 1 << 30));
            }
        }
    });
});
