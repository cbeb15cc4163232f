//! Use of the congestion window: whether it is large because the network carries that much, or has
//! only never been tried. RFC 7661 §4.1.

/// Most bytes that were outstanding in the current round trip, as Linux counts them.
///
/// While the last segments of a burst are acknowledged, less and less is in flight, but what was in
/// flight at first has been tried. Linux, `tcp_cwnd_validate`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Sequence number whose acknowledgement ends the round trip.
    until: u64,
    /// Bytes outstanding, at most.
    most: u64,
    /// The window, and not the application, ended sending.
    limited: bool,
}

impl Usage {
    /// Handles a transmission, or its refusal by the window, with bytes from `una` to `nxt`
    /// outstanding.
    pub(crate) fn note(&mut self, una: u64, nxt: u64, limited: bool) {
        let outstanding = nxt - una;
        if una >= self.until || limited || !self.limited && outstanding > self.most {
            *self = Self { until: nxt, most: outstanding, limited };
        }
    }

    /// Returns the part of a window that counts as used.
    pub(crate) const fn of(&self, cwnd: u64) -> u64 {
        // One byte less, as a window of exactly twice that does not grow. Linux,
        // `tcp_is_cwnd_limited`.
        if self.limited { cwnd } else { self.most.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_round_trip_counts_until_it_ends() {
        let mut usage = Usage::default();
        for nxt in 1..=6 {
            usage.note(0, nxt, false);
        }
        assert_eq!(usage.of(10), 5);
        usage.note(5, 7, false);
        assert_eq!(usage.of(10), 5, "two are outstanding, but six were");
        usage.note(6, 8, false);
        assert_eq!(usage.of(10), 1, "all of that round trip is acknowledged");
    }

    #[test]
    fn a_window_that_ended_sending_is_used_until_a_round_trip_later() {
        let mut usage = Usage::default();
        usage.note(0, 10, true);
        assert_eq!(usage.of(10), 10);
        usage.note(1, 12, false);
        assert_eq!(usage.of(20), 20, "more is outstanding, but the window ended sending before");
        usage.note(9, 12, false);
        assert_eq!(usage.of(20), 20);
        usage.note(10, 12, false);
        assert_eq!(usage.of(20), 1);
    }
}
