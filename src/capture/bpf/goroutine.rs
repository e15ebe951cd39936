//! Stacks of goroutines that the kernel copies with the samples of their threads
//! (goroutine.bpf.h).

use crate::unwinder::GoroutineStack;

/// Maximum bytes that are copied.
const LARGEST: usize = 28 << 10;

/// Decodes `struct goroutine_stack` behind its head; `count`: bytes of the stack.
pub fn decode(count: usize, bytes: &[u8]) -> Option<GoroutineStack> {
    let (base, bytes) = bytes.split_first_chunk()?;
    let bytes = bytes.get(..count).filter(|bytes| bytes.len() <= LARGEST)?;
    Some(GoroutineStack { base: u64::from_ne_bytes(*base), bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_decoded() {
        let mut written = 0xc000_1000u64.to_ne_bytes().to_vec();
        written.extend([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let bytes = vec![1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(decode(8, &written), Some(GoroutineStack { base: 0xc000_1000, bytes }));
        assert_eq!(decode(10, &written), None, "cut");
        assert_eq!(decode(0, &written[..7]), None, "no base");
        let large = vec![0; 8 + LARGEST + 1];
        assert_eq!(decode(LARGEST, &large).expect("that large").bytes.len(), LARGEST);
        assert_eq!(decode(LARGEST + 1, &large), None);
    }

    #[test]
    fn the_kernel_copies_as_much() {
        let source = include_str!("goroutine.bpf.h");
        assert!(source.contains(&format!("#define GOROUTINE_MOST ({} << 10)\n", LARGEST >> 10)));
    }
}
