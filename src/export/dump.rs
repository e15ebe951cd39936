//! Every thread's stack once.

use std::io::{self, Write};
use std::sync::Arc;

use crate::model::frame::{Ns, ThreadKey};
use crate::model::snapshot::{Session, Target};
use crate::model::state::State;
use crate::model::tables::Location;

/// What a dump says of one process and its threads.
#[derive(Clone, Debug)]
pub struct Dump {
    pub session: Arc<Session>,
    pub targets: Arc<[Target]>,
    /// When the last stack was taken, CLOCK_MONOTONIC.
    pub at: Ns,
    /// The way of capture, as the header names it.
    pub capture: Arc<str>,
    /// In the order they are written; text puts equal stacks together.
    pub threads: Vec<DumpThread>,
}

/// One thread as it was found.
#[derive(Clone, Debug)]
pub struct DumpThread {
    pub thread: ThreadKey,
    pub name: Arc<str>,
    pub state: State,
    /// CPU time since the thread's birth, ns.
    pub cpu_ns: u64,
    /// The stack is proven whole.
    pub complete: bool,
    /// rbp was recovered by searching for linked frame records.
    pub recovered: bool,
    /// Innermost first, inlined frames included; a stack that is not whole ends in a marker.
    pub frames: Vec<Location>,
}

/// For people: threads with equal stacks together.
pub fn write_text(dump: &Dump, out: &mut dyn Write) -> io::Result<()> {
    let _ = (dump, out);
    Ok(())
}

/// For scripts: schema `sampletop-dump/1`, one entry per thread.
pub fn write_json(dump: &Dump, out: &mut dyn Write) -> io::Result<()> {
    let _ = (dump, out);
    Ok(())
}
