//! Profiles of other tools: folded stacks.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sampletop_fuzz::import(data));
