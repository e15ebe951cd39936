//! Debug information of compiled methods. For each call and each safepoint it lists the inlined
//! methods and the place in each of them.

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::code_cache::Blob;
use crate::runtimes::jvm::layout::{DebugInfo, Layout, Number, Width};
use crate::runtimes::jvm::unsigned5::Unsigned5;

/// Maximum depth of inlining; HotSpot's own limit is below 20.
const DEPTH_MAX: usize = 64;
/// Maximum bytes of all debug information of one method.
const BYTES_MAX: u64 = 8 << 20;

/// A place in a method's bytecode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scope {
    /// Address of its `Method`.
    pub method: u64,
    /// -1: at the method's entry.
    pub bci: i32,
}

/// The handler of an exception that comes out of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Handler {
    /// Distances from the code's beginning: the return address of the call, and the handler's
    /// beginning.
    call: i32,
    begin: i32,
    bci: i32,
    /// Inlined methods that are left to reach the handler.
    leaves: usize,
}

/// The debug information of one compiled method.
#[derive(Clone, Debug, Default)]
pub struct Scopes {
    /// Distance from the code's beginning and offset of the record, sorted by distance.
    pcs: Vec<(i32, i32)>,
    records: Vec<u8>,
    /// `Method`s by their index, from 1.
    metadata: Vec<u64>,
    excluded: u8,
    /// `None`: the handlers are unknown.
    handlers: Option<Vec<Handler>>,
}

impl Scopes {
    /// Reads the debug information; `None` where it is unreadable or inconsistent.
    pub fn read<M: ReadMemory>(memory: &M, layout: &Layout, blob: &Blob) -> Option<Scopes> {
        let header = &blob.header;
        let at = |from: u64, distance: i64| {
            u64::try_from(distance).ok().and_then(|distance| from.checked_add(distance))
        };
        let place = |from: u64, number: Number| match (number.width, number.of(header)) {
            (Width::Half, distance) => from.checked_add(u64::from(distance as u16)),
            (_, distance) => at(from, distance),
        };
        let (pcs, records, metadata) = match layout.blob.debug {
            DebugInfo::InBlob { metadata, scopes, pcs, pcs_end } => {
                let (metadata, scopes) =
                    (at(blob.start, metadata.of(header))?, scopes.of(blob.start, header));
                let (pcs, end) =
                    (at(blob.start, pcs.of(header))?, at(blob.start, pcs_end.of(header))?);
                ((pcs, end), (scopes, pcs), (metadata, scopes))
            }
            DebugInfo::Apart { data, size, pcs, scopes, mutable, mutable_size, relocations } => {
                let data = data.of(header) as u64;
                let (end, pcs, scopes) = (
                    at(data, size.of(header))?,
                    at(data, pcs.of(header))?,
                    at(data, scopes.of(header))?,
                );
                let mutable = mutable.of(header) as u64;
                let metadata =
                    (at(mutable, relocations.of(header))?, at(mutable, mutable_size.of(header))?);
                ((pcs, scopes), (scopes, end), metadata)
            }
        };
        let handlers =
            layout.blob.handlers.and_then(|(begin, end)| match (layout.blob.debug, end) {
                (DebugInfo::InBlob { .. }, Some(end)) => {
                    Some((place(blob.start, begin)?, place(blob.start, end)?))
                }
                (DebugInfo::Apart { data, .. }, _) => {
                    Some((place(data.of(header) as u64, begin)?, pcs.0))
                }
                _ => None,
            });
        let bytes = |(from, till): (u64, u64)| {
            let length = till.checked_sub(from).filter(|length| *length <= BYTES_MAX)?;
            let mut bytes = vec![0; length as usize];
            memory.read_exact(from, &mut bytes)?;
            Some(bytes)
        };
        let l = &layout.pc_desc;
        let pcs = bytes(pcs)?
            .chunks_exact(l.size)
            .map(|desc| (l.pc.of(desc) as i32, l.scope.of(desc) as i32))
            .collect();
        let metadata = bytes(metadata)?;
        let words = metadata
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let handlers = handlers.and_then(bytes).and_then(|table| read_handlers(&table));
        let (metadata, excluded) = (words.collect(), layout.excluded);
        Some(Scopes { pcs, records: bytes(records)?, metadata, excluded, handlers })
    }

    /// Returns the bytes of memory used.
    pub fn size(&self) -> usize {
        let handlers =
            self.handlers.as_ref().map_or(0, |handlers| size_of::<Handler>() * handlers.len());
        8 * (self.pcs.len() + self.metadata.len()) + self.records.len() + handlers
    }

    /// Whether there is a record for exactly this distance from the code's beginning. Then it is a
    /// return address or a safepoint.
    pub fn exact(&self, distance: u64) -> bool {
        i32::try_from(distance)
            .is_ok_and(|distance| self.pcs.binary_search_by_key(&distance, |(pc, _)| *pc).is_ok())
    }

    /// Returns the methods at this distance from the code's beginning, innermost first. They are
    /// those of the next record from there on, as in HotSpot itself. Empty where nothing is known.
    pub fn at(&self, distance: u64) -> Vec<Scope> {
        let Ok(distance) = i32::try_from(distance) else { return Vec::new() };
        let next = self.pcs.partition_point(|(pc, _)| *pc < distance);
        // The last entry, behind all code, has no record; some others have none either.
        let upto = (next + 1).min(self.pcs.len());
        let Some((_, record)) =
            self.pcs[..upto].iter().rev().find(|(pc, record)| *record != 0 && *pc >= 0)
        else {
            return Vec::new();
        };
        let (mut scopes, mut at) = (Vec::new(), *record);
        while scopes.len() < DEPTH_MAX {
            let Some((sender, scope)) = self.record(at) else { return Vec::new() };
            scopes.extend(scope);
            // Records of callers lie before those of their callees.
            match sender {
                0 => break,
                sender if sender < at => at = sender,
                _ => return Vec::new(),
            }
        }
        scopes
    }

    /// Returns the methods whose exception handler begins at this distance from the code's
    /// beginning, innermost first. Empty where no handler begins there. `None`: the tables do not
    /// say which.
    pub fn handler(&self, distance: u64) -> Option<Vec<Scope>> {
        let distance = i32::try_from(distance).ok()?;
        let mut found: Option<Vec<Scope>> = None;
        for handler in self.handlers.as_ref()?.iter().filter(|handler| handler.begin == distance) {
            let call = u64::try_from(handler.call).ok().filter(|call| self.exact(*call))?;
            let mut scopes = self.at(call);
            if handler.leaves >= scopes.len() {
                return None;
            }
            scopes.drain(..handler.leaves);
            scopes[0].bci = handler.bci;
            if found.get_or_insert_with(|| scopes.clone()) != &scopes {
                return None;
            }
        }
        Some(found.unwrap_or_default())
    }

    /// Reads the offset of the caller's record (0: none) and the method; `None` if this is no
    /// record.
    fn record(&self, at: i32) -> Option<(i32, Option<Scope>)> {
        let mut numbers =
            Unsigned5::new(self.records.get(usize::try_from(at).ok()?..)?, self.excluded);
        let (sender, method, bci) = (numbers.unsigned()?, numbers.unsigned()?, numbers.unsigned()?);
        let method = match method.checked_sub(1) {
            Some(index) => Some(*self.metadata.get(index as usize)?),
            None => None,
        };
        let bci = i32::try_from(bci).ok()?.checked_sub(1)?;
        Some((i32::try_from(sender).ok()?, method.map(|method| Scope { method, bci })))
    }
}

/// Parses the handler table: one list per call, with its number of entries and the return address.
/// Each entry has bytecode index, beginning, and number of methods left. All are 32 bits; up to a
/// word of padding may follow. `None`: the table is inconsistent.
fn read_handlers(table: &[u8]) -> Option<Vec<Handler>> {
    let words: Vec<i32> = table
        .chunks_exact(4)
        .map(|word| i32::from_le_bytes([0, 1, 2, 3].map(|at| word[at])))
        .collect();
    let mut entries = words.chunks_exact(3);
    let mut handlers = Vec::new();
    while let Some([count, call, _]) = entries.next() {
        for _ in 0..*count {
            let [bci, begin, leaves] = entries.next()? else { return None };
            let leaves = usize::try_from(*leaves).ok()?;
            handlers.push(Handler { call: *call, begin: *begin, bci: *bci, leaves });
        }
    }
    Some(handlers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scopes() -> Scopes {
        // At 1: method 2, entry, no caller. At 4: method 1, bci 9, called from the record at 1. At
        // 7: a caller behind it.
        let records = vec![0xff, 0, 2, 0, 1, 1, 10, 9, 1, 1];
        let pcs = vec![(-1, 0), (16, 1), (32, 4), (48, 0), (64, 7), (100, 0)];
        let handlers = read_handlers(&[1, 32, 0, 5, 40, 1].map(i32::to_le_bytes).concat());
        Scopes { pcs, records, metadata: vec![0x1000, 0x2000], excluded: 0, handlers }
    }

    #[test]
    fn the_next_record_at_or_after_the_pc_is_used() {
        let scopes = scopes();
        let outer = Scope { method: 0x2000, bci: -1 };
        let inner = Scope { method: 0x1000, bci: 9 };
        assert_eq!(scopes.at(16), [outer]);
        assert_eq!(scopes.at(0), [outer]);
        assert_eq!((scopes.at(17), scopes.at(32)), (vec![inner, outer], vec![inner, outer]));
        assert_eq!(scopes.at(40), [inner, outer], "what has no record has that of the one before");
        assert!(scopes.at(64).is_empty(), "a caller behind what it calls");
        assert!(scopes.exact(48) && !scopes.exact(47));
    }

    #[test]
    fn a_handler_is_in_the_method_that_the_table_says() {
        let scopes = scopes();
        assert_eq!(
            scopes.handler(40),
            Some(vec![Scope { method: 0x2000, bci: 5 }]),
            "the inlined one is left"
        );
        assert_eq!(scopes.handler(41), Some(Vec::new()));
        let with = |table: &[i32]| {
            let table: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
            Scopes { handlers: read_handlers(&table), ..scopes.clone() }
        };
        let inner = Scope { method: 0x1000, bci: 7 };
        assert_eq!(with(&[1, 32, 0, 7, 40, 0, 0]).handler(40).map(|found| found[0]), Some(inner));
        // The handler of another call is in another method; then of no call; further out than there
        // are methods; a truncated table.
        for table in [
            &[1, 32, 0, 7, 40, 0, 1, 16, 0, 7, 40, 0][..],
            &[1, 33, 0, 7, 40, 0],
            &[1, 32, 0, 7, 40, 2],
            &[2, 32, 0, 7, 40, 0],
        ] {
            assert_eq!(with(table).handler(40), None, "{table:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_has_an_end(
            records in prop::collection::vec(any::<u8>(), 0..60),
            mut pcs in prop::collection::vec((any::<i8>(), -3i32..70), 0..20),
            distance in 0u64..200, excluded in 0u8..2,
        ) {
            pcs.sort_unstable();
            let pcs = pcs.into_iter().map(|(pc, record)| (i32::from(pc), record)).collect();
            let scopes = Scopes { pcs, records, metadata: vec![1; 5], excluded, handlers: None };
            prop_assert!(scopes.at(distance).len() <= DEPTH_MAX);
        }
    }
}
