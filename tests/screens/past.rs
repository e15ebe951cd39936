//! The history line, and its keys, in a history of eight hours.

use std::collections::BTreeMap;

use sampletop::app::history_line::HistoryLine;
use sampletop::formats::saved;
use sampletop::model::facts::history::{Fact, FactKey, History, Parts, Range as Part, Weights};
use sampletop::model::facts::packed::Packed;
use sampletop::model::projection::settings::{Range, Settings};

use super::time::{HICCUP, service};
use super::*;

const HOUR: u64 = 3600;
/// Seconds in which all threads wait for the disk: a minute, ten seconds and a second of history.
const OLD: u64 = 3 * HOUR + 25;
const RECENT: u64 = 7 * HOUR + 1823;
const NEWEST: u64 = 8 * HOUR - 300;
/// Seconds in which nothing was observed.
const GAP: (u64, u64) = (5 * HOUR, 6 * HOUR);

/// The facts of a service's usual second, and of one in which all threads wait for the disk.
struct Seconds {
    snapshot: Snapshot,
    usual: Vec<Fact>,
    hiccup: Vec<Fact>,
}

impl Seconds {
    fn new() -> Seconds {
        let snapshot = service().run(130 * SECOND).snapshot();
        let (started, at) = snapshot.history.span();
        let of = |second: u64| {
            let from = started + second * SECOND;
            let mut facts: Vec<Fact> = Vec::new();
            let part = Part::Between { from, till: from + SECOND };
            snapshot.history.read(part, at, &mut |key, weights| {
                let longest_from = weights.longest_from.saturating_sub(from);
                facts.push((*key, Weights { longest_from, ..*weights }));
            });
            facts
        };
        Seconds { usual: of(30), hiccup: of(HICCUP), snapshot }
    }

    /// Returns the facts of the seconds `from..till` of a session.
    fn facts(&self, from: u64, till: u64) -> Vec<Fact> {
        let started = self.snapshot.session.started;
        let mut sums: BTreeMap<FactKey, Weights> = BTreeMap::new();
        for second in from..till {
            let is_hiccup = [OLD, RECENT, NEWEST].contains(&second);
            for (key, weights) in if is_hiccup { &self.hiccup } else { &self.usual } {
                let longest_from = started + second * SECOND + weights.longest_from;
                let weights = Weights { longest_from, ..*weights };
                sums.entry(*key).or_default().follow(&weights);
            }
        }
        sums.into_iter().collect()
    }

    /// Returns the session after `seconds` of it: minutes, tens of seconds and seconds, as live
    /// history has them.
    fn after(&self, seconds: u64) -> Snapshot {
        let started = self.snapshot.session.started;
        let (tens, ones) = ((seconds - 4_200) / 60 * 60, (seconds - 600) / 10 * 10);
        let minutes = (0..tens).step_by(60).map(|from| (from, from + 60));
        let minutes = minutes.filter(|(from, _)| !(GAP.0..GAP.1).contains(from));
        let minutes = minutes.chain([GAP]);
        let tens = (tens..ones).step_by(10).map(|from| (from, from + 10));
        let mut spans: Vec<(u64, u64)> =
            minutes.chain(tens).chain((ones..seconds).map(|from| (from, from + 1))).collect();
        spans.sort_unstable();
        let sealed: Vec<Packed> = (spans.into_iter())
            .map(|(from, till)| {
                let facts = if (from, till) == GAP { Vec::new() } else { self.facts(from, till) };
                Packed::new(started + from * SECOND, started + till * SECOND, facts)
            })
            .collect();
        let at = started + seconds * SECOND;
        let cumulative = self.facts(0, 60);
        let parts = Parts { started, at, sealed, cumulative, ..Parts::default() };
        let history = History::from_parts(parts).expect("buckets in order");
        Snapshot { at, history, ..self.snapshot.clone() }
    }
}

/// Shows a profile as it is after writing and reading.
fn opened(snapshot: &Snapshot, (width, height): (u16, u16)) -> Live {
    let mut file = Vec::new();
    saved::write(snapshot, &Settings::default(), &mut file).expect("memory takes it");
    let snapshot = saved::read(&file).expect("just written").snapshot;
    let settings = Settings { range: Range::Cumulative { since: None }, ..Settings::default() };
    let config = AppConfig { saved: true, settings, ..AppConfig::default() };
    let mut live = Live::new(width, height, config);
    live.send(Input::Snapshot(Arc::new(snapshot)));
    live
}

/// Returns the time cursor's bucket, in seconds of the session. It is the shown range.
fn bucket(live: &Live) -> (u64, u64) {
    let (from, till) = live.shown_range();
    (from / SECOND, till / SECOND)
}

/// Returns where the cursor's bucket is on the line.
fn cell(live: &Live) -> Option<u64> {
    cell_of(live, bucket(live).0)
}

fn cell_of(live: &Live, second: u64) -> Option<u64> {
    HistoryLine::new(&live.app).expect("room").cell_of_second(second)
}

/// Returns which cell is marked as the cursor's. A bracket stands before all cells.
fn marked(live: &Live) -> Option<u64> {
    let buffer = live.buffer();
    let is_marked = |x: &u16| buffer[(*x, 2)].modifier.contains(Modifier::REVERSED);
    let columns: Vec<u16> = (0..live.width).filter(is_marked).collect();
    let [column] = columns[..] else { return None };
    let line = HistoryLine::new(&live.app).expect("room");
    line.cell_at_column(column, Some((0, line.cells)))
}

#[test]
fn the_line_shows_the_time_around_the_cursor() {
    let snapshot = Seconds::new().after(8 * HOUR);
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let mut live = opened(&snapshot, (width, height));
        let golden_of = |live: &mut Live, keys: &str, name: &str| {
            live.press(keys);
            golden(&format!("past-{name}-{width}x{height}.txt"), &live.screen());
        };
        golden_of(&mut live, "{{", "tens");
        assert_eq!(marked(&live), cell_of(&live, RECENT), "{}", live.screen());
        golden_of(&mut live, "{", "minutes");
        assert_eq!(marked(&live), cell_of(&live, OLD), "{}", live.screen());
        golden_of(&mut live, "<enter>", "range");
        golden_of(&mut live, &")".repeat(120), "gap");
        golden_of(&mut live, &"(".repeat(400), "beginning");
    }
}

#[test]
fn peaks_are_found_in_all_history() {
    let mut live = opened(&Seconds::new().after(8 * HOUR), (80, 24));
    let minute = (OLD / 60 * 60, OLD / 60 * 60 + 60);
    let ten = (RECENT / 10 * 10, RECENT / 10 * 10 + 10);
    let second = (NEWEST, NEWEST + 1);
    live.press("{<enter>");
    assert_eq!(bucket(&live), second);
    for (key, expected) in
        [("{", ten), ("{", minute), ("}", ten), ("}", second), ("{", ten), ("{", minute)]
    {
        assert_eq!(bucket(live.press(key)), expected);
        assert!(live.line(2).contains("wait 200 ms"), "{}", live.screen());
        assert!(live.screen().contains("commit"), "{}", live.screen());
    }
    live.press("{");
    assert_eq!(bucket(&live), minute);
    assert!(live.screen().contains("nothing earlier stands out"), "{}", live.screen());
}

#[test]
fn every_bucket_is_reached_and_on_the_line() {
    let snapshot = Seconds::new().after(8 * HOUR);
    let buckets = snapshot.history.sealed().len();
    let started = snapshot.session.started;
    let mut live = opened(&snapshot, (80, 24));
    live.press(".<enter>");
    let mut starts = vec![bucket(&live).0];
    let mut cells = Vec::new();
    while starts.len() < buckets {
        live.press(",");
        starts.push(bucket(&live).0);
        cells.extend(cell(&live));
        let length = bucket(&live).1 - bucket(&live).0;
        let shown = live.line(2);
        assert_eq!(shown.contains(" +"), length > 1, "{shown}");
    }
    let kept: Vec<u64> = snapshot.history.kept().map(|b| (b.from - started) / SECOND).collect();
    assert!(starts.iter().rev().eq(&kept));
    assert_eq!(cells.len() + 1, buckets, "a bucket was not on the line");
    // That was the beginning.
    live.press(",");
    assert_eq!(bucket(&live).0, 0);
    assert!(live.screen().contains("nothing older is kept"), "{}", live.screen());
    live.press("(");
    assert_eq!(bucket(&live).0, 0);
    // Back, by windows of ten minutes: the same, as far as there are buckets.
    live.press("w<c-u>10m<enter>w<c-u>-8h +1s<enter>");
    let mut before = bucket(&live).0;
    for _ in 0..60 {
        live.press(")<enter>");
        let now = bucket(&live).0;
        assert!(cell(&live).is_some(), "{}", live.screen());
        assert!(now == 8 * HOUR - 1 || (now - before).abs_diff(600) < 60 || before == GAP.0);
        before = now;
    }
    assert_eq!(before, 8 * HOUR - 1);
}

#[test]
fn a_cursor_in_the_past_stays_while_time_goes_on() {
    let seconds = Seconds::new();
    let mut live = Live::new(120, 40, AppConfig::default());
    let feed = |live: &mut Live, after: u64| {
        live.send(Input::Snapshot(Arc::new(seconds.after(after))));
    };
    feed(&mut live, 8 * HOUR);
    for keys in ["{{", "{", "<enter>", "(((", "L{", "{<enter>"] {
        feed(&mut live, 8 * HOUR);
        live.press(keys);
        let (line, range) = (live.line(2), live.app.settings().range);
        let shows_now = line.contains("10m");
        // The last seconds are not on a scrolled line.
        let is_on_it = shows_now || matches!(range, Range::Between { .. });
        assert_eq!(line.contains('['), is_on_it, "{keys}: {line}");
        feed(&mut live, 8 * HOUR + 47);
        // A line that ends now goes on; the cursor's words stay.
        let words = |line: &str| line.split_once(" busy ").map(|(_, words)| words.to_owned());
        assert!(words(&line).is_some(), "{line}");
        assert_eq!(words(&live.line(2)), words(&line), "{keys}");
        if !shows_now {
            assert_eq!(live.line(2), line, "{keys}");
        }
        assert_eq!(live.app.settings().range, range, "{keys}");
    }
}

/// What was seconds is tens of seconds by now. The cursor's time is the same.
#[test]
fn a_cursor_stays_when_its_bucket_is_merged_with_others() {
    let seconds = Seconds::new();
    let mut live = Live::new(120, 40, AppConfig::default());
    live.send(Input::Snapshot(Arc::new(seconds.after(8 * HOUR))));
    live.press("{<enter>");
    assert_eq!(bucket(&live), (NEWEST, NEWEST + 1));
    live.send(Input::Snapshot(Arc::new(seconds.after(8 * HOUR + 400))));
    assert_eq!(bucket(&live), (NEWEST, NEWEST + 1));
    // Line 1 and the words have the time that is kept.
    let ten = (NEWEST / 10 * 10, NEWEST / 10 * 10 + 10);
    let (target, line) = (live.line(0), live.line(2));
    assert!(target.contains("21:58:10-21:58:20"), "{target}");
    assert!(line.contains(" 21:58:10 +10s busy 1.1, wait 200 ms"), "{line}");
    assert_eq!(bucket(live.press(",")), (ten.0 - 10, ten.0));
    assert_eq!(bucket(live.press(".")), ten);
}

#[test]
fn a_click_on_a_scrolled_line_shows_the_bucket_there() {
    let mut live = opened(&Seconds::new().after(8 * HOUR), (120, 40));
    live.press("{{{<enter>");
    let line = HistoryLine::new(&live.app).expect("room");
    assert!(line.is_past);
    let hiccup = bucket(&live);
    let opens = live.line(2).chars().position(|c| c == '[').expect("a bracket") as u16;
    let mut click = |column| {
        live.send(Input::Mouse(Mouse { kind: MouseKind::Press, column, row: 2 }));
        let of = bucket(&live);
        live.send(Input::Key(Key::Char('{')));
        (of, bucket(&live))
    };
    let before = click(opens - 1).0;
    assert_eq!(before, (hiccup.0 - 60, hiccup.0));
    // Of the three buckets of a cell, the busiest.
    let mut narrow = opened(&Seconds::new().after(8 * HOUR), (80, 24));
    narrow.press("{{<enter>");
    let (hiccup, cell_of_it) = (bucket(&narrow), cell(&narrow));
    let opens = narrow.line(2).chars().position(|c| c == '[').expect("a bracket") as u16;
    narrow.press(",");
    assert_eq!(cell(&narrow), cell_of_it);
    narrow.send(Input::Mouse(Mouse { kind: MouseKind::Press, column: opens + 1, row: 2 }));
    assert_eq!(bucket(&narrow), hiccup);
    // A range that is typed scrolls the line too, and has no cursor.
    live.press("w<c-u>-4h +1h<enter>");
    let line = live.line(2);
    assert!(line.contains("-19:") && line.contains("]") && line.contains("busy threads"), "{line}");
}
