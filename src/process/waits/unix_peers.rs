//! The peer of a unix socket, from the kernel's sock_diag interface (/proc has no table of peers).
//!
//! Answers are for our own network namespace; another one cannot be queried without entering it.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::unix_name;

/// include/uapi/linux/sock_diag.h, unix_diag.h, netlink.h
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;

/// Lengths of `struct nlmsghdr` and of the `struct unix_diag_msg` behind it.
const HEADER: usize = 16;
const MESSAGE: usize = 16;

#[derive(Default)]
pub(super) struct Peers {
    /// The socket, and our network namespace; `Some(None)`: it cannot be opened.
    netlink: Option<Option<(OwnedFd, u64)>>,
    sequence: u32,
}

impl Peers {
    /// Returns the name of the other end of the socket `inode`, if it has one.
    pub(super) fn name(&mut self, namespace: u64, inode: u64) -> Option<String> {
        let inode = u32::try_from(inode).ok()?;
        let peer = attribute(&self.ask(namespace, inode, UDIAG_SHOW_PEER)?, inode, UNIX_DIAG_PEER)?;
        let peer = u32::from_ne_bytes(peer.try_into().ok()?);
        unix_name(&attribute(&self.ask(namespace, peer, UDIAG_SHOW_NAME)?, peer, UNIX_DIAG_NAME)?)
    }

    fn ask(&mut self, namespace: u64, inode: u32, show: u32) -> Option<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let (netlink, own) = self.netlink.get_or_insert_with(open).as_ref()?;
        if *own != namespace {
            return None;
        }
        let request = request(inode, show, self.sequence);
        sendto(netlink, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
        // The kernel answers before sendto returns.
        let mut answer = vec![0; 4096];
        loop {
            let (_, length) = recv(netlink, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
            if word(&answer[..length], 8)? == self.sequence {
                answer.truncate(length);
                return Some(answer);
            }
        }
    }
}

fn open() -> Option<(OwnedFd, u64)> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    let netlink = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )
    .ok()?;
    Some((netlink, namespace))
}

/// Builds `struct nlmsghdr` and `struct unix_diag_req` for one inode.
fn request(inode: u32, show: u32, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40);
    bytes.extend(40u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([1, 0, 0, 0]); // AF_UNIX
    bytes.extend(u32::MAX.to_ne_bytes()); // in any state
    bytes.extend(inode.to_ne_bytes());
    bytes.extend(show.to_ne_bytes());
    bytes.extend([0xff; 8]); // whatever its cookie
    bytes
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns an attribute of an answer about `inode`.
pub fn attribute(answer: &[u8], inode: u32, wanted: u16) -> Option<Vec<u8>> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || word(answer, HEADER + 4)? != inode {
        return None;
    }
    let length = (word(answer, 0)? as usize).min(answer.len());
    let mut rest = answer.get(HEADER + MESSAGE..length)?;
    while let Some(head) = rest.get(..4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) == wanted {
            return Some(value.to_vec());
        }
        // Attributes are aligned to 4 bytes.
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(inode: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + MESSAGE];
        bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        bytes[HEADER + 4..HEADER + 8].copy_from_slice(&inode.to_ne_bytes());
        for (kind, value) in attributes {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let length = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&length);
        bytes
    }

    #[test]
    fn attributes_are_found_behind_others_and_within_the_answer() {
        let whole = answer(7, &[(UNIX_DIAG_NAME, b"/run/x"), (UNIX_DIAG_PEER, &[9, 0, 0, 0])]);
        assert_eq!(attribute(&whole, 7, UNIX_DIAG_PEER), Some(vec![9, 0, 0, 0]));
        assert_eq!(attribute(&whole, 7, UNIX_DIAG_NAME), Some(b"/run/x".to_vec()));
        assert_eq!(attribute(&whole, 8, UNIX_DIAG_PEER), None);
        assert_eq!(attribute(&whole, 7, 5), None);
        for cut in 0..whole.len() {
            assert_eq!(attribute(&whole[..cut], 7, UNIX_DIAG_PEER), None, "{cut}");
        }
        // Attributes shorter than their own header.
        for length in 0..4u16 {
            let mut bad = answer(7, &[(1, &[])]);
            bad[HEADER + MESSAGE..HEADER + MESSAGE + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(attribute(&bad, 7, UNIX_DIAG_PEER), None);
        }
    }
}
