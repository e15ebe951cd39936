//! What the shown threads were found to wait for in the course of the session, by place and object.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::fact_reader::Shown;
use super::filter::Verdicts;
use super::places::{Place, Places};
use super::rows::Rows;
use crate::model::facts::observed_waits::ObservedWait;
use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::StackId;
use crate::model::vocabulary::frame::ThreadKey;
use crate::model::vocabulary::peer::PeerProcess;
use crate::model::vocabulary::waits_for::WaitsFor;

/// Maximum waits of a range, those that were found most often.
const MAX_WAITS: usize = 20;

/// What threads wait for, as far as it is the same for all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommonObject {
    /// One of them.
    pub waits_for: WaitsFor,
    /// The processes at the other end differ, but not their names.
    pub several_peers: bool,
}

impl CommonObject {
    fn of(waits_for: &WaitsFor) -> CommonObject {
        CommonObject { waits_for: waits_for.clone(), several_peers: false }
    }

    /// Joins it with a wait for the same, through whatever descriptor.
    fn join(&mut self, other: &WaitsFor) {
        let ours = &mut self.waits_for;
        ours.fd = ours.fd.filter(|fd| Some(*fd) == other.fd);
        let (Some(peer), Some(other)) = (&mut ours.peer, &other.peer) else { return };
        self.several_peers |= peer.processes != other.processes;
        peer.activity = peer.activity.filter(|activity| Some(*activity) == other.activity);
        if peer.title != other.title {
            peer.title.clear();
        }
    }

    /// Returns what is waited for: `recv -> db[812] (10.0.3.9:5432)`, `wait4 child sleep[77] 3`.
    pub fn text(&self) -> String {
        match &self.waits_for {
            WaitsFor { what, fd, object, peer: Some(peer) } if self.several_peers => {
                let object = peer.unnumbered_with(object);
                WaitsFor { what, fd: *fd, object, peer: None }.to_string()
            }
            waits_for => waits_for.to_string(),
        }
    }
}

/// Returns what most of the waits are for, with the number of look-ups of each, and whether others
/// are for something else. `None` if there are none.
pub(super) fn most_common<'a>(
    waits: impl Iterator<Item = (u32, &'a WaitsFor)>,
) -> Option<(CommonObject, bool)> {
    let mut groups: BTreeMap<Object<'_>, (u32, CommonObject)> = BTreeMap::new();
    for (times, waits_for) in waits {
        let (count, common) = (groups.entry(Object::of(waits_for)))
            .or_insert_with(|| (0, CommonObject::of(waits_for)));
        *count = count.saturating_add(times);
        common.join(waits_for);
    }
    let others = groups.len() > 1;
    let most = groups.into_iter().reduce(|a, b| if b.1.0 > a.1.0 { b } else { a })?;
    Some((most.1.1, others))
}

/// What makes two waits one: the call, the object, and the name of the process at the other end.
/// Where its processes have several names, it is their ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Object<'a> {
    what: &'static str,
    object: &'a str,
    peer: Option<Result<&'a str, &'a [PeerProcess]>>,
}

impl Object<'_> {
    fn of(waits_for: &WaitsFor) -> Object<'_> {
        let peer = waits_for.peer.as_ref();
        let peer = peer.map(|peer| peer.common_name().ok_or(peer.processes.as_slice()));
        Object { what: waits_for.what, object: &waits_for.object, peer }
    }
}

/// Waits of shown threads in one place for one object.
#[derive(Clone, PartialEq, Debug)]
pub struct ObservedPlace {
    pub object: CommonObject,
    pub place: Place,
    pub threads: u32,
    /// Number of look-ups that found it.
    pub times: u32,
}

/// Returns what threads were found to wait for in stacks that are shown, the most frequent first.
pub(super) fn observed(
    (snapshot, rows, verdicts): (&Snapshot, &Rows, &Verdicts),
    shown: &Shown,
) -> Vec<ObservedPlace> {
    if snapshot.observed_waits.is_empty() {
        return Vec::new();
    }
    let cells = shown.cells.iter().filter(|cell| shown.is_shown(cell));
    let stacks: FxHashSet<StackId> = cells.map(|cell| cell.stack).collect();
    let threads: FxHashSet<&ThreadKey> = shown.threads.iter().collect();
    let is_shown = |wait: &&ObservedWait| {
        stacks.contains(&wait.stack)
            && threads.contains(&wait.thread)
            && (shown.from..=shown.till).contains(&wait.at)
    };
    let mut places = Places::new(snapshot, rows, verdicts);
    let mut sums = BTreeMap::new();
    for wait in snapshot.observed_waits.iter().filter(is_shown) {
        let key = (places.of(wait.stack), Object::of(&wait.waits_for));
        let (common, threads, times) = sums
            .entry(key)
            .or_insert_with(|| (CommonObject::of(&wait.waits_for), FxHashSet::default(), 0u32));
        common.join(&wait.waits_for);
        threads.insert(wait.thread);
        *times = times.saturating_add(wait.times);
    }
    let mut all: Vec<ObservedPlace> = (sums.into_iter())
        .map(|((place, _), (object, threads, times))| ObservedPlace {
            object,
            place: places.place(&place),
            threads: threads.len() as u32,
            times,
        })
        .collect();
    // Those alike stay in order.
    all.sort_by_key(|wait| std::cmp::Reverse((wait.times, wait.threads)));
    all.truncate(MAX_WAITS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::peer::{Peer, PeerActivity};

    fn wait(pid: u32, name: &str, fd: i32, object: &str) -> WaitsFor {
        let processes = vec![PeerProcess { name: name.into(), pid }];
        let peer = Peer { processes, activity: Some(PeerActivity::Runs), ..Peer::default() };
        WaitsFor { what: "recv", fd: Some(fd), object: object.into(), peer: Some(peer) }
    }

    #[test]
    fn waits_for_one_peer_are_one_whatever_their_descriptors() {
        let (a, b) = (wait(7, "db", 3, "-> h:5"), wait(7, "db", 4, "-> h:5"));
        let (common, others) = most_common([(1, &a), (1, &b)].into_iter()).expect("two");
        assert_eq!((common.text().as_str(), others), ("recv -> db[7], runs (h:5)", false));
        let of_one = most_common([(2, &a)].into_iter()).expect("one").0;
        assert_eq!(of_one.text(), "recv fd 3 -> db[7], runs (h:5)");
    }

    #[test]
    fn processes_of_one_name_lose_their_numbers() {
        let (a, b) = (wait(7, "db", 3, "-> h:5"), wait(8, "db", 3, "-> h:5"));
        let (common, others) = most_common([(1, &a), (1, &b)].into_iter()).expect("two");
        assert_eq!((common.text().as_str(), others), ("recv fd 3 -> db, runs (h:5)", false));
        let mut child = wait(7, "sleep", 0, "child");
        (child.what, child.fd) = ("wait4", None);
        let mut another = child.clone();
        another.peer.as_mut().expect("a peer").processes[0].pid = 9;
        let (common, _) = most_common([(1, &child), (1, &another)].into_iter()).expect("two");
        assert_eq!(common.text(), "wait4 child processes (sleep, runs)");
    }

    #[test]
    fn the_most_frequent_one_stands_for_all_and_others_are_said() {
        let (a, b) = (wait(7, "db", 3, "-> h:5"), wait(8, "web", 3, "-> h:6"));
        let (common, others) = most_common([(1, &a), (2, &b), (0, &a)].into_iter()).expect("two");
        assert_eq!((common.waits_for.object.as_str(), others), ("-> h:6", true));
        assert_eq!(most_common(std::iter::empty()), None);
    }
}
