//! Objects that lead to awaiting functions, which the kernel takes with the samples of their
//! threads (awaiting.bpf.h).

use crate::unwinder::awaiting::{AwaitLayout, OBJECT_WORDS, TakenObject, TakenObjects};

/// Words of `struct await_layout`.
pub const LAYOUT: usize = 17;
/// Bytes of `struct taken_object`: two addresses, its type, its words.
const OBJECT: usize = 8 * (3 + OBJECT_WORDS);
/// Maximum objects that are taken.
const OBJECTS_MAX: usize = 136;

/// Returns the words of `struct await_layout`.
pub fn words(layout: &AwaitLayout) -> [u64; LAYOUT] {
    let limits = [layout.returns.iter().min(), layout.returns.iter().max()];
    let [lowest, highest] = limits.map(|limit| limit.copied().unwrap_or_default());
    [
        lowest,
        highest,
        layout.types.function.into(),
        layout.types.generator.into(),
        layout.types.promise.into(),
        layout.types.reaction.into(),
        layout.types.capability.into(),
        layout.types.request.into(),
        layout.functions[0].into(),
        layout.functions[1].into(),
        layout.instance_type,
        layout.context,
        layout.shared,
        layout.next_reaction,
        layout.data[0],
        layout.data[1],
        layout.resolve,
    ]
}

/// Decodes `struct taken_objects` behind its head; `count`: the number of objects. `None` for
/// garbage.
pub fn decode(count: usize, bytes: &[u8]) -> Option<TakenObjects> {
    let (outer, objects) = bytes.split_first_chunk()?;
    let objects = objects.get(..count.checked_mul(OBJECT)?).filter(|_| count <= OBJECTS_MAX)?;
    let word = |bytes: &[u8], nth: usize| {
        let word = bytes.get(8 * nth..8 * nth + 8).and_then(|word| word.try_into().ok());
        u64::from_ne_bytes(word.unwrap_or_default())
    };
    let object = |bytes: &[u8]| TakenObject {
        at: word(bytes, 0),
        now: word(bytes, 1),
        kind: word(bytes, 2) as u16,
        words: std::array::from_fn(|nth| word(bytes, 3 + nth)),
    };
    Some(TakenObjects {
        outer: u64::from_ne_bytes(*outer),
        is_full: count == OBJECTS_MAX,
        objects: objects.chunks_exact(OBJECT).map(object).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::awaiting::AwaitTypes;

    #[test]
    fn the_kernel_is_told_what_objects_are_like() {
        let layout = AwaitLayout {
            returns: vec![500, 300, 400],
            types: AwaitTypes {
                function: 1,
                generator: 2,
                promise: 3,
                reaction: 4,
                capability: 5,
                request: 6,
            },
            functions: [7, 8],
            instance_type: 9,
            context: 10,
            shared: 11,
            next_reaction: 12,
            data: [13, 14],
            resolve: 15,
        };
        let found = words(&layout);
        assert_eq!(found, [300, 500, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(words(&AwaitLayout::default()), [0; LAYOUT]);
    }

    #[test]
    fn objects_are_decoded() {
        let taken = |at: u64| TakenObject {
            at,
            now: at + 1,
            kind: at as u16,
            words: std::array::from_fn(|nth| at + 2 + nth as u64),
        };
        let mut written = 0x7000u64.to_ne_bytes().to_vec();
        for at in [0x100, 0x200] {
            let TakenObject { at, now, kind, words } = taken(at);
            let words = [vec![at, now, kind.into()], words.to_vec()].concat();
            written.extend(words.into_iter().flat_map(u64::to_ne_bytes));
        }
        let of = |objects: &[u64]| {
            let objects = objects.iter().copied().map(taken).collect();
            Some(TakenObjects { outer: 0x7000, is_full: false, objects })
        };
        assert_eq!(decode(2, &written), of(&[0x100, 0x200]));
        assert_eq!(decode(1, &written), of(&[0x100]), "what follows was there before");
        assert_eq!(decode(0, &written), of(&[]));
        assert_eq!(decode(3, &written), None);
        assert_eq!(decode(usize::MAX, &written), None);
        for length in 0..written.len() {
            assert_eq!(decode(2, &written[..length]), None, "{length}");
        }
        let many = vec![0; 8 + (OBJECTS_MAX + 1) * OBJECT];
        let full = decode(OBJECTS_MAX, &many).expect("as many");
        assert!(full.is_full && full.objects.len() == OBJECTS_MAX);
        assert_eq!(decode(OBJECTS_MAX + 1, &many), None);
    }

    #[test]
    fn the_kernel_takes_as_much() {
        let source = include_str!("awaiting.bpf.h");
        for (name, number) in [("OBJECTS_MOST", OBJECTS_MAX), ("SUSPENDED_WORDS", OBJECT_WORDS)] {
            assert!(source.contains(&format!("#define {name} {number}\n")), "{name}");
        }
    }
}
