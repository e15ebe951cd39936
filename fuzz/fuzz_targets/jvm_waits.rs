//! What threads of a virtual machine wait for and who holds it, where memory is garbage or an
//! attack. The memory was recorded from a real one; words of it are changed before the first
//! observation, or after it. Input: see [`changed_waits::observe`].
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sampletop_fuzz::waits::{Recorded, WAITS};
use sampletop_fuzz::{changed_waits, within};

static ALL: LazyLock<Vec<Recorded>> = LazyLock::new(|| WAITS.iter().map(Recorded::load).collect());

fuzz_target!(|data: &[u8]| within(5_000, || changed_waits::observe(&ALL, data)));
