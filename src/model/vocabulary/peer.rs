//! The other end of a socket or pipe, where it is on the same host; or the children that a thread
//! waits for.

use std::fmt;

/// Maximum processes that are listed.
const LISTED: usize = 4;

/// Processes that have the other end open.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Peer {
    /// At least one; several where they inherited the descriptor.
    pub processes: Vec<PeerProcess>,
    /// The end of a pipe from which they write to the waiting thread.
    pub writes: bool,
    pub activity: Option<PeerActivity>,
    /// What the process says that it does: `SELECT`, from PostgreSQL's title.
    pub title: String,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PeerProcess {
    /// The name of its first thread.
    pub name: String,
    pub pid: u32,
}

/// What the other end does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PeerActivity {
    /// It waits for this socket or pipe, too.
    WaitsToo,
    /// On a core, or runnable.
    Runs,
    /// Uninterruptible.
    Disk,
    Stopped,
    /// Blocked in another call.
    In(&'static str),
    /// It is the waiting process.
    Itself,
    /// It has not accepted the connection yet.
    NotAccepted,
    /// The connection is not made: this number of connections before it were not accepted yet.
    Full {
        connections: u32,
    },
}

impl PeerActivity {
    /// Returns whether this is why the thread waits, and not what the other end does just now.
    pub fn is_cause(self) -> bool {
        use PeerActivity::{Full, Itself, NotAccepted};
        matches!(self, Itself | NotAccepted | Full { .. })
    }
}

impl fmt::Display for PeerActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerActivity::WaitsToo => f.write_str("waits, too"),
            PeerActivity::Runs => f.write_str("runs"),
            PeerActivity::Disk => f.write_str("disk"),
            PeerActivity::Stopped => f.write_str("stopped"),
            PeerActivity::In(call) => write!(f, "in {call}"),
            PeerActivity::Itself => f.write_str("the process itself"),
            PeerActivity::NotAccepted => f.write_str("connection not accepted yet"),
            PeerActivity::Full { connections: 1 } => f.write_str("1 connection not accepted yet"),
            PeerActivity::Full { connections } => {
                write!(f, "{connections} connections not accepted yet")
            }
        }
    }
}

/// The processes, and what they do: `postgres[812] SELECT, runs`, `gunicorn[81,82]`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.listed())?;
        f.write_str(&self.doing())
    }
}

impl Peer {
    /// Formats what a thread waits for: `-> postgres[812] (127.0.0.1:5432)`. `object` describes the
    /// socket or pipe without its peer.
    pub fn with(&self, object: &str) -> String {
        between(object, &self.to_string(), self.writes)
    }

    /// As [`Peer::with`], without the ids of the processes.
    pub fn unnumbered_with(&self, object: &str) -> String {
        let name = self.common_name().unwrap_or_default();
        let who = format!("{name}{}", self.doing());
        match object {
            "child" => format!("child processes ({who})"),
            _ => between(object, &who, self.writes),
        }
    }

    /// Returns the name that all of its processes have.
    pub fn common_name(&self) -> Option<&str> {
        let name = self.processes.first()?.name.as_str();
        self.processes.iter().all(|process| process.name == name).then_some(name)
    }

    fn listed(&self) -> String {
        let listed = &self.processes[..self.processes.len().min(LISTED)];
        let named: Vec<String> = listed
            .chunk_by(|a, b| a.name == b.name)
            .map(|alike| {
                let pids: Vec<String> = alike.iter().map(|one| one.pid.to_string()).collect();
                format!("{}[{}]", alike[0].name, pids.join(","))
            })
            .collect();
        let more = if listed.len() < self.processes.len() { ", ..." } else { "" };
        named.join(", ") + more
    }

    fn doing(&self) -> String {
        let title = if self.title.is_empty() { "" } else { " " };
        let activity = self.activity.map(|activity| format!(", {activity}"));
        format!("{title}{}{}", self.title, activity.unwrap_or_default())
    }
}

/// Puts the peer before the address: the end of a line is cut first.
fn between(object: &str, peer: &str, writes: bool) -> String {
    match object {
        "pipe" if writes => format!("pipe <- {peer}"),
        "pipe" => format!("pipe -> {peer}"),
        "child" => format!("child {peer}"),
        "any child" => format!("any child: {peer}"),
        "" | "socket" => format!("-> {peer}"),
        _ => format!("-> {peer} ({})", object.strip_prefix("-> ").unwrap_or(object)),
    }
}
