//! Moments of a session as dates, always in UTC.

use jiff::Timestamp;

use crate::model::facts::snapshot::Session;
use crate::model::vocabulary::frame::Ns;

/// Converts `at` (CLOCK_MONOTONIC) to ns since 1970.
pub fn unix_ns(session: &Session, at: Ns) -> i128 {
    session.unix_ns(at)
}

/// Formats `2026-01-02T03:04:05.123Z`.
pub fn rfc3339(unix_ns: i128) -> String {
    timestamp(unix_ns).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Formats `2026-01-02 03:04:05.123`; the caller adds the zone.
pub fn utc(unix_ns: i128) -> String {
    timestamp(unix_ns).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

/// Truncates to the millisecond. No clock gives years outside of -9999 to 9999; such values become
/// 1970.
fn timestamp(unix_ns: i128) -> Timestamp {
    Timestamp::from_nanosecond(unix_ns).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_utc_to_the_millisecond() {
        let at = 1_767_323_045_123_999_999;
        assert_eq!(rfc3339(at), "2026-01-02T03:04:05.123Z");
        assert_eq!(utc(at), "2026-01-02 03:04:05.123");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(i128::MAX), "1970-01-01T00:00:00.000Z");
    }
}
