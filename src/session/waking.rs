//! Counts who wakes threads, on its own thread: loading a program into the kernel may take long.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::model::vocabulary::wakeup::Wakeups;
use crate::process::wakeups::Counting;

/// Maximum time until the kernel has the program, or refuses it, and until its counts are read.
const WITHIN: Duration = Duration::from_secs(10);

/// What the thread reports.
#[derive(Debug)]
pub enum Progress {
    Begun,
    /// The counts, or one sentence. Nothing follows.
    Ended(Result<Wakeups, String>),
}

/// The thread counts while this exists, at most for its time. Then the kernel has the program no
/// longer.
pub struct Waking {
    /// Nothing is ever sent.
    _stop: Sender<()>,
}

/// Starts the thread, for wakeups of the threads of these processes.
pub fn start(
    processes: Vec<u32>,
    duration: Duration,
    mut report: impl FnMut(Progress) -> bool + Send + 'static,
) -> io::Result<Waking> {
    let (stop, stopped) = channel::<()>();
    std::thread::Builder::new().name("wakers".into()).spawn(move || {
        let counting = match Counting::begin(&processes) {
            Ok(counting) => counting,
            Err(refusal) => {
                report(Progress::Ended(Err(refusal.to_string())));
                return;
            }
        };
        if report(Progress::Begun) {
            // Ends with the time, or when the other end is dropped.
            let _ = stopped.recv_timeout(duration);
            report(Progress::Ended(counting.end().map_err(|refusal| refusal.to_string())));
        }
    })?;
    Ok(Waking { _stop: stop })
}

/// Counts for a run without a screen, which waits for the result.
pub struct TimedWaking {
    waking: Waking,
    progress: Receiver<Progress>,
}

impl TimedWaking {
    /// Returns once the kernel counts.
    pub fn begin(processes: Vec<u32>, duration: Duration) -> Result<TimedWaking, String> {
        let (sender, progress) = channel();
        let waking = start(processes, duration, move |told| sender.send(told).is_ok())
            .map_err(|error| format!("wakeups cannot be counted: no thread ({error})"))?;
        match progress.recv_timeout(WITHIN) {
            Ok(Progress::Begun) => Ok(TimedWaking { waking, progress }),
            Ok(Progress::Ended(Err(refusal))) => Err(refusal),
            Ok(Progress::Ended(Ok(_))) | Err(_) => Err(LATE.into()),
        }
    }

    /// Ends counting, if its time has not passed yet.
    pub fn end(self) -> Result<Wakeups, String> {
        drop(self.waking);
        match self.progress.recv_timeout(WITHIN) {
            Ok(Progress::Ended(counted)) => counted,
            Ok(Progress::Begun) | Err(_) => Err(LATE.into()),
        }
    }
}

const LATE: &str = "wakeups cannot be counted: the kernel does not answer within 10 s; try again";
