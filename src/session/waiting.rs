//! Finds out what threads wait for, on its own thread: reading the target's memory and files may
//! block.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::model::projection::waits::{Answer, Asked, Object, read_call};
use crate::process::waits::Waits;

/// Minimum interval between two readings of the threads.
const EVERY: Duration = Duration::from_secs(1);

/// Short waits, as those of a loop that writes, are over when they are looked up, but come again:
/// tries, their interval, and the maximum of waits that are tried again.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(5);
const TRIED_AGAIN: usize = 8;

/// At most one batch is with the thread, and at most one is queued: the newest. A blocked thread is
/// abandoned.
pub struct Waiting {
    batches: Sender<Vec<Asked>>,
    busy: bool,
    waiting: Option<Vec<Asked>>,
    due: Instant,
}

impl Waiting {
    /// Starts the thread. Pass every answer to [`Waiting::done`]. The thread ends when this is
    /// dropped, after its current batch.
    pub fn start(
        mut send: impl FnMut(Vec<Answer>) -> bool + Send + 'static,
    ) -> std::io::Result<Waiting> {
        let (batches, receiver) = channel::<Vec<Asked>>();
        std::thread::Builder::new().name("waits".into()).spawn(move || {
            let mut waits = Waits::default();
            for batch in receiver {
                if !send(observe(&mut waits, batch)) {
                    return;
                }
            }
        })?;
        Ok(Waiting { batches, busy: false, waiting: None, due: Instant::now() })
    }

    pub fn ask(&mut self, batch: Vec<Asked>, now: Instant) {
        self.waiting = Some(batch);
        self.go_on(now);
    }

    /// Notes that the thread has answered.
    pub fn done(&mut self, now: Instant) {
        self.busy = false;
        self.go_on(now);
    }

    /// Returns the time until [`Waiting::go_on`] has something to do; `None`: only a new event
    /// decides.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        let waits = !self.busy && self.waiting.is_some();
        waits.then(|| self.due.saturating_duration_since(now))
    }

    /// Sends the queued batch to the thread, if it is due.
    pub fn go_on(&mut self, now: Instant) {
        if self.busy || now < self.due {
            return;
        }
        if let Some(batch) = self.waiting.take() {
            self.busy = self.batches.send(batch).is_ok();
            self.due = now + EVERY;
        }
    }
}

/// Returns the answers of a batch.
fn observe(waits: &mut Waits, mut batch: Vec<Asked>) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::with_capacity(batch.len());
    for attempt in 0..=TRIES {
        if attempt > 0 {
            batch.retain(|asked| is_short(asked) && !is_answered(asked, &answers));
            batch.truncate(TRIED_AGAIN);
            if batch.is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        waits.observe_all(&batch, |answer| {
            answers.push(answer);
            true
        });
    }
    answers
}

fn is_answered(asked: &Asked, answers: &[Answer]) -> bool {
    answers.iter().any(|answer| answer.asked == *asked)
}

/// Returns whether the wait is for a file or socket, which most often is short.
fn is_short(asked: &Asked) -> bool {
    matches!(read_call(asked.call), Some((_, Object::Fd(_) | Object::Path(_))))
}

/// Returns the answers of one batch that arrive within `timeout`.
pub fn observe_once(batch: Vec<Asked>, timeout: Duration) -> Vec<Answer> {
    let (sender, answers): (_, Receiver<Answer>) = channel();
    let spawned = std::thread::Builder::new().name("waits".into()).spawn(move || {
        Waits::default().observe_all(&batch, |answer| sender.send(answer).is_ok());
    });
    let deadline = Instant::now() + timeout;
    let mut found = Vec::new();
    if spawned.is_ok() {
        // Ends when all answers have arrived and the sender is dropped.
        while let Ok(answer) =
            answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            found.push(answer);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::projection::waits::Lock;
    use crate::model::vocabulary::event::Syscall;
    use crate::model::vocabulary::frame::ThreadKey;

    /// Returns a request for a thread that cannot exist (PID_MAX_LIMIT is 2^22).
    fn unknown(tid: u32) -> Asked {
        let thread = ThreadKey { pid: 1 << 23, tid, start: 0 };
        Asked { thread, call: Syscall { number: 0, args: [0; 6] }, lock: Lock::No }
    }

    #[test]
    fn one_batch_a_second_and_of_those_that_wait_the_newest() {
        let (sender, answers) = channel();
        let mut waiting =
            Waiting::start(move |batch| sender.send(batch).is_ok()).expect("a thread");
        let now = Instant::now() + Duration::from_secs(1);
        waiting.ask(vec![unknown(1)], now);
        assert!(waiting.busy);
        waiting.ask(vec![unknown(2)], now);
        waiting.ask(vec![unknown(3)], now);
        assert_eq!(waiting.due_in(now), None);
        assert_eq!(answers.recv().expect("an answer"), vec![]);
        waiting.done(now);
        assert!(!waiting.busy);
        assert_eq!(waiting.waiting, Some(vec![unknown(3)]));
        assert_eq!(waiting.due_in(now), Some(EVERY));
        waiting.go_on(now + EVERY);
        assert!(waiting.busy && waiting.waiting.is_none());
    }

    #[test]
    fn observing_once_ends_with_the_last_answer() {
        let begun = Instant::now();
        assert_eq!(observe_once(vec![unknown(1)], Duration::from_secs(600)), vec![]);
        assert!(begun.elapsed() < Duration::from_secs(300), "it did not wait for its time to pass");
    }
}
