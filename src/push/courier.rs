//! Sends queued profiles to the server, one after the other, and reports changes. Time comes from
//! the caller; only the server's answer blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::backoff::Backoff;
use super::client::{Answer, Server};
use super::protocol::{Verdict, verdict};
use super::spool::{Request, Spool};
use crate::sinks::file;

pub struct Courier<S> {
    server: S,
    endpoint: String,
    backoff: Backoff,
    /// Nothing is sent before this time.
    not_before: Duration,
    trouble: Option<Trouble>,
    /// A profile was refused, and none was accepted since.
    refused: bool,
    /// The oldest profile, if the server's answer left open whether the profile or the server is at
    /// fault, and none was accepted since.
    unproven: Option<u64>,
    /// A profile that was in doubt before the server accepted another one. One more refusal proves
    /// that the profile is at fault.
    suspect: Option<u64>,
    sent: u64,
}

/// A problem that is reported once, until it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    Passing,
    Barred,
}

/// The courier's next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// More profiles may be queued.
    Again,
    /// No profile is queued.
    Idle,
    /// Nothing before that time.
    At(Duration),
}

/// The moment of an attempt. `now` is relative to any fixed start, `chance` is from 0 to 1, an
/// answer may take `within`.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: Duration,
    pub within: Duration,
    pub chance: f64,
    /// The last attempt: pauses are ignored.
    pub last: bool,
}

impl<S: Server> Courier<S> {
    pub fn new(server: S, endpoint: String) -> Courier<S> {
        Courier {
            server,
            endpoint,
            backoff: Backoff::default(),
            not_before: Duration::ZERO,
            trouble: None,
            refused: false,
            unproven: None,
            suspect: None,
            sent: 0,
        }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends the oldest profile if it is due. If that one is in doubt, sends the newest to find out
    /// whether the server accepts any.
    pub fn step(
        &mut self,
        spool: &Mutex<Spool>,
        moment: Moment,
        report: &mut dyn FnMut(String),
    ) -> Next {
        // The lock is released during the request, so that adding never waits for the server.
        let Some((number, request)) = self.choose(&mut lock(spool)) else { return Next::Idle };
        if moment.now < self.not_before && !moment.last {
            return Next::At(self.not_before);
        }
        let Request { query, body } = &request;
        match self.server.post(query, body, moment.within) {
            Answer::Failed(why) => self.later(spool, moment, None, why, report),
            Answer::Said { status, retry_after, words } => {
                let said = match words.is_empty() {
                    true => format!("it answers {status}"),
                    false => format!("it answers {status}: {words}"),
                };
                match verdict(status, &words) {
                    Verdict::Taken => {
                        lock(spool).sent(number);
                        self.sent += 1;
                        self.suspect = self
                            .unproven
                            .take()
                            .filter(|unproven| *unproven != number)
                            .or(self.suspect);
                        self.recovered(spool, report);
                        self.refused = false;
                        Next::Again
                    }
                    Verdict::Barred => self.barred(spool, moment, status, said, report),
                    Verdict::Later => self.later(spool, moment, retry_after, said, report),
                    Verdict::Unclear if self.suspect != Some(number) => {
                        // The first such answer may be the profile's fault. If the next profile
                        // gets one too, the server has the problem.
                        match self.unproven.replace(self.unproven.unwrap_or(number)) {
                            None => {
                                let pause = self.backoff.failed(retry_after, moment.chance);
                                self.pause(moment, pause)
                            }
                            Some(_) => self.later(spool, moment, retry_after, said, report),
                        }
                    }
                    Verdict::Unclear | Verdict::Unfit => {
                        lock(spool).unfit(number);
                        self.recovered(spool, report);
                        if !std::mem::replace(&mut self.refused, true) {
                            report(format!(
                                "{} does not take a profile, which is dropped: {said}",
                                self.endpoint
                            ));
                        }
                        Next::Again
                    }
                }
            }
        }
    }

    fn choose(&self, spool: &mut Spool) -> Option<(u64, Request)> {
        let oldest = spool.oldest()?;
        match self.unproven == Some(oldest.0) {
            true => spool.newest(),
            false => Some(oldest),
        }
    }

    fn later(
        &mut self,
        spool: &Mutex<Spool>,
        moment: Moment,
        asked: Option<Duration>,
        why: String,
        report: &mut dyn FnMut(String),
    ) -> Next {
        if self.trouble.replace(Trouble::Passing) != Some(Trouble::Passing) {
            let place = file::shown(lock(spool).path());
            report(format!(
                "cannot push to {}: {why}; profiles wait in `{place}`, sampling goes on",
                self.endpoint
            ));
        }
        // What the server accepted earlier proves nothing about its present state.
        self.suspect = None;
        let pause = self.backoff.failed(asked, moment.chance);
        self.pause(moment, pause)
    }

    fn barred(
        &mut self,
        spool: &Mutex<Spool>,
        moment: Moment,
        status: u16,
        why: String,
        report: &mut dyn FnMut(String),
    ) -> Next {
        if self.trouble.replace(Trouble::Barred) != Some(Trouble::Barred) {
            let place = file::shown(lock(spool).path());
            let fix = match status {
                401 | 403 | 407 => "see to the token, `--push-token-file` or SAMPLETOP_PUSH_TOKEN",
                _ => "see to the address behind `--push`",
            };
            report(format!(
                "{} takes no profiles: {why}; {fix}; they wait in `{place}`, sampling goes on",
                self.endpoint
            ));
        }
        self.suspect = None;
        let pause = self.backoff.barred(moment.chance);
        self.pause(moment, pause)
    }

    fn pause(&mut self, moment: Moment, pause: Duration) -> Next {
        self.not_before = moment.now + pause;
        Next::At(self.not_before)
    }

    /// Notes that the server is reachable and processes requests.
    fn recovered(&mut self, spool: &Mutex<Spool>, report: &mut dyn FnMut(String)) {
        self.backoff.succeeded();
        self.not_before = Duration::ZERO;
        if self.trouble.take().is_some() {
            let spool = lock(spool);
            let dropped = match spool.dropped() {
                0 => String::new(),
                dropped => format!(", {dropped} were dropped"),
            };
            report(format!("profiles are pushed again; {} are waiting{dropped}", spool.waiting()));
        }
    }
}

/// Locks, ignoring poison: a thread that panicked left nothing half done, as each change of a spool
/// is one of a list.
pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
