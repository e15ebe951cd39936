//! What is to be done, and which options mean anything for it.

use std::ffi::OsString;

use super::values::{STDOUT, shown};
use super::{Surroundings, Typed};

/// What is to be done, before its options are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Job {
    Live,
    DemoLive,
    DemoOnce,
    Record,
    Report,
    Open,
    Convert,
    Diff,
    Merge,
    Dump,
    Doctor,
}

impl Job {
    pub fn demo(self) -> bool {
        matches!(self, Job::DemoLive | Job::DemoOnce)
    }
    /// Reads saved profiles.
    pub fn saved(self) -> bool {
        matches!(self, Job::Open | Job::Convert | Job::Diff | Job::Merge)
    }
    /// How many files may stand behind the word.
    fn files(self) -> usize {
        match self {
            Job::Open | Job::Convert => 1,
            Job::Diff => 2,
            Job::Merge => usize::MAX - 1,
            _ => 0,
        }
    }
    /// Shows or writes a profile: the options of what is shown apply.
    pub fn profile(self) -> bool {
        !matches!(self, Job::Dump | Job::Doctor)
    }
    /// As it is called in a message.
    pub fn name(self) -> &'static str {
        match self {
            Job::Live => "the live view",
            Job::DemoLive => "the live view of `demo` (add `--once`)",
            Job::DemoOnce => "`demo --once`",
            Job::Record => "`record`",
            Job::Report => "`report`",
            Job::Open => "`open`",
            Job::Convert => "a saved profile",
            Job::Diff => "`diff`",
            Job::Merge => "`merge`",
            Job::Dump => "`dump`",
            Job::Doctor => "`doctor`",
        }
    }
}

/// Says it by the words that are no options.
pub fn job(typed: &Typed, surroundings: &Surroundings) -> Result<Job, String> {
    let job = match typed.words.first().map(|word| word.to_string_lossy()).as_deref() {
        None => Job::Live,
        Some("demo") if typed.once || !surroundings.stdout_is_terminal => Job::DemoOnce,
        Some("demo") => Job::DemoLive,
        Some("record") => Job::Record,
        Some("report") if typed.words.len() > 1 => Job::Convert,
        Some("report") => Job::Report,
        Some("open") if typed.output.is_some() || typed.format.is_some() => Job::Convert,
        Some("open") => Job::Open,
        Some("diff") => Job::Diff,
        Some("merge") => Job::Merge,
        Some("dump") => Job::Dump,
        Some("doctor") => Job::Doctor,
        Some(word) => return Err(stray(&OsString::from(word))),
    };
    match typed.words.get(1 + job.files()) {
        Some(word) if job == Job::Diff => {
            Err(format!("`{}` is one profile too many; `diff` compares two", shown(&word.to_string_lossy())))
        }
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
        false => {
            format!(
                "`{shown}` is none of record, report, open, diff, merge, dump, demo, doctor; a command is started with `-- {shown}`"
            )
        }
    }
}

/// An option that would do nothing here is a misunderstanding; those of the screen alone are let pass, so that
/// they can stand in a shell alias.
pub fn refuse_idle_options(job: Job, typed: &Typed) -> Result<(), String> {
    let writes =
        matches!(job, Job::DemoOnce | Job::Record | Job::Report | Job::Convert | Job::Diff | Job::Merge | Job::Dump);
    let watches = matches!(job, Job::Live | Job::Record | Job::Report | Job::Dump);
    let reports = job == Job::Report;
    // Without it `--push` is what is missed.
    let pushes = reports && typed.push.is_some();
    let options = [
        ("--pid", !typed.pid.is_empty(), !job.demo() && !job.saved()),
        ("--name", typed.name.is_some(), watches),
        ("--pidfile", typed.pidfile.is_some(), watches),
        ("--unit", typed.unit.is_some(), watches),
        ("--cgroup", typed.cgroup.is_some(), watches),
        ("--subprocesses", typed.subprocesses, watches),
        ("--workload", typed.workload.is_some(), job.demo()),
        ("--once", typed.once, job.demo()),
        ("--per", typed.per.is_some(), job == Job::Diff),
        ("--each", typed.each, job == Job::Dump),
        ("--json", typed.json, job == Job::Doctor),
        ("--every", typed.every.is_some(), reports),
        ("--count", typed.count.is_some(), reports),
        ("--cumulative", typed.cumulative, reports),
        ("--max-lines", typed.max_lines.is_some(), reports || matches!(job, Job::Convert | Job::Merge)),
        ("--keep", typed.keep.is_some(), reports),
        ("--max-bytes", typed.max_bytes.is_some(), reports),
        ("--push", typed.push.is_some(), reports),
        ("--push-label", !typed.push_label.is_empty(), pushes),
        ("--push-token-file", typed.push_token_file.is_some(), pushes),
        ("--push-tenant", typed.push_tenant.is_some(), pushes),
        ("--push-spool", typed.push_spool.is_some(), pushes),
        ("--push-spool-bytes", typed.push_spool_bytes.is_some(), pushes),
        ("--capture", typed.capture.is_some(), job != Job::Doctor && !job.saved()),
        ("--unwinder", typed.unwinder.is_some(), job != Job::Doctor && !job.saved()),
        ("--interval", typed.interval.is_some(), job.profile() && !job.saved()),
        ("--max-overhead", typed.max_overhead.is_some(), job.profile() && !job.saved()),
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
        ("--redact", typed.redact, writes || job == Job::Open),
        ("--output", typed.output.is_some(), writes),
        ("--format", typed.format.is_some(), writes),
    ];
    match options.iter().find(|(_, given, applies)| *given && !applies) {
        Some((option, ..)) if reports && option.starts_with("--push") => {
            Err(format!("`{option}` does nothing without `--push URL`"))
        }
        Some((option, ..)) => Err(format!("`{option}` does nothing for {}; leave it out", job.name())),
        None if typed.secure && typed.output.as_deref().is_some_and(|path| path.as_os_str() != STDOUT) => {
            Err("`--secure` writes no files, so it does not go together with `--output`".into())
        }
        None if typed.secure && typed.push.is_some() => {
            Err("`--secure` writes no files, but what a push cannot send has to wait in one; leave one of them out"
                .into())
        }
        None => Ok(()),
    }
}
