//! A whole file: ELF, symbol tables, procedure linkage table, unwind entries, debug info.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::symbols::{Spot, name_image};
use sampletop_fuzz::{check_names, within};

fuzz_target!(|image: &[u8]| {
    let len = image.len() as u64;
    // Through code, tables, headers and beyond the end; ascending, the order in which the worker
    // asks.
    let mut spots: Vec<Spot> =
        (0..60).map(|n| Spot { offset: n * len / 56, exact: n % 3 == 0 }).collect();
    spots.extend([0, u64::MAX].map(|offset| Spot { offset, exact: false }));
    spots.sort_unstable();
    if let Some(named) = within(1000, || name_image("made-up", image.to_vec(), &spots)) {
        check_names(&spots, &named);
    }
});
