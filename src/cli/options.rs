//! clap's definitions: the subcommands, the options of each, and the help.
//!
//! Values stay text here; `values` parses them, with errors of one sentence.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

/// Maximum columns of the help, on wider terminals.
const WIDTH_MAX: usize = 100;

const USAGE: &str = "\
sampletop -p PID | --name REGEX | --unit NAME | --pidfile FILE
       sampletop -- COMMAND [ARG...]    start a command and watch it
       sampletop                        pick a process from a list
       sampletop SUBCOMMAND --help      the options of a subcommand";

const EXAMPLES: &str = "\
Examples:
  sudo sampletop -p 4321                     watch it live; ? lists the keys
  sampletop record -p 4321 -d 30s -o p.json  record 30 seconds for a script
  sampletop record -o app.html -- ./app      record a whole run as a web page
  sampletop --name nginx --group process     watch all workers across restarts

TIME has a unit: 10ms, 5m. REGEX has the syntax of Rust's crate regex and
matches anywhere unless anchored. --rename and --idle-at may be repeated.
--capture ptrace stops running threads for microseconds. A race remains: a call
that a thread begins just then may fail with EINTR (1 of 2,542 stops).";

/// The `--format` values of subcommands that write a profile.
const FORMATS: &str = "\
FORMAT: text json html svg speedscope firefox pprof folded classic sampletop";
const RECORD_EXAMPLE: &str = "Example: sampletop record -p 4321 -d 30s -o profile.html";
#[cfg(feature = "push")]
const REPORT_EXAMPLE: &str = "\
Examples:
  sampletop report -p 4321 --every 15m -o /var/log/app-profile.log
  sampletop report --unit app --push https://pyroscope.example:4040
  sampletop report yesterday.sampletop";
#[cfg(not(feature = "push"))]
const REPORT_EXAMPLE: &str = "\
Examples:
  sampletop report -p 4321 --every 15m -o /var/log/app-profile.log
  sampletop report yesterday.sampletop";
const OPEN_EXAMPLE: &str = "\
Examples:
  sampletop open                       the last session
  sampletop open now.sampletop --against before.sampletop
  sampletop open p.sampletop -o p.svg  convert a profile";
const DIFF_EXAMPLE: &str = "Example: sampletop diff before.sampletop after.sampletop --metric cpu";
const MERGE_EXAMPLE: &str =
    "Example: sampletop merge monday.sampletop tuesday.sampletop -o week.html";
const DUMP_EXAMPLE: &str = "\
Examples:
  sampletop dump -p 4321 -o stacks.txt
  sampletop dump -p 4321 --check-deadlock   exit code 7 if there is one, else 0";
const COMPLETIONS_EXAMPLE: &str =
    "Example: sampletop completions bash > /usr/share/bash-completion/completions/sampletop";

/// Without a subcommand: the live view.
#[derive(Parser, Debug)]
#[command(
    name = "sampletop",
    version,
    about = "top for call stacks: which methods of which threads the time goes to, live,\n\
             without stopping the target",
    override_usage = USAGE,
    after_help = EXAMPLES,
    help_template = "{about}\n\nUsage: {usage}\n\n{all-args}{after-help}\n",
    subcommand_help_heading = "Subcommands",
    max_term_width = WIDTH_MAX,
    subcommand_value_name = "SUBCOMMAND"
)]
pub struct CommandLine {
    #[command(subcommand)]
    pub subcommand: Option<Sub>,
    #[command(flatten)]
    pub target: TargetOptions,
    #[command(flatten)]
    pub sampling: SamplingOptions,
    #[command(flatten)]
    pub view: ViewOptions,
    #[command(flatten)]
    pub against: AgainstOption,
    #[command(flatten)]
    pub screen: ScreenOptions,
    #[arg(last = true, hide = true)]
    pub command: Vec<OsString>,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, for a moment; small without push")]
pub enum Sub {
    /// Record a profile for some time, or while a COMMAND runs
    #[command(
        override_usage = "sampletop record [OPTIONS] -p PID | --name REGEX | -- COMMAND [ARG...]",
        after_help = RECORD_EXAMPLE
    )]
    Record {
        #[command(flatten)]
        target: TargetOptions,
        #[command(flatten)]
        sampling: SamplingOptions,
        #[command(flatten)]
        duration: DurationOption,
        #[command(flatten)]
        wakers: WakersOption,
        #[command(flatten)]
        view: ViewOptions,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Write reports around the clock, or one of a FILE
    #[command(
        override_usage = "sampletop report -p PID | --name REGEX | --unit NAME [OPTIONS]\n       sampletop report FILE [OPTIONS]",
        after_help = REPORT_EXAMPLE
    )]
    Report {
        #[arg(hide = true)]
        file: Option<PathBuf>,
        #[command(flatten)]
        target: TargetOptions,
        #[command(flatten)]
        sampling: SamplingOptions,
        #[command(flatten)]
        view: ViewOptions,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        report: ReportOptions,
        #[command(flatten)]
        max_lines: MaxLinesOption,
        #[command(flatten)]
        push: PushOptions,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Show a saved profile or session live, or convert it
    #[command(override_usage = "sampletop open [FILE] [OPTIONS]", after_help = OPEN_EXAMPLE)]
    Open {
        #[arg(hide = true)]
        file: Option<PathBuf>,
        #[command(flatten)]
        view: ViewOptions,
        #[command(flatten)]
        against: AgainstOption,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        max_lines: MaxLinesOption,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Compare two profiles
    #[command(override_usage = "sampletop diff BEFORE AFTER [OPTIONS]", after_help = DIFF_EXAMPLE)]
    Diff {
        #[arg(hide = true)]
        files: Vec<PathBuf>,
        /// Compare per run, second or share [run]
        #[arg(long, value_name = "WHAT")]
        per: Option<String>,
        #[command(flatten)]
        view: ViewOptions,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Add profiles up into one
    #[command(override_usage = "sampletop merge FILE... [-o OUT] [OPTIONS]", after_help = MERGE_EXAMPLE)]
    Merge {
        #[arg(hide = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        view: ViewOptions,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        max_lines: MaxLinesOption,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Write the stack of every thread once
    #[command(override_usage = "sampletop dump -p PID | --name REGEX [OPTIONS]", after_help = DUMP_EXAMPLE)]
    Dump {
        #[command(flatten)]
        target: TargetOptions,
        #[command(flatten)]
        backend: BackendOptions,
        #[command(flatten)]
        wakers: WakersOption,
        #[command(flatten)]
        frames: FrameOptions,
        /// Write each thread with its own stack
        #[arg(long)]
        each: bool,
        /// Write only deadlocks; exit code 7 if there is one
        #[arg(long)]
        check_deadlock: bool,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Watch a built-in workload
    #[command(override_usage = "sampletop demo [OPTIONS]")]
    Demo {
        /// all, mixed, mass, pool, locks [all]
        #[arg(long, value_name = "NAME")]
        workload: Option<String>,
        /// Write a report instead of the live view
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        sampling: SamplingOptions,
        #[command(flatten)]
        duration: DurationOption,
        #[command(flatten)]
        view: ViewOptions,
        #[command(flatten)]
        output: OutputOptions,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Say what is permitted here, and how to permit more
    #[command(override_usage = "sampletop doctor [-p PID] [--json]")]
    Doctor {
        /// Process to be watched
        #[arg(short, long, value_name = "PID", allow_negative_numbers = true)]
        pid: Vec<String>,
        /// Write JSON, for scripts
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        screen: ScreenOptions,
        #[arg(last = true, hide = true)]
        command: Vec<OsString>,
    },
    /// Print the completion script of a shell
    #[command(override_usage = "sampletop completions SHELL", after_help = COMPLETIONS_EXAMPLE)]
    Completions {
        /// bash, elvish, fish, powershell or zsh
        #[arg(value_name = "SHELL")]
        shell: Option<String>,
        #[command(flatten)]
        screen: ScreenOptions,
    },
    /// Print the manual page
    #[command(override_usage = "sampletop man")]
    Man {
        #[command(flatten)]
        screen: ScreenOptions,
    },
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Target")]
pub struct TargetOptions {
    /// Process to watch; may be repeated
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true)]
    pub pid: Vec<String>,
    /// Processes whose name or command line matches
    #[arg(long, value_name = "REGEX")]
    pub name: Option<String>,
    /// Process whose number is in FILE
    #[arg(long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,
    /// Processes of a systemd unit
    #[arg(long, value_name = "NAME")]
    pub unit: Option<String>,
    /// Processes of a control group (v2)
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Their children too, as they appear
    #[arg(long)]
    pub subprocesses: bool,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct BackendOptions {
    /// auto, bpf, perf, cpu-only, states, ptrace
    #[arg(long, value_name = "BACKEND")]
    pub capture: Option<String>,
    /// framehop, libunwind (ptrace only) [framehop]
    #[arg(long, value_name = "NAME", hide = cfg!(not(feature = "libunwind")))]
    pub unwinder: Option<String>,
    /// Lines of scripts' sources, by source maps [yes]
    #[arg(long, value_name = "YES|NO")]
    pub source_maps: Option<String>,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingOptions {
    /// Sampling interval, 1ms to 10s [10ms]
    #[arg(short, long, value_name = "TIME", allow_negative_numbers = true)]
    pub interval: Option<String>,
    /// Maximum own CPU [3% of a core; with -i: none]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    pub max_overhead: Option<String>,
    #[command(flatten)]
    pub backend: BackendOptions,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct DurationOption {
    /// Duration, or exit: until it ends [10s, demo 5s]
    #[arg(short, long, value_name = "TIME", allow_negative_numbers = true)]
    pub duration: Option<String>,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct WakersOption {
    /// Count who wakes threads, 1s to 10m
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub wakers: Option<String>,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "View")]
pub struct FrameOptions {
    /// Without Java's daemon threads and the JVM's own
    #[arg(long)]
    pub skip_daemon: bool,
    /// Only what holds Python's global lock (GIL)
    #[arg(long)]
    pub gil: bool,
    /// Without the kernel's frames
    #[arg(long)]
    pub no_kernel: bool,
    /// Native frames of Python: auto, full, none
    #[arg(long, value_name = "WHICH")]
    pub native: Option<String>,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "View")]
pub struct ViewOptions {
    /// Show the last 1s to 24h [live: 30s, else: all]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub window: Option<String>,
    /// wall, cpu, or off: wall minus cpu [wall]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// function, line, class, package, module
    #[arg(long, value_name = "WHAT")]
    pub by: Option<String>,
    /// name thread process blocker label none frame:RE
    #[arg(long, value_name = "HOW")]
    pub group: Option<String>,
    /// Thread name rule, after the built-in ones
    #[arg(long, value_name = "s/REGEX/TEXT/")]
    pub rename: Vec<String>,
    /// Only threads whose name or group matches
    #[arg(long, value_name = "REGEX")]
    pub threads: Option<String>,
    /// Rows: mine (your code), chains, all
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<String>,
    /// Your code: function, module, file; !RE is not
    #[arg(long, value_name = "REGEX")]
    pub app: Vec<String>,
    /// Not your code
    #[arg(long, value_name = "REGEX")]
    pub library: Vec<String>,
    /// Cut stacks one call below these prefixes
    #[arg(long, value_name = "PREFIX,..")]
    pub interesting: Vec<String>,
    /// Only stacks with a frame that matches
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<String>,
    /// Without stacks with a frame that matches
    #[arg(long, value_name = "REGEX")]
    pub ignore: Option<String>,
    /// Without frames that match
    #[arg(long, value_name = "REGEX")]
    pub hide: Option<String>,
    #[command(flatten)]
    pub frames: FrameOptions,
    /// Without rows below N percent, 0 to 100
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_percent: Option<String>,
    /// With the time spent waiting for work
    #[arg(long)]
    pub idle: bool,
    /// Blocked in a frame that matches is idle
    #[arg(long, value_name = "REGEX")]
    pub idle_at: Vec<String>,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Write FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Output format [by FILE's name, else text]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Hash names, with key SAMPLETOP_REDACT_KEY
    #[arg(long)]
    pub redact: bool,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct MaxLinesOption {
    /// Maximum lines of a text report [report: 200]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_lines: Option<String>,
}

#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct ReportOptions {
    #[cfg_attr(feature = "push", doc = "Interval; 0: once, at the end [15m; --push: 1m]")]
    #[cfg_attr(not(feature = "push"), doc = "Interval; 0: once, at the end [15m]")]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub every: Option<String>,
    /// End after N reports
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub count: Option<String>,
    /// Each report covers all since the start
    #[arg(long)]
    pub cumulative: bool,
    /// Maximum files kept in DIR
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep: Option<String>,
    /// Maximum bytes kept in DIR, as 100M
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub max_bytes: Option<String>,
}

#[cfg(feature = "push")]
#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Push to a Pyroscope server")]
pub struct PushOptions {
    /// Send profiles there, not to standard output
    #[arg(long, value_name = "URL")]
    pub push: Option<String>,
    /// Label of the profiles; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub push_label: Vec<String>,
    /// Token or USER:PASSWORD [SAMPLETOP_PUSH_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub push_token_file: Option<PathBuf>,
    /// Tenant of a shared server
    #[arg(long, value_name = "NAME")]
    pub push_tenant: Option<String>,
    /// Where unsent profiles wait [state directory]
    #[arg(long, value_name = "DIR")]
    pub push_spool: Option<PathBuf>,
    /// Maximum bytes there; the oldest go [64M]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub push_spool_bytes: Option<String>,
}

#[cfg(not(feature = "push"))]
#[derive(Args, Clone, PartialEq, Debug, Default)]
pub struct PushOptions {}

/// Accepted by every subcommand, so that they can stand in a shell alias; listed where there is a
/// live view.
#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(next_help_heading = "Screen and files")]
pub struct ScreenOptions {
    /// dark, light, color-blind [dark]
    #[arg(long, value_name = "THEME")]
    pub theme: Option<String>,
    /// Colours: auto, never, 16, 256, true [auto]
    #[arg(long, value_name = "WHEN")]
    pub color: Option<String>,
    /// No colours (also NO_COLOR, TERM=dumb)
    #[arg(long)]
    pub no_color: bool,
    /// Draw with ASCII only [by the locale]
    #[arg(long, overrides_with = "unicode")]
    pub ascii: bool,
    /// Draw with UTF-8 whatever the locale says
    #[arg(long, overrides_with = "ascii")]
    pub unicode: bool,
    /// Take mouse events from the terminal
    #[arg(long)]
    pub mouse: bool,
    /// Row order: a column, as self, cpu, -hits
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Names of functions: short or full
    #[arg(long, value_name = "HOW")]
    pub names: Option<String>,
    /// Where sources are; also FROM=TO, a prefix
    #[arg(long, value_name = "DIR")]
    pub source: Vec<String>,
    /// Write no files
    #[arg(long)]
    pub secure: bool,
    /// Options [~/.config/sampletop/config.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct AgainstOption {
    /// Show the differences from this saved profile
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
}

/// Returns the definitions as they are parsed and printed.
pub fn definitions() -> clap::Command {
    const LIVE: [&str; 2] = ["open", "demo"];
    const SCREEN: [&str; 11] = [
        "theme", "color", "no_color", "ascii", "unicode", "mouse", "sort", "names", "source",
        "secure", "config",
    ];
    /// clap's own template, without its blank lines between sections.
    const TEMPLATE: &str = "{about}\n\nUsage: {usage}\n\n{options}{after-help}\n";
    /// Subcommands that write fewer formats than the others.
    const PLAIN: [&str; 2] = ["dump", "diff"];
    CommandLine::command().mut_subcommands(|sub| {
        let live = LIVE.contains(&sub.get_name());
        let plain = PLAIN.contains(&sub.get_name());
        let writes = sub.get_arguments().any(|arg| arg.get_id() == "format");
        let end = sub.get_after_help().map(ToString::to_string);
        let formats = (writes && !plain).then(|| FORMATS.to_owned());
        let end: Vec<String> = formats.into_iter().chain(end).collect();
        let sub = sub.help_template(TEMPLATE).max_term_width(WIDTH_MAX).after_help(end.join("\n"));
        sub.mut_args(|arg| match arg.get_id().as_str() {
            name if !live && SCREEN.contains(&name) => arg.hide(true),
            "format" if plain => arg.help("text or json [by FILE's name, else text]"),
            _ => arg,
        })
    })
}

/// Returns the manual page in roff: the program, then a section for each subcommand.
pub fn manual() -> String {
    let mut definitions = definitions();
    definitions.build();
    let page = clap_mangen::Man::new(definitions.clone());
    let mut text = Vec::new();
    let program = page
        .render_title(&mut text)
        .and_then(|()| page.render_name_section(&mut text))
        .and_then(|()| page.render_synopsis_section(&mut text))
        .and_then(|()| page.render_options_section(&mut text));
    let mut own = definitions.get_subcommands().filter(|sub| sub.get_name() != "help");
    let subcommands = own.try_for_each(|sub| {
        let page = clap_mangen::Man::new(sub.clone());
        let mut section = Vec::new();
        page.render_synopsis_section(&mut section)?;
        page.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        std::io::Write::write_all(
            &mut text,
            format!(".SH \"SAMPLETOP {}\"\n{about}.\n{section}", sub.get_name().to_uppercase())
                .as_bytes(),
        )
    });
    let end =
        page.render_extra_section(&mut text).and_then(|()| page.render_version_section(&mut text));
    debug_assert!(program.and(subcommands).and(end).is_ok(), "memory takes every byte");
    String::from_utf8_lossy(&text).into_owned()
}
