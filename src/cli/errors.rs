//! Turns clap's errors into one sentence each; passes help and version on unchanged.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::values::shown;
use super::{CliExit, options};

/// Converts clap's error. `subcommand`: the one that was typed.
pub fn exit(error: Error, subcommand: Option<&str>) -> CliExit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            CliExit::printed(error.render().to_string())
        }
        _ => CliExit::usage(sentence(&error, subcommand)),
    }
}

fn sentence(error: &Error, subcommand: Option<&str>) -> String {
    let argument = text(error, ContextKind::InvalidArg).map(|a| option(&a));
    match (error.kind(), argument) {
        (ErrorKind::InvalidSubcommand, _) => {
            let word = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            stray(&word, None)
        }
        (ErrorKind::UnknownArgument, Some(word)) if !word.starts_with('-') => {
            stray(&word, subcommand)
        }
        (ErrorKind::UnknownArgument, Some(argument)) => {
            unknown(&argument, text(error, ContextKind::SuggestedArg), subcommand)
        }
        (ErrorKind::ArgumentConflict, Some(argument)) => {
            format!("`{argument}` is given more than once")
        }
        // A flag with a value (`--idle=1`).
        (ErrorKind::TooManyValues, Some(argument)) => format!("`{argument}` takes no value"),
        (
            ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues,
            Some(argument),
        ) => {
            format!(
                "`{argument}` needs a value; one that begins with a dash is written `{argument}=VALUE`"
            )
        }
        (ErrorKind::InvalidUtf8, _) => {
            "an argument is not UTF-8 text; only FILE and COMMAND may be of other bytes".into()
        }
        _ => {
            let rendered = error.render().to_string();
            let first = rendered.lines().next().unwrap_or("this command line is not understood");
            format!("{}; see `sampletop --help`", first.trim_start_matches("error: "))
        }
    }
}

/// Minimum similarity (Jaro) at which a subcommand is suggested; clap's own threshold for options.
const ALIKE: f64 = 0.7;

/// Explains a word that is no subcommand, or one word too many. Usually it is a pid without `-p` or
/// a command without `--`.
fn stray(word: &str, subcommand: Option<&str>) -> String {
    let shown = shown(word);
    let number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    match (number, subcommand) {
        (true, _) => {
            format!(
                "`{shown}` is one word too many; a process is named with `-p {shown}`, each with its own `-p`"
            )
        }
        (false, Some(subcommand)) => {
            format!(
                "`{shown}` is one word too many for `{subcommand}`; `sampletop {subcommand} --help` says what it takes"
            )
        }
        (false, None) => {
            let definitions = options::definitions();
            let names: Vec<&str> =
                definitions.get_subcommands().map(clap::Command::get_name).collect();
            let alike = |name: &&&str| strsim::jaro(word, name) > ALIKE;
            match names
                .iter()
                .filter(alike)
                .max_by(|a, b| strsim::jaro(word, a).total_cmp(&strsim::jaro(word, b)))
            {
                Some(near) => format!(
                    "there is no subcommand `{shown}`; the nearest is `{near}`; a command is started with `-- {shown}`"
                ),
                None => {
                    format!(
                        "`{shown}` is none of {}; a command is started with `-- {shown}`",
                        names.join(", ")
                    )
                }
            }
        }
    }
}

/// Explains an option that does not exist, or not for this subcommand.
fn unknown(argument: &str, near: Option<String>, subcommand: Option<&str>) -> String {
    let shown = shown(argument);
    let definitions = options::definitions();
    let long = argument.strip_prefix("--");
    let short =
        argument.strip_prefix('-').filter(|_| long.is_none()).and_then(|rest| rest.chars().next());
    let has = |command: &clap::Command| {
        command.get_arguments().any(|arg| {
            long.is_some_and(|long| arg.get_long() == Some(long))
                || short.is_some_and(|short| arg.get_short() == Some(short))
        })
    };
    let owners: Vec<&str> =
        definitions.get_subcommands().filter(|sub| has(sub)).map(clap::Command::get_name).collect();
    let help = subcommand
        .map_or_else(|| "sampletop --help".into(), |sub| format!("sampletop {sub} --help"));
    let place = subcommand.map_or_else(|| "the live view".into(), |sub| format!("`{sub}`"));
    match (owners.as_slice(), near) {
        ([], _) if has(&definitions) => format!("`{shown}` does nothing for {place}; leave it out"),
        ([], Some(near)) => {
            format!("there is no option `{shown}`; the nearest is `{}`", option(&near))
        }
        ([], None) => format!("there is no option `{shown}`; `{help}` lists them"),
        (owners, _) => {
            format!("`{shown}` does nothing for {place}; it is an option of {}", owners.join(", "))
        }
    }
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// Strips the value's name: `--interval <TIME>` -> `--interval`.
fn option(argument: &str) -> String {
    argument.split([' ', '=']).next().unwrap_or(argument).to_owned()
}
