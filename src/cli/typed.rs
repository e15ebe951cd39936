//! The typed options, in one shape for every subcommand. Options that a subcommand lacks have their
//! defaults.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Surroundings;
use super::options::{
    AgainstOption, CommandLine, FrameOptions, MaxLinesOption, OutputOptions, PushOptions,
    ReportOptions, SamplingOptions, ScreenOptions, Sub, TargetOptions, ViewOptions, WakersOption,
};
use super::values::STDOUT;
use crate::config::{Cleared, Dumped};

/// The job that the subcommand selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Job {
    #[default]
    Live,
    DemoLive,
    DemoOnce,
    Record,
    Report,
    Open,
    /// Writes a saved profile in another format (`open -o`, `report FILE`).
    Convert,
    Diff,
    Merge,
    Dump,
    Doctor,
}

#[derive(Default)]
pub struct Typed {
    pub job: Job,
    pub files: Vec<PathBuf>,
    /// The command after `--`.
    pub command: Vec<OsString>,
    pub target: TargetOptions,
    pub sampling: SamplingOptions,
    /// The interval is the configuration file's.
    pub interval_of_file: bool,
    pub duration: Option<String>,
    pub wakers: Option<String>,
    pub view: ViewOptions,
    pub cleared: Cleared,
    pub against: Option<PathBuf>,
    pub output: OutputOptions,
    pub max_lines: Option<String>,
    pub report: ReportOptions,
    pub push: PushOptions,
    pub screen: ScreenOptions,
    pub workload: Option<String>,
    pub per: Option<String>,
    pub dumped: Dumped,
    pub json: bool,
}

/// Converts clap's result into one shape. Errors name an option that has no effect in this
/// combination.
pub fn typed(line: CommandLine, surroundings: &Surroundings) -> Result<Typed, String> {
    let CommandLine { subcommand, target, sampling, view, against, screen: outer, command } = line;
    let Some(subcommand) = subcommand else {
        let against = against.against;
        let rest = Typed::default();
        let (view, cleared) = without_empty(view);
        let screen = outer;
        return Ok(Typed { target, sampling, view, cleared, against, screen, command, ..rest });
    };
    let given = (&target, &sampling, &view, &against);
    if given != (&Default::default(), &Default::default(), &Default::default(), &Default::default())
    {
        let name = word(&subcommand);
        return Err(format!(
            "options of `{name}` stand behind it, as in `sampletop {name} -p PID`"
        ));
    }
    let mut typed = of_subcommand(subcommand, surroundings)?;
    (typed.view, typed.cleared) = without_empty(typed.view);
    // A shell alias may hold them before the subcommand.
    let screen = &mut typed.screen;
    screen.theme = screen.theme.take().or(outer.theme);
    screen.color = screen.color.take().or(outer.color);
    screen.no_color |= outer.no_color;
    screen.mouse |= outer.mouse;
    screen.secure |= outer.secure;
    screen.sort = screen.sort.take().or(outer.sort);
    screen.names = screen.names.take().or(outer.names);
    screen.config = screen.config.take().or(outer.config);
    if screen.source.is_empty() {
        screen.source = outer.source;
    }
    if !screen.ascii && !screen.unicode {
        (screen.ascii, screen.unicode) = (outer.ascii, outer.unicode);
    }
    refuse_contradictions(&typed)?;
    Ok(typed)
}

/// Returns the options without patterns and rules that are empty. They are as if they were missing:
/// so a command line can do without those of the configuration file. Also returns the filters among
/// them: a saved profile has some of its own.
fn without_empty(mut view: ViewOptions) -> (ViewOptions, Cleared) {
    let is_empty = |text: &Option<String>| text.as_ref().is_some_and(String::is_empty);
    let interesting = &view.interesting;
    let cleared = Cleared {
        interesting: !interesting.is_empty() && interesting.iter().all(String::is_empty),
        focus: is_empty(&view.focus),
        ignore: is_empty(&view.ignore),
        hide: is_empty(&view.hide),
        threads: is_empty(&view.threads),
        min_percent: is_empty(&view.min_percent),
    };
    let ViewOptions {
        rename,
        app,
        library,
        interesting,
        idle_at,
        threads,
        focus,
        ignore,
        hide,
        min_percent,
        ..
    } = &mut view;
    for list in [rename, app, library, interesting, idle_at] {
        list.retain(|text| !text.is_empty());
    }
    for text in [threads, focus, ignore, hide, min_percent] {
        text.take_if(|text| text.is_empty());
    }
    (view, cleared)
}

fn of_subcommand(subcommand: Sub, surroundings: &Surroundings) -> Result<Typed, String> {
    let rest = Typed::default;
    let one = |file: Option<PathBuf>| file.into_iter().collect();
    Ok(match subcommand {
        Sub::Record { target, sampling, duration, wakers, view, output, screen, command } => {
            let duration = duration.duration;
            Typed {
                job: Job::Record,
                target,
                sampling,
                duration,
                wakers: wakers.wakers,
                view,
                output,
                screen,
                command,
                ..rest()
            }
        }
        Sub::Report {
            file,
            target,
            sampling,
            view,
            output,
            report,
            max_lines,
            push,
            screen,
            command,
        } => {
            let live = (target, sampling, report, push);
            if file.is_some() && live != Default::default() {
                return Err(format!(
                    "`{}` does nothing for a saved profile; leave it, or the file, out",
                    first_given(&live)
                ));
            }
            let job = if file.is_some() { Job::Convert } else { Job::Report };
            let (target, sampling, report, push) = live;
            let max_lines = max_lines.max_lines;
            let files = one(file);
            Typed {
                job,
                files,
                target,
                sampling,
                view,
                output,
                report,
                max_lines,
                push,
                screen,
                command,
                ..rest()
            }
        }
        Sub::Open {
            file,
            view,
            against: AgainstOption { against },
            output,
            max_lines: MaxLinesOption { max_lines },
            screen,
            command,
        } => {
            let job = if output.output.is_some() || output.format.is_some() {
                Job::Convert
            } else {
                Job::Open
            };
            if job == Job::Open && max_lines.is_some() {
                return Err(
                    "`--max-lines` does nothing for the live view; name an output with `-o FILE`"
                        .into(),
                );
            }
            if job == Job::Convert && against.is_some() {
                return Err(
                    "`--against` does nothing for an output; `sampletop diff` writes differences"
                        .into(),
                );
            }
            let files = one(file);
            Typed { job, files, view, against, output, max_lines, screen, command, ..rest() }
        }
        Sub::Diff { files, per, view, output, screen, command } => {
            Typed { job: Job::Diff, files, per, view, output, screen, command, ..rest() }
        }
        Sub::Merge { files, view, output, max_lines, screen, command } => {
            let max_lines = max_lines.max_lines;
            Typed { job: Job::Merge, files, view, output, max_lines, screen, command, ..rest() }
        }
        Sub::Dump {
            target,
            backend,
            wakers: WakersOption { wakers },
            frames,
            each,
            check_deadlock,
            output,
            screen,
            command,
        } => {
            let dumped = dumped(each, check_deadlock, wakers.is_some(), &frames)?;
            let sampling = SamplingOptions { backend, ..SamplingOptions::default() };
            let view = ViewOptions { frames, ..ViewOptions::default() };
            Typed {
                job: Job::Dump,
                target,
                sampling,
                wakers,
                view,
                dumped,
                output,
                screen,
                command,
                ..rest()
            }
        }
        Sub::Demo { workload, once, sampling, duration, view, output, screen, command } => {
            let job = if once || !surroundings.stdout_is_terminal {
                Job::DemoOnce
            } else {
                Job::DemoLive
            };
            let duration = duration.duration;
            let idle = [
                ("--duration", duration.is_some()),
                ("--output", output.output.is_some()),
                ("--format", output.format.is_some()),
                ("--redact", output.redact),
            ];
            if let (Job::DemoLive, Some((option, _))) = (job, idle.iter().find(|(_, given)| *given))
            {
                return Err(format!(
                    "`{option}` does nothing for the live view of `demo`; add `--once`"
                ));
            }
            Typed { job, workload, sampling, duration, view, output, screen, command, ..rest() }
        }
        Sub::Doctor { pid, json, screen, command } => {
            let target = TargetOptions { pid, ..TargetOptions::default() };
            Typed { job: Job::Doctor, target, json, screen, command, ..rest() }
        }
        // Printed before this function runs.
        Sub::Completions { screen, .. } | Sub::Man { screen } => Typed { screen, ..rest() },
    })
}

/// Returns what `dump` writes.
fn dumped(
    each: bool,
    check_deadlock: bool,
    wakers: bool,
    frames: &FrameOptions,
) -> Result<Dumped, String> {
    let idle = [
        ("--each", each),
        ("--wakers", wakers),
        ("--skip-daemon", frames.skip_daemon),
        ("--gil", frames.gil),
    ];
    match (check_deadlock, idle.iter().find(|(_, given)| *given)) {
        (true, Some((option, _))) => Err(format!(
            "`{option}` does nothing with `--check-deadlock`, which writes each thread of a deadlock"
        )),
        (true, None) => Ok(Dumped::Deadlocks),
        (false, _) if each => Ok(Dumped::Each),
        (false, _) => Ok(Dumped::Threads),
    }
}

/// Returns the first option given that a report of a saved profile cannot use.
fn first_given(
    live: &(TargetOptions, SamplingOptions, ReportOptions, PushOptions),
) -> &'static str {
    let (target, sampling, report, push) = live;
    let options = [
        ("--pid", !target.pid.is_empty()),
        ("--name", target.name.is_some()),
        ("--pidfile", target.pidfile.is_some()),
        ("--unit", target.unit.is_some()),
        ("--cgroup", target.cgroup.is_some()),
        ("--subprocesses", target.subprocesses),
        ("--interval", sampling.interval.is_some()),
        ("--max-overhead", sampling.max_overhead.is_some()),
        ("--capture", sampling.backend.capture.is_some()),
        ("--unwinder", sampling.backend.unwinder.is_some()),
        ("--source-maps", sampling.backend.source_maps.is_some()),
        ("--every", report.every.is_some()),
        ("--count", report.count.is_some()),
        ("--cumulative", report.cumulative),
        ("--keep", report.keep.is_some()),
        ("--max-bytes", report.max_bytes.is_some()),
        ("--push", *push != PushOptions::default()),
    ];
    options.iter().find(|(_, given)| *given).map_or("--push", |(option, _)| option)
}

fn refuse_contradictions(typed: &Typed) -> Result<(), String> {
    if let Some(option) = typed.push.without_server() {
        return Err(format!("`{option}` does nothing without `--push URL`"));
    }
    if !typed.screen.secure {
        return Ok(());
    }
    if typed.output.output.as_deref().is_some_and(|path| path.as_os_str() != STDOUT) {
        return Err("`--secure` writes no files, so it does not go together with `--output`".into());
    }
    if typed.push.is_given() {
        return Err(
            "`--secure` writes no files, but profiles that cannot be pushed wait in one; leave one of them out".into(),
        );
    }
    Ok(())
}

/// Returns a subcommand's name.
fn word(subcommand: &Sub) -> &'static str {
    match subcommand {
        Sub::Record { .. } => "record",
        Sub::Report { .. } => "report",
        Sub::Open { .. } => "open",
        Sub::Diff { .. } => "diff",
        Sub::Merge { .. } => "merge",
        Sub::Dump { .. } => "dump",
        Sub::Demo { .. } => "demo",
        Sub::Doctor { .. } => "doctor",
        Sub::Completions { .. } => "completions",
        Sub::Man { .. } => "man",
    }
}
