//! The program's exit codes, and the error that ends a run.

/// Exit code of a run, as docs/guide/scripts.md lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitCode {
    Success,
    /// sampletop itself or the system failed: a disk, a thread, a terminal.
    Failed,
    /// The command line asks for what cannot be.
    Usage,
    NoSuchProcess,
    NotPermitted,
    /// The process cannot be profiled: a kernel thread, or another architecture.
    CannotProfile,
    /// The target exited before it was observed.
    EndedEarly,
    /// `dump --check-deadlock` found one.
    Deadlock,
    /// The COMMAND could not be started; the three codes of `env` and `timeout`.
    LaunchFailed,
    NotExecutable,
    CommandNotFound,
    /// SIGINT before there was anything to write.
    Interrupted,
    /// The COMMAND's own code, by the shell's convention.
    OfCommand(u8),
}

impl ExitCode {
    pub fn number(self) -> u8 {
        match self {
            ExitCode::Success => 0,
            ExitCode::Failed => 1,
            ExitCode::Usage => 2,
            ExitCode::NoSuchProcess => 3,
            ExitCode::NotPermitted => 4,
            ExitCode::CannotProfile => 5,
            ExitCode::EndedEarly => 6,
            ExitCode::Deadlock => 7,
            ExitCode::LaunchFailed => 125,
            ExitCode::NotExecutable => 126,
            ExitCode::CommandNotFound => 127,
            ExitCode::Interrupted => 130,
            ExitCode::OfCommand(code) => code,
        }
    }
}

/// Why a run ends without its result: the exit code and one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub code: ExitCode,
    pub sentence: String,
}

impl Failure {
    pub fn new(code: ExitCode, sentence: impl Into<String>) -> Failure {
        Failure { code, sentence: sentence.into() }
    }

    /// Returns a failure of sampletop itself or of the system.
    pub fn failed(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitCode::Failed, sentence)
    }

    /// Returns an error of the command line.
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(ExitCode::Usage, sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_each_code() {
        let guide = include_str!("../docs/guide/scripts.md");
        let (_, section) = guide.split_once("## Exit codes").expect("the section");
        let section = section.split("\n## ").next().expect("its text");
        for code in [
            ExitCode::Success,
            ExitCode::Failed,
            ExitCode::Usage,
            ExitCode::NoSuchProcess,
            ExitCode::NotPermitted,
            ExitCode::CannotProfile,
            ExitCode::EndedEarly,
            ExitCode::Deadlock,
            ExitCode::Interrupted,
        ] {
            let row = format!("\n| {} | ", code.number());
            assert!(section.contains(&row), "{code:?}");
        }
        for code in [ExitCode::LaunchFailed, ExitCode::NotExecutable, ExitCode::CommandNotFound] {
            assert!(section.contains(&code.number().to_string()), "{code:?}");
        }
    }
}
