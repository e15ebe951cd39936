//! Rows of the iterator over open files. Our own program in the kernel writes them, but programs
//! choose addresses and descriptors. Input: 2 bytes for the maximum of descriptors, then the bytes
//! that one read returns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::process::waits::endpoints::{Endpoints, HOLDERS, ROW, What, decode};
use sampletop_fuzz::{Input, within};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let max = usize::from(input.u16());
    let bytes = input.0;
    within(500, || {
        let mut endpoints = Endpoints::default();
        let has_room = endpoints.add(bytes, max);
        assert!(endpoints.len() <= max && endpoints.len() <= bytes.len() / ROW);
        for (holder, _) in decode(bytes) {
            assert!(holder.pid != 0 && holder.fd >= 0);
            let Some(endpoint) = endpoints.of(holder) else {
                assert!(!has_room, "every row is kept while there is room");
                continue;
            };
            let others = endpoints.others(holder, endpoint.inode);
            assert!(others.len() <= HOLDERS);
            assert!(others.is_sorted() && others.iter().all(|other| other.pid != holder.pid));
            assert!(endpoints.others(holder, endpoint.inode ^ 1).is_empty());
            if let What::Unix { peer: None } = endpoint.what {
                assert!(others.is_empty());
            }
        }
    });
});
