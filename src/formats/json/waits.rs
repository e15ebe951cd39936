//! What threads were found to wait for, in JSON.

use serde::Serialize;

use crate::model::projection::ObservedPlace;

/// Waits in one place for one file, peer or child.
#[derive(Serialize)]
pub struct WaitLine<'a> {
    /// All of it: `recv fd 37 -> postgres[812] (127.0.0.1:5432)`.
    text: String,
    call: &'static str,
    /// The descriptor, if it was always the same.
    fd: Option<i32>,
    /// The file or address; `pipe`, `child`.
    object: &'a str,
    /// The processes at the other end, or the children.
    peers: Vec<PeerLine<'a>>,
    /// Number of look-ups that found it, and of threads.
    times: u32,
    threads: u32,
    /// Where, outermost first.
    functions: Vec<&'a str>,
}

#[derive(Serialize)]
struct PeerLine<'a> {
    /// `null` if the processes differ from wait to wait.
    pid: Option<u32>,
    name: &'a str,
}

impl<'a> WaitLine<'a> {
    pub fn new(wait: &'a ObservedPlace) -> WaitLine<'a> {
        let waits_for = &wait.object.waits_for;
        let processes = waits_for.peer.iter().flat_map(|peer| &peer.processes);
        let several = wait.object.several_peers;
        let peers = processes.map(|process| PeerLine {
            pid: (!several).then_some(process.pid),
            name: &process.name,
        });
        WaitLine {
            text: wait.object.text(),
            call: waits_for.what,
            fd: waits_for.fd,
            object: &waits_for.object,
            peers: peers.collect(),
            times: wait.times,
            threads: wait.threads,
            functions: wait.place.iter().map(|location| &*location.function).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::fixture;
    use crate::model::vocabulary::peer::{Peer, PeerProcess};

    #[test]
    fn the_number_of_a_process_is_told_if_it_is_one() {
        let mut wait = fixture::observed("-> 10.0.0.1:5432");
        let line = serde_json::to_string(&WaitLine::new(&wait)).expect("text");
        let expected = r#"{"text":"fsync fd 3 -> 10.0.0.1:5432","call":"fsync","fd":3,"object":"-> 10.0.0.1:5432","peers":[],"times":6,"threads":2,"functions":["commit","harden"]}"#;
        assert_eq!(line, expected);
        let processes = vec![PeerProcess { name: "db".into(), pid: 7 }];
        wait.object.waits_for.peer = Some(Peer { processes, ..Peer::default() });
        let peers =
            |wait: &ObservedPlace| serde_json::to_string(&WaitLine::new(wait).peers).expect("text");
        assert_eq!(peers(&wait), r#"[{"pid":7,"name":"db"}]"#);
        wait.object.several_peers = true;
        assert_eq!(peers(&wait), r#"[{"pid":null,"name":"db"}]"#);
    }
}
