//! Prague: a scalable control for queues of L4S (RFC 9331 §4; draft-briscoe-iccrg-prague-congestion-control-04).
//!
//! It is DCTCP with ECT(1), and with a growth that does not favour short round trips. Deviations from the draft:
//!
//! - Marks come back by DCTCP's echo of each mark (RFC 8257 §3.2), not by AccECN. Where nothing is lost on the way back,
//!   both tell the same bytes.
//! - The draft scales growth by the square of that ratio, and reduces once per virtual round trip. Here each real round trip
//!   may reduce, as in DCTCP, and growth is scaled by the ratio itself: the rate at which both balance is the same.
//! - The window is at least two segments, and a classic queue's marks are not detected (§2.4.4 of the draft, experimental).

use marcato_units::{Duration, Time};

use super::dctcp::Dctcp;
use super::{AckEvent, CongestionControl, LossState, Signal, Start};

/// Round trip below which a flow grows as if it had this one. Draft §2.4.2: 25 ms.
const RTT_VIRT: Duration = Duration::from_millis(25);

/// Prague's window.
#[derive(Clone, Debug)]
pub(crate) struct Prague {
    dctcp: Dctcp,
    /// Part of a byte of growth that is left over.
    rest: f64,
}

impl Prague {
    pub(crate) fn new(start: Start) -> Self {
        Self { dctcp: Dctcp::new(start), rest: 0.0 }
    }

    /// Acknowledged bytes as they count for growth: of a round trip that is shorter than the virtual one by a factor, that
    /// part. The flow then grows and shrinks to the rate that it would have with the virtual round trip.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of bytes"
    )]
    fn scaled(&mut self, bytes: u64, srtt: Option<Duration>) -> u64 {
        let Some(srtt) = srtt.filter(|srtt| *srtt < RTT_VIRT) else { return bytes };
        let share = srtt.as_secs_f64() / RTT_VIRT.as_secs_f64();
        let scaled = bytes as f64 * share + self.rest;
        self.rest = scaled.fract();
        scaled as u64
    }
}

impl CongestionControl for Prague {
    fn on_echo(&mut self, newly_acked: u64, una: u64, nxt: u64, ece: bool) {
        self.dctcp.on_echo(newly_acked, una, nxt, ece);
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        if self.cwnd() < self.ssthresh() {
            return self.dctcp.on_ack(ack);
        }
        let newly_acked = self.scaled(ack.newly_acked.min(ack.delivered), ack.srtt);
        // Draft §2.4.3: growth goes on while marks reduce the window; otherwise a flow that gets one in every round trip
        // would not grow at all.
        let state = if ack.state == LossState::Reduction { LossState::Open } else { ack.state };
        self.dctcp.on_ack(&AckEvent { newly_acked, state, ..*ack });
    }

    fn on_congestion(&mut self, now: Time, in_flight: u64, signal: Signal) {
        self.dctcp.on_congestion(now, in_flight, signal);
    }

    fn on_recovered(&mut self, now: Time) {
        self.dctcp.on_recovered(now);
    }

    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool) {
        self.dctcp.on_rto(now, in_flight, first);
    }

    fn on_idle_restart(&mut self, now: Time, app_limited: bool, expired: bool) {
        self.dctcp.on_idle_restart(now, app_limited, expired);
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.dctcp.on_idle_decay(timeouts);
    }

    fn on_spurious(&mut self, now: Time) {
        self.dctcp.on_spurious(now);
    }

    fn on_lost_handshake(&mut self) {
        self.dctcp.on_lost_handshake();
    }

    fn on_established(&mut self, now: Time, rtt: Option<Duration>) {
        self.dctcp.on_established(now, rtt);
    }

    fn cwnd(&self) -> u64 {
        self.dctcp.cwnd()
    }

    fn ssthresh(&self) -> u64 {
        self.dctcp.ssthresh()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the growth within a second, of a flow with a window of ten segments and this round trip.
    fn growth(rtt: Duration) -> u64 {
        let mut prague = Prague::new(Start::plain(1000, 10_000));
        prague.on_echo(1000, 2, 10_000, true);
        prague.on_congestion(Time::ZERO, 10_000, Signal::Ecn);
        let before = prague.cwnd();
        let mut acked = 0;
        // Each round trip acknowledges the window of the beginning, so that only the counting of bytes differs.
        for _ in 0..1000 / rtt.as_millis() {
            for _ in 0..10 {
                let ack = AckEvent { srtt: Some(rtt), ..AckEvent::of(1000, 100_000, LossState::Open) };
                prague.on_ack(&ack);
                acked += 1000;
            }
        }
        assert!(acked > 0);
        prague.cwnd() - before
    }

    #[test]
    fn short_round_trips_do_not_grow_faster() {
        let [short, long] = [growth(Duration::from_millis(5)), growth(Duration::from_millis(25))];
        // A fifth of the round trip: five times the windows, each of which counts for a fifth.
        assert!(short <= long + 1000 && long <= short + 1000, "{short} {long}");
    }

    #[test]
    fn round_trips_beyond_the_virtual_one_count_whole() {
        let mut prague = Prague::new(Start::plain(1000, 10_000));
        assert_eq!(prague.scaled(1000, Some(Duration::from_millis(50))), 1000);
        assert_eq!(prague.scaled(1000, Some(Duration::from_micros(12_500))), 500);
        assert_eq!(prague.scaled(1000, None), 1000);
    }
}
