//! Parses one text into one value. Every error is a sentence that names the option, the given text
//! and the accepted values.

use std::time::Duration;

use regex::Regex;

use crate::config::SourcePath;
use crate::model::projection::settings::{Grouping, Rename, SortColumn, pattern};

/// A FILE of this name means standard output.
pub const STDOUT: &str = "-";

/// Maximum pid: Linux's own limit (PID_MAX_LIMIT, 64-bit kernels).
const PID_MAX: u32 = 1 << 22;

pub fn pid(text: &str) -> Result<u32, String> {
    let pid = text.trim().parse().ok().filter(|pid| (1..=PID_MAX).contains(pid));
    pid.ok_or_else(|| {
        format!("`--pid {}` is no process id: a whole number from 1 to {PID_MAX}", shown(text))
    })
}

/// The times that an option accepts.
pub struct Times {
    pub option: &'static str,
    pub least: Duration,
    pub most: Duration,
    /// Both limits, as readable text.
    pub range: &'static str,
}

pub fn time(text: &str, times: &Times) -> Result<Duration, String> {
    let Times { option, least, most, range } = times;
    match humantime::parse_duration(text.trim()) {
        Ok(time) if (least..=most).contains(&&time) => Ok(time),
        Ok(_) => Err(format!("`{option} {}` is out of range: {range}", shown(text))),
        Err(_) => {
            Err(format!("`{option} {}` is no time: a number with its unit, {range}", shown(text)))
        }
    }
}

/// Parses one of a few words.
pub fn word<T: Copy>(
    option: &str,
    text: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|value| name(*value) == text).ok_or_else(|| {
        let words: Vec<&str> = all.iter().copied().map(name).collect();
        match words.as_slice() {
            [only] => format!("`{option} {}` is not there: this build has {only}", shown(text)),
            _ => format!("`{option} {}` is none of {}", shown(text), words.join(", ")),
        }
    })
}

/// Parses a directory, or a prefix of paths and what replaces it.
pub fn source(text: &str) -> Result<SourcePath, String> {
    match text.split_once('=') {
        None => Ok(SourcePath::Below(text.into())),
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(SourcePath::Moved { from: from.into(), to: to.into() })
        }
        Some(_) => Err(format!("`--source {}` is neither DIR nor FROM=TO", shown(text))),
    }
}

/// Parses a column; with a dash before it, in reversed order.
pub fn sort(text: &str) -> Result<(SortColumn, bool), String> {
    let column = text.strip_prefix('-');
    let found = word("--sort", column.unwrap_or(text), &SortColumn::ALL, SortColumn::word)?;
    Ok((found, column.is_some()))
}

pub fn regex(option: &str, text: &str) -> Result<Regex, String> {
    named(option, pattern(text))
}

pub fn grouping(text: &str) -> Result<Grouping, String> {
    named("--group", Grouping::parse(text))
}

pub fn rename(text: &str) -> Result<Rename, String> {
    named("--rename", Rename::parse(text))
}

/// Adds the option's name to a sentence that says what is wrong with the value.
fn named<T>(option: &str, read: Result<T, String>) -> Result<T, String> {
    read.map_err(|sentence| format!("{option}: {sentence}"))
}

pub fn percent(option: &str, text: &str) -> Result<f64, String> {
    let number =
        text.trim().trim_end_matches('%').parse().ok().filter(|n| (0.0..=100.0).contains(n));
    number.ok_or_else(|| format!("`{option} {}` is no share: a number from 0 to 100", shown(text)))
}

pub fn overhead(text: &str) -> Result<f64, String> {
    let number =
        text.trim().trim_end_matches('%').parse().ok().filter(|n| (0.1..=100.0).contains(n));
    number.ok_or_else(|| {
        format!(
            "`--max-overhead {}` is no part of a core: a number of percent from 0.1 to 100",
            shown(text)
        )
    })
}

/// Completes a unit's name as systemctl does: it is a service, unless the name has another suffix.
pub fn unit(text: &str) -> Result<String, String> {
    let name = text.trim();
    let plain = !name.is_empty() && !name.contains(['/', '\0']) && name.len() < 256;
    match plain {
        true if name.contains('.') => Ok(name.to_owned()),
        true => Ok(format!("{name}.service")),
        false => {
            Err(format!("`--unit {}` is no unit's name, as nginx or app-7.scope", shown(text)))
        }
    }
}

pub fn count(option: &str, text: &str) -> Result<u64, String> {
    let number = text.trim().parse().ok().filter(|number| *number >= 1);
    number.ok_or_else(|| format!("`{option} {}` is no number: a whole one from 1", shown(text)))
}

/// Parses a number of bytes; K, M and G are powers of 1024.
pub fn bytes(option: &str, text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match trimmed[digits.len()..]
        .to_ascii_uppercase()
        .trim_end_matches('B')
        .trim_end_matches('I')
    {
        "" => Some(1),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let bytes = digits
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(unit?))
        .filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| {
        format!("`{option} {}` is no size: a number of bytes, or with K, M or G", shown(text))
    })
}

/// Returns the non-empty parts between commas.
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

/// Makes typed text fit to be quoted on one line.
pub fn shown(text: &str) -> String {
    match text.is_empty() {
        true => "''".into(),
        false => crate::model::vocabulary::text::clean(text, 60).into_owned(),
    }
}
