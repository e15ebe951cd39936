//! Names of sockets by inode, from the tables in `/proc/PID/net` of the target's network namespace.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::accept_queues::{Pending, TcpSockets, endpoint, parse_tcp};
use super::unix_peers::Peers;
use super::{NAME_MAX, inet};
use crate::model::vocabulary::text::clean_bytes;

/// Maximum bytes read of each table: some 27,000 sockets.
const TABLE_BYTES: u64 = 4 << 20;
/// Minimum time between reads of the tables is a second, or this multiple of the time that the read
/// took: at most 2 % of a core.
const REST: u32 = 50;
/// Maximum network namespaces whose tables are cached.
const NAMESPACES: usize = 8;

/// Cached tables of sockets.
#[derive(Default)]
pub(super) struct Sockets {
    tables: HashMap<u64, Table>,
    peers: Peers,
}

struct Table {
    /// When the table may be read again.
    until: Instant,
    sockets: HashMap<u64, Socket>,
    tcp: TcpSockets,
}

/// A socket in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Socket {
    /// `-> 10.0.3.9:5432`, `:8080`.
    Inet(String),
    /// With the path it is bound to, if any.
    Unix(Option<String>),
}

impl Sockets {
    /// Returns the name of a thread's socket; `place` is `/proc/PID/task/TID`.
    pub(super) fn name(&mut self, place: &str, inode: u64) -> String {
        let Ok(namespace) = std::fs::metadata(format!("{place}/ns/net")).map(|of| of.ino()) else {
            return "socket".into();
        };
        match self.table(place, namespace).sockets.get(&inode) {
            Some(Socket::Inet(name) | Socket::Unix(Some(name))) => name.clone(),
            // Its own end is unnamed; the other end may have a name.
            Some(Socket::Unix(None)) => match self.peers.name(namespace, inode) {
                Some(name) => format!("-> {name}"),
                None => "unix socket".into(),
            },
            None => "socket".into(),
        }
    }

    /// Returns whether a thread's socket waits for its server to accept.
    pub(super) fn pending(&mut self, place: &str, inode: u64) -> Option<Pending> {
        let namespace = std::fs::metadata(format!("{place}/ns/net")).ok()?.ino();
        self.table(place, namespace).tcp.pending(inode)
    }

    fn table(&mut self, place: &str, namespace: u64) -> &Table {
        let now = Instant::now();
        if self.tables.len() >= NAMESPACES && !self.tables.contains_key(&namespace) {
            self.tables.clear();
        }
        let read = || {
            let (sockets, tcp) = read_tables(place);
            let until = now + (now.elapsed() * REST).max(Duration::from_secs(1));
            Table { until, sockets, tcp }
        };
        match self.tables.entry(namespace) {
            Entry::Occupied(entry) => {
                let table = entry.into_mut();
                if now >= table.until {
                    *table = read();
                }
                table
            }
            Entry::Vacant(entry) => entry.insert(read()),
        }
    }
}

fn read_tables(place: &str) -> (HashMap<u64, Socket>, TcpSockets) {
    let (mut sockets, mut tcp) = (HashMap::new(), TcpSockets::default());
    for (file, protocol) in [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")] {
        for line in read_lines(&format!("{place}/net/{file}")) {
            if let Some(socket) = parse_tcp(&line).filter(|_| protocol == "tcp") {
                tcp.add(socket);
            }
            if let Some((inode, name)) = parse_inet(&line, protocol) {
                sockets.entry(inode).or_insert(Socket::Inet(name));
            }
        }
    }
    // This table is last: a path can contain line breaks, and so look like the line of another
    // socket.
    let mut unix = HashMap::new();
    for line in read_lines(&format!("{place}/net/unix")) {
        if let Some((inode, path)) = parse_unix(&line) {
            // Where two lines describe one inode, one of them is forged.
            unix.entry(inode).and_modify(|path| *path = None).or_insert(path);
        }
    }
    for (inode, path) in unix {
        sockets.entry(inode).or_insert(Socket::Unix(path));
    }
    (sockets, tcp)
}

/// Returns the lines below the head, without one truncated by the cap.
fn read_lines(path: &str) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let Ok(file) = File::open(path) else { return Vec::new() };
    // What was read before an error is valid.
    let _ = file.take(TABLE_BYTES).read_to_end(&mut bytes);
    if bytes.len() as u64 == TABLE_BYTES {
        bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').unwrap_or(0));
    }
    bytes.split(|b| *b == b'\n').skip(1).map(<[u8]>::to_vec).collect()
}

/// Parses a line of `tcp`, `tcp6`, `udp` or `udp6`: inode, and the peer, or the listening address,
/// or the protocol (net/ipv4/tcp_ipv4.c, get_tcp4_sock).
pub fn parse_inet(line: &[u8], protocol: &str) -> Option<(u64, String)> {
    /// include/net/tcp_states.h
    const LISTEN: &str = "0A";
    let fields: Vec<&str> =
        std::str::from_utf8(line).ok()?.split_ascii_whitespace().take(10).collect();
    let [_, local, remote, state, .., inode] = fields[..] else { return None };
    let inode = inode.parse().ok().filter(|inode| fields.len() == 10 && *inode != 0)?;
    let (local, remote) = (endpoint(local)?, endpoint(remote)?);
    let name = match remote {
        (ip, port) if port != 0 => format!("-> {}", inet(ip, port)),
        // Also for a UDP socket that receives from every peer.
        _ if local.1 != 0 && (state == LISTEN || protocol == "udp") => inet(local.0, local.1),
        _ => protocol.to_owned(),
    };
    Some((inode, name))
}

/// Parses a line of `unix`: inode, and the path it is bound to, if any (net/unix/af_unix.c,
/// unix_seq_show).
pub fn parse_unix(line: &[u8]) -> Option<(u64, Option<String>)> {
    // Num: RefCount Protocol Flags Type St Inode Path; the path may contain any byte.
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        rest = after;
        field
    };
    let num = field();
    let inode = (0..6).map(|_| field()).last()?;
    let inode = std::str::from_utf8(inode).ok()?.parse().ok().filter(|inode| *inode != 0)?;
    if num.last() != Some(&b':') {
        return None;
    }
    let path = rest.strip_prefix(b" ").unwrap_or(rest);
    Some((inode, (!path.is_empty()).then(|| clean_bytes(path, NAME_MAX))))
}
