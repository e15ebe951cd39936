//! Saved profiles: what goes in comes out, and of a damaged file what is sound.

mod day;

use sampletop::config::Format;
use sampletop::export;
use sampletop::model::settings::{Range, Settings};
use sampletop::model::snapshot::Snapshot;
use sampletop::saved;

fn rendered(snapshot: &Snapshot, settings: &Settings) -> Vec<Vec<u8>> {
    let render = |format: &Format| {
        let mut bytes = Vec::new();
        export::write(*format, snapshot, settings, &mut bytes).expect("memory takes it");
        bytes
    };
    Format::ALL.iter().map(render).collect()
}

#[test]
fn a_session_comes_back() {
    let snapshot = day::session(40, 300);
    let mut bytes = Vec::new();
    saved::write(&snapshot, &Settings::default(), &mut bytes).expect("memory takes it");
    let opened = saved::read(&bytes).expect("a profile");
    assert_eq!(opened.lost, None);
    for range in [Range::Rolling(7_000_000_000), Range::Cumulative { since: None }] {
        let settings = Settings { range, ..Settings::default() };
        assert!(rendered(&opened.snapshot, &settings) == rendered(&snapshot, &settings), "{range:?}");
    }
}
