//! Labels that a program gives to its work (Go: `runtime/pprof.Do`), as the text of a frame.
//!
//! The outermost frame of a stack carries them: `[labels handler=/catalog, tenant=7]`. No code has
//! that name. It is no row in any view; groups can be made by it.

/// Text around the labels.
const BEGIN: &str = "[labels ";
const END: &str = "]";
/// Stands for labels that are not told apart: there are too many different ones, or they could not
/// be read. As a value: that of a label with too many values.
pub const OTHER: &str = "(other)";

/// Returns the text of the frame of stacks with these labels, keys and values.
pub fn text(labels: &[(String, String)]) -> String {
    let pair =
        |(key, value): &(String, String)| format!("{}={}", quoted(key, "=,"), value_text(value));
    format!("{BEGIN}{}{END}", labels.iter().map(pair).collect::<Vec<_>>().join(", "))
}

/// Returns the text of the frame of stacks whose labels are not told apart.
pub fn text_of_others() -> String {
    format!("{BEGIN}{OTHER}{END}")
}

/// Returns the labels in the text of such a frame, as they are shown: `handler=/catalog, tenant=7`.
pub fn shown(text: &str) -> Option<&str> {
    text.strip_prefix(BEGIN)?.strip_suffix(END)
}

/// Returns the keys and values in the text of such a frame; none where they are not told apart.
pub fn labels(text: &str) -> Vec<(String, String)> {
    let mut rest = shown(text).filter(|shown| *shown != OTHER).unwrap_or("");
    let mut found = Vec::new();
    while !rest.is_empty() {
        let key = part(&mut rest, '=');
        let value = part(&mut rest, ',');
        rest = rest.strip_prefix(' ').unwrap_or(rest);
        found.push((key, value));
    }
    found
}

/// Returns a value as it is shown.
fn value_text(value: &str) -> String {
    match value {
        OTHER => OTHER.to_owned(),
        value => quoted(value, ","),
    }
}

/// Puts a key or value in quotation marks, if it would not be read again as it is: where it has
/// separators in it, is empty, or has spaces at an end.
fn quoted(text: &str, separators: &str) -> String {
    let is_plain = !text.is_empty()
        && text.trim() == text
        && !text.contains(['"', '\\'])
        && !text.contains(|c| separators.contains(c))
        && text != OTHER;
    match is_plain {
        true => text.to_owned(),
        false => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Takes a key or value, and what separates it from the next one.
fn part(rest: &mut &str, separator: char) -> String {
    let mut found = String::new();
    let text = *rest;
    let is_quoted = text.starts_with('"');
    let mut characters = text.chars();
    if is_quoted {
        characters.next();
        while let Some(c) = characters.next() {
            match c {
                '"' => break,
                '\\' => found.extend(characters.next()),
                c => found.push(c),
            }
        }
    }
    // Behind a quotation mark there is only the separator.
    for c in characters.by_ref() {
        if c == separator {
            break;
        }
        if !is_quoted {
            found.push(c);
        }
    }
    *rest = characters.as_str();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn labels_are_shown_plainly_where_that_can_be_read_again() {
        for (given, expected) in [
            (&[("handler", "/catalog"), ("tenant", "7")][..], "handler=/catalog, tenant=7"),
            (&[("query", "a=1&b=2")], "query=a=1&b=2"),
            (&[("a=b", "c, d")], r#""a=b"="c, d""#),
            (&[("", ""), ("x", " y")], r#"""="", x=" y""#),
            (&[("a", r#"say "no" \o/"#)], r#"a="say \"no\" \\o/""#),
            (&[("a", "b]")], "a=b]"),
            (&[("tenant", "(other)")], "tenant=(other)"),
            (&[("(other)", "1")], r#""(other)"=1"#),
            (&[("größe", "ä")], "größe=ä"),
        ] {
            let text = text(&pairs(given));
            assert_eq!(shown(&text), Some(expected));
            assert_eq!(labels(&text), pairs(given), "{text}");
        }
        assert_eq!(shown(&text_of_others()), Some("(other)"));
        assert!(labels(&text_of_others()).is_empty());
        for none in ["[labels", "labels a=b", "[task a=b]", "", "[labels a=b"] {
            assert_eq!((shown(none), labels(none)), (None, vec![]), "{none}");
        }
    }

    proptest! {
        #[test]
        fn labels_are_read_as_they_were_written(
            all in prop::collection::vec(("[ab=,\" \\\\()]{0,4}", "[ab=,\" \\\\\\]]{0,4}"), 1..5),
        ) {
            prop_assert_eq!(labels(&text(&all)), all);
        }

        #[test]
        fn any_text_is_read_to_its_end(any in ".{0,40}") {
            let text = format!("[labels {any}]");
            prop_assert!(labels(&text).len() <= any.len());
        }
    }
}
