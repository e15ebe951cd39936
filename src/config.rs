//! Plain, validated settings: what `cli` makes of the command line and everything else reads.

use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use crate::model::projection::settings::{
    Filter, Filters, Grouping, Metric, Range, Rename, RollUp, Settings,
};
use crate::model::transform::diff::Per;
use crate::model::transform::redact::Key;

/// Environment variable with the key of `--redact`.
pub const REDACT_KEY: &str = "SAMPLETOP_REDACT_KEY";
/// Environment variable with the token of `--push`.
pub const PUSH_TOKEN: &str = "SAMPLETOP_PUSH_TOKEN";
/// Variables of our environment that no program we start gets.
pub const SECRETS: [&str; 2] = [REDACT_KEY, PUSH_TOKEN];

/// What is watched.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// Processes that run already, or will.
    Processes(Wanted),
    /// Started by sampletop; program and arguments.
    Command(Vec<std::ffi::OsString>),
    /// The built-in workload.
    Demo { workload: Workload },
}

/// Which processes.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// At least one.
    Pids(Vec<u32>),
    /// Whose name or command line matches.
    Name(Regex),
    /// Whose number is in this file, if it was running already when that was written.
    Pidfile(PathBuf),
    /// Of this systemd unit: its whole name, as `nginx.service`.
    Unit(String),
    /// In this group or one within it: a directory, or a path as /proc/PID/cgroup shows it.
    Cgroup(PathBuf),
}

impl Wanted {
    /// Maximum processes that are watched at once. Each is observed by itself at every tick,
    /// for some ten microseconds even if it sleeps: 64 cost 6 to 9 % of a core at 100 Hz, and
    /// the default bound of 3 % makes that an observation every 20 or 30 ms.
    pub const AT_ONCE: usize = 64;

    /// Those that come later are watched, too.
    pub fn waits(&self) -> bool {
        !matches!(self, Wanted::Pids(_))
    }
}

/// The built-in workload with known answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workload {
    #[default]
    All,
    Mixed,
    Mass,
    Pool,
    Locks,
}

impl Workload {
    pub const ALL: [Workload; 5] =
        [Workload::All, Workload::Mixed, Workload::Mass, Workload::Pool, Workload::Locks];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Workload::All => "all",
            Workload::Mixed => "mixed",
            Workload::Mass => "mass",
            Workload::Pool => "pool",
            Workload::Locks => "locks",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CaptureChoice {
    #[default]
    Auto,
    Bpf,
    Perf,
    CpuOnly,
    States,
    Ptrace,
}

impl CaptureChoice {
    pub const ALL: [CaptureChoice; 6] = [
        CaptureChoice::Auto,
        CaptureChoice::Bpf,
        CaptureChoice::Perf,
        CaptureChoice::CpuOnly,
        CaptureChoice::States,
        CaptureChoice::Ptrace,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            CaptureChoice::Auto => "auto",
            CaptureChoice::Bpf => "bpf",
            CaptureChoice::Perf => "perf",
            CaptureChoice::CpuOnly => "cpu-only",
            CaptureChoice::States => "states",
            CaptureChoice::Ptrace => "ptrace",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnwinderChoice {
    #[default]
    Framehop,
    #[cfg(feature = "libunwind")]
    Libunwind,
}

impl UnwinderChoice {
    pub const ALL: &'static [UnwinderChoice] = &[
        UnwinderChoice::Framehop,
        #[cfg(feature = "libunwind")]
        UnwinderChoice::Libunwind,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            UnwinderChoice::Framehop => "framehop",
            #[cfg(feature = "libunwind")]
            UnwinderChoice::Libunwind => "libunwind",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    #[default]
    Text,
    Json,
    Folded,
    /// profile.proto, packed.
    Pprof,
    /// As the Java library perf-sampler reports.
    Classic,
    /// For speedscope.app.
    Speedscope,
    /// A flame graph.
    Svg,
    /// A page with a flame graph and a table.
    Html,
    /// For profiler.firefox.com.
    Firefox,
    /// Everything, to be opened again.
    Sampletop,
}

impl Format {
    pub const ALL: &'static [Format] = &[
        Format::Text,
        Format::Json,
        Format::Folded,
        Format::Pprof,
        Format::Classic,
        Format::Speedscope,
        Format::Svg,
        Format::Html,
        Format::Firefox,
        Format::Sampletop,
    ];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Folded => "folded",
            Format::Pprof => "pprof",
            Format::Classic => "classic",
            Format::Speedscope => "speedscope",
            Format::Svg => "svg",
            Format::Html => "html",
            Format::Firefox => "firefox",
            Format::Sampletop => "sampletop",
        }
    }

    /// File name extensions that mean this format, without the dot; the first is the usual one.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Format::Text => &["txt", "text"],
            Format::Json => &["json"],
            Format::Folded => &["folded", "collapsed"],
            Format::Pprof => &["pb.gz", "pprof"],
            Format::Classic => &["classic"],
            Format::Speedscope => &["speedscope.json", "speedscope"],
            Format::Svg => &["svg"],
            Format::Html => &["html", "htm"],
            Format::Firefox => &["firefox.json", "firefox"],
            Format::Sampletop => &["sampletop"],
        }
    }

    /// Of the longest extension that the name ends in: `a.speedscope.json` is not json.
    pub fn of_name(name: &str) -> Option<Format> {
        let name = name.to_ascii_lowercase();
        let ends = |extension: &str| {
            name.strip_suffix(extension).is_some_and(|stem| stem.len() > 1 && stem.ends_with('.'))
        };
        let all = Format::ALL
            .iter()
            .flat_map(|format| format.extensions().iter().map(move |e| (e.len(), *format, *e)));
        all.filter(|(_, _, extension)| ends(extension))
            .max_by_key(|(length, ..)| *length)
            .map(|(_, format, _)| format)
    }

    /// Bytes that are no text.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Pprof | Format::Sampletop)
    }
}

/// How the sampler runs.
#[derive(Clone, Debug)]
pub struct Sampling {
    pub interval: Duration,
    /// Percent of one core that sampletop itself may use before it samples less often; `None`: the
    /// interval is kept.
    pub max_overhead: Option<f64>,
    pub capture: CaptureChoice,
    pub unwinder: UnwinderChoice,
}

/// How the live view draws.
#[derive(Clone, Debug)]
pub struct Screen {
    pub color: bool,
    pub ascii: bool,
    pub mouse: bool,
}

/// Where results go.
#[derive(Clone, Debug)]
pub struct Output {
    pub format: Format,
    /// `None`: stdout.
    pub path: Option<PathBuf>,
    /// Write nothing to disk (`--secure`).
    pub secure: bool,
    /// Names go by hashes (`--redact`).
    pub redact: Option<Redact>,
    /// Of a report: to a server, too.
    pub push: Option<Push>,
}

/// Where what a report tells is sent as profiles (`report --push`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Push {
    /// `http://` or `https://`, host, port and path of the server's `/ingest`; no user, no query.
    pub endpoint: String,
    pub token: Option<Token>,
    /// As the server knows who shares it.
    pub tenant: Option<String>,
    /// Of every profile; names are told apart, and fit for the server.
    pub labels: Vec<(String, String)>,
    /// Where profiles wait in folders of their own; `None`: in the state directory.
    pub spool: Option<PathBuf>,
    /// Bytes that may wait there.
    pub spool_bytes: u64,
    /// Nothing is written besides.
    pub alone: bool,
}

/// Who we are to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// The first line of a file, which may change.
    File(PathBuf),
    Text(Secret),
}

/// It is in no message and no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Under which key names are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redact {
    pub key: Key,
    /// No other run has it: its names are in no other output.
    pub only_this_run: bool,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The live view; no target: pick one from a list.
    Live,
    /// The demo's text report (`demo --once`, or stdout is not a terminal).
    Once { duration: Duration },
    /// One profile of this duration; `None`: until the target ends.
    Record { duration: Option<Duration> },
    /// Reports one after the other.
    Report(Reports),
    /// A saved profile in the live view; no path: the last session's.
    Open { path: Option<PathBuf>, given: Box<Given> },
    /// A saved profile in another format.
    Convert { path: Option<PathBuf>, given: Box<Given>, max_lines: Option<usize> },
    /// What changed from one saved profile to another.
    Diff { before: PathBuf, after: PathBuf, per: Per, given: Box<Given> },
    /// Several saved profiles as one.
    Merge { files: Vec<PathBuf>, given: Box<Given>, max_lines: Option<usize> },
    /// Every thread's stack once; in text, threads with equal stacks together, unless `each` is to
    /// have its own.
    Dump { each: bool },
    /// What is permitted here, and what would unlock more.
    Doctor { json: bool },
    /// This process *is* the built-in workload, watched by the sampletop that started it; `args`
    /// are what follows [`WORKLOAD_ARGUMENT`]. Nothing else of the configuration counts.
    Workload { args: Vec<std::ffi::OsString> },
}

/// What the command line says of what is shown; the rest stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub metric: Option<Metric>,
    pub roll_up: Option<RollUp>,
    pub grouping: Option<Grouping>,
    pub rename: Vec<Rename>,
    pub filters: Filters,
    pub range: Option<Range>,
    pub idle: bool,
    pub idle_at: Vec<Regex>,
}

impl Given {
    /// These settings with what is said instead.
    pub fn over(&self, mut settings: Settings) -> Settings {
        fn over<T: Clone>(given: &Filter<T>, filter: &mut Filter<T>) {
            if given.value.is_some() {
                *filter = given.clone();
            }
        }
        settings.metric = self.metric.unwrap_or(settings.metric);
        settings.roll_up = self.roll_up.unwrap_or(settings.roll_up);
        settings.range = self.range.unwrap_or(settings.range);
        if let Some(grouping) = &self.grouping {
            settings.grouping = grouping.clone();
        }
        settings.rename.extend(self.rename.iter().cloned());
        settings.idle |= self.idle;
        settings.idle_at.extend(self.idle_at.iter().cloned());
        let (given, filters) = (&self.filters, &mut settings.filters);
        over(&given.interesting, &mut filters.interesting);
        over(&given.focus, &mut filters.focus);
        over(&given.ignore, &mut filters.ignore);
        over(&given.hide, &mut filters.hide);
        over(&given.threads, &mut filters.threads);
        over(&given.min_percent, &mut filters.min_percent);
        filters.no_kernel |= given.no_kernel;
        filters.skip_daemon |= given.skip_daemon;
        settings
    }
}

/// When reports are written, and which of them stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reports {
    /// Whenever the clock shows a multiple of it since midnight, UTC; `None`: one, at the end.
    pub every: Option<Duration>,
    /// The number of reports, then an end.
    pub count: Option<u64>,
    /// Each tells everything since the start, instead of what came after the one before.
    pub cumulative: bool,
    /// Lines of a text report.
    pub max_lines: usize,
    pub kept: Kept,
}

/// Which reports of a directory stay; the newest always does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Maximum files.
    pub files: Option<u64>,
    /// Maximum bytes of all files together.
    pub bytes: Option<u64>,
}

/// First argument of the child process that runs the built-in workload.
pub const WORKLOAD_ARGUMENT: &str = "__workload";

#[derive(Clone, Debug)]
pub struct Config {
    pub mode: Mode,
    /// `None`: the live view asks.
    pub target: Option<TargetSpec>,
    /// Children of the target are watched, too.
    pub subprocesses: bool,
    pub sampling: Sampling,
    /// What is shown at first (live) or written (record).
    pub settings: Settings,
    pub screen: Screen,
    pub output: Output,
}
