//! Projects the facts for the screen on its own thread: a long history must not delay keys and
//! drawing.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crate::app::projectors::Projectors;
use crate::app::{Input, Request};
use crate::clock;

/// Minimum pause between two readings of newer facts, in multiples of the last reading's CPU time:
/// at most 5 % of a core.
const REST: u32 = 20;
/// The same for the time `YOUNG` from the first answer on: the first rows are the most expensive
/// ones, and the user waits for their names.
const YOUNG_REST: u32 = 3;
const YOUNG: Duration = Duration::from_secs(1);

/// At most one request is with the thread, and at most one is queued: the newest.
pub struct Projecting {
    requests: Sender<Request>,
    /// The request being read: whether a key caused it.
    reading: Option<bool>,
    waiting: Option<Request>,
    /// When newer facts may be read again without a key.
    rested: Instant,
    /// When the first answer came.
    first: Option<Instant>,
}

/// An answer, and the CPU time it took.
pub struct Answer {
    pub input: Input,
    pub cost: Duration,
}

impl Projecting {
    /// Starts the thread. Pass every answer to [`Projecting::done`]. The thread ends when this is
    /// dropped, after its current request.
    pub fn start(
        mut send: impl FnMut(Answer) -> bool + Send + 'static,
    ) -> std::io::Result<Projecting> {
        let (requests, receiver) = channel::<Request>();
        std::thread::Builder::new().name("projector".into()).spawn(move || {
            let mut projectors = Projectors::default();
            for request in receiver {
                let before = cpu_time();
                let input = projectors.answer(request);
                if !send(Answer { input, cost: cpu_time().saturating_sub(before) }) {
                    return;
                }
            }
        })?;
        Ok(Projecting {
            requests,
            reading: None,
            waiting: None,
            rested: Instant::now(),
            first: None,
        })
    }

    /// Returns true while a key waits for its answer.
    pub fn is_urgent(&self) -> bool {
        self.reading == Some(true) || self.waiting.as_ref().is_some_and(|request| request.urgent)
    }

    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    pub fn ask(&mut self, request: Request, now: Instant) {
        // A request for newer facts also answers the key that the queued request was for.
        let before = self.waiting.take();
        let urgent = request.urgent || before.as_ref().is_some_and(|before| before.urgent);
        let spare = request.spare.or_else(|| before?.spare);
        self.waiting = Some(Request { urgent, spare, ..request });
        self.go_on(now);
    }

    /// Notes that the thread has answered.
    pub fn done(&mut self, cost: Duration, now: Instant) {
        self.reading = None;
        let is_young = now < *self.first.get_or_insert(now) + YOUNG;
        self.rested = now + cost * if is_young { YOUNG_REST } else { REST };
        self.go_on(now);
    }

    /// Returns the time until [`Projecting::go_on`] has something to do; `None`: only a new event
    /// decides.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        let waits = self.reading.is_none() && self.waiting.is_some();
        waits.then(|| self.rested.saturating_duration_since(now))
    }

    /// Sends the queued request to the thread, if it is due.
    pub fn go_on(&mut self, now: Instant) {
        if self.reading.is_some() {
            return;
        }
        if let Some(request) = self.waiting.take_if(|request| request.urgent || now >= self.rested)
        {
            let urgent = request.urgent;
            // Only a bug ends the thread earlier than this; then the screen keeps what it shows.
            self.reading = self.requests.send(request).is_ok().then_some(urgent);
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    Duration::from_nanos(clock::thread_cpu())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::model::facts::snapshot::Snapshot;
    use crate::model::projection::Projection;
    use crate::model::projection::settings::Settings;

    fn request(number: u64, urgent: bool) -> Request {
        let snapshot = Snapshot::made_up(0, &[]);
        let settings = Settings::default();
        Request {
            number,
            snapshot: Arc::new(snapshot),
            settings,
            against: None,
            trends: false,
            timeline: None,
            function: None,
            urgent,
            spare: None,
        }
    }

    fn started() -> (Projecting, Receiver<Answer>) {
        let (sender, answers) = channel();
        (Projecting::start(move |answer| sender.send(answer).is_ok()).expect("a thread"), answers)
    }

    fn number(answers: &Receiver<Answer>) -> u64 {
        match answers.recv().expect("an answer").input {
            Input::Projected(projected) => projected.request.number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn newer_facts_wait_three_times_the_cost_at_first_then_twenty_times_and_keys_do_not() {
        let (mut projecting, answers) = started();
        let begin = Instant::now();
        projecting.done(Duration::from_millis(30), begin);
        let now = begin + Duration::from_millis(999);
        projecting.done(Duration::from_millis(30), now);
        projecting.ask(request(0, false), now);
        assert_eq!(projecting.due_in(now), Some(Duration::from_millis(90)));
        projecting.go_on(now + Duration::from_millis(90));
        assert_eq!(number(&answers), 0);
        let now = begin + Duration::from_secs(1);
        projecting.done(Duration::ZERO, now);
        projecting.ask(request(1, false), now);
        assert_eq!(number(&answers), 1);
        projecting.done(Duration::from_millis(30), now);
        assert_eq!(projecting.due_in(now), None);
        projecting.ask(request(2, false), now);
        assert!(!projecting.is_reading() && !projecting.is_urgent());
        assert_eq!(projecting.due_in(now), Some(Duration::from_millis(600)));
        let later = now + Duration::from_millis(600);
        projecting.go_on(later);
        assert_eq!(number(&answers), 2);
        projecting.done(Duration::from_millis(30), later);
        projecting.ask(request(3, true), later);
        assert!(projecting.is_reading() && projecting.is_urgent());
        assert_eq!(number(&answers), 3);
    }

    #[test]
    fn a_spare_projection_is_not_lost_with_its_request() {
        let (mut projecting, answers) = started();
        let now = Instant::now();
        projecting.ask(request(1, true), now);
        let spare = Some(Box::new(Projection::nothing()));
        projecting.ask(Request { spare, ..request(2, true) }, now);
        projecting.ask(request(3, true), now);
        assert!(projecting.waiting.as_ref().is_some_and(|request| request.spare.is_some()));
        assert_eq!(number(&answers), 1);
    }

    #[test]
    fn of_those_that_wait_the_newest_counts() {
        let (mut projecting, answers) = started();
        let now = Instant::now();
        projecting.ask(request(1, true), now);
        projecting.ask(request(2, true), now);
        // Newer facts must not delay a key.
        projecting.ask(request(3, false), now);
        assert_eq!((projecting.due_in(now), number(&answers)), (None, 1));
        assert!(answers.try_recv().is_err());
        projecting.done(Duration::from_secs(1), now);
        assert_eq!(number(&answers), 3);
        projecting.done(Duration::ZERO, now);
        assert!(!projecting.is_reading() && !projecting.is_urgent());
    }
}
