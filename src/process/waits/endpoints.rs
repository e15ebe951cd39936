//! Sockets and pipes that processes of this host have open, and which of them are the two ends of
//! one connection. The program in endpoints.bpf.c lists them; its rows are decoded here.

use std::collections::{BTreeSet, HashMap};

/// Size of a row (`struct row` in endpoints.bpf.c), bytes.
pub const ROW: usize = 72;

/// Open for reading, for writing.
const READS: u8 = 1;
const WRITES: u8 = 2;

/// Maximum processes that are returned for one end.
pub const HOLDERS: usize = 64;

/// A process's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Holder {
    pub pid: u32,
    pub fd: i32,
}

/// A file that is a socket or an end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    pub inode: u64,
    pub what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    Inet(Connection),
    /// The inode of the socket that it is connected to, if any.
    Unix {
        peer: Option<u64>,
    },
    Pipe {
        device: u32,
        reads: bool,
        writes: bool,
    },
}

/// A connected internet socket; IPv4 as mapped addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Connection {
    /// Inode of the network namespace.
    pub namespace: u32,
    pub protocol: u8,
    pub local: ([u8; 16], u16),
    pub remote: ([u8; 16], u16),
}

impl Connection {
    /// Returns the connection as its peer sees it.
    fn reversed(self) -> Connection {
        Connection { local: self.remote, remote: self.local, ..self }
    }
}

/// Decodes rows; ignores those of no known kind, and an incomplete one at the end.
pub fn decode(bytes: &[u8]) -> impl Iterator<Item = (Holder, Endpoint)> + '_ {
    bytes.chunks_exact(ROW).filter_map(|row| {
        let row: &[u8; ROW] = row.try_into().ok()?;
        let holder = Holder { pid: u32_at(row, 52), fd: u32_at(row, 56).try_into().ok()? };
        let place = u32_at(row, 48);
        let what = match row[64] {
            1 => What::Inet(Connection {
                namespace: place,
                protocol: row[65],
                local: (address_at(row, 16), u16_at(row, 60)),
                remote: (address_at(row, 32), u16_at(row, 62)),
            }),
            2 => What::Unix { peer: Some(u64_at(row, 8)).filter(|peer| *peer != 0) },
            3 => What::Pipe {
                device: place,
                reads: row[66] & READS != 0,
                writes: row[66] & WRITES != 0,
            },
            _ => return None,
        };
        // A process without an id in our pid namespace cannot be named.
        (holder.pid != 0).then_some((holder, Endpoint { inode: u64_at(row, 0), what }))
    })
}

fn u16_at(row: &[u8; ROW], at: usize) -> u16 {
    u16::from_ne_bytes([row[at], row[at + 1]])
}

fn u32_at(row: &[u8; ROW], at: usize) -> u32 {
    u32::from(u16_at(row, at)) | u32::from(u16_at(row, at + 2)) << 16
}

fn u64_at(row: &[u8; ROW], at: usize) -> u64 {
    u64::from(u32_at(row, at)) | u64::from(u32_at(row, at + 4)) << 32
}

fn address_at(row: &[u8; ROW], at: usize) -> [u8; 16] {
    std::array::from_fn(|nth| row[at + nth])
}

/// What finds the other end of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    Inet(Connection),
    Unix(u64),
    /// Device, inode, and whether it is open for writing.
    Pipe(u32, u64, bool),
}

/// The sockets and pipes of one pass.
#[derive(Clone, Default, Debug)]
pub struct Endpoints {
    ends: HashMap<Key, Vec<Holder>>,
    of: HashMap<Holder, Endpoint>,
}

impl Endpoints {
    /// Adds rows, until there are `max` descriptors. Returns whether there is room for more.
    pub fn add(&mut self, rows: &[u8], max: usize) -> bool {
        for (holder, endpoint) in decode(rows) {
            if self.of.len() >= max {
                return false;
            }
            // Threads with descriptors of their own come after the process's first thread.
            self.of.entry(holder).or_insert(endpoint);
            let mut add = |key| self.ends.entry(key).or_default().push(holder);
            match endpoint.what {
                What::Inet(connection) => add(Key::Inet(connection)),
                What::Unix { .. } => add(Key::Unix(endpoint.inode)),
                What::Pipe { device, reads, writes } => {
                    for (open, writes) in [(reads, false), (writes, true)] {
                        if open {
                            add(Key::Pipe(device, endpoint.inode, writes));
                        }
                    }
                }
            }
        }
        true
    }

    /// Returns the number of descriptors.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns what was behind this descriptor.
    pub fn of(&self, holder: Holder) -> Option<Endpoint> {
        self.of.get(&holder).copied()
    }

    /// Returns the descriptors of other processes for the other end of `of`, which is a socket or
    /// pipe with this inode; at most [`HOLDERS`].
    pub fn others(&self, of: Holder, inode: u64) -> Vec<Holder> {
        let Some(endpoint) = self.of.get(&of).filter(|endpoint| endpoint.inode == inode) else {
            return Vec::new();
        };
        let keys = match endpoint.what {
            What::Inet(connection) => [Some(Key::Inet(connection.reversed())), None],
            What::Unix { peer } => [peer.map(Key::Unix), None],
            What::Pipe { device, reads, writes } => [(reads, true), (writes, false)]
                .map(|(is_open, writes)| is_open.then_some(Key::Pipe(device, inode, writes))),
        };
        let found = keys.into_iter().flatten().filter_map(|key| self.ends.get(&key)).flatten();
        let others: BTreeSet<Holder> =
            found.copied().filter(|holder| holder.pid != of.pid).collect();
        others.into_iter().take(HOLDERS).collect()
    }
}

impl Endpoints {
    /// Returns whether the process itself has the other end of this pipe, by another descriptor.
    pub fn is_own_pipe(&self, of: Holder, inode: u64) -> bool {
        let Some(Endpoint { what: What::Pipe { device, reads, writes }, .. }) =
            self.of.get(&of).filter(|endpoint| endpoint.inode == inode)
        else {
            return false;
        };
        let other = self.ends.get(&Key::Pipe(*device, inode, *reads));
        reads != writes && other.is_some_and(|other| other.iter().any(|end| end.pid == of.pid))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a row as the program writes it.
    pub fn row(holder: Holder, endpoint: Endpoint) -> [u8; ROW] {
        let mut bytes = Vec::new();
        bytes.extend(endpoint.inode.to_ne_bytes());
        let (kind, place, protocol, mode) = match endpoint.what {
            What::Inet(connection) => (1, connection.namespace, connection.protocol, 0),
            What::Unix { .. } => (2, 0, 0, 0),
            What::Pipe { device, reads, writes } => {
                (3, device, 0, u8::from(reads) | u8::from(writes) << 1)
            }
        };
        let none = ([0; 16], 0);
        let (local, remote) = match endpoint.what {
            What::Inet(connection) => (connection.local, connection.remote),
            _ => (none, none),
        };
        let peer = match endpoint.what {
            What::Unix { peer } => peer.unwrap_or(0),
            _ => 0,
        };
        bytes.extend(peer.to_ne_bytes());
        bytes.extend(local.0);
        bytes.extend(remote.0);
        for word in [place, holder.pid, holder.fd as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([local.1, remote.1].map(u16::to_ne_bytes).concat());
        bytes.extend([kind, protocol, mode, 0, 0, 0, 0, 0]);
        bytes.try_into().expect("the size of a row")
    }

    fn holder(pid: u32, fd: i32) -> Holder {
        Holder { pid, fd }
    }

    fn endpoints(all: &[(Holder, u64, What)]) -> Endpoints {
        let mut endpoints = Endpoints::default();
        for (holder, inode, what) in all {
            assert!(endpoints.add(&row(*holder, Endpoint { inode: *inode, what: *what }), 1000));
        }
        endpoints
    }

    fn inet(namespace: u32, local: u16, remote: u16) -> What {
        let localhost = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
        What::Inet(Connection {
            namespace,
            protocol: 6,
            local: (localhost, local),
            remote: (localhost, remote),
        })
    }

    #[test]
    fn rows_are_read_back() {
        let all = [
            (holder(7, 3), Endpoint { inode: 1 << 40, what: inet(1, 5432, 999) }),
            (holder(8, 0), Endpoint { inode: 5, what: What::Unix { peer: None } }),
            (holder(8, 1), Endpoint { inode: 6, what: What::Unix { peer: Some(5) } }),
            (
                holder(u32::MAX, i32::MAX),
                Endpoint { inode: 6, what: What::Pipe { device: 13, reads: false, writes: true } },
            ),
        ];
        let mut bytes: Vec<u8> = all.iter().flat_map(|(holder, end)| row(*holder, *end)).collect();
        assert_eq!(decode(&bytes).collect::<Vec<_>>(), all);
        // Another kind, a process that has no id here, a descriptor that is none, half a row.
        for (at, with) in [(64, &[4][..]), (52, &[0; 4]), (56, &[0xff; 4])] {
            let mut other = row(all[0].0, all[0].1);
            other[at..at + with.len()].copy_from_slice(with);
            bytes.extend(other);
        }
        bytes.extend(&row(all[0].0, all[0].1)[..ROW - 1]);
        assert_eq!(decode(&bytes).count(), all.len());
        assert_eq!(decode(&bytes[..ROW - 1]).count(), 0);
    }

    #[test]
    fn both_ends_of_a_pipe_in_one_process() {
        let pipe = |reads: bool| What::Pipe { device: 13, reads, writes: !reads };
        let found = endpoints(&[
            (holder(7, 3), 5, pipe(true)),
            (holder(7, 4), 5, pipe(false)),
            (holder(7, 5), 6, pipe(true)),
            (holder(8, 4), 6, pipe(false)),
            (holder(7, 6), 8, What::Pipe { device: 13, reads: true, writes: true }),
        ]);
        for (fd, inode, own) in [(3, 5, true), (4, 5, true), (5, 6, false), (6, 8, false)] {
            assert_eq!(found.is_own_pipe(holder(7, fd), inode), own, "{fd}");
        }
        assert!(!found.is_own_pipe(holder(7, 3), 9), "it is another pipe by now");
    }

    #[test]
    fn connections_are_matched_in_one_namespace() {
        let found = endpoints(&[
            (holder(1, 37), 10, inet(1, 999, 5432)),
            (holder(2, 8), 20, inet(1, 5432, 999)),
            // The same addresses elsewhere, and connections to others.
            (holder(3, 8), 30, inet(2, 5432, 999)),
            (holder(4, 8), 40, inet(1, 5432, 998)),
            (holder(5, 8), 50, inet(1, 999, 5432)),
        ]);
        assert_eq!(found.others(holder(1, 37), 10), [holder(2, 8)]);
        assert_eq!(found.others(holder(2, 8), 20), [holder(1, 37), holder(5, 8)]);
        assert_eq!(found.others(holder(3, 8), 30), []);
        // The descriptor was closed and opened again since, or it is not known.
        assert_eq!(found.others(holder(1, 37), 11), []);
        assert_eq!(found.others(holder(1, 38), 10), []);
        // TCP and UDP have the same numbers of ports.
        let What::Inet(connection) = inet(1, 5432, 999) else { unreachable!() };
        let udp = endpoints(&[
            (holder(1, 37), 10, inet(1, 999, 5432)),
            (holder(2, 8), 20, What::Inet(Connection { protocol: 17, ..connection })),
        ]);
        assert_eq!(udp.others(holder(1, 37), 10), []);
    }

    #[test]
    fn unix_sockets_are_matched_by_the_inode_of_the_peer() {
        let unix = |peer| What::Unix { peer: Some(peer) };
        let found = endpoints(&[
            (holder(1, 3), 10, unix(20)),
            (holder(2, 4), 20, unix(10)),
            // Workers that share the socket, and one that has it twice.
            (holder(3, 4), 20, unix(10)),
            (holder(3, 5), 20, unix(10)),
            // A datagram socket without a peer, to which another is connected.
            (holder(4, 1), 40, What::Unix { peer: None }),
            (holder(5, 1), 50, unix(40)),
            // A pipe of the same number.
            (holder(6, 1), 20, What::Pipe { device: 0, reads: true, writes: true }),
        ]);
        assert_eq!(found.others(holder(1, 3), 10), [holder(2, 4), holder(3, 4), holder(3, 5)]);
        assert_eq!(found.others(holder(2, 4), 20), [holder(1, 3)]);
        assert_eq!(found.others(holder(5, 1), 50), [holder(4, 1)]);
        assert_eq!(found.others(holder(4, 1), 40), []);
    }

    #[test]
    fn ends_of_pipes_are_matched_by_what_they_are_open_for() {
        let pipe = |device, reads, writes| What::Pipe { device, reads, writes };
        let found = endpoints(&[
            (holder(1, 1), 10, pipe(13, false, true)),
            (holder(1, 5), 10, pipe(13, true, false)),
            (holder(2, 0), 10, pipe(13, true, false)),
            (holder(3, 1), 10, pipe(13, false, true)),
            (holder(4, 9), 10, pipe(13, true, true)),
            // The same inode on another file system.
            (holder(5, 0), 10, pipe(14, true, false)),
        ]);
        assert_eq!(found.others(holder(1, 1), 10), [holder(2, 0), holder(4, 9)]);
        assert_eq!(found.others(holder(2, 0), 10), [holder(1, 1), holder(3, 1), holder(4, 9)]);
        assert_eq!(
            found.others(holder(4, 9), 10),
            [holder(1, 1), holder(1, 5), holder(2, 0), holder(3, 1)]
        );
    }

    #[test]
    fn a_pass_and_the_processes_of_one_end_have_limits() {
        let mut found = Endpoints::default();
        let unix = |peer| What::Unix { peer: Some(peer) };
        let rows: Vec<u8> = (2..500)
            .flat_map(|pid| row(holder(pid, 3), Endpoint { inode: 20, what: unix(10) }))
            .collect();
        assert!(found.add(&row(holder(1, 3), Endpoint { inode: 10, what: unix(20) }), 200));
        assert!(!found.add(&rows, 200));
        assert_eq!(found.len(), 200);
        assert_eq!(found.others(holder(1, 3), 10).len(), HOLDERS);
    }
}
