//! `sampletop doctor`: what this machine permits, what prevents more, and the one change that would
//! help.
//!
//! ```text
//! facts   collects and tries  judge   facts -> verdict, pure     report   both as text or json
//! ```

pub mod facts;
pub mod judge;
mod report;

use crate::process::target::AttachError;

/// The answer and the exit code: 0 where any backend except `states` works, else 4.
pub struct Answer {
    pub text: String,
    pub exit_code: i32,
}

/// Examines this machine, and `pid` if given. `pid` fails as in other subcommands, unless it is
/// merely not permitted.
pub fn examine(pid: Option<u32>, json: bool) -> Result<Answer, AttachError> {
    let facts = facts::gather(pid)?;
    let verdict = judge::judge(&facts);
    let text = if json { report::json(&facts, &verdict) } else { report::text(&facts, &verdict) };
    Ok(Answer { text, exit_code: verdict.exit_code() })
}
