//! What the live view saves: keys and values, put into the text of the file.

use std::time::Duration;

use regex::Regex;
use toml_edit::{Array, DocumentMut, Item, Value};

use super::entries::{Fault, fault};
use crate::config::Choices;
use crate::model::projection::settings::{Filter, Filters, Settings, Whose};

/// What the view began with.
#[derive(Clone, Debug)]
pub struct Before {
    pub choices: Choices,
    /// Keys whose values the command line gave: these are choices too.
    pub given: Vec<&'static str>,
}

/// Returns the text with the choices in it. A key that is there keeps its place and its comments,
/// with an empty text where nothing is chosen. One that is not there is added only if its value
/// differs from the default. Where nothing was chosen since `before`, the text keeps what it has:
/// it may have been changed meanwhile.
pub fn put_into(text: &str, choices: &Choices, before: Option<&Before>) -> Result<String, Fault> {
    let mut document: DocumentMut = text.parse().map_err(|error| fault(&error, text))?;
    let defaults = keys(&Choices::default());
    let began = before.map(|before| keys(&before.choices)).unwrap_or_default();
    let is_given = |key: &&str| before.is_some_and(|before| before.given.contains(key));
    for (nth, ((key, new), (_, default))) in keys(choices).into_iter().zip(defaults).enumerate() {
        let is_default = new.to_string() == default.to_string();
        let is_as_before =
            began.get(nth).is_some_and(|(_, old)| old.to_string() == new.to_string());
        if is_as_before && !is_given(&key) {
            continue;
        }
        match document.get_mut(key) {
            Some(Item::Value(old)) => {
                let decor = old.decor().clone();
                // An array that stays as it is keeps the comments in it.
                if !is_same(old, &new) && !is_same_time(key, old, &new) {
                    *old = new;
                    *old.decor_mut() = decor;
                }
            }
            _ if is_default => {}
            _ => {
                document.insert(key, Item::Value(new));
            }
        }
    }
    Ok(document.to_string())
}

/// Returns whether both say the same.
fn is_same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => {
            let texts = |array: &Array| -> Option<Vec<String>> {
                array.iter().map(|value| value.as_str().map(str::to_owned)).collect()
            };
            texts(old).is_some() && texts(old) == texts(new)
        }
        (Value::String(old), Value::String(new)) => old.value() == new.value(),
        (Value::Boolean(old), Value::Boolean(new)) => old.value() == new.value(),
        (Value::Float(old), Value::Float(new)) => old.value() == new.value(),
        (Value::Integer(old), Value::Float(new)) => *old.value() as f64 == *new.value(),
        _ => false,
    }
}

/// Returns whether both are the same duration: `"1s"` and `"1000ms"`.
fn is_same_time(key: &str, old: &Value, new: &Value) -> bool {
    let parsed = |value: &Value| humantime::parse_duration(value.as_str()?.trim()).ok();
    matches!(key, "interval" | "window") && parsed(old).is_some_and(|old| Some(old) == parsed(new))
}

/// Returns every key that the view saves, always the same ones in the same order.
fn keys(choices: &Choices) -> Vec<(&'static str, Value)> {
    let Choices { settings, window, interval, mouse, names } = choices;
    let Settings {
        metric, roll_up, grouping, rename, filters, level, whose, idle, idle_at, ..
    } = settings;
    let Filters { no_kernel, native, skip_daemon, gil, .. } = *filters;
    let (app, library) = corrections(whose);
    let sort = format!("{}{}", if settings.reverse { "-" } else { "" }, settings.sort.word());
    vec![
        ("interval", time(*interval)),
        ("window", time(*window)),
        ("metric", metric.word().into()),
        ("by", roll_up.word().into()),
        ("level", level.word().into()),
        ("sort", sort.into()),
        ("names", names.word().into()),
        ("group", grouping.typed().into()),
        ("rename", rename.iter().map(|rule| rule.typed()).collect()),
        ("app", app.into_iter().collect()),
        ("library", library.into_iter().collect()),
        ("idle", (*idle).into()),
        ("idle-at", idle_at.iter().map(|regex| regex.as_str()).collect()),
        ("interesting", filters.interesting.active().into_iter().flatten().collect()),
        ("focus", pattern(&filters.focus).into()),
        ("ignore", pattern(&filters.ignore).into()),
        ("hide", pattern(&filters.hide).into()),
        ("threads", pattern(&filters.threads).into()),
        ("no-kernel", no_kernel.into()),
        ("native", native.word().into()),
        ("skip-daemon", skip_daemon.into()),
        ("gil", gil.into()),
        (
            "min-percent",
            filters.min_percent.active().map_or("".into(), |percent| (*percent).into()),
        ),
        ("mouse", (*mouse).into()),
    ]
}

/// Returns a filter's pattern; empty if it is off.
fn pattern(filter: &Filter<Regex>) -> &str {
    filter.active().map_or("", Regex::as_str)
}

fn time(time: Duration) -> Value {
    humantime::format_duration(time).to_string().into()
}

/// Returns the patterns of `app` and of `library`. The last pattern that matches a frame holds, and
/// `app` is read after `library`. So a library's pattern after one of the user's is in `app`, with
/// a `!`.
fn corrections(whose: &[Whose]) -> (Vec<String>, Vec<String>) {
    let first = whose.iter().position(|whose| whose.mine).unwrap_or(whose.len());
    let (library, app) = whose.split_at(first);
    let app = app.iter().map(|whose| match (whose.mine, whose.pattern.as_str()) {
        (true, pattern) if pattern.starts_with('!') => format!("(?:{pattern})"),
        (true, pattern) => pattern.to_owned(),
        (false, pattern) => format!("!{pattern}"),
    });
    (app.collect(), library.iter().map(|whose| whose.pattern.as_str().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::projection::settings::{Metric, Rename};

    fn with(settings: Settings) -> Choices {
        Choices { settings, ..Choices::default() }
    }

    #[test]
    fn defaults_write_nothing_and_change_nothing() {
        assert_eq!(put_into("", &Choices::default(), None), Ok(String::new()));
        let text = "# a\n\nunknown-to-us = 3 # b\n[table]\nx = 1\n";
        assert_eq!(put_into(text, &Choices::default(), None).as_deref(), Ok(text));
    }

    #[test]
    fn a_key_keeps_its_place_and_comments() {
        let text = "# my colours\nno-color = true\n# cores only\nmetric = \"wall\" # why\n\n\
                    # mine\nrename = [\n  \"s/a/b/\", # first\n]\nfocus = 'x'\n";
        let settings = Settings { metric: Metric::Cpu, idle: true, ..Settings::default() };
        let mut settings = Settings { level: Choices::default().settings.level, ..settings };
        settings.rename = vec![Rename::parse("s/a/b/").expect("a rule")];
        let new = put_into(text, &with(settings), None).expect("TOML");
        let expected = text.replace("\"wall\"", "\"cpu\"").replace("'x'", "\"\"") + "idle = true\n";
        assert_eq!(new, expected);
    }

    #[test]
    fn new_keys_stand_before_the_first_table() {
        let mut settings = Choices::default().settings;
        settings.filters.focus = Filter::set(Regex::new(r"^a\.b$").expect("a pattern"));
        let new = put_into("[later]\nx = 1\n", &with(settings), None).expect("TOML");
        assert_eq!(new, "focus = '^a\\.b$'\n[later]\nx = 1\n");
    }

    #[test]
    fn what_was_not_chosen_is_not_saved() {
        let text =
            "interval = \"50ms\"\nwindow = \"60s\" # a minute\nmetric = \"off\"\nidle = true\n";
        let before = |given| Before { choices: Choices::default(), given };
        let put = |choices: &Choices, before: &Before| {
            put_into(text, choices, Some(before)).expect("TOML")
        };
        assert_eq!(put(&Choices::default(), &before(vec![])), text);
        // The command line says 10ms.
        let new = put(&Choices::default(), &before(vec!["interval"]));
        assert_eq!(new, text.replace("50ms", "10ms"));
        let cpu = with(Settings { metric: Metric::Cpu, ..Choices::default().settings });
        assert_eq!(put(&cpu, &before(vec![])), text.replace("off", "cpu"));
        let new = put_into("", &cpu, Some(&before(vec!["idle"])));
        assert_eq!(new.as_deref(), Ok("metric = \"cpu\"\n"));
    }

    #[test]
    fn a_time_keeps_the_words_in_which_it_was_written() {
        let text = "interval = \"0s 10ms\"\nwindow = \"30000ms\"\n";
        assert_eq!(put_into(text, &Choices::default(), None).as_deref(), Ok(text));
        let choices = Choices { interval: Duration::from_millis(20), ..Choices::default() };
        let new = put_into(text, &choices, None).expect("TOML");
        assert_eq!(new, "interval = \"20ms\"\nwindow = \"30000ms\"\n");
    }
}
