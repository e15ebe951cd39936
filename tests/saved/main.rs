//! Saved profiles: writing and reading preserve everything; of a damaged file the sound part opens.

mod damaged;
mod day;
mod kept;
mod sessions;
mod spans;
mod views;

use proptest::prelude::*;
use sampletop::config::Format;
use sampletop::formats;
use sampletop::formats::saved::{self, NotAProfile};
use sampletop::model::facts::observed_waits::ObservedWait;
use sampletop::model::facts::snapshot::{Snapshot, ThreadNow};
use sampletop::model::facts::tables::{Blocker, BlockerId};
use sampletop::model::projection::settings::{Range, Settings};
use sampletop::model::vocabulary::event::Syscall;

fn written(snapshot: &Snapshot, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    saved::write(snapshot, settings, &mut bytes).expect("memory takes it");
    bytes
}

/// Renders every format's file, the saved one included, so everything that it holds.
fn rendered(snapshot: &Snapshot, settings: &Settings) -> Vec<Vec<u8>> {
    let render = |format: &Format| {
        let mut bytes = Vec::new();
        formats::write(*format, snapshot, settings, &mut bytes).expect("memory takes it");
        bytes
    };
    Format::ALL.iter().map(render).collect()
}

/// As it is kept: without what may be addresses.
fn without_addresses(call: Syscall) -> Syscall {
    Syscall { args: call.args.map(saved::shown_argument), ..call }
}

fn compare(opened: &Snapshot, snapshot: &Snapshot) {
    assert_eq!(opened.session, snapshot.session);
    assert_eq!(opened.targets, snapshot.targets);
    assert_eq!(
        (opened.at, &opened.capture, opened.health),
        (snapshot.at, &snapshot.capture, snapshot.health)
    );
    assert_eq!((&opened.notice, opened.stopped), (&snapshot.notice, snapshot.stopped));
    let kept = |now: &ThreadNow| ThreadNow { syscall: now.syscall.map(without_addresses), ..*now };
    assert_eq!(*opened.threads, snapshot.threads.iter().map(kept).collect::<Vec<_>>());
    let kept =
        |wait: &ObservedWait| ObservedWait { call: without_addresses(wait.call), ..wait.clone() };
    let waits = snapshot.observed_waits.iter().map(kept).collect::<Vec<_>>();
    assert_eq!(*opened.observed_waits, waits);
    assert_eq!(opened.wakeups, snapshot.wakeups);
    let buckets = |snapshot: &Snapshot| {
        let sealed =
            snapshot.history.sealed().iter().map(|b| (b.start, b.end, b.as_bytes().to_vec()));
        let open = snapshot.history.open();
        sealed.chain(open.map(|b| (b.start, b.end, b.as_bytes().to_vec()))).collect::<Vec<_>>()
    };
    assert_eq!(buckets(opened), buckets(snapshot));
    assert_eq!(opened.history.span(), snapshot.history.span());
    let spans = |snapshot: &Snapshot| {
        let spans = snapshot.history.spans();
        (spans.from(), spans.dropped(), spans::spans_since(snapshot, spans.from()))
    };
    assert_eq!(spans(opened), spans(snapshot));
    assert_eq!(opened.tables.builds(), snapshot.tables.builds());
    let blockers = |snapshot: &Snapshot| -> Vec<Blocker> {
        let ids = (1..=snapshot.tables.blocker_count()).map(|id| BlockerId(id as u32));
        ids.filter_map(|id| snapshot.tables.blocker(id).cloned()).collect()
    };
    assert_eq!(blockers(opened), blockers(snapshot));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_file_shows_what_the_session_did(
        seed in any::<u64>(),
        scan in 0usize..600,
        hours in any::<bool>(),
        views in prop::collection::vec(views::settings(), 1..6),
    ) {
        let snapshot = sessions::session(seed, scan, hours);
        let opened = saved::read(&written(&snapshot, &views[0])).expect("a profile");
        prop_assert_eq!(opened.lost, None);
        prop_assert_eq!(format!("{:?}", opened.settings), format!("{:?}", views[0]));
        compare(&opened.snapshot, &snapshot);
        for settings in &views {
            let (found, wanted) = (rendered(&opened.snapshot, settings), rendered(&snapshot, settings));
            for ((found, wanted), format) in found.iter().zip(&wanted).zip(Format::ALL) {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                prop_assert!(found == wanted, "{}:\n{}\n{}", format.word(), text(found), text(wanted));
            }
        }
    }
}

#[test]
fn a_day_is_small() {
    let snapshot = day::session(24 * 3600, 10_000);
    let bytes = written(&snapshot, &Settings::default());
    let facts: usize = snapshot.history.sealed().iter().map(|bucket| bucket.len()).sum();
    let held: usize = snapshot.history.sealed().iter().map(|bucket| bucket.bytes()).sum();
    println!("{facts} facts in {held} bytes of memory, {} of a file", bytes.len());
    assert!(
        snapshot.history.sealed().len() > 2_000 && facts > 3_000_000,
        "{facts} facts are less than a day has"
    );
    assert!(bytes.len() < 20_000_000, "{} bytes", bytes.len());
    let opened = saved::read(&bytes).expect("a profile");
    assert_eq!(opened.lost, None);
    compare(&opened.snapshot, &snapshot);
}

#[test]
fn an_empty_session_is_a_file_too() {
    let snapshot = sessions::snapshot();
    let opened = saved::read(&written(&snapshot, &Settings::default())).expect("a profile");
    assert_eq!(opened.lost, None);
    compare(&opened.snapshot, &snapshot);
}

#[test]
fn what_is_no_profile_gets_one_sentence() {
    let sentence = |bytes: &[u8]| saved::read(bytes).expect_err("no profile").to_string();
    for foreign in [&b""[..], b"\n", b"{\"schema\":\"sampletop/2\"}", &[0; 5000], &[0xff; 5000]] {
        assert_eq!(
            sentence(foreign),
            "this is not a sampletop profile; write one with `sampletop record -o NAME.sampletop`"
        );
    }
    let whole = written(&sessions::session(1, 50, false), &Settings::default());
    assert_eq!(
        sentence(&whole[..30]),
        "this profile is too damaged to be read; copy it again from where it was recorded"
    );
    // A file of a newer program: its format, its version, and unknown fields.
    let mut newer = saved::block::HEAD.to_vec();
    let mut session = vec![saved::FORMAT as u8 + 1, 3];
    session.extend(b"9.9 and more");
    saved::block::write(&mut newer, saved::kind::SESSION, &[&session]).expect("memory takes it");
    assert_eq!(
        saved::read(&newer).expect_err("newer"),
        NotAProfile::Newer { version: "9.9".into(), format: saved::FORMAT + 1 }
    );
    assert_eq!(
        sentence(&newer),
        "this profile was made by sampletop 9.9 in format 3, and this one reads up to format 2; open it with that version or a newer one"
    );
}

#[test]
fn blocks_of_unknown_kinds_are_passed_over() {
    let snapshot = sessions::session(5, 100, false);
    let whole = written(&snapshot, &Settings::default());
    let mut more = saved::block::HEAD.to_vec();
    for block in saved::block::blocks(&whole) {
        saved::block::write(&mut more, 4_000_000_000, &[b"what comes one day"])
            .expect("memory takes it");
        saved::block::write(&mut more, block.kind, &[&block.unpack().expect("sound")])
            .expect("memory takes it");
    }
    let opened = saved::read(&more).expect("a profile");
    assert_eq!(opened.lost, None);
    compare(&opened.snapshot, &snapshot);
    let settings = Settings { range: Range::Cumulative { since: None }, ..Settings::default() };
    assert!(rendered(&opened.snapshot, &settings) == rendered(&snapshot, &settings));
}
