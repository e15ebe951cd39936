//! Go's table of functions: a table, and every address that it may describe.
#![no_main]

use std::cell::Cell;

use libfuzzer_sys::fuzz_target;
use sampletop::pclntab::{Bytes, HEADER, Header, Table};
use sampletop_fuzz::within;

fuzz_target!(|data: &[u8]| {
    let Some(header) =
        data.get(..HEADER).and_then(|head| Header::parse(head.try_into().expect("72 bytes")))
    else {
        return;
    };
    let counted = Counted { bytes: data, reads: Cell::new(0) };
    let Some(table) = Table::new(header, 0x1000, &counted) else { return };
    let _ = table.fits(&data);
    assert!(counted.reads.get() < 1 << 19, "{} reads", counted.reads.get());
    for address in (0xff0..0x1100).chain([0, u64::MAX]) {
        counted.reads.set(0);
        within(100, || {
            let Some(function) = table.function(address) else { return };
            assert!((function.start..function.end).contains(&address));
            assert!(table.frame_size(&function, address).is_none_or(|size| size.is_multiple_of(8)));
            assert!(
                table.name(&function).is_none_or(|name| !name.is_empty() && name.len() <= 17 << 10)
            );
            let at = table.positions(&function, address, Some(&data)).unwrap_or_default();
            assert!(at.len() <= 130 && at.iter().all(|at| at.name.len() <= 17 << 10));
        });
        // A mebibyte of values and 260 strings of 16 KiB, 64 bytes at a time.
        assert!(counted.reads.get() < 6 << 14, "{} reads", counted.reads.get());
    }
});

struct Counted<'b> {
    bytes: &'b [u8],
    reads: Cell<u32>,
}

impl Bytes for &Counted<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.reads.set(self.reads.get() + 1);
        self.bytes.read(offset, buf)
    }
}
