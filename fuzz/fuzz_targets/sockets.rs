//! What names the other end of a wait: tables of sockets, the kernel's answers about unix sockets,
//! addresses in the target's memory, lists of children and command lines. Input: lines of a table,
//! or one of the others.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use sampletop::process::waits::accept_queues::{Pending, TcpSocket, TcpSockets, parse_tcp};
use sampletop::process::waits::{address, children, parse_inet, parse_unix, unix_peers};
use sampletop_fuzz::{assert_clean, within};

/// include/net/tcp_states.h
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;
/// Maximum bytes of the name of a file or socket.
const NAME: usize = 300;
/// Maximum bytes that are read of an answer about a unix socket.
const ANSWER: usize = 4096;

fuzz_target!(|data: &[u8]| {
    within(500, || {
        tables(data);
        answer(&data[..data.len().min(ANSWER)]);
        if let Some(name) = address(data) {
            assert_clean(&name, NAME + 1);
        }
        let numbers = children::numbers(data);
        assert!(numbers.len() <= data.len().div_ceil(2));
        if let Some(arguments) = children::joined(data) {
            assert_clean(&arguments, 1024);
            assert!(arguments.chars().count() <= 43);
        }
    });
});

fn tables(text: &[u8]) {
    let mut table = TcpSockets::default();
    let mut sockets = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        for protocol in ["tcp", "udp"] {
            if let Some((inode, name)) = parse_inet(line, protocol) {
                assert!(inode != 0);
                assert_clean(&name, NAME);
            }
        }
        if let Some((inode, path)) = parse_unix(line) {
            assert!(inode != 0);
            assert_clean(path.as_deref().unwrap_or(""), NAME);
        }
        let Some(socket) = parse_tcp(line) else { continue };
        if let Some((inode, _)) = parse_inet(line, "tcp") {
            assert_eq!(inode, socket.inode);
        }
        assert_eq!(parse_tcp(written(&socket).as_bytes()), Some(socket));
        table.add(socket);
        sockets.push(socket);
    }
    for own in &sockets {
        if let Some(pending) = table.pending(own.inode) {
            proven(&sockets, own.inode, pending);
        }
    }
}

/// Panics unless the table has lines that say so. Where inodes or ends are there twice, any of them
/// may be meant.
fn proven(sockets: &[TcpSocket], inode: u64, pending: Pending) {
    let of_port = |own: &TcpSocket, listening: &TcpSocket| {
        listening.state == LISTEN && listening.local.1 == own.remote.1
    };
    let is_proof = |own: &&TcpSocket| match pending.before {
        None => {
            let is_other = |other: &TcpSocket| {
                (other.local, other.remote) == (own.remote, own.local)
                    && (other.state, other.inode) == (ESTABLISHED, 0)
            };
            own.state == ESTABLISHED && sockets.iter().any(is_other)
        }
        Some(before) => {
            let is_full = |listening: &TcpSocket| {
                of_port(own, listening) && listening.received == before && before > 0
            };
            own.state == SYN_SENT && sockets.iter().any(is_full)
        }
    };
    assert!(
        inode != 0 && sockets.iter().filter(|own| own.inode == inode).any(|own| is_proof(&own))
    );
    if let Some(listener) = pending.listener {
        let is_listener = |socket: &&TcpSocket| (socket.state, socket.inode) == (LISTEN, listener);
        assert!(sockets.iter().any(|socket| is_listener(&socket)));
    }
}

/// Writes a line as the kernel does.
fn written(socket: &TcpSocket) -> String {
    let end = |(ip, port): (IpAddr, u16)| {
        let bytes = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word));
        let words: String = words.map(|word| format!("{word:08X}")).collect();
        format!("{words}:{port:04X}")
    };
    let TcpSocket { local, remote, state, received, inode } = *socket;
    let (local, remote) = (end(local), end(remote));
    format!("0: {local} {remote} {state:02X} 00000000:{received:08X} 00:00000000 0 0 0 {inode} 1")
}

fn answer(bytes: &[u8]) {
    // The inode that it is about: the second word of `struct unix_diag_msg`.
    let Some(inode) = bytes.get(20..24).and_then(|bytes| bytes.try_into().ok()) else { return };
    let inode = u32::from_ne_bytes(inode);
    for wanted in 0..8 {
        if let Some(value) = unix_peers::attribute(bytes, inode, wanted) {
            assert!(value.is_empty() || bytes[36..].windows(value.len()).any(|of| of == value));
            assert_eq!(unix_peers::attribute(bytes, inode.wrapping_add(1), wanted), None);
        }
    }
}
