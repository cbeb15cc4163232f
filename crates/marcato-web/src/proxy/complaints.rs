//! Warnings about an upstream, few enough to be read.

use std::sync::{Mutex, PoisonError};

use marcato_units::Duration;
use tokio::time::Instant;

/// Time in which at most [`MAX_WARNINGS`] warnings of a kind are written.
const SPAN: Duration = Duration::from_secs(10);
/// Warnings of a kind in a [`SPAN`].
const MAX_WARNINGS: u32 = 5;

/// Kind of a fault. Warnings of one kind keep none of another from being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No connection, or none in time.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection closed without a response.
    Closed,
    /// The head of a response was not usable.
    Malformed,
    /// The head of a response was late.
    Late,
    /// The body of a response broke or fell silent.
    Body,
    /// All upstreams that may be used were full.
    Full,
}

impl Kind {
    const COUNT: usize = 7;
}

/// Warnings of the present span, by kind.
#[derive(Debug, Default)]
pub(super) struct Complaints(Mutex<[Window; Kind::COUNT]>);

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    begun: Option<Instant>,
    written: u32,
    omitted: u64,
}

impl Complaints {
    /// Returns the number of warnings of a kind that were omitted since the last one that was written, if
    /// one may be written now. If not, it is counted.
    pub(super) fn may_write(&self, kind: Kind, now: Instant) -> Option<u64> {
        // Numbers alone: a panic leaves nothing that is wrong.
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.get_mut(kind as usize)?;
        if window.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= SPAN) {
            (window.begun, window.written) = (Some(now), 0);
        }
        if window.written >= MAX_WARNINGS {
            window.omitted += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.omitted))
    }
}

/// Returns the text of an error with its causes, each once.
pub(super) fn with_causes(text: &str, error: Option<&(dyn std::error::Error + 'static)>) -> String {
    let mut text = text.to_owned();
    let mut next = error;
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text += ": ";
            text += &said;
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_counted_and_hides_no_other() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        let written: Vec<_> = (0..1000).filter_map(|_| complaints.may_write(Kind::Late, start)).collect();
        assert_eq!(written, [0; MAX_WARNINGS as usize]);
        assert_eq!(complaints.may_write(Kind::Full, start), Some(0));
        let before = start + SPAN - Duration::from_nanos(1);
        assert_eq!(complaints.may_write(Kind::Late, before), None);
        // The next one that is written says how many were not.
        let later = start + SPAN;
        assert_eq!(complaints.may_write(Kind::Late, later), Some(996));
        assert_eq!(complaints.may_write(Kind::Late, later), Some(0));
    }

    #[test]
    fn causes_are_named_once() {
        let io = std::io::Error::other("refused");
        assert_eq!(with_causes("no connection: refused", Some(&io)), "no connection: refused");
        assert_eq!(with_causes("no connection", Some(&io)), "no connection: refused");
    }
}
