//! The built-in workload with known results: `sampletop demo` runs it in a child process of the
//! same program.
//!
//! | part | threads | what they do |
//! |---|---|---|
//! | `mixed` | `mixed-1..3` | functions named for their duration, half CPU, half asleep |
//! | `mass` | `mass-1..2` | call a tiny function 100 million times, again and again |
//! | `pool` | `pool-thread-1..40`, `pool-waker` | wait in epoll, futex, read and sleep; the first two are woken at random |
//! | `locks` | `locks-1..4` | want the same mutex; `locks-1` holds it too long |
//!
//! It uses no file and no network, and exits with its parent. On stdin it answers the line `truth`
//! with one line of JSON: its own measurements (see [`truth`]). The line `stop` ends it.

mod locks;
mod mass;
mod mixed;
mod pool;
mod truth;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Write};

use rustix::process::{DumpableBehavior, PTracer, Pid, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::config::{WORKLOAD_ARGUMENT, Workload};
use crate::exit_code::ExitCode;
use crate::process::launch::{Launch, LaunchError, LaunchOutput};
use truth::{Meter, Truth};

/// Prepares the workload as a held child of this process: this program again, without rights beyond
/// its caller's. Call it from a thread that lives as long as the session: the child is killed when
/// that thread exits.
pub fn launch(workload: Workload, output: LaunchOutput) -> Result<Launch, LaunchError> {
    let parent = std::process::id().to_string();
    let argv = ["sampletop-demo", WORKLOAD_ARGUMENT, workload.word(), &parent].map(OsString::from);
    // Not the path that started this process: an upgrade may have replaced that file.
    Launch::prepare_own(OsStr::new("/proc/self/exe"), &argv, output)
}

/// Runs as the child. `args` are the workload's name and the parent's pid, the arguments after
/// [`WORKLOAD_ARGUMENT`]. Returns the exit status, after the line `stop`.
pub fn child(args: &[OsString]) -> ExitCode {
    let text = |at: usize| args.get(at).and_then(|arg| arg.to_str());
    let workload = text(0).and_then(|word| Workload::ALL.into_iter().find(|w| w.word() == word));
    let parent = text(1).and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let (Some(workload), Some(parent)) = (workload, parent) else {
        eprintln!("{WORKLOAD_ARGUMENT} is started by `sampletop demo`, not by hand");
        return ExitCode::Usage;
    };
    if let Err(why) = tie_to(parent) {
        eprintln!("cannot tie the workload to its parent: {why}");
        return ExitCode::Failed;
    }
    let truth = Truth::default();
    if let Err(why) = start(workload, &truth) {
        eprintln!("cannot start the workload's threads: {why}");
        return ExitCode::Failed;
    }
    println!("ready");
    answer(&truth)
}

/// Ties this process to its parent: exits with it, lets it trace, and drops all extra rights.
fn tie_to(parent: Pid) -> Result<(), rustix::io::Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(rustix::io::Errno::SRCH); // the parent exited before the line above
    }
    // The child was started without this program's file capabilities; it needs none of the caller's
    // others either.
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    // For Yama's mode in which only declared tracers may attach; EINVAL where there is no Yama.
    let _ = rustix::process::set_ptracer(PTracer::ProcessID(parent));
    let _ = rustix::thread::set_name(c"sampletop-demo");
    Ok(())
}

fn start(workload: Workload, truth: &Truth) -> std::io::Result<()> {
    let wanted = |part| workload == Workload::All || workload == part;
    if wanted(Workload::Mixed) {
        mixed::start(truth)?;
    }
    if wanted(Workload::Mass) {
        mass::start(truth)?;
    }
    if wanted(Workload::Pool) {
        pool::start(truth)?;
    }
    if wanted(Workload::Locks) {
        locks::start(truth)?;
    }
    Ok(())
}

/// Serves stdin; at its end (it is /dev/null under `sampletop demo`) waits to be killed.
fn answer(truth: &Truth) -> ExitCode {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "truth" => {
                let mut out = std::io::stdout().lock();
                if writeln!(out, "{}", truth.json()).and_then(|()| out.flush()).is_err() {
                    return ExitCode::Failed;
                }
            }
            "stop" => return ExitCode::Success,
            other => eprintln!("unknown request {other:?}; known: truth, stop"),
        }
    }
    loop {
        std::thread::park();
    }
}

/// Starts a named thread of the workload, which measures itself. Returns when it runs and has its
/// name.
fn thread(
    truth: &Truth,
    name: &str,
    body: impl FnOnce(&Meter) + Send + 'static,
) -> std::io::Result<()> {
    let record = truth.thread(name);
    let (runs, wait) = std::sync::mpsc::sync_channel(0);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let meter = Meter::start(record);
        let _ = runs.send(());
        body(&meter);
    })?;
    let _ = wait.recv();
    Ok(())
}

/// Burns CPU for `$microseconds` of this thread's own CPU time, in the function that uses it. A
/// macro leaves nothing to inline, so every sample has that function as its innermost frame.
macro_rules! burn {
    ($microseconds:expr) => {{
        let until = $crate::clock::thread_cpu() + $microseconds as u64 * 1_000;
        let mut x = until;
        while $crate::clock::thread_cpu() < until {
            // About 30 us between readings of the clock, which is a system call.
            let mut turns = 20_000_u32;
            while turns > 0 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                turns -= 1;
            }
        }
        std::hint::black_box(x);
    }};
}
use burn;
