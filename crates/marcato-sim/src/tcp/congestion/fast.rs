//! FAST: Wei, Jin, Low, Hegde, "FAST TCP: motivation, architecture, algorithms, performance", IEEE/ACM Transactions on
//! Networking 14(6), 2006 (INFOCOM 2004).
//!
//! Each flow keeps a number of its own packets, α, in the queue. Names are those of the article. Deviations:
//!
//! - The window moves to its next value with each acknowledgement, instead of in the bursts that the article's burstiness
//!   control spreads.
//! - The article leaves a loss to "standard" recovery: the window is halved, as by Reno.

use marcato_units::{Duration, Time};

use super::{AckEvent, CongestionControl, LossState, Signal, Start};

/// Part of the way to its target that the window goes in a round trip. §IV-B: γ.
const GAMMA: f64 = 0.5;
/// Largest weight of a round trip in the average. §IV-A: η is the lesser of this and 3 / w.
const MOST_WEIGHT: f64 = 0.25;
/// Smallest window in segments.
const MIN_WINDOW: f64 = 2.0;

/// FAST's window, in segments.
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    smss: u64,
    initial_window: f64,
    /// α: segments that the flow keeps in the queue.
    alpha: f64,
    cwnd: f64,
    /// Window at the end of this round trip.
    target: f64,
    /// Least and average round trip in seconds; `None` before the first.
    rtts: Option<(f64, f64)>,
    /// Offset whose acknowledgement ends the round trip.
    round_end: u64,
    /// Window before the last reduction for a loss.
    prior: Option<f64>,
}

impl Fast {
    pub(crate) fn new(start: Start, alpha: u32) -> Self {
        let initial_window = start.window as f64 / start.smss as f64;
        Self {
            smss: start.smss,
            initial_window,
            alpha: f64::from(alpha),
            cwnd: initial_window,
            target: initial_window,
            rtts: None,
            round_end: 0,
            prior: None,
        }
    }

    fn measure(&mut self, rtt: Duration) {
        let rtt = rtt.as_secs_f64();
        let (base, average) = self.rtts.unwrap_or((rtt, rtt));
        let weight = (3.0 / self.cwnd).min(MOST_WEIGHT);
        self.rtts = Some((base.min(rtt), average + weight * (rtt - average)));
    }

    /// Window after this round trip. §IV-B: w ← min(2w, (1 − γ)w + γ(baseRTT / RTT · w + α)).
    fn next(&self) -> f64 {
        let (base, average) = self.rtts.unwrap_or((1.0, 1.0));
        let w = self.cwnd;
        ((1.0 - GAMMA) * w + GAMMA * (base / average * w + self.alpha)).min(2.0 * w).max(MIN_WINDOW)
    }

    fn set(&mut self, cwnd: f64) {
        (self.cwnd, self.target) = (cwnd, cwnd);
    }
}

impl CongestionControl for Fast {
    fn on_ack(&mut self, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.measure(rtt);
        }
        let acked = ack.newly_acked.min(ack.delivered);
        if matches!(ack.state, LossState::Recovery | LossState::Reduction) || acked == 0 {
            return;
        }
        if ack.una > self.round_end {
            self.round_end = ack.nxt;
            let next = self.next();
            // RFC 7661 §4.4.1, simplified: an unused window does not grow.
            let is_used = ack.used.saturating_mul(2) >= self.cwnd();
            self.target = if is_used { next } else { next.min(self.cwnd) };
        }
        let most = acked as f64 / self.smss as f64;
        self.cwnd += (self.target - self.cwnd).clamp(-most, most);
    }

    fn on_congestion(&mut self, _now: Time, in_flight: u64, signal: Signal) {
        self.prior = (signal == Signal::Loss).then_some(self.cwnd);
        let used = (in_flight as f64 / self.smss as f64).min(self.cwnd);
        self.set((used / 2.0).max(MIN_WINDOW));
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_rto(&mut self, _now: Time, _in_flight: u64, first: bool) {
        if first {
            self.prior = Some(self.cwnd);
        }
        self.set(1.0);
    }

    fn on_idle_restart(&mut self, _now: Time, _app_limited: bool, expired: bool) {
        self.set(super::restarted(self.cwnd, self.initial_window, expired));
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.set(super::decayed(self.cwnd, self.initial_window, timeouts));
    }

    fn on_spurious(&mut self, _now: Time) {
        if let Some(cwnd) = self.prior.take() {
            self.set(self.cwnd.max(cwnd));
        }
    }

    fn on_lost_handshake(&mut self) {
        self.set(1.0);
    }

    fn on_established(&mut self, _now: Time, rtt: Option<Duration>) {
        if let Some(rtt) = rtt {
            self.measure(rtt);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows are positive, and far below 2^53 bytes"
    )]
    fn cwnd(&self) -> u64 {
        (self.cwnd * self.smss as f64) as u64
    }

    fn ssthresh(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Window after round trips of so many ms, each with a full window acknowledged, with α = 20.
    fn after(rtts: &[u64]) -> u64 {
        let mut fast = Fast::new(Start::plain(1000, 10_000), 20);
        let mut una = 0;
        for rtt in rtts {
            let window = fast.cwnd();
            for _ in 0..window.div_ceil(1000) {
                una += 1000;
                let rtt = Some(Duration::from_millis(*rtt));
                fast.on_ack(&AckEvent {
                    rtt,
                    una,
                    nxt: una + window,
                    ..AckEvent::of(1000, window, LossState::Open)
                });
            }
        }
        fast.cwnd() / 1000
    }

    #[test]
    fn without_a_queue_the_window_grows_by_half_of_alpha() {
        // min(2 · 10, 10 + γ · 20), and 10 more in each round trip.
        assert_eq!([1, 2, 3].map(|rounds| after(&vec![50; rounds])), [20, 30, 40]);
    }

    #[test]
    fn a_window_rests_with_alpha_segments_in_the_queue() {
        // 60 segments at 50 ms of which 20 stand in the queue: 75 ms. So the queue of 90 ms is too long.
        let long = after(&[[50; 8].as_slice(), &[90; 60]].concat());
        // w = base / RTT · w + α: 50 / 90 · 45 + 20 = 45.
        assert_eq!(long, 45);
    }

    #[test]
    fn a_loss_halves_the_window_and_a_timeout_leaves_one_segment() {
        let mut fast = Fast::new(Start::plain(1000, 40_000), 20);
        fast.on_congestion(Time::ZERO, 40_000, Signal::Loss);
        assert_eq!(fast.cwnd(), 20_000);
        fast.on_spurious(Time::ZERO);
        assert_eq!(fast.cwnd(), 40_000);
        fast.on_rto(Time::ZERO, 40_000, true);
        assert_eq!(fast.cwnd(), 1000);
    }
}
