#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use sampletop::config::Mode;
use sampletop::{cli, session};

fn main() -> ExitCode {
    let config = match cli::parse(std::env::args_os()) {
        Ok(config) => config,
        Err(exit) => {
            // A reader that has gone away (`--help | head`) is no failure.
            let _ = match exit.to_stdout {
                true => std::io::stdout().lock().write_all(exit.message.as_bytes()),
                false => std::io::stderr().lock().write_all(exit.message.as_bytes()),
            };
            return code(exit.code);
        }
    };
    code(match &config.mode {
        Mode::Workload { args } => sampletop::demo::child(args),
        _ => session::run(config),
    })
}

/// Exit codes are 0..=255.
fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
