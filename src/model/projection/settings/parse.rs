//! Parses settings from typed text. An error is one sentence that quotes the text.

use regex::{Regex, RegexBuilder};

use super::{Grouping, Rename};
use crate::model::vocabulary::text::clean;

/// Maximum memory of one compiled pattern, bytes.
const SIZE: usize = 1 << 20;
/// Separators of a rule that is written, best first.
const SEPARATORS: &str = "/,|:;#@%!~=&+-_\"'`<>*?.(){}[]^$";
/// Maximum length of a pattern, bytes.
const LENGTH: usize = 4096;

/// Compiles a pattern, with limits on length and memory.
pub fn pattern(text: &str) -> Result<Regex, String> {
    if text.len() > LENGTH {
        return Err(format!(
            "`{}` is longer than {LENGTH} bytes: use a shorter pattern",
            shown(text)
        ));
    }
    RegexBuilder::new(text).size_limit(SIZE).dfa_size_limit(2 * SIZE).build().map_err(|error| {
        match error {
            regex::Error::CompiledTooBig(_) => {
                format!("`{}` takes more than 1 MB: use a simpler pattern", shown(text))
            }
            error => format!(
                "`{}` is no regular expression: {}",
                shown(text),
                reason(&error.to_string())
            ),
        }
    })
}

/// Returns the error without the pattern: the library prints it over several lines, and the reason
/// last.
fn reason(error: &str) -> &str {
    let last = error.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not parse");
    last.trim().trim_start_matches("error: ")
}

fn shown(text: &str) -> String {
    clean(text, 60).into_owned()
}

impl Grouping {
    /// Parses `rules`, `name`, `thread`, `process`, `blocker`, `none`, `label`, `label:KEY` or
    /// `frame:REGEX`.
    pub fn parse(text: &str) -> Result<Grouping, String> {
        Ok(match text {
            "rules" => Grouping::Rules,
            "name" => Grouping::Name,
            "thread" => Grouping::Thread,
            "process" => Grouping::Process,
            "blocker" => Grouping::Blocker,
            "none" => Grouping::None,
            "label" => Grouping::Label(None),
            _ => match text.split_once(':') {
                Some(("frame", "")) => {
                    return Err("`frame:` needs a regular expression behind the colon".into());
                }
                Some(("frame", regex)) => Grouping::Frame(pattern(regex)?),
                Some(("label", "")) => {
                    return Err("`label:` needs the key of a label behind the colon".into());
                }
                Some(("label", key)) => Grouping::Label(Some(key.into())),
                _ => {
                    return Err(format!(
                        "`{}` is none of rules, name, thread, process, blocker, none, label, \
                         label:KEY, frame:REGEX",
                        shown(text)
                    ));
                }
            },
        })
    }
}

impl Rename {
    /// Parses `s/REGEX/TEXT/`, with any other ASCII punctuation but `\` instead of `/`. After a `\`
    /// the separator is an ordinary character. In TEXT `$1` and `${name}` insert what groups of
    /// REGEX matched, and `$$` a dollar sign.
    pub fn parse(text: &str) -> Result<Rename, String> {
        let wrong = |why: &str| format!("`{}` {why}: write s/REGEX/TEXT/", shown(text));
        let Some(rest) = text.strip_prefix('s') else { return Err(wrong("does not begin with s")) };
        let separator = match rest.chars().next() {
            Some(c) if c.is_ascii_punctuation() && c != '\\' => c,
            _ => return Err(wrong("has no separator behind its s")),
        };
        let rest = &rest[1..];
        // In the pattern an escaped separator is that character, not an operator: `s|a\|b|x|`
        // matches `a|b`.
        let Some((regex, rest)) = part(rest, separator, &regex::escape(&separator.to_string()))
        else {
            return Err(wrong("has no second separator"));
        };
        let Some((replacement, rest)) = part(rest, separator, &separator.to_string()) else {
            return Err(wrong("has no last separator"));
        };
        if regex.is_empty() {
            return Err(wrong("has nothing to look for"));
        }
        // Every match is replaced, as by sed with a `g`.
        if !matches!(rest, "" | "g") {
            return Err(wrong("goes on behind its last separator"));
        }
        let pattern = pattern(&regex)?;
        let text = template(&replacement, &pattern)?;
        Ok(Rename { pattern, text })
    }

    /// Returns the text that [`Rename::parse`] reads as this rule.
    pub fn typed(&self) -> String {
        let (pattern, text) = (self.pattern.as_str(), self.text.as_str());
        let is_free = |c: &char| !pattern.contains(*c) && !text.contains(*c);
        match SEPARATORS.chars().find(is_free) {
            Some(c) => format!("s{c}{pattern}{c}{text}{c}"),
            // Both contain every separator. `\x2f` is a `/` anywhere in a pattern.
            None => format!("s/{}/{}/", without_slash(pattern), text.replace('/', "\\/")),
        }
    }
}

/// Returns the pattern with every `/`, escaped or not, as its number.
fn without_slash(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        match (c, escaped) {
            ('/', _) | (_, Some('/')) => out.push_str("\\x2f"),
            _ => {
                out.push(c);
                out.extend(escaped);
            }
        }
    }
    out
}

/// Splits the text at the separator. An escaped separator becomes `escaped`; other escapes are
/// kept.
fn part<'a>(text: &'a str, separator: char, escaped: &str) -> Option<(String, &'a str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == separator {
            return Some((out, &text[at + 1..]));
        }
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some((_, next)) if next == separator => out.push_str(escaped),
            next => {
                out.push(c);
                out.extend(next.map(|(_, next)| next));
            }
        }
    }
    None
}

/// Converts the replacement to the library's syntax. `$1st` is group 1 and `st` here; the library
/// would read a group `1st`, which is always empty. An unknown group is an error, not an empty
/// string.
fn template(text: &str, pattern: &Regex) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let while_all = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let digits = while_all(|c| c.is_ascii_digit());
        let word = while_all(|c| c.is_ascii_alphanumeric() || c == '_');
        let (name, length) = match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None if digits > 0 => (&rest[..digits], digits),
            None => (&rest[..word], word),
        };
        if name.is_empty() {
            // A dollar sign, alone or doubled.
            out.push_str("$$");
            rest = rest.strip_prefix('$').unwrap_or(rest);
            continue;
        }
        let exists = match name.parse::<usize>() {
            Ok(number) => number < pattern.captures_len(),
            Err(_) => pattern.capture_names().flatten().any(|known| known == name),
        };
        if !exists {
            return Err(format!("`{}` has no group {}", shown(pattern.as_str()), shown(name)));
        }
        out.push_str(&format!("${{{name}}}"));
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(rule: &str, name: &str) -> String {
        let rule = Rename::parse(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
        rule.pattern.replace_all(name, rule.text.as_str()).into_owned()
    }

    #[test]
    fn renames_read_as_sed_reads_them() {
        for (rule, name, becomes) in [
            ("s/a/b/", "banana", "bbnbnb"),
            ("s/a/b/g", "banana", "bbnbnb"),
            ("s/an//", "banana", "ba"),
            ("s,/,-,", "a/b", "a-b"),
            (r"s/\//-/", "a/b", "a-b"),
            (r"s/a/\//", "xay", "x/y"),
            (r"s|a\|b|x|", "a|b ab", "x ab"),
            (r"s.a\.b.x.", "a.b axb", "x axb"),
            (r"s/\\/-/", r"a\b", "a-b"),
            (r"s/(\w+)-(\w+)/$2 $1/", "left-right", "right left"),
            (r"s/(\d)/$1st/", "1", "1st"),
            (r"s/(?<n>\d)x/${n}y$n/", "1x", "1y1"),
            ("s/a/$$1$/", "a", "$1$"),
        ] {
            assert_eq!(renamed(rule, name), becomes, "{rule}");
        }
    }

    #[test]
    fn a_rename_is_written_as_it_is_read() {
        for rule in [
            "s/a/b/",
            "s,/,-,",
            r"s/\//-/",
            r"s|a\|b|x|",
            r"s/\\/-/",
            r"s/(\w+)-(\w+)/$2 ${1}/",
            "s/a/$$1$/",
            r"s;a\\;b\\;",
        ] {
            let rule = Rename::parse(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
            let again = Rename::parse(&rule.typed()).expect("it is read again");
            assert_eq!((again.pattern.as_str(), again.text), (rule.pattern.as_str(), rule.text));
        }
        // Every separator is in use.
        let all = format!(r"{}\\/\/", regex::escape(SEPARATORS));
        let text = "x/y".to_owned();
        let rule = Rename { pattern: pattern(&all).expect("a pattern"), text };
        assert_eq!(renamed(&rule.typed(), &format!(r"a{SEPARATORS}\//b")), "ax/yb");
    }

    #[test]
    fn a_wrong_rename_gets_one_sentence() {
        for (rule, says) in [
            ("", "`` does not begin with s: write s/REGEX/TEXT/"),
            ("a=b", "`a=b` does not begin with s: write s/REGEX/TEXT/"),
            ("s", "`s` has no separator behind its s: write s/REGEX/TEXT/"),
            ("sxaxbx", "`sxaxbx` has no separator behind its s: write s/REGEX/TEXT/"),
            ("s/a", "`s/a` has no second separator: write s/REGEX/TEXT/"),
            (r"s/a\/b/", r"`s/a\/b/` has no last separator: write s/REGEX/TEXT/"),
            ("s/a/b", "`s/a/b` has no last separator: write s/REGEX/TEXT/"),
            ("s//b/", "`s//b/` has nothing to look for: write s/REGEX/TEXT/"),
            ("s/a/b/i", "`s/a/b/i` goes on behind its last separator: write s/REGEX/TEXT/"),
            ("s/(/b/", "`(` is no regular expression: unclosed group"),
            ("s/a/$1/", "`a` has no group 1"),
            ("s/(a)/$name/", "`(a)` has no group name"),
        ] {
            assert_eq!(Rename::parse(rule).map(|r| r.text), Err(says.to_owned()), "{rule}");
        }
    }

    #[test]
    fn patterns_are_bounded() {
        assert!(pattern(&"a".repeat(LENGTH)).is_ok());
        for bomb in ["a".repeat(LENGTH + 1), r"\w{1000}{1000}".into(), "(".repeat(4000)] {
            let error = pattern(&bomb).expect_err("bounded");
            assert!(!error.contains('\n') && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn groupings_parse() {
        for word in ["rules", "name", "thread", "process", "blocker", "none", "label"] {
            let parsed = Grouping::parse(word).expect("a grouping");
            assert_eq!((parsed.word(), parsed.typed()), (word, word.to_owned()));
        }
        for text in ["label:tenant", "label:a:b=c", "frame:^handle"] {
            assert_eq!(Grouping::parse(text).map(|g| g.typed()), Ok(text.to_owned()));
        }
        assert!(
            matches!(Grouping::parse("frame:^handle"), Ok(Grouping::Frame(r)) if r.as_str() == "^handle")
        );
        assert!(Grouping::parse("frame:").is_err() && Grouping::parse("frame:(").is_err());
        assert!(Grouping::parse("label:").is_err());
        assert_eq!(
            Grouping::parse("colour").map(|g| g.word()),
            Err("`colour` is none of rules, name, thread, process, blocker, none, label, \
                 label:KEY, frame:REGEX"
                .into())
        );
    }
}
