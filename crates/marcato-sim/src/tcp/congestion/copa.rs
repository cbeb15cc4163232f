//! Copa: Arun, Balakrishnan, "Copa: practical delay-based congestion control for the Internet", NSDI 2018.
//!
//! The sender aims at a rate of one packet in δ times the queueing delay, and moves its window towards that with each
//! acknowledgement. Names are those of the article. Deviations:
//!
//! - The velocity is bounded so that an acknowledgement changes the window by no more than what it acknowledges.
//! - A queue of one packet is nearly empty too. With an acknowledgement for two packets, no round trip shows fewer.
//! - A mark (ECN) counts as a loss, which the article leaves out.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::max_filter::MaxFilter;
use super::{AckEvent, CongestionControl, Signal, Start};

/// δ of the default mode. §2.1.
const DELTA: f64 = 0.5;
/// Time of which the least round trip is RTTmin. §2.
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// Part of the range of queueing delays below which the queue is nearly empty. §2.2.
const NEARLY_EMPTY: f64 = 0.1;
/// Round trips within which a queue is nearly empty at some time, if all others are Copa's. §2.2.
const EMPTY_ROUNDS: u32 = 5;
/// Round trips of which RTTmax is the longest. §2.2.
const MAX_ROUNDS: u32 = 4;
/// Round trips in one direction before the velocity doubles. §2.1.
const STEADY_ROUNDS: u32 = 3;
/// Smallest window in segments.
const LEAST: f64 = 2.0;

/// Least of measurements in a window of time.
#[derive(Clone, Copy, Debug, Default)]
struct Least(MaxFilter);

impl Least {
    fn add(&mut self, window: Duration, now: Time, value: Duration) {
        self.0.update(nanos(window), now.as_nanos(), u64::MAX - nanos(value));
    }

    /// Least in seconds.
    fn secs(&self) -> f64 {
        (u64::MAX - self.0.max()) as f64 / 1e9
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Copa's window, in segments.
#[derive(Clone, Debug)]
pub(crate) struct Copa {
    smss: u64,
    initial_window: f64,
    cwnd: f64,
    rtt_min: Least,
    /// RTTstanding: least round trip of the last half of a smoothed one, which acknowledgements that come in bursts leave
    /// alone.
    standing: Least,
    /// RTTmax, in the nanoseconds of its window.
    rtt_max: MaxFilter,
    srtt: Duration,
    in_slow_start: bool,
    /// Change of the window in round trips, in units of 1/δ, and its direction.
    velocity: f64,
    is_up: bool,
    /// Round trips in this direction.
    steady: u32,
    /// Offset whose acknowledgement ends the round trip, and the window at its beginning.
    round_end: u64,
    round_cwnd: f64,
    /// Set if a packet was lost in this round trip.
    lost: bool,
    /// Round trips since the queue was last nearly empty.
    full_rounds: u32,
    /// 1/δ.
    per_delta: f64,
}

impl Copa {
    pub(crate) fn new(start: Start) -> Self {
        let initial_window = start.window as f64 / start.smss as f64;
        Self {
            smss: start.smss,
            initial_window,
            cwnd: initial_window,
            rtt_min: Least::default(),
            standing: Least::default(),
            rtt_max: MaxFilter::default(),
            srtt: Duration::ZERO,
            in_slow_start: true,
            velocity: 1.0,
            is_up: true,
            steady: 0,
            round_end: 0,
            round_cwnd: initial_window,
            lost: false,
            full_rounds: 0,
            per_delta: 1.0 / DELTA,
        }
    }

    fn measure(&mut self, now: Time, rtt: Duration) {
        self.rtt_min.add(MIN_WINDOW, now, rtt);
        self.standing.add(self.srtt / 2, now, rtt);
        let window = self.srtt.saturating_mul(MAX_ROUNDS);
        self.rtt_max.update(nanos(window), now.as_nanos(), nanos(rtt));
        let (least, most) = (self.rtt_min.secs(), self.rtt_max.max() as f64 / 1e9);
        let rtt = rtt.as_secs_f64();
        if rtt - least <= (NEARLY_EMPTY * (most - least)).max(rtt / self.cwnd) {
            self.full_rounds = 0;
        }
    }

    /// Changes the direction.
    fn turn(&mut self, is_up: bool) {
        (self.is_up, self.steady, self.velocity) = (is_up, 1, 1.0);
    }

    /// Ends a round trip: its direction sets the velocity, and its losses δ.
    fn round(&mut self) {
        let is_up = self.cwnd > self.round_cwnd;
        if is_up == self.is_up {
            self.steady += 1;
            if self.steady >= STEADY_ROUNDS {
                self.velocity *= 2.0;
            }
        } else {
            self.turn(is_up);
        }
        self.round_cwnd = self.cwnd;
        self.full_rounds = self.full_rounds.saturating_add(1);
        // §2.2: beside flows that fill the queue, δ follows the rule of TCP.
        self.per_delta = if self.full_rounds <= EMPTY_ROUNDS {
            1.0 / DELTA
        } else if self.lost {
            (self.per_delta / 2.0).max(1.0 / DELTA)
        } else {
            self.per_delta + 1.0
        };
        self.lost = false;
    }
}

impl CongestionControl for Copa {
    fn on_ack(&mut self, ack: &AckEvent) {
        self.srtt = ack.srtt.unwrap_or(self.srtt);
        if let Some(rtt) = ack.rtt {
            self.measure(ack.now, rtt);
        }
        if ack.una > self.round_end {
            self.round_end = ack.nxt;
            self.round();
        }
        let acked = ack.newly_acked.min(ack.delivered) as f64 / self.smss as f64;
        // Half of the window in use, as in slow start of RFC 7661 §4.4.1: what is not used does not grow.
        if acked == 0.0 || self.rtt_min.0.max() == 0 {
            return;
        }
        let is_used = ack.used.saturating_mul(2) >= self.cwnd();
        let (least, standing) = (self.rtt_min.secs(), self.standing.secs());
        let queueing = standing - least;
        // λ ≤ λt, in packets in a round trip: cwnd ≤ RTTstanding / (δ · dq).
        let is_slow = queueing <= 0.0 || self.cwnd * queueing <= standing * self.per_delta;
        if self.in_slow_start && is_slow {
            self.cwnd += if is_used { acked } else { 0.0 };
            return;
        }
        self.in_slow_start = false;
        if self.velocity > 1.0 && is_slow != self.is_up {
            // It was meant for the other direction.
            self.turn(is_slow);
        }
        let step = (acked * self.velocity * self.per_delta / self.cwnd).min(acked);
        match (is_slow, is_used) {
            (true, true) => self.cwnd += step,
            (true, false) => {}
            (false, _) => self.cwnd = (self.cwnd - step).max(LEAST),
        }
    }

    fn on_congestion(&mut self, _now: Time, _in_flight: u64, _signal: Signal) {
        self.lost = true;
    }

    fn on_recovered(&mut self, _now: Time) {}

    fn on_rto(&mut self, _now: Time, _in_flight: u64, _first: bool) {
        (self.cwnd, self.round_cwnd, self.in_slow_start) = (1.0, 1.0, true);
        (self.velocity, self.steady) = (1.0, 0);
    }

    fn on_idle_restart(&mut self, _now: Time, _app_limited: bool, expired: bool) {
        self.cwnd = super::restarted(self.cwnd, self.initial_window, expired);
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        self.cwnd = super::decayed(self.cwnd, self.initial_window, timeouts);
    }

    fn on_lost_handshake(&mut self) {
        self.cwnd = 1.0;
    }

    fn on_established(&mut self, _now: Time, rtt: Option<Duration>) {
        // Not a measurement: a short packet takes less time on the link, so that each full one would look queued.
        self.srtt = rtt.unwrap_or(self.srtt);
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
        if self.in_slow_start { u64::MAX } else { self.cwnd() }
    }

    /// Twice the rate of the window. §2.1: bursts of a window would look like a queue.
    fn pacing_rate(&self) -> Option<Rate> {
        (self.rtt_min.0.max() > 0).then(|| {
            let standing = Duration::from_nanos(u64::MAX - self.standing.0.max());
            Rate::from_bytes_over(Bytes::new(self.cwnd().saturating_mul(2)), standing)
        })
    }

    fn uses_prr(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::LossState;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Path of so many packets in a second and a least round trip, without another flow.
    struct Path {
        copa: Copa,
        now: Time,
        una: u64,
        /// Window of the round trip before, which stands in the path and its queue.
        before: u64,
    }

    impl Path {
        fn new() -> Self {
            let mut copa = Copa::new(Start::plain(1000, 10_000));
            copa.on_established(Time::ZERO, Some(ms(50)));
            Self { copa, now: Time::ZERO, una: 0, before: 0 }
        }

        /// Sends a window each round trip, of which what the path does not hold stands in the queue, besides what others
        /// keep there. `lost` rounds have a loss.
        fn rounds(&mut self, count: u32, per_ms: u64, others: Duration, lost: bool) {
            for _ in 0..count {
                let window = self.copa.cwnd();
                let before = std::mem::replace(&mut self.before, window);
                let own = Duration::from_micros(before.saturating_sub(50_000 * per_ms) / per_ms);
                let rtt = ms(50) + own + others;
                if lost {
                    self.copa.on_congestion(self.now, window, Signal::Loss);
                }
                let packets = window.div_ceil(1000);
                for _ in 0..packets {
                    self.now += rtt / u32::try_from(packets).unwrap();
                    self.una += 1000;
                    self.copa.on_ack(&AckEvent {
                        now: self.now,
                        una: self.una,
                        nxt: self.una + window,
                        rtt: Some(rtt),
                        srtt: Some(rtt),
                        ..AckEvent::of(1000, window, LossState::Open)
                    });
                }
            }
        }
    }

    #[test]
    fn a_queue_that_others_keep_full_makes_it_compete() {
        let mut path = Path::new();
        path.rounds(20, 2, Duration::ZERO, false);
        assert_eq!(path.copa.per_delta, 2.0);
        path.rounds(20, 2, ms(100), false);
        assert!(path.copa.per_delta > 10.0, "{}", path.copa.per_delta);
        let before = path.copa.per_delta;
        path.rounds(1, 2, ms(100), true);
        assert_eq!(path.copa.per_delta, before / 2.0);
    }

    #[test]
    fn losses_alone_leave_the_window() {
        let mut path = Path::new();
        path.rounds(40, 2, Duration::ZERO, false);
        let before = path.copa.cwnd();
        path.copa.on_congestion(path.now, before, Signal::Loss);
        assert_eq!(path.copa.cwnd(), before);
        path.copa.on_rto(path.now, before, true);
        assert_eq!(path.copa.cwnd(), 1000);
    }

    #[test]
    fn segments_leave_at_twice_the_rate_of_the_window() {
        let mut path = Path::new();
        assert_eq!(path.copa.pacing_rate(), None);
        path.rounds(1, 2, Duration::ZERO, false);
        let rate = path.copa.pacing_rate().unwrap();
        assert_eq!(rate, Rate::from_bytes_over(Bytes::new(path.copa.cwnd() * 2), ms(50)));
    }
}
