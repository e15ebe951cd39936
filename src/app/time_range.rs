//! Parses ranges of time as they are typed: `30s`, `all`, `14:03:20 +2s`, `-75s..-70s`,
//! `14:03:20.250 +50ms`.

use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Unit, Zoned};

use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Range;
use crate::model::vocabulary::frame::{Ns, SECOND};

/// What a moment in words refers to.
pub struct Clock<'a> {
    pub snapshot: &'a Snapshot,
    pub zone: &'a TimeZone,
}

/// Parses a range: a time up to now, everything, or a part of history.
pub fn parse(text: &str, clock: &Clock<'_>) -> Result<Range, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("all") {
        return Ok(Range::Cumulative { since: None });
    }
    if let Some((from, till)) = text.split_once("..") {
        return clock.between(clock.moment(from)?, clock.moment(till)?);
    }
    if let Some((from, length)) = text.split_once('+') {
        let from = clock.moment(from)?;
        let length = humantime::parse_duration(length.trim())
            .map_err(|_| format!("`+{length}` is not a time such as +2s or +50ms"))?;
        return clock.between(from, from.saturating_add(ns(length)));
    }
    if text.starts_with('-') || text.contains(':') {
        let from = clock.moment(text)?;
        return clock.between(from, from.saturating_add(SECOND));
    }
    let wrong =
        || format!("`{text}` is none of 30s (1s to 24h), all, 14:03:20 +2s, and -75s..-70s");
    let window = humantime::parse_duration(text).map_err(|_| wrong())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
    if allowed.contains(&window) { Ok(Range::Rolling(ns(window))) } else { Err(wrong()) }
}

fn ns(time: Duration) -> Ns {
    Ns::try_from(time.as_nanos()).unwrap_or(Ns::MAX)
}

impl Clock<'_> {
    /// Parses `-75s` or `-1.5s` (before now), `now`, `14:03:20.5` (the last one before now) or
    /// `2026-02-03 14:03:20`.
    fn moment(&self, text: &str) -> Result<Ns, String> {
        let text = text.trim();
        let at = self.snapshot.at;
        if text.eq_ignore_ascii_case("now") {
            return Ok(at);
        }
        let wrong = || format!("`{text}` is no moment such as 14:03:20, -75s or now");
        if let Some(ago) = text.strip_prefix('-') {
            let ago = humantime::parse_duration(ago.trim()).map_err(|_| wrong())?;
            return Ok(at.saturating_sub(ns(ago)));
        }
        let (date, time) = match text.split_once(' ') {
            Some((date, time)) => {
                let date = Date::strptime("%Y-%m-%d", date).map_err(|_| wrong())?;
                (Some(date), time.trim())
            }
            None => (None, text),
        };
        let formats = ["%H:%M:%S%.f", "%H:%M"];
        let time = formats.iter().find_map(|format| Time::strptime(format, time).ok());
        let (time, now) = time.zip(self.zoned(at)).ok_or_else(wrong)?;
        let on = |date: Date| date.to_datetime(time).to_zoned(self.zone.clone()).ok();
        let moment = match date {
            Some(date) => on(date),
            None => on(now.date()).filter(|moment| *moment <= now).or_else(|| {
                let yesterday = now.date().yesterday().ok()?;
                on(yesterday)
            }),
        };
        let unix_ns = moment.ok_or_else(wrong)?.timestamp().as_nanosecond();
        let session = &self.snapshot.session;
        let at = unix_ns - session.started_unix_ns + i128::from(session.started);
        Ok(Ns::try_from(at.max(0)).unwrap_or(Ns::MAX))
    }

    fn between(&self, from: Ns, till: Ns) -> Result<Range, String> {
        let (oldest, newest) = (self.snapshot.history.oldest(), self.snapshot.at);
        if from >= till {
            Err("the range ends before it begins".into())
        } else if till <= oldest {
            let oldest = self.rounded(oldest);
            Err(format!("nothing is kept of that time: history begins at {oldest}"))
        } else if from >= newest {
            let newest = self.rounded(newest);
            Err(format!("that time is not observed yet: history ends at {newest}"))
        } else {
            Ok(Range::Between { from, till })
        }
    }

    fn zoned(&self, at: Ns) -> Option<Zoned> {
        let time = jiff::Timestamp::from_nanosecond(self.snapshot.session.unix_ns(at)).ok()?;
        Some(time.to_zoned(self.zone.clone()))
    }

    /// Formats a moment exactly, as [`Clock::moment`] reads it.
    fn words(&self, at: Ns) -> String {
        self.zoned(at).map_or_else(String::new, |at| at.strftime("%H:%M:%S%.f").to_string())
    }

    /// Formats a moment to the millisecond.
    fn rounded(&self, at: Ns) -> String {
        let rounded = self.zoned(at).and_then(|at| at.round(Unit::Millisecond).ok());
        rounded.map_or_else(String::new, |at| at.strftime("%H:%M:%S%.f").to_string())
    }

    /// Formats the time from one moment to another: `14:03:20-14:03:50`.
    pub fn span_words(&self, from: Ns, till: Ns) -> String {
        let words = |at: Ns| {
            self.zoned(at).map_or_else(String::new, |at| at.strftime("%H:%M:%S").to_string())
        };
        format!("{}-{}", words(from), words(till))
    }

    /// Formats a range as [`parse`] reads it.
    pub fn range_words(&self, range: Range) -> String {
        let duration = |ns| humantime::format_duration(Duration::from_nanos(ns)).to_string();
        match range {
            Range::Rolling(ns) => duration(ns),
            Range::Cumulative { .. } => "all".into(),
            Range::Between { from, till } => {
                format!("{} +{}", self.words(from), duration(till.saturating_sub(from)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::facts::history::{History, Parts};
    use crate::model::facts::packed::Packed;
    use crate::model::facts::snapshot::Session;

    const START: Ns = 500 * SECOND;

    /// A session of two minutes that began on 2026-02-03 at 23:59:00 UTC. Its first 30 s are not
    /// kept.
    fn snapshot() -> Snapshot {
        let began = "2026-02-03T23:59:00Z".parse::<jiff::Timestamp>().expect("a time");
        let at = START + 120 * SECOND;
        let second = |n: u64| Packed::new(START + n * SECOND, START + (n + 1) * SECOND, Vec::new());
        let parts = Parts {
            started: START,
            at,
            sealed: (30..120).map(second).collect(),
            ..Parts::default()
        };
        let session = Session {
            started: START,
            started_unix_ns: began.as_nanosecond(),
            ..Session::made_up()
        };
        Snapshot {
            session: Arc::new(session),
            history: History::from_parts(parts).expect("buckets in order"),
            ..Snapshot::made_up(at, &[])
        }
    }

    fn parsed(text: &str, zone: &TimeZone) -> Result<Range, String> {
        parse(text, &Clock { snapshot: &snapshot(), zone })
    }

    fn utc(text: &str) -> Result<Range, String> {
        parsed(text, &TimeZone::UTC)
    }

    fn between(from_ms: u64, till_ms: u64) -> Result<Range, String> {
        let at = |ms| START + ms * 1_000_000;
        Ok(Range::Between { from: at(from_ms), till: at(till_ms) })
    }

    #[test]
    fn windows_and_everything() {
        assert_eq!(utc("5m"), Ok(Range::Rolling(300 * SECOND)));
        assert_eq!(utc(" All "), Ok(Range::Cumulative { since: None }));
        for wrong in ["", "0s", "999ms", "25h", "5", "yesterday"] {
            assert!(utc(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_by_the_wall_clock() {
        assert_eq!(utc("23:59:50 +2s"), between(50_000, 52_000));
        assert_eq!(utc("23:59:50+200ms"), between(50_000, 50_200));
        assert_eq!(utc("23:59:50.5"), between(50_500, 51_500), "a second by default");
        assert_eq!(utc("00:00..00:00:03.25"), between(60_000, 63_250), "past midnight");
        assert_eq!(utc("2026-02-03 23:59:59..2026-02-04 00:00:01"), between(59_000, 61_000));
        // In India it is five and a half hours later.
        let india =
            TimeZone::fixed(jiff::tz::offset(5).saturating_add(jiff::Span::new().minutes(30)));
        assert_eq!(parsed("05:29:50 +2s", &india), between(50_000, 52_000));
    }

    #[test]
    fn moments_before_now() {
        assert_eq!(utc("-75s..-70s"), between(45_000, 50_000));
        assert_eq!(utc("-75s +5s"), between(45_000, 50_000));
        assert_eq!(utc("-10s..now"), between(110_000, 120_000));
        assert_eq!(utc("-1m"), between(60_000, 61_000));
        assert_eq!(utc("-1.5s..-1.45s"), between(118_500, 118_550));
        assert_eq!(utc("-0.25s +50ms"), between(119_750, 119_800));
        assert_eq!(utc("-1.5s +0.1s"), between(118_500, 118_600));
    }

    #[test]
    fn what_is_not_there_is_an_error_that_says_what_is() {
        let error = |text| utc(text).expect_err("not there");
        assert_eq!(error("-2h +5s"), "nothing is kept of that time: history begins at 23:59:30");
        assert_eq!(
            error("2026-02-05 01:00:00"),
            "that time is not observed yet: history ends at 00:01:00"
        );
        // The last time that it was 8 o'clock was the morning before.
        assert!(error("08:00").starts_with("nothing is kept of that time"));
        assert_eq!(error("-5s..-10s"), "the range ends before it begins");
        assert_eq!(error("23:59:50 +0s"), "the range ends before it begins");
        assert_eq!(error("25:00"), "`25:00` is no moment such as 14:03:20, -75s or now");
        assert_eq!(error("now +x"), "`+x` is not a time such as +2s or +50ms");
    }

    #[test]
    fn a_range_is_proposed_as_it_is_read() {
        let (snapshot, zone) = (snapshot(), TimeZone::UTC);
        let clock = Clock { snapshot: &snapshot, zone: &zone };
        for text in ["30s", "all", "23:59:50 +2s", "00:00:10.25 +50ms", "00:00:10.123456789 +1s"] {
            let range = parse(text, &clock).expect(text);
            assert_eq!(clock.range_words(range), text);
        }
    }
}
