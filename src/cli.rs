//! The command line: clap's definitions, and every check that needs no look at the system beyond this terminal.

use std::ffi::OsString;

use crate::config::Config;

/// The command line asks for no run: help, the version, or a usage error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CliExit {
    /// 0 or 2.
    pub code: i32,
    /// What to print, with its line ends.
    pub message: String,
    /// stdout (help, version); else stderr.
    pub to_stdout: bool,
}

/// `args` as the kernel gave them, the program's own name first.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Config, CliExit> {
    let _ = args;
    Err(CliExit { code: 2, message: "sampletop: not built yet\n".into(), to_stdout: false })
}
