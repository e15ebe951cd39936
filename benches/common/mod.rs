//! What several benches need: the program under test, targets, figures of its threads, medians.
#![allow(dead_code)] // each of them uses a part of it

pub mod arguments;
pub mod figures;
pub mod redis;
pub mod targets;
pub mod terminal;
pub mod watcher;

#[path = "../../tests/common/running.rs"]
pub mod running;
