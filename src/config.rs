//! Plain, validated settings: built by `cli` from the command line, read by all other modules.

use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use crate::model::projection::settings::{
    Filter, Filters, Grouping, Level, Metric, NativeFrames, Range, Rename, RollUp, Settings,
    SortColumn, Whose,
};
use crate::model::transform::diff::Per;
use crate::model::transform::redact::Key;

/// Environment variable with the key of `--redact`.
pub const REDACT_KEY: &str = "SAMPLETOP_REDACT_KEY";
/// Environment variable with the token of `--push`.
pub const PUSH_TOKEN: &str = "SAMPLETOP_PUSH_TOKEN";
/// Variables of sampletop's environment that are removed from the environment of its children.
pub const SECRETS: [&str; 2] = [REDACT_KEY, PUSH_TOKEN];

/// The processes to watch.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// Existing or future processes.
    Processes(Wanted),
    /// Started by sampletop; program and arguments.
    Command(Vec<std::ffi::OsString>),
    /// The built-in workload.
    Demo { workload: Workload },
}

/// Selects existing or future processes.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// One or more process ids.
    Pids(Vec<u32>),
    /// Processes whose name or command line matches.
    Name(Regex),
    /// The process whose id is in this file, if it was started before the file was written.
    Pidfile(PathBuf),
    /// Processes of this systemd unit; the full name, such as `nginx.service`.
    Unit(String),
    /// Processes in this control group or one below it. A directory, or a path as in
    /// /proc/PID/cgroup.
    Cgroup(PathBuf),
}

impl Wanted {
    /// Maximum processes watched at once. Each tick observes every process separately, which takes
    /// some ten microseconds even if it sleeps. 64 processes cost 6 to 9 % of a core at 100 Hz.
    /// With the default limit of 3 % their interval becomes 20 or 30 ms.
    pub const AT_ONCE: usize = 64;

    /// Returns whether processes that appear later are watched too.
    pub fn waits(&self) -> bool {
        !matches!(self, Wanted::Pids(_))
    }
}

/// The built-in workload, whose correct profile is known.
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

    /// Returns the word on the command line.
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

    /// Returns the word on the command line.
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

    /// Returns the word on the command line.
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
    /// profile.proto, gzipped.
    Pprof,
    /// The report format of the Java library perf-sampler.
    Classic,
    /// For speedscope.app.
    Speedscope,
    /// A flame graph.
    Svg,
    /// A page with a flame graph and a table.
    Html,
    /// For profiler.firefox.com.
    Firefox,
    /// The whole snapshot, which can be opened again.
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

    /// Returns the word on the command line.
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

    /// Returns the file name extensions of this format, without the dot. The first is the usual
    /// one.
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

    /// Returns the format of the longest extension that the name ends in: `a.speedscope.json` is
    /// not json.
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

    /// Returns whether the format is binary, not text.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Pprof | Format::Sampletop)
    }
}

/// How the sampler runs.
#[derive(Clone, Debug)]
pub struct Sampling {
    pub interval: Duration,
    /// Maximum CPU use of sampletop, percent of one core; beyond it the interval grows. `None`: the
    /// interval is fixed.
    pub max_overhead: Option<f64>,
    pub capture: CaptureChoice,
    pub unwinder: UnwinderChoice,
    /// Count who wakes threads, for this duration.
    pub wakers: Option<Duration>,
    /// Name lines of what scripts were compiled from, where there is a source map.
    pub source_maps: bool,
}

/// How the live view draws.
#[derive(Clone, Debug, Default)]
pub struct Screen {
    pub color: ColorDepth,
    pub theme: ThemeChoice,
    pub ascii: bool,
    pub mouse: bool,
    pub names: Names,
}

/// Where the files of a program's sources are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourcePath {
    /// Below this directory, at some end of their path.
    Below(PathBuf),
    /// Their path begins with `from`, and here with `to`.
    Moved { from: PathBuf, to: PathBuf },
}

/// How many colours the terminal has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ColorDepth {
    /// None are used.
    #[default]
    None,
    /// The 16 that the user may have chosen in the terminal.
    Ansi,
    /// The 256 of xterm.
    Indexed,
    /// 24 bits.
    True,
}

/// For which background and eyes the colours are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThemeChoice {
    #[default]
    Dark,
    Light,
    /// Colours that differ for every kind of colour vision, on a dark background.
    ColorBlind,
}

impl ThemeChoice {
    pub const ALL: [ThemeChoice; 3] =
        [ThemeChoice::Dark, ThemeChoice::Light, ThemeChoice::ColorBlind];

    /// Returns the word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            ThemeChoice::Dark => "dark",
            ThemeChoice::Light => "light",
            ThemeChoice::ColorBlind => "color-blind",
        }
    }
}

/// How functions are named in rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Names {
    #[default]
    Short,
    Full,
}

impl Names {
    pub const ALL: [Names; 2] = [Names::Short, Names::Full];

    /// Returns the word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Names::Short => "short",
            Names::Full => "full",
        }
    }
}

/// Default sampling interval.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// Default window of the live view.
pub const WINDOW: Duration = Duration::from_secs(30);

/// What the user chose in the live view, to be saved in the configuration file.
#[derive(Clone, Debug)]
pub struct Choices {
    /// All but the range, and only filters that are on.
    pub settings: Settings,
    /// The window of a rolling range.
    pub window: Duration,
    pub interval: Duration,
    pub mouse: bool,
    pub names: Names,
}

impl Default for Choices {
    /// Returns the live view's defaults.
    fn default() -> Choices {
        Choices {
            settings: Settings { level: Level::Mine, ..Settings::default() },
            window: WINDOW,
            interval: INTERVAL,
            mouse: false,
            names: Names::default(),
        }
    }
}

/// The destination of results.
#[derive(Clone, Debug)]
pub struct Output {
    pub format: Format,
    /// `None`: stdout.
    pub path: Option<PathBuf>,
    /// Write nothing to disk (`--secure`).
    pub secure: bool,
    /// Replace names by hashes (`--redact`).
    pub redact: Option<Redact>,
    /// Also send reports to a server.
    pub push: Option<Push>,
}

/// Sends each report as profiles to a server (`report --push`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Push {
    /// `http://` or `https://`, host, port and path of the server's `/ingest`; without user and
    /// query.
    pub endpoint: String,
    pub token: Option<Token>,
    /// The tenant, for a server that several tenants share.
    pub tenant: Option<String>,
    /// Labels of every profile. Their names are unique and valid for the server.
    pub labels: Vec<(String, String)>,
    /// Directory where each destination's unsent profiles wait in a folder of their own; `None`:
    /// the state directory.
    pub spool: Option<PathBuf>,
    /// Maximum size of the unsent profiles, bytes.
    pub spool_bytes: u64,
    /// Only push; write no report.
    pub alone: bool,
}

/// Authenticates sampletop to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// The first line of a file, which is read anew since it may change.
    File(PathBuf),
    Text(Secret),
}

/// A value that no message and no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The key by which names are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redact {
    pub key: Key,
    /// The key is random, so names differ from those in any other run's output.
    pub only_this_run: bool,
}

/// The task of this run.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The live view. Without a target, the user picks one from a list.
    Live,
    /// The demo's text report (`demo --once`, or stdout is not a terminal).
    Once { duration: Duration },
    /// One profile of this duration; `None`: until the target exits.
    Record { duration: Option<Duration> },
    /// A series of reports.
    Report(Reports),
    /// A saved profile in the live view; without a path, the last session's.
    Open { path: Option<PathBuf>, given: Box<Given> },
    /// A saved profile in another format.
    Convert { path: Option<PathBuf>, given: Box<Given>, max_lines: Option<usize> },
    /// The changes from one saved profile to another.
    Diff { before: PathBuf, after: PathBuf, per: Per, given: Box<Given> },
    /// Several saved profiles as one.
    Merge { files: Vec<PathBuf>, given: Box<Given>, max_lines: Option<usize> },
    /// Stacks once.
    Dump { what: Dumped },
    /// Checks which permissions exist, and what would grant more.
    Doctor { json: bool },
    /// This process itself is the built-in workload, watched by the sampletop that started it.
    /// `args` follow [`WORKLOAD_ARGUMENT`]. No other part of the configuration applies.
    Workload { args: Vec<std::ffi::OsString> },
}

/// What `dump` writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dumped {
    /// Every thread; text groups threads with equal stacks.
    #[default]
    Threads,
    /// Every thread; in text each has its own stack.
    Each,
    /// The threads of deadlocks; without any, one sentence.
    Deadlocks,
}

/// Filters that are given without a pattern, so that none holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    pub interesting: bool,
    pub focus: bool,
    pub ignore: bool,
    pub hide: bool,
    pub threads: bool,
    pub min_percent: bool,
}

/// View settings given on the command line; the others keep their values.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub metric: Option<Metric>,
    pub roll_up: Option<RollUp>,
    pub level: Option<Level>,
    pub native: Option<NativeFrames>,
    pub whose: Vec<Whose>,
    pub grouping: Option<Grouping>,
    pub rename: Vec<Rename>,
    pub filters: Filters,
    pub cleared: Cleared,
    pub range: Option<Range>,
    pub idle: bool,
    pub idle_at: Vec<Regex>,
    /// The column, and whether its order is reversed.
    pub sort: Option<(SortColumn, bool)>,
}

impl Given {
    /// Returns `settings`, overridden by those given.
    pub fn over(&self, mut settings: Settings) -> Settings {
        fn over<T: Clone>(given: &Filter<T>, is_cleared: bool, filter: &mut Filter<T>) {
            if is_cleared || given.value.is_some() {
                *filter = given.clone();
            }
        }
        settings.metric = self.metric.unwrap_or(settings.metric);
        settings.roll_up = self.roll_up.unwrap_or(settings.roll_up);
        settings.range = self.range.unwrap_or(settings.range);
        settings.level = self.level.unwrap_or(settings.level);
        settings.whose.extend(self.whose.iter().cloned());
        (settings.sort, settings.reverse) = self.sort.unwrap_or((settings.sort, settings.reverse));
        if let Some(grouping) = &self.grouping {
            settings.grouping = grouping.clone();
        }
        settings.rename.extend(self.rename.iter().cloned());
        settings.idle |= self.idle;
        settings.idle_at.extend(self.idle_at.iter().cloned());
        let (given, cleared, filters) = (&self.filters, self.cleared, &mut settings.filters);
        over(&given.interesting, cleared.interesting, &mut filters.interesting);
        over(&given.focus, cleared.focus, &mut filters.focus);
        over(&given.ignore, cleared.ignore, &mut filters.ignore);
        over(&given.hide, cleared.hide, &mut filters.hide);
        over(&given.threads, cleared.threads, &mut filters.threads);
        over(&given.min_percent, cleared.min_percent, &mut filters.min_percent);
        filters.no_kernel |= given.no_kernel;
        filters.native = self.native.unwrap_or(filters.native);
        filters.skip_daemon |= given.skip_daemon;
        filters.gil |= given.gil;
        settings
    }
}

/// When reports are written, and which files are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reports {
    /// Interval, aligned to midnight UTC; `None`: a single report, at the end.
    pub every: Option<Duration>,
    /// Number of reports, after which the run ends.
    pub count: Option<u64>,
    /// Each report covers everything since the start, not only the time since the previous report.
    pub cumulative: bool,
    /// Maximum lines of a text report.
    pub max_lines: usize,
    pub kept: Kept,
}

/// Limits on the reports of a directory. The newest is always kept.
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
    /// `None`: the user picks a target in the live view.
    pub target: Option<TargetSpec>,
    /// Also watch the children of the target.
    pub subprocesses: bool,
    pub sampling: Sampling,
    /// The settings of the first view (live) or of the output (record).
    pub settings: Settings,
    /// The saved profile that the live view compares with.
    pub against: Option<PathBuf>,
    pub screen: Screen,
    /// Where source files are searched for that are not at the path in the debug info; in order.
    pub sources: Vec<SourcePath>,
    pub output: Output,
    /// The configuration file, which need not exist; `None`: no home directory is known.
    pub file: Option<PathBuf>,
    /// Options of the command line that the configuration file could set, by their names.
    pub given: Vec<&'static str>,
}

#[cfg(test)]
impl Config {
    /// Returns a configuration that watches nothing and writes to standard output.
    pub fn of_test(mode: Mode) -> Config {
        use crate::model::projection::settings::Range;
        Config {
            mode,
            target: None,
            subprocesses: false,
            sampling: Sampling {
                interval: Duration::from_secs(1),
                max_overhead: None,
                capture: CaptureChoice::Auto,
                unwinder: UnwinderChoice::Framehop,
                wakers: None,
                source_maps: true,
            },
            settings: Settings { range: Range::Cumulative { since: None }, ..Settings::default() },
            against: None,
            screen: Screen { ascii: true, ..Screen::default() },
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
}
