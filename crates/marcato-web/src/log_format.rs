//! Formats of an access log.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use http::uri::PathAndQuery;

use crate::record::Record;

/// Months as HTTP abbreviates them (RFC 9110 §5.6.7).
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Format of an access log: one line for each [`Record`].
///
/// No client can begin a line of its own: bytes that are not printable are escaped in every format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// Pairs of `key=value`, as [`Record`] prints them.
    #[default]
    Pairs,
    /// The Common Log Format of NCSA's server, which most programs read.
    Common,
    /// The Common Log Format, with the referer and the user agent behind it.
    Combined,
    /// An object of JSON.
    Json,
}

impl LogFormat {
    /// All formats by their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("pairs", Self::Pairs),
        ("common", Self::Common),
        ("combined", Self::Combined),
        ("json", Self::Json),
    ];

    /// Returns the line of a record, without its end.
    pub fn line(self, record: &Record) -> String {
        match self {
            Self::Pairs => record.to_string(),
            Self::Common => common(record),
            Self::Combined => {
                let field = |value: &Option<HeaderValue>| {
                    value.as_ref().map_or_else(|| "-".to_owned(), |value| escaped(value.as_bytes()))
                };
                let (referer, agent) = (field(&record.referer), field(&record.user_agent));
                format!("{} \"{referer}\" \"{agent}\"", common(record))
            }
            Self::Json => json(record),
        }
    }
}

fn common(record: &Record) -> String {
    let Date { day, month, year, clock, .. } = Date::of(record.time);
    let month = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or("Jan");
    let target = match record.uri.path_and_query() {
        // A request for a tunnel has an authority alone.
        None => record.uri.to_string(),
        Some(path) => PathAndQuery::as_str(path).to_owned(),
    };
    let request = escaped(format!("{} {target} {:?}", record.method, record.version).as_bytes());
    let status = record.status.map_or_else(|| "-".to_owned(), |status| status.as_u16().to_string());
    let bytes = match record.bytes.get() {
        0 => "-".to_owned(),
        bytes => bytes.to_string(),
    };
    let peer = record.peer.0.ip().to_canonical();
    format!("{peer} - - [{day}/{month}/{year}:{clock} +0000] \"{request}\" {status} {bytes}")
}

fn json(record: &Record) -> String {
    let text = |value: &Option<HeaderValue>| {
        value.as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let millis = |span: Duration| (span.as_secs_f64() * 1e6).round() / 1e3;
    let mut object = serde_json::json!({
        "time": rfc3339(record.time),
        "peer": record.peer.0.to_string(),
        "method": record.method.as_str(),
        "uri": record.uri.to_string(),
        "host": record.host(),
        "version": format!("{:?}", record.version),
        "status": record.status.map(|status| status.as_u16()),
        "bytes": record.bytes.get(),
        "referer": text(&record.referer),
        "user_agent": text(&record.user_agent),
        "priority": record.decision.parameters.to_string(),
        "source": record.decision.source.to_string(),
        "level": record.level.map(|level| level.to_string()),
        "waited_ms": record.waited.map(millis),
        "took_ms": millis(record.took),
        "complete": record.complete,
    });
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object.to_string()
}

/// Returns a text in which quotation marks, backslashes and all that is not printable ASCII are escaped.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b' '..=b'~' => text.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(text, "\\x{byte:02x}"),
        }
    }
    text
}

/// Returns a time by RFC 3339, in UTC and with milliseconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let Date { day, month, year, clock, millis } = Date::of(time);
    format!("{year}-{month:02}-{day}T{clock}.{millis:03}Z")
}

/// Parts of a time in UTC.
struct Date {
    day: String,
    /// Month, from 1.
    month: usize,
    year: String,
    clock: String,
    millis: u32,
}

impl Date {
    fn of(time: SystemTime) -> Self {
        // The library knows the calendar. Its text has fixed places (RFC 9110 §5.6.7), from 1970 to 9999.
        let text = httpdate::fmt_http_date(time.max(UNIX_EPOCH));
        let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default().to_owned();
        let month = part(8..11);
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            day: part(5..7),
            month: MONTHS.iter().position(|name| *name == month).map_or(1, |index| index + 1),
            year: part(12..16),
            clock: part(17..25),
            millis: since.subsec_millis(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds, millis: u32| UNIX_EPOCH + Duration::new(seconds, millis * 1_000_000);
        assert_eq!(rfc3339(at(784_111_777, 5)), "1994-11-06T08:49:37.005Z");
        assert_eq!(rfc3339(at(1_709_210_096, 999)), "2024-02-29T12:34:56.999Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn nothing_that_a_client_sends_ends_a_line_or_a_quotation() {
        assert_eq!(escaped(b"a\"b\\c\r\n\xff d"), "a\\\"b\\\\c\\x0d\\x0a\\xff d");
    }
}
