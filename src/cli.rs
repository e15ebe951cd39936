//! The command line: clap's definitions, and every check that needs no look at the system beyond this terminal.
//!
//! ```text
//! cli          what can be typed, and the help
//! cli/values   one text -> one value, or a sentence that names the option
//! cli/build    which options go together -> Config
//! cli/push     where a report is sent
//! cli/errors   clap's own complaints as one sentence
//! ```
//!
//! Words that say what to do (`record`, `report`, `open`, `diff`, `merge`, `dump`, `demo`, `doctor`) are ordinary words here, not clap's subcommands: an option
//! means the same before and after them, and none is lost when it is given on both sides.

mod build;
mod errors;
mod job;
mod push;
mod values;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::Parser;

use crate::config::{self, Config, Mode, WORKLOAD_ARGUMENT};

/// The command line asks for no run: help, the version, or a usage error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CliExit {
    /// 0 or 2.
    pub code: i32,
    /// What to print, with its line end.
    pub message: String,
    /// stdout (help, version); else stderr.
    pub to_stdout: bool,
}

impl CliExit {
    /// A usage error; `sentence` has no line end.
    fn usage(sentence: impl AsRef<str>) -> CliExit {
        CliExit { code: 2, message: format!("sampletop: {}\n", sentence.as_ref()), to_stdout: false }
    }
}

/// What of the surroundings decides beside the arguments.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    stdout_is_terminal: bool,
    /// `NO_COLOR` is set to anything but nothing (no-color.org).
    no_color: bool,
    /// `TERM` is `dumb`.
    dumb: bool,
    /// The locale's characters are not UTF-8.
    not_utf8: bool,
    /// `SAMPLETOP_REDACT_KEY`.
    redact_key: Option<Vec<u8>>,
    /// `SAMPLETOP_PUSH_TOKEN`.
    push_token: Option<Vec<u8>>,
}

/// `args` as the kernel gave them, the program's own name first.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Config, CliExit> {
    let surroundings = Surroundings {
        stdout_is_terminal: std::io::stdout().is_terminal(),
        no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()),
        dumb: std::env::var_os("TERM").is_some_and(|v| v == "dumb"),
        not_utf8: is_not_utf8(|name| std::env::var_os(name)),
        redact_key: std::env::var_os(config::REDACT_KEY).map(OsString::into_vec),
        push_token: std::env::var_os(config::PUSH_TOKEN).map(OsString::into_vec),
    };
    parse_in(args, &surroundings)
}

/// What the locale says of the terminal's characters: the first of its variables that is set decides. Where none is, as in
/// most containers, nothing was said, and nearly all terminals know UTF-8.
fn is_not_utf8(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

fn parse_in(args: impl Iterator<Item = OsString>, surroundings: &Surroundings) -> Result<Config, CliExit> {
    let args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|word| word == WORKLOAD_ARGUMENT) {
        return Ok(Config { mode: Mode::Workload { args: args[2..].to_vec() }, ..build::defaults() });
    }
    let typed = Typed::try_parse_from(args).map_err(errors::exit)?;
    build::config(typed, surroundings)
}

const USAGE: &str = "\
sampletop -p PID | --name REGEX | --unit NAME | --pidfile FILE
       sampletop -- COMMAND [ARG...]                start a command and watch it
       sampletop                                    pick a process from a list
       sampletop demo [--workload NAME] [--once]    watch a built-in workload
       sampletop record -p PID [-d TIME] [-o FILE]  a profile; also -- COMMAND
       sampletop report -p PID [-o LOG|DIR/] [--push URL]   around the clock
       sampletop open [FILE] [-o OUT]               a saved profile or session
       sampletop diff BEFORE AFTER | merge FILE...  what changed; many as one
       sampletop dump -p PID [-o FILE]              write every stack once
       sampletop doctor [-p PID] [--json]           what is permitted here";

const EXAMPLES: &str = "\
Examples:
  sudo sampletop -p 4321                     watch it live; ? lists the keys
  sampletop record -p 4321 -d 30s -o p.json  30 seconds for a script
  sampletop record -o app.html -- ./app      a whole run, as a page to walk through
  sampletop --name nginx --group process     all of them, after restarts too

TIME takes a unit: 10ms, 5m. REGEX is that of Rust's crate regex and matches
anywhere unless anchored. --rename, --idle-at and --push-label may be repeated.
FORMAT is text, json, html, svg, speedscope, firefox, pprof, folded, classic or
sampletop.
--capture ptrace stops running threads for microseconds. A race remains: a call
that a thread begins just then may fail with EINTR (1 of 2,542 stops).";

/// What was typed. Values stay text here; `values` turns them into what they mean, with errors of one sentence.
#[derive(Parser, Debug, Default)]
#[command(
    name = "sampletop",
    version,
    about = "top for call stacks: which methods of which threads the time goes to, live,\n\
             without stopping the target",
    override_usage = USAGE,
    after_help = EXAMPLES,
    help_template = "{about}\n\nUsage: {usage}\n\n{all-args}{after-help}\n",
    max_term_width = 100,
    disable_help_flag = true,
    disable_version_flag = true
)]
struct Typed {
    /// `record`, `report`, `open`, `diff`, `merge`, `dump`, `demo`, `doctor`; files.
    #[arg(hide = true)]
    words: Vec<OsString>,
    #[arg(last = true, hide = true)]
    command: Vec<OsString>,

    /// Process to watch; may be repeated
    #[arg(short, long, value_name = "PID", help_heading = TARGET, allow_negative_numbers = true)]
    pid: Vec<String>,
    /// Whose name or command line matches; waits
    #[arg(long, value_name = "REGEX", help_heading = TARGET)]
    name: Option<String>,
    /// Whose number is in FILE; waits
    #[arg(long, value_name = "FILE", help_heading = TARGET)]
    pidfile: Option<PathBuf>,
    /// Those of a systemd unit; waits
    #[arg(long, value_name = "NAME", help_heading = TARGET)]
    unit: Option<String>,
    /// Those of a control group (v2); waits
    #[arg(long, value_name = "PATH", help_heading = TARGET)]
    cgroup: Option<PathBuf>,
    /// Their children too, as they appear
    #[arg(long, help_heading = TARGET)]
    subprocesses: bool,
    /// Part of demo: all, mixed, mass, pool, locks [all]
    #[arg(long, value_name = "NAME", help_heading = TARGET)]
    workload: Option<String>,

    /// Time between looks, 1ms to 10s [10ms]
    #[arg(short, long, value_name = "TIME", help_heading = SAMPLING, allow_negative_numbers = true)]
    interval: Option<String>,
    /// Own CPU to stay below [3% of a core; -i: none]
    #[arg(long, value_name = "PERCENT", help_heading = SAMPLING, allow_negative_numbers = true)]
    max_overhead: Option<String>,
    /// auto, bpf, perf, cpu-only, states, ptrace [auto]
    #[arg(long, value_name = "WAY", help_heading = SAMPLING)]
    capture: Option<String>,
    #[arg(long, value_name = "NAME", help_heading = SAMPLING, help = UNWINDER_HELP)]
    unwinder: Option<String>,
    /// How long, or exit: till it ends [10s, demo 5s]
    #[arg(short, long, value_name = "TIME", help_heading = SAMPLING, allow_negative_numbers = true)]
    duration: Option<String>,

    /// Show the last 1s to 24h [30s; in files all]
    #[arg(long, value_name = "TIME", help_heading = SHOWN, allow_negative_numbers = true)]
    window: Option<String>,
    /// wall, cpu, or off: wall minus cpu [wall]
    #[arg(long, value_name = "METRIC", help_heading = SHOWN)]
    metric: Option<String>,
    /// function, line, class, package, module [function]
    #[arg(long, value_name = "WHAT", help_heading = SHOWN)]
    by: Option<String>,
    /// rules, name, thread, process, none, frame:REGEX
    #[arg(long, value_name = "HOW", help_heading = SHOWN)]
    group: Option<String>,
    /// Thread name rule, after the built-in ones
    #[arg(long, value_name = "s/REGEX/TEXT/", help_heading = SHOWN)]
    rename: Vec<String>,
    /// Only threads whose name or group matches
    #[arg(long, value_name = "REGEX", help_heading = SHOWN)]
    threads: Option<String>,
    /// Not Java's daemon threads, nor the JVM's own
    #[arg(long, help_heading = SHOWN)]
    skip_daemon: bool,
    /// Cut stacks one call below these names
    #[arg(long, value_name = "PREFIX,..", help_heading = SHOWN)]
    interesting: Vec<String>,
    /// Only stacks with a frame that matches
    #[arg(long, value_name = "REGEX", help_heading = SHOWN)]
    focus: Option<String>,
    /// Not the stacks with a frame that matches
    #[arg(long, value_name = "REGEX", help_heading = SHOWN)]
    ignore: Option<String>,
    /// Take matching frames out of their stacks
    #[arg(long, value_name = "REGEX", help_heading = SHOWN)]
    hide: Option<String>,
    /// Take the kernel's frames out of stacks
    #[arg(long, help_heading = SHOWN)]
    no_kernel: bool,
    /// Leave out rows below N percent, 0 to 100
    #[arg(long, value_name = "N", help_heading = SHOWN, allow_negative_numbers = true)]
    min_percent: Option<String>,
    /// Show time spent waiting for work too
    #[arg(long, help_heading = SHOWN)]
    idle: bool,
    /// Blocked in a frame that matches is idle
    #[arg(long, value_name = "REGEX", help_heading = SHOWN)]
    idle_at: Vec<String>,

    /// Write there instead of standard output
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// report: by the clock; 0: at the end [15m; --push: 1m]
    #[arg(long, value_name = "TIME", help_heading = OUTPUT, allow_negative_numbers = true)]
    every: Option<String>,
    /// report: end after so many
    #[arg(long, value_name = "N", help_heading = OUTPUT, allow_negative_numbers = true)]
    count: Option<String>,
    /// report: each tells all since the start
    #[arg(long, help_heading = OUTPUT)]
    cumulative: bool,
    /// report: so many lines at most [200]
    #[arg(long, value_name = "N", help_heading = OUTPUT, allow_negative_numbers = true)]
    max_lines: Option<String>,
    /// report: so many files stay in DIR
    #[arg(long, value_name = "N", help_heading = OUTPUT, allow_negative_numbers = true)]
    keep: Option<String>,
    /// report: so many bytes stay in DIR, as 100M
    #[arg(long, value_name = "SIZE", help_heading = OUTPUT, allow_negative_numbers = true)]
    max_bytes: Option<String>,
    /// instead of what FILE's name says
    #[arg(long, value_name = "FORMAT", help_heading = OUTPUT)]
    format: Option<String>,
    /// doctor: for scripts
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// diff: per run, second or share [run]
    #[arg(long, value_name = "WHAT", help_heading = OUTPUT)]
    per: Option<String>,
    /// dump: each thread with its own stack
    #[arg(long, help_heading = OUTPUT)]
    each: bool,
    /// demo: print the text report, no live view
    #[arg(long, help_heading = OUTPUT)]
    once: bool,
    /// No colours (also NO_COLOR, TERM=dumb)
    #[arg(long, help_heading = OUTPUT)]
    no_color: bool,
    /// Draw with ASCII only [as the locale says]
    #[arg(long, help_heading = OUTPUT)]
    ascii: bool,
    /// Draw with UTF-8 whatever the locale says
    #[arg(long, help_heading = OUTPUT, conflicts_with = "ascii")]
    unicode: bool,
    /// Take mouse events from the terminal
    #[arg(long, help_heading = OUTPUT)]
    mouse: bool,
    /// Hashes for names, under SAMPLETOP_REDACT_KEY
    #[arg(long, help_heading = OUTPUT)]
    redact: bool,
    /// Write no files
    #[arg(long, help_heading = OUTPUT)]
    secure: bool,

    /// Profiles to a Pyroscope server, not to stdout
    #[arg(long, value_name = "URL", help_heading = PUSH)]
    push: Option<String>,
    /// Of them; service_name and host are told anyway
    #[arg(long, value_name = "KEY=VALUE", help_heading = PUSH)]
    push_label: Vec<String>,
    /// Else SAMPLETOP_PUSH_TOKEN; USER:PASSWORD too
    #[arg(long, value_name = "FILE", help_heading = PUSH)]
    push_token_file: Option<PathBuf>,
    /// Of a server that many share
    #[arg(long, value_name = "NAME", help_heading = PUSH)]
    push_tenant: Option<String>,
    /// What could not be sent waits [state directory]
    #[arg(long, value_name = "DIR", help_heading = PUSH)]
    push_spool: Option<PathBuf>,
    /// So much waits, then the oldest goes [64M]
    #[arg(long, value_name = "SIZE", help_heading = PUSH, allow_negative_numbers = true)]
    push_spool_bytes: Option<String>,

    /// Print this
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = OUTPUT)]
    help: Option<bool>,
    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version, help_heading = OUTPUT)]
    version: Option<bool>,
}

const TARGET: &str = "What to watch";
const SAMPLING: &str = "How to sample";
const SHOWN: &str = "What to show";
const OUTPUT: &str = "Output";
const PUSH: &str = "Where a report is sent";

#[cfg(feature = "libunwind")]
const UNWINDER_HELP: &str = "framehop; libunwind needs --capture ptrace";
#[cfg(not(feature = "libunwind"))]
const UNWINDER_HELP: &str = "framehop, the one this build has";

#[cfg(test)]
mod tests;
