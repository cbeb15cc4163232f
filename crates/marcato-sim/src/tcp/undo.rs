//! Reductions of the window that prove spurious: nothing was lost, packets were only late.
//!
//! The signs are those that Linux knows. An acknowledgement echoes a timestamp from before the first
//! retransmission, so the original elicited it (Eifel, RFC 3522 §3.2). Every retransmission is
//! reported as a duplicate (RFC 2883). After a timeout, segments arrive that were never
//! retransmitted (F-RTO, RFC 5682 §3.1); the sender detects that itself. The response is to restore
//! the window (RFC 4015).

use marcato_units::{Duration, Time};

/// Reduction that may prove spurious. Names in brackets are Linux's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo {
    /// SND.UNA at the reduction (`undo_marker`).
    marker: u64,
    /// Retransmissions since then of which no duplicate has been reported (`undo_retrans`); `None`
    /// before the first.
    unreported: Option<u32>,
    /// Time of the first retransmission (`retrans_stamp`).
    first_at: Option<Time>,
}

impl Undo {
    /// Begins with a reduction while `una` is SND.UNA and `resent` retransmissions are outstanding.
    pub(crate) fn new(una: u64, resent: u64) -> Self {
        let unreported = u32::try_from(resent).ok().filter(|&resent| resent > 0);
        // A retransmission from before the reduction may elicit any acknowledgement, so that none is
        // known to be late.
        Self { marker: una, unreported, first_at: unreported.map(|_| Time::ZERO) }
    }

    /// Counts a retransmission.
    pub(crate) fn on_resent(&mut self, now: Time) {
        self.first_at.get_or_insert(now);
        self.unreported = Some(self.unreported.unwrap_or(0).saturating_add(1));
    }

    /// Counts a reported duplicate of `segments` segments that ends at `end`.
    pub(crate) fn on_duplicate(&mut self, end: u64, segments: u64) {
        // What was sent before the reduction says nothing about it.
        if end > self.marker
            && let Some(unreported) = &mut self.unreported
        {
            *unreported = unreported.saturating_sub(u32::try_from(segments).unwrap_or(u32::MAX));
        }
    }

    /// Returns true if every retransmission was reported as a duplicate.
    pub(crate) fn is_reported(&self) -> bool {
        self.unreported == Some(0)
    }

    /// Returns true if an acknowledgement of new data was elicited before the first retransmission,
    /// or there was none. `rtt` is the round trip of its echoed timestamp, in whole milliseconds.
    pub(crate) fn is_late(&self, now: Time, rtt: Option<Duration>) -> bool {
        let Some(first_at) = self.first_at else { return true };
        // Timestamps count milliseconds. RFC 3522 §3.2 step 5: strictly before.
        let ms = |at: Time| u128::from(at.as_nanos() / 1_000_000);
        rtt.is_some_and(|rtt| ms(now) < ms(first_at) + rtt.as_millis())
    }
}

/// Greatest degree of reordering. Linux, `tcp_max_reordering`.
const MAX_REORDERING: u64 = 300;

/// Degree of reordering, by which the threshold of duplicate acknowledgements adapts. Linux,
/// `tcp_check_sack_reordering`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reordering {
    /// End of the highest segment delivered.
    fack: u64,
    /// Segments by which others may overtake one that is not lost.
    pub(crate) degree: u64,
}

impl Reordering {
    pub(crate) const fn new(dup_thresh: u64) -> Self {
        Self { fack: 0, degree: dup_thresh }
    }

    /// Returns the end of the highest segment delivered so far.
    pub(crate) const fn fack(&self) -> u64 {
        self.fack
    }

    pub(crate) fn on_delivered(&mut self, end: u64) {
        self.fack = self.fack.max(end);
    }

    /// Records that the segment from `seq` on arrived after what ends at `fack`.
    pub(crate) fn on_overtaken(&mut self, seq: u64, fack: u64, mss: u64) {
        let distance = fack.saturating_sub(seq).div_ceil(mss.max(1));
        self.degree = self.degree.max(distance.min(MAX_REORDERING));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn all_retransmissions_must_be_reported_and_none_from_before() {
        let mut undo = Undo::new(10_000, 0);
        assert!(!undo.is_reported());
        undo.on_resent(at(0));
        undo.on_resent(at(1));
        undo.on_duplicate(10_000, 1);
        undo.on_duplicate(11_000, 1);
        assert!(!undo.is_reported());
        undo.on_duplicate(12_000, 1);
        assert!(undo.is_reported());
        // Retransmissions that were outstanding before count, too.
        let mut undo = Undo::new(10_000, 1);
        undo.on_resent(at(0));
        undo.on_duplicate(11_000, 1);
        assert!(!undo.is_reported());
        undo.on_duplicate(12_000, 4);
        assert!(undo.is_reported());
    }

    #[test]
    fn an_echo_from_before_the_first_retransmission_is_late() {
        let mut undo = Undo::new(1, 0);
        assert!(undo.is_late(at(500), None));
        undo.on_resent(at(100));
        undo.on_resent(at(300));
        for (rtt, late) in [(Some(101), true), (Some(100), false), (Some(10), false), (None, false)] {
            assert_eq!(undo.is_late(at(200), rtt.map(Duration::from_millis)), late, "{rtt:?}");
        }
    }

    #[test]
    fn after_an_older_retransmission_no_echo_is_known_to_be_late() {
        let undo = Undo::new(1, 1);
        assert!(!undo.is_late(at(500), None) && !undo.is_late(at(500), Some(Duration::from_millis(400))));
    }

    #[test]
    fn the_degree_is_the_longest_distance_in_segments_up_to_300() {
        let mut reordering = Reordering::new(3);
        for (seq, degree) in [(9000, 3), (4500, 6), (8000, 6), (0, 10)] {
            reordering.on_overtaken(seq, 10_000, 1000);
            assert_eq!(reordering.degree, degree);
        }
        reordering.on_overtaken(0, 1_000_000, 1000);
        assert_eq!(reordering.degree, 300);
    }
}
