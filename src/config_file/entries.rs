//! Splits the file's text into keys, values and lines.

use toml_edit::{Document, Item, Value as Toml};

/// One key of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    pub key: String,
    pub value: Value,
    /// Counted from 1.
    pub line: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Flag(bool),
    /// As it would be typed.
    Number(String),
    Text(String),
    Texts(Vec<String>),
    /// Anything else, in words.
    Other(&'static str),
}

/// Why the text is no TOML, or a key cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Counted from 1.
    pub line: usize,
    pub sentence: String,
}

/// Returns the keys in the order of the text.
pub fn entries(text: &str) -> Result<Vec<Entry>, Fault> {
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let document = Document::parse(text).map_err(|error| fault(&error, text))?;
    let table = document.as_table();
    let entry = |(key, item): (&str, &Item)| {
        let span = table.key(key).and_then(|key| key.span()).or_else(|| item.span());
        let line = line(span.map_or(0, |span| span.start));
        Entry { key: key.to_owned(), value: value(item), line }
    };
    Ok(table.iter().map(entry).collect())
}

/// Describes a syntax error.
pub(super) fn fault(error: &toml_edit::TomlError, text: &str) -> Fault {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let words: Vec<&str> = error.message().split_whitespace().collect();
    Fault { line, sentence: format!("this is no TOML: {}", words.join(" ")) }
}

fn value(item: &Item) -> Value {
    match item {
        Item::Value(Toml::Boolean(flag)) => Value::Flag(*flag.value()),
        Item::Value(Toml::Integer(number)) => Value::Number(number.value().to_string()),
        Item::Value(Toml::Float(number)) => Value::Number(number.value().to_string()),
        Item::Value(Toml::String(text)) => Value::Text(text.value().clone()),
        Item::Value(Toml::Array(array)) => {
            let texts: Option<Vec<String>> =
                array.iter().map(|value| value.as_str().map(str::to_owned)).collect();
            texts.map_or(Value::Other("a list of other things than strings"), Value::Texts)
        }
        Item::Value(Toml::Datetime(_)) => Value::Other("a date"),
        Item::Value(Toml::InlineTable(_)) | Item::Table(_) | Item::ArrayOfTables(_) => {
            Value::Other("a table")
        }
        Item::None => Value::Other("nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_values_and_lines() {
        let text = "# mine\nmetric = 'cpu'\n\nidle = true # yes\nrename = [\n  's/a/b/', \"s/c/d/\"]\nmin-percent = 0.5\n\
                    max-overhead = 3\nmixed = [1, 'x']\nday = 2026-01-02\n[view]\nby = 'line'\n";
        let found = entries(text).expect("TOML");
        let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|t| t.to_string()).collect());
        let expected = [
            ("metric", Value::Text("cpu".into()), 2),
            ("idle", Value::Flag(true), 4),
            ("rename", texts(&["s/a/b/", "s/c/d/"]), 5),
            ("min-percent", Value::Number("0.5".into()), 7),
            ("max-overhead", Value::Number("3".into()), 8),
            ("mixed", Value::Other("a list of other things than strings"), 9),
            ("day", Value::Other("a date"), 10),
            ("view", Value::Other("a table"), 11),
        ];
        let expected =
            expected.map(|(key, value, line)| Entry { key: key.into(), value, line }).to_vec();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_toml_has_a_line_and_one_sentence() {
        for (text, line) in
            [("metric = cpu", 1), ("# x\n\nidle = true\nidle = false", 4), ("a = [", 1), ("x", 1)]
        {
            let fault = entries(text).expect_err(text);
            assert_eq!(fault.line, line, "{text}: {fault:?}");
            assert!(fault.sentence.lines().count() == 1 && fault.sentence.len() > 20, "{fault:?}");
        }
    }
}
