//! Rows of the task iterator. Our own program in the kernel writes them, but the target chooses
//! names and registers. Input: 8 bytes for the offset of our time namespace's clock, 8 for that of
//! the scheduler's, then the bytes that one read returns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::capture::bpf::rows::{
    Clocks, Copied, KERNEL_LARGEST, LARGEST, ROW, SLOTS, What, decode,
};
use sampletop_fuzz::{Input, within};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let clocks = Clocks { boot: input.u64() as i64, scheduler: input.u64() };
    let bytes = input.0;
    within(200, || {
        let Ok(rows) = decode(bytes, clocks) else {
            assert_ne!(bytes.len() % ROW, 0, "whole rows are never refused");
            return;
        };
        assert_eq!(rows.len() * ROW, bytes.len());
        for row in rows {
            assert!(b"RSDTtXZPI".contains(&row.state), "{}", row.state);
            assert!(row.name.bytes().len() <= 15 && row.left_core <= row.at);
            if let What::Blocked(blocked) = row.what {
                assert!(
                    blocked.slot < SLOTS
                        && blocked.stack_bytes <= LARGEST
                        && blocked.kernel_bytes <= KERNEL_LARGEST
                );
                assert!(
                    blocked.registers.rip != 0
                        && blocked.registers.rsp != 0
                        && blocked.registers.rbp.is_some()
                );
                assert!(blocked.call.number >= -1);
            }
            let mut frames = Vec::new();
            Copied { stack: &[], kernel: &bytes[..bytes.len().min(KERNEL_LARGEST)] }
                .kernel_frames(&mut frames);
            assert!(frames.len() <= KERNEL_LARGEST / 8);
        }
    });
});
