//! By what library a thread waits: `HikariDataSource.getConnection`, not the queue in which that
//! parks, nor the framework that called it.

use std::sync::Arc;

use super::filter::Verdicts;
use super::libraries::{is_standard, library};
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
    let mut entry: Option<&Arc<Location>> = None;
    for id in locations {
        let location = rows.location(id);
        match verdicts.of_location(id).role {
            Role::App => break,
            Role::Library if is_standard(location) => {}
            Role::Library => match entry {
                Some(inner) if library(inner) != library(location) => break,
                _ => entry = Some(location),
            },
            Role::Runtime | Role::Wait | Role::Kernel | Role::Marker => {}
        }
    }
    entry
}
