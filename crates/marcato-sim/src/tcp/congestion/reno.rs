//! Reno: RFC 5681, with the byte counting of RFC 3465. The sender implements recovery by RFC 6675
//! and RFC 6937.

use marcato_units::{Duration, Time};

use super::hystart_plus_plus::HyStartPlusPlus;
use super::{AckEvent, CongestionControl, LossState, Signal, Start};
use crate::tcp::Growth;
use crate::tcp::config::GrowthRule as _;

/// Reno's window. All quantities are bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reno {
    cwnd: u64,
    ssthresh: u64,
    smss: u64,
    initial_window: u64,
    growth: Growth,
    reduce_window: bool,
    /// Bytes acknowledged towards the next segment of growth. RFC 3465 §2.1.
    bytes_acked: u64,
    /// Window and threshold before the last reduction for a loss, to which a spurious one returns.
    prior: Option<(u64, u64)>,
    hystart: Option<Box<HyStartPlusPlus>>,
}

impl Reno {
    pub(crate) fn new(start: Start) -> Self {
        let Start { smss, window, ssthresh, growth, reduce_window, .. } = start;
        Self {
            cwnd: window,
            ssthresh,
            smss,
            initial_window: window,
            growth,
            reduce_window,
            bytes_acked: 0,
            prior: None,
            hystart: start.hystart_plus_plus(),
        }
    }

    /// Reduces window and threshold by `less`, but not below two segments.
    pub(super) fn reduce_by(&mut self, less: u64) {
        self.prior = None;
        self.ssthresh = self.cwnd.saturating_sub(less).max(2 * self.smss);
        self.cwnd = self.ssthresh;
        self.bytes_acked = 0;
    }

    /// Returns the threshold of RFC 5681 eq. 4. Limited transmit beyond the window must not count
    /// (§3.2). It is in whole segments, as in Linux: a fraction could not be sent, and would grow
    /// to nearly a segment over many halvings.
    fn half(&self, in_flight: u64) -> u64 {
        let used = if self.reduce_window { self.cwnd } else { in_flight.min(self.cwnd) };
        (used / (2 * self.smss) * self.smss).max(2 * self.smss)
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, ack: &AckEvent) {
        // SACKed bytes were counted earlier: the acknowledgement that ends a recovery covers a
        // whole window.
        let acked = self.growth.counted(ack.newly_acked.min(ack.delivered), self.smss);
        if matches!(ack.state, LossState::Recovery | LossState::Reduction) || acked == 0 {
            return;
        }
        if self.cwnd < self.ssthresh {
            // RFC 7661 §4.4.1, simplified: an unused window does not grow; in slow start half of it
            // must be in use.
            if ack.used.saturating_mul(2) < self.cwnd {
                return;
            }
            if let Some(hystart) = &mut self.hystart
                && self.ssthresh == hystart.initial_ssthresh
            {
                match hystart.on_ack(acked, ack.rtt, [ack.una, ack.nxt]) {
                    Some(growth) => self.cwnd += growth,
                    None => self.ssthresh = self.cwnd,
                }
                return;
            }
            // RFC 3465 §2.2 and §2.3: growth per acknowledgement is bounded, by one segment after a
            // timeout.
            self.cwnd += acked.min(self.growth.most_in_slow_start(self.smss, ack.state == LossState::Loss));
        } else {
            if ack.used + self.smss < self.cwnd {
                return;
            }
            // One segment per window of acknowledged bytes.
            self.bytes_acked += acked;
            if self.bytes_acked >= self.cwnd {
                self.bytes_acked -= self.cwnd;
                self.cwnd += self.smss;
            }
        }
    }

    fn on_congestion(&mut self, _now: Time, in_flight: u64, signal: Signal) {
        self.prior = (signal == Signal::Loss).then_some((self.cwnd, self.ssthresh));
        self.ssthresh = self.half(in_flight);
        self.cwnd = self.ssthresh;
        self.bytes_acked = 0;
    }

    fn on_recovered(&mut self, _now: Time) {
        self.cwnd = self.ssthresh;
    }

    fn on_rto(&mut self, _now: Time, in_flight: u64, first: bool) {
        // RFC 5681 §3.1: ssthresh is set only at the first timeout of the same data.
        if first {
            self.prior = Some((self.cwnd, self.ssthresh));
            self.ssthresh = self.half(in_flight);
        }
        self.cwnd = self.smss;
        self.bytes_acked = 0;
    }

    fn on_idle_restart(&mut self, _now: Time, _app_limited: bool, expired: bool) {
        // RFC 5681 §4.1: restart from at most the initial window after an idle retransmission
        // timeout.
        if expired {
            self.cwnd = self.cwnd.min(self.initial_window);
        }
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        let least = self.initial_window.min(self.cwnd);
        self.cwnd = self.cwnd.checked_shr(timeouts).unwrap_or(0).max(least);
    }

    fn on_spurious(&mut self, _now: Time) {
        if let Some((cwnd, ssthresh)) = self.prior.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
        }
    }

    fn on_lost_handshake(&mut self) {
        self.cwnd = self.smss;
    }

    fn on_established(&mut self, _now: Time, _rtt: Option<Duration>) {}

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_and_avoidance_adds_a_segment_per_window() {
        let mut reno = Reno::new(Start::plain(1000, 10_000));
        for _ in 0..10 {
            reno.on_ack(&AckEvent::of(1000, reno.cwnd(), LossState::Open));
        }
        assert_eq!(reno.cwnd(), 20_000);
        reno.on_congestion(Time::ZERO, 20_000, Signal::Loss);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (10_000, 10_000));
        for _ in 0..10 {
            reno.on_ack(&AckEvent::of(1000, reno.cwnd(), LossState::Open));
        }
        assert_eq!(reno.cwnd(), 11_000);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut reno = Reno::new(Start::plain(1000, 10_000));
        reno.on_ack(&AckEvent::of(1000, 4000, LossState::Open));
        assert_eq!(reno.cwnd(), 10_000);
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_sets_ssthresh_only_once() {
        let mut reno = Reno::new(Start::plain(1000, 10_000));
        reno.on_rto(Time::ZERO, 10_000, true);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (1000, 5000));
        reno.on_rto(Time::ZERO, 1000, false);
        assert_eq!(reno.ssthresh(), 5000);
    }

    #[test]
    fn a_spurious_reduction_leaves_window_and_threshold_as_before() {
        let mut reno = Reno::new(Start::plain(1000, 40_000));
        reno.on_congestion(Time::ZERO, 40_000, Signal::Loss);
        reno.on_spurious(Time::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (40_000, u64::MAX));
        reno.on_congestion(Time::ZERO, 40_000, Signal::Loss);
        reno.on_rto(Time::ZERO, 20_000, true);
        reno.on_rto(Time::ZERO, 1000, false);
        reno.on_spurious(Time::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (20_000, 20_000));
        // Nothing is left to undo, and a mark is never undone.
        reno.on_congestion(Time::ZERO, 20_000, Signal::Ecn);
        reno.on_spurious(Time::ZERO);
        assert_eq!((reno.cwnd(), reno.ssthresh()), (10_000, 10_000));
    }

    #[test]
    fn the_threshold_never_falls_below_two_segments() {
        let mut reno = Reno::new(Start::plain(1000, 10_000));
        reno.on_congestion(Time::ZERO, 1000, Signal::Loss);
        assert_eq!(reno.ssthresh(), 2000);
    }
}
