//! RACK: what is lost, by the times at which segments left. RFC 8985 §6; the walk itself is the scoreboard's.

use marcato_units::{Duration, Time};

use super::scoreboard::Sent;

/// RFC 8985 §6.2 step 4: recoveries for which a widened window is kept.
const PERSIST: u32 = 16;
/// RFC 8985 §5.2: DupThresh.
const DUP_THRESH: u64 = 3;

/// RACK's variables, named as in RFC 8985 §5.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: of what was delivered, the segment that left last.
    xmit_ts: Time,
    end_seq: u64,
    /// RACK.rtt: its round trip.
    rtt: Duration,
    /// RACK.fack: the end of the highest segment delivered; and what it was before this acknowledgement.
    fack: u64,
    prior_fack: u64,
    reordering_seen: bool,
    reo_wnd: Duration,
    /// RACK.reo_wnd_mult less one.
    widened: u32,
    reo_wnd_persist: u32,
    dsack_round: Option<u64>,
}

/// What the reordering window depends on beside RACK's own variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RackState {
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) dsack: bool,
    /// In fast or timeout recovery.
    pub(crate) in_recovery: bool,
    /// A recovery has just ended.
    pub(crate) recovered: bool,
    /// RACK.segs_sacked.
    pub(crate) segs_sacked: u64,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) srtt: Option<Duration>,
}

impl Rack {
    /// An acknowledgement arrived; what it delivers is reported next.
    pub(crate) fn begin_ack(&mut self) {
        self.prior_fack = self.fack;
    }

    /// A segment was acknowledged or SACKed for the first time: RFC 8985 §6.2 steps 1 to 3. `timestamp_rtt` is the
    /// round trip by the echoed timestamp, in whole milliseconds, if that speaks of this segment.
    pub(crate) fn on_delivered(
        &mut self,
        now: Time,
        sent: &Sent,
        min_rtt: Option<Duration>,
        timestamp_rtt: Option<Duration>,
    ) {
        self.fack = self.fack.max(sent.end);
        if !sent.ambiguous && sent.end < self.prior_fack {
            self.reordering_seen = true;
        }
        let rtt = now - sent.sent_at;
        if sent.ambiguous {
            // It may be the earlier sending that arrived: the timestamp says so, or a round trip that cannot be.
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

    /// RFC 8985 §6.2 step 4.
    pub(crate) fn update_reo_wnd(&mut self, state: RackState) {
        if state.dsack {
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
        if !self.reordering_seen && (state.in_recovery || state.segs_sacked >= DUP_THRESH) {
            self.reo_wnd = Duration::ZERO;
            return;
        }
        let quarters = self.widened.saturating_add(1);
        let window = state.min_rtt.unwrap_or(Duration::ZERO).saturating_mul(quarters) / 4;
        self.reo_wnd = window.min(state.srtt.unwrap_or(Duration::ZERO));
    }

    /// Whether a later segment than this has been delivered: RACK_sent_after.
    pub(crate) fn is_past(&self, sent: &Sent) -> bool {
        (self.xmit_ts, self.end_seq) > (sent.sent_at, sent.end)
    }

    /// When a segment that left at `sent_at` counts as lost. RFC 8985 §6.2 step 5.
    pub(crate) fn lost_at(&self, sent_at: Time) -> Time {
        sent_at + self.rtt + self.reo_wnd
    }
}
