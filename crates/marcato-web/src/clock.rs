//! Date field of responses.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use http::header::DATE;
use http::{HeaderMap, HeaderValue};

/// Dates for responses, formatted once a second.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    latest: Mutex<Option<(u64, HeaderValue)>>,
}

impl Dates {
    /// Adds the date of now to the fields of a response (RFC 9110 §6.6.1).
    pub(crate) fn stamp(&self, headers: &mut HeaderMap) {
        match self.at(SystemTime::now()) {
            Some(date) => headers.insert(DATE, date),
            None => headers.remove(DATE),
        };
    }

    /// Returns a time as a field value; `None` before 1970 and from the year 10000 on.
    fn at(&self, now: SystemTime) -> Option<HeaderValue> {
        let second = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((at, value)) if *at == second => Some(value.clone()),
            _ => {
                // `httpdate` takes no later time.
                const YEAR_10000: u64 = 253_402_300_800;
                let value = (second < YEAR_10000).then(|| httpdate::fmt_http_date(now))?;
                let value = HeaderValue::try_from(value).ok()?;
                *latest = Some((second, value.clone()));
                Some(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_follow_the_clock_by_the_second() {
        let dates = Dates::default();
        let at = |seconds: f64| {
            let value = dates.at(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds));
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        // Example of RFC 9110 §5.6.7.
        assert_eq!(at(784_111_777.2).as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(at(784_111_777.9).as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(at(784_111_778.0).as_deref(), Some("Sun, 06 Nov 1994 08:49:38 GMT"));
        assert_eq!(at(300_000_000_000.0), None);
    }
}
