//! DCTCP: RFC 8257. Reno with a reduction in proportion to the share of marked bytes.

use marcato_units::{Duration, Time};

use super::reno::Reno;
use super::{AckEvent, CongestionControl, Signal, Start};

/// Estimation gain g. RFC 8257 §4.2.
const G: f64 = 1.0 / 16.0;

/// DCTCP's window and its estimate of marks; names as in RFC 8257 §3.3.
#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    reno: Reno,
    /// DCTCP.Alpha: estimated share of marked bytes.
    alpha: f64,
    /// DCTCP.WindowEnd: alpha is updated when this is acknowledged.
    window_end: u64,
    bytes_acked: u64,
    bytes_marked: u64,
}

impl Dctcp {
    pub(crate) fn new(start: Start) -> Self {
        Self {
            reno: Reno::new(start),
            // RFC 8257 §3.3: alpha begins at 1, the most conservative value.
            alpha: 1.0,
            window_end: 1,
            bytes_acked: 0,
            bytes_marked: 0,
        }
    }
}

impl CongestionControl for Dctcp {
    fn on_echo(&mut self, newly_acked: u64, una: u64, nxt: u64, ece: bool) {
        self.bytes_acked += newly_acked;
        if ece {
            self.bytes_marked += newly_acked;
        }
        // RFC 8257 §3.3: alpha is updated once per window.
        if una > self.window_end {
            let m = self.bytes_marked as f64 / self.bytes_acked.max(1) as f64;
            self.alpha = self.alpha * (1.0 - G) + m * G;
            self.window_end = nxt;
            self.bytes_acked = 0;
            self.bytes_marked = 0;
        }
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.reno.on_ack(ack);
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a window")]
    fn on_congestion(&mut self, now: Time, in_flight: u64, signal: Signal) {
        match signal {
            // RFC 8257 §3.5: a loss reduces the window as in Reno.
            Signal::Loss => self.reno.on_congestion(now, in_flight, signal),
            // RFC 8257 §3.3: cwnd = cwnd * (1 - DCTCP.Alpha / 2).
            Signal::Ecn => {
                let less = (self.reno.cwnd() as f64 * self.alpha / 2.0) as u64;
                self.reno.reduce_by(less);
            }
        }
    }

    fn on_recovered(&mut self, now: Time) {
        self.reno.on_recovered(now);
    }

    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool) {
        self.reno.on_rto(now, in_flight, first);
    }

    fn on_idle_restart(&mut self, now: Time, app_limited: bool, expired: bool) {
        self.reno.on_idle_restart(now, app_limited, expired);
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.reno.on_idle_decay(timeouts);
    }

    fn on_spurious(&mut self, now: Time) {
        self.reno.on_spurious(now);
    }

    fn on_lost_handshake(&mut self) {
        self.reno.on_lost_handshake();
    }

    fn on_established(&mut self, now: Time, rtt: Option<Duration>) {
        self.reno.on_established(now, rtt);
    }

    fn cwnd(&self) -> u64 {
        self.reno.cwnd()
    }

    fn ssthresh(&self) -> u64 {
        self.reno.ssthresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges `windows` windows of ten segments, of which `marked` carry an echo.
    fn windows(dctcp: &mut Dctcp, una: &mut u64, windows: u64, marked: u64) {
        for i in 0..10 * windows {
            *una += 1000;
            dctcp.on_echo(1000, *una, *una + 9_000, i % 10 < marked);
        }
    }

    #[test]
    fn alpha_comes_to_the_share_of_marked_bytes() {
        let mut dctcp = Dctcp::new(Start::plain(1000, 10_000));
        let mut una = 1;
        windows(&mut dctcp, &mut una, 200, 0);
        assert!(dctcp.alpha < 1e-4, "{}", dctcp.alpha);
        windows(&mut dctcp, &mut una, 200, 3);
        assert!((dctcp.alpha - 0.3).abs() < 0.01, "{}", dctcp.alpha);
    }

    #[test]
    fn marks_shrink_the_window_by_half_of_alpha_and_losses_by_half() {
        let mut dctcp = Dctcp::new(Start::plain(1000, 100_000));
        dctcp.alpha = 0.25;
        dctcp.on_congestion(Time::ZERO, 100_000, Signal::Ecn);
        assert_eq!((dctcp.cwnd(), dctcp.ssthresh()), (87_500, 87_500));
        dctcp.on_congestion(Time::ZERO, 87_500, Signal::Loss);
        assert_eq!(dctcp.cwnd(), 43_000);
    }
}
