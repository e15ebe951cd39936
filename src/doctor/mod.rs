//! `sampletop doctor`: what this machine permits, what prevents more, and the one change that would
//! help.
//!
//! ```text
//! facts   collects and tries  judge   facts -> verdict, pure     report   both as text or json
//! ```

pub mod facts;
pub mod judge;
mod report;

use crate::exit_code::ExitCode;
use crate::process::target::AttachError;

/// The answer as text or json, and what the run ends with: success where any backend except
/// `states` works.
pub struct Answer {
    pub text: String,
    pub exit_code: ExitCode,
}

/// Examines this machine, and `pid` if given. `pid` fails as in other subcommands, unless it is
/// merely not permitted.
pub fn examine(pid: Option<u32>, json: bool) -> Result<Answer, AttachError> {
    let facts = facts::gather(pid)?;
    let verdict = judge::judge(&facts);
    let text = if json { report::json(&facts, &verdict) } else { report::text(&facts, &verdict) };
    Ok(Answer { text, exit_code: verdict.exit_code() })
}
