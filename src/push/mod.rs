//! Sends profiles to a server, and stores them while the server does not accept them.
//!
//! ```text
//! protocol  what `/ingest` accepts, and what its answers mean
//! spool     the queued profiles: files of one folder, bounded
//! backoff   when to retry
//! courier   sends one profile after the other from the spool; reports changes
//! client    HTTP and TLS
//! resolve   resolves server names, in a program without shared libraries
//! ```
//!
//! A finished profile is added to the spool, which takes as long as writing a file. A separate
//! thread, the only one that contacts the server, sends it from there.

mod backoff;
mod client;
mod courier;
mod protocol;
mod resolve;
mod spool;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher24;

use crate::config::Push;
use crate::sinks::file;
use client::Http;
use courier::{Courier, Moment, Next, lock};
pub use protocol::service;
use spool::{Request, Spool};

/// Maximum time for the server's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Maximum time at the end of a run for sending what is left.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The origin of the profiles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The reported service and host, where the labels do not override them.
    pub service: String,
    pub host: String,
    /// The service's true name. Profiles of one service wait in one folder, even if each run
    /// reports another (redacted) name.
    pub folder: String,
    /// Names are redacted: such profiles never share a folder with others.
    pub redacted: bool,
}

pub struct Pusher {
    shared: Arc<Shared>,
    labels: Vec<(String, String)>,
    /// The last profile was written to disk.
    written: bool,
    /// Number of profiles dropped to make room.
    displaced: u64,
    /// The overflow was reported, and not all queued profiles have been sent since.
    full: bool,
}

struct Shared {
    spool: Mutex<Spool>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Something was added since the courier's last check.
    added: bool,
    /// Set at the end of the run: the deadline of the last attempts.
    ends: Option<Instant>,
    ended: bool,
    sent: u64,
}

/// What became of all profiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub sent: u64,
    /// Stored for the next run.
    pub waiting: u64,
    pub dropped: u64,
    /// Some of the dropped profiles were in memory only.
    pub lost: bool,
}

impl Pusher {
    /// Opens the spool and starts the thread. Fails with one sentence if it cannot work.
    pub fn start(push: &Push, origin: &Origin) -> Result<Pusher, String> {
        let http = Http::new(push)?;
        let spool = Spool::open(&folder(push, origin)?, push.spool_bytes)?;
        let shared = Arc::new(Shared {
            spool: Mutex::new(spool),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let courier = Courier::new(http, push.endpoint.clone());
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("push".into())
            .spawn(move || thread.carry(courier))
            .map_err(|error| format!("cannot start a thread to push: {error}"))?;
        Ok(Pusher {
            shared,
            labels: labels(push, origin),
            written: true,
            displaced: 0,
            full: false,
        })
    }

    /// Queues a packed profile; `from` and `till` are ns since 1970.
    pub fn send(&mut self, body: Vec<u8>, from: i128, till: i128) {
        let request = Request { query: protocol::query(&self.labels, from, till), body };
        let mut spool = lock(&self.shared.spool);
        match spool.add(request) {
            Err(sentence) if self.written => {
                eprintln!("sampletop: {sentence}; profiles to push are kept in memory meanwhile");
                self.written = false;
            }
            Err(_) => {}
            Ok(()) => self.written = true,
        }
        let (displaced, waiting, place) =
            (spool.displaced(), spool.waiting(), file::shown(spool.path()));
        drop(spool);
        if displaced > self.displaced && !self.full {
            eprintln!(
                "sampletop: `{place}` is full: the oldest of its {waiting} profiles go from now on; `--push-spool-bytes` gives more room"
            );
            self.full = true;
        }
        self.full &= waiting > 1;
        self.displaced = displaced;
        lock(&self.shared.state).added = true;
        self.shared.changed.notify_all();
    }

    /// Ends the run: gives the server a few seconds to accept what is queued. The rest stays for
    /// the next run.
    pub fn end(self) -> Outcome {
        let ends = Instant::now() + END_WITHIN;
        let mut state = lock(&self.shared.state);
        state.ends = Some(ends);
        self.shared.changed.notify_all();
        while !state.ended {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(|dead| dead.into_inner())
                .0;
        }
        let sent = state.sent;
        drop(state);
        let spool = lock(&self.shared.spool);
        let in_memory = spool.in_memory();
        Outcome {
            sent,
            waiting: spool.waiting() - in_memory,
            dropped: spool.dropped() + in_memory,
            lost: in_memory > 0,
        }
    }
}

impl Shared {
    /// Runs the courier's thread.
    fn carry(&self, mut courier: Courier<Http>) {
        let begin = Instant::now();
        loop {
            let ends = {
                let mut state = lock(&self.state);
                state.added = false;
                state.sent = courier.sent();
                state.ends
            };
            let within = match ends {
                Some(ends) => ends.saturating_duration_since(Instant::now()),
                None => ANSWER_WITHIN,
            };
            if within.is_zero() {
                return self.over(&courier);
            }
            let moment =
                Moment { now: begin.elapsed(), within, chance: chance(), last: ends.is_some() };
            let next = courier
                .step(&self.spool, moment, &mut |sentence| eprintln!("sampletop: {sentence}"));
            match (next, ends) {
                (Next::Again, _) => {}
                (_, Some(_)) => return self.over(&courier),
                (Next::Idle, None) => self.wait(None),
                (Next::At(time), None) => self.wait(Some(begin + time)),
            }
        }
    }

    fn over(&self, courier: &Courier<Http>) {
        let mut state = lock(&self.state);
        state.sent = courier.sent();
        state.ended = true;
        self.changed.notify_all();
    }

    /// Waits until `till`, or, if nothing is queued, until something is added; at most until the
    /// end begins.
    fn wait(&self, till: Option<Instant>) {
        let mut state = lock(&self.state);
        while state.ends.is_none() {
            state = match till {
                Some(till) => {
                    let left = till.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    self.changed
                        .wait_timeout(state, left)
                        .unwrap_or_else(|dead| dead.into_inner())
                        .0
                }
                None if state.added => return,
                None => self.changed.wait(state).unwrap_or_else(|dead| dead.into_inner()),
            };
        }
    }
}

/// Returns a random number from 0 to 1.
fn chance() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1u64 << 53) as f64
}

fn labels(push: &Push, origin: &Origin) -> Vec<(String, String)> {
    let mut labels = push.labels.clone();
    for (key, value) in
        [(protocol::SERVICE, service(&origin.service)), ("host", protocol::value(&origin.host))]
    {
        if !value.is_empty() && !labels.iter().any(|(other, _)| other == key) {
            labels.push((key.into(), value));
        }
    }
    labels
}

/// Returns the spool's folder: profiles are only ever sent to the server and tenant they were meant
/// for.
fn folder(push: &Push, origin: &Origin) -> Result<PathBuf, String> {
    let base = push.spool.clone().or_else(|| Some(file::state_directory()?.join("push")));
    let base = base.ok_or(
        "there is no place for profiles that wait to be pushed: HOME is not set; name one with `--push-spool DIR`",
    )?;
    let named =
        push.labels.iter().find(|(key, _)| key == protocol::SERVICE).map(|(_, value)| value);
    let service = named.unwrap_or(&origin.folder);
    let redacted = if origin.redacted { "redacted" } else { "" };
    let mut hasher = SipHasher24::new();
    for part in [&push.endpoint, push.tenant.as_deref().unwrap_or_default(), service, redacted] {
        hasher.write(part.as_bytes());
        hasher.write_u8(0);
    }
    let host = push
        .endpoint
        .split_once("://")
        .map_or("", |(_, rest)| rest)
        .split(['/', ':'])
        .next()
        .unwrap_or_default();
    let host: String = host
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        .take(64)
        .collect();
    Ok(base.join(format!("{host}-{:016x}", hasher.finish())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(endpoint: &str, labels: &[(&str, &str)]) -> Push {
        Push {
            endpoint: endpoint.into(),
            token: None,
            tenant: None,
            labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            spool: Some("/spool".into()),
            spool_bytes: 1,
            alone: true,
        }
    }

    #[test]
    fn profiles_are_queued_apart_by_server_and_content() {
        let origin = |service: &str, redacted| Origin {
            service: "hash".into(),
            host: "h".into(),
            folder: service.into(),
            redacted,
        };
        let server = push("https://p.example:4040/ingest", &[]);
        let place = |push: &Push, origin: &Origin| folder(push, origin).expect("there is one");
        let first = place(&server, &origin("shop", false));
        assert!(
            first.to_str().is_some_and(|path| path.starts_with("/spool/p.example-")),
            "{first:?}"
        );
        assert_eq!(first, place(&server, &origin("shop", false)), "in the next run, too");
        let others = [
            place(&server, &origin("web", false)),
            place(&server, &origin("shop", true)),
            place(&push("https://p.example/ingest", &[]), &origin("shop", false)),
            place(&Push { tenant: Some("t".into()), ..server.clone() }, &origin("shop", false)),
            place(
                &push("https://p.example:4040/ingest", &[("service_name", "a")]),
                &origin("shop", false),
            ),
        ];
        assert!(!others.contains(&first));
        // A service label overrides the service.
        let named = push("https://p.example:4040/ingest", &[("service_name", "web")]);
        assert_eq!(place(&named, &origin("shop", false)), others[0]);
    }

    #[test]
    fn labels_that_are_given_count_more() {
        let origin = Origin {
            service: "/usr/bin/my app".into(),
            host: "a,b".into(),
            folder: "x".into(),
            redacted: false,
        };
        let pairs = |given: &[(&str, &str)]| labels(&push("http://p/ingest", given), &origin);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(pairs(&[]), [pair("service_name", "usr/bin/my-app"), pair("host", "a-b")]);
        assert_eq!(
            pairs(&[("host", "h"), ("service_name", "s")]),
            [pair("host", "h"), pair("service_name", "s")]
        );
    }

    #[test]
    fn chance_is_a_share() {
        let chances: Vec<f64> = (0..100).map(|_| chance()).collect();
        assert!(
            chances.iter().all(|chance| (0.0..1.0).contains(chance)) && chances[0] != chances[1]
        );
    }
}
