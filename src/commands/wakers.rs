//! `--wakers TIME` of `record` and `dump`.

use std::sync::Arc;
use std::time::Duration;

use crate::exit_code::{ExitCode, Failure};
use crate::model::vocabulary::wakeup::Wakeups;
use crate::session::source::Source;

/// Begins to count who wakes threads, which was asked for: without that there is no result.
pub fn count_wakeups(source: &mut dyn Source, time: Duration) -> Result<(), Failure> {
    source
        .count_wakeups(time)
        .map_err(|sentence| Failure::new(ExitCode::NotPermitted, sentence))?;
    eprintln!("sampletop: counting who wakes whom for {time:?}: at most 0.2 us a wakeup");
    Ok(())
}

/// Returns what was counted; `None` if nothing was asked for.
pub fn wakeups(source: &mut dyn Source) -> Result<Option<Arc<Wakeups>>, Failure> {
    source.wakeups().transpose().map(|wakeups| wakeups.map(Arc::new)).map_err(Failure::failed)
}
