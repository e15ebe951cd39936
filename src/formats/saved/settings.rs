//! The view's settings, as JSON with the words of the command line. Missing or unknown values
//! become the default.

use serde_json::{Map, Value, json};

use crate::model::projection::settings::{
    Filter, Grouping, Level, Metric, NativeFrames, Range, Rename, RollUp, Settings, SortColumn,
    Whose, pattern,
};
use crate::model::vocabulary::text::clean;

pub fn write(settings: &Settings) -> Vec<u8> {
    let Settings {
        metric,
        roll_up,
        grouping,
        rename,
        filters,
        level,
        whose,
        range,
        idle,
        idle_at,
        sort,
        reverse,
        // A way to read the tree, not what is shown.
        inverted: _,
    } = settings;
    let regex = |filter: &Filter<regex::Regex>| filter_as(filter, |regex| json!(regex.as_str()));
    let words = json!({
        "metric": metric.word(),
        "by": roll_up.word(),
        "group": grouping.typed(),
        "rename": rename.iter().map(|rule| json!([rule.pattern.as_str(), rule.text])).collect::<Vec<_>>(),
        "interesting": filter_as(&filters.interesting, |list| json!(list)),
        "focus": regex(&filters.focus),
        "ignore": regex(&filters.ignore),
        "hide": regex(&filters.hide),
        "no_kernel": filters.no_kernel,
        "native": filters.native.word(),
        "threads": regex(&filters.threads),
        "skip_daemon": filters.skip_daemon,
        "gil": filters.gil,
        // As text, which is parsed back exactly.
        "min_percent": filter_as(&filters.min_percent, |percent| json!(percent.to_string())),
        "level": level.word(),
        // As `["pattern", whether it is the user's]`.
        "whose": whose.iter().map(|w| json!([w.pattern.as_str(), w.mine])).collect::<Vec<_>>(),
        "range": match range {
            Range::Rolling(ns) => json!({ "rolling_ns": ns }),
            Range::Cumulative { since } => json!({ "since_ns": since }),
            Range::Between { from, till } => json!({ "from_ns": from, "till_ns": till }),
        },
        "idle": idle,
        "idle_at": idle_at.iter().map(regex::Regex::as_str).collect::<Vec<_>>(),
        "sort": sort.word(),
        "reverse": reverse,
    });
    words.to_string().into_bytes()
}

/// Encodes a filter as `[value, whether it is on]`; null if it has no value.
fn filter_as<T>(filter: &Filter<T>, value: impl Fn(&T) -> Value) -> Value {
    filter.value.as_ref().map_or(Value::Null, |found| json!([value(found), filter.on]))
}

/// Maximum rules and patterns of each kind. More count as not understood, like patterns that do not
/// compile.
const PATTERNS_MAX: usize = 100;

/// Parses the settings. Also returns the names of those that are not understood. `None` if the
/// block holds no settings.
pub fn read(block: &[u8]) -> Option<(Settings, Vec<String>)> {
    let Value::Object(words) = serde_json::from_slice(block).ok()? else { return None };
    let is_older = !words.contains_key("level");
    let mut words = Words { words, wrong: Vec::new() };
    let plain = Settings::default();
    let one_of = |value: &Value, found: &dyn Fn(&str) -> bool| value.as_str().is_some_and(found);
    let mut settings = Settings {
        metric: words
            .take("metric", |v| Metric::ALL.into_iter().find(|m| one_of(v, &|w| w == m.word()))),
        roll_up: words
            .take("by", |v| RollUp::ALL.into_iter().find(|r| one_of(v, &|w| w == r.word()))),
        grouping: words.take("group", |v| Grouping::parse(v.as_str()?).ok()),
        rename: words.take("rename", |v| list(v, rule)),
        sort: words
            .take("sort", |v| SortColumn::ALL.into_iter().find(|s| one_of(v, &|w| w == s.word()))),
        level: words
            .take("level", |v| Level::ALL.into_iter().find(|l| one_of(v, &|w| w == l.word()))),
        whose: words.take("whose", |v| list(v, whose)),
        idle: words.take("idle", Value::as_bool),
        idle_at: words.take("idle_at", |v| list(v, regex)),
        reverse: words.take("reverse", Value::as_bool),
        ..plain
    };
    if is_older {
        settings.level = Level::Mine;
    }
    let filters = &mut settings.filters;
    filters.interesting = words.take("interesting", |v| filter(v, |v| list(v, text)));
    filters.focus = words.take("focus", |v| filter(v, regex));
    filters.ignore = words.take("ignore", |v| filter(v, regex));
    filters.hide = words.take("hide", |v| filter(v, regex));
    filters.no_kernel = words.take("no_kernel", Value::as_bool);
    filters.native = words
        .take("native", |v| NativeFrames::ALL.into_iter().find(|n| one_of(v, &|w| w == n.word())));
    filters.threads = words.take("threads", |v| filter(v, regex));
    filters.skip_daemon = words.take("skip_daemon", Value::as_bool);
    filters.gil = words.take("gil", Value::as_bool);
    filters.min_percent = words.take("min_percent", |v| filter(v, percent));
    settings.range = words.take("range", |v| range(v).map(Some)).unwrap_or(settings.range);
    words.wrong.extend(words.words.keys().map(|unknown| clean(unknown, 40).into_owned()).take(5));
    Some((settings, words.wrong))
}

struct Words {
    words: Map<String, Value>,
    wrong: Vec<String>,
}

impl Words {
    fn take<T: Default>(&mut self, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> T {
        match self.words.remove(name).map(|value| read(&value)) {
            Some(Some(value)) => value,
            Some(None) => {
                self.wrong.push(name.to_owned());
                T::default()
            }
            None => T::default(),
        }
    }
}

fn filter<T>(value: &Value, read: impl FnOnce(&Value) -> Option<T>) -> Option<Filter<T>> {
    match value {
        Value::Null => Some(Filter::default()),
        Value::Array(pair) => match pair.as_slice() {
            [value, Value::Bool(on)] => Some(Filter { value: Some(read(value)?), on: *on }),
            _ => None,
        },
        _ => None,
    }
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array().filter(|list| list.len() <= PATTERNS_MAX)?.iter().map(read).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| clean(text, 4096).into_owned())
}

fn regex(value: &Value) -> Option<regex::Regex> {
    pattern(value.as_str()?).ok()
}

fn rule(value: &Value) -> Option<Rename> {
    let [expression, text] = value.as_array()?.as_slice() else { return None };
    let text = text.as_str().filter(|text| text.len() <= 4096)?.to_owned();
    Some(Rename { pattern: regex(expression)?, text })
}

fn whose(value: &Value) -> Option<Whose> {
    let [expression, mine] = value.as_array()?.as_slice() else { return None };
    Some(Whose { pattern: regex(expression)?, mine: mine.as_bool()? })
}

fn percent(value: &Value) -> Option<f64> {
    value.as_str()?.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

fn range(value: &Value) -> Option<Range> {
    let ns = |name: &str| value.get(name)?.as_u64();
    match value.as_object()?.keys().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rolling_ns"] => ns("rolling_ns").map(Range::Rolling),
        ["since_ns"] if value["since_ns"].is_null() => Some(Range::Cumulative { since: None }),
        ["since_ns"] => ns("since_ns").map(|since| Range::Cumulative { since: Some(since) }),
        ["from_ns", "till_ns"] => {
            Some(Range::Between { from: ns("from_ns")?, till: ns("till_ns")? })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back() {
        let on = |text: &str| Filter::set(pattern(text).expect("a pattern"));
        let mut settings = Settings {
            metric: Metric::Off,
            roll_up: RollUp::Class,
            grouping: Grouping::Frame(pattern("^a|b$").expect("a pattern")),
            rename: vec![Rename::parse("s/a(.)/${1}/").expect("a rule")],
            range: Range::Cumulative { since: Some(u64::MAX) },
            idle: true,
            idle_at: vec![pattern("pool").expect("a pattern")],
            level: Level::Mine,
            whose: vec![Whose { pattern: pattern("^lua_").expect("a pattern"), mine: false }],
            sort: SortColumn::State,
            reverse: true,
            ..Settings::default()
        };
        let said = |settings: &Settings| format!("{settings:?}");
        let again = |settings: &Settings| read(&write(settings)).expect("these are settings");
        let ranges = [
            Range::Rolling(7),
            Range::Cumulative { since: None },
            settings.range,
            Range::Between { from: 7, till: u64::MAX },
        ];
        for (case, range) in ranges.into_iter().enumerate() {
            settings.range = range;
            settings.filters.interesting =
                Filter { value: Some(vec!["a.b".into(), "\"".into()]), on: case == 0 };
            settings.filters.focus = on("x");
            settings.filters.ignore = on("y{2}");
            settings.filters.hide = Filter { value: on("z").value, on: false };
            settings.filters.threads = on("worker");
            (settings.filters.no_kernel, settings.filters.skip_daemon) = (case == 1, case == 2);
            settings.filters.gil = case == 3;
            settings.filters.native = NativeFrames::ALL[case % 3];
            settings.filters.min_percent = Filter::set([0.1 + 0.2, 100.0, 1e-7, 0.0][case]);
            let (read, wrong) = again(&settings);
            assert_eq!((said(&read), wrong), (said(&settings), vec![]));
        }
        for sort in SortColumn::ALL {
            assert_eq!(again(&Settings { sort, ..Settings::default() }).0.sort, sort);
        }
        assert_eq!(said(&again(&Settings::default()).0), said(&Settings::default()));
    }

    #[test]
    fn what_is_not_understood_is_as_by_default_and_said() {
        let (settings, wrong) = read(
            br#"{"metric":"colour","by":"line","group":"frame:(","rename":[["a"]],"focus":["(",true],"min_percent":["101",true],
                "range":{"rolling_ns":-1},"view":"flame","idle":true,"hide":null}"#,
        )
        .expect("these are settings");
        // Files of versions without levels are shown as live ones are.
        let expected = Settings {
            roll_up: RollUp::Line,
            idle: true,
            level: Level::Mine,
            ..Settings::default()
        };
        assert_eq!(format!("{settings:?}"), format!("{expected:?}"));
        assert_eq!(wrong, ["metric", "group", "rename", "focus", "min_percent", "range", "view"]);
        for nothing in [&b""[..], b"[]", b"{", b"\xff"] {
            assert!(read(nothing).is_none());
        }
    }
}
