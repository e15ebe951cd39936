//! Rows of the map in which our program in the kernel counts wakeups: threads choose their names
//! and calls. Input: rows of 6 words of 32 bits and 5 of 64.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::model::vocabulary::wakeup::Waker;
use sampletop::process::wakeups::decode;
use sampletop_fuzz::{Input, assert_clean, within};

/// Maximum bytes of a name: what the kernel keeps.
const NAME: usize = 15;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    within(200, || {
        while !input.is_empty() {
            let pair = [(); 6].map(|()| u32::from(input.u16()) | u32::from(input.u16()) << 16);
            let waker = [(); 5].map(|()| input.u64());
            row(&pair, &waker);
        }
    });
});

fn row(pair: &[u32; 6], waker: &[u64; 5]) {
    let row = decode(pair, waker);
    assert_eq!((row.woken.pid, row.woken.tid, row.count), (pair[2], pair[3], waker[0]));
    match row.waker {
        Waker::Interrupt => assert_eq!(pair[4] as i32, -1),
        Waker::KernelThread { tid, name } => {
            assert_eq!((pair[4] as i32, tid), (-2, pair[1]));
            assert_clean(&name, NAME);
        }
        // A thread that has no number here.
        Waker::Hidden { call } => assert_eq!((call, pair[0]), (pair[4], 0)),
        Waker::Thread { pid, tid, name, process, call } => {
            assert!(pid != 0 && call < -2_i32 as u32);
            assert_eq!((pid, tid, call), (pair[0], pair[1], pair[4]));
            [name, process].iter().for_each(|text| assert_clean(text, NAME));
        }
    }
}
