//! Congestion window, and rules about its use.

use marcato_units::{Duration, Stream, Time};

use super::config::{TcpConfigError, TcpEnd};
use super::congestion::{self, CongestionControl};
use super::usage::Usage;

/// Effect of an idle time of more than a retransmission timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterIdle {
    /// The window stays.
    Keep,
    /// It returns to the initial one. RFC 5681 §4.1.
    Restart,
    /// It is halved for each timeout, as Linux does. RFC 2861 §3.
    Decay,
}

/// Congestion control of a sender, and the use of its window.
#[derive(Debug)]
pub(crate) struct CongestionWindow {
    pub(crate) control: Box<dyn CongestionControl>,
    /// Use of the window, if it is judged once a round trip.
    usage: Option<Usage>,
    after_idle: AfterIdle,
    pub(crate) last_sent_at: Time,
}

impl CongestionWindow {
    pub(crate) fn new(end: &TcpEnd, stream: Stream) -> Result<Self, TcpConfigError> {
        let config = &end.tcp;
        Ok(Self {
            control: congestion::build(end, stream)?,
            usage: config.usage_by_round.then(Usage::default),
            after_idle: match (config.slow_start_after_idle, config.idle_decay) {
                (false, _) => AfterIdle::Keep,
                (true, false) => AfterIdle::Restart,
                (true, true) => AfterIdle::Decay,
            },
            last_sent_at: Time::ZERO,
        })
    }

    /// Handles the resumption of sending while nothing is in flight.
    pub(crate) fn on_idle(&mut self, now: Time, rto: Duration, app_limited: bool) {
        let idle = now - self.last_sent_at;
        let expired = idle > rto;
        let restarts = expired && self.after_idle == AfterIdle::Restart;
        self.control.on_idle_restart(now, app_limited, restarts);
        if expired && self.after_idle == AfterIdle::Decay {
            let timeouts = (idle.as_nanos() - 1) / rto.as_nanos().max(1);
            self.control.on_idle_decay(u32::try_from(timeouts).unwrap_or(u32::MAX));
        }
    }

    /// Handles a transmission, or its refusal by the window, with bytes from `una` to `nxt` outstanding.
    pub(crate) fn note_usage(&mut self, una: u64, nxt: u64, limited: bool) {
        if let Some(usage) = &mut self.usage {
            usage.note(una, nxt, limited);
        }
    }

    /// Returns the part of a window of `cwnd` bytes that counts as used while this much is in flight.
    pub(crate) fn used(&self, cwnd: impl FnOnce() -> u64, in_flight: u64) -> u64 {
        self.usage.map_or(in_flight, |usage| usage.of(cwnd()))
    }
}
