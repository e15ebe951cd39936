//! Debug info, in a file that is well-formed otherwise. Input: one piece per section, in the order
//! of [`SECTIONS`].
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::symbols::{Spot, name_image};
use sampletop_fuzz::{DWARF_SECTIONS, Input, check_names, elf, within};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let sections = DWARF_SECTIONS.map(|name| (name, elf::PROGBITS, input.piece()));
    let image = elf::file(&sections);
    let spots: Vec<Spot> =
        (0..60).map(|n| Spot { offset: n * elf::CODE_END / 60, exact: n % 3 == 0 }).collect();
    let named = within(1000, || name_image("made-up", image, &spots)).expect("a well-formed file");
    check_names(&spots, &named);
});
