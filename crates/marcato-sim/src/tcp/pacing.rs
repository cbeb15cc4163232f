//! Pacing of segments, and their bursts.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::Tcp;
use super::congestion::CongestionControl;

/// Bursts of new data, as a network card with segmentation offload sends them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offload {
    /// Greatest burst.
    pub(crate) most: u64,
    /// Bytes that may still leave of the current burst.
    left: u64,
    /// Part of the window that waits for a full burst. It counts as used, since Linux grows the
    /// window in this case too.
    held_back: u64,
}

/// Pacing of an end.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    /// Paces by the window if the congestion control has no rate.
    by_window: bool,
    /// First segments that are not paced and have not left yet.
    unpaced: u32,
    /// Time at which the next segment may leave.
    pub(crate) at: Time,
    pub(crate) offload: Option<Offload>,
}

impl Pacing {
    pub(crate) fn new(config: &Tcp) -> Self {
        Self {
            by_window: config.pacing,
            unpaced: config.unpaced_segments,
            at: Time::ZERO,
            offload: config.segmentation_offload.map(|most| Offload {
                most: most.get(),
                left: 0,
                held_back: 0,
            }),
        }
    }

    /// Returns the pacing rate: the congestion control's, or that of the window if pacing is on.
    /// The latter is as in Linux: twice the window per round trip in slow start up to half of the
    /// threshold, and 1.2 times the window from there on.
    pub(crate) fn rate(&self, control: &dyn CongestionControl, srtt: Option<Duration>) -> Option<Rate> {
        control.pacing_rate().or_else(|| window_rate(control, srtt).filter(|_| self.by_window))
    }

    /// Returns the bytes that may still leave of the current burst.
    pub(crate) fn left(&self) -> u64 {
        self.offload.map_or(0, |offload| offload.left)
    }

    pub(crate) fn set_left(&mut self, left: u64) {
        if let Some(offload) = &mut self.offload {
            offload.left = left;
        }
    }

    /// Returns the part of the window that waits for a full burst.
    pub(crate) fn held_back(&self) -> u64 {
        self.offload.map_or(0, |offload| offload.held_back)
    }

    pub(crate) fn hold_back(&mut self, bytes: u64) {
        if let Some(offload) = &mut self.offload {
            offload.held_back = bytes;
        }
    }

    /// Returns true if the next segment waits for its time. A burst that has begun does not.
    pub(crate) fn is_early(&self, now: Time) -> bool {
        self.at > now && self.left() == 0
    }

    /// Handles a segment with a payload of `bytes` that left at this rate.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, rate: Option<Rate>) {
        if self.unpaced > 0 {
            // Linux, `tcp_update_skb_after_send`: the first ten segments leave at once.
            self.unpaced -= 1;
        } else if let Some(rate) = rate {
            self.at = self.at.max(now) + rate.transmission_time(Bytes::new(bytes));
        }
    }
}

/// Returns the rate by which Linux paces if the congestion control has none, and by which it cuts
/// bursts in any case.
pub(crate) fn window_rate(control: &dyn CongestionControl, srtt: Option<Duration>) -> Option<Rate> {
    let (srtt, cwnd) = (srtt?, control.cwnd());
    // Linux, `tcp_update_pacing_rate`: slow start that nears its threshold is paced like
    // congestion avoidance.
    let percent = if cwnd < control.ssthresh() / 2 { 200 } else { 120 };
    Some(Rate::from_bytes_over(Bytes::new(cwnd * percent / 100), srtt))
}
