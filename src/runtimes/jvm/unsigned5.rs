//! HotSpot's compressed numbers (`UNSIGNED5`, src/hotspot/share/utilities/unsigned5.hpp): up to
//! five bytes of 6 bits each. A byte of at least 192 says that another follows.

/// A reader of consecutive compressed numbers.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned5<'b> {
    bytes: &'b [u8],
    /// Bytes below this occur in no number: 1 since JDK 20, where 0 ends a stream.
    excluded: u8,
}

impl<'b> Unsigned5<'b> {
    pub fn new(bytes: &'b [u8], excluded: u8) -> Unsigned5<'b> {
        Unsigned5 { bytes, excluded }
    }

    /// Returns the next byte without decoding.
    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    /// Decodes a number; `None` at the end and for an invalid one.
    pub fn unsigned(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in [0, 6, 12, 18, 24] {
            let byte = self.byte()?;
            let digit = u32::from(byte.checked_sub(self.excluded)?);
            value = value.wrapping_add(digit.wrapping_shl(shift));
            if byte < 192 {
                break;
            }
        }
        Some(value)
    }

    pub fn signed(&mut self) -> Option<i32> {
        let value = self.unsigned()?;
        Some((value >> 1) as i32 ^ -((value & 1) as i32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a number as the virtual machine does.
    fn write(mut value: u32, excluded: u8) -> Vec<u8> {
        let (low, mut out) = (192 - u32::from(excluded), Vec::new());
        for _ in 0..4 {
            if value < low {
                break;
            }
            value -= low;
            out.push((low + value % 64 + u32::from(excluded)) as u8);
            value /= 64;
        }
        out.push((value + u32::from(excluded)) as u8);
        out
    }

    #[test]
    fn small_numbers_are_one_byte() {
        assert_eq!(Unsigned5::new(&[191], 0).unsigned(), Some(191));
        assert_eq!(Unsigned5::new(&[191], 1).unsigned(), Some(190));
        assert_eq!(Unsigned5::new(&[192, 0], 0).unsigned(), Some(192));
        assert_eq!(
            (Unsigned5::new(&[0], 1).unsigned(), Unsigned5::new(&[200], 0).unsigned()),
            (None, None)
        );
        let signed: Vec<Option<i32>> =
            [0, 1, 2, 3].map(|n| Unsigned5::new(&[n], 0).signed()).to_vec();
        assert_eq!(signed, [Some(0), Some(-1), Some(1), Some(-2)]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(any::<u32>(), 1..20), excluded in 0u8..2) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| write(*value, excluded)).collect();
            let mut reader = Unsigned5::new(&bytes, excluded);
            let read: Vec<Option<u32>> = values.iter().map(|_| reader.unsigned()).collect();
            prop_assert_eq!(read, values.into_iter().map(Some).collect::<Vec<_>>());
            prop_assert_eq!(reader.unsigned(), None);
        }
    }
}
