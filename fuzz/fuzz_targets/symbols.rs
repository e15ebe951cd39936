//! A whole file: ELF, symbol tables, procedure linkage table, unwind entries, debug info; and its
//! code as instructions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::text::clean;
use sampletop::symbols::{INSTRUCTIONS_MAX, Spot, disassemble_image, name_image};
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
    let Ok(code) = within(1000, || disassemble_image(image.to_vec(), len / 2)) else { return };
    assert!(code.list.len() <= INSTRUCTIONS_MAX);
    for pair in code.list.windows(2) {
        assert_eq!(pair[0].address + u64::from(pair[0].len), pair[1].address);
    }
    for at in &code.list {
        assert!((1..=15).contains(&at.len) && at.text.len() < 1000);
        assert_eq!(clean(&at.text, 1000), at.text);
    }
});
