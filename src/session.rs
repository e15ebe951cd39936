//! Starts, connects and stops the threads; the only module that sees both sides.

use crate::config::Config;

/// Does what `config` says, on this process's terminal and files; returns the exit code.
pub fn run(config: Config) -> i32 {
    let _ = config;
    1
}
