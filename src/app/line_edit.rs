//! One line of text being typed.

use tui_input::{Input, InputRequest};
use unicode_segmentation::UnicodeSegmentation;

use super::key::Key;

/// Maximum length of the text, in characters as the reader sees them.
const LONGEST: usize = 500;

/// What a key did in a dialog whose fields are edited line by line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Stay,
    /// What the dialog is about changed: project again.
    Changed,
    Close,
}

/// Text and cursor, which moves by characters as the reader sees them.
#[derive(Clone, Debug, Default)]
pub struct LineEdit {
    input: Input,
    /// All of the text is a proposal: the first character typed replaces it, any other key edits
    /// it.
    proposed: bool,
}

impl LineEdit {
    /// Creates an edit with the cursor at the end.
    pub fn new(text: impl Into<String>) -> LineEdit {
        LineEdit { input: Input::new(text.into()), proposed: false }
    }

    /// Does the same as [`LineEdit::new`], but the first character typed replaces the text.
    pub fn proposing(text: impl Into<String>) -> LineEdit {
        LineEdit { proposed: true, ..LineEdit::new(text) }
    }

    /// Returns whether typing replaces the text.
    pub fn is_proposed(&self) -> bool {
        self.proposed && !self.text().is_empty()
    }

    pub fn text(&self) -> &str {
        self.input.value()
    }

    /// Returns the text left of the cursor, and the rest.
    pub fn halves(&self) -> (&str, &str) {
        let text = self.text();
        let at = text.char_indices().nth(self.input.cursor()).map_or(text.len(), |(at, _)| at);
        text.split_at(at)
    }

    /// Handles a key; returns true if it has a meaning here.
    pub fn key(&mut self, key: Key) -> bool {
        let request = match key {
            Key::Char(c) if !c.is_control() => InputRequest::InsertChar(c),
            Key::Left => InputRequest::GoToPrevChar,
            Key::Right => InputRequest::GoToNextChar,
            Key::Home | Key::Ctrl('a') => InputRequest::GoToStart,
            Key::End | Key::Ctrl('e') => InputRequest::GoToEnd,
            Key::Backspace | Key::Ctrl('h') => InputRequest::DeletePrevChar,
            Key::Delete => InputRequest::DeleteNextChar,
            Key::Ctrl('u') => InputRequest::DeleteFromStart,
            Key::Ctrl('k') => InputRequest::DeleteTillEnd,
            Key::Ctrl('w') => InputRequest::DeletePrevWord,
            _ => return false,
        };
        let proposed = std::mem::take(&mut self.proposed);
        if matches!(request, InputRequest::InsertChar(_)) {
            if proposed {
                self.input.reset();
            }
            if self.text().graphemes(true).count() >= LONGEST {
                return true;
            }
        }
        self.input.handle(request);
        true
    }
}

impl PartialEq for LineEdit {
    fn eq(&self, other: &LineEdit) -> bool {
        (self.halves(), self.proposed) == (other.halves(), other.proposed)
    }
}

impl Eq for LineEdit {}

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
        edit.key(Key::Home);
        edit.key(Key::Right);
        edit.key(Key::Ctrl('k'));
        assert_eq!(edit.text(), "t");
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
    fn a_text_has_a_maximum_length() {
        let mut edit = typed(&"x".repeat(LONGEST + 1));
        assert_eq!(edit.text().len(), LONGEST);
        edit.key(Key::Backspace);
        edit.key(Key::Char('y'));
        assert!(edit.text().ends_with("xy"));
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
            Key::Home, Key::End, Key::Backspace, Key::Delete, Key::Ctrl('u'), Key::Ctrl('k'), Key::Ctrl('w')]), 0..60)) {
            let mut edit = LineEdit::default();
            for key in keys {
                edit.key(key);
                let (left, right) = edit.halves();
                prop_assert_eq!(format!("{left}{right}"), edit.text());
            }
        }
    }
}
