//! Raw symbol names, including names whose mangling expands enormously.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::symbols::readable;
use sampletop_fuzz::{assert_clean, within};

fuzz_target!(|raw: &[u8]| {
    assert_clean(&within(500, || readable(raw)), NAME_CAP);
});
