//! The cleaning of foreign text. Input: a byte for the cap, then the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::text::{NAME_CAP, clean, clean_bytes};
use sampletop_fuzz::{Input, assert_clean, within};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let cap = match input.u8() {
        255 => NAME_CAP,
        small => small.into(),
    };
    within(200, || {
        let cleaned = clean_bytes(input.0, cap);
        assert_clean(&cleaned, cap);
        assert_eq!(clean(&cleaned, cap), cleaned, "cleaning twice changes nothing");
        if let Ok(text) = std::str::from_utf8(input.0) {
            let whole = clean(text, usize::MAX);
            assert_clean(&whole, text.len());
            let cut = clean(text, cap);
            assert_clean(&cut, cap);
            if whole.len() <= cap {
                assert_eq!(cut, whole);
            } else {
                assert!(
                    whole.starts_with(cut.strip_suffix("...").unwrap_or("")),
                    "{cut:?} of {whole:?}"
                );
            }
        }
    });
});
