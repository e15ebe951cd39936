//! Reading a virtual machine whose memory is garbage, or an attack. The memory was recorded from a
//! real one; words of it are changed before the first observation, or between two. Input: see
//! [`look`].
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sampletop_fuzz::changed::observe;
use sampletop_fuzz::recording::{RECORDINGS, Recording};
use sampletop_fuzz::within;

static ALL: LazyLock<Vec<Recording>> =
    LazyLock::new(|| RECORDINGS.iter().map(Recording::load).collect());

fuzz_target!(|data: &[u8]| within(5_000, || observe(&ALL, data)));
