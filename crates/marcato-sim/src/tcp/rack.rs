//! RACK loss detection by the sending times of segments. RFC 8985 §6; the scoreboard walks the
//! segments.

use marcato_units::{Duration, Time};

use super::scoreboard::Sent;

/// Recoveries for which a widened reordering window persists. RFC 8985 §6.2 step 4.
const PERSIST: u32 = 16;
/// DupThresh of RFC 8985 §5.2.
const DUP_THRESH: u64 = 3;

/// RACK's variables, named as in RFC 8985 §5.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// RACK.xmit_ts: sending time of the delivered segment that was sent last. `end_seq`,
    /// RACK.end_seq, is its end.
    xmit_ts: Time,
    end_seq: u64,
    /// RACK.rtt: round trip of that segment.
    rtt: Duration,
    /// RACK.fack: end of the highest segment delivered. `prior_fack` is its value before this
    /// acknowledgement.
    fack: u64,
    prior_fack: u64,
    reordering_seen: bool,
    reo_wnd: Duration,
    /// RACK.reo_wnd_mult less one.
    widened: u32,
    reo_wnd_persist: u32,
    dsack_round: Option<u64>,
}

/// State of the sender on which the reordering window depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RackState {
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) dsack: bool,
    /// True in fast or timeout recovery.
    pub(crate) in_recovery: bool,
    /// True if a recovery has just ended.
    pub(crate) recovered: bool,
    /// RACK.segs_sacked.
    pub(crate) segs_sacked: u64,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) srtt: Option<Duration>,
}

impl Rack {
    /// Begins an acknowledgement; [`on_delivered`](Self::on_delivered) follows for its segments.
    pub(crate) fn begin_ack(&mut self) {
        self.prior_fack = self.fack;
    }

    /// Handles a segment acknowledged or SACKed for the first time. RFC 8985 §6.2 steps 1 to 3.
    /// `timestamp_rtt` is the round trip of the echoed timestamp in whole milliseconds, if it
    /// applies to this segment.
    pub(crate) fn on_delivered(
        &mut self,
        now: Time,
        sent: &Sent,
        min_rtt: Option<Duration>,
        timestamp_rtt: Option<Duration>,
    ) {
        self.fack = self.fack.max(sent.end);
        // RFC 8985 §6.2 step 3: a segment sent once arrived after a higher one.
        if !sent.ambiguous && sent.end < self.prior_fack {
            self.reordering_seen = true;
        }
        let rtt = now - sent.sent_at;
        if sent.ambiguous {
            // RFC 8985 §6.2 step 2: the earlier transmission may have arrived. The timestamp shows
            // it, or a round trip below the minimum.
            let since = now.as_nanos() / 1_000_000 - sent.sent_at.as_nanos() / 1_000_000;
            let earlier = timestamp_rtt.is_some_and(|by_echo| by_echo > Duration::from_millis(since));
            if earlier || min_rtt.is_some_and(|min| rtt < min) {
                return;
            }
        }
        self.rtt = rtt;
        if (sent.sent_at, sent.end) > (self.xmit_ts, self.end_seq) {
            self.xmit_ts = sent.sent_at;
            self.end_seq = sent.end;
        }
    }

    /// Records that a segment taken for lost was only late.
    pub(crate) fn see_reordering(&mut self) {
        self.reordering_seen = true;
    }

    /// Has the widened window persist for one recovery more, as this one proved spurious. Linux,
    /// `tcp_try_undo_dsack`.
    pub(crate) fn keep_window(&mut self) {
        self.reo_wnd_persist = (self.reo_wnd_persist + 1).min(PERSIST);
    }

    /// Updates the reordering window. RFC 8985 §6.2 step 4.
    pub(crate) fn update_reo_wnd(&mut self, state: RackState) {
        if state.dsack {
            // A DSACK shows a spurious retransmission: widen by min_RTT/4, at most once per round
            // trip.
            if self.dsack_round.is_none_or(|round| state.una >= round) {
                self.dsack_round = Some(state.nxt);
                self.widened += 1;
                self.reo_wnd_persist = PERSIST;
            }
        } else if state.recovered {
            self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
            if self.reo_wnd_persist == 0 {
                self.widened = 0;
            }
        }
        // Without observed reordering, holes are repaired at once in recovery, or with three segments
        // SACKed.
        if !self.reordering_seen && (state.in_recovery || state.segs_sacked >= DUP_THRESH) {
            self.reo_wnd = Duration::ZERO;
            return;
        }
        let quarters = self.widened.saturating_add(1);
        let window = state.min_rtt.unwrap_or(Duration::ZERO).saturating_mul(quarters) / 4;
        self.reo_wnd = window.min(state.srtt.unwrap_or(Duration::ZERO));
    }

    /// RACK_sent_after: true if a segment sent later than this one has been delivered.
    pub(crate) fn is_past(&self, sent: &Sent) -> bool {
        (self.xmit_ts, self.end_seq) > (sent.sent_at, sent.end)
    }

    /// Returns the time at which a segment sent at `sent_at` counts as lost. RFC 8985 §6.2 step 5.
    pub(crate) fn lost_at(&self, sent_at: Time) -> Time {
        sent_at + self.rtt + self.reo_wnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: RackState = RackState {
        una: 1000,
        nxt: 9000,
        dsack: false,
        in_recovery: false,
        recovered: false,
        segs_sacked: 0,
        min_rtt: Some(Duration::from_millis(40)),
        srtt: Some(Duration::from_millis(60)),
    };

    fn window(rack: &mut Rack, state: RackState) -> u128 {
        rack.update_reo_wnd(state);
        rack.reo_wnd.as_millis()
    }

    /// RFC 8985 §6.2 step 4.
    #[test]
    fn the_window_widens_once_a_round_and_narrows_in_16_recoveries() {
        let mut rack = Rack::default();
        assert_eq!(window(&mut rack, STATE), 10);
        for (una, nxt, expected) in
            [(1000, 9000, 20), (5000, 12_000, 20), (8999, 15_000, 20), (9000, 20_000, 30)]
        {
            assert_eq!(window(&mut rack, RackState { una, nxt, dsack: true, ..STATE }), expected, "{una}");
        }
        // The smoothed round trip bounds it.
        for una in [20_000, 40_000, 60_000, 80_000] {
            window(&mut rack, RackState { una, nxt: una + 10_000, dsack: true, ..STATE });
        }
        assert_eq!(window(&mut rack, STATE), 60);
        let recovered = RackState { recovered: true, ..STATE };
        for recovery in 1..16 {
            assert_eq!(window(&mut rack, recovered), 60, "{recovery}");
            assert_eq!(window(&mut rack, STATE), 60);
        }
        // One that proves spurious does not count, up to the limit.
        rack.keep_window();
        assert_eq!(window(&mut rack, recovered), 60);
        assert_eq!(window(&mut rack, recovered), 10);
        (0..40).for_each(|_| rack.keep_window());
        window(&mut rack, RackState { una: 200_000, nxt: 210_000, dsack: true, ..STATE });
        for _ in 1..16 {
            assert_eq!(window(&mut rack, recovered), 20);
        }
        assert_eq!(window(&mut rack, recovered), 10);
    }

    #[test]
    fn without_reordering_holes_are_repaired_at_once() {
        let sacked = |segs_sacked| RackState { segs_sacked, ..STATE };
        let recovery = RackState { in_recovery: true, ..STATE };
        let mut rack = Rack::default();
        assert_eq!([sacked(2), sacked(3), recovery].map(|state| window(&mut rack, state)), [10, 0, 0]);
        rack.see_reordering();
        assert_eq!([sacked(2), sacked(3), recovery].map(|state| window(&mut rack, state)), [10; 3]);
    }
}
