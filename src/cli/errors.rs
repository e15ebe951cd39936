//! clap's own complaints, as one sentence each; help and version as they are.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::CliExit;
use super::values::shown;

pub fn exit(error: Error) -> CliExit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            CliExit { code: 0, message: error.render().to_string(), to_stdout: true }
        }
        _ => CliExit::usage(sentence(&error)),
    }
}

fn sentence(error: &Error) -> String {
    let argument = text(error, ContextKind::InvalidArg).map(|a| option(&a));
    match (error.kind(), argument) {
        (ErrorKind::UnknownArgument, Some(argument)) => match text(error, ContextKind::SuggestedArg) {
            Some(near) => format!("there is no option `{}`; the nearest is `{}`", shown(&argument), option(&near)),
            None => format!("there is no option `{}`; `sampletop --help` lists them", shown(&argument)),
        },
        (ErrorKind::ArgumentConflict, Some(argument)) => format!("`{argument}` is given more than once"),
        // A flag with a value (`--idle=1`).
        (ErrorKind::TooManyValues, Some(argument)) => format!("`{argument}` takes no value"),
        (ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues, Some(argument)) => {
            format!("`{argument}` needs a value; one that begins with a dash is written `{argument}=VALUE`")
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

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

/// `--interval <TIME>` -> `--interval`.
fn option(argument: &str) -> String {
    argument.split([' ', '=']).next().unwrap_or(argument).to_owned()
}
