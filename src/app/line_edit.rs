//! One line of text being typed.

use unicode_segmentation::UnicodeSegmentation;

use super::key::Key;

/// Maximum length of the text, in characters as the reader sees them.
const LONGEST: usize = 500;

/// Text and cursor; a character is a grapheme cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineEdit {
    text: String,
    /// Byte offset, always at a cluster's edge.
    cursor: usize,
    /// All of the text is a proposal: the first character typed replaces it, any other key edits
    /// it.
    proposed: bool,
}

impl LineEdit {
    /// Creates an edit with the cursor at the end.
    pub fn new(text: impl Into<String>) -> LineEdit {
        let text = text.into();
        LineEdit { cursor: text.len(), text, proposed: false }
    }

    /// Does the same as [`LineEdit::new`], but the first character typed replaces the text.
    pub fn proposing(text: impl Into<String>) -> LineEdit {
        LineEdit { proposed: true, ..LineEdit::new(text) }
    }

    /// Returns whether typing replaces the text.
    pub fn is_proposed(&self) -> bool {
        self.proposed && !self.text.is_empty()
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text left of the cursor, and the rest.
    pub fn halves(&self) -> (&str, &str) {
        self.text.split_at(self.cursor)
    }

    /// Handles a key; returns true if it has a meaning here.
    pub fn key(&mut self, key: Key) -> bool {
        let proposed = std::mem::take(&mut self.proposed);
        match key {
            Key::Char(c) if !c.is_control() => {
                if proposed {
                    self.text.clear();
                    self.cursor = 0;
                }
                self.insert(c);
            }
            Key::Left => self.cursor -= self.last_cluster(),
            Key::Right => self.cursor += self.halves().1.graphemes(true).next().map_or(0, str::len),
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.text.len(),
            Key::Backspace | Key::Ctrl('h') => {
                let from = self.cursor - self.last_cluster();
                self.text.replace_range(from..self.cursor, "");
                self.cursor = from;
            }
            Key::Delete => {
                let till = self.cursor + self.halves().1.graphemes(true).next().map_or(0, str::len);
                self.text.replace_range(self.cursor..till, "");
            }
            Key::Ctrl('u') => {
                self.text.replace_range(..self.cursor, "");
                self.cursor = 0;
            }
            Key::Ctrl('w') => {
                let left = self.text[..self.cursor].trim_end();
                let from = left.rfind(' ').map_or(0, |space| space + 1);
                self.text.replace_range(from..self.cursor, "");
                self.cursor = from;
            }
            _ => {
                self.proposed = proposed;
                return false;
            }
        }
        true
    }

    fn insert(&mut self, c: char) {
        if self.text.graphemes(true).count() < LONGEST {
            self.text.insert(self.cursor, c);
            self.cursor += c.len_utf8();
            // A combining character may have joined the character to its right.
            if !self.text.grapheme_indices(true).any(|(at, _)| at == self.cursor) {
                let next =
                    self.text.grapheme_indices(true).map(|(at, _)| at).find(|at| *at > self.cursor);
                self.cursor = next.unwrap_or(self.text.len());
            }
        }
    }

    fn last_cluster(&self) -> usize {
        self.halves().0.graphemes(true).next_back().map_or(0, str::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(text: &str) -> LineEdit {
        let mut edit = LineEdit::default();
        text.chars().for_each(|c| assert!(edit.key(Key::Char(c))));
        edit
    }

    #[test]
    fn typing_and_correcting() {
        let mut edit = typed("helo");
        edit.key(Key::Left);
        edit.key(Key::Char('l'));
        assert_eq!((edit.text(), edit.halves().1), ("hello", "o"));
        edit.key(Key::Home);
        edit.key(Key::Delete);
        assert_eq!(edit.text(), "ello");
        edit.key(Key::End);
        edit.key(Key::Backspace);
        assert_eq!(edit.text(), "ell");
        edit.key(Key::Ctrl('u'));
        assert_eq!(edit.text(), "");
        let mut edit = typed("two words");
        edit.key(Key::Ctrl('w'));
        assert_eq!(edit.text(), "two ");
        assert!(!edit.key(Key::PageUp));
    }

    #[test]
    fn a_proposal_is_replaced_by_typing_and_edited_by_other_keys() {
        let after = |keys: &[Key]| {
            let mut edit = LineEdit::proposing("30s");
            assert!(edit.is_proposed());
            for key in keys {
                edit.key(*key);
            }
            assert_eq!(edit.is_proposed(), keys.iter().all(|key| *key == Key::Up));
            edit.text().to_owned()
        };
        assert_eq!(after(&[Key::Char('5'), Key::Char('m')]), "5m");
        assert_eq!(after(&[Key::Up, Key::Char('5')]), "5");
        assert_eq!(after(&[Key::Up]), "30s");
        assert_eq!(after(&[Key::Backspace, Key::Char('m')]), "30m");
        assert_eq!(after(&[Key::End, Key::Char('5')]), "30s5");
        assert_eq!(after(&[Key::Left, Key::Char('0')]), "300s");
        assert_eq!(after(&[Key::Home, Key::Char('1')]), "130s");
    }

    #[test]
    fn a_combined_character_is_one() {
        let mut edit = typed("ae\u{301}b");
        edit.key(Key::Left);
        edit.key(Key::Backspace);
        assert_eq!(edit.text(), "ab");
    }

    proptest! {
        #[test]
        fn any_keys_leave_a_whole_text(keys in prop::collection::vec(prop::sample::select(vec![
            Key::Char('a'), Key::Char('\u{301}'), Key::Char('漢'), Key::Char('\u{200d}'), Key::Char('👩'), Key::Char(' '), Key::Left, Key::Right,
            Key::Home, Key::End, Key::Backspace, Key::Delete, Key::Ctrl('u'), Key::Ctrl('w')]), 0..60)) {
            let mut edit = LineEdit::default();
            for key in keys {
                edit.key(key);
                prop_assert!(edit.cursor <= edit.text.len() && edit.text.is_char_boundary(edit.cursor));
            }
        }
    }
}
