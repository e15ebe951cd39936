pub(crate) mod made_up;

use super::*;
use made_up::made_up;
use proptest::prelude::*;

fn open(bytes: &[u8]) -> Option<Table<&[u8]>> {
    let header = Header::parse(bytes.get(..HEADER)?.try_into().ok()?)?;
    Table::new(header, header.text, bytes)
}

#[test]
fn functions_frames_names_and_lines() {
    for layout in 0..BEGINS.len() {
        let bytes = made_up(layout);
        let table = open(&bytes).expect("a table");
        assert_eq!(table.range(), Some((0x1000, 0x1060)));
        let at = |address| table.function(address);
        assert_eq!((at(0xfff), at(0x1060)), (None, None));
        let f = at(0x1000).expect("f");
        assert_eq!((f.start, f.end, at(0x103f)), (0x1000, 0x1040, Some(f)));
        assert_eq!(table.name(&f).as_deref(), Some(&b"f"[..]));
        let sizes = [0x1000, 0x1003, 0x1004, 0x103b, 0x103c, 0x103f].map(|address| table.frame_size(&f, address));
        assert_eq!(sizes, [Some(0), Some(0), Some(0x18), Some(0x18), Some(0), Some(0)]);
        let line = |address| table.line(&f, address);
        assert_eq!(line(0x1007), Some((b"/src/a.go".to_vec(), 10)));
        assert_eq!(line(0x1008), Some((b"/src/a.go".to_vec(), 11)));
        assert_eq!(line(0x1020), None, "of what is inlined there");
        assert!(!f.is_outermost() && !f.writes_stack_pointer());
        let g = at(0x1045).expect("g");
        assert_eq!((table.name(&g), table.frame_size(&g, 0x1045)), (Some(b"g".to_vec()), Some(0)));
        let top = at(0x105f).expect("top");
        assert!(top.is_outermost());
        assert_eq!((table.name(&top), table.frame_size(&top, 0x105f)), (Some(b"runtime.top".to_vec()), None));
    }
}

/// Counts what is read.
struct Counted<'b>(&'b [u8], std::cell::Cell<usize>);

impl Bytes for &Counted<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        self.1.set(self.1.get() + 1);
        self.0.read(offset, buf)
    }
}

proptest! {
    #[test]
    fn damaged_tables_cost_no_more_than_their_bounds(
        layout in 0usize..2,
        changes in prop::collection::vec((0usize..400, any::<u8>()), 0..12),
        cut in 72usize..400,
        address in 0xff0u64..0x1070,
    ) {
        let mut bytes = made_up(layout);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut);
        let header = Header::parse(bytes[..HEADER].try_into().expect("72 bytes"));
        let counted = Counted(&bytes, std::cell::Cell::new(0));
        if let Some(header) = header
            && let Some(table) = Table::new(header, header.text, &counted)
            && let Some(function) = table.function(address)
        {
            prop_assert!((function.start..function.end).contains(&address));
            prop_assert!(table.frame_size(&function, address).is_none_or(|size| size % 8 == 0));
            let _ = (table.name(&function), table.line(&function, address));
        }
        prop_assert!(counted.1.get() < 200, "{} reads", counted.1.get());
    }
}
