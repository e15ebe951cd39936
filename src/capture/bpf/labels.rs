//! Labels of goroutines that the kernel takes with the samples of their threads (labels.bpf.h).

use crate::runtimes::go::labels::{KEY_MAX, LABELS_MAX, RawLabels, VALUE_MAX, shown_part};

/// Bytes of `struct taken_label`: two sizes, a key, a value.
const LABEL: usize = 8 + KEY_MAX + VALUE_MAX;

/// Decodes `struct taken_labels` behind its head; `count`: the number of labels taken. `None` for
/// garbage.
pub fn decode(count: usize, bytes: &[u8]) -> Option<RawLabels> {
    let (found, labels) = bytes.split_first_chunk()?;
    let labels = labels.get(..count.checked_mul(LABEL)?)?;
    if u64::from_ne_bytes(*found) != count as u64 || count > LABELS_MAX {
        return Some(RawLabels::Unknown);
    }
    let all: Option<Vec<_>> = labels.chunks_exact(LABEL).map(label).collect();
    all.map(|all| if all.is_empty() { RawLabels::None } else { RawLabels::All(all) })
}

fn label(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let size = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let text = |size: u32, at: usize, most: usize| {
        let taken = bytes.get(at..at + most.min(size as usize))?;
        Some(shown_part(taken.to_vec(), size.into(), most))
    };
    Some((text(size(0)?, 8, KEY_MAX)?, text(size(4)?, 8 + KEY_MAX, VALUE_MAX)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(found: u64, labels: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = found.to_ne_bytes().to_vec();
        for (key, value) in labels {
            let sizes = [key.len().min(KEY_MAX + 1), value.len().min(VALUE_MAX + 1)];
            bytes.extend(sizes.map(|size| (size as u32).to_ne_bytes()).concat());
            // What was there before lies behind a text.
            for (text, most) in [(key, KEY_MAX), (value, VALUE_MAX)] {
                let mut text = text.as_bytes().to_vec();
                text.resize(most, 0xaa);
                bytes.extend(text);
            }
        }
        bytes
    }

    fn all(labels: &[(&str, &str)]) -> RawLabels {
        let owned = |(key, value): &(&str, &str)| (key.as_bytes().into(), value.as_bytes().into());
        RawLabels::All(labels.iter().map(owned).collect())
    }

    #[test]
    fn labels_are_decoded() {
        let two = [("handler", "/catalog"), ("tenant", "")];
        assert_eq!(decode(2, &written(2, &two)), Some(all(&two)));
        assert_eq!(decode(0, &written(0, &[])), Some(RawLabels::None));
        // One was not readable; there are too many.
        assert_eq!(decode(2, &written(3, &two)), Some(RawLabels::Unknown));
        assert_eq!(decode(0, &written(17, &[])), Some(RawLabels::Unknown));
        let whole = written(2, &two);
        for length in 0..whole.len() {
            assert_eq!(decode(2, &whole[..length]), None, "{length}");
        }
        assert_eq!(decode(usize::MAX, &whole), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (size, cut) in [(184, false), (185, true), (400, true)] {
            let value = "x".repeat(size);
            let expected = if cut { format!("{}…", "x".repeat(184)) } else { value.clone() };
            let found = decode(1, &written(1, &[("k", &value)]));
            assert_eq!(found, Some(all(&[("k", &expected)])), "{size}");
        }
        let value = format!("{}äääää", "x".repeat(183));
        let expected = format!("{}…", "x".repeat(183));
        let found = decode(1, &written(1, &[(&"k".repeat(65), &value)]));
        assert_eq!(found, Some(all(&[(&format!("{}…", "k".repeat(64)), &expected)])));
    }

    #[test]
    fn the_kernel_takes_as_much() {
        let source = include_str!("labels.bpf.h");
        for (name, number) in
            [("LABELS_MOST", LABELS_MAX), ("KEY_MOST", KEY_MAX), ("VALUE_MOST", VALUE_MAX)]
        {
            assert!(source.contains(&format!("#define {name} {number}\n")), "{name}");
        }
    }
}
