//! Any text as printable ASCII of bounded width, which survives mails, tickets and terminals of any
//! age.

use std::borrow::Cow;

const CUT: &str = "...";

/// Writes everything but printable ASCII as `\u{hex}`, as Rust does: still readable, still exact.
pub fn ascii(text: &str) -> Cow<'_, str> {
    match text.bytes().all(printable) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(pieces(text).map(|piece| piece.to_string()).collect()),
    }
}

/// Shortens [`ascii`] to `width` columns by cutting the middle. Cuts more of the front than of the
/// end, since the end of a qualified name is the most informative part. Keeps an escape whole or
/// drops it.
pub fn fit(text: &str, width: usize) -> String {
    let whole = ascii(text);
    if whole.len() <= width {
        return whole.into_owned();
    }
    if width <= CUT.len() {
        return CUT[..width].to_owned();
    }
    let front = (width - CUT.len()) / 3;
    let back = width - CUT.len() - front;
    let pieces: Vec<Piece> = pieces(text).collect();
    let end = taken(pieces.iter(), front);
    let begin = pieces.len() - taken(pieces.iter().rev(), back);
    let mut out = String::with_capacity(width);
    out.extend(pieces[..end].iter().map(Piece::to_string));
    out.push_str(CUT);
    out.extend(pieces[begin..].iter().map(Piece::to_string));
    out
}

/// Wraps [`ascii`] to lines of `width` columns, at blanks where the second half of a line has any.
/// Returns at most `max_lines` lines, never none; the last ends in `...` if the text is cut.
pub fn wrap(text: &str, width: usize, max_lines: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in pieces(text) {
        let last = lines.len() == max_lines;
        let Some(line) = lines.last_mut() else { break };
        if line.len() + piece.len() <= width {
            line.push_str(&piece.to_string());
            continue;
        }
        if last {
            line.truncate(width.saturating_sub(CUT.len()).min(line.len()));
            line.push_str(CUT);
            break;
        }
        let carried = match line.rfind(' ') {
            Some(blank) if blank > width / 2 && piece.0 != ' ' => line.split_off(blank + 1),
            _ => String::new(),
        };
        let next = carried + piece.to_string().trim_start();
        lines.push(next);
    }
    lines
}

/// Returns how many of `pieces` fit in `width`.
fn taken<'a>(pieces: impl Iterator<Item = &'a Piece>, width: usize) -> usize {
    let mut left = width;
    pieces
        .take_while(|piece| left.checked_sub(piece.len()).map(|rest| left = rest).is_some())
        .count()
}

fn printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

fn pieces(text: &str) -> impl Iterator<Item = Piece> + '_ {
    text.chars().map(Piece)
}

/// One character in its written form.
struct Piece(char);

impl Piece {
    fn len(&self) -> usize {
        match self.0 {
            ' '..='~' => 1,
            // \u{} around at least one hexadecimal digit.
            c => 5 + (u32::from(c) | 1).ilog2() as usize / 4,
        }
    }
}

impl std::fmt::Display for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write;
        match self.0 {
            c @ ' '..='~' => f.write_char(c),
            c => write!(f, "\\u{{{:x}}}", u32::from(c)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_ascii_is_spelled_out() {
        assert_eq!(ascii("a::b<T>"), "a::b<T>");
        assert_eq!(ascii("größe\t\u{1f600}"), "gr\\u{f6}\\u{df}e\\u{9}\\u{1f600}");
    }

    #[test]
    fn the_middle_goes_first() {
        assert_eq!(fit("std::collections::hash::map::insert", 20), "std::...:map::insert");
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "...");
        assert_eq!(fit("abcd", 2), "..");
        // An escape that does not fit whole is dropped.
        assert_eq!(fit("\u{1f600}abcdefghij", 12), "...efghij");
    }

    #[test]
    fn long_text_goes_over_several_lines() {
        assert_eq!(wrap("abcdef", 3, 5), ["abc", "def"]);
        assert_eq!(wrap("abcdefghij", 5, 2), ["abcde", "fghij"]);
        assert_eq!(wrap("abcdefghijk", 5, 2), ["abcde", "fg..."]);
        assert_eq!(wrap("", 5, 2), [""]);
        assert_eq!(wrap("one two three four", 9, 5), ["one two ", "three ", "four"]);
    }

    proptest! {
        #[test]
        fn width_is_kept_and_all_is_printable(text in "\\PC{0,40}|.{0,80}", width in 0usize..50, most in 1usize..4) {
            let fitted = fit(&text, width);
            prop_assert!(fitted.len() <= width && fitted.bytes().all(printable), "{:?}", fitted);
            if ascii(&text).len() <= width {
                prop_assert_eq!(fitted, ascii(&text).into_owned());
            }
            let width = width.max(10);
            let lines = wrap(&text, width, most);
            prop_assert!(lines.len() <= most && lines.iter().all(|l| l.len() <= width && l.bytes().all(printable)));
        }
    }
}
