//! One text -> one value. Every error is a sentence that names the option, what was given, and what is accepted.

use std::time::Duration;

use regex::Regex;

use crate::model::settings::{Grouping, Rename};

/// Linux's own limit (PID_MAX_LIMIT, 64-bit kernels).
const PID_MAX: u32 = 1 << 22;

pub fn pid(text: &str) -> Result<u32, String> {
    let pid = text.trim().parse().ok().filter(|pid| (1..=PID_MAX).contains(pid));
    pid.ok_or_else(|| format!("`--pid {}` is no process id: a whole number from 1 to {PID_MAX}", shown(text)))
}

/// What times an option takes.
pub struct Times {
    pub option: &'static str,
    pub least: Duration,
    pub most: Duration,
    /// Both, for people.
    pub range: &'static str,
}

pub fn time(text: &str, times: &Times) -> Result<Duration, String> {
    let Times { option, least, most, range } = times;
    match humantime::parse_duration(text.trim()) {
        Ok(time) if (least..=most).contains(&&time) => Ok(time),
        Ok(_) => Err(format!("`{option} {}` is out of range: {range}", shown(text))),
        Err(_) => Err(format!("`{option} {}` is no time: a number with its unit, {range}", shown(text))),
    }
}

/// One of a few words.
pub fn word<T: Copy>(option: &str, text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|value| name(*value) == text).ok_or_else(|| {
        let words: Vec<&str> = all.iter().copied().map(name).collect();
        match words.as_slice() {
            [only] => format!("`{option} {}` is not there: this build has {only}", shown(text)),
            _ => format!("`{option} {}` is none of {}", shown(text), words.join(", ")),
        }
    })
}

pub fn regex(option: &str, text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| format!("`{option} {}` is no regular expression: {}", shown(text), reason(&error)))
}

/// What is wrong, in one line; the library's own message draws the pattern over several.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it is too large".into(),
        error => {
            let text = error.to_string();
            let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not parse");
            last.trim().trim_start_matches("error: ").to_owned()
        }
    }
}

pub fn percent(option: &str, text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').parse().ok().filter(|n| (0.0..=100.0).contains(n));
    number.ok_or_else(|| format!("`{option} {}` is no share: a number from 0 to 100", shown(text)))
}

pub fn grouping(text: &str) -> Result<Grouping, String> {
    Ok(match text {
        "rules" => Grouping::Rules,
        "name" => Grouping::Name,
        "thread" => Grouping::Thread,
        "process" => Grouping::Process,
        "none" => Grouping::None,
        _ => match text.strip_prefix("frame:") {
            Some("") => return Err("`--group frame:` needs a regular expression behind the colon".into()),
            Some(pattern) => Grouping::Frame(regex("--group frame:", pattern)?),
            None => {
                let given = shown(text);
                return Err(format!("`--group {given}` is none of rules, name, thread, process, none, frame:REGEX"));
            }
        },
    })
}

/// `s/REGEX/TEXT/`, any ASCII punctuation but the backslash in place of `/`; `\/` is the separator itself.
pub fn rename(text: &str) -> Result<Rename, String> {
    let wrong = || format!("`--rename {}` is not of the form s/REGEX/TEXT/", shown(text));
    let mut rest = text.strip_prefix('s').ok_or_else(wrong)?.chars();
    let separator = rest.next().filter(|c| c.is_ascii_punctuation() && *c != '\\').ok_or_else(wrong)?;
    let mut parts = vec![String::new()];
    while let Some(c) = rest.next() {
        let part = parts.last_mut().ok_or_else(wrong)?;
        if c == separator {
            parts.push(String::new());
        } else if c == '\\' {
            match rest.next() {
                Some(next) if next == separator => part.push(next),
                next => {
                    part.push(c);
                    part.extend(next);
                }
            }
        } else {
            part.push(c);
        }
    }
    match <[String; 3]>::try_from(parts) {
        Ok([pattern, text, end]) if end.is_empty() && !pattern.is_empty() => {
            Ok(Rename { pattern: regex("--rename", &pattern)?, text })
        }
        _ => Err(wrong()),
    }
}

/// The non-empty parts between commas.
pub fn prefixes(texts: &[String]) -> Result<Vec<String>, String> {
    let prefixes: Vec<String> = texts
        .iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .map(Into::into)
        .collect();
    match prefixes.is_empty() {
        true => Err("`--interesting` needs at least one prefix".into()),
        false => Ok(prefixes),
    }
}

/// What was typed, fit to be repeated in one line.
pub fn shown(text: &str) -> String {
    match text.is_empty() {
        true => "''".into(),
        false => crate::model::text::clean(text, 60).into_owned(),
    }
}
