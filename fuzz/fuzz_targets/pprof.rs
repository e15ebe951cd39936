//! Profiles of other tools: profile.proto, packed or not.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sampletop_fuzz::import(data));
