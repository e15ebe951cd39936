//! Checks which options go together, and builds the [`Config`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::options::ScreenOptions;
use super::push::push;
use super::typed::{Job, Typed};
use super::values::{self, STDOUT, Times, shown};
use super::{CliExit, Surroundings};
use crate::config::{
    self, CaptureChoice, ColorDepth, Config, Format, Given, INTERVAL, Kept, Mode, Names, Output,
    Redact, Reports, Sampling, Screen, TargetSpec, ThemeChoice, UnwinderChoice, WINDOW, Wanted,
    Workload,
};
use crate::model::projection::settings::{
    Filter, Filters, Level, Metric, NativeFrames, Range, RollUp, Settings, Whose,
};
use crate::model::transform::diff::Per;
use crate::model::transform::redact::Key;
use crate::model::vocabulary::frame::Ns;

const DAY: Duration = Duration::from_secs(24 * 3600);

const INTERVALS: Times = Times {
    option: "--interval",
    least: Duration::from_millis(1),
    most: Duration::from_secs(10),
    range: "from 1ms to 10s",
};
/// Default limit of sampletop's own CPU time, percent of one core.
const MAX_OVERHEAD: f64 = 3.0;
const WINDOWS: Times =
    Times { option: "--window", least: Duration::from_secs(1), most: DAY, range: "from 1s to 24h" };
/// Default duration of a recording.
const DURATION: Duration = Duration::from_secs(10);
/// Default duration of `demo --once`.
const DEMO_DURATION: Duration = Duration::from_secs(5);
const DURATIONS: Times = Times {
    option: "--duration",
    least: Duration::from_millis(100),
    most: DAY,
    range: "from 100ms to 24h, or exit",
};

const WAKERS: Times = Times {
    option: "--wakers",
    least: Duration::from_secs(1),
    most: Duration::from_secs(600),
    range: "from 1s to 10m",
};

/// Default interval between reports.
const EVERY: Duration = Duration::from_secs(15 * 60);
/// Default interval between reports that are pushed.
const EVERY_PUSHED: Duration = Duration::from_secs(60);
const EVERIES: Times = Times {
    option: "--every",
    least: Duration::from_secs(1),
    most: DAY,
    range: "from 1s to 24h, or 0",
};
/// Default maximum of lines of a text report by `report`.
const MAX_LINES: usize = 200;

/// Returns the configuration of a live view that starts with the process picker and all defaults.
pub fn defaults() -> Config {
    Config {
        mode: Mode::Live,
        target: None,
        subprocesses: false,
        sampling: Sampling {
            interval: INTERVAL,
            max_overhead: Some(MAX_OVERHEAD),
            capture: CaptureChoice::default(),
            unwinder: UnwinderChoice::default(),
            wakers: None,
            source_maps: true,
        },
        settings: Settings { range: Range::Rolling(ns(WINDOW)), ..Settings::default() },
        against: None,
        screen: Screen { color: ColorDepth::Ansi, ..Screen::default() },
        sources: Vec::new(),
        output: Output {
            format: Format::Text,
            path: None,
            secure: false,
            redact: None,
            push: None,
        },
        file: None,
        given: Vec::new(),
    }
}

pub fn config(typed: Typed, surroundings: &Surroundings) -> Result<Config, CliExit> {
    build(typed, surroundings).map_err(CliExit::usage)
}

fn build(typed: Typed, surroundings: &Surroundings) -> Result<Config, String> {
    let job = typed.job;
    let target = target(job, &typed)?;
    let mode = mode(job, &typed, target.as_ref())?;
    let format = format(job, &typed)?;
    let sampling = sampling(&typed)?;
    let given = given(&typed)?;
    let settings = settings(job, &given);
    let mode = match mode {
        Mode::Open { path, .. } => Mode::Open { path, given: Box::new(given) },
        Mode::Diff { before, after, per, .. } => {
            Mode::Diff { before, after, per, given: Box::new(given) }
        }
        Mode::Merge { files, max_lines, .. } => {
            Mode::Merge { files, given: Box::new(given), max_lines }
        }
        Mode::Convert { path, max_lines, .. } => {
            Mode::Convert { path, given: Box::new(given), max_lines }
        }
        mode => mode,
    };
    // Last, so that a wrong value is reported whether or not there is a terminal.
    if job == Job::Live && !surroundings.stdout_is_terminal {
        return Err(not_a_terminal(target.as_ref()));
    }
    if job == Job::Open && !surroundings.stdout_is_terminal {
        return Err(
            "the live view needs a terminal; use `sampletop report FILE`, or `sampletop open FILE -o OUT`".into()
        );
    }
    let to_terminal = surroundings.stdout_is_terminal
        && typed.output.output.as_ref().is_none_or(|path| path.as_os_str() == STDOUT);
    if format.is_binary() && to_terminal {
        let extension = format.extensions()[0];
        return Err(format!(
            "a .{extension} file is no text for a terminal; name one with `-o FILE`"
        ));
    }
    let screen = Screen {
        color: color(&typed.screen, surroundings)?,
        theme: match &typed.screen.theme {
            Some(text) => values::word("--theme", text, &ThemeChoice::ALL, ThemeChoice::word)?,
            None => ThemeChoice::default(),
        },
        ascii: typed.screen.ascii || surroundings.not_utf8 && !typed.screen.unicode,
        mouse: typed.screen.mouse,
        names: match &typed.screen.names {
            Some(text) => values::word("--names", text, &Names::ALL, Names::word)?,
            None => Names::default(),
        },
    };
    let sources = typed.screen.source.iter().filter(|text| !text.is_empty());
    let sources = sources.map(|text| values::source(text)).collect::<Result<_, _>>()?;
    let redact = if typed.output.redact { Some(redact(&typed, surroundings)?) } else { None };
    let push = push(&typed, surroundings)?;
    let path = typed.output.output.filter(|path| path.as_os_str() != STDOUT);
    if let (true, Some(path)) = (job != Job::Report, &path) {
        check_names_file(path)?;
    }
    let subprocesses = typed.target.subprocesses;
    let against = typed.against;
    Ok(Config {
        mode,
        target,
        subprocesses,
        sampling,
        settings,
        against,
        screen,
        sources,
        output: Output { format, path, secure: typed.screen.secure, redact, push },
        file: None,
        given: Vec::new(),
    })
}

/// Returns which colours are used. What the command line asks for holds whatever the environment
/// says. The environment holds against the configuration file, which gives way to it in `file`.
fn color(screen: &ScreenOptions, surroundings: &Surroundings) -> Result<ColorDepth, String> {
    const WORDS: [(&str, Option<ColorDepth>); 5] = [
        ("auto", None),
        ("never", Some(ColorDepth::None)),
        ("16", Some(ColorDepth::Ansi)),
        ("256", Some(ColorDepth::Indexed)),
        ("true", Some(ColorDepth::True)),
    ];
    let asked = match &screen.color {
        Some(text) => values::word("--color", text, &WORDS, |(word, _)| word)?.1,
        None => None,
    };
    Ok(match asked {
        _ if screen.no_color => ColorDepth::None,
        Some(depth) => depth,
        None if surroundings.no_color || surroundings.dumb => ColorDepth::None,
        None => surroundings.colors,
    })
}

fn target(job: Job, typed: &Typed) -> Result<Option<TargetSpec>, String> {
    let processes = processes(typed)?;
    let command = (!typed.command.is_empty()).then(|| typed.command.clone());
    match (job, processes, command) {
        (_, Some(_), Some(_)) => {
            Err("`-p PID` and `-- COMMAND` are two targets; name one of them".into())
        }
        (Job::DemoLive | Job::DemoOnce, _, Some(_)) => {
            Err("`demo` is its own target; leave `-- COMMAND` out".into())
        }
        (Job::DemoLive | Job::DemoOnce, ..) => {
            let workload = match &typed.workload {
                Some(text) => values::word("--workload", text, &Workload::ALL, Workload::word)?,
                None => Workload::default(),
            };
            Ok(Some(TargetSpec::Demo { workload }))
        }
        (Job::Open | Job::Convert | Job::Diff | Job::Merge, _, Some(_)) => {
            Err("a saved profile is read, nothing is started; leave `-- COMMAND` out".into())
        }
        (Job::Open | Job::Convert | Job::Diff | Job::Merge, ..) => Ok(None),
        (Job::Report, None, None) => {
            Err("`report` needs a target: `sampletop report -p PID`".into())
        }
        (Job::Dump, _, Some(_)) => {
            Err("`dump` needs a running process: name it with `-p PID`".into())
        }
        (Job::Doctor, _, Some(_)) => {
            Err("`doctor` needs a running process: name it with `-p PID`".into())
        }
        (Job::Doctor, Some(Wanted::Pids(pids)), _) if pids.len() > 1 => {
            Err("`doctor` examines one process: name it with one `-p PID`".into())
        }
        (Job::Doctor, None, None) => Ok(None),
        (Job::Dump, None, None) => Err("`dump` needs a process: `sampletop dump -p PID`".into()),
        (Job::Record, None, None) => Err(
            "`record` needs a target: `sampletop record -p PID` or `sampletop record -- COMMAND`"
                .into(),
        ),
        (_, Some(wanted), None) => Ok(Some(TargetSpec::Processes(wanted))),
        (_, None, Some(command)) if command[0].is_empty() => {
            Err("the command behind `--` is empty; name one".into())
        }
        (_, None, Some(command)) => Ok(Some(TargetSpec::Command(command))),
        (Job::Live, None, None) => Ok(None),
    }
}

/// Returns the processes that `-p`, `--name`, `--pidfile`, `--unit` or `--cgroup` select.
fn processes(typed: &Typed) -> Result<Option<Wanted>, String> {
    let mut pids =
        typed.target.pid.iter().map(|text| values::pid(text)).collect::<Result<Vec<u32>, _>>()?;
    pids.sort_unstable();
    pids.dedup();
    let name = typed.target.name.as_ref().map(|text| values::regex("--name", text)).transpose()?;
    if pids.len() > Wanted::AT_ONCE {
        let (given, most) = (pids.len(), Wanted::AT_ONCE);
        return Err(format!("`--pid` names {given} processes: at most {most} are watched at once"));
    }
    if name.as_ref().is_some_and(|name| name.as_str().is_empty()) {
        return Err("`--name ''` is every process; name the ones to watch".into());
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    wanted.extend((!pids.is_empty()).then_some(Wanted::Pids(pids)));
    wanted.extend(name.map(Wanted::Name));
    if let Some(path) = &typed.target.pidfile {
        if path.as_os_str().is_empty() {
            return Err("`--pidfile ''` names no file".into());
        }
        wanted.push(Wanted::Pidfile(path.clone()));
    }
    if let Some(unit) = &typed.target.unit {
        wanted.push(Wanted::Unit(values::unit(unit)?));
    }
    if let Some(path) = &typed.target.cgroup {
        if path.as_os_str().is_empty() {
            return Err("`--cgroup ''` names no control group; `/` is all of them".into());
        }
        wanted.push(Wanted::Cgroup(path.clone()));
    }
    let one = wanted.pop();
    match wanted.is_empty() {
        true => Ok(one),
        false => Err("`--pid`, `--name`, `--pidfile`, `--unit` and `--cgroup` are different ways to name targets; use one of them".into()),
    }
}

fn not_a_terminal(target: Option<&TargetSpec>) -> String {
    let (record, dump) = match target {
        Some(TargetSpec::Processes(wanted)) => {
            let words = match wanted {
                Wanted::Pids(pids) => {
                    pids.iter().map(|pid| format!("-p {pid}")).collect::<Vec<_>>().join(" ")
                }
                Wanted::Name(name) => format!("--name '{}'", shown(name.as_str())),
                Wanted::Pidfile(path) => format!("--pidfile {}", shown(&path.to_string_lossy())),
                Wanted::Unit(name) => format!("--unit {}", shown(name)),
                Wanted::Cgroup(path) => format!("--cgroup {}", shown(&path.to_string_lossy())),
            };
            (format!("record {words}"), format!("dump {words}"))
        }
        Some(TargetSpec::Command(_)) => ("record -o FILE -- COMMAND".into(), "dump -p PID".into()),
        Some(TargetSpec::Demo { .. }) | None => ("record -p PID".into(), "dump -p PID".into()),
    };
    format!("the live view needs a terminal; use `sampletop {record}` or `sampletop {dump}`")
}

fn mode(job: Job, typed: &Typed, target: Option<&TargetSpec>) -> Result<Mode, String> {
    let duration = match typed.duration.as_deref().map(str::trim) {
        Some("exit") => Some(None),
        Some(text) => Some(Some(values::time(text, &DURATIONS)?)),
        None => None,
    };
    Ok(match job {
        Job::Live | Job::DemoLive => Mode::Live,
        Job::Dump => Mode::Dump { what: typed.dumped },
        Job::Report => Mode::Report(reports(typed)?),
        Job::Open => Mode::Open { path: file(typed), given: Box::default() },
        Job::Convert => {
            Mode::Convert { path: file(typed), given: Box::default(), max_lines: max_lines(typed)? }
        }
        Job::Diff => {
            let [before, after] = typed.files.as_slice() else {
                return Err(match typed.files.get(2) {
                    Some(file) => {
                        format!(
                            "`{}` is one profile too many; `diff` compares two",
                            shown(&file.to_string_lossy())
                        )
                    }
                    None => "`diff` compares two profiles: `sampletop diff BEFORE AFTER`".into(),
                });
            };
            let per = match &typed.per {
                Some(text) => values::word("--per", text, &Per::ALL, Per::word)?,
                None => Per::default(),
            };
            Mode::Diff { before: before.clone(), after: after.clone(), per, given: Box::default() }
        }
        Job::Merge => {
            let files = typed.files.clone();
            if files.is_empty() {
                return Err(
                    "`merge` needs profiles: `sampletop merge FILE... -o OUT.sampletop`".into()
                );
            }
            Mode::Merge { files, given: Box::default(), max_lines: max_lines(typed)? }
        }
        Job::Doctor => Mode::Doctor { json: typed.json },
        Job::DemoOnce => match duration {
            Some(None) => {
                return Err(
                    "`--duration exit` would wait forever: the demo does not end; give a time"
                        .into(),
                );
            }
            given => Mode::Once { duration: given.flatten().unwrap_or(DEMO_DURATION) },
        },
        Job::Record => {
            let default = match target {
                Some(TargetSpec::Command(_)) => None,
                _ => Some(DURATION),
            };
            Mode::Record { duration: duration.unwrap_or(default) }
        }
    })
}

/// Returns the profile named after the subcommand.
fn file(typed: &Typed) -> Option<PathBuf> {
    typed.files.first().cloned()
}

fn max_lines(typed: &Typed) -> Result<Option<usize>, String> {
    let most =
        typed.max_lines.as_ref().map(|text| values::count("--max-lines", text)).transpose()?;
    Ok(most.map(|most| most as usize))
}

fn reports(typed: &Typed) -> Result<Reports, String> {
    let every = match typed.report.every.as_deref().map(str::trim) {
        // A server's time line should not lag by a quarter of an hour.
        None if typed.push.is_given() => Some(EVERY_PUSHED),
        None => Some(EVERY),
        // Zero, with or without a unit.
        Some(text) if text.trim_end_matches(char::is_alphabetic) == "0" => None,
        Some(text) => Some(values::time(text, &EVERIES)?),
    };
    let number = |option, text: &Option<String>| {
        text.as_ref().map(|text| values::count(option, text)).transpose()
    };
    if typed.report.cumulative && typed.view.window.is_some() {
        return Err(
            "`--cumulative` reports everything since the start, `--window` the last part of it; use one of them"
                .into(),
        );
    }
    if typed.report.cumulative && typed.push.is_given() {
        return Err("`--cumulative` reports the same time again and again, and the server of `--push` would add it up; use one of them".into());
    }
    Ok(Reports {
        every,
        count: number("--count", &typed.report.count)?,
        cumulative: typed.report.cumulative,
        max_lines: max_lines(typed)?.unwrap_or(MAX_LINES),
        kept: Kept {
            files: number("--keep", &typed.report.keep)?,
            bytes: typed
                .report
                .max_bytes
                .as_ref()
                .map(|text| values::bytes("--max-bytes", text))
                .transpose()?,
        },
    })
}

fn format(job: Job, typed: &Typed) -> Result<Format, String> {
    let format = match (&typed.output.format, &typed.output.output) {
        (Some(text), _) => values::word("--format", text, Format::ALL, Format::word)?,
        // Log files have arbitrary extensions, so an unknown one is no error.
        (None, Some(path)) if job == Job::Report => by_extension(path).unwrap_or_default(),
        (None, Some(path)) if path.as_os_str() != STDOUT => by_extension(path)?,
        _ => Format::default(),
    };
    match (job, format) {
        (Job::Dump | Job::Diff, Format::Text | Format::Json) => Ok(format),
        (Job::Dump, _) => {
            Err(format!("`dump` writes text or json; {} is for `record`", format.word()))
        }
        (Job::Diff, _) => {
            Err(format!("`diff` writes text or json; {} is for one profile", format.word()))
        }
        (Job::Record, Format::Text | Format::Json | Format::Sampletop) => Ok(format),
        (Job::Record, _) if typed.wakers.is_some() => Err(format!(
            "`--wakers` is written as text, json or sampletop; {} has no place for it",
            format.word()
        )),
        _ => Ok(format),
    }
}

/// Fails where a path cannot be a file's name, whatever is there: `out/`, `..`.
fn check_names_file(path: &Path) -> Result<(), String> {
    let ends_in_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    match path.file_name() {
        Some(_) if !ends_in_slash => Ok(()),
        _ => Err(format!(
            "`--output {}` names no file; give a file name",
            shown(&path.to_string_lossy())
        )),
    }
}

fn by_extension(path: &Path) -> Result<Format, String> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    Format::of_name(&name).ok_or_else(|| {
        let known: Vec<String> =
            Format::ALL.iter().map(|f| format!(".{} ({})", f.extensions()[0], f.word())).collect();
        let path = shown(&path.to_string_lossy());
        format!(
            "the name `{path}` does not say a format: end it in {}, or name one with --format",
            known.join(", ")
        )
    })
}

fn sampling(typed: &Typed) -> Result<Sampling, String> {
    let interval = match &typed.sampling.interval {
        Some(text) => values::time(text, &INTERVALS)?,
        None => INTERVAL,
    };
    let capture = match &typed.sampling.backend.capture {
        Some(text) => values::word("--capture", text, &CaptureChoice::ALL, CaptureChoice::word)?,
        None => CaptureChoice::default(),
    };
    let unwinder = match &typed.sampling.backend.unwinder {
        Some(text) => values::word("--unwinder", text, UnwinderChoice::ALL, UnwinderChoice::word)?,
        None => UnwinderChoice::default(),
    };
    if unwinder != UnwinderChoice::Framehop && capture != CaptureChoice::Ptrace {
        return Err(format!("`--unwinder {}` needs `--capture ptrace`", unwinder.word()));
    }
    let max_overhead = match (&typed.sampling.max_overhead, &typed.sampling.interval) {
        (Some(text), _) => Some(values::overhead(text)?),
        // An interval that was asked for is kept, whatever it costs. That of the file is a habit.
        (None, Some(_)) if !typed.interval_of_file => None,
        (None, _) => Some(MAX_OVERHEAD),
    };
    let wakers = typed.wakers.as_ref().map(|text| values::time(text, &WAKERS)).transpose()?;
    let source_maps = match &typed.sampling.backend.source_maps {
        Some(text) => values::word("--source-maps", text, &[true, false], yes_or_no)?,
        None => true,
    };
    Ok(Sampling { interval, max_overhead, capture, unwinder, wakers, source_maps })
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Builds the initial display settings.
fn settings(job: Job, given: &Given) -> Settings {
    let range = match job {
        Job::Live | Job::DemoLive => Range::Rolling(ns(WINDOW)),
        _ => Range::Cumulative { since: None },
    };
    given.over(Settings { range, level: Level::Mine, ..Settings::default() })
}

fn given(typed: &Typed) -> Result<Given, String> {
    let window = typed.view.window.as_ref().map(|text| values::time(text, &WINDOWS)).transpose()?;
    let metric = |text: &String| values::word("--metric", text, &Metric::ALL, Metric::word);
    let roll_up = |text: &String| values::word("--by", text, &RollUp::ALL, RollUp::word);
    let level = |text: &String| values::word("--level", text, &Level::ALL, Level::word);
    let native =
        |text: &String| values::word("--native", text, &NativeFrames::ALL, NativeFrames::word);
    let rename = |text: &String| values::rename(text);
    let idle_at = |text: &String| values::regex("--idle-at", text);
    // Of several that match, the last holds: what is named as the user's own is shown.
    let of_library =
        |text: &String| Ok(Whose { pattern: values::regex("--library", text)?, mine: false });
    let mut corrections =
        typed.view.library.iter().map(of_library).collect::<Result<Vec<_>, String>>()?;
    for text in &typed.view.app {
        let pattern = text.strip_prefix('!');
        let (mine, pattern) = (pattern.is_none(), pattern.unwrap_or(text));
        corrections.push(Whose { pattern: values::regex("--app", pattern)?, mine });
    }
    Ok(Given {
        metric: typed.view.metric.as_ref().map(metric).transpose()?,
        roll_up: typed.view.by.as_ref().map(roll_up).transpose()?,
        level: typed.view.level.as_ref().map(level).transpose()?,
        native: typed.view.frames.native.as_ref().map(native).transpose()?,
        whose: corrections,
        grouping: typed.view.group.as_ref().map(|text| values::grouping(text)).transpose()?,
        rename: typed.view.rename.iter().map(rename).collect::<Result<_, _>>()?,
        filters: Filters {
            interesting: match typed.view.interesting.is_empty() {
                true => Filter::default(),
                false => Filter::set(values::prefixes(&typed.view.interesting)?),
            },
            focus: filter("--focus", &typed.view.focus, values::regex)?,
            ignore: filter("--ignore", &typed.view.ignore, values::regex)?,
            hide: filter("--hide", &typed.view.hide, values::regex)?,
            no_kernel: typed.view.frames.no_kernel,
            native: NativeFrames::default(),
            threads: filter("--threads", &typed.view.threads, values::regex)?,
            skip_daemon: typed.view.frames.skip_daemon,
            gil: typed.view.frames.gil,
            min_percent: filter("--min-percent", &typed.view.min_percent, values::percent)?,
        },
        cleared: typed.cleared,
        range: window.map(|window| Range::Rolling(ns(window))),
        idle: typed.view.idle,
        idle_at: typed.view.idle_at.iter().map(idle_at).collect::<Result<_, _>>()?,
        sort: typed.screen.sort.as_ref().map(|text| values::sort(text)).transpose()?,
    })
}

/// The key comes from the environment: all users can read a command line.
const KEY: &str = config::REDACT_KEY;
/// Minimum length of the key, characters. A shorter one could be found by brute force.
const KEY_MIN: usize = 16;

fn redact(typed: &Typed, surroundings: &Surroundings) -> Result<Redact, String> {
    let group = typed.view.group.as_deref().map_or("", str::trim);
    let by = |what: &str| group.starts_with(what);
    let by_name = [
        ("--threads", typed.view.threads.is_some()),
        ("--interesting", !typed.view.interesting.is_empty()),
        ("--focus", typed.view.focus.is_some()),
        ("--ignore", typed.view.ignore.is_some()),
        ("--hide", typed.view.hide.is_some()),
        ("--rename", !typed.view.rename.is_empty()),
        ("--idle-at", !typed.view.idle_at.is_empty()),
        ("--app", !typed.view.app.is_empty()),
        ("--library", !typed.view.library.is_empty()),
        ("--group frame:", by("frame:")),
        ("--group label:", by("label:")),
    ];
    if let Some((option, _)) = by_name.iter().find(|(_, given)| *given) {
        return Err(format!(
            "`--redact` replaces the names that `{option}` goes by; leave one of them out"
        ));
    }
    match surroundings.redact_key.as_deref() {
        Some(text) if text.len() < KEY_MIN => Err(format!(
            "{KEY} is shorter than {KEY_MIN} characters; make one with `openssl rand -hex 16`"
        )),
        Some(text) => Ok(Redact { key: Key::of(text), only_this_run: false }),
        None => Ok(Redact { key: Key::random(), only_this_run: true }),
    }
}

fn filter<T>(
    option: &str,
    text: &Option<String>,
    read: fn(&str, &str) -> Result<T, String>,
) -> Result<Filter<T>, String> {
    match text {
        Some(text) => Ok(Filter::set(read(option, text)?)),
        None => Ok(Filter::default()),
    }
}

fn ns(time: Duration) -> Ns {
    Ns::try_from(time.as_nanos()).unwrap_or(Ns::MAX)
}
