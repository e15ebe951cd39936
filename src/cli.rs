//! The command line: clap's definitions, and every check that needs nothing of the system but this
//! terminal.
//!
//! ```text
//! cli/options  the subcommands, their options, the help
//! cli/typed    the typed options, in one shape for all subcommands
//! cli/values   one text -> one value, or a sentence that names the option
//! cli/build    which options go together -> Config
//! cli/file     the configuration file's keys as options
//! cli/push     where a report is sent; cli/no_push stands in for it without the feature
//! cli/errors   clap's errors as one sentence
//! ```

mod build;
mod errors;
mod file;
mod options;
#[cfg_attr(not(feature = "push"), path = "cli/no_push.rs")]
mod push;
mod typed;
mod values;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::{ArgMatches, FromArgMatches};

use crate::config::{self, ColorDepth, Config, Mode, WORKLOAD_ARGUMENT};
use crate::config_file;
use crate::exit_code::ExitCode;
use options::{CommandLine, Sub};
use typed::Typed;

/// Why the command line starts no run: help, the version, a completion script, the manual, or a
/// usage error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CliExit {
    pub code: ExitCode,
    /// What to print, with its line end.
    pub message: String,
    /// Print to stdout (requested output); otherwise to stderr.
    pub to_stdout: bool,
}

impl CliExit {
    /// Returns a usage error; `sentence` has no line end.
    fn usage(sentence: impl AsRef<str>) -> CliExit {
        CliExit {
            code: ExitCode::Usage,
            message: format!("sampletop: {}\n", sentence.as_ref()),
            to_stdout: false,
        }
    }

    /// Returns requested output for stdout; `text` has its line end.
    fn printed(text: String) -> CliExit {
        CliExit { code: ExitCode::Success, message: text, to_stdout: true }
    }
}

/// The facts besides the arguments that decide the configuration.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    stdout_is_terminal: bool,
    /// `NO_COLOR` is set and not empty (no-color.org).
    no_color: bool,
    /// `TERM` is `dumb`.
    dumb: bool,
    /// The colours that the terminal says it has.
    colors: ColorDepth,
    /// The locale's character set is not UTF-8.
    not_utf8: bool,
    /// `SAMPLETOP_REDACT_KEY`.
    redact_key: Option<Vec<u8>>,
    /// `SAMPLETOP_PUSH_TOKEN`.
    push_token: Option<Vec<u8>>,
    /// The configuration file that is read by default.
    config_path: Option<PathBuf>,
}

/// Parses `args` as the kernel passed them, the program's own name first.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Config, CliExit> {
    let surroundings = Surroundings {
        stdout_is_terminal: std::io::stdout().is_terminal(),
        no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()),
        dumb: std::env::var_os("TERM").is_some_and(|v| v == "dumb"),
        colors: colors(|name| std::env::var(name).unwrap_or_default()),
        not_utf8: is_not_utf8(|name| std::env::var_os(name)),
        redact_key: std::env::var_os(config::REDACT_KEY).map(OsString::into_vec),
        push_token: std::env::var_os(config::PUSH_TOKEN).map(OsString::into_vec),
        config_path: config_file::place::default_path(),
    };
    parse_in(args, &surroundings)
}

/// Returns the colours that the terminal says it has.
fn colors(variable: impl Fn(&str) -> String) -> ColorDepth {
    let (colors, terminal) = (variable("COLORTERM"), variable("TERM"));
    match terminal.as_str() {
        _ if matches!(colors.as_str(), "truecolor" | "24bit") => ColorDepth::True,
        name if name.contains("-direct") => ColorDepth::True,
        name if name.contains("256color") => ColorDepth::Indexed,
        _ => ColorDepth::Ansi,
    }
}

/// Returns whether the locale says that the terminal's characters are not UTF-8. The first of its
/// variables that is set decides. Where none is set, as in most containers, UTF-8 is assumed:
/// nearly all terminals support it.
fn is_not_utf8(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

fn parse_in(
    args: impl Iterator<Item = OsString>,
    surroundings: &Surroundings,
) -> Result<Config, CliExit> {
    let args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|word| word == WORKLOAD_ARGUMENT) {
        return Ok(Config {
            mode: Mode::Workload { args: args[2..].to_vec() },
            ..build::defaults()
        });
    }
    let (args, off) = file::flags_off(&args);
    let (typed, matches) = typed_line(&args, surroundings)?;
    for line in file::with_misplaced_flags(&args, &matches, &off) {
        typed_line(&line, surroundings)?;
    }
    let off: Vec<&str> = off.iter().map(|off| off.name).collect();
    let from_file = file::read(&typed, &matches, &off, surroundings).map_err(CliExit::usage)?;
    // First without the file, so that an error is about what was typed.
    let mut config = build::config(typed, surroundings)?;
    if let (false, Some(path)) = (from_file.args.is_empty(), &from_file.path) {
        let merged =
            typed_line(&file::with(&args, &from_file), surroundings).and_then(|(typed, _)| {
                let interval_of_file = from_file.gives("interval");
                build::config(Typed { interval_of_file, ..typed }, surroundings)
            });
        config = merged.map_err(|exit| CliExit {
            message: format!("{}\n", file::with_path(&exit.message, path)),
            ..exit
        })?;
    }
    config.file = from_file.path;
    config.given = from_file.given;
    Ok(config)
}

/// Parses a command line into one shape for all subcommands.
fn typed_line(
    args: &[OsString],
    surroundings: &Surroundings,
) -> Result<(Typed, ArgMatches), CliExit> {
    let mut definitions = options::definitions();
    let matches = definitions.try_get_matches_from_mut(args.iter()).map_err(|error| {
        let named = definitions
            .get_subcommands()
            .find(|sub| args.iter().any(|word| *word == *sub.get_name()));
        errors::exit(error, named.map(clap::Command::get_name))
    })?;
    let line = CommandLine::from_arg_matches(&matches)
        .map_err(|error| errors::exit(error, matches.subcommand_name()))?;
    match &line.subcommand {
        Some(Sub::Completions { shell, .. }) => return Err(completions(shell.as_deref())),
        Some(Sub::Man { .. }) => return Err(manual()),
        _ => {}
    }
    let typed = typed::typed(line, surroundings).map_err(CliExit::usage)?;
    Ok((typed, matches))
}

/// Prints the completion script of a shell.
fn completions(shell: Option<&str>) -> CliExit {
    const SHELLS: &str = "bash, elvish, fish, powershell, zsh";
    let Some(shell) = shell else {
        return CliExit::usage(format!("`completions` needs a shell: {SHELLS}"));
    };
    let Ok(shell) = shell.parse::<clap_complete::Shell>() else {
        return CliExit::usage(format!("`{}` is none of {SHELLS}", values::shown(shell)));
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut options::definitions(), "sampletop", &mut script);
    CliExit::printed(String::from_utf8_lossy(&script).into_owned())
}

/// Prints the manual page in roff: the program, then each subcommand.
fn manual() -> CliExit {
    CliExit::printed(options::manual())
}

#[cfg(test)]
mod tests;
