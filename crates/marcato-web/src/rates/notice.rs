//! Warnings about addresses at their limits.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use marcato_units::{Duration, Time};

/// Time in which so many warnings are written.
const PERIOD: Duration = Duration::from_secs(10);
/// Most warnings in that time. A flood of connections is none of lines.
const MOST: u32 = 5;

/// Bound of the warnings of a server.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Time,
    written: u32,
    omitted: u64,
}

impl Notices {
    /// Returns the number of warnings that were omitted before this one; `None` if this one is to be.
    fn may_write(&self, now: Time) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= state.since + PERIOD {
            (state.since, state.written) = (now, 0);
        }
        if state.written >= MOST {
            state.omitted += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.omitted))
    }

    /// Warns of an address that asks for more than it may use.
    pub(super) fn refused(&self, now: Time, address: IpAddr, refused: &str, key: &str) {
        if let Some(omitted) = self.may_write(now) {
            let omitted = (omitted > 0).then_some(omitted);
            tracing::warn!(%address, refused, omitted, "an address is at its limit: raise `{key}` of [rates] if it is no flood");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_beyond_their_number_are_omitted_and_counted() {
        let notices = Notices::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let written: Vec<_> = (0..8).map(|_| notices.may_write(at(1))).collect();
        assert_eq!(written, [[Some(0); 5].as_slice(), &[None; 3]].concat());
        assert_eq!((notices.may_write(at(9)), notices.may_write(at(11))), (None, Some(4)));
        assert_eq!(notices.may_write(at(11)), Some(0));
    }
}
