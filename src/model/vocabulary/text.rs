//! Text that came from a target, made safe to show, to compare and to write to a terminal.
//!
//! Every string of a target (symbol, path, thread name, command line) passes through here once,
//! where it is interned. What is removed could move the cursor, change the direction of the text
//! around it, or hide: control characters, and the format and other invisible characters of Unicode
//! 17 (general category Cf and the property Default_Ignorable_Code_Point). Wide and combining
//! characters stay; how many cells they take is the screen's affair.

use std::borrow::Cow;

/// The longest name that is kept of a function, file or module, in bytes.
pub const NAME_CAP: usize = 4096;

/// Written in place of what a cap cut off.
const CUT: &str = "...";

/// `text` without control and invisible characters (a tab or line break becomes one space), at most
/// `cap` bytes. What is longer is cut between characters and ends in `...`. Borrows where nothing
/// had to change.
pub fn clean(text: &str, cap: usize) -> Cow<'_, str> {
    if text.len() <= cap && text.chars().all(|c| fate(c) == Fate::Keep) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(cap));
    for c in text.chars() {
        let c = match fate(c) {
            Fate::Keep => c,
            Fate::Space => ' ',
            Fate::Drop => continue,
        };
        if out.len() + c.len_utf8() > cap {
            cut(&mut out, cap);
            break;
        }
        out.push(c);
    }
    Cow::Owned(out)
}

/// [`clean`] for bytes of any kind: what is not UTF-8 becomes U+FFFD. Reads no more than the
/// first `4 * cap` bytes.
pub fn clean_bytes(bytes: &[u8], cap: usize) -> String {
    // One byte more than could be kept, so that a cut is seen; invisible characters take up to 4
    // bytes each.
    let bytes = &bytes[..bytes.len().min(cap.saturating_mul(4).saturating_add(1))];
    clean(&String::from_utf8_lossy(bytes), cap).into_owned()
}

/// Shortens `text` so that `...` fits behind it within `cap`.
fn cut(text: &mut String, cap: usize) {
    let mut end = cap.saturating_sub(CUT.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    if cap >= CUT.len() {
        text.push_str(CUT);
    }
}

#[derive(PartialEq, Eq)]
enum Fate {
    Keep,
    Space,
    Drop,
}

fn fate(c: char) -> Fate {
    match c {
        ' '..='~' => Fate::Keep,
        '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => Fate::Space,
        // C0, DEL, C1.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => Fate::Drop,
        c if invisible(c) => Fate::Drop,
        _ => Fate::Keep,
    }
}

/// Cf and Default_Ignorable_Code_Point of Unicode 17 (DerivedGeneralCategory.txt,
/// DerivedCoreProperties.txt), with the interlinear and annotation blocks rounded up to their
/// unassigned neighbours.
fn invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}' | '\u{feff}' | '\u{3164}' | '\u{ffa0}'
        | '\u{600}'..='\u{605}'
        | '\u{890}'..='\u{891}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        for text in ["", "std::vec::Vec<T>::push", "Größe 漢字 e\u{301}", "a b"] {
            assert!(matches!(clean(text, NAME_CAP), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn nothing_that_moves_hides_or_turns_text_survives() {
        assert_eq!(clean("\u{1b}[2Jevil\u{7}\u{9b}31m", 99), "[2Jevil31m");
        assert_eq!(clean("user\u{202e}nimda\u{202c}\u{2066}\u{2069}", 99), "usernimda");
        assert_eq!(clean("a\u{200b}\u{200d}\u{feff}\u{ad}\u{fe0f}\u{e0041}b", 99), "ab");
        assert_eq!(clean("two\nlines\tand\u{2028}more", 99), "two lines and more");
        assert_eq!(clean("nul\0 del\u{7f}", 99), "nul del");
    }

    #[test]
    fn every_character_is_clean_or_gone() {
        for c in ('\0'..=char::MAX).filter(|c| c.is_control()) {
            let text = format!("<{c}>");
            assert!(matches!(&*clean(&text, 99), "<>" | "< >"), "{c:?}");
        }
    }

    #[test]
    fn a_cap_cuts_between_characters() {
        assert_eq!(clean("abcdefgh", 8), "abcdefgh");
        assert_eq!(clean("abcdefghi", 8), "abcde...");
        assert_eq!(clean("ääää", 8), "ääää");
        assert_eq!(clean("äääää", 8), "ää...");
        assert_eq!(clean("abc", 2), "");
        assert_eq!(clean("a\u{200b}bc", 3), "abc");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_bounded() {
        assert_eq!(clean_bytes(b"ok\xff\xfe", 99), "ok\u{fffd}\u{fffd}");
        let huge = vec![b'x'; 1 << 20];
        let kept = clean_bytes(&huge, NAME_CAP);
        assert_eq!(kept.len(), NAME_CAP);
        assert!(kept.ends_with("x..."));
    }
}
