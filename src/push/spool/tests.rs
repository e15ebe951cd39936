use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("ours");
    dir
}

/// Returns the nth request, `bytes` long.
fn request(nth: u64, bytes: usize) -> Request {
    let query = format!("name=n{nth:06}");
    let body = [vec![0x1f, 0x8b], vec![b'x'; bytes - query.len() - 3]].concat();
    Request { query, body }
}

fn open(dir: &Path, bytes_max: u64) -> Spool {
    Spool::open(dir, bytes_max).expect("it can be used")
}

/// Returns everything in the spool, in order.
fn drain(spool: &mut Spool) -> Vec<Request> {
    let mut all = Vec::new();
    while let Some((number, request)) = spool.oldest() {
        spool.sent(number);
        all.push(request);
    }
    all
}

fn files(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir)
        .expect("there")
        .map(|entry| entry.expect("readable").metadata().expect("there"));
    entries.map(|of| of.len()).sum()
}

#[test]
fn what_waits_is_there_in_the_next_run_and_comes_first() {
    let dir = folder();
    let mut spool = open(dir.path(), 1000);
    for nth in 0..3 {
        spool.add(request(nth, 100)).expect("written");
    }
    let mode = std::fs::metadata(spool.file(1)).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    drop(spool);
    let mut spool = open(dir.path(), 1000);
    spool.add(request(3, 100)).expect("written");
    assert_eq!(spool.waiting(), 4);
    let (number, first) = spool.oldest().expect("some");
    assert_eq!(spool.oldest(), Some((number, first)), "it waits until it is sent");
    assert_eq!(drain(&mut spool), (0..4).map(|nth| request(nth, 100)).collect::<Vec<_>>());
    assert_eq!((spool.waiting(), spool.dropped(), files(dir.path())), (0, 0, 0));
}

#[test]
fn two_do_not_share_one() {
    let dir = folder();
    let spool = open(dir.path(), 1000);
    let sentence = Spool::open(dir.path(), 1000).err().expect("it is taken");
    assert!(sentence.contains("another sampletop") && sentence.lines().count() == 1, "{sentence}");
    drop(spool);
    open(dir.path(), 1000);
}

#[test]
fn what_is_not_ours_stays_and_stops_nothing() {
    let dir = folder();
    let mut spool = open(dir.path(), 10_000);
    for nth in 0..6 {
        spool.add(request(nth, 100)).expect("written");
    }
    let victim = dir.path().join("victim");
    std::fs::write(&victim, request(9, 100).bytes()).expect("written");
    // Truncated, changed, replaced by a link and by a folder.
    std::fs::write(spool.file(1), &request(0, 100).bytes()[..12]).expect("written");
    std::fs::write(spool.file(2), [b'x'; 100]).expect("written");
    std::fs::remove_file(spool.file(3)).expect("removed");
    symlink(&victim, spool.file(3)).expect("linked");
    std::fs::remove_file(spool.file(4)).expect("removed");
    std::fs::create_dir(spool.file(4)).expect("made");
    for other in ["notes.txt", "1.ingest", "00000000000000x1.ingest", ".sampletop-1-1.tmp"] {
        std::fs::write(dir.path().join(other), "another's").expect("written");
    }
    assert_eq!(drain(&mut spool), [request(4, 100), request(5, 100)]);
    assert_eq!(spool.dropped(), 4, "four of ours are lost, and that is said");
    drop(spool);
    let mut spool = open(dir.path(), 10_000);
    assert_eq!(drain(&mut spool), []);
    for there in ["victim", "notes.txt", "1.ingest", "00000000000000x1.ingest"] {
        assert!(dir.path().join(there).exists(), "{there}");
    }
    assert!(
        !dir.path().join(".sampletop-1-1.tmp").exists(),
        "half a file of a run that was killed"
    );
}

#[test]
fn a_folder_of_others_is_refused() {
    let dir = folder();
    let open_to_all = dir.path().join("open");
    std::fs::create_dir(&open_to_all).expect("made");
    std::fs::set_permissions(&open_to_all, PermissionsExt::from_mode(0o777)).expect("changed");
    assert!(Spool::open(&open_to_all, 1).err().expect("refused").contains("others can write"));
    let link = dir.path().join("link");
    symlink(dir.path(), &link).expect("linked");
    assert!(Spool::open(&link, 1).is_err());
}

#[test]
fn where_the_disk_takes_nothing_memory_does() {
    let dir = folder();
    let mut spool = open(dir.path(), 1000);
    // Writing fails here even for root: there is a folder in the file's place.
    for number in 1..=2 {
        std::fs::create_dir(spool.file(number)).expect("made");
    }
    for nth in 0..2 {
        assert_eq!(spool.add(request(nth, 100)).expect_err("no disk").lines().count(), 1);
    }
    assert_eq!((spool.waiting(), spool.in_memory()), (2, 2));
    assert_eq!(spool.oldest().expect("it is in memory").1, request(0, 100));
    for number in 1..=2 {
        std::fs::remove_dir(spool.file(number)).expect("removed");
    }
    spool.add(request(2, 100)).expect("the disk is back");
    assert_eq!((spool.waiting(), spool.in_memory()), (3, 0));
    drop(spool);
    let mut spool = open(dir.path(), 1000);
    assert_eq!(drain(&mut spool), (0..3).map(|nth| request(nth, 100)).collect::<Vec<_>>());
}

#[test]
fn memory_has_a_bound_of_its_own() {
    let dir = folder();
    let mut spool = open(dir.path(), u64::MAX);
    let each = (MEMORY_MAX / 4) as usize;
    for number in 1..=6 {
        std::fs::create_dir(spool.file(number)).expect("made");
        spool.add(request(number, each)).expect_err("no disk");
    }
    assert_eq!((spool.in_memory(), spool.dropped()), (4, 2));
    assert_eq!(spool.oldest().expect("some").1, request(3, each), "the oldest went");
}

#[test]
fn one_that_was_sent_while_it_made_room_is_not_lost() {
    let dir = folder();
    let mut spool = open(dir.path(), 250);
    spool.add(request(0, 100)).expect("written");
    let (number, _) = spool.oldest().expect("it is on its way");
    for nth in 1..4 {
        spool.add(request(nth, 100)).expect("written");
    }
    assert_eq!(spool.dropped(), 2);
    spool.sent(number);
    assert_eq!((spool.waiting(), spool.dropped()), (2, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever is added and removed: the disk's limit holds, order is kept, the oldest are dropped
    /// first. Each request is sent, waits or was dropped.
    #[test]
    fn the_bound_holds_and_the_newest_are_kept(
        bytes_max in 50u64..2000,
        steps in proptest::collection::vec(prop_oneof![3 => (20usize..600).prop_map(Some), 1 => Just(None)], 1..40),
    ) {
        let dir = folder();
        let mut spool = open(dir.path(), bytes_max);
        let (mut added, mut expected): (u64, VecDeque<(u64, usize)>) = (0, VecDeque::new());
        let mut sent = 0;
        for (at, step) in steps.iter().enumerate() {
            match step {
                Some(bytes) => {
                    spool.add(request(added, *bytes)).expect("written");
                    expected.push_back((added, *bytes));
                    added += 1;
                    let fits = |kept: &VecDeque<(u64, usize)>| kept.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>() <= bytes_max;
                    while !fits(&expected) {
                        expected.pop_front();
                    }
                }
                None => {
                    let front = expected.pop_front();
                    let oldest = spool.oldest();
                    prop_assert_eq!(oldest.as_ref().map(|(_, request)| request.clone()), front.map(|(nth, bytes)| request(nth, bytes)));
                    if let Some((number, _)) = oldest {
                        spool.sent(number);
                        sent += 1;
                    }
                }
            }
            prop_assert!(files(dir.path()) <= bytes_max);
            prop_assert_eq!(spool.waiting(), expected.len() as u64);
            prop_assert_eq!(sent + spool.waiting() + spool.dropped(), added);
            if at == steps.len() / 2 {
                // After a restart the number of earlier drops is unknown.
                let dropped = spool.dropped();
                drop(spool);
                spool = open(dir.path(), bytes_max);
                spool.displaced = dropped;
            }
        }
        prop_assert_eq!(drain(&mut spool), expected.iter().map(|(nth, bytes)| request(*nth, *bytes)).collect::<Vec<_>>());
    }

    /// Any file content is no request, or one that is written back the same.
    #[test]
    fn any_bytes_are_read(bytes in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        ("name=[a-z%]{0,8}[ -~]{0,3}\n{0,1}", proptest::collection::vec(any::<u8>(), 0..8)).prop_map(|(text, rest)| [text.as_bytes(), &[0x1f, 0x8b], &rest].concat()),
    ]) {
        if let Some(request) = Request::of(&bytes) {
            prop_assert_eq!(request.bytes(), bytes);
            prop_assert!(!request.query.contains(|c: char| c.is_whitespace() || c.is_control()));
        }
    }
}
