//! The records of our own ring. Input: the words of one record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::capture::event_ring::{channel, decode, encode};
use sampletop_fuzz::{Input, within};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let words: Vec<u64> = std::iter::from_fn(|| (!input.is_empty()).then(|| input.u64())).collect();
    within(200, || {
        let Some(event) = decode(&words) else { return };
        let mut again = Vec::new();
        encode(&event, &mut again);
        assert!(again.len() <= words.len().max(1), "nothing is added");
        assert_eq!(decode(&again).as_ref(), Some(&event));
        let (mut writer, mut reader) = channel(2 * again.len() + 64);
        for _ in 0..2 {
            assert!(writer.push(&event));
        }
        assert_eq!(
            (reader.next().as_ref(), reader.next().as_ref(), reader.next()),
            (Some(&event), Some(&event), None)
        );
    });
});
