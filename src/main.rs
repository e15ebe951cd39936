#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use sampletop::{cli, commands};

fn main() -> ExitCode {
    // First, since the configuration file is read with the caller's rights.
    if let Err(failure) = commands::settle_rights() {
        eprintln!("sampletop: {}", failure.sentence);
        return ExitCode::from(failure.code.number());
    }
    let code = match cli::parse(std::env::args_os()) {
        Ok(config) => commands::run(&config),
        Err(exit) => {
            // A reader that has gone away (`--help | head`) is no failure.
            let _ = match exit.to_stdout {
                true => std::io::stdout().lock().write_all(exit.message.as_bytes()),
                false => std::io::stderr().lock().write_all(exit.message.as_bytes()),
            };
            exit.code
        }
    };
    ExitCode::from(code.number())
}
