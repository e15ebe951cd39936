//! Replaces every word of a text and keeps the characters between them: `ns::Type<T>::run` becomes
//! `kv::Mz<Rt>::gh`.
//!
//! A replacement is a keyed hash. Without the key, names cannot be tested by trial; with it, equal
//! words get equal replacements everywhere. It has no digits and none of the letters `a` to `f`, so
//! that no rule for groups of threads removes parts of it.

use std::hash::{BuildHasher, Hasher, RandomState};

use siphasher::sip::SipHasher24;

/// A secret key of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u64; 2]);

impl Key {
    /// Derives a key from a text; equal texts give equal keys. The key is as hard to guess as the
    /// text.
    pub fn of(secret: &[u8]) -> Key {
        Key([0, 1].map(|half| {
            let mut hasher = SipHasher24::new_with_keys(half, 0);
            hasher.write(secret);
            hasher.finish()
        }))
    }

    /// Returns a key of the system's random numbers.
    pub fn random() -> Key {
        Key([0; 2].map(|_| RandomState::new().build_hasher().finish()))
    }
}

/// Hides the key from messages and logs.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

const LETTERS: &[u8; 16] = b"ghjkmnpqrstvwxyz";
/// Letters of a hash, four bits each. Two of a million words collide with a probability of 3 in
/// 10,000.
const LENGTH: usize = 12;

impl Key {
    pub fn number(&self, text: &str) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write(text.as_bytes());
        hasher.finish()
    }

    /// Returns a word's replacement, capitalized as the word is.
    pub fn word(&self, word: &str) -> String {
        let number = self.number(word);
        let mut hash: String = (0..LENGTH)
            .map(|nth| char::from(LETTERS[(number >> (4 * nth)) as usize & 15]))
            .collect();
        if word.starts_with(char::is_uppercase) {
            hash[..1].make_ascii_uppercase();
        }
        hash
    }

    /// Returns `text` with each word replaced. Keeps [`GRAMMAR`].
    pub fn words(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() * 2);
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(grammar) = grammar(rest) {
                out.push_str(grammar);
                rest = &rest[grammar.len()..];
            } else if !part_of_word(first) {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            } else {
                let end = rest.find(|c| !part_of_word(c)).unwrap_or(rest.len());
                out.push_str(&self.word(&rest[..end]));
                rest = &rest[end..];
            }
        }
        out
    }
}

/// Returns whether the character is part of a word. All non-ASCII characters are, since they may be
/// private.
fn part_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

/// Parts of function names that are not private.
const GRAMMAR: &[&str] = &[
    "(anonymous namespace)",
    "(anonymous ",
    "<init>",
    "<clinit>",
    "{{closure}}",
    "{closure",
    "{lambda(",
    "{impl#",
    "<impl ",
    "<dyn ",
    " as ",
    "&mut ",
    "*const ",
    "*mut ",
    // Parts of class names that Java's libraries generate (`projection::units` lists them too).
    "$$Lambda",
    "$$StringConcat",
    "$$TypeSwitch",
    "$$SpringCGLIB",
    "$$EnhancerBySpringCGLIB",
    "$$FastClassBySpringCGLIB",
    "$ByteBuddy",
    "$MockitoMock",
    "$HibernateProxy",
];

/// Returns the [`GRAMMAR`] at the start of the text, unless it is only the beginning of a word.
fn grammar(text: &str) -> Option<&'static str> {
    GRAMMAR.iter().copied().find(|grammar| {
        let rest = text.strip_prefix(grammar);
        let ends_in_word = grammar.ends_with(|c: char| c.is_ascii_alphanumeric());
        rest.is_some_and(|rest| !(ends_in_word && rest.starts_with(part_of_word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([1, 2]);

    /// Returns the text with each hash as `x` or `X`.
    fn shape(text: &str) -> String {
        let mut shape = String::new();
        let words = KEY.words(text);
        let mut rest = words.as_str();
        while let Some(first) = rest.chars().next() {
            let hash = rest
                .get(..LENGTH)
                .filter(|hash| hash.bytes().all(|b| LETTERS.contains(&b.to_ascii_lowercase())));
            shape.push(if hash.is_some() && first.is_uppercase() {
                'X'
            } else if hash.is_some() {
                'x'
            } else {
                first
            });
            rest = &rest[hash.map_or(first.len_utf8(), str::len)..];
        }
        shape
    }

    #[test]
    fn structure_stays_and_words_go() {
        for (text, expected) in [
            ("ns::Type<int, other::T>::method", "x::X<x, x::X>::x"),
            ("com.acme.Cart$Item.checkout", "x.x.X$X.x"),
            ("com.acme.Cart$$Lambda.run", "x.x.X$$Lambda.x"),
            ("a.B$$LambdaFree.<init>", "x.X$$X.<init>"),
            ("<app::Pool as core::Run>::{{closure}}", "<x::X as x::X>::{{closure}}"),
            ("(anonymous namespace)::run(int) const", "(anonymous namespace)::x(x) x"),
            ("(anonymous app.js:9:12)", "(anonymous x.x:x:x)"),
            ("/home/alice/größe 2/app-1.2.so", "/x/x/x x/x-x.x.x"),
            ("libx.so!fn_1a40", "x.x!x"),
            ("", ""),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
        assert_eq!(KEY.words("one::two"), format!("{}::{}", KEY.word("one"), KEY.word("two")));
        assert_ne!(KEY.word("one"), Key([1, 3]).word("one"));
        assert_ne!(KEY.word("one"), KEY.word("onf"));
    }

    #[test]
    fn rules_for_groups_take_nothing_of_a_word_away() {
        use crate::model::vocabulary::thread_name_rules::by_rules;
        for text in ["worker", "x", "http nio"] {
            assert_eq!(by_rules(&KEY.words(text), &[]), KEY.words(text));
        }
    }
}
