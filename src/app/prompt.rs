//! Prompts: one line of text that is requested and checked; errors are shown in place.

use std::time::Duration;

use regex::Regex;

use super::line_edit::LineEdit;
use crate::model::projection::settings::pattern;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    Search,
    /// What to search the page for that is drawn over the view.
    Page,
    Interval,
    Window,
}

impl Question {
    pub fn label(self) -> &'static str {
        match self {
            Question::Search | Question::Page => "search",
            Question::Interval => "sampling interval, 1ms to 10s",
            Question::Window => "30s, 5m, all, 14:03:20 +2s, -75s..-70s, -1.5s +50ms",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prompt {
    pub question: Question,
    pub edit: LineEdit,
    /// Why the text was rejected; cleared by the next key.
    pub error: Option<String>,
}

impl Prompt {
    pub fn new(question: Question, text: impl Into<String>) -> Prompt {
        Prompt { question, edit: LineEdit::proposing(text), error: None }
    }
}

/// A choice by one letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    StopSampling,
    UsePtrace,
    /// `-- COMMAND` still runs.
    Quit,
    /// End this session, and pick another process.
    PickAgain,
}

impl Ask {
    pub fn text(self) -> &'static str {
        match self {
            Ask::PickAgain => "End this session, and go back to the list of processes? (y/n)",
            Ask::StopSampling => "Stop sampling? The gap is marked. (y/n)",
            Ask::UsePtrace => {
                "Also stop each running thread for microseconds to read its stack? (y/n)"
            }
            Ask::Quit => "The command still runs: (e)nd it, (l)eave it running, (s)tay here",
        }
    }
}

/// Parses an interval such as `10ms` or `1s`, within the sampler's limits.
pub fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not an interval from 1ms to 10s, such as 10ms");
    let interval = humantime::parse_duration(text.trim()).map_err(|_| wrong())?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(10);
    if allowed.contains(&interval) { Ok(interval) } else { Err(wrong()) }
}

/// Compiles a search pattern: lower-case letters match capitals too.
pub fn search_pattern(text: &str) -> Result<Regex, String> {
    let exact = pattern(text)?;
    let any_case = !text.chars().any(char::is_uppercase);
    if any_case { pattern(&format!("(?i){text}")) } else { Ok(exact) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(interval("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(interval(" 1s "), Ok(Duration::from_secs(1)));
        for wrong in ["", "0", "10", "999us", "10001ms", "1h", "-1ms", "ten"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_pattern_gets_one_line() {
        let error = pattern("a(b").expect_err("unclosed");
        assert_eq!(error, "`a(b` is no regular expression: unclosed group");
        assert!(search_pattern("lock").expect("valid").is_match("MutexLOCK"));
        assert!(!search_pattern("Lock").expect("valid").is_match("MutexLOCK"));
    }
}
