//! Lengths of bytecodes, by version. Not all builds export V8's own table (`kBytecodeSizes`).

/// Version of V8: major, minor.
pub type Version = (i32, i32);

/// Lengths of all bytecodes of one version.
#[derive(PartialEq, Eq, Debug)]
pub struct Sizes {
    version: Version,
    /// One digit of base 36 a bytecode, in bytes without a prefix: with operands of single, double
    /// and fourfold width.
    rows: [&'static str; 3],
}

/// Prefixes: the first and the third double the operands of the next bytecode, the others make them
/// four times as wide.
const PREFIXES: u8 = 4;

impl Sizes {
    /// Returns the length of the bytecode at the start of `code`, with its prefix, and the length
    /// of the prefix.
    pub fn length(&self, code: &[u8]) -> Option<(usize, usize)> {
        let first = *code.first()?;
        let (row, prefix) = match first {
            0..PREFIXES => (1 + usize::from(first % 2), 1),
            _ => (0, 0),
        };
        let digit = *self.rows[row].as_bytes().get(usize::from(*code.get(prefix)?))?;
        let length = char::from(digit).to_digit(36).filter(|length| *length > 0)?;
        Some((prefix + length as usize, prefix))
    }
}

/// Returns the lengths of this version's bytecodes.
pub fn of(version: Version) -> Option<&'static Sizes> {
    SIZES.iter().find(|sizes| sizes.version == version)
}

const SIZES: [Sizes; 4] = [
    Sizes {
        version: (11, 3),
        rows: [
            "11111234556212111112442223222111233342244244344333444545333333333333333333333333\
             22221112224554565345556445533333333222215412414342333311142222222222222222222222\
             42335211112112454412211111111111111111",
            "11111357979313111113773335333111255573377377477555777878555555555555555555555555\
             333311133379979b9579979669955555555333317613616563555511173333333333333333333333\
             73559311113113797713311111111111111111",
            "1111159dhbf515111115dd55595551112999d55dd5dd6dd999dddede999999999999999999999999\
             5555111555dhhdhlh9dhhbfaahh9999999955551ba15a1a9a59999111d5555555555555555555555\
             d599h511115115dhdd15511111111111111111",
        ],
    },
    Sizes {
        version: (12, 4),
        rows: [
            "11111234556212111112442223222111233342422442443443533444545333333333333333333333\
             33322221112224554565345556445533333333312221154124143423333111422222222222222222\
             2222242335211112112454412211111111111111111",
            "11111357979313111113773335333111255573733773774775955777878555555555555555555555\
             555333311133379979b9579979669955555555513331176136165635555111733333333333333333\
             3333373559311113113797713311111111111111111",
            "1111159dhbf515111115dd55595551112999d5d55dd5dd6dd9h99dddede999999999999999999999\
             9995555111555dhhdhlh9dhhbfaahh999999999155511ba15a1a9a59999111d55555555555555555\
             55555d599h511115115dhdd15511111111111111111",
        ],
    },
    Sizes {
        version: (13, 6),
        rows: [
            "11111234556212111112444222232221112333424224442444344353344454533333333333333333\
             33333332222112222455456534555644553333333331222115412414342333311142222222222422\
             222222222244235211112112454412211111111111111111",
            "11111357979313111113777333353331112555737337773777477595577787855555555555555555\
             5555555333311333379979b957997966995555555551333117613616563555511173333333333733\
             333333333377359311113113797713311111111111111111",
            "1111159dhbf515111115ddd555595551112999d5d55ddd5ddd6dd9h99dddede99999999999999999\
             99999995555115555dhhdhlh9dhhbfaahh999999999155511ba15a1a9a59999111d5555555555d55\
             5555555555dd59h511115115dhdd15511111111111111111",
        ],
    },
    Sizes {
        version: (14, 6),
        rows: [
            "11111234556212111112444222232221112333424224442444344353344454533333333333334333\
             33333333322221122224554565345556445534444443312221154124143423333311142222222222\
             4222222222222442352511112112454412211111111111111111",
            "11111357979313111113777333353331112555737337773777477595577787855555555555556555\
             555555555333311333379979b9579979669955555555513331176136165635555511173333333333\
             7333333333333773593911113113797713211111111111111111",
            "1111159dhbf515111115ddd555595551112999d5d55ddd5ddd6dd9h99dddede9999999999999a999\
             9999999995555115555dhhdhlh9dhhbfaahh977777799155511ba15a1a9a599999111d5555555555\
             d555555555555dd59h5h11115115dhdd15211111111111111111",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bytecode_has_the_length_of_its_operands() {
        for sizes in &SIZES {
            let count = sizes.rows[0].len();
            assert!(sizes.rows.iter().all(|row| row.len() == count && count > 190));
            // LdaZero has none; the one before StackCheck-like ones has one.
            assert_eq!(sizes.length(&[4]), Some((1, 0)), "{:?}", sizes.version);
            assert_eq!(sizes.length(&[5, 0]), Some((2, 0)));
            assert_eq!(sizes.length(&[0, 5, 0, 0]), Some((4, 1)), "wide");
            assert_eq!(sizes.length(&[1, 5, 0, 0, 0, 0]), Some((6, 1)), "extra wide");
            assert_eq!(sizes.length(&[2, 5]), sizes.length(&[0, 5]));
            assert_eq!(sizes.length(&[3, 5]), sizes.length(&[1, 5]));
            assert_eq!([sizes.length(&[]), sizes.length(&[0]), sizes.length(&[255])], [None; 3]);
        }
        assert!(of((11, 3)).is_some() && of((9, 4)).is_none());
    }
}
