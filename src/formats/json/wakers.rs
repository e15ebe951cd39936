//! Who woke threads, in JSON.

use serde::Serialize;

use super::Rounded;
use crate::model::projection::{WakersPlace, Who, WokenBy, WokenThread, call_name};
use crate::model::vocabulary::wakeup::{Cost, Wakeups};

/// The wakeups of some seconds.
#[derive(Serialize)]
pub struct WakersLine<'a> {
    duration_ms: Rounded,
    counted: u64,
    lost: u64,
    /// Wakeups of all threads of the host: each costs CPU time while wakeups are counted.
    seen_of_host: u64,
    cost_ms: Rounded,
    /// The cost is computed from the number of wakeups: the kernel does not measure it.
    cost_is_estimated: bool,
    threads: Vec<WokenLine<'a>>,
}

#[derive(Serialize)]
struct WokenLine<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    woken: u64,
    by: Vec<WokenByLine<'a>>,
}

/// Who woke a thread. Without a process: an interrupt.
#[derive(Serialize)]
pub struct WokenByLine<'a> {
    /// `thread`, `process`: of another one, `hidden`, `kernel` or `interrupt`.
    kind: &'static str,
    pid: Option<u32>,
    tid: Option<u32>,
    name: Option<&'a str>,
    call: Option<String>,
    /// Functions in which the waker was seen to make such a call, the most frequent first.
    seen_in: Vec<&'a str>,
    /// Without those: where it spent most of its time.
    mostly_in: Option<&'a str>,
    count: u64,
}

impl<'a> WakersLine<'a> {
    pub fn new(wakeups: &Wakeups, threads: &'a [WokenThread]) -> WakersLine<'a> {
        let (Cost::Measured(cost) | Cost::Estimated(cost)) = wakeups.cost;
        WakersLine {
            duration_ms: Rounded::ms(wakeups.duration_ns),
            counted: wakeups.counted(),
            lost: wakeups.lost,
            seen_of_host: wakeups.seen,
            cost_ms: Rounded::ms(cost),
            cost_is_estimated: matches!(wakeups.cost, Cost::Estimated(_)),
            threads: threads
                .iter()
                .map(|thread| WokenLine {
                    pid: thread.woken.pid,
                    tid: thread.woken.tid,
                    name: &thread.name,
                    woken: thread.count,
                    by: thread.by.iter().map(WokenByLine::new).collect(),
                })
                .collect(),
        }
    }
}

impl<'a> WokenByLine<'a> {
    fn new(by: &'a WokenBy) -> WokenByLine<'a> {
        let (kind, pid, tid, name) = match &by.who {
            Who::Thread { pid, tid, name } => ("thread", Some(*pid), Some(*tid), Some(&**name)),
            // JSON names each thread.
            Who::Threads { name, .. } => ("threads", None, None, Some(&**name)),
            Who::Process { pid, name } => ("process", Some(*pid), None, Some(&**name)),
            Who::Hidden => ("hidden", None, None, None),
            Who::KernelThread { tid, name } => ("kernel", None, Some(*tid), Some(&**name)),
            Who::Interrupt => ("interrupt", None, None, None),
        };
        let (seen_in, mostly_in) = match &by.place {
            Some(WakersPlace::Calls(functions)) => {
                (functions.iter().map(|function| &*function.function).collect(), None)
            }
            Some(WakersPlace::Mostly(function)) => (Vec::new(), Some(&*function.function)),
            None => (Vec::new(), None),
        };
        WokenByLine {
            kind,
            pid,
            tid,
            name,
            call: by.call.map(|call| call_name(call).into_owned()),
            seen_in,
            mostly_in,
            count: by.count,
        }
    }
}
