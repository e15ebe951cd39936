//! Thread-name rules and groupings as a user typed them, applied to a name. Input: rule, line
//! break, name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::projection::settings::{Grouping, Rename};
use sampletop::model::vocabulary::text::clean_bytes;
use sampletop::model::vocabulary::thread_name_rules::by_rules;
use sampletop_fuzz::{assert_clean, within};

fuzz_target!(|data: &[u8]| {
    let (rule, name) = match data.iter().position(|b| *b == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &b"pool-7-thread-12"[..]),
    };
    let Ok(rule) = std::str::from_utf8(rule) else { return };
    // The kernel keeps 15 bytes of a thread's name; it is cleaned when it is interned.
    let name = clean_bytes(&name[..name.len().min(15)], 64);
    // The error is one bounded sentence, whatever was typed.
    if let Err(error) = within(2000, || Grouping::parse(rule)) {
        assert_clean(&error, 1000);
    }
    match within(2000, || Rename::parse(rule)) {
        Err(error) => assert_clean(&error, 1000),
        Ok(rename) => {
            // The default rules make `(unnamed)` of an empty name. Each match, at most one per byte
            // and one behind them, becomes the text. Every two bytes of the text may stand for the
            // whole name.
            let (most_name, text) = (name.len().max(9), rename.text.len());
            let most = (most_name + 1) * (text + most_name * (text / 2 + 1) + 1);
            let renamed = within(2000, || by_rules(&name, std::slice::from_ref(&rename)));
            assert!(!renamed.trim().is_empty());
            assert!(renamed.len() <= most, "{} bytes instead of at most {most}", renamed.len());
        }
    }
});
