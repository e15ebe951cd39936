//! The configuration file as options: each key is one, and its value goes through the same checks
//! as on the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::typed::{Job, Typed};
use super::values::shown;
use super::{Surroundings, build, options, typed_line};
use crate::config_file::entries::{Entry, Value, entries};
use crate::config_file::place::{self, Named};
use crate::sinks::file;

/// An option that the file may set.
struct Key {
    name: &'static str,
    kind: Kind,
    jobs: Jobs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Text,
    Number,
    /// A number, a word, or `true`.
    Colors,
    /// May be repeated on the command line.
    Texts,
}

/// What an option of the file applies to, where the subcommand has that option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jobs {
    /// The live view of processes.
    Live,
    /// Everything that samples. A saved profile has its own settings.
    Sampling,
    /// Every live view.
    Screen,
}

const fn key(name: &'static str, kind: Kind, jobs: Jobs) -> Key {
    Key { name, kind, jobs }
}

const KEYS: &[Key] = &[
    key("interval", Kind::Text, Jobs::Sampling),
    key("max-overhead", Kind::Number, Jobs::Sampling),
    key("capture", Kind::Text, Jobs::Sampling),
    key("subprocesses", Kind::Flag, Jobs::Sampling),
    key("source-maps", Kind::Text, Jobs::Sampling),
    key("window", Kind::Text, Jobs::Live),
    key("metric", Kind::Text, Jobs::Sampling),
    key("by", Kind::Text, Jobs::Sampling),
    key("level", Kind::Text, Jobs::Sampling),
    key("group", Kind::Text, Jobs::Sampling),
    key("rename", Kind::Texts, Jobs::Sampling),
    key("app", Kind::Texts, Jobs::Sampling),
    key("library", Kind::Texts, Jobs::Sampling),
    key("idle", Kind::Flag, Jobs::Sampling),
    key("idle-at", Kind::Texts, Jobs::Sampling),
    key("interesting", Kind::Texts, Jobs::Sampling),
    key("focus", Kind::Text, Jobs::Sampling),
    key("ignore", Kind::Text, Jobs::Sampling),
    key("hide", Kind::Text, Jobs::Sampling),
    key("threads", Kind::Text, Jobs::Sampling),
    key("no-kernel", Kind::Flag, Jobs::Sampling),
    key("native", Kind::Text, Jobs::Sampling),
    key("skip-daemon", Kind::Flag, Jobs::Sampling),
    key("gil", Kind::Flag, Jobs::Sampling),
    key("min-percent", Kind::Number, Jobs::Sampling),
    key("every", Kind::Text, Jobs::Sampling),
    key("max-lines", Kind::Number, Jobs::Sampling),
    key("sort", Kind::Text, Jobs::Live),
    key("names", Kind::Text, Jobs::Screen),
    key("theme", Kind::Text, Jobs::Screen),
    key("color", Kind::Colors, Jobs::Screen),
    key("no-color", Kind::Flag, Jobs::Screen),
    key("ascii", Kind::Flag, Jobs::Screen),
    key("unicode", Kind::Flag, Jobs::Screen),
    key("mouse", Kind::Flag, Jobs::Screen),
    key("source", Kind::Texts, Jobs::Screen),
    key("secure", Kind::Flag, Jobs::Screen),
];

/// Keys that give way to another option of the command line.
const GIVES_WAY: [(&str, &str); 6] = [
    ("window", "cumulative"),
    ("skip-daemon", "check-deadlock"),
    ("gil", "check-deadlock"),
    ("no-color", "color"),
    ("ascii", "unicode"),
    ("unicode", "ascii"),
];

/// Minimum similarity (Jaro) at which a key is suggested.
const ALIKE: f64 = 0.7;

/// A flag that is switched off on the command line (`--idle=false`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagOff {
    pub name: &'static str,
    /// Its place among the other arguments.
    at: usize,
}

/// Splits `--idle=false` and its like off the arguments: a flag of the file does not hold then, nor
/// one before it. Returns the other arguments and these flags.
pub fn flags_off(args: &[OsString]) -> (Vec<OsString>, Vec<FlagOff>) {
    let (mut others, mut off) = (Vec::<OsString>::with_capacity(args.len()), Vec::<FlagOff>::new());
    let mut is_command = false;
    for arg in args {
        is_command |= arg == "--";
        let option = arg.to_str().filter(|_| !is_command).and_then(|arg| arg.strip_prefix("--"));
        let flag = option.and_then(|option| option.split_once('=')).and_then(|(name, value)| {
            let key = KEYS.iter().find(|key| key.kind == Kind::Flag && key.name == name)?;
            Some((key.name, value.parse::<bool>().ok()?))
        });
        match flag {
            Some((name, false)) => {
                let flag = format!("--{name}");
                while let Some(before) = others.iter().position(|other| *other == *flag) {
                    others.remove(before);
                    off.iter_mut().filter(|off| off.at > before).for_each(|off| off.at -= 1);
                }
                off.push(FlagOff { name, at: others.len() });
            }
            Some((name, true)) => others.push(format!("--{name}").into()),
            None => others.push(arg.clone()),
        }
    }
    // A flag that is given after it holds.
    let end = others.iter().position(|arg| arg == "--").unwrap_or(others.len());
    off.retain(|off| !others[..end].iter().any(|arg| *arg == *format!("--{}", off.name)));
    (others, off)
}

/// Returns command lines with one flag each switched on that is switched off where it may have no
/// effect, so that the error is that of the flag: flags that the subcommand does not have, and
/// those before the subcommand.
pub fn with_misplaced_flags(
    args: &[OsString],
    matches: &ArgMatches,
    off: &[FlagOff],
) -> Vec<Vec<OsString>> {
    let line = |FlagOff { name, at }: &FlagOff| {
        let flag = FromFile { args: vec![format!("--{name}").into()], ..FromFile::default() };
        if !has_option(name, matches) {
            return Some(with(args, &flag));
        }
        let line = [&args[..*at], &flag.args, &args[*at..]].concat();
        let matches = options::definitions().try_get_matches_from(&line).ok()?;
        let is_before = matches
            .subcommand()
            .is_some_and(|(_, behind)| is_given_in(name, &matches) && !is_given_in(name, behind));
        is_before.then_some(line)
    };
    off.iter().filter_map(line).collect()
}

/// The file's options that apply to a command line.
#[derive(Default)]
pub struct FromFile {
    /// The file, whether it exists or not.
    pub path: Option<PathBuf>,
    /// As arguments.
    pub args: Vec<OsString>,
    /// Keys that the command line gives itself.
    pub given: Vec<&'static str>,
}

impl FromFile {
    /// Returns whether an option with a value is among them.
    pub fn gives(&self, name: &str) -> bool {
        let option = format!("--{name}=");
        self.args.iter().any(|arg| arg.as_encoded_bytes().starts_with(option.as_bytes()))
    }
}

/// Reads and checks the file. Returns the options that the subcommand has and the command line does
/// not give. `off`: see [`flags_off`].
pub fn read(
    line: &Typed,
    matches: &ArgMatches,
    off: &[&str],
    surroundings: &Surroundings,
) -> Result<FromFile, String> {
    let (path, named) = match &line.screen.config {
        Some(path) => (Some(path), Named::ByUser),
        None => (surroundings.config_path.as_ref(), Named::ByDefault),
    };
    let jobs: &[Jobs] = match line.job {
        Job::Live | Job::DemoLive => &[Jobs::Live, Jobs::Sampling, Jobs::Screen],
        Job::DemoOnce | Job::Record | Job::Report | Job::Dump => &[Jobs::Sampling],
        Job::Open => &[Jobs::Screen],
        Job::Convert | Job::Diff | Job::Merge | Job::Doctor => &[],
    };
    // A file that cannot change anything is not read, unless it was named.
    let Some(path) = path.filter(|_| named == Named::ByUser || !jobs.is_empty()) else {
        return Ok(FromFile::default());
    };
    let text = place::read(path, named)?.unwrap_or_default();
    let wrong = |line, sentence: String| format!("{}:{line}: {sentence}", file::shown(path));
    let mut args = Vec::new();
    for entry in entries(&text).map_err(|fault| wrong(fault.line, fault.sentence))? {
        let (key, entry_args) = check(&entry).map_err(|sentence| wrong(entry.line, sentence))?;
        let gives_way =
            |(name, option): &(&str, &str)| key.name == *name && is_given(option, matches, &[]);
        let is_wanted = jobs.contains(&key.jobs)
            && has_option(key.name, matches)
            && !is_given(key.name, matches, off)
            // The environment speaks of this terminal, the file of all.
            && !(key.name == "color" && (surroundings.no_color || surroundings.dumb))
            && !GIVES_WAY.iter().any(gives_way);
        args.extend(entry_args.into_iter().filter(|_| is_wanted));
    }
    let given = KEYS.iter().map(|key| key.name).filter(|name| is_given(name, matches, off));
    Ok(FromFile { path: Some(path.clone()), args, given: given.collect() })
}

/// Returns the command line with the file's options. They stand behind the user's own, which they
/// do not repeat.
pub fn with(args: &[OsString], from_file: &FromFile) -> Vec<OsString> {
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    [&args[..end], &from_file.args, &args[end..]].concat()
}

/// Returns whether the command line that was parsed gives an option.
fn is_given(name: &str, matches: &ArgMatches, off: &[&str]) -> bool {
    off.contains(&name)
        || is_given_in(name, matches)
        || matches.subcommand().is_some_and(|(_, matches)| is_given_in(name, matches))
}

/// Returns whether an option is given before the subcommand, or behind it, whichever was parsed.
fn is_given_in(name: &str, matches: &ArgMatches) -> bool {
    let id = name.replace('-', "_");
    matches.ids().any(|given| given.as_str() == id)
        && matches.value_source(&id) == Some(ValueSource::CommandLine)
}

/// Returns whether the live view or the subcommand has an option.
fn has_option(name: &str, matches: &ArgMatches) -> bool {
    let definitions = options::definitions();
    let of = matches.subcommand_name().and_then(|name| definitions.find_subcommand(name));
    of.unwrap_or(&definitions).get_arguments().any(|arg| arg.get_long() == Some(name))
}

/// Checks one key as if it were the only option. Returns it as arguments.
fn check(entry: &Entry) -> Result<(&'static Key, Vec<OsString>), String> {
    let name = entry.key.as_str();
    let key = KEYS.iter().find(|key| key.name == name).ok_or_else(|| unknown(name))?;
    let option = |text: &str| OsString::from(format!("--{name}={text}"));
    let args: Vec<OsString> = match (key.kind, &entry.value) {
        (Kind::Flag, Value::Flag(true)) => vec![format!("--{name}").into()],
        (Kind::Flag, Value::Flag(false)) => Vec::new(),
        // As if the key were missing, so that it can stay in its place.
        (Kind::Text | Kind::Number | Kind::Colors, Value::Text(text)) if text.is_empty() => {
            Vec::new()
        }
        (_, Value::Text(text)) if key.kind != Kind::Flag => vec![option(text)],
        (Kind::Number | Kind::Colors, Value::Number(number)) => vec![option(number)],
        (Kind::Colors, Value::Flag(true)) => vec![option("true")],
        (Kind::Texts, Value::Texts(texts)) => texts.iter().map(|text| option(text)).collect(),
        (kind, value) => return Err(wrong_type(name, kind, value)),
    };
    // Where an option is of one subcommand only, that has to be named.
    let definitions = options::definitions();
    let is_live = definitions.get_arguments().any(|arg| arg.get_long() == Some(name));
    let before: &[&str] =
        if is_live { &["sampletop"] } else { &["sampletop", "report", "--pid=1"] };
    let line: Vec<OsString> =
        before.iter().map(OsString::from).chain(args.iter().cloned()).collect();
    let surroundings = Surroundings { stdout_is_terminal: true, ..Surroundings::default() };
    let built =
        typed_line(&line, &surroundings).and_then(|(typed, _)| build::config(typed, &surroundings));
    match built {
        Ok(_) => Ok((key, args)),
        Err(exit) => Err(as_key(name, &exit.message)),
    }
}

/// Returns a sentence about an option as one about its key.
fn as_key(name: &str, message: &str) -> String {
    let sentence = message.trim_end().trim_start_matches("sampletop: ");
    let assigned = sentence.replacen(&format!("`--{name} "), &format!("`{name} = "), 1);
    assigned.replacen(&format!("--{name}"), name, 1)
}

fn wrong_type(name: &str, kind: Kind, value: &Value) -> String {
    let wanted = match kind {
        Kind::Flag => "true or false",
        Kind::Text => "a string",
        Kind::Number => "a number",
        Kind::Colors => "a number, a word or true",
        Kind::Texts => "a list of strings",
    };
    let found = match value {
        Value::Flag(false) if kind == Kind::Colors => "false",
        Value::Flag(_) => "true or false",
        Value::Number(_) => "a number",
        Value::Text(_) => "a string",
        Value::Texts(_) => "a list",
        Value::Other(what) => what,
    };
    format!("`{name}` is {wanted}, not {found}")
}

/// Explains a key that does not exist.
fn unknown(name: &str) -> String {
    let shown = shown(name);
    let definitions = options::definitions();
    let has =
        |command: &clap::Command| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    if has(&definitions) || definitions.get_subcommands().any(has) {
        return format!("`{shown}` is an option of the command line only");
    }
    let alike = |key: &&Key| strsim::jaro(name, key.name) > ALIKE;
    let near = KEYS
        .iter()
        .filter(alike)
        .max_by(|a, b| strsim::jaro(name, a.name).total_cmp(&strsim::jaro(name, b.name)));
    match near {
        Some(near) => format!("there is no key `{shown}`; the nearest is `{}`", near.name),
        None => format!(
            "there is no key `{shown}`; keys are options without their dashes, as in `metric = \"cpu\"`"
        ),
    }
}

/// Adds to a sentence that some options are the file's.
pub fn with_path(sentence: &str, path: &Path) -> String {
    format!("{}; some options are from `{}`", sentence.trim_end(), file::shown(path))
}

#[cfg(test)]
mod tests;
