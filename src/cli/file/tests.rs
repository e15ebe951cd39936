use std::time::Duration;

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::cli::parse_in;
use crate::config::{CaptureChoice, Choices, ColorDepth, Config, Mode, Names};
use crate::config_file::choices::put_into;
use crate::exit_code::ExitCode;
use crate::model::projection::settings::{
    Filter, Filters, Grouping, Level, Metric, NativeFrames, Range, Rename, RollUp, Settings,
    SortColumn, Whose,
};

/// A folder with a configuration file of this text.
struct Home {
    dir: tempfile::TempDir,
    path: PathBuf,
}

fn home(text: &str) -> Home {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config.toml");
    std::fs::write(&path, text).expect("written");
    Home { dir, path }
}

impl Home {
    fn surroundings(&self) -> Surroundings {
        Surroundings {
            stdout_is_terminal: true,
            colors: ColorDepth::Ansi,
            config_path: Some(self.path.clone()),
            ..Surroundings::default()
        }
    }

    fn parse(&self, line: &str) -> Result<Config, String> {
        self.parse_in(line, &self.surroundings())
    }

    fn parse_in(&self, line: &str, surroundings: &Surroundings) -> Result<Config, String> {
        let words = std::iter::once("sampletop").chain(line.split_whitespace());
        parse_in(words.map(OsString::from), surroundings).map_err(|exit| {
            assert_eq!((exit.code, exit.message.lines().count()), (ExitCode::Usage, 1));
            exit.message
        })
    }

    fn config(&self, line: &str) -> Config {
        self.parse(line).unwrap_or_else(|message| panic!("{line}: {message}"))
    }
}

#[test]
fn keys_are_options_and_the_command_line_wins() {
    let home = home(
        "metric = 'cpu'\nidle = true\nno-kernel = true\nwindow = '1m'\ninterval = '20ms'\nmouse = true\n\
         rename = ['s/a/b/', 's/c/d/']\nmax-overhead = 2\ncapture = 'perf'\nnames = 'full'\nsort = '-cpu'\nsecure = true\n",
    );
    let config = home.config("-p 7");
    assert!(config.output.secure && !home.config("--secure=false -p 7").output.secure);
    let settings = &config.settings;
    assert_eq!((settings.metric, settings.idle), (Metric::Cpu, true));
    assert_eq!(settings.range, Range::Rolling(60_000_000_000));
    assert_eq!((settings.sort, settings.reverse), (SortColumn::Cpu, true));
    assert_eq!(config.sampling.interval, Duration::from_millis(20));
    assert_eq!(config.sampling.max_overhead, Some(2.0));
    assert_eq!(config.sampling.capture, CaptureChoice::Perf);
    assert!(config.screen.mouse && config.screen.names == Names::Full);
    assert_eq!(settings.rename.len(), 2);
    assert_eq!(config.file.as_deref(), Some(&*home.path));
    let config = home.config(
        "--metric off --idle=false -i 5ms --rename s/x/y/ --window 2s --mouse=false --sort self -p 7",
    );
    let settings = &config.settings;
    assert_eq!((settings.metric, settings.idle), (Metric::Off, false));
    assert_eq!((config.sampling.interval, config.screen.mouse), (Duration::from_millis(5), false));
    assert_eq!((settings.sort, settings.reverse), (SortColumn::SelfTime, false));
    assert_eq!(settings.range, Range::Rolling(2_000_000_000));
    assert!(settings.filters.no_kernel, "what the command line does not name stays");
    let rules: Vec<&str> = settings.rename.iter().map(|rule| rule.pattern.as_str()).collect();
    assert_eq!(rules, ["x"], "a list replaces the file's");
}

#[test]
fn the_files_interval_keeps_the_limit_on_cpu_time() {
    let sampling = |text: &str, line: &str| {
        let sampling = home(text).config(line).sampling;
        (sampling.interval.as_millis(), sampling.max_overhead)
    };
    for line in ["-p 7", "report -p 7", "record -p 7"] {
        assert_eq!(sampling("interval = '20ms'", line), (20, Some(3.0)), "{line}");
        let typed = format!("{line} -i 5ms");
        assert_eq!(sampling("interval = '20ms'", &typed), (5, None), "{typed}");
        let both = "interval = '20ms'\nmax-overhead = 2";
        assert_eq!(sampling(both, line), (20, Some(2.0)), "{line}");
        assert_eq!(sampling("metric = 'cpu'", &typed), (5, None), "{typed}");
    }
}

#[test]
fn options_apply_where_the_subcommand_has_them() {
    let home = home(
        "metric = 'cpu'\nwindow = '1m'\nevery = '5m'\nmax-lines = 50\nmouse = true\nno-kernel = true\nskip-daemon = true\ngil = true\n",
    );
    // A record is whole; only the live view has a window.
    let record = home.config("record -p 7 -o x.json");
    assert_eq!(record.settings.range, Range::Cumulative { since: None });
    assert_eq!(record.settings.metric, Metric::Cpu);
    let report = home.config("report --cumulative -p 7");
    let crate::config::Mode::Report(reports) = report.mode else { panic!("{:?}", report.mode) };
    assert_eq!((reports.every, reports.max_lines), (Some(Duration::from_secs(300)), 50));
    // A saved profile keeps its own settings.
    let open = home.config("open x.sampletop");
    let crate::config::Mode::Open { given, .. } = &open.mode else { panic!("{:?}", open.mode) };
    assert!(given.metric.is_none() && given.range.is_none() && open.screen.mouse);
    assert_eq!(home.config("report x.sampletop").settings.metric, Metric::Wall);
    let dump = home.config("dump -p 7 --check-deadlock");
    let Filters { no_kernel, skip_daemon, gil, .. } = dump.settings.filters;
    assert!(no_kernel && !skip_daemon && !gil);
    assert!(home.config("dump -p 7").settings.filters.gil);
    // Behind `--` are arguments of the command.
    let live = home.config("-- make --metric wall --idle=false");
    assert_eq!(live.settings.metric, Metric::Cpu);
    let Some(crate::config::TargetSpec::Command(command)) = live.target else { panic!("none") };
    assert_eq!(command, ["make", "--metric", "wall", "--idle=false"]);
    for line in ["doctor", "diff a b", "merge a", "demo", "demo --once -d 1s"] {
        home.config(line);
    }
}

#[test]
fn a_wrong_key_or_value_is_one_sentence_with_file_line_and_key() {
    for (text, line, says) in [
        ("\nmetrics = 'cpu'", 2, "there is no key `metrics`; the nearest is `metric`"),
        ("max_overhead = 3", 1, "the nearest is `max-overhead`"),
        ("colour = 1", 1, "there is no key `colour`"),
        ("zzz = 1", 1, "as in `metric = \"cpu\"`"),
        ("pid = 7", 1, "`pid` is an option of the command line only"),
        #[cfg(feature = "push")]
        ("push = 'https://x'", 1, "`push` is an option of the command line only"),
        ("metric = 'gpu'", 1, "`metric = gpu` is none of wall, cpu, off"),
        ("color = false", 1, "`color` is a number, a word or true, not false"),
        ("metric = 1", 1, "`metric` is a string, not a number"),
        ("metric = ['cpu']", 1, "`metric` is a string, not a list"),
        ("idle = 'yes'", 1, "`idle` is true or false, not a string"),
        ("threads = 4", 1, "`threads` is a string, not a number"),
        ("rename = ['s/a/b/', 1]", 1, "a list of strings, not a list of other things"),
        ("rename = 's/a/$1/'", 1, "rename: `a` has no group 1"),
        ("[view]\nmetric = 'cpu'", 1, "there is no key `view`"),
        ("metric.x = 1", 1, "`metric` is a string, not a table"),
        ("interval = 5", 1, "`interval` is a string, not a number"),
        ("interval = '5'", 1, "`interval = 5` is no time"),
        ("min-percent = 101", 1, "`min-percent = 101` is no share"),
        ("max-overhead = true", 1, "`max-overhead` is a number, not true or false"),
        ("every = '1ms'", 1, "`every = 1ms` is out of range"),
        ("idle = true\nidle = true", 2, "this is no TOML: "),
        ("focus = '('", 1, "focus: `(` is no regular expression"),
    ] {
        let home = home(text);
        let message = home.parse("-p 7").expect_err(text);
        let place = format!("sampletop: {}:{line}: ", home.path.display());
        assert!(message.starts_with(&place), "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
        // Commands without such options do not read it.
        home.config("doctor");
    }
}

#[test]
fn values_that_do_not_go_together_name_the_file() {
    let home = home("focus = 'x'\n");
    let message = home.parse("record --redact -p 7").expect_err("both");
    let place = format!("; some options are from `{}`", home.path.display());
    assert!(message.contains("`--focus`") && message.trim_end().ends_with(&place), "{message}");
    // What was typed wrongly is said first.
    let message = home.parse("record -p 7 --metric x").expect_err("wrong");
    assert!(!message.contains("config.toml"), "{message}");
}

#[test]
fn another_file_can_be_named_and_must_exist() {
    let home = home("metric = 'cpu'\n");
    let other = home.dir.path().join("other.toml");
    let line = format!("record --config {} -p 7", other.display());
    assert!(home.parse(&line).expect_err("missing").contains("other.toml"));
    std::fs::write(&other, "metric = 'off'").expect("written");
    assert_eq!(home.config(&line).settings.metric, Metric::Off);
    assert_eq!(
        home.config(&format!("--config {} record -p 7", other.display())).settings.metric,
        Metric::Off
    );
    let nothing = home.config("--config /dev/null -p 7");
    assert_eq!(nothing.settings.metric, Metric::Wall);
    assert!(home.parse("--config=/nowhere diff a b").is_err());
    std::fs::remove_file(&home.path).expect("removed");
    assert_eq!(home.config("-p 7").file.as_deref(), Some(&*home.path), "`W` makes it");
}

#[test]
fn flags_are_switched_off_by_their_value() {
    let home = home("ascii = true\nno-color = true\n");
    let screen = home.config("-p 7").screen;
    assert_eq!((screen.ascii, screen.color), (true, ColorDepth::None));
    let screen = home.config("--no-color=false --unicode -p 7").screen;
    assert_eq!((screen.ascii, screen.color), (false, ColorDepth::Ansi));
    assert_eq!(home.config("--color 256 -p 7").screen.color, ColorDepth::Indexed);
    assert!(home.parse("-p 7 --idle=1").expect_err("no value").contains("takes no value"));
    assert!(home.config("-p 7 --idle=true").settings.idle);
    // Values of other options are not such flags.
    assert!(home.parse("-p 7 --focus --idle=false").is_err());
}

#[test]
fn no_color_and_a_dumb_terminal_win_over_the_file_and_not_over_the_command_line() {
    let home = home("color = 256\n");
    let color = |surroundings: &Surroundings, line: &str| {
        home.parse_in(line, surroundings).expect(line).screen.color
    };
    let no_color = Surroundings { no_color: true, ..home.surroundings() };
    let dumb = Surroundings { dumb: true, ..home.surroundings() };
    assert_eq!(color(&home.surroundings(), "-p 7"), ColorDepth::Indexed);
    for surroundings in [no_color, dumb] {
        assert_eq!(color(&surroundings, "-p 7"), ColorDepth::None);
        assert_eq!(color(&surroundings, "--color 16 -p 7"), ColorDepth::Ansi);
    }
}

#[test]
fn an_option_that_is_switched_off_displaces_no_other_of_the_file() {
    let home = home("unicode = true\n");
    let not_utf8 = Surroundings { not_utf8: true, ..home.surroundings() };
    let is_ascii = |line: &str| home.parse_in(line, &not_utf8).expect(line).screen.ascii;
    assert!(!is_ascii("-p 7") && !is_ascii("--ascii=false -p 7"));
    assert!(is_ascii("--ascii -p 7") && is_ascii("--unicode=false -p 7"));
}

#[test]
fn the_last_of_a_flag_holds_and_a_subcommand_takes_its_own_only() {
    let home = home("idle = true\n");
    let is_idle = |line: &str| home.config(line).settings.idle;
    assert!(!is_idle("--idle --idle=false -p 7") && !is_idle("--idle=true --idle=false -p 7"));
    assert!(is_idle("--idle=false --idle -p 7") && is_idle("--idle=false --idle=true -p 7"));
    assert!(!is_idle("--idle=false --idle=false -p 7"));
    for flag in ["--subprocesses", "--subprocesses=false"] {
        let message = home.parse(&format!("diff {flag} a b")).expect_err(flag);
        assert!(message.contains("`--subprocesses` does nothing for `diff`"), "{message}");
    }
    home.config("diff --no-kernel=false a b");
}

#[test]
fn flags_off_before_a_subcommand_are_refused_as_others_are() {
    let home = home("idle = true\n");
    for line in [
        "--idle=false record -p 7",
        "--idle --idle=false record -p 7",
        "--mouse --idle=false --mouse=false record -p 7",
        "--mouse=false --subprocesses --subprocesses=false --no-kernel=false record -p 7",
        "--idle=false record -p 7 --idle=false -- a",
    ] {
        let message = home.parse(line).expect_err(line);
        assert!(message.contains("options of `record` stand behind it"), "{line}: {message}");
    }
    let message = home.parse("--idle=false doctor").expect_err("no option of it");
    assert!(message.contains("`--idle` does nothing for `doctor`"), "{message}");
    // A shell alias may hold those of the screen.
    home.config("--no-color=false --mouse=false record --idle=false -p 7");
    // The flag behind the subcommand holds, as it would alone.
    assert!(home.config("--idle=false record --idle -p 7").settings.idle);
    // Where the word is another option's value, there is no subcommand.
    assert!(!home.config("--name record --idle=false").settings.idle);
}

#[test]
fn a_sort_order_may_begin_with_a_dash() {
    let home = home("");
    for line in ["-p 7 --sort -hits", "-p 7 --sort=-hits", "open x --sort -hits"] {
        let settings = home.config(line).settings;
        assert_eq!((settings.sort, settings.reverse), (SortColumn::Hits, true), "{line}");
    }
}

#[test]
fn sources_are_of_every_live_view() {
    let home = home("source = ['/a', '/b=/c']\n");
    assert_eq!(home.config("-p 7").sources.len(), 2);
    assert_eq!(home.config("open x").sources.len(), 2);
    assert_eq!(home.config("-p 7 --source /d").sources.len(), 1);
    assert_eq!(home.config("record -p 7").sources, []);
}

#[test]
fn colours_are_a_number_a_word_or_true() {
    for (text, depth) in [
        ("true", ColorDepth::True),
        ("'true'", ColorDepth::True),
        ("256", ColorDepth::Indexed),
        ("'16'", ColorDepth::Ansi),
        ("'never'", ColorDepth::None),
        ("''", ColorDepth::Ansi),
    ] {
        let color = home(&format!("color = {text}\n")).config("-p 7").screen.color;
        assert_eq!(color, depth, "{text}");
    }
}

#[test]
fn an_empty_value_on_the_command_line_empties_the_files() {
    let lists = ["rename", "app", "library", "idle-at", "interesting"];
    let patterns = ["focus", "ignore", "hide", "threads"];
    let mut text = "rename = ['s/a/b/']\nmin-percent = 5\n".to_owned();
    lists[1..].iter().for_each(|key| text += &format!("{key} = ['x']\n"));
    patterns.iter().for_each(|key| text += &format!("{key} = 'x'\n"));
    let home = home(&text);
    let without: String = [&lists[..], &patterns, &["min-percent"]]
        .concat()
        .iter()
        .map(|key| format!(" --{key}="))
        .collect();
    let nothing = Surroundings { config_path: None, ..home.surroundings() };
    for command in ["record", "report"] {
        let settings = home.config(&format!("{command} -p 7{without}")).settings;
        let plain = home.parse_in(&format!("{command} -p 7"), &nothing).expect("plain").settings;
        assert_eq!(format!("{settings:?}"), format!("{plain:?}"), "{command}");
    }
    // Names that are replaced can be no pattern's.
    assert!(home.parse("record --redact -p 7").is_err());
    home.config(&format!("record --redact -p 7{without}"));
    // The others of a list are left.
    let settings = home.config("-p 7 --rename= --rename s/c/d/").settings;
    assert_eq!(settings.rename.len(), 1);
}

fn pattern() -> impl Strategy<Value = Regex> {
    let texts =
        ["^a\\.b$", "x|y", "shop::", "\"quoted\" 'too'", "ü→", "a/b,c", "[a-z]{2,}\\t", "\u{7}"];
    prop_oneof![prop::sample::select(texts.to_vec()).prop_map(String::from), "[a-z$ /|,:!]{1,6}"]
        .prop_map(|text| {
            Regex::new(&text).unwrap_or_else(|_| Regex::new("other").expect("a pattern"))
        })
}

fn rename() -> impl Strategy<Value = Rename> {
    prop::sample::select(vec![
        "s/a/b/",
        "s,/,-,",
        r"s|a\|b|x|",
        r"s/(\w+)-(\d)/$2 $$ ${1}/",
        "s/x//",
    ])
    .prop_map(|text| Rename::parse(text).expect("a rule"))
}

fn filter<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Filter<T>> {
    prop::option::of(value).prop_map(|value| value.map_or(Filter::default(), Filter::set))
}

fn filters() -> impl Strategy<Value = Filters> {
    let prefixes = prop::collection::vec("[a-z.:]{1,5}", 1..3);
    let patterns = (filter(pattern()), filter(pattern()), filter(pattern()), filter(pattern()));
    let native = prop::sample::select(NativeFrames::ALL.to_vec());
    let others = (filter(prefixes), any::<[bool; 3]>(), filter(0.1f64..100.0), native);
    (patterns, others).prop_map(
        |(
            (focus, ignore, hide, threads),
            (interesting, [no_kernel, skip_daemon, gil], min_percent, native),
        )| {
            Filters {
                interesting,
                focus,
                ignore,
                hide,
                no_kernel,
                native,
                threads,
                skip_daemon,
                gil,
                min_percent,
            }
        },
    )
}

fn settings() -> impl Strategy<Value = Settings> {
    let grouping = prop_oneof![
        prop::sample::select(vec!["rules", "name", "thread", "process", "blocker", "none"])
            .prop_map(|text| Grouping::parse(text).expect("a word")),
        pattern().prop_map(Grouping::Frame),
        "[a-z:=.]{1,9}".prop_map(|key| Grouping::Label(Some(key.into()))),
    ];
    let words = (
        prop::sample::select(Metric::ALL.to_vec()),
        prop::sample::select(RollUp::ALL.to_vec()),
        prop::sample::select(Level::ALL.to_vec()),
        prop::sample::select(SortColumn::ALL.to_vec()),
    );
    let whose = (pattern(), any::<bool>()).prop_map(|(pattern, mine)| {
        // Only this is written in another way.
        let starts = mine && pattern.as_str().starts_with('!');
        Whose { pattern, mine: mine && !starts }
    });
    let lists = (
        prop::collection::vec(rename(), 0..3),
        prop::collection::vec(whose, 0..5),
        prop::collection::vec(pattern(), 0..3),
    );
    let flags = (any::<bool>(), any::<bool>());
    (grouping, words, filters(), lists, flags, 1u64..86_400).prop_map(
        |(grouping, (metric, roll_up, level, sort), filters, lists, (idle, reverse), seconds)| {
            let (rename, whose, idle_at) = lists;
            let range = Range::Rolling(seconds * 1_000_000_000);
            Settings {
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
                inverted: false,
            }
        },
    )
}

/// A saved profile has filters of its own.
#[test]
fn an_empty_filter_drops_the_one_that_was_saved() {
    let home = home("");
    let regex = |text: &str| Filter::set(Regex::new(text).expect("a pattern"));
    let saved = Settings {
        filters: Filters {
            interesting: Filter::set(vec!["a".into()]),
            focus: regex("a"),
            ignore: regex("b"),
            hide: regex("c"),
            threads: regex("d"),
            min_percent: Filter::set(2.0),
            no_kernel: true,
            native: NativeFrames::Full,
            skip_daemon: true,
            gil: true,
        },
        ..Settings::default()
    };
    let filters = |options: &str| {
        let config = home.config(&format!("open p.sampletop {options}"));
        let Mode::Open { given, .. } = config.mode else { panic!("{:?}", config.mode) };
        given.over(saved.clone()).filters
    };
    let text = |filters: Filters| format!("{filters:?}");
    assert_eq!(text(filters("")), text(saved.filters.clone()));
    for (option, expected) in [
        ("--interesting=", Filters { interesting: Filter::default(), ..saved.filters.clone() }),
        ("--focus=", Filters { focus: Filter::default(), ..saved.filters.clone() }),
        ("--ignore=", Filters { ignore: Filter::default(), ..saved.filters.clone() }),
        ("--hide=", Filters { hide: Filter::default(), ..saved.filters.clone() }),
        ("--threads=", Filters { threads: Filter::default(), ..saved.filters.clone() }),
        ("--min-percent=", Filters { min_percent: Filter::default(), ..saved.filters.clone() }),
        ("--focus=x --ignore=b", Filters { focus: regex("x"), ..saved.filters.clone() }),
    ] {
        assert_eq!(text(filters(option)), text(expected), "{option}");
    }
}

#[test]
fn keys_that_the_command_line_gives_are_known() {
    let home = home("metric = 'cpu'\n");
    let given = |line: &str| home.config(line).given;
    assert_eq!(given("-p 7"), Vec::<&str>::new());
    assert_eq!(given("-i 10ms --idle=false --focus x -p 7"), ["interval", "idle", "focus"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// What the live view saves gives the same view again, whatever the file had before.
    #[test]
    fn what_was_saved_is_read_again(
        first in settings(), second in settings(), ms in 1u64..=10_000, mouse in any::<bool>(), full in any::<bool>(),
    ) {
        let home = home("# kept\nmax-overhead = 2 # too\n");
        let names = if full { Names::Full } else { Names::Short };
        for settings in [first, second] {
            let Range::Rolling(window) = settings.range else { unreachable!("made above") };
            let choices = Choices {
                settings: settings.clone(),
                window: Duration::from_nanos(window),
                interval: Duration::from_millis(ms),
                mouse,
                names,
            };
            let old = std::fs::read_to_string(&home.path).expect("there");
            let new = put_into(&old, &choices, None).expect("TOML");
            prop_assert!(new.starts_with("# kept\nmax-overhead = 2 # too\n"), "{new}");
            let again = put_into(&new, &choices, None).expect("TOML");
            prop_assert_eq!(&again, &new, "nothing is left to write");
            std::fs::write(&home.path, &new).expect("written");
            let config = home.config("-p 7");
            prop_assert_eq!(format!("{:?}", config.settings), format!("{settings:?}"), "{}", new);
            prop_assert_eq!(config.sampling.interval, Duration::from_millis(ms));
            prop_assert_eq!((config.screen.mouse, config.screen.names), (mouse, names));
        }
    }
}
