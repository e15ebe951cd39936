//! What a blocked thread waits for, in words.

use std::fmt;

use super::peer::{Peer, PeerProcess};

/// The parts of `recv fd 37 -> 10.0.3.9:5432`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct WaitsFor {
    pub what: &'static str,
    pub fd: Option<i32>,
    /// May be empty.
    pub object: String,
    /// Who has the other end of the socket or pipe, on the same host; or the awaited children.
    pub peer: Option<Peer>,
}

impl WaitsFor {
    /// Returns whether both wait for the same, whatever the other end does.
    pub fn is_same(&self, other: &WaitsFor) -> bool {
        fn peer(waits: &WaitsFor) -> Option<(&[PeerProcess], bool)> {
            waits.peer.as_ref().map(|peer| (peer.processes.as_slice(), peer.writes))
        }
        (self.what, self.fd, &self.object) == (other.what, other.fd, &other.object)
            && peer(self) == peer(other)
    }

    /// Returns it without the address of a socket whose peer is known by name.
    pub fn without_address(&self) -> String {
        let is_pipe = ["pipe", "child", "any child"].contains(&self.object.as_str());
        let object = self.object.clone();
        let short = if self.peer.is_none() || is_pipe { object } else { String::new() };
        WaitsFor { object: short, ..self.clone() }.to_string()
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if let Some(fd) = self.fd {
            write!(f, " fd {fd}")?;
        }
        match &self.peer {
            Some(peer) => write!(f, " {}", peer.with(&self.object)),
            None if self.object.is_empty() => Ok(()),
            None => write!(f, " {}", self.object),
        }
    }
}
