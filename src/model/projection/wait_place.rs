//! By what library a thread waits: `HikariDataSource.getConnection`, not the queue in which that
//! parks, nor the framework that called it.

use std::sync::Arc;

use super::filter::{NO_LIBRARY, Verdicts};
use super::rows::Rows;
use crate::model::facts::tables::{Location, StackId, Tables};
use crate::model::vocabulary::role::Role;

/// Returns the outermost function of the innermost library with which a blocked stack waits;
/// `None` where the user's own function waits.
pub(super) fn library_entry<'a>(
    tables: &Tables,
    rows: &'a Rows,
    verdicts: &Verdicts,
    stack: StackId,
) -> Option<&'a Arc<Location>> {
    let frames = tables.frames_innermost_first(stack);
    let locations = frames.flat_map(|frame| rows.of_frame(frame).iter().rev().copied());
    let mut entry = None;
    for id in locations {
        let verdict = verdicts.of_location(id);
        match entry {
            _ if verdict.role == Role::App => break,
            _ if verdict.library == NO_LIBRARY => {}
            Some((library, _)) if library != verdict.library => break,
            _ => entry = Some((verdict.library, rows.location(id))),
        }
    }
    entry.map(|(_, location)| location)
}
