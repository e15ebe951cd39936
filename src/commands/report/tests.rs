//! Reports over hours of a simulated clock, of a process with one waiting thread.

use std::time::Duration;

use super::*;
use crate::commands::fake::{Fake, Happens, config};
use crate::config::{Kept, Mode, Reports};
use crate::model::vocabulary::frame::SECOND;
use crate::session::source::Waited;

fn every(minutes: u64) -> Reports {
    let every = Some(Duration::from_secs(60 * minutes)).filter(|every| !every.is_zero());
    Reports { every, count: None, cumulative: false, max_lines: 200, kept: Kept::default() }
}

/// Runs the reports against the script. Returns (from, till, wall seconds) of each report, in
/// order.
fn reports(plan: Reports, script: Vec<(u64, Happens)>) -> Vec<(String, String, f64)> {
    let dir = tempfile::tempdir().expect("a directory");
    let config = config(Mode::Report(plan), dir.path());
    let code = report(&mut Fake::new(script), &config, &Output::new(&config.output), &plan);
    assert_eq!(code, Ok(ExitCode::Success));
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .expect("there")
        .map(|e| e.expect("readable").path())
        .collect();
    files.sort();
    let read = |path: &std::path::PathBuf| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("json")
    };
    let time = |text: &serde_json::Value| text.as_str().expect("a time")[11..19].to_owned();
    files
        .iter()
        .map(read)
        .map(|of| {
            let wall: f64 = of["groups"]
                .as_array()
                .expect("groups")
                .iter()
                .map(|g| g["wall_ms"].as_f64().expect("ms"))
                .sum();
            (time(&of["from"]), time(&of["till"]), wall / 1e3)
        })
        .collect()
}

fn row(from: &str, till: &str, wall: f64) -> (String, String, f64) {
    (from.into(), till.into(), wall)
}

const END: Happens = Happens::Reports(Waited::Interrupted);

#[test]
fn the_clock_says_when_and_each_has_its_own_time() {
    let rows = reports(every(15), vec![(2 * 3600, END)]);
    assert_eq!(rows.len(), 9);
    assert_eq!(rows[0], row("03:04:05", "03:15:00", 655.0));
    assert_eq!(rows[1], row("03:15:00", "03:30:00", 900.0));
    assert_eq!(rows[8], row("05:00:00", "05:04:05", 245.0));
    assert_eq!(rows.iter().map(|row| row.2).sum::<f64>(), 7200.0);
}

#[test]
fn a_limited_number_one_at_the_end_or_all_since_the_start() {
    assert_eq!(reports(Reports { count: Some(2), ..every(60) }, vec![]).len(), 2);
    assert_eq!(reports(every(0), vec![(100_000, END)]), [row("03:04:05", "06:50:45", 100_000.0)]);
    let rows = reports(
        Reports { cumulative: true, ..every(30) },
        vec![(3600, Happens::Reports(Waited::Ended))],
    );
    let froms: Vec<&str> = rows.iter().map(|row| &*row.0).collect();
    assert_eq!(froms, ["03:04:05"; 3]);
    assert_eq!(rows.iter().map(|row| row.2).collect::<Vec<_>>(), [1555.0, 3355.0, 3600.0]);
}

#[test]
fn one_can_be_asked_for_and_time_goes_into_no_two() {
    let now = Happens::Reports(Waited::Asked(Request::Report));
    let rows = reports(every(15), vec![(100, now), (655, now), (700, END)]);
    let expected = [
        row("03:04:05", "03:05:45", 100.0),
        row("03:05:45", "03:15:00", 555.0),
        row("03:15:00", "03:15:45", 45.0),
    ];
    assert_eq!(rows, expected);
}

/// Those by the clock have whole seconds. The one that was asked for, and the last one, have the
/// last two minutes in order.
#[test]
fn what_threads_did_in_order_is_in_reports_that_do_not_come_by_the_clock() {
    let dir = tempfile::tempdir().expect("a directory");
    let plan = every(15);
    let mut config = config(Mode::Report(plan), dir.path());
    config.output.format = Format::Sampletop;
    let now = Happens::Reports(Waited::Asked(Request::Report));
    let mut script = Fake::new(vec![(100, now), (2_000, END)]);
    assert_eq!(
        report(&mut script, &config, &Output::new(&config.output), &plan),
        Ok(ExitCode::Success)
    );
    let files = std::fs::read_dir(dir.path()).expect("there");
    let mut files: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    files.sort();
    let is_ordered = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("readable");
        let opened = formats::saved::read(&bytes).expect("a profile");
        assert_eq!(opened.lost, None);
        opened.snapshot.history.spans().is_kept()
    };
    let ordered: Vec<bool> = files.iter().map(is_ordered).collect();
    assert_eq!(ordered, [true, false, false, true]);
}

#[test]
fn a_pause_has_no_observations() {
    let asked = |request| Happens::Reports(Waited::Asked(request));
    let rows = reports(
        every(0),
        vec![(100, asked(Request::Pause)), (400, asked(Request::Resume)), (500, END)],
    );
    assert_eq!(
        rows,
        [row("03:04:05", "03:12:25", 500.0)],
        "a thread that did not move did what it did"
    );
}

#[test]
fn a_clock_that_is_set_shifts_what_comes_and_loses_nothing() {
    let hour = 3600 * i128::from(SECOND);
    let rows = reports(
        every(60),
        vec![(60, Happens::Clock(-5 * hour)), (4000, Happens::Clock(3 * hour)), (8000, END)],
    );
    assert_eq!(rows.iter().map(|row| row.2).sum::<f64>(), 8000.0);
    assert!((3..=5).contains(&rows.len()), "{rows:?}");
}

#[test]
fn what_failed_is_not_mended_by_opening_the_file_again() {
    let names = Names { host: "h".into(), label: "1".into(), extension: "txt" };
    let series = Series::open(Some(std::path::Path::new("/dev/full")), names, Kept::default());
    let mut series = series.expect("it opens");
    let written = series.write(b"a report", 0);
    let mut out = Destinations { series: Some(series), failed: false, pushing: None };
    out.note(&written);
    assert!(out.failed);
    out.reopen();
    assert!(out.failed, "nothing has been written yet");
    out.note(&Ok(()));
    assert!(!out.failed);
}
