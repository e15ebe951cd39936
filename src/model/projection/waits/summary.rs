//! Summarizes many waits on one line, the most frequent first.

use std::collections::BTreeMap;

use super::{Peer, WaitsFor};

/// Maximum kinds of waits that are listed by object; more are listed only by call.
const APART: usize = 4;

/// Counts what these threads wait for. Waits for the same object are counted together, whatever the
/// descriptor (`recv fd.. -> 10.0.3.9:5432`), and so are connections to processes of one name
/// (`recv fd.. -> postgres (127.0.0.1:5432)`). If nearly all threads wait for different objects,
/// counts only the calls. The most frequent first, equal ones by text.
pub fn summary<'a>(waits: impl Iterator<Item = &'a WaitsFor>) -> Vec<(usize, String)> {
    let mut alike: BTreeMap<Key<'a>, Group<'a>> = BTreeMap::new();
    for wait in waits {
        let name = wait.peer.as_ref().and_then(Peer::common_name);
        let key = (wait.what, wait.object.as_str(), name);
        alike.entry(key).or_insert_with(|| Group::new(wait)).add(wait);
    }
    let single: Vec<Key<'a>> =
        alike.iter().filter(|(_, group)| group.count == 1).map(|(key, _)| *key).collect();
    if single.len() > APART {
        for key in single {
            let Some(group) = alike.remove(&key) else { continue };
            match alike.get_mut(&(key.0, "", None)) {
                Some(calls) => calls.join(&group),
                None => {
                    let calls = Group { object: "", peer: None, ..group };
                    drop(alike.insert((key.0, "", None), calls));
                }
            }
        }
    }
    let mut all: Vec<(usize, String)> =
        alike.values().map(|group| (group.count, group.text())).collect();
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    all
}

/// The call, the object, and the name of the process at the other end.
type Key<'a> = (&'static str, &'a str, Option<&'a str>);

struct Group<'a> {
    count: usize,
    what: &'static str,
    fd: Option<i32>,
    /// The descriptors differ.
    fds: bool,
    object: &'a str,
    /// What all peers have in common.
    peer: Option<Peer>,
    /// The processes at the other end differ.
    peers: bool,
}

impl<'a> Group<'a> {
    fn new(wait: &'a WaitsFor) -> Group<'a> {
        Group {
            count: 0,
            what: wait.what,
            fd: wait.fd,
            fds: false,
            object: &wait.object,
            peer: wait.peer.clone(),
            peers: false,
        }
    }

    fn add(&mut self, wait: &WaitsFor) {
        self.count += 1;
        self.fds |= self.fd != wait.fd;
        let (Some(peer), Some(other)) = (&mut self.peer, &wait.peer) else {
            self.peer = None;
            return;
        };
        self.peers |= peer.processes != other.processes;
        if peer.title != other.title {
            peer.title.clear();
        }
        peer.activity = peer.activity.filter(|activity| Some(*activity) == other.activity);
    }

    fn join(&mut self, other: &Group<'_>) {
        self.count += other.count;
        self.fds |= other.fds || self.fd != other.fd;
    }

    fn text(&self) -> String {
        let object = match &self.peer {
            Some(peer) if self.peers && peer.common_name().is_some() => {
                peer.unnumbered_with(self.object)
            }
            Some(peer) if !self.peers => peer.with(self.object),
            _ => self.object.to_owned(),
        };
        let (what, fd) = (self.what, self.fd.filter(|_| !self.fds));
        let wait = WaitsFor { what, fd, object, peer: None }.to_string();
        match wait.strip_prefix(what) {
            Some(rest) if self.fds => format!("{what} fd..{rest}"),
            _ => wait,
        }
    }
}
