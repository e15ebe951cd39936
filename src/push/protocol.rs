//! What `/ingest` of a Pyroscope server accepts, and what its answers mean. Pure.
//!
//! A request is `POST
//! .../ingest?name=SERVICE{KEY=VALUE,...}&from=S&until=S&format=pprof&spyName=sampletop` with a
//! packed pprof profile as its body. The server derives the kind of profile from its sample types.
//! String labels of samples become labels of series. Sources: grafana/pyroscope,
//! pkg/ingester/pyroscope/ingest_handler.go, pkg/og/convert/pprof/profile.go, api/model/labelset,
//! pkg/model/pprofsplit.

use std::time::Duration;

use jiff::fmt::rfc2822;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The label that names the service; it precedes the others.
pub const SERVICE: &str = "service_name";

/// Returns the request's parameters, encoded for an address: the text after its `?`.
pub fn query(labels: &[(String, String)], from_unix_ns: i128, till_unix_ns: i128) -> String {
    let service =
        labels.iter().find(|(key, _)| key == SERVICE).map_or("sampletop", |(_, value)| value);
    let others: Vec<String> = labels
        .iter()
        .filter(|(key, _)| key != SERVICE)
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let name = format!("{service}{{{}}}", others.join(","));
    let second = |unix_ns: i128| unix_ns.div_euclid(1_000_000_000);
    format!(
        "name={}&from={}&until={}&format=pprof&spyName=sampletop",
        utf8_percent_encode(&name, NON_ALPHANUMERIC),
        second(from_unix_ns),
        // Rounded up, so that the range is never empty.
        second(till_unix_ns - 1) + 1
    )
}

/// Replaces characters that a service name must not have. Allowed: letters, digits, `_`, `.`, `-`,
/// `/`.
pub fn service(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    let text: String =
        text.chars().take(VALUE_MAX).map(|c| if plain(c) { c } else { '-' }).collect();
    match text.trim_matches(['-', '/', '.']) {
        "" => "sampletop".into(),
        text => text.into(),
    }
}

/// Converts text into a valid label value.
pub fn value(text: &str) -> String {
    let fits = |c: char| !c.is_control() && !matches!(c, ',' | '{' | '}');
    text.chars().take(VALUE_MAX).map(|c| if fits(c) { c } else { '-' }).collect()
}

/// Maximum characters of a label's value.
const VALUE_MAX: usize = 256;

/// What an answer means for a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Taken,
    /// May be accepted later: the server or the connection has a temporary fault.
    Later,
    /// Refused like all others until a person fixes something: a token, the address.
    Barred,
    /// Will never be accepted; others may be.
    Unfit,
    /// Either of these: Pyroscope answers 422 to invalid profiles, and also while its storage is
    /// unavailable.
    Unclear,
}

/// Interprets an answer; `words` is its text.
pub fn verdict(status: u16, words: &str) -> Verdict {
    match status {
        200..=299 => Verdict::Taken,
        408 | 409 | 425 | 429 => Verdict::Later,
        // A working Pyroscope says so of profiles that are too old, too large or invalid; otherwise
        // it says `Unavailable`.
        422 if words.contains("invalid_argument") => Verdict::Unfit,
        422 => Verdict::Unclear,
        // Redirects are not followed: the token is for the named server only. Missing pages mean a
        // wrong path.
        300..=399 | 401 | 402 | 403 | 404 | 405 | 407 | 410 | 421 | 426 => Verdict::Barred,
        400..=499 => Verdict::Unfit,
        _ => Verdict::Later,
    }
}

/// Parses `Retry-After`: seconds, or a date.
pub fn retry_after(text: &str, now_unix_ns: i128) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::from_nanos(u64::try_from(at.as_nanosecond() - now_unix_ns).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn a_request_is_as_pyroscopes_own_clients_write_it() {
        let labels =
            labels(&[("host", "h-1"), ("service_name", "my.app"), ("region", "eu west&=")]);
        let second = 1_000_000_000;
        assert_eq!(
            query(&labels, 1_795_355_025 * second + 5, 1_795_355_028 * second + 5),
            "name=my%2Eapp%7Bhost%3Dh%2D1%2Cregion%3Deu%20west%26%3D%7D&from=1795355025&until=1795355029&format=pprof&spyName=sampletop"
        );
        assert!(
            query(&[], 5 * second, 6 * second).starts_with("name=sampletop%7B%7D&from=5&until=6&")
        );
    }

    #[test]
    fn names_are_made_fit() {
        assert_eq!(service("/usr/bin/my app"), "usr/bin/my-app");
        assert_eq!(service("^nginx$"), "nginx");
        assert_eq!(service("{}"), "sampletop");
        assert_eq!(value("a,b{c}\n"), "a-b-c--");
        assert_eq!(value("größe=1"), "größe=1");
    }

    #[test]
    fn answers_have_their_meaning() {
        let of =
            |status: &[u16]| status.iter().map(|status| verdict(*status, "")).collect::<Vec<_>>();
        assert_eq!(of(&[200, 204]), [Verdict::Taken; 2]);
        assert_eq!(of(&[408, 429, 500, 502, 503, 504, 100, 999]), [Verdict::Later; 8]);
        assert_eq!(of(&[301, 307, 401, 403, 404]), [Verdict::Barred; 5]);
        assert_eq!(of(&[400, 413, 415, 431]), [Verdict::Unfit; 4]);
        assert_eq!(of(&[422]), [Verdict::Unclear]);
        // As answered by a Pyroscope of August 2026.
        let too_old = r#"{"code":"unknown","message":"... failed: invalid_argument: profile ... is outside of ingestion window"}"#;
        let no_storage = r#"{"code":"unknown","message":"... failed: unknown: rpc error: code = Unavailable desc = service is unavailable"}"#;
        assert_eq!(
            (verdict(422, too_old), verdict(422, no_storage)),
            (Verdict::Unfit, Verdict::Unclear)
        );
    }

    #[test]
    fn a_server_may_say_when_to_come_again() {
        let now = 784_111_770 * 1_000_000_000;
        let after = |text| retry_after(text, now);
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        for text in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(after(text), None, "{text}");
        }
    }
}
