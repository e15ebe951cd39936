//! What makes the blockers of waits one lock; also of Java objects that a collector moved, which
//! have several addresses, one after the other.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::model::facts::tables::Blocker;
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::Ns;

/// What makes two blockers one lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct LockKey {
    pub pid: u32,
    pub object: u64,
    pub kind: BlockerKind,
}

impl LockKey {
    pub fn of(blocker: &Blocker) -> LockKey {
        let Blocker { pid, object, kind, .. } = *blocker;
        LockKey { pid, object, kind }
    }
}

/// A lock as it is known at one address.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sighting {
    pub key: LockKey,
    /// It has a class, so it is an object; with where most of its waits are, by numbers.
    pub class_and_place: (String, Vec<u32>),
    /// The starts of its first and of its last wait.
    pub first: Ns,
    pub last: Ns,
}

/// Returns the newest address of each lock that has more than one. Objects of one class, for which
/// threads wait in one place, are one if no wait for the later one began before the last one for
/// the earlier: of several locks that are used in turn, waits alternate.
pub(super) fn moved(sightings: Vec<Sighting>) -> FxHashMap<LockKey, LockKey> {
    let mut alike: BTreeMap<_, Vec<Sighting>> = BTreeMap::new();
    for sighting in sightings {
        let is_object = matches!(sighting.key.kind, BlockerKind::Monitor | BlockerKind::OwnedLock);
        if is_object && sighting.key.object != 0 {
            let of = (sighting.key.pid, sighting.key.kind, sighting.class_and_place.clone());
            alike.entry(of).or_default().push(sighting);
        }
    }
    let mut moved = FxHashMap::default();
    for mut objects in alike.into_values().filter(|objects| objects.len() > 1) {
        objects.sort_by_key(|object| (object.first, object.key));
        let in_turn = objects.windows(2).all(|pair| pair[0].last < pair[1].first);
        let Some(newest) = objects.last().map(|object| object.key).filter(|_| in_turn) else {
            continue;
        };
        let older = objects.iter().filter(|object| object.key != newest);
        moved.extend(older.map(|object| (object.key, newest)));
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(object: u64, class: &str, first: Ns, last: Ns) -> Sighting {
        let key = LockKey { pid: 1, object, kind: BlockerKind::OwnedLock };
        Sighting { key, class_and_place: (class.into(), vec![7]), first, last }
    }

    fn addresses(sightings: &[Sighting]) -> Vec<(u64, u64)> {
        let moved = moved(sightings.to_vec());
        let mut pairs: Vec<_> = moved.iter().map(|(old, new)| (old.object, new.object)).collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn an_object_with_one_address_after_the_other_was_moved() {
        let one = [seen(16, "A", 10, 20), seen(32, "A", 21, 40), seen(48, "A", 50, 50)];
        assert_eq!(addresses(&one), [(16, 48), (32, 48)]);
        assert_eq!(addresses(&one[..1]), []);
    }

    #[test]
    fn locks_whose_waits_alternate_are_several() {
        assert_eq!(addresses(&[seen(16, "A", 10, 20), seen(32, "A", 20, 40)]), []);
        assert_eq!(addresses(&[seen(16, "A", 10, 20), seen(32, "B", 21, 40)]), []);
        let elsewhere =
            Sighting { class_and_place: ("A".into(), vec![8]), ..seen(32, "A", 21, 40) };
        assert_eq!(addresses(&[seen(16, "A", 10, 20), elsewhere]), []);
        let native = |object, first| {
            let sighting = seen(object, "A", first, first);
            let key = LockKey { kind: BlockerKind::Mutex, ..sighting.key };
            Sighting { key, ..sighting }
        };
        assert_eq!(addresses(&[native(16, 1), native(32, 2)]), [], "no collector moves it");
    }
}
