//! Which options go together, and the [`Config`] they make.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::values::{self, Times, shown};
use super::{CliExit, Surroundings, Typed};
use crate::config::{
    CaptureChoice, Config, Format, Mode, Output, Sampling, Screen, TargetSpec, UnwinderChoice, Wanted, Workload,
};
use crate::model::frame::Ns;
use crate::model::settings::{Filter, Filters, Metric, Range, RollUp, Settings};

const DAY: Duration = Duration::from_secs(24 * 3600);

const INTERVAL: Duration = Duration::from_millis(10);
const INTERVALS: Times = Times {
    option: "--interval",
    least: Duration::from_millis(1),
    most: Duration::from_secs(10),
    range: "from 1ms to 10s",
};
/// Percent of one core.
const MAX_OVERHEAD: f64 = 3.0;
const WINDOW: Duration = Duration::from_secs(30);
const WINDOWS: Times = Times { option: "--window", least: Duration::from_secs(1), most: DAY, range: "from 1s to 24h" };
const DURATION: Duration = Duration::from_secs(10);
const DEMO_DURATION: Duration = Duration::from_secs(5);
const DURATIONS: Times =
    Times { option: "--duration", least: Duration::from_millis(100), most: DAY, range: "from 100ms to 24h, or exit" };

/// As a FILE: standard output.
const STDOUT: &str = "-";

/// The live view of a process to be picked, everything at its default.
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
        },
        settings: Settings { range: Range::Rolling(ns(WINDOW)), ..Settings::default() },
        screen: Screen { color: true, ascii: false, mouse: false },
        output: Output { format: Format::Text, path: None, secure: false },
    }
}

/// What is to be done, before its options are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    Live,
    DemoLive,
    DemoOnce,
    Record,
    Dump,
    Doctor,
}

impl Job {
    fn demo(self) -> bool {
        matches!(self, Job::DemoLive | Job::DemoOnce)
    }
    /// Shows or writes a profile: the options of what is shown apply.
    fn profile(self) -> bool {
        !matches!(self, Job::Dump | Job::Doctor)
    }
    /// As it is called in a message.
    fn name(self) -> &'static str {
        match self {
            Job::Live => "the live view",
            Job::DemoLive => "the live view of `demo` (add `--once`)",
            Job::DemoOnce => "`demo --once`",
            Job::Record => "`record`",
            Job::Dump => "`dump`",
            Job::Doctor => "`doctor`",
        }
    }
}

pub fn config(typed: Typed, surroundings: &Surroundings) -> Result<Config, CliExit> {
    build(typed, surroundings).map_err(CliExit::usage)
}

fn build(typed: Typed, surroundings: &Surroundings) -> Result<Config, String> {
    let job = job(&typed, surroundings)?;
    refuse_idle_options(job, &typed)?;
    let target = target(job, &typed)?;
    let mode = mode(job, &typed, target.as_ref())?;
    let format = format(job, &typed)?;
    let sampling = sampling(&typed)?;
    let settings = settings(job, &typed)?;
    // Last, so that a wrong value is told whether or not there is a terminal.
    if job == Job::Live && !surroundings.stdout_is_terminal {
        return Err(not_a_terminal(target.as_ref()));
    }
    let screen = Screen {
        color: !(typed.no_color || surroundings.no_color || surroundings.dumb),
        ascii: typed.ascii,
        mouse: typed.mouse,
    };
    let path = typed.output.filter(|path| path.as_os_str() != STDOUT);
    let subprocesses = typed.subprocesses;
    Ok(Config {
        mode,
        target,
        subprocesses,
        sampling,
        settings,
        screen,
        output: Output { format, path, secure: typed.secure },
    })
}

fn job(typed: &Typed, surroundings: &Surroundings) -> Result<Job, String> {
    let job = match typed.words.first().map(|word| word.to_string_lossy()).as_deref() {
        None => Job::Live,
        Some("demo") if typed.once || !surroundings.stdout_is_terminal => Job::DemoOnce,
        Some("demo") => Job::DemoLive,
        Some("record") => Job::Record,
        Some("dump") => Job::Dump,
        Some("doctor") => Job::Doctor,
        Some(word) => return Err(stray(&OsString::from(word))),
    };
    match typed.words.get(1) {
        Some(word) => Err(stray(word)),
        None => Ok(job),
    }
}

/// A word that is none of ours: most often a pid or a command that lacks its `-p` or `--`.
fn stray(word: &OsString) -> String {
    let word = word.to_string_lossy();
    let shown = shown(&word);
    match !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) {
        true => format!("`{shown}` is one word too many; a process is named with `-p {shown}`, each with its own `-p`"),
        false => format!("`{shown}` is none of record, dump, demo, doctor; a command is started with `-- {shown}`"),
    }
}

/// An option that would do nothing here is a misunderstanding; those of the screen alone are let pass, so that
/// they can stand in a shell alias.
fn refuse_idle_options(job: Job, typed: &Typed) -> Result<(), String> {
    let writes = matches!(job, Job::DemoOnce | Job::Record | Job::Dump);
    let watches = matches!(job, Job::Live | Job::Record | Job::Dump);
    let options = [
        ("--pid", !typed.pid.is_empty(), !job.demo()),
        ("--name", typed.name.is_some(), watches),
        ("--cgroup", typed.cgroup.is_some(), watches),
        ("--subprocesses", typed.subprocesses, watches),
        ("--workload", typed.workload.is_some(), job.demo()),
        ("--once", typed.once, job.demo()),
        ("--json", typed.json, job == Job::Doctor),
        ("--capture", typed.capture.is_some(), job != Job::Doctor),
        ("--unwinder", typed.unwinder.is_some(), job != Job::Doctor),
        ("--interval", typed.interval.is_some(), job.profile()),
        ("--max-overhead", typed.max_overhead.is_some(), job.profile()),
        ("--duration", typed.duration.is_some(), matches!(job, Job::DemoOnce | Job::Record)),
        ("--window", typed.window.is_some(), job.profile()),
        ("--metric", typed.metric.is_some(), job.profile()),
        ("--by", typed.by.is_some(), job.profile()),
        ("--group", typed.group.is_some(), job.profile()),
        ("--rename", !typed.rename.is_empty(), job.profile()),
        ("--threads", typed.threads.is_some(), job.profile()),
        ("--skip-daemon", typed.skip_daemon, job.profile() || job == Job::Dump),
        ("--interesting", !typed.interesting.is_empty(), job.profile()),
        ("--focus", typed.focus.is_some(), job.profile()),
        ("--ignore", typed.ignore.is_some(), job.profile()),
        ("--hide", typed.hide.is_some(), job.profile()),
        ("--no-kernel", typed.no_kernel, job.profile() || job == Job::Dump),
        ("--min-percent", typed.min_percent.is_some(), job.profile()),
        ("--idle", typed.idle, job.profile()),
        ("--idle-at", !typed.idle_at.is_empty(), job.profile()),
        ("--output", typed.output.is_some(), writes),
        ("--format", typed.format.is_some(), writes),
    ];
    match options.iter().find(|(_, given, applies)| *given && !applies) {
        Some((option, ..)) => Err(format!("`{option}` does nothing for {}; leave it out", job.name())),
        None if typed.secure && typed.output.as_deref().is_some_and(|path| path.as_os_str() != STDOUT) => {
            Err("`--secure` writes no files, so it does not go together with `--output`".into())
        }
        None => Ok(()),
    }
}

fn target(job: Job, typed: &Typed) -> Result<Option<TargetSpec>, String> {
    let processes = processes(typed)?;
    let command = (!typed.command.is_empty()).then(|| typed.command.clone());
    match (job, processes, command) {
        (_, Some(_), Some(_)) => Err("`-p PID` and `-- COMMAND` are two targets; name one of them".into()),
        (Job::DemoLive | Job::DemoOnce, _, Some(_)) => Err("`demo` is its own target; leave `-- COMMAND` out".into()),
        (Job::DemoLive | Job::DemoOnce, ..) => {
            let workload = match &typed.workload {
                Some(text) => values::word("--workload", text, &Workload::ALL, Workload::word)?,
                None => Workload::default(),
            };
            Ok(Some(TargetSpec::Demo { workload }))
        }
        (Job::Dump, _, Some(_)) => Err("`dump` looks at a running process: name it with `-p PID`".into()),
        (Job::Doctor, _, Some(_)) => Err("`doctor` looks at a running process: name it with `-p PID`".into()),
        (Job::Doctor, Some(Wanted::Pids(pids)), _) if pids.len() > 1 => {
            Err("`doctor` looks at one process: name it with one `-p PID`".into())
        }
        (Job::Doctor, None, None) => Ok(None),
        (Job::Dump, None, None) => Err("`dump` needs a process: `sampletop dump -p PID`".into()),
        (Job::Record, None, None) => {
            Err("`record` needs a target: `sampletop record -p PID` or `sampletop record -- COMMAND`".into())
        }
        (_, Some(wanted), None) => Ok(Some(TargetSpec::Processes(wanted))),
        (_, None, Some(command)) if command[0].is_empty() => Err("the command behind `--` is empty; name one".into()),
        (_, None, Some(command)) => Ok(Some(TargetSpec::Command(command))),
        (Job::Live, None, None) => Ok(None),
    }
}

/// By `-p`, `--name` or `--cgroup`.
fn processes(typed: &Typed) -> Result<Option<Wanted>, String> {
    let mut pids = typed.pid.iter().map(|text| values::pid(text)).collect::<Result<Vec<u32>, _>>()?;
    pids.sort_unstable();
    pids.dedup();
    let name = typed.name.as_ref().map(|text| values::regex("--name", text)).transpose()?;
    if pids.len() > Wanted::AT_ONCE {
        let (given, most) = (pids.len(), Wanted::AT_ONCE);
        return Err(format!("`--pid` names {given} processes: at most {most} are watched at once"));
    }
    if name.as_ref().is_some_and(|name| name.as_str().is_empty()) {
        return Err("`--name ''` is every process; name the ones to watch".into());
    }
    match (pids.is_empty(), name, &typed.cgroup) {
        (true, None, None) => Ok(None),
        (false, None, None) => Ok(Some(Wanted::Pids(pids))),
        (true, Some(name), None) => Ok(Some(Wanted::Name(name))),
        (true, None, Some(path)) if path.as_os_str().is_empty() => {
            Err("`--cgroup ''` names no control group; `/` is all of them".into())
        }
        (true, None, Some(path)) => Ok(Some(Wanted::Cgroup(path.clone()))),
        _ => Err("`--pid`, `--name` and `--cgroup` are different ways to name targets; use one of them".into()),
    }
}

fn not_a_terminal(target: Option<&TargetSpec>) -> String {
    let (record, dump) = match target {
        Some(TargetSpec::Processes(wanted)) => {
            let words = match wanted {
                Wanted::Pids(pids) => pids.iter().map(|pid| format!("-p {pid}")).collect::<Vec<_>>().join(" "),
                Wanted::Name(name) => format!("--name '{}'", shown(name.as_str())),
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
        Job::Dump => Mode::Dump,
        Job::Doctor => Mode::Doctor { json: typed.json },
        Job::DemoOnce => match duration {
            Some(None) => return Err("`--duration exit` would wait forever: the demo does not end; give a time".into()),
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

fn format(job: Job, typed: &Typed) -> Result<Format, String> {
    let format = match (&typed.format, &typed.output) {
        (Some(text), _) => values::word("--format", text, &Format::ALL, Format::word)?,
        (None, Some(path)) if path.as_os_str() != STDOUT => by_extension(path)?,
        _ => Format::default(),
    };
    match (job, format) {
        (Job::Dump, Format::Folded | Format::Sampletop) => {
            Err(format!("`dump` writes text or json; {} is for `record`", format.word()))
        }
        _ => Ok(format),
    }
}

fn by_extension(path: &Path) -> Result<Format, String> {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    let found = Format::ALL.into_iter().find(|f| extension.as_deref().is_some_and(|e| f.extensions().contains(&e)));
    found.ok_or_else(|| {
        let known: Vec<String> =
            Format::ALL.into_iter().map(|f| format!(".{} ({})", f.extensions()[0], f.word())).collect();
        let path = shown(&path.to_string_lossy());
        format!("the name `{path}` does not say a format: end it in {}, or name one with --format", known.join(", "))
    })
}

fn sampling(typed: &Typed) -> Result<Sampling, String> {
    let interval = match &typed.interval {
        Some(text) => values::time(text, &INTERVALS)?,
        None => INTERVAL,
    };
    let capture = match &typed.capture {
        Some(text) => values::word("--capture", text, &CaptureChoice::ALL, CaptureChoice::word)?,
        None => CaptureChoice::default(),
    };
    let unwinder = match &typed.unwinder {
        Some(text) => values::word("--unwinder", text, UnwinderChoice::ALL, UnwinderChoice::word)?,
        None => UnwinderChoice::default(),
    };
    if unwinder != UnwinderChoice::Framehop && capture != CaptureChoice::Ptrace {
        return Err(format!("`--unwinder {}` needs `--capture ptrace`", unwinder.word()));
    }
    let max_overhead = match (&typed.max_overhead, &typed.interval) {
        (Some(text), _) => Some(values::overhead(text)?),
        // Who names an interval wants that one.
        (None, Some(_)) => None,
        (None, None) => Some(MAX_OVERHEAD),
    };
    Ok(Sampling { interval, max_overhead, capture, unwinder })
}

fn settings(job: Job, typed: &Typed) -> Result<Settings, String> {
    let defaults = Settings::default();
    let window = match &typed.window {
        Some(text) => Some(values::time(text, &WINDOWS)?),
        None => None,
    };
    let range = match (window, job) {
        (Some(window), _) => Range::Rolling(ns(window)),
        (None, Job::Live | Job::DemoLive) => Range::Rolling(ns(WINDOW)),
        (None, _) => Range::Cumulative { since: None },
    };
    Ok(Settings {
        metric: match &typed.metric {
            Some(text) => values::word("--metric", text, &Metric::ALL, Metric::word)?,
            None => defaults.metric,
        },
        roll_up: match &typed.by {
            Some(text) => values::word("--by", text, &RollUp::ALL, RollUp::word)?,
            None => defaults.roll_up,
        },
        grouping: match &typed.group {
            Some(text) => values::grouping(text)?,
            None => defaults.grouping,
        },
        rename: typed.rename.iter().map(|text| values::rename(text)).collect::<Result<_, _>>()?,
        filters: Filters {
            interesting: match typed.interesting.is_empty() {
                true => Filter::default(),
                false => Filter::set(values::prefixes(&typed.interesting)?),
            },
            focus: filter("--focus", &typed.focus, values::regex)?,
            ignore: filter("--ignore", &typed.ignore, values::regex)?,
            hide: filter("--hide", &typed.hide, values::regex)?,
            no_kernel: typed.no_kernel,
            threads: filter("--threads", &typed.threads, values::regex)?,
            skip_daemon: typed.skip_daemon,
            min_percent: filter("--min-percent", &typed.min_percent, values::percent)?,
        },
        range,
        idle: typed.idle,
        idle_at: typed.idle_at.iter().map(|text| values::regex("--idle-at", text)).collect::<Result<_, _>>()?,
        ..defaults
    })
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
