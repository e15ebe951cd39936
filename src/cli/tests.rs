mod help;
#[cfg(feature = "push")]
mod push;

use std::ffi::OsString;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::{CaptureChoice, Dumped, Format, Kept, Reports, TargetSpec, Wanted, Workload};
use crate::model::projection::settings::{Grouping, Level, Metric, NativeFrames, Range, RollUp};
use crate::model::transform::diff::Per;
use crate::model::vocabulary::frame::SECOND;

const TERMINAL: Surroundings = Surroundings {
    stdout_is_terminal: true,
    no_color: false,
    dumb: false,
    colors: ColorDepth::Ansi,
    not_utf8: false,
    redact_key: None,
    push_token: None,
    config_path: None,
};
const PIPE: Surroundings = Surroundings { stdout_is_terminal: false, ..TERMINAL };

fn words(line: &str) -> Vec<OsString> {
    std::iter::once("sampletop").chain(line.split_whitespace()).map(OsString::from).collect()
}

fn on(surroundings: &Surroundings, line: &str) -> Config {
    parse_in(words(line).into_iter(), surroundings)
        .unwrap_or_else(|e| panic!("{line}: {}", e.message))
}

fn refused(surroundings: &Surroundings, line: &str) -> String {
    let exit = parse_in(words(line).into_iter(), surroundings).expect_err(line);
    assert_eq!((exit.code, exit.to_stdout), (ExitCode::Usage, false), "{line}");
    exit.message
}

fn pids(config: &Config) -> &[u32] {
    match &config.target {
        Some(TargetSpec::Processes(Wanted::Pids(pids))) => pids,
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_processes_are_named_by_number_name_or_group() {
    let config = on(&TERMINAL, "-p 9 --pid 7 -p 9 --subprocesses");
    assert_eq!(pids(&config), [7, 9]);
    assert!(config.subprocesses && !on(&TERMINAL, "-p 9").subprocesses);
    let config = on(&PIPE, "record --name ^nginx");
    assert!(
        matches!(&config.target, Some(TargetSpec::Processes(Wanted::Name(name))) if name.as_str() == "^nginx")
    );
    let config = on(&PIPE, "dump --cgroup system.slice/x.service");
    let Some(TargetSpec::Processes(Wanted::Cgroup(path))) = config.target else {
        panic!("{:?}", config.target)
    };
    assert_eq!(path.to_str(), Some("system.slice/x.service"));
    assert!(matches!(
        on(&PIPE, "record --subprocesses -- make").target,
        Some(TargetSpec::Command(_))
    ));
    for line in ["-p 7 --name x", "--name x --cgroup y", "-p 7 --cgroup y"] {
        assert!(refused(&TERMINAL, line).contains("different ways"), "{line}");
    }
    assert!(refused(&TERMINAL, "--name x -- ls").contains("two targets"));
    assert!(refused(&TERMINAL, "--name (").contains("--name"));
    assert!(refused(&TERMINAL, "--name=").contains("every process"));
    assert!(refused(&TERMINAL, "--cgroup=").contains("--cgroup"));
    assert!(refused(&TERMINAL, "demo --subprocesses").contains("does nothing for"));
    assert!(refused(&PIPE, "doctor --name x").contains("does nothing for"));
    assert!(refused(&PIPE, "doctor -p 1 -p 2").contains("one process"));
    let many: Vec<String> = (1..=65).map(|pid| format!("-p {pid}")).collect();
    assert!(refused(&TERMINAL, &many.join(" ")).contains("at most 64"));
    assert_eq!(pids(&on(&TERMINAL, &many[..64].join(" "))).len(), 64);
    let message = refused(&PIPE, "-p 4 -p 5");
    assert!(message.contains("record -p 4 -p 5"), "{message}");
    assert!(refused(&PIPE, "--name x.*").contains("record --name 'x.*'"));
}

#[test]
fn nothing_but_a_pid_is_the_live_view_at_its_defaults() {
    let config = on(&TERMINAL, "-p 4321");
    assert!(matches!(config.mode, Mode::Live));
    assert!(pids(&config) == [4321]);
    assert_eq!(config.sampling.interval, Duration::from_millis(10));
    assert_eq!(config.sampling.capture, CaptureChoice::Auto);
    assert_eq!(config.settings.range, Range::Rolling(30 * SECOND));
    assert_eq!(config.settings.metric, Metric::Wall);
    assert_eq!(config.screen.color, ColorDepth::Ansi);
    assert!(!config.screen.ascii && !config.screen.mouse);
    assert!(!config.settings.idle && !config.output.secure);
}

#[test]
fn without_arguments_a_process_is_picked() {
    let config = on(&TERMINAL, "");
    assert!(matches!(config.mode, Mode::Live) && config.target.is_none());
}

#[test]
fn a_command_keeps_its_own_options() {
    let config = on(&TERMINAL, "-i 5ms -- ls -p 7 --help -- x");
    let Some(TargetSpec::Command(command)) = config.target else { panic!("{:?}", config.target) };
    assert_eq!(command, ["ls", "-p", "7", "--help", "--", "x"]);
    assert_eq!(config.sampling.interval, Duration::from_millis(5));
}

#[test]
fn reports_come_every_quarter_of_an_hour_or_as_it_is_said() {
    let reports = |line: &str| match on(&PIPE, &format!("report {line}")).mode {
        Mode::Report(reports) => reports,
        mode => panic!("{mode:?}"),
    };
    let defaults = reports("-p 7");
    let quarter = Some(Duration::from_secs(900));
    assert_eq!(
        defaults,
        Reports {
            every: quarter,
            count: None,
            cumulative: false,
            max_lines: 200,
            kept: Kept::default()
        }
    );
    assert_eq!(reports("-p 7 --every 0").every, None);
    assert_eq!(reports("-p 7 --every 0s").every, None);
    let given = reports(
        "--name x --every 1h --count 3 --cumulative --max-lines 50 -o d/ --keep 9 --max-bytes 10M",
    );
    let kept = Kept { files: Some(9), bytes: Some(10 << 20) };
    assert_eq!(
        given,
        Reports {
            every: Some(Duration::from_secs(3600)),
            count: Some(3),
            cumulative: true,
            max_lines: 50,
            kept
        }
    );
    for (size, bytes) in [("1", 1), ("2k", 2 << 10), ("3MB", 3 << 20), ("4GiB", 4 << 30)] {
        assert_eq!(reports(&format!("-p 7 --max-bytes {size}")).kept.bytes, Some(bytes), "{size}");
    }
    // A log may have any extension; a known extension selects that format.
    for (line, format) in
        [("", Format::Text), ("-o app.log", Format::Text), ("-o app.json", Format::Json)]
    {
        assert_eq!(on(&PIPE, &format!("report -p 7 {line}")).output.format, format, "{line}");
    }
    for wrong in [
        "",
        "-p 7 --every 10ms",
        "-p 7 --every soon",
        "-p 7 --count 0",
        "-p 7 --count -1",
        "-p 7 --max-lines x",
        "-p 7 --keep 0",
        "-p 7 --max-bytes 3X",
        "-p 7 --max-bytes 99999999999G",
        "-p 7 --cumulative --window 5s",
        "-p 7 -d 5s",
    ] {
        refused(&PIPE, &format!("report {wrong}"));
    }
    refused(&TERMINAL, "record -p 7 --format sampletop");
    on(&PIPE, "record -p 7 --format sampletop");
    for other in [
        "record -p 7 --every 5m",
        "dump -p 7 --keep 3",
        "dump -p 7 --check-deadlock --each",
        "dump -p 7 --check-deadlock --skip-daemon",
        "dump -p 7 --check-deadlock --gil",
        "-p 7 --count 3",
        "record -p 7 --cumulative",
    ] {
        refused(&TERMINAL, other);
    }
}

#[test]
fn an_output_is_named_as_a_file() {
    for path in ["out/", "..", "a/..", "/"] {
        for line in [
            format!("record -p 7 --format json -o {path}"),
            format!("dump -p 7 --format json -o {path}"),
            format!("demo --once --format json -o {path}"),
            format!("open a --format json -o {path}"),
            format!("merge a b --format json -o {path}"),
            format!("diff a b --format json -o {path}"),
        ] {
            let sentence = refused(&PIPE, &line);
            assert!(sentence.contains("names no file"), "{line}: {sentence}");
        }
    }
    on(&PIPE, "report -p 7 -o out/");
    on(&PIPE, "record -p 7 -o out/p.json");
}

#[test]
fn a_recording_ends_by_itself_or_with_its_command() {
    let duration = |line| match on(&PIPE, line).mode {
        Mode::Record { duration } => duration,
        mode => panic!("{mode:?}"),
    };
    assert_eq!(duration("record -p 1"), Some(Duration::from_secs(10)));
    assert_eq!(duration("record -p 1 -d exit"), None);
    assert_eq!(duration("record -- x"), None);
    assert_eq!(duration("record -d 2s -- x"), Some(Duration::from_secs(2)));
    assert_eq!(on(&PIPE, "record -p 1").settings.range, Range::Cumulative { since: None });
    assert_eq!(on(&PIPE, "record -p 1 --window 5s").settings.range, Range::Rolling(5 * SECOND));
}

#[test]
fn the_format_follows_the_name_unless_it_is_given() {
    let format = |line| {
        let output = on(&PIPE, line).output;
        (output.format, output.path.map(|p| p.to_string_lossy().into_owned()))
    };
    let file = |name: &str| Some(name.to_owned());
    assert_eq!(format("record -p 1"), (Format::Text, None));
    assert_eq!(format("record -p 1 -o a.txt"), (Format::Text, file("a.txt")));
    assert_eq!(format("record -p 1 -o a.JSON"), (Format::Json, file("a.JSON")));
    assert_eq!(format("record -p 1 -o a.folded"), (Format::Folded, file("a.folded")));
    assert_eq!(format("record -p 1 -o a.PB.gz"), (Format::Pprof, file("a.PB.gz")));
    assert_eq!(format("record -p 1 -o a.pprof"), (Format::Pprof, file("a.pprof")));
    assert_eq!(format("record -p 1 -o a.b --format json"), (Format::Json, file("a.b")));
    assert_eq!(format("record -p 1 -o - --format folded"), (Format::Folded, None));
    assert_eq!(format("record -p 1 -o a.sampletop"), (Format::Sampletop, file("a.sampletop")));
    assert_eq!(format("record -p 1 -o a --format sampletop"), (Format::Sampletop, file("a")));
    assert_eq!(format("record -p 1 -o a.json.svg"), (Format::Svg, file("a.json.svg")));
    assert_eq!(
        format("record -p 1 -o a.SpeedScope.json"),
        (Format::Speedscope, file("a.SpeedScope.json"))
    );
    assert_eq!(format("record -p 1 -o speedscope.json"), (Format::Json, file("speedscope.json")));
    assert_eq!(format("dump -p 1 -o d.json"), (Format::Json, file("d.json")));
    assert!(refused(&PIPE, "record -p 1 -o .json").contains("does not say a format"));
    assert!(refused(&PIPE, "record -p 1 -o a.gz").contains(".pb.gz (pprof)"));
    assert!(
        refused(&TERMINAL, "record -p 1 --format pprof")
            .contains("a .pb.gz file is no text for a terminal")
    );
    let message = refused(&PIPE, "record -p 1 -o p.bmp");
    for name in ["p.bmp", "text", "json", "folded", "sampletop"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn a_dump_is_of_all_threads_or_of_deadlocks() {
    for (options, expected) in
        [("", Dumped::Threads), ("--each", Dumped::Each), ("--check-deadlock", Dumped::Deadlocks)]
    {
        match on(&PIPE, &format!("dump -p 1 {options}")).mode {
            Mode::Dump { what } => assert_eq!(what, expected),
            mode => panic!("{mode:?}"),
        }
    }
}

#[test]
fn wakers_are_counted_where_they_can_be_written() {
    let wakers = |line| on(&PIPE, line).sampling.wakers;
    assert_eq!(wakers("dump -p 1"), None);
    assert_eq!(wakers("dump -p 1 --wakers 10s"), Some(Duration::from_secs(10)));
    assert_eq!(wakers("record -p 1 --wakers 1m -o p.json"), Some(Duration::from_secs(60)));
    let refused = |line| refused(&PIPE, line);
    assert!(refused("dump -p 1 --wakers 11m").contains("from 1s to 10m"));
    assert!(refused("dump -p 1 --wakers 5s --check-deadlock").contains("`--wakers` does nothing"));
    assert!(refused("record -p 1 --wakers 5s -o p.html").contains("text, json or sampletop; html"));
    assert_eq!(wakers("record -p 1 --wakers 2s -o p.sampletop"), Some(Duration::from_secs(2)));
}

#[test]
fn two_profiles_are_compared() {
    let diff = |line: &str| match on(&PIPE, line).mode {
        Mode::Diff { before, after, per, given } => (
            before.to_string_lossy().into_owned(),
            after.to_string_lossy().into_owned(),
            per,
            given,
        ),
        mode => panic!("{mode:?}"),
    };
    let (before, after, per, given) = diff("diff a.sampletop b.sampletop --metric cpu");
    assert_eq!(
        (&*before, &*after, per, given.metric),
        ("a.sampletop", "b.sampletop", Per::Run, Some(Metric::Cpu))
    );
    assert_eq!(diff("diff a b --per share").2, Per::Share);
    assert_eq!(on(&PIPE, "diff a b -o d.json").output.format, Format::Json);
    assert!(refused(&PIPE, "diff a b -o d.pb.gz").contains("pprof"));
    assert_eq!(on(&TERMINAL, "diff a b").output.format, Format::Text);
    for wrong in [
        "diff",
        "diff a",
        "diff a b c",
        "diff a b --per minute",
        "diff a b --format folded",
        "diff a b -p 1",
        "diff a b -- ls",
    ] {
        refused(&PIPE, wrong);
    }
    assert!(refused(&PIPE, "record -p 1 --per run").contains("--per"));
}

#[test]
fn the_live_view_compares_with_a_saved_profile() {
    let against = |line: &str| on(&TERMINAL, line).against;
    for line in ["-p 1 --against a", "--name x --against a", "open b --against a", "--against a"] {
        assert_eq!(against(line), Some("a".into()), "{line}");
    }
    assert_eq!(against("open b"), None);
    assert!(refused(&TERMINAL, "open b -o c.svg --against a").contains("sampletop diff"));
    for wrong in ["record -p 1 --against a", "--against a open b", "-p 1 --against"] {
        refused(&TERMINAL, wrong);
    }
}

#[test]
fn sources_are_directories_and_replaced_prefixes() {
    use crate::config::SourcePath;
    let below = |path: &str| SourcePath::Below(path.into());
    let moved = SourcePath::Moved { from: "/build/7".into(), to: "src".into() };
    let sources = |line: &str| on(&TERMINAL, line).sources;
    let line = "-p 1 --source /a --source= --source /build/7=src";
    assert_eq!(sources(line), [below("/a"), moved]);
    assert_eq!(sources("open b --source c"), [below("c")]);
    assert_eq!(sources("--source a open b"), [below("a")]);
    assert_eq!(sources("--source a open b --source c"), [below("c")]);
    for wrong in ["=x", "x="] {
        let message = refused(&TERMINAL, &format!("-p 1 --source {wrong}"));
        assert!(message.contains(&format!("`--source {wrong}` is neither DIR nor")), "{message}");
    }
}

#[test]
fn profiles_are_merged_into_any_format() {
    let merge = |line: &str| match on(&PIPE, line) {
        Config { mode: Mode::Merge { files, .. }, output, .. } => (files.len(), output.format),
        config => panic!("{config:?}"),
    };
    assert_eq!(
        merge("merge a.sampletop b.sampletop c.sampletop -o d.sampletop"),
        (3, Format::Sampletop)
    );
    assert_eq!(merge("merge a --max-lines 9"), (1, Format::Text));
    for wrong in
        ["merge", "merge a -p 1", "merge a -o x.unknown", "merge a -- ls", "merge a --per run"]
    {
        refused(&PIPE, wrong);
    }
    refused(&TERMINAL, "merge a --format sampletop");
}

#[test]
fn names_are_replaced_under_a_key() {
    let redact = |line: &str| on(&PIPE, line).output.redact;
    assert_eq!(redact("record -p 1"), None);
    let (one, other) = (redact("record -p 1 --redact"), redact("dump --redact -p 1"));
    assert!(one.is_some_and(|redact| redact.only_this_run) && one != other, "each run has its own");
    let key = |text: &str| {
        let surroundings = Surroundings { redact_key: Some(text.into()), ..PIPE };
        parse_in(words("diff a b --redact").into_iter(), &surroundings)
            .map(|config| config.output.redact)
    };
    assert_eq!(key("0123456789abcdef"), key("0123456789abcdef"));
    assert_ne!(key("0123456789abcdef"), key("0123456789abcdeg"));
    assert!(
        key("0123456789abcdef")
            .is_ok_and(|redact| redact.is_some_and(|redact| !redact.only_this_run))
    );
    let short = key("0123456789abcde").expect_err("too short").message;
    assert!(short.contains("SAMPLETOP_REDACT_KEY") && !short.contains("0123"), "{short}");
    for option in [
        "--focus x",
        "--ignore x",
        "--hide x",
        "--threads x",
        "--interesting x",
        "--rename s/a/b/",
        "--idle-at x",
        "--app x",
        "--library x",
        "--group frame:x",
        "--group label:x",
    ] {
        let message = refused(&PIPE, &format!("record -p 1 --redact {option}"));
        assert!(
            message.contains("--redact")
                && message.contains(option.split(' ').next().expect("a word")),
            "{message}"
        );
    }
    for line in [
        "open a",
        "open a -o b.json",
        "report a",
        "merge a b -o c.json",
        "report -p 1 --by class --group process",
    ] {
        let config = on(&TERMINAL, &format!("{line} --redact"));
        assert!(config.output.redact.is_some(), "{line}");
    }
    for line in ["-p 1", "doctor", ""] {
        assert!(refused(&TERMINAL, &format!("{line} --redact")).contains("does nothing"), "{line}");
    }
}

#[test]
fn the_demo_reports_once_where_nobody_can_press_keys() {
    for (surroundings, line) in
        [(&TERMINAL, "demo --once"), (&PIPE, "demo"), (&PIPE, "demo --once")]
    {
        let config = on(surroundings, line);
        assert!(
            matches!(config.mode, Mode::Once { duration } if duration == Duration::from_secs(5)),
            "{line}"
        );
        assert!(
            matches!(config.target, Some(TargetSpec::Demo { workload: Workload::All })),
            "{line}"
        );
        assert_eq!(config.settings.range, Range::Cumulative { since: None });
    }
    let config = on(&TERMINAL, "demo --workload locks");
    assert!(matches!(config.mode, Mode::Live));
    assert!(matches!(config.target, Some(TargetSpec::Demo { workload: Workload::Locks })));
}

#[test]
fn everything_that_is_shown_can_be_set() {
    let line = "--metric off --by line --group frame:^handle --threads w --interesting a::,b --focus f --ignore g \
                --hide h --min-percent 0.5% --idle --idle-at x --idle-at y --level chains --app m --library n --native none -p 1";
    let settings = on(&TERMINAL, line).settings;
    assert_eq!((settings.metric, settings.roll_up), (Metric::Off, RollUp::Line));
    assert!(matches!(&settings.grouping, Grouping::Frame(r) if r.as_str() == "^handle"));
    assert_eq!(settings.filters.interesting.active().expect("set"), &["a::", "b"]);
    let regexes = [
        &settings.filters.threads,
        &settings.filters.focus,
        &settings.filters.ignore,
        &settings.filters.hide,
    ];
    assert_eq!(regexes.map(|f| f.active().expect("set").as_str()), ["w", "f", "g", "h"]);
    assert_eq!(settings.filters.min_percent.active(), Some(&0.5));
    assert!(settings.idle);
    let whose = settings.whose.iter().map(|whose| (whose.pattern.as_str(), whose.mine));
    assert_eq!(whose.collect::<Vec<_>>(), [("n", false), ("m", true)], "--app has the last word");
    assert_eq!((settings.level, settings.filters.native), (Level::Chains, NativeFrames::None));
    assert_eq!(on(&TERMINAL, "-p 1").settings.level, Level::Mine);
    assert_eq!(settings.idle_at.iter().map(|r| r.as_str()).collect::<Vec<_>>(), ["x", "y"]);
}

#[test]
fn source_maps_are_read_unless_switched_off() {
    for (line, read) in
        [("-p 1", true), ("-p 1 --source-maps yes", true), ("dump -p 1 --source-maps no", false)]
    {
        assert_eq!(on(&TERMINAL, line).sampling.source_maps, read, "{line}");
    }
    assert!(refused(&TERMINAL, "-p 1 --source-maps never").contains("none of yes, no"));
}

#[test]
fn a_doctor_is_asked_about_this_machine_or_one_process() {
    for (line, json) in [("doctor", false), ("doctor --json", true), ("doctor --json -p 7", true)] {
        let config = on(&PIPE, line);
        assert!(matches!(config.mode, Mode::Doctor { json: found } if found == json), "{line}");
        assert_eq!(config.target.is_some(), line.contains("-p"), "{line}");
    }
    for line in [
        "doctor -i 5ms",
        "doctor --capture perf",
        "doctor -d 1s",
        "doctor -o x.txt",
        "doctor --metric cpu",
    ] {
        assert!(refused(&PIPE, line).contains("does nothing for `doctor`"), "{line}");
    }
    assert!(refused(&PIPE, "record -p 7 --json").contains("--json"));
    assert!(refused(&PIPE, "doctor -- ls").contains("-p PID"));
}

#[test]
fn colours_are_off_where_they_are_not_wanted() {
    let color = |surroundings: &Surroundings, line| on(surroundings, line).screen.color;
    let (forbidden, dumb) =
        (Surroundings { no_color: true, ..TERMINAL }, Surroundings { dumb: true, ..TERMINAL });
    for (surroundings, line, depth) in [
        (&TERMINAL, "--no-color", ColorDepth::None),
        (&TERMINAL, "--no-color --color 256", ColorDepth::None),
        (&TERMINAL, "--color never", ColorDepth::None),
        (&TERMINAL, "--color true", ColorDepth::True),
        (&TERMINAL, "--color auto", ColorDepth::Ansi),
        (&forbidden, "", ColorDepth::None),
        (&forbidden, "--color 16", ColorDepth::Ansi),
        (&dumb, "", ColorDepth::None),
    ] {
        assert_eq!(color(surroundings, line), depth, "{line}");
    }
    for (colors, terminal, depth) in [
        ("", "xterm", ColorDepth::Ansi),
        ("", "xterm-256color", ColorDepth::Indexed),
        ("truecolor", "xterm-256color", ColorDepth::True),
        ("24bit", "", ColorDepth::True),
        ("", "xterm-direct", ColorDepth::True),
        ("yes", "linux", ColorDepth::Ansi),
    ] {
        let variable = |name: &str| if name == "TERM" { terminal } else { colors }.to_owned();
        assert_eq!(super::colors(variable), depth, "{colors} {terminal}");
    }
}

#[test]
fn the_locale_decides_what_is_drawn_with() {
    let not_utf8 = |variables: &[(&str, &str)]| {
        let value = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        };
        super::is_not_utf8(value)
    };
    assert!(!not_utf8(&[]));
    assert!(
        not_utf8(&[("LANG", "C")])
            && not_utf8(&[("LANG", "POSIX")])
            && not_utf8(&[("LANG", "de_DE.ISO-8859-1")])
    );
    assert!(!not_utf8(&[("LANG", "en_US.UTF-8")]) && !not_utf8(&[("LANG", "C.utf8")]));
    assert!(not_utf8(&[("LC_ALL", "C"), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C.UTF-8")]));
    assert!(!not_utf8(&[("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C")]));
    let foreign = Surroundings { not_utf8: true, ..TERMINAL };
    assert!(on(&foreign, "").screen.ascii && !on(&foreign, "--unicode").screen.ascii);
    assert!(on(&TERMINAL, "--ascii").screen.ascii && !on(&TERMINAL, "").screen.ascii);
}

#[test]
fn a_wrong_value_is_told_before_a_missing_terminal() {
    assert!(refused(&PIPE, "-i 0").contains("--interval"));
    let message = refused(&PIPE, "-p 4321");
    assert!(message.contains("record -p 4321") && message.contains("dump -p 4321"), "{message}");
}

#[test]
fn an_interval_that_is_named_is_kept_unless_a_bound_is_named_too() {
    let bound = |line| on(&TERMINAL, line).sampling.max_overhead;
    assert_eq!(bound("-p 1"), Some(3.0));
    assert_eq!(bound("-p 1 -i 10ms"), None);
    assert_eq!(bound("-p 1 -i 10ms --max-overhead 1.5%"), Some(1.5));
    assert_eq!(bound("-p 1 --max-overhead 100"), Some(100.0));
    for wrong in ["0", "-1", "101", "NaN", "much", "3%%x"] {
        let message = refused(&TERMINAL, &format!("-p 1 --max-overhead {wrong}"));
        assert!(
            message.contains(&format!("--max-overhead {wrong}")) && message.contains("0.1 to 100"),
            "{message}"
        );
    }
    assert!(refused(&PIPE, "dump -p 1 --max-overhead 3").contains("does nothing for `dump`"));
}

#[test]
fn times_end_where_they_say() {
    for (line, good) in [
        ("-i 1ms", true),
        ("-i 10s", true),
        ("-i 999us", false),
        ("-i 10001ms", false),
        ("--window 1s", true),
        ("--window 24h", true),
        ("--window 24h1ms", false),
        ("--window 999ms", false),
    ] {
        assert_eq!(parse_in(words(line).into_iter(), &TERMINAL).is_ok(), good, "{line}");
    }
}

#[test]
fn the_workload_child_gets_its_arguments_untouched() {
    let Mode::Workload { args } = on(&PIPE, "__workload mixed --truth --anything").mode else {
        panic!("not the child")
    };
    assert_eq!(args, ["mixed", "--truth", "--anything"]);
}

proptest! {
    /// Any arguments give a configuration, or one sentence on one line.
    #[test]
    fn any_arguments_get_an_answer(args in proptest::collection::vec(
        prop_oneof![
            proptest::sample::select(vec!["record", "report", "open", "diff", "merge", "completions", "man", "--secure", "dump", "demo", "doctor", "--json", "-p", "--name", "--cgroup", "--subprocesses", "--", "-i", "-d", "--rename", "--group", "--once",
                "-o", "--idle", "--idle-at", "1s", "7", "exit", "s/a/b/", "frame:x", "x.json", "--format", "--by"]).prop_map(String::from),
            "-{0,2}[a-z]{0,8}=?\\PC{0,8}",
        ], 0..8))
    {
        let args = std::iter::once(OsString::from("sampletop")).chain(args.into_iter().map(OsString::from));
        if let Err(exit) = parse_in(args, &TERMINAL) && exit.code != ExitCode::Success {
            prop_assert_eq!(exit.code, ExitCode::Usage);
            prop_assert!(exit.message.starts_with("sampletop: "), "{}", exit.message);
            prop_assert_eq!(exit.message.lines().count(), 1, "{}", exit.message);
        }
    }
}
