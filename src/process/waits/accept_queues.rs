//! Connections within this host that their server has not accepted yet, by the tables of TCP
//! sockets.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use super::numbered;

/// include/net/tcp_states.h
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;

/// Maximum processes and descriptors that are searched for a listening socket: about 60 ms.
const PROCESSES: usize = 4096;
const DESCRIPTORS: usize = 1 << 16;
/// Time for which the process of a listening socket is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);

/// An address and a port.
type End = (IpAddr, u16);

/// A line of `tcp` or `tcp6`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSocket {
    pub local: End,
    pub remote: End,
    pub state: u8,
    /// Bytes that the process has not read; of a listening socket, connections not accepted.
    pub received: u32,
    /// 0: no process has it. Nor will one if it has been closed; but then it is not established.
    pub inode: u64,
}

/// Parses a line of `tcp` or `tcp6` (net/ipv4/tcp_ipv4.c, get_tcp4_sock).
pub fn parse_tcp(line: &[u8]) -> Option<TcpSocket> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    let (local, remote) = (endpoint(fields.next()?)?, endpoint(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let (_, received) = fields.next()?.split_once(':')?;
    let received = u32::from_str_radix(received, 16).ok()?;
    let inode = fields.nth(4)?.parse().ok()?;
    let plain = |(ip, port): End| (ip.to_canonical(), port);
    Some(TcpSocket { local: plain(local), remote: plain(remote), state, received, inode })
}

/// Parses `0100007F:1F90`: the address as 32-bit words of this machine's byte order, the port as a
/// number.
pub(super) fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        Some(u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes())
    };
    match address.len() {
        8 => Some((IpAddr::from(word(0)?), port)),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[4 * at..4 * at + 4].copy_from_slice(&word(at)?);
            }
            Some((IpAddr::from(bytes), port))
        }
        _ => None,
    }
}

/// A connection that waits for its server to accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The inode of the listening socket, if it is in the table.
    pub listener: Option<u64>,
    /// Number of connections that were not accepted, if this one is not among them: it finds no
    /// room there.
    pub before: Option<u32>,
}

/// The TCP sockets of a network namespace.
#[derive(Default)]
pub struct TcpSockets {
    by_inode: HashMap<u64, TcpSocket>,
    /// Those without a process, by their local and remote ends.
    without_process: HashMap<(End, End), TcpSocket>,
    listening: Vec<TcpSocket>,
}

impl TcpSockets {
    pub fn add(&mut self, socket: TcpSocket) {
        if socket.state == LISTEN {
            self.listening.push(socket);
        } else if socket.inode == 0 {
            self.without_process.insert((socket.local, socket.remote), socket);
        } else {
            self.by_inode.insert(socket.inode, socket);
        }
    }

    /// Returns whether a process's socket waits for the server's process to accept.
    pub fn pending(&self, inode: u64) -> Option<Pending> {
        let own = self.by_inode.get(&inode)?;
        let is_for = |listening: &&TcpSocket| {
            let (ip, port) = listening.local;
            port == own.remote.1 && (ip == own.remote.0 || ip.is_unspecified())
        };
        let listening = self.listening.iter().find(is_for);
        let listener = listening.map(|socket| socket.inode);
        match own.state {
            ESTABLISHED => {
                let other = self.without_process.get(&(own.remote, own.local))?;
                (other.state == ESTABLISHED).then_some(Pending { listener, before: None })
            }
            // Another host may have this port, too.
            SYN_SENT if own.remote.0.is_loopback() || own.remote.0 == own.local.0 => {
                let before = listening?.received;
                (before > 0).then_some(Pending { listener, before: Some(before) })
            }
            _ => None,
        }
    }
}

/// Finds the processes of listening sockets.
#[derive(Default)]
pub(super) struct Listeners(HashMap<u64, (Instant, Option<u32>)>);

impl Listeners {
    /// Returns the first process that has this socket, among those whose descriptors we may read.
    pub fn process(&mut self, inode: u64) -> Option<u32> {
        let now = Instant::now();
        self.0.retain(|_, (until, _)| now < *until);
        let (_, pid) = self.0.entry(inode).or_insert_with(|| (now + REMEMBERED, search(inode)));
        *pid
    }
}

fn search(inode: u64) -> Option<u32> {
    let mut left = DESCRIPTORS;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids = pids.take(PROCESSES);
    pids.find(|pid| {
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let mut fds = fds.flatten().take(left);
        fds.any(|fd| {
            left = left.saturating_sub(1);
            let link = fs::read_link(fd.path());
            link.is_ok_and(|link| numbered(link.as_os_str().as_bytes(), b"socket:[") == Some(inode))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two accepted or waiting connections to a server at port 25777, as the kernel lists them.
    const TABLE: &str = "\
   0: 0100007F:64B1 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 986888 4 0 100 0 0 10 0
   2: 0100007F:64B1 0100007F:DB70 01 00000000:00000007 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0100007F:DB70 0100007F:64B1 01 00000000:00000000 00:00000000 00000000     0        0 986890 1 0 20 0 0 11 -1
   5: 0100007F:DB7C 0100007F:64B1 01 00000000:00000000 00:00000000 00000000     0        0 986891 1 0 20 0 0 11 -1
   6: 0100007F:DB7E 0100007F:64B1 02 00000001:00000000 01:000000BE 00000005     0        0 986892 2 0 200 0 0 1 -1
  10: 0100007F:64B1 0100007F:DB7C 01 00000000:00000007 00:00000000 00000000     0        0 77 1 0 20 4 30 10 -1
";

    fn sockets(change: impl Fn(&str) -> String) -> TcpSockets {
        let mut sockets = TcpSockets::default();
        for line in TABLE.lines() {
            sockets.add(parse_tcp(change(line).as_bytes()).expect("a socket"));
        }
        sockets
    }

    #[test]
    fn connections_that_no_process_has_are_not_accepted() {
        let found = sockets(str::to_owned);
        let listener = Some(986_888);
        assert_eq!(found.pending(986_890), Some(Pending { listener, before: None }));
        assert_eq!(found.pending(986_891), None, "a process has its other end");
        assert_eq!(found.pending(986_892), Some(Pending { listener, before: Some(3) }));
        assert_eq!(found.pending(1), None);
    }

    #[test]
    fn other_states_prove_nothing() {
        // The server's process has closed it.
        let closed = sockets(|line| line.replace("DB70 01 ", "DB70 05 "));
        assert_eq!(closed.pending(986_890), None);
        let has_room = sockets(|line| line.replace("00000000:00000003", "00000000:00000000"));
        assert_eq!(has_room.pending(986_892), None);
        // The port of another host.
        let far = sockets(|line| {
            line.replace("DB7E 0100007F", "DB7E 0903000A").replace("0: 0100007F", "0: 00000000")
        });
        assert_eq!(far.pending(986_892), None);
        let no_listener =
            sockets(|line| line.replace(":64B1 00000000:0000", ":64B2 00000000:0000"));
        assert_eq!(no_listener.pending(986_892), None);
        let pending = Some(Pending { listener: None, before: None });
        assert_eq!(no_listener.pending(986_890), pending);
    }

    #[test]
    fn lines_that_are_no_sockets() {
        let line = TABLE.lines().next().expect("a line");
        assert!(parse_tcp(line.as_bytes()).is_some());
        for end in 0..line.find("986888").expect("its inode") {
            assert_eq!(parse_tcp(&line.as_bytes()[..end]), None);
        }
        assert_eq!(parse_tcp(line.replace("0A", "XX").as_bytes()), None);
        assert_eq!(parse_tcp(line.replace("64B1", "164B1").as_bytes()), None);
    }
}
